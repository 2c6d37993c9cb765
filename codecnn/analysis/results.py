"""Records of the correlation analysis; `Correlation.as_json` is the content of correlation.json."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Interval = list[float] | None
"""Percentiles 2.5 and 97.5 of the resamples; None if most of them have no value."""


def _json(value: Any) -> Any:
    """Convert a record to an object of its fields, without those of _OMITTED that are None."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if hasattr(value, "_asdict"):
        omitted = _OMITTED.get(type(value), ())
        return {name: _json(part) for name, part in value._asdict().items() if part is not None or name not in omitted}
    if isinstance(value, Mapping):
        return {key: _json(part) for key, part in value.items()}
    return [_json(part) for part in value] if isinstance(value, list | tuple) else value


def negated(record: Any) -> Any:
    """Return the coefficients for the negated target: all but counts, ratios and multiple correlations change sign."""
    if hasattr(record, "_asdict"):
        same = ("n", "pictures", "ratio", "r")
        return record._replace(
            **{key: part if key in same else negated(part) for key, part in record._asdict().items()}
        )
    if isinstance(record, Mapping):
        return {key: negated(part) for key, part in record.items()}
    if isinstance(record, list):
        return [-value for value in reversed(record)]
    return None if record is None else -record


class Pair(NamedTuple):
    """A value for QP and the same for depth: a coefficient with the MSE, or its interval."""

    qp: Any
    depth: Any


class CoefficientIntervals(NamedTuple):
    """95 % intervals of a predictor's coefficients by one kind of resampling."""

    pearson: Interval
    spearman: Interval
    partial: Interval


class Coefficients(NamedTuple):
    """Correlation of one predictor with a target; None where it is not defined.

    Attributes:
        pearson: Pearson's r.
        spearman: Spearman's r.
        partial: Partial correlation given QP; that of QP itself is given depth.
        partial_all: Partial correlation given all other predictors.
        ci95: Intervals by kind of resampling, "by_picture" and "by_ctu".
    """

    pearson: float | None = None
    spearman: float | None = None
    partial: float | None = None
    partial_all: float | None = None
    ci95: Mapping[str, CoefficientIntervals] = {}

    def interval(self, kind: str, coefficient: str) -> Interval:
        """Return the interval of a coefficient by a kind of resampling, or None."""
        intervals = self.ci95.get(kind)
        found: Interval = None if intervals is None else intervals._asdict().get(coefficient)
        return found


class TargetRows(NamedTuple):
    """Coefficients of all predictors over a set of rows: all of them, or those of one QP."""

    n: int
    pictures: int | None
    predictors: Mapping[str, Coefficients]

    def as_json(self) -> dict[str, Any]:
        """Return the counts and the coefficients in one object."""
        return {"n": self.n, "pictures": self.pictures, **_json(self.predictors)}


class Combination(NamedTuple):
    """The a·QP + b·depth with the highest r by least squares; the larger weight is ±1, `ratio` is a / b."""

    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    r: float | None = None


class Target(NamedTuple):
    """All coefficients of one target; `rows` has "all" and each QP by name."""

    rows: Mapping[str, TargetRows]
    combination: Combination


class QpRows(NamedTuple):
    """The rows of one QP.

    Attributes:
        n: Number of CTUs.
        pictures: Number of pictures, or None if they are not known.
        depth: Pearson's r of depth with the MSE, or None.
        mean_depth: Mean depth in splits.
        mean_mse_y: Mean MSE in sample units squared.
        deviation_mse_y: Standard deviation of the MSE.
    """

    n: int
    pictures: int | None
    depth: float | None
    mean_depth: float
    mean_mse_y: float
    deviation_mse_y: float


class Searched(NamedTuple):
    """Result of a search.

    Attributes:
        a: Best weight of QP.
        b: Best weight of depth; None if it was fixed.
        r: Pearson's r.
        bayes_steps_r: Pearson's r after the Bayesian steps alone.
        reached_closed_form: r equals that of the closed form.
        reached_best_within_bounds: r equals the best one within the bounds of the search.
        points: (a, b, r) of the points tried.
    """

    a: float
    b: float | None
    r: float
    bayes_steps_r: float
    reached_closed_form: bool
    reached_best_within_bounds: bool
    points: list[tuple[float, float, float]]


class Best(NamedTuple):
    """The a and b with the highest r by least squares.

    Attributes:
        a: Weight of QP.
        b: Weight of depth; None if it was fixed.
        r: Pearson's r.
        outside_box: The unbounded closed form lies outside the bounds of the search; None for bounded ones.
    """

    a: float
    b: float | None
    r: float
    outside_box: bool | None = None


class Combinations(NamedTuple):
    """The best a·QP + b·depth.

    Attributes:
        closed_form: Without bounds; the larger weight is ±1.
        ratio: a / b of it, or None if b is 0.
        closed_form_box: With a and b in [0, 1].
        closed_form_b1: With a in [0, 1] and b = 1.
        bayes: Search for a and b in [0, 1].
        bayes_b1: Search for a in [0, 1] with b = 1.
    """

    closed_form: Best
    ratio: float | None
    closed_form_box: Best
    closed_form_b1: Best
    bayes: Searched
    bayes_b1: Searched


_NO_COMBINATIONS = {
    **dict.fromkeys(("closed_form", "closed_form_box", "bayes"), dict.fromkeys("abr")),
    **dict.fromkeys(("closed_form_b1", "bayes_b1"), dict.fromkeys("ar")),
    "ratio": None,
}


