"""Prediction of control point vectors of affine units without merge (H.266 clauses 8.5.5.1, 8.5.5.7 and 8.5.5.8)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.affine import affine_at, inherit_points, store_affine
from codecnn.vvc.decoder.cells import MotionCell, int64
from codecnn.vvc.decoder.frame import Frame, coding_unit
from codecnn.vvc.decoder.motion_candidates import same_picture
from codecnn.vvc.decoder.motion_prediction import (
    PRED_BI,
    rounded,
    set_references,
    spatial_vector,
    wrapped,
)
from codecnn.vvc.decoder.temporal_motion import temporal_vector
from codecnn.vvc.syntax.log import MotionVector


@compiled
def predicted_affine_motion(f: Frame) -> None:
    """Derive the motion of an affine unit with coded vector differences, and store it.

    Clause 8.5.5.1, Derivation process for subblock motion vector components and reference indices.
    """
    cu, unit, motion = coding_unit(f), f.unit, f.unit.motion
    motion_model_idc, amvr_shift = cu.motion_model_idc, cu.amvr_shift
    set_references(f, motion)
    for list_x in range(2):
        if motion.ref_idx[list_x] < 0:
            continue
        affine_predictors(f, list_x, motion.ref_idx[list_x], motion_model_idc, amvr_shift)
        mvp_flag = cu.mvp_flag[list_x]
        for point in range(1 + motion_model_idc):
            mvd_x, mvd_y = cu.mvd[list_x, point].x, cu.mvd[list_x, point].y
            if point:
                # The difference of the first control point also applies to the others.
                mvd_x, mvd_y = mvd_x + cu.mvd[list_x, 0].x, mvd_y + cu.mvd[list_x, 0].y
            cp_mv, cp_mvp = unit.cp_mv[list_x, point], f.candidates.cp_mvp_list[mvp_flag, point]
            cp_mv.x = wrapped(cp_mvp.x + (mvd_x << amvr_shift))
            cp_mv.y = wrapped(cp_mvp.y + (mvd_y << amvr_shift))
    if cu.inter_pred_idc == PRED_BI:
        motion.bcw_idx = cu.bcw_idx
    store_affine(f, motion_model_idc)


@compiled
def affine_predictors(f: Frame, list_x: int, ref_idx: int, motion_model_idc: int, amvr_shift: int) -> None:
    """Derive cpMvpListLX: two predictors of the control point vectors.

    Clause 8.5.5.7, Derivation process for luma affine control point motion vector predictors.

    Args:
        f: State of the picture; the result is `f.candidates.cp_mvp_list`.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        motion_model_idc: MotionModelIdc, the number of control points - 1.
        amvr_shift: AmvrShift, to which predictors are rounded.
    """
    unit, candidates = f.unit, f.candidates
    x, y, right, bottom = unit.x, unit.y, unit.x + unit.width, unit.y + unit.height
    for i in range(2):
        for point in range(3):
            candidates.cp_mvp_list[i, point].x = candidates.cp_mvp_list[i, point].y = 0
    count = 0
    if inherited(f, list_x, ref_idx, motion_model_idc, x - 1, bottom) or inherited(
        f, list_x, ref_idx, motion_model_idc, x - 1, bottom - 1
    ):
        count = keep_points(f, count, amvr_shift)
    if (
        inherited(f, list_x, ref_idx, motion_model_idc, right, y - 1)
        or inherited(f, list_x, ref_idx, motion_model_idc, right - 1, y - 1)
        or inherited(f, list_x, ref_idx, motion_model_idc, x - 1, y - 1)
    ):
        count = keep_points(f, count, amvr_shift)
    if count == 2:
        return
    present = corner_vectors(f, list_x, ref_idx)
    if present == 7 or (present == 3 and motion_model_idc == 1):
        count = keep_points(f, count, amvr_shift)
    for point in range(2, -1, -1):
        if count < 2 and present >> point & 1:
            count = keep_vector(f, candidates.cp_mv[point], count, amvr_shift)
    temporal = f.slice.ph_temporal_mvp_enabled_flag
    if count < 2 and temporal and temporal_vector(f, list_x, ref_idx, candidates.mv):
        keep_vector(f, candidates.mv, count, amvr_shift)


@compiled
def keep_points(f: Frame, count: int, amvr_shift: int) -> int:
    """Round `f.candidates.cp_mv` and append it to cpMvpListLX of `count` predictors; return the new number.

    Part of clause 8.5.5.7, Derivation process for luma affine control point motion vector predictors.
    """
    for point in range(3):
        cp_mv, cp_mvp = f.candidates.cp_mv[point], f.candidates.cp_mvp_list[count, point]
        cp_mvp.x, cp_mvp.y = rounded(cp_mv.x, amvr_shift), rounded(cp_mv.y, amvr_shift)
    return count + 1


@compiled
def keep_vector(f: Frame, mv: MotionVector, count: int, amvr_shift: int) -> int:
    """Append a predictor that has `mv`, rounded, at all control points; return the new number.

    Part of clause 8.5.5.7, Derivation process for luma affine control point motion vector predictors.
    """
    for point in range(3):
        cp_mvp = f.candidates.cp_mvp_list[count, point]
        cp_mvp.x, cp_mvp.y = rounded(mv.x, amvr_shift), rounded(mv.y, amvr_shift)
    return count + 1


@compiled
def inherited(f: Frame, list_x: int, ref_idx: int, motion_model_idc: int, x: int, y: int) -> bool:
    """Derive control points from the affine unit at (x, y) if it has the same reference picture.

    Part of clause 8.5.5.7, Derivation process for luma affine control point motion vector predictors.

    Its vectors of the same list are preferred to those of the other one.

    Args:
        f: State of the picture; the result is `f.candidates.cp_mv`.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        motion_model_idc: MotionModelIdc of the current unit.
        x: Column of a luma sample of the other unit.
        y: Row of that sample.

    Returns:
        True if the other unit is affine and has that reference picture.
    """
    if not affine_at(f, x, y):
        return False
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    for other in range(2):
        list_y = list_x ^ other
        cell_ref_idx = int64(cell.ref_idx[list_y])
        if cell_ref_idx >= 0 and same_picture(f, list_y, cell_ref_idx, list_x, ref_idx):
            inherit_points(f, x, y, list_y, 1 + motion_model_idc)
            return True
    return False


@compiled
def corner_vectors(f: Frame, list_x: int, ref_idx: int) -> int:
    """Derive the vectors at the upper left, upper right and lower left corners.

    Clause 8.5.5.8, Derivation process for constructed affine control point motion vector prediction candidates.

    Args:
        f: State of the picture; the result is `f.candidates.cp_mv`.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.

    Returns:
        One bit for each corner that has a vector.
    """
    unit, cp_mv = f.unit, f.candidates.cp_mv
    x, y, right, bottom = unit.x, unit.y, unit.x + unit.width, unit.y + unit.height
    present = 0
    if (
        spatial_vector(f, list_x, ref_idx, x - 1, y - 1, cp_mv[0])
        or spatial_vector(f, list_x, ref_idx, x, y - 1, cp_mv[0])
        or spatial_vector(f, list_x, ref_idx, x - 1, y, cp_mv[0])
    ):
        present |= 1
    if spatial_vector(f, list_x, ref_idx, right - 1, y - 1, cp_mv[1]) or spatial_vector(
        f, list_x, ref_idx, right, y - 1, cp_mv[1]
    ):
        present |= 2
    if spatial_vector(f, list_x, ref_idx, x - 1, bottom - 1, cp_mv[2]) or spatial_vector(
        f, list_x, ref_idx, x - 1, bottom, cp_mv[2]
    ):
        present |= 4
    return present
