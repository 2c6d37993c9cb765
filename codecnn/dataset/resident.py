"""Training batches cut on the device itself, from planes that are put into its memory once."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from codecnn.dataset.loader import Batch, TrainingBatches, as_floats, as_tensors
from codecnn.dataset.patches import IntArray, Patch, PatchReader, PlaneCut
from codecnn.errors import ConfigError
from codecnn.planes import BLOCK_SIZE, CELL_FILES, CELL_PLANES

_MEMORY_SHARE = 0.8
"""How much of the device's free memory the planes may take; the rest is for the network."""


class ResidentBatches:
    """Item k holds the same tensors as item k of `data`, on `device`, where whole batches are gathered by index.

    Raises ConfigError when the planes need more than `memory_share` of the memory that is free there.
    """

    def __init__(self, data: TrainingBatches, device: str | torch.device, memory_share: float = _MEMORY_SHARE) -> None:
        self.data, self.device = data, torch.device(device)
        reader = data.reader
        self._lies, places, sizes = _layout(reader)
        dtypes = {"samples": torch.uint8 if reader.dtype == np.uint8 else torch.int16, "cells": torch.int8}
        need = sum(size * dtypes[name].itemsize for name, size in sizes.items())
        free = _free_memory(self.device)
        if need > memory_share * free:
            raise ConfigError(
                f"the training pictures need {need / 2**30:.2f} GiB on {self.device}, where {memory_share:.0%} of the "
                f"free {free / 2**30:.2f} GiB may be taken: switch training.resident off"
            )
        self._memory = {name: torch.empty(size, dtype=dtypes[name], device=self.device) for name, size in sizes.items()}
        for cut, unit, start in places:
            plane = _whole_plane(reader, cut, unit)
            self._memory[_memory_of(cut)][start : start + plane.size] = torch.from_numpy(plane).to(self.device)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, step: int) -> Batch:
        patches, transforms = self.data.draw(step)
        reader = self.data.reader
        batch = {name: tensor.to(self.device) for name, tensor in as_tensors(reader.facts(patches, transforms)).items()}
        for cut in reader.cuts:
            terms = _index_terms(cut, self._lies[cut.name], patches, transforms)
            memory = self._memory[_memory_of(cut)]
            narrow = torch.int32 if memory.numel() < 2**31 else torch.int64
            rows, columns = (torch.from_numpy(term).to(self.device, narrow) for term in terms)
            plane = memory.index_select(0, (rows[:, :, None] + columns[:, None, :]).flatten())
            # Torch gathers int16 but not uint16; the bits are the same.
            plane = plane.view(torch.uint16) if plane.dtype == torch.int16 else plane
            batch[cut.name] = plane.view(len(patches), 1, cut.side, cut.side)
        return as_floats(batch)


def _free_memory(device: torch.device) -> int:
    """Bytes of memory that are free on a device: the GPU's own, or the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # Elsewhere than on Linux only the whole is known.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _memory_of(cut: PlaneCut) -> str:
    return "cells" if cut.file in CELL_FILES else "samples"


def _layout(reader: PatchReader) -> tuple[dict[str, IntArray], list[tuple[PlaneCut, int, int]], dict[str, int]]:
    """Where everything goes in the memories "samples" and "cells".

    By plane, start of the first picture, height and width for each unit, (3, units); what to load, as (plane, unit,
    start); the sizes in samples and cells. What several units share, such as the originals of all QPs, is there once.
    """
    starts: dict[tuple[Path, str], int] = {}
    places = []
    lies = {}
    sizes = dict.fromkeys(map(_memory_of, reader.cuts), 0)
    for cut in reader.cuts:
        for unit, path in enumerate(reader.files.paths[cut.file]):
            if (path, cut.name) not in starts:
                memory = _memory_of(cut)
                starts[path, cut.name] = sizes[memory]
                places.append((cut, unit, sizes[memory]))
                height, width = _stored_shape(reader, cut, unit)
                sizes[memory] += reader.files.counts[unit] * height * width
        shapes = [_stored_shape(reader, cut, unit) for unit in range(len(reader.units))]
        first = [starts[path, cut.name] for path in reader.files.paths[cut.file]]
        lies[cut.name] = np.array([first, *zip(*shapes, strict=True)])
    return lies, places, sizes


def _stored_shape(reader: PatchReader, cut: PlaneCut, unit: int) -> tuple[int, int]:
    """(height, width) of a plane in samples, or in cells."""
    height, width = reader.files.extent(unit, 0 if cut.file in CELL_FILES else cut.index)[1]
    if cut.file in CELL_FILES:
        return -(-height // BLOCK_SIZE), -(-width // BLOCK_SIZE)
    return height, width


def _whole_plane(reader: PatchReader, cut: PlaneCut, unit: int) -> npt.NDArray[np.generic]:
    """A plane of all pictures of a unit, one after the other: (n,) int8 cells, or uint8 or int16 samples."""
    pictures = reader.files.pictures(cut.file, unit)
    if cut.file in CELL_FILES:
        return np.array(CELL_PLANES[cut.name].read(pictures)).ravel()
    start, (height, width) = reader.files.extent(unit, cut.index)
    samples = np.array(pictures[:, start : start + height * width], dtype=reader.dtype).ravel()
    return samples if samples.dtype == np.uint8 else samples.view(np.int16)


def _index_terms(
    cut: PlaneCut, lies: IntArray, patches: Sequence[Patch], transforms: IntArray
) -> tuple[IntArray, IntArray]:
    """Two (n, side): the index into the memory of sample (r, c) of transformed patch i is rows[i, r] + columns[i, c].

    A transpose lets the rows of the patch run along the columns of the picture, a flip lets them run backwards.
    """
    where, symmetry = np.array([patch[:4] for patch in patches]), np.asarray(transforms)[:, None]
    unit, picture, x, y = where.T
    first, heights, widths = lies[:, unit, None]
    cell = BLOCK_SIZE if cut.file in CELL_FILES else 1
    forward = np.arange(cut.side)
    along_rows = np.where(symmetry & 2, forward[::-1], forward)
    along_columns = np.where(symmetry & 4, forward[::-1], forward)
    down, across = np.where(symmetry & 1, along_columns, along_rows), np.where(symmetry & 1, along_rows, along_columns)
    down = np.clip(((y // cut.factor - cut.halo)[:, None] + down) // cell, 0, heights - 1) * widths
    across = np.clip(((x // cut.factor - cut.halo)[:, None] + across) // cell, 0, widths - 1)
    rows, columns = np.where(symmetry & 1, across, down), np.where(symmetry & 1, down, across)
    return rows + first + picture[:, None] * heights * widths, columns
