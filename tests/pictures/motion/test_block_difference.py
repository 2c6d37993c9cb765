"""Sums of squared differences in vector operations against the plain form."""

import numba
import numpy as np
import pytest

from codecnn.base.compiled import COMPILED
from codecnn.pictures.motion.block_difference import (
    plain_difference,
    plain_differences,
    vector_difference,
    vector_differences,
)

pytestmark = pytest.mark.skipif(not COMPILED, reason="needs compiled code: unset NUMBA_DISABLE_JIT")


@pytest.mark.parametrize(
    ("size", "count", "vector", "plain"),
    [
        (8, 1, vector_difference(8), plain_difference(8)),
        (16, 1, vector_difference(16), plain_difference(16)),
        (8, 2, vector_differences(8), plain_differences(8)),
    ],
)
@pytest.mark.parametrize(("dtype", "peak"), [(np.uint8, 255), (np.uint16, 1023), (np.uint16, 4095)])
def test_vectors_and_plain_form_agree(size, count, vector, plain, dtype, peak):
    @numba.njit
    def compiled(first, offset, stride, second, other, other_stride):
        return vector(first, offset, stride, second, other, other_stride)

    rng = np.random.default_rng(size)
    first = rng.integers(0, peak + 1, (40, 51)).astype(dtype)
    second = rng.integers(0, peak + 1, (2, 30, 37)).astype(dtype)
    for _ in range(50):
        # The last sample of the last row is the last one of the array at the largest offset.
        offset = int(rng.integers(first.size - (size - 1) * 51 - size + 1))
        other = int(rng.integers(second.size - (size - 1) * 37 - size * count + 1))
        arguments = first, offset, 51, second, other, 37
        assert compiled(*arguments) == plain(*arguments)
    black, white = np.zeros((size, size), dtype), np.full((size, size * count), peak, dtype)
    largest = size * size * peak * peak
    assert compiled(black, 0, size, white, 0, size * count) == (largest if count == 1 else (largest, largest))
