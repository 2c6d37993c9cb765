"""What a residual costs: SAD, SSE, SATD by Hadamard as VTM measures it, SATD by the true DCT, and a rate-aware cost.

Residuals are (n, height, width) of whole numbers, original minus prediction; costs (n,). NumPy or tensors.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from codecnn.errors import ConfigError
from codecnn.intra.transforms import Array, dct, hadamard

COSTS = ("dct", "hadamard", "sad", "sse")
"""Names of the costs that need no QP."""

ROUNDING = 171 / 512
"""Rounding offset of intra quantisation in HM and VTM without RDOQ."""


def satd(residual: Array, method: Literal["hadamard", "dct"] = "hadamard") -> Array:
    """Sum of absolute transformed differences, (n,).

    "hadamard" is VTM's to the bit, int64: tiles of 8x8 (4x4 below, 16x8, 8x16, 8x4 or 4x8 for blocks that are not
    square), a quarter of the DC term, each tile normalised. "dct" is the sum of absolute coefficients of the
    orthonormal DCT-II of the whole block, floating point. Raises ConfigError for another method, or for sides that are
    no powers of two from 4 on.
    """
    if method == "dct":
        return _absolute(dct(residual))
    if method != "hadamard":
        raise ConfigError(f"unknown SATD {method!r}: hadamard or dct")
    height, width = residual.shape[-2:]
    tile_h, tile_w = hadamard_tile(width, height)
    tiles = residual.reshape(-1, height // tile_h, tile_h, width // tile_w, tile_w).swapaxes(2, 3)
    coefficients = abs(hadamard(tiles.to(torch.int64) if isinstance(tiles, Tensor) else tiles.astype(np.int64)))
    coefficients[..., 0, 0] >>= 2
    sums = coefficients.sum((-1, -2))
    area = tile_h * tile_w
    if tile_h == tile_w:
        sums = (sums + tile_h // 4) >> (tile_h.bit_length() - 2)  # 8x8: (s + 2) >> 2, 4x4: (s + 1) >> 1
    elif isinstance(sums, Tensor):
        sums = (sums.to(torch.float64) / math.sqrt(area) * 2).to(torch.int64)
    else:
        sums = (sums / math.sqrt(area) * 2).astype(np.int64)
    return sums.sum((-1, -2))


def hadamard_tile(width: int, height: int) -> tuple[int, int]:
    """Height and width of the Hadamard tiles that VTM cuts a block of `width` x `height` samples into.

    Raises ConfigError unless both are powers of two from 4 on.
    """
    if any(side < 4 or side & (side - 1) for side in (width, height)):
        raise ConfigError(f"SATD of a {width}x{height} block: its sides are no powers of two from 4 on")
    if width == height:
        return (4, 4) if width == 4 else (8, 8)
    tile = (8, 16) if min(width, height) >= 8 else (4, 8)
    return tile if width > height else (tile[1], tile[0])


def sad(residual: Array) -> Array:
    """Sum of absolute differences, (n,)."""
    return _absolute(_whole(residual))


def sse(residual: Array) -> Array:
    """Sum of squared differences, (n,)."""
    samples = _whole(residual)
    return (samples * samples).sum((-1, -2))


def rate_cost(residual: Array, qp: float, bit_depth: int) -> Array:
    """J = D + λ·R of the residual after DCT and uniform quantisation at `qp`, in sample² of the bit depth, (n,).

    The step is 2^((qp-4)/6) at 8 bit, doubled by each further bit, the rounding offset 171/512, D the squared
    quantisation error, λ = 0.57·2^((qp-12)/3) (HM's for intra pictures), scaled as D. R, in bits, gives each level
    that is not 0 its signed exp-Golomb code of order 0 and zeros nothing: a stand-in for CABAC that keeps the order
    of candidates of one block, not a count of bits.
    """
    scale = 2.0 ** (bit_depth - 8)
    step = scale * 2 ** ((qp - 4) / 6)
    lagrange = scale**2 * 0.57 * 2 ** ((qp - 12) / 3)
    size = abs(dct(residual))
    library: Any = torch if isinstance(size, Tensor) else np
    level = library.floor(size / step + ROUNDING)
    bits = library.where(level > 0, 2 * library.floor(library.log2(library.clip(2 * level, 1, None))) + 1, 0.0)
    return ((size - level * step) ** 2 + lagrange * bits).sum((-1, -2))


def cost_function(name: str) -> Callable[[Any], Any]:
    """The function residual -> cost of a name in COSTS. Raises ConfigError for another name."""
    functions: dict[str, Callable[[Any], Any]] = {
        "dct": lambda residual: satd(residual, "dct"),
        "hadamard": satd,
        "sad": sad,
        "sse": sse,
    }
    if name not in functions:
        raise ConfigError(f"unknown cost {name!r}: one of {', '.join(COSTS)}")
    return functions[name]


def _whole(residual: Any) -> Any:
    """In a type that holds squares and sums."""
    if isinstance(residual, Tensor):
        return residual if residual.is_floating_point() else residual.to(torch.int64)
    return residual if np.issubdtype(residual.dtype, np.floating) else residual.astype(np.int64)


def _absolute(values: Any) -> Any:
    return abs(values).sum((-1, -2))
