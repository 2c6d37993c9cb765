"""Prediction of control point vectors of affine units without merge (H.266 clauses 8.5.5.1, 8.5.5.7 and 8.5.5.8)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.affine import affine_at, inherit_points, store_affine
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.motion_candidates import same_picture
from codecnn.vvc.decoder.motion_prediction import (
    PRED_BI,
    rounded,
    set_references,
    spatial_vector,
    wrapped,
)
from codecnn.vvc.decoder.temporal_motion import temporal_vector
from codecnn.vvc.syntax import log as lg

_NUMBERS = 6
"""Numbers of a predictor at p[PREDICTORS]: x and y of three control points."""


@compiled
def predicted_affine_motion(f: Frame) -> None:
    """Derive the motion of an affine unit with coded vector differences, and store it."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    at = fr.MOTION_OF_UNIT
    model, shift = log[unit + lg.U_POINTS], log[unit + lg.U_AMVR]
    set_references(f, fr.NEIGHBOURS)
    for which in range(2):
        index = p[fr.NEIGHBOURS + fr.C_REF_0 + which]
        p[at + fr.UNIT_REF + which] = index
        if index < 0:
            continue
        affine_predictors(f, which, index, model, shift)
        predictor = fr.PREDICTORS + _NUMBERS * log[unit + lg.U_MVP + which]
        for point in range(1 + model):
            for axis in range(2):
                # The difference of the first control point also applies to the others.
                first = log[unit + lg.U_MVD + 6 * which + axis]
                difference = log[unit + lg.U_MVD + 6 * which + 2 * point + axis] + (first if point else 0)
                vector = wrapped(p[predictor + 2 * point + axis] + (difference << shift))
                p[at + fr.UNIT_CONTROL + 6 * which + 2 * point + axis] = vector
    if log[unit + lg.U_DIRECTION] == PRED_BI:
        p[at + fr.UNIT_BCW] = log[unit + lg.U_BCW]
    store_affine(f, model)


@compiled
def affine_predictors(f: Frame, which: int, index: int, model: int, shift: int) -> None:
    """Derive two predictors of the control points, at p[PREDICTORS] (8.5.5.7).

    Args:
        f: State of the picture.
        which: List of the reference picture.
        index: Index of the reference picture.
        model: Number of control points - 1.
        shift: AmvrShift, to which predictors are rounded.
    """
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    for i in range(2 * _NUMBERS):
        p[fr.PREDICTORS + i] = 0
    count = 0
    if inherited(f, which, index, model, x - 1, bottom) or inherited(f, which, index, model, x - 1, bottom - 1):
        count = keep_points(f, count, shift)
    if (
        inherited(f, which, index, model, right, y - 1)
        or inherited(f, which, index, model, right - 1, y - 1)
        or inherited(f, which, index, model, x - 1, y - 1)
    ):
        count = keep_points(f, count, shift)
    if count == 2:
        return
    present = corner_vectors(f, which, index)
    if present == 7 or (present == 3 and model == 1):
        count = keep_points(f, count, shift)
    for point in range(2, -1, -1):
        if count < 2 and present >> point & 1:
            p[fr.VECTOR] = p[fr.CONTROL_POINTS + 2 * point]
            p[fr.VECTOR + 1] = p[fr.CONTROL_POINTS + 2 * point + 1]
            count = keep_vector(f, count, shift)
    if count < 2 and p[fr.TEMPORAL] and temporal_vector(f, which, index):
        keep_vector(f, count, shift)


@compiled
def keep_points(f: Frame, count: int, shift: int) -> int:
    """Round p[CONTROL_POINTS] and append them to `count` predictors; return the new number."""
    for i in range(_NUMBERS):
        f.p[fr.PREDICTORS + _NUMBERS * count + i] = rounded(f.p[fr.CONTROL_POINTS + i], shift)
    return count + 1


@compiled
def keep_vector(f: Frame, count: int, shift: int) -> int:
    """Append a predictor that has p[VECTOR], rounded, at all control points; return the new number."""
    for i in range(_NUMBERS):
        f.p[fr.PREDICTORS + _NUMBERS * count + i] = rounded(f.p[fr.VECTOR + (i & 1)], shift)
    return count + 1


@compiled
def inherited(f: Frame, which: int, index: int, model: int, x: int, y: int) -> bool:
    """Derive control points from the affine unit at (x, y), at p[CONTROL_POINTS]; return True if it has that picture.

    Its vectors of the same list are preferred to those of the other one.
    """
    if not affine_at(f, x, y):
        return False
    for other in range(2):
        source = which ^ other
        other_index = f.motion[fr.REF_0 + source, y >> 2, x >> 2]
        if other_index >= 0 and same_picture(f, source, other_index, which, index):
            inherit_points(f, x, y, source, 1 + model)
            return True
    return False


@compiled
def corner_vectors(f: Frame, which: int, index: int) -> int:
    """Derive the vectors at the upper left, upper right and lower left corners, at p[CONTROL_POINTS] (8.5.5.8).

    Returns:
        One bit for each corner that has a vector.
    """
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    present = 0
    if (
        spatial_vector(f, which, index, x - 1, y - 1)
        or spatial_vector(f, which, index, x, y - 1)
        or spatial_vector(f, which, index, x - 1, y)
    ):
        present |= take_vector(f, 0)
    if spatial_vector(f, which, index, right - 1, y - 1) or spatial_vector(f, which, index, right, y - 1):
        present |= take_vector(f, 1)
    if spatial_vector(f, which, index, x - 1, bottom - 1) or spatial_vector(f, which, index, x - 1, bottom):
        present |= take_vector(f, 2)
    return present


@compiled
def take_vector(f: Frame, point: int) -> int:
    """Move p[VECTOR] to control point `point`; return its bit."""
    f.p[fr.CONTROL_POINTS + 2 * point] = f.p[fr.VECTOR]
    f.p[fr.CONTROL_POINTS + 2 * point + 1] = f.p[fr.VECTOR + 1]
    return 1 << point
