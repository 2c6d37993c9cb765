"""Motion of temporal subblocks, SbTMVP (H.266 clauses 8.5.5.3 and 8.5.5.4)."""

from codecnn.reconstruct import frame as fr
from codecnn.reconstruct.frame import Frame, clip
from codecnn.reconstruct.merge import clear_candidate, copy_candidate, copy_motion, mergeable
from codecnn.reconstruct.motion_prediction import rounded
from codecnn.reconstruct.motion_storage import set_unit_motion, store_block
from codecnn.reconstruct.temporal_motion import collocated_vector, reference
from codecnn.vvc import compiled

DEFAULT, SUBBLOCK, LEFT = fr.NEIGHBOURS, fr.NEIGHBOURS + fr.CANDIDATE, fr.NEIGHBOURS + 2 * fr.CANDIDATE
"""Positions of the motion at the centre of the unit, of one subblock, and of A1."""

OFFSET = fr.PREDICTORS
"""Position of the displacement to the collocated block, in whole luma samples."""


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
    found = False
    for which in range(1 + p[fr.SLICE_IS_B]):
        if collocated_vector(f, which, 0, x, y, True):
            found = True
            p[at + fr.C_REF_0 + which] = 0
            p[at + fr.C_X0 + 2 * which], p[at + fr.C_Y0 + 2 * which] = p[fr.VECTOR], p[fr.VECTOR + 1]
    return found


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
