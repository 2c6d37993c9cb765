"""Subblock merge candidates: temporal (SbTMVP), inherited and constructed affine (H.266 clauses 8.5.5.2 to 8.5.5.6)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.affine import FRACTION, affine_at, inherit_points, shifted, store_affine
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.merge import mergeable
from codecnn.vvc.decoder.motion_candidates import (
    clear_candidate,
    copy_candidate,
    copy_motion,
    peek_motion,
    reference,
    set_unit_motion,
    store_block,
)
from codecnn.vvc.decoder.motion_prediction import rounded
from codecnn.vvc.decoder.temporal_motion import bottom_right_vector, collocated_vector
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import log2

CORNERS = fr.NEIGHBOURS
"""Motion at the upper left, upper right, lower left and lower right corner, a candidate each."""

DEFAULT, SUBBLOCK, LEFT = fr.NEIGHBOURS, fr.NEIGHBOURS + fr.CANDIDATE, fr.NEIGHBOURS + 2 * fr.CANDIDATE
"""Positions of the motion at the centre of the unit, of one subblock, and of A1."""

OFFSET = fr.PREDICTORS
"""Position of the displacement to the collocated block, in whole luma samples."""


@compiled
def merged_subblock_motion(f: Frame) -> None:
    """Derive the motion of a unit with merge_subblock_flag, and store it (8.5.5.2)."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    wanted = log[unit + lg.U_MERGE_IDX]
    count = 0
    if p[fr.TEMPORAL] and p[fr.TEMPORAL_SUBBLOCKS] and default_motion(f):
        if wanted == 0:
            store_temporal_subblocks(f)
            return
        count = 1
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    if p[fr.AFFINE]:
        if may_inherit(f, x - 1, bottom):
            if count == wanted:
                inherited_motion(f, x - 1, bottom)
                return
            count += 1
        elif may_inherit(f, x - 1, bottom - 1):
            if count == wanted:
                inherited_motion(f, x - 1, bottom - 1)
                return
            count += 1
        above_x = right
        if not may_inherit(f, above_x, y - 1):
            above_x = right - 1
            if not may_inherit(f, above_x, y - 1):
                above_x = x - 1
        if may_inherit(f, above_x, y - 1):
            if count == wanted:
                inherited_motion(f, above_x, y - 1)
                return
            count += 1
        corner_motion(f)
        for model in range(0 if p[fr.AFFINE_SIX] else 4, 6):
            if constructed_motion(f, model):
                if count == wanted:
                    store_affine(f, 2 if model < 4 else 1)
                    return
                count += 1
    # The last candidates have zero vectors; a constructed one before them may have set bcw_idx.
    for i in range(fr.UNIT_BCW, fr.MOTION_UNIT):
        p[fr.MOTION_OF_UNIT + i] = 0
    p[fr.MOTION_OF_UNIT + fr.UNIT_REF + 1] = 0 if p[fr.SLICE_IS_B] else -1
    store_affine(f, 1)


@compiled
def may_inherit(f: Frame, x: int, y: int) -> bool:
    """Return True if the unit may inherit the affine motion of the unit at (x, y)."""
    return bool(affine_at(f, x, y) and mergeable(f, x, y))


@compiled
def inherited_motion(f: Frame, x: int, y: int) -> None:
    """Inherit the affine motion of the unit at (x, y) (8.5.5.5), and store it."""
    p, motion = f.p, f.motion
    at = fr.MOTION_OF_UNIT
    row, column = y >> 2, x >> 2
    model = peek_motion(f, fr.MODEL, row, column)
    for which in range(2):
        p[at + fr.UNIT_REF + which] = motion[fr.REF_0 + which, row, column]
        if p[at + fr.UNIT_REF + which] >= 0:
            inherit_points(f, x, y, which, 1 + model)
            for i in range(2 + 2 * model):
                p[at + fr.UNIT_CONTROL + 6 * which + i] = p[fr.CONTROL_POINTS + i]
    p[at + fr.UNIT_BCW] = motion[fr.BCW, row, column]
    store_affine(f, model)


