"""Convolutions of the row engine in registers, as LLVM code: sums of a few pixels, which are finished at once.

`convolve_one_block`, `convolve_two_blocks`, `convolve_three_blocks` and `convolve_split` multiply bytes or 16-bit
numbers with AVX-512 VNNI. The sums stay in registers from the first tap to the last. Four bytes of a pixel are loaded
once for all blocks of channels, and a vector of weights once for all pixels. AMD's Zen 4, which multiplies one vector
in a cycle and adds to the same sums again after four, is kept busy by four pixels and two blocks.

`convolve_channels` convolves each channel by itself in float32, on any processor.

Arguments of all functions: the address of the table of taps and the number of its rows, the first pixel and the end,
the first block of channels, the bytes of a chunk, and those of `RowOutput`. Pixels behind the end are computed too, up
to a multiple of those that are computed at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from codecnn.base.compiled import processor_features
from codecnn.filtering.integer.row_finish import RowOutput, join
from codecnn.filtering.integer.row_tables import Tap
from codecnn.filtering.integer.vector_ops import (
    BYTES,
    F32,
    I32,
    LANES,
    PIXELS_PER_VECTOR,
    broadcast,
    load,
    loop_over,
    multiply_add,
    offset_by,
    operation,
)

ARGUMENTS = (types.int64,) * 10
"""Types of the arguments of all functions."""
TapColumns = dict[Tap, Any]
_Convolve = Callable[[int, int, int, int, int, int, int, int, int, int], None]


def _multiply(instruction: str) -> Callable[[Any, Any, Any, Any], Any]:
    """Build a function that emits the addition of products to sums, four bytes for each sum."""

    def emit(builder: Any, sums: Any, inputs: Any, weights: Any) -> Any:
        dots = ir.InlineAsm(ir.FunctionType(I32, [I32] * 3), f"{instruction} $3, $2, $0", "=v,0,v,v")
        return builder.call(dots, [sums, inputs, weights])

    return emit


multiply_bytes = _multiply("vpdpbusd")
"""Unsigned bytes by signed bytes."""
multiply_words = _multiply("vpdpwssd")
"""Signed 16-bit numbers."""


def _convolve(pixels: int, bytes_by: Sequence[int], words_by: Sequence[int], *, split: bool = False) -> _Convolve:
    """Build a function that convolves pixels with AVX-512 VNNI.

    Args:
        pixels: Pixels that are computed at a time.
        bytes_by: Sets of sums that products of bytes are added to: one for each block of channels.
        words_by: The same for products of 16-bit numbers.
        split: Whether the sets are instead two planes of one block, the first of which counts 2^8 times.
    """

    @operation(types.none, *ARGUMENTS)
    def convolve(builder: Any, taps: Any, count: Any, start: Any, end: Any, block: Any, chunk: Any, *row: Any) -> None:
        if not processor_features().get("avx512vnni"):
            return  # the function is compiled but never called
        output = RowOutput(builder, *row)
        blocks = [offset_by(builder, block, index) for index in range(1 if split else len(bytes_by))]
        with loop_over(builder, start, end, pixels) as (x, _):
            offsets = [output.offsets(block) for block in blocks]
            sums = []
            for first in [ir.Constant(I32, [0] * LANES), *offsets] if split else offsets:
                sums.append([cgutils.alloca_once(builder, I32) for _ in range(pixels)])  # type: ignore[no-untyped-call]
                for total in sums[-1]:
                    builder.store(first, total)
            with cgutils.for_range(builder, count) as loop:
                tap = read_tap(builder, taps, loop.index)
                is_bytes = builder.icmp_signed("==", tap[Tap.KIND], ir.Constant(taps.type, BYTES))
                with builder.if_else(is_bytes) as ways:
                    kinds = (multiply_bytes, bytes_by), (multiply_words, words_by)
                    for way, (multiply, sets) in zip(ways, kinds, strict=True):
                        with way:
                            _add_tap(builder, multiply, tap, x, block, chunk, [sums[index] for index in sets], split)
            totals = [[builder.load(total) for total in totals] for totals in sums]
            if split:
                eight = ir.Constant(I32, [8] * LANES)
                totals = [[builder.add(builder.shl(high, eight), low) for high, low in zip(*totals, strict=True)]]
            parts = zip(blocks, totals, strict=True)
            output.finish([vector for block, of_block in parts for vector in vectors_of(builder, x, block, of_block)])

    return convolve


def _add_tap(
    builder: Any, multiply: Any, tap: TapColumns, x: Any, block: Any, chunk: Any, sums: Any, split: bool
) -> None:
    """Emit the addition of a tap's products to sets of sums of pixels."""
    pixel, by_block = tap[Tap.PIXEL], tap[Tap.BY_BLOCK]
    by_set = builder.mul(chunk, ir.Constant(chunk.type, LANES)) if split else by_block
    first = builder.add(tap[Tap.AT], builder.mul(x, pixel))
    first_weights = builder.add(tap[Tap.WEIGHTS], builder.mul(block, by_block))
    with cgutils.for_range(builder, tap[Tap.CHUNKS]) as chunks:
        at = builder.add(first, builder.mul(chunks.index, chunk))
        weights_at = builder.add(first_weights, builder.mul(chunks.index, tap[Tap.BY_CHUNK]))
        with cgutils.for_range(builder, builder.lshr(chunk, ir.Constant(chunk.type, 2))) as quads:
            place = offset_by(builder, at, 4, quads.index)
            weights_place = offset_by(builder, weights_at, 4 * LANES, quads.index)
            weights_places = [offset_by(builder, weights_place, index, by_set) for index in range(len(sums))]
            weights = [load(builder, at, I32) for at in weights_places]
            for index, totals in enumerate(zip(*sums, strict=True)):
                four_bytes = load(builder, offset_by(builder, place, index, pixel), ir.IntType(32))
                inputs = broadcast(builder, four_bytes, I32)
                for total, weight in zip(totals, weights, strict=True):
                    builder.store(multiply(builder, builder.load(total), inputs, weight), total)


