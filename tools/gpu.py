"""Measure codecnn on the GPU of this machine: the tests marked gpu, and its speed against plain PyTorch.

    python tools/gpu.py -o gpu.json
    python tools/gpu.py -o gpu.json --device cpu --small     # the same path in seconds, to try the script

The script runs `pytest -m gpu`, then times training steps and the filtering of a 1920x1080 picture by turns with plain
PyTorch: the same module with the same weights, uncompiled, on the same device and in the same precision. It writes all
figures as JSON and prints them as a Markdown table, which goes into the section "On a GPU" of
docs/reference/benchmark.md. The exit status is 1 if a test failed.

Training: a plain step is forward pass, mean squared error, backward pass and Adam on one batch that stays on the
device. A step of codecnn is that of `codecnn train`, which also cuts the next batch from the pictures in the memory of
the device, weights the loss, clips the gradient and averages the weights. CUDA events measure each step without waiting
for the device between steps. Filtering: both ways take a picture from the memory of the host and return the filtered
picture to it, which waits for the device. The results in float32 must agree to one sample step. Convolutions in float32
do not use TF32. Every way runs untimed first; a figure is the median of a turn, and a ratio the median over turns.
"""

import argparse
import contextlib
import datetime
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.base.division import ceil_div
from codecnn.base.files import read_jsonl, write_json
from codecnn.base.planes import QP_SCALE
from codecnn.base.runtime import applied, current_device, float32_products
from codecnn.cli.doctor import nvidia_driver
from codecnn.dataset import Unit
from codecnn.filtering import load_filter
from codecnn.models import FilterNetwork, create_model, load_model
from codecnn.pictures.files import Picture
from codecnn.training import LOG, FilterSettings, Trainer, training_runtime
from codecnn.training.distributed import process_group
from codecnn.training.filter import FilterTask
from tools.bench._common import QP, Row, markdown_table, row
from tools.bench._report import machine, versions
from tools.bench.training import bench_units

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = ("low_cost_17", "rdn_64_4_6_24_shuffle")
"""Networks of the measurements; both have shipped weights and the planes rec_y and qp."""
PRECISIONS = ("float32", "bfloat16")
PACKAGES = "torch numpy numba"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        size: Width and height of the filtered picture.
        patch: Width and height of training patches.
        batch: Patches per step.
        warm_up: Untimed calls of each way.
        steps: Training steps of a turn.
        pictures: Filtered pictures of a turn.
        turns: Turns of each way.
        compiled: Whether training is also measured with torch.compile.
    """

    size: tuple[int, int]
    patch: int
    batch: int
    warm_up: int
    steps: int
    pictures: int
    turns: int
    compiled: bool


FULL = Sizes((1920, 1080), patch=128, batch=16, warm_up=20, steps=50, pictures=10, turns=3, compiled=True)
SMALL = Sizes((64, 48), patch=32, batch=2, warm_up=1, steps=2, pictures=2, turns=2, compiled=False)
"""Sizes of --small: without torch.compile, which takes a minute, and too small for the figures to mean anything."""


def main(argv: Sequence[str]) -> int:
    """Run tests and measurements; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="file of the figures, .json")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu [cuda]")
    parser.add_argument("--small", action="store_true", help="sizes that only show that everything runs")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU: `codecnn doctor` says why; --device cpu --small tries the script without one")
    sizes = SMALL if options.small else FULL
    result: dict[str, Any] = {"date": datetime.date.today().isoformat(), "small": options.small}
    result |= {"device": describe_device(device), "versions": versions(PACKAGES)}
    # The tests marked gpu cannot run on a CPU.
    result["tests"] = run_tests(gpu_test_files()) if device.type == "cuda" else None
    result["rows"] = []
    write_json(options.output, result)
    with current_device(device), float32_products(), tempfile.TemporaryDirectory() as folder:
        units = bench_units(Path(folder))
        for network in NETWORKS:
            result["rows"] += training_rows(network, units, device, sizes)
            write_json(options.output, result)  # the figures so far survive a later failure
            result["rows"] += filtering_rows(network, device, sizes)
            write_json(options.output, result)
    print(format_report(result))
    return int(result["tests"] is not None and result["tests"]["status"] != 0)


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return name, memory and driver of the device, and the versions of CUDA and cuDNN that torch uses."""
    if device.type == "cpu":
        return {"type": "cpu", "name": machine()["cpu"]}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": nvidia_driver(),
    }


def gpu_test_files() -> list[Path]:
    """Return the test files that contain tests marked gpu; collecting all others would take longer than these tests."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8"))


