"""Training: the loop, its settings, validation."""

import importlib
from typing import TYPE_CHECKING, Any

from codecnn.training.settings import TrainingSettings

if TYPE_CHECKING:
    from codecnn.training.loop import filter_loss, pick_device, train, warmup_cosine
    from codecnn.training.validate import psnr_gain

__all__ = ["TrainingSettings", "filter_loss", "pick_device", "psnr_gain", "train", "warmup_cosine"]

_HOMES = {"psnr_gain": "validate"} | dict.fromkeys(("filter_loss", "pick_device", "train", "warmup_cosine"), "loop")


def __getattr__(name: str) -> Any:
    # Reading a configuration needs the settings, but not torch, which takes seconds to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"codecnn.training.{_HOMES[name]}"), name)
