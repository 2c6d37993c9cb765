"""Vector operations of the row engine: LLVM instructions as functions that numba-compiled code can call.

The row engine works on vectors of 16 channels (`LANES`). Its compiled loops (`row_kernels`) call three kinds of
functions from here:

- Dot products of sixteen pixels by sixteen output channels, with AVX-512 VNNI (`add_byte_products`,
  `add_word_products`), and convolutions of each channel by itself in float32 (`convolve_channels`). The AMX tiles are
  in `row_kernels`.
- Reading sums and stored tensors of four pixels (`PIXELS_PER_VECTOR`) into registers, as float32.
- Rounding, saturating and writing these registers as bytes, 16-bit numbers or floats.

Each function is written as a generator of LLVM code (`operation`). Addresses are int64, pixels are `pixel` bytes apart,
and all numbers are integers, which float32 holds exactly. `instruction_set` says which of AMX, AVX-512 VNNI or plain
loops multiply on this processor.
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
"""Channels of a pixel that are processed by one vector operation."""
PIXELS_PER_VECTOR = 4
"""Pixels that are processed by one vector operation, `LANES` channels each."""

NOTHING, BYTES, BYTE_PAIRS, WORDS, FLOATS = range(5)
"""Kinds of storage of a tensor.

NOTHING: not at all. BYTES: unsigned bytes with a zero point. BYTE_PAIRS: 16-bit numbers as two unsigned bytes, each
with zero point 128, for AMX. WORDS: signed 16-bit numbers, for VPDPWSSD and plain loops. FLOATS: float32.
"""
ELEMENT_BYTES = {BYTES: 1, BYTE_PAIRS: 2, WORDS: 2, FLOATS: 4}
"""Bytes of a stored number."""
BYTE_PAIR_ZERO = 0x8080
"""Offset of a number stored as BYTE_PAIRS: it makes both bytes unsigned, each 128 more than the signed byte."""

InstructionSet = Literal["plain", "avx512_vnni", "amx"]
"""Instruction sets that multiply bytes, slowest first; a processor that has one has those before it."""

llvmlite.binding.initialize_native_asmparser()
F32 = ir.VectorType(ir.FloatType(), LANES)
I32, I16, I8 = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 16, 8))
BYTE = ir.IntType(8)
_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158
"""Linux grants a process the use of AMX tiles on request: ARCH_REQ_XCOMP_PERM of arch_prctl on x86-64."""


@functools.cache
def processor_features() -> dict[str, bool]:
    """Return the features of the processor that code is compiled for, by LLVM's names."""
    is_host = platform.machine() in ("x86_64", "AMD64") and numba.config.CPU_NAME is None  # type: ignore[attr-defined]
    return dict(llvmlite.binding.get_host_cpu_features()) if is_host else {}


@functools.cache
def instruction_set() -> InstructionSet:
    """Return the fastest instruction set that multiplies bytes in this process.

    The environment variable ONEDNN_MAX_CPU_ISA, which limits oneDNN, limits this choice too. For AMX the function asks
    the system for the use of tiles.
    """
    features = processor_features()
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    unlimited = allowed in ("ALL", "DEFAULT")
    if not (features.get("avx512f") and features.get("avx512vnni")):
        return "plain"
    amx = platform.system() == "Linux" and features.get("amx-int8") and (unlimited or "AMX" in allowed)
    if amx and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _PERMISSION, _TILE_DATA) == 0:
        return "amx"
    return "avx512_vnni" if unlimited or allowed.startswith(("AVX512_CORE_", "AVX10")) else "plain"


def operation(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a generator of LLVM code into a function that numba-compiled code can call.

    Args:
        result: Numba type of the result; `types.none` for functions without a result.
        arguments: Numba types of the arguments.

    Returns:
        A decorator for `emit(builder, *values)`, which emits code and returns an LLVM value or None.
    """

    def decorate(emit: Callable[..., Any]) -> Callable[..., Any]:
        def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if result is types.none else value

        def typed(context: Any, *argument_types: Any) -> Any:
            return result(*arguments), lower

        typed.__name__ = typed.__qualname__ = emit.__name__
        # Numba counts arguments by the signature, and accepts no starred ones here.
        names = ["context", *(f"argument_{index}" for index in range(len(arguments)))]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        typed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return cast(Callable[..., Any], intrinsic(typed))

    return decorate


def call_intrinsic(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Emit a call of an LLVM intrinsic or function by name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, values)


def pointer_to(builder: Any, address: Any, kind: Any) -> Any:
    """Emit the conversion of an address to a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: Any, address: Any, kind: Any) -> Any:
    """Emit an unaligned load."""
    return builder.load(pointer_to(builder, address, kind), align=1)