def run_tests(files: Sequence[Path]) -> dict[str, Any]:
    """Run the tests marked gpu in some files.

    Warnings are not errors, since other versions of packages than those that codecnn is tested with may be installed.

    Args:
        files: The test files.

    Returns:
        The exit "status" of pytest, the number of "passed" and "skipped" tests, and the names of "failed" tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
        command += ["-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}", *map(str, files)]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "status": status,
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
    }


def training_rows(network: str, units: list[Unit], device: torch.device, sizes: Sizes) -> list[Row]:
    """Compare the training steps of a network in all precisions, uncompiled and compiled."""
    rows = []
    for precision in PRECISIONS:
        for compiled in (False, True) if sizes.compiled else (False,):
            with contextlib.ExitStack() as stack:
                codecnn = stack.enter_context(codecnn_step(network, units, device, sizes, precision, compiled))
                plain = plain_step(network, units, device, sizes, precision)
                times, plain_times = time_in_turns((codecnn, plain), device, sizes.warm_up, sizes.steps, sizes.turns)
            form = f"{precision}{', compiled' if compiled else ''}"
            what = f"training `{network}`, {sizes.batch} patches of {sizes.patch}x{sizes.patch}, {form}: a step"
            rows.append(row(what, "ms", times, f"plain PyTorch, {precision}", plain_times))
            print(f"{what}: {rows[-1]['ours']:.3g} ms, plain {rows[-1]['theirs']:.3g} ms", flush=True)
    return rows


@contextlib.contextmanager
def codecnn_step(
    network: str, units: list[Unit], device: torch.device, sizes: Sizes, precision: str, compiled: bool
) -> Iterator[Callable[[], None]]:
    """Set up the training loop of codecnn, and yield a function that takes one step.

    Raises:
        SystemExit: The network could not be compiled.
    """
    with codecnn_trainer(network, units, device, sizes, precision, compiled) as trainer:
        yield lambda: trainer.step(next(trainer.batches))


@contextlib.contextmanager
def codecnn_trainer(
    network: str, units: list[Unit], device: torch.device, sizes: Sizes, precision: str, compiled: bool
) -> Iterator[Trainer]:
    """Set up the training loop of codecnn, and yield it before its first step.

    Raises:
        SystemExit: The network could not be compiled.
    """
    settings = FilterSettings(
        steps=10**6,
        batch=sizes.batch,
        patch=sizes.patch,
        device=str(device),
        precision=precision,
        compile=compiled,
        resident=device.type == "cuda",
    )
    with process_group(settings.device) as process, tempfile.TemporaryDirectory() as run:
        torch.manual_seed(settings.seed)
        runtime = training_runtime(settings, process.device)
        with applied(runtime):
            model = create_model(network)
            task = FilterTask(model, network, {}, settings, [(units, 1.0)], units[:1], "benchmark", None)
            trainer = Trainer(task, settings, Path(run), process, runtime, resume=False, progress=False)
            try:
                failures = [
                    record["text"]
                    for record in read_jsonl(Path(run) / LOG)
                    if record["event"] == "note" and "failed" in record["text"]
                ]
                if failures:
                    raise SystemExit(f"{network} in {precision}: {failures[0]}")
                yield trainer
            finally:
                if trainer.board is not None:
                    trainer.board.close()


def plain_step(
    network: str, units: list[Unit], device: torch.device, sizes: Sizes, precision: str
) -> Callable[[], None]:
    """Return a function that takes one plain PyTorch step with the same initial weights on a fixed batch."""
    settings = FilterSettings(batch=sizes.batch, patch=sizes.patch)
    torch.manual_seed(settings.seed)
    model = create_model(network).to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    task = FilterTask(model, network, {}, settings, [(units, 1.0)], units[:1], "benchmark", None)
    batch = next(task.batches(range(1), 0, 1, device))
    planes = {name: batch[name] for name in model.planes}

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            filtered = model(planes)
        F.mse_loss(filtered.float(), batch["orig_y"]).backward()
        optimiser.step()

    return step


def filtering_rows(network: str, device: torch.device, sizes: Sizes) -> list[Row]:
    """Compare the filtering of a picture with the shipped weights of a network in all precisions.

    Raises:
        SystemExit: The results in float32 differ by more than one sample step.
    """
    width, height = sizes.size
    picture = photo_picture(width, height)
    model, _ = load_model(network)
    model = model.eval().to(device)
    rows = []
    for precision in PRECISIONS:
        filter_ = load_filter(network, precision=precision, device=device)
        expected = plain_filter(model, picture, device, precision)
        difference = int(np.abs(filter_(picture, QP).y.astype(np.int32) - expected).max())
        if precision == "float32" and difference > 1:
            raise SystemExit(f"{network}: codecnn and plain PyTorch differ by {difference} sample steps")

        def codecnn(filter_: Callable[[Picture, int], Picture] = filter_) -> None:
            filter_(picture, QP)

        def plain(precision: str = precision) -> None:
            plain_filter(model, picture, device, precision)

        times, plain_times = time_in_turns((codecnn, plain), device, sizes.warm_up, sizes.pictures, sizes.turns)
        what = f"filtering {width}x{height}, `{network}`, {precision}: a picture"
        rows.append(row(what, "ms", times, f"plain PyTorch, {precision}", plain_times))
        rows[-1]["largest_difference"] = difference
        print(f"{what}: {rows[-1]['ours']:.3g} ms, plain {rows[-1]['theirs']:.3g} ms", flush=True)
    return rows


@torch.inference_mode()
def plain_filter(model: FilterNetwork, picture: Picture, device: torch.device, precision: str) -> np.ndarray:
    """Filter the luma of a picture in one piece with the uncompiled module; return integer samples (h, w)."""
    height, width = picture.y.shape
    scale, halo, stride = 2.0**picture.bit_depth, model.halo, model.stride
    y = torch.from_numpy(picture.y.astype(np.float32)).to(device)[None, None] / scale
    y = F.pad(y, (halo, halo + -width % stride, halo, halo + -height % stride), mode="replicate")
    qp = torch.full((1, 1, 1, 1), QP / QP_SCALE, device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        filtered = model({"rec_y": y, "qp": qp})
    samples = (filtered[0, 0, :height, :width].float() * scale).round().clamp(0, scale - 1)
    return samples.to(torch.int32).cpu().numpy()


def photo_picture(width: int, height: int) -> Picture:
    """Return a grey 10-bit photograph, repeated to the size."""
    photo = skimage.data.coffee().mean(axis=2)
    tiled = np.tile(photo, (ceil_div(height, photo.shape[0]), ceil_div(width, photo.shape[1])))[:height, :width]
    return Picture((np.rint(4 * tiled).astype(np.uint16),), 10)


def time_in_turns(
    calls: Sequence[Callable[[], None]], device: torch.device, warm_up: int, repeats: int, turns: int
) -> list[list[float]]:
    """Time calls by turns.

    Args:
        calls: The calls.
        device: Device on which they compute.
        warm_up: Untimed repetitions of each call at the beginning.
        repeats: Repetitions of a turn.
        turns: Number of turns.

    Returns:
        For each call the median time of a repetition in every turn, in milliseconds.
    """
    for call in calls:
        _times(call, device, warm_up)
    return [
        list(medians)
        for medians in zip(
            *([statistics.median(_times(call, device, repeats)) for call in calls] for _ in range(turns)), strict=True
        )
    ]


def _times(call: Callable[[], None], device: torch.device, repeats: int) -> list[float]:
    """Return the milliseconds of each repetition: between CUDA events on a GPU, wall time on a CPU."""
    if device.type == "cpu":
        marks = [time.perf_counter()]
        for _ in range(repeats):
            call()
            marks.append(time.perf_counter())
        return [1000 * (after - before) for before, after in pairwise(marks)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize(device)
    stream = torch.cuda.current_stream(device)
    events[0].record(stream)
    for event in events[1:]:
        call()
        event.record(stream)
    torch.cuda.synchronize(device)
    return [before.elapsed_time(after) for before, after in pairwise(events)]


def format_report(result: Mapping[str, Any]) -> str:
    """Format the result as Markdown: a line on device and versions, a line on the tests, and the table."""
    device = result["device"]
    facts = [device["name"]]
    if device["type"] == "cuda":
        facts += [f"{device['memory_gib']} GiB", f"CUDA {device['cuda']}, cuDNN {device['cudnn']}"]
        facts.append(f"driver {device['driver']}")
    facts += [f"{name} {version}" for name, version in result["versions"].items()]
    tests = result["tests"]
    if tests is None:
        outcome = "The tests marked gpu need a GPU and did not run."
    else:
        outcome = f"Tests marked gpu: {tests['passed']} passed, {tests['skipped']} skipped"
        outcome += f", {len(tests['failed'])} failed ({', '.join(tests['failed'])})." if tests["failed"] else "."
        if tests["status"] and not tests["failed"]:
            outcome += f" pytest ended with status {tests['status']}."
    warning = ["**Sizes of --small: the figures mean nothing.**", ""] if result["small"] else []
    lines = [", ".join(facts) + f"; {result['date']}.", "", outcome, "", *warning, *markdown_table(result["rows"])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
