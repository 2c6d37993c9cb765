"""The task of the mode classifier: labelled blocks in, the cost that its choices lose out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ConfigError
from codecnn.intra import MODE_COUNT
from codecnn.models import ModeClassifier, create_mode_network, mode_loss, network_name, save_weights
from codecnn.runs import sha256_json
from codecnn.training.intra_modes._cache import ALL, LabelCache, open_labels
from codecnn.training.intra_modes._data import LabelledBlocks, ModeBatches, Part, iterate_modes, network_input
from codecnn.training.intra_modes._score import Validation, prepare_validation, score_modes
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch, ValidationResult


@dataclass(frozen=True)
class IntraModesTask:
    """A mode network on labels; `intra_modes_task` makes one."""

    model: ModeClassifier
    options: dict[str, Any]
    settings: LoopSettings
    cost: str
    softness: float
    training: LabelledBlocks
    validation: Validation
    data_key: str

    def batches(self, steps: range, rank: int, world: int, device: torch.device) -> Iterator[Batch]:
        """Blocks as `ModeBatches` draws them: line, block, bit_depth, qp, mode."""
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
        """Cross entropy in nats, against the best mode or `soft_targets`."""
        # `codecnn check` computes in float64, for which only the type of the weights speaks.
        kind = next(model.parameters()).dtype
        logits = model(*(part.to(kind) for part in network_input(self.model, batch)))
        logits = logits if kind == torch.float64 else logits.float()
        if not self.softness:
            return mode_loss(logits, batch["mode"])
        return F.cross_entropy(logits, soft_targets(batch["costs"], self.softness))

    def validate(self, model: nn.Module, device: torch.device) -> ValidationResult:
        """`score_modes`, whose score is minus the excess in percent, in the mean of the block sizes."""
        assert isinstance(model, ModeClassifier)
        return score_modes(model, self.validation, device)

    def config(self) -> dict[str, Any]:
        """Network, options, cost, the blocks validated on and the key of the data."""
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
        """baselines.json: what choosing without a network gives on the blocks that are validated on."""
        return {"baselines.json": {f"{w}x{h}": part.baselines for (w, h), part in self.validation.items()}}

    def save(self, path: Path, model: nn.Module, card: dict[str, Any]) -> None:
        """Weights as `load_mode_network` reads them; the card tells standard, cost, CTU size and the data's key."""
        assert isinstance(model, ModeClassifier)
        told = {"standard": self.training.standard, "ctu_size": self.training.ctu_size, "cost": self.cost}
        save_weights(path, model, network_name(model), told | {"data_key": self.data_key} | card)

    def pictures(self, model: nn.Module, device: torch.device) -> dict[str, npt.NDArray[np.uint8]]:
        """None: blocks of one size tell nothing to the eye."""
        return {}


def soft_targets(costs: Tensor, softness: float) -> Tensor:
    """Probabilities (n, modes) that fall with the costs (n, modes): exp(-excess / (softness · the mean excess)).

    A block's mean excess over all modes is the unit, since modes part far less in large blocks than in small ones.
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
    """The task of training a mode network on tables of `codecnn labels` by `cost`.

    Where there are no tables for `validation`, the pictures that a store's recipe puts in its split "val" are validated
    on, and those in "train" are trained on. `validation_blocks` is how many blocks of 4x4 are drawn, of others as in
    `prepare_validation`. Raises ConfigError where a file is in both parts or nothing is left to validate on, and what
    `open_labels` raises.
    """
    training, validating = _split(labels, validation, cost)
    modes = MODE_COUNT[training[0][0].standard]
    model = create_mode_network(**{"modes": modes} | options)
    blocks = LabelledBlocks(training, model.block_sizes)
    if model.options["modes"] != blocks.modes:
        raise ConfigError(
            f"a network of {model.options['modes']} modes cannot learn {blocks.standard}'s {blocks.modes}"
        )
    prepared = prepare_validation(LabelledBlocks(validating, model.block_sizes), blocks, cost, validation_blocks)
    key = sha256_json([[cache.sha256, split] for cache, split in (*training, *validating)])
    return IntraModesTask(model, model.options, settings, cost, softness, blocks, prepared, key)


def _split(labels: Sequence[Path], validation: Sequence[Path], cost: str) -> tuple[list[Part], list[Part]]:
    tables = [open_labels(path, cost) for path in labels]
    others = [open_labels(path, cost) for path in validation]
    training = [(cache, split) for cache in tables for split in ("train", ALL) if split in cache.sizes]
    if others:
        validating = [(cache, split) for cache in others for split in cache.sizes if split != "train"]
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
            raise ConfigError(f"{path} is both trained and validated on, in one table as {seen[sha256]}")
    return training, validating


def _originals(parts: Sequence[tuple[LabelCache, str]]) -> dict[str, str]:
    return {key: path for cache, split in parts for key, path in cache.originals[split].items()}
