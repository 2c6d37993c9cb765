"""Networks side by side: each trained on the same patches in the same steps, then measured on pictures it never saw.

    python tools/variants.py designs --store stores/zoo --test stores/zoo_test -o runs/designs
    python tools/variants.py learning --store stores/zoo --split val -o runs/learning steps=1000
    python tools/variants.py planes --store stores/learning --split val --seeds 3 -o runs/planes --start low_cost_17
    python tools/variants.py taught --store stores/learning --split val --seeds 3 -o runs/taught
    python tools/variants.py correlated --store stores/learning --split val --seeds 3 -o runs/correlated

tools/notebook.py is one more such table. A variant that is done is not run again, one that was interrupted goes on
from its checkpoint; table.md is written anew after each. Gains are those of the weights that did best on
the split "val" of the one store, on the split "test" of the other; or with --split val on pictures of that split, which
with validate_every=STEPS had no say in the weights.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.config import FilterConfig, NetworkConfig, parse_overrides
from codecnn.dataset import open_store
from codecnn.models import load_model, pick_device, weights_path
from codecnn.runs import read_json, write_json, write_text
from codecnn.training import CHECKPOINT, FilterSettings, psnr_gain, train
from tools.lottery import write_ticket

Variant = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], dict[str, Any]]
"""A network, its options, and what its training does unlike the others'."""

TICKET = "ticket of "
"""In front of a variant's name: its network pruned, at the weights that it had before it learned."""

LIGHT: dict[str, Any] = {"features": 32, "blocks": 2, "layers": 3, "growth": 16, "shuffle": 2}
UNFILTERED = LIGHT | {"conditioning": "film", "planes": ["rec_y", "qp", "unf_y"]}
COSTLY = {"kind": "depthwise", "features": 48, "blocks": 6, "expansion": 2}

DESIGNS: dict[str, Variant] = {
    "RDN at quarter resolution, QP as a plane": ("rdn", LIGHT),
    "the same, QP by FiLM": ("rdn", LIGHT | {"conditioning": "film"}),
    "the same, 2x2 DCT in front and behind": ("quarter_light", {}),
    "separable blocks": ("low_cost_17", {}),
    "depthwise blocks, as costly": ("low_cost_17", COSTLY),
    "depthwise blocks, small": ("low_cost_5", {}),
    "separable blocks, as small": ("low_cost_5", {"kind": "separable", "features": 16, "blocks": 5, "expansion": 3}),
    "RDN, as small": ("rdn", {"features": 16, "blocks": 2, "layers": 3, "growth": 8, "shuffle": 2}),
    "RDN, and the picture before the codec's filters": ("rdn", UNFILTERED),
}
"""What argues for the low-cost networks: the kinds of block at equal cost, how QP comes in, the second picture."""

LEARNING: dict[str, Variant] = {
    "as the zoo is trained": ("low_cost_17", {}),
    "another seed": ("low_cost_17", {}, {"seed": 2}),
    "loss: L1": ("low_cost_17", {}, {"loss": "l1"}),
    "loss: squared error, whatever the QP's": ("low_cost_17", {}, {"weighting": "none"}),
    "patches of 48x48, batch 16": ("low_cost_17", {}, {"patch": 48, "batch": 16}),
    "no flips and transposes": ("low_cost_17", {}, {"augment": False}),
    "QP as a plane": ("low_cost_17", {"conditioning": "plane"}),
    "learning rate 1e-3": ("low_cost_17", {}, {"learning_rate": 1e-3}),
    "last weights, not their average": ("low_cost_17", {}, {"ema": 0.0}),
    "learning rate 4e-3": ("low_cost_17", {}, {"learning_rate": 4e-3}),
    "patches where the error is": ("low_cost_17", {}, {"error_exponent": 0.5}),
    "patches of 192x192, batch 1": ("low_cost_17", {}, {"patch": 192, "batch": 1}),
    "loss: Charbonnier": ("low_cost_17", {}, {"loss": "charbonnier"}),
    "QP by squeeze and excitation": ("low_cost_17", {"conditioning": "se"}),
    "QP as a plane, another seed": ("low_cost_17", {"conditioning": "plane"}, {"seed": 2}),
    "a third seed": ("low_cost_17", {}, {"seed": 3}),
    "QP as a plane, a third seed": ("low_cost_17", {"conditioning": "plane"}, {"seed": 3}),
}
"""What a setting gains: one network, one budget of samples, one setting changed at a time."""

