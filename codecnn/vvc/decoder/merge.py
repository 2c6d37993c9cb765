"""Merge candidates of inter units and merge with vector differences (H.266 clauses 8.5.2.2 to 8.5.2.7)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.motion_candidates import (
    clear_candidate,
    copy_candidate,
    copy_motion,
    inter_at,
    same_motion,
)
from codecnn.vvc.decoder.records import Motion
from codecnn.vvc.decoder.temporal_motion import scale_factor, scaled, temporal_vector


@compiled
def mergeable(f: Frame, x: int, y: int) -> bool:
    """Return True if the unit may merge with the inter unit at (x, y), which must be in another merge region.

    Part of clause 8.5.2.3, Derivation process for spatial merging candidates.
    """
    level = f.slice.log2_par_mrg_level
    if f.unit.x >> level == x >> level and f.unit.y >> level == y >> level:
        return False
    return bool(inter_at(f, x, y))


@compiled
def merge_candidates(f: Frame, last: int) -> None:
    """Derive mergeCandList up to index `last`.

    Clause 8.5.2.2, Derivation process for luma motion vectors for merge mode.

    Args:
        f: State of the picture; the result is `f.candidates.merge_cand_list`.
        last: merge_idx, at most 5; later candidates are not derived.
    """
    unit, merge = f.unit, f.candidates.merge_cand_list
    count = spatial_candidates(f)
    if count > last:
        return
    if f.slice.ph_temporal_mvp_enabled_flag and unit.width * unit.height > 32:
        count += temporal_candidate(f, merge[count])
    if count > last:
        return
    count = history_candidates(f, count)
    if count > last:
        return
    if count > 1:
        average_candidate(merge[0], merge[1], merge[count])
        count += 1
    zero_candidates(f, count, last)


@compiled
def zero_candidates(f: Frame, count: int, last: int) -> None:
    """Fill mergeCandList from index `count` to `last` with zero vectors to one reference picture after the other.

    Clause 8.5.2.5, Derivation process for zero motion vector merging candidates.
    """
    merge = f.candidates.merge_cand_list
    num_ref_idx = f.slice.num_ref_idx_active[0]
    if f.slice.is_b:
        num_ref_idx = min(num_ref_idx, f.slice.num_ref_idx_active[1])
    for i in range(count, last + 1):
        zero_idx = i - count
        clear_candidate(merge[i])
        merge[i].ref_idx[0] = zero_idx if zero_idx < num_ref_idx else 0
        if f.slice.is_b:
            merge[i].ref_idx[1] = merge[i].ref_idx[0]


@compiled
def spatial_candidates(f: Frame) -> int:
    """Derive the merge candidates B1, A1, B0, A0 and B2.

    Clause 8.5.2.3, Derivation process for spatial merging candidates.

    Args:
        f: State of the picture. The motion of A1 and B1 is kept in `f.candidates`, without reference pictures if they
            are not available.

    Returns:
        Number of candidates.
    """
    unit, merge = f.unit, f.candidates.merge_cand_list
    a1, b1, neighbour = f.candidates.a1, f.candidates.b1, f.candidates.neighbour
    x, y, right, bottom = unit.x, unit.y, unit.x + unit.width, unit.y + unit.height
    count = 0
    clear_candidate(a1)
    clear_candidate(b1)
    if mergeable(f, right - 1, y - 1):
        copy_motion(f, right - 1, y - 1, b1)
        copy_candidate(b1, merge[0])
        count += 1
    if mergeable(f, x - 1, bottom - 1):
        copy_motion(f, x - 1, bottom - 1, a1)
        if not same_motion(a1, b1):
            copy_candidate(a1, merge[count])
            count += 1
    if mergeable(f, right, y - 1):
        copy_motion(f, right, y - 1, neighbour)
        if not same_motion(neighbour, b1):
            copy_candidate(neighbour, merge[count])
            count += 1
    if mergeable(f, x - 1, bottom):
        copy_motion(f, x - 1, bottom, neighbour)
        if not same_motion(neighbour, a1):
            copy_candidate(neighbour, merge[count])
            count += 1
    if count < 4 and mergeable(f, x - 1, y - 1):
        copy_motion(f, x - 1, y - 1, neighbour)
        if not same_motion(neighbour, a1) and not same_motion(neighbour, b1):
            copy_candidate(neighbour, merge[count])
            count += 1
    return count


@compiled
def temporal_candidate(f: Frame, candidate: Motion) -> bool:
    """Derive the temporal merge candidate Col; return True if it exists (availableFlagCol).

    Part of clause 8.5.2.2, Derivation process for luma motion vectors for merge mode.
    """
    clear_candidate(candidate)
    exists = False
    for list_x in range(1 + f.slice.is_b):
        if temporal_vector(f, list_x, 0, candidate.mv[list_x]):
            candidate.ref_idx[list_x] = 0
            exists = True
    return exists


@compiled
def history_candidates(f: Frame, count: int) -> int:
    """Append candidates of HmvpCandList, the last one first, to mergeCandList.

    Clause 8.5.2.6, Derivation process for history-based merging candidates.

    One place is left free. The last two candidates are compared with A1 and B1.

    Args:
        f: State of the picture.
        count: Number of candidates so far.

    Returns:
        The new number of candidates.
    """
    candidates = f.candidates
    for i in range(candidates.num_hmvp_cand):
        if count >= f.slice.max_num_merge_cand - 1:
            break
        hmvp = candidates.hmvp_cand_list[candidates.num_hmvp_cand - 1 - i]
        if i < 2 and (same_motion(hmvp, candidates.a1) or same_motion(hmvp, candidates.b1)):
            continue
        copy_candidate(hmvp, candidates.merge_cand_list[count])
        count += 1
    return count


@compiled
def average_candidate(first: Motion, second: Motion, average: Motion) -> None:
    """Derive the pairwise average candidate.

    Clause 8.5.2.4, Derivation process for pairwise average merging candidate.

    Args:
        first: Candidate 0 of mergeCandList, p0Cand.
        second: Candidate 1, p1Cand.
        average: The result.
    """
    clear_candidate(average)
    for i in range(2):
        if first.ref_idx[i] >= 0 and second.ref_idx[i] >= 0:
            average.ref_idx[i] = first.ref_idx[i]
            average.mv[i].x = halved(first.mv[i].x + second.mv[i].x)
            average.mv[i].y = halved(first.mv[i].y + second.mv[i].y)
        elif first.ref_idx[i] >= 0:
            average.ref_idx[i] = first.ref_idx[i]
            average.mv[i].x, average.mv[i].y = first.mv[i].x, first.mv[i].y
        else:
            average.ref_idx[i] = second.ref_idx[i]
            average.mv[i].x, average.mv[i].y = second.mv[i].x, second.mv[i].y
    if first.hpel_if_idx == second.hpel_if_idx:
        average.hpel_if_idx = first.hpel_if_idx


@compiled
def halved(total: int) -> int:
    """Return half of a component of a vector, rounded towards zero.

    Part of clause 8.5.2.4, Derivation process for pairwise average merging candidate.
    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.
    """
    return (total + 1 - int(total >= 0)) >> 1


@compiled
def add_difference(f: Frame, motion: Motion, mmvd_distance_idx: int, mmvd_direction_idx: int) -> None:
    """Add mMvdL0 and mMvdL1 of merge with vector differences to the motion of a merge candidate.

    Clause 8.5.2.7, Derivation process for merge motion vector difference.

    Args:
        f: State of the picture.
        motion: Motion of the candidate, and the result.
        mmvd_distance_idx: mmvd_distance_idx.
        mmvd_direction_idx: mmvd_direction_idx.
    """
    length = 4 << mmvd_distance_idx
    if f.slice.ph_mmvd_fullpel_only_flag:
        length <<= 2
    x0 = length if mmvd_direction_idx == 0 else -length if mmvd_direction_idx == 1 else 0
    y0 = length if mmvd_direction_idx == 2 else -length if mmvd_direction_idx == 3 else 0
    x1, y1 = x0, y0
    if motion.ref_idx[0] >= 0 and motion.ref_idx[1] >= 0:
        ref_0 = f.slice.ref_pic_list[0, motion.ref_idx[0]]
        ref_1 = f.slice.ref_pic_list[1, motion.ref_idx[1]]
        poc_diff_0, poc_diff_1 = f.slice.poc - ref_0.poc, f.slice.poc - ref_1.poc
        if poc_diff_0 == poc_diff_1:
            pass
        elif ref_0.long_term or ref_1.long_term:
            if poc_diff_0 * poc_diff_1 <= 0:
                if abs(poc_diff_0) >= abs(poc_diff_1):
                    x1, y1 = -x0, -y0
                else:
                    x0, y0 = -x1, -y1
        elif abs(poc_diff_0) >= abs(poc_diff_1):
            if poc_diff_0:
                factor = scale_factor(poc_diff_1, poc_diff_0)
                x1, y1 = scaled(x0, factor), scaled(y0, factor)
        else:
            factor = scale_factor(poc_diff_0, poc_diff_1)
            x0, y0 = scaled(x1, factor), scaled(y1, factor)
    if motion.ref_idx[0] >= 0:
        motion.mv[0].x = clip(motion.mv[0].x + x0, -131072, 131071)
        motion.mv[0].y = clip(motion.mv[0].y + y0, -131072, 131071)
    if motion.ref_idx[1] >= 0:
        motion.mv[1].x = clip(motion.mv[1].x + x1, -131072, 131071)
        motion.mv[1].y = clip(motion.mv[1].y + y1, -131072, 131071)
