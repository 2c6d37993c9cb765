"""What follows from a matrix of correlations: partial correlations, the best combination, the suppressor effect."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codecnn.analysis._ctu_table import Floats
from codecnn.analysis._results import Pair, Suppressor

_COLLINEAR = 1e-10
"""Share of a column's variance that counts as none once the others are accounted for."""


def pair_partial(r_xy: Any, r_xz: Any, r_yz: Any) -> Any:
    """Partial correlation of x and y given z from their Pearson's r; all broadcast; NaN where x or y is z alone."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (1 - r_xz**2) * (1 - r_yz**2)
        return np.where(spread > _COLLINEAR**2, (r_xy - r_xz * r_yz) / np.sqrt(np.abs(spread)), np.nan)


def partial(r: Floats, x: int, y: int, given: Sequence[int]) -> float:
    """Correlation of what least squares on the columns `given` leaves of columns x and y; `r` is (k, k) Pearson.

    Columns that do not vary (r is NaN) explain nothing. NaN where nothing is left of x or y.
    """
    z = [i for i in given if np.isfinite(r[i, i])]
    xy = [x, y]
    if not np.isfinite(r[x, y]):
        return math.nan
    left = r[np.ix_(xy, xy)] - r[np.ix_(xy, z)] @ np.linalg.pinv(r[np.ix_(z, z)], rcond=1e-10) @ r[np.ix_(z, xy)]
    if min(left[0, 0], left[1, 1]) < _COLLINEAR:
        return math.nan
    return float(np.clip(left[0, 1] / math.sqrt(left[0, 0] * left[1, 1]), -1, 1))


def combined_r(covariance: Floats, a: Any, b: Any) -> Any:
    """Pearson's r of a·QP + b·depth with the target; a and b broadcast; -1 where the sum does not vary.

    `covariance` is (..., 3, 3) over (QP, depth, target).
    """
    qq, qd, dd = covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]
    variance = a * a * qq + 2 * a * b * qd + b * b * dd
    together = a * covariance[..., 0, 2] + b * covariance[..., 1, 2]
    scale = variance * covariance[..., 2, 2]
    return np.where(scale > 0, together / np.sqrt(np.where(scale > 0, scale, 1.0)), -1.0)


def closed_form(covariance: Floats) -> tuple[float, float, float]:
    """(a, b, r) that maximise Pearson's r of a·QP + b·depth with the target, by least squares; max(|a|, |b|) = 1.

    `covariance` is (3, 3) over (QP, depth, target), with variances above 0. r is the multiple correlation, at least 0.
    Where QP and depth are proportional to each other the shortest standardised solution is taken.
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


def slopes(covariance: Floats) -> tuple[Floats, Floats]:
    """Least-squares weights (..., 2) of QP and depth, up to a factor above 0, and their r with the target, (...).

    For many (..., 3, 3) covariances over (QP, depth, target) at once; NaN where the weights are not unique.
    """
    qq, qd, dd = covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]
    qt, dt = covariance[..., 0, 2], covariance[..., 1, 2]
    unique = (qq * dd - qd * qd > _COLLINEAR * qq * dd) & (covariance[..., 2, 2] > 0)
    a, b = (np.where(unique, value, np.nan) for value in (qt * dd - qd * dt, dt * qq - qd * qt))
    with np.errstate(invalid="ignore"):
        r = np.where(unique, combined_r(covariance, a, b), np.nan)
    return np.stack([a, b], axis=-1), r


def closed_form_in_box(covariance: Floats, b: float | None = None) -> tuple[float, float, float]:
    """(a, b, r) with a and b in [0, 1], or with the `b` given, that maximise r: what a search in there can reach.

    r depends on a / b alone and has no maximum other than the closed form, so where that lies outside, the best is
    QP alone or depth alone, or with b given one of the ends of a.
    """
    best_a, best_b, _ = closed_form(covariance)
    inside = max(best_a, best_b) > 0 and min(best_a, best_b) >= 0
    if b is None:
        points = [(1.0, 0.0), (0.0, 1.0), *([(best_a, best_b)] if inside else [])]
    else:
        points = [(0.0, b), (1.0, b), *([(min(1.0, b * best_a / best_b), b)] if inside and best_b > 0 else [])]
    found = [(x, y, float(combined_r(covariance, x, y))) for x, y in points]
    return max(found, key=lambda point: point[2])


def suppressor(r_qp: float, r_depth: float, r_both: float) -> Suppressor | None:
    """How QP and depth share the variance of the target that both together explain.

    From Pearson's r of each with the target and with each other. `explained` is the squared multiple correlation;
    `semi_partial` the r of each, cleared of the other, with the target, whose squares are the shares `qp_alone` and
    `depth_alone` that only that one explains; `common` is the rest. Where common is negative, each hides part of the
    other's effect, and the sum explains more than both parts added up: suppression (Conger 1974; Cohen et al. 2003).
    None where QP and depth are proportional to each other.
    """
    if 1 - r_both**2 < _COLLINEAR:
        return None
    width = math.sqrt(1 - r_both**2)
    semi_qp, semi_depth = (r_qp - r_depth * r_both) / width, (r_depth - r_qp * r_both) / width
    partial_qp, partial_depth = pair_partial(r_qp, r_both, r_depth), pair_partial(r_depth, r_both, r_qp)
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


def implied_correlations(r_x: float, r_y: float, multiple: float) -> tuple[float, float] | None:
    """The two correlations of x with y, the lower first, that are consistent with each one's r with a target and the
    multiple correlation; None where there are none.

    R²·(1 - ρ²) = r_x² + r_y² - 2·r_x·r_y·ρ, a quadratic in ρ.
    """
    spread = (multiple**2 - r_x**2) * (multiple**2 - r_y**2)
    if spread < 0 or multiple == 0:
        return None
    middle, half = r_x * r_y / multiple**2, math.sqrt(spread) / multiple**2
    return middle - half, middle + half
