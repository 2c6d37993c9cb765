"""Subblock merge candidates: temporal (SbTMVP), inherited and constructed affine (H.266 clauses 8.5.5.2 to 8.5.5.6)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.affine import FRACTION, affine_at, inherit_points, shifted, store_affine
from codecnn.vvc.decoder.cells import MotionCell, int64
from codecnn.vvc.decoder.frame import Frame, clip, coding_unit
from codecnn.vvc.decoder.merge import mergeable
from codecnn.vvc.decoder.motion_candidates import (
    clear_candidate,
    copy_candidate,
    copy_motion,
    same_picture,
    store_block,
)
from codecnn.vvc.decoder.motion_prediction import rounded
from codecnn.vvc.decoder.records import KIND_TEMPORAL_SUBBLOCKS, Motion
from codecnn.vvc.decoder.temporal_motion import bottom_right_vector, collocated_vector
from codecnn.vvc.syntax import log2


@compiled
def merged_subblock_motion(f: Frame) -> None:
    """Derive the motion of a unit with merge_subblock_flag, and store it.

    Clause 8.5.5.2, Derivation process for motion vectors and reference indices in subblock merge mode.
    """
    unit, s = f.unit, f.slice
    merge_subblock_idx = coding_unit(f).merge_idx
    count = 0
    if s.ph_temporal_mvp_enabled_flag and s.sps_sbtmvp_enabled_flag and default_motion(f):
        if merge_subblock_idx == 0:
            store_temporal_subblocks(f)
            return
        count = 1
    x, y, right, bottom = unit.x, unit.y, unit.x + unit.width, unit.y + unit.height
    if s.sps_affine_enabled_flag:
        if may_inherit(f, x - 1, bottom):
            if count == merge_subblock_idx:
                inherited_motion(f, x - 1, bottom)
                return
            count += 1
        elif may_inherit(f, x - 1, bottom - 1):
            if count == merge_subblock_idx:
                inherited_motion(f, x - 1, bottom - 1)
                return
            count += 1
        above_x = right
        if not may_inherit(f, above_x, y - 1):
            above_x = right - 1
            if not may_inherit(f, above_x, y - 1):
                above_x = x - 1
        if may_inherit(f, above_x, y - 1):
            if count == merge_subblock_idx:
                inherited_motion(f, above_x, y - 1)
                return
            count += 1
        corner_motion(f)
        for const_idx in range(1 if s.sps_6param_affine_enabled_flag else 5, 7):
            if constructed_motion(f, const_idx):
                if count == merge_subblock_idx:
                    store_affine(f, 2 if const_idx <= 4 else 1)
                    return
                count += 1
    # The last candidates have zero vectors; a constructed one before them may have set bcw_idx.
    clear_candidate(unit.motion)
    unit.motion.ref_idx[0] = 0
    if s.is_b:
        unit.motion.ref_idx[1] = 0
    for list_x in range(2):
        for point in range(3):
            unit.cp_mv[list_x, point].x = unit.cp_mv[list_x, point].y = 0
    store_affine(f, 1)


@compiled
def may_inherit(f: Frame, x: int, y: int) -> bool:
    """Return True if the unit may inherit the affine motion of the unit at (x, y).

    Part of clause 8.5.5.2, Derivation process for motion vectors and reference indices in subblock merge mode.
    """
    return bool(affine_at(f, x, y) and mergeable(f, x, y))


@compiled
def inherited_motion(f: Frame, x: int, y: int) -> None:
    """Inherit the affine motion of the unit that contains the luma sample (x, y), and store it.

    Part of clause 8.5.5.2, Derivation process for motion vectors and reference indices in subblock merge mode.
    """
    unit, cp_mv = f.unit, f.candidates.cp_mv
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    motion_model_idc = int64(cell.model)
    for list_x in range(2):
        unit.motion.ref_idx[list_x] = cell.ref_idx[list_x]
        if unit.motion.ref_idx[list_x] >= 0:
            inherit_points(f, x, y, list_x, 1 + motion_model_idc)
            for point in range(1 + motion_model_idc):
                unit.cp_mv[list_x, point].x, unit.cp_mv[list_x, point].y = cp_mv[point].x, cp_mv[point].y
    unit.motion.bcw_idx = cell.bcw_idx
    store_affine(f, motion_model_idc)


@compiled
def corner_motion(f: Frame) -> None:
    """Derive the motion at the four corners of the unit.

    Part of clause 8.5.5.6, Derivation process for constructed affine control point motion vector merging candidates.

    Args:
        f: State of the picture; the result is `f.candidates.corner`. A corner without motion has no references.
    """
    unit, corner = f.unit, f.candidates.corner
    x, y, right, bottom = unit.x, unit.y, unit.x + unit.width, unit.y + unit.height
    for i in range(4):
        clear_candidate(corner[i])
    if not take_corner(f, corner[0], x - 1, y - 1) and not take_corner(f, corner[0], x, y - 1):
        take_corner(f, corner[0], x - 1, y)
    if not take_corner(f, corner[1], right - 1, y - 1):
        take_corner(f, corner[1], right, y - 1)
    if not take_corner(f, corner[2], x - 1, bottom - 1):
        take_corner(f, corner[2], x - 1, bottom)
    if f.slice.ph_temporal_mvp_enabled_flag:
        for list_x in range(1 + f.slice.is_b):
            if bottom_right_vector(f, list_x, 0, corner[3].mv[list_x]):
                corner[3].ref_idx[list_x] = 0


@compiled
def take_corner(f: Frame, corner: Motion, x: int, y: int) -> bool:
    """Take the motion at the luma sample (x, y) for a corner; return False if it is not available.

    Part of clause 8.5.5.6, Derivation process for constructed affine control point motion vector merging candidates.
    """
    if not mergeable(f, x, y):
        return False
    copy_motion(f, x, y, corner)
    return True


@compiled
def constructed_motion(f: Frame, const_idx: int) -> bool:
    """Construct the control points of the unit from three or two corners.

    Clause 8.5.5.6, Derivation process for constructed affine control point motion vector merging candidates.

    Args:
        f: State of the picture; the result is in `f.unit`.
        const_idx: K of ConstK, a combination of corners: 1 all but the lower right, 2 all but the lower left, 3 all but
            the upper right, 4 all but the upper left, 5 the upper two, 6 the left two.

    Returns:
        True if the corners have a common reference picture.
    """
    unit, corner = f.unit, f.candidates.corner
    first = corner[3 if const_idx == 4 else 0]
    second = corner[1 if const_idx in (1, 2, 4, 5) else 2]
    third = first
    if const_idx <= 4:
        third = corner[2 if const_idx in (1, 4) else 3]
    exists = False
    both = True
    for list_x in range(2):
        ref_idx = first.ref_idx[list_x]
        common = ref_idx >= 0 and second.ref_idx[list_x] == ref_idx and third.ref_idx[list_x] == ref_idx
        unit.motion.ref_idx[list_x] = ref_idx if common else -1
        exists |= common
        both &= common
        if common:
            construct_points(f, const_idx, list_x)
    unit.motion.bcw_idx = 0
    if both:
        unit.motion.bcw_idx = corner[1 if const_idx == 4 else 0].bcw_idx
    return exists


@compiled
def construct_points(f: Frame, const_idx: int, list_x: int) -> None:
    """Set the control point vectors of one list from the corners, see `constructed_motion`.

    Part of clause 8.5.5.6, Derivation process for constructed affine control point motion vector merging candidates.
    """
    unit, corner, cp_mv = f.unit, f.candidates.corner, f.unit.cp_mv
    for point in range(3):
        cp_mv[list_x, point].x, cp_mv[list_x, point].y = corner[point].mv[list_x].x, corner[point].mv[list_x].y
    top_left, top_right, bottom_left = cp_mv[list_x, 0], cp_mv[list_x, 1], cp_mv[list_x, 2]
    bottom_right = corner[3].mv[list_x]
    if const_idx == 2:
        bottom_left.x = clip(bottom_right.x + top_left.x - top_right.x, -131072, 131071)
        bottom_left.y = clip(bottom_right.y + top_left.y - top_right.y, -131072, 131071)
    elif const_idx == 3:
        top_right.x = clip(bottom_right.x + top_left.x - bottom_left.x, -131072, 131071)
        top_right.y = clip(bottom_right.y + top_left.y - bottom_left.y, -131072, 131071)
    elif const_idx == 4:
        top_left.x = clip(top_right.x + bottom_left.x - bottom_right.x, -131072, 131071)
        top_left.y = clip(top_right.y + bottom_left.y - bottom_right.y, -131072, 131071)
    elif const_idx == 6:
        # The change downwards, turned by 90 degrees.
        shift = FRACTION + log2(unit.width) - log2(unit.height)
        top_right.x = shifted((top_left.x << FRACTION) + ((bottom_left.y - top_left.y) << shift))
        top_right.y = shifted((top_left.y << FRACTION) - ((bottom_left.x - top_left.x) << shift))


@compiled
def default_motion(f: Frame) -> bool:
    """Derive the collocated motion at the centre of the unit.

    Clause 8.5.5.4, Derivation process for subblock-based temporal merging base motion data.

    tempMv, the displacement to the collocated block, is the vector of A1 if it refers to the collocated picture.

    Args:
        f: State of the picture; the results are `ctr` and `temp_mv` of `f.candidates`.

    Returns:
        True if there is motion (availableFlagSbCol).
    """
    unit, s, candidates = f.unit, f.slice, f.candidates
    a1, temp_mv = candidates.a1, candidates.temp_mv
    temp_mv.x = temp_mv.y = 0
    if mergeable(f, unit.x - 1, unit.y + unit.height - 1):
        copy_motion(f, unit.x - 1, unit.y + unit.height - 1, a1)
        for list_x in range(2):
            ref_idx = a1.ref_idx[list_x]
            if ref_idx >= 0 and same_picture(f, list_x, ref_idx, s.collocated_list, s.collocated_ref_idx):
                temp_mv.x, temp_mv.y = rounded(a1.mv[list_x].x, 4) >> 4, rounded(a1.mv[list_x].y, 4) >> 4
                break
    return bool(collocated_motion(f, unit.x + (unit.width >> 1), unit.y + (unit.height >> 1), candidates.ctr))


@compiled
def collocated_motion(f: Frame, x: int, y: int, motion: Motion) -> bool:
    """Derive the collocated motion of the luma sample (x, y), displaced by tempMv.

    Part of clause 8.5.5.3, Derivation process for subblock-based temporal merging candidates.
    Part of clause 8.5.5.4, Derivation process for subblock-based temporal merging base motion data.

    The displaced sample is clipped to the CTU and four columns to the right of it.

    Args:
        f: State of the picture.
        x: Column of the luma sample.
        y: Row of the luma sample.
        motion: The result.

    Returns:
        True if there is motion.
    """
    s, temp_mv = f.slice, f.candidates.temp_mv
    ctb_size = 1 << f.pic.ctb_log2_size_y
    x_ctb, y_ctb = f.unit.x & -ctb_size, f.unit.y & -ctb_size
    x_col = clip(x + temp_mv.x, x_ctb, min(s.subpic_right - 1, x_ctb + ctb_size + 3))
    y_col = clip(y + temp_mv.y, y_ctb, min(s.subpic_bottom - 1, y_ctb + ctb_size - 1))
    clear_candidate(motion)
    exists = False
    for list_x in range(1 + s.is_b):
        if collocated_vector(f, list_x, 0, x_col, y_col, True, motion.mv[list_x]):
            motion.ref_idx[list_x] = 0
            exists = True
    return exists


@compiled
def store_temporal_subblocks(f: Frame) -> None:
    """Derive the motion of the 8x8 subblocks of the unit, and store it.

    Clause 8.5.5.3, Derivation process for subblock-based temporal merging candidates.

    A subblock without collocated motion has that at the centre of the unit.

    Args:
        f: State of the picture; `f.candidates.ctr` must be set.
    """
    unit, ctr, subblock = f.unit, f.candidates.ctr, f.candidates.neighbour
    unit.kind = KIND_TEMPORAL_SUBBLOCKS
    copy_candidate(ctr, unit.motion)
    for y in range(unit.y, unit.y + unit.height, 8):
        for x in range(unit.x, unit.x + unit.width, 8):
            if not collocated_motion(f, x + 4, y + 4, subblock):
                copy_candidate(ctr, subblock)
            store_block(f, subblock, x, y, x + 8, y + 8)
