"""Patches of a store as tensors, cut from the memory-mapped pictures when they are asked for.

Batch number k of a training run is a function of (seed, k) alone, so a resumed run sees the data it would have seen,
and any number of loading processes gives the same batches.

Loading processes hand over integers: they are a quarter of the bytes, and `as_floats` turns them into what networks
take on the device itself.
"""

import math
import signal
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from codecnn.dataset.patches import FILE_PLANES, Patch, PatchReader
from codecnn.dataset.sampling import ALIGNMENT, Positions, Sampler, UnitsShare
from codecnn.dataset.store import Unit
from codecnn.errors import ConfigError, StoreError
from codecnn.planes import CELL_PLANES, QP_PLANE, QP_SCALE, SLICE_TYPE_PLANE
from codecnn.quality import ctu_grid

Batch = dict[str, Tensor]
Layout = list[tuple[str, torch.dtype, tuple[int, ...], int]]
"""Name, type, shape and first byte of each tensor in a packed batch."""


def as_floats(batch: Mapping[str, Tensor]) -> Batch:
    """The tensors that networks and losses take, float32, from the integers of `PatchReader.cut`.

    Samples become x / 2^bit_depth, QPs q / 64, cells are divided by their scale, valid (n, 1, S, S) is 1 where a sample
    counts, else 0; picture_mse, picture_mse_u, picture_mse_v and weight (n,) stay.
    """
    floats = {"valid": batch["rows"].float() * batch["columns"].float()}
    floats |= {name: batch[name] for name in batch if name.startswith("picture_mse") or name == "weight"}
    for name, tensor in batch.items():
        if name in FILE_PLANES:
            floats[name] = tensor.float().mul_(batch["scale"])
        elif name in CELL_PLANES:
            floats[name] = tensor.clamp(min=0).float().div_(CELL_PLANES[name].scale)
        elif name == QP_PLANE:
            floats[name] = tensor / QP_SCALE
        elif name == SLICE_TYPE_PLANE:
            floats[name] = tensor
    return floats


