"""Train variants of a network that differ in one thing each, and measure their gains on the same pictures.

    python tools/research/ablation.py tools/research/notebook.yaml --store stores/zoo --test stores/zoo_test -o runs/b
    python tools/research/ablation.py tools/research/planes.yaml --store stores/learning --split val --seeds 3 -o runs/p

A table is a YAML file:

    training: {steps: 400, batch: 8}           # training settings of all variants
    claims: {A: "+0.15"}                       # optional: gains that others state, in dB
    variants:
      A: {network: rdn, options: {features: 8}}
      no warm-up: {network: rdn, options: {features: 8}, training: {warmup: 0}}
      A, trained again: {network: rdn, options: {features: 8}, training: {start: {weights: "@A"}}}

Start weights "@NAME" are the last weights of that variant with the same seed. Trained variants are not trained again,
interrupted ones continue from their checkpoint, and table.md is written after each. Gains are measured with the weights
of the best validation on the split "val" of the store, by default on the split "test" of --test. For the split "val"
set validate_every to the number of steps: the only validation then is that of the last step and selects nothing.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.api.config import FilterConfig, NetworkConfig, checked, parse_overrides
from codecnn.base.errors import ConfigError
from codecnn.base.files import read_json, write_json, write_text
from codecnn.dataset import open_store
from codecnn.models import load_model, pick_device, weights_path
from codecnn.training import CHECKPOINT, FilterSettings, Schema, psnr_gains, train


class Variant(Schema):
    """A network, its options, and the training settings in which it differs from those of the table."""

    network: str
    options: dict[str, Any] = Field(default={})
    training: dict[str, Any] = Field(default={})


class Table(Schema):
    """Variants by name, training settings of all of them, and gains in dB that others state."""

    training: dict[str, Any] = Field(default={})
    claims: dict[str, str] = Field(default={})
    variants: dict[str, Variant]


def read_table(path: Path) -> Table:
    """Read a table; ConfigError for unknown keys and for start weights of a variant that does not exist."""
    table = checked(Table, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))
    for name, variant in table.variants.items():
        base = _base(variant.training)
        if base is not None and base not in table.variants:
            raise ConfigError(f"{path}: {name!r} starts from {base!r}, which is not one of the variants")
    return table


def _base(training: dict[str, Any]) -> str | None:
    """Return the name of the variant whose weights a variant starts from, or None."""
    weights = str((training.get("start") or {}).get("weights", ""))
    return weights[1:] if weights.startswith("@") else None


class Runs:
    """The runs of a table: a folder for each variant and seed, trained and measured once."""

    def __init__(
        self, table: Table, settings: FilterSettings, options: argparse.Namespace, seeds: Sequence[int]
    ) -> None:
        """Create the runs.

        Args:
            table: The table.
            settings: Settings of all variants.
            options: Options of the command line: `store`, `test`, `split`, `output`.
            seeds: Seeds of every variant.
        """
        self.table, self.settings, self.options, self.seeds = table, settings, options, seeds

    def folder(self, name: str, seed: int) -> Path:
        """Return the folder of a run."""
        return Path(self.options.output) / ("".join(c if c.isalnum() else "_" for c in name) + f"_{seed}")

    def result(self, name: str, seed: int) -> dict[str, Any]:
        """Train a variant, or continue its run, and measure it; the result is kept in result.json of its folder."""
        folder = self.folder(name, seed)
        file = folder / "result.json"
        if file.is_file():
            return dict(read_json(file))
        variant = self.table.variants[name]
        training = {"seed": seed} | variant.training
        base = _base(training)
        if base is not None:
            self.result(base, seed)
            weights = self.folder(base, seed) / "last.safetensors"
            training["start"] = training["start"] | {"weights": str(weights)}
        settings = replaced(self.settings, training)
        model = NetworkConfig(name=variant.network, options=variant.options)
        config = FilterConfig(store=str(self.options.store), model=model, training=settings)
        trained = train(config, folder, resume=(folder / CHECKPOINT).is_file(), progress=True)
        network, card = load_model(trained.weights)
        device = pick_device(settings.device)
        units = open_store(self.options.test).split(self.options.split)
        gain = psnr_gains(network.to(device), units, device)["y"]
        result = {
            "name": name,
            "kmac_per_pixel": card.kmac_per_pixel,
            "parameters": card.parameters,
            "seconds": card["validation"]["seconds"],
            "gain_db": {str(qp): value for qp, value in gain.items()},
            "gain_mean_db": float(np.mean(list(gain.values()))),
        }
        write_json(file, result)
        return result

    def row(self, name: str) -> dict[str, Any]:
        """Return the mean of a variant's results over the seeds, and the standard deviation of its mean gain."""
        results = [self.result(name, seed) for seed in self.seeds]
        means = [result["gain_mean_db"] for result in results]
        return results[0] | {
            "seconds": statistics.mean(result["seconds"] for result in results),
            "gain_db": {qp: statistics.mean(r["gain_db"][qp] for r in results) for qp in results[0]["gain_db"]},
            "gain_mean_db": statistics.mean(means),
            "spread_db": statistics.stdev(means) if len(means) > 1 else None,
        }


