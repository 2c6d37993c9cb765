"""Correlation of QP and CU depth with the coding error, over CTUs.

The analysis asks which a·QP + b·depth has the highest Pearson correlation with the MSE of a CTU. It reports the
correlations of all predictors with all targets, over all rows and within each QP, with bootstrap intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from codecnn.analysis.combination import (
    SearchResult,
    closed_form,
    closed_form_in_box,
    held_out,
    search,
    slopes,
    suppressor,
)
from codecnn.analysis.ctu_table import MIN_ROWS, PREDICTORS, REQUIRED, CtuTable, Floats, Ints, check_table
from codecnn.analysis.results import (
    Best,
    CoefficientIntervals,
    Coefficients,
    Combination,
    Combinations,
    Correlation,
    DepthQuarter,
    HeadlineIntervals,
    HeldOut,
    Pair,
    QpRows,
    Searched,
    Target,
    TargetRows,
    negated,
)
from codecnn.analysis.statistics import (
    RESAMPLES,
    bootstrap_counts,
    bootstrap_groups,
    bootstrap_interval,
    correlations,
    covariances,
    moments,
    partial_given_many,
    partial_given_one,
    resampled_spearman,
    resampled_sums,
    spearman,
)
from codecnn.base.keywords import checked_keywords

REACHED = 1e-4
"""Largest difference in r at which a search counts as having reached the closed form."""

SPEARMAN_ROWS = 20_000
"""Longest table for intervals of Spearman's r, which rank every resample anew."""

_SAME_RANKS = {"log_mse": "mse_y"}
"""Targets whose ranks are those of another column."""

_QUARTERS = (0.25, 0.5, 0.75)


class _Rows(NamedTuple):
    """Correlations of the k columns over a set of rows.

    Attributes:
        n: Number of rows.
        pictures: Number of pictures, or None.
        covariance: Covariances, shape (k, k).
        spearman: Spearman's r, shape (k, k).
        resampled: By kind of resampling ("by_picture", "by_ctu"), covariances, shape (resamples, k, k).
        resampled_spearman: By kind, Spearman's r of (predictor, target), shape (resamples,), for QP and depth.
    """

    n: int
    pictures: int | None
    covariance: Floats
    spearman: Floats
    resampled: dict[str, Floats]
    resampled_spearman: dict[str, dict[tuple[str, str], Floats]]


class _Part(NamedTuple):
    """Rows in which the same targets are defined.

    Attributes:
        columns: Names of the k predictors and targets.
        rows: The correlations over "all" rows and over those of each QP by name.
        sums: Standardised sums of products of (1, columns) of each picture, shape (groups, 1 + k, 1 + k).
        deviation: The deviations by which they are standardised, shape (k,).
    """

    columns: tuple[str, ...]
    rows: dict[str, _Rows]
    sums: Floats
    deviation: Floats


@checked_keywords()
def correlate(table: CtuTable | pa.Table | Mapping[str, Any], seed: int = 0, resamples: int = RESAMPLES) -> Correlation:
    """Correlate QP, mean CU depth and the other predictors of a table of CTUs with the MSE and other targets.

    Args:
        table: A table as for `check_table`, or its result.
        seed: Seed of search, bootstrap and held-out splits; the same seed gives the same result.
        resamples: Number of bootstrap resamples, of pictures and of CTUs, for the 95 % intervals; 0 omits them.

    Returns:
        The result. Values that cannot be computed are None, and its `notes` say why.

    Raises:
        TableError: Nothing can be computed from the table.
    """
    ctus = check_table(table)
    notes = list(ctus.notes)
    targets: dict[str, Target] = {}
    parts: list[_Part] = []
    for names, rows in _row_sets(ctus):
        parts.append(_analyse(rows, names, seed, resamples))
        targets |= {name: _target_coefficients(parts[-1], name) for name in names}
    if "log_mse" in targets:
        targets["psnr"] = negated(targets["log_mse"])
    if resamples and len(ctus) > SPEARMAN_ROWS:
        notes.append(f"no intervals of Spearman's r: they are for tables of up to {SPEARMAN_ROWS} rows")
    mse = targets["mse_y"].rows
    for key, target_rows in mse.items():
        if key != "all" and target_rows.predictors["depth_mean"].pearson is None:
            few = target_rows.n < MIN_ROWS
            reason = f"only {target_rows.n} rows" if few else "its depth or its MSE does not vary"
            notes.append(f"no correlation with depth at QP {key}: {reason}")
    main = [parts[0].columns.index(name) for name in REQUIRED]
    covariance = parts[0].rows["all"].covariance[np.ix_(main, main)]
    r, possible = correlations(covariance), bool(np.all(np.diag(covariance) > 0))
    qp, depth = (mse["all"].predictors[name] for name in ("qp", "depth_mean"))
    return Correlation(
        n=len(ctus),
        pictures=mse["all"].pictures,
        dropped=ctus.dropped,
        pearson=Pair(qp.pearson, depth.pearson),
        spearman=Pair(qp.spearman, depth.spearman),
        partial=Pair(qp.partial, depth.partial),
        qp_depth=_finite(r[0, 1]),
        deviation=dict(zip(("qp", "depth", "mse_y"), np.sqrt(np.diag(covariance)).tolist(), strict=True)),
        per_qp={key: _qp_rows(ctus, key, mse[key]) for key in mse if key != "all"},
        combinations=_combinations(covariance, seed, notes) if possible else None,
        suppressor=suppressor(float(r[0, 2]), float(r[1, 2]), float(r[0, 1])) if possible else None,
        held_out=_held_out(ctus, parts[0], main, seed, notes) if possible else None,
        targets=targets,
        depth_quarters=_depth_quarters(ctus),
        ci95={kind: _headline_intervals(parts[0], main, kind) for kind in ("by_picture", "by_ctu")},
        resamples=resamples,
        seed=seed,
        notes=notes,
    )


