"""What a run tells while it runs: a line of metrics a validation, summary.csv, TensorBoard."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from codecnn.runs import append_jsonl, atomic_path, read_jsonl
from codecnn.training.checkpoint import METRICS, State
from codecnn.training.task import ValidationResult

SUMMARY = "summary.csv"


@dataclass(frozen=True)
class Row:
    """What a run tells after a validation; a line of metrics.jsonl.

    loss                mean over the steps since the last validation
    learning_rate       after the step, of the last parameter group
    patches_per_second  of all processes, validation not counted
    data_wait           share of that time spent waiting for data
    gpu_memory_mib      peak of this process on CUDA; None on the CPU
    seconds             of the whole run
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
        """The row of a validation, of a run with `batch` examples a step."""
        losses = state.losses()
        rate, speed = float(state.schedule.get_last_lr()[-1]), len(losses) * batch / state.training
        memory = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
        waiting = state.waiting / state.training
        return cls(state.step, float(losses.mean()), rate, result, speed, waiting, memory, state.seconds)

    def as_json(self) -> dict[str, Any]:
        """The line, the validation's figures beside the others."""
        line: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name == "result":
                line |= self.result.as_json()
            elif value is not None:
                line[name] = value
        return line


def write_row(run: Path, row: Row) -> None:
    """Append to metrics.jsonl and bring summary.csv up to date: a row a validation, nested names joined by "_"."""
    append_jsonl(run / METRICS, row.as_json())
    rows = [dict(_flat(row)) for row in read_jsonl(run / METRICS)]
    with atomic_path(run / SUMMARY) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        table.writeheader()
        table.writerows(rows)


def write_board(board: SummaryWriter, row: Row, pictures: dict[str, npt.NDArray[np.uint8]], model: nn.Module) -> None:
    """Put a validation into TensorBoard: the numbers of its row, pictures, and a histogram of each parameter."""
    for name, value in _flat(row.as_json(), "/"):
        if name != "step":
            board.add_scalar(name, value, row.step)
    for name, picture in pictures.items():
        board.add_image(name, picture, row.step, dataformats="HW" if picture.ndim == 2 else "HWC")
    for name, parameter in model.named_parameters():  # waits for the device: every parameter is copied from there
        board.add_histogram(f"weights/{name}", parameter.detach().float().cpu(), row.step)
    board.flush()


def _flat(row: Mapping[str, Any], joint: str = "_") -> Iterator[tuple[str, float]]:
    """Names and numbers of a row; those of a table within it have its name in front."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}{joint}{key}", item) for key, item in _flat(value, joint))
        elif isinstance(value, int | float):
            yield name, value
