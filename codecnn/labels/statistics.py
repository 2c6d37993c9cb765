"""How often Hadamard and DCT choose different modes, what that costs, and how an encoder's choices stand with both."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import TableError
from codecnn.intra import SIZES, block_costs, block_positions, blocks_at, reference_lines
from codecnn.labels.table import LabelSettings, Source, rank_modes

TOP = 3
"""How many of the best modes count as "among the best"."""
_CHUNK = 1 << 18
"""Luma samples of the blocks whose costs are in memory at once."""


class CostComparison(NamedTuple):
    """Blocks of a size, how many of them Hadamard gives `another` mode than the DCT, and sums of DCT cost: of the modes
    that the DCT chooses, and of those that Hadamard chooses."""

    size: str
    blocks: int
    another: int
    dct_of_dct: float
    dct_of_hadamard: float


class EncoderAgreement(NamedTuple):
    """Blocks of a size; of each cost how often its best mode is the encoder's (`same`) and how often the encoder's is
    among its TOP best (`top`); sums of the DCT cost of the encoder's modes and of the cheapest."""

    size: str
    blocks: int
    dct_of_encoder: float
    dct_of_dct: float
    same_dct: int
    top_dct: int
    same_hadamard: int
    top_hadamard: int


Sums = TypeVar("Sums", CostComparison, EncoderAgreement)


def compare_costs(source: Source, settings: LabelSettings) -> list[CostComparison]:
    """How Hadamard's choices stand against those of the DCT, by block size.

    `dct_of_hadamard / dct_of_dct - 1` is the part of the DCT cost that choosing by Hadamard loses.
    """
    found = []
    for width, height in settings.block_sizes:
        positions = block_positions(source.original.shape[1], source.original.shape[0], width, height)
        parts = []
        for _, dct, hadamard in _costs(source, positions, width, height, settings):
            ours, theirs = (rank_modes(costs, 1, exact=costs is hadamard)[0][:, 0] for costs in (dct, hadamard))
            each, another = np.arange(len(dct)), int((ours != theirs).sum())
            sums = dct[each, ours].sum(), dct[each, theirs].sum()
            parts.append(CostComparison(f"{width}x{height}", len(dct), another, *sums))
        found.append(add_up(parts) if parts else CostComparison(f"{width}x{height}", 0, 0, 0.0, 0.0))
    return found


def encoder_agreement(
    source: Source, blocks: NDArray[np.int64], modes: NDArray[np.int64], settings: LabelSettings
) -> list[EncoderAgreement]:
    """How an encoder's choices stand with both costs, by block size.

    `blocks` (n, 4) are x, y, width and height of CUs in luma samples, `modes` (n,) what the encoder chose for them;
    leave out those coded with other tools (MIP, ISP, further reference lines). CUs that the standard does not predict
    as a whole, or that reach past the picture, are not counted. Raises TableError for a mode that the standard does
    not have.
    """
    height, width = source.original.shape
    sides = SIZES[settings.standard]
    inside = (blocks[:, 0] + blocks[:, 2] <= width) & (blocks[:, 1] + blocks[:, 3] <= height)
    inside &= np.isin(blocks[:, 2:], sides).all(1)
    found = []
    for w, h in sorted({tuple(size) for size in blocks[inside, 2:].tolist()}):
        mine = np.nonzero(inside & (blocks[:, 2:] == (w, h)).all(1))[0]
        parts = []
        for part, dct, hadamard in _costs(source, blocks[mine, :2], w, h, settings):
            chosen = modes[mine[part]]
            if chosen.min() < 0 or chosen.max() >= dct.shape[1]:
                raise TableError(f"{source.name}: a CU of {w}x{h} has an intra mode outside 0 to {dct.shape[1] - 1}")
            counts = []
            for costs in (dct, hadamard):
                best = rank_modes(costs, TOP, exact=costs is hadamard)[0]
                counts += [int((best[:, 0] == chosen).sum()), int((best == chosen[:, None]).any(1).sum())]
            sums = dct[np.arange(len(chosen)), chosen].sum(), dct.min(1).sum()
            parts.append(EncoderAgreement(f"{w}x{h}", len(chosen), *sums, *counts))
        found.append(add_up(parts))
    return found


def add_up(parts: Sequence[Sums]) -> Sums:
    """Sums of all counts and costs of `parts`, under the size of the first."""
    size, *columns = zip(*parts, strict=True)
    return type(parts[0])(size[0], *map(sum, columns))


def _costs(source: Source, positions: NDArray[np.int64], width: int, height: int, settings: LabelSettings) -> Any:
    """Pieces of blocks: which, and their DCT and Hadamard costs, (n, m)."""
    count = max(1, _CHUNK // (width * height))
    for start in range(0, len(positions), count):
        part = np.arange(start, min(start + count, len(positions)))
        where = positions[part]
        lines = reference_lines(source.references, where, width, height, source.bit_depth, settings.ctu_size)
        blocks = blocks_at(source.original, where, width, height)
        costs = (block_costs(lines, blocks, source.bit_depth, cost, settings.standard) for cost in ("dct", "hadamard"))
        yield part, *costs
