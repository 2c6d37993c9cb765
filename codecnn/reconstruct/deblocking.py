"""Deblocking: boundary strengths of luma edges in intra slices (H.266 clauses 8.8.3.2 to 8.8.3.5)."""

from codecnn.reconstruct import frame as fr
from codecnn.reconstruct.frame import Frame
from codecnn.vvc import compiled
from codecnn.vvc import log as lg
from codecnn.vvc import state as st


@compiled
def set_strengths(f: Frame, x: int, y: int, width: int, height: int, coded: bool) -> None:
    """Set the boundary strengths at the left and upper edges of a luma transform block after all blocks before it.

    Stores prediction mode, BDPCM and coded flag of the block in two, one and one bit, and its block vector.

    Args:
        f: State of the picture.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block.
        height: Height of the block.
        coded: The block has a residual.
    """
    p, log, known, unit = f.p, f.log, f.known, f.p[fr.UNIT]
    mode = log[unit + lg.U_PRED_MODE]
    block = mode | log[unit + lg.U_BDPCM] << 2 | int(coded) << 3
    vector = 0
    if mode == st.MODE_IBC:
        vector = (log[unit + lg.U_VECTOR_X] + 8192) << 14 | (log[unit + lg.U_VECTOR_Y] + 8192)
    left, top, right, bottom = x >> 2, y >> 2, (x + width + 3) >> 2, (y + height + 3) >> 2
    known[fr.BLOCKS, top:bottom, left:right] = block
    known[fr.VECTORS, top:bottom, left:right] = vector
    if not p[fr.DEBLOCKED]:
        return
    # Edges lie on the grid of 4x4 samples; sub-partitions narrower than four samples may begin between them.
    if x > 0 and x & 3 == 0 and not at_boundary(f, fr.COLUMNS, x):
        for row in range(top, bottom):
            if may_cross(f, known[fr.LUMA_REGION, row, left - 1]):
                before = known[fr.BLOCKS, row, left - 1]
                moved = known[fr.VECTORS, row, left - 1] != vector
                known[fr.STRENGTH_V, row, left] = strength(before, block, moved)
    if y > 0 and y & 3 == 0 and not at_boundary(f, fr.ROWS, y):
        for column in range(left, right):
            if may_cross(f, known[fr.LUMA_REGION, top - 1, column]):
                before = known[fr.BLOCKS, top - 1, column]
                moved = known[fr.VECTORS, top - 1, column] != vector
                known[fr.STRENGTH_H, top, column] = strength(before, block, moved)


@compiled
def strength(before: int, block: int, moved: bool) -> int:
    """Derive bS of an edge between two blocks, packed as in `set_strengths` (clause 8.8.3.5)."""
    first, second = before & 3, block & 3
    if first == st.MODE_INTRA or second == st.MODE_INTRA:
        return 0 if first == second and before & block & 4 else 2
    return int((before | block) & 8 != 0 or first != second or moved)


@compiled
def at_boundary(f: Frame, first: int, place: int) -> bool:
    """Return True if one of the virtual boundaries, p[first : first + 3], is at `place`."""
    return bool(f.p[first] == place or f.p[first + 1] == place or f.p[first + 2] == place)


@compiled
def may_cross(f: Frame, region: int) -> bool:
    """Return True if the filter may cross the edge to a block of `region`."""
    p = f.p
    if region == p[fr.REGION]:
        return True
    first, second = region - 1, p[fr.REGION] - 1
    if first % fr.SLICE_REGIONS != second % fr.SLICE_REGIONS and not p[fr.ACROSS_TILES]:
        return False
    return bool(first // fr.SLICE_REGIONS == second // fr.SLICE_REGIONS or p[fr.ACROSS_SLICES])
