"""Instructions of a processor that numba has no Python for: sixteen numbers a pixel, and products of tiles of bytes.

Written as LLVM's own operations, for compiled functions to call. Addresses are int64; numbers are those of four pixels,
`pixel` bytes apart, float32, all of them whole where they stand for integers, or 32-bit integers on the way to that.
Tiles are those of AMX (Intel,
"Architecture Instruction Set Extensions Programming Reference", chapter 3): 0 to 5 hold 16x16 sums of 32 bits, 6
sixteen pixels of unsigned bytes, 7 signed weights in groups of four rows.
"""

import ctypes
import functools
import inspect
import os
import platform
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.extending import register_model
from numba.extending import intrinsic

LANES = 16
"""Channels of a pixel that are worked on together."""
PIXELS = 4
"""Pixels that are."""
SUMS = 3
"""Tiles of sums that are made together."""
Products = Literal["tiles", "dots", "plain"]
llvmlite.binding.initialize_native_asmparser()
_F32 = ir.VectorType(ir.FloatType(), LANES)
_I32, _I16, _I8 = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 16, 8))
_FLOATS, _INTEGERS = (ir.VectorType(kind, PIXELS * LANES) for kind in (ir.FloatType(), ir.IntType(32)))
_BYTE = ir.IntType(8)
HALVES_ZERO = 0x8080
"""What is added to a number whose high and low byte shall be unsigned, and each 128 more than the signed one."""
_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158
"""Linux grants the registers of tiles to a process that asks: ARCH_REQ_XCOMP_PERM of arch_prctl on x86-64."""


class _Numbers(types.Type):
    """Numbers of four pixels in registers, of float32 or of 32 bits."""


class _Registers(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS if kind is numbers else _INTEGERS)  # type: ignore[no-untyped-call]


register_model(_Numbers)(_Registers)
numbers, integers = _Numbers("numbers"), _Numbers("integers")


@functools.cache
def _features() -> dict[str, bool]:
    """What the processor has that is compiled for, by LLVM's names."""
    here = platform.machine() in ("x86_64", "AMD64") and numba.config.CPU_NAME is None  # type: ignore[attr-defined]
    return dict(llvmlite.binding.get_host_cpu_features()) if here else {}


@functools.cache
def products() -> Products:
    """How compiled code multiplies bytes here.

    By AMX or AVX512_VNNI where the processor has it and ONEDNN_MAX_CPU_ISA, which limits what oneDNN uses, allows it;
    else by plain loops. Asks the system for the process's use of tiles.
    """
    features = _features()
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    everything = allowed in ("ALL", "DEFAULT")
    if not (features.get("avx512f") and features.get("avx512vnni")):
        return "plain"
    tiles = platform.system() == "Linux" and features.get("amx-int8") and (everything or "AMX" in allowed)
    if tiles and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _PERMISSION, _TILE_DATA) == 0:
        return "tiles"
    return "dots" if everything or allowed.startswith(("AVX512_CORE_", "AVX10")) else "plain"


