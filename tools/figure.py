"""Draw the figure of the README: PSNR gain by QP of filters, mean over classes, from the results of an evaluation.

python tools/figure.py results/zoo/results.json gain.png
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.evaluation import Results
from codecnn.runs import read_json


def main(argv: list[str]) -> None:
    """Draw the float networks of the results in the order of their cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results.json of `codecnn evaluate`")
    parser.add_argument("output", type=Path, help="picture to write")
    options = parser.parse_args(argv)
    content = read_json(options.results)
    models = [Results.model_validate(model) for model in content.get("models", [content])]
    floats = [results for results in models if results.loss_to_float is None]
    draw(sorted(floats, key=lambda results: results.kmac_per_pixel or 0), options.output)


def mean_over_classes(results: Results, qp: int) -> float:
    """Return the luma gain in dB at a QP, the mean over classes of the mean over each class."""
    classes = defaultdict(list)
    for row in results.sequences:
        if row.qp == qp and (gain := row.gain()) is not None:
            classes[row.class_].append(gain)
    return mean(map(mean, classes.values()))


def draw(models: list[Results], output: Path) -> None:
    """Draw a line for each filter, and the gains of the last filter on every test picture as dots."""
    figure = Figure(figsize=(7.2, 3.4), dpi=130, layout="constrained")
    axes = figure.subplots()
    for index, results in enumerate(models):
        over = results.over_classes
        if over is None:
            raise SystemExit(
                f"{results.title} was evaluated on pictures of less than two classes: evaluate more classes"
            )
        label = (
            f"{results.title.rpartition('/')[2]}: {results.kmac_per_pixel:.1f} kMAC/pixel, "
            f"{over.gain_db:+.3f} dB, BD-rate {over.bd_rate_y:+.2f} %"
        )
        gains = [mean_over_classes(results, qp) for qp in results.qps]
        axes.plot(results.qps, gains, "o-", label=label, color=f"C{index}", zorder=3)
    last = models[-1]
    dots = [(row.qp, gain) for row in last.sequences if (gain := row.gain()) is not None]
    axes.scatter(*zip(*dots, strict=True), s=9, color=f"C{len(models) - 1}", alpha=0.35, linewidths=0)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set(xticks=last.qps, xlabel="QP", ylabel="PSNR Y gain, dB")
    pictures, classes = len({row.name for row in last.sequences}), len({row.class_ for row in last.sequences})
    preset, configuration = last.settings["preset"], last.settings["configuration"].upper()
    axes.set_title(
        f"Decoded pictures of libvvenc {preset}, {configuration}, all in-loop filters on:\n"
        f"mean of {classes} classes, {pictures} pictures not used in training",
        fontsize=9,
    )
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.11 * len(models) * (high - low))  # space for the legend
    axes.legend(frameon=False, fontsize=8.5, loc="upper left")
    figure.savefig(output)


if __name__ == "__main__":
    main(sys.argv[1:])
