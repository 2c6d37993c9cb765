"""The training loop, from top to bottom."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from codecnn.ctu.store import Store
from codecnn.errors import CodecnnError, ConfigError, StoreError
from codecnn.models import parameter_groups
from codecnn.runs import append_jsonl, atomic_path, provenance, read_json, read_jsonl, write_json, write_jsonl
from codecnn.training.filter_task import filter_task
from codecnn.training.mix import Mix
from codecnn.training.settings import TrainingSettings
from codecnn.training.task import Task

CHECKPOINT, METRICS, CONFIG = "checkpoint.pt", "metrics.jsonl", "config.json"


def train(
    data: Store | Mix,
    network: str,
    options: dict[str, Any],
    settings: TrainingSettings,
    run: Path,
    *,
    resume: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Train `network` on the split "train" of a store, or of a mix of several, and keep what does best on their "val".

    As `train_task`, with the best mean gain in dB as "best_gain" too.
    """
    row = train_task(
        lambda: filter_task(data, network, options, settings, resume=resume),
        settings,
        run,
        resume=resume,
        progress=progress,
    )
    return row | {"best_gain": row["best_score"]}


def train_task(
    make_task: Callable[[], Task],
    settings: TrainingSettings,
    run: Path,
    *,
    resume: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Train the network of the task that `make_task` makes once torch is seeded, and keep what validates best.

    The folder `run` gets config.json, metrics.jsonl (a line a validation), best.safetensors and last.safetensors with
    their cards, checkpoint.pt and TensorBoard's events. Returns the last line of metrics.jsonl with the best score as
    "best_score". With `resume` the run goes on from its checkpoint, with the data it would have seen.
    """
    device = pick_device(settings.device)
    torch.manual_seed(settings.seed)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    task = make_task()
    model = task.model
    model.to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[no-untyped-call]
    groups = {pattern: group.model_dump(exclude_none=True) for pattern, group in settings.groups.items()}
    optimiser = torch.optim.AdamW(
        parameter_groups(model, groups), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = warmup_cosine(optimiser, settings)

    config = task.config() | {"training": settings.model_dump()}
    start, best = _prepare(run, config, model, averaged, optimiser, schedule, resume)
    if not resume:
        for name, content in task.files().items():
            write_json(run / name, content)
    card = {"training": settings.model_dump(), "provenance": provenance()}

    batches = task.batches(range(start, settings.steps), 0, 1, device)
    started, last_report, losses = time.monotonic(), time.monotonic(), []
    row: dict[str, Any] = {}
    with (
        SummaryWriter(str(run)) as board,
        tqdm(
            batches,
            total=settings.steps,
            initial=start,
            desc="training",
            unit="step",
            disable=None if progress else True,
        ) as bar,
    ):
        for step, batch in enumerate(bar, start=start + 1):
            loss = task.loss(model, batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
            averaged.update_parameters(model)
            losses.append(loss.detach())  # no .item() here: it would wait for the device at every step

            if step % settings.validate_every and step != settings.steps:
                continue
            mean_loss = float(torch.stack(losses).mean())
            if not np.isfinite(mean_loss):
                raise CodecnnError(f"the loss is no longer finite at step {step}: lower training.learning_rate")
            kept = averaged.module if settings.ema else model
            kept.eval()
            found = task.validate(kept, device)
            now = time.monotonic()
            row = {
                "step": step,
                "loss": mean_loss,
                "learning_rate": schedule.get_last_lr()[-1],
                **found,
                "patches_per_second": len(losses) * settings.batch / (now - last_report),
                "seconds": now - started,
            }
            append_jsonl(run / METRICS, row)
            _write_board(board, row)
            bar.set_postfix(loss=f"{mean_loss:.4f}", score=f"{row['score']:+.4f}")
            results = card | {"validation": {"step": step, "seconds": row["seconds"]} | found}
            task.save(run / "last.safetensors", kept, results)
            if row["score"] > best:
                best = row["score"]
                task.save(run / "best.safetensors", kept, results)
            _save_checkpoint(run, step, best, model, averaged, optimiser, schedule)
            model.train()
            losses, last_report = [], time.monotonic()
    return (row or read_jsonl(run / METRICS)[-1]) | {"best_score": best}


def warmup_cosine(optimiser: torch.optim.Optimizer, settings: TrainingSettings) -> LRScheduler:
    """Linear warm-up from 1 % over `warmup` steps, then a cosine to zero at the last step."""
    warmup = min(settings.warmup, settings.steps - 1)
    cosine = CosineAnnealingLR(optimiser, T_max=settings.steps - warmup)
    if warmup == 0:
        return cosine
    return SequentialLR(optimiser, [LinearLR(optimiser, 0.01, 1.0, total_iters=warmup), cosine], milestones=[warmup])


def pick_device(name: str) -> torch.device:
    """The torch device called `name`; "auto" is CUDA where there is one. ConfigError for one that is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _prepare(
    run: Path,
    config: dict[str, Any],
    model: nn.Module,
    averaged: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: LRScheduler,
    resume: bool,
) -> tuple[int, float]:
    """Start a run folder, or load the state of the one to continue. Returns the step reached and the best gain."""
    if not resume:
        if (run / CHECKPOINT).exists():
            raise ConfigError(f"{run} already holds a run: continue it with --resume, or choose another folder with -o")
        run.mkdir(parents=True, exist_ok=True)
        (run / METRICS).unlink(missing_ok=True)  # of a run that ended before its first checkpoint
        write_json(run / CONFIG, config | {"provenance": provenance()})
        return 0, -np.inf
    if not (run / CHECKPOINT).is_file():
        raise StoreError(f"{run} has no {CHECKPOINT} to resume from")
    before = {key: value for key, value in read_json(run / CONFIG).items() if key in config}
    if before != config:
        changed = ", ".join(sorted(key for key in config if before.get(key) != config[key]))
        raise ConfigError(f"{run} was started with another configuration ({changed} differs): it cannot be resumed")
    state = torch.load(run / CHECKPOINT, weights_only=True, map_location="cpu")
    model.load_state_dict(state["model"])
    averaged.load_state_dict(state["averaged"])
    optimiser.load_state_dict(state["optimiser"])
    schedule.load_state_dict(state["schedule"])
    step = int(state["step"])
    # Lines after the checkpoint come again.
    write_jsonl(run / METRICS, [row for row in read_jsonl(run / METRICS) if row["step"] <= step])
    return step, float(state["best"])


def _save_checkpoint(
    run: Path,
    step: int,
    best: float,
    model: nn.Module,
    averaged: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: LRScheduler,
) -> None:
    state = {
        "step": step,
        "best": best,
        "model": model.state_dict(),
        "averaged": averaged.state_dict(),
        "optimiser": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
    }
    with atomic_path(run / CHECKPOINT) as part:
        torch.save(state, part)


def _write_board(board: SummaryWriter, row: dict[str, Any]) -> None:
    for name, value in row.items():
        for key, number in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(number, int | float) and name not in ("step", "seconds"):
                board.add_scalar(f"{name}/{key}" if key else name, number, row["step"])
