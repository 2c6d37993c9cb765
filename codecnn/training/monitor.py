"""Reports of a running training: metrics, summary table, boards, progress lines and warnings, and their timing."""

import contextlib
import csv
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm import tqdm

from codecnn.base.files import append_jsonl, atomic_path, read_jsonl
from codecnn.training.boards import Boards
from codecnn.training.checkpoint import State, log
from codecnn.training.health import Diagnosis, Health, measure_activity, measure_step
from codecnn.training.run_folder import METRICS
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch, ValidationResult

SUMMARY = "summary.csv"
MEASURE_EVERY = 100
"""Steps between measurements of the network, each of which takes about half the time of a step."""
SECONDS_PER_LINE = 30.0
"""Seconds between the progress lines of a run without a terminal."""
SHOWN_EXAMPLES = 4
"""Number of examples of a batch that are shown in TensorBoard."""
SHOWN_SIDE = 128
"""Width and height of the part of an example that is shown, in samples."""


@dataclass(frozen=True)
class Row:
    """Metrics of a validation: one line of metrics.jsonl.

    Attributes:
        step: Optimiser steps done.
        loss: Mean loss over the steps since the last validation.
        learning_rate: Learning rate after the step, of the last parameter group.
        result: Result of the validation.
        patches_per_second: Speed of all processes together, without validation.
        data_wait: Share of that time in which training waited for data.
        gpu_memory_mib: Peak memory of this process on a GPU in MiB; None on the CPU.
        seconds: Duration of the whole run.
    """

    step: int
    loss: float
    learning_rate: float
    result: ValidationResult
    patches_per_second: float
    data_wait: float
    gpu_memory_mib: float | None
    seconds: float

    @classmethod
    def of(cls, state: State, batch: int, device: torch.device, result: ValidationResult) -> "Row":
        """Return the row of a validation, for a run with `batch` examples per step."""
        losses = state.losses()
        rate, speed = float(state.schedule.get_last_lr()[-1]), len(losses) * batch / state.training
        memory = None
        if device.type != "cpu":
            memory = torch.get_device_module(device).max_memory_allocated(device) / 2**20
        waiting = state.waiting / state.training
        return cls(state.step, float(losses.mean()), rate, result, speed, waiting, memory, state.seconds)

    def as_json(self) -> dict[str, Any]:
        """Return the line, with the figures of the validation among the other values."""
        line: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name == "result":
                line |= self.result.as_json()
            elif value is not None:
                line[name] = value
        return line


def write_row(run: Path, row: Row) -> None:
    """Append a row to metrics.jsonl and rewrite summary.csv, whose column names join nested names by "_"."""
    append_jsonl(run / METRICS, row.as_json())
    rows = [dict(_flatten(row)) for row in read_jsonl(run / METRICS)]
    with atomic_path(run / SUMMARY) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        table.writeheader()
        table.writerows(rows)


def show_row(boards: Boards, row: Row, pictures: dict[str, npt.NDArray[np.uint8]], model: nn.Module) -> None:
    """Show a validation: the numbers of its row, pictures, and the distribution of each parameter."""
    boards.scalars({name: value for name, value in _flatten(row.as_json(), "/") if name != "step"}, row.step)
    for name, picture in pictures.items():
        boards.picture(name, picture, row.step)
    boards.parameters(model, row.step)


def _flatten(row: Mapping[str, Any], separator: str = "_") -> Iterator[tuple[str, float]]:
    """Yield names and numbers of a row; names within a nested table are prefixed by the name of the table."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}{separator}{key}", item) for key, item in _flatten(value, separator))
        elif isinstance(value, int | float):
            yield name, value


class Stopwatch:
    """Measures the seconds from lap to lap."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        """Return the seconds since the last call, or since construction."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


