"""Correlation of QP and CU depth with the error a codec leaves, over CTUs.

The notebook asked which a·QP + b·depth has the highest Pearson correlation with a CTU's MSE, and searched for it by
Bayesian optimisation. Least squares has the answer in closed form (its multiple correlation), and both depend on the
data through the covariances of QP, depth and MSE alone, so neither search nor bootstrap passes over the rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from codecnn.analysis import _notebook_figures as notebook_figures
from codecnn.analysis._coefficients import closed_form, closed_form_in_box, combined_r, slopes, suppressor
from codecnn.analysis._ctu_table import MIN_ROWS, REQUIRED, CtuTable, Floats, check_table
from codecnn.analysis._depth_quarters import depth_quarters
from codecnn.analysis._held_out import held_out
from codecnn.analysis._moments import correlations
from codecnn.analysis._results import (
    Best,
    Combinations,
    Correlation,
    HeadlineIntervals,
    HeldOut,
    Pair,
    QpRows,
    Searched,
    Target,
    TargetRows,
    negated,
)
from codecnn.analysis._search import Found, search
from codecnn.analysis._targets import SPEARMAN_ROWS, Part, analyse, or_none, target_coefficients
from codecnn.analysis.bootstrap import RESAMPLES, interval

REACHED = 1e-4
"""How near to the closed form's correlation the search has to come."""


def correlate(table: CtuTable | pa.Table | Mapping[str, Any], seed: int = 0, resamples: int = RESAMPLES) -> Correlation:
    """Correlate QP, mean CU depth and what else a table of CTUs tells with the MSE and other targets.

    `table` is what `check_table` takes or gives. `resamples` of pictures and of CTUs give the 95 % intervals; 0 leaves
    them out. The same seed gives the same result. `notes` of the result say what could not be computed (its values are
    None) and why. Raises TableError where nothing can be computed.
    """
    ctus = check_table(table)
    notes = list(ctus.notes)
    targets: dict[str, Target] = {}
    parts: list[Part] = []
    for names, rows in _row_sets(ctus):
        parts.append(analyse(rows, names, seed, resamples))
        targets |= {name: target_coefficients(parts[-1], name) for name in names}
    if "log_mse" in targets:
        targets["psnr"] = negated(targets["log_mse"])
    if resamples and len(ctus) > SPEARMAN_ROWS:
        notes.append(f"no intervals of Spearman's r: they are for tables of up to {SPEARMAN_ROWS} rows")
    mse = targets["mse_y"].rows
    for key, rows_of in mse.items():
        if key != "all" and rows_of.predictors["depth_mean"].pearson is None:
            why = f"only {rows_of.n} rows" if rows_of.n < MIN_ROWS else "its depth or its MSE does not vary"
            notes.append(f"no correlation with depth at QP {key}: {why}")
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
        qp_depth=or_none(r[0, 1]),
        deviation=dict(zip(("qp", "depth", "mse_y"), np.sqrt(np.diag(covariance)).tolist(), strict=True)),
        per_qp={key: _of_qp(ctus, key, mse[key]) for key in mse if key != "all"},
        combinations=_combinations(covariance, seed, notes) if possible else None,
        suppressor=suppressor(float(r[0, 2]), float(r[1, 2]), float(r[0, 1])) if possible else None,
        notebook_implied=notebook_figures.implied(),
        held_out=_held_out(ctus, parts[0], main, seed, notes) if possible else None,
        targets=targets,
        depth_quarters=depth_quarters(ctus),
        ci95={kind: _intervals(parts[0], main, kind) for kind in ("by_picture", "by_ctu")},
        resamples=resamples,
        seed=seed,
        notes=notes,
    )


def _row_sets(ctus: CtuTable) -> list[tuple[list[str], CtuTable]]:
    """Targets and the rows they are defined in; the MSE, in all of them, is first."""
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


def _combinations(covariance: Floats, seed: int, notes: list[str]) -> Combinations:
    """The closed form, free and within the search's bounds, and the two searches."""
    a, b, r = closed_form(covariance)
    box, b1 = closed_form_in_box(covariance), closed_form_in_box(covariance, b=1.0)
    outside = bool(r - box[2] > REACHED)
    if outside:
        notes.append(
            f"the closed form (a = {a:.4g}, b = {b:.4g}, r = {r:.4f}) lies outside the search's box: with a and b in "
            f"[0, 1] the best is a = {box[0]:.4g}, b = {box[1]:.4g}, r = {box[2]:.4f}"
        )
    found, found_b1 = search(covariance, seed), search(covariance, seed, b=1.0)
    for what, ours, best in (("search", found, box[2]), ("search with b = 1", found_b1, b1[2])):
        if best - ours.r > REACHED:
            notes.append(f"the {what} stopped {best - ours.r:.2g} below the best correlation within its bounds")
    return Combinations(
        closed_form=Best(a, b, r, outside),
        ratio=a / b if b else None,
        closed_form_box=Best(*box),
        closed_form_b1=Best(b1[0], None, b1[2]),
        bayes=_searched(found, found.b, r, box[2]),
        bayes_b1=_searched(found_b1, None, r, b1[2]),
        notebook_ratio_r=float(combined_r(covariance, notebook_figures.BAYES_RATIO, 1.0)),
    )


def _searched(found: Found, b: float | None, free: float, bounded: float) -> Searched:
    reached, within = (bool(abs(found.r - best) <= REACHED) for best in (free, bounded))
    return Searched(found.a, b, found.r, found.bayes_r, reached, within, found.points)


def _of_qp(ctus: CtuTable, name: str, rows: TargetRows) -> QpRows:
    chosen = ctus.qp_index == [ctus.qp_name(qp) for qp in range(len(ctus.qps))].index(name)
    mse, depth = ctus.columns["mse_y"][chosen], ctus.columns["depth_mean"][chosen]
    r = rows.predictors["depth_mean"].pearson
    return QpRows(rows.n, rows.pictures, r, float(depth.mean()), float(mse.mean()), float(mse.std()))


def _held_out(ctus: CtuTable, part: Part, main: list[int], seed: int, notes: list[str]) -> HeldOut | None:
    if ctus.picture is None:
        return None
    chosen = [0, *(1 + column for column in main)]
    found = held_out(part.sums[:, chosen][:, :, chosen], part.deviation[main], seed)
    if found is None:
        notes.append("no held-out check: it needs four pictures or more, and QP, depth and MSE that vary in each half")
    return found


def _intervals(part: Part, main: list[int], kind: str) -> HeadlineIntervals | None:
    """The headline's 95 % intervals from the resamples of pictures, or of CTUs."""
    rows = part.rows["all"]
    if kind not in rows.drawn:
        return None
    covariance = rows.drawn[kind][:, main][:, :, main]
    r = correlations(covariance)
    weights, multiple = slopes(covariance)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = weights[:, 0] / weights[:, 1]
    return HeadlineIntervals(
        pictures=rows.pictures if kind == "by_picture" else None,
        ctus=rows.n if kind == "by_ctu" else None,
        pearson=Pair(interval(r[:, 0, 2]), interval(r[:, 1, 2])),
        qp_depth=interval(r[:, 0, 1]),
        closed_form={"r": interval(multiple), "ratio": interval(ratio)},
    )
