"""Statistics over CTUs: moments, Pearson's, partial and Spearman's correlation, and bootstrap resamples.

The moments of a table are sums of products of its columns by picture and QP. Pearson's correlation of any subset of
pictures follows from sums of these, so resampling or splitting a table never passes over its rows again.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from codecnn.analysis.ctu_table import Floats, Ints

COLLINEAR = 1e-10
"""Share of a column's variance below which it counts as a combination of the other columns."""

RESAMPLES = 1000
"""Default number of bootstrap resamples."""

MAX_GROUPS = 4096
"""Largest number of groups that are resampled; more groups are merged at random."""

THREADS = 2
"""Threads that rank columns; sorting and compiled loops release Python's lock."""

_NO_VARIANCE = 1e-12
"""Variance, relative to that of the whole table, below which it can be a rounding error of sums."""

_CHUNK = 4_000_000
"""Elements of the arrays that rank resamples; bounds the memory."""

_jit = numba.njit(nogil=True, cache=True)


# --- moments and Pearson's correlation --------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Sums of products over groups and QPs.

    Attributes:
        cells: Sums of products of (1, z), shape (groups, qps, 1 + k, 1 + k), where z are the k columns minus the mean
            and divided by the deviation at their QP.
        mean: Mean of each column at each QP, shape (qps, k).
        deviation: Standard deviation (over n, not n - 1), shape (qps, k).
    """

    cells: Floats
    mean: Floats
    deviation: Floats

    def over_all(self) -> tuple[Floats, Floats]:
        """Combine the QPs.

        Returns:
            Sums of products of (1, z), shape (groups, 1 + k, 1 + k), where z is standardised over all rows, and the
            deviations over all rows, shape (k,).
        """
        counts = self.cells[:, :, 0, 0].sum(axis=0)[:, None]
        total = counts.sum()
        # Relative to the first mean, so that constant columns stay exactly constant in spite of rounding.
        mean = self.mean[0] + (counts * (self.mean - self.mean[0])).sum(axis=0) / total
        shift = self.mean - mean
        deviation = np.sqrt((counts * (self.deviation**2 + shift**2)).sum(axis=0) / total)
        unit = np.where(deviation > 0, deviation, 1.0)
        qps, k = shift.shape
        change = np.zeros((qps, k + 1, k + 1))
        change[:, 0, 0] = 1
        change[:, 1:, 0] = shift / unit
        change[:, np.arange(1, k + 1), np.arange(1, k + 1)] = self.deviation / unit
        pooled: Floats = np.einsum("qij,gqjk,qlk->gil", change, self.cells, change, optimize=True)
        return pooled, deviation


def moments(columns: Sequence[Floats], qp_index: Ints, qps: int, groups: Ints) -> Moments:
    """Compute the moments of a table.

    Args:
        columns: The k columns, shape (n,) each.
        qp_index: Index of each row's QP, shape (n,).
        qps: Number of QPs.
        groups: Index of each row's group (a picture or a CTU), shape (n,).

    Returns:
        The moments.
    """
    k, count = len(columns), int(groups.max()) + 1
    cells = np.zeros((count, qps, k + 1, k + 1))
    mean, deviation = np.zeros((qps, k)), np.zeros((qps, k))
    for qp in range(qps):
        rows: NDArray[np.intp] | slice = np.flatnonzero(qp_index == qp) if qps > 1 else slice(None)
        group = groups[rows]
        if not len(group):
            continue
        cells[:, qp, 0, 0] = np.bincount(group, minlength=count)
        z = []
        for i, column in enumerate(columns):
            values = column[rows]
            constant = values.min() == values.max()
            mean[qp, i] = values[0] if constant else values.mean()
            values = values - mean[qp, i]
            deviation[qp, i] = 0.0 if constant else np.sqrt(values @ values / len(values))
            z.append(values / (deviation[qp, i] or 1.0))
        for i in range(k):
            cells[:, qp, 0, i + 1] = cells[:, qp, i + 1, 0] = np.bincount(group, z[i], count)
            for j in range(i + 1):
                sums = np.bincount(group, z[i] * z[j], count)
                cells[:, qp, i + 1, j + 1] = cells[:, qp, j + 1, i + 1] = sums
    return Moments(cells, mean, deviation)


def covariances(sums: Floats) -> Floats:
    """Return covariances (..., k, k) from sums of products (..., 1 + k, 1 + k); 0 where a column is constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = sums[..., 1:, :] / sums[..., :1, :1]
    covariance: Floats = scaled[..., 1:] - scaled[..., :1] * np.swapaxes(scaled[..., :1], -1, -2)
    flat = np.diagonal(covariance, axis1=-2, axis2=-1) < _NO_VARIANCE
    covariance[flat[..., :, None] | flat[..., None, :]] = 0.0
    return covariance


