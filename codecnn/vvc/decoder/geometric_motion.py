"""Motion of units with geometric partitions (H.266 clauses 8.5.4.2 and 8.5.4.3)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.merge import merge_candidates
from codecnn.vvc.decoder.motion_candidates import clear_candidate, store_block
from codecnn.vvc.syntax import log as lg

_ANGLES = (0, 2, 3, 4, 5, 8, 11, 12, 13, 14, 16, 18, 19, 20, 21, 24, 27, 28, 29, 30)
_DISTANCES = {angle: (1, 3) if angle % 8 == 0 else (0, 1, 2, 3) if angle < 16 else (1, 2, 3) for angle in _ANGLES}
PARTITIONS = np.array([(angle, distance) for angle in _ANGLES for distance in _DISTANCES[angle]], np.int64)
"""angleIdx and distanceIdx by merge_gpm_partition_idx, (64, 2) (table 36)."""

_QUARTER = [8, 8, 8, 8, 4, 4, 2, 1, 0, -1, -2, -4, -4, -8, -8, -8]
DISPLACEMENT = np.array(_QUARTER + [-value for value in _QUARTER], np.int64)
"""disLut by angle, (32,) (table 37)."""

PART_0, PART_1, BOTH = fr.NEIGHBOURS, fr.NEIGHBOURS + fr.CANDIDATE, fr.NEIGHBOURS + 2 * fr.CANDIDATE
"""Positions of the motion of the two parts, and of that along the line between them."""


@compiled
def geometric_motion(f: Frame) -> None:
    """Derive the motion of a unit with geometric partitions and store it over the unit."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    at = fr.MOTION_OF_UNIT
    first = min(5, log[unit + lg.U_MERGE_IDX])
    second = min(5, log[unit + lg.U_GPM_SECOND] + int(log[unit + lg.U_GPM_SECOND] >= first))
    partition = log[unit + lg.U_GPM_PARTITION] & 63
    merge_candidates(f, max(first, second))
    list_0 = take_part(f, first, PART_0)
    list_1 = take_part(f, second, PART_1)
    p[at + fr.UNIT_KIND], p[at + fr.UNIT_PARTITION] = fr.KIND_GEOMETRIC, partition
    p[at + fr.UNIT_POINTS] = list_0 | list_1 << 1
    p[at + fr.UNIT_REF], p[at + fr.UNIT_REF + 1] = p[PART_0 + fr.C_REF_0 + list_0], p[PART_1 + fr.C_REF_0 + list_1]
    for axis in range(2):
        p[at + fr.UNIT_MV + axis] = p[PART_0 + fr.C_X0 + 2 * list_0 + axis]
        p[at + fr.UNIT_MV + 2 + axis] = p[PART_1 + fr.C_X0 + 2 * list_1 + axis]
    # Between the parts the motion is bi-directional, or that of part 1 if both use the same list.
    for i in range(fr.CANDIDATE):
        p[BOTH + i] = p[PART_1 + i]
    if list_0 != list_1:
        p[BOTH + fr.C_REF_0 + list_0] = p[PART_0 + fr.C_REF_0 + list_0]
        for axis in range(2):
            p[BOTH + fr.C_X0 + 2 * list_0 + axis] = p[PART_0 + fr.C_X0 + 2 * list_0 + axis]
    store_parts(f, PARTITIONS[partition, 0], PARTITIONS[partition, 1])


@compiled
def take_part(f: Frame, index: int, at: int) -> int:
    """Put the uni-directional motion of merge candidate `index` at p[at]; return its list.

    Even candidates prefer L0, odd ones L1.
    """
    p = f.p
    source = fr.MERGE_LIST + fr.CANDIDATE * index
    which = index & 1
    if p[source + fr.C_REF_0 + which] < 0:
        which = 1 - which
    clear_candidate(f, at)
    p[at + fr.C_REF_0 + which] = p[source + fr.C_REF_0 + which]
    for axis in range(2):
        p[at + fr.C_X0 + 2 * which + axis] = p[source + fr.C_X0 + 2 * which + axis]
    return which


@compiled
def store_parts(f: Frame, angle: int, distance: int) -> None:
    """Store the motion of each 4x4 block by the part that it lies in (8.5.4.3)."""
    p = f.p
    left, top = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    width, height = p[fr.MOTION_OF_UNIT + fr.UNIT_W], p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    flipped = 13 <= angle <= 27
    offset_x, offset_y = -(width >> 1), -(height >> 1)
    sign = 1 if angle < 16 else -1
    if angle % 16 == 8 or (angle % 16 != 0 and height >= width):
        offset_y += sign * (distance * height >> 3)
    else:
        offset_x += sign * (distance * width >> 3)
    along_x, along_y = DISPLACEMENT[angle], DISPLACEMENT[(angle + 8) % 32]
    for y in range(0, height, 4):
        for x in range(0, width, 4):
            place = (2 * (x + offset_x) + 5) * along_x + (2 * (y + offset_y) + 5) * along_y
            at = BOTH
            if abs(place) >= 32:
                at = PART_1 if (place <= 0) != flipped else PART_0
            store_block(f, at, left + x, top + y, left + x + 4, top + y + 4)
