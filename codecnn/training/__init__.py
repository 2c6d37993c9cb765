"""Training: the loop, its settings, validation."""

import importlib
from typing import TYPE_CHECKING, Any

from codecnn.training.settings import TrainingSettings

if TYPE_CHECKING:
    from codecnn.training.distributed import pick_device
    from codecnn.training.filter.losses import filter_loss
    from codecnn.training.filter.validate import psnr_gain
    from codecnn.training.loop import train, train_task
    from codecnn.training.schedule import warmup_cosine
    from codecnn.training.task import Task

__all__ = [
    "Task",
    "TrainingSettings",
    "filter_loss",
    "pick_device",
    "psnr_gain",
    "train",
    "train_task",
    "warmup_cosine",
]

_HOMES = {
    "Task": "task",
    "filter_loss": "filter.losses",
    "pick_device": "distributed",
    "psnr_gain": "filter.validate",
    "train": "loop",
    "train_task": "loop",
    "warmup_cosine": "schedule",
}


def __getattr__(name: str) -> Any:
    # Reading a configuration needs the settings, but not torch, which takes seconds to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"codecnn.training.{_HOMES[name]}"), name)
