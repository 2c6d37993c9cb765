"""The combination a·QP + b·depth that correlates best with a target: closed form, search, and held-out check.

Pearson's r depends on a / b only. Least squares gives the best a and b in closed form, and its r is the multiple
correlation. The Bayesian search finds a and b from values of r alone. Both depend on the data through the covariances
of QP, depth and target, so neither passes over the rows of a table.
"""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from bayes_opt import BayesianOptimization, acquisition
from bayes_opt.exception import NotUniqueError
from scipy.optimize import minimize

from codecnn.analysis.ctu_table import Floats
from codecnn.analysis.results import Half, HeldOut, Pair, Suppressor
from codecnn.analysis.statistics import COLLINEAR, bootstrap_interval, covariances, partial_given_one, resampled_sums

INITIAL_POINTS, STEPS = 5, 20
"""Random points and Bayesian steps of the search."""

SPLITS = 200
"""Random halves of the pictures of the held-out check."""

MIN_HELD_OUT_PICTURES = 4
"""Smallest number of pictures for the held-out check."""


def combined_r(covariance: Floats, a: Any, b: Any) -> Any:
    """Compute Pearson's r of a·QP + b·depth with the target.

    Args:
        covariance: Covariances of QP, depth and target, shape (..., 3, 3).
        a: Weight of QP; broadcasts.
        b: Weight of depth; broadcasts.

    Returns:
        r, or -1 where the sum is constant.
    """
    qq, qd, dd = covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]
    variance = a * a * qq + 2 * a * b * qd + b * b * dd
    together = a * covariance[..., 0, 2] + b * covariance[..., 1, 2]
    scale = variance * covariance[..., 2, 2]
    return np.where(scale > 0, together / np.sqrt(np.where(scale > 0, scale, 1.0)), -1.0)


def closed_form(covariance: Floats) -> tuple[float, float, float]:
    """Find the a and b that maximise Pearson's r of a·QP + b·depth with the target, by least squares.

    If QP and depth are proportional to each other, the shortest standardised solution is taken.

    Args:
        covariance: Covariances of QP, depth and target, shape (3, 3), with positive variances.

    Returns:
        (a, b, r) with max(|a|, |b|) = 1; r is the multiple correlation, at least 0.
    """
    deviation = np.sqrt(np.diag(covariance))
    r = covariance / np.outer(deviation, deviation)
    standardised = np.linalg.lstsq(r[:2, :2], r[:2, 2], rcond=1e-10)[0]
    weights = standardised / deviation[:2]
    largest = np.abs(weights).max()
    if largest == 0:
        return 0.0, 0.0, 0.0
    a, b = weights / largest
    return float(a), float(b), float(combined_r(covariance, a, b))


def closed_form_in_box(covariance: Floats, b: float | None = None) -> tuple[float, float, float]:
    """Find the a and b in [0, 1] that maximise r: the best result of a search within these bounds.

    r depends on a / b only and has a single maximum, the closed form. If that lies outside the bounds, the best point
    is QP alone or depth alone, or with a fixed b one of the ends of a.

    Args:
        covariance: As for `closed_form`.
        b: Fixed weight of depth, or None.

    Returns:
        (a, b, r).
    """
    best_a, best_b, _ = closed_form(covariance)
    inside = max(best_a, best_b) > 0 and min(best_a, best_b) >= 0
    if b is None:
        candidates = [(1.0, 0.0), (0.0, 1.0), *([(best_a, best_b)] if inside else [])]
    else:
        candidates = [(0.0, b), (1.0, b), *([(min(1.0, b * best_a / best_b), b)] if inside and best_b > 0 else [])]
    points = [(x, y, float(combined_r(covariance, x, y))) for x, y in candidates]
    return max(points, key=lambda point: point[2])


def slopes(covariance: Floats) -> tuple[Floats, Floats]:
    """Compute the closed form of many covariances at once.

    Args:
        covariance: Covariances of QP, depth and target, shape (..., 3, 3).

    Returns:
        Least-squares weights of QP and depth up to a positive factor, shape (..., 2), and their r with the target,
        shape (...); NaN where the weights are not unique.
    """
    qq, qd, dd = covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]
    qt, dt = covariance[..., 0, 2], covariance[..., 1, 2]
    unique = (qq * dd - qd * qd > COLLINEAR * qq * dd) & (covariance[..., 2, 2] > 0)
    a, b = (np.where(unique, value, np.nan) for value in (qt * dd - qd * dt, dt * qq - qd * qt))
    with np.errstate(invalid="ignore"):
        r = np.where(unique, combined_r(covariance, a, b), np.nan)
    return np.stack([a, b], axis=-1), r


