"""Instructions of a processor that numba has no Python for: sixteen numbers a pixel, and products of tiles of bytes.

Written as LLVM's own operations, for compiled functions to call. Addresses are int64; numbers are those of four pixels,
`pixel` bytes apart, float32, all of them whole where they stand for integers, or 32-bit integers on the way to that.
Tiles are those of AMX (Intel,
"Architecture Instruction Set Extensions Programming Reference", chapter 3): 0 to 3 hold 16x16 sums of 32 bits, 4 and 5
sixteen pixels of unsigned bytes, 6 and 7 signed weights in groups of four rows.
"""

import ctypes
import functools
import inspect
import os
import platform
from collections.abc import Callable
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
    for first in range(0, PIXELS * LANES, LANES):
        own = _order(builder, x, x, range(first, first + LANES))
        builder.store(own, _at(builder, address, own.type), align=1)
        address = builder.add(address, pixel)


def _narrowed(builder: Any, x: Any, bits: int) -> Any:
    return builder.trunc(x, ir.VectorType(ir.IntType(bits), x.type.count))


@_operation(numbers, types.int64)
def by_channel(builder: Any, address: Any) -> Any:
    """Sixteen float32 numbers, the same for all pixels."""
    own = _loaded(builder, address, _F32)
    return _order(builder, own, own, [*range(LANES)] * PIXELS)


@_operation(numbers, types.int64)
def own_sums(builder: Any, address: Any) -> Any:
    """Sums of float32."""
    return _loaded(builder, address, _FLOATS)


@_operation(numbers, types.int64)
def whole_sums(builder: Any, address: Any) -> Any:
    """Sums of 32 bits."""
    return builder.sitofp(_loaded(builder, address, _INTEGERS), _FLOATS)


@_operation(numbers, types.int64, types.int64, types.int64)
def split_sums(builder: Any, high: Any, middle: Any, low: Any) -> Any:
    """2^16 times the sums at the first address, 2^8 times those at the second, and those at the third.

    They wrap around at 32 bits, beyond which their total does not go.
    """
    total = builder.shl(_loaded(builder, high, _INTEGERS), _all(8))
    total = builder.shl(builder.add(total, _loaded(builder, middle, _INTEGERS)), _all(8))
    return builder.sitofp(builder.add(total, _loaded(builder, low, _INTEGERS)), _FLOATS)


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


@_operation(integers, numbers, types.int32, types.int32)
def rounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    """x, below 2^31, rounded to the nearest integer, halves to the even one, and saturated."""
    whole = _called(builder, f"llvm.lrint.v{_INTEGERS.count}i32.v{_FLOATS.count}f32", _INTEGERS, x)
    for sign, bound in (("<", low), (">", high)):
        limit = _same(builder, bound, _INTEGERS)
        whole = builder.select(builder.icmp_signed(sign, whole, limit), limit, whole)
    return whole


@_operation(numbers, integers)
def as_floats(builder: Any, x: Any) -> Any:
    return builder.sitofp(x, _FLOATS)


