"""Batches of labelled blocks: samples, references, QP and the best mode, cut from the pictures when they are asked for.

Batch number k of a training run is a function of (seed, k) alone. All blocks of a batch have one size, since a network
that sees samples as they are takes one size at a time; a size is drawn with a probability of 1 / sqrt(width · height).
That lies between drawing rows, three quarters of which are blocks of 4x4 where every size covers the same pictures, and
drawing sizes evenly, which would spend three quarters of all samples on blocks of 64x64.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from codecnn.dataset import leave_signals
from codecnn.errors import ConfigError, TableError
from codecnn.intra import MODE_COUNT, block_costs, reference_places
from codecnn.models import ModeClassifier
from codecnn.training.intra_modes._cache import LabelCache, Size

Array = npt.NDArray[Any]
Part = tuple[LabelCache, str]
"""A table, and which of its splits."""


class LabelledBlocks:
    """The blocks of some splits of some tables, by size and number.

    `only` are the sizes (width, height) that are taken, none for all. Files are mapped when they are first read;
    pickled, as a worker process that is spawned gets it, this holds paths. Raises TableError where there are no blocks,
    or tables of different standards or CTU sizes.
    """

    def __init__(self, parts: Sequence[Part], only: Sequence[Size] | None = None) -> None:
        if not parts:
            raise TableError("there are no labels to train on")
        self.parts = tuple(parts)
        first = parts[0][0]
        for cache, _ in parts:
            for name in ("standard", "ctu_size"):
                if getattr(cache, name) != getattr(first, name):
                    raise TableError(f"{cache.table} and {first.table} have labels of a different {name}")
        self.standard, self.ctu_size = first.standard, first.ctu_size
        self.modes = MODE_COUNT[self.standard]
        found = {size for cache, split in parts for size in cache.sizes[split]}
        self.sizes = tuple(sorted(found if only is None else found & set(only)))
        if not self.sizes:
            sizes = ", ".join(f"{width}x{height}" for width, height in only or ())
            raise TableError(f"{first.table} has no blocks of {sizes or 'any size'} in the split {parts[0][1]}")
        self._open: dict[Any, Array] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}

    def count(self, size: Size) -> int:
        """How many blocks of a size there are."""
        return int(self._ends(size)[-1])

    def cut(self, size: Size, numbers: npt.NDArray[np.int64]) -> dict[str, Array]:
        """The blocks of one size with some numbers, n of them:

        line (n, 2h+1+2w) int32   references as `reference_lines` gives them
        block (n, h, w) int32     the original's samples
        bit_depth, qp (n,) int32  QP is 0 where references come from the original
        mode (n,) int64           the best mode
        """
        width, height = size
        count = len(numbers)
        out: dict[str, Array] = {
            "line": np.empty((count, 2 * height + 1 + 2 * width), np.int32),
            "block": np.empty((count, height, width), np.int32),
            "bit_depth": np.empty(count, np.int32),
            "qp": np.empty(count, np.int32),
            "mode": np.empty(count, np.int64),
        }
        ends = self._ends(size)
        which = np.searchsorted(ends, numbers, side="right")
        for part in np.unique(which):
            mine = which == part
            start = ends[part - 1] if part else 0
            for name, values in self._cut(int(part), size, numbers[mine] - start).items():
                out[name][mine] = values
        return out

    def _cut(self, part: int, size: Size, numbers: npt.NDArray[np.int64]) -> dict[str, Array]:
        width, height = size
        cache = self.parts[part][0]
        planes = self._mapped((part, "planes"), cache.planes)
        rows = self._rows(part, size)[numbers]
        picture = self._mapped((part, "pictures"), cache.pictures)[rows["picture"]]
        positions = np.stack((rows["x"], rows["y"]), 1).astype(np.int64)
        stride = picture["width"].astype(np.int64)[:, None]
        x, y, known = reference_places(
            positions, width, height, stride, picture["height"].astype(np.int64)[:, None], self.ctu_size
        )
        line = planes[picture["references"][:, None] + y * stride + x].astype(np.int32)
        line[~known] = 1 << (picture["bit_depth"][~known, None] - 1)
        corner = picture["original"] + positions[:, 1] * stride[:, 0] + positions[:, 0]
        inside = np.arange(height)[:, None] * stride[:, :, None] + np.arange(width)
        block = planes[corner[:, None, None] + inside].astype(np.int32)
        told = {"bit_depth": picture["bit_depth"], "qp": picture["qp"]}
        return {"line": line, "block": block, "mode": rows["mode"]} | told

    def most_frequent(self, size: Size) -> int:
        """The label that most blocks of a size have, the lower of two."""
        counts = np.zeros(self.modes, np.int64)
        for part in range(len(self.parts)):
            rows = self._rows(part, size)
            for start in range(0, len(rows), 1 << 20):
                counts += np.bincount(rows[start : start + (1 << 20)]["mode"], minlength=self.modes)
        return int(counts.argmax())

    def _rows(self, part: int, size: Size) -> Array:
        cache, split = self.parts[part]
        return self._mapped((part, size), lambda: cache.rows(split, size))

    def _ends(self, size: Size) -> Array:
        return np.cumsum([len(self._rows(part, size)) for part in range(len(self.parts))])

    def _mapped(self, key: Any, opened: Callable[[], Array]) -> Array:
        if key not in self._open:
            self._open[key] = np.asarray(opened())
        return self._open[key]


@dataclass(eq=False)
class ModeBatches(Dataset[dict[str, Tensor]]):
    """Item k is the k-th batch of a run: `batch` blocks of one size, drawn evenly from all blocks of that size.

    It holds what `LabelledBlocks.cut` gives, and with a `cost` the "costs" of all modes by it, (n, modes) float32.
    With `augment`, every second square block on average is transposed. `part` is (rank, world): of each batch the
    blocks rank, rank + world, ... Raises ConfigError for a batch that does not divide by the world.
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
        if self.batch % self.part[1]:
            raise ConfigError(f"a batch of {self.batch} blocks cannot be shared evenly by {self.part[1]} processes")
        weights = np.array([(width * height) ** -0.5 for width, height in self.blocks.sizes])
        self._chances = weights / weights.sum()

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([self.seed, step])
        size = self.blocks.sizes[int(rng.choice(len(self.blocks.sizes), p=self._chances))]
        numbers = rng.integers(self.blocks.count(size), size=self.batch)
        turned = rng.random(self.batch) < 0.5
        mine = slice(self.part[0], None, self.part[1])
        cut = self.blocks.cut(size, numbers[mine])
        if self.augment and size[0] == size[1]:
            cut = transpose(cut, turned[mine], self.blocks.modes)
        if self.cost is not None:
            cut["costs"] = costs_of(cut, self.cost, self.blocks.standard).astype(np.float32)
        return {name: torch.from_numpy(values) for name, values in cut.items()}


