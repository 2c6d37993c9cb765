"""Spearman's correlation, over all rows and within each QP, and under resampling."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from codecnn.analysis.table import Floats, Ints

THREADS = 2
PLAIN_ROWS = 1_000_000
"""Up to so many rows are sorted in the plain way."""
_CHUNK = 4_000_000


def spearman(columns: Sequence[Floats], qp_index: Ints, qps: int) -> tuple[Floats, Floats]:
    """Spearman's r of k columns (n,) with each other: (k, k) over all rows and (qps, k, k) within each QP.

    Ties have their mean rank. NaN where a column does not vary.
    """
    k, n = len(columns), len(qp_index)
    counts = np.bincount(qp_index, minlength=qps)
    middle = (counts[qp_index] + 1) / 2
    small = qp_index.astype(np.uint8)

    def ranked(column: Floats) -> tuple[Floats, Floats]:
        order, ties = _sorted(column)
        over_all, in_qp = np.empty(n), np.empty(n)
        over_all[order] = _mean_ranks(ties) - (n + 1) / 2
        # Rows by QP, those of a QP in their order: a stable sort of bytes is a count.
        by_qp = np.argsort(small[order], kind="stable")
        order, ties = order[by_qp], ties[by_qp]
        for stop, count in zip(np.cumsum(counts), counts, strict=True):
            rows = slice(stop - count, stop)
            in_qp[order[rows]] = _mean_ranks(ties[rows])
        in_qp -= middle
        return over_all, in_qp

    # Sorting and moving numbers leaves Python's lock to others.
    with ThreadPoolExecutor(THREADS) as pool:
        overall, within = zip(*pool.map(ranked, columns), strict=True)
    whole = np.zeros((k, k))
    parts = np.zeros((qps, k, k))
    for i in range(k):
        for j in range(i + 1):
            whole[i, j] = whole[j, i] = overall[i] @ overall[j]
            parts[:, i, j] = parts[:, j, i] = np.bincount(qp_index, within[i] * within[j], qps)
    return _normalised(whole), _normalised(parts)


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
    order, ties = _sorted(values)
    cumulative = np.cumsum(weights[:, order], axis=1)
    last = np.append(np.flatnonzero(np.diff(ties)), len(ties) - 1)
    upper = cumulative[:, last]
    middle = upper.copy()
    middle[:, 1:] += upper[:, :-1]
    ranks = np.empty_like(weights)
    ranks[:, order] = ((middle - upper[:, -1:]) / 2)[:, ties]
    return ranks


def _sorted(values: Floats) -> tuple[Ints, Ints]:
    """The order (n,) that sorts the values, and a number for each different value in that order, rising from 0."""
    order = np.argsort(values) if len(values) <= PLAIN_ROWS else fast_order(values)
    ascending = values[order]
    ties = np.zeros(len(values), dtype=np.int64)
    np.cumsum(ascending[1:] != ascending[:-1], out=ties[1:])
    return order, ties


def fast_order(values: Floats) -> Ints:
    """An order (n,) that sorts the values, as `np.argsort`, which is several times as slow on millions of rows."""
    # The bits of a float32, turned so that they sort as whole numbers, above the row's number: sorting such keys gives
    # the order without jumps through memory.
    with np.errstate(over="ignore"):
        bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0 makes -0.0 equal to 0.0
    keys = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(len(values), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    keys >>= np.uint64(32)
    # Values that are one as float32 are sorted once more; they are neighbours already.
    same = keys[1:] == keys[:-1]
    ascending = values[order]
    wrong = same & (ascending[1:] < ascending[:-1])
    if wrong.any():
        run = np.zeros(len(values), dtype=np.int64)
        np.cumsum(~same, out=run[1:])
        mixed = np.zeros(run[-1] + 1, dtype=bool)
        mixed[run[1:][wrong]] = True
        again = mixed[run]
        rows = order[again]
        order[again] = rows[np.argsort(values[rows])]
    return order


def _mean_ranks(ties: Ints) -> Floats:
    """Ranks from 1, in ascending order, of values numbered by `ties` (n,), which need not be without gaps."""
    if not len(ties):
        return np.empty(0)
    starts = np.append(0, np.flatnonzero(np.diff(ties)) + 1)
    counts = np.diff(np.append(starts, len(ties)))
    ranks: Floats = np.repeat(starts + (counts + 1) / 2, counts)
    return ranks


def _normalised(products: Floats) -> Floats:
    deviation = np.sqrt(np.diagonal(products, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix: Floats = np.clip(products / (deviation[..., :, None] * deviation[..., None, :]), -1.0, 1.0)
    return matrix
