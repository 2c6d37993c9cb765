"""Block matching between two decoded pictures, and motion compensation by its vectors.

Each block of 8x8 luma samples has a vector of quarter-sample accuracy. A full search over pictures of a quarter of the
size finds large motion. Each block then starts from the vectors of that search and of its neighbours, and refines the
best of them in whole, half and quarter samples. All arithmetic is in integers, so that the vectors are the same on
every machine.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled, compiled_entry, compiled_once

Plane = npt.NDArray[Any]
"""Luma samples, shape (h, w), unsigned integers."""

Vectors = npt.NDArray[np.int32]
"""Vectors (y, x) of all blocks in quarter samples, shape (ceil(h / BLOCK), ceil(w / BLOCK), 2)."""

MATCHER_VERSION = 1
"""Version of motion-compensated planes in cache keys; increase it with every change that alters them."""

BLOCK = 8
"""Width and height of a block in luma samples."""

MARGIN = 4
"""Samples around a block that are matched with it, so that vectors follow the motion and not the coding error."""

SEARCH_RANGE = 64
"""Largest component of a vector in whole samples."""

COARSE = 4
"""Width and height in luma samples of a sample of the coarse search."""

COARSE_BLOCK, COARSE_MARGIN = 4, 2
"""Width of a block, and margin around it, in samples of the coarse search."""

SMOOTHNESS = 32
"""Cost of a quarter sample of difference to the neighbouring block's vector, in squared steps of 8 bits."""

UNRELIABLE_SHARE = 4
"""A block is unreliable if its matching error exceeds its variance divided by this number, and `NEGLIGIBLE_ERROR`."""

NEGLIGIBLE_ERROR = 16
"""Mean squared matching error in squared steps of 8 bits up to which a block is always reliable."""

RELIABLE_BLOCKS = 0.25
"""Share of reliable blocks below which two pictures are taken to show different scenes."""

_PADDING = SEARCH_RANGE + 8
"""Samples by which a picture is extended beyond its edges: the reach of vectors and interpolation filters."""

_SEARCH_BITS = 12
"""Largest bit depth of the search: the sum of squared differences of a row of samples then fits into 32 bits."""

_TAPS = np.array(
    [
        [0, 0, 0, 64, 0, 0, 0, 0],
        [-1, 4, -10, 58, 17, -5, 1, 0],
        [-1, 4, -11, 40, 40, -11, 4, -1],
        [0, 1, -5, 17, 58, -10, 4, -1],
    ],
    np.int32,
)
"""Luma interpolation filters of the quarter-sample positions (H.265 table 8-11, H.266 table 27)."""

_BLEND = np.array([2, 6, 10, 14, 18, 22, 26, 30], np.int32) * 2
"""Weight, in 64ths, of the right one of two neighbouring blocks at the samples between their centres."""


def search_motion(current: Plane, reference: Plane, bit_depth: int) -> Vectors:
    """Search the motion of a picture.

    Args:
        current: Luma of the picture.
        reference: Luma of the picture that the vectors point into; beyond its edges the nearest sample is repeated.
        bit_depth: Bits per sample of both.

    Returns:
        A vector for each block; sample (y, x) of `current` is matched with (y, x) + vector / 4 of `reference`.
    """
    shift = max(bit_depth - _SEARCH_BITS, 0)
    current, reference = current >> shift, reference >> shift
    return _search(current, reference, _interpolated(reference, bit_depth - shift), bit_depth - shift)


def compensate_motion(current: Plane, reference: Plane, bit_depth: int) -> Plane:
    """Predict a picture from another one by block matching.

    Neighbouring blocks overlap: each sample is the mean of the predictions by the four nearest blocks, weighted
    bilinearly. A block that does not match is replaced by `current` itself, so that a difference to `current` is 0
    there: its mean squared matching error exceeds a quarter of the variance of `current` in the block, and an error of
    4 steps of 8 bits. After a scene cut, where less than a quarter of the blocks match, the result is `current`.

    Args:
        current: Luma of the picture, uint8 or uint16.
        reference: Luma of the picture that is moved onto it, of the same shape.
        bit_depth: Bits per sample of both.

    Returns:
        The prediction, shape and type of `current`.
    """
    phases = _interpolated(reference, bit_depth)
    if bit_depth > _SEARCH_BITS:
        vectors = search_motion(current, reference, bit_depth)
    else:
        vectors = _search(current, reference, phases, bit_depth)
    predicted = _overlapped(phases, vectors, *current.shape)
    limit = NEGLIGIBLE_ERROR * 4.0 ** (bit_depth - 8)
    if _replace_unreliable(current.astype(np.uint16), predicted, limit) < RELIABLE_BLOCKS:
        return current.copy()
    return predicted.astype(current.dtype)


