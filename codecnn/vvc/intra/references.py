"""Reference samples of the blocks of a picture: availability, substitution and smoothing.

Blocks are coded in CTU raster order and, within a CTU, in z-order. A neighbouring sample is available if it is inside
the picture and its 4x4 unit precedes the first unit of the block in that order. For square blocks this is the order of
a fully coded quadtree in one slice and tile (H.265 6.4.1, H.266 6.4.4); for others it is the order of the 4x4 units
that they cover.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError
from codecnn.vvc.intra.transforms import Array, cast, library

UNIT = 4
"""Width and height of the units that z-order counts: the smallest luma block."""


def block_positions(picture_width: int, picture_height: int, width: int, height: int) -> NDArray[np.int64]:
    """List the blocks of a grid that are completely inside the picture, row by row.

    Args:
        picture_width: Picture width in samples.
        picture_height: Picture height in samples.
        width: Block width in samples.
        height: Block height in samples.

    Returns:
        x and y of the first sample of each block, shape (n, 2).
    """
    y, x = np.mgrid[: picture_height // height, : picture_width // width]
    return np.stack((x.ravel() * width, y.ravel() * height), 1).astype(np.int64)


def blocks_at(plane: NDArray[Any], positions: NDArray[np.int64], width: int, height: int) -> NDArray[Any]:
    """Copy blocks out of a plane.

    Args:
        plane: Samples of shape (h, w).
        positions: x and y of the first sample of each block, shape (n, 2).
        width: Block width in samples.
        height: Block height in samples.

    Returns:
        Blocks of shape (n, height, width).
    """
    windows = np.lib.stride_tricks.sliding_window_view(plane, (height, width))
    return windows[positions[:, 1], positions[:, 0]]


def reference_lines(
    plane: NDArray[Any], positions: NDArray[np.int64], width: int, height: int, bit_depth: int, ctu_size: int = 128
) -> NDArray[np.int32]:
    """Collect the reference samples of blocks, with unavailable samples substituted.

    The order is that of the substitution process (H.266 8.4.5.2.9, H.265 8.4.4.2.2): from p[-1][2·height-1] up to the
    corner, then right to p[2·width-1][-1]. An unavailable sample takes the value of the one before it; those before the
    first available sample take its value. Without any available sample, all are half the sample range.

    Args:
        plane: Samples of shape (h, w).
        positions: x and y of the first sample of each block, shape (n, 2).
        width: Block width in samples.
        height: Block height in samples.
        bit_depth: Bits per sample.
        ctu_size: CTU width and height in samples.

    Returns:
        References of shape (n, 2·height + 1 + 2·width).

    Raises:
        ConfigError: The CTU size is not a power of two, or smaller than the blocks.
    """
    x, y, known = reference_positions(positions, width, height, plane.shape[1], plane.shape[0], ctu_size)
    lines = plane[y, x].astype(np.int32)
    lines[~known] = 1 << (bit_depth - 1)
    return lines


def split_lines(lines: NDArray[Any], height: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Split the result of `reference_lines` into the arguments of `predict_modes`.

    Args:
        lines: References of shape (n, 2·height + 1 + 2·width).
        height: Block height in samples.

    Returns:
        Corner (n,), top (n, 2·width) and left (n, 2·height).
    """
    return lines[:, 2 * height], lines[:, 2 * height + 1 :], lines[:, : 2 * height][:, ::-1]


