"""Block matching against an exhaustive search in NumPy, and motion compensation of known motion and of scene cuts."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.transform import AffineTransform, warp

from codecnn.base.division import ceil_div
from codecnn.pictures.files import open_video
from codecnn.pictures.motion import BLOCK, MARGIN, compensate_motion, search_motion

TAPS = {
    0: [64],
    1: [-1, 4, -10, 58, 17, -5, 1, 0],
    2: [-1, 4, -11, 40, 40, -11, 4, -1],
    3: [0, 1, -5, 17, 58, -10, 4, -1],
}
"""Luma filters of H.265 table 8-11, for the samples from 3 before to 4 after the position."""


@pytest.fixture(scope="module")
def photo():
    """Luma of a photograph at 10 bits, without its flat sky, where every vector matches."""
    return data.camera()[180:308, 100:260].astype(np.uint16) * 4


@pytest.fixture(scope="module")
def texture():
    """A texture of several scales at 10 bits, without flat areas."""
    rng = np.random.default_rng(4)
    layers = [gaussian_filter(rng.normal(size=(128, 160)), scale) * 4 * scale**1.5 for scale in (1, 2, 4, 8)]
    return (512 + 50 * sum(layers)).clip(0, 1023).astype(np.uint16)


REACH = 40
"""Whole samples beyond the edges of a picture that vectors of these tests reach."""


def quarter_positions(plane, bit_depth=10):
    """Return the samples at the quarter positions (y, x) of a plane that is extended by REACH samples."""
    padded = np.pad(plane.astype(np.int64), REACH, mode="edge")

    def filtered(samples, quarters, axis):
        taps = TAPS[quarters]
        first = -3 if quarters else 0
        return sum(tap * np.roll(samples, -first - k, axis) for k, tap in enumerate(taps))

    rows = [filtered(padded, down, 0) for down in range(4)]
    peak = (1 << bit_depth) - 1
    return {
        (down, right): ((filtered(rows[down], right, 1) + 2048) >> 12).clip(0, peak)
        for down in range(4)
        for right in range(4)
    }


def shifted(positions, shape, down, right):
    """Return the samples of `quarter_positions` that a vector in quarter samples leads to."""
    top, left = REACH + down // 4, REACH + right // 4
    return positions[down % 4, right % 4][top : top + shape[0], left : left + shape[1]]


def window_errors(squares):
    """Sum squared differences (h, w) over each block and the margin around it that lies inside the picture."""
    sums = np.pad(squares.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    height, width = squares.shape
    top, left = (np.maximum(np.arange(0, extent, BLOCK) - MARGIN, 0) for extent in (height, width))
    bottom, right = (np.minimum(np.arange(0, extent, BLOCK) + BLOCK + MARGIN, extent) for extent in (height, width))
    return (sums[bottom][:, right] - sums[top][:, right] - sums[bottom][:, left] + sums[top][:, left]).astype(np.int64)


def error_of(current, reference, vectors):
    """Return the sum of the window errors of given vectors."""
    positions, total = quarter_positions(reference), 0
    for down, right in np.unique(vectors.reshape(-1, 2), axis=0):
        errors = window_errors((shifted(positions, current.shape, down, right) - current) ** 2)
        total += errors[(vectors == (down, right)).all(-1)].sum()
    return total


def least_error(current, reference, reach):
    """Return the sum of the least window errors of all quarter-sample vectors up to `reach` whole samples."""
    positions, least = quarter_positions(reference), np.iinfo(np.int64).max
    for down in range(-4 * reach, 4 * reach + 1):
        for right in range(-4 * reach, 4 * reach + 1):
            errors = window_errors((shifted(positions, current.shape, down, right) - current) ** 2)
            least = np.minimum(least, errors)
    return least.sum()


def zoomed(photo):
    """Return the photograph before and after a zoom, a rotation and a shift, both with noise of 1 step of 8 bits."""
    rng = np.random.default_rng(2)
    transform = AffineTransform(scale=1.02, rotation=0.015, translation=(-2.4, 0.3))
    moved = warp(photo.astype(float), transform, mode="edge", order=3, preserve_range=True)
    pair = [np.rint(plane + rng.normal(0, 4, plane.shape)).clip(0, 1023).astype(np.uint16) for plane in (photo, moved)]
    return [plane[16:112, 16:144] for plane in pair]


@pytest.mark.parametrize("content", ["zoom", "water", "people"])
def test_error_is_near_that_of_a_full_search(content, photo, request):
    if content == "zoom":
        reference, current = zoomed(photo)
    else:
        clips = request.getfixturevalue("shared_data") / "clips"
        name = {"water": "water_176x96_25.yuv", "people": "CiscoVT2people_320x192_12fps.yuv"}[content]
        with open_video(clips / name) as video:
            reference, current = (video[number].y[:96, :128].astype(np.uint16) * 4 for number in (4, 5))
    error = error_of(current, reference, search_motion(current, reference, 10))
    assert error < 1.1 * least_error(current, reference, 6)
    # Without motion the error is larger, so that a search that finds nothing does not pass.
    assert content != "zoom" or error_of(current, reference, np.zeros((12, 16, 2), int)) > 3 * error


@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, -2), (-7, 3), (50, -99)])
def test_shift_of_quarter_samples_is_undone_exactly(texture, down, right):
    current = shifted(quarter_positions(texture), texture.shape, down, right).astype(texture.dtype)
    vectors = search_motion(current, texture, 10)[4:-4, 4:-4]
    assert (vectors == (down, right)).all()
    inside = (slice(28, -28), slice(28, -28))
    np.testing.assert_array_equal(compensate_motion(current, texture, 10)[inside], current[inside])


@pytest.mark.parametrize(("dtype", "bit_depth"), [(np.uint8, 8), (np.uint16, 12), (np.uint16, 16)])
def test_bit_depths(texture, dtype, bit_depth):
    plane = (texture >> 2).astype(dtype) << (bit_depth - 8)
    current = np.roll(plane, (5, -9), (0, 1))
    predicted = compensate_motion(current, plane, bit_depth)
    assert predicted.dtype == dtype
    np.testing.assert_array_equal(predicted[28:-28, 28:-28], current[28:-28, 28:-28])


@pytest.mark.parametrize("shape", [(1, 1), (3, 30), (17, 9), (64, 64)])
def test_sizes_that_are_no_multiple_of_a_block(shape, photo):
    current = photo[: shape[0], : shape[1]]
    assert search_motion(current, current, 10).shape == (ceil_div(shape[0], BLOCK), ceil_div(shape[1], BLOCK), 2)
    np.testing.assert_array_equal(compensate_motion(current, current, 10), current)


def test_after_a_scene_cut_the_prediction_is_the_picture_itself(photo):
    other = data.astronaut()[180:308, 100:260, 1].astype(np.uint16) * 4
    np.testing.assert_array_equal(compensate_motion(photo, other, 10), photo)


def test_blocks_that_do_not_match_are_those_of_the_picture_itself(photo):
    """The left half is the photograph, which moves; the right half shows another picture in the reference."""
    rng = np.random.default_rng(1)
    reference = np.roll(photo, (2, 3), (0, 1)) + rng.integers(0, 9, photo.shape).astype(np.uint16)
    reference[:, 80:] = data.astronaut()[180:308, 180:260, 1].astype(np.uint16) * 4
    predicted = compensate_motion(photo, reference, 10)
    itself = (predicted == photo).reshape(16, BLOCK, 20, BLOCK).all((1, 3))
    assert itself[:, 12:].mean() > 0.85
    assert itself[:, :8].mean() < 0.1
    left = predicted[8:-8, 8:64].astype(int) - photo[8:-8, 8:64]
    assert np.sqrt(np.mean(left**2)) < 8
