"""Costs of residuals, and of every intra mode of many blocks.

The costs are SAD, SSE, SATD by Hadamard transform as in VTM, SATD by the DCT, and a rate-aware cost. Residuals have the
shape (n, height, width), integers, original minus prediction, as NumPy arrays or torch tensors; costs have the shape
(n,). `block_costs` predicts blocks by every mode and measures the residuals: compiled loops on a CPU, torch elsewhere.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords
from codecnn.vvc.intra.predict import predict_lines
from codecnn.vvc.intra.references import reference_rows
from codecnn.vvc.intra.taps import mode_taps
from codecnn.vvc.intra.transforms import Array, cast, dct, dct_matrix, hadamard, library, wide

COSTS = ("dct", "hadamard", "sad", "sse", "rate")
"""Names of the costs for labelling blocks; `rate` needs a QP."""

INTEGER_COSTS = frozenset(("hadamard", "sad", "sse"))
"""Costs that are integers, and so exact on every machine."""

ROUNDING = 171 / 512
"""Rounding offset of intra quantisation in HM and VTM without RDOQ."""

_COMPILED = ("dct", "hadamard", "rate")
"""Costs that `kernels` computes."""
_CACHE_FLOATS = 4096
"""Samples of one mode in a group of blocks: 16 KiB, about half of a first-level cache."""
_CHUNK_SAMPLES, _GPU_CHUNK_SAMPLES = 1 << 22, 1 << 25
"""Predicted samples in memory at once on torch's CPU and GPU path, at about 40 bytes each."""


@checked_keywords()
def satd(residual: Array, method: Literal["hadamard", "dct"] = "hadamard") -> Array:
    """Compute the sum of absolute transformed differences.

    Args:
        residual: Integers of shape (n, height, width).
        method: "hadamard" is bit-exact to VTM: tiles of 8x8 (4x4 for smaller blocks; 16x8, 8x16, 8x4 or 4x8 for blocks
            that are not square), a quarter of the DC term, each tile normalised. "dct" is the sum of absolute
            coefficients of the orthonormal DCT-II of the whole block.

    Returns:
        SATD of shape (n,): int64 for "hadamard", floating point for "dct".

    Raises:
        ConfigError: The method is unknown, or a side is not a power of two of at least 4 ("hadamard").
    """
    if method == "dct":
        return _absolute_sum(dct(residual))
    if method != "hadamard":
        raise ConfigError(f"unknown SATD {method!r}: use hadamard or dct")
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
        # The root of 128 or 32 is not a power of two: VTM divides in double precision and truncates.
        sums = cast(cast(sums, "float64") / math.sqrt(area) * 2, "int64")
    return sums.sum((-1, -2))


def hadamard_tile(width: int, height: int) -> tuple[int, int]:
    """Return height and width of the Hadamard tiles of a block, as RdCost::xGetHADs of VTM.

    Square blocks have tiles of 8x8, others have tiles of their own orientation, 16x8 or 8x4. Labels are compared with
    the decisions of an encoder, so the tiles must be those of the encoder.

    Args:
        width: Block width in samples.
        height: Block height in samples.

    Raises:
        ConfigError: A side is not a power of two of at least 4.
    """
    if any(side < 4 or side & (side - 1) for side in (width, height)):
        raise ConfigError(f"SATD of a {width}x{height} block: each side must be a power of two of at least 4")
    if width == height:
        return (4, 4) if width == 4 else (8, 8)
    tile = (8, 16) if min(width, height) >= 8 else (4, 8)
    return tile if width > height else (tile[1], tile[0])


def sad(residual: Array) -> Array:
    """Compute the sum of absolute differences, shape (n,), of residuals (n, height, width)."""
    return _absolute_sum(wide(residual))


def sse(residual: Array) -> Array:
    """Compute the sum of squared differences, shape (n,), of residuals (n, height, width)."""
    samples = wide(residual)
    return (samples * samples).sum((-1, -2))