def reference_positions(
    positions: NDArray[np.int64],
    width: int,
    height: int,
    picture_width: int | NDArray[np.int64],
    picture_height: int | NDArray[np.int64],
    ctu_size: int = 128,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Compute the positions that the samples of `reference_lines` come from, after substitution.

    Args:
        positions: x and y of the first sample of each block, shape (n, 2).
        width: Block width in samples.
        height: Block height in samples.
        picture_width: Picture width in samples, or the width for each block, shape (n, 1).
        picture_height: Picture height in samples, or the height for each block, shape (n, 1).
        ctu_size: CTU width and height in samples.

    Returns:
        x and y of shape (n, 2·height + 1 + 2·width), and `known` of shape (n,), which is False for blocks without any
        available neighbour.

    Raises:
        ConfigError: As `reference_lines`.
    """
    if ctu_size & (ctu_size - 1) or max(width, height) > ctu_size:
        raise ConfigError(f"blocks of {width}x{height} do not lie in CTUs of {ctu_size} samples")
    line_x, line_y = _offsets(width, height)
    x, y = positions[:, :1] + line_x, positions[:, 1:] + line_y
    inside = (x >= 0) & (y >= 0) & (x < picture_width) & (y < picture_height)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    ctus_per_row = ceil_div(picture_width, ctu_size)
    block_order = _coding_order(positions[:, :1], positions[:, 1:], ctu_size, ctus_per_row)
    available = inside & (_coding_order(x, y, ctu_size, ctus_per_row) < block_order)
    # The running maximum of the available indices substitutes each sample by the one before it; indices before the
    # first available one are raised to it.
    nearest = np.maximum.accumulate(np.where(available, np.arange(line_x.size), 0), 1)
    nearest = np.maximum(nearest, available.argmax(1)[:, None])
    return np.take_along_axis(x, nearest, 1), np.take_along_axis(y, nearest, 1), np.asarray(available.any(1))


@cache
def _offsets(width: int, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets x and y of the references from the block's first sample, in the order of substitution."""
    left, top = np.arange(2 * height - 1, -2, -1), np.arange(2 * width)
    return np.concatenate((np.full(left.size, -1), top)), np.concatenate((left, np.full(top.size, -1)))


def _coding_order(
    x: NDArray[np.int64], y: NDArray[np.int64], ctu_size: int, ctus_per_row: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the index in coding order of the 4x4 units that contain the samples."""
    units = ctu_size // UNIT
    zscan = _zscan(units)[y % ctu_size // UNIT, x % ctu_size // UNIT]
    return (y // ctu_size * ctus_per_row + x // ctu_size) * (units * units) + zscan


@cache
def _zscan(units: int) -> NDArray[np.int64]:
    """Return the z-order of a square of `units` x `units`: the bits of y and x interleaved, y first."""
    index = np.arange(units)
    spread = sum(((index >> bit) & 1) << (2 * bit) for bit in range(units.bit_length()))
    return np.asarray(2 * np.asarray(spread)[:, None] + spread, np.int64)


def reference_rows(lines: Array, width: int, height: int, bit_depth: int, *, strong_smoothing: bool) -> Array:
    """Append the smoothed references and the DC value to the references of each block.

    A prediction is a sum of samples of such a row, see `taps.py`.

    Args:
        lines: Reference lines, shape (n, length), int32, as an array or tensor.
        width: Block width in samples.
        height: Block height in samples.
        bit_depth: Bits per sample.
        strong_smoothing: Apply the strong smoothing of HEVC to 32x32 blocks (H.265 8.4.4.2.3).

    Returns:
        References, smoothed references and DC value, shape (n, 2·length + 1), int32.
    """
    lib = library(lines)
    inner = (lines[:, :-2] + 2 * lines[:, 1:-1] + lines[:, 2:] + 2) >> 2
    smooth = lib.concatenate((lines[:, :1], inner, lines[:, -1:]), 1)
    if strong_smoothing and width == 32:
        smooth = lib.where(_nearly_straight(lines, bit_depth), _straight(lines), smooth)
    corner = 2 * height
    # H.266 8.4.5.2.12 averages the longer side only, so that the divisor is a power of two.
    used = lines[:, (corner if width > height else corner - height) : corner + 1 + (width if width >= height else 0)]
    sides = used.sum(1) - lines[:, corner]
    count = width + height if width == height else max(width, height)
    mean = (sides + count // 2) // count
    return lib.concatenate((lines, smooth, cast(mean[:, None], "int32")), 1)


def _nearly_straight(lines: Array, bit_depth: int) -> Array:
    """Return biIntFlag of H.265 8.4.4.2.3, shape (n, 1): both sides of a 32x32 block are almost straight lines.

    On smooth slopes of such large blocks the steps of the filter [1 2 1] would be visible as bands.
    """
    corner, limit = lines[:, 64], 1 << (bit_depth - 5)
    flat = abs(corner + lines[:, -1] - 2 * lines[:, 96]) < limit
    return (flat & (abs(corner + lines[:, 0] - 2 * lines[:, 32]) < limit))[:, None]


def _straight(lines: Array) -> Array:
    """Return straight lines from the corner to both ends of the references (H.265 8.4.4.2.3)."""
    lib = library(lines)
    position = lib.arange(65, device=lines.device, dtype=lib.int32)
    corner = lines[:, 64:65]
    down, right = (((64 - position) * corner + position * lines[:, end : end + 1] + 32) >> 6 for end in (0, 128))
    return lib.concatenate((lib.flip(down, (1,)), right[:, 1:]), 1)
