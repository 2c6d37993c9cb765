"""How well a mode classifier chooses, on fixed blocks, beside what anyone could choose without it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from codecnn.errors import TableError
from codecnn.intra import PLANAR
from codecnn.models import ModeClassifier, excess_cost
from codecnn.training.intra_modes._cache import Size
from codecnn.training.intra_modes._data import LabelledBlocks, costs_of, network_input
from codecnn.training.task import ValidationResult

_CHUNK_SAMPLES = 1 << 18
"""Samples of the blocks that a network sees at once."""
TOP = 3
"""First choices that an encoder may try."""
_ROUNDING = 2.0**-14
"""Labels by DCT that were made on another machine may be of a mode this much above the best: costs are of float32."""


@dataclass(frozen=True)
class SizeValidation:
    """Blocks of one size: `LabelledBlocks.cut` as tensors, the cost of every mode (n, modes), and what others choose.

    `baselines` has, by name, top1 and excess_percent as `score_modes` has them.
    """

    batch: dict[str, torch.Tensor]
    costs: torch.Tensor
    baselines: dict[str, dict[str, float]]


Validation = Mapping[Size, SizeValidation]


def prepare_validation(blocks: LabelledBlocks, training: LabelledBlocks, cost: str, count: int) -> Validation:
    """At most `count` blocks of 4x4, and count · 4 / sqrt(width · height) of others, drawn once from `blocks`.

    The costs of all modes are computed from the samples. Baselines are planar, the most frequent mode of the `training`
    labels of the size, and the best mode by Hadamard SATD. Raises TableError where a label is not the best mode of the
    samples that it lies on.
    """
    prepared = {}
    for size in blocks.sizes:
        width, height = size
        wanted = max(1, round(count * 4 / (width * height) ** 0.5))
        have = blocks.count(size)
        rng = np.random.default_rng([width, height])
        numbers = np.sort(rng.choice(have, min(wanted, have), replace=False))
        cut = blocks.cut(size, numbers)
        costs = costs_of(cut, cost, blocks.standard)
        labelled = np.take_along_axis(costs, cut["mode"][:, None], 1)[:, 0]
        if (labelled > costs.min(1) * (1 + _ROUNDING)).any():
            tables = ", ".join(str(cache.table) for cache, _ in blocks.parts)
            raise TableError(f"labels of {width}x{height} blocks in {tables} are not the best modes of their samples")
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
    """Figures of the modes of largest logit, by block size and in the mean of the sizes.

    top1, top3               share of blocks whose best mode is the first, or among the first three
    excess_percent           by how much the chosen modes cost more than the best, sum over sum
    excess_of_3_percent      the same of the cheapest of the first three, for an encoder that tries them

    The score is minus the mean excess_percent.
    """
    found: dict[str, dict[str, float]] = {"top1": {}, "top3": {}, "excess_percent": {}, "excess_of_3_percent": {}}
    for (width, height), part in validation.items():
        first = torch.cat([logits.topk(TOP, dim=1).indices for logits in _logits(model, part, device)]).cpu()
        best = part.batch["mode"][:, None] == first
        size = f"{width}x{height}"
        found["top1"][size] = float(best[:, 0].double().mean())
        found["top3"][size] = float(best.any(dim=1).double().mean())
        found["excess_percent"][size] = 100 * float(excess_cost(first[:, :1], part.costs))
        found["excess_of_3_percent"][size] = 100 * float(excess_cost(first, part.costs))
    for values_by_size in found.values():
        values_by_size["mean"] = float(np.mean(list(values_by_size.values())))
    return ValidationResult(-found["excess_percent"]["mean"], found)


def _logits(model: ModeClassifier, part: SizeValidation, device: torch.device) -> Iterator[torch.Tensor]:
    count, height, width = part.batch["block"].shape
    step = max(1, _CHUNK_SAMPLES // (width * height))
    for start in range(0, count, step):
        piece = {name: tensor[start : start + step].to(device) for name, tensor in part.batch.items()}
        yield model(*network_input(model, piece))
