"""The task of the loop filters: patches of stores in, PSNR gain on whole pictures out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from codecnn.dataset import ResidentBatches, Store, TrainingBatches, Unit, UnitsShare, iterate
from codecnn.errors import ConfigError
from codecnn.filtering.integer import EightBitNetwork, save_integer, source_card
from codecnn.models import (
    FilterNetwork,
    TrainedOn,
    create_model,
    freeze,
    grow,
    lift,
    load_model,
    load_partial,
    pick_device,
    revive,
    save_weights,
)
from codecnn.training.filter._losses import filter_loss
from codecnn.training.filter._mix import Mix, data_key, trained_on, validation_units
from codecnn.training.filter._show import show_features, show_filtering
from codecnn.training.filter._teacher import Teacher, original_share
from codecnn.training.filter._validate import limit_pictures, psnr_gains
from codecnn.training.settings import FilterSettings, StartSettings, TeacherSettings
from codecnn.training.task import Batch, ValidationResult

TRANSFER = "transfer.json"
REVIVED_BY = 16
"""Batches in which a unit must never wake to be given new weights."""


@dataclass(frozen=True)
class FilterTask:
    """A filter network on the splits "train" and "val" of stores; `filter_task` makes one."""

    model: FilterNetwork
    network: str
    options: dict[str, Any]
    settings: FilterSettings
    sources: Sequence[UnitsShare]
    validation: Sequence[Unit]
    data_key: str
    transfer: dict[str, Any] | None
    taught: tuple[str, ...] = ()
    teacher_key: str | None = None
    stores: Sequence[TrainedOn] = ()

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """Patches as `TrainingBatches` draws them, with the planes that the network takes and its targets, orig_*.

        With a teacher the targets of the components in `taught` lie between its pictures and the originals.
        """
        data = TrainingBatches(
            self.sources,
            batch=self.settings.batch,
            steps=self.settings.steps,
            size=self.settings.patch,
            halo=self.model.halo,
            planes=(
                *self.model.planes,
                *(f"orig_{name}" for name in self.model.outputs),
                *(f"teacher_{name}" for name in self.taught),
            ),
            positions=self.settings.positions,
            augment=self.settings.augment,
            error_exponent=self.settings.error_exponent,
            keep_objective=self.settings.keep_objective,
            expected_error=self.settings.expected_error,
            border=self.settings.border,
            seed=self.settings.seed,
            part=(rank, world),
        )
        # In the CPU's memory the page cache holds the pictures already, and copying rows beats gathering there.
        if self.settings.resident and device.type != "cpu":
            resident = ResidentBatches(data, device)
            batches: Iterator[Batch] = (resident[step] for step in steps)
        else:
            batches = iterate(data, steps, workers=self.settings.workers, device=device)
        return map(self._towards_teacher, steps, batches)

    def _towards_teacher(self, step: int, batch: Batch) -> Batch:
        """The batch of a step with its targets moved from the originals towards the teacher's pictures."""
        settings = self.settings
        if settings.teacher is not None:
            share = original_share(settings.teacher, step, settings.steps, settings.warmup)
            for name in self.taught:
                batch[f"orig_{name}"].lerp_(batch.pop(f"teacher_{name}"), 1 - share)
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """`filter_loss` as the settings have it."""
        settings = self.settings
        return filter_loss(model, batch, settings.weighting, settings.loss, settings.components.model_dump())

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """Luma's PSNR gain in dB by QP, each component's in the mean of the QPs, and their mean as the loss weighs."""
        assert isinstance(model, FilterNetwork)
        gains = psnr_gains(model, self.validation, device)
        means = {name: float(np.mean(list(by_qp.values()))) for name, by_qp in gains.items() if by_qp}
        figures: dict[str, Any] = {"gain_db": {str(qp): value for qp, value in gains["y"].items()}}
        figures |= {"gain_mean_db" if name == "y" else f"gain_{name}_mean_db": mean for name, mean in means.items()}
        score = float(
            np.average([*means.values()], weights=[getattr(self.settings.components, name) for name in means])
        )
        return ValidationResult(score, figures)

    def config(self) -> dict[str, Any]:
        """Network, options and the key of the data."""
        config = {"network": self.network, "options": self.options, "data_key": self.data_key}
        return config if self.teacher_key is None else config | {"teacher_key": self.teacher_key}

    def files(self) -> dict[str, Any]:
        """The report on the weights that the run starts from, where it starts from some."""
        return {} if self.transfer is None else {TRANSFER: self.transfer}

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Weights as `load_model` reads them, or `load_integer`; the card tells the data's key and QPs."""
        assert isinstance(model, FilterNetwork)
        qps = sorted({picture.qp for units, _ in self.sources for unit in units for picture in unit.pictures})
        stores = [store.model_dump(exclude_unset=True) for store in self.stores]
        facts = {"data_key": self.data_key, "qps": qps, "trained_on": stores}
        if isinstance(model, EightBitNetwork):
            assert self.settings.start is not None, "as FilterSettings makes sure"
            assert self.settings.start.weights is not None, "as FilterSettings makes sure"
            _, source = load_model(Path(self.settings.start.weights))
            save_integer(path, model.integers(), source_card(source) | facts | card)
        else:
            save_weights(path, model, self.network, facts | card)

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """A crop of the first validation picture at its lowest, its middle and its highest QP, and its feature maps."""
        assert isinstance(model, FilterNetwork)
        if isinstance(model, EightBitNetwork):  # what is shown is seen in the float network that it comes from
            return {}
        first = [unit for unit in self.validation if unit.name == self.validation[0].name]
        shown = {unit.qp: unit for unit in (first[0], first[len(first) // 2], first[-1])}
        pictures = {f"{unit.name}/qp{qp}": show_filtering(model, unit, device) for qp, unit in shown.items()}
        maps = show_features(model, first[len(first) // 2], device)
        return pictures | {f"maps/{name}": picture for name, picture in maps.items()}


def filter_task(
    data: Store | Mix, network: str, options: dict[str, Any], settings: FilterSettings, *, resume: bool = False
) -> FilterTask:
    """The task of training `network` on a store, or on a mix of several.

    Weights that settings.start names are loaded, but not to `resume`: a run's checkpoint holds them. Raises StoreError
    for stores without pictures to train or validate on, ModelError for a network that cannot be made, ConfigError for
    one that cannot be trained in the precision that is asked for.
    """
    mix = [(data, 1.0)] if isinstance(data, Store) else data
    sources = [(store.split("train"), share) for store, share in mix]
    validation = limit_pictures(validation_units(mix), settings.validation_pictures)
    model = create_model(network, **options)
    if settings.precision == "bfloat16" and getattr(model, "predicts_picture", False):
        raise ConfigError(
            f"network {network!r} with output: picture cannot be trained with training.precision bfloat16, which has "
            "8 bits for samples of 10"
        )
    transfer = None
    if settings.start is not None:
        transfer = None if resume else _load(model, settings.start)
        if settings.start.freeze:
            freeze(model, settings.start.freeze)
    if settings.quantise is not None:
        units = [unit for units, _ in sources for unit in units]
        # A checkpoint has the scales.
        model = EightBitNetwork.of(model, units, loss=settings.quantise_loss, calibrate=not resume)
    task = FilterTask(
        model, network, options, settings, sources, validation, data_key(mix), transfer, stores=trained_on(mix)
    )
    if transfer is not None and settings.start is not None and settings.start.revive:
        batches = task.batches(range(min(REVIVED_BY, settings.steps)), 0, 1, torch.device("cpu"))
        transfer["revived"] = revive(model, batches)
    return task if settings.teacher is None else _with_teacher(task, settings.teacher)


def _with_teacher(task: FilterTask, settings: TeacherSettings) -> FilterTask:
    """The task with the teacher's pictures beside those of its units, made now where they are missing."""
    with torch.random.fork_rng(devices=[]):  # its networks' random starts are not to move that of the training
        teacher = Teacher(settings, pick_device(task.settings.device))
    taught = tuple(name for name in task.model.outputs if name in teacher.outputs)
    sources = [(teacher.teach(units), share) for units, share in task.sources]
    return replace(task, sources=sources, taught=taught, teacher_key=teacher.key)


def _load(model: FilterNetwork, start: StartSettings) -> dict[str, Any]:
    """Load the weights to start from and return the report on every tensor."""
    if start.lift:
        return lift(model, start.weights, grow=start.grow).as_dict()
    assert start.weights is not None, "as StartSettings makes sure"
    if start.grow:
        return grow(model, start.weights).as_dict()
    return load_partial(
        model, Path(start.weights), rename=start.rename, adapt_first=start.adapt_first, partial=start.partial
    ).as_dict()
