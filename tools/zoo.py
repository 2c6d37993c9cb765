"""The weights that come with codecnn: from training runs into the package, with their figures.

codecnn train configs/zoo.yaml store=stores/zoo model.name=low_cost_17 -o runs/low_cost_17
python tools/zoo.py ship runs/low_cost_17 low_cost_17 --store stores/zoo        # weights, card, integers
codecnn evaluate stores/diverse_test --exact -m low_cost_5 -m low_cost_17 -o results/zoo   # pictures no training saw
python tools/zoo.py figures results/zoo/results.json                           # into the cards; prints the table
python tools/zoo.py curves runs/low_cost_5 runs/low_cost_17 -o docs/learning.png
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.dataset import open_store
from codecnn.evaluation import ClassMeans, untrained_qp
from codecnn.filtering.integer import integer_network, integer_path, save_integer
from codecnn.models import card_path, load_model, read_card, save_weights
from codecnn.models.zoo import FOLDER
from codecnn.runs import read_json, read_jsonl, write_json

OF_THE_RUN = ("data_key", "qps", "trained_on", "training", "provenance", "validation")
"""What a shipped card takes over from that of the run; the rest is made anew for the file."""

COST_OF_16_BITS = 20.0
"""kMAC/pixel above which no integers of 16 bits ship: many times slower than float, they would serve nobody."""
EIGHT_BITS = {"bits": 8, "pictures": 16, "loss": 0.002}
"""What integers of 8 bits are made with, as for `codecnn export`; docs/integer/cost.md says where other values ship."""

SAME_TEST = ("store", "encoder", "settings", "decisions")
"""What two tests of the same weights have in common that only differ in whether integers took part."""


def ship(run: Path, name: str, stores: list[Path]) -> None:
    """Put the best weights of a run into the package as `name`, with integers that are calibrated on `stores`."""
    model, card = load_model(run / "best.safetensors")
    target = FOLDER / f"{name}.safetensors"
    FOLDER.mkdir(exist_ok=True)
    save_weights(target, model, str(card.network), {key: card[key] for key in OF_THE_RUN if key in card})
    model, card = load_model(target)
    opened = [open_store(store) for store in stores]
    save_integer(integer_path(target, 8), *integer_network(model, card, opened, **EIGHT_BITS))
    if card.kmac_per_pixel <= COST_OF_16_BITS:
        save_integer(integer_path(target), *integer_network(model, card, opened))


def figures(results: Path) -> str:
    """Write what an evaluation found into the cards of the weights it was about; the table of it, in Markdown."""
    content = read_json(results)
    models: list[dict[str, Any]] = content.get("models", [content])
    lines = [
        "| weights | planes | kMAC/pixel | parameters | BD-rate Y (95 %) | U | V | gain, dB "
        "| worst class | worst picture | cells that lose |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    losses = {one["loss_to_float"]["name"]: one["loss_to_float"] for one in models if "loss_to_float" in one}
    for one in sorted(models, key=lambda one: one["kmac_per_pixel"]):
        if "loss_to_float" in one:
            continue
        path = FOLDER / f"{one['name'].rpartition('/')[2]}.safetensors"
        card = read_card(path)
        if card.sha256 != one["weights_sha256"]:
            raise SystemExit(f"{results} is about other weights than {path}")
        if "bfloat16" in (one.get("device") or ""):
            raise SystemExit(f"{results} was computed in bfloat16: cards have the figures of float32")
        if any(untrained_qp(card, row["qp"]) for row in one["sequences"]):
            raise SystemExit(f"{results} is about QPs that {path.stem} was not trained at")
        if "over_classes" not in one:
            raise SystemExit(f"{results} is about pictures of less than two classes")
        write_json(card_path(path), {**card, "test": _test(one, losses.get(one["name"]), card.get("test", {}))})
        over = ClassMeans.model_validate(one["over_classes"])
        low, high = over.bd_rate_y_ci95
        colour = [f"{rate:+.2f} %" if rate else "" for rate in (over.bd_rate_u, over.bd_rate_v)]
        lines.append(
            f"| `{path.stem}` | {', '.join(card.options['planes'])} | {card.kmac_per_pixel:.1f} | {card.parameters:,} "
            f"| **{over.bd_rate_y:+.2f} %** ({low:+.2f} to {high:+.2f}) | {' | '.join(colour)} | {over.gain_db:+.3f} "
            f"| {_worst(over.worst_class)} | {_worst(over.worst_sequence)} | {over.losing_cells} of {over.cells} |"
        )
    return "\n".join(lines) + "\n"


def _test(one: dict[str, Any], loss: dict[str, Any] | None, before: dict[str, Any]) -> dict[str, Any]:
    """The card's entry on a test, which keeps what integers lose from an earlier evaluation with --exact."""
    test = {
        "store": {
            "data_key": one["provenance"]["data_key"],
            "split": one["split"],
            "pictures": len(one["bd_rate_per_sequence"]),
        },
        "encoder": one["encoder"],
        "settings": {key: one["settings"][key] for key in ("preset", "configuration", "qp")},
        "decisions": one["decisions"],
        "gain_db": one["gain_db"],
        "bd_rate": one["bd_rate"],
        "over_classes": one["over_classes"],
    }
    if loss is not None:
        test["integers_lose"] = {key: loss[key] for key in ("db", "bd_rate")}
    if "integers_lose" in before and all(before[key] == value for key, value in test.items() if key in SAME_TEST):
        test.setdefault("integers_lose", before["integers_lose"])
    return test


def _worst(named: tuple[str, float]) -> str:
    return f"{named[0]} {named[1]:+.2f} %"


def curves(runs: list[Path], output: Path) -> None:
    """Loss and gain on the validation pictures by the step, a line a run."""
    figure = Figure(figsize=(9, 3.4), dpi=120, layout="constrained")
    axes = figure.subplots(1, 2)
    for run in runs:
        rows = read_jsonl(run / "metrics.jsonl")
        steps = [row["step"] for row in rows]
        axes[0].plot(steps, [row["loss"] for row in rows], ".-", label=run.name)
        axes[1].plot(steps, [row["gain_mean_db"] for row in rows], ".-", label=run.name)
    axes[0].set_ylabel("loss: share of the codec's squared error")
    axes[1].set_ylabel("gain on the validation pictures, mean of the QPs, dB")
    for one in axes:
        one.set_xlabel("step")
        one.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, fontsize=8.5)
    figure.savefig(output)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("ship", help="a run's best weights into the package")
    one.add_argument("run", type=Path)
    one.add_argument("name")
    one.add_argument(
        "--store", type=Path, nargs="+", action="extend", required=True, help="that the integers are calibrated on"
    )
    one = commands.add_parser("figures", help="an evaluation's figures into the cards")
    one.add_argument("results", type=Path)
    one = commands.add_parser("curves", help="draw what runs learned")
    one.add_argument("runs", type=Path, nargs="+")
    one.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    if args.command == "ship":
        ship(args.run, args.name, args.store)
    elif args.command == "figures":
        print(figures(args.results))
    else:
        curves(args.runs, args.output)


if __name__ == "__main__":
    main(sys.argv[1:])