def _row_sets(ctus: CtuTable) -> list[tuple[list[str], CtuTable]]:
    """Group the targets by the rows in which they are defined; the MSE, which is defined in all rows, is first."""
    whole: list[str] = []
    sets = [(whole, ctus)]
    for name in ctus.targets:
        defined = ~np.isnan(ctus.columns[name])
        if defined.all():
            whole.append(name)
        elif defined.sum() >= 3 and np.ptp(ctus.columns[name][defined]) > 0:
            picture = None if ctus.picture is None else np.unique(ctus.picture[defined], return_inverse=True)[1]
            columns = {key: values[defined] for key, values in ctus.columns.items()}
            rows = replace(ctus, columns=columns, qp_index=ctus.qp_index[defined], picture=picture)
            sets.append(([name], rows))
    return sets


# --- coefficients of every target -------------------------------------------------------------------------------------


def _analyse(ctus: CtuTable, targets: Sequence[str], seed: int, resamples: int) -> _Part:
    """Correlate the predictors with targets that are defined in all rows, and resample them.

    Rows are resampled by picture, if pictures are known, and by CTU.
    """
    columns = (*ctus.predictors, *targets)
    values = [ctus.columns[name] for name in columns]
    qps = len(ctus.qps)
    groups_by_kind = {"by_picture": ctus.picture, "by_ctu": np.arange(len(ctus)) if resamples else None}
    if all(groups is None for groups in groups_by_kind.values()):
        groups_by_kind["by_ctu"] = np.zeros(len(ctus), dtype=np.int64)
    sums: dict[str, dict[str, Floats]] = {}
    counts: dict[str, Floats] = {}
    merged: dict[str, Ints] = {}
    deviations = np.ones((qps + 1, len(columns)))
    for index, (kind, groups) in enumerate(groups_by_kind.items()):
        if groups is None:
            continue
        rng = np.random.default_rng([seed, index])
        merged[kind] = bootstrap_groups(groups, rng)
        table = moments(values, ctus.qp_index, qps, merged[kind])
        whole, deviations[0] = table.over_all()
        deviations[1:] = table.deviation
        sums[kind] = {"all": whole} | {ctus.qp_name(qp): table.cells[:, qp] for qp in range(qps)}
        if resamples:
            counts[kind] = bootstrap_counts(len(whole), resamples, rng)
    overall, within = _spearman(columns, ctus)
    first = next(iter(sums))
    rows = {}
    for index, name in enumerate(sums[first]):
        chosen = slice(None) if name == "all" else ctus.qp_index == index - 1
        n = int(sums[first][name][:, 0, 0].sum())
        if not n:
            continue
        unit = np.outer(deviations[index], deviations[index])
        rows[name] = _Rows(
            n=n,
            pictures=None if ctus.picture is None else int(np.count_nonzero(np.bincount(ctus.picture[chosen]))),
            covariance=covariances(sums[first][name].sum(axis=0)) * unit,
            spearman=overall if name == "all" else within[index - 1],
            resampled={kind: covariances(resampled_sums(counts[kind], sums[kind][name])) * unit for kind in counts},
            resampled_spearman={
                kind: _resampled_spearman(ctus, targets, chosen, merged[kind], counts[kind])
                for kind in counts
                if len(ctus) <= SPEARMAN_ROWS
            },
        )
    return _Part(columns, rows, sums[first]["all"], deviations[0])


