"""Up-right diagonal scan of sub-blocks and of the positions within them (H.266 clause 6.5.2)."""

import numpy as np
import numpy.typing as npt

_LOG2_SIZES = 5
"""Number of values of log2 of a width or height, 0 to 4."""

_POSITIONS = 64
"""Largest number of positions of a block."""


def _diagonal(width: int, height: int) -> list[tuple[int, int]]:
    """List (x, y) along the diagonals from bottom left to top right."""
    return [
        (x, diagonal - x) for diagonal in range(width + height - 1) for x in range(width) if 0 <= diagonal - x < height
    ]


def _scans() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    scan = np.zeros((_LOG2_SIZES, _LOG2_SIZES, _POSITIONS, 2), np.int64)
    index = np.zeros((_LOG2_SIZES, _LOG2_SIZES, _POSITIONS), np.int64)
    for a in range(_LOG2_SIZES):
        for b in range(_LOG2_SIZES):
            if a + b > 6:
                continue
            for place, (x, y) in enumerate(_diagonal(1 << a, 1 << b)):
                scan[a, b, place] = x, y
                index[a, b, (y << a) + x] = place
    return scan, index


SCAN, SCAN_INDEX = _scans()
"""Up-right diagonal scan (clause 6.5.2) of a block of 2^a x 2^b positions.

SCAN[a, b, place] is (x, y); SCAN_INDEX[a, b, (y << a) + x] is the place.
"""
