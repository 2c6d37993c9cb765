"""Affine motion: inherited control points and vectors of subblocks (H.266 clauses 8.5.5.5, 8.5.5.9)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.motion_candidates import inter_at, peek_motion, store_block
from codecnn.vvc.decoder.motion_prediction import rounded
from codecnn.vvc.syntax import log2

FRACTION = 7
"""Fractional bits of vector differences per sample, log2 of the largest unit."""


@compiled
def affine_at(f: Frame, x: int, y: int) -> bool:
    """Return True if the luma sample (x, y) is available and belongs to a unit with affine motion."""
    if not inter_at(f, x, y):
        return False
    model = f.motion[fr.MODEL, y >> 2, x >> 2]
    return bool(model == 1 or model == 2)


@compiled
def shifted(value: int) -> int:
    """Round a component of a vector with FRACTION more bits to 1/16 sample and clip it to 18 bits."""
    return clip(rounded(value, FRACTION) >> FRACTION, -131072, 131071)


@compiled
def inherit_points(f: Frame, x: int, y: int, which: int, points: int) -> None:
    """Derive control point vectors from those of the affine unit at (x, y), at p[CONTROL_POINTS] (8.5.5.5).

    For a unit in the row of CTUs above they come from the vectors of its lowest subblocks instead.

    Args:
        f: State of the picture.
        x: Column of a luma sample of the other unit.
        y: Row of a luma sample of the other unit.
        which: List.
        points: Number of control points to derive, 2 or 3.
    """
    p = f.p
    row, column = y >> 2, x >> 2
    left, top = peek_motion(f, fr.MOTION_X, row, column), peek_motion(f, fr.MOTION_Y, row, column)
    width, height = peek_motion(f, fr.MOTION_W, row, column), peek_motion(f, fr.MOTION_H, row, column)
    first = fr.CONTROL + 6 * which
    mv_x, mv_y = peek_motion(f, first, row, column), peek_motion(f, first + 1, row, column)
    right_x, right_y = peek_motion(f, first + 2, row, column), peek_motion(f, first + 3, row, column)
    six = peek_motion(f, fr.MODEL, row, column) == 2
    unit_x, unit_y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    if top + height == unit_y and unit_y & ((1 << p[fr.LOG2_CTU]) - 1) == 0:
        six = False
        row = (unit_y >> 2) - 1
        end = ((left + width) >> 2) - 1
        mv_x = peek_motion(f, fr.MV_X0 + 2 * which, row, left >> 2)
        mv_y = peek_motion(f, fr.MV_Y0 + 2 * which, row, left >> 2)
        right_x = peek_motion(f, fr.MV_X0 + 2 * which, row, end)
        right_y = peek_motion(f, fr.MV_Y0 + 2 * which, row, end)
        top = unit_y
    across_x = (right_x - mv_x) << (FRACTION - log2(width))
    across_y = (right_y - mv_y) << (FRACTION - log2(width))
    down_x, down_y = -across_y, across_x
    if six:
        down_x = (peek_motion(f, first + 4, row, column) - mv_x) << (FRACTION - log2(height))
        down_y = (peek_motion(f, first + 5, row, column) - mv_y) << (FRACTION - log2(height))
    for point in range(points):
        dx, dy = unit_x - left, unit_y - top
        if point == 1:
            dx += p[fr.MOTION_OF_UNIT + fr.UNIT_W]
        elif point == 2:
            dy += p[fr.MOTION_OF_UNIT + fr.UNIT_H]
        p[fr.CONTROL_POINTS + 2 * point] = shifted((mv_x << FRACTION) + across_x * dx + down_x * dy)
        p[fr.CONTROL_POINTS + 2 * point + 1] = shifted((mv_y << FRACTION) + across_y * dx + down_y * dy)


@compiled
def store_affine(f: Frame, model: int) -> None:
    """Derive the vectors of the 4x4 subblocks from the control points of the unit, and store them (8.5.5.9).

    UNIT_REF, UNIT_CONTROL and UNIT_BCW must be set; sets the others.

    Args:
        f: State of the picture.
        model: MotionModelIdc, 1 for two control points or 2 for three.
    """
    p = f.p
    unit = fr.MOTION_OF_UNIT
    p[unit + fr.UNIT_KIND], p[unit + fr.UNIT_POINTS] = fr.KIND_AFFINE, model
    width, height = p[unit + fr.UNIT_W], p[unit + fr.UNIT_H]
    at = fr.NEIGHBOURS
    p[at + fr.C_REF_0], p[at + fr.C_REF_1] = p[unit + fr.UNIT_REF], p[unit + fr.UNIT_REF + 1]
    p[at + fr.C_BCW], p[at + fr.C_HALF] = p[unit + fr.UNIT_BCW], 0
    both = p[at + fr.C_REF_0] >= 0 and p[at + fr.C_REF_1] >= 0
    for which in range(2):
        if p[at + fr.C_REF_0 + which] < 0:
            for i in range(6):
                p[unit + fr.UNIT_CONTROL + 6 * which + i] = 0
            p[unit + fr.UNIT_MV + 2 * which] = p[unit + fr.UNIT_MV + 2 * which + 1] = 0
    one_vector_0 = spreads(f, 0, model, both)
    one_vector_1 = spreads(f, 1, model, both)
    for y in range(0, height, 4):
        for x in range(0, width, 4):
            subblock_vector(f, 0, model, one_vector_0, x, y, at)
            subblock_vector(f, 1, model, one_vector_1, x, y, at)
            left, top = p[unit + fr.UNIT_X] + x, p[unit + fr.UNIT_Y] + y
            store_block(f, at, left, top, left + 4, top + 4)
            if x == 0 and y == 0:
                for i in range(4):
                    p[unit + fr.UNIT_MV + i] = p[at + fr.C_X0 + i]


@compiled
def gradient(f: Frame, which: int, model: int) -> tuple[int, int, int, int]:
    """Return the change of a vector to the right (x, y) and downwards (x, y), with FRACTION more bits a sample."""
    p = f.p
    unit = fr.MOTION_OF_UNIT
    at = unit + fr.UNIT_CONTROL + 6 * which
    shift = FRACTION - log2(p[unit + fr.UNIT_W])
    across_x, across_y = (p[at + 2] - p[at]) << shift, (p[at + 3] - p[at + 1]) << shift
    if model == 1:
        return across_x, across_y, -across_y, across_x
    shift = FRACTION - log2(p[unit + fr.UNIT_H])
    return across_x, across_y, (p[at + 4] - p[at]) << shift, (p[at + 5] - p[at + 1]) << shift


@compiled
def subblock_vector(f: Frame, which: int, model: int, one_vector: bool, x: int, y: int, at: int) -> None:
    """Derive the vector of the subblock at (x, y) in the unit, in list `which` of the candidate at p[at]."""
    p = f.p
    unit = fr.MOTION_OF_UNIT
    control = unit + fr.UNIT_CONTROL + 6 * which
    across_x, across_y, down_x, down_y = gradient(f, which, model)
    dx, dy = x + 2, y + 2
    if one_vector:
        dx, dy = p[unit + fr.UNIT_W] >> 1, p[unit + fr.UNIT_H] >> 1
    p[at + fr.C_X0 + 2 * which] = shifted((p[control] << FRACTION) + across_x * dx + down_x * dy)
    p[at + fr.C_Y0 + 2 * which] = shifted((p[control + 1] << FRACTION) + across_y * dx + down_y * dy)


@compiled
def spreads(f: Frame, which: int, model: int, both: bool) -> bool:
    """Return True if subblocks would need too large an area of the reference picture, so that all get one vector.

    The area is that of 2x2 subblocks with bi-prediction, else that of 2x1 and of 1x2 subblocks (fallbackModeTriggered).
    """
    a, b, c, d = gradient(f, which, model)
    size = 4 << 11
    if both:
        across = max(0, 4 * a + size, 4 * c, 4 * a + 4 * c + size) - min(0, 4 * a + size, 4 * c, 4 * a + 4 * c + size)
        down = max(0, 4 * b, 4 * d + size, 4 * b + 4 * d + size) - min(0, 4 * b, 4 * d + size, 4 * b + 4 * d + size)
        return ((across >> 11) + 9) * ((down >> 11) + 9) > 225
    across, down = max(0, 4 * a + size) - min(0, 4 * a + size), abs(4 * b)
    if ((across >> 11) + 9) * ((down >> 11) + 9) > 165:
        return True
    across, down = abs(4 * c), max(0, 4 * d + size) - min(0, 4 * d + size)
    return ((across >> 11) + 9) * ((down >> 11) + 9) > 165
