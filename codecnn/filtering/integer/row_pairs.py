"""Convolutions of pairs of neighbouring pixels with four products instead of six (Winograd's F(2, 3)), as LLVM code.

With inputs d0 to d3 of a pair and weights g0, g1, g2 of three columns, twice the two sums are

    2 y0 = (d0 - d2) 2 g0 + (d1 + d2) (g0 + g1 + g2) + (d2 - d1) (g0 - g1 + g2)
    2 y1 = (d3 - d1) 2 g2 + (d1 + d2) (g0 + g1 + g2) - (d2 - d1) (g0 - g1 + g2)

in integers. The processor subtracts beside the products, which other units multiply. Lavin and Gray, "Fast Algorithms
for Convolutional Neural Networks", CVPR 2016.

The sums are exact: `RowPlan` takes pairs only where the factors of inputs and weights fit into 16 bits. Partial sums
may wrap around at 32 bits; twice a sum, at most 2^25, does not, and as an even number it is a float32.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from codecnn.base.compiled import processor_features
from codecnn.filtering.integer.row_finish import RowOutput
from codecnn.filtering.integer.row_sums import ARGUMENTS, multiply_words, read_tap, vectors_of
from codecnn.filtering.integer.row_tables import Tap
from codecnn.filtering.integer.vector_ops import (
    I32,
    LANES,
    PIXELS_PER_VECTOR,
    broadcast,
    load,
    loop_over,
    offset_by,
    operation,
)

_FACTORS, _BLOCKS, _PAIRS = 4, 2, PIXELS_PER_VECTOR // 2
_WORDS = ir.VectorType(ir.IntType(16), 2 * LANES)


@operation(types.none, *ARGUMENTS)
def convolve_pairs(
    builder: Any, taps: Any, count: Any, start: Any, end: Any, block: Any, pixel: Any, *row: Any
) -> None:
    """Convolve 16-bit numbers for two blocks of channels with AVX-512 VNNI; a chunk is a pixel."""
    if not processor_features().get("avx512vnni"):
        return  # the function is compiled but never called
    output = RowOutput(builder, *row)
    zeros = ir.Constant(I32, [0] * LANES)
    quads = builder.lshr(pixel, ir.Constant(pixel.type, 2))
    with loop_over(builder, start, end, PIXELS_PER_VECTOR) as (x, _):
        sums = [
            [[cgutils.alloca_once(builder, I32) for _ in range(_PAIRS)] for _ in range(_BLOCKS)]  # type: ignore[no-untyped-call]
            for _ in range(_FACTORS)
        ]
        for total in (total for of_factor in sums for of_block in of_factor for total in of_block):
            builder.store(zeros, total)
        with cgutils.for_range(builder, count) as rows:
            tap = read_tap(builder, taps, rows.index)
            at = builder.add(tap[Tap.AT], builder.mul(x, pixel))
            weights_at = builder.add(tap[Tap.WEIGHTS], builder.mul(block, tap[Tap.BY_BLOCK]))
            with cgutils.for_range(builder, quads) as loop:
                place = offset_by(builder, at, 4, loop.index)
                weights_place = offset_by(builder, weights_at, 4 * LANES, loop.index)
                inputs = []
                for index in range(PIXELS_PER_VECTOR + 2):
                    quad = load(builder, offset_by(builder, place, index, pixel), ir.IntType(32))
                    inputs.append(builder.bitcast(broadcast(builder, quad, I32), _WORDS))
                for factor, of_factor in enumerate(sums):
                    transformed = [
                        builder.bitcast(_transform(builder, factor, inputs[2 * pair : 2 * pair + 4]), I32)
                        for pair in range(_PAIRS)
                    ]
                    of_weights = offset_by(builder, weights_place, factor, tap[Tap.BY_CHUNK])
                    for index, totals in enumerate(of_factor):
                        weights = load(builder, offset_by(builder, of_weights, index, tap[Tap.BY_BLOCK]), I32)
                        for total, numbers in zip(totals, transformed, strict=True):
                            builder.store(multiply_words(builder, builder.load(total), numbers, weights), total)
        parts = []
        for index in range(_BLOCKS):
            pixels = []
            for pair in range(_PAIRS):
                left, plus, minus, right = (builder.load(sums[factor][index][pair]) for factor in range(_FACTORS))
                pixels.append(builder.add(left, builder.add(plus, minus)))
                pixels.append(builder.add(right, builder.sub(plus, minus)))
            parts += vectors_of(builder, x, offset_by(builder, block, index), pixels)
        output.finish(parts)


def _transform(builder: Any, factor: int, inputs: Any) -> Any:
    """Emit one of the four factors of a pair's inputs."""
    if factor == 1:
        return builder.add(inputs[1], inputs[2])
    first, second = {0: (0, 2), 2: (2, 1), 3: (3, 1)}[factor]
    return builder.sub(inputs[first], inputs[second])
