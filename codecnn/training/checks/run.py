"""Run all checks that apply to a training set-up, before hours are spent on it."""

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from codecnn.base.cluster import Progress
from codecnn.base.runtime import applied
from codecnn.dataset import Unit
from codecnn.models import FilterNetwork, pick_device
from codecnn.training.checks import network as net
from codecnn.training.checks.base import Finding, Measured, Setup, adam, check, train_step
from codecnn.training.checks.data import (
    check_codec_error,
    check_data_untouched,
    check_planes,
    check_qps,
    check_splits,
    check_waiting,
)
from codecnn.training.execution import in_precision, random_state_preserved, training_runtime
from codecnn.training.filter.task import FilterTask, Mix, filter_task
from codecnn.training.settings import FilterSettings, LoopSettings
from codecnn.training.task import Batch, Task

SMALL_BATCH, SMALL_PATCH = 2, 32
"""Patches of a batch for checks, and their width and height: quick with any network."""
STEP_BATCH, STEP_PATCH = 8, 48
"""Largest batch and patch of the first steps.

Units die of noisy gradients: with a recipe for 8 patches of 48x48, up to 62 % of the units of a layer died in 300 steps
of 2 patches of 32x32, and 2 % with the batches of the run (docs/research/checks.md).
"""
CHECKED_BATCHES = 32
"""Batches whose planes are checked."""
LOAD_BOUND = 0.6
"""Largest mean load per processor over a minute; a second busy process can make a step several times slower."""
OTHERS_BYTES = 2**30
"""Bytes of GPU memory that may be in use; more than what CUDA itself takes (about half a GiB)."""
UTILISATION_BOUND = 10
"""Largest GPU utilisation in percent while this process runs no kernels."""

Settings = TypeVar("Settings", bound=LoopSettings)
Check = Callable[[], Finding]


def check_filter(
    mix: Mix, network: str, options: dict[str, Any], settings: FilterSettings, progress: Progress | None = None
) -> list[Finding]:
    """Run every check on the training of a filter network. The random state of torch is preserved.

    Args:
        mix: Stores and their shares of the patches.
        network: Name of the architecture.
        options: Options of the architecture.
        settings: Settings of the run.
        progress: Callback for progress, or None.

    Returns:
        The findings.

    Raises:
        CodecnnError: Training could not start; the error is the one that training would raise.
    """

    def make(changed: FilterSettings) -> FilterTask:
        return filter_task(mix, network, options, changed)

    def make_small(changed: FilterSettings) -> FilterTask:
        return make(changed.model_copy(update={"patch": SMALL_PATCH, "resident": False}))

    def make_steps(changed: FilterSettings) -> FilterTask:
        return make(changed.model_copy(update={"patch": min(settings.patch, STEP_PATCH), "resident": False}))

    device = pick_device(settings.device)
    machine = check_device(device)  # before this process uses the device
    training = [unit for store, _ in mix for unit in store.split("train")]
    held = [unit for store, _ in mix for unit in store.units if unit.split != "train"]
    with _seeded(settings, device):
        task = make(settings)
        setup = task_setup(make_small, settings, device, _no_identity(task.model, settings))
        stepping = task_setup(make_steps, settings, device, batch=min(settings.batch, STEP_BATCH))
        batches = setup.draw(CHECKED_BATCHES)
        checks: list[Check] = [
            lambda: machine,
            lambda: check_splits(training, held),
            lambda: check_codec_error(training),
            lambda: check_planes(batches),
            lambda: check_qps(batches, training),
            lambda: net.check_initial_loss(setup),
            lambda: net.check_last_layer(setup),
            lambda: net.check_evaluation_mode(setup),
            *_task_checks(setup, stepping, task, settings, machine, training),
        ]
        return _findings(checks, progress)


def check_task(make: Callable[[Settings], Task], settings: Settings, progress: Progress | None = None) -> list[Finding]:
    """Run the checks that apply to any task, i.e. all but those of filters and their pictures.

    Args:
        make: Function that constructs the task from settings.
        settings: Settings of the run.
        progress: Callback for progress, or None.

    Returns:
        The findings.
    """
    device = pick_device(settings.device)
    machine = check_device(device)
    with _seeded(settings, device):
        task = make(settings)
        setup = task_setup(make, settings, device)
        stepping = task_setup(make, settings, device, batch=min(settings.batch, STEP_BATCH))
        return _findings([lambda: machine, *_task_checks(setup, stepping, task, settings, machine, ())], progress)


