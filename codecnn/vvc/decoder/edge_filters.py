"""Deblocking: decisions and filters at the edges of a picture (H.266 clause 8.8.3.6).

Samples before an edge are p0, p1 and so on from the edge on, samples after it q0, q1 and so on.
"""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.cells import Edge, int64
from codecnn.vvc.decoder.frame import clip
from codecnn.vvc.decoder.records import PictureValues

Ints = npt.NDArray[np.int64]
Samples = npt.NDArray[np.int32]

_TC = """
0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 4 4 4 4 5 5 5 5 7 7 8 9 10 10 11 13 14 15 17 19 21 24 25 29 33 36 41 45 51 57 64
71 80 89 100 112 125 141 157 177 198 222 250 280 314 352 395
"""
TC = np.array(_TC.split(), np.int64)
"""tC' by Q (table 43)."""

_BETA = [*[0] * 16, *range(6, 18), *range(18, 90, 2)]
BETA = np.array(_BETA, np.int64)
"""β' by Q (table 43)."""

WEIGHTS = np.zeros((8, 7), np.int64)
"""Weights of the middle value in 1/64 by filter length 3, 5 or 7 and sample (clause 8.8.3.6.8)."""
WEIGHTS[3, :3], WEIGHTS[5, :5], WEIGHTS[7] = (53, 32, 11), (58, 45, 32, 19, 6), (59, 50, 41, 32, 23, 14, 5)

LIMITS = np.zeros((8, 7), np.int64)
"""Largest changes in tC / 2 by filter length 3, 5 or 7 and sample (clause 8.8.3.6.8)."""
LIMITS[3, :3], LIMITS[5, :5], LIMITS[7] = (6, 4, 2), (6, 5, 4, 3, 2), (6, 5, 4, 3, 2, 1, 1)


@compiled
def tc_of(q: int, depth: int) -> int:
    """Return tC of the index `q`, which is clipped, at the bit depth `depth`.

    Part of clause 8.8.3.6.2, Decision process for luma block edges.
    Part of clause 8.8.3.6.4, Decision process for chroma block edges.
    """
    tc: int = TC[clip(q, 0, 65)]
    return tc << (depth - 10) if depth >= 10 else (tc + (1 << (9 - depth))) >> (10 - depth)


@compiled
def beta_of(q: int, depth: int) -> int:
    """Return β of the index `q`, which is clipped, at the bit depth `depth`.

    Part of clause 8.8.3.6.2, Decision process for luma block edges.
    Part of clause 8.8.3.6.4, Decision process for chroma block edges.
    """
    beta: int = BETA[clip(q, 0, 63)]
    return beta << (depth - 8)


@compiled
def second_difference(s: Samples, at: int, step: int) -> int:
    """Return the magnitude of the second difference of three samples from `at` on.

    Part of clause 8.8.3.6.2, Decision process for luma block edges.
    Part of clause 8.8.3.6.4, Decision process for chroma block edges.
    """
    difference: int = s[at] - 2 * s[at + step] + s[at + 2 * step]
    return abs(difference)


@compiled
def is_smooth(
    s: Samples, at: int, across: int, activity: int, beta: int, tc: int, length_p: int, length_q: int
) -> bool:
    """Decide for one line whether it is smooth enough for a strong or long filter.

    Clause 8.8.3.6.6, Decision process for a luma sample.

    Args:
        s: Samples.
        at: Position of q0.
        across: Step to the next sample across the edge.
        activity: dpq, twice the sum of the second differences of the line.
        beta: β.
        tc: tC.
        length_p: 5 or 7 if the samples before the edge have a long filter, else 3.
        length_q: The same of the samples after the edge.
    """
    end_p, end_q = at - 4 * across, at + 3 * across
    slope_p, slope_q = abs(s[end_p] - s[at - across]), abs(s[end_q] - s[at])
    if abs(s[at - across] - s[at]) >= (5 * tc + 1) >> 1:
        return False
    if length_p == 3 and length_q == 3:
        return slope_p + slope_q < beta >> 3 and activity < beta >> 2
    if length_p > 3:
        last = at - 6 * across
        if length_p == 7:
            last = at - 8 * across
            slope_p += abs(s[at - 5 * across] - s[at - 6 * across] - s[at - 7 * across] + s[last])
        slope_p = (slope_p + abs(s[end_p] - s[last]) + 1) >> 1
    if length_q > 3:
        last = at + 5 * across
        if length_q == 7:
            last = at + 7 * across
            slope_q += abs(s[at + 4 * across] - s[at + 5 * across] - s[at + 6 * across] + s[last])
        slope_q = (slope_q + abs(s[end_q] - s[last]) + 1) >> 1
    return slope_p + slope_q < 3 * beta >> 5 and activity < beta >> 4