def _operation(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make of `emit(builder, *values)`, which returns an LLVM value or None, a function for compiled ones to call."""

    def made(emit: Callable[..., Any]) -> Callable[..., Any]:
        def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if result is types.none else value

        def typed(context: Any, *given: Any) -> Any:
            return result(*arguments), lower

        typed.__name__ = typed.__qualname__ = emit.__name__
        # Numba counts arguments by the signature, and takes no starred ones here.
        names = ["context", *(f"argument_{index}" for index in range(len(arguments)))]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        typed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return cast(Callable[..., Any], intrinsic(typed))

    return made


def _called_on_tiles(builder: Any, name: str, *values: Any) -> None:
    if _features().get("amx-int8"):  # elsewhere it is compiled, and never run
        _called(builder, name, ir.VoidType(), *values)


def _called(builder: Any, name: str, result: Any, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, values)


def _at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(_at(builder, address, kind), align=1)


def _order(builder: Any, x: Any, other: Any, lanes: Any) -> Any:
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return builder.shuffle_vector(x, other, ir.Constant(kind, list(lanes)))


def _same(builder: Any, number: Any, kind: Any) -> Any:
    """A number in all lanes."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return _order(builder, first, nothing, [0] * kind.count)


def _all(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * _INTEGERS.count)


def _times(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c."""
    return _called(builder, f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)


def _of_pixels(builder: Any, address: Any, pixel: Any, kind: Any) -> Any:
    """What four pixels have, one behind the other."""
    parts = []
    for _ in range(PIXELS):
        parts.append(_loaded(builder, address, kind))
        address = builder.add(address, pixel)
    while len(parts) > 1:
        both = range(2 * parts[0].type.count)
        parts = [_order(builder, *pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _to_pixels(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    for first in range(0, x.type.count, LANES):
        own = _order(builder, x, x, range(first, first + LANES))
        builder.store(own, _at(builder, address, own.type), align=1)
        address = builder.add(address, pixel)


@_operation(numbers, types.int64)
def by_channel(builder: Any, address: Any) -> Any:
    """Sixteen float32 numbers, the same for all pixels."""
    own = _loaded(builder, address, _F32)
    return _order(builder, own, own, [*range(LANES)] * PIXELS)


@_operation(numbers, types.int64)
def own_sums(builder: Any, address: Any) -> Any:
    """Sums of float32."""
    return _loaded(builder, address, _FLOATS)


@_operation(integers, types.int64)
def whole_by_channel(builder: Any, address: Any) -> Any:
    """Sixteen numbers of 32 bits, the same for all pixels."""
    own = _loaded(builder, address, _I32)
    return _order(builder, own, own, [*range(LANES)] * PIXELS)


@_operation(numbers, types.int64, integers)
def whole_sums(builder: Any, address: Any, offset: Any) -> Any:
    """Sums of 32 bits, and what is added to them."""
    return builder.sitofp(builder.add(_loaded(builder, address, _INTEGERS), offset), _FLOATS)


@_operation(numbers, types.int64, types.int64, types.int64, integers)
def split_sums(builder: Any, high: Any, middle: Any, low: Any, offset: Any) -> Any:
    """2^16 times the sums at the first address, 2^8 times those at the second, those at the third, and `offset`.

    They wrap around at 32 bits, beyond which their total does not go.
    """
    total = builder.shl(_loaded(builder, high, _INTEGERS), _all(8))
    total = builder.shl(builder.add(total, _loaded(builder, middle, _INTEGERS)), _all(8))
    total = builder.add(total, builder.add(_loaded(builder, low, _INTEGERS), offset))
    return builder.sitofp(total, _FLOATS)


@_operation(numbers, types.int64, types.int64)
def read_floats(builder: Any, address: Any, pixel: Any) -> Any:
    return _of_pixels(builder, address, pixel, _F32)


@_operation(numbers, types.int64, types.int64, types.int32)
def read_bytes(builder: Any, address: Any, pixel: Any, zero: Any) -> Any:
    """Bytes less their zero point."""
    whole = builder.zext(_of_pixels(builder, address, pixel, _I8), _INTEGERS)
    return builder.sitofp(builder.sub(whole, _same(builder, zero, _INTEGERS)), _FLOATS)


@_operation(numbers, types.int64, types.int64)
def read_words(builder: Any, address: Any, pixel: Any) -> Any:
    """Numbers of 16 bits."""
    return builder.sitofp(builder.sext(_of_pixels(builder, address, pixel, _I16), _INTEGERS), _FLOATS)


@_operation(numbers, types.int64, types.int64)
def read_halves(builder: Any, address: Any, pixel: Any) -> Any:
    """Numbers of 16 bits whose low and high byte are both 128 too high."""
    whole = builder.zext(_of_pixels(builder, address, pixel, _I16), _INTEGERS)
    return builder.sitofp(builder.sub(whole, _all(HALVES_ZERO)), _FLOATS)


@_operation(numbers, numbers, numbers, numbers)
def scaled(builder: Any, x: Any, factor: Any, offset: Any) -> Any:
    """factor · x + offset."""
    return _times(builder, x, factor, offset)


@_operation(numbers, numbers, numbers, types.float32)
def plus(builder: Any, x: Any, other: Any, factor: Any) -> Any:
    """x + factor · other."""
    return _times(builder, other, _same(builder, factor, _FLOATS), x)


@_operation(integers, numbers)
def rounded(builder: Any, x: Any) -> Any:
    """x, below 2^31, rounded to the nearest integer, halves to the even one."""
    return _called(builder, f"llvm.lrint.v{_INTEGERS.count}i32.v{_FLOATS.count}f32", _INTEGERS, x)


def _bounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    for sign, bound in (("<", low), (">", high)):
        x = builder.select(builder.icmp_signed(sign, x, bound), bound, x)
    return x


@_operation(integers, integers, types.int32, types.int32)
def bounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    return _bounded(builder, x, *(_same(builder, bound, _INTEGERS) for bound in (low, high)))


@_operation(numbers, integers)
def as_floats(builder: Any, x: Any) -> Any:
    return builder.sitofp(x, _FLOATS)


def _packed(builder: Any, name: str, x: Any, other: Any, bits: int) -> Any:
    """Numbers of two registers saturated to half their bits: a quarter of one, a quarter of the other, and so on."""
    made = ir.VectorType(ir.IntType(bits), 2 * x.type.count)
    return _called(builder, f"llvm.x86.avx512.{name}.512", made, x, other)


def _words(builder: Any, x: Any) -> tuple[Any, ...]:
    """Integers saturated to 16 bits, in registers as `_packed` leaves them."""
    pixels = [_order(builder, x, x, range(first, first + LANES)) for first in range(0, PIXELS * LANES, LANES)]
    return tuple(_packed(builder, "packssdw", *pair, 16) for pair in zip(pixels[::2], pixels[1::2], strict=True))


def _unmixed(builder: Any, x: Any, pixels: int) -> Any:
    """What was packed of so many pixels, one behind the other."""
    four = range(4)
    quarters = [4 * pixels * quarter + 4 * pixel + lane for pixel in range(pixels) for quarter in four for lane in four]
    return _order(builder, x, x, quarters)


@_operation(types.none, types.int64, types.int64, integers)
def write_floats(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    _to_pixels(builder, address, pixel, builder.sitofp(x, _FLOATS))


@_operation(types.none, types.int64, types.int64, integers, types.int32)
def write_bytes(builder: Any, address: Any, pixel: Any, x: Any, zero: Any) -> None:
    """Integers as bytes with a zero point, saturated."""
    if _features().get("avx512bw"):
        pairs = _words(builder, x)
        own = _same(builder, builder.trunc(zero, ir.IntType(16)), pairs[0].type)
        first, second = (_called(builder, "llvm.sadd.sat.v32i16", pair.type, pair, own) for pair in pairs)
        made = _unmixed(builder, _packed(builder, "packuswb", first, second, 8), PIXELS)
    else:
        whole = builder.add(x, _same(builder, zero, _INTEGERS))
        made = builder.trunc(_bounded(builder, whole, _all(0), _all(255)), ir.VectorType(_BYTE, whole.type.count))
    _to_pixels(builder, address, pixel, made)


def _write_words(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any, zero: int) -> None:
    """Integers of 16 bits, saturated, and a zero point."""
    bits = ir.IntType(16)
    if _features().get("avx512bw"):
        parts = [(_unmixed(builder, pair, 2), 2) for pair in _words(builder, x)]
    else:
        whole = _bounded(builder, x, *(_same(builder, bound, _INTEGERS) for bound in (low, high)))
        parts = [(builder.trunc(whole, ir.VectorType(bits, whole.type.count)), PIXELS)]
    for part, pixels in parts:
        limits = (_same(builder, builder.trunc(bound, bits), part.type) for bound in (low, high))
        within = builder.add(_bounded(builder, part, *limits), ir.Constant(part.type, [zero] * part.type.count))
        _to_pixels(builder, address, pixel, within)
        address = builder.add(address, builder.mul(pixel, ir.Constant(pixel.type, pixels)))


@_operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_words(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Integers of 16 bits, saturated."""
    _write_words(builder, address, pixel, x, low, high, 0)


@_operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_halves(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Integers, saturated, as `read_halves` reads them."""
    _write_words(builder, address, pixel, x, low, high, HALVES_ZERO)


def _adding(name: str) -> Callable[[int, int, int, int, int], None]:
    """What adds to the sums (16, 16) of sixteen pixels the products of 32 bits of each by a vector of weights.

    There are `count` such vectors; pixels are `pixel` bytes apart.
    """

    @_operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64)
    def add_products(builder: Any, at: Any, pixel: Any, weights: Any, count: Any, sums: Any) -> None:
        if not _features().get("avx512vnni"):
            return  # compiled, and never run
        dots = ir.InlineAsm(ir.FunctionType(_I32, [_I32] * 3), f"{name} $3, $2, $0", "=v,0,v,v")
        rows = [builder.add(sums, ir.Constant(sums.type, 4 * LANES * row)) for row in range(LANES)]
        places = [builder.add(at, builder.mul(pixel, ir.Constant(pixel.type, row))) for row in range(LANES)]
        sums_now = (_loaded(builder, row, _I32) for row in rows)
        totals = [cgutils.alloca_once_value(builder, now) for now in sums_now]  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            across = builder.mul(loop.index, ir.Constant(count.type, 4))
            own = _loaded(builder, builder.add(weights, builder.mul(across, ir.Constant(count.type, LANES))), _I32)
            for place, total in zip(places, totals, strict=True):
                four = _loaded(builder, builder.add(place, across), ir.IntType(32))
                builder.store(builder.call(dots, [builder.load(total), _same(builder, four, _I32), own]), total)
        for row, total in zip(rows, totals, strict=True):
            builder.store(builder.load(total), _at(builder, row, _I32), align=1)

    return add_products


# Four unsigned bytes by signed ones, and two numbers of 16 bits.
add_dots, add_words = (_adding(name) for name in ("vpdpbusd", "vpdpwssd"))


@_operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
def weigh(builder: Any, above: Any, at: Any, below: Any, pixel: Any, weights: Any, sums: Any) -> None:
    """The sums (16, 16), float32, of sixteen pixels of three rows by weights (3, 3, 16), each channel by its own.

    Pixels are `pixel` bytes apart; the first one that is read stands above and left of the first sum's.
    """
    totals: list[Any] = [ir.Constant(_F32, [0.0] * LANES)] * LANES
    for row, address in enumerate((above, at, below)):
        places = [ir.Constant(weights.type, 4 * LANES * (3 * row + tap)) for tap in range(3)]
        own = [_loaded(builder, builder.add(weights, place), _F32) for place in places]
        for column in range(LANES + 2):
            given = _loaded(builder, address, _F32)
            for tap in range(3):
                if 0 <= column - tap < LANES:
                    totals[column - tap] = _times(builder, given, own[tap], totals[column - tap])
            address = builder.add(address, pixel)
    for index, total in enumerate(totals):
        builder.store(total, _at(builder, builder.add(sums, ir.Constant(sums.type, 4 * LANES * index)), _F32), align=1)


@_operation(types.none, types.int64)
def shape_tiles(builder: Any, address: Any) -> None:
    """Rows and bytes of all tiles, from 64 bytes as LDTILECFG reads them."""
    _called_on_tiles(builder, "llvm.x86.ldtilecfg", _at(builder, address, _BYTE))


@_operation(types.none)
def release_tiles(builder: Any) -> None:
    _called_on_tiles(builder, "llvm.x86.tilerelease")


def _tile(number: int) -> Any:
    return ir.Constant(_BYTE, number)


def _beginning(first: int) -> Callable[[], None]:
    """What sets all sums of a set of tiles, `first` and those behind, to 0."""

    @_operation(types.none)
    def begin_tiles(builder: Any) -> None:
        for own in range(SUMS):
            _called_on_tiles(builder, "llvm.x86.tilezero", _tile(first + own))

    return begin_tiles


def _each(builder: Any, address: Any, count: Any, step: Any) -> Iterator[tuple[int, Any]]:
    """The code of each of up to `SUMS` tiles, which is run for `count` of them, and its address, `step` bytes on."""
    for own in range(SUMS):
        with builder.if_then(builder.icmp_signed(">", count, ir.Constant(count.type, own))):
            yield own, builder.add(address, builder.mul(step, ir.Constant(step.type, own)))


def _adding_tiles(first: int) -> Callable[[int, int, int, int, int, int, int, int], None]:
    """What adds to `count` tiles of sums, `first` and those behind, the products of `chunks` chunks of sixteen pixels.

    Pixels are `pixel` bytes apart, chunks `chunk`; weights of one chunk are `step` bytes apart from sum to sum, and
    `by_chunk` from chunk to chunk.
    """

    @_operation(types.none, *[types.int64] * 8)
    def add_tiles(
        builder: Any,
        at: Any,
        pixel: Any,
        chunks: Any,
        chunk: Any,
        weights: Any,
        by_chunk: Any,
        step: Any,
        count: Any,
    ) -> None:
        given, own_weights = _tile(2 * SUMS), _tile(2 * SUMS + 1)
        row = ir.Constant(at.type, 4 * LANES)
        with cgutils.for_range(builder, chunks) as loop:
            here = builder.add(at, builder.mul(loop.index, chunk))
            _called_on_tiles(builder, "llvm.x86.tileloadd64", given, _at(builder, here, _BYTE), pixel)
            begin = builder.add(weights, builder.mul(loop.index, by_chunk))
            for own, place in _each(builder, begin, count, step):
                _called_on_tiles(builder, "llvm.x86.tileloadd64", own_weights, _at(builder, place, _BYTE), row)
                _called_on_tiles(builder, "llvm.x86.tdpbusd", _tile(first + own), given, own_weights)

    return add_tiles


def _storing(first: int) -> Callable[[int, int, int], None]:
    """What stores `count` tiles of sums, `first` and those behind, `plane` bytes apart."""

    @_operation(types.none, types.int64, types.int64, types.int64)
    def store_tiles(builder: Any, sums: Any, plane: Any, count: Any) -> None:
        row = ir.Constant(sums.type, 4 * LANES)
        for own, at in _each(builder, sums, count, plane):
            _called_on_tiles(builder, "llvm.x86.tilestored64", _tile(first + own), _at(builder, at, _BYTE), row)

    return store_tiles


# Two sets of sums: the products of one are made while those of the other are stored.
begin_tiles, begin_others = (_beginning(first) for first in (0, SUMS))
add_tiles, add_others = (_adding_tiles(first) for first in (0, SUMS))
store_tiles, store_others = (_storing(first) for first in (0, SUMS))