def replaced(settings: FilterSettings, values: dict[str, Any]) -> FilterSettings:
    """Return the settings with some values replaced."""
    return FilterSettings(**settings.model_dump() | values)


def format_table(
    rows: list[dict[str, Any]], settings: FilterSettings, claims: dict[str, str], seeds: Sequence[int]
) -> str:
    """Format the results in Markdown, with the claims if there are any."""
    qps = list(rows[0]["gain_db"])
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean and standard deviation of seeds {_listed(seeds)}"
    lines = [
        f"{settings.steps} steps, batch {settings.batch}, patches {settings.patch}x{settings.patch}, "
        f"learning rate {settings.learning_rate:g}, {which}, unless the name states otherwise; "
        "gain in dB on pictures not used in training",
        "",
        f"| network | kMAC/pixel | parameters | {'claimed | ' * bool(claims)}mean "
        f"| {' | '.join(f'QP {qp}' for qp in qps)} |",
        "|---|" + "---:|" * (3 + bool(claims) + len(qps)),
    ]
    for row in rows:
        gains = " | ".join(f"{row['gain_db'][qp]:+.4f}" for qp in qps)
        claim = f"{claims.get(row['name'], '')} | " if claims else ""
        spread = "" if row["spread_db"] is None else f" ± {row['spread_db']:.4f}"
        figures = f"{row['kmac_per_pixel']:.1f} | {row['parameters']:,} | {claim}**{row['gain_mean_db']:+.4f}**{spread}"
        lines.append(f"| {row['name']} | {figures} | {gains} |")
    return "\n".join(lines) + "\n"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def main(argv: list[str]) -> None:
    """Train and measure the variants of a table, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="YAML file of the variants")
    parser.add_argument("--store", type=Path, required=True, help="store to train (split train) and validate (val) on")
    parser.add_argument("--test", type=Path, help="store to measure the gains on [the same store]")
    parser.add_argument("--split", default="test", help="split of that store [test]")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs and of table.md")
    parser.add_argument("--only", help="train only variants whose name contains this text")
    parser.add_argument("--start", help="start weights of all variants: a file, or a name of the zoo")
    parser.add_argument("--seeds", type=int, help="number of seeds, 1, 2, ... [the seed of the settings]")
    parser.add_argument("training", nargs="*", metavar="KEY=VALUE", help="training settings, e.g. steps=20000")
    options = parser.parse_intermixed_args(argv)
    options.test = options.test or options.store
    table = read_table(options.table)
    names = [name for name in table.variants if options.only is None or options.only in name]
    if not names:
        parser.error(f"no variant of {options.table} contains {options.only!r}: {', '.join(table.variants)}")
    start = {"start": {"weights": str(weights_path(options.start))}} if options.start else {}
    settings = FilterSettings(**table.training | start | parse_overrides(options.training))
    seeds = [settings.seed] if options.seeds is None else range(1, options.seeds + 1)
    runs = Runs(table, settings, options, seeds)
    rows = []
    for name in names:
        rows.append(runs.row(name))
        write_text(options.output / "table.md", format_table(rows, settings, table.claims, seeds))
    print(format_table(rows, settings, table.claims, seeds))


if __name__ == "__main__":
    main(sys.argv[1:])