@compiled
def corner_motion(f: Frame) -> None:
    """Derive the motion at the four corners, at p[CORNERS] (8.5.5.6); a corner without motion has no references."""
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    for corner in range(4):
        clear_candidate(f, CORNERS + fr.CANDIDATE * corner)
    if not take_corner(f, 0, x - 1, y - 1) and not take_corner(f, 0, x, y - 1):
        take_corner(f, 0, x - 1, y)
    if not take_corner(f, 1, right - 1, y - 1):
        take_corner(f, 1, right, y - 1)
    if not take_corner(f, 2, x - 1, bottom - 1):
        take_corner(f, 2, x - 1, bottom)
    if p[fr.TEMPORAL]:
        at = CORNERS + 3 * fr.CANDIDATE
        for which in range(1 + p[fr.SLICE_IS_B]):
            if bottom_right_vector(f, which, 0):
                p[at + fr.C_REF_0 + which] = 0
                p[at + fr.C_X0 + 2 * which], p[at + fr.C_Y0 + 2 * which] = p[fr.VECTOR], p[fr.VECTOR + 1]


@compiled
def take_corner(f: Frame, corner: int, x: int, y: int) -> bool:
    """Take the motion at the luma sample (x, y) for a corner; return False if it is not available."""
    if not mergeable(f, x, y):
        return False
    copy_motion(f, x, y, CORNERS + fr.CANDIDATE * corner)
    return True


@compiled
def constructed_motion(f: Frame, number: int) -> bool:
    """Construct the control points of the unit from three or two corners (8.5.5.6).

    Args:
        f: State of the picture.
        number: Combination of corners: 0 all but the lower right, 1 all but the lower left, 2 all but the upper right,
            3 all but the upper left, 4 the upper two, 5 the left two.

    Returns:
        True if the corners have a common reference picture.
    """
    p = f.p
    at = fr.MOTION_OF_UNIT
    first = CORNERS if number != 3 else CORNERS + 3 * fr.CANDIDATE
    second = CORNERS + fr.CANDIDATE if number in (0, 1, 3, 4) else CORNERS + 2 * fr.CANDIDATE
    third = first
    if number < 4:
        third = CORNERS + fr.CANDIDATE * (2 if number in (0, 3) else 3)
    exists = False
    both = True
    for which in range(2):
        index = p[first + fr.C_REF_0 + which]
        common = index >= 0 and p[second + fr.C_REF_0 + which] == index and p[third + fr.C_REF_0 + which] == index
        p[at + fr.UNIT_REF + which] = index if common else -1
        exists |= common
        both &= common
        if common:
            for axis in range(2):
                construct_points(f, number, which, axis)
    p[at + fr.UNIT_BCW] = 0
    if both:
        p[at + fr.UNIT_BCW] = p[CORNERS + fr.C_BCW + (fr.CANDIDATE if number == 3 else 0)]
    return exists


@compiled
def construct_points(f: Frame, number: int, which: int, axis: int) -> None:
    """Set one component of the control points of one list, see `constructed_motion`."""
    p = f.p
    i = fr.C_X0 + 2 * which + axis
    upper_left, upper_right = p[CORNERS + i], p[CORNERS + fr.CANDIDATE + i]
    lower_left, lower_right = p[CORNERS + 2 * fr.CANDIDATE + i], p[CORNERS + 3 * fr.CANDIDATE + i]
    if number == 1:
        lower_left = clip(lower_right + upper_left - upper_right, -131072, 131071)
    elif number == 2:
        upper_right = clip(lower_right + upper_left - lower_left, -131072, 131071)
    elif number == 3:
        upper_left = clip(upper_right + lower_left - lower_right, -131072, 131071)
    elif number == 5:
        # The change downwards of the other component, turned by 90 degrees.
        other = fr.C_X0 + 2 * which + 1 - axis
        change = p[CORNERS + 2 * fr.CANDIDATE + other] - p[CORNERS + other]
        width, height = p[fr.MOTION_OF_UNIT + fr.UNIT_W], p[fr.MOTION_OF_UNIT + fr.UNIT_H]
        change <<= FRACTION + log2(width) - log2(height)
        upper_right = shifted((upper_left << FRACTION) + (change if axis == 0 else -change))
    at = fr.MOTION_OF_UNIT + fr.UNIT_CONTROL + 6 * which + axis
    p[at], p[at + 2], p[at + 4] = upper_left, upper_right, lower_left


