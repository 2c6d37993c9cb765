"""The Bayesian search for a and b, as the notebook did it: it knows nothing of the closed form."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from bayes_opt import BayesianOptimization, acquisition
from bayes_opt.exception import NotUniqueError
from scipy.optimize import minimize

from codecnn.analysis._coefficients import combined_r
from codecnn.analysis._ctu_table import Floats

INITIAL_POINTS, STEPS = 5, 20


class Found(NamedTuple):
    """The best a and b and their r; the r that the Bayesian steps alone came to; (a, b, r) of each of their points."""

    a: float
    b: float
    r: float
    bayes_r: float
    points: list[tuple[float, float, float]]


def search(covariance: Floats, seed: int, b: float | None = None) -> Found:
    """The a and b in [0, 1], or a in [0, 1] with the `b` given, for which a·QP + b·depth has the highest r.

    Gaussian process and expected improvement, then a descent (L-BFGS-B) from the best point: r depends on a / b alone,
    a ridge from which the process stops some 1e-3 short. `covariance` is (3, 3) over (QP, depth, target). The same seed
    gives the same answer.
    """
    names = ("a", "b") if b is None else ("a",)

    def objective(point: Any) -> float:
        return float(combined_r(covariance, *(*point, b)[:2]))

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
        warnings.simplefilter("ignore")  # of the process's fit, and of a deviation of 0 at a point it knows
        for step in range(INITIAL_POINTS + STEPS):
            suggested = optimiser.random_sample()[0] if step < INITIAL_POINTS else optimiser.suggest()
            point = [float(suggested[name]) for name in names]
            try:
                optimiser.register(suggested, objective(point))
            except NotUniqueError:
                break  # nothing is expected to be better than a point that is known
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
    points = [(*(*point, b)[:2], objective(point)) for point in tried]
    return Found(best[0], best[1] if b is None else b, objective(best), bayes_r, points)  # type: ignore[arg-type]


class _ExpectedImprovement(acquisition.ExpectedImprovement):
    """Expected improvement over random candidates only: ample for two parameters, and ten times as fast."""

    def suggest(self, *args: Any, **kwargs: Any) -> Any:
        return super().suggest(*args, **({"n_random": 1000, "n_smart": 0} | kwargs))
