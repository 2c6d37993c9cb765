"""Execution of the network in training: precision, compilation, and the choice of the fastest form.

Which form is fastest cannot be known beforehand: bfloat16 is faster only on processors that multiply it, and compiling
speeds up some networks and slows down others. So `fastest` times the forms that the settings leave open.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from codecnn.base.runtime import Compile, Runtime, default_threads
from codecnn.models import FilterNetwork
from codecnn.training.distributed import gather
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch

PRECISIONS = ("float32", "bfloat16")
HANDICAP = 1.05
"""Factor by which bfloat16 has to be faster than float32, and a compiled network faster than an uncompiled one."""
COMPILE_SECONDS = 20.0
"""Assumed duration of the first compilation."""
COMPILE_GAIN = 0.5
"""Assumed duration of a compiled step at best, as a share of an uncompiled one."""
REPEATS = 5
"""Timed steps of each form, of which the fastest counts; short runs time fewer."""

Loss = Callable[[nn.Module, Batch], Tensor]


def training_runtime(settings: LoopSettings, device: torch.device, threads: int | None = None) -> Runtime:
    """Return the runtime that the settings ask for on a device.

    Args:
        settings: Settings of the run, of which precision and compile may be "auto".
        device: Device of the run.
        threads: CPU threads of the run that is resumed, if known: used unless the settings name a number.
    """
    if settings.threads is not None:
        threads = settings.threads
    elif threads is None:
        threads = default_threads()
    deterministic = settings.deterministic or torch.are_deterministic_algorithms_enabled()
    return Runtime(
        device=str(device),
        precision=settings.precision,
        tf32=settings.tf32,
        compile=settings.compile,
        threads=threads,
        deterministic=deterministic,
        # All patches have one size, so the timing at the first step pays off at all others. It chooses other algorithms
        # in another run.
        cudnn_benchmark=device.type == "cuda" and not deterministic,
        keep_freed_memory=device.type == "cpu",
    )


class Autocast(nn.Module):
    """Wrapper that runs a network under autocast to bfloat16 and returns float32, in which the loss is computed."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._device = device.type

    def forward(self, *inputs: Any) -> Any:
        """Run the network and convert its bfloat16 outputs to float32."""
        with torch.autocast(self._device, torch.bfloat16):
            output = self.module(*inputs)
        return tree_map_only(Tensor, lambda value: value.float() if value.dtype == torch.bfloat16 else value, output)


def in_precision(model: nn.Module, precision: str, device: torch.device) -> nn.Module:
    """Return the network, wrapped in `Autocast` if the precision is "bfloat16"."""
    return Autocast(model, device) if precision == "bfloat16" else model


