"""Spearman's correlation, over all rows and within each QP, and under resampling."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from codecnn.analysis.table import Floats, Ints

_jit = numba.njit(nogil=True, cache=True)
THREADS = 2
PLAIN_ROWS = 1_000_000
"""Up to so many rows are sorted in the plain way."""
_CHUNK = 4_000_000


def spearman(columns: Sequence[Floats], qp_index: Ints, qps: int) -> tuple[Floats, Floats]:
    """Spearman's r of k columns (n,) with each other: (k, k) over all rows and (qps, k, k) within each QP.

    Ties have their mean rank. NaN where a column does not vary.
    """
    # Half ranks of up to 16 million rows are exact in 32 bit.
    ranks = np.empty((len(columns), len(qp_index), 2), dtype=np.float32)
    counts = np.bincount(qp_index, minlength=qps)
    small = qp_index.astype(np.uint8)

    def rank(index: int) -> None:
        ascending, order = sort_rows(columns[index])
        _mean_ranks(ascending, order, small, counts, ranks[index])

    # Sorting and compiled loops leave Python's lock to others.
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(rank, range(len(columns))))
    products = _products(ranks, small, qps)
    return _normalised(products[0].sum(axis=0)), _normalised(products[1])


@_jit
def _mean_ranks(ascending, order, qp_index, counts, ranks):  # type: ignore[no-untyped-def]
    """Write each row's rank minus the mean of all into `ranks` (n, 2): over all rows, and among those of its QP."""
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
    """Sums of products (2, qps, k, k) of the k columns of `ranks` (k, n, 2) over the rows of each QP."""
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
    """Spearman's r (resamples, k, k) of k columns (n,) where each group's rows are taken `counts` (resamples, groups)
    times.

    The rows of every resample are ranked anew. With the ranks of the whole table kept, as if the marginal distributions
    were known, the interval would have another width: their estimation is part of what varies.
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
    return _normalised(products)


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Mean rank of each row minus the mean of all, (b, n), where row i occurs weights[:, i] times."""
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


def sort_rows(values: Floats) -> tuple[Floats, Ints]:
    """The values (n,) in rising order, and the rows that they come from.

    As `np.argsort`, which on millions of rows takes several times as long: here the upper bits of each value and its
    row are sorted as one whole number, and only values that share those bits are then sorted by argsort.
    """
    n = len(values)
    if n <= PLAIN_ROWS:
        order: Ints = np.argsort(values)
        return values[order], order
    bits = (values + 0.0).view(np.uint64)  # + 0.0 makes -0.0 equal to 0.0
    # Bits of floating-point numbers sort as whole numbers once those of negative ones are turned.
    keys = np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))
    low = np.uint64((1 << n.bit_length()) - 1)
    keys = (keys & ~low) | np.arange(n, dtype=np.uint64)
    keys.sort()
    order = (keys & low).view(np.int64)
    ascending = values[order]
    wrong = ascending[1:] < ascending[:-1]
    if wrong.any():
        keys &= ~low
        same = keys[1:] == keys[:-1]
        run = np.zeros(n, dtype=np.int64)
        np.cumsum(~same, out=run[1:])
        mixed = np.zeros(run[-1] + 1, dtype=bool)
        mixed[run[1:][wrong]] = True
        again = mixed[run]
        rows = order[again]
        order[again] = rows[np.argsort(values[rows])]
        ascending = values[order]
    return ascending, order


def _normalised(products: Floats) -> Floats:
    deviation = np.sqrt(np.diagonal(products, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix: Floats = np.clip(products / (deviation[..., :, None] * deviation[..., None, :]), -1.0, 1.0)
    return matrix
