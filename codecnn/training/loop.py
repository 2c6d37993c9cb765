"""The training loop, to be read from top to bottom: set-up, steps, checkpoints, validations, and the end of a run."""

import contextlib
import dataclasses
import functools
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from codecnn.base.errors import CodecnnError, ConfigError, StoppedError
from codecnn.base.files import provenance, read_jsonl
from codecnn.base.runtime import Runtime, applied, seed
from codecnn.training.boards import Boards, check_boards
from codecnn.training.checkpoint import State, log, open_run
from codecnn.training.distributed import Agreement, Process, in_parallel, process_group, synchronise_norms
from codecnn.training.execution import fastest, in_precision, training_runtime, try_compile, with_form
from codecnn.training.finite import check_finite
from codecnn.training.monitor import Monitor, Row, Stopwatch, TimedBatches, show_row, write_row
from codecnn.training.optimiser import MovingAverage, make_optimiser, warmup_cosine
from codecnn.training.run_folder import CHECKPOINT, METRICS, held_run_folder, threads_of_run
from codecnn.training.settings import LoopSettings
from codecnn.training.signals import StopNow, StopSignals
from codecnn.training.task import Batch, Task, TrainingConfig


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run.

    Attributes:
        last: Last line of metrics.jsonl.
        best_score: Best score of all validations.
        weights: File of the weights with that score.
        runtime: How the network was computed.
    """

    last: dict[str, Any]
    best_score: float
    weights: Path
    runtime: Runtime


def train(config: TrainingConfig, run: Path | str, *, resume: bool = False, progress: bool = False) -> TrainingResult:
    """Train what a configuration describes; see `train_task`.

    Args:
        config: The configuration, e.g. from `codecnn.api.config.load_config`.
        run: Folder of the run.
        resume: Whether to continue the run in the folder.
        progress: Whether to show progress on stderr.

    Returns:
        The result of the run.

    Raises:
        ConfigError: The configuration cannot be trained, or differs from that of the run to resume, or the folder is in
            use or holds other files.
        StoreError: A store cannot be used, or there is no checkpoint to resume from.
        CodecnnError: Loss or gradient is no longer finite.
        StoppedError: SIGTERM or SIGINT stopped the run after a checkpoint.
    """
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
    """Train the network of a task and keep the weights with the best validation score.

    The folder of the run gets config.json, log.jsonl (events of the run), metrics.jsonl and summary.csv (a row per
    validation), best.safetensors and last.safetensors with their cards, checkpoint.pt and what its boards write. If
    torchrun started several processes, each trains on its part of every batch.

    A resumed run continues from its checkpoint as if it had never stopped; on a CPU the weights are equal bit for bit.
    SIGTERM and SIGINT stop the run after the current step. Settings of torch and of the C library that training needs
    for the whole process are restored at the end, also after an error. While a training runs, it holds the folder:
    another one is refused, and so is a folder with files that are not those of a run.

    Args:
        make_task: Function that constructs the task; called once torch is seeded.
        settings: Settings of the loop.
        run: Folder of the run.
        resume: Whether to continue the run in the folder.
        progress: Whether to show progress on stderr.

    Returns:
        The result of the run.

    Raises:
        ConfigError: The settings cannot be trained, or differ from those of the run to resume, or the folder is in use
            or holds other files.
        StoreError: A store cannot be used, or there is no checkpoint to resume from.
        CodecnnError: Loss or gradient is no longer finite.
        StoppedError: SIGTERM or SIGINT stopped the run after a checkpoint.
    """
    check_boards(settings.boards)
    with process_group(settings.device) as process, held_run_folder(run, process, resume=resume):
        parts = process.world * settings.accumulate
        if settings.batch < parts:
            raise ConfigError(
                f"training.batch {settings.batch} is smaller than processes times accumulate, {parts}: each of these "
                "parts of a batch needs an example"
            )
        # Every process draws the same initial weights, and so does every run with the same seed.
        torch.manual_seed(settings.seed)
        if process.world > 1 and settings.compile == "reduce-overhead":
            raise ConfigError("training.compile reduce-overhead is for one process: set it to true for several")
        # Sums depend on the number of threads, so a resumed run keeps it; for several processes torchrun sets it.
        before = threads_of_run(run) if resume and process.world == 1 else None
        runtime = training_runtime(settings, process.device, before)
        with applied(runtime), _named_operations(settings, process.device):
            trainer = Trainer(make_task(), settings, run, process, runtime, resume=resume, progress=progress)
            return trainer.train()


@contextlib.contextmanager
def _named_operations(settings: LoopSettings, device: torch.device) -> Iterator[None]:
    """Turn the error of an operation without a deterministic algorithm into a ConfigError that names it."""
    try:
        yield
    except RuntimeError as error:
        operation, separator, _ = str(error).partition(" does not have a deterministic implementation")
        if not (settings.deterministic and separator):
            raise
        raise ConfigError(
            f"training.deterministic: {operation} has no deterministic algorithm on {device}: set it to false, or use "
            "another operation in network and loss"
        ) from error


class Trainer:
    """Trains the network of any task and writes the folder of the run.

    `train` is the method to call; it calls `step` for each batch and `save`, `validate` and `stop` between steps.
    """

    def __init__(
        self,
        task: Task,
        settings: LoopSettings,
        run: Path,
        process: Process,
        runtime: Runtime,
        *,
        resume: bool,
        progress: bool,
    ) -> None:
        self.task, self.settings, self.run, self.process = task, settings, run, process
        self.provenance, self.runtime = provenance(), runtime
        self.last_row: Row | None = None

        # Model. A convolution needs all channels of a sample at once: in the memory format channels-last, cuDNN and
        # oneDNN need not transpose them first.
        model = task.model
        model.to(process.device)
        if runtime.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        notes = [synchronise_norms(model, process)]

        # Optimiser, and the moving average of the weights: the weights of one step carry the noise of its batches;
        # their average over about the last 1 / (1 - ema) steps lies closer to the minimum (Polyak and Juditsky 1992).
        optimiser = make_optimiser(model, settings)
        self.parameters = list(model.parameters())  # searching all modules at each step takes long
        averaged = MovingAverage(model, settings.ema) if settings.ema else None
        self.state = State(model, averaged, optimiser, warmup_cosine(optimiser, settings))
        open_run(run, task, settings, self.state, process, resume)

        # Data, and the network in the form in which it is executed.
        model.train()
        batches = self._draw_batches(range(self.state.step, settings.steps))
        self.network, batches, form_notes = self._executed_network(batches)
        notes += form_notes
        self.batches = TimedBatches(batches, process.device)

        # Reports.
        if process.first:
            facts = {"processes": process.world, "device": str(process.device), "threads": torch.get_num_threads()}
            facts |= {"runtime": self.runtime.as_json()}
            log(run, "resumed" if resume else "started", self.state.step, **facts, provenance=self.provenance)
            for note in filter(None, notes):
                log(run, "note", self.state.step, text=note)
        self.bar = tqdm(
            total=settings.steps,
            initial=self.state.step,
            desc="training",
            unit="step",
            disable=None if progress and process.first else True,  # None: shown on a terminal only
        )
        if resume and progress and process.first:
            done, steps = self.state.step, settings.steps
            line = f"continues at step {done + 1} of {steps}" if done < steps else f"already finished: {steps} steps"
            count = f"{runtime.threads} CPU thread{'' if runtime.threads == 1 else 's'}"
            tqdm.write(f"{line}, with {count}" if process.device.type == "cpu" else line, file=sys.stderr)
        self.monitor = Monitor(run, self.state, settings, first=process.first, verbose=progress)
        warn = self.monitor.warn
        self.boards = Boards(settings.boards, run, self.state.reported, warn) if process.first else None
        self.stopwatch = Stopwatch()

        # A second Ctrl-C ends a single process at once; one of several that left at once would leave the others
        # waiting for it.
        self.signals = StopSignals(second_interrupts=process.world == 1)
        self.agreement = Agreement()
        process.leaving.callback(self.agreement.forget)

    def _draw_batches(self, steps: range) -> Iterator[Batch]:
        return self.task.batches(steps, self.process.rank, self.process.world, self.process.device)

    def _executed_network(self, batches: Iterator[Batch]) -> tuple[nn.Module, Iterator[Batch], list[str]]:
        """Choose precision and compilation, and wrap the network accordingly.

        Returns:
            The network as steps call it, the batches, and notes for the log.
        """
        network, notes, requested, device = self.task.model, [], self.settings, self.process.device
        first = next(batches, None) if requested.compile or requested.precision == "auto" else None
        if first is not None:
            batches = itertools.chain([first], batches)
            part = _split(first, requested.accumulate)[0]
            if self.state.form is None:
                choice = fastest(requested, network, device, self.task.loss, part, requested.steps)
                self.state.form = choice.form
                if choice.timings:
                    notes.append(
                        f"precision: {requested.precision}, compile: {requested.compile}: the network {choice}"
                    )
        # The choice is made once, so that a resumed run continues in the form of the run.
        self.settings = settings = with_form(requested, self.state.form)
        compiled = settings.compile if first is not None else False
        if first is not None and settings.compile:
            network, failure = try_compile(
                network, settings.precision, device, self.task.loss, part, compiling=settings.compile
            )
            if failure:
                compiled = False
                notes.append(f"torch.compile failed, the network runs uncompiled: {failure}")
        self.runtime = dataclasses.replace(self.runtime, precision=settings.precision, compile=compiled)
        return in_precision(in_parallel(network, self.process), settings.precision, device), batches, notes

    def train(self) -> TrainingResult:
        """Take all remaining steps, with checkpoints and validations between them.

        Raises:
            StoppedError: A signal stopped the run.
            CodecnnError: Loss or gradient is no longer finite.
        """
        state, settings = self.state, self.settings
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.signals)
            stack.enter_context(self.bar)
            if (boards := self.boards) is not None:
                stack.push(lambda kind, *_: boards.close(finished=kind is None))
            try:
                if self._validation_due() and state.reported < state.step:  # the checkpoint precedes this validation
                    self.validate()
                for batch in self.batches:
                    self.step(batch)
                    # All processes stop after the same step, whichever of them received the signal: one that went on
                    # would wait for the gradients of the others forever.
                    stop_signal = self.agreement.largest(self.signals.caught)
                    if stop_signal or state.step % settings.checkpoint_every == 0:
                        self.settle()
                        if stop_signal:
                            self.stop(stop_signal)
                        self.save()
                    if self._validation_due():
                        self.settle()
                        self.validate()
                self.agreement.close()
            except StopNow:
                self.stop(self.signals.caught)
        # Only the first process writes the file, and the others may get here before it has done so.
        last = read_jsonl(self.run / METRICS)[-1] if self.last_row is None else self.last_row.as_json()
        return TrainingResult(last, state.best, self.run / "best.safetensors", self.runtime)

    def step(self, batch: Batch) -> None:
        """Take one optimiser step. Nothing in it waits for the device, so that the next step is queued meanwhile."""
        state = self.state
        self._seed()
        if self.runtime.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with self.monitor.on_step(self.network):
            loss = self._backward(batch)
            # A few batches have far larger gradients than all others, and one of them could undo many steps.
            norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
            self.monitor.gradient_norm = norm
            state.optimiser.step()
        state.optimiser.zero_grad(set_to_none=True)
        state.schedule.step()
        if state.averaged is not None:
            state.averaged.update_parameters(state.model)
        state.add_loss(loss, norm.detach())
        state.step += 1
        self.bar.update()
        self.monitor.print_progress()

    def _seed(self) -> None:
        """Seed the random numbers of a network (dropout) by the step, so that a resumed run draws the same ones."""
        entropy = [self.settings.seed, self.state.step, self.process.rank]
        number = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        seed(number, self.process.device)

    def _backward(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of a batch, part by part, and return its mean loss."""
        accumulate, count = self.settings.accumulate, _examples(batch)
        total = torch.zeros((), device=next(iter(batch.values())).device)
        for index, part in enumerate(_split(batch, accumulate)):
            with contextlib.ExitStack() as stack:
                # Processes exchange gradients once per step, with the last part.
                if index < accumulate - 1:
                    for module in self.network.modules():
                        if isinstance(module, DistributedDataParallel):
                            stack.enter_context(module.no_sync())
                loss = self.task.loss(self.network, part)
                share = _examples(part) / count  # parts may differ by one example
                (loss * (share * self._weight(count))).backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * share
        return total

    def _weight(self, count: int) -> float:
        """Return the weight of `count` examples of this process in the mean over the processes.

        Raises:
            CodecnnError: The task has returned another number of examples than its share of a batch.
        """
        world, batch = self.process.world, self.settings.batch
        if abs(count * world - batch) >= world:
            raise CodecnnError(
                f"the task returned a batch of {count} examples to one of {world} processes: the batches of all "
                f"processes must have training.batch {batch} examples together, and differ by one example at most"
            )
        weight = self.state.loss_weight = count * world / batch
        return weight

    def settle(self) -> None:
        """Update losses and times; waits for the device.

        Raises:
            CodecnnError: A loss or gradient is not finite.
        """
        state = self.state
        check_finite(state.losses(), state.take_gradient_norms(), state.step, self.settings, self._batch_of)
        lap = self.stopwatch.lap()
        state.training += lap
        state.seconds += lap
        state.waiting += self.batches.take()  # the device has completed all steps, so its events can be read

    def _batch_of(self, step: int) -> Batch:
        """Draw the batch of a step again: it is a function of the task and the step."""
        return next(self._draw_batches(range(step - 1, step)), {})

    def save(self) -> None:
        """Write the checkpoint, after `settle`; waits for the device, from which the weights are copied."""
        if self.process.first:
            self.state.save(self.run / CHECKPOINT)
        self.state.seconds += self.stopwatch.lap()

    def _validation_due(self) -> bool:
        step = self.state.step
        return step > 0 and (step % self.settings.validate_every == 0 or step == self.settings.steps)

    def validate(self) -> None:
        """Validate the network and write metrics, weights and the checkpoint."""
        state = self.state
        state.evaluated.eval()
        # Partial results of a validation cannot be kept: a signal ends it, and a resumed run repeats it.
        # It computes like the commands that use the weights: float32 without TF32, and without timing the algorithms
        # for each size of picture.
        runtime = dataclasses.replace(self.runtime, tf32=False, cudnn_benchmark=False, keep_freed_memory=False)
        with self.signals.at_once(), applied(runtime):
            result = self.task.validate(state.evaluated, self.process.device)  # waits for the device
            pictures = self.task.pictures(state.evaluated, self.process.device) if self.process.first else {}
        state.seconds += self.stopwatch.lap()
        self.last_row = row = Row.of(state, self.settings.batch, self.process.device, result)
        self.monitor.print_progress(row)
        state.start_report()
        better, state.best = result.score > state.best, max(result.score, state.best)
        if self.boards is not None:
            write_row(self.run, row)
            self.monitor.show(self.boards)
            show_row(self.boards, row, pictures, state.evaluated)
            self.bar.set_postfix(loss=f"{row.loss:.4f}", score=f"{result.score:+.4f}")
            card = {
                "training": self.settings.model_dump() | {"runtime": self.runtime.as_json()},
                "provenance": self.provenance,
                "validation": {"step": state.step, "seconds": row.seconds} | result.as_json(),
            }
            for name in ("last", "best") if better else ("last",):
                self.task.save(self.run / f"{name}.safetensors", state.evaluated, card)
            # The checkpoint is written last: after a kill before this line, the run resumes from the previous
            # checkpoint and repeats the validation.
            state.save(self.run / CHECKPOINT)
        state.model.train()
        state.seconds += self.stopwatch.lap()

    def stop(self, number: int) -> NoReturn:
        """Write a checkpoint and end the run with StoppedError, after signal `number`."""
        self.agreement.close()
        name = signal.Signals(number).name
        if self.process.first:
            self.state.save(self.run / CHECKPOINT)  # waits for the device
            log(self.run, "stopped", self.state.step, signal=name)
        raise StoppedError(
            f"stopped by {name} after step {self.state.step}: --resume continues from the checkpoint in {self.run}",
            number,
        )


def _split(batch: Batch, count: int) -> list[Batch]:
    """Split a batch into `count` parts, whose sizes differ by at most one example."""
    chunks = {name: tensor.tensor_split(count) for name, tensor in batch.items()}
    return [{name: chunk[index] for name, chunk in chunks.items()} for index in range(count)]


def _examples(batch: Batch) -> int:
    """Return the number of examples of a batch."""
    return len(next(iter(batch.values())))
