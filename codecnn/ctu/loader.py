"""Patches of a store as tensors: cut from the memory-mapped pictures when they are asked for.

Batch number k of a training run is a function of (seed, k) alone, so a resumed run sees the data it would have seen,
and any number of loading processes gives the same batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from codecnn.codec.base import QP_SCALE
from codecnn.ctu.grid import ctu_grid, cut
from codecnn.ctu.store import Unit
from codecnn.errors import ConfigError, StoreError

ALIGNMENT = 8
"""Random patches start on the 8x8 grid on which VVC and HEVC deblock; flips and transposes keep that grid in place."""


@dataclass(frozen=True)
class Patch:
    """Where a patch lies: unit number, picture, and its upper left luma sample (the halo lies outside of it)."""

    unit: int
    picture: int
    x: int
    y: int


class PatchReader:
    """Cuts patches of `size` x `size` samples with `halo` samples around from decoded and original pictures.

    The halo is what the neighbouring CTUs really hold; at the picture's edge the nearest sample is repeated.
    """

    def __init__(self, units: Sequence[Unit], size: int, halo: int) -> None:
        if size < 1 or halo < 0:
            raise ConfigError(f"a patch of size {size} with halo {halo} cannot be cut")
        self.units = tuple(units)
        self.size = size
        self.halo = halo
        self.bit_depths = [unit.format.bit_depth for unit in self.units]
        self._decoded = [unit.decoded() for unit in self.units]
        self._originals = [unit.originals() for unit in self.units]

    def slice_qp(self, patch: Patch) -> int:
        """The slice QP of the patch's picture."""
        return int(self.units[patch.unit].record["pictures"][patch.picture]["qp"])

    def picture_mse(self, patch: Patch) -> float:
        """Luma error of the patch's whole picture in (x / 2^bit_depth)², from its PSNR; 1 where it has no error."""
        psnr = self.units[patch.unit].record["pictures"][patch.picture]["psnr_y"]
        return 1.0 if psnr is None else float((255 / 256) ** 2 * 10 ** (-psnr / 10))

    def read(self, patch: Patch) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Decoded luma (size + 2·halo, size + 2·halo) and original luma (size, size), integer samples."""
        decoded = self._decoded[patch.unit][patch.picture].y
        original = self._originals[patch.unit][patch.picture].y
        outer = self.size + 2 * self.halo
        return (
            cut(decoded, patch.x - self.halo, patch.y - self.halo, outer, outer),
            cut(original, patch.x, patch.y, self.size, self.size),
        )

    def valid(self, patch: Patch) -> npt.NDArray[np.bool_]:
        """(size, size): which samples of the patch lie inside the picture; the loss counts only those."""
        form = self.units[patch.unit].format
        inside = np.arange(self.size)
        rows, columns = patch.y + inside < form.height, patch.x + inside < form.width
        return rows[:, None] & columns[None, :]

    def batch(self, patches: Sequence[Patch], transforms: Sequence[int]) -> dict[str, Tensor]:
        """Tensors of a batch: rec_y (n, 1, P, P), qp (n, 1, 1, 1), orig_y and valid (n, 1, S, S), picture_mse (n,).

        Samples are x / 2^bit_depth, `qp` is q / 64, valid is 0 or 1; float32. transforms[i] is one of the eight flips
        and transposes of a square (0 leaves the patch as it is).
        """
        decoded: list[npt.NDArray[np.float32]] = []
        original: list[npt.NDArray[np.float32]] = []
        valid = []
        for patch, transform in zip(patches, transforms, strict=True):
            scale = np.float32(2.0 ** -self.bit_depths[patch.unit])
            for plane, kept in zip(self.read(patch), (decoded, original), strict=True):
                kept.append(_dihedral(plane, transform).astype(np.float32) * scale)
            valid.append(_dihedral(self.valid(patch), transform))
        qps = np.array([self.slice_qp(patch) for patch in patches])
        return {
            "rec_y": torch.from_numpy(np.stack(decoded)[:, None]),
            "orig_y": torch.from_numpy(np.stack(original)[:, None]),
            "valid": torch.from_numpy(np.stack(valid)[:, None].astype(np.float32)),
            "qp": torch.from_numpy((qps / QP_SCALE).astype(np.float32)[:, None, None, None]),
            "picture_mse": torch.tensor([self.picture_mse(patch) for patch in patches], dtype=torch.float32),
        }


def _dihedral(plane: npt.NDArray[Any], transform: int) -> npt.NDArray[Any]:
    """One of the eight symmetries of the square: bit 0 transposes, bit 1 flips up-down, bit 2 left-right."""
    if transform & 1:
        plane = plane.T
    if transform & 2:
        plane = plane[::-1]
    if transform & 4:
        plane = plane[:, ::-1]
    return plane


class CtuPatches(Dataset[dict[str, Tensor]]):
    """Every CTU of some units once, in order: 128x128 targets with 132x132 inputs by default.

    Item i has the tensors of `PatchReader.batch` for one patch (without the leading n). A CTU that the picture's edge
    cuts short keeps its full size, with the edge repeated and `valid` 0 outside of the picture.
    """

    def __init__(self, units: Sequence[Unit], size: int = 128, halo: int = 2) -> None:
        self.reader = PatchReader(units, size, halo)
        self.patches = [
            Patch(index, picture, int(x), int(y))
            for index, unit in enumerate(units)
            for picture in range(len(unit.record["pictures"]))
            for x, y, _, _ in ctu_grid(unit.format.width, unit.format.height, size)
        ]

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: tensor[0] for name, tensor in self.reader.batch([self.patches[index]], [0]).items()}


class TrainingBatches(Dataset[dict[str, Tensor]]):
    """Item k is the k-th batch of a run: a QP drawn evenly, then a sequence, then a place, then a symmetry.

    Sequences are drawn evenly too, not by their area: one large picture would make up most of a small set.

    `positions` is "ctu" (the CTU grid of `size`) or "random" (anywhere on the 8x8 grid). A QP here is the one that the
    unit was asked for; pictures of an RA or LDB hierarchy bring their own slice QPs with them.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        *,
        batch: int,
        steps: int,
        size: int = 128,
        halo: int = 2,
        positions: Literal["ctu", "random"] = "random",
        augment: bool = True,
        seed: int = 0,
    ) -> None:
        if not units:
            raise StoreError("there are no units to train on")
        if size % ALIGNMENT:
            raise ConfigError(f"patch size {size} is not a multiple of {ALIGNMENT}")
        self.reader = PatchReader(units, size, halo)
        self.batch, self.steps, self.size = batch, steps, size
        self.positions, self.augment, self.seed = positions, augment, seed
        self.qps = sorted({unit.qp for unit in units})
        self._by_qp = [[index for index, unit in enumerate(units) if unit.qp == qp] for qp in self.qps]

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([self.seed, step])
        patches = [self._draw(rng) for _ in range(self.batch)]
        transforms = rng.integers(8, size=self.batch) if self.augment else np.zeros(self.batch, dtype=np.int64)
        return self.reader.batch(patches, [int(transform) for transform in transforms])

    def _draw(self, rng: np.random.Generator) -> Patch:
        which = int(rng.integers(len(self.qps)))
        index = int(rng.choice(self._by_qp[which]))
        unit = self.reader.units[index]
        picture = int(rng.integers(len(unit.record["pictures"])))
        step = self.size if self.positions == "ctu" else ALIGNMENT
        x, y = (self._start(rng, extent, step) for extent in (unit.format.width, unit.format.height))
        return Patch(index, picture, x, y)

    def _start(self, rng: np.random.Generator, extent: int, step: int) -> int:
        """A start on the grid: any CTU, or any place at which the patch lies inside the picture, if it fits at all."""
        last = extent - 1 if self.positions == "ctu" else max(extent - self.size, 0)
        return int(rng.integers(last // step + 1)) * step
