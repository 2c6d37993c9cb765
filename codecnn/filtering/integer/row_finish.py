"""LLVM code that turns the sums of the row engine into a stored tensor.

`RowOutput` emits code for four pixels (`PIXELS_PER_VECTOR`) of sixteen channels: scale and bias, a tensor to add,
rounding, a modulation, saturation, store. `row_sums` emits it for sums that are still in registers;
`finish_integer_sums` and `finish_split_sums` read the sums of AMX and of plain loops from memory.

Addresses are int64, pixels are `pixel` bytes apart, and all numbers are integers, which float32 holds exactly.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from codecnn.base.compiled import processor_features
from codecnn.filtering.integer.row_tables import Number, Op
from codecnn.filtering.integer.vector_ops import (
    BYTE,
    BYTE_PAIR_ZERO,
    BYTE_PAIRS,
    BYTES,
    ELEMENT_BYTES,
    F32,
    FLOATS,
    I8,
    I16,
    I32,
    LANES,
    NOTHING,
    PIXELS_PER_VECTOR,
    WORDS,
    broadcast,
    call_intrinsic,
    load,
    loop_over,
    multiply_add,
    offset_by,
    operation,
    pointer_to,
    shuffle,
)

SUM_BYTES = 4 * LANES
"""Bytes of the sums of one pixel and one block of `LANES` channels."""
SEGMENT = 4 * LANES
"""Pixels of a row that are processed at a time."""
PLANE_BYTES = SUM_BYTES * SEGMENT
"""Bytes of the sums of a segment and one block of channels."""

_FLOATS, _INTEGERS = (ir.VectorType(kind, PIXELS_PER_VECTOR * LANES) for kind in (ir.FloatType(), ir.IntType(32)))
_COLUMN = ir.IntType(64)
_KINDS = (BYTES, WORDS, FLOATS, BYTE_PAIRS)


class RowOutput:
    """Emits code that finishes the sums of a row of an operation.

    Args:
        builder: Builder of the code.
        op: Address of the operation's row in the table of operations.
        numbers: Address of its row in the table of numbers.
        added: Address of the first pixel of the row to add.
        stored: Address of the first pixel of the row of the result.
    """

    def __init__(self, builder: Any, op: Any, numbers: Any, added: Any, stored: Any) -> None:
        self.builder, self.added, self.stored = builder, added, stored
        self.columns = {column: load(builder, offset_by(builder, op, 8 * column), _COLUMN) for column in Op}
        self.numbers = {
            number: load(builder, offset_by(builder, numbers, 4 * number), ir.FloatType()) for number in Number
        }

    def offsets(self, block: Any) -> Any:
        """Emit the load of what is added to the sums of a block of channels."""
        return load(self.builder, self._of_block(Op.OFFSET, block), I32)

    def finish(self, parts: Sequence[tuple[Any, Any, Any]]) -> None:
        """Finish the sums of several vectors: each the first of four pixels, the block of channels, and the sums.

        Sums are int32, offsets included, or float32. Most operations add and modulate nothing; their code
        has no branches from vector to vector.
        """
        builder = self.builder
        alone = builder.and_(self._is(Op.ADDED, NOTHING), self._is(Op.FACTOR, 0))
        with builder.if_else(alone) as (then, otherwise):
            with then:
                for kind in _KINDS:
                    with builder.if_then(self._is(Op.STORED, kind)):
                        for x, block, sums in parts:
                            self._write(kind, x, block, _round_to_even(builder, self._scale(block, sums)))
            with otherwise:
                for x, block, sums in parts:
                    self._finish_with_others(x, block, sums)

    def _scale(self, block: Any, sums: Any) -> Any:
        if sums.type == _INTEGERS:
            sums = self.builder.sitofp(sums, _FLOATS)
        return multiply_add(self.builder, sums, self._by_channel(Op.SCALE, block), self._by_channel(Op.BIAS, block))

    def _finish_with_others(self, x: Any, block: Any, sums: Any) -> None:
        """Finish a vector of an operation that may add a tensor and modulate the result."""
        builder = self.builder
        total = cgutils.alloca_once_value(builder, self._scale(block, sums))  # type: ignore[no-untyped-call]
        scale = broadcast(builder, self.numbers[Number.ADDED], _FLOATS)
        for kind in _KINDS:
            with builder.if_then(self._is(Op.ADDED, kind)):
                added = self._read(kind, x, block)
                builder.store(multiply_add(builder, added, scale, builder.load(total)), total)
        whole = cgutils.alloca_once_value(builder, _round_to_even(builder, builder.load(total)))  # type: ignore[no-untyped-call]
        with builder.if_then(builder.not_(self._is(Op.FACTOR, 0))):
            within = builder.sitofp(self._clip(builder.load(whole), Number.LOW, Number.HIGH), _FLOATS)
            factor, shift = self._by_channel(Op.FACTOR, block), self._by_channel(Op.SHIFT, block)
            builder.store(_round_to_even(builder, multiply_add(builder, within, factor, shift)), whole)
        for kind in _KINDS:
            with builder.if_then(self._is(Op.STORED, kind)):
                self._write(kind, x, block, builder.load(whole))

    def _is(self, column: Op, value: int) -> Any:
        return self.builder.icmp_signed("==", self.columns[column], ir.Constant(_COLUMN, value))

    def _of_block(self, column: Op, block: Any) -> Any:
        """Emit the address of the numbers of a block of channels."""
        return offset_by(self.builder, self.columns[column], 4 * LANES, block)

    def _by_channel(self, column: Op, block: Any) -> Any:
        """Emit the load of a float for each channel of a block, repeated for all pixels."""
        channels = load(self.builder, self._of_block(column, block), F32)
        return join(self.builder, [channels] * PIXELS_PER_VECTOR)

    def _place(self, row: Any, pixel: Op, kind: int, x: Any, block: Any) -> Any:
        """Emit the address of pixel `x` and a block in a row."""
        at = self.builder.add(row, self.builder.mul(x, self.columns[pixel]))
        return offset_by(self.builder, at, LANES * ELEMENT_BYTES[kind], block)

    def _clip(self, x: Any, low: Number, high: Number) -> Any:
        """Emit the saturation of integers to numbers of the table."""
        bounds = (self.builder.fptosi(self.numbers[number], ir.IntType(32)) for number in (low, high))
        return _clip(self.builder, x, *(broadcast(self.builder, bound, x.type) for bound in bounds))

    def _read(self, kind: int, x: Any, block: Any) -> Any:
        """Emit the load of the tensor to add as float32."""
        builder, pixel = self.builder, self.columns[Op.ADDED_PIXEL]
        address = self._place(self.added, Op.ADDED_PIXEL, kind, x, block)
        if kind == FLOATS:
            return _load_pixels(builder, address, pixel, F32)
        if kind == WORDS:
            return builder.sitofp(builder.sext(_load_pixels(builder, address, pixel, I16), _INTEGERS), _FLOATS)
        whole = builder.zext(_load_pixels(builder, address, pixel, I8 if kind == BYTES else I16), _INTEGERS)
        zero = builder.trunc(self.columns[Op.ADDED_ZERO], ir.IntType(32))
        return builder.sitofp(builder.sub(whole, broadcast(builder, zero, _INTEGERS)), _FLOATS)

    def _write(self, kind: int, x: Any, block: Any, whole: Any) -> None:
        """Emit the store of integers, saturated."""
        builder, pixel = self.builder, self.columns[Op.STORED_PIXEL]
        address = self._place(self.stored, Op.STORED_PIXEL, kind, x, block)
        if kind == BYTES:
            zero = builder.trunc(self.columns[Op.STORED_ZERO], ir.IntType(32))
            _write_bytes(builder, address, pixel, whole, zero)
        elif kind == FLOATS:
            within = self._clip(whole, Number.FINAL_LOW, Number.FINAL_HIGH)
            _store_pixels(builder, address, pixel, builder.sitofp(within, _FLOATS))
        else:
            numbers = (self.numbers[number] for number in (Number.FINAL_LOW, Number.FINAL_HIGH))
            low, high = (builder.fptosi(number, ir.IntType(32)) for number in numbers)
            _write_16_bits(builder, address, pixel, whole, low, high, BYTE_PAIR_ZERO if kind == BYTE_PAIRS else 0)


def _finish_sums(split: bool) -> Any:
    """Build a function that finishes the sums of a block of channels in memory.

    Its arguments are the address of the sums, the first pixel and the end, the block, and those of `RowOutput`.
    """

    @operation(types.none, *[types.int64] * 8)
    def finish_sums(builder: Any, sums: Any, start: Any, end: Any, block: Any, *row: Any) -> None:
        output = RowOutput(builder, *row)
        offsets = join(builder, [output.offsets(block)] * PIXELS_PER_VECTOR)
        with loop_over(builder, start, end, PIXELS_PER_VECTOR) as (x, count):
            at = offset_by(builder, sums, PIXELS_PER_VECTOR * SUM_BYTES, count)
            total = load(builder, at, _INTEGERS)
            if split:
                low, high = (load(builder, offset_by(builder, at, PLANE_BYTES * plane), _INTEGERS) for plane in (1, 2))
                total = builder.add(builder.shl(high, _constant(8)), total)
                total = builder.add(builder.shl(total, _constant(8)), low)
            output.finish([(x, block, builder.add(total, offsets))])

    return finish_sums


finish_integer_sums = _finish_sums(False)
"""Finishes sums of int32."""
finish_split_sums = _finish_sums(True)
"""Finishes sums in three planes, which wrap around at 32 bits; the total does not exceed them."""


def _constant(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * _INTEGERS.count)


def join(builder: Any, pixels: Sequence[Any]) -> Any:
    """Emit the concatenation of the vectors of four pixels."""
    while len(pixels) > 1:
        both = range(2 * pixels[0].type.count)
        pixels = [shuffle(builder, *pair, both) for pair in zip(pixels[::2], pixels[1::2], strict=True)]
    return pixels[0]


def _load_pixels(builder: Any, address: Any, pixel: Any, kind: Any) -> Any:
    """Emit the load of four pixels into one vector, one after the other."""
    return join(
        builder, [load(builder, offset_by(builder, address, index, pixel), kind) for index in range(PIXELS_PER_VECTOR)]
    )


def _store_pixels(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    for first in range(0, x.type.count, LANES):
        channels = shuffle(builder, x, x, range(first, first + LANES))
        builder.store(channels, pointer_to(builder, address, channels.type), align=1)
        address = builder.add(address, pixel)


def _round_to_even(builder: Any, x: Any) -> Any:
    """Emit the rounding of numbers below 2^31 to the nearest integer, halves to even."""
    return call_intrinsic(builder, f"llvm.lrint.v{_INTEGERS.count}i32.v{_FLOATS.count}f32", _INTEGERS, x)


def _clip(builder: Any, x: Any, low: Any, high: Any) -> Any:
    for comparison, bound in (("<", low), (">", high)):
        x = builder.select(builder.icmp_signed(comparison, x, bound), bound, x)
    return x


def _pack(builder: Any, name: str, x: Any, other: Any, bits: int) -> Any:
    """Emit the saturation of two registers to half their bits; quarters of both alternate in the result."""
    packed = ir.VectorType(ir.IntType(bits), 2 * x.type.count)
    return call_intrinsic(builder, f"llvm.x86.avx512.{name}.512", packed, x, other)


def _pack_words(builder: Any, x: Any) -> tuple[Any, ...]:
    """Emit the saturation of integers to 16 bits, in registers as `_pack` leaves them."""
    pixels = [shuffle(builder, x, x, range(first, first + LANES)) for first in range(0, _INTEGERS.count, LANES)]
    return tuple(_pack(builder, "packssdw", *pair, 16) for pair in zip(pixels[::2], pixels[1::2], strict=True))


def _unpack_order(builder: Any, x: Any, pixels: int) -> Any:
    """Emit the order of `pixels` packed pixels one after the other."""
    four = range(4)
    quarters = [4 * pixels * quarter + 4 * pixel + lane for pixel in range(pixels) for quarter in four for lane in four]
    return shuffle(builder, x, x, quarters)


def _write_bytes(builder: Any, address: Any, pixel: Any, x: Any, zero: Any) -> None:
    """Emit the store of integers as BYTES with a zero point, saturated."""
    if processor_features().get("avx512bw"):
        pairs = _pack_words(builder, x)
        zeros = broadcast(builder, builder.trunc(zero, ir.IntType(16)), pairs[0].type)
        first, second = (call_intrinsic(builder, "llvm.sadd.sat.v32i16", pair.type, pair, zeros) for pair in pairs)
        stored = _unpack_order(builder, _pack(builder, "packuswb", first, second, 8), PIXELS_PER_VECTOR)
    else:
        whole = builder.add(x, broadcast(builder, zero, _INTEGERS))
        within = _clip(builder, whole, _constant(0), _constant(255))
        stored = builder.trunc(within, ir.VectorType(BYTE, whole.type.count))
    _store_pixels(builder, address, pixel, stored)


def _write_16_bits(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any, zero: int) -> None:
    """Emit the store of integers as 16-bit numbers, saturated, plus `zero`."""
    bits = ir.IntType(16)
    if processor_features().get("avx512bw"):
        parts = [(_unpack_order(builder, pair, 2), 2) for pair in _pack_words(builder, x)]
    else:
        whole = _clip(builder, x, *(broadcast(builder, bound, _INTEGERS) for bound in (low, high)))
        parts = [(builder.trunc(whole, ir.VectorType(bits, whole.type.count)), PIXELS_PER_VECTOR)]
    for part, pixels in parts:
        limits = (broadcast(builder, builder.trunc(bound, bits), part.type) for bound in (low, high))
        within = builder.add(_clip(builder, part, *limits), ir.Constant(part.type, [zero] * part.type.count))
        _store_pixels(builder, address, pixel, within)
        address = builder.add(address, builder.mul(pixel, ir.Constant(pixel.type, pixels)))
