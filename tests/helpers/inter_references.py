"""Plain NumPy versions of the stages of inter prediction, written from the formulas of H.266 clause 8.5."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from codecnn.vvc.decoder.interpolation import CHROMA_FILTERS, LUMA_FILTERS

Ints = npt.NDArray[np.int64]
Place = tuple[int, int, int, int]
"""Column, row, width and height of a block in its component."""

Columns = Callable[[Ints], Ints]
"""Function that maps columns or rows of a reference to those that are read."""


def clamped(low: int, high: int) -> Columns:
    """Return the padding of a picture or subpicture from `low` to `high`: Clip3(low, high, x)."""
    return lambda places: np.clip(places, low, high)


def wrapping(offset: int, size: int) -> Columns:
    """Return the padding with horizontal wraparound: Clip3(0, size - 1, ClipH(offset, size, x))."""

    def move(places: Ints) -> Ints:
        moved = np.where(places < 0, places + offset, np.where(places > size - 1, places - offset, places))
        return np.clip(moved, 0, size - 1)

    return move


def interpolated(
    plane: Ints,
    place: Place,
    vector: tuple[int, int],
    *,
    bit_depth: int,
    sub: tuple[int, int] | None = None,
    kind: int = 0,
    columns: Columns | None = None,
    rows: Columns | None = None,
) -> Ints:
    """Interpolate a block by (8.5.6.3.2) or, for chroma, (8.5.6.3.4); all sums are full sums without shortcuts.

    Args:
        plane: Reference.
        place: The block.
        vector: Motion vector in 1/16 luma sample.
        bit_depth: Bit depth.
        sub: log2 of the chroma subsampling; None for luma.
        kind: Filter set.
        columns: Padding of columns; None for that of the whole picture.
        rows: Padding of rows.
    """
    x, y, width, height = place
    columns = columns or clamped(0, plane.shape[1] - 1)
    rows = rows or clamped(0, plane.shape[0] - 1)
    if sub is None:
        table, unit = LUMA_FILTERS[kind].astype(np.int64), (16, 16)
        steps = vector
    else:
        # mvCLX is in units of 1/32 chroma sample: mvLX * 2 / SubWidthC and mvLX * 2 / SubHeightC.
        table, unit = CHROMA_FILTERS[kind].astype(np.int64), (32, 32)
        steps = (vector[0] * 2 // (1 << sub[0]), vector[1] * 2 // (1 << sub[1]))
    taps = table.shape[1]
    around = np.arange(taps) - (taps // 2 - 1)
    across = columns(x + steps[0] // unit[0] + np.arange(width)[:, None] + around)
    down = rows(y + steps[1] // unit[1] + np.arange(height)[:, None] + around)
    samples = plane[down[:, :, None, None], across[None, None]]
    first, third = min(4, bit_depth - 8), max(2, 14 - bit_depth)
    filter_x, filter_y = table[steps[0] % unit[0]], table[steps[1] % unit[1]]
    middle = taps // 2 - 1
    if steps[0] % unit[0] == 0 and steps[1] % unit[1] == 0:
        return samples[:, middle, :, middle] << third
    if steps[1] % unit[1] == 0:
        return (samples[:, middle] @ filter_x) >> first
    if steps[0] % unit[0] == 0:
        return np.einsum("abc,b->ac", samples[:, :, :, middle], filter_y) >> first
    half = (samples @ filter_x) >> first
    return np.einsum("abc,b->ac", half, filter_y) >> 6


def default_weighted(predictions: list[Ints], bit_depth: int) -> Ints:
    """Round one prediction or average two ((980) and (981) of 8.5.6.6.2)."""
    shift = max(2, 14 - bit_depth) + len(predictions) - 1
    return ((sum(predictions) + (1 << (shift - 1))) >> shift).clip(0, (1 << bit_depth) - 1)


def bcw_weighted(first: Ints, second: Ints, index: int, bit_depth: int) -> Ints:
    """Average two predictions by bcwWLut ((982) of 8.5.6.6.2)."""
    weight = (4, 5, 3, 10, -2)[index]
    shift = max(2, 14 - bit_depth)
    total = (8 - weight) * first + weight * second + (1 << (shift + 2))
    return (total >> (shift + 3)).clip(0, (1 << bit_depth) - 1)


def explicitly_weighted(
    predictions: list[Ints], weights: list[int], offsets: list[int], log2: int, bit_depth: int
) -> Ints:
    """Weight predictions explicitly (8.5.6.6.3); `log2` is the denominator, offsets are in units of the samples."""
    denominator = log2 + max(2, 14 - bit_depth)
    if len(predictions) == 1:
        total = ((predictions[0] * weights[0] + (1 << (denominator - 1))) >> denominator) + offsets[0]
    else:
        total = predictions[0] * weights[0] + predictions[1] * weights[1] + ((sum(offsets) + 1) << denominator)
        total >>= denominator + 1
    return total.clip(0, (1 << bit_depth) - 1)


def mapped_forward(samples: Ints, pivot: Ints, scale: Ints, bit_depth: int) -> Ints:
    """Map luma forward by (1223) of 8.7.5.2."""
    width = 1 << (bit_depth - 4)
    index = samples // width
    return pivot[index] + ((scale[index] * (samples - index * width) + 1024) >> 11)


def resampled(
    plane: Ints,
    place: Place,
    vector: tuple[int, int],
    *,
    bit_depth: int,
    scale: tuple[int, int],
    kinds: tuple[int, int],
    windows: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    sub: tuple[int, int] | None = None,
    collocated: tuple[bool, bool] = (True, True),
) -> Ints:
    """Interpolate a block of a reference of another size, by the positions of 8.5.6.3.1.

    Args:
        plane: Reference.
        place: The whole block.
        vector: Motion vector in 1/16 luma sample.
        bit_depth: Bit depth.
        scale: RefPicScale of columns and rows.
        kinds: Filter sets of columns and rows.
        windows: Left and top offset of the scaling windows of the picture and of the reference, in luma samples.
        sub: log2 of the chroma subsampling; None for luma.
        collocated: sps_chroma_horizontal_collocated_flag and sps_chroma_vertical_collocated_flag.
    """
    table = (LUMA_FILTERS if sub is None else CHROMA_FILTERS).astype(np.int64)
    bits, taps = (4, 8) if sub is None else (5, 4)
    sampled: list[tuple[Ints, Ints]] = []
    for axis in range(2):
        size = place[2 + axis]
        if sub is None:
            start, moved, addend = place[axis] - windows[0][axis], vector[axis], 0
            window = windows[1][axis] << 10
        else:
            # Positions of chroma are in units of 1/32 sample.
            start = ((place[axis] << sub[axis]) - windows[0][axis]) >> sub[axis]
            moved = vector[axis] * 2 // (1 << sub[axis])
            addend = 0 if collocated[axis] else 8 * (scale[axis] - 16384)
            window = windows[1][axis] << (10 - sub[axis])
        position = ((start << bits) + moved) * scale[axis] + addend
        rounding = bits + 4
        first = int(np.sign(position)) * ((abs(position) + (1 << (rounding - 1))) >> rounding) + window
        steps = first + np.arange(size) * ((scale[axis] + 8) >> 4)
        fine = (steps + (1 << (9 - bits))) >> (10 - bits)
        whole, fraction = fine >> bits, fine & ((1 << bits) - 1)
        places = whole[:, None] + np.arange(taps) - (taps // 2 - 1)
        sampled.append((np.clip(places, 0, plane.shape[1 - axis] - 1), table[kinds[axis]][fraction]))
    (columns, filters_x), (rows, filters_y) = sampled
    samples = plane[rows[:, :, None, None], columns[None, None]]
    half = np.einsum("abcd,cd->abc", samples, filters_x) >> min(4, bit_depth - 8)
    return np.einsum("abc,ab->ac", half, filters_y) >> 6


def bordered(plane: Ints, place: Place, vector: tuple[int, int], *, bit_depth: int, **options: int) -> Ints:
    """Return a luma prediction with a border of the whole samples next to the positions of the border (8.5.6.3.3)."""
    width, height = place[2:]
    left, top = (place[axis] + (vector[axis] >> 4) + ((vector[axis] & 15) >> 3) - 1 for axis in range(2))
    rows = np.clip(np.arange(top, top + height + 2), 0, plane.shape[0] - 1)
    columns = np.clip(np.arange(left, left + width + 2), 0, plane.shape[1] - 1)
    result = plane[rows[:, None], columns] << max(2, 14 - bit_depth)
    result[1:-1, 1:-1] = interpolated(plane, place, vector, bit_depth=bit_depth, **options)
    return result


def gradients(samples: Ints) -> tuple[Ints, Ints]:
    """Return the horizontal and vertical gradients inside the border ((1001) and (1002))."""
    coarse = samples >> 6
    return coarse[1:-1, 2:] - coarse[1:-1, :-2], coarse[2:, 1:-1] - coarse[:-2, 1:-1]


def optical_flow(first: Ints, second: Ints, bit_depth: int) -> Ints:
    """Average two bordered predictions by bi-directional optical flow (8.5.6.5)."""
    height, width = first.shape[0] - 2, first.shape[1] - 2
    across, down = zip(gradients(first), gradients(second), strict=True)
    inner = first[1:-1, 1:-1], second[1:-1, 1:-1]
    temp_h, temp_v = (np.pad((pair[0] + pair[1]) >> 1, 1, mode="edge") for pair in (across, down))
    difference = np.pad((inner[0] >> 4) - (inner[1] >> 4), 1, mode="edge")
    flow_x, flow_y = np.zeros((height, width), np.int64), np.zeros((height, width), np.int64)
    for y in range(0, height, 4):
        for x in range(0, width, 4):
            area = np.s_[y : y + 6, x : x + 6]
            h, v, d = temp_h[area], temp_v[area], difference[area]
            gx2, gy2, gxgy = np.abs(h).sum(), np.abs(v).sum(), (np.sign(v) * h).sum()
            gxdi, gydi = (-np.sign(h) * d).sum(), (-np.sign(v) * d).sum()
            vx = vy = 0
            if gx2:
                vx = int(np.clip((gxdi << 2) >> int(np.log2(gx2)), -15, 15))
            if gy2:
                vy = int(np.clip(((gydi << 2) - ((vx * gxgy) >> 1)) >> int(np.log2(gy2)), -15, 15))
            flow_x[y : y + 4, x : x + 4], flow_y[y : y + 4, x : x + 4] = vx, vy
    shift = max(3, 15 - bit_depth)
    total = inner[0] + inner[1] + flow_x * (across[0] - across[1]) + flow_y * (down[0] - down[1])
    return ((total + (1 << (shift - 1))) >> shift).clip(0, (1 << bit_depth) - 1)


def bilinear(plane: Ints, place: Place, vector: tuple[int, int], bit_depth: int) -> Ints:
    """Interpolate luma for the search of DMVR, with two samples more at each side (8.5.3.2.2)."""
    x, y, width, height = place
    left, top = x + (vector[0] >> 4) - 2, y + (vector[1] >> 4) - 2
    rows = np.clip(np.arange(top, top + height + 5), 0, plane.shape[0] - 1)
    columns = np.clip(np.arange(left, left + width + 5), 0, plane.shape[1] - 1)
    samples = plane[rows[:, None], columns]
    fraction_x, fraction_y = vector[0] & 15, vector[1] & 15
    shift = bit_depth - 6
    half = 1 << (shift - 1)
    if fraction_x == 0 and fraction_y == 0:
        samples = samples[:-1, :-1]
        return (
            samples << (10 - bit_depth) if bit_depth <= 10 else (samples + (1 << (bit_depth - 11))) >> (bit_depth - 10)
        )
    if fraction_x == 0:
        return (((16 - fraction_y) * samples[:-1] + fraction_y * samples[1:] + half) >> shift)[:, :-1]
    across = ((16 - fraction_x) * samples[:, :-1] + fraction_x * samples[:, 1:] + half) >> shift
    if fraction_y == 0:
        return across[:-1]
    return ((16 - fraction_y) * across[:-1] + fraction_y * across[1:] + 8) >> 4


def refined_difference(first: Ints, second: Ints, width: int, height: int) -> tuple[int, int, int]:
    """Search the difference of two vectors and the lowest cost (8.5.3.1 and 8.5.3.3 to 8.5.3.5)."""

    def cost(dx: int, dy: int) -> int:
        moved = first[2 + dy : 2 + dy + height : 2, 2 + dx : 2 + dx + width]
        opposite = second[2 - dy : 2 - dy + height : 2, 2 - dx : 2 - dx + width]
        return int(np.abs(moved - opposite).sum())

    costs = {(dx, dy): cost(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3)}
    costs[0, 0] -= costs[0, 0] >> 2
    if costs[0, 0] < width * height:
        return 0, 0, costs[0, 0]
    # The centre is the first to be compared; of equal costs the first one counts.
    order = [(0, 0), *(key for key in costs if key != (0, 0))]
    dx, dy = min(order, key=lambda key: costs[key])
    lowest = costs[dx, dy]
    steps = [16 * dx, 16 * dy]
    if abs(dx) < 2 and abs(dy) < 2:
        for axis, (before, after) in enumerate((((dx - 1, dy), (dx + 1, dy)), ((dx, dy - 1), (dx, dy + 1)))):
            a, b = costs[before], costs[after]
            curvature = a + b - 2 * lowest
            if curvature == 0:
                continue
            if a == lowest or b == lowest:
                steps[axis] += -8 if a == lowest else 8
            else:
                # Eighths are cut off: the quotient has three bits.
                steps[axis] += int(np.sign(a - b)) * min(7, abs(a - b) * 16 // (2 * curvature))
    return steps[0], steps[1], lowest


def affine_steps(points: Ints, width: int, height: int, six: bool) -> tuple[Ints, Ints]:
    """Return (dHorX, dHorY) and (dVerX, dVerY) of 8.5.5.9 from control point vectors, shape (3, 2)."""
    d_hor = (points[1] - points[0]) << (7 - int(np.log2(width)))
    d_ver = np.array([-d_hor[1], d_hor[0]])
    if six:
        d_ver = (points[2] - points[0]) << (7 - int(np.log2(height)))
    return d_hor, d_ver


def falls_back(d_hor: Ints, d_ver: Ints, both: bool) -> bool:
    """Derive fallbackModeTriggered of 8.5.5.9; `both` is bi-prediction."""

    def size(*ends: int) -> int:
        return ((max(0, *ends) - min(0, *ends)) >> 11) + 9

    h, v = 4 * (2048 + int(d_hor[0])), 4 * (2048 + int(d_ver[1]))
    x, y = 4 * int(d_ver[0]), 4 * int(d_hor[1])
    if both:
        return size(h, x, h + x) * size(y, v, y + v) > 225
    return size(h) * size(y) > 165 or size(x) * size(v) > 165


def affine_differences(points: Ints, width: int, height: int, six: bool) -> tuple[Ints, Ints]:
    """Return diffMvLX of the samples of a subblock, horizontal and vertical, shape (4, 4) (8.5.5.9).

    Args:
        points: Control point vectors, shape (3, 2).
        width: Width of the unit.
        height: Height of the unit.
        six: The unit has three control points.
    """
    d_hor, d_ver = affine_steps(points, width, height, six)
    y, x = np.mgrid[:4, :4]
    results = []
    for axis in range(2):
        difference = x * (d_hor[axis] << 2) + y * (d_ver[axis] << 2) - 6 * (d_hor[axis] + d_ver[axis])
        rounded = np.sign(difference) * ((np.abs(difference) + 127) >> 8)
        results.append(rounded.clip(-31, 31))
    return results[0], results[1]


def flow_refined(samples: Ints, differences: tuple[Ints, Ints], bit_depth: int) -> Ints:
    """Refine a bordered prediction of 4x4 samples by optical flow (8.5.6.4)."""
    across, down = gradients(samples)
    limit = 1 << max(13, bit_depth + 1)
    change = across * differences[0] + down * differences[1]
    return samples[1:-1, 1:-1] + change.clip(-limit, limit - 1)


ANGLES_OF_PARTITIONS = [
    *[0, 0, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 8, 8, 11, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13],
    *[14, 14, 14, 14, 16, 16, 18, 18, 18, 19, 19, 19, 20, 20, 20, 21, 21, 21, 24, 24, 27, 27, 27, 28, 28, 28, 29],
    *[29, 29, 30, 30, 30],
]
"""angleIdx by merge_gpm_partition_idx (table 36)."""
DISTANCES_OF_PARTITIONS = [
    *[1, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 1, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
    *[0, 1, 2, 3, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3],
]
"""distanceIdx by merge_gpm_partition_idx (table 36)."""
DISPLACEMENTS = [
    8,
    8,
    8,
    8,
    4,
    4,
    2,
    1,
    0,
    -1,
    -2,
    -4,
    -4,
    -8,
    -8,
    -8,
    -8,
    -8,
    -8,
    -8,
    -4,
    -4,
    -2,
    -1,
    0,
    1,
    2,
    4,
    4,
    8,
    8,
    8,
]
"""disLut by angle (table 37)."""


def geometric_weights(partition: int, width: int, height: int, sub: tuple[int, int]) -> Ints:
    """Return the weights of part 0 in 1/8 over a unit, for a component (8.5.7.2)."""
    angle, distance = ANGLES_OF_PARTITIONS[partition], DISTANCES_OF_PARTITIONS[partition]
    ratio = height / width
    shift_hor = 0 if angle % 16 == 8 or (angle % 16 != 0 and ratio >= 1) else 1
    offset_x, offset_y = (-width) >> 1, (-height) >> 1
    if shift_hor == 0:
        offset_y += (distance * height) >> 3 if angle < 16 else -((distance * height) >> 3)
    else:
        offset_x += (distance * width) >> 3 if angle < 16 else -((distance * width) >> 3)
    y, x = np.mgrid[0 : height : 1 << sub[1], 0 : width : 1 << sub[0]]
    index = (((x + offset_x) << 1) + 1) * DISPLACEMENTS[angle]
    index = index + (((y + offset_y) << 1) + 1) * DISPLACEMENTS[(angle + 8) % 32]
    flipped = 0 if 13 <= angle <= 27 else 1
    return ((32 + index if flipped else 32 - index) + 4 >> 3).clip(0, 8)


def geometric_blend(first: Ints, second: Ints, weights: Ints, bit_depth: int) -> Ints:
    """Blend the predictions of two parts by (8.5.7.2)."""
    shift = max(5, 17 - bit_depth)
    total = first * weights + second * (8 - weights) + (1 << (shift - 1))
    return (total >> shift).clip(0, (1 << bit_depth) - 1)


def with_intra(inter: Ints, intra: Ints, neighbours: int) -> Ints:
    """Blend inter and intra prediction by the number of intra neighbours (8.5.6.7)."""
    weight = 1 + neighbours
    return (weight * intra + (4 - weight) * inter + 2) >> 2
