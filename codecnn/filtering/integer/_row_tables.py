"""The tables that `_row_kernels` goes by: rows of int64, in which all places are addresses."""

from enum import IntEnum

import numpy as np

from codecnn.filtering.integer._emit import LANES, SUMS

NOTHING, BYTES, HALVES, WORDS, FLOATS = range(5)
"""How a tensor is kept: not at all, as bytes less a zero point, as numbers of 16 bits whose bytes AMX multiplies or
which VPDPWSSD does, as float32."""
SIZE = {BYTES: 1, HALVES: 2, WORDS: 2, FLOATS: 4}
"""Bytes of a number."""
WHOLE, SPLIT, OWN = range(3)
"""What sums are: integers; integers times 2^8, 1 and 2^16, one plane each; float32, of each channel's own weights."""
PLAIN, DOTS, TILES = range(3)
"""What multiplies bytes: loops, VPDPBUSD, AMX."""
ROW = 4 * LANES
SEGMENT = 4 * LANES
PLANE = ROW * SEGMENT
"""Bytes of the sums of a pixel, pixels of a row that are worked on at a time, and bytes of their sums."""


class Op(IntEnum):
    """A convolution and what becomes of its sums.

    LAG                   how many rows it is behind the first operation
    ROWS, PIXELS          what it makes
    BLOCKS                of sixteen output channels
    FIRST, END            its parts
    KIND                  of its sums: WHOLE, SPLIT or OWN
    CHUNK                 bytes of a row of pixels that are multiplied at a time, a multiple of 4
    OFFSET, SCALE, BIAS   of each output channel: int32, float32, float32
    ADDED...              the tensor that is added: how it is kept, row 0, bytes from row to row, rows that are
                          there, bytes from pixel to pixel, zero point, and what to skip of rows and pixels
    FACTOR, SHIFT         of each output channel, where it is modulated; 0 where not
    MADE...               the tensor that it makes, likewise
    """

    LAG = 0
    ROWS = 1
    PIXELS = 2
    BLOCKS = 3
    FIRST = 4
    END = 5
    KIND = 6
    CHUNK = 7
    OFFSET = 8
    SCALE = 9
    BIAS = 10
    ADDED = 11
    ADDED_AT = 12
    ADDED_ROW = 13
    ADDED_RING = 14
    ADDED_PIXEL = 15
    ADDED_ZERO = 16
    ADDED_SKIP = 17
    FACTOR = 18
    SHIFT = 19
    MADE = 20
    MADE_AT = 21
    MADE_ROW = 22
    MADE_RING = 23
    MADE_PIXEL = 24
    MADE_ZERO = 25


class Part(IntEnum):
    """A tensor that a convolution multiplies, its own or a part of a concatenation.

    KIND                  how it is kept
    AT, ROW, RING, PIXEL  as of `Op`
    ROWS                  that it has; beyond them the row numbered RING is read, of zeros
    TAPS, ABOVE           rows of the kernel, and the first of them counted from the row that is made
    CHUNKS                of a row of the kernel
    WEIGHTS, BY_CHUNK     by block, row of the kernel and chunk, and bytes from chunk to chunk
    FIRST, COUNT          of its block's sums, where they are split
    """

    KIND = 0
    AT = 1
    ROW = 2
    RING = 3
    PIXEL = 4
    ROWS = 5
    TAPS = 6
    ABOVE = 7
    CHUNKS = 8
    WEIGHTS = 9
    BY_CHUNK = 10
    FIRST = 11
    COUNT = 12


class Tap(IntEnum):
    """A row of a tensor that a row of the kernel is multiplied with.

    KIND, AT, PIXEL, CHUNKS, FIRST, COUNT  as of `Part`
    WEIGHTS, BY_CHUNK, BY_BLOCK            of the first block, and bytes from chunk to chunk and from block to block
    """

    KIND = 0
    AT = 1
    PIXEL = 2
    CHUNKS = 3
    WEIGHTS = 4
    BY_CHUNK = 5
    BY_BLOCK = 6
    FIRST = 7
    COUNT = 8


class Number(IntEnum):
    """The float32 numbers of an operation: saturation, what the added tensor is multiplied by, saturation behind
    the modulation."""

    LOW = 0
    HIGH = 1
    ADDED = 2
    LOW_AFTER = 3
    HIGH_AFTER = 4


SHAPES = np.zeros((17, 64), np.uint8)
"""By chunk in units of four bytes: palette 1, and of each tile the bytes of a row and the rows."""
for _quads in range(1, 17):
    SHAPES[_quads, 0] = 1
    SHAPES[_quads, 16:32].view(np.uint16)[:] = [*[64] * (2 * SUMS), 4 * _quads, 64]
    SHAPES[_quads, 48:56] = [*[16] * (2 * SUMS), 16, _quads]
