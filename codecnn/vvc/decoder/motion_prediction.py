"""Motion vector prediction of inter units without merge (H.266 clauses 8.5.2.8 to 8.5.2.10, 8.5.2.13 to 8.5.2.16)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.motion_candidates import inter_at, reference, same_picture
from codecnn.vvc.decoder.temporal_motion import temporal_vector
from codecnn.vvc.syntax import log as lg

PRED_L0, PRED_L1, PRED_BI = range(3)
"""Values of inter_pred_idc."""


@compiled
def rounded(value: int, shift: int) -> int:
    """Round a component of a vector to a multiple of 1 << `shift` (8.5.2.14)."""
    half = (1 << shift) >> 1
    return ((value + half - int(value >= 0 and shift > 0)) >> shift) << shift


@compiled
def wrapped(value: int) -> int:
    """Wrap a component of a vector around at 18 bits."""
    return ((value + 131072) & 262143) - 131072


@compiled
def predicted_motion(f: Frame, at: int) -> None:
    """Derive the motion of a unit with coded vector differences and without affine model, at p[at] (8.5.2.1)."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    direction, shift = log[unit + lg.U_DIRECTION], log[unit + lg.U_AMVR]
    set_references(f, at)
    for which in range(2):
        index = p[at + fr.C_REF_0 + which]
        if index < 0:
            continue
        predict_vector(f, which, index, log[unit + lg.U_MVP + which], shift)
        for axis in range(2):
            difference = log[unit + lg.U_MVD + 6 * which + axis]
            if which and log[unit + lg.U_SYMMETRIC]:
                difference = -log[unit + lg.U_MVD + axis]
            p[at + fr.C_X0 + 2 * which + axis] = wrapped(p[fr.VECTOR + axis] + (difference << shift))
    if direction == PRED_BI:
        p[at + fr.C_BCW] = log[unit + lg.U_BCW]
    p[at + fr.C_HALF] = int(shift == 3)


@compiled
def set_references(f: Frame, at: int) -> None:
    """Set the reference indices of the candidate at p[at] to those of a unit without merge, and the rest to 0."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    direction = log[unit + lg.U_DIRECTION]
    for i in range(fr.CANDIDATE):
        p[at + i] = 0
    for which in range(2):
        index = log[unit + lg.U_REF + which]
        if log[unit + lg.U_SYMMETRIC]:
            index = symmetric_reference(f, which)
        p[at + fr.C_REF_0 + which] = index if direction != (PRED_L0 if which else PRED_L1) else -1


@compiled
def symmetric_reference(f: Frame, which: int) -> int:
    """Derive RefIdxSymL0 or RefIdxSymL1 (8.3.5): the nearest picture before the current one in L0 and after it in L1.

    If there is no such pair, it is the nearest picture after the current one in L0 and before it in L1.
    """
    for backwards in range(2):
        first, second = nearest(f, 0, backwards == 0), nearest(f, 1, backwards == 1)
        if first >= 0 and second >= 0:
            return second if which else first
    f.p[fr.FAULT] = fr.FAULT_SYMMETRIC
    return 0


@compiled
def nearest(f: Frame, which: int, before: bool) -> int:
    """Return the index of the nearest short-term picture of a list before or after the current one, or -1."""
    p = f.p
    best, best_distance = -1, 0
    for index in range(p[fr.ACTIVE_1] if which else p[fr.ACTIVE_0]):
        entry = reference(which, index)
        distance = p[fr.POC] - p[entry + fr.REF_POC]
        if not before:
            distance = -distance
        if distance > 0 and not p[entry + fr.REF_LONG_TERM] and (best < 0 or distance < best_distance):
            best, best_distance = index, distance
    return best


@compiled
def predict_vector(f: Frame, which: int, index: int, number: int, shift: int) -> None:
    """Derive vector predictor `number` (0 or 1), at p[VECTOR] (8.5.2.9).

    Args:
        f: State of the picture.
        which: List of the reference picture.
        index: Index of the reference picture.
        number: mvp_l0_flag or mvp_l1_flag.
        shift: AmvrShift, to which predictors are rounded.
    """
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    width, height = p[fr.MOTION_OF_UNIT + fr.UNIT_W], p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    count = 0
    if spatial_vector(f, which, index, x - 1, y + height) or spatial_vector(f, which, index, x - 1, y + height - 1):
        count = keep_predictor(f, count, shift)
    if (
        spatial_vector(f, which, index, x + width, y - 1)
        or spatial_vector(f, which, index, x + width - 1, y - 1)
        or spatial_vector(f, which, index, x - 1, y - 1)
    ):
        count = keep_predictor(f, count, shift)
    first, second = fr.PREDICTORS, fr.PREDICTORS + 2
    if count == 2 and p[first] == p[second] and p[first + 1] == p[second + 1]:
        count = 1
    if count < 2 and p[fr.TEMPORAL] and width * height > 32 and temporal_vector(f, which, index):
        count = keep_predictor(f, count, shift)
    for i in range(min(4, p[fr.HISTORY_COUNT])):
        candidate = fr.HISTORY + fr.CANDIDATE * i
        for other in range(2):
            source = which ^ other
            other_index = p[candidate + fr.C_REF_0 + source]
            if count < 2 and other_index >= 0 and same_picture(f, source, other_index, which, index):
                p[fr.VECTOR] = p[candidate + fr.C_X0 + 2 * source]
                p[fr.VECTOR + 1] = p[candidate + fr.C_Y0 + 2 * source]
                count = keep_predictor(f, count, shift)
    p[fr.VECTOR] = p[fr.VECTOR + 1] = 0
    if number < count:
        p[fr.VECTOR], p[fr.VECTOR + 1] = p[fr.PREDICTORS + 2 * number], p[fr.PREDICTORS + 2 * number + 1]


@compiled
def keep_predictor(f: Frame, count: int, shift: int) -> int:
    """Round p[VECTOR] and append it to `count` vectors at p[PREDICTORS]; return the new number."""
    p = f.p
    for axis in range(2):
        p[fr.PREDICTORS + 2 * count + axis] = rounded(p[fr.VECTOR + axis], shift)
    return count + 1


@compiled
def spatial_vector(f: Frame, which: int, index: int, x: int, y: int) -> bool:
    """Derive the vector of the block at (x, y) to the same reference picture, at p[VECTOR]; return True if it exists.

    It is that of the same list or else of the other one (8.5.2.10).
    """
    p, motion = f.p, f.motion
    if not inter_at(f, x, y):
        return False
    row, column = y >> 2, x >> 2
    for other in range(2):
        source = which ^ other
        other_index = motion[fr.REF_0 + source, row, column]
        if other_index >= 0 and same_picture(f, source, other_index, which, index):
            p[fr.VECTOR] = motion[fr.MV_X0 + 2 * source, row, column]
            p[fr.VECTOR + 1] = motion[fr.MV_Y0 + 2 * source, row, column]
            return True
    return False