class Suppressor(NamedTuple):
    """Shares of the variance of the MSE that QP and depth explain; see `combination.suppressor`.

    Attributes:
        r_qp: Pearson's r of QP with the MSE.
        r_depth: Pearson's r of depth with the MSE.
        r_qp_depth: Pearson's r of QP with depth.
        partial: Partial correlation of each with the MSE given the other.
        semi_partial: r of each, without the part that the other explains, with the MSE.
        explained: Squared multiple correlation.
        shares: "qp_alone", "depth_alone" and "common".
        suppression: The common share is negative.
    """

    r_qp: float
    r_depth: float
    r_qp_depth: float
    partial: Pair
    semi_partial: Pair
    explained: float
    shares: Mapping[str, float]
    suppression: bool


class Half(NamedTuple):
    """Weights fitted on some pictures, their r there and on the other pictures, and the best r possible there."""

    fitted_pictures: int
    other_pictures: int
    a: float
    b: float
    r_fitted: float
    r_other: float
    best_r_other: float


class HeldOut(NamedTuple):
    """Weights tested on pictures they were not fitted on.

    Attributes:
        halves: One split of the pictures, in both directions.
        splits: Number of random splits.
        mean_r_other: Mean r on the other half over all splits.
        middle95_r_other: Percentiles 2.5 and 97.5 of it.
        mean_best_r_other: Mean of the best r possible on the other half.
    """

    halves: tuple[Half, Half]
    splits: int
    mean_r_other: float
    middle95_r_other: list[float]
    mean_best_r_other: float


class DepthQuarter(NamedTuple):
    """A quarter of the CTUs of one QP by depth.

    Attributes:
        qp: Name of the QP.
        n: Number of CTUs.
        depth: Lowest and highest depth in splits.
        mse_y: Mean MSE in sample units squared.
        gain_db: Mean gain of a filter in dB, or None.
        saved_share: Share of the squared error that the filter removes at this QP, or None.
    """

    qp: str
    n: int
    depth: tuple[float, float]
    mse_y: float
    gain_db: float | None
    saved_share: float | None


class HeadlineIntervals(NamedTuple):
    """95 % intervals of the main figures.

    Attributes:
        pictures: Number of resampled pictures, or None.
        ctus: Number of resampled CTUs, or None.
        pearson: Intervals of Pearson's r with the MSE.
        qp_depth: Interval of Pearson's r of QP with depth.
        closed_form: Intervals of "r" and "ratio".
    """

    pictures: int | None
    ctus: int | None
    pearson: Pair
    qp_depth: Interval
    closed_form: Mapping[str, Interval]


def _rounded(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


class Correlation(NamedTuple):
    """Correlation of QP and depth with the MSE and other targets; docs/howto/correlate.md explains the figures.

    Attributes:
        n: Number of CTUs.
        pictures: Number of pictures, or None if they are not known.
        dropped: Number of rows without a depth, which are excluded.
        pearson: Pearson's r of QP and depth with the MSE.
        spearman: Spearman's r of QP and depth with the MSE.
        partial: Partial correlation of each with the MSE given the other.
        qp_depth: Pearson's r of QP with depth.
        deviation: Standard deviations "qp", "depth" (splits) and "mse_y" (sample units squared).
        per_qp: The rows of each QP by name.
        combinations: The best a·QP + b·depth; None if QP, depth or the MSE is constant.
        suppressor: Shares of the explained variance, or None.
        held_out: Check on other pictures, or None.
        targets: All coefficients by target.
        depth_quarters: MSE and gain by QP and depth; the key "worth" in JSON.
        ci95: Intervals "by_picture" and "by_ctu"; None where nothing was resampled that way.
        resamples: Number of resamples.
        seed: Seed of search, bootstrap and splits.
        notes: Sentences on values that could not be computed.
    """

    n: int
    pictures: int | None
    dropped: int
    pearson: Pair
    spearman: Pair
    partial: Pair
    qp_depth: float | None
    deviation: Mapping[str, float]
    per_qp: Mapping[str, QpRows]
    combinations: Combinations | None
    suppressor: Suppressor | None
    held_out: HeldOut | None
    targets: Mapping[str, Target]
    depth_quarters: list[DepthQuarter]
    ci95: Mapping[str, HeadlineIntervals | None]
    resamples: int
    seed: int
    notes: list[str]

    def __repr__(self) -> str:
        return (
            f"<Correlation of {self.n:,} CTUs: Pearson(QP, MSE) {_rounded(self.pearson.qp)}, "
            f"Pearson(depth, MSE) {_rounded(self.pearson.depth)}>"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content of correlation.json without its provenance."""
        content: dict[str, Any] = {}
        for name, value in self._asdict().items():
            if name == "combinations":
                content |= _NO_COMBINATIONS if value is None else _json(value)
            else:
                content["worth" if name == "depth_quarters" else name] = _json(value)
        return content

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariances of QP, depth and MSE, shape (3, 3); defined if `combinations` is not None."""
        qp, depth, both = self.pearson.qp, self.pearson.depth, self.qp_depth
        deviation = np.array(list(self.deviation.values()))
        r = np.array([[1, both, qp], [both, 1, depth], [qp, depth, 1]], dtype=np.float64)
        return np.asarray(r * np.outer(deviation, deviation))


_OMITTED: Mapping[type, tuple[str, ...]] = {
    Searched: ("b",),
    Best: ("b", "outside_box"),
    DepthQuarter: ("gain_db", "saved_share"),
    HeadlineIntervals: ("pictures", "ctus"),
}
"""Fields that JSON omits if they are None."""
