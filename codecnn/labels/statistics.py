"""What labels are worth: how often Hadamard and DCT choose differently, what that costs, what an encoder chose."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import TableError
from codecnn.intra.blocks import block_costs
from codecnn.intra.modes import SIZES
from codecnn.intra.references import block_positions, blocks_at, reference_lines
from codecnn.labels.table import LabelSettings, Source, rank_modes

Row = dict[str, Any]

TOP = 3
"""Depth of the "among the best" columns."""
_CHUNK = 1 << 18
"""Luma samples of the blocks whose costs are in memory at once."""


def compare_costs(source: Source, settings: LabelSettings) -> list[Row]:
    """A row a block size: `blocks`, how many of them Hadamard gives `another` mode than the DCT, and sums of DCT cost.

    `dct_of_dct` is the sum of the cheapest modes' DCT cost and `dct_of_hadamard` that of the modes with the least
    Hadamard cost, so that `dct_of_hadamard / dct_of_dct - 1` is the part that choosing by Hadamard loses.
    """
    rows = []
    for width, height in settings.block_sizes:
        positions = block_positions(source.original.shape[1], source.original.shape[0], width, height)
        sums = [0, 0, 0.0, 0.0]
        for _, dct, hadamard in _costs(source, positions, width, height, settings):
            ours, theirs = _best(dct, "dct"), _best(hadamard, "hadamard")
            each = np.arange(len(dct))
            parts = (len(dct), int((ours != theirs).sum()), dct[each, ours].sum(), dct[each, theirs].sum())
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
        names = ("blocks", "another", "dct_of_dct", "dct_of_hadamard")
        rows.append({"size": f"{width}x{height}", **dict(zip(names, sums, strict=True))})
    return rows


def encoder_agreement(
    source: Source, blocks: NDArray[np.int64], modes: NDArray[np.int64], settings: LabelSettings
) -> list[Row]:
    """A row a block size: how an encoder's choices stand with both costs.

    `blocks` (n, 4) are x, y, width and height of CUs in luma samples, `modes` (n,) what the encoder chose for them;
    leave out those coded with other tools (MIP, ISP, further reference lines). CUs that the standard does not predict
    as a whole, or that reach past the picture, are not counted. Rows have `blocks`; for each cost `same_COST` (its
    best mode is the encoder's) and `top_COST` (the encoder's is among its three best); `dct_of_encoder`, the sum of
    the DCT cost of the encoder's modes, and `dct_of_dct`, that of the cheapest. Raises TableError for a mode that the
    standard does not have.
    """
    height, width = source.original.shape
    sides = SIZES[settings.standard]
    inside = (blocks[:, 0] + blocks[:, 2] <= width) & (blocks[:, 1] + blocks[:, 3] <= height)
    inside &= np.isin(blocks[:, 2:], sides).all(1)
    rows = []
    for w, h in sorted({tuple(size) for size in blocks[inside, 2:].tolist()}):
        mine = np.nonzero(inside & (blocks[:, 2:] == (w, h)).all(1))[0]
        row: Row = defaultdict(float, size=f"{w}x{h}")
        for part, dct, hadamard in _costs(source, blocks[mine, :2], w, h, settings):
            chosen = modes[mine[part]]
            if chosen.min() < 0 or chosen.max() >= dct.shape[1]:
                raise TableError(f"{source.name}: a CU of {w}x{h} has an intra mode outside 0 to {dct.shape[1] - 1}")
            each = np.arange(len(chosen))
            row["blocks"] += len(chosen)
            row["dct_of_encoder"] += dct[each, chosen].sum()
            row["dct_of_dct"] += dct.min(1).sum()
            for cost, values in (("dct", dct), ("hadamard", hadamard)):
                best = rank_modes(values, TOP, exact=cost != "dct")[0]
                row[f"same_{cost}"] += int((best[:, 0] == chosen).sum())
                row[f"top_{cost}"] += int((best == chosen[:, None]).any(1).sum())
        rows.append(dict(row))
    return rows


def add_rows(rows: Iterable[Mapping[str, Any]], *by: str) -> list[Row]:
    """Sums of rows that agree in the columns `by`, in the order in which these first come."""
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        total = sums.setdefault(tuple(row[name] for name in by), {name: row[name] for name in by})
        for name, value in row.items():
            if name not in by and not isinstance(value, str):
                total[name] = total.get(name, 0) + value
    return list(sums.values())


def _best(costs: NDArray[np.float64], cost: str) -> NDArray[np.uint8]:
    return rank_modes(costs, 1, exact=cost != "dct")[0][:, 0]


def _costs(source: Source, positions: NDArray[np.int64], width: int, height: int, settings: LabelSettings) -> Any:
    """Pieces of blocks: which, and their DCT and Hadamard costs, (n, m)."""
    step = max(1, _CHUNK // (width * height))
    for start in range(0, len(positions), step):
        part = np.arange(start, min(start + step, len(positions)))
        where = positions[part]
        lines = reference_lines(source.references, where, width, height, source.bit_depth, settings.ctu_size)
        blocks = blocks_at(source.original, where, width, height)
        costs = (block_costs(lines, blocks, source.bit_depth, cost, settings.standard) for cost in ("dct", "hadamard"))
        yield part, *costs
