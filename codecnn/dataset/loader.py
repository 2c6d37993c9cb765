"""Training batches as tensors, cut from memory-mapped files or from planes in the memory of a GPU.

Batch number k of a training run depends on (seed, k) only: a resumed run sees the same data, and any number of loading
processes gives the same batches.

Loading processes return integers, which have a quarter of the bytes of float32; `as_floats` converts them on the
training device.
"""

import math
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.planes import BLOCK_SIZE, CELL_FILES, CELL_PLANES, QP_PLANE, QP_SCALE, SLICE_TYPE_PLANE
from codecnn.dataset.patches import FILE_PLANES, IntArray, Patch, PatchReader, PlaneCut
from codecnn.dataset.sampling import ALIGNMENT, Positions, Sampler, UnitsShare
from codecnn.dataset.unit import Unit
from codecnn.pictures.metrics import ctu_grid

Batch = dict[str, Tensor]
Layout = list[tuple[str, torch.dtype, tuple[int, ...], int]]
"""Name, type, shape and first byte of each tensor in a packed batch."""

_MEMORY_SHARE = 0.8
"""Share of the device's free memory that resident planes may use; the rest is for the network."""


def as_floats(batch: Mapping[str, Tensor]) -> Batch:
    """Convert an integer batch to the float32 tensors of networks and losses.

    Args:
        batch: The arrays of `PatchReader.cut` as tensors.

    Returns:
        Samples as x / 2^bit_depth, QPs as q / 64, cells divided by their scale, and "valid" (n, 1, S, S), 1 where a
        sample is valid, else 0; "picture_mse", "picture_mse_u", "picture_mse_v" and "weight" (n,) are unchanged.
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
    """Return the arrays of `PatchReader.cut` as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def to_device(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy a tensor from the CPU to a device, on a GPU through pinned memory and without waiting for the copy."""
    if torch.device(device).type == "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class CtuPatches(Dataset[Batch]):
    """All CTUs of some units in order, by default 128x128 targets with 132x132 inputs.

    Item i has the tensors of `as_floats` for one patch, without the leading n. A CTU at the picture's edge keeps its
    full size: the edge is repeated, and `valid` is 0 outside the picture.
    """

    def __init__(
        self, units: Sequence[Unit], size: int = 128, halo: int = 2, planes: Sequence[str] = ("rec_y", QP_PLANE)
    ) -> None:
        """List the CTUs; the arguments are those of `PatchReader`."""
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
    """Batches of a training run: item k is the k-th batch, with the tensors of `as_floats`.

    A batch holds the requested planes, orig_y, valid, picture_mse and weight. `Sampler` draws the patches, and each is
    turned by one of the eight symmetries of the square.
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
        border: int = 0,
        seed: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Index the units.

        Args:
            sources: Units, or pairs (units, share) to draw from several stores by their shares.
            batch: Patches per batch.
            steps: Number of batches.
            size: Width and height of a patch in luma samples, a multiple of 8.
            halo: As for `PatchReader`.
            planes: As for `PatchReader`.
            positions: As for `Sampler`.
            augment: Turn each patch by a random symmetry.
            error_exponent: As for `Sampler`.
            keep_objective: As for `Sampler`.
            border: As for `PatchReader`.
            seed: Seed of all draws.
            part: (i, n) keeps the i-th of n parts of each batch, for n processes that train together. The sizes of the
                parts differ by at most one patch. Patches are drawn independently, so each part mixes QPs and sequences
                as the whole batch does.

        Raises:
            StoreError: There are no units, or a unit lacks a plane.
            ConfigError: The patch size or the number of parts does not fit.
        """
        parts = _with_shares(sources)
        if not parts or not all(units for units, _ in parts):
            raise StoreError("there are no units to train on")
        if size % ALIGNMENT:
            raise ConfigError(f"patch size {size} is not a multiple of {ALIGNMENT}")
        if batch < part[1]:
            raise ConfigError(
                f"a batch of {batch} patches cannot be split over {part[1]} processes: enlarge training.batch"
            )
        self.reader = PatchReader([unit for units, _ in parts for unit in units], size, halo, planes, border)
        self.sampler = Sampler(parts, size, positions, error_exponent, keep_objective=keep_objective, border=border)
        self.batch, self.steps, self.augment, self.seed = batch, steps, augment, seed
        rank, world = part
        self._part = slice(rank * batch // world, (rank + 1) * batch // world)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        return as_floats(self.integers(step))

    def integers(self, step: int) -> Batch:
        """Return batch `step` before `as_floats`."""
        return as_tensors(self.reader.cut(*self.draw(step)))

    def draw(self, step: int) -> tuple[list[Patch], npt.NDArray[np.int64]]:
        """Draw the patches of this part of batch `step`, and the symmetry of each."""
        rng = np.random.default_rng([self.seed, step])
        patches = self.sampler.draw(rng, self.batch)
        transforms = rng.integers(8, size=self.batch) if self.augment else np.zeros(self.batch, dtype=np.int64)
        return patches[self._part], transforms[self._part]


def _with_shares(sources: Sequence[Unit] | Sequence[UnitsShare]) -> list[UnitsShare]:
    units = [source for source in sources if isinstance(source, Unit)]
    return [(units, 1.0)] if units else [source for source in sources if not isinstance(source, Unit)]


class PackedBatches(Dataset[tuple[Tensor, Layout]]):
    """Integer batches, each packed into one tensor: passing many tensors between processes costs more than the bytes.

    Pickled for a spawned worker process, it holds paths and geometry only.
    """

    def __init__(self, data: TrainingBatches) -> None:
        """Wrap the batches `data`."""
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, step: int) -> tuple[Tensor, Layout]:
        return pack(self.data.integers(step))


def pack(batch: Batch) -> tuple[Tensor, Layout]:
    """Concatenate the bytes of all tensors.

    Returns:
        The bytes, uint8 of shape (n,), and the layout for `unpack`.
    """
    sizes = [ceil_div(tensor.nbytes, 16) * 16 for tensor in batch.values()]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    packed = torch.empty(sum(sizes), dtype=torch.uint8)
    layout = []
    for (name, tensor), start in zip(batch.items(), starts, strict=True):
        packed[start : start + tensor.nbytes] = tensor.contiguous().flatten().view(torch.uint8)
        layout.append((name, tensor.dtype, tuple(tensor.shape), start))
    return packed, layout


def unpack(packed: Tensor, layout: Layout) -> Batch:
    """Undo `pack` without copying, on the device of `packed`."""
    batch = {}
    for name, dtype, shape, start in layout:
        count = math.prod(shape) * dtype.itemsize
        batch[name] = packed[start : start + count].view(dtype).view(shape)
    return batch


def ignore_signals(worker: int) -> None:
    """Ignore SIGTERM and SIGINT in a loading process; for the `worker_init_fn` of a DataLoader.

    Schedulers and terminals send these signals to all processes of a job. The training process decides when to stop;
    if its loading processes ended first, torch would raise an error in the middle of a step.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def iterate(
    data: TrainingBatches, steps: range, *, workers: int = 0, device: str | torch.device = "cpu"
) -> Iterator[Batch]:
    """Yield batches on a device.

    Args:
        data: The batches.
        steps: Numbers of the batches.
        workers: Number of loading processes, which live until the last batch; 0 loads in this process. The content of a
            batch does not depend on it.
        device: Device of the tensors.

    Yields:
        The tensors of `as_floats`.
    """
    on_gpu = torch.device(device).type != "cpu"
    if workers == 0:
        for step in steps:
            if on_gpu:
                packed, layout = pack(data.integers(step))
                yield as_floats(unpack(to_device(packed, device), layout))
            else:
                yield data[step]
        return
    # The sampler is the range of steps, so that a resumed run cuts nothing twice.
    for packed, layout in DataLoader(
        PackedBatches(data),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=on_gpu,
        worker_init_fn=ignore_signals,
    ):
        yield as_floats(unpack(packed.to(device, non_blocking=True), layout))


class ResidentBatches:
    """Training batches gathered on a device whose memory holds all planes.

    Item k has the same tensors as item k of the `TrainingBatches` it is made from.
    """

    def __init__(self, data: TrainingBatches, device: str | torch.device, memory_share: float = _MEMORY_SHARE) -> None:
        """Copy all planes to the device.

        Args:
            data: The batches.
            device: Device that holds the planes.
            memory_share: Share of the device's free memory that the planes may use.

        Raises:
            ConfigError: The planes need more memory.
        """
        self.data, self.device = data, torch.device(device)
        reader = data.reader
        self._locations, loads, sizes = _layout(reader)
        dtypes = {"samples": torch.uint8 if reader.dtype == np.uint8 else torch.int16, "cells": torch.int8}
        need = sum(size * dtypes[name].itemsize for name, size in sizes.items())
        free = _free_memory(self.device)
        if need > memory_share * free:
            raise ConfigError(
                f"the training pictures need {need / 2**30:.2f} GiB on {self.device}, where {memory_share:.0%} of the "
                f"free {free / 2**30:.2f} GiB may be taken: switch training.resident off"
            )
        self._memory = {name: torch.empty(size, dtype=dtypes[name], device=self.device) for name, size in sizes.items()}
        for cut, unit, start in loads:
            plane = _whole_plane(reader, cut, unit)
            self._memory[_memory_of(cut)][start : start + plane.size] = torch.from_numpy(plane).to(self.device)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, step: int) -> Batch:
        patches, transforms = self.data.draw(step)
        reader = self.data.reader
        batch = {
            name: to_device(tensor, self.device)
            for name, tensor in as_tensors(reader.facts(patches, transforms)).items()
        }
        for cut in reader.cuts:
            terms = _index_terms(cut, self._locations[cut.name], patches, transforms)
            memory = self._memory[_memory_of(cut)]
            narrow = torch.int32 if memory.numel() < 2**31 else torch.int64
            rows, columns = (to_device(torch.from_numpy(term).to(narrow), self.device) for term in terms)
            plane = memory.index_select(0, (rows[:, :, None] + columns[:, None, :]).flatten())
            # Torch gathers int16 but not uint16; the bits are the same.
            plane = plane.view(torch.uint16) if plane.dtype == torch.int16 else plane
            batch[cut.name] = plane.view(len(patches), 1, cut.side, cut.side)
        return as_floats(batch)