@compiled
def default_motion(f: Frame) -> bool:
    """Derive the collocated motion at the centre of the unit, at p[DEFAULT] (8.5.5.4); return True if it exists.

    The displacement is the vector of A1 if it refers to the collocated picture.
    """
    p = f.p
    unit = fr.MOTION_OF_UNIT
    x, y, width, height = p[unit + fr.UNIT_X], p[unit + fr.UNIT_Y], p[unit + fr.UNIT_W], p[unit + fr.UNIT_H]
    p[OFFSET] = p[OFFSET + 1] = 0
    if mergeable(f, x - 1, y + height - 1):
        copy_motion(f, x - 1, y + height - 1, LEFT)
        collocated = reference(p[fr.COLLOCATED_LIST], p[fr.COLLOCATED_ENTRY])
        for which in range(2):
            index = p[LEFT + fr.C_REF_0 + which]
            if index >= 0 and p[reference(which, index) + fr.REF_POC] == p[collocated + fr.REF_POC]:
                for axis in range(2):
                    p[OFFSET + axis] = rounded(p[LEFT + fr.C_X0 + 2 * which + axis], 4) >> 4
                break
    return bool(collocated_motion(f, x + (width >> 1), y + (height >> 1), DEFAULT))


@compiled
def collocated_motion(f: Frame, x: int, y: int, at: int) -> bool:
    """Derive the collocated motion of the luma sample (x, y), displaced by p[OFFSET], at p[at].

    The displaced sample is clipped to the CTU and four columns to the right of it.

    Returns:
        True if there is motion.
    """
    p = f.p
    size = 1 << p[fr.LOG2_CTU]
    left = p[fr.MOTION_OF_UNIT + fr.UNIT_X] & -size
    top = p[fr.MOTION_OF_UNIT + fr.UNIT_Y] & -size
    x = clip(x + p[OFFSET], left, min(p[fr.SUBPICTURE_RIGHT] - 1, left + size + 3))
    y = clip(y + p[OFFSET + 1], top, min(p[fr.SUBPICTURE_BOTTOM] - 1, top + size - 1))
    clear_candidate(f, at)
    exists = False
    for which in range(1 + p[fr.SLICE_IS_B]):
        if collocated_vector(f, which, 0, x, y, True):
            exists = True
            p[at + fr.C_REF_0 + which] = 0
            p[at + fr.C_X0 + 2 * which], p[at + fr.C_Y0 + 2 * which] = p[fr.VECTOR], p[fr.VECTOR + 1]
    return exists


@compiled
def store_temporal_subblocks(f: Frame) -> None:
    """Derive the motion of the 8x8 subblocks of the unit, and store it; p[DEFAULT] is used where there is none."""
    p = f.p
    unit = fr.MOTION_OF_UNIT
    p[unit + fr.UNIT_KIND] = fr.KIND_TEMPORAL_SUBBLOCKS
    set_unit_motion(f, DEFAULT)
    left, top = p[unit + fr.UNIT_X], p[unit + fr.UNIT_Y]
    for y in range(top, top + p[unit + fr.UNIT_H], 8):
        for x in range(left, left + p[unit + fr.UNIT_W], 8):
            if not collocated_motion(f, x + 4, y + 4, SUBBLOCK):
                copy_candidate(f, DEFAULT, SUBBLOCK)
            store_block(f, SUBBLOCK, x, y, x + 8, y + 8)
