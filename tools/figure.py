"""The README's figure: PSNR gain by QP of filters, from the results.json of an evaluation.

python tools/figure.py results/zoo/results.json docs/gain.png
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure


def draw(models: list[dict], output: Path) -> None:
    """A line a filter, the mean of its gains in dB of luma PSNR; the test pictures of the last one as dots."""
    qps = sorted({row["qp"] for row in models[0]["sequences"]})
    figure = Figure(figsize=(7.2, 3.4), dpi=130, layout="constrained")
    axes = figure.subplots()
    for index, model in enumerate(models):
        gain = model["gain_db"]["y"]
        label = (
            f"{model['name'].rpartition('/')[2]}: {model['kmac_per_pixel']:.1f} kMAC/pixel, "
            f"{gain['mean']:+.3f} dB, BD-rate {model['bd_rate']['y']:+.2f} %"
        )
        axes.plot(qps, [gain[str(qp)] for qp in qps], "o-", label=label, color=f"C{index}", zorder=3)
    dots = [(row["qp"], row["psnr_y_filtered"] - row["psnr_y"]) for row in models[-1]["sequences"]]
    axes.scatter(*zip(*dots, strict=True), s=9, color=f"C{len(models) - 1}", alpha=0.35, linewidths=0)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set(xticks=qps, xlabel="QP", ylabel="PSNR Y gain, dB")
    pictures = len({row["name"] for row in models[0]["sequences"]})
    settings = models[0]["settings"]
    axes.set_title(
        f"Over finished pictures of libvvenc {settings['preset']}, {settings['configuration'].upper()}, all in-loop "
        f"filters on: {pictures} pictures never trained on",
        fontsize=9.5,
    )
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.08 * len(models) * (high - low))  # room for the legend
    axes.legend(frameon=False, fontsize=8.5, loc="upper left")
    figure.savefig(output)


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[1]).read_text())
    shown = [one for one in content.get("models", [content]) if "loss_to_float" not in one]
    draw(sorted(shown, key=lambda one: one["kmac_per_pixel"]), Path(sys.argv[2]))
