"""Intra prediction of many blocks at once, on CPU or GPU: all 67 modes of VVC or all 35 of HEVC."""

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError
from codecnn.intra._arrays import is_tensor
from codecnn.intra._taps import mode_taps

if TYPE_CHECKING:  # torch is imported by who predicts, not by who imports codecnn.intra
    from torch import Tensor

Array = TypeVar("Array", "Tensor", NDArray[Any])


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
    import torch

    from codecnn.intra._predict_tensors import predict_lines

    parts: Any = (corner, top, left)
    if not is_tensor(corner):
        parts = (torch.from_numpy(np.asarray(part).astype(np.int32)) for part in parts)
    at_corner, above, beside = parts
    lines = torch.cat((beside.flip(1), at_corner[:, None], above), 1).to(torch.int32)
    predicted: Any = predict_lines(lines, taps, bit_depth, strong_smoothing=strong_smoothing)
    return cast(Array, predicted if is_tensor(corner) else predicted.numpy().astype(corner.dtype))
