"""Intra prediction of many blocks at once with torch, on CPU or GPU: all 67 modes of VVC or all 35 of HEVC."""

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords
from codecnn.vvc.intra.references import reference_rows
from codecnn.vvc.intra.taps import Taps, mode_taps
from codecnn.vvc.intra.transforms import is_tensor

if TYPE_CHECKING:  # torch is imported on prediction, not with codecnn.vvc.intra
    import torch
    from torch import Tensor

Array = TypeVar("Array", "Tensor", NDArray[Any])


@checked_keywords()
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
    """Predict blocks by every luma mode, bit-exact to the standards.

    VVC is predicted as in H.266 8.4.5.2, with wide angles, reference smoothing, interpolation and PDPC; HEVC as in
    H.265 8.4.4.2, with its edge filters. Reference samples are unfiltered, and all of them are available or substituted
    (see `reference_lines`).

    Args:
        corner: Sample p[-1][-1] of each block, integers of shape (n,).
        top: Samples from p[0][-1] to the right, shape (n, 2·width).
        left: Samples from p[-1][0] down, shape (n, 2·height).
        width: Block width in samples.
        height: Block height in samples.
        bit_depth: Bits per sample, 8 to 16.
        standard: "vvc" or "hevc".
        strong_smoothing: strong_intra_smoothing_enabled_flag of HEVC.

    Returns:
        Predictions of shape (n, 67 or 35, height, width): an array of the type of `corner`, or an int32 tensor on the
        device of `corner`.

    Raises:
        ConfigError: The standard has no such block size, the references have other shapes, or the bit depth is out of
            range.
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
    import torch

    parts: Any = (corner, top, left)
    if not is_tensor(corner):
        parts = (torch.from_numpy(np.asarray(part).astype(np.int32)) for part in parts)
    corner_samples, top_samples, left_samples = parts
    lines = torch.cat((left_samples.flip(1), corner_samples[:, None], top_samples), 1).to(torch.int32)
    predicted: Any = predict_lines(lines, taps, bit_depth, strong_smoothing=strong_smoothing)
    return cast(Array, predicted if is_tensor(corner) else predicted.numpy().astype(corner.dtype))


def predict_lines(lines: "Tensor", taps: Taps, bit_depth: int, *, strong_smoothing: bool = True) -> "Tensor":
    """Predict blocks by every mode from their reference lines, on the device of the lines.

    int32 holds all sums: samples have at most 16 bits, and weights add up to 64 or to 2·64·64.

    Args:
        lines: Reference lines (see `reference_lines`), shape (n, 2·height + 1 + 2·width), int32.
        taps: Tables of the block size.
        bit_depth: Bits per sample.
        strong_smoothing: strong_intra_smoothing_enabled_flag of HEVC.

    Returns:
        Predictions of shape (n, m, height, width), int32.
    """
    rows = reference_rows(
        lines, taps.width, taps.height, bit_depth, strong_smoothing=strong_smoothing and taps.standard == "hevc"
    )
    tables = _on_device(taps.width, taps.height, taps.standard, lines.device)
    peak = (1 << bit_depth) - 1
    pred = tables["round"].expand(len(rows), -1, taps.height, taps.width).clone()
    for tap in range(tables["index"].shape[0]):
        pred += rows[:, tables["index"][tap]] * tables["weight"][tap]
    pred = (pred >> tables["shift"]).clamp_(0, peak)
    blended = tables["blended"]
    sums = pred[:, blended]
    sums *= tables["keep"]
    sums += tables["blend_round"]
    for tap in range(tables["blend_index"].shape[0]):
        sums += rows[:, tables["blend_index"][tap]] * tables["blend_weight"][tap]
    pred[:, blended] = (sums >> tables["blend_shift"]).clamp_(0, peak)
    return pred


@cache
def _on_device(width: int, height: int, standard: str, device: "torch.device") -> dict[str, "Tensor"]:
    """Return the tables of `Taps` as tensors, taps first; those of the second sum only for the modes that use it."""
    import torch

    taps = mode_taps(width, height, standard)
    blended = np.nonzero(taps.blended)[0]

    def tensor(table: NDArray[Any], dtype: torch.dtype = torch.int32) -> "Tensor":
        return torch.tensor(table, dtype=dtype, device=device)

    def taps_first(table: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(table, -1, 0)

    def per_mode(table: NDArray[Any]) -> NDArray[Any]:
        return table[:, None, None]

    return {
        "index": tensor(taps_first(taps.index), torch.int64),
        "weight": tensor(taps_first(taps.weight)),
        "shift": tensor(per_mode(taps.shift)),
        "round": tensor(per_mode(1 << taps.shift >> 1)),
        "blended": tensor(blended, torch.int64),
        "blend_index": tensor(taps_first(taps.blend_index[blended]), torch.int64),
        "blend_weight": tensor(taps_first(taps.blend_weight[blended])),
        "keep": tensor(taps.keep[blended]),
        "blend_shift": tensor(per_mode(taps.blend_shift[blended])),
        "blend_round": tensor(per_mode(taps.blend_round[blended])),
    }
