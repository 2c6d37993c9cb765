"""Motion vector prediction of inter units without merge (H.266 clauses 8.5.2.8 to 8.5.2.10 and 8.5.2.14)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.cells import MotionCell, int64
from codecnn.vvc.decoder.frame import Frame, coding_unit
from codecnn.vvc.decoder.motion_candidates import clear_candidate, inter_at, same_picture
from codecnn.vvc.decoder.records import FAULT_SYMMETRIC, Motion
from codecnn.vvc.decoder.temporal_motion import temporal_vector
from codecnn.vvc.syntax.log import MotionVector

PRED_L0, PRED_L1, PRED_BI = range(3)
"""Values of inter_pred_idc."""


@compiled
def rounded(value: int, shift: int) -> int:
    """Round a component of a vector to a multiple of 1 << `shift`.

    Clause 8.5.2.14, Rounding process for motion vectors.
    """
    half = (1 << shift) >> 1
    return ((value + half - int(value >= 0 and shift > 0)) >> shift) << shift


@compiled
def wrapped(value: int) -> int:
    """Wrap a component of a vector around at 18 bits.

    Part of clause 8.5.2.1, Derivation process for motion vector components and reference indices.
    Part of clause 8.5.5.1, Derivation process for subblock motion vector components and reference indices.
    """
    return ((value + 131072) & 262143) - 131072


@compiled
def predicted_motion(f: Frame) -> None:
    """Derive the motion of a unit with coded vector differences and without affine model.

    Part of clause 8.5.2.1, Derivation process for motion vector components and reference indices.

    Args:
        f: State of the picture; the result is `f.unit.motion`.
    """
    cu, motion = coding_unit(f), f.unit.motion
    amvr_shift = cu.amvr_shift
    set_references(f, motion)
    for list_x in range(2):
        if motion.ref_idx[list_x] < 0:
            continue
        mvd_x, mvd_y = cu.mvd[list_x, 0].x, cu.mvd[list_x, 0].y
        if list_x == 1 and f.unit.sym_mvd_flag:
            mvd_x, mvd_y = -cu.mvd[0, 0].x, -cu.mvd[0, 0].y
        mv = motion.mv[list_x]
        predict_vector(f, list_x, motion.ref_idx[list_x], cu.mvp_flag[list_x], amvr_shift, mv)
        mv.x, mv.y = wrapped(mv.x + (mvd_x << amvr_shift)), wrapped(mv.y + (mvd_y << amvr_shift))
    if cu.inter_pred_idc == PRED_BI:
        motion.bcw_idx = cu.bcw_idx
    motion.hpel_if_idx = int(amvr_shift == 3)


@compiled
def set_references(f: Frame, motion: Motion) -> None:
    """Set the reference indices of `motion` to those of a unit without merge, and the rest to 0.

    Part of clause 8.5.2.1, Derivation process for motion vector components and reference indices.
    """
    cu = coding_unit(f)
    inter_pred_idc = cu.inter_pred_idc
    clear_candidate(motion)
    for list_x in range(2):
        ref_idx = cu.ref_idx[list_x]
        if f.unit.sym_mvd_flag:
            ref_idx = symmetric_reference(f, list_x)
        if inter_pred_idc != (PRED_L0 if list_x == 1 else PRED_L1):
            motion.ref_idx[list_x] = ref_idx


@compiled
def symmetric_reference(f: Frame, list_x: int) -> int:
    """Derive RefIdxSymL0 or RefIdxSymL1: the nearest picture before the current one in L0 and after it in L1.

    Clause 8.3.5, Decoding process for symmetric motion vector difference reference indices.

    If there is no such pair, it is the nearest picture after the current one in L0 and before it in L1.
    """
    for backwards in range(2):
        first, second = nearest(f, 0, backwards == 0), nearest(f, 1, backwards == 1)
        if first >= 0 and second >= 0:
            return second if list_x else first
    f.current.fault = FAULT_SYMMETRIC
    return 0


@compiled
def nearest(f: Frame, list_x: int, before: bool) -> int:
    """Return the index of the nearest short-term picture of a list before or after the current one, or -1.

    Part of clause 8.3.5, Decoding process for symmetric motion vector difference reference indices.
    """
    best, best_distance = -1, 0
    for ref_idx in range(f.slice.num_ref_idx_active[list_x]):
        ref = f.slice.ref_pic_list[list_x, ref_idx]
        distance = f.slice.poc - ref.poc
        if not before:
            distance = -distance
        if distance > 0 and not ref.long_term and (best < 0 or distance < best_distance):
            best, best_distance = ref_idx, distance
    return best


@compiled
def predict_vector(f: Frame, list_x: int, ref_idx: int, mvp_flag: int, amvr_shift: int, mv: MotionVector) -> None:
    """Derive mvpLX, the predictor of a motion vector.

    Clause 8.5.2.8, Derivation process for luma motion vector prediction.
    Clause 8.5.2.9, Derivation process for motion vector predictor candidates.

    Args:
        f: State of the picture.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        mvp_flag: mvp_lX_flag, the index in mvpListLX.
        amvr_shift: AmvrShift, to which predictors are rounded.
        mv: The result.
    """
    unit, candidates = f.unit, f.candidates
    mvp_list, candidate = candidates.mvp_list, candidates.mv
    x, y, width, height = unit.x, unit.y, unit.width, unit.height
    count = 0
    if spatial_vector(f, list_x, ref_idx, x - 1, y + height, candidate) or spatial_vector(
        f, list_x, ref_idx, x - 1, y + height - 1, candidate
    ):
        count = keep_predictor(f, count, amvr_shift)
    if (
        spatial_vector(f, list_x, ref_idx, x + width, y - 1, candidate)
        or spatial_vector(f, list_x, ref_idx, x + width - 1, y - 1, candidate)
        or spatial_vector(f, list_x, ref_idx, x - 1, y - 1, candidate)
    ):
        count = keep_predictor(f, count, amvr_shift)
    if count == 2 and mvp_list[0].x == mvp_list[1].x and mvp_list[0].y == mvp_list[1].y:
        count = 1
    temporal = f.slice.ph_temporal_mvp_enabled_flag and width * height > 32
    if count < 2 and temporal and temporal_vector(f, list_x, ref_idx, candidate):
        count = keep_predictor(f, count, amvr_shift)
    for i in range(min(4, candidates.num_hmvp_cand)):
        hmvp = candidates.hmvp_cand_list[i]
        for other in range(2):
            list_y = list_x ^ other
            hmvp_ref_idx = hmvp.ref_idx[list_y]
            if count < 2 and hmvp_ref_idx >= 0 and same_picture(f, list_y, hmvp_ref_idx, list_x, ref_idx):
                candidate.x, candidate.y = hmvp.mv[list_y].x, hmvp.mv[list_y].y
                count = keep_predictor(f, count, amvr_shift)
    mv.x = mv.y = 0
    if mvp_flag < count:
        mv.x, mv.y = mvp_list[mvp_flag].x, mvp_list[mvp_flag].y


@compiled
def keep_predictor(f: Frame, count: int, amvr_shift: int) -> int:
    """Round `f.candidates.mv` and append it to mvpListLX of `count` vectors; return the new number.

    Part of clause 8.5.2.9, Derivation process for motion vector predictor candidates.
    """
    mv, mvp = f.candidates.mv, f.candidates.mvp_list[count]
    mvp.x, mvp.y = rounded(mv.x, amvr_shift), rounded(mv.y, amvr_shift)
    return count + 1


@compiled
def spatial_vector(f: Frame, list_x: int, ref_idx: int, x: int, y: int, mv: MotionVector) -> bool:
    """Derive the vector of the block at (x, y) to the same reference picture.

    Clause 8.5.2.10, Derivation process for spatial motion vector candidates.

    It is that of the same list or else of the other one.

    Args:
        f: State of the picture.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        x: Column of a luma sample of the block.
        y: Row of that sample.
        mv: The result, which is set only if there is a vector.

    Returns:
        True if there is a vector.
    """
    if not inter_at(f, x, y):
        return False
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    for other in range(2):
        list_y = list_x ^ other
        cell_ref_idx = int64(cell.ref_idx[list_y])
        if cell_ref_idx >= 0 and same_picture(f, list_y, cell_ref_idx, list_x, ref_idx):
            mv.x, mv.y = cell.mv[list_y].x, cell.mv[list_y].y
            return True
    return False