def rate_cost(residual: Array, qp: float, bit_depth: int) -> Array:
    """Compute J = D + λ·R of residuals after DCT and uniform quantisation.

    The quantisation step is 2^((qp-4)/6) at 8 bit and doubles with each further bit; the rounding offset is 171/512. D
    is the squared quantisation error; λ = 0.57·2^((qp-12)/3) as in HM for intra pictures, scaled like D. R counts the
    bits of the signed exp-Golomb code of order 0 of each level that is not 0. It approximates CABAC well enough to
    order the candidates of one block, but is not a count of coded bits.

    Args:
        residual: Integers of shape (n, height, width).
        qp: Slice QP.
        bit_depth: Bits per sample of the picture.

    Returns:
        Costs in sample units squared, shape (n,).
    """
    step, lagrange = quantiser(qp, bit_depth)
    size = abs(dct(residual))
    lib = library(size)
    level = lib.floor(size / step + ROUNDING)
    bits = lib.where(level > 0, 2 * lib.floor(lib.log2(lib.clip(2 * level, 1, None))) + 1, 0.0)
    return ((size - level * step) ** 2 + lagrange * bits).sum((-1, -2))


def quantiser(qp: float, bit_depth: int) -> tuple[float, float]:
    """Return quantisation step and λ of `rate_cost`, in sample units and sample units squared of the bit depth."""
    scale = 2.0 ** (bit_depth - 8)
    return scale * 2 ** ((qp - 4) / 6), scale**2 * 0.57 * 2 ** ((qp - 12) / 3)


