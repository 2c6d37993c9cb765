"""The files of the correlation report: JSON, Markdown, CSV and plots, beside the notebook's figures."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from codecnn.analysis import _notebook_figures as notebook_figures
from codecnn.analysis._ctu_table import CtuTable, check_table
from codecnn.analysis._plots import plot_combination, plot_depth, plot_search
from codecnn.analysis._report_markdown import Row, headline, markdown
from codecnn.analysis._results import Correlation
from codecnn.runs import provenance, write_json, write_text

_COEFFICIENTS = ("pearson", "spearman", "partial", "partial_all")
_NONE = (None, None)
"""The limits of an interval that there is none of."""
_INTERVALS = ("value", "picture_low", "picture_high", "ctu_low", "ctu_high")
_COEFFICIENT_COLUMNS = ("target", "rows", "predictor", "coefficient", *_INTERVALS, "ctus", "pictures")
_QUARTER_COLUMNS = ("qp", "ctus", "depth_low", "depth_high", "mse_y", "gain_db", "saved_share")


def write_correlation(
    out_dir: Path | str, result: Correlation, table: CtuTable | pa.Table | Mapping[str, Any]
) -> list[Path]:
    """Write what `correlate` found in `table` to `out_dir`, each file whole or not at all; returns their paths.

    correlation.json (the result and what made it), correlation.md, correlation.csv (the headline beside the notebook's
    figures), coefficients.csv (every coefficient of every target), worth.csv (MSE and gain by QP and depth),
    depth_mse.png, and where both QP and depth vary combination.png and search.png.
    """
    out = Path(out_dir)
    made = provenance()
    ctus = check_table(table)
    rows = headline(result)
    plots = ["depth_mse.png", *(["combination.png", "search.png"] if result.combinations else [])]
    tables = ["correlation.csv", "coefficients.csv", "worth.csv"]
    files = [out / name for name in ("correlation.json", "correlation.md", *tables, *plots)]
    write_json(files[0], {**result.as_json(), "provenance": made})
    write_text(files[1], markdown(result, rows, made, plots))
    write_text(files[2], _csv(("quantity", *_INTERVALS, "notebook"), _headline_rows(rows)))
    write_text(files[3], _csv(_COEFFICIENT_COLUMNS, _coefficient_rows(result)))
    write_text(files[4], _csv(_QUARTER_COLUMNS, _quarter_rows(result)))
    plot_depth(files[5], ctus, result.per_qp, result.seed)
    if result.combinations:
        plot_combination(files[6], result, result.combinations, notebook_figures.BAYES)
        plot_search(files[7], result, result.combinations)
    return files


def _headline_rows(rows: Sequence[Row]) -> Iterable[Sequence[Any]]:
    for row in rows:
        yield row.name, row.value, *(row.by_picture or _NONE), *(row.by_ctu or _NONE), row.notebook


def _coefficient_rows(result: Correlation) -> Iterable[Sequence[Any]]:
    for target, table in result.targets.items():
        for name, rows in table.rows.items():
            for predictor, found in rows.predictors.items():
                for coefficient in _COEFFICIENTS:
                    what = (target, name, predictor, coefficient, getattr(found, coefficient))
                    limits = [found.interval(kind, coefficient) or _NONE for kind in ("by_picture", "by_ctu")]
                    yield *what, *limits[0], *limits[1], rows.n, rows.pictures


def _quarter_rows(result: Correlation) -> Iterable[Sequence[Any]]:
    for row in result.depth_quarters:
        yield row.qp, row.n, *row.depth, row.mse_y, row.gain_db, row.saved_share


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
