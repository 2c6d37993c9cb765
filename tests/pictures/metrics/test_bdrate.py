"""BD-rate against the spreadsheet's formula, numerical integration and known results; refused curves."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.interpolate import Akima1DInterpolator, PchipInterpolator

from codecnn.base.errors import ConfigError, TableError
from codecnn.pictures.metrics import bd_rate

ANCHOR = [(6320.1, 41.25), (3010.7, 38.31), (1480.2, 35.42), (742.9, 32.68)]
TEST = [(6322.4, 41.29), (3011.9, 38.38), (1480.9, 35.52), (743.3, 32.80)]


def _by_quadrature(anchor, test, interpolator=PchipInterpolator):
    """Compute BD-rate by numerical quadrature of SciPy's interpolators over the shared PSNR interval."""
    curves = []
    for points in (anchor, test):
        rate, psnr = np.array(sorted(points)).T
        curves.append((psnr, interpolator(psnr, np.log(rate))))
    low = max(psnr[0] for psnr, _ in curves)
    high = min(psnr[-1] for psnr, _ in curves)
    knots = sorted(x for psnr, _ in curves for x in psnr if low < x < high)
    edges = [low, *knots, high]
    area = sum(quad(lambda x: curves[1][1](x) - curves[0][1](x), a, b)[0] for a, b in pairwise(edges))
    return 100 * (np.exp(area / (high - low)) - 1)


@pytest.mark.parametrize(("method", "interpolator"), [("pchip", PchipInterpolator), ("akima", Akima1DInterpolator)])
def test_equals_numerical_integration(method, interpolator):
    value = bd_rate(ANCHOR, TEST, method)
    assert value == pytest.approx(_by_quadrature(ANCHOR, TEST, interpolator), abs=1e-6)
    assert -2.5 < value < -1.0


# Two pairs of curves from the documentation of public BD-rate tools (x265 presets; Anserw's Bjontegaard_metric). The
# values were computed by quadrature of SciPy's interpolators and, for the cubic, of a polynomial through four points.
X265 = (
    [(9487.76, 40.037), (4593.6, 38.615), (2486.44, 36.845), (1358.24, 34.851)],
    [(9787.8, 40.121), (4469.0, 38.651), (2451.52, 36.970), (1356.24, 34.987)],
)
ANSERW = (
    [(686.76, 40.28), (309.58, 37.18), (157.11, 34.24), (85.95, 31.42)],
    [(893.34, 40.39), (407.8, 37.21), (204.93, 34.17), (112.75, 31.24)],
)


@pytest.mark.parametrize(
    ("curves", "method", "percent"),
    [
        (X265, "pchip", -4.417485),
        (X265, "akima", -4.425245),
        (X265, "cubic", -4.420463),
        (ANSERW, "pchip", 31.379878),
        (ANSERW, "akima", 31.383989),
        (ANSERW, "cubic", 31.397374),
    ],
)
def test_known_values(curves, method, percent):
    assert bd_rate(*curves, method) == pytest.approx(percent, abs=1e-5)


