"""Classes of 4x4 luma blocks that choose the filter and its transpose of ALF (H.266 clause 8.8.5.3)."""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import U, clip

Samples = npt.NDArray[np.int32]

MARGIN = 4
"""Samples around a rectangle that are copied with it."""

CLASS_OF_ACTIVITY = np.array([0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4], np.int64)
"""avgVar by the quantized activity (clause 8.8.5.3)."""

TRANSPOSE = np.array([0, 1, 0, 2, 2, 3, 1, 3], np.int64)
"""transposeIdx by 2 * main direction + secondary direction / 2, where the directions are as in `classify`."""


@compiled
def gradients(block: Samples, sums: Samples, y0: int, width: int, height: int, ctu: int) -> None:
    """Compute the gradients of all 2x2 samples of a luma rectangle and two samples around it.

    Part of clause 8.8.5.3, Derivation process for ALF transpose and filter index for luma samples.
    Part of clause 8.8.5.5, ALF boundary position derivation process.

    Each direction is a separate loop: a loop with few rows and one result is vectorised.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        sums: Result, shape (4, rows, columns): vertical, horizontal and both diagonal gradients, from two samples
            above and to the left of the rectangle on.
        y0: First row of the rectangle in the picture.
        width: Width of the rectangle.
        height: Height of the rectangle.
        ctu: Size of a CTU.
    """
    for j in range((height >> 1) + 2):
        y = MARGIN - 2 + 2 * j
        # Rows across the line buffer boundary of the CTU are replaced by the nearest row on this side.
        place = (y0 - 2 + 2 * j) & (ctu - 1)
        above = y if place == ctu - 4 else y - 1
        below = y + 1 if place == ctu - 6 else y + 2
        count = (width >> 1) + 2
        for which in range(4):
            gradient_row(block, sums, which, j, above, y, below, count)


@compiled
def gradient_row(block: Samples, sums: Samples, which: int, j: int, above: int, y: int, below: int, count: int) -> None:
    """Compute a row of gradients of one direction.

    Part of clause 8.8.5.3, Derivation process for ALF transpose and filter index for luma samples.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        sums: Result, see `gradients`.
        which: Direction, the first index of `sums`.
        j: Row of the result.
        above: Row of `block` above the 2x2 samples.
        y: First row of `block` of the 2x2 samples.
        below: Row of `block` below the 2x2 samples.
        count: Number of results.
    """
    r0, r1, r2, r3 = U(above), U(y), U(y + 1), U(below)
    out, to, left, step, two = U(which), U(j), U(MARGIN - 3), U(1), U(2)
    for k in range(count):
        i = U(k)
        x = left + two * i
        b, c, d = x + step, x + two, x + two + step
        first, second = np.int32(2 * block[r1, b]), np.int32(2 * block[r2, c])
        if which == 0:
            first = np.int32(first - block[r0, b] - block[r2, b])
            second = np.int32(second - block[r1, c] - block[r3, c])
        elif which == 1:
            first = np.int32(first - block[r1, c] - block[r1, x])
            second = np.int32(second - block[r2, d] - block[r2, b])
        elif which == 2:
            first = np.int32(first - block[r0, x] - block[r2, c])
            second = np.int32(second - block[r1, b] - block[r3, d])
        else:
            first = np.int32(first - block[r2, x] - block[r0, c])
            second = np.int32(second - block[r3, b] - block[r1, d])
        sums[out, to, i] = np.int32(abs(first) + abs(second))


@compiled
def classify(sums: Samples, row: int, column: int, place: int, ctu: int, depth: int) -> int:
    """Derive the class of 4x4 luma samples.

    Clause 8.8.5.3, Derivation process for ALF transpose and filter index for luma samples.

    Args:
        sums: Gradients, as `gradients` returns them.
        row: Row of the first 2x2 samples in `sums`.
        column: Column of the first 2x2 samples in `sums`.
        place: Row of the 4x4 samples in their CTU.
        ctu: Size of a CTU.
        depth: Bit depth.

    Returns:
        4 * filtIdx + transposeIdx.
    """
    first, last, factor = row, row + 4, 64
    if place == ctu - 8:
        last, factor = row + 3, 96
    elif place == ctu - 4:
        first, factor = row + 1, 96
    vertical = horizontal = diagonal = antidiagonal = 0
    for row_of_sums in range(first, last):
        j = U(row_of_sums)
        for k in range(4):
            i = U(column + k)
            vertical += sums[U(0), j, i]
            horizontal += sums[U(1), j, i]
            diagonal += sums[U(2), j, i]
            antidiagonal += sums[U(3), j, i]
    activity = clip((vertical + horizontal) * factor >> (depth + 4), 0, 15)
    # Directions: 0 and 2 are diagonal, 1 and 3 vertical and horizontal.
    straight = 1 if vertical > horizontal else 3
    straight_high, straight_low = max(vertical, horizontal), min(vertical, horizontal)
    oblique = 0 if diagonal > antidiagonal else 2
    oblique_high, oblique_low = max(diagonal, antidiagonal), min(diagonal, antidiagonal)
    if oblique_high * straight_low > straight_high * oblique_low:
        high, low, main, secondary = oblique_high, oblique_low, oblique, straight
    else:
        high, low, main, secondary = straight_high, straight_low, straight, oblique
    strength = 2 if 2 * high > 9 * low else 1 if high > 2 * low else 0
    kind: int = 4 * CLASS_OF_ACTIVITY[activity] + TRANSPOSE[2 * main + (secondary >> 1)]
    return kind + 20 * (2 * (main & 1) + strength) if strength else kind