def _search(current: Plane, reference: Plane, phases: Plane, bit_depth: int) -> Vectors:
    """Search the motion at a bit depth of at most `_SEARCH_BITS`, with `phases` of the reference."""
    radius = SEARCH_RANGE // COARSE
    small = np.pad(_downscaled(reference), radius, mode="edge")
    with compiled_once(_search_blocks, "block matching", "five seconds"):
        coarse = _search_coarse(_downscaled(current), small, radius)
        return _search_blocks(current.astype(np.uint16), phases, coarse, SMOOTHNESS << 2 * (bit_depth - 8))


def _interpolated(reference: Plane, bit_depth: int) -> Plane:
    """Return the samples at all quarter-sample positions of the extended picture, shape (4, 4, h', w')."""
    padded = np.pad(reference.astype(np.uint16), _PADDING, mode="edge")
    return _interpolate(padded, (1 << bit_depth) - 1)


def _downscaled(plane: Plane) -> Plane:
    """Return the rounded means of `COARSE` x `COARSE` samples."""
    height, width = plane.shape
    whole = np.pad(plane, ((0, -height % COARSE), (0, -width % COARSE)), mode="edge")
    cells = whole.reshape(whole.shape[0] // COARSE, COARSE, whole.shape[1] // COARSE, COARSE)
    area = COARSE * COARSE
    means: Plane = ((cells.sum((1, 3), dtype=np.int64) + area // 2) // area).astype(np.uint16)
    return means


@compiled_entry
def _interpolate(padded: Plane, peak: int) -> Plane:
    """Interpolate an extended picture; the outermost 4 rows and columns are not valid."""
    height, width = padded.shape
    out = np.zeros((4, 4, height, width), np.uint16)
    rows = np.empty((height, width), np.int32)
    line = np.empty(width, np.int32)
    for fx in range(4):
        rows[:] = 0
        for y in range(height):
            for k in range(8):
                tap = _TAPS[fx, k]
                if tap != 0:
                    for x in range(3, width - 4):
                        rows[y, x] += np.int32(tap * np.int32(padded[y, x + k - 3]))
        for fy in range(4):
            for y in range(3, height - 4):
                line[:] = 2048
                for k in range(8):
                    tap = _TAPS[fy, k]
                    if tap != 0:
                        for x in range(width):
                            line[x] += np.int32(tap * rows[y + k - 3, x])
                for x in range(width):
                    out[fy, fx, y, x] = min(max(line[x] >> 12, 0), peak)
    return out


@compiled
def _window_error(
    current: Plane, y0: int, y1: int, x0: int, x1: int, plane: Plane, dy: int, dx: int, limit: Any
) -> Any:
    """Sum the squared differences of a window; the sum is not complete if it reaches `limit`."""
    total = np.int64(0)
    for y in range(y0, y1):
        line = np.int32(0)
        for x in range(x0, x1):
            # Casts keep the arithmetic in 32 bits, which is twice as fast.
            difference = np.int32(np.int32(current[y, x]) - np.int32(plane[y + dy, x + dx]))
            line = np.int32(line + np.int32(difference * difference))
        total += np.int64(line)
        if total >= limit:
            break
    return total


@compiled_entry
def _search_coarse(current: Plane, padded: Plane, radius: int) -> Vectors:
    """Return the best vector of each block of the coarse pictures in whole samples of them, by a full search."""
    height, width = current.shape
    rows, columns = -(-height // COARSE_BLOCK), -(-width // COARSE_BLOCK)
    vectors = np.zeros((rows, columns, 2), np.int32)
    for row in range(rows):
        for column in range(columns):
            y, x = row * COARSE_BLOCK, column * COARSE_BLOCK
            y0, x0 = max(y - COARSE_MARGIN, 0), max(x - COARSE_MARGIN, 0)
            y1 = min(y + COARSE_BLOCK + COARSE_MARGIN, height)
            x1 = min(x + COARSE_BLOCK + COARSE_MARGIN, width)
            best = _window_error(current, y0, y1, x0, x1, padded, radius, radius, np.int64(1) << 62)
            for dy in range(2 * radius + 1):
                for dx in range(2 * radius + 1):
                    error = _window_error(current, y0, y1, x0, x1, padded, dy, dx, best)
                    if error < best:
                        best = error
                        vectors[row, column, 0], vectors[row, column, 1] = dy - radius, dx - radius
    return vectors


@compiled_entry
def _search_blocks(current: Plane, phases: Plane, coarse: Vectors, smoothness: int) -> Vectors:
    """Return the vectors of all blocks, from the coarse vectors in samples of the coarse pictures."""
    height, width = current.shape
    rows, columns = -(-height // BLOCK), -(-width // BLOCK)
    cell = COARSE * COARSE_BLOCK // BLOCK
    limit = 4 * SEARCH_RANGE
    vectors = np.zeros((rows, columns, 2), np.int32)
    candidates = np.zeros((14, 2), np.int64)
    for row in range(rows):
        for column in range(columns):
            y0, x0 = max(row * BLOCK - MARGIN, 0), max(column * BLOCK - MARGIN, 0)
            y1, x1 = min((row + 1) * BLOCK + MARGIN, height), min((column + 1) * BLOCK + MARGIN, width)
            count = 1  # the first candidate is the zero vector
            for i in range(-1, 2):
                for j in range(-1, 2):
                    y, x = row // cell + i, column // cell + j
                    if 0 <= y < coarse.shape[0] and 0 <= x < coarse.shape[1]:
                        candidates[count, 0] = 4 * COARSE * coarse[y, x, 0]
                        candidates[count, 1] = 4 * COARSE * coarse[y, x, 1]
                        count += 1
            for i, j in ((0, -1), (-1, 0), (-1, 1), (-1, -1)):
                y, x = row + i, column + j
                if y >= 0 and 0 <= x < columns:
                    candidates[count, 0], candidates[count, 1] = vectors[y, x, 0], vectors[y, x, 1]
                    count += 1
            near_y, near_x = np.int64(0), np.int64(0)
            if column > 0:
                near_y, near_x = np.int64(vectors[row, column - 1, 0]), np.int64(vectors[row, column - 1, 1])
            elif row > 0:
                near_y, near_x = np.int64(vectors[row - 1, column, 0]), np.int64(vectors[row - 1, column, 1])
            best, best_y, best_x = np.int64(1) << 62, np.int64(0), np.int64(0)
            # Step 0 tries the candidates; steps 4, 2 and 1 try the eight neighbours in whole, half and quarter samples.
            for step, tries in ((0, 1), (4, 16), (2, 2), (1, 2)):
                for _ in range(tries):
                    from_y, from_x = best_y, best_x
                    for k in range(count if step == 0 else 9):
                        if step == 0:
                            vy, vx = candidates[k, 0], candidates[k, 1]
                        else:
                            vy, vx = from_y + (k // 3 - 1) * step, from_x + (k % 3 - 1) * step
                        if abs(vy) > limit or abs(vx) > limit:
                            continue
                        error = smoothness * (abs(vy - near_y) + abs(vx - near_x))
                        plane = phases[vy & 3, vx & 3]
                        dy, dx = (vy >> 2) + _PADDING, (vx >> 2) + _PADDING
                        error += _window_error(current, y0, y1, x0, x1, plane, dy, dx, best - error)
                        if error < best:
                            best, best_y, best_x = error, vy, vx
                    if best_y == from_y and best_x == from_x:
                        break
            vectors[row, column, 0], vectors[row, column, 1] = best_y, best_x
    return vectors


@compiled_entry
def _overlapped(phases: Plane, vectors: Vectors, height: int, width: int) -> Plane:
    """Return the prediction of a picture by overlapping blocks."""
    out = np.empty((height, width), np.uint16)
    rows, columns = vectors.shape[0], vectors.shape[1]
    for y in range(height):
        row = (y - BLOCK // 2) // BLOCK
        below = _BLEND[y - BLOCK // 2 - row * BLOCK]
        for x in range(width):
            column = (x - BLOCK // 2) // BLOCK
            right = _BLEND[x - BLOCK // 2 - column * BLOCK]
            total = 2048
            for i in range(2):
                for j in range(2):
                    block_y, block_x = min(max(row + i, 0), rows - 1), min(max(column + j, 0), columns - 1)
                    vy, vx = vectors[block_y, block_x, 0], vectors[block_y, block_x, 1]
                    sample = phases[vy & 3, vx & 3, y + _PADDING + (vy >> 2), x + _PADDING + (vx >> 2)]
                    weight = (below if i == 1 else 64 - below) * (right if j == 1 else 64 - right)
                    total += weight * np.int64(sample)
            out[y, x] = total >> 12
    return out


@compiled_entry
def _replace_unreliable(current: Plane, predicted: Plane, negligible: float) -> float:
    """Replace the unreliable blocks of `predicted` by `current`, and return the share of the others."""
    height, width = current.shape
    blocks = reliable = 0
    for y0 in range(0, height, BLOCK):
        for x0 in range(0, width, BLOCK):
            y1, x1 = min(y0 + BLOCK, height), min(x0 + BLOCK, width)
            total = squares = error = np.int64(0)
            for y in range(y0, y1):
                for x in range(x0, x1):
                    sample = np.int64(current[y, x])
                    difference = sample - np.int64(predicted[y, x])
                    total += sample
                    squares += sample * sample
                    error += difference * difference
            count = (y1 - y0) * (x1 - x0)
            # The variance times count^2 is an integer, which is compared without rounding.
            variance = squares * count - total * total
            blocks += 1
            if UNRELIABLE_SHARE * error * count <= variance or error <= negligible * count:
                reliable += 1
            else:
                # A loop, because a copy of slices takes ten times as long to compile.
                for y in range(y0, y1):
                    for x in range(x0, x1):
                        predicted[y, x] = current[y, x]
    return reliable / blocks
