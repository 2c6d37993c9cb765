"""Task of the mode classifier: batches of labelled blocks, loss, and the cost that its choices lose.

All blocks of a batch have one size, since a network that sees samples directly takes one size at a time. A size is
drawn with a probability proportional to 1 / sqrt(width * height). That is a compromise between drawing rows uniformly,
where most blocks are 4x4 because all sizes cover the same pictures, and drawing sizes uniformly, where most samples
belong to the largest blocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from codecnn.base.errors import ConfigError, TableError
from codecnn.base.files import sha256_json
from codecnn.dataset import ignore_signals, to_device
from codecnn.modes.networks import (
    ModeClassifier,
    create_mode_network,
    excess_cost,
    mode_loss,
    network_name,
    save_mode_network,
)
from codecnn.modes.training.labels import ALL, Array, LabelCache, LabelledBlocks, Part, Size, open_labels
from codecnn.training import Batch, LoopSettings, ValidationResult
from codecnn.vvc.intra import MODE_COUNT, PLANAR, block_costs

_CHUNK_SAMPLES = 1 << 18
"""Samples of the blocks that a network processes at once."""
TOP = 3
"""Number of first choices that an encoder may try."""
_ROUNDING = 2.0**-14
"""Relative excess cost that a label may have: costs are float32 and round differently on another machine."""


@dataclass(eq=False)
class ModeBatches(Dataset[dict[str, Tensor]]):
    """Batches of a run; item k holds blocks of one size, drawn uniformly from all blocks of that size.

    Batch number k is a function of the seed and k alone. An item is the result of `LabelledBlocks.cut` as tensors,
    and with `cost` also "costs", the costs of all modes, shape (n, modes), float32.

    Attributes:
        blocks: Blocks to draw from.
        batch: Number of blocks of a batch.
        steps: Number of batches.
        augment: Whether to transpose every second square block on average.
        cost: Cost to compute for all modes, or None.
        seed: Seed of the draws.
        part: (rank, world): this process gets the blocks rank, rank + world, ... of each batch.

    Raises:
        ConfigError: The batch has fewer blocks than there are processes.
    """

    blocks: LabelledBlocks
    _: KW_ONLY
    batch: int
    steps: int
    augment: bool = True
    cost: str | None = None
    seed: int = 0
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.batch < self.part[1]:
            raise ConfigError(
                f"a batch of {self.batch} blocks cannot be split over {self.part[1]} processes: enlarge training.batch"
            )
        weights = np.array([(width * height) ** -0.5 for width, height in self.blocks.sizes])
        self._probabilities = weights / weights.sum()

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([self.seed, step])
        size = self.blocks.sizes[int(rng.choice(len(self.blocks.sizes), p=self._probabilities))]
        numbers = rng.integers(self.blocks.count(size), size=self.batch)
        transposed = rng.random(self.batch) < 0.5
        share = slice(self.part[0], None, self.part[1])
        cut = self.blocks.cut(size, numbers[share])
        if self.augment and size[0] == size[1]:
            cut = transpose(cut, transposed[share], self.blocks.modes)
        if self.cost is not None:
            cut["costs"] = costs_of(cut, self.cost, self.blocks.standard).astype(np.float32)
        return {name: torch.from_numpy(values) for name, values in cut.items()}


def transpose(cut: dict[str, Array], transposed: npt.NDArray[np.bool_], modes: int) -> dict[str, Array]:
    """Transpose some of the square blocks of `LabelledBlocks.cut`.

    The references above and to the left change places, and mode m from 2 on becomes modes + 1 - m: prediction is
    symmetric in both standards.

    Args:
        cut: n blocks.
        transposed: Whether to transpose each block, shape (n,).
        modes: Number of modes of the standard.

    Returns:
        The blocks.
    """
    mode = cut["mode"]
    return cut | {
        "line": np.where(transposed[:, None], cut["line"][:, ::-1], cut["line"]),
        "block": np.where(transposed[:, None, None], cut["block"].swapaxes(1, 2), cut["block"]),
        "mode": np.where(transposed & (mode >= 2), modes + 1 - mode, mode),
    }


def costs_of(cut: Mapping[str, npt.NDArray[Any]], cost: str, standard: str) -> npt.NDArray[np.float64]:
    """Compute the costs of all modes for blocks of `LabelledBlocks.cut`.

    Args:
        cut: n blocks.
        cost: Name of a cost in `codecnn.vvc.intra`.
        standard: Standard of the modes.

    Returns:
        Costs, shape (n, modes).
    """
    # Only the rate depends on the QP; the other costs are computed in one piece per bit depth.
    qps = cut["qp"] if cost == "rate" else np.zeros_like(cut["qp"])
    costs = np.empty((len(qps), MODE_COUNT[standard]))
    for depth, qp in np.unique(np.stack((cut["bit_depth"], qps)), axis=1).T.tolist():
        selected = (cut["bit_depth"] == depth) & (qps == qp)
        costs[selected] = block_costs(cut["line"][selected], cut["block"][selected], depth, cost, standard, qp=qp)
    return costs


def iterate_modes(
    data: ModeBatches, steps: range, *, workers: int = 0, device: str | torch.device = "cpu"
) -> Iterator[dict[str, Tensor]]:
    """Iterate over batches on a device.

    Args:
        data: Batches of the run.
        steps: Numbers of the batches.
        workers: Processes that cut the blocks; their number does not change a batch.
        device: Device of the returned tensors.
    """
    pin = torch.device(device).type != "cpu" and workers > 0
    for batch in DataLoader(
        data, batch_size=None, sampler=steps, num_workers=workers, pin_memory=pin, worker_init_fn=ignore_signals
    ):
        if pin:
            yield {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        else:
            yield {name: to_device(tensor, device) for name, tensor in batch.items()}


def network_input(model: ModeClassifier, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the arguments of `forward` of a mode network for a batch."""
    return model.inputs(batch["line"], batch["block"], batch["bit_depth"], batch["qp"])