@contextlib.contextmanager
def forward_hooks(modules: Mapping[str, nn.Module], call: Callable[[str, Any], Any]) -> Iterator[None]:
    """Call `call(name, output)` after each of the modules runs, within the context.

    A result other than None replaces the output of the module.
    """

    def hook(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        return lambda module, inputs, output: call(name, output)

    with contextlib.ExitStack() as stack:
        for name, module in modules.items():
            stack.enter_context(module.register_forward_hook(hook(name)))
        yield


def random_state_preserved(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Restore the random states of the CPU and of a device on exit from the context."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


@contextlib.contextmanager
def state_preserved(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore the buffers of a network and the random state of torch on exit, and release all gradients."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with random_state_preserved(device):
        yield
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


def try_compile(
    model: nn.Module, precision: str, device: torch.device, loss: Loss, batch: Batch, *, compiling: Compile = True
) -> tuple[nn.Module, str | None]:
    """Compile a network and verify that it computes a loss and its gradients for `batch`.

    Compilers fail only when the network runs, forwards or backwards. The state of the network is preserved.

    Args:
        model: The network.
        precision: "float32" or "bfloat16".
        device: Device of network and batch.
        loss: Loss of the task.
        batch: A batch.
        compiling: "reduce-overhead" compiles with CUDA graphs, which need batches of one shape.

    Returns:
        The compiled network and None, or the network itself and the reason of the failure.
    """
    with state_preserved(model, device):
        try:
            graphs: dict[str, Any] = {"mode": compiling, "dynamic": False} if isinstance(compiling, str) else {}
            network: nn.Module = torch.compile(model, **graphs)  # type: ignore[assignment]
            loss(in_precision(network, precision, device), batch).backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            return model, f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
    return network, None


@dataclass(frozen=True)
class Form:
    """Form in which a network is executed in training: its precision, and whether it is compiled."""

    precision: str
    compile: bool | Literal["reduce-overhead"]

    def __str__(self) -> str:
        return f"{self.precision} compiled" if self.compile else self.precision


@dataclass(frozen=True)
class Timing:
    """Measured speed of a form.

    Attributes:
        step: Seconds per step; infinite if the form failed.
        compiling: Seconds spent on compiling.
        failure: Reason of the failure, or None.
    """

    step: float
    compiling: float = 0.0
    failure: str | None = None


@dataclass(frozen=True)
class Choice:
    """The chosen form and the timings that led to it; no timings if the settings left nothing open."""

    form: Form
    timings: Mapping[Form, Timing]

    def __str__(self) -> str:
        """Describe the choice with the milliseconds per step and the compile time of every form that was tried."""
        parts = []
        for form, timing in self.timings.items():
            compiling = f" after {timing.compiling:.0f} s of compiling" if timing.compiling else ""
            parts.append(f"{form} {timing.failure or f'{1000 * timing.step:.3g} ms per step'}{compiling}")
        return f"trains in {self.form}" + (f": {', '.join(parts)}" if parts else "")


def choose(
    settings: LoopSettings, measure: Callable[[Form], Timing], steps: int, *, supports_bfloat16: bool = True
) -> Choice:
    """Choose the fastest of the forms that the settings leave open.

    float32 without compiling is the safe form: bfloat16 and compiling each have to be HANDICAP times faster. A form is
    compiled for timing only if a step of COMPILE_GAIN would save more time within the run than compiling costs, and
    never in bfloat16 if that is slower than float32 uncompiled. After compiling, its cost is spent and only the step
    counts.

    Args:
        settings: Settings of the run, of which precision and compile may be "auto".
        measure: Function that times a form.
        steps: Steps of the run.
        supports_bfloat16: Whether the network can compute in bfloat16.

    Returns:
        The choice with all timings.
    """
    if settings.precision != "auto":
        precisions: tuple[str, ...] = (settings.precision,)
    else:
        precisions = PRECISIONS if supports_bfloat16 else PRECISIONS[:1]
    compiled_form: bool | Literal["reduce-overhead"] = True if settings.compile == "auto" else settings.compile
    allowed = (False, True) if settings.compile == "auto" else (compiled_form,)
    if len(precisions) * len(allowed) == 1:
        return Choice(Form(precisions[0], allowed[0]), {})
    uncompiled = {Form(precision, False): measure(Form(precision, False)) for precision in precisions}
    timings = dict(uncompiled)
    safe = uncompiled[Form(precisions[0], False)].step
    compile_cost = COMPILE_SECONDS
    for form, timing in sorted(uncompiled.items(), key=lambda item: item[1].step):
        fastest_step = min(other.step for other in timings.values())
        pays = settings.compile == "auto" and steps * (fastest_step - COMPILE_GAIN * timing.step) > compile_cost
        if timing.step <= safe and (pays or settings.compile not in (False, "auto")):
            faster = Form(form.precision, compiled_form)
            timings[faster] = measure(faster)
            compile_cost = timings[faster].compiling
    candidates = [form for form in timings if form.compile in allowed]
    return Choice(min(candidates, key=lambda form: timings[form].step * HANDICAP ** _departures(form)), timings)


def _departures(form: Form) -> int:
    """Count the differences between a form and the safe form."""
    return (form.precision != PRECISIONS[0]) + bool(form.compile)


def fastest(
    settings: LoopSettings, model: nn.Module, device: torch.device, loss: Loss, part: Batch, steps: int
) -> Choice:
    """Choose a form by timing the loss and its gradients on a part of a batch; preserves the state of the network.

    All processes of a run time together, since the batch norms of a step may wait for each other, and use the timings
    of the first process.

    Args:
        settings: Settings of the run.
        model: The network.
        device: Device of network and batch.
        loss: Loss of the task.
        part: A part of the first batch, as large as one accumulation step.
        steps: Steps of the run.

    Returns:
        The choice with all timings.
    """
    repeats = min(REPEATS, max(2, steps // 100))

    def measure(form: Form) -> Timing:
        timing = gather([_measure(form, model, device, loss, part, repeats)])[0]
        return dataclasses.replace(timing, step=timing.step * settings.accumulate)

    # A network that predicts the picture itself produces 10-bit samples, and bfloat16 has 8 bits.
    supports_bfloat16 = not (isinstance(model, FilterNetwork) and model.predicts_picture)
    return choose(settings, measure, steps, supports_bfloat16=supports_bfloat16)


def _measure(form: Form, model: nn.Module, device: torch.device, loss: Loss, part: Batch, repeats: int) -> Timing:
    started = time.perf_counter()
    network, failure = model, None
    if form.compile:
        network, failure = try_compile(model, form.precision, device, loss, part, compiling=form.compile)
    compiling = time.perf_counter() - started if form.compile else 0.0
    if failure is not None:
        return Timing(math.inf, compiling, f"failed ({failure})")
    network = in_precision(network, form.precision, device)

    def step() -> None:
        loss(network, part).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    with state_preserved(model, device):
        try:
            step()
            return Timing(min(_step_seconds(step, device) for _ in range(repeats)), compiling)
        except Exception as error:
            return Timing(math.inf, compiling, f"failed ({type(error).__name__})")


def _step_seconds(step: Callable[[], object], device: torch.device) -> float:
    """Time a step: processor time for a single thread, which other processes cannot lengthen, else wall time.

    Several threads wait for each other, and on CUDA the processor waits for the device; both count.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        started = time.process_time()
        step()
        return time.process_time() - started
    return timed(step, device)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Return the wall time of `work` in seconds, including the work that it queues on the device."""
    wait = (lambda: None) if device.type == "cpu" else lambda: torch.get_device_module(device).synchronize(device)
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


def with_form(settings: LoopSettings, form: Form | None) -> LoopSettings:
    """Return the settings with precision and compile of a form in place of what they leave open."""
    if form is None:
        return settings
    compiling = form.compile if settings.compile == "auto" else settings.compile
    return settings.model_copy(update={"precision": form.precision, "compile": compiling})
