"""Comparison of decoded pictures with their original: quantised pictures pass, other pictures are errors."""

import numpy as np
import pytest
from scipy.fft import dctn, idctn

from codecnn.base.errors import ConfigError
from codecnn.codec.streams import expected_mse, verify_original
from codecnn.pictures.files import VideoFormat, open_raw
from tests.helpers.clips import write_planes

FORM = VideoFormat(96, 64, "420", 8)


def scene(number, *, noise=5.0, seed=1, speed=3):
    """Return Y, U and V of a picture of moving waves, floats from 0 to 255."""
    rng = np.random.default_rng([seed, number])
    planes = []
    for index, (height, width) in enumerate(FORM.plane_shapes):
        y, x = np.mgrid[:height, :width]
        x = x + speed * number
        wave = 110 + 20 * index + 40 * np.sin((x + 5 * seed) / (6 + seed)) * np.cos(y / 7)
        wave += 30 * ((x // (9 + 2 * seed) + y // (5 + 3 * seed)) % 2)
        planes.append((wave + rng.normal(0, noise, wave.shape)).clip(0, 255))
    return planes


def quantised(planes, qp):
    """Quantise the coefficients of an 8x8 DCT with the step of a QP."""
    step, out = 2 ** ((qp - 4) / 6), []
    for plane in planes:
        blocks = plane.reshape(plane.shape[0] // 8, 8, plane.shape[1] // 8, 8)
        coefficients = dctn(blocks, axes=(1, 3), norm="ortho")
        out.append(idctn(step * np.rint(coefficients / step), axes=(1, 3), norm="ortho").reshape(plane.shape))
    return [np.rint(plane).clip(0, 255) for plane in out]


@pytest.fixture
def verify(tmp_path):
    """Return a function that writes originals and decoded pictures and compares them."""

    def call(originals, decoded, qps, *, all_intra=True, form=FORM):
        first = write_planes(tmp_path / "original.yuv", form, originals)
        second = write_planes(tmp_path / "decoded.yuv", form, decoded)
        with open_raw(first, form) as a, open_raw(second, form) as b:
            verify_original("x.266", a, b, qps, all_intra=all_intra)

    return call


def test_expected_mse_is_that_of_a_quantiser():
    """The error is step²/12 for white noise far above the step, and the variance for noise far below it."""
    rng = np.random.default_rng(0)
    noise = rng.normal(128, 40, (256, 256))
    assert expected_mse(noise, 28) == pytest.approx(2 ** (24 / 3) / 12, rel=0.1)
    weak = rng.normal(128, 1, (256, 256))
    assert expected_mse(weak, 40) == pytest.approx(1, rel=0.1)
    # Samples beyond whole blocks are ignored.
    assert expected_mse(noise[:133, :75], 28) == pytest.approx(2 ** (24 / 3) / 12, rel=0.1)


@pytest.mark.parametrize("qp", [17, 27, 37, 47])
@pytest.mark.parametrize("all_intra", [True, False])
def test_quantised_originals_pass(verify, qp, all_intra):
    originals = [scene(number) for number in range(4)]
    verify(originals, [quantised(planes, qp) for planes in originals], [qp] * 4, all_intra=all_intra)


def test_samples_of_10_bit_are_scaled(verify):
    originals = [scene(0)]
    form = VideoFormat(96, 64, "420", 10)
    decoded = quantised(originals[0], 32)
    verify([[4 * plane for plane in originals[0]]], [[4 * plane for plane in decoded]], [32], form=form)


def test_a_flat_picture_passes_at_any_qp(verify):
    flat = [[np.full(shape, 90.0) for shape in FORM.plane_shapes]]
    for qp in (0, 22, 51):
        verify(flat, flat, [qp])


@pytest.mark.parametrize("qp", [22, 32, 42])
def test_another_original_is_an_error(verify, qp):
    decoded = [quantised(scene(0), qp)]
    with pytest.raises(ConfigError, match=rf"x\.266, picture 0, .* QP {qp}"):
        verify([scene(0, seed=2)], decoded, [qp])


def test_samples_of_another_scale_are_an_error(verify):
    decoded = [quantised(scene(0), 32)]
    with pytest.raises(ConfigError, match="scale"):
        verify([[plane / 4 for plane in scene(0)]], decoded, [32])


@pytest.mark.parametrize(("coded", "stated", "message"), [(37, 22, "the QP is higher"), (22, 42, "the QP is lower")])
def test_a_wrong_qp_is_an_error(verify, coded, stated, message):
    with pytest.raises(ConfigError, match=message):
        verify([scene(0)], [quantised(scene(0), coded)], [stated])


def test_pictures_above_the_lowest_qp_may_have_smaller_errors(verify):
    """B pictures copy from pictures of lower QP; only pictures with the lowest QP need the expected error."""
    originals = [scene(number) for number in range(3)]
    decoded = [quantised(planes, 22) for planes in originals]
    verify(originals, decoded, [22, 42, 42], all_intra=False)


@pytest.mark.parametrize("qp", [22, 32, 42])
@pytest.mark.parametrize("all_intra", [True, False])
@pytest.mark.parametrize(("step", "direction"), [(1, "one picture earlier"), (-1, "one picture later")])
def test_a_shifted_original_is_an_error(verify, qp, all_intra, step, direction):
    originals = [scene(number, noise=2) for number in range(1, 5)]
    decoded = [quantised(scene(number - step, noise=2), qp) for number in range(1, 5)]
    with pytest.raises(ConfigError, match=f"{direction}"):
        verify(originals, decoded, [qp] * 4, all_intra=all_intra)


@pytest.mark.parametrize(("step", "direction"), [(1, "one picture earlier"), (-1, "one picture later")])
def test_a_shift_too_small_for_single_pictures_is_detected_over_all(verify, step, direction):
    """A small motion changes less than the allowed error at a high QP."""
    originals = [scene(number, noise=2, speed=2) for number in range(1, 5)]
    decoded = [quantised(scene(number - step, noise=2, speed=2), 42) for number in range(1, 5)]
    with pytest.raises(ConfigError, match=rf"^x\.266 .* {direction}"):
        verify(originals, decoded, [42] * 4, all_intra=False)


def test_a_still_scene_with_copied_noise_passes_except_in_all_intra(verify):
    """A copy of the preceding picture is nearer to that original, which is impossible in all intra."""
    originals = [scene(number, speed=0) for number in range(4)]
    decoded = [quantised(originals[0], 17)] * 4
    verify(originals, decoded, [17, 32, 32, 32], all_intra=False)
    with pytest.raises(ConfigError, match=r"x\.266, picture 1"):
        verify(originals, decoded, [17, 32, 32, 32])


def test_noise_that_is_not_coded_is_no_shift(verify):
    originals = [scene(number, speed=0) for number in range(4)]
    verify(originals, [quantised(planes, 47) for planes in originals], [47] * 4)


def test_equal_consecutive_pictures_pass(verify):
    verify([scene(0)] * 3, [quantised(scene(0), 32)] * 3, [32] * 3)


def test_interchanged_chroma_is_an_error(verify):
    y, u, v = quantised(scene(0), 27)
    with pytest.raises(ConfigError, match=r"x\.266, picture 0, has U and V interchanged"):
        verify([scene(0)], [[y, v, u]], [27])
    grey = VideoFormat(96, 64, "400", 8)
    verify([scene(0)[:1]], [[y]], [27], form=grey)