@dataclass(frozen=True)
class SizeValidation:
    """Validation blocks of one size.

    Attributes:
        batch: Result of `LabelledBlocks.cut` as tensors.
        costs: Cost of every mode, shape (n, modes).
        baselines: top1 and excess_percent, as in `score_modes`, of choices without a network, by name.
    """

    batch: dict[str, torch.Tensor]
    costs: torch.Tensor
    baselines: dict[str, dict[str, float]]


Validation = Mapping[Size, SizeValidation]


def prepare_validation(blocks: LabelledBlocks, training: LabelledBlocks, cost: str, count: int) -> Validation:
    """Draw the validation blocks once and compute the costs of all modes from their samples.

    The baselines are planar, the most frequent mode of the training labels of the size, and the best mode by Hadamard
    SATD.

    Args:
        blocks: Blocks to draw from.
        training: Training blocks.
        cost: Name of the cost.
        count: Largest number of 4x4 blocks; larger sizes have count * 4 / sqrt(width * height).

    Returns:
        Validation blocks by size.

    Raises:
        TableError: A label is not the best mode of its samples.
    """
    prepared = {}
    for size in blocks.sizes:
        width, height = size
        requested = max(1, round(count * 4 / (width * height) ** 0.5))
        available = blocks.count(size)
        rng = np.random.default_rng([width, height])
        numbers = np.sort(rng.choice(available, min(requested, available), replace=False))
        cut = blocks.cut(size, numbers)
        costs = costs_of(cut, cost, blocks.standard)
        labelled = np.take_along_axis(costs, cut["mode"][:, None], 1)[:, 0]
        if (labelled > costs.min(1) * (1 + _ROUNDING)).any():
            tables = ", ".join(str(cache.table) for cache, _ in blocks.parts)
            raise TableError(
                f"labels of {width}x{height} blocks in {tables} are not the best modes of their samples: label the "
                "pictures again"
            )
        common = training.most_frequent(size) if size in training.sizes else PLANAR
        choices = {
            "planar": np.full(len(costs), PLANAR),
            "most_frequent": np.full(len(costs), common),
            "hadamard": costs_of(cut, "hadamard", blocks.standard).argmin(1),
        }
        table = torch.from_numpy(costs)
        baselines = {
            name: {
                "top1": float((modes == cut["mode"]).mean()),
                "excess_percent": 100 * float(excess_cost(torch.from_numpy(modes)[:, None], table)),
            }
            for name, modes in choices.items()
        }
        batch = {name: torch.from_numpy(values) for name, values in cut.items()}
        prepared[size] = SizeValidation(batch, table, baselines)
    return prepared


