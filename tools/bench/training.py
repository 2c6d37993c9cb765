"""Training steps per second: codecnn's loop against the same network in a plain PyTorch loop as people write it.

    python tools/benchmark.py training                              on the CPU, a small network
    python tools/benchmark.py training --device cuda --network rdn_32_4_6_24 --patch 128 --batch 16

The plain loop reads pairs of 8-bit PNG crops, written beforehand, through a DataLoader, and trains in NCHW and float32
with Adam and the mean squared error. codecnn runs `train` with averaged weights, gradient clipping, its schedule and
10-bit pictures; on CUDA in bfloat16, compiled, with the pictures in the memory of the device. Both ways run by turns,
each turn in its own process, of which the first half of the steps warms up. TFLOP/s count six operations per
multiply-accumulate: two in the forward pass and four in the backward pass.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from codecnn.base.files import read_jsonl, write_jsonl
from codecnn.base.planes import QP_SCALE
from codecnn.dataset import TrainingBatches, Unit
from codecnn.models import complexity, create_model
from codecnn.training import LOG, METRICS, FilterSettings, train_task
from codecnn.training.filter import FilterTask
from tools.bench._common import Row, make_parser, row
from tools.bench.reads import make_units

WAYS = ("plain", "codecnn")
CROPS = 256
"""Pairs of crops on the disk; they stay in the page cache, as the pictures of codecnn do."""


class PngCrops(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Data of the peer: pairs of PNG files, flipped at random, as tensors (1, s, s) in [0, 1], and the QP."""

    def __init__(self, folder: Path) -> None:
        self.names = sorted(folder.glob("*_rec.png"))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        name = self.names[index]
        rec = np.asarray(Image.open(name))
        orig = np.asarray(Image.open(name.with_name(name.name.replace("_rec", "_orig"))))
        if torch.rand(()) < 0.5:
            rec, orig = rec[:, ::-1], orig[:, ::-1]
        planes = (torch.from_numpy(plane.copy()).float().unsqueeze(0) / 255 for plane in (rec, orig))
        return (*planes, torch.full((1, 1, 1), 32 / QP_SCALE))


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the row."""
    parser = make_parser("training", __doc__)
    parser.add_argument("--network", default="quarter_light", help="network with planes rec_y and qp [quarter_light]")
    parser.add_argument("--patch", type=int, default=96, help="size of the target patches [96]")
    parser.add_argument("--batch", type=int, default=8, help="patches per step [8]")
    parser.add_argument("--steps", type=int, default=80, help="steps of a turn, of which half warm up [80]")
    parser.add_argument("--turns", type=int, default=3, help="turns of each way [3]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads [all]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda [cpu]")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="of codecnn [bfloat16 on CUDA]")
    parser.add_argument("--eager", action="store_true", help="codecnn without torch.compile on CUDA")
    parser.add_argument("--workers", type=int, default=0, help="processes that cut patches for codecnn [0]")
    parser.add_argument("--plain-workers", type=int, default=2, help="processes that read PNG for the plain loop [2]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only:
        torch.set_num_threads(options.threads)
        torch.manual_seed(0)
        print(json.dumps({"plain": run_plain, "codecnn": run_codecnn}[options.only](options, options.folder)))
        return []
    results = measure(options, argv)
    _report(results, options)
    plain, ours = ([turn["steps_per_second"] for turn in results[way]] for way in WAYS)
    patches = f"{options.batch} patches of {options.patch}x{options.patch}"
    what = f"training `{options.network}` on {patches}, {options.device}, {options.threads} threads"
    return [row(what, "steps/s", ours, "plain PyTorch loop over PNG crops", plain)]


def measure(options: argparse.Namespace, argv: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Measure both ways by turns, each in a process with the arguments `argv`; return the figures by way."""
    results: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "png").mkdir()
        write_crops(bench_units(Path(folder)), Path(folder) / "png", create_model(options.network).halo, options.patch)
        for _ in range(options.turns):
            for way in WAYS:
                command = [sys.executable, str(Path(__file__).parents[1] / "benchmark.py"), "training", *argv]
                done = subprocess.run(
                    [*command, "--only", way, "--folder", folder], check=True, stdout=subprocess.PIPE, text=True
                )
                results[way].append(json.loads(done.stdout.splitlines()[-1]))
    return results


