"""Sum of squared differences of two blocks of samples, as one sequence of vector operations.

Loops over the samples of small blocks compile to code that is ten times as slow as this form with a vector for each
row, which the compiler maps to the vector instructions of any processor.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from codecnn.base.compiled import COMPILED, processor_features

Samples = npt.NDArray[Any]
"""Array of unsigned samples, C-contiguous, of any shape."""

Difference = Callable[[Samples, int, int, Samples, int, int], int]
"""Function that sums the squared differences of two square blocks, each given by an array and two indices.

Its arguments are, for each block: the array (uint8, or uint16 with samples of at most 12 bits), the index of the
block's first sample in the flat array, and the distance of two of its rows in samples.
"""

Differences = Callable[[Samples, int, int, Samples, int, int], tuple[int, int]]
"""The same for two blocks of the second array side by side, the second one a block's width to the right."""


def plain_difference(size: int) -> Difference:
    """Return the function for blocks of `size` x `size` samples in NumPy."""

    def difference(
        first: Samples, first_offset: int, first_stride: int, second: Samples, second_offset: int, second_stride: int
    ) -> int:
        rows, columns = np.arange(size)[:, None], np.arange(size)
        block = first.reshape(-1)[first_offset + rows * first_stride + columns].astype(np.int64)
        other = second.reshape(-1)[second_offset + rows * second_stride + columns].astype(np.int64)
        return int(((block - other) ** 2).sum())

    return difference


def plain_differences(size: int) -> Differences:
    """Return the function for two blocks `size` samples apart in NumPy."""
    difference = plain_difference(size)

    def differences(
        first: Samples, first_offset: int, first_stride: int, second: Samples, second_offset: int, second_stride: int
    ) -> tuple[int, int]:
        left, right = (
            difference(first, first_offset, first_stride, second, second_offset + shift, second_stride)
            for shift in (0, size)
        )
        return left, right

    return differences


def vector_difference(size: int) -> Difference:
    """Return the function for compiled code, with a vector for each row of `size` samples."""
    return cast(Difference, _vector_differences(size, 1))


def vector_differences(size: int) -> Differences:
    """Return the function for two blocks `size` samples apart, for compiled code."""
    return cast(Differences, _vector_differences(size, 2))


def _vector_differences(size: int, count: int) -> Any:
    """Return the function for `count` neighbouring blocks of the second array."""

    def typed(
        _context: Any,
        first: Any,
        _first_offset: Any,
        _first_stride: Any,
        second: Any,
        _second_offset: Any,
        _second_stride: Any,
    ) -> Any:
        index = types.int64
        result = index if count == 1 else types.UniTuple(index, count)  # type: ignore[no-untyped-call]
        return result(first, index, index, second, index, index), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = signature.args[0].dtype.bitwidth
        lanes = size // 2
        declare: Any = cgutils.get_or_insert_function
        kind = ir.FunctionType(ir.IntType(32), [ir.VectorType(ir.IntType(32), lanes)])
        add = declare(builder.module, kind, f"llvm.vector.reduce.add.v{lanes}i32")

        def rows(position: int, length: int) -> list[Any]:
            array = context.make_array(signature.args[position])(context, builder, arguments[position])
            offset, stride = arguments[position + 1], arguments[position + 2]
            samples = ir.VectorType(ir.IntType(bits), length)
            loaded = []
            for _ in range(size):
                address = builder.bitcast(builder.gep(array.data, [offset]), samples.as_pointer())
                row = builder.load(address, align=bits // 8)
                loaded.append(row if bits == 16 else builder.zext(row, ir.VectorType(ir.IntType(16), length)))
                offset = builder.add(offset, stride)
            return loaded

        total = None
        for a, b in zip(rows(0, size), rows(3, size * count), strict=True):
            repeated = _select(builder, a, [*range(size)] * count)
            square = _squares_in_pairs(builder, builder.sub(repeated, b))
            total = square if total is None else builder.add(total, square)
        blocks = [_select(builder, total, range(lanes * block, lanes * (block + 1))) for block in range(count)]
        sums = [builder.zext(builder.call(add, [block]), ir.IntType(64)) for block in blocks]
        return sums[0] if count == 1 else context.make_tuple(builder, signature.return_type, sums)

    return intrinsic(typed)


def _select(builder: Any, x: Any, lanes: Sequence[int]) -> Any:
    """Emit the selection of lanes of a vector."""
    return builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), [*lanes]))


def _squares_in_pairs(builder: Any, x: Any) -> Any:
    """Emit the sums of the squares of each two neighbouring numbers of 16 bits, which x86 has an instruction for."""
    size = x.type.count
    wide = ir.VectorType(ir.IntType(32), size // 2)
    instruction = {8: "sse2", 16: "avx2"}[size]
    if processor_features().get(instruction):
        declare: Any = cgutils.get_or_insert_function
        kind = ir.FunctionType(wide, [x.type, x.type])
        return builder.call(declare(builder.module, kind, f"llvm.x86.{instruction}.pmadd.wd"), [x, x])
    squares = []
    for first in (0, 1):
        part = builder.sext(_select(builder, x, range(first, size, 2)), wide)
        squares.append(builder.mul(part, part))
    return builder.add(*squares)


_difference, _differences = (
    (vector_difference, vector_differences) if COMPILED else (plain_difference, plain_differences)
)
difference_8 = _difference(8)
difference_16 = _difference(16)
differences_8 = _differences(8)