@compiled
def middle_value(s: Samples, at: int, across: int, length_p: int, length_q: int) -> int:
    """Return refMiddle of a long filter.

    Part of clause 8.8.3.6.8, Filtering process for a luma sample using long filters.
    """
    total: int = 0
    if length_p == length_q or length_p + length_q == 12:
        # Samples beyond those that are weighted twice are weighted once, 16 weights in all.
        twice = 1 if length_p == 7 and length_q == 7 else 3 if length_p == length_q else 2
        for i in range(8 - twice):
            pair = s[at + i * across] + s[at - (i + 1) * across]
            total += 2 * pair if i < twice else pair
        return (total + 8) >> 4
    if length_p + length_q == 8:
        for i in range(4):
            total += s[at + i * across] + s[at - (i + 1) * across]
        return (total + 4) >> 3
    if length_p < length_q:
        # The side of three samples is weighted as much as that of seven.
        at, across = at - across, -across
    total = 3 * s[at] + 3 * s[at + across] + 2 * s[at + 2 * across] + 2 * s[at - across]
    for i in range(2, 8):
        total += s[at - i * across]
    return (total + 8) >> 4


@compiled
def long_filter(
    s: Samples, at: int, across: int, tc: int, length_p: int, length_q: int, keep_p: bool, keep_q: bool
) -> None:
    """Filter one line with up to seven samples on each side.

    Clause 8.8.3.6.8, Filtering process for a luma sample using long filters.

    Args:
        s: Samples.
        at: Position of q0.
        across: Step to the next sample across the edge.
        tc: tC.
        length_p: Number of samples before the edge, 3, 5 or 7.
        length_q: Number of samples after the edge, 3, 5 or 7.
        keep_p: The samples before the edge do not change.
        keep_q: The samples after the edge do not change.
    """
    middle = middle_value(s, at, across, length_p, length_q)
    end_p = (s[at - length_p * across] + s[at - (length_p + 1) * across] + 1) >> 1
    end_q = (s[at + (length_q - 1) * across] + s[at + length_q * across] + 1) >> 1
    if not keep_p:
        for i in range(length_p):
            place = at - (i + 1) * across
            weight, limit = WEIGHTS[length_p, i], tc * LIMITS[length_p, i] >> 1
            value = (middle * weight + end_p * (64 - weight) + 32) >> 6
            s[place] = clip(value, s[place] - limit, s[place] + limit)
    if not keep_q:
        for i in range(length_q):
            place = at + i * across
            weight, limit = WEIGHTS[length_q, i], tc * LIMITS[length_q, i] >> 1
            value = (middle * weight + end_q * (64 - weight) + 32) >> 6
            s[place] = clip(value, s[place] - limit, s[place] + limit)