def _spreadsheet(anchor, test):
    """Compute BD-rate of four points as the spreadsheets that JCT-VC and JVET publish with their test conditions.

    Written from the description of their macro, without SciPy and `bjontegaard`: log10 of the rate over PSNR, in each
    interval y = y0 + s (d + s (c + s b)). The slopes d are weighted harmonic means inside and follow the
    shape-preserving three-point formula at the ends. The polynomials are integrated in closed form.
    """

    def end_slope(h1, h2, delta1, delta2):
        d = ((2 * h1 + h2) * delta1 - h1 * delta2) / (h1 + h2)
        if d * delta1 < 0:
            return 0.0
        if delta1 * delta2 < 0 and abs(d) > abs(3 * delta1):
            return 3 * delta1
        return d

    def integral(points, low, high):
        x, y = [p for _, p in sorted(points)], [math.log10(r) for r, _ in sorted(points)]
        h = [x[i + 1] - x[i] for i in range(3)]
        delta = [(y[i + 1] - y[i]) / h[i] for i in range(3)]
        d = [end_slope(h[0], h[1], delta[0], delta[1])]
        for i in (1, 2):
            w1, w2 = 2 * h[i] + h[i - 1], h[i] + 2 * h[i - 1]
            d.append((w1 + w2) / (w1 / delta[i - 1] + w2 / delta[i]))
        d.append(end_slope(h[2], h[1], delta[2], delta[1]))
        area = 0.0
        for i in range(3):
            c = (3 * delta[i] - 2 * d[i] - d[i + 1]) / h[i]
            b = (d[i] - 2 * delta[i] + d[i + 1]) / h[i] ** 2
            s0, s1 = (min(max(edge, x[i]), x[i + 1]) - x[i] for edge in (low, high))
            for power, factor in enumerate((y[i], d[i], c, b), start=1):
                area += factor * (s1**power - s0**power) / power
        return area

    low = max(min(p for _, p in curve) for curve in (anchor, test))
    high = min(max(p for _, p in curve) for curve in (anchor, test))
    return 100 * (10 ** ((integral(test, low, high) - integral(anchor, low, high)) / (high - low)) - 1)


# Published curves, followed by invented ones.
TABLE = [
    (ANCHOR, TEST),
    X265,
    ANSERW,
    (
        [(80123.4, 42.91), (38210.9, 40.87), (18943.2, 38.46), (9120.7, 35.93)],
        [(78822.0, 42.93), (37405.1, 40.92), (18411.3, 38.55), (8800.2, 36.06)],
    ),
    (
        [(8123.4, 42.91), (3821.9, 38.87), (1894.2, 36.46), (912.7, 32.93)],
        [(8822.0, 42.43), (3905.1, 38.32), (2011.3, 36.15), (980.2, 32.06)],
    ),
    # Nearly flat at its end, where the formula limits the slope to preserve the shape.
    ([(4000, 36.1), (2000, 36.0), (1000, 33.0), (500, 30.0)], [(4100, 36.2), (1900, 36.05), (1010, 33.1), (490, 30.2)]),
]


@pytest.mark.parametrize("curves", TABLE)
def test_equals_the_spreadsheet_of_the_standards_groups(curves):
    assert bd_rate(*curves) == pytest.approx(_spreadsheet(*curves), abs=1e-9)
    assert bd_rate(*curves[::-1]) == pytest.approx(_spreadsheet(*curves[::-1]), abs=1e-9)


def _curve(steps):
    """Return points that start at rate 500 and 30 dB and continue by steps (factor of the rate, dB)."""
    factors, gains = zip(*steps, strict=True)
    return list(zip(np.cumprod([500.0, *factors]), np.cumsum([30.0, *gains]), strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.floats(1.3, 3), st.floats(0.3, 4)), min_size=3, max_size=3), min_size=2, max_size=2)
)
def test_random_curves_equal_the_spreadsheet(steps):
    curves = [_curve(x) for x in steps]
    assert bd_rate(*curves) == pytest.approx(_spreadsheet(*curves), rel=1e-9, abs=1e-9)


def test_default_is_pchip():
    assert bd_rate(ANCHOR, TEST) == bd_rate(ANCHOR, TEST, "pchip") != bd_rate(ANCHOR, TEST, "akima")


@pytest.mark.parametrize("method", ["pchip", "akima", "cubic"])
@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.25, 2.0])
def test_scaled_rates_give_their_factor(method, factor):
    scaled = [(rate * factor, psnr) for rate, psnr in ANCHOR]
    assert bd_rate(ANCHOR, scaled, method) == pytest.approx(100 * (factor - 1), abs=1e-6)


