"""What a run shows of itself while it trains: warnings, lines where there is no terminal, sizes for TensorBoard."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from codecnn.training._health import Diagnosis, Health, activity, changes
from codecnn.training._metrics_log import Row
from codecnn.training.checkpoint import State, log
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch

EVERY = 100
"""Steps between measurements, each of which takes about half the time of a step."""
SECONDS = 30.0
"""Between the lines of a run that has no terminal."""
SHOWN = 4
"""Examples of a batch that are shown."""
SIDE = 128
"""Samples of each side of them that are shown."""


class Eyes:
    """Looks at the steps of a run without a trace in it: weights, random numbers and buffers stay bit for bit.

    `first` is whether this is the first process, which alone looks, `speaking` whether it tells on stderr what it sees.
    """

    def __init__(self, run: Path, state: State, settings: LoopSettings, *, first: bool, speaking: bool) -> None:
        self.run, self.state, self.settings = run, state, settings
        self.first, self.speaking = first, first and speaking
        self.norm: Tensor | None = None
        """The gradient's norm before it was clipped, of the step that is under way."""
        self.health: Health | None = None
        self._diagnosis = Diagnosis(settings)
        self._fed: Batch | None = None
        self._shown = False
        self._began = self._last = (time.monotonic(), state.step)

    def due(self) -> bool:
        """Whether the step that comes next is measured: the first, every hundredth, the last before a validation."""
        step, settings = self.state.step + 1, self.settings
        return self.first and (step in (1, settings.steps) or step % EVERY == 0 or step % settings.validate_every == 0)

    @contextlib.contextmanager
    def on_step(self, network: nn.Module) -> Iterator[None]:
        """Measure the step that is taken within, if it is due; `network` is the one that it calls.

        The network's own module is looked at in evaluation mode and as it is, whatever compiles or wraps it.
        """
        if not self.due():
            yield
            return
        inputs: list[tuple[Any, ...]] = []
        model = self.state.model
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        group = self.state.optimiser.param_groups[0]
        rate = float(group["lr"]) / float(group.get("initial_lr", group["lr"]))
        with network.register_forward_pre_hook(lambda module, given: inputs.append(given)):
            yield
        norm = 0.0 if self.norm is None else float(self.norm)
        gradients, updates = changes(model, before, rate, min(1.0, self.settings.clip / norm) if norm else 1.0)
        seen = activity(model, inputs[0]) if inputs else None
        self.health = Health(self.state.step + 1, seen, gradients, updates)
        if inputs and not self._shown:
            first = inputs[0][0]
            self._fed = dict(first) if isinstance(first, Mapping) else {"input": first}
        for sentence in self._diagnosis.of(self.health):
            self.warn(sentence)

    def warn(self, sentence: str) -> None:
        """A warning into log.jsonl and, above the progress bar, onto stderr."""
        step = self.state.step + 1
        log(self.run, "warning", step, text=sentence)
        if self.speaking:
            tqdm.write(f"warning, step {step}: {sentence}", file=sys.stderr)

    def line(self, row: Row | None = None) -> None:
        """Now and then, and with the `row` of a validation, a line on stderr where that is no terminal."""
        now, step = time.monotonic(), self.state.step
        if not self.speaking or sys.stderr.isatty() or (row is None and now - self._last[0] < SECONDS):
            return
        left = (now - self._began[0]) / max(step - self._began[1], 1) * (self.settings.steps - step)
        if row is None:
            loss, speed, score = self.state.recent_loss(), self._speed(now), ""
        else:
            loss, speed, score = row.loss, row.patches_per_second, f", score {row.result.score:+.4f}"
        told = f"step {step} of {self.settings.steps}, loss {loss:.4f}{score}, {speed:.3g} patches/s"
        tqdm.write(f"{told}, {tqdm.format_interval(left)} left", file=sys.stderr)
        self._last = now, step

    def _speed(self, now: float) -> float:
        """Patches a second since the last line."""
        return (self.state.step - self._last[1]) * self.settings.batch / (now - self._last[0])

    def write(self, board: SummaryWriter) -> None:
        """Put what the last measurement saw into TensorBoard, and at the first time the planes of its batch."""
        step = self.state.step
        if self._fed is not None:
            for name, picture in batch_pictures(self._fed).items():
                board.add_image(f"batch/{name}", picture, step, dataformats="HW")
            self._fed, self._shown = None, True
        if self.health is None:
            return
        scalars = {f"gradients/{name}": value for name, value in self.health.gradients.items()}
        scalars |= {f"updates/{name}": value for name, value in self.health.updates.items()}
        if (seen := self.health.activity) is not None:
            scalars |= {f"dead_units/{name}": value for name, value in seen.dead.items()}
            scalars |= {f"features/{name}": value for name, value in seen.features.items()}
            scalars |= {f"factors/{name}": value for name, value in seen.factors.items()}
        for name, value in scalars.items():
            board.add_scalar(name, value, step)


def batch_pictures(batch: Batch) -> dict[str, npt.NDArray[np.uint8]]:
    """Each plane (n, 1, h, w) of a batch as (h, SHOWN·w) at most, the upper left of its first examples side by side.

    Planes in [0, 1], as networks take them, keep that range; others are shown from their least value to their largest.
    """
    planes = {name: plane[:SHOWN].float().cpu() for name, plane in batch.items() if plane.ndim == 4}
    height, width = (max((plane.shape[axis] for plane in planes.values()), default=1) for axis in (2, 3))
    shown = {}
    for name, plane in planes.items():
        if plane.shape[2:] == (1, 1):  # one value a patch, such as the QP
            plane = plane.expand(-1, -1, height, width)
        low, high = (0.0, 1.0) if plane.min() >= 0 and plane.max() <= 1 else (float(plane.min()), float(plane.max()))
        scaled = (plane - low) / max(high - low, torch.finfo().tiny)
        cut = [one[0, :SIDE, :SIDE] for one in scaled]
        shown[name] = (torch.cat(cut, dim=1) * 255).round().to(torch.uint8).numpy()
    return shown