def _shuffle(builder: Any, x: Any, other: Any, lanes: Any) -> Any:
    """Emit the selection of `lanes` from the concatenation of two vectors."""
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return builder.shuffle_vector(x, other, ir.Constant(kind, list(lanes)))


def _broadcast(builder: Any, number: Any, kind: Any) -> Any:
    """Emit a vector with a number in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return _shuffle(builder, first, undefined, [0] * kind.count)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Emit a·b + c of float32 vectors."""
    return call_intrinsic(builder, f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)


# Products of sixteen pixels by sixteen output channels.


def _dot_products(instruction: str) -> Callable[[int, int, int, int, int], None]:
    """Build a function that adds dot products to the sums (16 pixels, 16 channels) of int32.

    For each of `count` groups, four bytes of each pixel at `at` are multiplied with one vector of weights.
    """

    @operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64)
    def add_products(builder: Any, at: Any, pixel: Any, weights: Any, count: Any, sums: Any) -> None:
        if not processor_features().get("avx512vnni"):
            return  # the function is compiled but never called
        dots = ir.InlineAsm(ir.FunctionType(I32, [I32] * 3), f"{instruction} $3, $2, $0", "=v,0,v,v")
        rows = [builder.add(sums, ir.Constant(sums.type, 4 * LANES * row)) for row in range(LANES)]
        places = [builder.add(at, builder.mul(pixel, ir.Constant(pixel.type, row))) for row in range(LANES)]
        loaded_sums = (load(builder, row, I32) for row in rows)
        totals = [cgutils.alloca_once_value(builder, total) for total in loaded_sums]  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            across = builder.mul(loop.index, ir.Constant(count.type, 4))
            weight = load(builder, builder.add(weights, builder.mul(across, ir.Constant(count.type, LANES))), I32)
            for place, total in zip(places, totals, strict=True):
                four_bytes = load(builder, builder.add(place, across), ir.IntType(32))
                inputs = _broadcast(builder, four_bytes, I32)
                builder.store(builder.call(dots, [builder.load(total), inputs, weight]), total)
        for row, total in zip(rows, totals, strict=True):
            builder.store(builder.load(total), pointer_to(builder, row, I32), align=1)

    return add_products


add_byte_products = _dot_products("vpdpbusd")
"""Adds products of unsigned bytes by signed bytes, four to a group."""
add_word_products = _dot_products("vpdpwssd")
"""Adds products of signed 16-bit numbers, two to a group."""


@operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
def convolve_channels(builder: Any, above: Any, at: Any, below: Any, pixel: Any, weights: Any, sums: Any) -> None:
    """Convolve each channel by itself, 3x3, for sixteen pixels and sixteen channels in float32.

    `above`, `at` and `below` are the addresses of three rows, one pixel left of the first output pixel. `weights` are
    (3, 3, 16), and the result (16, 16) is written to `sums`.
    """
    totals: list[Any] = [ir.Constant(F32, [0.0] * LANES)] * LANES
    for row, address in enumerate((above, at, below)):
        places = [ir.Constant(weights.type, 4 * LANES * (3 * row + tap)) for tap in range(3)]
        row_weights = [load(builder, builder.add(weights, place), F32) for place in places]
        for column in range(LANES + 2):
            inputs = load(builder, address, F32)
            for tap in range(3):
                if 0 <= column - tap < LANES:
                    totals[column - tap] = _multiply_add(builder, inputs, row_weights[tap], totals[column - tap])
            address = builder.add(address, pixel)
    for index, total in enumerate(totals):
        place = builder.add(sums, ir.Constant(sums.type, 4 * LANES * index))
        builder.store(total, pointer_to(builder, place, F32), align=1)


# Registers of four pixels by sixteen channels: read, compute, round, write.

_FLOATS, _INTEGERS = (ir.VectorType(kind, PIXELS_PER_VECTOR * LANES) for kind in (ir.FloatType(), ir.IntType(32)))


class _VectorType(types.Type):
    """Numba type of the numbers of four pixels in registers, float32 or int32."""


class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS if kind is floats else _INTEGERS)  # type: ignore[no-untyped-call]


register_model(_VectorType)(_VectorModel)
floats, integers = _VectorType("floats"), _VectorType("integers")


def _constant(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * _INTEGERS.count)