def as_tensors(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Batch:
    """The arrays of `PatchReader.cut` as tensors, without copying."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class CtuPatches(Dataset[Batch]):
    """Every CTU of some units once, in order: 128x128 targets with 132x132 inputs by default.

    Item i has the tensors of `as_floats` for one patch (without the leading n). A CTU that the picture's edge cuts
    short keeps its full size, with the edge repeated and `valid` 0 outside of the picture.
    """

    def __init__(
        self, units: Sequence[Unit], size: int = 128, halo: int = 2, planes: Sequence[str] = ("rec_y", QP_PLANE)
    ) -> None:
        self.reader = PatchReader(units, size, halo, planes)
        self.patches = [
            Patch(index, picture, int(x), int(y))
            for index, unit in enumerate(units)
            for picture in range(len(unit.pictures))
            for x, y, _, _ in ctu_grid(unit.format.width, unit.format.height, size)
        ]

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: int) -> Batch:
        batch = as_floats(as_tensors(self.reader.cut([self.patches[index]], [0])))
        return {name: tensor[0] for name, tensor in batch.items()}


class TrainingBatches(Dataset[Batch]):
    """Item k is the k-th batch of a run: patches that `Sampler` draws, each in one of the eight symmetries.

    `sources` are units, or [(units, share), ...] to draw from several stores, each by its share. A batch holds the
    `planes` that are asked for, orig_y, valid, picture_mse and weight; see `as_floats`. `positions`, `error_exponent`,
    `keep_objective` and `expected_error` are those of `Sampler`, `border` that of `PatchReader`. `part` (i, n) keeps
    the i-th of n equal parts of every batch, for n processes that train together: patches are drawn independently of
    each other, so every part mixes QPs and sequences as the whole does.
    Raises StoreError without units, ConfigError for a patch size or a number of parts that does not fit.
    """

    def __init__(
        self,
        sources: Sequence[Unit] | Sequence[UnitsShare],
        *,
        batch: int,
        steps: int,
        size: int = 128,
        halo: int = 2,
        planes: Sequence[str] = ("rec_y", QP_PLANE),
        positions: Positions = "random",
        augment: bool = True,
        error_exponent: float | None = None,
        keep_objective: bool = False,
        expected_error: bool = False,
        border: int = 0,
        seed: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        parts = _with_shares(sources)
        if not parts or not all(units for units, _ in parts):
            raise StoreError("there are no units to train on")
        if size % ALIGNMENT:
            raise ConfigError(f"patch size {size} is not a multiple of {ALIGNMENT}")
        if batch % part[1]:
            raise ConfigError(f"a batch of {batch} patches cannot be split over {part[1]} processes")
        self.reader = PatchReader([unit for units, _ in parts for unit in units], size, halo, planes, border)
        self.sampler = Sampler(
            parts, size, positions, error_exponent, keep_objective=keep_objective, expected_error=expected_error
        )
        self.batch, self.steps, self.augment, self.seed = batch, steps, augment, seed
        share = batch // part[1]
        self._own = slice(part[0] * share, (part[0] + 1) * share)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        return as_floats(self.integers(step))

    def integers(self, step: int) -> Batch:
        """The batch before `as_floats`."""
        return as_tensors(self.reader.cut(*self.draw(step)))

    def draw(self, step: int) -> tuple[list[Patch], npt.NDArray[np.int64]]:
        """The patches of this part of batch `step`, and the symmetry that each is taken in."""
        rng = np.random.default_rng([self.seed, step])
        patches = self.sampler.draw(rng, self.batch)
        transforms = rng.integers(8, size=self.batch) if self.augment else np.zeros(self.batch, dtype=np.int64)
        return patches[self._own], transforms[self._own]


def _with_shares(sources: Sequence[Unit] | Sequence[UnitsShare]) -> list[UnitsShare]:
    units = [source for source in sources if isinstance(source, Unit)]
    return [(units, 1.0)] if units else [source for source in sources if not isinstance(source, Unit)]


class PackedBatches(Dataset[tuple[Tensor, Layout]]):
    """The integer batches of `data`, each packed into one tensor: handing over a tensor costs more than its bytes do.

    Pickled, as a worker process that is spawned gets it, it holds paths and geometry.
    """

    def __init__(self, data: TrainingBatches) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, step: int) -> tuple[Tensor, Layout]:
        return pack(self.data.integers(step))


def pack(batch: Batch) -> tuple[Tensor, Layout]:
    """The bytes of all tensors behind each other, (n,) uint8, and what `unpack` needs to find them again."""
    sizes = [-(-tensor.nbytes // 16) * 16 for tensor in batch.values()]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    packed = torch.empty(sum(sizes), dtype=torch.uint8)
    layout = []
    for (name, tensor), start in zip(batch.items(), starts, strict=True):
        packed[start : start + tensor.nbytes] = tensor.contiguous().flatten().view(torch.uint8)
        layout.append((name, tensor.dtype, tuple(tensor.shape), start))
    return packed, layout


def unpack(packed: Tensor, layout: Layout) -> Batch:
    """The inverse of `pack`, without copying, on the device of `packed`."""
    batch = {}
    for name, dtype, shape, start in layout:
        count = math.prod(shape) * dtype.itemsize
        batch[name] = packed[start : start + count].view(dtype).view(shape)
    return batch


def leave_signals(worker: int) -> None:
    """Let a loading process ignore SIGTERM and SIGINT, for the `worker_init_fn` of a DataLoader.

    Schedulers and terminals send them to all processes. The one that the data is for decides when it needs no more;
    without this it would lose its data, and torch interrupt it, in the middle of a step.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def iterate(
    data: TrainingBatches, steps: range, *, workers: int = 0, device: str | torch.device = "cpu"
) -> Iterator[Batch]:
    """The batches `steps` of `data` on `device`, cut by `workers` processes, which live until the last batch.

    Which process cuts a batch does not change what is in it.
    """
    if workers == 0:
        for step in steps:
            yield {name: tensor.to(device) for name, tensor in data[step].items()}
        return
    pin = torch.device(device).type == "cuda"
    # The sampler is the range of steps, so that a resumed run cuts nothing twice.
    for packed, layout in DataLoader(
        PackedBatches(data),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=pin,
        worker_init_fn=leave_signals,
    ):
        yield as_floats(unpack(packed.to(device, non_blocking=True), layout))