def run_plain(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the plain loop; return its steps per second and the share of time in which it waited for data."""
    device = torch.device(options.device)
    model = create_model(options.network).to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = DataLoader(
        PngCrops(folder / "png"),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.plain_workers,
        drop_last=True,
        pin_memory=device.type == "cuda",
        persistent_workers=options.plain_workers > 0,
    )
    running, waited, started, mark = 0.0, 0.0, 0.0, time.perf_counter()
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (rec, orig, qp) in enumerate(itertools.islice(epochs, options.steps), 1):
        waited += time.perf_counter() - mark
        optimiser.zero_grad()
        filtered = model({"rec_y": rec.to(device), "qp": qp.to(device)})
        loss = F.mse_loss(filtered, orig.to(device))
        loss.backward()
        optimiser.step()
        running += loss.item()
        mark = time.perf_counter()
        if step == options.steps // 2:
            started, waited = mark, 0.0
    seconds = mark - started
    return {"steps_per_second": (options.steps - options.steps // 2) / seconds, "data_wait": waited / seconds}


def run_codecnn(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run `train_task`; return its steps per second, the share of time in which it waited for data, and its notes."""
    cuda = options.device.startswith("cuda")
    settings = FilterSettings(
        steps=options.steps,
        batch=options.batch,
        patch=options.patch,
        validate_every=options.steps // 2,
        checkpoint_every=options.steps,
        device=options.device,
        threads=options.threads,
        precision=options.precision or ("bfloat16" if cuda else "float32"),
        compile=cuda and not options.eager,
        resident=cuda,
        workers=options.workers,
    )
    units = bench_units(folder)

    def make_task() -> FilterTask:
        model = create_model(options.network)
        return FilterTask(model, options.network, {}, settings, [(units, 1.0)], units[:1], "benchmark", None)

    with tempfile.TemporaryDirectory() as run:
        train_task(make_task, settings, Path(run))
        metrics = read_jsonl(Path(run) / METRICS)[-1]
        notes = [record["text"] for record in read_jsonl(Path(run) / LOG) if record["event"] == "note"]
    return {
        "steps_per_second": metrics["patches_per_second"] / options.batch,
        "data_wait": metrics["data_wait"],
        "notes": notes,
        "gpu_memory_mib": metrics.get("gpu_memory_mib"),
    }


def bench_units(folder: Path) -> list[Unit]:
    """Return two units of 10-bit 1920x1080 pictures, which the first call writes."""
    records = folder / "units.jsonl"
    if not records.exists():
        write_jsonl(records, [unit.to_json() for unit in make_units(folder, pictures=2, bit_depth=10)])
    return [Unit.from_json(records, record, folder=folder) for record in read_jsonl(records)]


def write_crops(units: list[Unit], folder: Path, halo: int, patch: int) -> None:
    """Write pairs of crops of the units' pictures as PNG, rounded to 8 bits."""
    data = TrainingBatches(units, batch=CROPS, steps=1, size=patch, halo=halo)[0]
    for index in range(CROPS):
        for name in ("rec", "orig"):
            samples = (data[f"{name}_y"][index, 0] * 256).clamp(0, 255).byte().numpy()
            Image.fromarray(samples).save(folder / f"{index:04}_{name}.png")


def _report(results: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> None:
    """Print the medians of both ways and their ratio."""
    cost = complexity(create_model(options.network)).kmac_per_pixel
    ratios = [b["steps_per_second"] / a["steps_per_second"] for a, b in zip(*results.values(), strict=True)]
    ways = {
        way: {name: float(np.median([turn[name] for turn in turns])) for name in ("steps_per_second", "data_wait")}
        for way, turns in results.items()
    }
    for figures in ways.values():
        operations = figures["steps_per_second"] * cost * 1000 * 6 * options.patch**2 * options.batch
        figures["tflops"] = operations / 1e12
    if options.json:
        print(json.dumps({"ways": ways, "ratio": float(np.median(ratios)), "turns": results}, indent=2))
        return
    print(
        f"{options.network}, {cost:.1f} kMAC/pixel, {options.batch} patches of {options.patch}x{options.patch}, "
        f"{options.device}, {options.threads} threads, load {os.getloadavg()[0]:.1f}; medians of {options.turns} turns"
    )
    print(f"{'':8} {'steps/s':>9} {'TFLOP/s':>9} {'waiting':>8}")
    for way, figures in ways.items():
        print(f"{way:8} {figures['steps_per_second']:9.2f} {figures['tflops']:9.3f} {figures['data_wait']:8.1%}")
    print(f"codecnn is {np.median(ratios):.2f} times as fast (turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)})")
    for note in dict.fromkeys(note for turn in results["codecnn"] for note in turn["notes"]):
        print(note)