def _load_pixels(builder: Any, address: Any, pixel: Any, kind: Any) -> Any:
    """Emit the load of four pixels into one vector, one after the other."""
    parts = []
    for _ in range(PIXELS_PER_VECTOR):
        parts.append(load(builder, address, kind))
        address = builder.add(address, pixel)
    while len(parts) > 1:
        both = range(2 * parts[0].type.count)
        parts = [_shuffle(builder, *pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _store_pixels(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    for first in range(0, x.type.count, LANES):
        channels = _shuffle(builder, x, x, range(first, first + LANES))
        builder.store(channels, pointer_to(builder, address, channels.type), align=1)
        address = builder.add(address, pixel)


@operation(floats, types.int64)
def read_by_channel(builder: Any, address: Any) -> Any:
    """Read sixteen float32 numbers and repeat them for all pixels."""
    channels = load(builder, address, F32)
    return _shuffle(builder, channels, channels, [*range(LANES)] * PIXELS_PER_VECTOR)


@operation(integers, types.int64)
def read_integers_by_channel(builder: Any, address: Any) -> Any:
    """Read sixteen int32 numbers and repeat them for all pixels."""
    channels = load(builder, address, I32)
    return _shuffle(builder, channels, channels, [*range(LANES)] * PIXELS_PER_VECTOR)


@operation(floats, types.int64)
def read_float_sums(builder: Any, address: Any) -> Any:
    """Read sums of float32."""
    return load(builder, address, _FLOATS)


@operation(floats, types.int64, integers)
def read_integer_sums(builder: Any, address: Any, offset: Any) -> Any:
    """Read sums of int32 and add an offset."""
    return builder.sitofp(builder.add(load(builder, address, _INTEGERS), offset), _FLOATS)


@operation(floats, types.int64, types.int64, types.int64, integers)
def read_split_sums(builder: Any, high: Any, middle: Any, low: Any, offset: Any) -> Any:
    """Read sums in three parts: 2^16 times those at `high`, 2^8 times those at `middle`, those at `low`, and `offset`.

    The parts wrap around at 32 bits, which the total does not exceed.
    """
    total = builder.shl(load(builder, high, _INTEGERS), _constant(8))
    total = builder.shl(builder.add(total, load(builder, middle, _INTEGERS)), _constant(8))
    total = builder.add(total, builder.add(load(builder, low, _INTEGERS), offset))
    return builder.sitofp(total, _FLOATS)


@operation(floats, types.int64, types.int64)
def read_floats(builder: Any, address: Any, pixel: Any) -> Any:
    """Read a tensor stored as FLOATS."""
    return _load_pixels(builder, address, pixel, F32)


@operation(floats, types.int64, types.int64, types.int32)
def read_bytes(builder: Any, address: Any, pixel: Any, zero: Any) -> Any:
    """Read a tensor stored as BYTES and subtract its zero point."""
    whole = builder.zext(_load_pixels(builder, address, pixel, I8), _INTEGERS)
    return builder.sitofp(builder.sub(whole, _broadcast(builder, zero, _INTEGERS)), _FLOATS)


@operation(floats, types.int64, types.int64)
def read_words(builder: Any, address: Any, pixel: Any) -> Any:
    """Read a tensor stored as WORDS."""
    return builder.sitofp(builder.sext(_load_pixels(builder, address, pixel, I16), _INTEGERS), _FLOATS)


@operation(floats, types.int64, types.int64)
def read_byte_pairs(builder: Any, address: Any, pixel: Any) -> Any:
    """Read a tensor stored as BYTE_PAIRS."""
    whole = builder.zext(_load_pixels(builder, address, pixel, I16), _INTEGERS)
    return builder.sitofp(builder.sub(whole, _constant(BYTE_PAIR_ZERO)), _FLOATS)


@operation(floats, floats, floats, floats)
def multiply_add(builder: Any, x: Any, factor: Any, offset: Any) -> Any:
    """Compute factor · x + offset."""
    return _multiply_add(builder, x, factor, offset)


@operation(floats, floats, floats, types.float32)
def add_scaled(builder: Any, x: Any, other: Any, factor: Any) -> Any:
    """Compute x + factor · other for one factor."""
    return _multiply_add(builder, other, _broadcast(builder, factor, _FLOATS), x)


@operation(integers, floats)
def round_to_even(builder: Any, x: Any) -> Any:
    """Round numbers below 2^31 to the nearest integer, halves to even."""
    return call_intrinsic(builder, f"llvm.lrint.v{_INTEGERS.count}i32.v{_FLOATS.count}f32", _INTEGERS, x)


def _clip(builder: Any, x: Any, low: Any, high: Any) -> Any:
    for comparison, bound in (("<", low), (">", high)):
        x = builder.select(builder.icmp_signed(comparison, x, bound), bound, x)
    return x


@operation(integers, integers, types.int32, types.int32)
def clip(builder: Any, x: Any, low: Any, high: Any) -> Any:
    """Clip integers to `low` and `high`."""
    return _clip(builder, x, *(_broadcast(builder, bound, _INTEGERS) for bound in (low, high)))


@operation(floats, integers)
def to_floats(builder: Any, x: Any) -> Any:
    """Convert integers to float32."""
    return builder.sitofp(x, _FLOATS)


def _pack(builder: Any, name: str, x: Any, other: Any, bits: int) -> Any:
    """Emit the saturation of two registers to half their bits; quarters of both alternate in the result."""
    packed = ir.VectorType(ir.IntType(bits), 2 * x.type.count)
    return call_intrinsic(builder, f"llvm.x86.avx512.{name}.512", packed, x, other)


def _pack_words(builder: Any, x: Any) -> tuple[Any, ...]:
    """Emit the saturation of integers to 16 bits, in registers as `_pack` leaves them."""
    pixels = [_shuffle(builder, x, x, range(first, first + LANES)) for first in range(0, _INTEGERS.count, LANES)]
    return tuple(_pack(builder, "packssdw", *pair, 16) for pair in zip(pixels[::2], pixels[1::2], strict=True))


def _unpack_order(builder: Any, x: Any, pixels: int) -> Any:
    """Emit the order of `pixels` packed pixels one after the other."""
    four = range(4)
    quarters = [4 * pixels * quarter + 4 * pixel + lane for pixel in range(pixels) for quarter in four for lane in four]
    return _shuffle(builder, x, x, quarters)


@operation(types.none, types.int64, types.int64, integers)
def write_floats(builder: Any, address: Any, pixel: Any, x: Any) -> None:
    """Store integers as FLOATS."""
    _store_pixels(builder, address, pixel, builder.sitofp(x, _FLOATS))


@operation(types.none, types.int64, types.int64, integers, types.int32)
def write_bytes(builder: Any, address: Any, pixel: Any, x: Any, zero: Any) -> None:
    """Store integers as BYTES with a zero point, saturated."""
    if processor_features().get("avx512bw"):
        pairs = _pack_words(builder, x)
        zeros = _broadcast(builder, builder.trunc(zero, ir.IntType(16)), pairs[0].type)
        first, second = (call_intrinsic(builder, "llvm.sadd.sat.v32i16", pair.type, pair, zeros) for pair in pairs)
        stored = _unpack_order(builder, _pack(builder, "packuswb", first, second, 8), PIXELS_PER_VECTOR)
    else:
        whole = builder.add(x, _broadcast(builder, zero, _INTEGERS))
        within = _clip(builder, whole, _constant(0), _constant(255))
        stored = builder.trunc(within, ir.VectorType(BYTE, whole.type.count))
    _store_pixels(builder, address, pixel, stored)


def _write_16_bits(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any, zero: int) -> None:
    """Emit the store of integers as 16-bit numbers, saturated, plus `zero`."""
    bits = ir.IntType(16)
    if processor_features().get("avx512bw"):
        parts = [(_unpack_order(builder, pair, 2), 2) for pair in _pack_words(builder, x)]
    else:
        whole = _clip(builder, x, *(_broadcast(builder, bound, _INTEGERS) for bound in (low, high)))
        parts = [(builder.trunc(whole, ir.VectorType(bits, whole.type.count)), PIXELS_PER_VECTOR)]
    for part, pixels in parts:
        limits = (_broadcast(builder, builder.trunc(bound, bits), part.type) for bound in (low, high))
        within = builder.add(_clip(builder, part, *limits), ir.Constant(part.type, [zero] * part.type.count))
        _store_pixels(builder, address, pixel, within)
        address = builder.add(address, builder.mul(pixel, ir.Constant(pixel.type, pixels)))


@operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_words(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Store integers as WORDS, saturated to `low` and `high`."""
    _write_16_bits(builder, address, pixel, x, low, high, 0)


@operation(types.none, types.int64, types.int64, integers, types.int32, types.int32)
def write_byte_pairs(builder: Any, address: Any, pixel: Any, x: Any, low: Any, high: Any) -> None:
    """Store integers as BYTE_PAIRS, saturated to `low` and `high`."""
    _write_16_bits(builder, address, pixel, x, low, high, BYTE_PAIR_ZERO)
