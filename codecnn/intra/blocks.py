"""Costs of every mode of many blocks: by the quickest way that a device has, and by the plain reference."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError
from codecnn.intra import _kernels
from codecnn.intra._kernels import MAX_BIT_DEPTH
from codecnn.intra._reference_rows import reference_rows
from codecnn.intra._taps import mode_taps
from codecnn.intra._transforms import dct_matrix
from codecnn.intra.cost import ROUNDING, cost_function, hadamard_tile, quantiser
from codecnn.intra.predict_reference import predict_modes_reference
from codecnn.intra.references import split_lines

Costs = NDArray[np.float64]

_FAST = ("dct", "hadamard", "rate")
"""Costs that the kernels know."""
_CACHE_FLOATS = 4096
"""Samples of one mode that are worked on together: 16 KiB leave room in a first-level cache."""
_CHUNK_SAMPLES, _GPU_CHUNK_SAMPLES = 1 << 22, 1 << 25
"""Predicted samples that are in memory at once where torch works, at some 40 bytes each."""


def block_costs(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    standard: str = "vvc",
    device: str = "cpu",
    qp: int | None = None,
) -> Costs:
    """Cost of every mode of n blocks, (n, 67 or 35).

    `lines` (n, 2·height + 1 + 2·width) are the references (see `references.reference_lines`), `original` (n, height,
    width) the samples, `qp` that of the cost `rate`. Raises ConfigError for a cost not in COSTS or without its QP, a
    size that the standard does not have, or more than 12 bit.
    """
    check_bit_depth(bit_depth)
    height, width = original.shape[1:]
    taps = mode_taps(width, height, standard)
    compute = cost_function(cost, qp, bit_depth)
    if device == "cpu" and cost in _FAST:
        return _on_cpu(lines, original, bit_depth, cost, standard, qp)
    import torch

    from codecnn.intra._predict_tensors import predict_lines

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


def block_costs_reference(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    standard: str = "vvc",
    qp: int | None = None,
) -> NDArray[np.float64]:
    """Costs as of `block_costs`, from `predict_modes_reference` and NumPy in float64: what that is checked against."""
    height, width = original.shape[1:]
    pred = predict_modes_reference(*split_lines(lines, height), width, height, bit_depth, standard)
    residual = original[:, None].astype(np.int64) - pred
    costs = cost_function(cost, qp, bit_depth)(residual.reshape(-1, height, width))
    return np.asarray(costs, np.float64).reshape(residual.shape[:2])


def check_bit_depth(bit_depth: int) -> None:
    """Raise ConfigError for samples of more bits than the costs are exact for."""
    if bit_depth > MAX_BIT_DEPTH:
        raise ConfigError(f"labels are made of pictures of 8 to {MAX_BIT_DEPTH} bit, not of {bit_depth}")


def some_costs(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    modes: NDArray[np.integer[Any]],
    standard: str = "vvc",
    qp: int | None = None,
) -> Costs:
    """Costs (n, k) of some modes (n, k) of each block alone, on the CPU: what a search pays that need not try them all.

    They are those of `block_costs`, number for number. Raises as that does, and for a cost other than dct, hadamard
    and rate.
    """
    check_bit_depth(bit_depth)
    cost_function(cost, qp, bit_depth)
    if cost not in _FAST:
        raise ConfigError(f"single modes are tried by {', '.join(_FAST)}, not by {cost!r}")
    height, width = original.shape[1:]
    rows, tables = _rows(lines, bit_depth, width, height, standard)
    order = np.argsort(modes, axis=None, kind="stable")
    out = np.empty(order.size)
    block, mode = order // modes.shape[1], modes.ravel()[order].astype(np.int64)
    arguments: tuple[Any, ...] = (rows, np.ascontiguousarray(original, np.float32), *tables)
    arguments += (*_how(cost, bit_depth, width, height, qp), block, mode, out)
    _kernels.some_costs(*arguments)
    costs = np.empty(order.size)
    costs[order] = out
    return costs.reshape(modes.shape)


def _on_cpu(
    lines: NDArray[np.int32], original: NDArray[Any], bit_depth: int, cost: str, standard: str, qp: int | None
) -> Costs:
    count, height, width = original.shape
    rows, tables = _rows(lines, bit_depth, width, height, standard)
    out = np.empty((count, len(tables[0])))
    arguments: tuple[Any, ...] = (rows, original.astype(np.float32), *tables)
    arguments += (*_how(cost, bit_depth, width, height, qp), out)
    _kernels.mode_costs(*arguments)
    return out


def _rows(
    lines: NDArray[np.int32], bit_depth: int, width: int, height: int, standard: str
) -> tuple[NDArray[np.float32], tuple[NDArray[Any], ...]]:
    """What predictions are sums of, (n, e), and the tables of the sums."""
    rows = reference_rows(lines, mode_taps(width, height, standard), bit_depth)
    return rows.astype(np.float32), _tables(width, height, standard)


def _how(cost: str, bit_depth: int, width: int, height: int, qp: int | None) -> tuple[Any, ...]:
    """The arguments of the kernels that say how a residual is measured: peak, matrices, tile, quantiser, lanes."""
    tile = hadamard_tile(width, height) if cost == "hadamard" else (0, 0)
    step, lagrange = quantiser(qp, bit_depth) if cost == "rate" and qp is not None else (0.0, 0.0)
    rate = tuple(np.float32(value) for value in (step, ROUNDING, lagrange))
    matrices = tuple(dct_matrix(size).astype(np.float32) for size in (height, width))
    lanes = min(128, max(16, _CACHE_FLOATS // (height * width)))
    return np.float32((1 << bit_depth) - 1), *matrices, tile, rate, lanes


@cache
def _tables(width: int, height: int, standard: str) -> tuple[NDArray[Any], ...]:
    """The tables of `Taps` for `mode_costs`: weights divided by 2^shift, what is kept beside the blended two."""
    taps = mode_taps(width, height, standard)

    def scaled(table: NDArray[np.int32], shift: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.ldexp(table, -shift.reshape(-1, *(1,) * (table.ndim - 1))).astype(np.float32)

    weight = scaled(taps.weight, taps.shift)
    blend = scaled(np.concatenate((taps.blend_weight, taps.keep[..., None]), -1), taps.blend_shift)
    return taps.index, weight, taps.blend_index, blend, scaled(taps.blend_round, taps.blend_shift)
