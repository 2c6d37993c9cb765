"""What processor time buys: gain on validation pictures against CPU minutes, a plain recipe and the one that ships.

    python tools/benchmark.py learning --store stores/learning -o runs/learning --figure learning.png

Each network learns with each recipe from several seeds, one thread, eagerly, on the same store; what is counted is the
processor time of the training alone (validation, the teacher's pictures and compiling are not in it, and what else the
machine does hardly matters). Runs that are done are not done again, one that was interrupted goes on from its
checkpoint. The table says when each recipe first reaches the plain one's last gain, mean and spread over the seeds.
"""

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from codecnn.config import FilterConfig, NetworkConfig
from codecnn.runs import append_jsonl, read_jsonl
from codecnn.training import CHECKPOINT, FilterSettings, Task, train
from codecnn.training.task import ValidationResult

CURVE = "curve.jsonl"
COLOURS = {"plain": "C0", "taught": "C1"}

PLAIN = {"learning_rate": 2e-3, "ema": 0.999, "warmup": 200}
"""What the weights were trained with that shipped until November 2026."""

SMALL_PATCHES = {"batch": 8, "patch": 48, "validation_pictures": 6}
"""Of dense networks, whose steps and validations take long: half the samples a step, six pictures of the validation."""
TAUGHT: dict[str, Any] = {
    "batch": 16,
    "patch": 48,
    "learning_rate": 2e-3,
    "optimiser": "muon",
    "muon_rate": 0.02,
    "modulation_rate": 0.1,
    "ema": 0.99,
    "warmup": 100,
}

TEACHER = {"weights": "low_cost_75", "original": [0, 1]}


@dataclass(frozen=True)
class Recipe:
    """Settings of a training, how many steps it takes, and after how many it is validated.

    With `first` an RDN of its `options` learns before, by its own recipe, and the network starts as that one, grown and
    lifted; the time of both counts.
    """

    settings: dict[str, Any]
    steps: int
    every: int
    options: dict[str, Any] = field(default_factory=dict)
    first: "Recipe | None" = None


RECIPES: dict[str, dict[str, Recipe]] = {
    "low_cost_17": {
        "plain": Recipe(PLAIN | {"batch": 4, "patch": 96}, 8_000, 1_000),
        "taught": Recipe(TAUGHT | {"teacher": TEACHER, "start": {"lift": True}}, 1_000, 200),
    },
    "rdn_32_3_6_16": {
        "plain": Recipe(PLAIN | SMALL_PATCHES, 900, 450),
        "taught": Recipe(TAUGHT | SMALL_PATCHES | {"teacher": TEACHER}, 400, 100),
    },
    "rdn_64_4_6_24_shuffle": {
        "plain": Recipe(PLAIN | SMALL_PATCHES, 900, 450),
        "taught": Recipe(
            TAUGHT | SMALL_PATCHES | {"teacher": TEACHER, "start": {"lift": True, "grow": True}, "muon_rate": 0.005},
            1_600,
            400,
            first=Recipe(
                TAUGHT | SMALL_PATCHES | {"teacher": TEACHER},
                600,
                200,
                {"features": 8, "blocks": 3, "layers": 6, "growth": 4},
            ),
        ),
    },
}
"""By network: a recipe without a teacher, and the one that is to learn faster."""


class Timed:
    """A task whose validations note the processor time that training has taken so far, in seconds, and the gain."""

    def __init__(self, task: Task, run: Path) -> None:
        self._task, self._run = task, run
        self._spent = read_jsonl(run / CURVE)[-1]["seconds"] if (run / CURVE).exists() else 0.0
        self._since = _processor_seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """The task's own, outside of the time that counts."""
        self._spent += _processor_seconds() - self._since
        result = self._task.validate(model, device)
        append_jsonl(self._run / CURVE, {"seconds": self._spent, "gain_db": result.score})
        self._since = _processor_seconds()
        return result


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system


@dataclass(frozen=True)
class TimedConfig:
    """A filter's configuration that trains a `Timed` task."""

    config: FilterConfig
    run: Path

    @property
    def training(self) -> FilterSettings:
        """The settings of the configuration."""
        return self.config.training

    def make_task(self, *, resume: bool = False) -> Task:
        """The configuration's task, timed."""
        return Timed(self.config.make_task(resume=resume), self.run)  # type: ignore[return-value]


