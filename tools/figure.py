"""The README's figure: PSNR gain by QP, from the results.json of an evaluation.

python tools/figure.py demo/evaluation/results.json docs/demo.png
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure


def draw(results: dict, output: Path) -> None:
    """One group of bars a QP, one bar a test picture, and the mean as a line; gains in dB of luma PSNR."""
    qps = sorted({row["qp"] for row in results["sequences"]})
    names = list(dict.fromkeys(row["name"] for row in results["sequences"]))
    figure = Figure(figsize=(7.2, 3.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        gains = [row["psnr_y_filtered"] - row["psnr_y"] for row in results["sequences"] if row["name"] == name]
        places = [place + (index - (len(names) - 1) / 2) * width for place in range(len(qps))]
        axes.bar(places, gains, width * 0.92, label=name, color=f"C{index}")
    means = [results["gain_db"]["y"][str(qp)] for qp in qps]
    axes.plot(range(len(qps)), means, "k.-", label=f"mean {results['gain_db']['y']['mean']:+.3f} dB")
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_xticks(range(len(qps)), [f"QP {qp}" for qp in qps])
    axes.set_ylabel("PSNR Y gain, dB")
    axes.set_title(
        f"{results['model'].upper()} at {results['kmac_per_pixel']:.1f} kMAC/pixel over finished VVC pictures "
        "that it never saw",
        fontsize=9.5,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8.5)
    figure.savefig(output)


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[1]).read_text())
    draw(content.get("models", [content])[-1], Path(sys.argv[2]))