@_operation(types.none, types.int64, types.int64, integers)
def write_floats(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    _to_pixels(builder, address, pixel, builder.sitofp(x, _FLOATS))


@_operation(types.none, types.int64, types.int64, integers, types.int32)
def write_bytes(builder: Any, address: Any, pixel: Any, x: Any, zero: Any) -> None:
    """Integers as bytes with a zero point, into which they fit."""
    _to_pixels(builder, address, pixel, _narrowed(builder, builder.add(x, _same(builder, zero, _INTEGERS)), 8))


@_operation(types.none, types.int64, types.int64, integers)
def write_words(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    """Integers of 16 bits."""
    _to_pixels(builder, address, pixel, _narrowed(builder, x, 16))


@_operation(types.none, types.int64, types.int64, integers)
def write_halves(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    """Integers as `read_halves` reads them."""
    _to_pixels(builder, address, pixel, _narrowed(builder, builder.add(x, _all(HALVES_ZERO)), 16))


def _adding(kind: Any, step: int | None, add: Callable[..., Any]) -> Callable[[int, int, int, int, int], None]:
    """What adds to the sums (16, 16) of sixteen pixels those of `count` vectors of weights.

    `add(builder, total, address, weights)` adds one pixel's of one vector. Pixels are `pixel` bytes apart; from one
    vector to the next the address moves on by `step` bytes, or by a pixel.
    """

    @_operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64)
    def add_products(builder: Any, at: Any, pixel: Any, weights: Any, count: Any, sums: Any) -> None:
        rows = [builder.add(sums, ir.Constant(sums.type, 4 * LANES * row)) for row in range(LANES)]
        places = [builder.add(at, builder.mul(pixel, ir.Constant(pixel.type, row))) for row in range(LANES)]
        sums_now = (_loaded(builder, row, kind) for row in rows)
        totals = [cgutils.alloca_once_value(builder, now) for now in sums_now]  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            across = builder.mul(loop.index, pixel if step is None else ir.Constant(count.type, step))
            behind = builder.mul(loop.index, ir.Constant(count.type, 4 * LANES))
            own = _loaded(builder, builder.add(weights, behind), kind)
            for place, total in zip(places, totals, strict=True):
                builder.store(add(builder, builder.load(total), builder.add(place, across), own), total)
        for row, total in zip(rows, totals, strict=True):
            builder.store(builder.load(total), _at(builder, row, kind), align=1)

    return add_products


def _dotted(name: str) -> Callable[..., Any]:
    def add(builder: Any, total: Any, address: Any, weights: Any) -> Any:
        if not _features().get("avx512vnni"):
            return total  # compiled, and never run
        dots = ir.InlineAsm(ir.FunctionType(_I32, [_I32] * 3), f"{name} $3, $2, $0", "=v,0,v,v")
        return builder.call(dots, [total, _same(builder, _loaded(builder, address, ir.IntType(32)), _I32), weights])

    return add


def _weighted(builder: Any, total: Any, address: Any, weights: Any) -> Any:
    return _times(builder, _loaded(builder, address, _F32), weights, total)


# Groups of four unsigned bytes by signed ones, pairs of numbers of 16 bits, and pixels side by side of float32, each
# channel of its own.
add_dots = _adding(_I32, 4, _dotted("vpdpbusd"))
add_words = _adding(_I32, 4, _dotted("vpdpwssd"))
add_weighted = _adding(_F32, None, _weighted)


@_operation(types.none, types.int64)
def shape_tiles(builder: Any, address: Any) -> None:
    """Rows and bytes of all tiles, from 64 bytes as LDTILECFG reads them."""
    _called_on_tiles(builder, "llvm.x86.ldtilecfg", _at(builder, address, _BYTE))


@_operation(types.none)
def release_tiles(builder: Any) -> None:
    _called_on_tiles(builder, "llvm.x86.tilerelease")


def _tile(number: int) -> Any:
    return ir.Constant(_BYTE, number)


def _clearing(number: int) -> Callable[[], None]:
    @_operation(types.none)
    def clear_tile(builder: Any) -> None:
        _called_on_tiles(builder, "llvm.x86.tilezero", _tile(number))

    return clear_tile


def _moving(name: str, number: int) -> Callable[[int, int], None]:
    @_operation(types.none, types.int64, types.int64)
    def move_tile(builder: Any, address: Any, stride: Any) -> None:
        _called_on_tiles(builder, name, _tile(number), _at(builder, address, _BYTE), stride)

    return move_tile


def _multiplying(total: int, a: int, b: int) -> Callable[[], None]:
    @_operation(types.none)
    def multiply_tiles(builder: Any) -> None:
        _called_on_tiles(builder, "llvm.x86.tdpbusd", _tile(total), _tile(a), _tile(b))

    return multiply_tiles


clear_0, clear_1 = (_clearing(number) for number in range(2))
load_0, load_1, load_2, load_3 = (_moving("llvm.x86.tileloadd64", number) for number in range(4))
store_0, store_1, store_2, store_3 = (_moving("llvm.x86.tilestored64", number) for number in range(4))
load_4, load_5, load_6, load_7 = (_moving("llvm.x86.tileloadd64", number) for number in range(4, 8))
_PRODUCTS = ((0, 4, 6), (1, 4, 7), (2, 4, 6), (3, 4, 7), (2, 5, 6), (3, 5, 7))
add_046, add_147, add_246, add_347, add_256, add_357 = (_multiplying(*of) for of in _PRODUCTS)
