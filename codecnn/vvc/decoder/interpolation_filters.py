"""Interpolation filters and their application to a row of samples (H.266 tables 27 to 35)."""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import U
from codecnn.vvc.intra import CUBIC_FILTER

Samples = npt.NDArray[np.uint16]

REGULAR, HALF_SAMPLE, AFFINE, DOWN_1, DOWN_2, AFFINE_DOWN_1, AFFINE_DOWN_2 = range(7)
"""Filters of luma: tables 27 (hpelIfIdx 0 and 1) to 32; DOWN_1 and DOWN_2 are those of scaled references.

Of these, chroma has REGULAR, DOWN_1 and DOWN_2 (tables 33 to 35).
"""


def _mirrored(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Append the filters of the fractions beyond one half: those below one half reversed."""
    return rows + [row[::-1] for row in rows[-2:0:-1]]


_LUMA = _mirrored(
    [
        (0, 0, 0, 64, 0, 0, 0, 0),
        (0, 1, -3, 63, 4, -2, 1, 0),
        (-1, 2, -5, 62, 8, -3, 1, 0),
        (-1, 3, -8, 60, 13, -4, 1, 0),
        (-1, 4, -10, 58, 17, -5, 1, 0),
        (-1, 4, -11, 52, 26, -8, 3, -1),
        (-1, 3, -9, 47, 31, -10, 4, -1),
        (-1, 4, -11, 45, 34, -10, 4, -1),
        (-1, 4, -11, 40, 40, -11, 4, -1),
    ]
)

_LUMA_DOWN_1 = _mirrored(
    [
        (-1, -5, 17, 42, 17, -5, -1, 0),
        (0, -5, 15, 41, 19, -5, -1, 0),
        (0, -5, 13, 40, 21, -4, -1, 0),
        (0, -5, 11, 39, 24, -4, -2, 1),
        (0, -5, 9, 38, 26, -3, -2, 1),
        (0, -5, 7, 38, 28, -2, -3, 1),
        (1, -5, 5, 36, 30, -1, -3, 1),
        (1, -4, 3, 35, 32, 0, -4, 1),
        (1, -4, 2, 33, 33, 2, -4, 1),
    ]
)

_LUMA_DOWN_2 = _mirrored(
    [
        (-4, 2, 20, 28, 20, 2, -4, 0),
        (-4, 0, 19, 29, 21, 5, -4, -2),
        (-4, -1, 18, 29, 22, 6, -4, -2),
        (-4, -1, 16, 29, 23, 7, -4, -2),
        (-4, -1, 16, 28, 24, 7, -4, -2),
        (-4, -1, 14, 28, 25, 8, -4, -2),
        (-3, -3, 14, 27, 26, 9, -3, -3),
        (-3, -1, 12, 28, 25, 10, -4, -3),
        (-3, -3, 11, 27, 27, 11, -3, -3),
    ]
)

_CHROMA_DOWN_1 = _mirrored(
    [
        (12, 40, 12, 0),
        (11, 40, 13, 0),
        (10, 40, 15, -1),
        (9, 40, 16, -1),
        (8, 40, 17, -1),
        (8, 39, 18, -1),
        (7, 39, 19, -1),
        (6, 38, 21, -1),
        (5, 38, 22, -1),
        (4, 38, 23, -1),
        (4, 37, 24, -1),
        (3, 36, 25, 0),
        (3, 35, 26, 0),
        (2, 34, 28, 0),
        (2, 33, 29, 0),
        (1, 33, 30, 0),
        (1, 31, 31, 1),
    ]
)

_CHROMA_DOWN_2 = _mirrored(
    [
        (17, 30, 17, 0),
        (17, 30, 18, -1),
        (16, 30, 18, 0),
        (16, 30, 18, 0),
        (15, 30, 18, 1),
        (14, 30, 18, 2),
        (13, 29, 19, 3),
        (13, 29, 19, 3),
        (12, 29, 20, 3),
        (11, 28, 21, 4),
        (10, 28, 22, 4),
        (10, 27, 22, 5),
        (9, 27, 23, 5),
        (9, 26, 24, 5),
        (8, 26, 24, 6),
        (7, 26, 25, 6),
        (7, 25, 25, 7),
    ]
)


def _folded(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the filters of six taps of affine blocks: the outer taps are added to their neighbours."""
    return [(0, row[0] + row[1], *row[2:6], row[6] + row[7], 0) for row in rows]


_HALF = [*_LUMA[:8], (0, 3, 9, 20, 20, 9, 3, 0), *_LUMA[9:]]

LUMA_FILTERS = np.array(
    [_LUMA, _HALF, _folded(_LUMA), _LUMA_DOWN_1, _LUMA_DOWN_2, _folded(_LUMA_DOWN_1), _folded(_LUMA_DOWN_2)], np.int32
)
"""Filters of luma by set, fraction in 1/16 sample and tap, (7, 16, 8)."""

# Table 25 (fC) and table 33 have the same filters.
CHROMA_FILTERS = np.array([*[CUBIC_FILTER] * 3, _CHROMA_DOWN_1, _CHROMA_DOWN_2], np.int32)
"""Filters of chroma by set, fraction in 1/32 sample and tap, (5, 32, 4)."""


@compiled
def filter_eight(
    source: Samples | Array[int],
    first: int,
    stride: int,
    step: int,
    rows: int,
    columns: int,
    kind: int,
    fraction: int,
    shift: int,
    target: Array[int],
) -> None:
    """Filter a block by eight taps.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.

    Args:
        source: Samples, or results of the horizontal filter.
        first: Position of the first tap of the first result.
        stride: Distance of the rows in `source`.
        step: Distance of the taps: 1 to filter along rows, `stride` to filter along columns.
        rows: Rows of the result.
        columns: Columns of the result.
        kind: Filter set.
        fraction: Fraction in 1/16 sample.
        shift: Right shift of the sums.
        target: The results, row by row.
    """
    c0, c1, c2, c3 = (
        LUMA_FILTERS[kind, fraction, 0],
        LUMA_FILTERS[kind, fraction, 1],
        LUMA_FILTERS[kind, fraction, 2],
        LUMA_FILTERS[kind, fraction, 3],
    )
    c4, c5, c6, c7 = (
        LUMA_FILTERS[kind, fraction, 4],
        LUMA_FILTERS[kind, fraction, 5],
        LUMA_FILTERS[kind, fraction, 6],
        LUMA_FILTERS[kind, fraction, 7],
    )
    for row in range(rows):
        tap, out = first + row * stride, U(row * columns)
        t0, t1, t2, t3 = U(tap), U(tap + step), U(tap + 2 * step), U(tap + 3 * step)
        t4, t5, t6, t7 = U(tap + 4 * step), U(tap + 5 * step), U(tap + 6 * step), U(tap + 7 * step)
        for k in range(columns):
            i = U(k)
            total = np.int32(
                c0 * source[t0 + i]
                + c1 * source[t1 + i]
                + c2 * source[t2 + i]
                + c3 * source[t3 + i]
                + c4 * source[t4 + i]
                + c5 * source[t5 + i]
                + c6 * source[t6 + i]
                + c7 * source[t7 + i]
            )
            target[out + i] = total >> shift


@compiled
def filter_four(
    source: Samples | Array[int],
    first: int,
    stride: int,
    step: int,
    rows: int,
    columns: int,
    kind: int,
    fraction: int,
    shift: int,
    target: Array[int],
) -> None:
    """Filter a block by four taps; the arguments are those of `filter_eight`.

    Part of clause 8.5.6.3.4, Chroma sample interpolation process.

    The fraction is in 1/32 sample.
    """
    c0, c1, c2, c3 = (
        CHROMA_FILTERS[kind, fraction, 0],
        CHROMA_FILTERS[kind, fraction, 1],
        CHROMA_FILTERS[kind, fraction, 2],
        CHROMA_FILTERS[kind, fraction, 3],
    )
    for row in range(rows):
        tap, out = first + row * stride, U(row * columns)
        t0, t1, t2, t3 = U(tap), U(tap + step), U(tap + 2 * step), U(tap + 3 * step)
        for k in range(columns):
            i = U(k)
            total = np.int32(c0 * source[t0 + i] + c1 * source[t1 + i] + c2 * source[t2 + i] + c3 * source[t3 + i])
            target[out + i] = total >> shift
