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
from codecnn.pictures.motion.block_difference import difference_8, difference_16, differences_8

Plane = npt.NDArray[Any]
"""Luma samples, shape (h, w), unsigned integers."""

Vectors = npt.NDArray[np.int32]
"""Vectors (y, x) of all blocks in quarter samples, shape (ceil(h / BLOCK), ceil(w / BLOCK), 2)."""

MATCHER_VERSION = 2
"""Version of motion-compensated planes in cache keys; increase it with every change that alters them."""

BLOCK = 8
"""Width and height of a block in luma samples."""

MARGIN = 4
"""Samples around a block that are matched with it, so that vectors follow the motion and not the coding error.

At an edge, the window of block and margins is moved into the picture.
"""

WINDOW = BLOCK + 2 * MARGIN

SEARCH_RANGE = 64
"""Largest component of a vector in whole samples."""

COARSE = 4
"""Width and height in luma samples of a sample of the coarse search."""

COARSE_BLOCK, COARSE_MARGIN = 4, 2
"""Width of a block, and margin around it, in samples of the coarse search."""

COARSE_WINDOW = COARSE_BLOCK + 2 * COARSE_MARGIN

SMOOTHNESS = 32
"""Cost of a quarter sample of difference to the neighbouring block's vector, in squared steps of 8 bits."""

UNRELIABLE_SHARE = 4
"""A block is unreliable if its matching error exceeds its variance divided by this number, and `NEGLIGIBLE_ERROR`."""

NEGLIGIBLE_ERROR = 16
"""Mean squared matching error in squared steps of 8 bits up to which a block is always reliable."""

RELIABLE_BLOCKS = 0.25
"""Share of reliable blocks below which two pictures are taken to show different scenes."""

_SEARCH_BITS = 12
"""Largest bit depth of the search: the sum of squared differences of a window then fits into 32 bits."""

_PADDING = SEARCH_RANGE + WINDOW + 8
"""Samples by which a picture is extended beyond its edges: the reach of vectors, windows and interpolation filters."""

_COARSE_RADIUS = SEARCH_RANGE // COARSE

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

_RAMP = np.array([2, 6, 10, 14, 18, 22, 26, 30], np.int32) * 2
_BLEND = np.stack([np.multiply.outer(down, across) for down in (64 - _RAMP, _RAMP) for across in (64 - _RAMP, _RAMP)])
"""Weights, in 4096ths, of the four nearest blocks at the samples between their centres, shape (4, BLOCK, BLOCK)."""


class MotionReference:
    """A picture that vectors point into, interpolated once for all pictures that are matched with it."""

    def __init__(self, luma: Plane, bit_depth: int) -> None:
        """Interpolate a picture.

        Args:
            luma: Its luma, uint8 or uint16; beyond its edges the nearest sample is repeated.
            bit_depth: Bits per sample.
        """
        self.bit_depth = bit_depth
        self._phases = _interpolated(luma, bit_depth)
        self._shift = max(bit_depth - _SEARCH_BITS, 0)
        shifted = luma >> self._shift
        self._searched = _interpolated(shifted, bit_depth - self._shift) if self._shift else self._phases
        self._coarse = np.pad(_at_least(_downscaled(shifted), COARSE_WINDOW), _COARSE_RADIUS, mode="edge")

    def search(self, current: Plane) -> Vectors:
        """Search the motion of a picture.

        Args:
            current: Luma of the picture, of the shape and type of the reference.

        Returns:
            A vector for each block; sample (y, x) of `current` is matched with (y, x) + vector / 4 of the reference.
        """
        shifted = current >> self._shift
        smoothness = SMOOTHNESS << 2 * (self.bit_depth - self._shift - 8)
        with compiled_once(_search_blocks, "block matching", "five seconds"):
            coarse = _search_coarse(_at_least(_downscaled(shifted), COARSE_WINDOW), self._coarse, _COARSE_RADIUS)
            return _search_blocks(_at_least(shifted, WINDOW), self._searched, coarse, smoothness, current.shape)

    def compensate(self, current: Plane) -> Plane:
        """Predict a picture from the reference by block matching.

        Neighbouring blocks overlap: each sample is the mean of the predictions by the four nearest blocks, weighted
        bilinearly. A block that does not match is replaced by `current` itself, so that a difference to `current` is 0
        there: its mean squared matching error exceeds a quarter of the variance of `current` in the block, and an error
        of 4 steps of 8 bits. After a scene cut, where less than a quarter of the blocks match, the result is `current`.

        Args:
            current: Luma of the picture, of the shape and type of the reference.

        Returns:
            The prediction, shape and type of `current`.
        """
        predicted = _overlapped(self._phases, self.search(current), *current.shape)
        limit = NEGLIGIBLE_ERROR * 4.0 ** (self.bit_depth - 8)
        if _replace_unreliable(current, predicted, limit) < RELIABLE_BLOCKS:
            return current.copy()
        return predicted


