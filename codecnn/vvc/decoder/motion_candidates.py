"""Comparison, copies and storage of the motion of blocks (H.266 clauses 6.4.4 and 8.5.2)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.cells import MotionCell
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.records import KIND_AFFINE, KIND_TEMPORAL_SUBBLOCKS, Motion
from codecnn.vvc.decoder.references import available


@compiled
def same_picture(f: Frame, list_a: int, ref_idx_a: int, list_b: int, ref_idx_b: int) -> bool:
    """Return True if RefPicList[list_a][ref_idx_a] and RefPicList[list_b][ref_idx_b] are the same picture.

    Part of clause 8.5.2.10, Derivation process for spatial motion vector candidates.
    """
    lists = f.slice.ref_pic_list
    return bool(lists[list_a, ref_idx_a].poc == lists[list_b, ref_idx_b].poc)


@compiled
def inter_at(f: Frame, x: int, y: int) -> bool:
    """Return True if the luma sample (x, y) is available and belongs to an inter unit.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    if not available(f, 0, x, y, f.unit.x >> f.pic.ctb_log2_size_y):
        return False
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    return bool(cell.ref_idx[0] >= 0 or cell.ref_idx[1] >= 0)


@compiled
def copy_motion(f: Frame, x: int, y: int, motion: Motion) -> None:
    """Copy the motion of the block that contains the luma sample (x, y) to `motion`."""
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    for i in range(2):
        motion.mv[i].x, motion.mv[i].y = cell.mv[i].x, cell.mv[i].y
        motion.ref_idx[i] = cell.ref_idx[i]
    motion.bcw_idx, motion.hpel_if_idx = cell.bcw_idx, cell.hpel_if_idx


@compiled
def copy_candidate(source: Motion, target: Motion) -> None:
    """Copy the motion `source` to `target`."""
    for i in range(2):
        target.mv[i].x, target.mv[i].y = source.mv[i].x, source.mv[i].y
        target.ref_idx[i] = source.ref_idx[i]
    target.bcw_idx, target.hpel_if_idx = source.bcw_idx, source.hpel_if_idx


@compiled
def clear_candidate(motion: Motion) -> None:
    """Set `motion` to no motion: both lists are unused."""
    for i in range(2):
        motion.mv[i].x = motion.mv[i].y = 0
        motion.ref_idx[i] = -1
    motion.bcw_idx = motion.hpel_if_idx = 0


@compiled
def same_motion(a: Motion, b: Motion) -> bool:
    """Return True if two candidates have the same motion vectors and the same reference indices.

    Part of clause 8.5.2.3, Derivation process for spatial merging candidates.
    """
    for i in range(2):
        if a.ref_idx[i] != b.ref_idx[i]:
            return False
        if a.ref_idx[i] >= 0 and (a.mv[i].x != b.mv[i].x or a.mv[i].y != b.mv[i].y):
            return False
    return True


@compiled
def store_block(f: Frame, motion: Motion, left: int, top: int, right: int, bottom: int) -> None:
    """Store `motion` in the cells of a block.

    Part of clause 8.5.1, General decoding process for coding units coded in inter prediction mode.

    Args:
        f: State of the picture.
        motion: Motion vectors, reference indices, bcwIdx and hpelIfIdx.
        left: First column, in luma samples, as the following.
        top: First row.
        right: Last column + 1.
        bottom: Last row + 1.
    """
    slot_0 = slot_1 = -1
    if motion.ref_idx[0] >= 0:
        slot_0 = f.slice.ref_pic_list[0, motion.ref_idx[0]].slot
    if motion.ref_idx[1] >= 0:
        slot_1 = f.slice.ref_pic_list[1, motion.ref_idx[1]].slot
    for row in range(top >> 2, min(bottom >> 2, f.motion.shape[0])):
        for column in range(left >> 2, min(right >> 2, f.motion.shape[1])):
            cell: MotionCell = f.motion[row, column]
            for i in range(2):
                cell.mv[i].x, cell.mv[i].y = motion.mv[i].x, motion.mv[i].y
                cell.mv_dmvr[i].x, cell.mv_dmvr[i].y = motion.mv[i].x, motion.mv[i].y
                cell.ref_idx[i] = motion.ref_idx[i]
            cell.slot[0], cell.slot[1] = slot_0, slot_1
            cell.bcw_idx, cell.hpel_if_idx = motion.bcw_idx, motion.hpel_if_idx


@compiled
def store_unit(f: Frame) -> None:
    """Store position, size, motion model and control point vectors of the current unit in its cells.

    Part of clause 8.5.1, General decoding process for coding units coded in inter prediction mode.
    """
    unit = f.unit
    model = 0
    if unit.kind == KIND_AFFINE:
        model = unit.motion_model_idc
    elif unit.kind == KIND_TEMPORAL_SUBBLOCKS:
        model = 3
    for row in range(unit.y >> 2, min((unit.y + unit.height) >> 2, f.motion.shape[0])):
        for column in range(unit.x >> 2, min((unit.x + unit.width) >> 2, f.motion.shape[1])):
            cell: MotionCell = f.motion[row, column]
            cell.x, cell.y, cell.width, cell.height = unit.x, unit.y, unit.width, unit.height
            cell.model = model
            if model == 1 or model == 2:
                for i in range(2):
                    for point in range(3):
                        cell.cp_mv[i, point].x, cell.cp_mv[i, point].y = unit.cp_mv[i, point].x, unit.cp_mv[i, point].y
