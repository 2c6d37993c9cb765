"""The CTU grid, and sums and means over its blocks against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecnn.base.errors import ConfigError
from codecnn.pictures.metrics import block_sums, ctu_grid, ctu_means, ctu_sums

SEEDS = st.integers(0, 1000)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([16, 64, 128]))
def test_the_grid_covers_every_sample_once(width, height, size):
    covered = np.zeros((height, width), int)
    for x, y, w, h in ctu_grid(width, height, size):
        covered[y : y + h, x : x + w] += 1
    assert (covered == 1).all()


def _plain_sums(plane, rows, columns):
    """Sum sample by sample with Python numbers, which do not wrap around."""
    sums = [[0] * len(columns) for _ in rows]
    for y, line in enumerate(plane.tolist()):
        for x, value in enumerate(line):
            sums[sum(y >= row for row in rows) - 1][sum(x >= column for column in columns) - 1] += value
    return sums


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float64])
@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), SEEDS)
def test_block_sums_equal_a_plain_loop(dtype, width, height, seed):
    rng = np.random.default_rng(seed)
    plane = rng.integers(0, {np.bool_: 2, np.int8: 128}.get(dtype, 65536), (height, width)).astype(dtype)
    rows, columns = ([0, *np.flatnonzero(rng.random(extent - 1) < 0.3) + 1] for extent in plane.shape)
    sums = block_sums(plane, np.array(rows), np.array(columns))
    assert sums.dtype == (np.float64 if dtype == np.float64 else np.int64)
    assert sums.tolist() == _plain_sums(plane, rows, columns)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 40), SEEDS)
def test_ctu_sums_and_means_equal_those_of_slices(width, height, size, seed):
    rng = np.random.default_rng(seed)
    ctus = [np.s_[y : y + h, x : x + w] for x, y, w, h in ctu_grid(width, height, size)]
    whole = rng.integers(0, 1024, (height, width)).astype(np.uint16)
    assert ctu_sums(whole, size).tolist() == [whole[ctu].sum() for ctu in ctus]
    assert ctu_means(whole, size).tolist() == [whole[ctu].mean() for ctu in ctus]
    plane = rng.random((height, width))
    np.testing.assert_allclose(ctu_sums(plane, size), [plane[ctu].sum() for ctu in ctus])
    np.testing.assert_allclose(ctu_means(plane, size), [plane[ctu].mean() for ctu in ctus])


def test_ctu_size_0_is_refused():
    with pytest.raises(ConfigError, match="CTU size must be positive, not 0"):
        ctu_grid(64, 64, 0)
