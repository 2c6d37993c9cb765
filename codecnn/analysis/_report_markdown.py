"""The correlation report as Markdown: the headline beside the notebook's figures, and a section for each question."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from codecnn.analysis import _notebook_figures as notebook
from codecnn.analysis._results import Coefficients, Combinations, Correlation, HeadlineIntervals, Interval

_NAMES = {
    "qp": "QP",
    "depth_mean": "depth, mean",
    "depth_max": "depth, largest",
    "variance": "variance",
    "bits": "bits",
    "mse_y": "MSE",
    "log_mse": "ln MSE",
    "psnr": "PSNR",
    "gain_db": "gain, dB",
    "mse_saved": "MSE saved",
}


class Row(NamedTuple):
    """A figure of the headline: ours, its 95 % intervals, and the notebook's."""

    name: str
    value: float | None
    by_picture: Interval = None
    by_ctu: Interval = None
    notebook: float | None = None


def headline(result: Correlation) -> list[Row]:
    """The notebook's figures, ours beside them, in its order."""
    picture, ctu = result.ci95["by_picture"], result.ci95["by_ctu"]

    def row(name: str, value: float | None, figure: Callable[[HeadlineIntervals], Interval], theirs: Any = None) -> Row:
        limits = [None if kind is None else figure(kind) for kind in (picture, ctu)]
        return Row(name, value, limits[0], limits[1], theirs)

    rows = [
        row("Pearson(QP, MSE)", result.pearson.qp, lambda kind: kind.pearson.qp, notebook.PEARSON["qp"]),
        row("Pearson(depth, MSE)", result.pearson.depth, lambda kind: kind.pearson.depth, notebook.PEARSON["depth"]),
    ]
    tables = result.targets["mse_y"].rows
    for name in sorted({*result.per_qp, *notebook.PER_QP}, key=float):
        found = tables[name].predictors["depth_mean"] if name in tables else Coefficients()
        by_picture, by_ctu = (found.interval(kind, "pearson") for kind in ("by_picture", "by_ctu"))
        what = f"Pearson(depth, MSE) at QP {name}"
        rows.append(Row(what, found.pearson, by_picture, by_ctu, notebook.PER_QP.get(name)))
    implied = result.notebook_implied

    def combined(figure: Callable[[Combinations], float | None]) -> float | None:
        return None if result.combinations is None else figure(result.combinations)

    return [
        *rows,
        row("closed form: r", combined(lambda best: best.closed_form.r), lambda kind: kind.closed_form["r"]),
        row("closed form: a / b", combined(lambda best: best.ratio), lambda kind: kind.closed_form["ratio"]),
        Row("search: a", combined(lambda best: best.bayes.a), notebook=notebook.BAYES["a"]),
        Row("search: b", combined(lambda best: best.bayes.b), notebook=notebook.BAYES["b"]),
        Row("search: a / b", combined(lambda best: _ratio(best.bayes.a, best.bayes.b)), notebook=notebook.BAYES_RATIO),
        Row("search: r", combined(lambda best: best.bayes.r), notebook=notebook.BAYES["r"]),
        Row("search with b = 1: a", combined(lambda best: best.bayes_b1.a), notebook=notebook.B1["a"]),
        Row("search with b = 1: r", combined(lambda best: best.bayes_b1.r), notebook=notebook.B1["r"]),
        Row("r with the notebook's a / b", combined(lambda best: best.notebook_ratio_r), notebook=notebook.BAYES["r"]),
        row("Pearson(QP, depth)", result.qp_depth, lambda kind: kind.qp_depth, implied.qp_depth),
        Row("deviation of depth, splits", result.deviation["depth"], notebook=implied.depth_deviation),
    ]


def markdown(result: Correlation, rows: Sequence[Row], made: Mapping[str, Any], plots: Sequence[str]) -> str:
    """The report; `plots` are the names of the pictures beside it."""
    pictures = "an unknown number of" if result.pictures is None else f"{result.pictures}"
    bootstrap = (
        f"Intervals are 95 % bootstrap percentiles of {result.resamples} resamples, of whole pictures (with all "
        "their QPs) and of CTUs; CTUs of a picture are not independent, so those by picture are the ones to trust. "
        if result.resamples
        else ""
    )
    parts = [
        "# QP, CU depth and the error the codec leaves",
        f"{result.n} CTUs of {pictures} pictures. {bootstrap}The notebook's figures: {notebook.SOURCE}; its last "
        "two follow from the others (docs/correlation.md).",
        _table(("", "here", "by picture", "by CTU", "notebook"), rows),
        *_search(result),
        *_suppressor(result),
        *_held_out(result),
        "## Every predictor of the MSE",
        "Partial: given QP, of QP itself given depth. Partial, all: given all the other predictors.",
        _predictors(result),
        "## Other targets",
        "Pearson's r with the target, over all rows; r and a / b of the best a·QP + b·depth. PSNR is that of a CTU. "
        "All coefficients are in coefficients.csv.",
        _targets(result),
        "## By QP and depth",
        "The CTUs of a QP in quarters by mean depth, the shallowest first; MSE in sample².",
        _depth_quarters(result),
        *(f"![{name.removesuffix('.png')}]({name})" for name in plots),
    ]
    if result.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join([*parts, f"codecnn {made['codecnn']}: `{' '.join(made['argv'])}`"]) + "\n"


