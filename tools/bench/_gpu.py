"""Measurements of `tools/gpu.py`: training steps and filtering on a device, by turns with plain PyTorch."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import skimage.data
import torch
from torch.nn import functional as F

from codecnn.base.division import ceil_div
from codecnn.base.files import read_jsonl
from codecnn.base.planes import QP_SCALE
from codecnn.base.runtime import applied, float32_products
from codecnn.dataset import Unit
from codecnn.filtering import load_filter
from codecnn.models import FilterNetwork, create_model, load_model
from codecnn.pictures.files import Picture
from codecnn.training import LOG, FilterSettings, Trainer, training_runtime
from codecnn.training.distributed import process_group
from codecnn.training.filter import FilterTask
from tools.bench._common import QP, Row, row

HOST_STEPS = {"float32": 174, "bfloat16": 96}
"""Steps per second of `low_cost_17` at which the host starts all kernels one by one (docs/research/gpu_step.md)."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        networks: Networks with shipped weights and the planes rec_y and qp; the first is measured in all forms.
        size: Width and height of the filtered picture.
        patch: Width and height of training patches.
        batch: Patches per step.
        warm_up: Untimed calls of each way.
        steps: Training steps of a turn.
        pictures: Filtered pictures of a turn.
        turns: Turns of each way.
        seconds: Seconds for which two processes train at the same time.
    """

    networks: tuple[str, ...]
    size: tuple[int, int]
    patch: int
    batch: int
    warm_up: int
    steps: int
    pictures: int
    turns: int
    seconds: float


@dataclass(frozen=True)
class Form:
    """Arithmetic of a network: "float32", "tf32" or "bfloat16", and whether it is compiled."""

    precision: str
    compile: bool | Literal["reduce-overhead"] = False

    def __str__(self) -> str:
        return self.precision + {False: "", True: ", compiled"}.get(self.compile, f", {self.compile}")


def training_row(network: str, form: Form, units: list[Unit], device: torch.device, sizes: Sizes) -> Row:
    """Compare the training steps of a network with those of plain PyTorch in the same precision.

    If the form fails, the row has the key "failed" with the reason.
    """
    what = f"training `{network}`, {sizes.batch} patches of {sizes.patch}x{sizes.patch}, {form}: a step"
    try:
        with codecnn_trainer(network, form, units, device, sizes) as trainer:
            plain = plain_step(network, form.precision, units, device, sizes)
            calls = (lambda: trainer.step(next(trainer.batches)), plain)
            times, plain_times = time_in_turns(calls, device, sizes.warm_up, sizes.steps, sizes.turns)
    except Exception as error:
        return {"what": what, "failed": f"{type(error).__name__}: {error}"}
    finally:
        torch.compiler.reset()  # otherwise PyTorch stops compiling the same code after some forms
    result = row(what, "ms", times, f"plain PyTorch, {form.precision}", plain_times)
    result["steps_per_second"] = 1000 / result["ours"]
    if form.precision in HOST_STEPS and network == "low_cost_17":
        result["host_steps_per_second"] = HOST_STEPS[form.precision]
    print(f"{what}: {result['ours']:.3g} ms, plain {result['theirs']:.3g} ms", flush=True)
    return result


@contextlib.contextmanager
def codecnn_trainer(
    network: str, form: Form, units: list[Unit], device: torch.device, sizes: Sizes
) -> Iterator[Trainer]:
    """Set up the training loop of codecnn, and yield it before its first step.

    Raises:
        RuntimeError: The network could not be compiled.
    """
    settings = FilterSettings(
        steps=10**6,
        batch=sizes.batch,
        patch=sizes.patch,
        device=str(device),
        precision="bfloat16" if form.precision == "bfloat16" else "float32",
        tf32=form.precision == "tf32",
        compile=form.compile,
        resident=device.type == "cuda",
        boards=(),
    )
    with process_group(settings.device) as process, tempfile.TemporaryDirectory() as run:
        torch.manual_seed(settings.seed)
        runtime = training_runtime(settings, process.device)
        with applied(runtime):
            model = create_model(network)
            task = FilterTask(model, network, {}, settings, [(units, 1.0)], units[:1], "benchmark", None)
            trainer = Trainer(task, settings, Path(run), process, runtime, resume=False, progress=False)
            failures = [
                record["text"]
                for record in read_jsonl(Path(run) / LOG)
                if record["event"] == "note" and "failed" in record["text"]
            ]
            if failures:
                raise RuntimeError(failures[0])
            yield trainer


def plain_step(
    network: str, precision: str, units: list[Unit], device: torch.device, sizes: Sizes
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


def filtering_rows(network: str, precisions: Sequence[str], device: torch.device, sizes: Sizes) -> list[Row]:
    """Compare the filtering of a picture with the shipped weights of a network with plain PyTorch.

    A row has the pictures per second, the peak of the memory of a GPU, and the largest difference to plain PyTorch in
    sample steps. The precision "integers" computes the 8-bit form, which has no peer.

    Raises:
        ValueError: The results in float32 differ by more than one sample step.
    """
    width, height = sizes.size
    picture = photo_picture(width, height)
    model, _ = load_model(network)
    model = model.eval().to(device)
    rows: list[Row] = []
    for precision in precisions:
        what = f"filtering {width}x{height}, `{network}`, {precision}: a picture"
        exact = precision == "integers"
        filter_ = load_filter(network, exact=exact, precision="float32" if exact else precision, device=device)

        def codecnn(filter_: Callable[[Picture, int], Picture] = filter_) -> None:
            filter_(picture, QP)

        calls: list[Callable[[], None]] = [codecnn]
        if not exact:
            difference = int(
                np.abs(filter_(picture, QP).y.astype(np.int32) - plain_filter(model, picture, device, precision)).max()
            )
            if precision == "float32" and difference > 1:
                raise ValueError(f"{network}: codecnn and plain PyTorch differ by {difference} sample steps")
            calls.append(lambda precision=precision: plain_filter(model, picture, device, precision))
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            codecnn()
            memory = torch.cuda.max_memory_allocated(device) / 2**20
        times = time_in_turns(calls, device, sizes.warm_up, sizes.pictures, sizes.turns)
        if exact:
            rows.append(row(what, "ms", times[0]))
        else:
            rows.append(row(what, "ms", times[0], f"plain PyTorch, {precision}", times[1]))
            rows[-1]["largest_difference"] = difference
        rows[-1]["pictures_per_second"] = 1000 / rows[-1]["ours"]
        if device.type == "cuda":
            rows[-1]["gpu_memory_mib"] = memory
        print(f"{what}: {rows[-1]['ours']:.3g} ms", flush=True)
    return rows


@torch.inference_mode()
def plain_filter(model: FilterNetwork, picture: Picture, device: torch.device, precision: str) -> np.ndarray:
    """Filter the luma of a picture in one piece with the uncompiled module; return integer samples (h, w)."""
    height, width = picture.y.shape
    scale, halo, stride = 2.0**picture.bit_depth, model.halo, model.stride
    y = torch.from_numpy(picture.y.astype(np.float32)).to(device)[None, None] / scale
    y = F.pad(y, (halo, halo + -width % stride, halo, halo + -height % stride), mode="replicate")
    qp = torch.full((1, 1, 1, 1), QP / QP_SCALE, device=device)
    with (
        float32_products(tf32=precision == "tf32"),
        torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        filtered = model({"rec_y": y, "qp": qp})
    samples = (filtered[0, 0, :height, :width].float() * scale).round().clamp(0, scale - 1)
    return samples.to(torch.int32).cpu().numpy()


def photo_picture(width: int, height: int) -> Picture:
    """Return a grey 10-bit photograph, repeated to the size."""
    photo = skimage.data.coffee().mean(axis=2)
    tiled = np.tile(photo, (ceil_div(height, photo.shape[0]), ceil_div(width, photo.shape[1])))[:height, :width]
    return Picture((np.rint(4 * tiled).astype(np.uint16),), 10)


def time_in_turns(
    calls: Sequence[Callable[[], object]], device: torch.device, warm_up: int, repeats: int, turns: int
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


def _times(call: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Return the milliseconds of each repetition: between CUDA events on a GPU, wall time on a CPU."""
    if device.type == "cpu":
        marks = [time.perf_counter()]
        for _ in range(repeats):
            call()
            marks.append(time.perf_counter())
        return [1000 * (after - before) for before, after in pairwise(marks)]
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize(device)
    stream = torch.cuda.current_stream(device)
    events[0].record(stream)
    for event in events[1:]:
        call()
        event.record(stream)
    torch.cuda.synchronize(device)
    return [before.elapsed_time(after) for before, after in pairwise(events)]
