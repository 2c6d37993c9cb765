"""Intra prediction of many blocks at once, on CPU or GPU: all 67 modes of VVC or all 35 of HEVC."""

from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codecnn.errors import ConfigError
from codecnn.intra.taps import Taps, mode_taps

Array = TypeVar("Array", Tensor, NDArray[Any])


def predict_modes(
    corner: Array,
    top: Array,
    left: Array,
    width: int,
    height: int,
    bit_depth: int,
    standard: str = "vvc",
    *,
    strong_smoothing: bool = True,
) -> Array:
    """Every luma mode's prediction of n blocks, (n, 67, height, width) for "vvc", (n, 35, height, width) for "hevc".

    References are unfiltered, all available or substituted (see `references`): `corner` (n,), `top` (n, 2·width) from
    p[0][-1] on, `left` (n, 2·height) from p[-1][0] on, whole numbers. Arrays of NumPy give one of their own type,
    tensors an int32 tensor where they are. The predictions are the standards' bit for bit: wide angles, reference
    smoothing, interpolation and PDPC of H.266 8.4.5.2, or H.265 8.4.4.2 with its edge filters (`strong_smoothing` is
    strong_intra_smoothing_enabled_flag). Raises ConfigError for a size that the standard does not have, references
    of another shape, or a bit depth outside 8..16.
    """
    taps = mode_taps(width, height, standard)
    if not 8 <= bit_depth <= 16:
        raise ConfigError(f"bit depth {bit_depth} is not in 8 to 16")
    shapes = tuple(tuple(part.shape) for part in (corner, top, left))
    count = len(corner)
    if shapes != ((count,), (count, 2 * width), (count, 2 * height)):
        raise ConfigError(
            f"references of {width}x{height} blocks are corner (n,), top (n, {2 * width}) and left (n, {2 * height}), "
            f"not {shapes}"
        )
    if isinstance(corner, Tensor):
        return predict_lines(_line(corner, top, left), taps, bit_depth, strong_smoothing=strong_smoothing)
    parts = (torch.from_numpy(np.asarray(part).astype(np.int32)) for part in (corner, top, left))
    predicted = predict_lines(_line(*parts), taps, bit_depth, strong_smoothing=strong_smoothing)
    return predicted.numpy().astype(corner.dtype)


def _line(corner: Tensor, top: Tensor, left: Tensor) -> Tensor:
    return torch.cat((left.flip(1), corner[:, None], top), 1).to(torch.int32)


def predict_lines(lines: Tensor, taps: Taps, bit_depth: int, *, strong_smoothing: bool = True) -> Tensor:
    """The same from reference lines, (n, 2·height + 1 + 2·width) int32 (see `taps`), as int32 on their device."""
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


def reference_rows(lines: Tensor, taps: Taps, bit_depth: int, *, strong_smoothing: bool = True) -> Tensor:
    """References, the same smoothed, and the DC value of every block: (n, 2·length + 1) int32."""
    smooth = lines.clone()
    smooth[:, 1:-1] = (lines[:, :-2] + 2 * lines[:, 1:-1] + lines[:, 2:] + 2) >> 2
    if strong_smoothing and taps.standard == "hevc" and taps.width == 32:
        smooth = torch.where(_nearly_straight(lines, bit_depth), _straight(lines), smooth)
    width, height = taps.width, taps.height
    corner = 2 * height
    used = lines[:, (corner if width > height else corner - height) : corner + 1 + (width if width >= height else 0)]
    sides = used.sum(1) - lines[:, corner]
    count = width + height if width == height else max(width, height)
    mean = (sides + count // 2) // count
    return torch.cat((lines, smooth, mean[:, None].to(torch.int32)), 1)


def _nearly_straight(lines: Tensor, bit_depth: int) -> Tensor:
    """H.265 8.4.4.2.3: biIntFlag, (n, 1)."""
    corner, limit = lines[:, 64], 1 << (bit_depth - 5)
    flat = (corner + lines[:, -1] - 2 * lines[:, 96]).abs() < limit
    return (flat & ((corner + lines[:, 0] - 2 * lines[:, 32]).abs() < limit))[:, None]


def _straight(lines: Tensor) -> Tensor:
    """H.265 8.4.4.2.3: straight lines from the corner to both ends."""
    position = torch.arange(65, device=lines.device, dtype=torch.int32)
    corner = lines[:, 64:65]
    down, right = (((64 - position) * corner + position * lines[:, end : end + 1] + 32) >> 6 for end in (0, 128))
    return torch.cat((down.flip(1), right[:, 1:]), 1)


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
