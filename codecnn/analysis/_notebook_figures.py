"""The figures of the notebook that codecnn grew from, and what they imply of the data behind them."""

from codecnn.analysis._coefficients import implied_correlations
from codecnn.analysis._results import Implied

SOURCE = "the researcher's notebook that codecnn grew from, VVC (VTM 6) at QP 22, 27, 32 and 37"
PEARSON = {"qp": 0.5476, "depth": 0.1886}
PER_QP = {"22": 0.5369, "27": 0.4024, "32": 0.5617, "37": 0.6722}
BAYES = {"a": 0.2817, "b": 0.8561, "r": 0.6748}
BAYES_RATIO = BAYES["a"] / BAYES["b"]
B1 = {"a": 0.3290, "r": 0.6748}
_QP_DEVIATION = 31.25**0.5
"""Deviation of QP 22, 27, 32 and 37, each as often as the others."""


def implied() -> Implied:
    """The correlation of QP with depth behind the notebook's three figures: two roots, one of which its a and b leave.

    With the upper root the slope of depth, which goes as r_depth - ρ·r_qp, would be negative; the notebook's b is not.
    With the lower one a / b = (β_qp / σ_qp) / (β_depth / σ_depth) gives the deviation of its depths (splits).
    """
    roots = implied_correlations(PEARSON["qp"], PEARSON["depth"], BAYES["r"])
    if roots is None:
        raise AssertionError("the notebook's figures are consistent")
    slopes = [(PEARSON["qp"] - root * PEARSON["depth"], PEARSON["depth"] - root * PEARSON["qp"]) for root in roots]
    possible = [root for root, (a, b) in zip(roots, slopes, strict=True) if min(a, b) > 0]
    a, b = slopes[roots.index(possible[0])]
    return Implied(roots, possible[0], BAYES_RATIO * _QP_DEVIATION * b / a)