def learn(network: str, recipe: Recipe, seed: int, store: str, run: Path) -> list[dict[str, float]]:
    """The curve of one training: seconds of processor time and gain in dB, by validation."""
    settings, before = recipe.settings, []
    if recipe.first is not None:
        first = run.with_name(f"{run.name}_first")
        before = learn("rdn", recipe.first, seed, store, first)
        settings = settings | {"start": settings["start"] | {"weights": str(first / "last.safetensors")}}
    if not (run / CURVE).exists() or len(read_jsonl(run / CURVE)) < -(-recipe.steps // recipe.every):
        chosen = FilterSettings(
            **settings,
            steps=recipe.steps,
            seed=seed,
            threads=1,
            validate_every=recipe.every,
            checkpoint_every=recipe.every,
        )
        model = NetworkConfig(name=network, options=recipe.options)
        config = FilterConfig(store=store, model=model, training=chosen)
        train(TimedConfig(config, run), run, resume=(run / CHECKPOINT).exists(), progress=True)
    passed = before[-1]["seconds"] if before else 0.0
    return before + [row | {"seconds": row["seconds"] + passed} for row in read_jsonl(run / CURVE)]


def minutes_to(curve: Sequence[dict[str, float]], gain: float) -> float:
    """Processor minutes until a curve first has a gain, linear between validations and from 0 dB; inf where never."""
    seconds = [0.0, *(row["seconds"] for row in curve)]
    gains = np.maximum.accumulate([0.0, *(row["gain_db"] for row in curve)])
    if gains[-1] < gain:
        return float("inf")
    above = int(np.argmax(gains >= gain))
    share = (gain - gains[above - 1]) / (gains[above] - gains[above - 1]) if above else 0.0
    return float(seconds[above - 1] + share * (seconds[above] - seconds[above - 1])) / 60 if above else 0.0


def main(argv: list[str]) -> list[dict[str, Any]]:
    """Train, print the table and return its rows."""
    parser = argparse.ArgumentParser(
        prog="benchmark.py learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(RECIPES), help=f"of {', '.join(RECIPES)} [all]")
    parser.add_argument("--store", required=True, help="to train on (split train) and measure on (val)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="the curves as a picture")
    args = parser.parse_args(argv)
    rows = []
    for network in args.networks:
        curves: dict[str, list[list[dict[str, float]]]] = {}
        for seed in range(1, args.seeds + 1):
            for name, recipe in RECIPES[network].items():
                run = args.output / f"{network}_{name}_{seed}"
                curves.setdefault(name, []).append(learn(network, recipe, seed, args.store, run))
                rows = [row for row in rows if row["network"] != network] + _rows(network, curves)
    for row in rows:
        print("{network:22} {recipe:7} {gain_db:+.4f} ± {spread_db:.4f} dB in {minutes:.1f} min".format(**row), end="")
        print(f"; the plain one's last gain after {row['minutes_to_plain']:.1f} min, {row['ratio']:.1f}x less")
    if args.figure is not None:
        draw(rows, args.figure)
    return rows


def draw(rows: Sequence[dict[str, Any]], output: Path) -> None:
    """The curves of all seeds, a plot a network and a colour a recipe."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = Figure(figsize=(3.6 * len(networks), 3.2), dpi=130, layout="constrained")
    for axes, network in zip(figure.subplots(1, len(networks), squeeze=False)[0], networks, strict=True):
        for row in (row for row in rows if row["network"] == network):
            for curve in row["curves"]:
                minutes = [0.0, *(point["seconds"] / 60 for point in curve)]
                gains = [0.0, *(point["gain_db"] for point in curve)]
                label = row["recipe"] if curve is row["curves"][0] else None
                axes.plot(minutes, gains, ".-", color=COLOURS[row["recipe"]], label=label, linewidth=1)
        axes.axhline(0, color="0.3", linewidth=0.8)
        axes.set(title=network, xlabel="processor minutes, one thread", ylabel="PSNR Y gain, dB")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(output)


def _rows(network: str, curves: dict[str, list[list[dict[str, float]]]]) -> list[dict[str, Any]]:
    """A row a recipe: last gain (mean and spread of the seeds), processor minutes, and when it has the plain one's."""
    plain = [curve[-1]["gain_db"] for curve in curves["plain"]]
    rows = []
    for name, seeds in curves.items():
        last = [curve[-1]["gain_db"] for curve in seeds]
        reached = [minutes_to(curve, gain) for curve, gain in zip(seeds, plain, strict=False)]
        ratios = [
            own[-1]["seconds"] / 60 / minutes if minutes else float("nan")
            for own, minutes in zip(curves["plain"], reached, strict=False)
        ]
        rows.append(
            {
                "network": network,
                "recipe": name,
                "gain_db": statistics.mean(last),
                "spread_db": statistics.stdev(last) if len(last) > 1 else 0.0,
                "minutes": statistics.mean(curve[-1]["seconds"] for curve in seeds) / 60,
                "minutes_to_plain": statistics.mean(reached),
                "ratio": statistics.mean(ratios),
                "curves": seeds,
            }
        )
    return rows