@compiled
def strong_filter(s: Samples, at: int, across: int, tc: int, keep_p: bool, keep_q: bool) -> None:
    """Filter three luma samples on each side of one line (dE equal to 2).

    Part of clause 8.8.3.6.7, Filtering process for a luma sample using short filters.
    """
    p3, p2, p1, p0 = s[at - 4 * across], s[at - 3 * across], s[at - 2 * across], s[at - across]
    q0, q1, q2, q3 = s[at], s[at + across], s[at + 2 * across], s[at + 3 * across]
    if not keep_p:
        s[at - across] = clip((p2 + 2 * p1 + 2 * p0 + 2 * q0 + q1 + 4) >> 3, p0 - 3 * tc, p0 + 3 * tc)
        s[at - 2 * across] = clip((p2 + p1 + p0 + q0 + 2) >> 2, p1 - 2 * tc, p1 + 2 * tc)
        s[at - 3 * across] = clip((2 * p3 + 3 * p2 + p1 + p0 + q0 + 4) >> 3, p2 - tc, p2 + tc)
    if not keep_q:
        s[at] = clip((p1 + 2 * p0 + 2 * q0 + 2 * q1 + q2 + 4) >> 3, q0 - 3 * tc, q0 + 3 * tc)
        s[at + across] = clip((p0 + q0 + q1 + q2 + 2) >> 2, q1 - 2 * tc, q1 + 2 * tc)
        s[at + 2 * across] = clip((p0 + q0 + q1 + 3 * q2 + 2 * q3 + 4) >> 3, q2 - tc, q2 + tc)


@compiled
def weak_filter(
    s: Samples, at: int, across: int, tc: int, peak: int, two_p: bool, two_q: bool, keep_p: bool, keep_q: bool
) -> None:
    """Filter one or two luma samples on each side of one line (dE equal to 1).

    Part of clause 8.8.3.6.7, Filtering process for a luma sample using short filters.

    Args:
        s: Samples.
        at: Position of q0.
        across: Step to the next sample across the edge.
        tc: tC.
        peak: Largest sample value.
        two_p: Two samples before the edge change instead of one (dEp).
        two_q: The same after the edge (dEq).
        keep_p: The samples before the edge do not change.
        keep_q: The samples after the edge do not change.
    """
    p2, p1, p0 = s[at - 3 * across], s[at - 2 * across], s[at - across]
    q0, q1, q2 = s[at], s[at + across], s[at + 2 * across]
    delta = (9 * (q0 - p0) - 3 * (q1 - p1) + 8) >> 4
    if abs(delta) >= 10 * tc:
        return
    delta = clip(delta, -tc, tc)
    half = tc >> 1
    if not keep_p:
        s[at - across] = clip(p0 + delta, 0, peak)
        if two_p:
            s[at - 2 * across] = clip(p1 + clip((((p2 + p0 + 1) >> 1) - p1 + delta) >> 1, -half, half), 0, peak)
    if not keep_q:
        s[at] = clip(q0 - delta, 0, peak)
        if two_q:
            s[at + across] = clip(q1 + clip((((q2 + q0 + 1) >> 1) - q1 - delta) >> 1, -half, half), 0, peak)


