"""Sanity of a training set-up before the hours are spent: the checks, in the order in which they help most."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.ctu.loader import TrainingBatches, iterate
from codecnn.ctu.resident import ResidentBatches
from codecnn.ctu.store import Store, Unit
from codecnn.models import FilterNetwork, create_model, freeze, load_partial
from codecnn.training.checks_base import Batch, Finding, Setup, adam, train_step
from codecnn.training.checks_data import check_codec_error, check_planes, check_qps, check_splits
from codecnn.training.checks_network import (
    check_batch_norm,
    check_evaluation_mode,
    check_gradients,
    check_initial_loss,
    check_last_layer,
    check_overfit,
)
from codecnn.training.checks_numbers import check_data_untouched, check_determinism, check_float64
from codecnn.training.checks_speed import check_device, check_waiting
from codecnn.training.loop import filter_loss, pick_device
from codecnn.training.mix import Mix
from codecnn.training.settings import TrainingSettings

SMALL_BATCH, SMALL_PATCH = 2, 32
"""Patches of the checks' own batches, and their side: enough to tell, and quick with any network."""
LOOKED_AT = 32
"""Batches whose planes are looked at."""


def check_training(
    data: Store | Mix,
    network: str,
    options: dict[str, Any],
    settings: TrainingSettings,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Every check on what `train` would do with the same arguments; raises what it would raise before its first step.

    Torch's random numbers are left as they were. `progress` is told how many checks are done, of how many.
    """
    device = pick_device(settings.device)
    idle = check_device(device)  # before there is any work
    mix: Mix = [(data, 1.0)] if isinstance(data, Store) else data
    training = [unit for store, _ in mix for unit in store.split("train")]
    held = [unit for store, _ in mix for unit in store.units if unit.record["split"] != "train"]
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        setup = filter_setup(mix, network, options, settings, device)
        batches = [setup.batch(index) for index in range(LOOKED_AT)]
        checks: Sequence[Callable[[], Finding]] = (
            lambda: idle,
            lambda: check_splits(training, held),
            lambda: check_codec_error(training),
            lambda: check_planes(batches),
            lambda: check_qps(batches, training),
            lambda: check_initial_loss(setup),
            lambda: check_gradients(setup),
            lambda: check_overfit(setup),
            lambda: check_last_layer(setup),
            lambda: check_evaluation_mode(setup),
            lambda: check_batch_norm(setup),
            lambda: check_float64(setup),
            lambda: check_determinism(setup),
            lambda: check_data_untouched(setup, training),
            lambda: _check_waiting(setup, mix, settings, device),
        )
        findings = []
        for check in checks:
            findings.append(check())
            progress(len(findings), len(checks))
    return findings


def filter_setup(
    mix: Mix, network: str, options: dict[str, Any], settings: TrainingSettings, device: torch.device
) -> Setup:
    """The set-up of a filter's training, as the checks see it."""

    def build() -> nn.Module:
        return _started(create_model(network, **options), settings).to(device)

    model = create_model(network, **options)
    no_identity = None
    if settings.start is not None:
        no_identity = f"training starts from {settings.start.weights}"
    elif getattr(model, "predicts_picture", False):
        no_identity = "the network makes the picture itself and does not start as the identity"
    data = _batches(mix, model, settings.model_copy(update={"batch": SMALL_BATCH, "patch": SMALL_PATCH}))

    def batch(index: int) -> Batch:
        return {name: tensor.to(device) for name, tensor in data[index].items()}

    def loss(made: nn.Module, batch: Batch) -> Tensor:
        return filter_loss(made, batch, settings.weighting)

    return Setup(build, batch, loss, no_identity, settings.seed)


def _started(model: FilterNetwork, settings: TrainingSettings) -> FilterNetwork:
    """The network with the weights to start from, and frozen where it is to stay as it is."""
    start = settings.start
    if start is not None:
        load_partial(
            model, Path(start.weights), rename=start.rename, adapt_first=start.adapt_first, partial=start.partial
        )
        if start.freeze:
            freeze(model, start.freeze)
    return model


def _batches(mix: Mix, model: FilterNetwork, settings: TrainingSettings) -> TrainingBatches:
    """The batches that training draws."""
    sources: list[tuple[Sequence[Unit], float]] = [(store.split("train"), share) for store, share in mix]
    return TrainingBatches(
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


def _check_waiting(setup: Setup, mix: Mix, settings: TrainingSettings, device: torch.device) -> Finding:
    """The waiting for batches of the size and number that training takes."""
    model = setup.network()
    assert isinstance(model, FilterNetwork)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = adam(model)
    data = _batches(mix, model, settings)
    batches: Iterator[Batch]
    # As many as any machine can use up while the check lasts.
    steps = range(10**6)
    if settings.resident and device.type != "cpu":
        resident = ResidentBatches(data, device)
        batches = (resident[step] for step in steps)
    else:
        batches = iterate(data, steps, workers=settings.workers, device=device)
    return check_waiting(
        lambda batch: train_step(setup, model, optimiser, batch), batches, device, prefetched=2 * settings.workers
    )
