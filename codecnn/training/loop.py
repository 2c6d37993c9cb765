"""The training loop, from top to bottom."""

import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from codecnn.dataset.store import Store
from codecnn.errors import CodecnnError, ConfigError, StoppedError
from codecnn.runs import provenance, read_jsonl
from codecnn.training.allocator import keep_freed_memory
from codecnn.training.checkpoint import CHECKPOINT, METRICS, State, log, open_run
from codecnn.training.distributed import Agreement, Place, in_parallel, joined, synchronise_norms
from codecnn.training.filter.mix import Mix
from codecnn.training.filter.task import filter_task
from codecnn.training.forward import compiled, in_precision
from codecnn.training.metrics_log import make_row, write_board, write_row
from codecnn.training.schedule import make_optimiser, warmup_cosine
from codecnn.training.settings import TrainingSettings
from codecnn.training.signals import StopNow, StopSignals
from codecnn.training.task import Batch, Task
from codecnn.training.waiting import TimedBatches


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

    The folder `run` gets config.json, log.jsonl (what happened to the run), metrics.jsonl and summary.csv (a row a
    validation), best.safetensors and last.safetensors with their cards, checkpoint.pt and TensorBoard's events. Returns
    the last row with the best score as "best_score". Started by torchrun, each process trains on its part of every
    batch.

    With `resume` the run goes on from its checkpoint as if it had never stopped: on a CPU to the same weights, bit for
    bit. SIGTERM and SIGINT write a checkpoint after the step that is under way and raise StoppedError. Raises
    ConfigError and StoreError for what cannot be trained or resumed, CodecnnError when the loss is no longer finite.
    """
    with joined(settings.device) as place:
        parts = place.world * settings.accumulate
        if settings.batch % parts:
            raise ConfigError(
                f"training.batch {settings.batch} is not a multiple of processes times accumulate, {parts}"
            )
        torch.manual_seed(settings.seed)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        # Patches have one size, so that what cuDNN finds out about its algorithms in the first step pays in all others.
        torch.backends.cudnn.benchmark = place.device.type == "cuda"
        if place.device.type == "cpu":
            keep_freed_memory()
        return _train(make_task(), settings, run, place, resume, progress)


def _train(
    task: Task, settings: TrainingSettings, run: Path, place: Place, resume: bool, progress: bool
) -> dict[str, Any]:
    model = task.model
    model.to(place.device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    notes = [synchronise_norms(model, place)]
    optimiser = make_optimiser(model, settings)
    average = get_ema_multi_avg_fn(settings.ema)  # type: ignore[no-untyped-call]
    averaged = AveragedModel(model, multi_avg_fn=average) if settings.ema else None
    state = State(model, averaged, optimiser, warmup_cosine(optimiser, settings))
    open_run(run, task, settings.model_dump(), state, place, resume)

    model.train()
    batches = task.batches(range(state.step, settings.steps), place.rank, place.world, place.device)
    network, batches, note = _network(task, settings, place, batches)
    notes.append(note)
    made_by = provenance()
    if place.first:
        facts = {"processes": place.world, "device": str(place.device), "threads": torch.get_num_threads()}
        log(run, "resumed" if resume else "started", state.step, **facts, provenance=made_by)
        for note in filter(None, notes):
            log(run, "note", state.step, text=note)

    agreement = Agreement()
    timed = TimedBatches(batches, place.device)
    watch = _Watch()
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals(impatient=place.world == 1))
        # Events of steps that come again would otherwise be there twice.
        board = stack.enter_context(SummaryWriter(str(run), purge_step=state.reported + 1)) if place.first else None
        bar = stack.enter_context(
            tqdm(
                total=settings.steps,
                initial=state.step,
                desc="training",
                unit="step",
                disable=None if progress and place.first else True,
            )
        )

        last: dict[str, Any] | None = None

        def validate() -> None:
            nonlocal last
            state.kept.eval()
            with signals.at_once():
                found = task.validate(state.kept, place.device)
                pictures = task.pictures(state.kept, place.device) if place.first else {}
            state.seconds += watch.lap()
            last = row = make_row(state, settings.batch, place.device, found)
            state.start_report()
            better, state.best = row["score"] > state.best, max(row["score"], state.best)
            if board is not None:
                write_row(run, row)
                write_board(board, row, pictures, state.kept)
                bar.set_postfix(loss=f"{row['loss']:.4f}", score=f"{row['score']:+.4f}")
                card = {
                    "training": settings.model_dump(),
                    "provenance": made_by,
                    "validation": {"step": state.step, "seconds": row["seconds"]} | found,
                }
                for name in ("last", "best") if better else ("last",):
                    task.save(run / f"{name}.safetensors", state.kept, card)
                state.save(run / CHECKPOINT)
            model.train()
            state.seconds += watch.lap()

        def settle() -> None:
            """Bring losses and times up to date; waits for the device."""
            finite = torch.isfinite(state.losses())
            if not bool(finite.all()):
                raise CodecnnError(f"the loss is no longer finite at step {state.step}: lower training.learning_rate")
            lap = watch.lap()
            state.training += lap
            state.seconds += lap
            state.waiting += timed.take()

        def stop(number: int) -> NoReturn:
            agreement.close()
            if place.first:
                state.save(run / CHECKPOINT)
                log(run, "stopped", state.step, signal=signal.Signals(number).name)
            raise StoppedError(
                f"stopped by {signal.Signals(number).name} after step {state.step}: --resume goes on from the "
                f"checkpoint in {run}",
                number,
            )

        try:
            if _due(state.step, settings) and state.reported < state.step:
                validate()
            for batch in timed:
                _seed_step(settings.seed, state.step, place)
                state.add_loss(_backward(task, network, batch, settings.accumulate))
                nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                state.schedule.step()
                if averaged is not None:
                    averaged.update_parameters(model)
                state.step += 1
                bar.update()

                wish = agreement.largest(signals.caught)
                if wish or state.step % settings.checkpoint_every == 0:
                    settle()
                    if wish:
                        stop(wish)
                    if place.first:
                        state.save(run / CHECKPOINT)
                    state.seconds += watch.lap()
                if _due(state.step, settings):
                    settle()
                    validate()
            agreement.close()
        except StopNow:
            stop(signals.caught)
    # Only the first process writes the file, and others may be here before it has.
    row = last if last is not None and not place.first else read_jsonl(run / METRICS)[-1]
    return row | {"best_score": state.best}


def _due(step: int, settings: TrainingSettings) -> bool:
    """Whether a validation follows after a step."""
    return step > 0 and (step % settings.validate_every == 0 or step == settings.steps)


def _network(
    task: Task, settings: TrainingSettings, place: Place, batches: Iterator[Batch]
) -> tuple[nn.Module, Iterator[Batch], str | None]:
    """The network as it is trained, the batches, and what is to be said about it."""
    network, note = task.model, None
    first = next(batches, None) if settings.compile else None
    if first is not None:
        batches = itertools.chain([first], batches)
        part = _parts(first, settings.accumulate)[0]
        network, note = compiled(network, settings.precision, place.device, task.loss, part)
        note = f"torch.compile failed, the network runs as it is: {note}" if note else None
    return in_precision(in_parallel(network, place), settings.precision, place.device), batches, note


def _backward(task: Task, network: nn.Module, batch: Batch, accumulate: int) -> Tensor:
    """Add up the gradients of a batch, part by part; returns its loss."""
    total = torch.zeros((), device=next(iter(batch.values())).device)
    parts = _parts(batch, accumulate)
    for index, part in enumerate(parts):
        with contextlib.ExitStack() as stack:
            if index < len(parts) - 1:  # processes exchange gradients once a step
                for module in network.modules():
                    if isinstance(module, DistributedDataParallel):
                        stack.enter_context(module.no_sync())
            loss = task.loss(network, part) / accumulate
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def _parts(batch: Batch, count: int) -> list[Batch]:
    chunks = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [{name: chunk[index] for name, chunk in chunks.items()} for index in range(count)]


def _seed_step(seed: int, step: int, place: Place) -> None:
    """Seed what a network draws within a step by the step, so that a resumed run draws what it would have drawn."""
    number = int(np.random.SeedSequence([seed, step, place.rank]).generate_state(1)[0])
    # torch.manual_seed seeds the same, but where there is no CUDA it notes a stack trace for later, each time.
    torch.default_generator.manual_seed(number)
    if place.device.type == "cuda":
        torch.cuda.manual_seed(number)


class _Watch:
    """Seconds from lap to lap."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds
