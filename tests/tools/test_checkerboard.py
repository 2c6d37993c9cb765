"""The checkerboard's spectrum: each pattern of period 2 in its own figure, by as much as was put in."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from codecnn.errors import ConfigError
from codecnn.models import create_model
from tests.helpers.networks import SMALL, awaken
from tools.checkerboard import checkerboard, errors_of, residuals_of

RNG = np.random.default_rng(5)
PLAIN = RNG.normal(size=(8, 160, 192))
ROW, COLUMN = np.ones((160, 192)), np.ones((160, 192))
ROW[1::2] = -1
COLUMN[:, 1::2] = -1
PATTERNS = {"diagonal": ROW * COLUMN, "columns": COLUMN, "rows": ROW}


def peaks(residuals):
    found = checkerboard(residuals)
    return {name: getattr(found, name) for name in PATTERNS}


def test_noise_has_no_peak():
    assert list(peaks(PLAIN).values()) == pytest.approx([1, 1, 1], abs=0.1)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_a_peak_of_its_power(name):
    found = peaks(PLAIN + 0.25 * PATTERNS[name])
    # White noise of power 1 has the windows' power, the sum of their squares, at every frequency; the pattern 1/16 of
    # the square of their sum, at its own: Hann's (1/2)² and 3/8 a side, of 32 samples.
    assert found.pop(name) == pytest.approx(1 + 0.25**2 * (32 * (1 / 2) ** 2 / (3 / 8)) ** 2, rel=0.1)
    assert list(found.values()) == pytest.approx([1, 1], abs=0.15)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_gain_by_phase_copies_the_low_frequencies(name):
    smooth = np.stack([gaussian_filter(plane, 4, mode="wrap") for plane in PLAIN])
    without = peaks(smooth + PLAIN * 1e-3)
    found = peaks(smooth * (1 + 0.1 * PATTERNS[name]) + PLAIN * 1e-3)
    assert found[name] > 10 * without[name]
    assert all(found[other] == pytest.approx(without[other], rel=0.1) for other in PATTERNS if other != name)


def test_pictures_count_alike_however_strong():
    other = PLAIN + 0.25 * PATTERNS["rows"]
    assert peaks([PLAIN[0], 1000 * other[1]]) == pytest.approx(peaks([PLAIN[0], other[1]]))
    assert peaks([PLAIN[0], 0 * PLAIN[1]]) == peaks([PLAIN[0]])
    with pytest.raises(ConfigError, match="zero everywhere"):
        checkerboard([0 * PLAIN[0]])


def test_a_network_whose_phases_differ(tiny_store):
    units = tiny_store.split("test")
    model = awaken(create_model("rdn", **SMALL, shuffle=2), std=0.02)
    before = checkerboard(residuals_of(model, units, "cpu"))
    model.tail.bias.data += 30 * model.tail.bias.new_tensor([1, -1, -1, 1])
    after = checkerboard(residuals_of(model, units, "cpu"))
    assert after.diagonal > 10 * before.diagonal
    assert after.rows == pytest.approx(before.rows, rel=0.5)
    error = next(errors_of(units))
    with units[0].originals() as originals, units[0].decoded() as decoded:
        np.testing.assert_array_equal(error + decoded[0].y, originals[0].y)
