"""Columns of the tables that the row engine's compiled loops read.

Loops compiled by numba need columns as literal numbers; these enumerations name them.
"""

from enum import IntEnum


class Op(IntEnum):
    """Columns of the table of operations, int64.

    - LAG: rows by which the operation is behind the first one.
    - ROWS, PIXELS: size of the result; pixels that are computed as one (`Step.joined`) count as one.
    - BLOCKS: blocks of sixteen output channels.
    - FIRST, END: range of its rows in the table of parts.
    - KIND: kind of the sums, INTEGER_SUMS, SPLIT_SUMS, CHANNEL_SUMS or PAIR_SUMS.
    - CHUNK: bytes of a row of pixels that are multiplied at a time, a multiple of 4.
    - OFFSET, SCALE, BIAS: addresses of an int32, a float32 and a float32 for each output channel.
    - ADDED: how the tensor to add is stored; then the address of its row 0, bytes from row to row, rows in the ring
      buffer, bytes from pixel to pixel, the zero point, and the rows and pixels that are skipped.
    - FACTOR, SHIFT: addresses of a modulation's factors and offsets for each output channel, or 0.
    - STORED: how the result is stored; then the same columns as of the tensor to add.
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
    STORED = 20
    STORED_AT = 21
    STORED_ROW = 22
    STORED_RING = 23
    STORED_PIXEL = 24
    STORED_ZERO = 25


class Part(IntEnum):
    """Columns of the table of tensors that convolutions multiply, int64.

    - KIND: how the tensor is stored.
    - AT, ROW, RING, PIXEL: address, bytes from row to row, rows in the ring buffer, bytes from pixel to pixel.
    - ROWS: rows of the tensor; outside them row number RING is read, which holds zeros.
    - TAPS, ABOVE: rows of the kernel, and the first of them relative to the output row.
    - CHUNKS: chunks of a row of the kernel.
    - WEIGHTS, BY_CHUNK: address of the weights, and bytes from chunk to chunk.
    - FIRST, COUNT: planes of split sums that the products are added to.
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
    """Columns of the table of rows that one output row is computed from, int64; the kernels fill it.

    - KIND, AT, PIXEL, CHUNKS, FIRST, COUNT: as of `Part`.
    - WEIGHTS, BY_CHUNK, BY_BLOCK: address of the weights of the first block, bytes from chunk to chunk and from block
      to block.
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
    """Columns of the table of an operation's float32 numbers.

    - LOW, HIGH: saturation of the sums.
    - ADDED: factor of the added tensor.
    - FINAL_LOW, FINAL_HIGH: saturation of the result, after the modulation if there is one.
    """

    LOW = 0
    HIGH = 1
    ADDED = 2
    FINAL_LOW = 3
    FINAL_HIGH = 4
