"""The correlation report: JSON, Markdown, CSV and plots, beside the notebook's figures."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codecnn.analysis.correlation import checked_rows, covariance_of
from codecnn.analysis.plots import plot_combination, plot_depth
from codecnn.runs import provenance, write_json, write_text

NOTEBOOK_SOURCE = "the researcher's notebook that codecnn grew from, VVC (VTM 6) at QP 22, 27, 32 and 37"
NOTEBOOK_PEARSON = {"qp": 0.5476, "depth": 0.1886}
NOTEBOOK_PER_QP = {"22": 0.5369, "27": 0.4024, "32": 0.5617, "37": 0.6722}
NOTEBOOK_BAYES = {"a": 0.2817, "b": 0.8561, "r": 0.6748}
NOTEBOOK_B1 = {"a": 0.3290, "r": 0.6748}

Row = tuple[str, float | None, list[float] | None, float | None]


def write_correlation(out_dir: Path | str, result: Mapping[str, Any], columns: Mapping[str, Any]) -> list[Path]:
    """Write what `correlate` found in `columns` to `out_dir`, each file whole or not at all; returns their paths.

    correlation.json (the result and what made it), correlation.md and correlation.csv (beside the notebook's figures),
    depth_mse.png, and combination.png where both QP and depth vary.
    """
    out = Path(out_dir)
    files = [out / name for name in ("correlation.json", "correlation.md", "correlation.csv", "depth_mse.png")]
    made = provenance()
    write_json(files[0], {**result, "provenance": made})
    rows = _rows(result)
    combined = result["closed_form"]["r"] is not None
    write_text(files[1], _markdown(result, rows, made, combined=combined))
    write_text(files[2], _csv(rows))
    data = checked_rows(columns)
    plot_depth(files[3], data, result["per_qp"])
    if combined:
        files.append(out / "combination.png")
        plot_combination(files[4], covariance_of(data), result, NOTEBOOK_BAYES)
    return files


def _rows(result: Mapping[str, Any]) -> list[Row]:
    """(quantity, ours, our 95 % interval, the notebook's) of every figure."""
    by_picture, by_ctu = result["ci95"]["by_picture"], result["ci95"]["by_ctu"]
    interval = by_picture or by_ctu
    pearson, closed, bayes, b1 = (result[key] for key in ("pearson", "closed_form", "bayes", "bayes_b1"))
    rows: list[Row] = [
        ("Pearson(QP, MSE)", pearson["qp"], interval["pearson"]["qp"], NOTEBOOK_PEARSON["qp"]),
        ("Pearson(depth, MSE)", pearson["depth"], interval["pearson"]["depth"], NOTEBOOK_PEARSON["depth"]),
        ("Pearson(QP, depth)", result["qp_depth"], None, None),
    ]
    qps = sorted({*result["per_qp"], *NOTEBOOK_PER_QP}, key=float)
    for qp in qps:
        ours = result["per_qp"].get(qp, {"depth": None})["depth"]
        rows.append((f"Pearson(depth, MSE) at QP {qp}", ours, None, NOTEBOOK_PER_QP.get(qp)))
    return [
        *rows,
        ("closed form: a", closed["a"], None, None),
        ("closed form: b", closed["b"], None, None),
        ("closed form: a / b", result["ratio"], None, None),
        ("closed form: r", closed["r"], interval["closed_form"]["r"], None),
        ("search: a", bayes["a"], None, NOTEBOOK_BAYES["a"]),
        ("search: b", bayes["b"], None, NOTEBOOK_BAYES["b"]),
        ("search: r", bayes["r"], None, NOTEBOOK_BAYES["r"]),
        ("search with b = 1: a", b1["a"], None, NOTEBOOK_B1["a"]),
        ("search with b = 1: r", b1["r"], None, NOTEBOOK_B1["r"]),
    ]


def _markdown(result: Mapping[str, Any], rows: list[Row], made: Mapping[str, Any], *, combined: bool) -> str:
    by_picture = result["ci95"]["by_picture"]
    sample = f"{by_picture['pictures']} pictures" if by_picture else f"{result['n']} CTUs"
    lines = [
        "# QP, CU depth and the error the codec leaves",
        "",
        f"{result['n']} CTUs. Correlations are Pearson's r with the MSE of a CTU (sample²). "
        f"Intervals are 95 % bootstrap percentiles over {sample}. The notebook's figures: {NOTEBOOK_SOURCE}.",
        "",
        "| | here | 95 % interval | notebook |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {_text(ours)} | {_interval(interval)} | {_text(theirs)} |"
            for name, ours, interval, theirs in rows
        ),
        "",
        "Only a / b matters to a·QP + b·depth: scaling both leaves r as it is. The closed form is least squares, "
        "scaled so that the larger of |a| and |b| is 1; the search is Bayesian, over a and b in [0, 1], "
        "as in the notebook.",
        "",
        "![depth against MSE at each QP](depth_mse.png)",
    ]
    if combined:
        lines += ["", "![correlation against a / b](combination.png)"]
    if result["notes"]:
        lines += ["", "## Notes", "", *(f"- {note}" for note in result["notes"])]
    return "\n".join([*lines, "", f"codecnn {made['codecnn']}: `{' '.join(made['argv'])}`", ""])


def _csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["quantity", "value", "ci95_low", "ci95_high", "notebook"])
    for name, ours, interval, theirs in rows:
        writer.writerow([name, ours, *(interval or (None, None)), theirs])
    return text.getvalue()


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _interval(interval: list[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"