@compiled
def filter_luma(
    s: Samples,
    at: int,
    across: int,
    along: int,
    edge: Edge,
    qp: int,
    beta_offset: int,
    tc_offset: int,
    depth: int,
    ctb_edge: bool,
    keep_p: bool,
    keep_q: bool,
) -> None:
    """Filter four lines of a luma edge.

    Clause 8.8.3.6.2, Decision process for luma block edges.
    Clause 8.8.3.6.3, Filtering process for luma block edges.

    Args:
        s: Samples.
        at: Position of q0 of the first line.
        across: Step to the next sample across the edge.
        along: Step to the next line.
        edge: bS and filter lengths.
        qp: Mean QpY of both sides.
        beta_offset: sh_luma_beta_offset_div2.
        tc_offset: sh_luma_tc_offset_div2.
        depth: Bit depth.
        ctb_edge: The edge is the upper one of a CTU, so that no long filter reaches above it.
        keep_p: The samples before the edge do not change.
        keep_q: The samples after the edge do not change.
    """
    max_p, max_q = int64(edge.max_filter_length_p), int64(edge.max_filter_length_q)
    tc = tc_of(qp + 2 * (int64(edge.bs) - 1) + 2 * tc_offset, depth)
    beta = beta_of(qp + 2 * beta_offset, depth)
    last = at + 3 * along
    dp0, dp3 = second_difference(s, at - across, -across), second_difference(s, last - across, -across)
    dq0, dq3 = second_difference(s, at, across), second_difference(s, last, across)
    length_p, length_q = 3 if ctb_edge else max(3, max_p), max(3, max_q)
    if length_p > 3 or length_q > 3:
        p0, p3, q0, q3 = dp0, dp3, dq0, dq3
        if length_p > 3:
            p0 = (p0 + second_difference(s, at - 4 * across, -across) + 1) >> 1
            p3 = (p3 + second_difference(s, last - 4 * across, -across) + 1) >> 1
        if length_q > 3:
            q0 = (q0 + second_difference(s, at + 3 * across, across) + 1) >> 1
            q3 = (q3 + second_difference(s, last + 3 * across, across) + 1) >> 1
        if (
            p0 + p3 + q0 + q3 < beta
            and is_smooth(s, at, across, 2 * (p0 + q0), beta, tc, length_p, length_q)
            and is_smooth(s, last, across, 2 * (p3 + q3), beta, tc, length_p, length_q)
        ):
            for i in range(4):
                long_filter(s, at + i * along, across, tc, length_p, length_q, keep_p, keep_q)
            return
    if dp0 + dp3 + dq0 + dq3 >= beta:
        return
    shorter = min(max_p, max_q)
    strong = (
        shorter > 2
        and is_smooth(s, at, across, 2 * (dp0 + dq0), beta, tc, 3, 3)
        and is_smooth(s, last, across, 2 * (dp3 + dq3), beta, tc, 3, 3)
    )
    limit = (beta + (beta >> 1)) >> 3
    two_p, two_q = shorter > 1 and dp0 + dp3 < limit, shorter > 1 and dq0 + dq3 < limit
    for i in range(4):
        if strong:
            strong_filter(s, at + i * along, across, tc, keep_p, keep_q)
        else:
            weak_filter(s, at + i * along, across, tc, (1 << depth) - 1, two_p, two_q, keep_p, keep_q)


@compiled
def strong_chroma_filter(s: Samples, at: int, across: int, tc: int, ctb_edge: bool, keep_p: bool, keep_q: bool) -> None:
    """Filter three chroma samples on each side of one line, or one before the upper edge of a CTU.

    Part of clause 8.8.3.6.10, Filtering process for a chroma sample.
    """
    p3, p2, p1, p0 = s[at - 4 * across], s[at - 3 * across], s[at - 2 * across], s[at - across]
    q0, q1, q2, q3 = s[at], s[at + across], s[at + 2 * across], s[at + 3 * across]
    if ctb_edge:
        # p1 stands for the samples further above.
        p3 = p2 = p1
    if not keep_p:
        s[at - across] = clip((p3 + p2 + p1 + 2 * p0 + q0 + q1 + q2 + 4) >> 3, p0 - tc, p0 + tc)
        if not ctb_edge:
            s[at - 2 * across] = clip((2 * p3 + p2 + 2 * p1 + p0 + q0 + q1 + 4) >> 3, p1 - tc, p1 + tc)
            s[at - 3 * across] = clip((3 * p3 + 2 * p2 + p1 + p0 + q0 + 4) >> 3, p2 - tc, p2 + tc)
    if not keep_q:
        s[at] = clip((p2 + p1 + p0 + 2 * q0 + q1 + q2 + q3 + 4) >> 3, q0 - tc, q0 + tc)
        s[at + across] = clip((p1 + p0 + q0 + 2 * q1 + q2 + 2 * q3 + 4) >> 3, q1 - tc, q1 + tc)
        s[at + 2 * across] = clip((p0 + q0 + q1 + 2 * q2 + 3 * q3 + 4) >> 3, q2 - tc, q2 + tc)