BESIDE = {
    "+ prediction": ["pred_y"],
    "+ unfiltered picture": ["unf_y"],
    "+ residual": ["resid_y"],
    "+ boundary strengths": ["bs_v", "bs_h"],
    "+ all of these": ["pred_y", "unf_y", "resid_y", "bs_v", "bs_h"],
    "+ edges of CUs": ["partition"],
    "+ depth of CUs": ["depth"],
    "+ intra mode": ["intra_mode"],
    "+ coded block flag": ["cbf_y"],
    "+ transform skip": ["ts_y"],
    "+ transform type": ["mts", "lfnst"],
}
PLANES: dict[str, Variant] = {"decoded picture alone": ("low_cost_17", {})} | {
    name: ("low_cost_17", {"planes": ["rec_y", "qp", *planes]}) for name, planes in BESIDE.items()
}
"""What a decoder knows beside its picture, and what that gains: from the beginning, or with --start from weights
without it. The store is to have been built with the planes (docs/datasets.md)."""

LIFTED: dict[str, Any] = {"start": {"lift": True}}
TEACHER = {"weights": "low_cost_75", "original": [0, 1]}
TAUGHT: dict[str, Variant] = {
    "from a teacher, by Muon, from a lifted start": ("low_cost_17", {}, LIFTED),
    "without the teacher": ("low_cost_17", {}, LIFTED | {"teacher": None}),
    "from its own start": ("low_cost_17", {}),
    "by AdamW": ("low_cost_17", {}, LIFTED | {"optimiser": "adamw"}),
    "modulations at the full rate": ("low_cost_17", {}, LIFTED | {"modulation_rate": 1.0}),
    "QP as a plane": ("low_cost_17", {"conditioning": "plane"}, LIFTED),
    "Muon at 0.01": ("low_cost_17", {}, LIFTED | {"muon_rate": 0.01}),
    "Muon at 0.04": ("low_cost_17", {}, LIFTED | {"muon_rate": 0.04}),
    "the teacher's pictures to the end": ("low_cost_17", {}, LIFTED | {"teacher": TEACHER | {"original": [0, 0]}}),
    "0.3 of the original at the end": ("low_cost_17", {}, LIFTED | {"teacher": TEACHER | {"original": [0, 0.3]}}),
    "half the original at the end": ("low_cost_17", {}, LIFTED | {"teacher": TEACHER | {"original": [0, 0.5]}}),
    "half the original from the beginning": (
        "low_cost_17",
        {},
        LIFTED | {"teacher": TEACHER | {"original": [0.5, 0.5]}},
    ),
    "a teacher of eight symmetries": ("low_cost_17", {}, LIFTED | {"teacher": TEACHER | {"symmetries": True}}),
    "a worse teacher, low_cost_17": ("low_cost_17", {}, LIFTED | {"teacher": TEACHER | {"weights": "low_cost_17"}}),
    "average over 1,000 steps": ("low_cost_17", {}, LIFTED | {"ema": 0.999}),
    "96x96, of which 48x48 count": ("low_cost_17", {}, LIFTED | {"patch": 96, "border": 24, "batch": 4}),
    "4 patches of 96x96": ("low_cost_17", {}, LIFTED | {"patch": 96, "batch": 4}),
    "patches by error^0.5 and 1/p": ("low_cost_17", {}, LIFTED | {"error_exponent": 0.5, "keep_objective": True}),
}
"""What makes the recipe of tools/bench/learning.py fast: one thing taken away or changed at a time."""