def correlations(covariance: Floats) -> Floats:
    """Return Pearson's r (..., k, k) from covariances or sums of products about the means; NaN for variance 0."""
    deviation = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix: Floats = np.clip(covariance / (deviation[..., :, None] * deviation[..., None, :]), -1.0, 1.0)
    return matrix


def partial_given_one(r_xy: Any, r_xz: Any, r_yz: Any) -> Any:
    """Return the partial correlation of x and y given z from their Pearson's r.

    The arguments broadcast. The result is NaN where x or y is a function of z.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (1 - r_xz**2) * (1 - r_yz**2)
        return np.where(spread > COLLINEAR**2, (r_xy - r_xz * r_yz) / np.sqrt(np.abs(spread)), np.nan)


def partial_given_many(r: Floats, x: int, y: int, given: Sequence[int]) -> float:
    """Return the partial correlation of two columns given several others.

    It is the correlation of the residuals of least squares of columns x and y on the columns `given`.

    Args:
        r: Pearson's r, shape (k, k).
        x: Index of the first column.
        y: Index of the second column.
        given: Indices of the other columns; constant ones (r is NaN) have no effect.

    Returns:
        The correlation, NaN if a residual vanishes.
    """
    z = [i for i in given if np.isfinite(r[i, i])]
    xy = [x, y]
    if not np.isfinite(r[x, y]):
        return math.nan
    residual = r[np.ix_(xy, xy)] - r[np.ix_(xy, z)] @ np.linalg.pinv(r[np.ix_(z, z)], rcond=1e-10) @ r[np.ix_(z, xy)]
    if min(residual[0, 0], residual[1, 1]) < COLLINEAR:
        return math.nan
    return float(np.clip(residual[0, 1] / math.sqrt(residual[0, 0] * residual[1, 1]), -1, 1))


# --- Spearman's correlation -------------------------------------------------------------------------------------------


def spearman(columns: Sequence[Floats], qp_index: Ints, qps: int) -> tuple[Floats, Floats]:
    """Compute Spearman's r of all pairs of columns.

    `scipy.stats.rankdata` would have to sort every column again within each QP. Here one sort of a column gives its
    ranks over all rows and within each QP. Ties have their mean rank.

    Args:
        columns: The k columns, shape (n,) each.
        qp_index: Index of each row's QP, shape (n,).
        qps: Number of QPs.

    Returns:
        r over all rows, shape (k, k), and within each QP, shape (qps, k, k); NaN for constant columns.
    """
    # float32 halves the memory: ranks minus their mean are multiples of 1/2, which its 24 bits represent exactly for
    # tables of up to 16 million rows.
    ranks = np.empty((len(columns), len(qp_index), 2), dtype=np.float32)
    counts = np.bincount(qp_index, minlength=qps)
    small = qp_index.astype(np.uint8)

    def rank(index: int) -> None:
        order = np.argsort(columns[index])
        _mean_ranks(columns[index][order], order, small, counts, ranks[index])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(rank, range(len(columns))))
    products = _products(ranks, small, qps)
    return correlations(products[0].sum(axis=0)), correlations(products[1])


@_jit
def _mean_ranks(ascending, order, qp_index, counts, ranks):  # type: ignore[no-untyped-def]
    """Write each row's rank minus the mean rank into `ranks` (n, 2): over all rows, and within the row's QP."""
    n = len(order)
    before, tied = np.zeros_like(counts), np.zeros_like(counts)
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and ascending[stop] == ascending[start]:
            stop += 1
        for position in range(start, stop):
            tied[qp_index[order[position]]] += 1
        for position in range(start, stop):
            row = order[position]
            qp = qp_index[row]
            ranks[row, 0] = (start + stop - n) / 2
            ranks[row, 1] = before[qp] + (tied[qp] - counts[qp]) / 2
        for position in range(start, stop):
            qp = qp_index[order[position]]
            before[qp] += tied[qp]
            tied[qp] = 0
        start = stop


@_jit
def _products(ranks, qp_index, qps):  # type: ignore[no-untyped-def]
    """Sum the products (2, qps, k, k) of the k columns of `ranks` (k, n, 2) over the rows of each QP."""
    k, n, _ = ranks.shape
    sums = np.zeros((2, qps, k, k))
    for row in range(n):
        qp = qp_index[row]
        for i in range(k):
            for j in range(i + 1):
                for kind in range(2):
                    sums[kind, qp, i, j] += np.float64(ranks[i, row, kind]) * np.float64(ranks[j, row, kind])
    for i in range(k):
        sums[:, :, i, i + 1 :] = sums[:, :, i + 1 :, i]
    return sums


def resampled_spearman(columns: Sequence[Floats], counts: Floats, groups: Ints) -> Floats:
    """Compute Spearman's r of bootstrap resamples of groups.

    The rows of each resample are ranked anew. Keeping the ranks of the whole table would treat the marginal
    distributions as known and give an interval of another width.

    Args:
        columns: The k columns, shape (n,) each.
        counts: Number of times that each group is in each resample, shape (resamples, groups).
        groups: Index of each row's group, shape (n,).

    Returns:
        r, shape (resamples, k, k).
    """
    k = len(columns)
    products = np.empty((len(counts), k, k))
    step = max(1, _CHUNK // (k * len(groups)))
    for start in range(0, len(counts), step):
        chunk = slice(start, start + step)
        weights = counts[chunk][:, groups]
        ranks = [_weighted_ranks(values, weights) for values in columns]
        for i in range(k):
            weighted = weights * ranks[i]
            for j in range(i + 1):
                products[chunk, i, j] = products[chunk, j, i] = np.einsum("bn,bn->b", weighted, ranks[j])
    return correlations(products)


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mean rank of each row minus the mean of all, shape (b, n), if row i occurs weights[:, i] times."""
    order = np.argsort(values)
    ties = np.zeros(len(values), dtype=np.int64)
    np.cumsum(np.diff(values[order]) > 0, out=ties[1:])
    cumulative = np.cumsum(weights[:, order], axis=1)
    last = np.append(np.flatnonzero(np.diff(ties)), len(ties) - 1)
    upper = cumulative[:, last]
    middle = upper.copy()
    middle[:, 1:] += upper[:, :-1]
    ranks = np.empty_like(weights)
    ranks[:, order] = ((middle - upper[:, -1:]) / 2)[:, ties]
    return ranks


