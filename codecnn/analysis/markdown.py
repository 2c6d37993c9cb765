"""The correlation report as text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from codecnn.analysis import notebook

_NAMES = {
    "qp": "QP", "depth_mean": "depth, mean", "depth_max": "depth, largest", "variance": "variance", "bits": "bits",
    "mse_y": "MSE", "log_mse": "ln MSE", "psnr": "PSNR", "gain_db": "gain, dB", "mse_saved": "MSE saved",
}  # fmt: skip


class Row(NamedTuple):
    """A figure of the headline: ours, its 95 % intervals, and the notebook's."""

    name: str
    value: float | None
    by_picture: list[float] | None = None
    by_ctu: list[float] | None = None
    notebook: float | None = None


def headline(result: Mapping[str, Any]) -> list[Row]:
    """The notebook's figures, ours beside them, in its order."""
    bayes, b1, closed = result["bayes"], result["bayes_b1"], result["closed_form"]

    def limits(*path: str) -> tuple[list[float] | None, list[float] | None]:
        found: list[Any] = [result["ci95"]["by_picture"], result["ci95"]["by_ctu"]]
        for key in path:
            found = [None if part is None else part[key] for part in found]
        return found[0], found[1]

    rows = [
        Row("Pearson(QP, MSE)", result["pearson"]["qp"], *limits("pearson", "qp"), notebook.PEARSON["qp"]),
        Row("Pearson(depth, MSE)", result["pearson"]["depth"], *limits("pearson", "depth"), notebook.PEARSON["depth"]),
    ]
    tables = result["targets"]["mse_y"]["rows"]
    for qp in sorted({*result["per_qp"], *notebook.PER_QP}, key=float):
        found = tables.get(qp, {}).get("depth_mean", {"pearson": None, "ci95": {}})
        by_picture, by_ctu = (found["ci95"].get(kind, {}).get("pearson") for kind in ("by_picture", "by_ctu"))
        name = f"Pearson(depth, MSE) at QP {qp}"
        rows.append(Row(name, found["pearson"], by_picture, by_ctu, notebook.PER_QP.get(qp)))
    implied = result["notebook_implied"]
    return [
        *rows,
        Row("closed form: r", closed["r"], *limits("closed_form", "r")),
        Row("closed form: a / b", result["ratio"], *limits("closed_form", "ratio")),
        Row("search: a", bayes["a"], notebook=notebook.BAYES["a"]),
        Row("search: b", bayes["b"], notebook=notebook.BAYES["b"]),
        Row("search: a / b", _ratio(bayes["a"], bayes["b"]), notebook=notebook.BAYES["a"] / notebook.BAYES["b"]),
        Row("search: r", bayes["r"], notebook=notebook.BAYES["r"]),
        Row("search with b = 1: a", b1["a"], notebook=notebook.B1["a"]),
        Row("search with b = 1: r", b1["r"], notebook=notebook.B1["r"]),
        Row("r with the notebook's a / b", result["notebook_ratio_r"], notebook=notebook.BAYES["r"]),
        Row("Pearson(QP, depth)", result["qp_depth"], *limits("qp_depth"), notebook=implied["qp_depth"]),
        Row("deviation of depth, splits", result["deviation"]["depth"], notebook=implied["depth_deviation"]),
    ]


def markdown(result: Mapping[str, Any], rows: Sequence[Row], made: Mapping[str, Any], plots: Sequence[str]) -> str:
    """The report; `plots` are the names of the pictures beside it."""
    pictures = "an unknown number of" if result["pictures"] is None else f"{result['pictures']}"
    bootstrap = (
        f"Intervals are 95 % bootstrap percentiles of {result['resamples']} resamples, of whole pictures (with all "
        "their QPs) and of CTUs; CTUs of a picture are not independent, so those by picture are the ones to trust. "
        if result["resamples"]
        else ""
    )
    parts = [
        "# QP, CU depth and the error the codec leaves",
        f"{result['n']} CTUs of {pictures} pictures. {bootstrap}The notebook's figures: {notebook.SOURCE}; its last "
        "two follow from the others (docs/correlation.md).",
        _table(
            ("", "here", "by picture", "by CTU", "notebook"),
            [(row.name, row.value, row.by_picture, row.by_ctu, row.notebook) for row in rows],
        ),
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
        _worth(result),
        *(f"![{name.removesuffix('.png')}]({name})" for name in plots),
    ]
    if result["notes"]:
        parts += ["## Notes", "\n".join(f"- {note}" for note in result["notes"])]
    return "\n\n".join([*parts, f"codecnn {made['codecnn']}: `{' '.join(made['argv'])}`"]) + "\n"


