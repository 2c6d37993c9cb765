"""Closed form against least squares, search against the closed form, and the shares of the explained variance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import pearsonr

from codecnn.analysis.combination import (
    INITIAL_POINTS,
    closed_form,
    closed_form_in_box,
    combined_r,
    search,
    slopes,
)
from tests.helpers.correlation_tables import any_tables, correlated, covariance, least_squares, make_table, residual_r


@settings(max_examples=30, deadline=None)
@given(any_tables())
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
    # No other combination has a higher r, and within the bounds none is higher than the bounded closed form.
    angles = np.linspace(0, np.pi, 2001)
    assert np.abs(combined_r(cov, np.cos(angles), np.sin(angles))).max() <= r + 1e-12
    quarter = np.arctan(np.r_[0, np.geomspace(1e-6, 1e6, 5001), np.inf])
    inside = combined_r(cov, np.cos(quarter), np.sin(quarter)).max()
    assert inside <= closed_form_in_box(cov)[2] + 1e-12
    assert closed_form_in_box(cov)[2] == pytest.approx(inside, abs=1e-4)
    line = combined_r(cov, np.r_[0, np.geomspace(1e-6, 1, 5001)], 1.0).max()
    assert line - 1e-12 <= closed_form_in_box(cov, b=1.0)[2] <= line + 1e-4
    # The version for many tables at once.
    weights, many = slopes(np.stack([cov, cov]))
    assert many == pytest.approx([r, r], abs=1e-9)
    assert weights[1, 0] * b == pytest.approx(weights[1, 1] * a, rel=1e-6, abs=1e-9 * np.abs(weights).max())


def _synthetic(seed):
    """Return the covariance of a random table: weights of both signs, any noise, depth in splits or other units."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([1, 1, 1, -1], 2)
    table = make_table(seed, 6, 10, sign[0] * rng.uniform(0.2, 3), sign[1] * rng.uniform(1, 9), rng.uniform(2, 12))
    return covariance(table | {"depth_mean": table["depth_mean"] * rng.choice([0.1, 1, 1, 8])})


def _check_search(seed):
    cov = _synthetic(seed)
    for b in (None, 1.0):
        best, result = closed_form_in_box(cov, b), search(cov, seed, b)
        assert min(result[:2]) >= 0
        assert max(result[:2]) <= 1
        assert result.r == pytest.approx(combined_r(cov, result.a, result.b), abs=1e-12)
        assert -1e-12 <= best[2] - result.r <= 1e-4, seed
        assert result.bayes_r == max(r for _, _, r in result.points) <= result.r
        assert len(result.points) > INITIAL_POINTS
    if min(closed_form(cov)[:2]) > 0:
        assert search(cov, seed).r == pytest.approx(closed_form(cov)[2], abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_search_reaches_the_closed_form(seed):
    _check_search(seed)


@pytest.mark.slow
def test_search_reaches_the_closed_form_on_200_tables():
    for seed in range(4, 200):
        _check_search(seed)


def test_search_depends_on_its_seed_only(quick):
    cov = _synthetic(0)
    assert search(cov, 3) == search(cov, 3)
    assert search(cov, 3).points != search(cov, 4).points


def test_tiny_ratio_of_weights():
    table = make_table(3)
    cov = covariance(table | {"depth_mean": table["depth_mean"] / 500})
    a, b, r = closed_form(cov)
    assert (a < 0.002, b) == (True, 1)
    assert search(cov, 0).r == pytest.approx(r, abs=1e-4)
    fixed = search(cov, 0, b=1.0)
    assert (fixed.b, fixed.r) == (1, pytest.approx(r, abs=1e-4))


def test_closed_form_outside_the_bounds_is_noted():
    result = correlated(make_table(on_qp=2, on_depth=-6, noise=3), resamples=20)
    assert result["closed_form"]["outside_box"]
    assert result["ratio"] < 0
    assert not result["bayes"]["reached_closed_form"]
    assert result["bayes"]["reached_best_within_bounds"]
    # The best within the bounds is QP alone.
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


def test_search_that_stops_early_is_noted(monkeypatch, quick):
    from codecnn.analysis import correlation

    real = correlation.search
    monkeypatch.setattr(
        correlation, "search", lambda cov, seed, b=None: real(cov, seed, b)._replace(a=0.1, b=0.9, r=0.5)
    )
    result = correlated(make_table(), resamples=0)
    assert not result["bayes"]["reached_closed_form"]
    assert not result["bayes_b1"]["reached_best_within_bounds"]
    short = result["closed_form"]["r"] - 0.5
    assert f"the search stopped {short:.2g} below the best correlation within its bounds" in result["notes"]


def test_proportional_columns_have_the_correlation_of_either(quick):
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
    # Predictors with a positive correlation share a part of what they explain.
    together = make_table() | {"depth_mean": table["depth_mean"] + 0.4 * (qp - 30)}
    together["mse_y"] = qp + 4 * together["depth_mean"] + np.random.default_rng(1).normal(0, 5, 960)
    assert not correlated(together | {"mse_y": np.abs(together["mse_y"])}, resamples=0)["suppressor"]["suppression"]
