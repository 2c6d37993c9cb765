"""Instructions of a processor that numba has no Python for: sixteen numbers at a time, and products of tiles of bytes.

Written as LLVM's own operations, for compiled functions to call. Addresses are int64; sixteen numbers are float32, all
of them whole where they stand for integers, or 32-bit integers on the way to that. Tiles are those of AMX (Intel,
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
Products = Literal["tiles", "dots", "plain"]
llvmlite.binding.initialize_native_asmparser()
_F32, _I32, _I8 = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.IntType(32), ir.IntType(8)))
_BYTE = ir.IntType(8)
HALVES_ZERO = 0x8080
"""What is added to a number whose high and low byte shall be unsigned, and each 128 more than the signed one."""
_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158
"""Linux grants the registers of tiles to a process that asks: ARCH_REQ_XCOMP_PERM of arch_prctl on x86-64."""


class _Sixteen(types.Type):
    """Sixteen numbers in a register, of float32 or of 32 bits."""


class _Register(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _F32 if kind is floats16 else _I32)  # type: ignore[no-untyped-call]


register_model(_Sixteen)(_Register)
floats16, integers16 = _Sixteen("floats16"), _Sixteen("integers16")


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


def _same(builder: Any, number: Any, kind: Any) -> Any:
    """A number in all lanes."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), order)


def _all(number: int) -> Any:
    return ir.Constant(_I32, [number] * LANES)


def _times(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c."""
    return _called(builder, f"llvm.fma.v{LANES}f32", _F32, a, b, c)


@_operation(floats16, types.int64)
def floats(builder: Any, address: Any) -> Any:
    """Sixteen float32 numbers at an address."""
    return _loaded(builder, address, _F32)


@_operation(floats16, types.int64)
def sums(builder: Any, address: Any) -> Any:
    """Sums of 32 bits at an address."""
    return builder.sitofp(_loaded(builder, address, _I32), _F32)


@_operation(floats16, types.int64, types.int64, types.int64)
def sums_of_halves(builder: Any, high: Any, middle: Any, low: Any) -> Any:
    """2^16 times the sums at the first address, 2^8 times those at the second, and those at the third.

    They wrap around at 32 bits, beyond which their total does not go.
    """
    total = builder.shl(_loaded(builder, high, _I32), _all(8))
    total = builder.shl(builder.add(total, _loaded(builder, middle, _I32)), _all(8))
    return builder.sitofp(builder.add(total, _loaded(builder, low, _I32)), _F32)


@_operation(floats16, types.int64, types.int32)
def read_bytes(builder: Any, address: Any, zero: Any) -> Any:
    """Bytes less their zero point."""
    whole = builder.zext(_loaded(builder, address, _I8), _I32)
    return builder.sitofp(builder.sub(whole, _same(builder, zero, _I32)), _F32)


@_operation(floats16, types.int64, types.int64)
def read_halves(builder: Any, high: Any, low: Any) -> Any:
    """Numbers of 16 bits of which one address has the high bytes, the other the low ones, both 128 too high."""
    whole = builder.shl(builder.zext(_loaded(builder, high, _I8), _I32), _all(8))
    whole = builder.add(whole, builder.zext(_loaded(builder, low, _I8), _I32))
    return builder.sitofp(builder.sub(whole, _all(HALVES_ZERO)), _F32)


@_operation(floats16, floats16, floats16, floats16)
def scaled(builder: Any, x: Any, factor: Any, offset: Any) -> Any:
    """factor · x + offset."""
    return _times(builder, x, factor, offset)


@_operation(floats16, floats16, floats16, types.float32)
def plus(builder: Any, x: Any, other: Any, factor: Any) -> Any:
    """x + factor · other."""
    return _times(builder, other, _same(builder, factor, _F32), x)


@_operation(integers16, floats16, types.int32, types.int32)
def rounded(builder: Any, x: Any, low: Any, high: Any) -> Any:
    """x, below 2^31, rounded to the nearest integer, halves to the even one, and saturated."""
    whole = _called(builder, f"llvm.lrint.v{LANES}i32.v{LANES}f32", _I32, x)
    for sign, bound in (("<", low), (">", high)):
        limit = _same(builder, bound, _I32)
        whole = builder.select(builder.icmp_signed(sign, whole, limit), limit, whole)
    return whole


@_operation(floats16, integers16)
def as_floats(builder: Any, x: Any) -> Any:
    return builder.sitofp(x, _F32)


@_operation(types.none, types.int64, integers16)
def write_floats(builder: Any, address: Any, x: Any) -> None:
    builder.store(builder.sitofp(x, _F32), _at(builder, address, _F32), align=1)


@_operation(types.none, types.int64, integers16, types.int32)
def write_bytes(builder: Any, address: Any, x: Any, zero: Any) -> None:
    """Integers as bytes with a zero point, into which they fit."""
    whole = builder.add(x, _same(builder, zero, _I32))
    builder.store(builder.trunc(whole, _I8), _at(builder, address, _I8), align=1)


@_operation(types.none, types.int64, types.int64, integers16)
def write_halves(builder: Any, high: Any, low: Any, x: Any) -> None:
    """Integers as `read_halves` reads them."""
    whole = builder.add(x, _all(HALVES_ZERO))
    builder.store(builder.trunc(builder.lshr(whole, _all(8)), _I8), _at(builder, high, _I8), align=1)
    builder.store(builder.trunc(whole, _I8), _at(builder, low, _I8), align=1)


@_operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64)
def add_dots(builder: Any, at: Any, pixel: Any, weights: Any, quads: Any, sums: Any) -> None:
    """Add to the sums (16, 16) of sixteen pixels those of a tile of weights, `quads` groups of four bytes (VPDPBUSD).

    Pixels are `pixel` bytes apart.
    """
    if not _features().get("avx512vnni"):
        return  # compiled, and never run
    step = ir.FunctionType(_I32, [_I32] * 3)
    dots = ir.InlineAsm(step, "vpdpbusd $3, $2, $0", "=v,0,v,v")
    rows = [builder.add(sums, ir.Constant(sums.type, 4 * LANES * row)) for row in range(LANES)]
    places = [builder.add(at, builder.mul(pixel, ir.Constant(pixel.type, row))) for row in range(LANES)]
    sums_now = (_loaded(builder, row, _I32) for row in rows)
    totals = [cgutils.alloca_once_value(builder, now) for now in sums_now]  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, quads) as loop:
        across = builder.mul(loop.index, ir.Constant(quads.type, 4))
        own = _loaded(builder, builder.add(weights, builder.mul(across, ir.Constant(quads.type, LANES))), _I32)
        for place, total in zip(places, totals, strict=True):
            four = _loaded(builder, builder.add(place, across), ir.IntType(32))
            builder.store(builder.call(dots, [builder.load(total), _same(builder, four, _I32), own]), total)
    for row, total in zip(rows, totals, strict=True):
        builder.store(builder.load(total), _at(builder, row, _I32), align=1)


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
add_046, add_147, add_246, add_347 = (_multiplying(*of) for of in ((0, 4, 6), (1, 4, 7), (2, 4, 6), (3, 4, 7)))
add_156, add_257 = (_multiplying(*of) for of in ((1, 5, 6), (2, 5, 7)))