def _free_memory(device: torch.device) -> int:
    """Return the bytes of free memory of a GPU, or of the machine for the CPU."""
    if device.type != "cpu":
        return int(torch.get_device_module(device).mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # Only Linux reports the free memory; elsewhere all memory is assumed to be free.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _memory_of(cut: PlaneCut) -> str:
    return "cells" if cut.file in CELL_FILES else "samples"


def _layout(reader: PatchReader) -> tuple[dict[str, IntArray], list[tuple[PlaneCut, int, int]], dict[str, int]]:
    """Assign all planes to positions in the memories "samples" and "cells".

    A file that several units share, such as the original of all QPs, is stored once, and so are the decoded pictures of
    `rec_y`, `prev_y` and `next_y`.

    Returns:
        By name of the plane, the start of the first picture, the height, the width and the number of pictures of each
        unit, shape (4, units); the planes to load as (plane, unit, start); and the size of each memory in samples or
        cells.
    """
    starts: dict[tuple[Path, str], int] = {}
    loads = []
    locations = {}
    sizes = dict.fromkeys(map(_memory_of, reader.cuts), 0)
    for cut in reader.cuts:
        stored = cut.name if cut.file in CELL_FILES else str(cut.index)
        for unit, path in enumerate(reader.files.paths[cut.file]):
            key = (path, stored)
            if key not in starts:
                memory = _memory_of(cut)
                starts[key] = sizes[memory]
                loads.append((cut, unit, sizes[memory]))
                height, width = _stored_shape(reader, cut, unit)
                sizes[memory] += reader.files.counts[unit] * height * width
        shapes = [_stored_shape(reader, cut, unit) for unit in range(len(reader.units))]
        first = [starts[path, stored] for path in reader.files.paths[cut.file]]
        locations[cut.name] = np.array([first, *zip(*shapes, strict=True), reader.files.counts])
    return locations, loads, sizes


def _stored_shape(reader: PatchReader, cut: PlaneCut, unit: int) -> tuple[int, int]:
    """Return the (height, width) of a plane in samples, or in cells."""
    height, width = reader.files.extent(cut.file, unit, 0 if cut.file in CELL_FILES else cut.index)[1]
    if cut.file in CELL_FILES:
        return ceil_div(height, BLOCK_SIZE), ceil_div(width, BLOCK_SIZE)
    return height, width


def _whole_plane(reader: PatchReader, cut: PlaneCut, unit: int) -> npt.NDArray[np.generic]:
    """Return a plane of all pictures of a unit, shape (n,): int8 cells, or uint8 or int16 samples."""
    pictures = reader.files.pictures(cut.file, unit)
    if cut.file in CELL_FILES:
        return np.array(CELL_PLANES[cut.name].read(pictures)).ravel()
    start, (height, width) = reader.files.extent(cut.file, unit, cut.index)
    samples = np.array(pictures[:, start : start + height * width], dtype=reader.dtype).ravel()
    return samples if samples.dtype == np.uint8 else samples.view(np.int16)


def _index_terms(
    cut: PlaneCut, locations: IntArray, patches: Sequence[Patch], transforms: IntArray
) -> tuple[IntArray, IntArray]:
    """Return two terms of the memory index of patch samples, each of shape (n, side).

    The index of sample (r, c) of transformed patch i is rows[i, r] + columns[i, c]. A transpose makes the rows of the
    patch run along the columns of the picture, a flip reverses their direction.
    """
    positions, symmetry = np.array([patch[:4] for patch in patches]), np.asarray(transforms)[:, None]
    unit, picture, x, y = positions.T
    first, heights, widths, counts = locations[:, unit, None]
    shown = np.clip(picture[:, None] + cut.offset, 0, counts - 1)
    cell = BLOCK_SIZE if cut.file in CELL_FILES else 1
    forward = np.arange(cut.side)
    along_rows = np.where(symmetry & 2, forward[::-1], forward)
    along_columns = np.where(symmetry & 4, forward[::-1], forward)
    down, across = np.where(symmetry & 1, along_columns, along_rows), np.where(symmetry & 1, along_rows, along_columns)
    down = np.clip(((y // cut.factor - cut.halo)[:, None] + down) // cell, 0, heights - 1) * widths
    across = np.clip(((x // cut.factor - cut.halo)[:, None] + across) // cell, 0, widths - 1)
    rows, columns = np.where(symmetry & 1, across, down), np.where(symmetry & 1, down, across)
    return rows + first + shown * heights * widths, columns