def suppressor(r_qp: float, r_depth: float, r_both: float) -> Suppressor | None:
    """Divide the variance of the target that QP and depth explain into shares.

    The squared semi-partial correlations are the shares that only QP or only depth explains; the rest of the squared
    multiple correlation is the common share. If it is negative, each predictor hides part of the effect of the other,
    and both together explain more than the sum of what each explains alone: suppression (Conger 1974; Cohen et al.
    2003).

    Args:
        r_qp: Pearson's r of QP with the target.
        r_depth: Pearson's r of depth with the target.
        r_both: Pearson's r of QP with depth.

    Returns:
        The shares, or None if QP and depth are proportional to each other.
    """
    if 1 - r_both**2 < COLLINEAR:
        return None
    width = math.sqrt(1 - r_both**2)
    semi_qp, semi_depth = (r_qp - r_depth * r_both) / width, (r_depth - r_qp * r_both) / width
    partial_qp, partial_depth = partial_given_one(r_qp, r_both, r_depth), partial_given_one(r_depth, r_both, r_qp)
    return Suppressor(
        r_qp,
        r_depth,
        r_both,
        partial=Pair(float(partial_qp), float(partial_depth)),
        semi_partial=Pair(semi_qp, semi_depth),
        explained=r_qp**2 + semi_depth**2,
        shares={"qp_alone": semi_qp**2, "depth_alone": semi_depth**2, "common": r_qp**2 - semi_qp**2},
        suppression=r_qp**2 < semi_qp**2,
    )


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes:
        a: Best weight of QP.
        b: Best weight of depth.
        r: Pearson's r of the best point.
        bayes_r: Pearson's r of the best point of the Bayesian steps alone.
        points: (a, b, r) of each point of the Bayesian steps.
    """

    a: float
    b: float
    r: float
    bayes_r: float
    points: list[tuple[float, float, float]]


def search(covariance: Floats, seed: int, b: float | None = None) -> SearchResult:
    """Search the a and b in [0, 1] for which a·QP + b·depth has the highest r, by Bayesian optimisation.

    A Gaussian process with expected improvement is followed by a descent (L-BFGS-B) from its best point: r is constant
    along lines through the origin, a ridge on which the process stops slightly below the maximum.

    Args:
        covariance: Covariances of QP, depth and target, shape (3, 3).
        seed: Seed of the search; the same seed gives the same result.
        b: Fixed weight of depth, or None.

    Returns:
        The best point.
    """
    names = ("a", "b") if b is None else ("a",)

    def weights(point: Any) -> tuple[float, float]:
        return point[0], point[1] if b is None else b

    def objective(point: Any) -> float:
        return float(combined_r(covariance, *weights(point)))

    optimiser = BayesianOptimization(
        f=None,
        pbounds=dict.fromkeys(names, (0.0, 1.0)),
        acquisition_function=_ExpectedImprovement(xi=0.0),
        random_state=seed,
        verbose=0,
    )
    optimiser.set_gp_params(n_restarts_optimizer=1)
    tried: list[list[float]] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of the process's fit, and of a deviation of 0 at a known point
        for step in range(INITIAL_POINTS + STEPS):
            suggested = optimiser.random_sample()[0] if step < INITIAL_POINTS else optimiser.suggest()
            point = [float(suggested[name]) for name in names]
            try:
                optimiser.register(suggested, objective(point))
            except NotUniqueError:
                break  # the process expects nothing better than a known point
            tried.append(point)
    best = max(tried, key=objective)
    bayes_r = objective(best)
    descent = minimize(
        lambda point: -objective(point),
        best,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(names),
        options={"ftol": 1e-13, "gtol": 1e-9},
    )
    best = max(best, [float(x) for x in descent.x], key=objective)
    points = [(*weights(point), objective(point)) for point in tried]
    return SearchResult(*weights(best), objective(best), bayes_r, points)


class _ExpectedImprovement(acquisition.ExpectedImprovement):
    """Expected improvement over random candidates only, which suffices for two parameters and is much faster."""

    def suggest(self, *args: Any, **kwargs: Any) -> Any:
        return super().suggest(*args, **({"n_random": 1000, "n_smart": 0} | kwargs))


def held_out(sums: Floats, deviation: Floats, seed: int) -> HeldOut | None:
    """Fit a and b on a random half of the pictures, and correlate a·QP + b·depth with the target on the other half.

    SPLITS random splits are made, and both halves of each split serve for the fit in turn.

    Args:
        sums: Sums of products of (1, QP, depth, target) of each picture, standardised, shape (pictures, 4, 4).
        deviation: Deviations of QP, depth and target by which they are standardised, shape (3,).
        seed: Seed of the splits.

    Returns:
        The first split and statistics of all; None with fewer than MIN_HELD_OUT_PICTURES pictures, or if QP, depth or
        target are constant in a half.
    """
    count = len(sums)
    if count < MIN_HELD_OUT_PICTURES:
        return None
    rng = np.random.default_rng(seed)
    half = (rng.permuted(np.tile(np.arange(count), (SPLITS, 1)), axis=1) < count // 2).astype(np.float64)
    first, second = covariances(resampled_sums(half, sums)), covariances(resampled_sums(1 - half, sums))
    forth = _fit_and_test(first, second, deviation)
    back = _fit_and_test(second, first, deviation)
    both = {key: np.concatenate([forth[key], back[key]]) for key in forth}
    middle = bootstrap_interval(both["r_other"])
    if middle is None or not all(np.isfinite(way[key][0]) for way in (forth, back) for key in way):
        return None
    pictures = int(half[0].sum()), int(count - half[0].sum())
    first_half, second_half = (
        Half(fitted, other, **{key: float(way[key][0]) for key in way})
        for way, fitted, other in ((forth, *pictures), (back, *pictures[::-1]))
    )
    mean, best = (float(np.nanmean(both[key])) for key in ("r_other", "best_r_other"))
    return HeldOut((first_half, second_half), SPLITS, mean, middle, best)


def _fit_and_test(fitted: Floats, other: Floats, deviation: Floats) -> dict[str, Floats]:
    """Fit weights on `fitted` and test them on `other`: covariances (splits, 3, 3) in units of `deviation`."""
    weights, best = slopes(fitted)
    r_other = combined_r(other, weights[:, 0], weights[:, 1])
    _, best_other = slopes(other)
    weights = weights / deviation[:2]
    weights /= np.abs(weights).max(axis=1, keepdims=True)
    return {"a": weights[:, 0], "b": weights[:, 1], "r_fitted": best, "r_other": r_other, "best_r_other": best_other}
