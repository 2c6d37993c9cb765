"""The form in which a network trains fastest on this machine: its precision, and whether it is compiled.

Neither can be told beforehand: bfloat16 halves a step where the processor multiplies it and more than doubles it where
it does not, and compiling speeds up one network and slows another (docs/training.md).
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from codecnn.training._forward import compiled, in_precision, untouched
from codecnn.training._waiting import timed
from codecnn.training.distributed import gather
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch

PRECISIONS = ("float32", "bfloat16")
HANDICAP = 1.05
"""How many times faster bfloat16 has to be than float32 to be taken, and a compiled network than one as it is."""
COMPILE_SECONDS = 20.0
"""What compiling is held to take before it has been seen; networks of the zoo took 20 to 70 s."""
COMPILE_GAIN = 0.5
"""The share of a step that is held to be left of it at best; the best seen is 0.56 (docs/training.md)."""
REPEATS = 5
"""Steps that are timed of each form, of which the fastest counts; fewer where the run has few steps."""


@dataclass(frozen=True)
class Form:
    """How a network runs in training."""

    precision: str
    compile: bool

    def __str__(self) -> str:
        return f"{self.precision} compiled" if self.compile else self.precision


@dataclass(frozen=True)
class Timing:
    """What was seen of a form: seconds of a step, infinite where `failure` says why there is none, and of compiling."""

    step: float
    compiling: float = 0.0
    failure: str | None = None


@dataclass(frozen=True)
class Choice:
    """The form that is taken, and the timings that it was taken for; none where nothing was left to choose."""

    form: Form
    seen: Mapping[Form, Timing]

    def __str__(self) -> str:
        """Every form that was tried with its milliseconds a step, and how long compiling took."""
        told = []
        for form, timing in self.seen.items():
            spent = f" after {timing.compiling:.0f} s of compiling" if timing.compiling else ""
            told.append(f"{form} {timing.failure or f'{1000 * timing.step:.3g} ms a step'}{spent}")
        return f"trains in {self.form}" + (f": {', '.join(told)}" if told else "")


def choose(settings: LoopSettings, measure: Callable[[Form], Timing], steps: int, *, halves: bool = True) -> Choice:
    """The fastest of the forms that the settings leave open, for a run of so many steps.

    float32 without compiling is the safe form: what departs from it has to be HANDICAP times faster, for each of the
    two. Compiling is tried where a step of COMPILE_GAIN would pay for it within the run, and never in bfloat16 where
    that is slower than float32 uncompiled; once it is done, its time is spent and only steps count. Networks that
    cannot compute in bfloat16 say so by `halves`.
    """
    precisions = (settings.precision,) if settings.precision != "auto" else PRECISIONS if halves else PRECISIONS[:1]
    allowed = (False, True) if settings.compile == "auto" else (settings.compile,)
    if len(precisions) * len(allowed) == 1:
        return Choice(Form(precisions[0], allowed[0]), {})
    seen = {Form(precision, False): measure(Form(precision, False)) for precision in precisions}
    safe = seen[Form(precisions[0], False)].step
    cost = COMPILE_SECONDS
    for form, timing in sorted(seen.items(), key=lambda item: item[1].step):
        best = min(timing.step for timing in seen.values())
        pays = settings.compile == "auto" and steps * (best - COMPILE_GAIN * timing.step) > cost
        if timing.step <= safe and (pays or settings.compile is True):
            found = seen[Form(form.precision, True)] = measure(Form(form.precision, True))
            cost = found.compiling
    open_to = [form for form in seen if form.compile in allowed]
    return Choice(min(open_to, key=lambda form: seen[form].step * HANDICAP ** _departures(form)), seen)


def _departures(form: Form) -> int:
    return (form.precision != PRECISIONS[0]) + form.compile


def fastest(
    settings: LoopSettings,
    model: nn.Module,
    device: torch.device,
    loss: Callable[[nn.Module, Batch], Tensor],
    part: Batch,
    steps: int,
) -> Choice:
    """Choose by timing `loss` and its gradients on a part of a batch; nothing of the network or of torch changes.

    All processes of a run time together, since the batch norms of a step may wait for each other, and take what the
    first one saw.
    """
    repeats = min(REPEATS, max(2, steps // 100))

    def measure(form: Form) -> Timing:
        found = gather([_measure(form, model, device, loss, part, repeats)])[0]
        return dataclasses.replace(found, step=found.step * settings.accumulate)

    # It has to make samples of ten bits by itself, and bfloat16 has eight.
    halves = not getattr(model, "predicts_picture", False)
    return choose(settings, measure, steps, halves=halves)


def _measure(
    form: Form,
    model: nn.Module,
    device: torch.device,
    loss: Callable[[nn.Module, Batch], Tensor],
    part: Batch,
    repeats: int,
) -> Timing:
    started = time.perf_counter()
    network, failure = compiled(model, form.precision, device, loss, part) if form.compile else (model, None)
    compiling = time.perf_counter() - started if form.compile else 0.0
    if failure is not None:
        return Timing(math.inf, compiling, f"failed ({failure})")
    network = in_precision(network, form.precision, device)

    def step() -> None:
        loss(network, part).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    with untouched(model, device):
        try:
            step()
            return Timing(min(_seconds(step, device) for _ in range(repeats)), compiling)
        except Exception as error:
            return Timing(math.inf, compiling, f"failed ({type(error).__name__})")


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    """Seconds that a step takes: of one thread its processor time, which other processes cannot lengthen.

    Several threads wait for each other, which is time too, and on CUDA the processor waits for the device.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        started = time.process_time()
        step()
        return time.process_time() - started
    return timed(step, device)


def settled(settings: LoopSettings, form: Form | None) -> LoopSettings:
    """The settings with a form, where there is one, in place of what they leave open."""
    if form is None:
        return settings
    compiling = form.compile if settings.compile == "auto" else settings.compile
    return settings.model_copy(update={"precision": form.precision, "compile": compiling})