CORRELATED: dict[str, Variant] = {
    "decoded picture alone": ("low_cost_17", {}, LIFTED),
    "+ QP and depth as one plane": ("low_cost_17", {"planes": ["rec_y", "qp", "qp_depth"]}, LIFTED),
    "+ depth of CUs": ("low_cost_17", {"planes": ["rec_y", "qp", "depth"]}, LIFTED),
}
"""What a·QP + b·depth is worth to a training: as a plane beside the picture."""

TABLES = {"designs": DESIGNS, "learning": LEARNING, "planes": PLANES, "taught": TAUGHT, "correlated": CORRELATED}
RECIPE: dict[str, Any] = {
    "steps": 1000,
    "batch": 16,
    "patch": 48,
    "learning_rate": 2e-3,
    "optimiser": "muon",
    "modulation_rate": 0.1,
    "teacher": TEACHER,
    "ema": 0.99,
    "warmup": 100,
    "validate_every": 1000,
    "validation_pictures": 1,
    "threads": 1,
}
# A teacher that does not see the planes cannot show what they are worth: half of the original from the beginning.
HALF_TAUGHT = {"teacher": TEACHER | {"original": [0.5, 1]}}
DEFAULTS: dict[str, dict[str, Any]] = {
    "taught": RECIPE,
    "planes": RECIPE | {"steps": 600, "muon_rate": 0.01, "learning_rate": 1e-3, "validate_every": 600} | HALF_TAUGHT,
    "correlated": RECIPE | HALF_TAUGHT,
}
"""Settings of all variants of a table; those of the command line come before them."""


class Runs:
    """The runs of a table: a folder a variant and seed, trained and measured once.

    What starts from another variant says so by `start: {weights: "@NAME"}`: it gets what that one has learned, from the
    same seed. `tickets` makes such weights where the network is smaller (see tools/lottery.py).
    """

    def __init__(
        self, variants: Mapping[str, Variant], settings: FilterSettings, args: argparse.Namespace, seeds: Sequence[int]
    ) -> None:
        self.variants, self.settings, self.args, self.seeds = variants, settings, args, seeds

    def folder(self, name: str, seed: int) -> Path:
        """Where the run of a variant is."""
        return Path(self.args.output) / ("".join(c if c.isalnum() else "_" for c in name) + f"_{seed}")

    def result(self, name: str, seed: int) -> dict[str, Any]:
        """Train one variant, or go on with it, and measure it; the result is kept in its folder's result.json."""
        folder = self.folder(name, seed)
        result = folder / "result.json"
        if result.is_file():
            return dict(read_json(result))
        network, options, *changes = self.variants[name]
        settings = changed(self.settings, {"seed": seed} | (dict(changes[0]) if changes else {}))
        if settings.start is not None and str(settings.start.weights).startswith("@"):
            weights = self._weights_of(str(settings.start.weights)[1:], seed, folder, options)
            start = settings.start.model_dump() | {"weights": str(weights)}
            settings = changed(settings, {"start": start})
        model = NetworkConfig(name=network, options=options)
        config = FilterConfig(store=str(self.args.store), model=model, training=settings)
        done = train(config, folder, resume=(folder / CHECKPOINT).is_file(), progress=True)
        trained, card = load_model(done.weights)
        device = pick_device(settings.device)
        gain = psnr_gain(trained.to(device), open_store(self.args.test).split(self.args.split), device)
        row = {
            "name": name,
            "kmac_per_pixel": card.kmac_per_pixel,
            "parameters": card.parameters,
            "seconds": card["validation"]["seconds"],
            "gain_db": {str(qp): value for qp, value in gain.items()},
            "gain_mean_db": float(np.mean(list(gain.values()))),
        }
        write_json(result, row)
        return row

    def _weights_of(self, name: str, seed: int, folder: Path, options: dict[str, Any]) -> Path:
        """What a variant has learned; of "ticket of NAME" its network pruned to `options`, at its first weights."""
        ticket = name.startswith(TICKET)
        name = name.removeprefix(TICKET)
        self.result(name, seed)
        learned = self.folder(name, seed) / "last.safetensors"
        if not ticket:
            return learned
        folder.mkdir(parents=True, exist_ok=True)
        write_ticket(learned, options, folder / "ticket.safetensors")
        return folder / "ticket.safetensors"

    def row(self, name: str) -> dict[str, Any]:
        """The mean of a variant's results over the seeds, and the spread (standard deviation) of its mean gain."""
        results = [self.result(name, seed) for seed in self.seeds]
        means = [result["gain_mean_db"] for result in results]
        return results[0] | {
            "seconds": statistics.mean(result["seconds"] for result in results),
            "gain_db": {qp: statistics.mean(r["gain_db"][qp] for r in results) for qp in results[0]["gain_db"]},
            "gain_mean_db": statistics.mean(means),
            "spread_db": statistics.stdev(means) if len(means) > 1 else None,
        }