def _target_coefficients(part: _Part, target: str) -> Target:
    """Collect all coefficients of one target; the MSE is also a predictor of a gain.

    Within a QP there are no coefficients of the QP, and for fewer than MIN_ROWS rows there are none.
    """
    index = {name: i for i, name in enumerate(part.columns)}
    predictors = [name for name in part.columns if name in PREDICTORS]
    correlated = predictors + (["mse_y"] if target in ("gain_db", "mse_saved") and "mse_y" in index else [])
    table = {}
    for rows_name, rows in part.rows.items():
        names = correlated if rows_name == "all" else [name for name in correlated if name != "qp"]
        coefficients = dict.fromkeys(names, Coefficients())
        if rows.n >= MIN_ROWS:
            r, y = correlations(rows.covariance), index[target]
            for name in names:
                x, given = index[name], index["depth_mean" if name == "qp" else "qp"]
                coefficients[name] = Coefficients(
                    _finite(r[x, y]),
                    _finite(rows.spearman[x, y]),
                    _finite(partial_given_one(r[x, y], r[x, given], r[y, given])),
                    _finite(partial_given_many(r, x, y, [index[other] for other in predictors if other != name])),
                    {kind: _intervals(rows, kind, (name, target), x, y, given) for kind in rows.resampled},
                )
        table[rows_name] = TargetRows(rows.n, rows.pictures, coefficients)
    searched = [index[name] for name in ("qp", "depth_mean", target)]
    return Target(table, _combination(part.rows["all"].covariance[np.ix_(searched, searched)]))


def _intervals(rows: _Rows, kind: str, pair: tuple[str, str], x: int, y: int, given: int) -> CoefficientIntervals:
    chosen = np.ix_(range(len(rows.resampled[kind])), [x, y, given], [x, y, given])
    r = correlations(rows.resampled[kind][chosen])
    ranked = rows.resampled_spearman.get(kind, {}).get((pair[0], _SAME_RANKS.get(pair[1], pair[1])))
    return CoefficientIntervals(
        bootstrap_interval(r[:, 0, 1]),
        None if ranked is None else bootstrap_interval(ranked),
        bootstrap_interval(partial_given_one(r[:, 0, 1], r[:, 0, 2], r[:, 1, 2])),
    )


def _combination(covariance: Floats) -> Combination:
    if not np.all(np.diag(covariance) > 0):
        return Combination()
    a, b, r = closed_form(covariance)
    return Combination(a, b, a / b if b else None, r)


def _spearman(columns: Sequence[str], ctus: CtuTable) -> tuple[Floats, Floats]:
    """Compute Spearman's r over all rows (k, k) and within each QP (qps, k, k).

    A logarithm has the ranks of its argument, so it is not ranked again.
    """
    ranked = list(dict.fromkeys(_SAME_RANKS.get(name, name) for name in columns))
    overall, within = spearman([ctus.columns[name] for name in ranked], ctus.qp_index, len(ctus.qps))
    back = [ranked.index(_SAME_RANKS.get(name, name)) for name in columns]
    return overall[np.ix_(back, back)], within[:, back][:, :, back]


def _resampled_spearman(
    ctus: CtuTable, targets: Sequence[str], chosen: Any, groups: Ints, counts: Floats
) -> dict[tuple[str, str], Floats]:
    ranked_targets = list(dict.fromkeys(_SAME_RANKS.get(name, name) for name in targets))
    names = ["qp", "depth_mean", *ranked_targets]
    r = resampled_spearman([ctus.columns[name][chosen] for name in names], counts, groups[chosen])
    return {(names[x], y): r[:, x, names.index(y)] for x in range(2) for y in ranked_targets}


# --- main figures -----------------------------------------------------------------------------------------------------