def _search(result: Correlation) -> list[str]:
    found = result.combinations
    if found is None:
        return []
    lines = [
        "Only a / b matters to a·QP + b·depth: scaling both leaves r as it is. The closed form is least squares, "
        "the search Bayesian (expected improvement) over a and b in [0, 1], then a descent from its best point."
    ]
    for what, ours, best in (
        ("The search", found.bayes, found.closed_form_box.r),
        ("With b = 1 it", found.bayes_b1, found.closed_form_b1.r),
    ):
        verdict = "reached" if ours.reached_best_within_bounds else "did not reach"
        lines.append(
            f"{what} {verdict} the best r within its bounds, {best:.6f}, to 1e-4: {max(best - ours.r, 0):.1e} "
            f"below it, and {max(best - ours.bayes_steps_r, 0):.1e} after its {len(ours.points)} Bayesian steps alone."
        )
    return ["## The best a·QP + b·depth", " ".join(lines)]


def _suppressor(result: Correlation) -> list[str]:
    found = result.suppressor
    if found is None:
        return []
    shares, semi, roots = found.shares, found.semi_partial, result.notebook_implied.roots
    why = (
        "The part in common is negative: the two hide each other's effect, and the sum explains more than both parts "
        "added up (a suppressor effect)."
        if found.suppression
        else "The part in common is not negative: there is no suppressor effect here."
    )
    return [
        "## Why the sum beats its parts",
        f"r(QP, depth) is {found.r_qp_depth:.4f}. QP and depth together explain {found.explained:.4f} of the "
        f"variance of the MSE (r²): {shares['qp_alone']:.4f} only QP (semi-partial r {semi.qp:.4f}), "
        f"{shares['depth_alone']:.4f} only depth ({semi.depth:.4f}), {shares['common']:.4f} in common. Alone, QP "
        f"explains {found.r_qp**2:.4f} and depth {found.r_depth**2:.4f}. {why} The notebook's three figures "
        f"allow r(QP, depth) to be {roots[0]:.4f} or {roots[1]:.4f}, and with the second its b would have to be "
        "negative.",
    ]


def _held_out(result: Correlation) -> list[str]:
    found = result.held_out
    if found is None:
        return []
    columns = ("fitted on", "a / b", "r there", "tried on", "r there", "best possible there")
    rows = []
    for half in found.halves:
        fitted = (f"{half.fitted_pictures} pictures", _ratio(half.a, half.b), half.r_fitted)
        rows.append((*fitted, f"{half.other_pictures} pictures", half.r_other, half.best_r_other))
    low, high = found.middle95_r_other
    return [
        "## On pictures it was not fitted on",
        _table(columns, rows),
        f"Over {found.splits} random splits, both ways: r on the other half is {found.mean_r_other:.4f} "
        f"in the mean, 95 % of them from {low:.4f} to {high:.4f}; the best possible there is "
        f"{found.mean_best_r_other:.4f}.",
    ]


def _predictors(result: Correlation) -> str:
    lines = []
    for name, rows in result.targets["mse_y"].rows.items():
        for key, found in rows.predictors.items():
            pearson, spearman = (found.interval("by_picture", kind) for kind in ("pearson", "spearman"))
            where = "all" if name == "all" else f"QP {name}"
            cells = (found.pearson, pearson, found.spearman, spearman, found.partial, found.partial_all)
            lines.append((where, _NAMES[key], *cells, rows.n, rows.pictures))
    columns = ("rows", "", "Pearson", "by picture", "Spearman", "by picture", "partial", "partial, all")
    return _table((*columns, "CTUs", "pictures"), lines, left=2)


def _targets(result: Correlation) -> str:
    lines = []
    for name, target in result.targets.items():
        whole, best = target.rows["all"], target.combination
        r = [whole.predictors.get(key, Coefficients()).pearson for key in ("qp", "depth_mean", "mse_y")]
        lines.append((_NAMES[name], *r, best.r, best.ratio, whole.n))
    return _table(("", "QP", "depth", "MSE", "r of both", "a / b", "CTUs"), lines)


def _depth_quarters(result: Correlation) -> str:
    gained = any(row.gain_db is not None or row.saved_share is not None for row in result.depth_quarters)
    columns = ("QP", "depth", "CTUs", "mean MSE", "mean gain, dB", "share of the MSE saved")[: 6 if gained else 4]
    lines = []
    for row in result.depth_quarters:
        cells = (row.qp, f"{row.depth[0]:.2f} to {row.depth[1]:.2f}", row.n, row.mse_y, row.gain_db, row.saved_share)
        lines.append(cells[: len(columns)])
    return _table(columns, lines, left=2)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> str:
    lines = [columns, ["---" if index < left else "---:" for index in range(len(columns))]]
    lines += [[_text(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, list):
        return f"{cell[0]:.4f} to {cell[1]:.4f}"
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b
