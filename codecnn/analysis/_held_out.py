"""a and b from half of the pictures, tried on the other half."""

import numpy as np

from codecnn.analysis._coefficients import combined_r, slopes
from codecnn.analysis._ctu_table import Floats
from codecnn.analysis._moments import covariances
from codecnn.analysis._results import Half, HeldOut
from codecnn.analysis.bootstrap import interval, resampled_sums

SPLITS = 200
MIN_PICTURES = 4


def held_out(sums: Floats, deviation: Floats, seed: int) -> HeldOut | None:
    """Least squares on a random half of the pictures, r of its a·QP + b·depth on the other half.

    `sums` (pictures, 4, 4) are sums of products of (1, QP, depth, target), standardised by `deviation` (3,). Over
    SPLITS splits, each tried both ways. None with fewer than MIN_PICTURES pictures, or where QP, depth or target do not
    vary in a half.
    """
    count = len(sums)
    if count < MIN_PICTURES:
        return None
    rng = np.random.default_rng(seed)
    half = (rng.permuted(np.tile(np.arange(count), (SPLITS, 1)), axis=1) < count // 2).astype(np.float64)
    fitted, other = covariances(resampled_sums(half, sums)), covariances(resampled_sums(1 - half, sums))
    forth = _tried(fitted, other, deviation)
    back = _tried(other, fitted, deviation)
    both = {key: np.concatenate([forth[key], back[key]]) for key in forth}
    middle = interval(both["r_other"])
    if middle is None or not all(np.isfinite(way[key][0]) for way in (forth, back) for key in way):
        return None
    pictures = int(half[0].sum()), int(count - half[0].sum())
    first, second = (
        Half(fit, test, **{key: float(way[key][0]) for key in way})
        for way, fit, test in ((forth, *pictures), (back, *pictures[::-1]))
    )
    mean, best = (float(np.nanmean(both[key])) for key in ("r_other", "best_r_other"))
    return HeldOut((first, second), SPLITS, mean, middle, best)


def _tried(fitted: Floats, other: Floats, deviation: Floats) -> dict[str, Floats]:
    """Slopes on `fitted`, r on `other`, both (splits, 3, 3) covariances in units of `deviation`."""
    weights, best = slopes(fitted)
    r_other = combined_r(other, weights[:, 0], weights[:, 1])
    _, best_other = slopes(other)
    weights = weights / deviation[:2]
    weights /= np.abs(weights).max(axis=1, keepdims=True)
    return {"a": weights[:, 0], "b": weights[:, 1], "r_fitted": best, "r_other": r_other, "best_r_other": best_other}