# --- bootstrap --------------------------------------------------------------------------------------------------------


def bootstrap_groups(groups: Ints, rng: np.random.Generator) -> Ints:
    """Merge groups at random until there are at most MAX_GROUPS.

    Merging keeps the expected variance of the groups' sums, which the bootstrap estimates, and makes its cost
    independent of the length of the table.

    Args:
        groups: Index of each row's group, shape (n,).
        rng: Source of the random order.

    Returns:
        Index of each row's merged group, shape (n,).
    """
    count = int(groups.max()) + 1
    return groups if count <= MAX_GROUPS else (rng.permutation(count) % MAX_GROUPS)[groups]


def bootstrap_counts(count: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Draw bootstrap resamples of `count` groups.

    Args:
        count: Number of groups.
        resamples: Number of resamples.
        rng: Source of the draws.

    Returns:
        Number of times that each group is in each resample, shape (resamples, count).
    """
    drawn = rng.integers(0, count, (resamples, count)) + count * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count)
    return counts.astype(np.float64)


def resampled_sums(counts: Floats, sums: Floats) -> Floats:
    """Return the sums of products of each resample, shape (resamples, m, m).

    Args:
        counts: Number of times that each group is in each resample, shape (resamples, groups).
        sums: Sums of products of each group, shape (groups, m, m).
    """
    total: Floats = (counts @ sums.reshape(len(sums), -1)).reshape(len(counts), *sums.shape[1:])
    return total


def bootstrap_interval(values: Any) -> list[float] | None:
    """Return the percentiles 2.5 and 97.5 of resampled values, or None if most of them are not finite."""
    finite = values[np.isfinite(values)]
    if 2 * len(finite) < len(values) or not len(finite):
        return None
    return [float(value) for value in np.percentile(finite, [2.5, 97.5])]
