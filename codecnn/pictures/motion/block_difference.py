"""Sum of squared differences of two blocks of samples, as one sequence of vector operations.

Loops over the samples of small blocks compile to code that is ten times as slow as this form with a vector for each
row, which the compiler maps to the vector instructions of any processor.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from codecnn.base.compiled import COMPILED

Samples = npt.NDArray[Any]
"""Array of unsigned samples, C-contiguous, of any shape."""

Difference = Callable[[Samples, int, int, Samples, int, int], int]
"""Function that sums the squared differences of two square blocks, each given by an array and two indices.

Its arguments are, for each block: the array (uint8, or uint16 with samples of at most 12 bits), the index of the
block's first sample in the flat array, and the distance of two of its rows in samples.
"""


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


def vector_difference(size: int) -> Difference:
    """Return the function for compiled code, with a vector for each row of `size` samples."""

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
        return index(first, index, index, second, index, index), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = signature.args[0].dtype.bitwidth
        samples = ir.VectorType(ir.IntType(bits), size)
        wide = ir.VectorType(ir.IntType(32), size)
        declare: Any = cgutils.get_or_insert_function
        add = declare(builder.module, ir.FunctionType(ir.IntType(32), [wide]), f"llvm.vector.reduce.add.v{size}i32")

        def rows(position: int) -> list[Any]:
            array = context.make_array(signature.args[position])(context, builder, arguments[position])
            offset, stride = arguments[position + 1], arguments[position + 2]
            loaded = []
            for _ in range(size):
                address = builder.bitcast(builder.gep(array.data, [offset]), samples.as_pointer())
                loaded.append(builder.zext(builder.load(address, align=bits // 8), wide))
                offset = builder.add(offset, stride)
            return loaded

        total = None
        for a, b in zip(rows(0), rows(3), strict=True):
            difference = builder.sub(a, b)
            square = builder.mul(difference, difference)
            total = square if total is None else builder.add(total, square)
        return builder.zext(builder.call(add, [total]), ir.IntType(64))

    return cast(Difference, intrinsic(typed))


_difference = vector_difference if COMPILED else plain_difference
difference_8 = _difference(8)
difference_16 = _difference(16)
