"""Properties of transform blocks that deblocking needs, stored while coding units are reconstructed (clause 8.8.3).

A block is packed into one number, `block` of `Frame.known`, in each of its cells of 4x4 luma samples: prediction mode
in two bits, then the flags below, then log2 of its width and height in samples of its component, three bits each.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, coding_unit
from codecnn.vvc.decoder.residual import chroma_qp
from codecnn.vvc.syntax import log2
from codecnn.vvc.syntax import state as st

MODE_MASK, BDPCM, CODED, CODED_CR, CIIP = 3, 4, 8, 16, 32
"""CODED is the coded flag of luma or Cb."""

EDGE_LEFT, EDGE_TOP, UNIT_LEFT, UNIT_TOP = 64, 128, 256, 512
"""EDGE_LEFT and EDGE_TOP mark the edges of a transform block, UNIT_LEFT and UNIT_TOP those of a coding unit."""

WIDTH_AT, HEIGHT_AT = 10, 13
"""Lowest bits of log2 of width and height."""


@compiled
def store_unit(f: Frame) -> None:
    """Store the blocks of a coding unit without transform units; they are at most of the largest transform size."""
    cu = coding_unit(f)
    tree = cu.tree
    right, bottom = cu.x + cu.width, cu.y + cu.height
    width, height = min(cu.width, f.pic.max_tb_size_y), min(cu.height, f.pic.max_tb_size_y)
    for y in range(cu.y, bottom, height):
        for x in range(cu.x, right, width):
            if tree != st.DUAL_CHROMA:
                store_luma_block(f, x, y, width, height, 0)
            if tree != st.DUAL_LUMA and f.pic.sps_chroma_format_idc:
                store_chroma_block(f, x, y, width, height, 0, 0)


@compiled
def store_luma_block(f: Frame, x: int, y: int, width: int, height: int, coded: int) -> None:
    """Store a luma transform block of the current unit.

    Args:
        f: State of the picture.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block.
        height: Height of the block.
        coded: 1 if the block has a residual, else 0.
    """
    cu = coding_unit(f)
    block = packed_block(f, cu.intra_bdpcm_luma_flag, log2(width), log2(height)) | coded * CODED
    vector = 0
    if cu.pred_mode == st.MODE_IBC:
        vector = (cu.bv.x + 8192) << 14 | (cu.bv.y + 8192)
    put_block(f, 0, block, x, y, width, height)
    for row in range(y >> 2, (y + height + 3) >> 2):
        for column in range(x >> 2, (x + width + 3) >> 2):
            f.known[row, column].bv = vector
            f.known[row, column].qp[0] = cu.qp_y


@compiled
def store_chroma_block(f: Frame, x: int, y: int, width: int, height: int, coded: int, joint: int) -> None:
    """Store the transform blocks of Cb and Cr of the current unit.

    Args:
        f: State of the picture.
        x: Column of the blocks in luma samples.
        y: Row of the blocks in luma samples.
        width: Width of the blocks in luma samples.
        height: Height of the blocks in luma samples.
        coded: Bit 0: Cb has a residual; bit 1: Cr has one.
        joint: `TransformUnit.joint`.
    """
    cu = coding_unit(f)
    block = packed_block(
        f, cu.intra_bdpcm_chroma_flag, log2(width >> f.pic.log2_sub_width_c), log2(height >> f.pic.log2_sub_height_c)
    )
    if coded & 1 or joint:
        block |= CODED
    if coded & 2 or joint:
        block |= CODED_CR
    put_block(f, 1, block, x, y, width, height)
    qp_cb, qp_cr = chroma_qp(f, 1, joint), chroma_qp(f, 2, joint)
    for row in range(y >> 2, (y + height + 3) >> 2):
        for column in range(x >> 2, (x + width + 3) >> 2):
            f.known[row, column].qp[1] = qp_cb
            f.known[row, column].qp[2] = qp_cr


@compiled
def packed_block(f: Frame, bdpcm: int, log2_w: int, log2_h: int) -> int:
    """Pack the properties of a block without coded and edge flags."""
    cu = coding_unit(f)
    mode = cu.pred_mode
    block: int = mode | log2_w << WIDTH_AT | log2_h << HEIGHT_AT
    if bdpcm:
        block |= BDPCM
    if mode == st.MODE_INTER and cu.ciip_flag:
        block |= CIIP
    return block


@compiled
def put_block(f: Frame, chroma: int, block: int, x: int, y: int, width: int, height: int) -> None:
    """Store a packed luma block (`chroma` 0) or chroma block (1) with its edge flags in the cells that it covers."""
    known, cu = f.known, coding_unit(f)
    left, top = x >> 2, y >> 2
    # Blocks narrower than four samples share a cell, whose edges are those of the first of them.
    first_edges = EDGE_LEFT | (UNIT_LEFT if x == cu.x else 0)
    if x & 3:
        first_edges = known[top, left].block[chroma] & (EDGE_LEFT | UNIT_LEFT)
    top_edges = EDGE_TOP | (UNIT_TOP if y == cu.y else 0)
    if y & 3:
        top_edges = known[top, left].block[chroma] & (EDGE_TOP | UNIT_TOP)
    for row in range(top, (y + height + 3) >> 2):
        for column in range(left, (x + width + 3) >> 2):
            known[row, column].block[chroma] = block
        known[row, left].block[chroma] |= first_edges
    for column in range(left, (x + width + 3) >> 2):
        known[top, column].block[chroma] |= top_edges
