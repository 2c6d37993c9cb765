"""Transforms and costs against scipy and their properties; fast costs of all modes against the plain ones."""

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codecnn.base.errors import ConfigError
from codecnn.vvc.intra import (
    block_costs,
    block_costs_reference,
    dct,
    dct_matrix,
    forward_transform,
    hadamard,
    kernel_matrix,
    rate_cost,
    sad,
    satd,
    selected_costs,
    sse,
)
from tests.vvc.intra.test_predict import varied_lines

SIDES = (4, 8, 16, 32, 64)


def _residual(height: int, width: int, count: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1023, 1024, (count, height, width))


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 16), (64, 64), (32, 4)])
def test_dct_equals_scipy(height: int, width: int) -> None:
    residual = _residual(height, width)
    expected = scipy.fft.dctn(residual, axes=(1, 2), norm="ortho")
    np.testing.assert_allclose(dct(residual), expected, atol=1e-9)
    np.testing.assert_allclose(dct(torch.from_numpy(residual)).numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(satd(residual, "dct"), abs(expected).sum((1, 2)))
    assert dct(torch.from_numpy(residual).float()).dtype == torch.float32


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 16), (16, 4)])
def test_hadamard_equals_scipy(height: int, width: int) -> None:
    residual = _residual(height, width)
    expected = scipy.linalg.hadamard(height) @ residual @ scipy.linalg.hadamard(width)
    np.testing.assert_array_equal(hadamard(residual), expected)
    np.testing.assert_array_equal(hadamard(torch.from_numpy(residual)).numpy(), expected)


def test_hadamard_satd_equals_the_sum_of_scipy_tiles() -> None:
    residual = _residual(16, 16)
    matrix, expected = scipy.linalg.hadamard(8), 0
    for y, x in ((0, 0), (0, 8), (8, 0), (8, 8)):
        tile = abs(matrix @ residual[:, y : y + 8, x : x + 8] @ matrix)
        tile[:, 0, 0] >>= 2
        expected = expected + ((tile.sum((1, 2)) + 2) >> 2)
    np.testing.assert_array_equal(satd(residual), expected)
    np.testing.assert_array_equal(satd(residual.astype(np.float32)), expected)


@settings(max_examples=60, deadline=None)
@given(
    side=st.sampled_from(((4, 4), (8, 8), (4, 8), (16, 16))),
    offset=st.integers(-900, 900),
    seed=st.integers(0, 2**32 - 1),
)
def test_constant_offset_changes_only_dc(side: tuple[int, int], offset: int, seed: int) -> None:
    residual = _residual(*side, count=1, seed=seed)
    area = side[0] * side[1]
    change = dct(residual + offset) - dct(residual)
    assert change[0, 0, 0] == pytest.approx(offset * area**0.5)
    change[0, 0, 0] = 0
    np.testing.assert_allclose(change, 0, atol=1e-8)
    change = hadamard(residual + offset) - hadamard(residual)
    assert change[0, 0, 0] == offset * area
    assert np.count_nonzero(change) == (offset != 0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), side=st.sampled_from(SIDES))
def test_dct_preserves_energy(seed: int, side: int) -> None:
    residual = _residual(side, side, count=1, seed=seed)
    assert (dct(residual) ** 2).sum() == pytest.approx(float(sse(residual)[0]))


def test_sad_and_sse_of_small_types() -> None:
    residual = np.full((1, 64, 64), -30000, np.int16)
    assert sad(residual)[0] == 30000 * 4096
    assert sse(residual)[0] == 30000**2 * 4096
    assert sse(torch.from_numpy(residual))[0] == 30000**2 * 4096


@pytest.mark.parametrize("side", [4, 8, 16, 32])
def test_integer_kernels_are_nearly_orthogonal(side: int) -> None:
    i = np.arange(side)
    dst7 = np.sin(np.pi * np.outer(2 * i + 1, i + 1) / (2 * side + 1)) * 2 / np.sqrt(2 * side + 1)
    for kernel, exact in (("DCT2", dct_matrix(side)), ("DST7", dst7)):
        np.testing.assert_allclose(kernel_matrix(kernel, side), exact * 64 * np.sqrt(side), atol=2.1)
    with pytest.raises(ConfigError, match="no transform DST7 of 64"):
        forward_transform(np.zeros((1, 64, 64), int), "DST7", "DCT2", 8)


def test_notebook_example_500_100_450() -> None:
    """The example of docs/howto/labels.md: MSE and transform cost rank the same predictions in opposite order."""
    original = np.full((8, 8), 500)
    row, column = np.mgrid[:8, :8]
    checked = 500 + 20 * (-1) ** (row + column)
    residual = original - np.stack((np.full((8, 8), 100), np.full((8, 8), 450), checked))
    assert (sse(residual) / 64).tolist() == [160_000, 2_500, 400]
    coefficients = dct(residual)
    assert np.count_nonzero(abs(coefficients) > 1e-6, axis=(1, 2)).tolist() == [1, 1, 16]
    np.testing.assert_allclose(coefficients[:, 0, 0], [3200, 400, 0], atol=1e-9)
    np.testing.assert_allclose(satd(residual, "dct"), [3200, 400, 418.435], atol=1e-3)
    assert satd(residual).tolist() == [1600, 200, 320]
    np.testing.assert_allclose(rate_cost(residual, 22, 10), [1378.86, 1083.31, 3600.13], atol=0.01)
    np.testing.assert_allclose(rate_cost(residual, 27, 10), [3843.19, 2043.65, 7833.34], atol=0.01)