convolve_one_block = _convolve(8, (0,), (0,))
convolve_two_blocks = _convolve(4, (0, 1), (0, 1))
convolve_three_blocks = _convolve(4, (0, 1, 2), (0, 1, 2))
convolve_split = _convolve(4, (0, 1), (1,), split=True)


@operation(types.none, *ARGUMENTS)
def convolve_channels(
    builder: Any, taps: Any, count: Any, start: Any, end: Any, block: Any, chunk: Any, *row: Any
) -> None:
    """Convolve each channel of a block by itself, 3x3, for sixteen pixels at a time."""
    output = RowOutput(builder, *row)
    with loop_over(builder, start, end, LANES) as (x, _):
        totals: list[Any] = [ir.Constant(F32, [0.0] * LANES)] * LANES
        for index in range(3):
            tap = read_tap(builder, taps, ir.Constant(taps.type, index))
            pixel = tap[Tap.PIXEL]
            at = offset_by(builder, builder.add(tap[Tap.AT], builder.mul(x, pixel)), 4 * LANES, block)
            weights_at = builder.add(tap[Tap.WEIGHTS], builder.mul(block, tap[Tap.BY_BLOCK]))
            weights = [load(builder, offset_by(builder, weights_at, 4 * LANES * column), F32) for column in range(3)]
            for column in range(LANES + 2):
                inputs = load(builder, offset_by(builder, at, column, pixel), F32)
                for shift, weight in enumerate(weights):
                    if 0 <= column - shift < LANES:
                        totals[column - shift] = multiply_add(builder, inputs, weight, totals[column - shift])
        output.finish(vectors_of(builder, x, block, totals))


def read_tap(builder: Any, taps: Any, index: Any) -> TapColumns:
    """Emit the loads of a row of the table of taps."""
    at = offset_by(builder, taps, 8 * len(Tap), index)
    return {column: load(builder, offset_by(builder, at, 8 * column), taps.type) for column in Tap}


def vectors_of(builder: Any, x: Any, block: Any, totals: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    """Emit the sums of pixels from `x` on as vectors of four, with their first pixels and the block."""
    starts = range(0, len(totals), PIXELS_PER_VECTOR)
    vectors = [join(builder, totals[start : start + PIXELS_PER_VECTOR]) for start in starts]
    return [(offset_by(builder, x, start), block, vector) for start, vector in zip(starts, vectors, strict=True)]
