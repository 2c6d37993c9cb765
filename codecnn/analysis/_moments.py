"""Sums of products of a table's columns, by picture and QP: all that Pearson's r of any subset of them needs.

A group of CTUs (a picture) enters as the matrix of the sums of products of (1, columns). Sums of groups give the
correlations of any rows that are made of whole groups, so resampling or splitting a table never passes over its rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from codecnn.analysis._ctu_table import Floats, Ints

_NO_VARIANCE = 1e-12
"""Variance, in units of that of the whole, that rounding of sums cannot be told from."""


class Moments(NamedTuple):
    """Sums of products over groups and QPs. `cells` (groups, qps, 1 + k, 1 + k) of (1, z), z being the k columns minus
    the mean and over the deviation of their QP, `mean` and `deviation` (qps, k) over n rather than n - 1."""

    cells: Floats
    mean: Floats
    deviation: Floats

    def over_all(self) -> tuple[Floats, Floats]:
        """(groups, 1 + k, 1 + k) of all rows, standardised over all of them; and their deviations (k,)."""
        counts = self.cells[:, :, 0, 0].sum(axis=0)[:, None]
        total = counts.sum()
        # Constant columns must stay exactly constant, whatever their mean is rounded to.
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
    """Moments of k columns (n,) whose rows have the QP `qp_index` and belong to `groups`, both numbered from 0."""
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
    """(..., k, k) covariances from (..., 1 + k, 1 + k) sums of products; 0 where a column does not vary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = sums[..., 1:, :] / sums[..., :1, :1]
    covariance: Floats = scaled[..., 1:] - scaled[..., :1] * np.swapaxes(scaled[..., :1], -1, -2)
    flat = np.diagonal(covariance, axis1=-2, axis2=-1) < _NO_VARIANCE
    covariance[flat[..., :, None] | flat[..., None, :]] = 0.0
    return covariance


def correlations(covariance: Floats) -> Floats:
    """(..., k, k) Pearson's r from covariances, or from sums of products about the means; NaN where a variance is 0."""
    deviation = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix: Floats = np.clip(covariance / (deviation[..., :, None] * deviation[..., None, :]), -1.0, 1.0)
    return matrix
