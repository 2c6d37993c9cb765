"""The closed form against least squares, the search against the closed form, the suppressor against both."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr

from codecnn.analysis import _notebook_figures as notebook_figures
from codecnn.analysis._coefficients import (
    closed_form,
    closed_form_in_box,
    combined_r,
    implied_correlations,
    slopes,
    suppressor,
)
from codecnn.analysis._search import INITIAL_POINTS, search
from tests.helpers.correlation_tables import correlated, covariance, least_squares, make_table, residual_r


def _any_table(seed, on_qp, on_depth, noise, scale):
    table = make_table(seed, 6, 5, on_qp, on_depth, noise)
    return table | {"depth_mean": table["depth_mean"] * scale}


numbers = (st.integers(0, 10_000), st.floats(-3, 3), st.floats(-9, 9), st.floats(0.1, 20))
tables = st.builds(_any_table, *numbers, st.sampled_from([1.0, 0.01, 30.0]))


@settings(max_examples=30, deadline=None)
@given(tables)
def test_closed_form_on_any_table(table):
    cov = covariance(table)
    a, b, r = closed_form(cov)
    slope_qp, slope_depth, expected = least_squares(table)
    assert r == pytest.approx(expected, abs=1e-8)
    assert max(abs(a), abs(b)) == pytest.approx(1)
    assert a * slope_depth == pytest.approx(b * slope_qp, rel=1e-6, abs=1e-9)
    assert math.copysign(1, a) == math.copysign(1, slope_qp)
    together = a * table["qp"] + b * table["depth_mean"]
    assert r == pytest.approx(pearsonr(together, table["mse_y"]).statistic, abs=1e-8)
    # No other combination does better, and in the box none better than the box's own.
    angles = np.linspace(0, np.pi, 2001)
    assert np.abs(combined_r(cov, np.cos(angles), np.sin(angles))).max() <= r + 1e-12
    quarter = np.arctan(np.r_[0, np.geomspace(1e-6, 1e6, 5001), np.inf])
    inside = combined_r(cov, np.cos(quarter), np.sin(quarter)).max()
    assert inside <= closed_form_in_box(cov)[2] + 1e-12
    assert closed_form_in_box(cov)[2] == pytest.approx(inside, abs=1e-4)
    line = combined_r(cov, np.r_[0, np.geomspace(1e-6, 1, 5001)], 1.0).max()
    assert line - 1e-12 <= closed_form_in_box(cov, b=1.0)[2] <= line + 1e-4
    # The form for many tables at once.
    weights, many = slopes(np.stack([cov, cov]))
    assert many == pytest.approx([r, r], abs=1e-9)
    assert weights[1, 0] * b == pytest.approx(weights[1, 1] * a, rel=1e-6, abs=1e-9 * np.abs(weights).max())


def _synthetic(seed):
    """One of 200 tables: QP and depth of any weight and noise, depth in splits or other units, the signs mixed."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([1, 1, 1, -1], 2)
    table = make_table(seed, 6, 10, sign[0] * rng.uniform(0.2, 3), sign[1] * rng.uniform(1, 9), rng.uniform(2, 12))
    return covariance(table | {"depth_mean": table["depth_mean"] * rng.choice([0.1, 1, 1, 8])})


