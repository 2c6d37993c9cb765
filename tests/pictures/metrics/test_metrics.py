"""MSE and PSNR against scikit-image and the formula by hand; no wrap-around in integer types."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio

from codecnn.base.errors import ConfigError, FormatError
from codecnn.pictures.metrics import (
    mean_psnr,
    mse,
    peak_value,
    psnr,
    psnr_of_mean_mse,
    psnr_of_mse,
    psnr_yuv_611,
    psnr_yuv_mse,
)


def _pair(bit_depth, shape=(37, 53), seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.uint8 if bit_depth == 8 else np.uint16
    a = rng.integers(0, 1 << bit_depth, shape)
    b = np.clip(a + rng.integers(-9, 10, shape), 0, (1 << bit_depth) - 1)
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize(("bit_depth", "jvet", "full"), [(8, 255, 255), (10, 1020, 1023), (12, 4080, 4095)])
def test_peak_value(bit_depth, jvet, full):
    assert peak_value(bit_depth) == jvet
    assert peak_value(bit_depth, "full") == full


@pytest.mark.parametrize("bit_depth", [8, 10, 12, 16])
@pytest.mark.parametrize("peak", ["jvet", "full"])
def test_psnr_equals_skimage(bit_depth, peak):
    a, b = _pair(bit_depth)
    top = 255 * 2 ** (bit_depth - 8) if peak == "jvet" else 2**bit_depth - 1
    assert psnr(a, b, bit_depth, peak) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=top), abs=1e-9)
    assert mse(a, b) == pytest.approx(mean_squared_error(a, b), rel=1e-12)


def test_psnr_by_hand():
    a = np.zeros((2, 2), np.uint8)
    b = np.array([[0, 1], [2, 3]], np.uint8)
    assert mse(a, b) == 14 / 4
    assert psnr(a, b, 8) == pytest.approx(10 * math.log10(255**2 / 3.5), abs=1e-12)


def test_difference_of_jvet_and_full_peak_at_10_bit():
    a, b = _pair(10)
    assert psnr(a, b, 10, "full") - psnr(a, b, 10) == pytest.approx(0.0255, abs=5e-5)


@pytest.mark.parametrize(("dtype", "bit_depth"), [(np.uint8, 8), (np.uint16, 16)])
def test_no_wrap_around(dtype, bit_depth):
    low, high = np.zeros((4, 4), dtype), np.full((4, 4), np.iinfo(dtype).max, dtype)
    largest = float(np.iinfo(dtype).max)
    for a, b in ((low, high), (high, low)):
        assert mse(a, b) == largest**2
        assert psnr(a, b, bit_depth, "full") == pytest.approx(0, abs=1e-12)
    assert mse(low + dtype(1), low) == mse(low, low + dtype(1)) == 1


def test_identical_is_infinite():
    a, _ = _pair(8)
    assert psnr(a, a, 8) == float("inf")


def test_stack_is_the_mean_of_per_picture_psnr():
    a, b = _pair(10, (3, 16, 24))
    b[1] = np.minimum(b[1] + 20, 1023)
    psnrs = [peak_signal_noise_ratio(x, y, data_range=1020) for x, y in zip(a, b, strict=True)]
    assert psnr(a, b, 10) == pytest.approx(np.mean(psnrs), abs=1e-9)
    assert psnr(a[:, None], b[:, None], 10) == psnr(a, b, 10)
    mses = [mean_squared_error(x, y) for x, y in zip(a, b, strict=True)]
    assert mean_psnr(mses, 10) == pytest.approx(psnr(a, b, 10), abs=1e-9)
    assert psnr_of_mean_mse(mses, 10) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=1020), abs=1e-9)


def test_one_identical_picture_makes_the_mean_infinite():
    a, b = _pair(8, (2, 8, 8))
    b[0] = a[0]
    assert psnr(a, b, 8) == mean_psnr([0, 4], 8) == float("inf")
    assert psnr_of_mean_mse([0, 4], 8) == pytest.approx(10 * math.log10(255**2 / 2))


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_mean_of_psnr_is_never_below_psnr_of_mean(mses):
    assert mean_psnr(mses, 10) >= psnr_of_mean_mse(mses, 10) - 1e-9


def test_torch_and_floats():
    a, b = _pair(8)
    expected = psnr(a, b, 8)
    assert psnr(torch.from_numpy(a), torch.from_numpy(b), 8) == expected
    assert psnr(torch.from_numpy(a).float().requires_grad_(), b.astype(np.float32), 8) == expected
    # bfloat16 holds whole numbers up to 256 exactly.
    assert mse(torch.from_numpy(a).bfloat16(), b) == mse(a, b)


def test_mse_of_residuals():
    residual = np.array([[-3, 4]], np.int16)
    assert mse(residual, np.zeros_like(residual)) == 12.5


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((4, 4), np.uint8), np.zeros((4, 5), np.uint8), r"\(4, 4\) and \(4, 5\)"),
        (np.zeros((0, 4), np.uint8), np.zeros((0, 4), np.uint8), "no samples"),
        (np.zeros((4, 4), bool), np.zeros((4, 4), bool), "bool"),
        (np.full((4, 4), np.nan), np.zeros((4, 4)), "NaN"),
        (np.full((4, 4), np.inf), np.full((4, 4), np.inf), "NaN or infinite"),
        (np.full((4, 4), 65536), np.zeros((4, 4), np.uint8), "65536"),
    ],
)
def test_invalid_samples_are_refused(a, b, message):
    with pytest.raises(FormatError, match=message):
        mse(a, b)
    with pytest.raises(FormatError, match=message):
        psnr(a, b, 8)


def test_samples_beyond_the_bit_depth_are_refused():
    a, b = _pair(10)
    with pytest.raises(FormatError, match="bit depth 8"):
        psnr(a, b, 8)
    with pytest.raises(FormatError, match="-1 does not fit bit depth 8"):
        psnr(np.full((2, 2), -1, np.int16), np.zeros((2, 2), np.int16), 8)


def test_invalid_arguments_are_refused():
    with pytest.raises(FormatError, match=r"shape \(4,\)"):
        psnr(np.zeros(4), np.ones(4), 8)
    with pytest.raises(ConfigError, match="'vmaf'"):
        psnr(np.zeros((2, 2)), np.ones((2, 2)), 8, "vmaf")
    with pytest.raises(ConfigError, match="bit depth 7"):
        peak_value(7)
    with pytest.raises(FormatError, match="no picture"):
        mean_psnr([], 8)
    with pytest.raises(FormatError, match="nan"):
        psnr_of_mean_mse([1.0, float("nan")], 8)
    with pytest.raises(FormatError, match="-1"):
        mean_psnr([-1.0], 8)


def test_weighted_mean_of_psnrs():
    assert psnr_yuv_611(40, 44, 36) == (6 * 40 + 44 + 36) / 8
    assert psnr_yuv_611(40, 44, 44) == 41


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_psnr_over_all_samples(bit_depth):
    """The PSNR equals that of the concatenated planes by scikit-image."""
    pairs = [_pair(bit_depth, shape, seed) for seed, shape in enumerate([(24, 36), (12, 18), (12, 18)])]
    pairs[2] = (pairs[2][0], np.minimum(pairs[2][1], 200))
    a, b = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    expected = peak_signal_noise_ratio(a, b, data_range=peak_value(bit_depth))
    mses = [mse(*pair) for pair in pairs]
    assert psnr_yuv_mse(mses, [24 * 36, 12 * 18, 12 * 18], bit_depth) == pytest.approx(expected, abs=1e-9)
    assert psnr_yuv_mse(mses, [4, 1, 1], bit_depth) == pytest.approx(expected, abs=1e-9)
    assert psnr_yuv_mse(mses, [1, 1, 1], bit_depth) != pytest.approx(expected, abs=1e-3)
    assert psnr_yuv_mse([0, 0, 0], [4, 1, 1], 8) == float("inf")
    with pytest.raises(FormatError, match="nan"):
        psnr_yuv_mse([float("nan"), 1, 1], [4, 1, 1], 8)


def test_psnr_of_an_array_of_mses():
    errors = [0.0, 0.01, 3.5, 1e4]
    assert psnr_of_mse(errors, 10).tolist() == [mean_psnr([error], 10) for error in errors]
    assert psnr_of_mse(3.5, 8, "full") == pytest.approx(10 * math.log10(255**2 / 3.5), abs=1e-12)
