"""The training loop, from top to bottom."""

import contextlib
import functools
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from codecnn.errors import CodecnnError, ConfigError, StoppedError
from codecnn.runs import provenance, read_jsonl
from codecnn.training._allocator import keep_freed_memory
from codecnn.training._eyes import Eyes
from codecnn.training._fastest import fastest, settled
from codecnn.training._forward import compiled, in_precision
from codecnn.training._metrics_log import Row, write_board, write_row
from codecnn.training._optimiser import make_optimiser
from codecnn.training._schedule import warmup_cosine
from codecnn.training._signals import StopNow, StopSignals
from codecnn.training._waiting import TimedBatches, Watch
from codecnn.training.checkpoint import CHECKPOINT, METRICS, State, log, open_run
from codecnn.training.distributed import Agreement, Process, in_parallel, joined, synchronise_norms
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch, Task, TrainingConfig


@dataclass(frozen=True)
class TrainingResult:
    """Where a run ended: its last line of metrics.jsonl, the best score of all its validations, the weights of that."""

    last: dict[str, Any]
    best_score: float
    weights: Path


def train(config: TrainingConfig, run: Path | str, *, resume: bool = False, progress: bool = False) -> TrainingResult:
    """Train what a configuration describes, in the folder `run`; see `train_task`."""
    make_task = functools.partial(config.make_task, resume=resume)
    return train_task(make_task, config.training, Path(run), resume=resume, progress=progress)


def train_task(
    make_task: Callable[[], Task],
    settings: LoopSettings,
    run: Path,
    *,
    resume: bool = False,
    progress: bool = False,
) -> TrainingResult:
    """Train the network of the task that `make_task` makes once torch is seeded, and keep what validates best.

    The folder `run` gets config.json, log.jsonl (what happened to the run), metrics.jsonl and summary.csv (a row a
    validation), best.safetensors and last.safetensors with their cards, checkpoint.pt and TensorBoard's events. Started
    by torchrun, each process trains on its part of every batch.

    With `resume` the run goes on from its checkpoint as if it had never stopped: on a CPU to the same weights, bit for
    bit. SIGTERM and SIGINT write a checkpoint after the step that is under way and raise StoppedError. Raises
    ConfigError and StoreError for what cannot be trained or resumed, CodecnnError when the loss is no longer finite.
    """
    with joined(settings.device) as process:
        parts = process.world * settings.accumulate
        if settings.batch % parts:
            raise ConfigError(
                f"training.batch {settings.batch} is not a multiple of processes times accumulate, {parts}"
            )
        # Every process draws the same first weights, and so does every run of one seed.
        torch.manual_seed(settings.seed)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        # Patches have one size, so that what cuDNN finds out about its algorithms in the first step pays in all others.
        torch.backends.cudnn.benchmark = process.device.type == "cuda"
        if process.device.type == "cpu":
            keep_freed_memory()
        return Trainer(make_task(), settings, run, process, resume=resume, progress=progress).train()


