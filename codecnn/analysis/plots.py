"""Plots of the correlation analysis, as PNG files."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure  # pyplot would look for a display and set global state

from codecnn.analysis.combination import combined_r
from codecnn.analysis.ctu_table import CtuTable, Floats
from codecnn.analysis.results import Combinations, Correlation, QpRows
from codecnn.base.files import atomic_path

DRAWN_ROWS = 200_000
"""Largest number of rows that are plotted; a longer table is sampled at random."""
_MAX_PANELS = 12
_INK, _ACCENT, _GREY = "#1f4e79", "#c2410c", "#6b7280"
_DENSITY = LinearSegmentedColormap.from_list("density", colormaps["Blues"](np.linspace(0.25, 1, 64)))
"""Colours of counts, without the near-white end, so that a single CTU is visible."""
_RATIOS = np.logspace(-3, 2, 400)


def plot_depth(path: Path | str, ctus: CtuTable, per_qp: Mapping[str, QpRows], seed: int = 0) -> None:
    """Plot CU depth against MSE as a density of CTUs, one panel per QP, with the median MSE by depth.

    CTUs without any error are omitted from the logarithmic axis. At most 12 evenly spaced QPs and DRAWN_ROWS rows are
    plotted.

    Args:
        path: PNG file.
        ctus: The table.
        per_qp: Results by name of the QP, for the titles.
        seed: Seed of the sample of a long table.
    """
    rows = np.arange(len(ctus))
    if len(rows) > DRAWN_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), DRAWN_ROWS, replace=False))
    depth, mse = ctus.columns["depth_mean"][rows], ctus.columns["mse_y"][rows]
    qps = np.unique(np.linspace(0, len(ctus.qps) - 1, min(len(ctus.qps), _MAX_PANELS)).round().astype(int))
    across = math.ceil(math.sqrt(len(qps)))
    down = math.ceil(len(qps) / across)
    figure = Figure(figsize=(3.4 * across + 0.8, 3.0 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for panel in panels.flat[len(qps) :]:
        panel.set_visible(False)
    for qp, panel in zip(qps, panels.flat, strict=False):
        chosen = (ctus.qp_index[rows] == qp) & (mse > 0)
        _depth_panel(panel, depth[chosen], mse[chosen])
        result = per_qp[ctus.qp_name(qp)]
        r = "not defined" if result.depth is None else f"{result.depth:.3f}"
        panel.set_title(f"QP {ctus.qp_name(qp)}: r = {r}, {result.n} CTUs", fontsize=10)
    figure.supxlabel("mean CU depth of the CTU (splits)", fontsize=10)
    figure.supylabel("MSE (sample²)", fontsize=10)
    _save(figure, path)


def _depth_panel(panel: Axes, depth: Floats, mse: Floats) -> None:
    panel.set_yscale("log")
    panel.grid(alpha=0.25)
    if not len(depth):
        return
    panel.hexbin(depth, mse, gridsize=28, yscale="log", bins="log", mincnt=1, cmap=_DENSITY, linewidths=0.1)
    rounded = np.round(depth * 2) / 2
    steps = np.unique(rounded)
    medians = [np.median(mse[rounded == step]) for step in steps]
    panel.plot(steps, medians, "o-", color=_ACCENT, ms=3, lw=1, label="median")
    panel.legend(fontsize=8, loc="lower right", frameon=False)


def plot_combination(path: Path | str, result: Correlation, combinations: Combinations) -> None:
    """Plot r of a·QP + b·depth with the MSE against a / b, with the results of closed form and search.

    A ratio outside the axis, such as a negative one, is drawn as a horizontal line at its r.

    Args:
        path: PNG file.
        result: The result.
        combinations: Its combinations.
    """
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.subplots()
    r = combined_r(result.covariance, _RATIOS, 1.0)
    axes.semilogx(_RATIOS, r, color=_INK, lw=2, label="a·QP + b·depth, all a/b > 0")
    for name, value, style in (("QP alone", result.pearson.qp, "--"), ("depth alone", result.pearson.depth, ":")):
        axes.axhline(value, color=_GREY, ls=style, lw=1, label=f"{name}: {value:.4f}")
    r, ratio, search = combinations.closed_form.r, combinations.ratio, combinations.bayes
    label = f"closed form: {r:.4f} at a/b = {'infinity' if ratio is None else f'{ratio:.4g}'}"
    if _drawable(ratio):
        axes.plot(ratio, r, "o", ms=11, mfc="none", mec=_ACCENT, mew=2, label=label)
    else:
        axes.axhline(r, color=_ACCENT, lw=1, label=label)
    ratio = search.a / search.b if search.b else None
    if _drawable(ratio):
        axes.plot(ratio, search.r, "x", ms=8, color=_INK, mew=2, label=f"search: {search.r:.4f}")
    axes.set_xlabel("a / b (splits per QP step)")
    axes.set_ylabel("Pearson's r with the MSE")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False, loc="best")
    _save(figure, path)


def plot_search(path: Path | str, result: Correlation, combinations: Combinations) -> None:
    """Plot r over a and b in [0, 1] with the points of the search, and the convergence of both searches.

    The line is the ridge a / b of the closed form, if it lies within the bounds. The right panel shows by how much the
    best r so far is below the best possible within the bounds.

    Args:
        path: PNG file.
        result: The result.
        combinations: Its combinations.
    """
    figure = Figure(figsize=(10.4, 4.5), layout="constrained")
    surface, convergence = figure.subplots(1, 2)
    a, b = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
    r = combined_r(result.covariance, a, b)
    r[0, 0] = np.nan  # the sum is constant
    drawn = surface.contourf(a, b, r, levels=24, cmap="Blues")
    figure.colorbar(drawn, ax=surface, label="Pearson's r with the MSE")
    ratio = combinations.ratio
    if ratio is not None and ratio > 0:
        surface.plot([0, min(1, ratio)], [0, min(1, 1 / ratio)], color=_ACCENT, lw=1, label=f"a/b = {ratio:.4g}")
    points = np.array(combinations.bayes.points)
    surface.scatter(*points[:, :2].T, c=np.arange(len(points)), cmap="Greys", ec=_INK, lw=0.6, s=22, zorder=3)
    surface.plot(combinations.bayes.a, combinations.bayes.b, "*", color=_ACCENT, ms=14, label="best", zorder=4)
    surface.set(xlabel="a", ylabel="b", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    surface.set_title("points tried, light to dark", fontsize=10)
    surface.legend(fontsize=8, loc="lower right")
    for search, best, label, colour in (
        (combinations.bayes, combinations.closed_form_box, "a and b", _INK),
        (combinations.bayes_b1, combinations.closed_form_b1, "b = 1", _ACCENT),
    ):
        reached = [point[2] for point in search.points] + [search.r]
        below = np.maximum(best.r - np.maximum.accumulate(reached), 1e-12)
        convergence.semilogy(np.arange(1, len(below)), below[:-1], ".-", color=colour, lw=1, label=label)
        convergence.plot(len(below), below[-1], "*", color=colour, ms=11)
    convergence.axhline(1e-4, color=_GREY, ls="--", lw=1, label="1e-4")
    convergence.set(xlabel="points tried (star: after the descent)", ylabel="below the closed form")
    convergence.set_title("convergence", fontsize=10)
    convergence.grid(alpha=0.25)
    convergence.legend(fontsize=8, frameon=False)
    _save(figure, path)


def _drawable(ratio: float | None) -> TypeGuard[float]:
    return ratio is not None and _RATIOS[0] <= ratio <= _RATIOS[-1]


def _save(figure: Figure, path: Path | str) -> None:
    with atomic_path(path) as part:
        figure.savefig(part, format="png", dpi=140, metadata={"Software": None})
