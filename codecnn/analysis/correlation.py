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
from numpy.typing import NDArray

from codecnn.analysis import notebook
from codecnn.analysis.bootstrap import RESAMPLES, interval
from codecnn.analysis.coefficients import closed_form, closed_form_in_box, combined_r, slopes, suppressor
from codecnn.analysis.held_out import held_out
from codecnn.analysis.moments import correlations
from codecnn.analysis.search import Found, search
from codecnn.analysis.table import MIN_ROWS, REQUIRED, CtuTable, Floats, check_table
from codecnn.analysis.tables import SPEARMAN_ROWS, Part, analyse, or_none, target_table
from codecnn.analysis.worth import worth

REACHED = 1e-4
"""How near to the closed form's correlation the search has to come."""


def correlate(
    table: CtuTable | pa.Table | Mapping[str, Any], seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Correlate QP, mean CU depth and what else a table of CTUs tells with the MSE and other targets.

    `table` is what `check_table` takes or gives. `resamples` of pictures and of CTUs give the 95 % intervals; 0 leaves
    them out. The same seed gives the same result.

    Returns what correlation.json holds (docs/correlation.md lists it): "pearson", "spearman", "partial" and "per_qp" of
    QP and depth with the MSE; "qp_depth", r of QP with depth; "closed_form", the a and b of a·QP + b·depth that least
    squares gives, scaled so that the larger is ±1, and r; "ratio", their a / b; "closed_form_box" and "closed_form_b1",
    the best with a and b in [0, 1], or b = 1; "bayes" and "bayes_b1", what the search found there; "suppressor";
    "held_out"; "targets", every coefficient of every target; "worth", mean MSE and gain by QP and depth; "ci95";
    "dropped", rows without depth; "notes", what could not be computed (its values are None) and why.
    Raises TableError where nothing can be computed.
    """
    ctus = check_table(table)
    notes = list(ctus.notes)
    targets: dict[str, Any] = {}
    parts: list[Part] = []
    for names, rows in _row_sets(ctus):
        parts.append(analyse(ctus if rows is None else _rows(ctus, rows), names, seed, resamples))
        targets |= {name: target_table(parts[-1], name) for name in names}
    if "log_mse" in targets:
        targets["psnr"] = _negated(targets["log_mse"])
    if resamples and len(ctus) > SPEARMAN_ROWS:
        notes.append(f"no intervals of Spearman's r: they are for tables of up to {SPEARMAN_ROWS} rows")
    mse = targets["mse_y"]["rows"]
    for key, rows_of in mse.items():
        if key != "all" and rows_of["depth_mean"]["pearson"] is None:
            few = rows_of["n"] < MIN_ROWS
            why = f"only {rows_of['n']} rows" if few else "its depth or its MSE does not vary"
            notes.append(f"no correlation with depth at QP {key}: {why}")
    main = [parts[0].columns.index(name) for name in REQUIRED]
    covariance = parts[0].rows["all"].covariance[np.ix_(main, main)]
    possible = bool(np.all(np.diag(covariance) > 0))
    return {
        "n": len(ctus),
        "pictures": mse["all"]["pictures"],
        "dropped": ctus.dropped,
        **{
            kind: {short: mse["all"][name][kind] for short, name in (("qp", "qp"), ("depth", "depth_mean"))}
            for kind in ("pearson", "spearman", "partial")
        },
        "qp_depth": or_none(correlations(covariance)[0, 1]),
        "deviation": dict(zip(("qp", "depth", "mse_y"), np.sqrt(np.diag(covariance)).tolist(), strict=True)),
        "per_qp": {key: _of_qp(ctus, key, mse[key]) for key in mse if key != "all"},
        **_combinations(covariance, seed, notes, possible=possible),
        "suppressor": _suppressor(covariance) if possible else None,
        "notebook_implied": notebook.implied(),
        "held_out": _held_out(ctus, parts[0], main, seed, notes) if possible else None,
        "targets": targets,
        "worth": worth(ctus),
        "ci95": {kind: _intervals(parts[0], main, kind) for kind in ("by_picture", "by_ctu")},
        "resamples": resamples,
        "seed": seed,
        "notes": notes,
    }


def _row_sets(ctus: CtuTable) -> list[tuple[list[str], NDArray[np.bool_] | None]]:
    """Targets by the rows they are defined in; the MSE, in all of them (None), is first."""
    whole: list[str] = []
    parts: list[tuple[list[str], NDArray[np.bool_] | None]] = []
    for name in ctus.targets:
        defined = ~np.isnan(ctus.columns[name])
        if defined.all():
            whole.append(name)
        elif defined.sum() >= 3 and np.ptp(ctus.columns[name][defined]) > 0:
            parts.append(([name], defined))
    return [(whole, None), *parts]


def _rows(ctus: CtuTable, rows: NDArray[np.bool_]) -> CtuTable:
    picture = None if ctus.picture is None else np.unique(ctus.picture[rows], return_inverse=True)[1]
    columns = {name: values[rows] for name, values in ctus.columns.items()}
    return replace(ctus, columns=columns, qp_index=ctus.qp_index[rows], picture=picture)


def _negated(target: Any) -> Any:
    """A target's table for the target with its sign turned; every number but counts and multiple correlations."""
    if isinstance(target, Mapping):
        same = ("n", "pictures", "ratio", "r", "explained")
        return {key: value if key in same else _negated(value) for key, value in target.items()}
    if isinstance(target, list):
        return [-value for value in reversed(target)]
    return target if target is None else -target


def _suppressor(covariance: Floats) -> dict[str, Any] | None:
    r = correlations(covariance)
    if 1 - r[0, 1] ** 2 < 1e-10:
        return None
    return suppressor(float(r[0, 2]), float(r[1, 2]), float(r[0, 1]))


def _combinations(covariance: Floats, seed: int, notes: list[str], *, possible: bool) -> dict[str, Any]:
    """The closed form, free and within the search's bounds, and the two searches; None where one is constant."""
    if not possible:
        nothing = {"a": None, "b": None, "r": None}
        names = ("closed_form", "closed_form_box", "bayes")
        return dict.fromkeys(names, nothing) | {
            "closed_form_b1": {"a": None, "r": None}, "bayes_b1": {"a": None, "r": None}, "ratio": None,
            "notebook_ratio_r": None,
        }  # fmt: skip
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
    theirs = notebook.BAYES["a"] / notebook.BAYES["b"]
    return {
        "closed_form": {"a": a, "b": b, "r": r, "outside_box": outside},
        "ratio": a / b if b else None,
        "closed_form_box": dict(zip("abr", box, strict=True)),
        "closed_form_b1": {"a": b1[0], "r": b1[2]},
        "bayes": {"a": found.a, "b": found.b} | _outcome(found, r, box[2]),
        "bayes_b1": {"a": found_b1.a} | _outcome(found_b1, r, b1[2]),
        "notebook_ratio_r": float(combined_r(covariance, theirs, 1.0)),
    }


def _outcome(found: Found, free: float, bounded: float) -> dict[str, Any]:
    return {
        "r": found.r,
        "bayes_steps_r": found.bayes_r,
        "reached_closed_form": bool(abs(found.r - free) <= REACHED),
        "reached_best_within_bounds": bool(abs(found.r - bounded) <= REACHED),
        "points": [list(point) for point in found.points],
    }


def _of_qp(ctus: CtuTable, name: str, rows: Mapping[str, Any]) -> dict[str, Any]:
    chosen = ctus.qp_index == [ctus.qp_name(qp) for qp in range(len(ctus.qps))].index(name)
    mse, depth = ctus.columns["mse_y"][chosen], ctus.columns["depth_mean"][chosen]
    return {
        "n": rows["n"],
        "pictures": rows["pictures"],
        "depth": rows["depth_mean"]["pearson"],
        "mean_depth": float(depth.mean()),
        "mean_mse_y": float(mse.mean()),
        "deviation_mse_y": float(mse.std()),
    }


def _held_out(ctus: CtuTable, part: Part, main: list[int], seed: int, notes: list[str]) -> dict[str, Any] | None:
    if ctus.picture is None:
        return None
    chosen = [0, *(1 + column for column in main)]
    found = held_out(part.sums[:, chosen][:, :, chosen], part.deviation[main], seed)
    if found is None:
        notes.append("no held-out check: it needs four pictures or more, and QP, depth and MSE that vary in each half")
    return found


def _intervals(part: Part, main: list[int], kind: str) -> dict[str, Any] | None:
    """The headline's 95 % intervals from the resamples of pictures, or of CTUs."""
    rows = part.rows["all"]
    if kind not in rows.drawn:
        return None
    covariance = rows.drawn[kind][:, main][:, :, main]
    r = correlations(covariance)
    weights, multiple = slopes(covariance)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = weights[:, 0] / weights[:, 1]
    return {
        **({"pictures": rows.pictures} if kind == "by_picture" else {"ctus": rows.n}),
        "pearson": {"qp": interval(r[:, 0, 2]), "depth": interval(r[:, 1, 2])},
        "qp_depth": interval(r[:, 0, 1]),
        "closed_form": {"r": interval(multiple), "ratio": interval(ratio)},
    }
