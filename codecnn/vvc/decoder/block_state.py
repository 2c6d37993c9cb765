"""Properties of transform blocks that deblocking needs, stored while coding units are reconstructed (clause 8.8.3).

A block is packed into one number of `Frame.known` in each of its cells of 4x4 luma samples: prediction mode in two
bits, then the flags below, then log2 of its width and height in samples of its component, three bits each. The edge
flags of a cell say that its left or upper edge is one of the block or of the coding unit.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.residual import chroma_qp
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import log2
from codecnn.vvc.syntax import state as st

MODE_MASK, BDPCM, CODED, CODED_CR, CIIP = 3, 4, 8, 16, 32
"""CODED is the coded flag of luma or Cb."""

EDGE_LEFT, EDGE_TOP, UNIT_LEFT, UNIT_TOP = 64, 128, 256, 512
"""Edges of transform blocks and of coding units."""

WIDTH_AT, HEIGHT_AT = 10, 13
"""Lowest bits of log2 of width and height."""


@compiled
def keep_unit(f: Frame) -> None:
    """Store the blocks of a coding unit without transform units; they are at most of the largest transform size."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    tree = log[unit + lg.U_TREE]
    right, bottom = log[unit + lg.U_X] + log[unit + lg.U_W], log[unit + lg.U_Y] + log[unit + lg.U_H]
    width, height = min(log[unit + lg.U_W], p[fr.MAX_TB]), min(log[unit + lg.U_H], p[fr.MAX_TB])
    for y in range(log[unit + lg.U_Y], bottom, height):
        for x in range(log[unit + lg.U_X], right, width):
            if tree != st.DUAL_CHROMA:
                keep_luma_block(f, x, y, width, height, 0)
            if tree != st.DUAL_LUMA and p[fr.CHROMA]:
                keep_chroma_block(f, x, y, width, height, 0, 0)


@compiled
def keep_luma_block(f: Frame, x: int, y: int, width: int, height: int, coded: int) -> None:
    """Store a luma transform block of the current unit.

    Args:
        f: State of the picture.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block.
        height: Height of the block.
        coded: 1 if the block has a residual, else 0.
    """
    log, unit = f.log, f.p[fr.UNIT]
    block = packed_block(f, log[unit + lg.U_BDPCM], log2(width), log2(height)) | coded * CODED
    vector = 0
    if log[unit + lg.U_PRED_MODE] == st.MODE_IBC:
        vector = (log[unit + lg.U_VECTOR_X] + 8192) << 14 | (log[unit + lg.U_VECTOR_Y] + 8192)
    put_block(f, fr.BLOCKS, block, x, y, width, height)
    for row in range(y >> 2, (y + height + 3) >> 2):
        for column in range(x >> 2, (x + width + 3) >> 2):
            f.known[fr.VECTORS, row, column] = vector
            f.known[fr.QP_Y, row, column] = log[unit + lg.U_QP]


@compiled
def keep_chroma_block(f: Frame, x: int, y: int, width: int, height: int, coded: int, joint: int) -> None:
    """Store the transform blocks of Cb and Cr of the current unit.

    Args:
        f: State of the picture.
        x: Column of the blocks in luma samples.
        y: Row of the blocks in luma samples.
        width: Width of the blocks in luma samples.
        height: Height of the blocks in luma samples.
        coded: Bit 0: Cb has a residual; bit 1: Cr has one.
        joint: T_JOINT of the transform unit.
    """
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    block = packed_block(f, log[unit + lg.U_BDPCM_C], log2(width >> p[fr.SUB_X]), log2(height >> p[fr.SUB_Y]))
    if coded & 1 or joint:
        block |= CODED
    if coded & 2 or joint:
        block |= CODED_CR
    put_block(f, fr.BLOCKS_C, block, x, y, width, height)
    qp_cb, qp_cr = chroma_qp(f, 1, joint), chroma_qp(f, 2, joint)
    for row in range(y >> 2, (y + height + 3) >> 2):
        for column in range(x >> 2, (x + width + 3) >> 2):
            f.known[fr.QP_CB, row, column] = qp_cb
            f.known[fr.QP_CR, row, column] = qp_cr


@compiled
def packed_block(f: Frame, bdpcm: int, log2_w: int, log2_h: int) -> int:
    """Pack the properties of a block without coded and edge flags."""
    log, unit = f.log, f.p[fr.UNIT]
    mode = log[unit + lg.U_PRED_MODE]
    block: int = mode | log2_w << WIDTH_AT | log2_h << HEIGHT_AT
    if bdpcm:
        block |= BDPCM
    if mode == st.MODE_INTER and log[unit + lg.U_CIIP]:
        block |= CIIP
    return block


@compiled
def put_block(f: Frame, plane: int, block: int, x: int, y: int, width: int, height: int) -> None:
    """Store a packed block with its edge flags in the cells that it covers."""
    log, known, unit = f.log, f.known, f.p[fr.UNIT]
    left, top = x >> 2, y >> 2
    # Blocks narrower than four samples share a cell, whose edges are those of the first of them.
    first_edges = EDGE_LEFT | (UNIT_LEFT if x == log[unit + lg.U_X] else 0)
    if x & 3:
        first_edges = known[plane, top, left] & (EDGE_LEFT | UNIT_LEFT)
    top_edges = EDGE_TOP | (UNIT_TOP if y == log[unit + lg.U_Y] else 0)
    if y & 3:
        top_edges = known[plane, top, left] & (EDGE_TOP | UNIT_TOP)
    for row in range(top, (y + height + 3) >> 2):
        for column in range(left, (x + width + 3) >> 2):
            known[plane, row, column] = block
        known[plane, row, left] |= first_edges
    for column in range(left, (x + width + 3) >> 2):
        known[plane, top, column] |= top_edges
