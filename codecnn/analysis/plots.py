"""Plots of the correlation analysis, as PNG files."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # not pyplot, so no display is looked for and nothing global is set
from numpy.typing import NDArray

from codecnn.analysis.correlation import combined_r
from codecnn.runs import atomic_path

_MAX_PANELS = 12
_INK, _ACCENT, _GREY = "#1f4e79", "#c2410c", "#6b7280"
_RATIOS = np.logspace(-3, 2, 400)


def plot_depth(path: Path | str, data: NDArray[np.float64], per_qp: Mapping[str, Any]) -> None:
    """CU depth against MSE as a density of CTUs, a panel a QP, with the mean MSE of each depth.

    `data` is (n, 3) of QP, depth, MSE (sample²). CTUs without any error do not fit the logarithmic axis and are left
    out. Of more than 12 QPs, 12 spread evenly are drawn.
    """
    qps = np.unique(data[:, 0])
    qps = qps[np.unique(np.linspace(0, len(qps) - 1, min(len(qps), _MAX_PANELS)).round().astype(int))]
    across = math.ceil(math.sqrt(len(qps)))
    down = math.ceil(len(qps) / across)
    figure = Figure(figsize=(3.4 * across + 0.8, 3.0 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for panel in panels.flat[len(qps) :]:
        panel.set_visible(False)
    for qp, panel in zip(qps, panels.flat, strict=False):
        _depth_panel(panel, data[(data[:, 0] == qp) & (data[:, 2] > 0), 1:])
        found = per_qp[f"{qp:g}"]
        r = "not defined" if found["depth"] is None else f"{found['depth']:.3f}"
        panel.set_title(f"QP {qp:g}: r = {r}, {found['n']} CTUs", fontsize=10)
    figure.supxlabel("mean CU depth of the CTU (splits)", fontsize=10)
    figure.supylabel("MSE (sample²)", fontsize=10)
    _save(figure, path)


def _depth_panel(panel: Axes, points: NDArray[np.float64]) -> None:
    panel.set_yscale("log")
    panel.grid(alpha=0.25)
    if not len(points):
        return
    depth, mse = points.T
    panel.hexbin(depth, mse, yscale="log", gridsize=28, bins="log", mincnt=1, cmap="Blues", linewidths=0.1)
    rounded = np.round(depth * 2) / 2
    steps = np.unique(rounded)
    panel.plot(steps, [mse[rounded == step].mean() for step in steps], "o-", color=_ACCENT, ms=3, lw=1, label="mean")
    panel.legend(fontsize=8, loc="lower right", frameon=False)


def plot_combination(
    path: Path | str, covariance: NDArray[np.float64], result: Mapping[str, Any], notebook: Mapping[str, float]
) -> None:
    """Correlation of a·QP + b·depth with the MSE against a/b, with closed form, search and the notebook's point.

    `covariance` is (3, 3) over (QP, depth, MSE), `result` is what `correlate` returns with nothing None in its
    combinations, `notebook` has "a", "b" and "r". A negative a/b has no place on the axis: its r is drawn as a line.
    """
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(_RATIOS, combined_r(covariance, _RATIOS, 1.0), color=_INK, lw=2, label="a·QP + b·depth, all a/b > 0")
    for name, key, style in (("QP alone", "qp", "--"), ("depth alone", "depth", ":")):
        value = result["pearson"][key]
        axes.axhline(value, color=_GREY, ls=style, lw=1, label=f"{name}: {value:.4f}")
    closed, search = result["closed_form"], result["bayes"]
    ratio = result["ratio"]
    label = f"closed form: {closed['r']:.4f} at a/b = {_ratio_text(ratio)}"
    if ratio is not None and ratio > 0:
        axes.plot(ratio, closed["r"], "o", ms=11, mfc="none", mec=_ACCENT, mew=2, label=label)
    else:
        axes.axhline(closed["r"], color=_ACCENT, lw=1, label=label)
    if search["a"] > 0 and search["b"] > 0:
        found = search["a"] / search["b"]
        axes.plot(found, search["r"], "x", ms=8, color=_INK, mew=2, label=f"search: {search['r']:.4f}")
    theirs = notebook["a"] / notebook["b"]
    axes.plot(theirs, notebook["r"], "D", ms=6, color=_GREY, label=f"notebook: {notebook['r']:.4f} at {theirs:.3f}")
    axes.set_xlabel("a / b (splits per QP step)")
    axes.set_ylabel("Pearson's r with the MSE")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False, loc="best")
    _save(figure, path)


def _ratio_text(ratio: float | None) -> str:
    return "infinity" if ratio is None else f"{ratio:.4g}"


def _save(figure: Figure, path: Path | str) -> None:
    with atomic_path(path) as part:
        figure.savefig(part, format="png", dpi=140, metadata={"Software": None})