class TimedBatches:
    """Iterator over batches that adds up the time for which training waits for them.

    On the CPU that is the time to get a batch. With a GPU the processor runs ahead of the device, so its own waiting
    time says nothing: events before and after each batch measure how long the device has no step to compute, including
    copies and conversions of the batch. They are read by `take`, when the loop waits for the device anyway.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._seconds = 0.0
        self._events: list[tuple[Any, Any]] = []

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._device.type != "cpu":
            module = torch.get_device_module(self._device)
            # An event without a stream would be recorded on the current device, which another program may have changed.
            stream = module.current_stream(self._device)
            before, after = (module.Event(enable_timing=True) for _ in range(2))
            before.record(stream)
            batch = next(self._batches)
            after.record(stream)
            self._events.append((before, after))
            return batch
        started = time.perf_counter()
        batch = next(self._batches)
        self._seconds += time.perf_counter() - started
        return batch

    def take(self) -> float:
        """Return the seconds of waiting since the last call; waits for the device."""
        if self._events:
            self._events[-1][1].synchronize()
            self._seconds += sum(before.elapsed_time(after) for before, after in self._events) / 1000
            self._events = []
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class Monitor:
    """Observes the steps of a run without changing it: weights, random numbers and buffers stay bit for bit.

    Attributes:
        gradient_norm: Norm of the gradient before clipping, of the current step.
        health: The last measurement, or None.
    """

    def __init__(self, run: Path, state: State, settings: LoopSettings, *, first: bool, verbose: bool) -> None:
        """Create the monitor of a run.

        Args:
            run: Folder of the run.
            state: State of the run.
            settings: Settings of the run.
            first: Whether this is the first process; the others do not measure.
            verbose: Whether to print warnings and progress lines to stderr.
        """
        self.run, self.state, self.settings = run, state, settings
        self.first, self.verbose = first, first and verbose
        self.gradient_norm: Tensor | None = None
        self.health: Health | None = None
        self._diagnosis = Diagnosis(settings)
        self._batch_to_show: Batch | None = None
        self._batch_shown = False
        self._start = self._last_line = (time.monotonic(), state.step)

    def due(self) -> bool:
        """Return whether the next step is measured: the first, every hundredth, and the last before a validation."""
        step, settings = self.state.step + 1, self.settings
        periodic = step % MEASURE_EVERY == 0 or step % settings.validate_every == 0
        return self.first and (step in (1, settings.steps) or periodic)

    @contextlib.contextmanager
    def on_step(self, network: nn.Module) -> Iterator[None]:
        """Measure the step that is taken within the context, if it is due.

        The underlying network is measured in evaluation mode, uncompiled and without wrappers.

        Args:
            network: The network as the step calls it, possibly compiled or wrapped.
        """
        if not self.due():
            yield
            return
        inputs: list[tuple[Any, ...]] = []
        model = self.state.model
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        group = self.state.optimiser.param_groups[0]
        rate = float(group["lr"]) / float(group.get("initial_lr", group["lr"]))
        with network.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments)):
            yield
        norm = 0.0 if self.gradient_norm is None else float(self.gradient_norm)
        clipping = min(1.0, self.settings.clip / norm) if norm else 1.0
        gradients, updates = measure_step(model, before, rate, clipping)
        activity = measure_activity(model, inputs[0]) if inputs else None
        self.health = Health(self.state.step + 1, activity, gradients, updates)
        if inputs and not self._batch_shown:
            first = inputs[0][0]
            self._batch_to_show = dict(first) if isinstance(first, Mapping) else {"input": first}
        for sentence in self._diagnosis.warnings(self.health):
            self.warn(sentence)

    def warn(self, sentence: str) -> None:
        """Write a warning to log.jsonl and, above the progress bar, to stderr."""
        step = self.state.step + 1
        log(self.run, "warning", step, text=sentence)
        if self.verbose:
            tqdm.write(f"warning, step {step}: {sentence}", file=sys.stderr)

    def print_progress(self, row: Row | None = None) -> None:
        """Print a progress line to stderr if that is not a terminal: now and then, and with the row of a validation."""
        now, step = time.monotonic(), self.state.step
        if not self.verbose or sys.stderr.isatty() or (row is None and now - self._last_line[0] < SECONDS_PER_LINE):
            return
        remaining = (now - self._start[0]) / max(step - self._start[1], 1) * (self.settings.steps - step)
        if row is None:
            loss, speed, score = self.state.recent_loss(), self._patches_per_second(now), ""
        else:
            loss, speed, score = row.loss, row.patches_per_second, f", score {row.result.score:+.4f}"
        progress = f"step {step} of {self.settings.steps}, loss {loss:.4f}{score}, {speed:.3g} patches/s"
        tqdm.write(f"{progress}, {tqdm.format_interval(remaining)} left", file=sys.stderr)
        self._last_line = now, step

    def _patches_per_second(self, now: float) -> float:
        """Return the speed since the last progress line."""
        return (self.state.step - self._last_line[1]) * self.settings.batch / (now - self._last_line[0])

    def show(self, boards: Boards) -> None:
        """Show the last measurement, and at the first call the input planes of its batch."""
        step = self.state.step
        if self._batch_to_show is not None:
            for name, picture in batch_pictures(self._batch_to_show).items():
                boards.picture(f"batch/{name}", picture, step)
            self._batch_to_show, self._batch_shown = None, True
        if self.health is None:
            return
        scalars = {f"gradients/{name}": value for name, value in self.health.gradients.items()}
        scalars |= {f"updates/{name}": value for name, value in self.health.updates.items()}
        if (activity := self.health.activity) is not None:
            scalars |= {f"dead_units/{name}": value for name, value in activity.dead.items()}
            scalars |= {f"features/{name}": value for name, value in activity.features.items()}
            scalars |= {f"factors/{name}": value for name, value in activity.factors.items()}
        boards.scalars(scalars, step)


def batch_pictures(batch: Batch) -> dict[str, npt.NDArray[np.uint8]]:
    """Render the planes of a batch for TensorBoard.

    Args:
        batch: Tensors; those of shape (n, 1, h, w) are shown.

    Returns:
        By name the upper left corners of the first examples in a row, shape (h, n * w) with n up to SHOWN_EXAMPLES and
        h, w up to SHOWN_SIDE. Planes within [0, 1] keep that range; the range of the others is stretched to 0 to 255.
    """
    planes = {name: plane[:SHOWN_EXAMPLES].float().cpu() for name, plane in batch.items() if plane.ndim == 4}
    height, width = (max((plane.shape[axis] for plane in planes.values()), default=1) for axis in (2, 3))
    pictures = {}
    for name, plane in planes.items():
        if plane.shape[2:] == (1, 1):  # one value per patch, such as the QP
            plane = plane.expand(-1, -1, height, width)
        low, high = (0.0, 1.0) if plane.min() >= 0 and plane.max() <= 1 else (float(plane.min()), float(plane.max()))
        scaled = (plane - low) / max(high - low, torch.finfo().tiny)
        corners = [example[0, :SHOWN_SIDE, :SHOWN_SIDE] for example in scaled]
        pictures[name] = (torch.cat(corners, dim=1) * 255).round().to(torch.uint8).numpy()
    return pictures
