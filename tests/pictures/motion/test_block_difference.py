"""Sums of squared differences in vector operations against the plain form."""

import numba
import numpy as np
import pytest

from codecnn.base.compiled import COMPILED
from codecnn.pictures.motion.block_difference import plain_difference, vector_difference

pytestmark = pytest.mark.skipif(not COMPILED, reason="needs compiled code: unset NUMBA_DISABLE_JIT")


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize(("dtype", "peak"), [(np.uint8, 255), (np.uint16, 1023), (np.uint16, 4095)])
def test_vectors_and_plain_form_agree(size, dtype, peak):
    vector = vector_difference(size)

    @numba.njit
    def compiled(first, offset, stride, second, other, other_stride):
        return vector(first, offset, stride, second, other, other_stride)

    plain = plain_difference(size)
    rng = np.random.default_rng(size)
    first = rng.integers(0, peak + 1, (40, 51)).astype(dtype)
    second = rng.integers(0, peak + 1, (2, 30, 37)).astype(dtype)
    for _ in range(50):
        # The last sample of the last row is the last one of the array at the largest offset.
        offset = int(rng.integers(first.size - (size - 1) * 51 - size + 1))
        other = int(rng.integers(second.size - (size - 1) * 37 - size + 1))
        arguments = first, offset, 51, second, other, 37
        assert compiled(*arguments) == plain(*arguments)
    black, white = np.zeros((size, size), dtype), np.full((size, size), peak, dtype)
    assert compiled(black, 0, size, white, 0, size) == size * size * peak * peak
