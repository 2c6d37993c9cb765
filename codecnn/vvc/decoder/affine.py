"""Affine motion: inherited control points and vectors of subblocks (H.266 clauses 8.5.5.5, 8.5.5.9)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.cells import MotionCell, int64
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.motion_candidates import inter_at, store_block
from codecnn.vvc.decoder.motion_prediction import rounded
from codecnn.vvc.decoder.records import KIND_AFFINE
from codecnn.vvc.syntax import log2
from codecnn.vvc.syntax.log import MotionVector

FRACTION = 7
"""Fractional bits of vector differences per sample, log2 of the largest unit."""


@compiled
def affine_at(f: Frame, x: int, y: int) -> bool:
    """Return True if the luma sample (x, y) is available and belongs to a unit with affine motion.

    Part of clause 8.5.5.5, Derivation process for luma affine control point motion vectors from a neighbouring block.
    """
    if not inter_at(f, x, y):
        return False
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    return bool(cell.model == 1 or cell.model == 2)


@compiled
def shifted(value: int) -> int:
    """Round a component of a vector with FRACTION more bits to 1/16 sample and clip it to 18 bits.

    Part of clause 8.5.5.5, Derivation process for luma affine control point motion vectors from a neighbouring block.
    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.
    """
    return clip(rounded(value, FRACTION) >> FRACTION, -131072, 131071)


@compiled
def inherit_points(f: Frame, x: int, y: int, list_x: int, num_cp_mv: int) -> None:
    """Derive control point vectors from those of the affine unit at (x, y).

    Clause 8.5.5.5, Derivation process for luma affine control point motion vectors from a neighbouring block.

    For a unit in the row of CTUs above they come from the vectors of its lowest subblocks instead.

    Args:
        f: State of the picture; the result is `f.candidates.cp_mv`.
        x: Column of a luma sample of the other unit.
        y: Row of a luma sample of the other unit.
        list_x: X, the list.
        num_cp_mv: Number of control points to derive, 2 or 3.
    """
    unit, cp_mv = f.unit, f.candidates.cp_mv
    cell: MotionCell = f.motion[y >> 2, x >> 2]
    x_nb, y_nb, width_nb, height_nb = int64(cell.x), int64(cell.y), int64(cell.width), int64(cell.height)
    mv_x, mv_y = int64(cell.cp_mv[list_x, 0].x), int64(cell.cp_mv[list_x, 0].y)
    right_x, right_y = int64(cell.cp_mv[list_x, 1].x), int64(cell.cp_mv[list_x, 1].y)
    below_x, below_y = int64(cell.cp_mv[list_x, 2].x), int64(cell.cp_mv[list_x, 2].y)
    six_parameters = cell.model == 2
    if y_nb + height_nb == unit.y and unit.y & ((1 << f.pic.ctb_log2_size_y) - 1) == 0:
        six_parameters = False
        row = (unit.y >> 2) - 1
        left: MotionCell = f.motion[row, x_nb >> 2]
        right: MotionCell = f.motion[row, ((x_nb + width_nb) >> 2) - 1]
        mv_x, mv_y = int64(left.mv[list_x].x), int64(left.mv[list_x].y)
        right_x, right_y = int64(right.mv[list_x].x), int64(right.mv[list_x].y)
        y_nb = unit.y
    d_hor_x = (right_x - mv_x) << (FRACTION - log2(width_nb))
    d_ver_x = (right_y - mv_y) << (FRACTION - log2(width_nb))
    d_hor_y, d_ver_y = -d_ver_x, d_hor_x
    if six_parameters:
        d_hor_y = (below_x - mv_x) << (FRACTION - log2(height_nb))
        d_ver_y = (below_y - mv_y) << (FRACTION - log2(height_nb))
    for point in range(num_cp_mv):
        dx, dy = unit.x - x_nb, unit.y - y_nb
        if point == 1:
            dx += unit.width
        elif point == 2:
            dy += unit.height
        cp_mv[point].x = shifted((mv_x << FRACTION) + d_hor_x * dx + d_hor_y * dy)
        cp_mv[point].y = shifted((mv_y << FRACTION) + d_ver_x * dx + d_ver_y * dy)


@compiled
def store_affine(f: Frame, motion_model_idc: int) -> None:
    """Derive the vectors of the 4x4 subblocks from the control points of the unit, and store them.

    Clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.

    Args:
        f: State of the picture. ref_idx and bcw_idx of `f.unit.motion` and `f.unit.cp_mv` must be set; the rest of
            `f.unit` is set, its vectors to those of the first subblock.
        motion_model_idc: MotionModelIdc, 1 for two control points or 2 for three.
    """
    unit, motion, subblock = f.unit, f.unit.motion, f.candidates.neighbour
    unit.kind, unit.motion_model_idc = KIND_AFFINE, motion_model_idc
    subblock.bcw_idx, subblock.hpel_if_idx = motion.bcw_idx, 0
    both = motion.ref_idx[0] >= 0 and motion.ref_idx[1] >= 0
    for list_x in range(2):
        subblock.ref_idx[list_x] = motion.ref_idx[list_x]
        if motion.ref_idx[list_x] < 0:
            motion.mv[list_x].x = motion.mv[list_x].y = 0
            for point in range(3):
                unit.cp_mv[list_x, point].x = unit.cp_mv[list_x, point].y = 0
    one_vector_0 = fallback_mode_triggered(f, 0, motion_model_idc, both)
    one_vector_1 = fallback_mode_triggered(f, 1, motion_model_idc, both)
    for y in range(0, unit.height, 4):
        for x in range(0, unit.width, 4):
            subblock_vector(f, 0, motion_model_idc, one_vector_0, x, y, subblock.mv[0])
            subblock_vector(f, 1, motion_model_idc, one_vector_1, x, y, subblock.mv[1])
            left, top = unit.x + x, unit.y + y
            store_block(f, subblock, left, top, left + 4, top + 4)
            if x == 0 and y == 0:
                for list_x in range(2):
                    motion.mv[list_x].x, motion.mv[list_x].y = subblock.mv[list_x].x, subblock.mv[list_x].y


@compiled
def gradient(f: Frame, list_x: int, motion_model_idc: int) -> tuple[int, int, int, int]:
    """Derive the change of a vector per sample from the control points of the unit.

    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.

    Returns:
        dHorX, dVerX, dHorY and dVerY: change of the horizontal and vertical component to the right, then downwards,
        with FRACTION more bits.
    """
    unit, cp_mv = f.unit, f.unit.cp_mv
    first = cp_mv[list_x, 0]
    shift = FRACTION - log2(unit.width)
    d_hor_x, d_ver_x = (cp_mv[list_x, 1].x - first.x) << shift, (cp_mv[list_x, 1].y - first.y) << shift
    if motion_model_idc == 1:
        return d_hor_x, d_ver_x, -d_ver_x, d_hor_x
    shift = FRACTION - log2(unit.height)
    return d_hor_x, d_ver_x, (cp_mv[list_x, 2].x - first.x) << shift, (cp_mv[list_x, 2].y - first.y) << shift


@compiled
def subblock_vector(
    f: Frame, list_x: int, motion_model_idc: int, one_vector: bool, x: int, y: int, mv: MotionVector
) -> None:
    """Derive the vector of a subblock of an affine unit.

    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.

    Args:
        f: State of the picture.
        list_x: X, the list.
        motion_model_idc: MotionModelIdc.
        one_vector: fallbackModeTriggered: the vector is that of the centre of the unit.
        x: Column of the subblock in the unit.
        y: Row of the subblock in the unit.
        mv: The result.
    """
    first = f.unit.cp_mv[list_x, 0]
    d_hor_x, d_ver_x, d_hor_y, d_ver_y = gradient(f, list_x, motion_model_idc)
    dx, dy = x + 2, y + 2
    if one_vector:
        dx, dy = f.unit.width >> 1, f.unit.height >> 1
    mv.x = shifted((first.x << FRACTION) + d_hor_x * dx + d_hor_y * dy)
    mv.y = shifted((first.y << FRACTION) + d_ver_x * dx + d_ver_y * dy)


@compiled
def fallback_mode_triggered(f: Frame, list_x: int, motion_model_idc: int, both: bool) -> bool:
    """Return True if subblocks would need too large an area of the reference picture, so that all get one vector.

    Part of clause 8.5.5.9, Derivation process for motion vector arrays from affine control point motion vectors.

    The area is that of 2x2 subblocks with bi-prediction, else that of 2x1 and of 1x2 subblocks (fallbackModeTriggered).
    """
    a, b, c, d = gradient(f, list_x, motion_model_idc)
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
