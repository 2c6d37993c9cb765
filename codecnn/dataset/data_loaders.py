"""Data loaders of PyTorch for training loops outside of codecnn: patches and whole pictures of a store.

Both give dictionaries of float32 tensors; n is the number of patches, or 1 for a whole picture:

| key | shape | value |
|---|---|---|
| `rec_y`, `unf_y`, ... (as asked for) | (n, 1, h + 2 halo, w + 2 halo) | samples as x / 2^bit_depth, edges repeated |
| `rec_u`, `rec_v` (as asked for) | half of that | 4:2:0 chroma samples |
| `qp`, `slice_type` (as asked for) | (n, 1, 1, 1) | slice QP / 64; 0 for intra, 1 for inter pictures |
| `depth`, `cu_qp`, ... (as asked for) | (n, 1, h + 2 halo, w + 2 halo) | values of the coding tree, about 0 to 1 |
| `orig_y`; `orig_u`, `orig_v` as asked for | (n, 1, h, w); half of that | original samples as x / 2^bit_depth |
| `valid` | (n, 1, h, w) | 1 inside the picture, 0 where samples only fill the shape |
| `picture_mse` | (n,) | luma MSE of the whole decoded picture, in the scale of the samples squared |
| `weight` | (n,) | weight of the patch in the loss; 1 unless patches are drawn by their error |
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords
from codecnn.base.planes import BLOCK_SIZE, CELL_FILES, CELL_PLANES, QP_PLANE
from codecnn.dataset.loader import Batch, TrainingBatches, as_floats, as_tensors
from codecnn.dataset.patches import Patch, PatchReader, copy_window
from codecnn.dataset.sampling import ALIGNMENT
from codecnn.dataset.store import Store, open_store
from codecnn.dataset.unit import Unit


@checked_keywords()
def patch_loader(
    store: Store | Path | str,
    split: str = "train",
    *,
    planes: Sequence[str] = ("rec_y", QP_PLANE),
    batch: int = 16,
    steps: int = 1000,
    patch: int = 128,
    halo: int = 0,
    augment: bool = True,
    seed: int = 0,
    workers: int = 0,
) -> DataLoader[Batch]:
    """Create a data loader of random patches, the same as codecnn trains on.

    Iterating gives `steps` batches with the tensors that the table of this module lists. Batch k depends on the seed
    and k alone, not on the number of workers.

    Args:
        store: The store, or its folder.
        split: "train", "val" or "test".
        planes: Planes that the batches hold, e.g. ("rec_y", "qp", "unf_y", "orig_u"); orig_y is always added.
        batch: Patches in a batch.
        steps: Number of batches.
        patch: Width and height of a patch in luma samples, a multiple of 8.
        halo: Luma samples around the patch in the input planes: as many as the network removes on each side.
        augment: Turn each patch by a random symmetry of the square.
        seed: Seed of all draws.
        workers: Number of loading processes.

    Returns:
        The data loader.

    Raises:
        StoreError: The store has no such split, or lacks a plane.
        ConfigError: A plane is unknown, or the sizes do not fit each other.
    """
    units = _opened(store).split(split)
    data = TrainingBatches(
        units, batch=batch, steps=steps, size=patch, halo=halo, planes=planes, augment=augment, seed=seed
    )
    return _loader(data, workers)


@checked_keywords()
def picture_loader(
    store: Store | Path | str,
    split: str = "val",
    *,
    planes: Sequence[str] = ("rec_y", QP_PLANE),
    halo: int = 0,
    stride: int = 1,
    workers: int = 0,
) -> DataLoader[Batch]:
    """Create a data loader of all pictures of a split, one at a time, in the order of the store.

    Pictures may differ in size. The tensors are those that the table of this module lists, with n = 1.

    Args:
        store: The store, or its folder.
        split: "train", "val" or "test".
        planes: As for `patch_loader`.
        halo: As for `patch_loader`; the samples around the picture repeat its edge.
        stride: Height and width become multiples of it, by repeating the last row and column; `valid` is 0 there.
        workers: Number of loading processes.

    Returns:
        The data loader.

    Raises:
        StoreError: The store has no such split, or lacks a plane.
        ConfigError: A plane is unknown, or halo and stride do not fit.
    """
    return _loader(WholePictures(_opened(store).split(split), planes, halo, stride), workers)


class WholePictures(Dataset[Batch]):
    """All pictures of some units: item i has the tensors that the table of this module lists, with n = 1."""

    def __init__(
        self, units: Sequence[Unit], planes: Sequence[str] = ("rec_y", QP_PLANE), halo: int = 0, stride: int = 1
    ) -> None:
        """List the pictures; the arguments are those of `picture_loader`."""
        if stride < 1:
            raise ConfigError(f"stride must be at least 1, not {stride}")
        self.reader = PatchReader(units, ALIGNMENT, halo, planes)
        has_chroma = any(cut.factor > 1 for cut in self.reader.cuts)
        self.stride = math.lcm(stride, 2) if has_chroma else stride
        self.positions = [(index, picture) for index, unit in enumerate(units) for picture in range(len(unit.pictures))]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int) -> Batch:
        unit, picture = self.positions[index]
        form = self.reader.files.formats[unit]
        height, width = (extent + -extent % self.stride for extent in (form.height, form.width))
        arrays = self.reader.facts([Patch(unit, picture, 0, 0)], [0])
        arrays["rows"] = (np.arange(height) < form.height)[None, None, :, None]
        arrays["columns"] = (np.arange(width) < form.width)[None, None, None, :]
        for cut in self.reader.cuts:
            if cut.file in CELL_FILES:
                plane = CELL_PLANES[cut.name].read(self.reader.files.pictures(cut.file, unit)[picture])
                plane = plane.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)[: form.height, : form.width]
            else:
                plane = self.reader.files.plane(cut.file, unit, picture, cut.index)
            out = np.empty((height // cut.factor + 2 * cut.halo, width // cut.factor + 2 * cut.halo), plane.dtype)
            copy_window(out, plane, -cut.halo, -cut.halo)
            arrays[cut.name] = out[None, None]
        return as_floats(as_tensors(arrays))


def _opened(store: Store | Path | str) -> Store:
    return store if isinstance(store, Store) else open_store(store)


def _loader(data: Dataset[Batch], workers: int) -> DataLoader[Batch]:
    return DataLoader(data, batch_size=None, num_workers=workers, pin_memory=torch.cuda.is_available())
