"""Intra prediction of many blocks at once by torch, on CPU or GPU: the sums of `taps` for all modes together."""

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codecnn.intra._reference_rows import reference_rows
from codecnn.intra._taps import Taps, mode_taps


def predict_lines(lines: Tensor, taps: Taps, bit_depth: int, *, strong_smoothing: bool = True) -> Tensor:
    """Every mode's prediction, (n, m, height, width) int32, from reference lines (n, 2·height + 1 + 2·width) int32 (see
    `taps`), on their device. int32 holds all sums: samples of 16 bit, weights that add up to 64 or to 2·64·64."""
    rows = reference_rows(lines, taps, bit_depth, strong_smoothing=strong_smoothing)
    tables = _on_device(taps.width, taps.height, taps.standard, lines.device)
    peak = (1 << bit_depth) - 1
    pred = tables["round"].expand(len(rows), -1, taps.height, taps.width).clone()
    for tap in range(tables["index"].shape[0]):
        pred += rows[:, tables["index"][tap]] * tables["weight"][tap]
    pred = (pred >> tables["shift"]).clamp_(0, peak)
    blended = tables["blended"]
    keep = pred[:, blended]
    keep *= tables["keep"]
    keep += tables["blend_round"]
    for tap in range(tables["blend_index"].shape[0]):
        keep += rows[:, tables["blend_index"][tap]] * tables["blend_weight"][tap]
    pred[:, blended] = (keep >> tables["blend_shift"]).clamp_(0, peak)
    return pred


@cache
def _on_device(width: int, height: int, standard: str, device: torch.device) -> dict[str, Tensor]:
    """The tables of `Taps` as tensors, taps first; those of the second sum only for the modes that it changes."""
    taps = mode_taps(width, height, standard)
    blended = np.nonzero(taps.blended)[0]

    def tensor(table: NDArray[Any], dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.tensor(table, dtype=dtype, device=device)

    def taps_first(table: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(table, -1, 0)

    def a_mode(table: NDArray[Any]) -> NDArray[Any]:
        return table[:, None, None]

    return {
        "index": tensor(taps_first(taps.index), torch.int64),
        "weight": tensor(taps_first(taps.weight)),
        "shift": tensor(a_mode(taps.shift)),
        "round": tensor(a_mode(1 << taps.shift >> 1)),
        "blended": tensor(blended, torch.int64),
        "blend_index": tensor(taps_first(taps.blend_index[blended]), torch.int64),
        "blend_weight": tensor(taps_first(taps.blend_weight[blended])),
        "keep": tensor(taps.keep[blended]),
        "blend_shift": tensor(a_mode(taps.blend_shift[blended])),
        "blend_round": tensor(a_mode(taps.blend_round[blended])),
    }
