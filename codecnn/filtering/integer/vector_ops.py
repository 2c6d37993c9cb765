"""Vector instructions of the row engine: LLVM code as functions that numba-compiled code can call.

The row engine works on vectors of 16 channels (`LANES`). `operation` turns a generator of LLVM code into a function;
the other functions here emit parts of such code. `instruction_set` says which of AMX, AVX-512 VNNI or plain loops
multiply on this processor.
"""

import ctypes
import functools
import inspect
import os
import platform
from collections.abc import Callable
from typing import Any, Literal, cast

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from codecnn.base.compiled import processor_features

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


def offset_by(builder: Any, address: Any, count: int, step: Any = 1) -> Any:
    """Emit address + count · step, where `step` is a constant or a value."""
    step = step if isinstance(step, ir.Value) else ir.Constant(address.type, step)
    return builder.add(address, builder.mul(step, ir.Constant(address.type, count)))


def loop_over(builder: Any, start: Any, end: Any, step: int) -> Any:
    """Emit a loop from start to end; the context manager yields the index and the count of steps before."""
    return cgutils.for_range_slice(builder, start, end, ir.Constant(start.type, step), start.type)


def shuffle(builder: Any, x: Any, other: Any, lanes: Any) -> Any:
    """Emit the selection of `lanes` from the concatenation of two vectors."""
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return builder.shuffle_vector(x, other, ir.Constant(kind, list(lanes)))


def broadcast(builder: Any, number: Any, kind: Any) -> Any:
    """Emit a vector with a number in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return shuffle(builder, first, undefined, [0] * kind.count)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Emit a·b + c of float32 vectors."""
    return call_intrinsic(builder, f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)