def _task_checks(
    setup: Setup, stepping: Setup, task: Task, settings: LoopSettings, machine: Finding, units: Sequence[Unit]
) -> list[Check]:
    """List the checks of any task; `stepping` is the set-up of the first steps, `machine` the finding of the device."""
    # The steps are taken once, for the first of the three checks that use them.
    steps = functools.cache(lambda: net.first_steps(stepping, settings))
    return [
        lambda: net.check_gradients(setup),
        lambda: net.check_overfit(setup),
        lambda: net.check_dead_units(steps()),
        lambda: net.check_modulations(steps()),
        lambda: net.check_updates(steps()),
        lambda: net.check_batch_norm(setup),
        lambda: net.check_float64(replace(setup, loss=task.loss)),
        lambda: net.check_determinism(setup),
        lambda: check_data_untouched(setup, units),
        lambda: _check_waiting(setup, task, settings, machine),
    ]


@contextlib.contextmanager
def _seeded(settings: LoopSettings, device: torch.device) -> Iterator[None]:
    """Apply the runtime of training and seed torch; both are restored on exit."""
    with (
        applied(training_runtime(settings, device)),
        random_state_preserved(device),
    ):
        torch.manual_seed(settings.seed)
        yield


def _findings(checks: Sequence[Check], progress: Progress | None) -> list[Finding]:
    findings = []
    for run_check in checks:
        findings.append(run_check())
        if progress is not None:
            progress(len(findings), len(checks))
    return findings


def task_setup(
    make: Callable[[Settings], Task],
    settings: Settings,
    device: torch.device,
    no_identity: str | None = None,
    batch: int = SMALL_BATCH,
) -> Setup:
    """Return the set-up of a task as the checks see it, with small batches.

    Args:
        make: Function that constructs the task from settings.
        settings: Settings of the run.
        device: Device of networks and batches.
        no_identity: Why the network does not start as the identity, or None.
        batch: Number of patches of a batch.
    """
    small = settings.model_copy(update={"batch": batch, "workers": 0, "accumulate": 1})
    task = make(small)

    def build() -> nn.Module:
        return make(small).model.to(device)

    def draw(count: int) -> list[Batch]:
        return list(task.batches(range(count), 0, 1, device))

    def loss(network: nn.Module, batch: Batch) -> Tensor:
        return task.loss(in_precision(network, settings.precision, device), batch)

    return Setup(build, draw, loss, no_identity, settings.seed)


def _no_identity(model: FilterNetwork, settings: FilterSettings) -> str | None:
    """Return why a filter network does not start as the identity, or None if it does."""
    if settings.start is not None and settings.start.weights is not None:
        return f"training starts from {settings.start.weights}"
    if model.predicts_picture:
        return "the network predicts the picture itself (output: picture) and does not start as the identity"
    if model.options.get("initialisation") == "torch":
        return "the network has the initial weights of torch (initialisation: torch) and does not start as the identity"
    return None


def _check_waiting(setup: Setup, task: Task, settings: LoopSettings, machine: Finding) -> Finding:
    """Check the waiting for batches of the size and kind that training uses, unless others use the device."""
    if machine.verdict == "note":
        return Finding("waiting for data", "skipped", "other processes use the device, so times mean little")
    device = pick_device(settings.device)
    model = task.model.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimiser = adam(model)
    batches = task.batches(range(10**6), 0, 1, device)  # more than the check can use
    return check_waiting(
        lambda batch: train_step(setup, model, optimiser, batch), batches, device, prefetched=2 * settings.workers
    )


def check_device(device: torch.device) -> Finding:
    """Check that the GPU is idle and no other process uses its memory, or, without a GPU, that the processors are idle.

    To be called before this process uses the device.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return judge_gpu(total - free - torch.cuda.memory_reserved(device), total, gpu_utilisation(device))
    return judge_load(os.getloadavg()[0], os.cpu_count() or 1)


@check("device", "another process uses this GPU: nvidia-smi names it; choose another one with training.device", "note")
def judge_gpu(used: int, total: int, utilisation: int | None) -> Measured:
    """Judge a GPU.

    Args:
        used: Bytes of its memory in use, without those of torch in this process.
        total: Bytes of its memory.
        utilisation: Percent of the time in which kernels run, or None if unknown.
    """
    busy = utilisation is not None and utilisation > UTILISATION_BOUND
    measured = f"GPU: {used / 2**30:.2f} of {total / 2**30:.0f} GiB in use before training"
    measured += "" if utilisation is None else f", busy {utilisation} % of the time"
    return used <= OTHERS_BYTES and not busy, measured


@check("device", "other processes are running: measured speeds mean little, and training shares the processors", "note")
def judge_load(load: float, processors: int) -> Measured:
    """Judge the mean number of runnable processes over a minute for a number of processors."""
    return load <= LOAD_BOUND * processors, f"CPU: load {load:.2f} on {processors} processors"


def gpu_utilisation(device: torch.device) -> int | None:
    """Return the recent utilisation of a GPU in percent from nvidia-smi, or None if that does not report it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--id=GPU-{uuid}"]
    try:
        answer = subprocess.run([program, *query], capture_output=True, text=True, timeout=10, check=True)
        return int(answer.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
