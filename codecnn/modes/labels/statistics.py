"""Comparison of the modes that Hadamard and DCT costs choose with each other and with those of an encoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import TableError
from codecnn.modes.labels.table import LabelSettings, Source, rank_modes
from codecnn.vvc.intra import SIZES, block_costs, block_positions, blocks_at, reference_lines

TOP = 3
"""Number of best modes in which the mode of an encoder is searched."""
_CHUNK = 1 << 18
"""Luma samples of the blocks whose costs are in memory at once."""


class CostComparison(NamedTuple):
    """Comparison of Hadamard and DCT for one block size.

    Attributes:
        size: Block size as WxH.
        blocks: Number of blocks.
        another: Number of blocks for which Hadamard and DCT choose different modes.
        dct_of_dct: Sum of the DCT cost of the modes that the DCT chooses.
        dct_of_hadamard: Sum of the DCT cost of the modes that Hadamard chooses.
    """

    size: str
    blocks: int
    another: int
    dct_of_dct: float
    dct_of_hadamard: float


class EncoderAgreement(NamedTuple):
    """Comparison of an encoder's modes with the best modes by Hadamard and DCT for one block size.

    Attributes:
        size: Block size as WxH.
        blocks: Number of blocks.
        dct_of_encoder: Sum of the DCT cost of the encoder's modes.
        dct_of_dct: Sum of the DCT cost of the cheapest modes.
        same_dct: Number of blocks whose best mode by DCT is that of the encoder.
        top_dct: Number of blocks whose TOP best modes by DCT include that of the encoder.
        same_hadamard: As `same_dct`, by Hadamard.
        top_hadamard: As `top_dct`, by Hadamard.
    """

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
    """Compare the modes that Hadamard and DCT costs choose in a picture.

    `dct_of_hadamard / dct_of_dct - 1` is the relative increase of the DCT cost if modes are chosen by Hadamard.

    Args:
        source: The picture.
        settings: Block sizes, standard and CTU size.

    Returns:
        One comparison per block size.
    """
    comparisons = []
    for width, height in settings.block_sizes:
        positions = block_positions(source.original.shape[1], source.original.shape[0], width, height)
        parts = []
        for _, dct, hadamard in _costs(source, positions, width, height, settings):
            best_dct, best_hadamard = (
                rank_modes(costs, 1, exact=costs is hadamard)[0][:, 0] for costs in (dct, hadamard)
            )
            index, another = np.arange(len(dct)), int((best_dct != best_hadamard).sum())
            sums = dct[index, best_dct].sum(), dct[index, best_hadamard].sum()
            parts.append(CostComparison(f"{width}x{height}", len(dct), another, *sums))
        comparisons.append(add_up(parts) if parts else CostComparison(f"{width}x{height}", 0, 0, 0.0, 0.0))
    return comparisons


def encoder_agreement(
    source: Source, blocks: NDArray[np.int64], modes: NDArray[np.int64], settings: LabelSettings
) -> list[EncoderAgreement]:
    """Compare an encoder's modes with the best ones by Hadamard and DCT costs.

    CUs that the standard does not predict as a whole, or that extend beyond the picture, are not counted.

    Args:
        source: The picture.
        blocks: x, y, width and height of CUs in luma samples, shape (n, 4), without CUs that use other tools (MIP, ISP,
            multiple reference lines).
        modes: Luma modes of the CUs, shape (n,).
        settings: Standard and CTU size.

    Returns:
        One comparison per block size.

    Raises:
        TableError: The standard has no such mode.
    """
    height, width = source.original.shape
    sides = SIZES[settings.standard]
    inside = (blocks[:, 0] + blocks[:, 2] <= width) & (blocks[:, 1] + blocks[:, 3] <= height)
    inside &= np.isin(blocks[:, 2:], sides).all(1)
    agreements = []
    for w, h in sorted({tuple(size) for size in blocks[inside, 2:].tolist()}):
        selected = np.nonzero(inside & (blocks[:, 2:] == (w, h)).all(1))[0]
        parts = []
        for part, dct, hadamard in _costs(source, blocks[selected, :2], w, h, settings):
            chosen = modes[selected[part]]
            if chosen.min() < 0 or chosen.max() >= dct.shape[1]:
                raise TableError(f"{source.name}: a CU of {w}x{h} has an intra mode outside 0 to {dct.shape[1] - 1}")
            counts = []
            for costs in (dct, hadamard):
                best = rank_modes(costs, TOP, exact=costs is hadamard)[0]
                counts += [int((best[:, 0] == chosen).sum()), int((best == chosen[:, None]).any(1).sum())]
            sums = dct[np.arange(len(chosen)), chosen].sum(), dct.min(1).sum()
            parts.append(EncoderAgreement(f"{w}x{h}", len(chosen), *sums, *counts))
        agreements.append(add_up(parts))
    return agreements


def add_up(parts: Sequence[Sums]) -> Sums:
    """Sum the counts and costs of comparisons of one block size."""
    size, *columns = zip(*parts, strict=True)
    return type(parts[0])(size[0], *map(sum, columns))


def _costs(source: Source, positions: NDArray[np.int64], width: int, height: int, settings: LabelSettings) -> Any:
    """Yield indices of some blocks (n,), and their DCT and Hadamard costs (n, m)."""
    count = max(1, _CHUNK // (width * height))
    for start in range(0, len(positions), count):
        part = np.arange(start, min(start + count, len(positions)))
        chunk = positions[part]
        lines = reference_lines(source.references, chunk, width, height, source.bit_depth, settings.ctu_size)
        blocks = blocks_at(source.original, chunk, width, height)
        costs = (block_costs(lines, blocks, source.bit_depth, cost, settings.standard) for cost in ("dct", "hadamard"))
        yield part, *costs
