"""Motion of units with geometric partitions (H.266 clauses 8.5.4.2 and 8.5.7.3)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, coding_unit
from codecnn.vvc.decoder.merge import merge_candidates
from codecnn.vvc.decoder.motion_candidates import clear_candidate, copy_candidate, store_block
from codecnn.vvc.decoder.records import KIND_GEOMETRIC, Motion

_ANGLES = (0, 2, 3, 4, 5, 8, 11, 12, 13, 14, 16, 18, 19, 20, 21, 24, 27, 28, 29, 30)
_DISTANCES = {angle: (1, 3) if angle % 8 == 0 else (0, 1, 2, 3) if angle < 16 else (1, 2, 3) for angle in _ANGLES}
PARTITIONS = np.array([(angle, distance) for angle in _ANGLES for distance in _DISTANCES[angle]], np.int64)
"""angleIdx and distanceIdx by merge_gpm_partition_idx, (64, 2) (table 36)."""

_QUARTER = [8, 8, 8, 8, 4, 4, 2, 1, 0, -1, -2, -4, -4, -8, -8, -8]
DISPLACEMENT = np.array(_QUARTER + [-value for value in _QUARTER], np.int64)
"""disLut by angle, (32,) (table 37)."""


@compiled
def geometric_motion(f: Frame) -> None:
    """Derive the motion of a unit with geometric partitions and store it over the unit.

    Clause 8.5.4.2, Derivation process for luma motion vectors for geometric partitioning merge mode.
    """
    cu, unit, part = coding_unit(f), f.unit, f.candidates.part
    first = min(5, cu.merge_idx)
    second = min(5, cu.merge_gpm_idx1 + int(cu.merge_gpm_idx1 >= first))
    merge_candidates(f, max(first, second))
    list_0, list_1 = take_part(f, first, part[0]), take_part(f, second, part[1])
    unit.kind, unit.merge_gpm_partition_idx = KIND_GEOMETRIC, cu.merge_gpm_partition_idx & 63
    unit.pred_list_flag[0], unit.pred_list_flag[1] = list_0, list_1
    for i in range(2):
        list_x = unit.pred_list_flag[i]
        unit.motion.ref_idx[i] = part[i].ref_idx[list_x]
        unit.motion.mv[i].x, unit.motion.mv[i].y = part[i].mv[list_x].x, part[i].mv[list_x].y
    # Between the parts the motion is bi-directional, or that of part 1 if both use the same list.
    copy_candidate(part[1], part[2])
    if list_0 != list_1:
        part[2].ref_idx[list_0] = part[0].ref_idx[list_0]
        part[2].mv[list_0].x, part[2].mv[list_0].y = part[0].mv[list_0].x, part[0].mv[list_0].y
    store_parts(f, PARTITIONS[unit.merge_gpm_partition_idx, 0], PARTITIONS[unit.merge_gpm_partition_idx, 1])


@compiled
def take_part(f: Frame, merge_idx: int, part: Motion) -> int:
    """Derive the uni-directional motion of a part from a merge candidate.

    Part of clause 8.5.4.2, Derivation process for luma motion vectors for geometric partitioning merge mode.

    Even candidates prefer L0, odd ones L1.

    Args:
        f: State of the picture.
        merge_idx: Index of the candidate in mergeCandList.
        part: The result.

    Returns:
        The list that the part uses.
    """
    candidate = f.candidates.merge_cand_list[merge_idx]
    list_x = merge_idx & 1
    if candidate.ref_idx[list_x] < 0:
        list_x = 1 - list_x
    clear_candidate(part)
    part.ref_idx[list_x] = candidate.ref_idx[list_x]
    part.mv[list_x].x, part.mv[list_x].y = candidate.mv[list_x].x, candidate.mv[list_x].y
    return list_x


@compiled
def store_parts(f: Frame, angle: int, distance: int) -> None:
    """Store the motion of each 4x4 block by the part that it lies in.

    Clause 8.5.7.3, Motion vector storing process for geometric partitioning mode.

    Args:
        f: State of the picture.
        angle: angleIdx.
        distance: distanceIdx.
    """
    left, top, width, height = f.unit.x, f.unit.y, f.unit.width, f.unit.height
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
            number = 2
            if abs(place) >= 32:
                number = 1 if (place <= 0) != flipped else 0
            store_block(f, f.candidates.part[number], left + x, top + y, left + x + 4, top + y + 4)
