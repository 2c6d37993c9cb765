"""How compiled functions come to a processor's own instructions: operations of LLVM as functions that numba calls.

Addresses are int64. What multiplies bytes, `products`, hangs on the processor.
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
from numba.extending import intrinsic

LANES = 16
"""Channels of a pixel that are worked on together."""
PIXELS = 4
"""Pixels that are."""
SUMS = 3
"""Tiles of sums that are made together."""
HALVES_ZERO = 0x8080
"""What is added to a number whose high and low byte shall be unsigned, and each 128 more than the signed one."""
Products = Literal["tiles", "dots", "plain"]
llvmlite.binding.initialize_native_asmparser()
F32 = ir.VectorType(ir.FloatType(), LANES)
I32, I16, I8 = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 16, 8))
BYTE = ir.IntType(8)
_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158
"""Linux grants the registers of tiles to a process that asks: ARCH_REQ_XCOMP_PERM of arch_prctl on x86-64."""


@functools.cache
def features() -> dict[str, bool]:
    """What the processor has that is compiled for, by LLVM's names."""
    here = platform.machine() in ("x86_64", "AMD64") and numba.config.CPU_NAME is None  # type: ignore[attr-defined]
    return dict(llvmlite.binding.get_host_cpu_features()) if here else {}


@functools.cache
def products() -> Products:
    """How compiled code multiplies bytes here.

    By AMX or AVX512_VNNI where the processor has it and ONEDNN_MAX_CPU_ISA, which limits what oneDNN uses, allows it;
    else by plain loops. Asks the system for the process's use of tiles.
    """
    found = features()
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    everything = allowed in ("ALL", "DEFAULT")
    if not (found.get("avx512f") and found.get("avx512vnni")):
        return "plain"
    tiles = platform.system() == "Linux" and found.get("amx-int8") and (everything or "AMX" in allowed)
    if tiles and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _PERMISSION, _TILE_DATA) == 0:
        return "tiles"
    return "dots" if everything or allowed.startswith(("AVX512_CORE_", "AVX10")) else "plain"


def operation(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
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


def called(builder: Any, name: str, result: Any, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, values)


def at_address(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def loaded(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(at_address(builder, address, kind), align=1)


def order(builder: Any, x: Any, other: Any, lanes: Any) -> Any:
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return builder.shuffle_vector(x, other, ir.Constant(kind, list(lanes)))


def same(builder: Any, number: Any, kind: Any) -> Any:
    """A number in all lanes."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return order(builder, first, nothing, [0] * kind.count)


def times(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c."""
    return called(builder, f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)