def _combinations(covariance: Floats, seed: int, notes: list[str]) -> Combinations:
    """Compute the closed form, without and with the bounds of the search, and run the two searches."""
    a, b, r = closed_form(covariance)
    box, b1 = closed_form_in_box(covariance), closed_form_in_box(covariance, b=1.0)
    outside = bool(r - box[2] > REACHED)
    if outside:
        notes.append(
            f"the closed form (a = {a:.4g}, b = {b:.4g}, r = {r:.4f}) lies outside the search's box: with a and b in "
            f"[0, 1] the best is a = {box[0]:.4g}, b = {box[1]:.4g}, r = {box[2]:.4f}"
        )
    searched, searched_b1 = search(covariance, seed), search(covariance, seed, b=1.0)
    for name, result, best in (("search", searched, box[2]), ("search with b = 1", searched_b1, b1[2])):
        if best - result.r > REACHED:
            notes.append(f"the {name} stopped {best - result.r:.2g} below the best correlation within its bounds")
    return Combinations(
        closed_form=Best(a, b, r, outside),
        ratio=a / b if b else None,
        closed_form_box=Best(*box),
        closed_form_b1=Best(b1[0], None, b1[2]),
        bayes=_searched(searched, searched.b, r, box[2]),
        bayes_b1=_searched(searched_b1, None, r, b1[2]),
    )


def _searched(result: SearchResult, b: float | None, free: float, bounded: float) -> Searched:
    reached, within = (bool(abs(result.r - best) <= REACHED) for best in (free, bounded))
    return Searched(result.a, b, result.r, result.bayes_r, reached, within, result.points)


def _qp_rows(ctus: CtuTable, name: str, rows: TargetRows) -> QpRows:
    chosen = ctus.qp_index == [ctus.qp_name(qp) for qp in range(len(ctus.qps))].index(name)
    mse, depth = ctus.columns["mse_y"][chosen], ctus.columns["depth_mean"][chosen]
    r = rows.predictors["depth_mean"].pearson
    return QpRows(rows.n, rows.pictures, r, float(depth.mean()), float(mse.mean()), float(mse.std()))


def _held_out(ctus: CtuTable, part: _Part, main: list[int], seed: int, notes: list[str]) -> HeldOut | None:
    if ctus.picture is None:
        return None
    chosen = [0, *(1 + column for column in main)]
    result = held_out(part.sums[:, chosen][:, :, chosen], part.deviation[main], seed)
    if result is None:
        notes.append("no held-out check: it needs four pictures or more, and QP, depth and MSE that vary in each half")
    return result


def _headline_intervals(part: _Part, main: list[int], kind: str) -> HeadlineIntervals | None:
    """Compute the 95 % intervals of the main figures from the resamples of pictures or of CTUs."""
    rows = part.rows["all"]
    if kind not in rows.resampled:
        return None
    covariance = rows.resampled[kind][:, main][:, :, main]
    r = correlations(covariance)
    weights, multiple = slopes(covariance)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = weights[:, 0] / weights[:, 1]
    return HeadlineIntervals(
        pictures=rows.pictures if kind == "by_picture" else None,
        ctus=rows.n if kind == "by_ctu" else None,
        pearson=Pair(bootstrap_interval(r[:, 0, 2]), bootstrap_interval(r[:, 1, 2])),
        qp_depth=bootstrap_interval(r[:, 0, 1]),
        closed_form={"r": bootstrap_interval(multiple), "ratio": bootstrap_interval(ratio)},
    )


def _depth_quarters(ctus: CtuTable) -> list[DepthQuarter]:
    """Divide the CTUs of each QP into quarters by depth, the shallowest first; fewer if depths are equal.

    The saved squared error weights all CTUs equally, whatever their area.
    """
    depth, rows = ctus.columns["depth_mean"], []
    saved, gain = ctus.columns.get("mse_saved"), ctus.columns.get("gain_db")
    for qp in range(len(ctus.qps)):
        at_qp = np.flatnonzero(ctus.qp_index == qp)
        edges = np.unique(np.quantile(depth[at_qp], _QUARTERS, method="higher"))
        quarter = np.searchsorted(edges, depth[at_qp], side="right")
        total = None if saved is None else float(np.nansum(saved[at_qp]))
        for chosen in (at_qp[quarter == number] for number in np.unique(quarter)):
            gained = gain is not None and np.isfinite(gain[chosen]).any()
            rows.append(
                DepthQuarter(
                    ctus.qp_name(qp),
                    len(chosen),
                    (float(depth[chosen].min()), float(depth[chosen].max())),
                    float(ctus.columns["mse_y"][chosen].mean()),
                    float(np.nanmean(gain[chosen])) if gain is not None and gained else None,
                    float(np.nansum(saved[chosen])) / total if saved is not None and total else None,
                )
            )
    return rows


def _finite(value: Any) -> float | None:
    """Return a float, or None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None
