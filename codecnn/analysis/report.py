"""Files of the correlation analysis: JSON, Markdown, CSV tables and plots."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from codecnn.analysis.correlation import correlate
from codecnn.analysis.ctu_table import CtuTable, check_table, load_table
from codecnn.analysis.plots import plot_combination, plot_depth, plot_search
from codecnn.analysis.results import Coefficients, Combinations, Correlation, HeadlineIntervals, Interval
from codecnn.base.files import provenance, write_json, write_text

_COEFFICIENTS = ("pearson", "spearman", "partial", "partial_all")
_NO_INTERVAL = (None, None)
_INTERVALS = ("value", "picture_low", "picture_high", "ctu_low", "ctu_high")
_COEFFICIENT_COLUMNS = ("target", "rows", "predictor", "coefficient", *_INTERVALS, "ctus", "pictures")
_QUARTER_COLUMNS = ("qp", "ctus", "depth_low", "depth_high", "mse_y", "gain_db", "saved_share")
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
    """One of the main figures with its 95 % intervals."""

    name: str
    value: float | None
    by_picture: Interval = None
    by_ctu: Interval = None


RESULT_FILES = (
    *("correlation.json", "correlation.md", "correlation.csv", "coefficients.csv", "worth.csv", "depth_mse.png"),
    *("combination.png", "search.png"),
)
"""Files that `write_correlation` writes."""


def correlate_store(source: Path, out_dir: Path) -> Correlation:
    """Correlate the CTUs of a store and write the result; see `correlate` and `write_correlation`."""
    table = load_table(source)
    result = correlate(table)
    write_correlation(out_dir, result, table)
    return result


def write_correlation(
    out_dir: Path | str, result: Correlation, table: CtuTable | pa.Table | Mapping[str, Any]
) -> list[Path]:
    """Write the result of `correlate`; each file is written completely or not at all.

    The files are correlation.json (the result and its provenance), correlation.md, correlation.csv (the main figures),
    coefficients.csv (all coefficients of all targets), worth.csv (MSE and gain by QP and depth), depth_mse.png, and if
    QP and depth vary combination.png and search.png.

    Args:
        out_dir: Folder of the files.
        result: The result.
        table: The table from which it was computed.

    Returns:
        The paths of the files.
    """
    out = Path(out_dir)
    origin = provenance()
    ctus = check_table(table)
    rows = main_figures(result)
    files = [out / name for name in (RESULT_FILES if result.combinations else RESULT_FILES[:6])]
    plots = [file.name for file in files[5:]]
    write_json(files[0], {**result.as_json(), "provenance": origin})
    write_text(files[1], markdown(result, rows, origin, plots))
    write_text(files[2], _csv(("quantity", *_INTERVALS), _figure_rows(rows)))
    write_text(files[3], _csv(_COEFFICIENT_COLUMNS, _coefficient_rows(result)))
    write_text(files[4], _csv(_QUARTER_COLUMNS, _quarter_rows(result)))
    plot_depth(files[5], ctus, result.per_qp, result.seed)
    if result.combinations:
        plot_combination(files[6], result, result.combinations)
        plot_search(files[7], result, result.combinations)
    return files


def main_figures(result: Correlation) -> list[Row]:
    """Return the main figures in the order of the report."""
    picture, ctu = result.ci95["by_picture"], result.ci95["by_ctu"]

    def row(name: str, value: float | None, interval: Callable[[HeadlineIntervals], Interval]) -> Row:
        limits = [None if intervals is None else interval(intervals) for intervals in (picture, ctu)]
        return Row(name, value, limits[0], limits[1])

    rows = [
        row("Pearson(QP, MSE)", result.pearson.qp, lambda intervals: intervals.pearson.qp),
        row("Pearson(depth, MSE)", result.pearson.depth, lambda intervals: intervals.pearson.depth),
    ]
    tables = result.targets["mse_y"].rows
    for name in sorted(result.per_qp, key=float):
        depth = tables[name].predictors["depth_mean"]
        by_picture, by_ctu = (depth.interval(kind, "pearson") for kind in ("by_picture", "by_ctu"))
        rows.append(Row(f"Pearson(depth, MSE) at QP {name}", depth.pearson, by_picture, by_ctu))

    def combined(figure: Callable[[Combinations], float | None]) -> float | None:
        return None if result.combinations is None else figure(result.combinations)

    return [
        *rows,
        row("closed form: r", combined(lambda best: best.closed_form.r), lambda kind: kind.closed_form["r"]),
        row("closed form: a / b", combined(lambda best: best.ratio), lambda kind: kind.closed_form["ratio"]),
        Row("search: a", combined(lambda best: best.bayes.a)),
        Row("search: b", combined(lambda best: best.bayes.b)),
        Row("search: a / b", combined(lambda best: _ratio(best.bayes.a, best.bayes.b))),
        Row("search: r", combined(lambda best: best.bayes.r)),
        Row("search with b = 1: a", combined(lambda best: best.bayes_b1.a)),
        Row("search with b = 1: r", combined(lambda best: best.bayes_b1.r)),
        row("Pearson(QP, depth)", result.qp_depth, lambda kind: kind.qp_depth),
        Row("deviation of depth, splits", result.deviation["depth"]),
    ]


def markdown(result: Correlation, rows: Sequence[Row], origin: Mapping[str, Any], plots: Sequence[str]) -> str:
    """Compose the report.

    Args:
        result: The result.
        rows: Its main figures.
        origin: Its provenance.
        plots: File names of the plots in the same folder.

    Returns:
        The report in Markdown.
    """
    pictures = "an unknown number of" if result.pictures is None else f"{result.pictures}"
    bootstrap = (
        f" Intervals are 95 % bootstrap percentiles of {result.resamples} resamples, of whole pictures (with all "
        "their QPs) and of CTUs; CTUs of a picture are not independent, so those by picture are the ones to trust."
        if result.resamples
        else ""
    )
    parts = [
        "# QP, CU depth and the coding error",
        f"{result.n} CTUs of {pictures} pictures.{bootstrap}",
        _table(("", "value", "by picture", "by CTU"), rows),
        *_search_section(result),
        *_suppressor_section(result),
        *_held_out_section(result),
        "## Every predictor of the MSE",
        "Partial: given QP, of QP itself given depth. Partial, all: given all the other predictors.",
        _predictor_table(result),
        "## Other targets",
        "Pearson's r with the target, over all rows; r and a / b of the best a·QP + b·depth. PSNR is that of a CTU. "
        "All coefficients are in coefficients.csv.",
        _target_table(result),
        "## By QP and depth",
        "The CTUs of a QP in quarters by mean depth, the shallowest first; MSE in sample².",
        _quarter_table(result),
        *(f"![{name.removesuffix('.png')}]({name})" for name in plots),
    ]
    if result.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join([*parts, f"codecnn {origin['codecnn']}: `{' '.join(origin['argv'])}`"]) + "\n"


# --- sections of the report -------------------------------------------------------------------------------------------


def _search_section(result: Correlation) -> list[str]:
    combinations = result.combinations
    if combinations is None:
        return []
    lines = [
        "Only a / b matters to a·QP + b·depth: scaling both does not change r. The closed form is least squares, "
        "the search Bayesian (expected improvement) over a and b in [0, 1], then a descent from its best point."
    ]
    for name, search, best in (
        ("The search", combinations.bayes, combinations.closed_form_box.r),
        ("With b = 1 it", combinations.bayes_b1, combinations.closed_form_b1.r),
    ):
        verdict = "reached" if search.reached_best_within_bounds else "did not reach"
        lines.append(
            f"{name} {verdict} the best r within its bounds, {best:.6f}, to 1e-4: {max(best - search.r, 0):.1e} "
            f"below it, and {max(best - search.bayes_steps_r, 0):.1e} after its {len(search.points)} Bayesian steps "
            "alone."
        )
    return ["## The best a·QP + b·depth", " ".join(lines)]


def _suppressor_section(result: Correlation) -> list[str]:
    suppressor = result.suppressor
    if suppressor is None:
        return []
    shares, semi = suppressor.shares, suppressor.semi_partial
    conclusion = (
        "The common part is negative: the two hide each other's effect, and the sum explains more than both parts "
        "added up (a suppressor effect)."
        if suppressor.suppression
        else "The common part is not negative: there is no suppressor effect here."
    )
    return [
        "## Why the sum explains more than its parts" if suppressor.suppression else "## What the sum explains",
        f"r(QP, depth) is {suppressor.r_qp_depth:.4f}. QP and depth together explain {suppressor.explained:.4f} of the "
        f"variance of the MSE (r²): {shares['qp_alone']:.4f} only QP (semi-partial r {semi.qp:.4f}), "
        f"{shares['depth_alone']:.4f} only depth ({semi.depth:.4f}), {shares['common']:.4f} in common. Alone, QP "
        f"explains {suppressor.r_qp**2:.4f} and depth {suppressor.r_depth**2:.4f}. {conclusion}",
    ]


def _held_out_section(result: Correlation) -> list[str]:
    held_out = result.held_out
    if held_out is None:
        return []
    columns = ("fitted on", "a / b", "r there", "tested on", "r there", "best possible there")
    rows = []
    for half in held_out.halves:
        fitted = (f"{half.fitted_pictures} pictures", _ratio(half.a, half.b), half.r_fitted)
        rows.append((*fitted, f"{half.other_pictures} pictures", half.r_other, half.best_r_other))
    low, high = held_out.middle95_r_other
    return [
        "## On pictures it was not fitted on",
        _table(columns, rows),
        f"Over {held_out.splits} random splits, both ways: r on the other half is {held_out.mean_r_other:.4f} "
        f"on average, 95 % of them from {low:.4f} to {high:.4f}; the best possible there is "
        f"{held_out.mean_best_r_other:.4f}.",
    ]


def _predictor_table(result: Correlation) -> str:
    lines = []
    for name, rows in result.targets["mse_y"].rows.items():
        for key, coefficients in rows.predictors.items():
            pearson, spearman = (coefficients.interval("by_picture", kind) for kind in ("pearson", "spearman"))
            where = "all" if name == "all" else f"QP {name}"
            cells = (coefficients.pearson, pearson, coefficients.spearman, spearman)
            partial = (coefficients.partial, coefficients.partial_all)
            lines.append((where, _NAMES[key], *cells, *partial, rows.n, rows.pictures))
    columns = ("rows", "", "Pearson", "by picture", "Spearman", "by picture", "partial", "partial, all")
    return _table((*columns, "CTUs", "pictures"), lines, text_columns=2)


def _target_table(result: Correlation) -> str:
    lines = []
    for name, target in result.targets.items():
        whole, best = target.rows["all"], target.combination
        r = [whole.predictors.get(key, Coefficients()).pearson for key in ("qp", "depth_mean", "mse_y")]
        lines.append((_NAMES[name], *r, best.r, best.ratio, whole.n))
    return _table(("", "QP", "depth", "MSE", "r of both", "a / b", "CTUs"), lines)


def _quarter_table(result: Correlation) -> str:
    gained = any(row.gain_db is not None or row.saved_share is not None for row in result.depth_quarters)
    columns = ("QP", "depth", "CTUs", "mean MSE", "mean gain, dB", "share of the MSE saved")[: 6 if gained else 4]
    lines = []
    for row in result.depth_quarters:
        cells = (row.qp, f"{row.depth[0]:.2f} to {row.depth[1]:.2f}", row.n, row.mse_y, row.gain_db, row.saved_share)
        lines.append(cells[: len(columns)])
    return _table(columns, lines, text_columns=2)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], text_columns: int = 1) -> str:
    """Format a Markdown table; columns after the first `text_columns` are aligned to the right."""
    lines = [columns, ["---" if index < text_columns else "---:" for index in range(len(columns))]]
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


# --- CSV tables -------------------------------------------------------------------------------------------------------


def _figure_rows(rows: Sequence[Row]) -> Iterable[Sequence[Any]]:
    for row in rows:
        yield row.name, row.value, *(row.by_picture or _NO_INTERVAL), *(row.by_ctu or _NO_INTERVAL)


def _coefficient_rows(result: Correlation) -> Iterable[Sequence[Any]]:
    for target, table in result.targets.items():
        for name, rows in table.rows.items():
            for predictor, coefficients in rows.predictors.items():
                values = coefficients._asdict()
                for coefficient in _COEFFICIENTS:
                    names = (target, name, predictor, coefficient, values[coefficient])
                    limits = [coefficients.interval(kind, coefficient) for kind in ("by_picture", "by_ctu")]
                    by_picture, by_ctu = (interval or _NO_INTERVAL for interval in limits)
                    yield *names, *by_picture, *by_ctu, rows.n, rows.pictures


def _quarter_rows(result: Correlation) -> Iterable[Sequence[Any]]:
    for row in result.depth_quarters:
        yield row.qp, row.n, *row.depth, row.mse_y, row.gain_db, row.saved_share


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
