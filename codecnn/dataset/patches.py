"""Patches of a store as integers, cut from the memory-mapped files straight into the arrays of a batch.

NumPy only; `codecnn.dataset.loader` turns the integers into what networks take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.dataset._mapped import MappedUnits
from codecnn.dataset.store import Unit
from codecnn.errors import ConfigError, StoreError
from codecnn.planes import (
    BLOCK_SIZE,
    CELL_FILES,
    CELL_PLANES,
    ORIGINAL_PLANES,
    QP_PLANE,
    SAMPLE_PLANES,
    SLICE_TYPE_PLANE,
    TEACHER_PLANES,
    how_to_have,
)

IntArray = npt.NDArray[np.int64]

TARGET_PLANES = ORIGINAL_PLANES | TEACHER_PLANES
"""Planes without a halo: what comes out of a network is compared with them."""

FILE_PLANES = SAMPLE_PLANES | TARGET_PLANES
"""Planes that are cut from files of pictures."""

CHROMA_TARGETS = ("u", "v")
CHROMA_FLOOR = 1 / 32
"""Least that a picture's chroma error counts as, over its luma error. Coded grey has next to none, and what a filter
changes there would outweigh all other pictures; of 99 pictures of many origins at five QPs 2 % lie below."""

PICTURE_PLANES = (QP_PLANE, SLICE_TYPE_PLANE)
"""Planes of one value a picture."""

LOADER_PLANES = (*FILE_PLANES, *PICTURE_PLANES, *CELL_PLANES)
"""Every plane that can be asked for."""


class Patch(NamedTuple):
    """Where a patch lies: unit number, picture, and its upper left luma sample (the halo lies outside of it).

    `weight` is what its loss counts: more than 1 for one that is drawn more seldom than the objective has it.
    """

    unit: int
    picture: int
    x: int
    y: int
    weight: float = 1.0


@dataclass(frozen=True)
class PlaneCut:
    """How a plane is cut: file, component or number of the block plane, and geometry in the plane's own samples.

    `factor` is 1 at luma's resolution and 2 at that of 4:2:0 chroma; `side` includes the halo on both sides. Cells of
    block planes are cut as 4x4 samples each.
    """

    name: str
    file: str
    index: int
    factor: int
    side: int
    halo: int


class PatchReader:
    """Cuts patches of `size` x `size` luma samples from `units`: `planes`, of LOADER_PLANES, and always orig_y.

    Input planes have `halo` luma samples around them, as the neighbouring CTUs hold them; at the picture's edge the
    nearest sample is repeated. Chroma comes at its own resolution, half the size and half the halo. Within `border`
    samples of its edges nothing of a patch is valid, unless it is the picture's edge. Raises StoreError for a plane
    that a unit lacks, ConfigError for planes and sizes that cannot be cut.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        size: int,
        halo: int,
        planes: Sequence[str] = ("rec_y", QP_PLANE),
        border: int = 0,
    ) -> None:
        if size < 1 or halo < 0:
            raise ConfigError(f"a patch of size {size} with halo {halo} cannot be cut")
        if not 0 <= 2 * border < size:
            raise ConfigError(f"a border of {border} samples leaves nothing of a patch of size {size}")
        self.units, self.size, self.halo, self.border = tuple(units), size, halo, border
        self.planes = tuple(dict.fromkeys((*planes, "orig_y")))
        self.cuts = tuple(_plane_cut(name, size, halo) for name in self.planes if name not in PICTURE_PLANES)
        for unit in self.units:
            _check_planes(unit, self.cuts)
        self.files = MappedUnits(self.units, {cut.file for cut in self.cuts})
        formats = self.files.formats
        self._widths = np.array([form.width for form in formats])
        self._heights = np.array([form.height for form in formats])
        self._bit_depths = np.array([form.bit_depth for form in formats])
        self.dtype = np.dtype(np.uint8 if (self._bit_depths == 8).all() else np.uint16)
        pictures = [picture for unit in self.units for picture in unit.pictures]
        self._first_picture = np.cumsum([0, *self.files.counts])
        self._values = {QP_PLANE: np.array([picture.qp for picture in pictures], dtype=np.float32)}
        if SLICE_TYPE_PLANE in self.planes:
            inter = [unit.inter(picture) for unit in self.units for picture in range(len(unit.pictures))]
            self._values[SLICE_TYPE_PLANE] = np.array(inter, dtype=np.float32)
        luma = [_picture_mse(picture.psnr_y) for picture in pictures]
        self._mses = {"picture_mse": np.array(luma, dtype=np.float32)}
        for name in CHROMA_TARGETS:
            if f"orig_{name}" in self.planes:
                psnrs = [getattr(picture, f"psnr_{name}") for picture in pictures]
                mses = [_chroma_mse(psnr, mse) for psnr, mse in zip(psnrs, luma, strict=True)]
                self._mses[f"picture_mse_{name}"] = np.array(mses, dtype=np.float32)

    def cut(self, patches: Sequence[Patch], transforms: Sequence[int] | IntArray) -> dict[str, npt.NDArray[Any]]:
        """The planes of some patches, (n, 1, side, side) uint8 or uint16 samples or int8 cells, and their facts.

        transforms[i] is one of the eight symmetries of the square: bit 0 transposes, then bit 1 flips up-down, then
        bit 2 left-right; 0 leaves the patch as it is.
        """
        batch = self.facts(patches, transforms)
        symmetries = [int(transform) for transform in transforms]
        for cut in self.cuts:
            copy = self._copy_cells if cut.file in CELL_FILES else self._copy_samples
            out = np.empty((len(patches), 1, cut.side, cut.side), np.int8 if cut.file in CELL_FILES else self.dtype)
            for target, patch, transform in zip(out[:, 0], patches, symmetries, strict=True):
                copy(cut, patch, _untransformed(target, transform) if transform else target)
            batch[cut.name] = out
        return batch

    def facts(self, patches: Sequence[Patch], transforms: Sequence[int] | IntArray) -> dict[str, npt.NDArray[Any]]:
        """What a batch says of its patches beside the planes, float32 but for the last two.

        scale (n, 1, 1, 1)    2^-bit_depth
        qp (n, 1, 1, 1)       slice QP, where it is asked for; likewise slice_type, 0 of intra pictures and 1 of inter
        picture_mse (n,)      luma error of the whole picture in (x / 2^bit_depth)², from its PSNR; 1 without error
        picture_mse_u, _v     chroma's where orig_u, orig_v are asked for, no less than CHROMA_FLOOR of luma's
        weight (n,)           of the patch's loss
        rows (n, 1, S, 1)     bool, and columns (n, 1, 1, S): where both hold, a sample of the transformed patch lies
                              inside the picture, and not in the border
        """
        where = np.array([patch[:4] for patch in patches], dtype=np.int64).reshape(-1, 4)
        symmetry = np.asarray(transforms)[:, None]
        unit = where[:, 0]
        if any(cut.factor > 1 for cut in self.cuts) and (where[:, 2:] % 2).any():
            raise ConfigError("planes of 4:2:0 chroma are cut at even positions only")
        picture = self._first_picture[unit] + where[:, 1]
        columns = self._counted(where[:, 2, None], self._widths[unit, None])
        rows = self._counted(where[:, 3, None], self._heights[unit, None])
        rows, columns = np.where(symmetry & 1, columns, rows), np.where(symmetry & 1, rows, columns)
        rows = np.where(symmetry & 2, rows[:, ::-1], rows)
        columns = np.where(symmetry & 4, columns[:, ::-1], columns)
        facts = {
            "scale": np.ldexp(np.float32(1), -self._bit_depths[unit])[:, None, None, None],
            **{name: mses[picture] for name, mses in self._mses.items()},
            "weight": np.array([patch.weight for patch in patches], dtype=np.float32),
            "rows": rows[:, None, :, None],
            "columns": columns[:, None, None, :],
        }
        told = {name: self._values[name][picture] for name in PICTURE_PLANES if name in self.planes}
        return facts | {name: values[:, None, None, None] for name, values in told.items()}

    def _counted(self, start: IntArray, extent: IntArray) -> npt.NDArray[np.bool_]:
        """Which of a patch's samples count in one direction, (n, S), for patches from `start` on, both (n, 1)."""
        place = np.arange(self.size)
        counted: npt.NDArray[np.bool_] = place < extent - start
        if self.border:
            counted &= (place >= self.border) | (start == 0)
            counted &= (place < self.size - self.border) | (start + self.size >= extent)
        return counted

    def _copy_samples(self, cut: PlaneCut, patch: Patch, out: npt.NDArray[Any]) -> None:
        unit, picture, x, y, _ = patch
        plane = self.files.plane(cut.file, unit, picture, cut.index)
        copy_window(out, plane, x // cut.factor - cut.halo, y // cut.factor - cut.halo)

    def _copy_cells(self, cut: PlaneCut, patch: Patch, out: npt.NDArray[Any]) -> None:
        unit, picture, x, y, _ = patch
        x, y = x - cut.halo, y - cut.halo
        # The cells that the window touches, as samples, and of those the window: it need not start with a cell.
        left, top = x // BLOCK_SIZE, y // BLOCK_SIZE
        right, bottom = -(-(x + cut.side) // BLOCK_SIZE), -(-(y + cut.side) // BLOCK_SIZE)

        def window(column: str) -> npt.NDArray[np.int8]:
            cells = np.empty((bottom - top, right - left), np.int8)
            index = CELL_FILES[cut.file].index(column)
            copy_window(cells, self.files.plane(cut.file, unit, picture, index), left, top)
            return cells

        cells = CELL_PLANES[cut.name].combine(window)
        samples = cells.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
        y, x = y - top * BLOCK_SIZE, x - left * BLOCK_SIZE
        out[...] = samples[y : y + cut.side, x : x + cut.side]


def copy_window(out: npt.NDArray[Any], plane: npt.NDArray[Any], x: int, y: int) -> None:
    """Copy the window of `plane` (h, w) with its upper left corner at (x, y), which may lie outside, into `out`.

    Inside the picture these are the real samples; outside, the nearest sample of the edge is repeated.
    """
    height, width = out.shape
    rows, columns = plane.shape
    if x >= 0 and y >= 0 and x + width <= columns and y + height <= rows:
        out[...] = plane[y : y + height, x : x + width]
        return
    # What of the window lies inside the picture, at least its nearest sample, goes to (top, left) of `out`, and its
    # outermost rows and columns to all beyond: no index arrays, no padded copy, for here loading spends its time.
    y0, y1 = min(max(y, 0), rows - 1), max(min(y + height, rows), 1)
    x0, x1 = min(max(x, 0), columns - 1), max(min(x + width, columns), 1)
    top, left = min(max(y0 - y, 0), height - 1), min(max(x0 - x, 0), width - 1)
    bottom, right = top + y1 - y0, left + x1 - x0
    out[top:bottom, left:right] = plane[y0:y1, x0:x1]
    out[top:bottom, :left] = out[top:bottom, left : left + 1]
    out[top:bottom, right:] = out[top:bottom, right - 1 : right]
    out[:top] = out[top]
    out[bottom:] = out[bottom - 1]


def _untransformed(out: npt.NDArray[Any], transform: int) -> npt.NDArray[Any]:
    """The view of `out` through which a patch has to be written for `out` to hold the transformed patch."""
    if transform & 4:
        out = out[:, ::-1]
    if transform & 2:
        out = out[::-1]
    return out.T if transform & 1 else out


def _plane_cut(name: str, size: int, halo: int) -> PlaneCut:
    if name in CELL_PLANES:
        return PlaneCut(name, CELL_PLANES[name].file, CELL_PLANES[name].index, 1, size + 2 * halo, halo)
    if name not in FILE_PLANES:
        raise ConfigError(f"unknown plane {name!r}: known are {', '.join(LOADER_PLANES)}")
    source = FILE_PLANES[name]
    factor = 2 if source.component else 1
    if size % factor or halo % factor:
        raise ConfigError(f"plane {name} needs an even patch size and an even halo, not {size} and {halo}")
    halo = 0 if name in TARGET_PLANES else halo // factor
    return PlaneCut(name, source.file, source.component, factor, size // factor + 2 * halo, halo)


def _check_planes(unit: Unit, cuts: Sequence[PlaneCut]) -> None:
    for cut in cuts:
        if not unit.has(cut.file):
            name = f"sequence {unit.name!r} of store {unit.folder}"
            raise StoreError(f"{name} has no plane {cut.name}{how_to_have(cut.name)}")
        chroma = unit.format.chroma
        if cut.factor > 1 and chroma != "420":
            raise StoreError(
                f"sequence {unit.name!r} of store {unit.folder} has no 4:2:0 plane {cut.name}: it is {chroma}"
            )


def _picture_mse(psnr: float | None) -> float:
    """MSE in (x / 2^bit_depth)² of a luma PSNR in dB: the peak 255·2^(b-8) is 255/256 of 2^b at any bit depth b."""
    return 1.0 if psnr is None else float((255 / 256) ** 2 * 10 ** (-psnr / 10))


def _chroma_mse(psnr: float | None, luma: float) -> float:
    """The same of chroma, beside the luma error of the picture."""
    return max(0.0 if psnr is None else _picture_mse(psnr), CHROMA_FLOOR * luma)
