"""Sanity of a training set-up before the hours are spent: the checks, and what they look at."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from codecnn.dataset import Unit
from codecnn.models import FilterNetwork, pick_device
from codecnn.training._forward import in_precision
from codecnn.training.checks import network as net
from codecnn.training.checks.base import Finding, Setup, adam, train_step
from codecnn.training.checks.data import check_codec_error, check_planes, check_qps, check_splits
from codecnn.training.checks.health import check_dead_units, check_modulations, check_updates, first_steps
from codecnn.training.checks.numbers import check_data_untouched, check_determinism, check_float64
from codecnn.training.checks.speed import check_device, check_waiting
from codecnn.training.filter._mix import Mix
from codecnn.training.filter._task import FilterTask, filter_task
from codecnn.training.settings import FilterSettings, LoopSettings
from codecnn.training.task import Batch, Task

SMALL_BATCH, SMALL_PATCH = 2, 32
"""How many patches the checks' own batches have, and their side: enough to tell, and quick with any network."""
LOOKED_AT = 32
"""How many batches' planes are looked at."""

Settings = TypeVar("Settings", bound=LoopSettings)
Check = Callable[[], Finding]
Progress = Callable[[int, int], None]
"""Is told how many checks are done, of how many."""


def check_filter(
    mix: Mix, network: str, options: dict[str, Any], settings: FilterSettings, progress: Progress | None = None
) -> list[Finding]:
    """Every check on what training `network` on the stores of `mix` would do; raises what it would raise at the start.

    Torch's random numbers are left as they were.
    """

    def make(changed: FilterSettings) -> FilterTask:
        return filter_task(mix, network, options, changed)

    def make_small(changed: FilterSettings) -> FilterTask:
        return make(changed.model_copy(update={"patch": SMALL_PATCH, "resident": False}))

    device = pick_device(settings.device)
    machine = check_device(device)  # before there is any work
    training = [unit for store, _ in mix for unit in store.split("train")]
    held = [unit for store, _ in mix for unit in store.units if unit.split != "train"]
    with _seeded(settings, device):
        task = make(settings)
        setup = task_setup(make_small, settings, device, _no_identity(task.model, settings))
        batches = setup.draw(LOOKED_AT)
        checks: list[Check] = [
            lambda: machine,
            lambda: check_splits(training, held),
            lambda: check_codec_error(training),
            lambda: check_planes(batches),
            lambda: check_qps(batches, training),
            lambda: net.check_initial_loss(setup),
            lambda: net.check_last_layer(setup),
            lambda: net.check_evaluation_mode(setup),
            *_task_checks(setup, task, settings, device, training),
        ]
        return _findings(checks, progress)


def check_task(make: Callable[[Settings], Task], settings: Settings, progress: Progress | None = None) -> list[Finding]:
    """The checks that hold for any task, made from settings by `make`: all but those of filters and their pictures."""
    device = pick_device(settings.device)
    machine = check_device(device)
    with _seeded(settings, device):
        task = make(settings)
        setup = task_setup(make, settings, device)
        return _findings([lambda: machine, *_task_checks(setup, task, settings, device, ())], progress)


def _task_checks(
    setup: Setup, task: Task, settings: LoopSettings, device: torch.device, units: Sequence[Unit]
) -> list[Check]:
    # Taken when the first of the three is asked for.
    left = functools.cache(lambda: first_steps(setup, settings))
    return [
        lambda: net.check_gradients(setup),
        lambda: net.check_overfit(setup),
        lambda: check_dead_units(left()),
        lambda: check_modulations(left()),
        lambda: check_updates(left()),
        lambda: net.check_batch_norm(setup),
        lambda: check_float64(replace(setup, loss=task.loss)),
        lambda: check_determinism(setup),
        lambda: check_data_untouched(setup, units),
        lambda: _check_waiting(setup, task, settings, device),
    ]


@contextlib.contextmanager
def _seeded(settings: LoopSettings, device: torch.device) -> Iterator[None]:
    """With torch seeded and the threads of training; its random numbers go on afterwards as if nothing had been."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        yield


def _findings(checks: Sequence[Check], progress: Progress | None) -> list[Finding]:
    findings = []
    for check in checks:
        findings.append(check())
        if progress is not None:
            progress(len(findings), len(checks))
    return findings


def task_setup(
    make: Callable[[Settings], Task], settings: Settings, device: torch.device, no_identity: str | None = None
) -> Setup:
    """The set-up of a task that `make` makes from settings, as the checks see it: with small batches."""
    small = settings.model_copy(update={"batch": SMALL_BATCH, "workers": 0, "accumulate": 1})
    task = make(small)

    def build() -> nn.Module:
        return make(small).model.to(device)

    def draw(count: int) -> list[Batch]:
        return list(task.batches(range(count), 0, 1, device))

    def loss(network: nn.Module, batch: Batch) -> Tensor:
        return task.loss(in_precision(network, settings.precision, device), batch)

    return Setup(build, draw, loss, no_identity, settings.seed)


def _no_identity(model: FilterNetwork, settings: FilterSettings) -> str | None:
    """Why a filter network does not start as the identity, where it does not."""
    if settings.start is not None and settings.start.weights is not None:
        return f"training starts from {settings.start.weights}"
    if getattr(model, "predicts_picture", False):
        return "the network makes the picture itself (output: picture) and does not start as the identity"
    if model.options.get("initialisation") == "torch":
        return "the network starts as torch makes it (initialisation: torch) and not as the identity"
    return None


def _check_waiting(setup: Setup, task: Task, settings: LoopSettings, device: torch.device) -> Finding:
    """The waiting for batches as large, and drawn in the way, that training asks for."""
    model = task.model.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimiser = adam(model)
    batches = task.batches(range(10**6), 0, 1, device)  # more than can be used up while the check lasts
    return check_waiting(
        lambda batch: train_step(setup, model, optimiser, batch), batches, device, prefetched=2 * settings.workers
    )
