"""The training loop, from top to bottom."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from codecnn.ctu.loader import TrainingBatches, iterate
from codecnn.ctu.resident import ResidentBatches
from codecnn.ctu.sampling import Source
from codecnn.ctu.store import Store
from codecnn.errors import CodecnnError, ConfigError, StoreError
from codecnn.models import (
    FilterNetwork,
    create_model,
    freeze,
    load_partial,
    named_outputs,
    parameter_groups,
    save_weights,
)
from codecnn.runs import append_jsonl, atomic_path, provenance, read_json, read_jsonl, write_json, write_jsonl
from codecnn.training.mix import Mix, data_key, validation_units
from codecnn.training.settings import TrainingSettings
from codecnn.training.validate import limit_pictures, psnr_gain

COMPONENT_WEIGHTS = {"y": 6, "u": 1, "v": 1}
CHECKPOINT, METRICS, CONFIG, TRANSFER = "checkpoint.pt", "metrics.jsonl", "config.json", "transfer.json"


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

    The folder `run` gets config.json, metrics.jsonl (a line a validation), best.safetensors and last.safetensors with
    their cards, checkpoint.pt and TensorBoard's events. Returns the last line of metrics.jsonl with the best mean gain
    in dB as "best_gain". With `resume` the run goes on from its checkpoint, with the data it would have seen.
    """
    device = pick_device(settings.device)
    torch.manual_seed(settings.seed)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    mix = [(data, 1.0)] if isinstance(data, Store) else data
    sources = [(store.split("train"), share) for store, share in mix]
    validation = limit_pictures(validation_units(mix), settings.validation_pictures)

    model = create_model(network, **options)
    transfer = _start_from(model, settings, load=not resume)
    model.to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[no-untyped-call]
    groups = {pattern: group.model_dump(exclude_none=True) for pattern, group in settings.groups.items()}
    optimiser = torch.optim.AdamW(
        parameter_groups(model, groups), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = warmup_cosine(optimiser, settings)

    config = {"network": network, "options": options, "training": settings.model_dump(), "data_key": data_key(mix)}
    start, best = _prepare(run, config, model, averaged, optimiser, schedule, resume)
    if transfer is not None:
        write_json(run / TRANSFER, transfer)
    qps = sorted({unit.qp for units, _ in sources for unit in units})
    card = {"data_key": config["data_key"], "qps": qps, "training": settings.model_dump(), "provenance": provenance()}

    batches = _batches(sources, model, settings, range(start, settings.steps), device)
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
            loss = filter_loss(model, batch, settings.weighting)
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
            assert isinstance(kept, FilterNetwork)
            kept.eval()
            gain = psnr_gain(kept, validation, device)
            now = time.monotonic()
            row = {
                "step": step,
                "loss": mean_loss,
                "learning_rate": schedule.get_last_lr()[-1],
                "gain_db": {str(qp): value for qp, value in gain.items()},
                "gain_mean_db": float(np.mean(list(gain.values()))),
                "patches_per_second": len(losses) * settings.batch / (now - last_report),
                "seconds": now - started,
            }
            append_jsonl(run / METRICS, row)
            _write_board(board, row)
            bar.set_postfix(loss=f"{row['loss']:.4f}", gain=f"{row['gain_mean_db']:+.4f} dB")
            results = {key: row[key] for key in ("step", "gain_db", "gain_mean_db", "seconds")}
            save_weights(run / "last.safetensors", kept, network, card | {"validation": results})
            if row["gain_mean_db"] > best:
                best = row["gain_mean_db"]
                save_weights(run / "best.safetensors", kept, network, card | {"validation": results})
            _save_checkpoint(run, step, best, model, averaged, optimiser, schedule)
            model.train()
            losses, last_report = [], time.monotonic()
    return (row or read_jsonl(run / METRICS)[-1]) | {"best_gain": best}


def _start_from(model: FilterNetwork, settings: TrainingSettings, *, load: bool) -> dict[str, Any] | None:
    """Load the weights to start from, freeze what is to stay as it is, and return the report on every tensor."""
    start = settings.start
    if start is None:
        return None
    report = None
    if load:
        report = load_partial(
            model, Path(start.weights), rename=start.rename, adapt_first=start.adapt_first, partial=start.partial
        ).as_dict()
    if start.freeze:
        freeze(model, start.freeze)
    return report


def filter_loss(model: nn.Module, batch: dict[str, Tensor], weighting: str) -> Tensor:
    """Mean squared error over the valid samples of each patch, averaged over the patches.

    With the weighting "picture" each patch's error is divided by the error that the codec left in its whole picture.
    A network that changes nothing then has a loss of about 1, and since d(dB) = -10/ln 10 · d(MSE)/MSE, the gradient is
    that of the mean PSNR gain. (Dividing by the patch's own error instead lets flat patches explode.)

    Of a network that filters chroma as well, the errors of y, u and v are averaged 6:1:1, as in the field's YUV-PSNR;
    the batch then has orig_u and orig_v, and chroma's error is divided by the picture's luma error too.
    """
    filtered = named_outputs(model(batch))
    loss = torch.zeros((), device=batch["valid"].device)
    weights = sum(COMPONENT_WEIGHTS[name] for name in filtered)
    for name, plane in filtered.items():
        valid = batch["valid"] if name == "y" else batch["valid"][:, :, ::2, ::2]
        error = (plane - batch[f"orig_{name}"]).square() * valid
        per_patch = error.sum(dim=(1, 2, 3)) / valid.sum(dim=(1, 2, 3))
        if weighting == "picture":
            per_patch = per_patch / batch["picture_mse"]
        loss = loss + per_patch.mean() * (COMPONENT_WEIGHTS[name] / weights)
    return loss


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


def _batches(
    sources: Sequence[Source], model: FilterNetwork, settings: TrainingSettings, steps: range, device: torch.device
) -> Iterator[dict[str, Tensor]]:
    data = TrainingBatches(
        sources,
        batch=settings.batch,
        steps=settings.steps,
        size=settings.patch,
        halo=model.halo,
        planes=(*model.planes, *(f"orig_{name}" for name in model.outputs)),
        positions=settings.positions,
        augment=settings.augment,
        error_exponent=settings.error_exponent,
        seed=settings.seed,
    )
    # In the CPU's memory the page cache holds the pictures already, and copying rows is faster than gathering there.
    if settings.resident and device.type != "cpu":
        resident = ResidentBatches(data, device)
        return (resident[step] for step in steps)
    return iterate(data, steps, workers=settings.workers, device=device)


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
    step = row["step"]
    for name in ("loss", "learning_rate", "gain_mean_db", "patches_per_second"):
        board.add_scalar(name, row[name], step)
    for qp, value in row["gain_db"].items():
        board.add_scalar(f"gain_db/qp{qp}", value, step)
