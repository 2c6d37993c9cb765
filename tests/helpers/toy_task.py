"""A training task of about a millisecond per step: a small network with dropout and batch norm."""

import os
from collections.abc import Iterator

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from codecnn.base.files import atomic_path
from codecnn.training import LoopSettings, train_task
from codecnn.training.task import ValidationResult

SETTINGS = LoopSettings(
    steps=40,
    batch=8,
    learning_rate=1e-2,
    warmup=5,
    ema=0.9,
    validate_every=10,
    checkpoint_every=7,
    threads=1,
    device="cpu",
    seed=11,
)


class ToyTask:
    """Small training task that can send signals to its own process, or fail.

    `events` maps calls ("forward", "loss", "validate" or "save", with a count from 0) to the number of a signal to
    send, or to an exception to raise.
    """

    def __init__(self, seed: int = 0, norm: bool = True, dropout: bool = True, batch: int = 8, events=None) -> None:
        self.model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(0.3 if dropout else 0.0),
            nn.Conv2d(4, 1, 3, padding=1),
        )
        self.seed, self.batch, self.events = seed, batch, events or {}
        self.counts = {"forward": 0, "loss": 0, "validate": 0, "save": 0}
        self.model.register_forward_pre_hook(lambda module, inputs: self.happens("forward"))

    def happens(self, what: str) -> None:
        event = self.events.get((what, self.counts[what]))
        self.counts[what] += 1
        if isinstance(event, Exception):
            raise event
        if event is not None:
            os.kill(os.getpid(), event)

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[dict[str, torch.Tensor]]:
        share = slice(rank * self.batch // world, (rank + 1) * self.batch // world)
        for step in steps:
            rng = np.random.default_rng([self.seed, step])
            x = torch.from_numpy(rng.normal(size=(self.batch, 1, 8, 8)).astype(np.float32))
            yield {"x": x[share].to(device)}

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.happens("loss")
        return (model(batch["x"]) - 0.5 * batch["x"]).square().mean()

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        assert not model.training
        x = torch.linspace(-1, 1, 64, device=device).reshape(1, 1, 8, 8)
        error = float((model(x) - 0.5 * x).square().mean().detach())
        self.happens("validate")
        return ValidationResult(-error, {"by_size": {"8": error}})

    def config(self) -> dict:
        return {"network": "toy", "seed": self.seed}

    def files(self) -> dict:
        return {}

    def save(self, path, model, card) -> None:
        with atomic_path(path) as part:
            save_file({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}, part)
        self.happens("save")

    def pictures(self, model, device) -> dict:
        return {"ramp": np.arange(64, dtype=np.uint8).reshape(8, 8)}


def run_toy(run, changes=None, resume=False, **options):
    """Train the toy in the folder `run`; a module-level function, so that processes can be started with it."""
    settings = SETTINGS.model_copy(update=changes or {})
    return train_task(lambda: ToyTask(**options), settings, run, resume=resume)
