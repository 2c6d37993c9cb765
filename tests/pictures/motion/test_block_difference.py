"""Sums of squared differences in vector operations against the plain form."""

import os
import subprocess
import sys
from pathlib import Path

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


LIMITED = """
import numpy as np
from codecnn.pictures.motion import search_motion

picture = np.random.default_rng(0).integers(0, 256, (40, 56)).astype(np.uint8)
print(search_motion(picture, np.roll(picture, (3, -9), (0, 1)), 8).tolist())
"""


def test_code_for_a_processor_without_avx_finds_the_same_vectors(tmp_path):
    with_avx, without = (
        subprocess.run(
            [sys.executable, "-c", LIMITED],
            env=os.environ | limits,
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
        )
        for limits in ({}, {"NUMBA_CPU_FEATURES": "-avx,-avx2,-avx512f", "NUMBA_CACHE_DIR": str(tmp_path)})
    )
    assert with_avx.stdout.startswith("[[["), with_avx.stderr
    assert without.stdout == with_avx.stdout, without.stderr
