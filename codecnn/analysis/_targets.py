"""Every coefficient of every target: over all rows and within each QP, with intervals by picture and by CTU."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codecnn.analysis._coefficients import closed_form, pair_partial, partial
from codecnn.analysis._ctu_table import MIN_ROWS, PREDICTORS, CtuTable, Floats, Ints
from codecnn.analysis._moments import correlations, covariances, moments
from codecnn.analysis._ranks import resampled_spearman, spearman
from codecnn.analysis._results import CoefficientIntervals, Coefficients, Combination, Target, TargetRows
from codecnn.analysis.bootstrap import bootstrap_groups, draw, interval, resampled_sums

SPEARMAN_ROWS = 20_000
"""Spearman's interval ranks every resample anew, seconds of work for so many rows; above it there is none."""
SAME_RANKS = {"log_mse": "mse_y"}


class Rows(NamedTuple):
    """Correlations of the k columns over some rows: Pearson's r and Spearman's (k, k), and by what is resampled
    ("by_picture", "by_ctu") covariances (resamples, k, k) and, by target, Spearman's r of depth and QP (resamples,)."""

    n: int
    pictures: int | None
    covariance: Floats
    spearman: Floats
    drawn: dict[str, Floats]
    drawn_spearman: dict[str, dict[tuple[str, str], Floats]]


class Part(NamedTuple):
    """Rows in which the same targets are defined: `columns` are its k predictors and targets, `rows` its "all" and each
    QP by name. `sums` (groups, 1 + k, 1 + k) are the sums of products of its pictures, standardised by `deviation`."""

    columns: tuple[str, ...]
    rows: dict[str, Rows]
    sums: Floats
    deviation: Floats


def analyse(ctus: CtuTable, targets: Sequence[str], seed: int, resamples: int) -> Part:
    """Correlations of a table's predictors and those `targets` that are defined in all its rows, and their resamples.

    Rows are resampled by picture, where pictures are known, and by CTU.
    """
    columns = (*ctus.predictors, *targets)
    values = [ctus.columns[name] for name in columns]
    qps = len(ctus.qps)
    of = {"by_picture": ctus.picture, "by_ctu": np.arange(len(ctus)) if resamples else None}
    if all(groups is None for groups in of.values()):
        of["by_ctu"] = np.zeros(len(ctus), dtype=np.int64)
    sums: dict[str, dict[str, Floats]] = {}
    times: dict[str, Floats] = {}
    drawn_groups: dict[str, Ints] = {}
    deviations = np.ones((qps + 1, len(columns)))
    for index, (kind, groups) in enumerate(of.items()):
        if groups is None:
            continue
        rng = np.random.default_rng([seed, index])
        drawn_groups[kind] = bootstrap_groups(groups, rng)
        found = moments(values, ctus.qp_index, qps, drawn_groups[kind])
        whole, deviations[0] = found.over_all()
        deviations[1:] = found.deviation
        sums[kind] = {"all": whole} | {ctus.qp_name(qp): found.cells[:, qp] for qp in range(qps)}
        if resamples:
            times[kind] = draw(len(whole), resamples, rng)
    overall, within = _spearman(columns, ctus)
    first = next(iter(sums))
    rows = {}
    for index, name in enumerate(sums[first]):
        chosen = slice(None) if name == "all" else ctus.qp_index == index - 1
        n = int(sums[first][name][:, 0, 0].sum())
        if not n:
            continue
        unit = np.outer(deviations[index], deviations[index])
        rows[name] = Rows(
            n=n,
            pictures=None if ctus.picture is None else int(np.count_nonzero(np.bincount(ctus.picture[chosen]))),
            covariance=covariances(sums[first][name].sum(axis=0)) * unit,
            spearman=overall if name == "all" else within[index - 1],
            drawn={kind: covariances(resampled_sums(times[kind], sums[kind][name])) * unit for kind in times},
            drawn_spearman={
                kind: _resampled_ranks(ctus, targets, chosen, drawn_groups[kind], times[kind])
                for kind in times
                if len(ctus) <= SPEARMAN_ROWS
            },
        )
    return Part(columns, rows, sums[first]["all"], deviations[0])


