"""Resamples of a table's groups of CTUs, and intervals from them."""

from typing import Any

import numpy as np

from codecnn.analysis._ctu_table import Floats, Ints

RESAMPLES = 1000
MAX_GROUPS = 4096


def bootstrap_groups(groups: Ints, rng: np.random.Generator) -> Ints:
    """Numbers (n,) of at most MAX_GROUPS groups: where there are more, they are put together at random.

    That leaves the variance of their sums, which the resampling estimates, as it is in expectation, and makes the work
    independent of the table's length.
    """
    count = int(groups.max()) + 1
    return groups if count <= MAX_GROUPS else (rng.permutation(count) % MAX_GROUPS)[groups]


def draw(count: int, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each of `count` groups is in each resample of as many, (resamples, count)."""
    drawn = rng.integers(0, count, (resamples, count)) + count * np.arange(resamples)[:, None]
    times = np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count)
    return times.astype(np.float64)


def resampled_sums(times: Floats, sums: Floats) -> Floats:
    """Sums of products (resamples, m, m) of each resample, from those of the groups, (groups, m, m)."""
    total: Floats = (times @ sums.reshape(len(sums), -1)).reshape(len(times), *sums.shape[1:])
    return total


def interval(values: Any) -> list[float] | None:
    """The middle 95 % of the resamples; None where most of them had no value."""
    finite = values[np.isfinite(values)]
    if 2 * len(finite) < len(values) or not len(finite):
        return None
    return [float(value) for value in np.percentile(finite, [2.5, 97.5])]