def _search(result: Mapping[str, Any]) -> list[str]:
    if result["closed_form"]["r"] is None:
        return []
    lines = [
        "Only a / b matters to a·QP + b·depth: scaling both leaves r as it is. The closed form is least squares, "
        "the search Bayesian (expected improvement) over a and b in [0, 1], then a descent from its best point."
    ]
    for what, name, best in (
        ("The search", "bayes", "closed_form_box"),
        ("With b = 1 it", "bayes_b1", "closed_form_b1"),
    ):
        found = result[name]
        short, bayes = result[best]["r"] - found["r"], result[best]["r"] - found["bayes_steps_r"]
        verdict = "reached" if found["reached_best_within_bounds"] else "did not reach"
        lines.append(
            f"{what} {verdict} the best r within its bounds, {result[best]['r']:.6f}, to 1e-4: {max(short, 0):.1e} "
            f"below it, and {max(bayes, 0):.1e} after its {len(found['points'])} Bayesian steps alone."
        )
    return ["## The best a·QP + b·depth", " ".join(lines)]


def _suppressor(result: Mapping[str, Any]) -> list[str]:
    found = result["suppressor"]
    if found is None:
        return []
    shares, semi = found["shares"], found["semi_partial"]
    why = (
        "The part in common is negative: the two hide each other's effect, and the sum explains more than both parts "
        "added up (a suppressor effect)."
        if found["suppression"]
        else "The part in common is not negative: there is no suppressor effect here."
    )
    implied = result["notebook_implied"]
    return [
        "## Why the sum beats its parts",
        f"r(QP, depth) is {found['r_qp_depth']:.4f}. QP and depth together explain {found['explained']:.4f} of the "
        f"variance of the MSE (r²): {shares['qp_alone']:.4f} only QP (semi-partial r {semi['qp']:.4f}), "
        f"{shares['depth_alone']:.4f} only depth ({semi['depth']:.4f}), {shares['common']:.4f} in common. Alone, QP "
        f"explains {found['r_qp'] ** 2:.4f} and depth {found['r_depth'] ** 2:.4f}. {why} The notebook's three figures "
        f"allow r(QP, depth) to be {implied['roots'][0]:.4f} or {implied['roots'][1]:.4f}, and with the second its b "
        "would have to be negative.",
    ]


def _held_out(result: Mapping[str, Any]) -> list[str]:
    found = result["held_out"]
    if found is None:
        return []
    columns = ("fitted on", "a / b", "r there", "tried on", "r there", "best possible there")
    rows = [
        (
            f"{half['fitted_pictures']} pictures", _ratio(half["a"], half["b"]), half["r_fitted"],
            f"{half['other_pictures']} pictures", half["r_other"], half["best_r_other"],
        )
        for half in found["halves"]
    ]  # fmt: skip
    low, high = found["middle95_r_other"]
    return [
        "## On pictures it was not fitted on",
        _table(columns, rows),
        f"Over {found['splits']} random splits, both ways: r on the other half is {found['mean_r_other']:.4f} "
        f"in the mean, 95 % of them from {low:.4f} to {high:.4f}; the best possible there is "
        f"{found['mean_best_r_other']:.4f}.",
    ]


def _predictors(result: Mapping[str, Any]) -> str:
    rows = []
    for name, part in result["targets"]["mse_y"]["rows"].items():
        for key in (key for key in part if key not in ("n", "pictures")):
            found = part[key]
            by_picture = found["ci95"].get("by_picture", {})
            rows.append(
                (
                    "all" if name == "all" else f"QP {name}", _NAMES[key],
                    found["pearson"], by_picture.get("pearson"), found["spearman"], by_picture.get("spearman"),
                    found["partial"], found["partial_all"], part["n"], part["pictures"],
                )
            )  # fmt: skip
    columns = ("rows", "", "Pearson", "by picture", "Spearman", "by picture", "partial", "partial, all")
    return _table((*columns, "CTUs", "pictures"), rows, left=2)


def _targets(result: Mapping[str, Any]) -> str:
    rows = []
    for name, target in result["targets"].items():
        whole, best = target["rows"]["all"], target["combination"]
        rows.append(
            (
                _NAMES[name], whole["qp"]["pearson"], whole["depth_mean"]["pearson"],
                whole.get("mse_y", {"pearson": None})["pearson"], best["r"], best["ratio"], whole["n"],
            )
        )  # fmt: skip
    return _table(("", "QP", "depth", "MSE", "r of both", "a / b", "CTUs"), rows)


def _worth(result: Mapping[str, Any]) -> str:
    gained = any("gain_db" in row or "saved_share" in row for row in result["worth"])
    columns = ("QP", "depth", "CTUs", "mean MSE", *(("mean gain, dB", "share of the MSE saved") if gained else ()))
    rows = [
        (
            row["qp"], f"{row['depth'][0]:.2f} to {row['depth'][1]:.2f}", row["n"], row["mse_y"],
            *((row.get("gain_db"), row.get("saved_share")) if gained else ()),
        )
        for row in result["worth"]
    ]  # fmt: skip
    return _table(columns, rows, left=2)


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