def target_coefficients(part: Part, target: str) -> Target:
    """All coefficients of one target; a gain has the MSE for a predictor too.

    Within a QP there are none of QP itself, and none at all of fewer than MIN_ROWS rows.
    """
    index = {name: i for i, name in enumerate(part.columns)}
    predictors = [name for name in part.columns if name in PREDICTORS]
    asked = predictors + (["mse_y"] if target in ("gain_db", "mse_saved") and "mse_y" in index else [])
    table = {}
    for rows_name, rows in part.rows.items():
        names = asked if rows_name == "all" else [name for name in asked if name != "qp"]
        found = dict.fromkeys(names, Coefficients())
        if rows.n >= MIN_ROWS:
            r, y = correlations(rows.covariance), index[target]
            for name in names:
                x, given = index[name], index["depth_mean" if name == "qp" else "qp"]
                found[name] = Coefficients(
                    or_none(r[x, y]),
                    or_none(rows.spearman[x, y]),
                    or_none(pair_partial(r[x, y], r[x, given], r[y, given])),
                    or_none(partial(r, x, y, [index[other] for other in predictors if other != name])),
                    {kind: _intervals(rows, kind, (name, target), x, y, given) for kind in rows.drawn},
                )
        table[rows_name] = TargetRows(rows.n, rows.pictures, found)
    covariance = part.rows["all"].covariance[np.ix_(*[[index[n] for n in ("qp", "depth_mean", target)]] * 2)]
    return Target(table, _combination(covariance))


def _intervals(rows: Rows, kind: str, pair: tuple[str, str], x: int, y: int, given: int) -> CoefficientIntervals:
    chosen = np.ix_(range(len(rows.drawn[kind])), [x, y, given], [x, y, given])
    r = correlations(rows.drawn[kind][chosen])
    ranked = rows.drawn_spearman.get(kind, {}).get((pair[0], SAME_RANKS.get(pair[1], pair[1])))
    return CoefficientIntervals(
        interval(r[:, 0, 1]),
        None if ranked is None else interval(ranked),
        interval(pair_partial(r[:, 0, 1], r[:, 0, 2], r[:, 1, 2])),
    )


def _combination(covariance: Floats) -> Combination:
    if not np.all(np.diag(covariance) > 0):
        return Combination()
    a, b, r = closed_form(covariance)
    return Combination(a, b, a / b if b else None, r)


def _spearman(columns: Sequence[str], ctus: CtuTable) -> tuple[Floats, Floats]:
    """Over all rows (k, k) and within each QP (qps, k, k); a logarithm has the ranks of its argument."""
    ranked = list(dict.fromkeys(SAME_RANKS.get(name, name) for name in columns))
    overall, within = spearman([ctus.columns[name] for name in ranked], ctus.qp_index, len(ctus.qps))
    back = [ranked.index(SAME_RANKS.get(name, name)) for name in columns]
    return overall[np.ix_(back, back)], within[:, back][:, :, back]


def _resampled_ranks(
    ctus: CtuTable, targets: Sequence[str], chosen: Any, groups: Ints, times: Floats
) -> dict[tuple[str, str], Floats]:
    ys = list(dict.fromkeys(SAME_RANKS.get(name, name) for name in targets))
    names = ["qp", "depth_mean", *ys]
    r = resampled_spearman([ctus.columns[name][chosen] for name in names], times, groups[chosen])
    return {(names[x], y): r[:, x, names.index(y)] for x in range(2) for y in ys}


def or_none(value: Any) -> float | None:
    """A float, None for NaN."""
    return float(value) if np.isfinite(value) else None
