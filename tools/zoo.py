"""Maintain the weights that come with codecnn: copy them from training runs into the package, with their figures.

codecnn train configs/zoo.yaml store=stores/zoo model.name=low_cost_17 -o runs/low_cost_17
python tools/zoo.py ship runs/low_cost_17 low_cost_17.vvc --store stores/zoo     # weights, card, integers
codecnn evaluate stores/diverse_test --exact -m low_cost_5 -m low_cost_17 -o results/zoo    # on test pictures
python tools/zoo.py figures results/zoo/results.json                         # into the cards; prints the table
python tools/zoo.py modes modes_8 modes_16 --store stores/diverse_test       # figures of the mode networks
python tools/zoo.py curves runs/low_cost_5 runs/low_cost_17 -o curves.png
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.base.files import read_json, read_jsonl, write_json
from codecnn.base.planes import QP_SCALE
from codecnn.dataset import open_store
from codecnn.evaluation import untrained_qp
from codecnn.filtering.integer import integer_network, integer_path, save_integer
from codecnn.models import (
    CHROMA_PLANES,
    Card,
    FilterNetwork,
    card_path,
    load_model,
    named_outputs,
    read_card,
    save_weights,
    weights_path,
)
from codecnn.models.card import CardTest
from codecnn.models.zoo import FOLDER
from codecnn.modes.labels import likeliest_modes, read_inputs, store_inputs
from codecnn.modes.networks import ModeClassifier, load_mode_network
from codecnn.vvc.intra import block_costs, block_positions, blocks_at, reference_lines

RUN_KEYS = ("data_key", "qps", "trained_on", "training", "provenance", "validation")
"""Keys that a shipped card takes from the card of the run; the others are those of the new file."""

EIGHT_BITS = {"bits": 8, "pictures": 16, "loss": 0.002}
"""Options of 8-bit integers, as of `codecnn export`; docs/research/integer_cost.md names the exceptions."""

SAME_TEST = ("store", "encoder", "settings", "decisions")
"""Keys in which two tests of the same weights agree if they differ only in whether integers were evaluated."""

TRIED_MODES = (1, 3, 8, 16)
"""Numbers of likeliest modes for which the card of a mode network states the lost cost."""
QPS = (22, 27, 32, 37)
"""QPs of the blocks on which mode networks are tested."""


def main(argv: list[str]) -> None:
    """Run the command of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("ship", help="copy the best weights of a run into the package")
    command.add_argument("run", type=Path, help="folder of the run")
    command.add_argument("name", help="name of the weights in the package, with the tag")
    command.add_argument(
        "--store", type=Path, nargs="+", action="extend", required=True, help="stores that calibrate the integers"
    )
    command = commands.add_parser("figures", help="write the figures of an evaluation into the cards")
    command.add_argument("results", type=Path, help="results.json of `codecnn evaluate`")
    command = commands.add_parser("modes", help="test mode networks and write the lost cost into their cards")
    command.add_argument("weights", nargs="+", help="mode networks by name or file")
    command.add_argument("--store", type=Path, required=True, help="store whose split test is used")
    command.add_argument(
        "--blocks", type=int, default=80, help="8x8 blocks per picture and QP; of larger blocks 8/size as many [80]"
    )
    command = commands.add_parser("curves", help="draw loss and gain of runs")
    command.add_argument("runs", type=Path, nargs="+", help="folders of the runs")
    command.add_argument("-o", "--output", type=Path, required=True, help="picture to write")
    options = parser.parse_args(argv)
    if options.command == "ship":
        ship(options.run, options.name, options.store)
    elif options.command == "figures":
        print(write_figures(options.results))
    elif options.command == "modes":
        for weights in options.weights:
            print(f"{weights}: {write_lost_cost(weights, options.store, options.blocks)}")
    else:
        draw_curves(options.runs, options.output)


def ship(run: Path, name: str, stores: list[Path]) -> None:
    """Copy the best weights of a run into the package as `name`, with integers calibrated on `stores`.

    Where new weights compute the same as earlier ones at all QPs of their test, these QPs were not trained anew: the
    card keeps the test figures, and lists the stores and QPs of both trainings.
    """
    if "." not in name:
        raise SystemExit(f"{name} has no tag, e.g. {name}.vvc")
    model, card = load_model(run / "best.safetensors")
    target = FOLDER / f"{name}.safetensors"
    FOLDER.mkdir(exist_ok=True)
    facts = {key: card[key] for key in RUN_KEYS if key in card}
    earlier = read_card(target) if target.exists() else None
    if earlier is not None and "test" in earlier and computes_the_same(model, target, earlier["test"]):
        facts["test"] = {key: value for key, value in earlier["test"].items() if key != "integers_lose"}
        facts["trained_on"] = [*earlier["trained_on"], *card["trained_on"]]
        facts["qps"] = sorted({*earlier["qps"], *card["qps"]})
    save_weights(target, model, str(card.network), facts)
    model, card = load_model(target)
    opened = [open_store(store) for store in stores]
    save_integer(integer_path(target, 8), *integer_network(model, card, opened, **EIGHT_BITS))
    if "test" in facts:
        print(f"{name} computes the same as before at the QPs of its test figures, which are kept.")
    else:
        print(f"{name} has no test figures yet: evaluate it on test pictures, then run `python tools/zoo.py figures`.")