def search_motion(current: Plane, reference: Plane, bit_depth: int) -> Vectors:
    """Search the motion of a picture; see `MotionReference.search`."""
    return MotionReference(reference, bit_depth).search(current)


def compensate_motion(current: Plane, reference: Plane, bit_depth: int) -> Plane:
    """Predict a picture from another one by block matching; see `MotionReference.compensate`."""
    return MotionReference(reference, bit_depth).compensate(current)


def _at_least(plane: Plane, size: int) -> Plane:
    """Extend a small plane to a window of `size` x `size` samples."""
    return np.pad(plane, [(0, max(size - extent, 0)) for extent in plane.shape], mode="edge")


def _interpolated(reference: Plane, bit_depth: int) -> Plane:
    """Return the samples at all quarter-sample positions of the extended picture, shape (4, 4, h', w')."""
    padded = np.pad(reference, _PADDING, mode="edge")
    rows = np.zeros((4, 8, padded.shape[1]), np.int16 if bit_depth == 8 else np.int32)
    out = np.zeros((4, 4, *padded.shape), reference.dtype)
    _interpolate(padded, rows, out, np.int32((1 << bit_depth) - 1))
    return out


def _downscaled(plane: Plane) -> Plane:
    """Return the rounded means of `COARSE` x `COARSE` samples."""
    height, width = (extent // COARSE * COARSE or COARSE for extent in plane.shape)
    whole = np.pad(plane, [(0, max(COARSE - extent, 0)) for extent in plane.shape], mode="edge")[:height, :width]
    out = np.empty((height // COARSE, width // COARSE), plane.dtype)
    _average(whole, out)
    return out


@compiled_entry
def _average(plane: Plane, out: Plane) -> None:
    """Write the rounded means of cells of `COARSE` x `COARSE` samples."""
    sums = np.empty(out.shape[1], np.int32)
    for row in range(out.shape[0]):
        sums[:] = COARSE * COARSE // 2
        for y in range(row * COARSE, (row + 1) * COARSE):
            for x in range(out.shape[1]):
                for k in range(COARSE):
                    sums[x] += np.int32(plane[y, x * COARSE + k])
        for x in range(out.shape[1]):
            out[row, x] = sums[x] // (COARSE * COARSE)


@compiled_entry
def _interpolate(padded: Plane, rows: Any, out: Plane, peak: Any) -> None:
    """Interpolate an extended picture; the outermost 4 rows and columns are not valid.

    Args:
        padded: The extended picture, shape (h, w).
        rows: Memory for eight rows, filtered horizontally to each quarter position, shape (4, 8, w).
        out: Receives the samples at quarter positions (y, x), shape (4, 4, h, w).
        peak: Largest sample value.
    """
    height, width = padded.shape
    for y in range(height):
        line = padded[y]
        for fx in range(4):
            taps, filtered = _TAPS[fx], rows[fx, y & 7]
            t0, t1, t2, t3 = taps[0], taps[1], taps[2], taps[3]
            t4, t5, t6, t7 = taps[4], taps[5], taps[6], taps[7]
            # Slices, because numba would test indices such as x - 3 for each sample, whether they count from the end.
            s0, s1, s2, s3 = line, line[1:], line[2:], line[3:]
            s4, s5, s6, s7 = line[4:], line[5:], line[6:], line[7:]
            middle = filtered[3:]
            for x in range(width - 7):
                # Casts keep the arithmetic in 32 bits, which is twice as fast.
                middle[x] = np.int32(
                    t0 * np.int32(s0[x])
                    + t1 * np.int32(s1[x])
                    + t2 * np.int32(s2[x])
                    + t3 * np.int32(s3[x])
                    + t4 * np.int32(s4[x])
                    + t5 * np.int32(s5[x])
                    + t6 * np.int32(s6[x])
                    + t7 * np.int32(s7[x])
                )
        if y < 7:
            continue
        for fx in range(4):
            ring = rows[fx]
            r0, r1, r2, r3 = ring[(y + 1) & 7], ring[(y + 2) & 7], ring[(y + 3) & 7], ring[(y + 4) & 7]
            r4, r5, r6, r7 = ring[(y + 5) & 7], ring[(y + 6) & 7], ring[(y + 7) & 7], ring[y & 7]
            samples = out[0, fx, y - 4]
            for x in range(width):
                value = np.int32(np.int32(r3[x]) + np.int32(32))
                samples[x] = min(max(np.int32(value >> 6), np.int32(0)), peak)
            for fy in range(1, 4):
                taps, samples = _TAPS[fy], out[fy, fx, y - 4]
                t0, t1, t2, t3 = taps[0], taps[1], taps[2], taps[3]
                t4, t5, t6, t7 = taps[4], taps[5], taps[6], taps[7]
                for x in range(width):
                    value = np.int32(
                        np.int32(2048)
                        + t0 * np.int32(r0[x])
                        + t1 * np.int32(r1[x])
                        + t2 * np.int32(r2[x])
                        + t3 * np.int32(r3[x])
                        + t4 * np.int32(r4[x])
                        + t5 * np.int32(r5[x])
                        + t6 * np.int32(r6[x])
                        + t7 * np.int32(r7[x])
                    )
                    samples[x] = min(max(np.int32(value >> 12), np.int32(0)), peak)


@compiled_entry
def _search_coarse(current: Plane, reference: Plane, radius: int) -> Vectors:
    """Return the best vector of each block of the coarse pictures in their whole samples, by a full search."""
    height, width = current.shape
    rows, columns = -(-height // COARSE_BLOCK), -(-width // COARSE_BLOCK)
    stride, other_stride, side = current.shape[1], reference.shape[1], 2 * radius + 1
    vectors = np.zeros((rows, columns, 2), np.int32)
    for row in range(rows):
        for column in range(columns):
            y0 = min(max(row * COARSE_BLOCK - COARSE_MARGIN, 0), height - COARSE_WINDOW)
            x0 = min(max(column * COARSE_BLOCK - COARSE_MARGIN, 0), width - COARSE_WINDOW)
            offset, start = y0 * stride + x0, y0 * other_stride + x0
            # Of equal errors the zero vector wins, then the first in the order of rows. The lowest bits are this order.
            zero = start + radius * (other_stride + 1)
            best = difference_8(current, offset, stride, reference, zero, other_stride) << 16
            for dy in range(side):
                at, order = start + dy * other_stride, 1 + dy * side
                for left in range(0, side - 15, 16):
                    for dx in range(left, left + 8):
                        error, other = differences_8(current, offset, stride, reference, at + dx, other_stride)
                        best = min(best, (error << 16) + order + dx, (other << 16) + order + dx + 8)
                for dx in range(side // 16 * 16, side):
                    error = difference_8(current, offset, stride, reference, at + dx, other_stride)
                    best = min(best, (error << 16) + order + dx)
            position = (best & 0xFFFF) - 1
            if position >= 0:
                vectors[row, column, 0], vectors[row, column, 1] = position // side - radius, position % side - radius
    return vectors


@compiled
def _add_candidate(candidates: Vectors, count: int, vy: int, vx: int) -> int:
    """Append a vector to `count` candidates unless it is one of them, and return their number."""
    for k in range(count):
        if candidates[k, 0] == vy and candidates[k, 1] == vx:
            return count
    candidates[count, 0], candidates[count, 1] = vy, vx
    return count + 1


@compiled_entry
def _search_blocks(current: Plane, phases: Plane, coarse: Vectors, smoothness: int, shape: tuple[int, int]) -> Vectors:
    """Return the vectors of all blocks of a picture, from the coarse vectors in samples of the coarse pictures."""
    rows, columns = -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)
    stride, other_stride = current.shape[1], phases.shape[3]
    size = phases.shape[2] * other_stride
    cell = COARSE * COARSE_BLOCK // BLOCK
    limit = 4 * SEARCH_RANGE
    vectors = np.zeros((rows, columns, 2), np.int32)
    candidates = np.zeros((14, 2), np.int32)
    for row in range(rows):
        for column in range(columns):
            y0 = min(max(row * BLOCK - MARGIN, 0), current.shape[0] - WINDOW)
            x0 = min(max(column * BLOCK - MARGIN, 0), current.shape[1] - WINDOW)
            offset, start = y0 * stride + x0, (y0 + _PADDING) * other_stride + x0 + _PADDING
            count = 1  # the first candidate is the zero vector
            for i in range(-1, 2):
                for j in range(-1, 2):
                    y, x = row // cell + i, column // cell + j
                    if 0 <= y < coarse.shape[0] and 0 <= x < coarse.shape[1]:
                        vy, vx = 4 * COARSE * coarse[y, x, 0], 4 * COARSE * coarse[y, x, 1]
                        count = _add_candidate(candidates, count, vy, vx)
            for i, j in ((0, -1), (-1, 0), (-1, 1), (-1, -1)):
                y, x = row + i, column + j
                if y >= 0 and 0 <= x < columns:
                    count = _add_candidate(candidates, count, vectors[y, x, 0], vectors[y, x, 1])
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
                            vy, vx = np.int64(candidates[k, 0]), np.int64(candidates[k, 1])
                        else:
                            vy, vx = from_y + (k // 3 - 1) * step, from_x + (k % 3 - 1) * step
                        if abs(vy) > limit or abs(vx) > limit or (step != 0 and k == 4):
                            continue
                        error = smoothness * (abs(vy - near_y) + abs(vx - near_x))
                        if error < best:
                            position = (4 * (vy & 3) + (vx & 3)) * size + start + (vy >> 2) * other_stride + (vx >> 2)
                            error += difference_16(current, offset, stride, phases, position, other_stride)
                        if error < best:
                            best, best_y, best_x = error, vy, vx
                    if best_y == from_y and best_x == from_x:
                        break
            vectors[row, column, 0], vectors[row, column, 1] = best_y, best_x
    return vectors


@compiled_entry
def _overlapped(phases: Plane, vectors: Vectors, height: int, width: int) -> Plane:
    """Return the prediction of a picture by overlapping blocks."""
    out = np.empty((height, width), phases.dtype)
    rows, columns = vectors.shape[0], vectors.shape[1]
    total = np.empty((BLOCK, BLOCK), np.int32)
    # From the centre of a block to that of the next one, samples have the same four vectors.
    for row in range(-1, rows):
        for column in range(-1, columns):
            top, left = row * BLOCK + BLOCK // 2, column * BLOCK + BLOCK // 2
            total[:] = 2048
            for i in range(2):
                for j in range(2):
                    block_y, block_x = min(max(row + i, 0), rows - 1), min(max(column + j, 0), columns - 1)
                    vy, vx = vectors[block_y, block_x, 0], vectors[block_y, block_x, 1]
                    plane = phases[vy & 3, vx & 3]
                    y0, x0 = top + _PADDING + (vy >> 2), left + _PADDING + (vx >> 2)
                    weights = _BLEND[2 * i + j]
                    for y in range(BLOCK):
                        for x in range(BLOCK):
                            total[y, x] += np.int32(weights[y, x] * np.int32(plane[y0 + y, x0 + x]))
            for y in range(max(-top, 0), min(BLOCK, height - top)):
                for x in range(max(-left, 0), min(BLOCK, width - left)):
                    out[top + y, left + x] = total[y, x] >> 12
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
