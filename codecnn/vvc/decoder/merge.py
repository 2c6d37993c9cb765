"""Merge candidates of inter units and merge with vector differences (H.266 clauses 8.5.2.2 to 8.5.2.7)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.motion_candidates import (
    clear_candidate,
    copy_candidate,
    copy_motion,
    inter_at,
    reference,
    same_motion,
)
from codecnn.vvc.decoder.temporal_motion import scale_factor, scaled, temporal_vector

LEFT, ABOVE = fr.NEIGHBOURS, fr.NEIGHBOURS + fr.CANDIDATE
"""Positions of the motion of A1 and B1, with which other candidates are compared."""
OTHER = fr.NEIGHBOURS + 2 * fr.CANDIDATE


@compiled
def mergeable(f: Frame, x: int, y: int) -> bool:
    """Return True if the unit may merge with the inter unit at (x, y), which must be in another merge region."""
    p = f.p
    level = p[fr.PARALLEL_LEVEL]
    same_column = p[fr.MOTION_OF_UNIT + fr.UNIT_X] >> level == x >> level
    if same_column and p[fr.MOTION_OF_UNIT + fr.UNIT_Y] >> level == y >> level:
        return False
    return bool(inter_at(f, x, y))


@compiled
def merge_candidates(f: Frame, last: int) -> None:
    """Derive the merge candidates from index 0 to `last`, at most 5, at p[MERGE_LIST] (8.5.2.2)."""
    p = f.p
    count = spatial_candidates(f)
    if count > last:
        return
    width, height = p[fr.MOTION_OF_UNIT + fr.UNIT_W], p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    if p[fr.TEMPORAL] and width * height > 32:
        count += temporal_candidate(f, fr.MERGE_LIST + fr.CANDIDATE * count)
    if count > last:
        return
    count = history_candidates(f, count)
    if count > last:
        return
    if count > 1:
        average_candidate(f, fr.MERGE_LIST + fr.CANDIDATE * count)
        count += 1
    references = p[fr.ACTIVE_0]
    if p[fr.SLICE_IS_B]:
        references = min(references, p[fr.ACTIVE_1])
    index = 0
    while count <= last:
        at = fr.MERGE_LIST + fr.CANDIDATE * count
        clear_candidate(f, at)
        p[at + fr.C_REF_0] = index if index < references else 0
        if p[fr.SLICE_IS_B]:
            p[at + fr.C_REF_1] = p[at + fr.C_REF_0]
        index += 1
        count += 1


@compiled
def spatial_candidates(f: Frame) -> int:
    """Derive the merge candidates B1, A1, B0, A0 and B2 (8.5.2.3); return their number.

    The motion of A1 and B1 is kept at LEFT and ABOVE, without reference pictures if they are not available.
    """
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    count = 0
    clear_candidate(f, LEFT)
    clear_candidate(f, ABOVE)
    if mergeable(f, right - 1, y - 1):
        copy_motion(f, right - 1, y - 1, ABOVE)
        copy_candidate(f, ABOVE, fr.MERGE_LIST)
        count += 1
    if mergeable(f, x - 1, bottom - 1):
        copy_motion(f, x - 1, bottom - 1, LEFT)
        if not same_motion(f, LEFT, ABOVE):
            copy_candidate(f, LEFT, fr.MERGE_LIST + fr.CANDIDATE * count)
            count += 1
    if mergeable(f, right, y - 1):
        copy_motion(f, right, y - 1, OTHER)
        if not same_motion(f, OTHER, ABOVE):
            copy_candidate(f, OTHER, fr.MERGE_LIST + fr.CANDIDATE * count)
            count += 1
    if mergeable(f, x - 1, bottom):
        copy_motion(f, x - 1, bottom, OTHER)
        if not same_motion(f, OTHER, LEFT):
            copy_candidate(f, OTHER, fr.MERGE_LIST + fr.CANDIDATE * count)
            count += 1
    if count < 4 and mergeable(f, x - 1, y - 1):
        copy_motion(f, x - 1, y - 1, OTHER)
        if not same_motion(f, OTHER, LEFT) and not same_motion(f, OTHER, ABOVE):
            copy_candidate(f, OTHER, fr.MERGE_LIST + fr.CANDIDATE * count)
            count += 1
    return count


@compiled
def temporal_candidate(f: Frame, at: int) -> bool:
    """Derive the temporal merge candidate, at p[at]; return True if it exists."""
    p = f.p
    clear_candidate(f, at)
    exists = False
    for which in range(1 + p[fr.SLICE_IS_B]):
        if temporal_vector(f, which, 0):
            exists = True
            p[at + fr.C_REF_0 + which] = 0
            p[at + fr.C_X0 + 2 * which], p[at + fr.C_Y0 + 2 * which] = p[fr.VECTOR], p[fr.VECTOR + 1]
    return exists


@compiled
def history_candidates(f: Frame, count: int) -> int:
    """Append candidates of earlier units, the last one first, to `count` others (8.5.2.6); return the new number.

    One place is left free. The last two units are compared with A1 and B1.
    """
    p = f.p
    for i in range(p[fr.HISTORY_COUNT]):
        if count >= p[fr.MAX_MERGE] - 1:
            break
        at = fr.HISTORY + fr.CANDIDATE * (p[fr.HISTORY_COUNT] - 1 - i)
        if i < 2 and (same_motion(f, at, LEFT) or same_motion(f, at, ABOVE)):
            continue
        copy_candidate(f, at, fr.MERGE_LIST + fr.CANDIDATE * count)
        count += 1
    return count


@compiled
def average_candidate(f: Frame, at: int) -> None:
    """Derive the average of the first two candidates, at p[at] (8.5.2.4)."""
    p = f.p
    first, second = fr.MERGE_LIST, fr.MERGE_LIST + fr.CANDIDATE
    clear_candidate(f, at)
    for which in range(2):
        first_index, second_index = p[first + fr.C_REF_0 + which], p[second + fr.C_REF_0 + which]
        p[at + fr.C_REF_0 + which] = first_index if first_index >= 0 else second_index
        for axis in range(2):
            i = fr.C_X0 + 2 * which + axis
            if first_index >= 0 and second_index >= 0:
                total = p[first + i] + p[second + i]
                p[at + i] = (total + 1 - int(total >= 0)) >> 1
            else:
                p[at + i] = p[first + i] if first_index >= 0 else p[second + i]
    if p[first + fr.C_HALF] == p[second + fr.C_HALF]:
        p[at + fr.C_HALF] = p[first + fr.C_HALF]


@compiled
def add_difference(f: Frame, at: int, distance: int, direction: int) -> None:
    """Add the difference of a merge with vector differences to the candidate at p[at] (8.5.2.7).

    Args:
        f: State of the picture.
        at: Position of the candidate.
        distance: mmvd_distance_idx.
        direction: mmvd_direction_idx.
    """
    p = f.p
    length = 4 << distance
    if p[fr.MMVD_FULL_SAMPLES]:
        length <<= 2
    x0 = length if direction == 0 else -length if direction == 1 else 0
    y0 = length if direction == 2 else -length if direction == 3 else 0
    x1, y1 = x0, y0
    if p[at + fr.C_REF_0] >= 0 and p[at + fr.C_REF_1] >= 0:
        first, second = reference(0, p[at + fr.C_REF_0]), reference(1, p[at + fr.C_REF_1])
        distance_0, distance_1 = p[fr.POC] - p[first + fr.REF_POC], p[fr.POC] - p[second + fr.REF_POC]
        long_term = p[first + fr.REF_LONG_TERM] or p[second + fr.REF_LONG_TERM]
        if distance_0 == distance_1:
            pass
        elif long_term:
            if distance_0 * distance_1 <= 0:
                if abs(distance_0) >= abs(distance_1):
                    x1, y1 = -x0, -y0
                else:
                    x0, y0 = -x1, -y1
        elif abs(distance_0) >= abs(distance_1):
            if distance_0:
                factor = scale_factor(distance_1, distance_0)
                x1, y1 = scaled(x0, factor), scaled(y0, factor)
        else:
            factor = scale_factor(distance_0, distance_1)
            x0, y0 = scaled(x1, factor), scaled(y1, factor)
    if p[at + fr.C_REF_0] >= 0:
        p[at + fr.C_X0] = clip(p[at + fr.C_X0] + x0, -131072, 131071)
        p[at + fr.C_Y0] = clip(p[at + fr.C_Y0] + y0, -131072, 131071)
    if p[at + fr.C_REF_1] >= 0:
        p[at + fr.C_X1] = clip(p[at + fr.C_X1] + x1, -131072, 131071)
        p[at + fr.C_Y1] = clip(p[at + fr.C_Y1] + y1, -131072, 131071)