@pytest.mark.parametrize("method", ["pchip", "akima", "cubic"])
def test_straight_lines_have_a_known_answer(method):
    """With log10(rate) = psnr / 20, 0.5 dB more at equal rate is a factor 10^(-0.5/20) of the rate at equal PSNR."""
    psnr = np.array([30, 33, 36, 39, 42.0])
    anchor = np.stack([10 ** (psnr / 20), psnr], axis=1)
    test = np.stack([10 ** (psnr / 20), psnr + 0.5], axis=1)
    assert bd_rate(anchor, test, method) == pytest.approx(100 * (10 ** (-0.5 / 20) - 1), abs=1e-6)
    assert bd_rate(test, anchor, method) == pytest.approx(100 * (10 ** (0.5 / 20) - 1), abs=1e-6)


@pytest.mark.parametrize("shift", [-0.2, 0.05, 0.5])
def test_point_counts_may_differ_and_order_does_not_matter(shift):
    extra = [(11905.0, 43.9 + shift)]
    test = [(rate, psnr + shift) for rate, psnr in ANCHOR]
    value = bd_rate(ANCHOR, test + extra)
    assert value == pytest.approx(_by_quadrature(ANCHOR, test + extra), abs=1e-6)
    assert value == bd_rate(ANCHOR[::-1], extra + test)
    assert np.sign(value) == -np.sign(shift)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1.1, 3), st.floats(0.5, 4)), min_size=3, max_size=6),
    st.lists(st.tuples(st.floats(1.1, 3), st.floats(0.5, 4)), min_size=3, max_size=6),
)
def test_random_curves_equal_numerical_integration(steps_a, steps_b):
    curves = [_curve(steps) for steps in (steps_a, steps_b)]
    assert bd_rate(*curves) == pytest.approx(_by_quadrature(*curves), rel=1e-6, abs=1e-6)


def test_half_of_the_shorter_curve_must_be_shared():
    near = [(rate, psnr + 4.2) for rate, psnr in ANCHOR]
    assert bd_rate(ANCHOR, near) == pytest.approx(_by_quadrature(ANCHOR, near), abs=1e-6)
    far = [(rate, psnr + 4.4) for rate, psnr in ANCHOR]
    with pytest.raises(TableError, match="49 %"):
        bd_rate(ANCHOR, far)
    inside = [(rate, 36 + (psnr - 32) / 10) for rate, psnr in ANCHOR]
    assert bd_rate(ANCHOR, inside) == pytest.approx(_by_quadrature(ANCHOR, inside), abs=1e-6)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (ANCHOR[:3], "at least 4 points: the test has 3"),
        ([(0, 30), *ANCHOR], "rates above 0: the test has 0"),
        ([(-5, 30), *ANCHOR], "rates above 0: the test has -5"),
        ([*ANCHOR[:3], (700, float("nan"))], "NaN or infinity"),
        ([*ANCHOR[:3], (700, float("inf"))], "NaN or infinity"),
        ([*ANCHOR, (2000, 39.0)], "does not rise with the rate"),
        ([*ANCHOR, (2000, 35.42)], "does not rise with the rate"),
        ([*ANCHOR, ANCHOR[0]], "does not rise with the rate"),
        ([(rate, psnr + 20) for rate, psnr in ANCHOR], "share no PSNR"),
        ([(rate, psnr + 41.25 - 32.68) for rate, psnr in ANCHOR], "share no PSNR"),
        ([(1, 2, 3)] * 4, r"shape \(4, 3\)"),
        ([(1, None), *ANCHOR], "NaN"),
        ([(1, "high"), *ANCHOR], "pairs of numbers"),
    ],
)
def test_curves_without_bd_rate_are_refused(test, message):
    with pytest.raises(TableError, match=message):
        bd_rate(ANCHOR, test)
    with pytest.raises(TableError, match=message.replace("the test", "the anchor")):
        bd_rate(test, ANCHOR)


def test_points_too_close_for_a_cubic():
    close = [(rate, 40 + i * 1e-9) for i, (rate, _) in enumerate(sorted(ANCHOR))]
    with pytest.raises(TableError, match="too close together"):
        bd_rate(close, close, "cubic")


def test_unknown_method():
    with pytest.raises(ConfigError, match="'linear'"):
        bd_rate(ANCHOR, TEST, "linear")
