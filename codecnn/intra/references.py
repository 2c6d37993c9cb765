"""Reference samples of a picture's blocks: which neighbours are available, and what stands in for the others.

Blocks are coded in CTU raster order and, within a CTU, in z-order: a neighbouring sample is available when it lies in
the picture and its 4x4 unit comes before the block's first one in that order. For square blocks that is the order of a
quadtree in H.265 (6.4.1) and H.266 (6.4.4) whose blocks are all coded, in one slice and tile; for others it is
the order of the 4x4 units that they cover.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError

UNIT = 4
"""Side of the units in which z-order is counted: the smallest luma block."""


def block_positions(picture_width: int, picture_height: int, width: int, height: int) -> NDArray[np.int64]:
    """(n, 2) x and y of the blocks on the grid of their size that lie wholly inside the picture, row by row."""
    y, x = np.mgrid[: picture_height // height, : picture_width // width]
    return np.stack((x.ravel() * width, y.ravel() * height), 1).astype(np.int64)


def blocks_at(plane: NDArray[Any], positions: NDArray[np.int64], width: int, height: int) -> NDArray[Any]:
    """Copies of the blocks at `positions`, (n, height, width)."""
    windows = np.lib.stride_tricks.sliding_window_view(plane, (height, width))
    return windows[positions[:, 1], positions[:, 0]]


def reference_lines(
    plane: NDArray[Any], positions: NDArray[np.int64], width: int, height: int, bit_depth: int, ctu_size: int = 128
) -> NDArray[np.int32]:
    """References of blocks of `width` x `height` at `positions` (n, 2), (n, 2·height + 1 + 2·width).

    From p[-1][2·height-1] up to the corner and on to p[2·width-1][-1]: the order of the substitution process (H.266
    8.4.5.2.9, H.265 8.4.4.2.2), in which an unavailable sample takes the value of the one before it, the first ones
    that of the first available one, and all of them half the sample range where none is. Raises ConfigError unless
    the CTU size is a power of two that holds the blocks.
    """
    x, y, known = reference_places(positions, width, height, plane.shape[1], plane.shape[0], ctu_size)
    lines = plane[y, x].astype(np.int32)
    lines[~known] = 1 << (bit_depth - 1)
    return lines


def split_lines(lines: NDArray[Any], height: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Corner (n,), top (n, 2·width) and left (n, 2·height), as `predict_modes` takes them, of `reference_lines`."""
    return lines[:, 2 * height], lines[:, 2 * height + 1 :], lines[:, : 2 * height][:, ::-1]


def reference_places(
    positions: NDArray[np.int64],
    width: int,
    height: int,
    picture_width: int | NDArray[np.int64],
    picture_height: int | NDArray[np.int64],
    ctu_size: int = 128,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where the samples of `reference_lines` lie, after substitution: x and y (n, 2·height + 1 + 2·width), known (n,).

    The blocks may be of pictures of different sizes: `picture_width` and `picture_height` are numbers, or (n, 1).
    Blocks without any available neighbour are not `known`. Raises ConfigError as `reference_lines` does.
    """
    if ctu_size & (ctu_size - 1) or max(width, height) > ctu_size:
        raise ConfigError(f"blocks of {width}x{height} do not lie in CTUs of {ctu_size} samples")
    line_x, line_y = _offsets(width, height)
    x, y = positions[:, :1] + line_x, positions[:, 1:] + line_y
    inside = (x >= 0) & (y >= 0) & (x < picture_width) & (y < picture_height)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    across = -(-picture_width // ctu_size)
    here = _order(positions[:, :1], positions[:, 1:], ctu_size, across)
    available = inside & (_order(x, y, ctu_size, across) < here)
    # An unavailable sample takes the one before it: the running maximum of the available places. What lies before the
    # first available one takes that.
    nearest = np.maximum.accumulate(np.where(available, np.arange(line_x.size), 0), 1)
    nearest = np.maximum(nearest, available.argmax(1)[:, None])
    return np.take_along_axis(x, nearest, 1), np.take_along_axis(y, nearest, 1), np.asarray(available.any(1))


@cache
def _offsets(width: int, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets x and y of the references from the block's first sample, in the order of substitution."""
    left, top = np.arange(2 * height - 1, -2, -1), np.arange(2 * width)
    return np.concatenate((np.full(left.size, -1), top)), np.concatenate((left, np.full(top.size, -1)))


def _order(
    x: NDArray[np.int64], y: NDArray[np.int64], ctu_size: int, across: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places of samples' 4x4 units in the order of coding, `across` CTUs lying in a row."""
    units = ctu_size // UNIT
    zscan = _zscan(units)[y % ctu_size // UNIT, x % ctu_size // UNIT]
    return (y // ctu_size * across + x // ctu_size) * (units * units) + zscan


@cache
def _zscan(units: int) -> NDArray[np.int64]:
    """Z-order of a square of `units` x `units`: the bits of y and x in turn, y first."""
    index = np.arange(units)
    spread = sum(((index >> bit) & 1) << (2 * bit) for bit in range(units.bit_length()))
    return np.asarray(2 * np.asarray(spread)[:, None] + spread, np.int64)
