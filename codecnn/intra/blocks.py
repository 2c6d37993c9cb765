"""Costs of every mode of many blocks: by the quickest way that a device has, and by the plain reference."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError
from codecnn.intra._kernels import MAX_BIT_DEPTH, mode_costs
from codecnn.intra._reference_rows import reference_rows
from codecnn.intra._taps import mode_taps
from codecnn.intra._transforms import dct_matrix
from codecnn.intra.cost import cost_function, hadamard_tile
from codecnn.intra.predict_reference import predict_modes_reference
from codecnn.intra.references import split_lines

Costs = NDArray[np.float64]

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
) -> Costs:
    """Cost of every mode of n blocks, (n, 67 or 35).

    `lines` (n, 2·height + 1 + 2·width) are the references (see `references.reference_lines`), `original` (n, height,
    width) the samples. Raises ConfigError for a cost not in COSTS, a size that the standard does not have, or more
    than 12 bit.
    """
    check_bit_depth(bit_depth)
    height, width = original.shape[1:]
    taps = mode_taps(width, height, standard)
    compute = cost_function(cost)
    if device == "cpu" and cost in ("dct", "hadamard"):
        return _on_cpu(lines, original, bit_depth, cost, standard)
    import torch

    from codecnn.intra._predict_tensors import predict_lines

    out = np.empty((len(lines), len(taps.shift)))
    chunk = max(1, (_CHUNK_SAMPLES if device == "cpu" else _GPU_CHUNK_SAMPLES) // taps.keep.size)
    for start in range(0, len(lines), chunk):
        part = slice(start, start + chunk)
        pred = predict_lines(torch.from_numpy(lines[part]).to(device), taps, bit_depth)
        samples = torch.from_numpy(original[part].astype(np.int32)).to(device)
        residual = (samples[:, None] - pred).reshape(-1, height, width)
        if cost == "dct":
            residual = residual.to(torch.float32)
        out[part] = compute(residual).reshape(len(samples), -1).cpu().numpy()
    return out


def block_costs_reference(
    lines: NDArray[np.int32], original: NDArray[Any], bit_depth: int, cost: str, standard: str = "vvc"
) -> NDArray[np.float64]:
    """Costs as of `block_costs`, from `predict_modes_reference` and NumPy in float64: what that is checked against."""
    height, width = original.shape[1:]
    pred = predict_modes_reference(*split_lines(lines, height), width, height, bit_depth, standard)
    residual = original[:, None].astype(np.int64) - pred
    costs = cost_function(cost)(residual.reshape(-1, height, width))
    return np.asarray(costs, np.float64).reshape(residual.shape[:2])


def check_bit_depth(bit_depth: int) -> None:
    """Raise ConfigError for samples of more bits than the costs are exact for."""
    if bit_depth > MAX_BIT_DEPTH:
        raise ConfigError(f"labels are made of pictures of 8 to {MAX_BIT_DEPTH} bit, not of {bit_depth}")


def _on_cpu(lines: NDArray[np.int32], original: NDArray[Any], bit_depth: int, cost: str, standard: str) -> Costs:
    count, height, width = original.shape
    taps = mode_taps(width, height, standard)
    rows = reference_rows(lines, taps, bit_depth)
    tile = (0, 0) if cost == "dct" else hadamard_tile(width, height)
    lanes = min(128, max(16, _CACHE_FLOATS // (height * width)))
    matrices = (dct_matrix(size).astype(np.float32) for size in (height, width))
    out = np.empty((count, len(taps.shift)))
    peak = np.float32((1 << bit_depth) - 1)
    arguments: tuple[Any, ...] = (rows.astype(np.float32), original.astype(np.float32))
    arguments += (*_tables(width, height, standard), peak, *matrices, tile, lanes, out)
    mode_costs(*arguments)
    return out


@cache
def _tables(width: int, height: int, standard: str) -> tuple[NDArray[Any], ...]:
    """The tables of `Taps` for `mode_costs`: weights divided by 2^shift, what is kept beside the blended two."""
    taps = mode_taps(width, height, standard)

    def scaled(table: NDArray[np.int32], shift: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.ldexp(table, -shift.reshape(-1, *(1,) * (table.ndim - 1))).astype(np.float32)

    weight = scaled(taps.weight, taps.shift)
    blend = scaled(np.concatenate((taps.blend_weight, taps.keep[..., None]), -1), taps.blend_shift)
    return taps.index, weight, taps.blend_index, blend, scaled(taps.blend_round, taps.blend_shift)