class Trainer:
    """Trains the network of a task, whatever the task is, and writes the folder of the run.

    `train` is all there is to call; it takes a `step` a batch, and between steps may `save`, `validate` and `stop`.
    """

    def __init__(
        self, task: Task, settings: LoopSettings, run: Path, process: Process, *, resume: bool, progress: bool
    ) -> None:
        self.task, self.settings, self.run, self.process = task, settings, run, process
        self.made_by = provenance()
        self.last: Row | None = None

        model = task.model
        model.to(process.device)
        # A convolution needs all channels of a sample at once. Where they lie side by side, cuDNN and oneDNN need not
        # transpose them first: 17 to 23 % of a step on a CPU (docs/training.md).
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        notes = [synchronise_norms(model, process)]
        optimiser = make_optimiser(model, settings)
        # The weights of one step are off by the noise of its batches; their average over about the last 1 / (1 - ema)
        # steps lies closer to the minimum (Polyak and Juditsky 1992), and is what is validated and kept.
        average = get_ema_multi_avg_fn(settings.ema)  # type: ignore[no-untyped-call]
        averaged = AveragedModel(model, multi_avg_fn=average) if settings.ema else None
        self.state = State(model, averaged, optimiser, warmup_cosine(optimiser, settings))
        open_run(run, task, settings, self.state, process, resume)

        model.train()
        batches = task.batches(range(self.state.step, settings.steps), process.rank, process.world, process.device)
        self.network, batches, told = self._as_it_runs(batches)
        notes += told
        if process.first:
            facts = {"processes": process.world, "device": str(process.device), "threads": torch.get_num_threads()}
            log(run, "resumed" if resume else "started", self.state.step, **facts, provenance=self.made_by)
            for note in filter(None, notes):
                log(run, "note", self.state.step, text=note)

        # Somebody at a keyboard may press Ctrl-C twice; one of several processes that left at once would leave the
        # others waiting for it.
        self.signals = StopSignals(impatient=process.world == 1)
        self.agreement = Agreement()
        # Events of steps that come again would otherwise be there twice.
        self.board = SummaryWriter(str(run), purge_step=self.state.reported + 1) if process.first else None
        self.bar = tqdm(
            total=settings.steps,
            initial=self.state.step,
            desc="training",
            unit="step",
            disable=None if progress and process.first else True,  # None: where there is a terminal
        )
        self.eyes = Eyes(run, self.state, settings, first=process.first, speaking=progress)
        self.batches = TimedBatches(batches, process.device)
        self.watch = Watch()

    def _as_it_runs(self, batches: Iterator[Batch]) -> tuple[nn.Module, Iterator[Batch], list[str]]:
        """The network compiled, in parallel and in its precision, the batches, and what is to be said about it."""
        network, notes, asked, device = self.task.model, [], self.settings, self.process.device
        first = next(batches, None) if asked.compile or asked.precision == "auto" else None
        if first is not None:
            batches = itertools.chain([first], batches)
            part = _parts(first, asked.accumulate)[0]
            if self.state.form is None:
                choice = fastest(asked, network, device, self.task.loss, part, asked.steps)
                self.state.form = choice.form
                if choice.seen:
                    notes.append(f"precision: {asked.precision}, compile: {asked.compile}: the network {choice}")
        # What is left open is settled once, so that a run that was stopped goes on in the form that it had.
        self.settings = settings = settled(asked, self.state.form)
        if first is not None and settings.compile:
            network, failure = compiled(network, settings.precision, device, self.task.loss, part)
            if failure:
                notes.append(f"torch.compile failed, the network runs as it is: {failure}")
        return in_precision(in_parallel(network, self.process), settings.precision, device), batches, notes

    def train(self) -> TrainingResult:
        """Take all steps that are left, with what is due after each. Raises StoppedError after a signal."""
        state, settings = self.state, self.settings
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.signals)
            stack.enter_context(self.bar)
            if self.board is not None:
                stack.enter_context(self.board)
            try:
                if self._validation_due() and state.reported < state.step:  # the checkpoint is from just before it
                    self.validate()
                for batch in self.batches:
                    self.step(batch)
                    # All processes leave after the same step, whichever of them was signalled: one that went on alone
                    # would wait for the others' gradients for ever.
                    wish = self.agreement.largest(self.signals.caught)
                    if wish or state.step % settings.checkpoint_every == 0:
                        self.settle()
                        if wish:
                            self.stop(wish)
                        self.save()
                    if self._validation_due():
                        self.settle()
                        self.validate()
                self.agreement.close()
            except StopNow:
                self.stop(self.signals.caught)
        # Only the first process writes the file, and others may be here before it has.
        last = read_jsonl(self.run / METRICS)[-1] if self.last is None else self.last.as_json()
        return TrainingResult(last, state.best, self.run / "best.safetensors")

    def step(self, batch: Batch) -> None:
        """One step of the optimiser. Nothing in it waits for the device, so that the next one is queued meanwhile."""
        state = self.state
        self._seed()
        with self.eyes.on_step(self.network):
            self._backward(batch)
            # A few batches have gradients far larger than all others, and one of them could undo many steps.
            self.eyes.norm = nn.utils.clip_grad_norm_(state.model.parameters(), self.settings.clip)
            state.optimiser.step()
        state.optimiser.zero_grad(set_to_none=True)
        state.schedule.step()
        if state.averaged is not None:
            state.averaged.update_parameters(state.model)
        state.step += 1
        self.bar.update()
        self.eyes.line()

    def _seed(self) -> None:
        """Seed what a network draws within a step (dropout) by the step, so that a resumed run draws it again."""
        entropy = [self.settings.seed, self.state.step, self.process.rank]
        number = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        # torch.manual_seed seeds the same, but where there is no CUDA it notes a stack trace for later, each time.
        torch.default_generator.manual_seed(number)
        if self.process.device.type == "cuda":
            torch.cuda.manual_seed(number)

    def _backward(self, batch: Batch) -> None:
        """Add up the gradients of a batch, part by part, and note its loss."""
        accumulate = self.settings.accumulate
        total = torch.zeros((), device=next(iter(batch.values())).device)
        for index, part in enumerate(_parts(batch, accumulate)):
            with contextlib.ExitStack() as stack:
                # Processes exchange gradients once a step, with the last part.
                if index < accumulate - 1:
                    for module in self.network.modules():
                        if isinstance(module, DistributedDataParallel):
                            stack.enter_context(module.no_sync())
                loss = self.task.loss(self.network, part) / accumulate
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.state.add_loss(total)

    def settle(self) -> None:
        """Bring losses and times up to date. Raises CodecnnError where a loss is not finite."""
        state = self.state
        finite = torch.isfinite(state.losses())  # waits for the device: the losses are copied from there
        if not bool(finite.all()):
            raise CodecnnError(f"the loss is no longer finite at step {state.step}: lower training.learning_rate")
        lap = self.watch.lap()
        state.training += lap
        state.seconds += lap
        state.waiting += self.batches.take()  # the device has done all steps: its events can be read

    def save(self) -> None:
        """Write the checkpoint, after `settle`; the device is waited for, since the weights are copied from there."""
        if self.process.first:
            self.state.save(self.run / CHECKPOINT)
        self.state.seconds += self.watch.lap()

    def _validation_due(self) -> bool:
        step = self.state.step
        return step > 0 and (step % self.settings.validate_every == 0 or step == self.settings.steps)

    def validate(self) -> None:
        """Measure the network that is kept, write what was found, and the weights and the checkpoint with it."""
        state = self.state
        state.kept.eval()
        # What a validation has found so far cannot be kept: a signal ends it, and a resumed run begins it again.
        with self.signals.at_once():
            result = self.task.validate(state.kept, self.process.device)  # waits for the device: figures are read
            pictures = self.task.pictures(state.kept, self.process.device) if self.process.first else {}
        state.seconds += self.watch.lap()
        self.last = row = Row.of(state, self.settings.batch, self.process.device, result)
        self.eyes.line(row)
        state.start_report()
        better, state.best = result.score > state.best, max(result.score, state.best)
        if self.board is not None:
            write_row(self.run, row)
            self.eyes.write(self.board)
            write_board(self.board, row, pictures, state.kept)
            self.bar.set_postfix(loss=f"{row.loss:.4f}", score=f"{result.score:+.4f}")
            card = {
                "training": self.settings.model_dump(),
                "provenance": self.made_by,
                "validation": {"step": state.step, "seconds": row.seconds} | result.as_json(),
            }
            for name in ("last", "best") if better else ("last",):
                self.task.save(self.run / f"{name}.safetensors", state.kept, card)
            # The last file, and it waits for the device. A kill before it leaves the checkpoint before this validation,
            # which then comes again.
            state.save(self.run / CHECKPOINT)
        state.model.train()
        state.seconds += self.watch.lap()

    def stop(self, number: int) -> NoReturn:
        """Write a checkpoint and end the run with StoppedError, as a signal asked for."""
        # An exchange that is under way holds the process group, and so its threads, beyond the end of `joined`.
        self.agreement.close()
        name = signal.Signals(number).name
        if self.process.first:
            self.state.save(self.run / CHECKPOINT)  # waits for the device
            log(self.run, "stopped", self.state.step, signal=name)
        raise StoppedError(
            f"stopped by {name} after step {self.state.step}: --resume goes on from the checkpoint in {self.run}",
            number,
        )


def _parts(batch: Batch, count: int) -> list[Batch]:
    chunks = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [{name: chunk[index] for name, chunk in chunks.items()} for index in range(count)]
