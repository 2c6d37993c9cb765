"""Deblocking: edges, boundary strengths and filter lengths (H.266 clauses 8.8.3.1 to 8.8.3.5).

`derive_edges` and `deblock` are compiled entry points.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from codecnn.base.compiled import COMPILED, compiled, compiled_entry, source_digest
from codecnn.base.records import Array, Record, Records, record_dtype
from codecnn.vvc.decoder import block_state as bk
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.borrowed import borrowed_records, borrowed_samples
from codecnn.vvc.decoder.cells import BLOCK_CELL, EDGE, MOTION_CELL, BlockCell, Edge, MotionCell, int64
from codecnn.vvc.decoder.edge_filters import Samples, adapted_qp, filter_chroma, filter_luma
from codecnn.vvc.decoder.records import PictureValues, SliceValues
from codecnn.vvc.syntax import state as st


class DeblockingSlice(Record):
    """Values of a slice for deblocking.

    Attributes:
        disabled: sh_deblocking_filter_disabled_flag.
        subpicture: Index of its subpicture.
        crossed: sps_loop_filter_across_subpic_enabled_flag of the subpicture.
        beta_offset_div2: sh_luma_beta_offset_div2, sh_cb_beta_offset_div2 and sh_cr_beta_offset_div2.
        tc_offset_div2: sh_luma_tc_offset_div2, sh_cb_tc_offset_div2 and sh_cr_tc_offset_div2.
    """

    disabled: int
    subpicture: int
    crossed: int
    beta_offset_div2: Annotated[Array[int], 3]
    tc_offset_div2: Annotated[Array[int], 3]


DEBLOCKING_SLICE = record_dtype(DeblockingSlice)


@compiled
def may_cross(s: SliceValues, slices: Records, first: int, second: int) -> bool:
    """Return True if deblocking may cross the edge between blocks of two regions (`log.CodingUnit.region`).

    Part of clause 8.8.3.2, Deblocking filter process for one direction.
    """
    if first == second:
        return True
    if first == 0:
        return False
    first, second = first - 1, second - 1
    if first % fr.SLICE_REGIONS != second % fr.SLICE_REGIONS and not s.loop_filter_across_tiles:
        return False
    first, second = first // fr.SLICE_REGIONS, second // fr.SLICE_REGIONS
    if first == second:
        return True
    crossed = slices[first].crossed and slices[second].crossed
    if not crossed and slices[first].subpicture != slices[second].subpicture:
        return False
    return bool(s.loop_filter_across_slices)


@compiled
def luma_edge(known: Records, motion: Records, row: int, column: int, horizontal: int, edge: Edge) -> None:
    """Derive the left or upper luma edge of a cell.

    Clause 8.8.3.3, Derivation process of transform block boundary.
    Clause 8.8.3.4, Derivation process of coding subblock boundary.

    Args:
        known: State of the blocks.
        motion: Motion of the blocks.
        row: Row of the cell.
        column: Column of the cell.
        horizontal: edgeType, EDGE_VER for the left edge, EDGE_HOR for the upper one.
        edge: The result, which is set only if there is an edge whose bS is not 0.
    """
    q = known[row, column].block[0]
    transform = q & (bk.EDGE_TOP if horizontal else bk.EDGE_LEFT)
    unit = q & (bk.UNIT_TOP if horizontal else bk.UNIT_LEFT)
    subblocks = q & bk.MODE_MASK == st.MODE_INTER and motion[row, column].model > 0
    offset = 0
    if subblocks:
        first = motion[row, column].y if horizontal else motion[row, column].x
        offset = 4 * (row if horizontal else column) - first
    # Affine units and temporal subblocks have edges every eight samples of the unit.
    predicted = unit or (subblocks and offset & 7 == 0)
    if not transform and not predicted:
        return
    row_p, column_p = (row - 1, column) if horizontal else (row, column - 1)
    p = known[row_p, column_p].block[0]
    strength = luma_strength(known, motion, p, q, row_p, column_p, row, column, bool(transform), bool(predicted))
    if strength == 0:
        return
    if transform:
        at = bk.HEIGHT_AT if horizontal else bk.WIDTH_AT
        size_p, size_q = p >> at & 7, q >> at & 7
        length_p = length_q = 1
        if size_p > 2 and size_q > 2:
            length_p, length_q = 7 if size_p >= 5 else 3, 7 if size_q >= 5 else 3
        if subblocks:
            length_q = min(length_q, 5)
        if p & bk.MODE_MASK == st.MODE_INTER and motion[row_p, column_p].model > 0:
            length_p = min(length_p, 5)
    else:
        size = motion[row, column].height if horizontal else motion[row, column].width
        length_p = length_q = subblock_length(known, row, column, horizontal, offset, size)
    edge.bs, edge.max_filter_length_p, edge.max_filter_length_q = strength, length_p, length_q


@compiled
def subblock_length(known: Records, row: int, column: int, horizontal: int, offset: int, size: int) -> int:
    """Derive the filter length of an edge of subblocks that is no transform edge.

    Part of clause 8.8.3.4, Derivation process of coding subblock boundary.

    It depends on the transform edges of the unit at a distance of four and eight samples.

    Args:
        known: State of the blocks.
        row: Row of the cell.
        column: Column of the cell.
        horizontal: edgeType, EDGE_VER for the left edge, EDGE_HOR for the upper one.
        offset: Distance of the edge from the first one of the unit in samples.
        size: Width or height of the unit in samples.

    Returns:
        1, 2 or 3.
    """
    down, right = (1, 0) if horizontal else (0, 1)
    flag = bk.EDGE_TOP if horizontal else bk.EDGE_LEFT
    if offset + 4 >= size or (
        (known[row - down, column - right].block[0] | known[row + down, column + right].block[0]) & flag
    ):
        return 1
    if offset == 8 or offset + 8 >= size:
        return 2
    flags = known[row - 2 * down, column - 2 * right].block[0] | known[row + 2 * down, column + 2 * right].block[0]
    return 2 if flags & flag else 3


@compiled
def luma_strength(
    known: Records,
    motion: Records,
    p: int,
    q: int,
    row_p: int,
    column_p: int,
    row: int,
    column: int,
    transform: bool,
    predicted: bool,
) -> int:
    """Derive bS of a luma edge.

    Clause 8.8.3.5, Derivation process of boundary filtering strength.

    Args:
        known: State of the blocks.
        motion: Motion of the blocks.
        p: Packed block before the edge.
        q: Packed block after the edge.
        row_p: Row of the cell before the edge.
        column_p: Column of the cell before the edge.
        row: Row of the cell after the edge.
        column: Column of the cell after the edge.
        transform: The edge is one of a transform block.
        predicted: The edge is one of a coding unit or of subblocks.

    Returns:
        0, 1 or 2.
    """
    mode_p, mode_q = p & bk.MODE_MASK, q & bk.MODE_MASK
    if mode_p == st.MODE_INTRA or mode_q == st.MODE_INTRA:
        return 0 if mode_p == mode_q and p & q & bk.BDPCM else 2
    if transform and (p | q) & bk.CIIP:
        return 2
    if transform and (p | q) & bk.CODED:
        return 1
    if not predicted:
        return 0
    if mode_p != mode_q:
        return 1
    if mode_p == st.MODE_IBC:
        return int(known[row_p, column_p].bv != known[row, column].bv)
    return int(mode_p == st.MODE_INTER and motion_differs(motion[row_p, column_p], motion[row, column]))


@compiled
def vectors_differ(p: MotionCell, q: MotionCell, list_p: int, list_q: int) -> bool:
    """Return True if two vectors differ by half a luma sample or more; an unused vector counts as zero.

    Part of clause 8.8.3.5, Derivation process of boundary filtering strength.
    """
    x = y = 0
    if p.slot[list_p] >= 0:
        x, y = int64(p.mv[list_p].x), int64(p.mv[list_p].y)
    if q.slot[list_q] >= 0:
        x, y = x - q.mv[list_q].x, y - q.mv[list_q].y
    return abs(x) >= 8 or abs(y) >= 8


@compiled
def motion_differs(p: MotionCell, q: MotionCell) -> bool:
    """Return True if two inter blocks have other reference pictures or vectors.

    Part of clause 8.8.3.5, Derivation process of boundary filtering strength.
    """
    if (
        p.slot[0] == q.slot[0]
        and p.slot[1] == q.slot[1]
        and not vectors_differ(p, q, 0, 0)
        and not vectors_differ(p, q, 1, 1)
    ):
        return False
    if p.slot[0] == q.slot[1] and p.slot[1] == q.slot[0]:
        return vectors_differ(p, q, 0, 1) or vectors_differ(p, q, 1, 0)
    return True


@compiled
def chroma_edge(known: Records, row: int, column: int, horizontal: int, edge: Edge) -> None:
    """Derive the left or upper chroma edge of a cell; `edge` is set only if there is one.

    Part of clause 8.8.3.3, Derivation process of transform block boundary.
    Part of clause 8.8.3.5, Derivation process of boundary filtering strength.
    """
    q = known[row, column].block[1]
    if not q & (bk.EDGE_TOP if horizontal else bk.EDGE_LEFT):
        return
    p = known[row - 1, column].block[1] if horizontal else known[row, column - 1].block[1]
    mode_p, mode_q = p & bk.MODE_MASK, q & bk.MODE_MASK
    if mode_p == st.MODE_INTRA or mode_q == st.MODE_INTRA:
        edge.bs_c[0] = edge.bs_c[1] = 0 if mode_p == mode_q and p & q & bk.BDPCM else 2
    elif (p | q) & bk.CIIP:
        edge.bs_c[0] = edge.bs_c[1] = 2
    else:
        edge.bs_c[0], edge.bs_c[1] = int((p | q) & bk.CODED != 0), int((p | q) & bk.CODED_CR != 0)
    at = bk.HEIGHT_AT if horizontal else bk.WIDTH_AT
    edge.max_filter_length_c = 3 if p >> at & 7 >= 3 and q >> at & 7 >= 3 else 1


def _edges_entry(sources: str) -> Callable[..., str]:
    """Compile `derive_edges`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def derive_edges(
        pic: PictureValues,
        s: SliceValues,
        known: Records,
        motion: Records,
        slices: Records,
        edges: Records,
        first: int,
        last: int,
    ) -> str:
        """Derive the edges of rows of a picture that deblocking filters, with their strengths and filter lengths.

        Clause 8.8.3.2, Deblocking filter process for one direction.

        Args:
            pic: Values of the picture.
            s: Values of a slice: virtual boundaries, and whether filters cross tiles and slices.
            known: State of the blocks, as `Frame.known`.
            motion: Motion of the blocks, as `Frame.motion`.
            slices: Values of each slice, elements of type DEBLOCKING_SLICE.
            edges: Result, elements of type EDGE that are 0 before, shape (2, rows, columns): left and upper edges of
                cells of 4x4 luma samples.
            first: First row of cells.
            last: Row of cells after the last one.

        Returns:
            Digest of the sources.
        """
        if COMPILED:
            known, motion = borrowed_records(known, BLOCK_CELL), borrowed_records(motion, MOTION_CELL)
            slices, edges = borrowed_records(slices, DEBLOCKING_SLICE), borrowed_records(edges, EDGE)
        for row in range(first, last):
            for column in range(edges.shape[2]):
                cell: BlockCell = known[row, column]
                region = cell.region[0]
                if region == 0 or slices[(region - 1) // fr.SLICE_REGIONS].disabled:
                    continue
                # Most cells have no edge of a block, and their unit has no subblocks.
                if (
                    not (cell.block[0] | cell.block[1]) & (bk.EDGE_LEFT | bk.EDGE_TOP)
                    and motion[row, column].model <= 0
                ):
                    continue
                for horizontal in range(2):
                    cell_index = row if horizontal else column
                    if cell_index == 0:
                        continue
                    boundary = s.virtual_boundary_pos_y if horizontal else s.virtual_boundary_pos_x
                    if 4 * cell_index == boundary[0] or 4 * cell_index == boundary[1] or 4 * cell_index == boundary[2]:
                        continue
                    before = known[row - horizontal, column - 1 + horizontal].region[0]
                    if not may_cross(s, slices, before, region):
                        continue
                    edge: Edge = edges[horizontal, row, column]
                    luma_edge(known, motion, row, column, horizontal, edge)
                    # Chroma is filtered at every eighth sample of chroma.
                    chroma = 4 * cell_index >> (pic.log2_sub_height_c if horizontal else pic.log2_sub_width_c)
                    if pic.sps_chroma_format_idc and chroma & 7 == 0:
                        chroma_edge(known, row, column, horizontal, edge)
        return sources

    return derive_edges


def _deblock_entry(sources: str) -> Callable[..., str]:
    """Compile `deblock`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def deblock(
        pic: PictureValues,
        known: Records,
        slices: Records,
        edges: Records,
        y: Samples,
        u: Samples,
        v: Samples,
        first: int,
        last: int,
    ) -> str:
        """Deblock rows of CTUs in place: all left edges first, then all upper ones.

        The rows above must be deblocked before. The first upper edges change up to three rows of luma above.

        Clause 8.8.3.1, Deblocking filter process.

        Args:
            pic: Values of the picture.
            known: State of the blocks, as `Frame.known`.
            slices: Values of each slice, elements of type DEBLOCKING_SLICE.
            edges: Edges, as `derive_edges` returns them.
            y: Samples of luma, row by row.
            u: Samples of Cb; without chroma any array.
            v: Samples of Cr; without chroma any array.
            first: First row of cells of 4x4 luma samples.
            last: Row of cells after the last one.

        Returns:
            Digest of the sources.
        """
        if COMPILED:
            known, slices = borrowed_records(known, BLOCK_CELL), borrowed_records(slices, DEBLOCKING_SLICE)
            edges = borrowed_records(edges, EDGE)
            y, u, v = borrowed_samples(y), borrowed_samples(u), borrowed_samples(v)
        depth, ctu = pic.bit_depth, (1 << pic.ctb_log2_size_y) - 1
        sub_x, sub_y = pic.log2_sub_width_c, pic.log2_sub_height_c
        for horizontal in range(2):
            for row in range(first, last):
                for column in range(edges.shape[2]):
                    edge: Edge = edges[horizontal, row, column]
                    chroma = edge.bs_c[0] | edge.bs_c[1]
                    if edge.bs == 0 and chroma == 0:
                        continue
                    row_p, column_p = (row - 1, column) if horizontal else (row, column - 1)
                    part = (known[row, column].region[0] - 1) // fr.SLICE_REGIONS
                    ctb_edge = horizontal == 1 and 4 * row & ctu == 0
                    if edge.bs:
                        stride = pic.stride[0]
                        across, along = (stride, 1) if horizontal else (1, stride)
                        at = 4 * row * stride + 4 * column
                        qp = (known[row_p, column_p].qp[0] + known[row, column].qp[0] + 1) >> 1
                        if pic.num_ladf_intervals:
                            qp += adapted_qp(pic, y, at, across, along)
                        keep_p = known[row_p, column_p].block[0] & bk.MODE_MASK == st.MODE_PALETTE
                        keep_q = known[row, column].block[0] & bk.MODE_MASK == st.MODE_PALETTE
                        beta, tc = slices[part].beta_offset_div2[0], slices[part].tc_offset_div2[0]
                        filter_luma(y, at, across, along, edge, qp, beta, tc, depth, ctb_edge, keep_p, keep_q)
                    if chroma == 0:
                        continue
                    keep_p = known[row_p, column_p].block[1] & bk.MODE_MASK == st.MODE_PALETTE
                    keep_q = known[row, column].block[1] & bk.MODE_MASK == st.MODE_PALETTE
                    for component in range(1, 3):
                        stride = pic.stride[component]
                        across, along = (stride, 1) if horizontal else (1, stride)
                        at = (4 * row >> sub_y) * stride + (4 * column >> sub_x)
                        lines = 4 >> sub_x if horizontal else 4 >> sub_y
                        qp = (known[row_p, column_p].qp[component] + known[row, column].qp[component] + 1) >> 1
                        qp -= 6 * (depth - 8)
                        strength, large = int64(edge.bs_c[component - 1]), edge.max_filter_length_c == 3
                        beta = slices[part].beta_offset_div2[component]
                        tc = slices[part].tc_offset_div2[component]
                        s = u if component == 1 else v
                        filter_chroma(
                            s, at, across, along, lines, strength, large, qp, beta, tc, depth, ctb_edge, keep_p, keep_q
                        )
        return sources

    return deblock


_SOURCES = source_digest(Path(__file__).parents[1])
derive_edges, deblock = _edges_entry(_SOURCES), _deblock_entry(_SOURCES)