@torch.no_grad()
def score_modes(model: ModeClassifier, validation: Validation, device: torch.device) -> ValidationResult:
    """Score the modes of the largest logits.

    Args:
        model: The network.
        validation: Blocks of `prepare_validation`.
        device: Device of the network.

    Returns:
        Figures by block size and in the mean of the sizes; the score is minus the mean excess_percent.

        - top1, top3: share of blocks whose best mode is the first choice, or among the first three.
        - excess_percent: cost of the chosen modes above that of the best modes, as sums over the blocks.
        - excess_of_3_percent: the same for the cheapest of the first three, for an encoder that tries them.
    """
    figures: dict[str, dict[str, float]] = {"top1": {}, "top3": {}, "excess_percent": {}, "excess_of_3_percent": {}}
    for (width, height), part in validation.items():
        first = torch.cat([logits.topk(TOP, dim=1).indices for logits in _logits(model, part, device)]).cpu()
        best = part.batch["mode"][:, None] == first
        size = f"{width}x{height}"
        figures["top1"][size] = float(best[:, 0].double().mean())
        figures["top3"][size] = float(best.any(dim=1).double().mean())
        figures["excess_percent"][size] = 100 * float(excess_cost(first[:, :1], part.costs))
        figures["excess_of_3_percent"][size] = 100 * float(excess_cost(first, part.costs))
    for values_by_size in figures.values():
        values_by_size["mean"] = float(np.mean(list(values_by_size.values())))
    return ValidationResult(-figures["excess_percent"]["mean"], figures)


