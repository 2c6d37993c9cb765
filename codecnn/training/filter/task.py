"""Task of the in-loop filters: train on patches of one or several stores, validate by PSNR gain on whole pictures."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.files import sha256_json
from codecnn.base.user_code import source_sha256
from codecnn.dataset import (
    ResidentBatches,
    Store,
    TrainingBatches,
    Unit,
    UnitsShare,
    codecs,
    encoder_settings,
    iterate,
)
from codecnn.filtering.integer import EightBitNetwork, save_integer, source_card
from codecnn.models import (
    FilterNetwork,
    TrainedOn,
    code_sha256,
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
from codecnn.training.filter.objective import (
    UserLoss,
    feature_pictures,
    filter_loss,
    filtering_picture,
    gains_of_units,
    import_loss,
    limit_pictures,
    mean_gains,
    user_loss,
)
from codecnn.training.filter.teacher import Teacher, original_share
from codecnn.training.settings import LOSSES, FilterSettings, StartSettings, TeacherSettings
from codecnn.training.task import CODE, Batch, ValidationResult

TRANSFER = "transfer.json"
"""File that reports what happened to each tensor of the start weights."""
REVIVE_BATCHES = 16
"""Batches in which a unit has to be always zero to be reinitialised."""

Mix = Sequence[tuple[Store, float]]
"""Stores and the share of the training patches that each provides; the shares need not add up to 1."""


@dataclass(frozen=True)
class FilterTask:
    """Training of a filter network on the splits "train" and "val" of stores; `filter_task` constructs it.

    Attributes:
        model: The network.
        network: Name of its architecture.
        options: Options of the architecture.
        settings: Settings of the run.
        sources: Training units and their shares of the patches.
        validation: Validation units.
        data_key: sha256 that identifies the data.
        transfer: Report on the start weights, or None.
        taught: Components that a teacher teaches.
        teacher_key: Key of the teacher, or None.
        stores: Description of the stores for the card.
        own_loss: Loss of the user, or None for those of `filter_loss`.
    """

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
    own_loss: UserLoss | None = None

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """Iterate over patches as `TrainingBatches` draws them, with the input planes and the training targets, orig_*.

        With a teacher, the targets of the components in `taught` lie between its pictures and the originals.
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
            border=self.settings.border,
            seed=self.settings.seed,
            part=(rank, world),
        )
        # On a CPU the page cache holds the pictures already, and copying rows is faster than gathering samples.
        if self.settings.resident and device.type != "cpu":
            resident = ResidentBatches(data, device)
            batches: Iterator[Batch] = (resident[step] for step in steps)
        else:
            batches = iterate(data, steps, workers=self.settings.workers, device=device)
        return map(self._blend_targets, steps, batches)

    def _blend_targets(self, step: int, batch: Batch) -> Batch:
        """Move the targets of a batch from the originals towards the pictures of the teacher."""
        settings = self.settings
        if settings.teacher is not None:
            share = original_share(settings.teacher, step, settings.steps, settings.warmup)
            for name in self.taught:
                batch[f"orig_{name}"].lerp_(batch.pop(f"teacher_{name}"), 1 - share)
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Compute `filter_loss` with the options of the settings, or the loss of the user."""
        settings = self.settings
        if self.own_loss is not None:
            return user_loss(self.own_loss, settings.loss, model, batch)
        return filter_loss(model, batch, settings.weighting, settings.loss, settings.components.model_dump())

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """Measure PSNR gains: luma in dB by QP, each component in the mean of the QPs; of several stores luma by store.

        The score is the mean over the components with the weights of the loss.
        """
        assert isinstance(model, FilterNetwork)
        unit_gains = gains_of_units(model, self.validation, device)
        gains = mean_gains(self.validation, unit_gains)
        means = {name: float(np.mean(list(by_qp.values()))) for name, by_qp in gains.items() if by_qp}
        figures: dict[str, Any] = {"gain_db": {str(qp): value for qp, value in gains["y"].items()}}
        figures |= {"gain_mean_db" if name == "y" else f"gain_{name}_mean_db": mean for name, mean in means.items()}
        if by_store := gains_by_store(self.validation, unit_gains):
            figures["gain_by_store_db"] = by_store
        weights = self.settings.components.model_dump()
        score = float(np.average([*means.values()], weights=[weights[name] for name in means]))
        return ValidationResult(score, figures)

    def config(self) -> dict[str, Any]:
        """Return network, options, the keys of data and teacher, and the hash of the source of network and loss."""
        config: dict[str, Any] = {"network": self.network, "options": self.options, "data_key": self.data_key}
        code = [code_sha256(self.model), None if self.own_loss is None else _loss_sha256(self.own_loss)]
        config |= {CODE: code} if any(code) else {}
        return config if self.teacher_key is None else config | {"teacher_key": self.teacher_key}

    def files(self) -> dict[str, Any]:
        """Return the report on the start weights, if there are any."""
        return {} if self.transfer is None else {TRANSFER: self.transfer}

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Write weights for `load_model`, or for `load_integer`; the card also holds data key and QPs."""
        assert isinstance(model, FilterNetwork)
        pictures = [picture for units, _ in self.sources for unit in units for picture in unit.pictures]
        qps = sorted({max(picture.qp_for_networks, 0) for picture in pictures})
        stores = [store.model_dump(exclude_unset=True) for store in self.stores]
        facts: dict[str, Any] = {"data_key": self.data_key, "qps": qps, "trained_on": stores}
        facts |= {} if self.own_loss is None else {"loss_sha256": _loss_sha256(self.own_loss)}
        if isinstance(model, EightBitNetwork):
            assert self.settings.start is not None, "checked by FilterSettings"
            assert self.settings.start.weights is not None, "checked by FilterSettings"
            _, source = load_model(Path(self.settings.start.weights))
            save_integer(path, model.integers(), source_card(source) | facts | card)
        else:
            save_weights(path, model, self.network, facts | card)

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """Render the first validation picture at its lowest, middle and highest QP, and feature maps."""
        assert isinstance(model, FilterNetwork)
        if isinstance(model, EightBitNetwork):  # its float network has been shown when it was trained
            return {}
        first = [unit for unit in self.validation if unit.name == self.validation[0].name]
        units = {unit.qp: unit for unit in (first[0], first[len(first) // 2], first[-1])}
        pictures = {f"{unit.name}/qp{qp}": filtering_picture(model, unit, device) for qp, unit in units.items()}
        maps = feature_pictures(model, first[len(first) // 2], device)
        return pictures | {f"maps/{name}": picture for name, picture in maps.items()}


def filter_task(
    data: Store | Mix, network: str, options: dict[str, Any], settings: FilterSettings, *, resume: bool = False
) -> FilterTask:
    """Construct the task of training a filter network.

    Start weights are loaded unless the run is resumed, since the checkpoint of the run then holds the weights.

    Args:
        data: A store, or several stores with their shares of the patches.
        network: Name of the architecture.
        options: Options of the architecture.
        settings: Settings of the run.
        resume: Whether the task continues a run.

    Returns:
        The task.

    Raises:
        StoreError: A store has no pictures to train or validate on.
        ModelError: The network cannot be created.
        ConfigError: The network cannot be trained in the precision of the settings.
    """
    mix = [(data, 1.0)] if isinstance(data, Store) else data
    sources = [(store.split("train"), share) for store, share in mix]
    validation = validation_units(mix, settings.validation_pictures)
    model = create_model(network, **options)
    if settings.precision == "bfloat16" and model.predicts_picture:
        raise ConfigError(
            f"network {network!r} with output: picture cannot be trained in bfloat16, which has 8 bits, while samples "
            "may have 10: set training.precision to float32"
        )
    transfer = None
    if settings.start is not None:
        transfer = None if resume else _load_start(model, settings.start)
        if settings.start.freeze:
            freeze(model, settings.start.freeze)
    if settings.quantise is not None:
        units = [unit for units, _ in sources for unit in units]
        # A checkpoint holds the scales.
        model = EightBitNetwork.of(model, units, loss=settings.quantise_loss, calibrate=not resume)
    task = FilterTask(
        model,
        network,
        options,
        settings,
        sources,
        validation,
        data_key(mix),
        transfer,
        stores=trained_on(mix),
        own_loss=None if settings.loss in LOSSES else import_loss(settings.loss),
    )
    if transfer is not None and settings.start is not None and settings.start.revive:
        batches = task.batches(range(min(REVIVE_BATCHES, settings.steps)), 0, 1, torch.device("cpu"))
        transfer["revived"] = revive(model, batches)
    return task if settings.teacher is None else _with_teacher(task, settings.teacher)


def _loss_sha256(loss: UserLoss) -> str | None:
    """Hash the source file of a loss of the user; None if it is in no file."""
    with contextlib.suppress(ConfigError):
        return source_sha256([loss if hasattr(loss, "__name__") else type(loss)])
    return None


def _with_teacher(task: FilterTask, settings: TeacherSettings) -> FilterTask:
    """Add the pictures of the teacher to the units of the task; missing pictures are computed now."""
    with torch.random.fork_rng(devices=[]):  # creating the teacher's networks draws random numbers
        teacher = Teacher(settings, pick_device(task.settings.device))
    taught = tuple(name for name in task.model.outputs if name in teacher.outputs)
    sources = [(teacher.teach(units), share) for units, share in task.sources]
    return replace(task, sources=sources, taught=taught, teacher_key=teacher.key)


def _load_start(model: FilterNetwork, start: StartSettings) -> dict[str, Any]:
    """Load the start weights and return the report on every tensor."""
    if start.lift:
        return lift(model, start.weights, grow=start.grow).as_dict()
    assert start.weights is not None, "checked by StartSettings"
    if start.grow:
        return grow(model, start.weights).as_dict()
    return load_partial(
        model, Path(start.weights), rename=start.rename, adapt_first=start.adapt_first, partial=start.partial
    ).as_dict()


def data_key(mix: Mix) -> str:
    """Return a sha256 that identifies the data: the key of a single store, else of all keys and shares."""
    if len(mix) == 1:
        return mix[0][0].data_key
    total = sum(share for _, share in mix)
    return sha256_json([[store.data_key, round(share / total, 12)] for store, share in mix])


def validation_units(mix: Mix, pictures: int | None = None) -> tuple[Unit, ...]:
    """Return the split "val" of all stores that have one, whatever their shares.

    Args:
        mix: Stores and their shares.
        pictures: Pictures of each QP of each store, the first ones; None for all. So every store, and with it every
            encoder, is validated.

    Raises:
        StoreError: No store has the split.
    """
    units = tuple(
        unit
        for store, _ in mix
        for unit in limit_pictures([unit for unit in store.units if unit.split == "val"], pictures)
    )
    if not units:
        folders = ", ".join(str(store.folder) for store, _ in mix)
        raise StoreError(f"no pictures in the split 'val' of {folders}: put some into it in the recipe")
    return units


def gains_by_store(units: Sequence[Unit], gains: Sequence[dict[str, list[float]]]) -> dict[str, float]:
    """Return the mean luma gain of each of several stores.

    Args:
        units: Validation units.
        gains: Gains of each unit, from `gains_of_units`.

    Returns:
        Gain in dB, mean over the QPs of a store, by the name of its folder; if two folders have the same name, their
        numbers in the list precede the names. Empty for one store.
    """
    folders = list(dict.fromkeys(unit.folder for unit in units))
    if len(folders) == 1:
        return {}
    unique = len({folder.name for folder in folders}) == len(folders)
    result = {}
    for number, folder in enumerate(folders, 1):
        inside = [index for index, unit in enumerate(units) if unit.folder == folder]
        luma = mean_gains([units[index] for index in inside], [gains[index] for index in inside])["y"]
        if luma:
            result[folder.name if unique else f"{number}_{folder.name}"] = float(np.mean(list(luma.values())))
    return result


def trained_on(mix: Mix) -> list[TrainedOn]:
    """Describe the stores of a mix for a card; the shares add up to 1."""
    total = sum(share for _, share in mix)
    return [_describe_store(store, share / total) for store, share in mix]


def _describe_store(store: Store, share: float) -> TrainedOn:
    recipe, units = store.manifest.recipe, store.split("train")
    sequences = {unit.name: unit for unit in units}.values()
    return TrainedOn(
        name=recipe.name,
        share=share,
        encoder=store.manifest.encoder,
        codec=" and ".join(codecs(store, "train")),
        preset=recipe.preset,
        configuration=recipe.configuration,
        loop_filters=recipe.loop_filters,
        ctu_size=recipe.ctu_size,
        params=recipe.params,
        sequences=dict(sorted(Counter(unit.class_ or "" for unit in sequences).items())),
        varied=sum(unit.variant is not None for unit in sequences),
        settings=encoder_settings(units),
        **({} if units[0].in_loop is None else {"in_loop": units[0].in_loop.to_json()}),
    )
