"""Interface between the training loop and what it trains: network, batches, loss and validation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from codecnn.training.settings import LoopSettings

Batch = dict[str, Tensor]
CODE = "code_sha256"
"""Key of a task's `config` with hashes of code outside of codecnn; if they change, a resumed run warns and goes on."""


@dataclass(frozen=True)
class ValidationResult:
    """Result of a validation.

    Attributes:
        score: Value that decides which weights are the best; higher is better.
        figures: Figures for metrics.jsonl by name, numbers or tables of numbers.
    """

    score: float
    figures: Mapping[str, float | Mapping[str, float]]

    def as_json(self) -> dict[str, Any]:
        """Return the figures followed by the score, as metrics.jsonl and cards list them."""
        return {**self.figures, "score": self.score}


class Task(Protocol):
    """Interface of a training task, which holds everything that is specific to what is trained.

    A task is constructed after torch has been seeded and determines the run: two tasks of equal `config` train to the
    same weights from the same settings. Batch number k is a function of the task and k alone, so that a resumed run
    sees the data that an uninterrupted run sees.
    """

    @property
    def model(self) -> nn.Module:
        """The network to train, on any device."""

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """Iterate over the batches of the given steps.

        The shares of all processes form the batch of a single process, `batch` examples of the settings, and differ by
        one example at most. The first dimension of every tensor is the batch, since the loop splits it to accumulate
        gradients.

        Args:
            steps: Numbers of the steps; the first step of a run is 0.
            rank: Number of this process.
            world: Number of processes.
            device: Device of the returned tensors.

        Returns:
            The share of process `rank` in the batch of each step.
        """

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Compute the mean loss over the examples of `batch`.

        Args:
            model: The network or a wrapper of it.
            batch: A batch, or a part of one.

        Returns:
            A scalar, float32.
        """

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """Validate `model`, which is in evaluation mode.

        Every process calls this method, and the result of the first one counts. A task can split the work with
        `distributed.share` and `distributed.gather`.
        """

    def config(self) -> dict[str, Any]:
        """Return what determines the run apart from the settings, as JSON; a run is resumed only if this is equal."""

    def files(self) -> Mapping[str, Any]:
        """Return JSON files, by name, to write into the folder of a new run."""

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Write the weights of `model` and a card that holds `card` and the facts that the task adds."""

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """Return pictures for boards by name, shape (h, w) or (h, w, 3); may be empty."""


class TrainingConfig(Protocol):
    """A training configuration: settings of the loop and the task to train (see `codecnn.api.config`)."""

    @property
    def training(self) -> LoopSettings:
        """Settings of the loop."""

    def make_task(self, *, resume: bool = False) -> Task:
        """Construct the task, for a new run or for one to resume, after torch has been seeded."""
