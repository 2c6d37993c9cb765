"""State of a run and its checkpoint file, from which a run continues exactly as if it had not been stopped."""

import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from codecnn.base.errors import ConfigError, StoreError, UserCodeWarning
from codecnn.base.files import append_jsonl, atomic_path, provenance, read_json, read_jsonl, write_json, write_jsonl
from codecnn.training.distributed import Process, mean_over_processes
from codecnn.training.execution import Form
from codecnn.training.run_folder import CHECKPOINT, CONFIG, LOG, METRICS, SCHEMA
from codecnn.training.settings import FREE, LoopSettings
from codecnn.training.task import CODE, Task


@dataclass
class State:
    """Everything that changes during training, and the form in which the network is executed.

    Attributes:
        model: The network that is trained.
        averaged: Exponential moving average of its weights, or None.
        optimiser: The optimiser.
        schedule: The learning-rate schedule.
        form: Form of the network; None until it is chosen.
        step: Optimiser steps done.
        reported: Step of the last validation.
        best: Best score of a validation.
        seconds: Duration of the run.
        training: Part of that spent on steps since the last validation.
        waiting: Part of `training` spent on waiting for data.
        loss_weight: Weight of the losses of this process in the mean over the processes; not in a checkpoint.
    """

    model: nn.Module
    averaged: AveragedModel | None
    optimiser: torch.optim.Optimizer
    schedule: LRScheduler
    form: Form | None = None
    step: int = 0
    reported: int = 0
    best: float = -np.inf
    seconds: float = 0.0
    training: float = 0.0
    waiting: float = 0.0
    loss_weight: float = 1.0
    _losses: list[Tensor] = field(default_factory=list)
    _norms: list[Tensor] = field(default_factory=list)
    _settled: Tensor = field(default_factory=lambda: torch.zeros(0))

    def add_loss(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Record loss and gradient norm of a step on their device; reading them would wait for it at every step."""
        self._losses.append(loss)
        self._norms.append(gradient_norm)

    def losses(self) -> Tensor:
        """Return the losses since the last validation, each the mean over the processes, on the CPU.

        Waits for the device. All processes must call this after the same step.
        """
        if self._losses:
            latest = torch.stack(self._losses).cpu()
            self._settled = torch.cat([self._settled, mean_over_processes(latest * self.loss_weight)])
            self._losses = []
        return self._settled

    def take_gradient_norms(self) -> Tensor:
        """Return the gradient norms since the last call, on the CPU; waits for the device."""
        norms = torch.stack(self._norms).cpu() if self._norms else torch.zeros(0)
        self._norms = []
        return norms

    def recent_loss(self) -> float:
        """Return the mean of the latest losses of this process; waits for the device."""
        losses = torch.stack(self._losses).cpu() if self._losses else self._settled
        return float(losses.mean())

    def start_report(self) -> None:
        """Reset losses and times after a validation."""
        self.reported = self.step
        self.training = self.waiting = 0.0
        self._settled = torch.zeros(0)

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and saved: the averaged one if there is one."""
        return self.model if self.averaged is None else self.averaged.module

    def save(self, path: Path) -> None:
        """Write the checkpoint; `losses` must have been called after the last step."""
        content = {
            "step": self.step,
            "reported": self.reported,
            "best": self.best,
            "seconds": self.seconds,
            "training": self.training,
            "waiting": self.waiting,
            "losses": self._settled,
            "form": None if self.form is None else asdict(self.form),
            "model": self.model.state_dict(),
            "averaged": None if self.averaged is None else self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
        }
        with atomic_path(path) as part:
            torch.save(content, part)

    def load(self, path: Path) -> None:
        """Load the state of a checkpoint.

        Raises:
            StoreError: The file is not a checkpoint of this run.
        """
        try:
            # `weights_only`: a checkpoint from an unknown source must not execute code.
            content = torch.load(path, weights_only=True, map_location="cpu")
            self.model.load_state_dict(content["model"])
            if self.averaged is not None:
                self.averaged.load_state_dict(content["averaged"])
            self.optimiser.load_state_dict(content["optimiser"])
            self.schedule.load_state_dict(content["schedule"])
            self.step, self.reported, self.best = content["step"], content["reported"], content["best"]
            self.seconds, self.training = content["seconds"], content["training"]
            self.waiting = content["waiting"]
            self._settled = content["losses"]
            self.form = None if content["form"] is None else Form(**content["form"])
        except Exception as error:  # arbitrary bytes can break the reader anywhere
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise StoreError(f"{path} is not a checkpoint of this run: {reason}") from error


def open_run(run: Path, task: Task, settings: LoopSettings, state: State, process: Process, resume: bool) -> None:
    """Write the first files of a run, or load the state of the run to resume into `state`.

    The first process writes; the others only need to see the checkpoint.

    Args:
        run: Folder of the run, which `held_run_folder` holds.
        task: The task.
        settings: Settings of the run.
        state: State of the run; receives the checkpoint if the run is resumed.
        process: This process.
        resume: Whether to resume the run in the folder.

    Raises:
        ConfigError: The run to resume has another configuration.
        StoreError: The checkpoint is damaged.
    """
    config = task.config() | {"training": settings.model_dump(mode="json")}
    if not resume:
        if process.first:
            for name in (METRICS, LOG):  # of a run that ended before its first checkpoint
                (run / name).unlink(missing_ok=True)
            write_json(run / CONFIG, {"schema": SCHEMA} | config | {"provenance": provenance()})
            for name, content in task.files().items():
                write_json(run / name, content)
        return
    before = read_json(run / CONFIG)
    changed = _changed(before, config)
    if changed:
        raise ConfigError(
            f"{run} was started with another configuration ({changed} differs): restore the old values, or start a "
            "new run with -o"
        )
    state.load(run / CHECKPOINT)
    if state.form is None:  # the settings of the run left nothing open
        started = before["training"]
        state.form = Form(started["precision"], started["compile"] is True)
    if process.first:
        # The rows after the checkpoint are written again.
        write_jsonl(run / METRICS, [row for row in read_jsonl(run / METRICS) if row["step"] <= state.reported])
        if before.get(CODE) != config.get(CODE):
            text = f"the source of the network or the loss has changed since {run} was started"
            log(run, "warning", state.step, text=text)
            warnings.warn(text, UserCodeWarning, stacklevel=2)


def log(run: Path, event: str, step: int, **facts: Any) -> None:
    """Append a line to log.jsonl: an event of the run, the step after which it happened, and facts about it."""
    append_jsonl(run / LOG, {"event": event, "step": step, **facts})


def _changed(before: dict[str, Any], config: dict[str, Any]) -> str:
    """List the keys whose values differ from those that a run was started with; "auto" agrees with any precision."""
    names = [key for key in config if key not in ("training", CODE) and before.get(key) != config[key]]
    old, new = before.get("training", {}), config["training"]
    free = (*FREE, "precision") if new["precision"] == "auto" else FREE
    names += [f"training.{key}" for key in new if key not in free and old.get(key) != new[key]]
    return ", ".join(sorted(names))
