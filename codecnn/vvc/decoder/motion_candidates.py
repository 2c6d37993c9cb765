"""Motion candidates at positions of `Frame.p`, and storage of the motion of a unit.

A candidate is CANDIDATE numbers, named C_*.
"""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.references import available


@compiled
def reference(which: int, index: int) -> int:
    """Return the position in `Frame.p` of entry `index` of list `which`."""
    return fr.LISTS_OF_REFERENCES + fr.REFERENCE * (16 * which + index)


@compiled
def same_picture(f: Frame, first: int, first_index: int, second: int, second_index: int) -> bool:
    """Return True if two entries of lists (list, index, list, index) are the same picture."""
    p = f.p
    return bool(p[reference(first, first_index) + fr.REF_POC] == p[reference(second, second_index) + fr.REF_POC])


@compiled
def inter_at(f: Frame, x: int, y: int) -> bool:
    """Return True if the luma sample (x, y) is available (6.4.4) and belongs to an inter unit."""
    p = f.p
    if not available(f, 0, x, y, p[fr.MOTION_OF_UNIT + fr.UNIT_X] >> p[fr.LOG2_CTU]):
        return False
    return bool(f.motion[fr.REF_0, y >> 2, x >> 2] >= 0 or f.motion[fr.REF_1, y >> 2, x >> 2] >= 0)


@compiled
def peek_motion(f: Frame, plane: int, row: int, column: int) -> int:
    """Return the value of a plane of `Frame.motion` in a cell."""
    return np.int64(f.motion[plane, row, column])  # type: ignore[return-value]


@compiled
def copy_motion(f: Frame, x: int, y: int, at: int) -> None:
    """Copy the motion at the luma sample (x, y) to the candidate at p[at]."""
    p, motion = f.p, f.motion
    row, column = y >> 2, x >> 2
    for i in range(4):
        p[at + fr.C_X0 + i] = motion[fr.MV_X0 + i, row, column]
    p[at + fr.C_REF_0], p[at + fr.C_REF_1] = motion[fr.REF_0, row, column], motion[fr.REF_1, row, column]
    p[at + fr.C_BCW], p[at + fr.C_HALF] = motion[fr.BCW, row, column], motion[fr.HALF_SAMPLE, row, column]


@compiled
def copy_candidate(f: Frame, source: int, target: int) -> None:
    """Copy the candidate at p[source] to p[target]."""
    for i in range(fr.CANDIDATE):
        f.p[target + i] = f.p[source + i]


@compiled
def clear_candidate(f: Frame, at: int) -> None:
    """Set the candidate at p[at] to no motion."""
    p = f.p
    for i in range(fr.CANDIDATE):
        p[at + i] = 0
    p[at + fr.C_REF_0] = p[at + fr.C_REF_1] = -1


@compiled
def same_motion(f: Frame, first: int, second: int) -> bool:
    """Return True if two candidates have the same vectors and reference indices."""
    p = f.p
    for which in range(2):
        index = p[first + fr.C_REF_0 + which]
        if index != p[second + fr.C_REF_0 + which]:
            return False
        x = fr.C_X0 + 2 * which
        if index >= 0 and (p[first + x] != p[second + x] or p[first + x + 1] != p[second + x + 1]):
            return False
    return True


@compiled
def set_unit_motion(f: Frame, at: int) -> None:
    """Set reference indices, vectors, bcw_idx and hpelIfIdx of the unit to those of the candidate at p[at]."""
    p, unit = f.p, fr.MOTION_OF_UNIT
    for i in range(4):
        p[unit + fr.UNIT_MV + i] = p[at + fr.C_X0 + i]
    for which in range(2):
        p[unit + fr.UNIT_REF + which] = p[at + fr.C_REF_0 + which]
    p[unit + fr.UNIT_BCW], p[unit + fr.UNIT_HALF] = p[at + fr.C_BCW], p[at + fr.C_HALF]


@compiled
def store_block(f: Frame, at: int, left: int, top: int, right: int, bottom: int) -> None:
    """Store vectors, references, bcw_idx and hpelIfIdx of the candidate at p[at] over a block.

    Args:
        f: State of the picture.
        at: Position of the candidate.
        left: First column, in luma samples, as the following.
        top: First row.
        right: Last column + 1.
        bottom: Last row + 1.
    """
    p, motion = f.p, f.motion
    slot_0 = slot_1 = -1
    if p[at + fr.C_REF_0] >= 0:
        slot_0 = p[reference(0, p[at + fr.C_REF_0]) + fr.REF_SLOT]
    if p[at + fr.C_REF_1] >= 0:
        slot_1 = p[reference(1, p[at + fr.C_REF_1]) + fr.REF_SLOT]
    for row in range(top >> 2, min(bottom >> 2, motion.shape[1])):
        for column in range(left >> 2, min(right >> 2, motion.shape[2])):
            for i in range(4):
                motion[fr.MV_X0 + i, row, column] = p[at + fr.C_X0 + i]
                motion[fr.TEMPORAL_X0 + i, row, column] = p[at + fr.C_X0 + i]
            motion[fr.REF_0, row, column], motion[fr.REF_1, row, column] = p[at + fr.C_REF_0], p[at + fr.C_REF_1]
            motion[fr.SLOT_0, row, column], motion[fr.SLOT_1, row, column] = slot_0, slot_1
            motion[fr.BCW, row, column], motion[fr.HALF_SAMPLE, row, column] = p[at + fr.C_BCW], p[at + fr.C_HALF]


@compiled
def store_unit(f: Frame) -> None:
    """Store the model, position, size and control point vectors of the unit in the planes of `Frame.motion`."""
    p, motion, unit = f.p, f.motion, fr.MOTION_OF_UNIT
    left, top = p[unit + fr.UNIT_X], p[unit + fr.UNIT_Y]
    right, bottom = left + p[unit + fr.UNIT_W], top + p[unit + fr.UNIT_H]
    model = 0
    if p[unit + fr.UNIT_KIND] == fr.KIND_AFFINE:
        model = p[unit + fr.UNIT_POINTS]
    elif p[unit + fr.UNIT_KIND] == fr.KIND_TEMPORAL_SUBBLOCKS:
        model = 3
    for row in range(top >> 2, min(bottom >> 2, motion.shape[1])):
        for column in range(left >> 2, min(right >> 2, motion.shape[2])):
            motion[fr.MODEL, row, column] = model
            for i in range(4):
                motion[fr.MOTION_X + i, row, column] = p[unit + fr.UNIT_X + i]
            if model == 1 or model == 2:
                for i in range(12):
                    motion[fr.CONTROL + i, row, column] = p[unit + fr.UNIT_CONTROL + i]