def transpose(cut: dict[str, Array], turned: npt.NDArray[np.bool_], modes: int) -> dict[str, Array]:
    """Square blocks of `LabelledBlocks.cut`, those that are `turned` (n,) with rows and columns exchanged.

    References change sides with them, and mode m from 2 on becomes modes + 1 - m: prediction is symmetric in both
    standards.
    """
    mode = cut["mode"]
    return cut | {
        "line": np.where(turned[:, None], cut["line"][:, ::-1], cut["line"]),
        "block": np.where(turned[:, None, None], cut["block"].swapaxes(1, 2), cut["block"]),
        "mode": np.where(turned & (mode >= 2), modes + 1 - mode, mode),
    }


def costs_of(cut: Mapping[str, npt.NDArray[Any]], cost: str, standard: str) -> npt.NDArray[np.float64]:
    """Costs of all modes (n, modes) of blocks of `LabelledBlocks.cut`, by a name in COSTS."""
    # Only the rate depends on the QP: the other costs are computed in one piece a bit depth.
    qps = cut["qp"] if cost == "rate" else np.zeros_like(cut["qp"])
    out = np.empty((len(qps), MODE_COUNT[standard]))
    for depth, qp in np.unique(np.stack((cut["bit_depth"], qps)), axis=1).T.tolist():
        mine = (cut["bit_depth"] == depth) & (qps == qp)
        out[mine] = block_costs(cut["line"][mine], cut["block"][mine], depth, cost, standard, qp=qp)
    return out


def iterate_modes(
    data: ModeBatches, steps: range, *, workers: int = 0, device: str | torch.device = "cpu"
) -> Iterator[dict[str, Tensor]]:
    """The batches `steps` of `data` on `device`, cut by `workers` processes; which of them does not change a batch."""
    pin = torch.device(device).type == "cuda"
    for batch in DataLoader(
        data, batch_size=None, sampler=steps, num_workers=workers, pin_memory=pin, worker_init_fn=leave_signals
    ):
        yield {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def network_input(model: ModeClassifier, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """What a mode network's `forward` takes of a batch."""
    return model.inputs(batch["line"], batch["block"], batch["bit_depth"], batch["qp"])
