"""Draw the figure of the README: what a filter does to a decoded picture, and the BD-rate of the shipped weights.

A picture of scikit-image is coded by the libvvenc that comes with pip (all intra, 10 bit, QP 37) and filtered.
`python tools/figures.py --only picture` runs it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import codecnn
from codecnn.models import zoo_cards

PICTURE = "astronaut"
QP = 37
WEIGHTS = "low_cost_75"
TOP, LEFT, SIZE = 20, 400, 72
"""The crop, in luma samples. It gains 0.47 dB, nearly as much as the whole picture."""

ZOOM = 4
"""Pixels of the figure per sample of the crop."""

ERROR_SCALE = 10
"""Factor on the absolute error in the error maps."""

BARS = ("low_cost_5", "low_cost_17", "low_cost_17.vvc_unf", "low_cost_75", "low_cost_75.vvc_unf")
"""Weights of the bar chart."""

DPI = 100
MARGIN, TITLE, CHART = 12, 40, 350
"""Pixels between the panels, above each for its title, and of the width of the bar chart."""


def code_and_filter(folder: Path) -> tuple[Any, Any, Any]:
    """Return the luma planes of the original, decoded and filtered picture, shape (h, w), 10 bit."""
    recipe = {
        "name": "readme",
        "preset": "medium",
        "qp": [QP],
        "sequences": [{"source": f"skimage:{PICTURE}.png", "split": "test"}],
    }
    (folder / "readme.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    (unit,) = codecnn.build_dataset(folder / "readme.yaml", folder / "store").units
    original, decoded = unit.originals()[0], unit.decoded()[0]
    return original.y, decoded.y, codecnn.load_filter(WEIGHTS)(decoded, qp=QP).y


def draw(original: Any, decoded: Any, filtered: Any, output: Path) -> tuple[float, float]:
    """Draw crops, error maps and the bar chart, and return PSNR Y in dB before and after the filter.

    Args:
        original: Luma samples, shape (h, w), 10 bit.
        decoded: Luma samples of the decoded picture.
        filtered: Luma samples of the filtered picture.
        output: PNG file to write.
    """
    side = SIZE * ZOOM
    width, height = 3 * (side + MARGIN) + MARGIN + CHART, 2 * (side + TITLE) + MARGIN
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)

    def panel(column: int, row: int, title: str, samples: Any) -> Any:
        bottom = height - (row + 1) * (side + TITLE)
        box = ((MARGIN + column * (side + MARGIN)) / width, bottom / height, side / width, side / height)
        axes = figure.add_axes(box)
        axes.imshow(samples, cmap="gray", vmin=0, vmax=1023, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=10, pad=4)
        return axes

    def crop(samples: Any) -> Any:
        return samples[TOP : TOP + SIZE, LEFT : LEFT + SIZE].astype(int)

    def error(samples: Any) -> Any:
        return ERROR_SCALE * np.abs(crop(samples) - crop(original))

    before, after = (codecnn.psnr(original, samples, 10) for samples in (decoded, filtered))
    panel(0, 0, "original", crop(original))
    panel(1, 0, f"decoded, QP {QP}: {before:.2f} dB", crop(decoded))
    panel(2, 0, f"filtered, {WEIGHTS}: {after:.2f} dB", crop(filtered))
    whole = panel(0, 1, "the picture and the crop", original)
    whole.add_patch(Rectangle((LEFT, TOP), SIZE, SIZE, fill=False, edgecolor="yellow", linewidth=1.5))
    panel(1, 1, f"absolute error of decoded, x{ERROR_SCALE}", error(decoded))
    panel(2, 1, f"absolute error of filtered, x{ERROR_SCALE}", error(filtered))

    left, bottom = 3 * (side + MARGIN) + MARGIN + 55, 45
    chart = figure.add_axes(
        (left / width, bottom / height, (width - left - 15) / width, (height - bottom - TITLE) / height)
    )
    cards = zoo_cards()
    for index, name in enumerate(BARS):
        test = cards[name].test
        over = None if test is None else test.over_classes
        if over is None or over.bd_rate_y_ci95 is None:
            raise SystemExit(f"the card of {name} has no test over classes with an interval")
        low, high = over.bd_rate_y_ci95
        rate = over.bd_rate_y
        chart.bar(index, rate, color="tab:orange" if name.endswith("_unf") else "tab:blue", width=0.7)
        chart.errorbar(index, rate, [[rate - low], [high - rate]], color="black", linewidth=1, capsize=3)
        chart.text(index, low - 0.08, f"{rate:.2f} %", ha="center", va="top", fontsize=9)
        chart.text(index, -0.15, name, ha="center", va="top", fontsize=9, rotation=90, color="white")
    chart.set_ylim(-6.8, 0)
    chart.set_xticks(range(len(BARS)), [f"{cards[name].kmac_per_pixel:.0f}" for name in BARS], fontsize=9)
    chart.set_xlabel("kMAC/pixel", fontsize=9)
    chart.tick_params(axis="y", labelsize=9)
    chart.set_title("BD-rate Y in %, mean of 18 classes", fontsize=10, pad=4)
    chart.text(0.02, 0.02, "orange: takes the unfiltered\npicture too", transform=chart.transAxes, fontsize=9)
    for edge in ("top", "right"):
        chart.spines[edge].set_visible(False)
    figure.savefig(output, dpi=DPI)
    return before, after