def computes_the_same(model: FilterNetwork, earlier: Path, test: dict[str, Any]) -> bool:
    """Return whether a network and earlier weights have equal outputs at all QPs of a test, for random samples."""
    before, _ = load_model(earlier)
    generator = torch.Generator().manual_seed(1)

    def plane(name: str, qp: int) -> torch.Tensor:
        if name == "qp":
            return torch.full((1, 1, 1, 1), qp / QP_SCALE)
        size = 64 if name in CHROMA_PLANES else 128
        return torch.rand((1, 1, size, size), generator=generator)

    for qp in test["settings"]["qp"]:
        planes = {name: plane(name, qp) for name in model.planes}
        with torch.inference_mode():
            outputs = [named_outputs(network.eval()(planes)) for network in (before, model)]
        if not all(torch.equal(outputs[0][name], outputs[1][name]) for name in outputs[0]):
            return False
    return True


def write_figures(results: Path) -> str:
    """Write the figures of an evaluation into the cards of its weights.

    Float weights are the subject where they were evaluated, and integers beside them give the loss; integers alone, as
    `codecnn evaluate` computes them without options, are figures of their own. Pictures of one class, e.g. the clips of
    a video test, give means over pictures instead of classes.

    Args:
        results: results.json of `codecnn evaluate`.

    Returns:
        A table of the figures in Markdown.

    Raises:
        SystemExit: The results are those of other weights, of bfloat16, or of QPs that a network was not trained at.
    """
    content = read_json(results)
    models: list[dict[str, Any]] = content.get("models", [content])
    lines = [
        "| weights | planes | kMAC/pixel | parameters | BD-rate Y (95 %) | U | V | gain, dB "
        "| worst class | worst picture | cells that lose |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    losses = {model["loss_to_float"]["name"]: model["loss_to_float"] for model in models if "loss_to_float" in model}
    for model in sorted(models, key=lambda model: model["kmac_per_pixel"]):
        if "loss_to_float" in model:
            continue
        name = model["name"].rpartition("/")[2]
        path = weights_path(name.removesuffix(".int8"))
        card = read_card(path)
        evaluated = read_json(card_path(weights_path(name)))
        if card.sha256 != evaluated.get("source_sha256", card.sha256) or model["weights_sha256"] != evaluated["sha256"]:
            raise SystemExit(f"{results} is an evaluation of other weights than {path}: evaluate them again")
        if "bfloat16" in (model.get("device") or ""):
            raise SystemExit(f"{results} was computed in bfloat16, but cards state float32: evaluate with float32")
        constant = "rate" not in model["settings"]  # else QPs come from the streams, and `qp` is e.g. that of `-crf`
        if constant and any(untrained_qp(card, row["qp"]) for row in model["sequences"]):
            raise SystemExit(f"{results} contains QPs at which {path.stem} was not trained: evaluate at its QPs")
        test = _test(model, losses.get(model["name"]), card.get("test", {}), 8 if name.endswith(".int8") else None)
        write_json(card_path(path), {**card, "test": test})
        lines.append(_row(path.stem, card, model, test))
    return "\n".join(lines) + "\n"


def _test(
    model: dict[str, Any], loss: dict[str, Any] | None, before: dict[str, Any], bits: int | None
) -> dict[str, Any]:
    """Return the test of a card; it keeps the loss of the integers from an earlier evaluation with --exact."""
    settings = ("preset", "configuration", "qp", "rate")
    test = {
        "store": {
            "data_key": model["provenance"]["data_key"],
            "split": model["split"],
            "pictures": len(model["bd_rate_per_sequence"]),
        },
        "encoder": model["encoder"],
        "settings": {key: model["settings"][key] for key in settings if key in model["settings"]},
        "decisions": model["decisions"],
        **({} if bits is None else {"bits": bits}),
        "gain_db": model["gain_db"],
        "bd_rate": model["bd_rate"],
        **({"over_classes": model["over_classes"]} if "over_classes" in model else {}),
    }
    if loss is not None:
        test["integers_lose"] = {key: loss[key] for key in ("db", "bd_rate")}
    if (
        bits is None
        and "integers_lose" in before
        and all(before[key] == value for key, value in test.items() if key in SAME_TEST)
    ):
        test.setdefault("integers_lose", before["integers_lose"])
    return test


def _row(name: str, card: Card, model: dict[str, Any], test: dict[str, Any]) -> str:
    """Return the row of a table for the evaluation of weights: means over classes, or over pictures of one class."""
    gain, rate = CardTest.model_validate(test).luma
    over = test.get("over_classes", {})
    interval = " ({:+.2f} to {:+.2f})".format(*over["bd_rate_y_ci95"]) if over.get("bd_rate_y_ci95") else ""
    chroma = [over[f"bd_rate_{plane}"] if over else model["bd_rate"][plane] for plane in "uv"]
    worst_class = _worst(*over["worst_class"]) if over else ""
    rates = {
        sequence: rates["y"] for sequence, rates in model["bd_rate_per_sequence"].items() if rates["y"] is not None
    }
    worst = max(rates, key=lambda sequence: rates[sequence])
    losing = sum(row["psnr_y_filtered"] < row["psnr_y"] for row in model["sequences"])
    return (
        f"| `{name}` | {', '.join(card.options['planes'])} | {card.kmac_per_pixel:.1f} | {card.parameters:,} "
        f"| **{rate:+.2f} %**{interval} | {' | '.join(f'{rate:+.2f} %' if rate else '' for rate in chroma)} "
        f"| {gain:+.3f} | {worst_class} | {_worst(worst, rates[worst])} | {losing} of {len(model['sequences'])} |"
    )


def _worst(name: str, rate: float) -> str:
    return f"{name} {rate:+.2f} %"


def write_lost_cost(weights: str, store: Path, blocks: int) -> str:
    """Measure the lost cost of a mode network (see `lost_cost`), write it into the card, and return it as text."""
    torch.set_num_threads(1)
    model, _ = load_mode_network(weights)
    lost = lost_cost(model, store, blocks)
    card = card_path(weights_path(weights))
    write_json(card, read_json(card) | {"lost_percent": {str(count): percent for count, percent in lost.items()}})
    return ", ".join(f"{percent:.2f} % with {count} modes" for count, percent in lost.items())


def lost_cost(model: ModeClassifier, folder: Path, blocks: int) -> dict[int, float]:
    """Measure the DCT cost that is lost if only the likeliest modes of a network are tried instead of all 67.

    The blocks are drawn at random from the first picture of every unit of the split test, at the same positions for all
    QPs, with references from the decoded picture.

    Args:
        model: The mode network.
        folder: The store.
        blocks: Number of 8x8 blocks per picture and QP; the number of larger blocks is 8 / size times that.

    Returns:
        By number of tried modes, the percentage by which the sum of costs exceeds that of the best modes, mean over
        QPs.
    """
    ((size, _),) = model.block_sizes or ()
    best: dict[int, float] = defaultdict(float)
    chosen: dict[int, dict[int, float]] = {count: defaultdict(float) for count in TRIED_MODES}
    numbers: dict[Path, int] = {}
    for unit in store_inputs(open_store(folder), ("test",)):
        if unit.qps is None or unit.qps[0] not in QPS:
            continue
        qp, picture = unit.qps[0], next(read_inputs([unit]))
        height, width = picture.original.shape
        positions = block_positions(width, height, size, size)
        rng = np.random.default_rng([size, numbers.setdefault(unit.picture, len(numbers))])
        drawn = rng.choice(len(positions), min(blocks * 8 // size, len(positions)), replace=False)
        positions = positions[np.sort(drawn)]
        line = reference_lines(picture.references, positions, size, size, picture.bit_depth)
        block = blocks_at(picture.original, positions, size, size)
        costs = block_costs(line, block, picture.bit_depth, "dct")
        modes, _ = likeliest_modes(model, line, block, picture.bit_depth, qp, max(TRIED_MODES))
        peak = 2.0**picture.bit_depth
        best[qp] += costs.min(1).sum() / peak
        for count in TRIED_MODES:
            chosen[count][qp] += np.take_along_axis(costs, modes[:, :count].astype(np.int64), 1).min(1).sum() / peak
    if not best:
        raise SystemExit(f"the split test of {folder} contains no picture at QP {', '.join(map(str, QPS))}")
    return {
        count: float(100 * np.mean([total / best[qp] - 1 for qp, total in totals.items()]))
        for count, totals in chosen.items()
    }


def draw_curves(runs: list[Path], output: Path) -> None:
    """Draw training loss and validation gain by step, a line for each run."""
    figure = Figure(figsize=(9, 3.4), dpi=120, layout="constrained")
    axes = figure.subplots(1, 2)
    for run in runs:
        rows = read_jsonl(run / "metrics.jsonl")
        steps = [row["step"] for row in rows]
        axes[0].plot(steps, [row["loss"] for row in rows], ".-", label=run.name)
        axes[1].plot(steps, [row["gain_mean_db"] for row in rows], ".-", label=run.name)
    axes[0].set_ylabel("loss: share of the codec's squared error")
    axes[1].set_ylabel("gain on the validation pictures, mean of the QPs, dB")
    for panel in axes:
        panel.set_xlabel("step")
        panel.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, fontsize=8.5)
    figure.savefig(output)


if __name__ == "__main__":
    main(sys.argv[1:])
