"""Refinement of inter prediction: PROF, BDOF and DMVR (H.266 clauses 8.5.3, 8.5.6.4 and 8.5.6.5)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.affine import fallback_mode_triggered, gradient
from codecnn.vvc.decoder.frame import Frame, U, clip
from codecnn.vvc.decoder.motion_prediction import rounded
from codecnn.vvc.decoder.reference_samples import fetch
from codecnn.vvc.syntax import log2

REACH = 2
"""Largest difference in whole samples that DMVR searches."""


@compiled
def flow_differences(f: Frame, which: int) -> bool:
    """Compute the difference of the vector of each sample of a 4x4 subblock to that of the subblock.

    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.

    The result is `scratch.diff_mv[which]`, in units of 1/32 sample.

    Args:
        f: State of the picture; the current unit is affine.
        which: List.

    Returns:
        True if PROF applies to the list (cbProfFlagLX).
    """
    diff_mv, unit = f.scratch.diff_mv, f.unit
    if not f.slice.prof_enabled:
        return False
    model = unit.motion_model_idc
    both = unit.motion.ref_idx[0] >= 0 and unit.motion.ref_idx[1] >= 0
    across_x, across_y, down_x, down_y = gradient(f, which, model)
    if across_x == 0 and across_y == 0 and down_x == 0 and down_y == 0:
        return False
    if fallback_mode_triggered(f, which, model, both):
        return False
    for y in range(4):
        for x in range(4):
            moved_x = (2 * x - 3) * across_x + (2 * y - 3) * down_x
            moved_y = (2 * x - 3) * across_y + (2 * y - 3) * down_y
            diff_mv[which, 0, 4 * y + x] = clip(rounded(moved_x, 7) >> 7, -31, 31)
            diff_mv[which, 1, 4 * y + x] = clip(rounded(moved_y, 7) >> 7, -31, 31)
    return True


@compiled
def apply_flow(f: Frame, which: int, target: Array[int]) -> None:
    """Refine the prediction of a 4x4 subblock by optical flow (PROF).

    Clause 8.5.6.4, Prediction refinement with optical flow process.

    Args:
        f: State of the picture; the prediction with a border of one sample is `scratch.bordered[0]`.
        which: List, whose differences are in `scratch.diff_mv`.
        target: The result, rows of four numbers.
    """
    s, diff_mv = f.scratch.bordered[0], f.scratch.diff_mv
    limit = 1 << max(13, f.pic.bit_depth + 1)
    for y in range(4):
        for x in range(4):
            at = 6 * (y + 1) + x + 1
            across = (s[at + 1] >> 6) - (s[at - 1] >> 6)
            down = (s[at + 6] >> 6) - (s[at - 6] >> 6)
            i = 4 * y + x
            change = across * diff_mv[which, 0, i] + down * diff_mv[which, 1, i]
            target[i] = s[at] + clip(change, -limit, limit - 1)


@compiled
def write_optical_flow(f: Frame, x: int, y: int, width: int, height: int) -> None:
    """Average two luma predictions with a correction by optical flow and write the result (BDOF).

    Clause 8.5.6.5, Bi-directional optical flow prediction process.

    The predictions with a border of one sample are in `scratch.bordered`.

    Args:
        f: State of the picture.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block, at most 16.
        height: Height of the block, at most 16.
    """
    l0, l1, planes = f.scratch.bordered[0], f.scratch.bordered[1], f.planes
    change_x, change_y = f.scratch.gradient_difference[0], f.scratch.gradient_difference[1]
    flow_x, flow_y = f.scratch.flow[0], f.scratch.flow[1]
    stride = width + 2
    find_gradients(f, width, height)
    find_flow_terms(f, width, height)
    shift = max(3, 15 - f.pic.bit_depth)
    addend, peak = np.int32(1 << (shift - 1)), np.int32((1 << f.pic.bit_depth) - 1)
    for top in range(0, height, 4):
        optical_flow(f, top, width)
        for row in range(top, top + 4):
            first = U((row + 1) * stride + 1)
            out = U(f.pic.pred[0] + (y + row) * f.pic.stride[0] + x)
            for column in range(width):
                k = U(column)
                at = first + k
                value = np.int32(l0[at] + l1[at] + addend + flow_x[k] * change_x[at] + flow_y[k] * change_y[at])
                planes[out + k] = min(max(np.int32(value >> shift), np.int32(0)), peak)


@compiled
def find_gradients(f: Frame, width: int, height: int) -> None:
    """Derive the gradients of both predictions and the differences of their samples.

    Part of clause 8.5.6.5, Bi-directional optical flow prediction process.

    The results are `gradient_sum`, `gradient_difference` and `sample_difference` of `scratch`, in rows of `width` + 2
    numbers with a border like `scratch.bordered`.

    Args:
        f: State of the picture.
        width: Width of the block.
        height: Height of the block.
    """
    l0, l1, difference = f.scratch.bordered[0], f.scratch.bordered[1], f.scratch.sample_difference
    sum_x, sum_y = f.scratch.gradient_sum[0], f.scratch.gradient_sum[1]
    change_x, change_y = f.scratch.gradient_difference[0], f.scratch.gradient_difference[1]
    stride = width + 2
    above, left, centre, right, below = U(0), U(stride - 1), U(stride), U(stride + 1), U(2 * stride)
    # The rows are one loop, which also covers the border columns between them.
    for k in range(height * stride):
        i = U(k)
        across_0, across_1 = (l0[right + i] >> 6) - (l0[left + i] >> 6), (l1[right + i] >> 6) - (l1[left + i] >> 6)
        sum_x[centre + i] = np.int32(across_0 + across_1) >> 1
        change_x[centre + i] = across_0 - across_1
    for k in range(height * stride):
        i = U(k)
        down_0, down_1 = (l0[below + i] >> 6) - (l0[above + i] >> 6), (l1[below + i] >> 6) - (l1[above + i] >> 6)
        sum_y[centre + i] = np.int32(down_0 + down_1) >> 1
        change_y[centre + i] = down_0 - down_1
    for k in range(height * stride):
        i = centre + U(k)
        difference[i] = (l1[i] >> 4) - (l0[i] >> 4)
    repeat_border(sum_x, width, height)
    repeat_border(sum_y, width, height)
    repeat_border(difference, width, height)


@compiled
def repeat_border(block: Array[int], width: int, height: int) -> None:
    """Set the border of one sample around a block to the nearest samples.

    Part of clause 8.5.6.5, Bi-directional optical flow prediction process.
    """
    stride = width + 2
    for at in range(stride, (height + 1) * stride, stride):
        block[at], block[at + width + 1] = block[at + 1], block[at + width]
    last = height * stride
    for i in range(stride):
        block[i], block[last + stride + i] = block[stride + i], block[last + i]


@compiled
def find_flow_terms(f: Frame, width: int, height: int) -> None:
    """Derive the terms of each sample, with the border, from which the flow follows: `scratch.flow_terms`.

    Part of clause 8.5.6.5, Bi-directional optical flow prediction process.
    """
    scratch = f.scratch
    sum_x, sum_y, difference = scratch.gradient_sum[0], scratch.gradient_sum[1], scratch.sample_difference
    squared_x, squared_y, mixed = scratch.flow_terms[0], scratch.flow_terms[1], scratch.flow_terms[2]
    moved_x, moved_y = scratch.flow_terms[3], scratch.flow_terms[4]
    for k in range((height + 2) * (width + 2)):
        i = U(k)
        across, down = np.int32(sum_x[i]), np.int32(sum_y[i])
        sign_x = np.int32(np.int32(across > 0) - np.int32(across < 0))
        sign_y = np.int32(np.int32(down > 0) - np.int32(down < 0))
        squared_x[i], squared_y[i], mixed[i] = sign_x * across, sign_y * down, sign_y * across
        moved_x[i], moved_y[i] = sign_x * difference[i], sign_y * difference[i]


@compiled
def optical_flow(f: Frame, top: int, width: int) -> None:
    """Derive the flow (vx, vy) of a row of 4x4 subblocks from the 6x6 samples around each.

    Part of clause 8.5.6.5, Bi-directional optical flow prediction process.

    Args:
        f: State of the picture; the result is `scratch.flow`, equal in the four columns of a subblock.
        top: First row of the subblocks.
        width: Width of the block.
    """
    columns, flow = f.scratch.flow_columns, f.scratch.flow
    stride = width + 2
    for term in range(5):
        values, total = f.scratch.flow_terms[term], columns[term]
        first = U(top * stride)
        step = U(stride)
        for k in range(stride):
            i = first + U(k)
            upper = values[i] + values[i + step] + values[i + step + step]
            i += step + step + step
            total[U(k)] = np.int32(upper + values[i] + values[i + step] + values[i + step + step])
    for left in range(0, width, 4):
        total_x, total_y = sum_of_six(columns[0], left), sum_of_six(columns[1], left)
        flow_x = flow_y = 0
        if total_x > 0:
            flow_x = clip((4 * sum_of_six(columns[3], left)) >> log2(total_x), -15, 15)
        if total_y > 0:
            moved = 4 * sum_of_six(columns[4], left) - ((flow_x * sum_of_six(columns[2], left)) >> 1)
            flow_y = clip(moved >> log2(total_y), -15, 15)
        for column in range(left, left + 4):
            flow[0][column], flow[1][column] = flow_x, flow_y


@compiled
def sum_of_six(values: Array[int], first: int) -> int:
    """Add up six numbers.

    Part of clause 8.5.6.5, Bi-directional optical flow prediction process.
    """
    total = 0
    for i in range(first, first + 6):
        total += values[i]
    return total


@compiled
def predict_bilinear(
    f: Frame, reference: int, x: int, y: int, width: int, height: int, mv_x: int, mv_y: int, target: Array[int]
) -> None:
    """Predict luma by bilinear interpolation with 10 bits, with a margin of REACH samples, for the search of DMVR.

    Clause 8.5.3.2.2, Luma sample bilinear interpolation process.

    Rows of the result are `width` + 5 numbers, the last of which has no meaning.

    Args:
        f: State of the picture.
        reference: Reference picture list entry, as `ref_pic` takes it.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block.
        height: Height of the block.
        mv_x: Horizontal vector.
        mv_y: Vertical vector.
        target: The result.
    """
    fetched, half_filtered = f.fetched, f.scratch.half_filtered
    columns, rows = width + 2 * REACH + 1, height + 2 * REACH + 1
    left, top = x + (mv_x >> 4) - REACH, y + (mv_y >> 4) - REACH
    fetch(f, reference, 0, left, top, columns, rows, left, top, columns, rows)
    fraction_x, fraction_y = mv_x & 15, mv_y & 15
    shift = f.pic.bit_depth - 6
    half = np.int32(1 << (shift - 1))
    out, step = target, U(1)
    count = columns * rows - 1
    near, far = np.int32(16 - fraction_x), np.int32(fraction_x)
    if fraction_x == 0 and fraction_y:
        step = U(columns)
        count = columns * (rows - 1)
        near, far = np.int32(16 - fraction_y), np.int32(fraction_y)
    elif fraction_y:
        out = half_filtered[:]
    for k in range(count):
        i = U(k)
        out[i] = np.int32(near * fetched[i] + far * fetched[step + i] + half) >> shift
    if fraction_x and fraction_y:
        step = U(columns)
        near, far, half = np.int32(16 - fraction_y), np.int32(fraction_y), np.int32(8)
        for k in range(columns * (rows - 1)):
            i = U(k)
            target[i] = np.int32(near * half_filtered[i] + far * half_filtered[step + i] + half) >> 4


@compiled
def search_cost(f: Frame, dx: int, dy: int, width: int, height: int) -> int:
    """Return the sum of absolute differences of every second row of both predictions, moved apart by (dx, dy).

    Clause 8.5.3.3, Sum of absolute differences calculation process.
    """
    predicted_0, predicted_1 = f.scratch.predicted[0], f.scratch.predicted[1]
    stride = width + 2 * REACH + 1
    first, second = (REACH + dy) * stride + REACH + dx, (REACH - dy) * stride + REACH - dx
    total = np.int32(0)
    for row in range(0, height, 2):
        i, j = U(first + row * stride), U(second + row * stride)
        for k in range(width):
            total = np.int32(total + abs(np.int32(predicted_0[i + U(k)] - predicted_1[j + U(k)])))
    return int(total)


@compiled
def refine_vectors(
    f: Frame, entry_0: int, entry_1: int, x: int, y: int, width: int, height: int
) -> tuple[int, int, int]:
    """Search the difference of the vectors of a subblock with which both predictions fit best (DMVR).

    Clause 8.5.3.1, Decoder-side motion vector refinement process.
    Clause 8.5.3.4, Array entry selection process.

    Args:
        f: State of the picture; the vectors are in `f.unit.motion`.
        entry_0: Reference picture list entry of L0, as `ref_pic` takes it.
        entry_1: Reference picture list entry of L1.
        x: Column of the subblock.
        y: Row of the subblock.
        width: Width of the subblock, at most 16.
        height: Height of the subblock, at most 16.

    Returns:
        Horizontal and vertical difference in 1/16 sample to add to mvL0 and to subtract from mvL1, and the lowest cost.
    """
    mv = f.unit.motion.mv
    predict_bilinear(f, entry_0, x, y, width, height, mv[0].x, mv[0].y, f.scratch.predicted[0])
    predict_bilinear(f, entry_1, x, y, width, height, mv[1].x, mv[1].y, f.scratch.predicted[1])
    lowest = search_cost(f, 0, 0, width, height)
    lowest -= lowest >> 2
    if lowest < width * height:
        return 0, 0, lowest
    centre = lowest
    best_x = best_y = 0
    for dy in range(-REACH, REACH + 1):
        for dx in range(-REACH, REACH + 1):
            if dx or dy:
                cost = search_cost(f, dx, dy, width, height)
                if cost < lowest:
                    lowest, best_x, best_y = cost, dx, dy
    moved_x, moved_y = best_x << 4, best_y << 4
    if abs(best_x) < REACH and abs(best_y) < REACH:
        moved_x += fractional_step(
            neighbour_cost(f, best_x - 1, best_y, width, height, centre),
            lowest,
            neighbour_cost(f, best_x + 1, best_y, width, height, centre),
        )
        moved_y += fractional_step(
            neighbour_cost(f, best_x, best_y - 1, width, height, centre),
            lowest,
            neighbour_cost(f, best_x, best_y + 1, width, height, centre),
        )
    return moved_x, moved_y, lowest


@compiled
def neighbour_cost(f: Frame, dx: int, dy: int, width: int, height: int, centre: int) -> int:
    """Return the cost of a difference; that of no difference is `centre`, which is lower than its sum.

    Part of clause 8.5.3.4, Array entry selection process.
    """
    return centre if dx == 0 and dy == 0 else search_cost(f, dx, dy, width, height)


@compiled
def fractional_step(before: int, lowest: int, after: int) -> int:
    """Estimate the position of the minimum of a parabola through three costs, in 1/16 sample.

    Clause 8.5.3.5, Parametric motion vector refinement process.
    """
    denominator = (before + after - 2 * lowest) << 3
    if denominator == 0:
        return 0
    if before == lowest:
        return -8
    if after == lowest:
        return 8
    rest = abs(before - after) << 4
    quotient = 0
    for _ in range(3):
        quotient <<= 1
        if rest >= denominator:
            rest -= denominator
            quotient += 1
        denominator >>= 1
    return quotient if before > after else -quotient
