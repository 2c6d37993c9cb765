"""What the loop trains: a network, its batches, its loss, its validation; and what makes such a task."""

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


@dataclass(frozen=True)
class ValidationResult:
    """What a validation finds: the score that says what is best (higher), and its figures for metrics.jsonl by name."""

    score: float
    figures: Mapping[str, float | Mapping[str, float]]

    def as_json(self) -> dict[str, Any]:
        """Figures, then score, as rows and cards have them."""
        return {**self.figures, "score": self.score}


class Task(Protocol):
    """Everything that the loop does not know about what it trains.

    A task is made after torch has been seeded and tells all that decides a run: two tasks of equal `config` train to
    the same weights from the same settings. Batch number k is a function of the task and k alone, so that a run that
    is resumed sees the data it would have seen.
    """

    @property
    def model(self) -> nn.Module:
        """The network that is trained, on whatever device it is."""

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """The batches of `steps` (the first of a run is 0) on `device`; of each the share of process `rank` of `world`.

        The shares of all processes are together the batch of a single one, each of the same size. Every tensor's first
        dimension is the batch, since the loop cuts it into parts where gradients accumulate.
        """

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """A scalar, float32: the mean over the examples of `batch`. `model` is the network, or a wrapper of it."""

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """The validation of `model`, which is in evaluation mode.

        Called by every process, of which the first one's result counts: `distributed.share` and `distributed.gather`
        split the work where a task wants that.
        """

    def config(self) -> dict[str, Any]:
        """What decides the run beside the settings, as JSON takes it; a run is resumed only where it is equal."""

    def files(self) -> Mapping[str, Any]:
        """JSON files, by name, for the folder of a new run."""

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Write the weights of `model` with a card that holds `card` and what the task knows of them."""

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """Pictures (h, w) or (h, w, 3) for TensorBoard by name; none where there is nothing to see."""


class TrainingConfig(Protocol):
    """What can be trained: settings of the loop, and the task that they are for (see `codecnn.config`)."""

    @property
    def training(self) -> LoopSettings:
        """The settings."""

    def make_task(self, *, resume: bool = False) -> Task:
        """The task, for a new run or one to `resume`; torch has been seeded."""
