"""Sixteen numbers of each of four pixels at a time, of which compiled code makes what becomes of sums.

Numbers are float32, all of them whole where they stand for integers, or 32-bit integers on the way to that. Pixels are
`pixel` bytes apart.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.extending import register_model

from codecnn.filtering.integer._emit import (
    BYTE,
    F32,
    HALVES_ZERO,
    I8,
    I16,
    I32,
    LANES,
    PIXELS,
    at_address,
    called,
    features,
    loaded,
    operation,
    order,
    same,
    times,
)

_FLOATS, _INTEGERS = (ir.VectorType(kind, PIXELS * LANES) for kind in (ir.FloatType(), ir.IntType(32)))


class _Numbers(types.Type):
    """Numbers of four pixels in registers, of float32 or of 32 bits."""


class _Registers(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS if kind is numbers else _INTEGERS)  # type: ignore[no-untyped-call]


register_model(_Numbers)(_Registers)
numbers, integers = _Numbers("numbers"), _Numbers("integers")


def _all(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * _INTEGERS.count)


def _of_pixels(builder: Any, address: Any, pixel: Any, kind: Any) -> Any:
    """What four pixels have, one behind the other."""
    parts = []
    for _ in range(PIXELS):
        parts.append(loaded(builder, address, kind))
        address = builder.add(address, pixel)
    while len(parts) > 1:
        both = range(2 * parts[0].type.count)
        parts = [order(builder, *pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _to_pixels(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    for first in range(0, x.type.count, LANES):
        own = order(builder, x, x, range(first, first + LANES))
        builder.store(own, at_address(builder, address, own.type), align=1)
        address = builder.add(address, pixel)


@operation(numbers, types.int64)
def by_channel(builder: Any, address: Any) -> Any:
    """Sixteen float32 numbers, the same for all pixels."""
    own = loaded(builder, address, F32)
    return order(builder, own, own, [*range(LANES)] * PIXELS)


@operation(numbers, types.int64)
def own_sums(builder: Any, address: Any) -> Any:
    """Sums of float32."""
    return loaded(builder, address, _FLOATS)


@operation(integers, types.int64)
def whole_by_channel(builder: Any, address: Any) -> Any:
    """Sixteen numbers of 32 bits, the same for all pixels."""
    own = loaded(builder, address, I32)
    return order(builder, own, own, [*range(LANES)] * PIXELS)


@operation(numbers, types.int64, integers)
def whole_sums(builder: Any, address: Any, offset: Any) -> Any:
    """Sums of 32 bits, and what is added to them."""
    return builder.sitofp(builder.add(loaded(builder, address, _INTEGERS), offset), _FLOATS)


@operation(numbers, types.int64, types.int64, types.int64, integers)
def split_sums(builder: Any, high: Any, middle: Any, low: Any, offset: Any) -> Any:
    """2^16 times the sums at the first address, 2^8 times those at the second, those at the third, and `offset`.

    They wrap around at 32 bits, beyond which their total does not go.
    """
    total = builder.shl(loaded(builder, high, _INTEGERS), _all(8))
    total = builder.shl(builder.add(total, loaded(builder, middle, _INTEGERS)), _all(8))
    total = builder.add(total, builder.add(loaded(builder, low, _INTEGERS), offset))
    return builder.sitofp(total, _FLOATS)


@operation(numbers, types.int64, types.int64)
def read_floats(builder: Any, address: Any, pixel: Any) -> Any:
    return _of_pixels(builder, address, pixel, F32)


@operation(numbers, types.int64, types.int64, types.int32)
def read_bytes(builder: Any, address: Any, pixel: Any, zero: Any) -> Any:
    """Bytes less their zero point."""
    whole = builder.zext(_of_pixels(builder, address, pixel, I8), _INTEGERS)
    return builder.sitofp(builder.sub(whole, same(builder, zero, _INTEGERS)), _FLOATS)


@operation(numbers, types.int64, types.int64)
def read_words(builder: Any, address: Any, pixel: Any) -> Any:
    """Numbers of 16 bits."""
    return builder.sitofp(builder.sext(_of_pixels(builder, address, pixel, I16), _INTEGERS), _FLOATS)


@operation(numbers, types.int64, types.int64)
def read_halves(builder: Any, address: Any, pixel: Any) -> Any:
    """Numbers of 16 bits whose low and high byte are both 128 too high."""
    whole = builder.zext(_of_pixels(builder, address, pixel, I16), _INTEGERS)
    return builder.sitofp(builder.sub(whole, _all(HALVES_ZERO)), _FLOATS)


@operation(numbers, numbers, numbers, numbers)
def scaled(builder: Any, x: Any, factor: Any, offset: Any) -> Any:
    """factor · x + offset."""
    return times(builder, x, factor, offset)


@operation(numbers, numbers, numbers, types.float32)
def plus(builder: Any, x: Any, other: Any, factor: Any) -> Any:
    """x + factor · other."""
    return times(builder, other, same(builder, factor, _FLOATS), x)


@operation(integers, numbers)
def rounded(builder: Any, x: Any) -> Any:
    """x, below 2^31, rounded to the nearest integer, halves to the even one."""
    return called(builder, f"llvm.lrint.v{_INTEGERS.count}i32.v{_FLOATS.count}f32", _INTEGERS, x)


def _bounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    for sign, bound in (("<", low), (">", high)):
        x = builder.select(builder.icmp_signed(sign, x, bound), bound, x)
    return x


@operation(integers, integers, types.int32, types.int32)
def bounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    return _bounded(builder, x, *(same(builder, bound, _INTEGERS) for bound in (low, high)))


@operation(numbers, integers)
def as_floats(builder: Any, x: Any) -> Any:
    return builder.sitofp(x, _FLOATS)


def _packed(builder: Any, name: str, x: Any, other: Any, bits: int) -> Any:
    """Numbers of two registers saturated to half their bits: a quarter of one, a quarter of the other, and so on."""
    made = ir.VectorType(ir.IntType(bits), 2 * x.type.count)
    return called(builder, f"llvm.x86.avx512.{name}.512", made, x, other)


def _words(builder: Any, x: Any) -> tuple[Any, ...]:
    """Integers saturated to 16 bits, in registers as `_packed` leaves them."""
    pixels = [order(builder, x, x, range(first, first + LANES)) for first in range(0, PIXELS * LANES, LANES)]
    return tuple(_packed(builder, "packssdw", *pair, 16) for pair in zip(pixels[::2], pixels[1::2], strict=True))


def _unmixed(builder: Any, x: Any, pixels: int) -> Any:
    """What was packed of so many pixels, one behind the other."""
    four = range(4)
    quarters = [4 * pixels * quarter + 4 * pixel + lane for pixel in range(pixels) for quarter in four for lane in four]
    return order(builder, x, x, quarters)


@operation(types.none, types.int64, types.int64, integers)
def write_floats(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    _to_pixels(builder, address, pixel, builder.sitofp(x, _FLOATS))


@operation(types.none, types.int64, types.int64, integers, types.int32)
def write_bytes(builder: Any, address: Any, pixel: Any, x: Any, zero: Any) -> None:
    """Integers as bytes with a zero point, saturated."""
    if features().get("avx512bw"):
        pairs = _words(builder, x)
        own = same(builder, builder.trunc(zero, ir.IntType(16)), pairs[0].type)
        first, second = (called(builder, "llvm.sadd.sat.v32i16", pair.type, pair, own) for pair in pairs)
        made = _unmixed(builder, _packed(builder, "packuswb", first, second, 8), PIXELS)
    else:
        whole = builder.add(x, same(builder, zero, _INTEGERS))
        made = builder.trunc(_bounded(builder, whole, _all(0), _all(255)), ir.VectorType(BYTE, whole.type.count))
    _to_pixels(builder, address, pixel, made)


def _write_words(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any, zero: int) -> None:
    """Integers of 16 bits, saturated, and a zero point."""
    bits = ir.IntType(16)
    if features().get("avx512bw"):
        parts = [(_unmixed(builder, pair, 2), 2) for pair in _words(builder, x)]
    else:
        whole = _bounded(builder, x, *(same(builder, bound, _INTEGERS) for bound in (low, high)))
        parts = [(builder.trunc(whole, ir.VectorType(bits, whole.type.count)), PIXELS)]
    for part, pixels in parts:
        limits = (same(builder, builder.trunc(bound, bits), part.type) for bound in (low, high))
        within = builder.add(_bounded(builder, part, *limits), ir.Constant(part.type, [zero] * part.type.count))
        _to_pixels(builder, address, pixel, within)
        address = builder.add(address, builder.mul(pixel, ir.Constant(pixel.type, pixels)))


@operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_words(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Integers of 16 bits, saturated."""
    _write_words(builder, address, pixel, x, low, high, 0)


@operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_halves(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Integers, saturated, as `read_halves` reads them."""
    _write_words(builder, address, pixel, x, low, high, HALVES_ZERO)
