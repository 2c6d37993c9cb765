"""What a residual costs: SAD, SSE, SATD by Hadamard as VTM measures it, SATD by the true DCT, and a rate-aware cost.

Residuals are (n, height, width) of whole numbers, original minus prediction; costs (n,). NumPy or tensors.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from codecnn.errors import ConfigError
from codecnn.intra._arrays import Array, cast, library, wide
from codecnn.intra._transforms import dct, hadamard

COSTS = ("dct", "hadamard", "sad", "sse", "rate")
"""Names of the costs that blocks are labelled by; `rate` needs a QP."""

WHOLE = frozenset(("hadamard", "sad", "sse"))
"""Those of them that are whole numbers, and so exact on every machine."""

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
    coefficients = abs(hadamard(cast(tiles, "int64")))
    # A quarter of the DC term: the mean-scaled SATD of JVET-R0164, on by default in VTM.
    coefficients[..., 0, 0] >>= 2
    sums = coefficients.sum((-1, -2))
    area = tile_h * tile_w
    if tile_h == tile_w:
        sums = (sums + tile_h // 4) >> (tile_h.bit_length() - 2)  # 8x8: (s + 2) >> 2, 4x4: (s + 1) >> 1
    else:
        # The root of 128 or 32 is no power of two: VTM divides in double precision and cuts.
        sums = cast(cast(sums, "float64") / math.sqrt(area) * 2, "int64")
    return sums.sum((-1, -2))


def hadamard_tile(width: int, height: int) -> tuple[int, int]:
    """Height and width of the Hadamard tiles that VTM cuts a block of `width` x `height` samples into.

    As RdCost::xGetHADs: squares have tiles of 8x8, others tiles of their own orientation, 16x8 or 8x4. Labels are held
    against what an encoder chose, so the tiles have to be the encoder's: 8x8 throughout would give other sums. Raises
    ConfigError unless both are powers of two from 4 on.
    """
    if any(side < 4 or side & (side - 1) for side in (width, height)):
        raise ConfigError(f"SATD of a {width}x{height} block: its sides are no powers of two from 4 on")
    if width == height:
        return (4, 4) if width == 4 else (8, 8)
    tile = (8, 16) if min(width, height) >= 8 else (4, 8)
    return tile if width > height else (tile[1], tile[0])


def sad(residual: Array) -> Array:
    """Sum of absolute differences, (n,)."""
    return _absolute(wide(residual))


def sse(residual: Array) -> Array:
    """Sum of squared differences, (n,)."""
    samples = wide(residual)
    return (samples * samples).sum((-1, -2))


def rate_cost(residual: Array, qp: float, bit_depth: int) -> Array:
    """J = D + λ·R of the residual after DCT and uniform quantisation at `qp`, in sample² of the bit depth, (n,).

    The step is 2^((qp-4)/6) at 8 bit, doubled by each further bit, the rounding offset 171/512, D the squared
    quantisation error, λ = 0.57·2^((qp-12)/3) (HM's for intra pictures), scaled as D. R, in bits, gives each level
    that is not 0 its signed exp-Golomb code of order 0 and zeros nothing: a stand-in for CABAC that keeps the order
    of candidates of one block, not a count of bits.
    """
    step, lagrange = quantiser(qp, bit_depth)
    size = abs(dct(residual))
    lib = library(size)
    level = lib.floor(size / step + ROUNDING)
    bits = lib.where(level > 0, 2 * lib.floor(lib.log2(lib.clip(2 * level, 1, None))) + 1, 0.0)
    return ((size - level * step) ** 2 + lagrange * bits).sum((-1, -2))


def quantiser(qp: float, bit_depth: int) -> tuple[float, float]:
    """Step and λ of `rate_cost` at `qp`, in samples and sample² of the bit depth."""
    scale = 2.0 ** (bit_depth - 8)
    return scale * 2 ** ((qp - 4) / 6), scale**2 * 0.57 * 2 ** ((qp - 12) / 3)


def cost_function(name: str, qp: float | None = None, bit_depth: int = 8) -> Callable[[Any], Any]:
    """The function residual -> cost of a name in COSTS, `rate` at `qp` and `bit_depth`.

    Raises ConfigError for another name, and for `rate` without a QP.
    """
    check_cost(name)
    if name == "rate":
        if qp is None:
            raise ConfigError("the cost 'rate' needs the QP that the pictures were decoded at")
        return partial(rate_cost, qp=qp, bit_depth=bit_depth)
    functions: dict[str, Callable[[Any], Any]]
    functions = {"dct": partial(satd, method="dct"), "hadamard": satd, "sad": sad, "sse": sse}
    return functions[name]


def check_cost(name: str) -> None:
    """Raise ConfigError for a name that is not in COSTS."""
    if name not in COSTS:
        raise ConfigError(f"unknown cost {name!r}: one of {', '.join(COSTS)}")


def _absolute(values: Any) -> Any:
    return abs(values).sum((-1, -2))