def test_rate_cost_counts_levels_and_quantisation_error() -> None:
    """At QP 4 and 8 bit the step is 1, so a DC coefficient of 8·5 has level 40, whose signed code has 13 bits."""
    flat = np.full((1, 8, 8), 5)
    weight = 0.57 * 2 ** ((4 - 12) / 3)
    np.testing.assert_allclose(rate_cost(flat, 4, 8), weight * 13, atol=1e-6)
    np.testing.assert_allclose(rate_cost(4 * flat, 4, 10), 16 * weight * 13, atol=1e-6)
    np.testing.assert_allclose(rate_cost(flat, 51, 8), 8 * 8 * 25)  # all coefficients are quantised to 0
    np.testing.assert_allclose(rate_cost(torch.from_numpy(flat), 20, 8).numpy(), rate_cost(flat, 20, 8))


BLOCKS = [(4, 4, "vvc"), (8, 8, "hevc"), (16, 16, "vvc"), (16, 8, "vvc"), (4, 16, "vvc")]
LARGE = [pytest.param(side, side, "vvc", 10, marks=pytest.mark.slow) for side in (32, 64)]


@pytest.mark.parametrize(
    ("width", "height", "standard", "bit_depth"), [(*block, depth) for block in BLOCKS for depth in (8, 12)] + LARGE
)
def test_costs_of_all_modes_equal_the_reference(width: int, height: int, standard: str, bit_depth: int) -> None:
    lines = varied_lines(width, height, bit_depth, seed=7).astype(np.int32)
    original = np.random.default_rng(1).integers(0, 1 << bit_depth, (len(lines), height, width))
    original[-1] = (1 << bit_depth) - 1
    for cost in ("dct", "hadamard", "sad", "sse"):
        actual = block_costs(lines, original, bit_depth, cost, standard)
        expected = block_costs_reference(lines, original, bit_depth, cost, standard)
        np.testing.assert_allclose(actual, expected, rtol=2e-6 if cost == "dct" else 0, err_msg=cost)
        assert (actual[-1] == 0).all()


@pytest.mark.parametrize(("side", "bit_depth", "qp"), [(4, 8, 37), (8, 10, 22), (16, 12, 4)])
def test_rate_costs_of_all_modes_equal_the_reference(side: int, bit_depth: int, qp: int) -> None:
    lines = varied_lines(side, side, bit_depth, seed=7).astype(np.int32)
    original = np.random.default_rng(1).integers(0, 1 << bit_depth, (len(lines), side, side))
    original[-1] = (1 << bit_depth) - 1
    actual = block_costs(lines, original, bit_depth, "rate", qp=qp)
    expected = block_costs_reference(lines, original, bit_depth, "rate", qp=qp)
    # In float32, a coefficient on the border of two levels may be quantised to either.
    assert (abs(actual / np.maximum(expected, 1) - expected / np.maximum(expected, 1)) < 1e-5).mean() > 0.995
    np.testing.assert_allclose(actual, expected, rtol=0.01)
    assert (actual[-1] == 0).all()
    with pytest.raises(ConfigError, match="'rate' needs the QP"):
        block_costs(lines, original, bit_depth, "rate")


@pytest.mark.parametrize(("width", "height"), [(8, 8), (16, 8)])
def test_selected_costs_equal_those_of_all_modes(width: int, height: int) -> None:
    lines = varied_lines(width, height, 10, seed=7).astype(np.int32)
    rng = np.random.default_rng(1)
    original = rng.integers(0, 1024, (len(lines), height, width))
    modes = rng.integers(0, 67, (len(lines), 5)).astype(np.uint8)
    for cost in ("dct", "hadamard", "rate"):
        expected = np.take_along_axis(block_costs(lines, original, 10, cost, qp=32), modes.astype(int), 1)
        np.testing.assert_array_equal(selected_costs(lines, original, 10, cost, modes, qp=32), expected, err_msg=cost)
    with pytest.raises(ConfigError, match="not by 'sad'"):
        selected_costs(lines, original, 10, "sad", modes)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown SATD 'haar'"):
        satd(np.zeros((1, 8, 8), int), "haar")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="12x8 block"):
        satd(np.zeros((1, 8, 12), int))
    with pytest.raises(ConfigError, match="unknown cost 'haar'"):
        block_costs(np.zeros((1, 17), np.int32), np.zeros((1, 4, 4)), 8, "haar")
    with pytest.raises(ConfigError, match="not of 14"):
        block_costs(np.zeros((1, 17), np.int32), np.zeros((1, 4, 4)), 14, "dct")