def _check_search(seed):
    cov = _synthetic(seed)
    for b in (None, 1.0):
        best, found = closed_form_in_box(cov, b), search(cov, seed, b)
        assert min(found[:2]) >= 0
        assert max(found[:2]) <= 1
        assert found.r == pytest.approx(combined_r(cov, found.a, found.b), abs=1e-12)
        assert -1e-12 <= best[2] - found.r <= 1e-4, seed
        assert found.bayes_r == max(r for _, _, r in found.points) <= found.r
        assert len(found.points) > INITIAL_POINTS
    if min(closed_form(cov)[:2]) > 0:
        assert search(cov, seed).r == pytest.approx(closed_form(cov)[2], abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_search_reaches_the_closed_form(seed):
    _check_search(seed)


@pytest.mark.slow
def test_search_reaches_the_closed_form_on_200_tables():
    for seed in range(4, 200):
        _check_search(seed)


def test_search_is_seeded(quick):
    cov = _synthetic(0)
    assert search(cov, 3) == search(cov, 3)
    assert search(cov, 3).points != search(cov, 4).points


def test_a_tiny_ratio():
    table = make_table(3)
    cov = covariance(table | {"depth_mean": table["depth_mean"] / 500})
    a, b, r = closed_form(cov)
    assert (a < 0.002, b) == (True, 1)
    assert search(cov, 0).r == pytest.approx(r, abs=1e-4)
    found = search(cov, 0, b=1.0)
    assert (found.b, found.r) == (1, pytest.approx(r, abs=1e-4))


def test_closed_form_outside_the_box_is_said():
    result = correlated(make_table(on_qp=2, on_depth=-6, noise=3), resamples=20)
    assert result["closed_form"]["outside_box"]
    assert result["ratio"] < 0
    assert not result["bayes"]["reached_closed_form"]
    assert result["bayes"]["reached_best_within_bounds"]
    # The best inside the box is QP alone.
    assert result["bayes"]["r"] == pytest.approx(result["pearson"]["qp"], abs=1e-6)
    assert result["closed_form_box"] == {"a": 1.0, "b": 0.0, "r": pytest.approx(result["pearson"]["qp"])}
    note = next(note for note in result["notes"] if "outside the search's box" in note)
    assert f"r = {result['pearson']['qp']:.4f}" in note


def test_both_signs_negative(quick):
    table = make_table(on_qp=2, on_depth=6, noise=3)
    result = correlated(table | {"mse_y": 200 - table["mse_y"]}, resamples=20)
    assert max(result["closed_form"]["a"], result["closed_form"]["b"]) < 0
    assert min(result["closed_form"]["a"], result["closed_form"]["b"]) == -1
    assert result["closed_form"]["r"] > 0 > result["bayes"]["r"]


def test_a_search_that_stops_short_is_said(monkeypatch, quick):
    from codecnn.analysis import _correlation as correlation

    real = correlation.search
    monkeypatch.setattr(
        correlation, "search", lambda cov, seed, b=None: real(cov, seed, b)._replace(a=0.1, b=0.9, r=0.5)
    )
    result = correlated(make_table(), resamples=0)
    assert not result["bayes"]["reached_closed_form"]
    assert not result["bayes_b1"]["reached_best_within_bounds"]
    short = result["closed_form"]["r"] - 0.5
    assert f"the search stopped {short:.2g} below the best correlation within its bounds" in result["notes"]


def test_proportional_columns_have_the_correlation_of_one(quick):
    table = make_table()
    result = correlated(table | {"depth_mean": table["qp"] / 10}, resamples=0)
    assert result["closed_form"]["r"] == pytest.approx(result["pearson"]["qp"], abs=1e-9)
    assert result["suppressor"] is None


def test_suppressor_shares_by_regression(quick):
    table = make_table()
    result = correlated(table, resamples=0)["suppressor"]
    qp, depth, mse = (np.asarray(table[name], float) for name in ("qp", "depth_mean", "mse_y"))
    r_squared = least_squares(table)[2] ** 2
    alone_qp, alone_depth = (pearsonr(x, mse).statistic ** 2 for x in (qp, depth))
    assert result["explained"] == pytest.approx(r_squared)
    assert result["shares"]["qp_alone"] == pytest.approx(r_squared - alone_depth)
    assert result["shares"]["depth_alone"] == pytest.approx(r_squared - alone_qp)
    assert sum(result["shares"].values()) == pytest.approx(r_squared)
    fit = np.polynomial.Polynomial.fit(depth, qp, 1)
    assert result["semi_partial"]["qp"] == pytest.approx(pearsonr(qp - fit(depth), mse).statistic)
    assert result["partial"]["depth"] == pytest.approx(residual_r(depth, mse, [qp]))
    assert result["suppression"] == (r_squared > alone_qp + alone_depth)
    assert result["suppression"]
    # Predictors that rise together share, rather than hide, what they explain.
    together = make_table() | {"depth_mean": table["depth_mean"] + 0.4 * (qp - 30)}
    together["mse_y"] = qp + 4 * together["depth_mean"] + np.random.default_rng(1).normal(0, 5, 960)
    assert not correlated(together | {"mse_y": np.abs(together["mse_y"])}, resamples=0)["suppressor"]["suppression"]


@settings(max_examples=30, deadline=None)
@given(tables)
def test_the_implied_correlation_is_that_of_the_data(table):
    """Any table's r(QP, depth) is one of the two that its three other figures allow, and both give them back."""
    cov = covariance(table)
    r = np.corrcoef(np.stack([table["qp"], table["depth_mean"], table["mse_y"]]))
    multiple = closed_form(cov)[2]
    if multiple < 1e-3:
        return
    roots = implied_correlations(r[0, 2], r[1, 2], multiple)
    assert min(abs(root - r[0, 1]) for root in roots) < 1e-5
    for root in roots:
        if abs(root) < 0.999:
            assert suppressor(r[0, 2], r[1, 2], root).explained == pytest.approx(multiple**2, abs=1e-6)


def test_no_correlation_is_implied_by_impossible_figures():
    assert implied_correlations(0.5, 0.2, 0.4) is None


def test_what_the_notebooks_figures_imply():
    """-0.334 or +0.788; only the first goes with a positive b, and with its a / b when depth deviates by 1.12."""
    implied = notebook_figures.implied()
    assert implied.roots == pytest.approx([-0.334, 0.788], abs=5e-4)
    assert implied.qp_depth == implied.roots[0]
    deviation = np.array([np.std([22, 27, 32, 37]), implied.depth_deviation, 1.0])
    for root, possible in zip(implied.roots, (True, False), strict=True):
        r = np.array([[1, root, 0.5476], [root, 1, 0.1886], [0.5476, 0.1886, 1]])
        a, b, multiple = closed_form(r * np.outer(deviation, deviation))
        assert multiple == pytest.approx(0.6748, abs=1e-9)
        assert (b > 0) == possible
        if possible:
            assert a / b == pytest.approx(0.2817 / 0.8561, rel=1e-9)
            assert a / b == pytest.approx(0.3290, abs=1e-4)
