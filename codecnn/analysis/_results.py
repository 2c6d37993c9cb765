"""What the analysis finds, as records; `Correlation.as_json` is what correlation.json holds (docs/correlation.md)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Interval = list[float] | None
"""Lower and upper limit of 95 % of the resamples; None where most of them had no value."""


def _json(value: Any) -> Any:
    """A record is an object of its fields, less those of _OMITTED that are None."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if hasattr(value, "_asdict"):
        omitted = _OMITTED.get(type(value), ())
        return {name: _json(part) for name, part in value._asdict().items() if part is not None or name not in omitted}
    if isinstance(value, Mapping):
        return {key: _json(part) for key, part in value.items()}
    return [_json(part) for part in value] if isinstance(value, list | tuple) else value


def negated(found: Any) -> Any:
    """Coefficients for a target with its sign turned: every number but counts and multiple correlations."""
    if hasattr(found, "_asdict"):
        same = ("n", "pictures", "ratio", "r")
        return found._replace(**{key: part if key in same else negated(part) for key, part in found._asdict().items()})
    if isinstance(found, Mapping):
        return {key: negated(part) for key, part in found.items()}
    if isinstance(found, list):
        return [-value for value in reversed(found)]
    return None if found is None else -found


class Pair(NamedTuple):
    """A figure of QP and the same of depth: a coefficient with the MSE, or its interval."""

    qp: Any
    depth: Any


class CoefficientIntervals(NamedTuple):
    """95 % intervals of a predictor's coefficients, by one kind of resampling."""

    pearson: Interval
    spearman: Interval
    partial: Interval


class Coefficients(NamedTuple):
    """How one predictor goes with a target, None where that is not defined: Pearson, Spearman, partial given QP (of QP
    itself: given depth), partial given all other predictors; `ci95` by "by_picture" and "by_ctu"."""

    pearson: float | None = None
    spearman: float | None = None
    partial: float | None = None
    partial_all: float | None = None
    ci95: Mapping[str, CoefficientIntervals] = {}

    def interval(self, kind: str, coefficient: str) -> Interval:
        """The interval of a coefficient by a kind of resampling; None where there is none."""
        return getattr(self.ci95.get(kind), coefficient, None)


class TargetRows(NamedTuple):
    """The coefficients of every predictor over some rows: all, or those of one QP."""

    n: int
    pictures: int | None
    predictors: Mapping[str, Coefficients]

    def as_json(self) -> dict[str, Any]:
        return {"n": self.n, "pictures": self.pictures, **_json(self.predictors)}


class Combination(NamedTuple):
    """Least squares: the a and b of a·QP + b·depth with the highest r, the larger being ±1; ratio is a / b."""

    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    r: float | None = None


class Target(NamedTuple):
    """All coefficients of one target; `rows` has "all" and each QP by name."""

    rows: Mapping[str, TargetRows]
    combination: Combination


class QpRows(NamedTuple):
    """The rows of one QP: counts, r of depth with the MSE, means (splits, sample²) and the deviation of the MSE."""

    n: int
    pictures: int | None
    depth: float | None
    mean_depth: float
    mean_mse_y: float
    deviation_mse_y: float


class Searched(NamedTuple):
    """What a search found, `b` being None where it was given; r after the Bayesian steps alone, whether r comes to that
    of the closed form, and to the best within the bounds of the search; (a, b, r) of the points tried."""

    a: float
    b: float | None
    r: float
    bayes_steps_r: float
    reached_closed_form: bool
    reached_best_within_bounds: bool
    points: list[tuple[float, float, float]]


class Best(NamedTuple):
    """The a and b of the highest r by least squares, `b` being None where it was given; `outside_box` says whether the
    free ones lie outside the search's."""

    a: float
    b: float | None
    r: float
    outside_box: bool | None = None


class Combinations(NamedTuple):
    """The best a·QP + b·depth: free (the larger of a and b being ±1, `ratio` a / b), with a and b in [0, 1] and with
    b = 1, and what the searches found in these bounds; r with the notebook's a / b."""

    closed_form: Best
    ratio: float | None
    closed_form_box: Best
    closed_form_b1: Best
    bayes: Searched
    bayes_b1: Searched
    notebook_ratio_r: float


_NO_COMBINATIONS = {
    **dict.fromkeys(("closed_form", "closed_form_box", "bayes"), dict.fromkeys("abr")),
    **dict.fromkeys(("closed_form_b1", "bayes_b1"), dict.fromkeys("ar")),
    **dict.fromkeys(("ratio", "notebook_ratio_r")),
}


class Suppressor(NamedTuple):
    """How QP and depth share the variance of the MSE, `shares` having "qp_alone", "depth_alone" and "common"; see
    `coefficients.suppressor`."""

    r_qp: float
    r_depth: float
    r_qp_depth: float
    partial: Pair
    semi_partial: Pair
    explained: float
    shares: Mapping[str, float]
    suppression: bool


class Implied(NamedTuple):
    """What the notebook's figures imply: both roots of r(QP, depth), the possible one, the deviation of its depths."""

    roots: tuple[float, float]
    qp_depth: float
    depth_deviation: float


class Half(NamedTuple):
    """a and b of some pictures, their r there and on the other pictures, and the best r possible on those."""

    fitted_pictures: int
    other_pictures: int
    a: float
    b: float
    r_fitted: float
    r_other: float
    best_r_other: float


class HeldOut(NamedTuple):
    """One split of the pictures both ways, and over many splits: mean r on the other half, its middle 95 %, and the
    mean of the best possible there."""

    halves: tuple[Half, Half]
    splits: int
    mean_r_other: float
    middle95_r_other: list[float]
    mean_best_r_other: float


class DepthQuarter(NamedTuple):
    """A quarter of a QP's CTUs by depth (lowest and highest, splits): mean MSE (sample²), and where a filter's gain is
    known its mean (dB) and the part of the QP's saved squared error."""

    qp: str
    n: int
    depth: tuple[float, float]
    mse_y: float
    gain_db: float | None
    saved_share: float | None


class HeadlineIntervals(NamedTuple):
    """95 % intervals of the headline's figures, and how many pictures or CTUs were resampled; `closed_form` has "r" and
    "ratio"."""

    pictures: int | None
    ctus: int | None
    pearson: Pair
    qp_depth: Interval
    closed_form: Mapping[str, Interval]


class Correlation(NamedTuple):
    """How QP and depth relate to the MSE and to other targets; docs/correlation.md explains every figure.

    `deviation` has "qp", "depth" (splits) and "mse_y" (sample²). `combinations` is None where QP, depth or the MSE do
    not vary, and with it `suppressor` and `held_out`. `ci95` has "by_picture" and "by_ctu", None where nothing was
    resampled so.
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
    notebook_implied: Implied
    held_out: HeldOut | None
    targets: Mapping[str, Target]
    depth_quarters: list[DepthQuarter]
    ci95: Mapping[str, HeadlineIntervals | None]
    resamples: int
    seed: int
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """What correlation.json holds but for its provenance."""
        found: dict[str, Any] = {}
        for name, value in self._asdict().items():
            if name == "combinations":
                found |= _NO_COMBINATIONS if value is None else _json(value)
            else:
                found["worth" if name == "depth_quarters" else name] = _json(value)
        return found

    @property
    def covariance(self) -> NDArray[np.float64]:
        """(3, 3) of QP, depth and MSE; only where `combinations` is not None."""
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
"""Fields that JSON leaves out where they are None."""
