"""What a run tells while it runs: a line of metrics a validation, summary.csv, TensorBoard."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from codecnn.runs import append_jsonl, atomic_path, read_jsonl
from codecnn.training.checkpoint import METRICS, State

SUMMARY = "summary.csv"


def make_row(state: State, batch: int, device: torch.device, found: dict[str, Any]) -> dict[str, Any]:
    """The line of metrics.jsonl for a validation that found `found`.

    loss                mean over the steps since the last validation
    learning_rate       after the step, of the last parameter group
    patches_per_second  of all processes, validation not counted
    data_wait           share of that time spent waiting for data
    gpu_memory_mib      peak of this process on CUDA
    seconds             of the whole run
    """
    losses = state.losses()
    row = {
        "step": state.step,
        "loss": float(losses.mean()),
        "learning_rate": state.schedule.get_last_lr()[-1],
        **found,
        "patches_per_second": len(losses) * batch / state.training,
        "data_wait": state.waiting / state.training,
    }
    if device.type == "cuda":
        row["gpu_memory_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
    return row | {"seconds": state.seconds}


def write_row(run: Path, row: dict[str, Any]) -> None:
    """Append to metrics.jsonl and bring summary.csv up to date: a row a validation, nested names joined by "_"."""
    append_jsonl(run / METRICS, row)
    rows = [dict(_flat(row)) for row in read_jsonl(run / METRICS)]
    with atomic_path(run / SUMMARY) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        table.writeheader()
        table.writerows(rows)


def write_board(
    board: SummaryWriter, row: dict[str, Any], pictures: dict[str, npt.NDArray[np.uint8]], model: nn.Module
) -> None:
    """Put a validation into TensorBoard: the numbers of its row, pictures, and a histogram of each parameter."""
    step = row["step"]
    for name, value in _flat(row, "/"):
        if name != "step":
            board.add_scalar(name, value, step)
    for name, picture in pictures.items():
        board.add_image(name, picture, step, dataformats="HW" if picture.ndim == 2 else "HWC")
    for name, parameter in model.named_parameters():
        board.add_histogram(f"weights/{name}", parameter.detach().float().cpu(), step)
    board.flush()


def _flat(row: dict[str, Any], joint: str = "_") -> list[tuple[str, Any]]:
    """Names and numbers of a row; those of a table within it have its name in front."""
    pairs: list[tuple[str, Any]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            pairs += [(f"{name}{joint}{key}", item) for key, item in _flat(value, joint)]
        elif isinstance(value, int | float):
            pairs.append((name, value))
    return pairs
