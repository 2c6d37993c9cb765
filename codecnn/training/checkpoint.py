"""What a run has reached, whole in one file: a run that goes on from it is the run that was never stopped."""

import contextlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from codecnn.errors import ConfigError, StoreError
from codecnn.runs import append_jsonl, atomic_path, provenance, read_json, read_jsonl, write_json, write_jsonl
from codecnn.training._fastest import Form
from codecnn.training.distributed import Process, mean_over_processes
from codecnn.training.settings import FREE, LoopSettings
from codecnn.training.task import Task

CHECKPOINT, METRICS, CONFIG, LOG = "checkpoint.pt", "metrics.jsonl", "config.json", "log.jsonl"
_NUMBERS = ("step", "reported", "best", "seconds", "training", "waiting")
"""Fields of State that a checkpoint holds as they are."""


@dataclass
class State:
    """All that changes while a network is trained, and the form in which it is.

    step        optimiser steps done
    reported    the step of the last validation
    best        the best score of a validation
    form        as which the network runs; None until that is chosen
    seconds     spent on the run, `training` of them on steps since the last validation, `waiting` of those for data
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
    _losses: list[Tensor] = field(default_factory=list)
    _settled: Tensor = field(default_factory=lambda: torch.zeros(0))

    def add_loss(self, loss: Tensor) -> None:
        """Keep the loss of a step, where it is: reading it would wait for the device at every step."""
        self._losses.append(loss)

    def losses(self) -> Tensor:
        """The losses since the last validation, each the mean over the processes, on the CPU.

        Waits for the device. All processes must ask for them after the same step.
        """
        if self._losses:
            latest = torch.stack(self._losses).cpu()
            self._settled = torch.cat([self._settled, mean_over_processes(latest)])
            self._losses = []
        return self._settled

    def recent_loss(self) -> float:
        """The mean of this process's latest losses, since `losses` or else before it; waits for the device."""
        losses = torch.stack(self._losses).cpu() if self._losses else self._settled
        return float(losses.mean())

    def start_report(self) -> None:
        """Count anew from here on, after a validation."""
        self.reported = self.step
        self.training = self.waiting = 0.0
        self._settled = torch.zeros(0)

    @property
    def kept(self) -> nn.Module:
        """The network that is validated and saved: the averaged one where there is one."""
        return self.model if self.averaged is None else self.averaged.module

    def save(self, path: Path) -> None:
        """Write the checkpoint; `losses` has to have been asked for."""
        content = {
            **{name: getattr(self, name) for name in _NUMBERS},
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
        """Take the state of a checkpoint. Raises StoreError for a file that is none of this run."""
        try:
            # `weights_only`: a checkpoint that came from elsewhere must not run code.
            content = torch.load(path, weights_only=True, map_location="cpu")
            self.model.load_state_dict(content["model"])
            if self.averaged is not None:
                self.averaged.load_state_dict(content["averaged"])
            self.optimiser.load_state_dict(content["optimiser"])
            self.schedule.load_state_dict(content["schedule"])
            for name in _NUMBERS:
                setattr(self, name, content[name])
            self._settled = content["losses"]
            if content.get("form") is not None:  # codecnn 0.1 kept none
                self.form = Form(**content["form"])
        except Exception as error:  # bytes that are no checkpoint can break the reader anywhere
            raise StoreError(f"{path} is not a checkpoint of this run: {str(error).splitlines()[0]}") from error


def open_run(run: Path, task: Task, settings: LoopSettings, state: State, process: Process, resume: bool) -> None:
    """Start a run folder, or put the state of the one to continue into `state`.

    The first process writes; the others need see only the checkpoint. Raises ConfigError for a folder that holds a run,
    or one of another configuration, and StoreError where there is nothing to resume.
    """
    config = task.config() | {"training": settings.model_dump(mode="json")}
    if not resume:
        if (run / CHECKPOINT).exists():
            raise ConfigError(f"{run} already holds a run: continue it with --resume, or choose another folder with -o")
        if process.first:
            run.mkdir(parents=True, exist_ok=True)
            for name in (METRICS, LOG):  # of a run that ended before its first checkpoint
                (run / name).unlink(missing_ok=True)
            write_json(run / CONFIG, config | {"provenance": provenance()})
            for name, content in task.files().items():
                write_json(run / name, content)
        return
    if not (run / CHECKPOINT).is_file():
        raise StoreError(f"{run} has no {CHECKPOINT} to resume from")
    before = read_json(run / CONFIG)
    changed = _changed(before, config, type(settings))
    if changed:
        raise ConfigError(f"{run} was started with another configuration ({changed} differs): it cannot be resumed")
    state.load(run / CHECKPOINT)
    if state.form is None:  # nothing was left open when the run was started
        started = before["training"]
        state.form = Form(started.get("precision", "float32"), started.get("compile") is True)
    if process.first:
        # Lines after the checkpoint come again.
        write_jsonl(run / METRICS, [row for row in read_jsonl(run / METRICS) if row["step"] <= state.reported])


def log(run: Path, event: str, step: int, **facts: Any) -> None:
    """A line in log.jsonl: what happened to the run, and after which step."""
    append_jsonl(run / LOG, {"event": event, "step": step, **facts})


def _changed(before: dict[str, Any], config: dict[str, Any], settings: type[LoopSettings]) -> str:
    """The keys whose values are others than those that a run was started with, as a list to read.

    Settings that were not known when the run was started had what is their default now; precision that is left open
    stays what it is in the run.
    """
    names = [key for key in config if key != "training" and before.get(key) != config[key]]
    old, new = before.get("training", {}), config["training"]
    with contextlib.suppress(ValidationError):  # by hand, or of a version that knew others: the keys tell
        old = settings.model_validate({key: value for key, value in old.items() if key in new}).model_dump(mode="json")
    free = (*FREE, "precision") if new["precision"] == "auto" else FREE
    names += [f"training.{key}" for key in new if key not in free and old.get(key) != new[key]]
    return ", ".join(sorted(names))