def changed(settings: FilterSettings, values: dict[str, Any] | None = None) -> FilterSettings:
    """The settings with some values instead."""
    return FilterSettings(**settings.model_dump() | (values or {}))


def table(rows: list[dict[str, Any]], settings: FilterSettings, claims: Mapping[str, str], seeds: Sequence[int]) -> str:
    """The results in Markdown, beside them what others claim, if anything."""
    qps = list(rows[0]["gain_db"])
    told = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean and spread of the seeds {', '.join(map(str, seeds))}"
    lines = [
        f"{settings.steps} steps, batch {settings.batch}, patches {settings.patch}x{settings.patch}, "
        f"learning rate {settings.learning_rate:g}, {told}, where the name says nothing else; "
        "gain in dB on pictures never trained on",
        "",
        f"| network | kMAC/pixel | parameters | {'claimed | ' * bool(claims)}mean "
        f"| {' | '.join(f'QP {qp}' for qp in qps)} |",
        "|---|" + "---:|" * (3 + bool(claims) + len(qps)),
    ]
    for row in rows:
        gains = " | ".join(f"{row['gain_db'][qp]:+.4f}" for qp in qps)
        claim = f"{claims.get(row['name'], '')} | " if claims else ""
        spread = "" if row["spread_db"] is None else f" ± {row['spread_db']:.4f}"
        facts = f"{row['kmac_per_pixel']:.1f} | {row['parameters']:,} | {claim}**{row['gain_mean_db']:+.4f}**{spread}"
        lines.append(f"| {row['name']} | {facts} | {gains} |")
    return "\n".join(lines) + "\n"


def main(
    argv: list[str],
    tables: Mapping[str, Mapping[str, Variant]] = TABLES,
    claims: Mapping[str, str] = MappingProxyType({}),
    description: str | None = __doc__,
    defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType(DEFAULTS),
) -> None:
    """Train and measure the variants of one table, and print it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(tables) > 1:
        parser.add_argument("table", choices=tables)
    parser.set_defaults(table=next(iter(tables)))
    parser.add_argument("--store", type=Path, required=True, help="to train on (split train) and choose on (val)")
    parser.add_argument("--test", type=Path, help="store that the table is about [the same]")
    parser.add_argument("--split", default="test", help="of that store [test]")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs, and of table.md")
    parser.add_argument("--only", help="variants whose name holds this")
    parser.add_argument("--start", help="weights that all start from: a file, or a name of the zoo")
    parser.add_argument("--seeds", type=int, help="so many of them, 1, 2, ... [the one of the settings]")
    parser.add_argument("training", nargs="*", metavar="KEY=VALUE", help="training settings, such as steps=20000")
    args = parser.parse_intermixed_args(argv)
    args.test = args.test or args.store
    start = {"start": {"weights": str(weights_path(args.start))}} if args.start else {}
    settings = FilterSettings(**dict(defaults.get(args.table, {})) | start | parse_overrides(args.training))
    seeds = [settings.seed] if args.seeds is None else range(1, args.seeds + 1)
    runs = Runs(tables[args.table], settings, args, seeds)
    rows = []
    for name in tables[args.table]:
        if args.only is None or args.only in name:
            rows.append(runs.row(name))
            write_text(args.output / "table.md", table(rows, settings, claims, seeds))
    print(table(rows, settings, claims, seeds))


if __name__ == "__main__":
    main(sys.argv[1:])