def _logits(model: ModeClassifier, part: SizeValidation, device: torch.device) -> Iterator[torch.Tensor]:
    count, height, width = part.batch["block"].shape
    step = max(1, _CHUNK_SAMPLES // (width * height))
    for start in range(0, count, step):
        piece = {name: tensor[start : start + step].to(device) for name, tensor in part.batch.items()}
        yield model(*network_input(model, piece))


@dataclass(frozen=True)
class IntraModesTask:
    """Training of a mode network on labels; `intra_modes_task` constructs it.

    Attributes:
        model: The network.
        options: Options of the network.
        settings: Settings of the run.
        cost: Cost of the labels.
        softness: Softness of the targets; 0 for the best mode as the only target.
        training: Training blocks.
        validation: Validation blocks by size.
        data_key: sha256 that identifies the data.
    """

    model: ModeClassifier
    options: dict[str, Any]
    settings: LoopSettings
    cost: str
    softness: float
    training: LabelledBlocks
    validation: Validation
    data_key: str

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """Iterate over blocks as `ModeBatches` draws them."""
        data = ModeBatches(
            self.training,
            batch=self.settings.batch,
            steps=self.settings.steps,
            augment=self.settings.augment,
            cost=self.cost if self.softness else None,
            seed=self.settings.seed,
            part=(rank, world),
        )
        return iterate_modes(data, steps, workers=self.settings.workers, device=device)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Compute the cross entropy in nats with the best mode or with `soft_targets`."""
        # `codecnn check` also computes in float64; the type of the weights says so.
        dtype = next(model.parameters()).dtype
        logits = model(*(part.to(dtype) for part in network_input(self.model, batch)))
        logits = logits if dtype == torch.float64 else logits.float()
        if not self.softness:
            return mode_loss(logits, batch["mode"])
        return F.cross_entropy(logits, soft_targets(batch["costs"], self.softness))

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """Score the network with `score_modes`."""
        assert isinstance(model, ModeClassifier)
        return score_modes(model, self.validation, device)

    def config(self) -> dict[str, Any]:
        """Return network, options, cost, number of validation blocks and the key of the data."""
        blocks = {f"{w}x{h}": len(part.costs) for (w, h), part in self.validation.items()}
        return {
            "network": network_name(self.model),
            "options": self.options,
            "cost": self.cost,
            "softness": self.softness,
            "validation_blocks": blocks,
            "data_key": self.data_key,
        }

    def files(self) -> dict[str, Any]:
        """Return baselines.json: scores of choices without a network on the validation blocks."""
        return {"baselines.json": {f"{w}x{h}": part.baselines for (w, h), part in self.validation.items()}}

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Write weights for `load_mode_network`; the card also holds standard, cost, CTU size and data key."""
        assert isinstance(model, ModeClassifier)
        facts = {"standard": self.training.standard, "ctu_size": self.training.ctu_size, "cost": self.cost}
        save_mode_network(path, model, network_name(model), facts | {"data_key": self.data_key} | card)

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """Return no pictures: single blocks show nothing."""
        return {}


def soft_targets(costs: Tensor, softness: float) -> Tensor:
    """Return target probabilities that fall with the costs: exp(-excess / (softness * mean excess)), normalised.

    The mean excess over all modes of a block is the unit, since the costs of modes differ far less in large blocks than
    in small ones.

    Args:
        costs: Costs of all modes, shape (n, modes).
        softness: Excess, as a share of the mean excess, at which the probability falls by e.

    Returns:
        Probabilities, shape (n, modes).
    """
    excess = costs - costs.amin(dim=1, keepdim=True)
    unit = excess.mean(dim=1, keepdim=True).clamp(min=torch.finfo(excess.dtype).tiny)
    return (-excess / (softness * unit)).softmax(dim=1)


def intra_modes_task(
    labels: Sequence[Path],
    validation: Sequence[Path],
    options: dict[str, Any],
    settings: LoopSettings,
    *,
    cost: str = "dct",
    softness: float = 0.0,
    validation_blocks: int = 4096,
) -> IntraModesTask:
    """Construct the task of training a mode network on tables of `codecnn labels`.

    Args:
        labels: Tables to train on.
        validation: Tables to validate on; without any, the split "val" of labelled stores is validated on, and the
            split "train" is trained on.
        options: Options of the network.
        settings: Settings of the run.
        cost: Cost of the labels.
        softness: See `soft_targets`; 0 for the best mode as the only target.
        validation_blocks: Number of 4x4 validation blocks; for other sizes see `prepare_validation`.

    Returns:
        The task.

    Raises:
        ConfigError: A file is trained and validated on, or there is nothing to validate on.
        MissingFileError: A table or a picture does not exist.
        TableError: A table cannot be used, see `open_labels`.
    """
    training, validating = _split(labels, validation, cost)
    modes = MODE_COUNT[training[0][0].standard]
    model = create_mode_network(**{"modes": modes} | options)
    blocks = LabelledBlocks(training, model.block_sizes)
    if model.options["modes"] != blocks.modes:
        raise ConfigError(
            f"a network of {model.options['modes']} modes cannot learn the {blocks.modes} modes of {blocks.standard}: "
            "remove modes from model"
        )
    prepared = prepare_validation(LabelledBlocks(validating, model.block_sizes), blocks, cost, validation_blocks)
    key = sha256_json([[cache.sha256, split] for cache, split in (*training, *validating)])
    return IntraModesTask(model, model.options, settings, cost, softness, blocks, prepared, key)


def _split(labels: Sequence[Path], validation: Sequence[Path], cost: str) -> tuple[list[Part], list[Part]]:
    tables = [open_labels(path, cost) for path in labels]
    validation_tables = [open_labels(path, cost) for path in validation]
    training = [(cache, split) for cache in tables for split in ("train", ALL) if split in cache.sizes]
    if validation_tables:
        validating = [(cache, split) for cache in validation_tables for split in cache.sizes if split != "train"]
    else:
        validating = [(cache, "val") for cache in tables if "val" in cache.sizes]
    if not training:
        raise ConfigError(f"no pictures to train on in {', '.join(map(str, labels))}: all are in other splits")
    if not validating:
        raise ConfigError(
            "no pictures to validate on: give a table of other pictures as validation, or label a store with a split "
            "'val'"
        )
    seen = _originals(training)
    for sha256, path in _originals(validating).items():
        if sha256 in seen:
            raise ConfigError(
                f"{path} is both trained and validated on (also as {seen[sha256]}): leave it out of one of them"
            )
    return training, validating


def _originals(parts: Sequence[tuple[LabelCache, str]]) -> dict[str, str]:
    return {key: path for cache, split in parts for key, path in cache.originals[split].items()}