@compiled
def filter_chroma(
    s: Samples,
    at: int,
    across: int,
    along: int,
    lines: int,
    strength: int,
    large: bool,
    qp: int,
    beta_offset: int,
    tc_offset: int,
    depth: int,
    ctb_edge: bool,
    keep_p: bool,
    keep_q: bool,
) -> None:
    """Filter some lines of a chroma edge.

    Clause 8.8.3.6.4, Decision process for chroma block edges.
    Clause 8.8.3.6.5, Filtering process for chroma block edges.
    Clause 8.8.3.6.10, Filtering process for a chroma sample.

    Args:
        s: Samples.
        at: Position of q0 of the first line.
        across: Step to the next sample across the edge.
        along: Step to the next line.
        lines: Number of lines, those of four luma samples.
        strength: Boundary strength.
        large: The blocks on both sides have at least eight samples.
        qp: QpC.
        beta_offset: sh_cb_beta_offset_div2 or sh_cr_beta_offset_div2.
        tc_offset: sh_cb_tc_offset_div2 or sh_cr_tc_offset_div2.
        depth: Bit depth.
        ctb_edge: The edge is the upper one of a CTU.
        keep_p: The samples before the edge do not change.
        keep_q: The samples after the edge do not change.
    """
    if strength < 2 and not (large and strength == 1):
        return
    tc = tc_of(qp + 2 * (strength - 1) + 2 * tc_offset, depth)
    strong = False
    if large:
        beta = beta_of(qp + 2 * beta_offset, depth)
        strong = chroma_activity(s, at, across, ctb_edge) + chroma_activity(
            s, at + (lines - 1) * along, across, ctb_edge
        ) < beta and (
            is_smooth_chroma(s, at, across, beta, tc, ctb_edge)
            and is_smooth_chroma(s, at + (lines - 1) * along, across, beta, tc, ctb_edge)
        )
    peak = (1 << depth) - 1
    for i in range(lines):
        place = at + i * along
        if strong:
            strong_chroma_filter(s, place, across, tc, ctb_edge, keep_p, keep_q)
            continue
        p1, p0, q0, q1 = s[place - 2 * across], s[place - across], s[place], s[place + across]
        delta = clip((4 * (q0 - p0) + p1 - q1 + 4) >> 3, -tc, tc)
        if not keep_p:
            s[place - across] = clip(p0 + delta, 0, peak)
        if not keep_q:
            s[place] = clip(q0 - delta, 0, peak)


@compiled
def chroma_activity(s: Samples, at: int, across: int, ctb_edge: bool) -> int:
    """Return the sum of the second differences of one line of a chroma edge.

    Part of clause 8.8.3.6.4, Decision process for chroma block edges.
    """
    before: int = abs(s[at - across] - s[at - 2 * across])
    if not ctb_edge:
        before = second_difference(s, at - across, -across)
    return before + second_difference(s, at, across)


@compiled
def is_smooth_chroma(s: Samples, at: int, across: int, beta: int, tc: int, ctb_edge: bool) -> bool:
    """Decide for one line of a chroma edge whether it is smooth enough for the strong filter.

    Clause 8.8.3.6.9, Decision process for a chroma sample.
    """
    end = at - 2 * across if ctb_edge else at - 4 * across
    slope = abs(s[end] - s[at - across]) + abs(s[at + 3 * across] - s[at])
    smooth = slope < beta >> 3 and 2 * chroma_activity(s, at, across, ctb_edge) < beta >> 2
    return smooth and abs(s[at - across] - s[at]) < (5 * tc + 1) >> 1


@compiled
def adapted_qp(pic: PictureValues, s: Samples, at: int, across: int, along: int) -> int:
    """Return the QP offset of the luma level at an edge (LADF).

    Part of clause 8.8.3.6.2, Decision process for luma block edges.
    """
    last = at + 3 * along
    level = (s[at] + s[at - across] + s[last] + s[last - across]) >> 2
    offset: int = pic.ladf_qp_offset[0]
    for i in range(1, pic.num_ladf_intervals):
        if level <= pic.ladf_lower_bound[i]:
            break
        offset = pic.ladf_qp_offset[i]
    return offset