def cost_function(name: str, qp: float | None = None, bit_depth: int = 8) -> Callable[[Any], Any]:
    """Return the function that computes a cost from residuals.

    Args:
        name: One of COSTS.
        qp: Slice QP, needed for "rate".
        bit_depth: Bits per sample of the picture, used by "rate".

    Raises:
        ConfigError: The name is unknown, or "rate" has no QP.
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
        raise ConfigError(f"unknown cost {name!r}: use one of {', '.join(COSTS)}")


def check_bit_depth(bit_depth: int) -> None:
    """Raise ConfigError for more bits per sample than costs are exact for."""
    from codecnn.vvc.intra.kernels import MAX_BIT_DEPTH

    if bit_depth > MAX_BIT_DEPTH:
        raise ConfigError(f"labels need pictures of 8 to {MAX_BIT_DEPTH} bit, not of {bit_depth}")


def _absolute_sum(values: Any) -> Any:
    return abs(values).sum((-1, -2))


def block_costs(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    standard: str = "vvc",
    device: str = "cpu",
    qp: int | None = None,
) -> NDArray[np.float64]:
    """Compute the cost of every mode of blocks.

    Args:
        lines: References (see `reference_lines`), shape (n, 2·height + 1 + 2·width).
        original: Original samples, shape (n, height, width).
        bit_depth: Bits per sample, at most 12.
        cost: Name of the cost, one of COSTS.
        standard: "vvc" or "hevc".
        device: Device of torch. On "cpu", the costs "dct", "hadamard" and "rate" are computed without torch.
        qp: QP of the cost "rate".

    Returns:
        Costs of shape (n, 67 or 35).

    Raises:
        ConfigError: The cost is unknown or has no QP, the standard has no such block size, or the bit depth is too
            large.
    """
    check_bit_depth(bit_depth)
    height, width = original.shape[1:]
    taps = mode_taps(width, height, standard)
    compute = cost_function(cost, qp, bit_depth)
    if device == "cpu" and cost in _COMPILED:
        return _compiled_costs(lines, original, bit_depth, cost, standard, qp)
    import torch

    out = np.empty((len(lines), len(taps.shift)))
    chunk = max(1, (_CHUNK_SAMPLES if device == "cpu" else _GPU_CHUNK_SAMPLES) // taps.keep.size)
    for start in range(0, len(lines), chunk):
        part = slice(start, start + chunk)
        pred = predict_lines(torch.from_numpy(lines[part]).to(device), taps, bit_depth)
        samples = torch.from_numpy(original[part].astype(np.int32)).to(device)
        residual = (samples[:, None] - pred).reshape(-1, height, width)
        if cost in ("dct", "rate"):
            residual = residual.to(torch.float32)
        out[part] = compute(residual).reshape(len(samples), -1).cpu().numpy()
    return out


def selected_costs(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    modes: NDArray[np.integer[Any]],
    standard: str = "vvc",
    qp: int | None = None,
) -> NDArray[np.float64]:
    """Compute the cost of selected modes of each block on the CPU, as a search that does not try all modes.

    The costs are equal to those of `block_costs`.

    Args:
        lines: References (see `reference_lines`), shape (n, 2·height + 1 + 2·width).
        original: Original samples, shape (n, height, width).
        bit_depth: Bits per sample, at most 12.
        cost: "dct", "hadamard" or "rate".
        modes: Mode numbers, shape (n, k).
        standard: "vvc" or "hevc".
        qp: QP of the cost "rate".

    Returns:
        Costs of shape (n, k).

    Raises:
        ConfigError: As `block_costs`, or the cost is not one of the three.
    """
    from codecnn.vvc.intra import kernels

    check_bit_depth(bit_depth)
    cost_function(cost, qp, bit_depth)
    if cost not in _COMPILED:
        raise ConfigError(f"selected modes can be measured by {', '.join(_COMPILED)}, not by {cost!r}")
    height, width = original.shape[1:]
    rows, tables = _kernel_tables(lines, bit_depth, width, height, standard)
    order = np.argsort(modes, axis=None, kind="stable")
    out = np.empty(order.size)
    block, mode = order // modes.shape[1], modes.ravel()[order].astype(np.int64)
    arguments: tuple[Any, ...] = (rows, np.ascontiguousarray(original, np.float32), *tables)
    arguments += (*_kernel_settings(cost, bit_depth, width, height, qp), block, mode, out)
    kernels.selected_costs(*arguments)
    costs = np.empty(order.size)
    costs[order] = out
    return costs.reshape(modes.shape)


def _compiled_costs(
    lines: NDArray[np.int32], original: NDArray[Any], bit_depth: int, cost: str, standard: str, qp: int | None
) -> NDArray[np.float64]:
    """Compute `block_costs` by the compiled loops."""
    from codecnn.vvc.intra import kernels

    count, height, width = original.shape
    rows, tables = _kernel_tables(lines, bit_depth, width, height, standard)
    out = np.empty((count, len(tables[0])))
    arguments: tuple[Any, ...] = (rows, original.astype(np.float32), *tables)
    arguments += (*_kernel_settings(cost, bit_depth, width, height, qp), out)
    kernels.mode_costs(*arguments)
    return out


def _kernel_tables(
    lines: NDArray[np.int32], bit_depth: int, width: int, height: int, standard: str
) -> tuple[NDArray[np.float32], tuple[NDArray[Any], ...]]:
    """Return the reference rows of the blocks, shape (n, e), and the tables of the kernels."""
    rows = reference_rows(lines, width, height, bit_depth, strong_smoothing=standard == "hevc")
    return rows.astype(np.float32), _scaled_taps(width, height, standard)


def _kernel_settings(cost: str, bit_depth: int, width: int, height: int, qp: int | None) -> tuple[Any, ...]:
    """Return the arguments of the kernels that define the cost: peak, matrices, tile, quantiser, lanes."""
    tile = hadamard_tile(width, height) if cost == "hadamard" else (0, 0)
    step, lagrange = quantiser(qp, bit_depth) if cost == "rate" and qp is not None else (0.0, 0.0)
    rate = tuple(np.float32(value) for value in (step, ROUNDING, lagrange))
    matrices = tuple(dct_matrix(size).astype(np.float32) for size in (height, width))
    lanes = min(128, max(16, _CACHE_FLOATS // (height * width)))
    return np.float32((1 << bit_depth) - 1), *matrices, tile, rate, lanes


@cache
def _scaled_taps(width: int, height: int, standard: str) -> tuple[NDArray[Any], ...]:
    """Return the tables of `Taps` for the kernels: weights divided by 2^shift, `keep` as third weight of the blend."""
    taps = mode_taps(width, height, standard)

    def scaled(table: NDArray[np.int32], shift: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.ldexp(table, -shift.reshape(-1, *(1,) * (table.ndim - 1))).astype(np.float32)

    weight = scaled(taps.weight, taps.shift)
    blend = scaled(np.concatenate((taps.blend_weight, taps.keep[..., None]), -1), taps.blend_shift)
    return taps.index, weight, taps.blend_index, blend, scaled(taps.blend_round, taps.blend_shift)
