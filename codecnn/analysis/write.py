"""The correlation report: JSON, Markdown, CSV and plots, beside the notebook's figures."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from codecnn.analysis import notebook
from codecnn.analysis.markdown import Row, headline, markdown
from codecnn.analysis.plots import plot_combination, plot_depth, plot_search
from codecnn.analysis.table import CtuTable, check_table
from codecnn.runs import provenance, write_json, write_text

COEFFICIENTS = ("pearson", "spearman", "partial", "partial_all")


def write_correlation(
    out_dir: Path | str, result: Mapping[str, Any], table: CtuTable | pa.Table | Mapping[str, Any]
) -> list[Path]:
    """Write what `correlate` found in `table` to `out_dir`, each file whole or not at all; returns their paths.

    correlation.json (the result and what made it), correlation.md, correlation.csv (the headline beside the notebook's
    figures), coefficients.csv (every coefficient of every target), worth.csv (MSE and gain by QP and depth),
    depth_mse.png, and where both QP and depth vary combination.png and search.png.
    """
    out = Path(out_dir)
    made = provenance()
    ctus = check_table(table)
    combined = result["closed_form"]["r"] is not None
    rows = headline(result)
    plots = ["depth_mse.png", *(["combination.png", "search.png"] if combined else [])]
    tables = ["correlation.csv", "coefficients.csv", "worth.csv"]
    files = [out / name for name in ("correlation.json", "correlation.md", *tables, *plots)]
    write_json(files[0], {**result, "provenance": made})
    write_text(files[1], markdown(result, rows, made, plots))
    write_text(files[2], _csv(("quantity", *_INTERVALS, "notebook"), _headline_rows(rows)))
    write_text(files[3], _csv(_COEFFICIENT_COLUMNS, _coefficient_rows(result)))
    write_text(files[4], _csv(_WORTH_COLUMNS, _worth_rows(result)))
    plot_depth(files[5], ctus, result["per_qp"], result["seed"])
    if combined:
        covariance = covariance_of(result)
        plot_combination(files[6], covariance, result, notebook.BAYES)
        plot_search(files[7], covariance, result)
    return files


def covariance_of(result: Mapping[str, Any]) -> Any:
    """(3, 3) covariance of (QP, depth, MSE) from a result's correlations and deviations."""
    qp, depth, both = result["pearson"]["qp"], result["pearson"]["depth"], result["qp_depth"]
    deviation = np.array([result["deviation"][name] for name in ("qp", "depth", "mse_y")])
    return np.array([[1, both, qp], [both, 1, depth], [qp, depth, 1]]) * np.outer(deviation, deviation)


_INTERVALS = ("value", "picture_low", "picture_high", "ctu_low", "ctu_high")
_COEFFICIENT_COLUMNS = ("target", "rows", "predictor", "coefficient", *_INTERVALS, "ctus", "pictures")
_WORTH_COLUMNS = ("qp", "ctus", "depth_low", "depth_high", "mse_y", "gain_db", "saved_share")


def _headline_rows(rows: Sequence[Row]) -> Iterable[Sequence[Any]]:
    for row in rows:
        yield row.name, row.value, *_pair(row.by_picture), *_pair(row.by_ctu), row.notebook


def _coefficient_rows(result: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
    for target, table in result["targets"].items():
        for name, rows in table["rows"].items():
            for predictor in (key for key in rows if key not in ("n", "pictures")):
                found = rows[predictor]
                for coefficient in COEFFICIENTS:
                    limits = [found["ci95"].get(kind, {}).get(coefficient) for kind in ("by_picture", "by_ctu")]
                    yield (
                        *(target, name, predictor, coefficient, found[coefficient]),
                        *(*_pair(limits[0]), *_pair(limits[1]), rows["n"], rows["pictures"]),
                    )


def _worth_rows(result: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
    for row in result["worth"]:
        yield row["qp"], row["n"], *row["depth"], row["mse_y"], row.get("gain_db"), row.get("saved_share")


def _pair(limits: Sequence[float] | None) -> tuple[float | None, float | None]:
    return (None, None) if limits is None else (limits[0], limits[1])


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
