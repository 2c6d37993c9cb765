"""Patches of a store as integer arrays, cut from memory-mapped files into the arrays of a batch.

This module needs NumPy only; `codecnn.dataset.loader` turns the integers into the tensors of a network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.planes import (
    BLOCK_SIZE,
    CELL_FILES,
    CELL_PLANES,
    LUMA_FILES,
    ORIGINAL_PLANES,
    QP_PLANE,
    SAMPLE_PLANES,
    SLICE_TYPE_PLANE,
    TEACHER_PLANES,
    how_to_have,
)
from codecnn.dataset.unit import Unit, copy_to_folders, map_cells
from codecnn.pictures.files import map_file

IntArray = npt.NDArray[np.int64]

OPEN_FILES = 256
"""Largest number of open memory maps; each holds a file descriptor, and a process often may have only 1,024."""

TARGET_PLANES = ORIGINAL_PLANES | TEACHER_PLANES
"""Training targets, which are cut without a halo."""

FILE_PLANES = SAMPLE_PLANES | TARGET_PLANES
"""Planes that are cut from files of pictures."""

CHROMA_FLOOR = 1 / 32
"""Smallest chroma error of a picture, relative to its luma error.

Coded grey has almost no chroma error, so any change by a filter would outweigh all other pictures in the loss.
"""

PICTURE_PLANES = (QP_PLANE, SLICE_TYPE_PLANE)
"""Planes with one value per picture."""

LOADER_PLANES = (*FILE_PLANES, *PICTURE_PLANES, *CELL_PLANES)
"""All planes that the loader provides."""


class Patch(NamedTuple):
    """Position of a patch.

    Attributes:
        unit: Index of the unit.
        picture: Index of the picture.
        x: First column in luma samples, without the halo.
        y: First row in luma samples, without the halo.
        weight: Weight of the patch's loss; above 1 for a patch that is drawn less often than the objective requires.
    """

    unit: int
    picture: int
    x: int
    y: int
    weight: float = 1.0


@dataclass(frozen=True)
class PlaneCut:
    """Geometry of the patches of one plane, in the plane's own samples. Cells are cut as 4x4 samples each.

    Attributes:
        name: Name of the plane.
        file: The unit's file that holds it.
        index: Component of the picture, or index among the planes of cells.
        factor: Luma samples per sample of the plane: 1, or 2 for 4:2:0 chroma.
        side: Width and height of the patch, the halo on both sides included.
        halo: Samples around the patch.
        offset: Distance in output order from the patch's picture to the one that is cut.
    """

    name: str
    file: str
    index: int
    factor: int
    side: int
    halo: int
    offset: int = 0


class MappedUnits:
    """Read-only planes of units by index, in memory maps.

    Maps are opened on first use; if there are more than OPEN_FILES, the one that was opened first is closed. Pickling
    keeps only paths and geometry, so each worker process opens its own maps.

    Attributes:
        formats: Format of each unit's pictures.
        counts: Number of pictures of each unit.
        paths: Path of each unit's file, by name of the file.
    """

    def __init__(self, units: Sequence[Unit], files: Iterable[str]) -> None:
        """Collect the paths of `files`, named as in `Unit.has`; those in object storage are copied first."""
        copy_to_folders(units, files := tuple(files))
        self.formats = [unit.format for unit in units]
        self.counts = [len(unit.pictures) for unit in units]
        self.paths = {file: [unit.path(file) for unit in units] for file in files}
        self._open: dict[tuple[str, int], npt.NDArray[Any]] = {}
        self._planes: dict[tuple[str, int, int, int], npt.NDArray[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}, "_planes": {}}

    def pictures(self, file: str, unit: int) -> npt.NDArray[Any]:
        """Map a file of a unit.

        Returns:
            Shape (pictures, samples of a picture) for pictures, (pictures, planes, h/4, w/4) for CELL_FILES. In
            LUMA_FILES the samples of a picture are those of all its planes.

        Raises:
            MissingFileError: The file does not exist.
            StoreError: The file has another size or shape than its unit requires.
        """
        key = (file, unit)
        data = self._open.get(key)
        if data is None:
            data = self._map_cells(file, unit) if file in CELL_FILES else self._map_samples(file, unit)
            if len(self._open) >= OPEN_FILES:
                del self._open[next(iter(self._open))]
                self._planes.clear()  # a view of the file would keep it open
        self._open[key] = data
        return data

    def plane(self, file: str, unit: int, picture: int, index: int) -> npt.NDArray[Any]:
        """Return component `index` of a picture, or one of its planes of cells, shape (h, w)."""
        key = (file, unit, picture, index)
        plane = self._planes.get(key)
        if plane is None:
            pictures = self.pictures(file, unit)
            if file in CELL_FILES:
                plane = pictures[picture, index]
            else:
                start, (height, width) = self.extent(file, unit, index)
                plane = pictures[picture, start : start + height * width].reshape(height, width)
            self._planes[key] = plane
        return plane

    def extent(self, file: str, unit: int, component: int) -> tuple[int, tuple[int, int]]:
        """Return the first sample of a component within a picture of a file, and the component's (height, width)."""
        form = self.formats[unit]
        if component == 0 or file in LUMA_FILES:
            return component * form.height * form.width, (form.height, form.width)
        shapes = form.plane_shapes
        return sum(height * width for height, width in shapes[:component]), shapes[component]

    def _map_samples(self, file: str, unit: int) -> npt.NDArray[Any]:
        path, form, count = self.paths[file][unit], self.formats[unit], self.counts[unit]
        data = map_file(path)
        picture_bytes = form.picture_bytes
        if file in LUMA_FILES:
            picture_bytes = len(LUMA_FILES[file]) * form.height * form.width * form.dtype.itemsize
        if data.size != count * picture_bytes:
            raise StoreError(
                f"{path} has {data.size} bytes, {count} pictures of {form} have {count * picture_bytes}: "
                "build the store again"
            )
        return data.view(form.dtype).reshape(count, -1)

    def _map_cells(self, file: str, unit: int) -> npt.NDArray[Any]:
        path, form, count = self.paths[file][unit], self.formats[unit], self.counts[unit]
        cells = np.asarray(map_cells(path))
        shape = (count, len(CELL_FILES[file]), ceil_div(form.height, 4), ceil_div(form.width, 4))
        if cells.shape != shape or cells.dtype != np.int8:
            raise StoreError(
                f"{path} holds {cells.dtype} {cells.shape}, its unit requires int8 {shape}: build the store again"
            )
        return cells


class PatchReader:
    """Cuts patches from units.

    Input planes have a halo around the patch, with the samples of the neighbouring CTUs; beyond the picture's edge the
    nearest sample is repeated. 4:2:0 chroma is cut at its own resolution, with half the size and half the halo.

    Attributes:
        units: The units.
        size: Width and height of a patch in luma samples.
        halo: Luma samples around the patch in input planes.
        border: Samples along a patch's edges that are not valid, unless the edge is one of the picture.
        planes: Names of the planes.
        cuts: Geometry of the planes that are cut from files.
        files: The memory maps.
        dtype: Type of the samples: uint8 if all units have 8 bits, else uint16.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        size: int,
        halo: int,
        planes: Sequence[str] = ("rec_y", QP_PLANE),
        border: int = 0,
    ) -> None:
        """Check the planes of the units.

        Args:
            units: Units to cut from.
            size: Width and height of a patch in luma samples.
            halo: Luma samples around the patch in input planes.
            planes: Names out of LOADER_PLANES; orig_y is always added.
            border: Samples along a patch's edges that are not valid, unless the edge is one of the picture.

        Raises:
            ConfigError: A plane is unknown, or the sizes do not fit each other.
            StoreError: A unit lacks a plane.
        """
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
        self._values = {QP_PLANE: np.array([picture.qp_for_networks for picture in pictures], dtype=np.float32)}
        if SLICE_TYPE_PLANE in self.planes:
            inter = [unit.slice_type_value(picture) for unit in self.units for picture in range(len(unit.pictures))]
            self._values[SLICE_TYPE_PLANE] = np.array(inter, dtype=np.float32)
        luma = [_luma_mse(picture.psnr_y) for picture in pictures]
        self._mses = {"picture_mse": np.array(luma, dtype=np.float32)}
        chroma = {"u": [picture.psnr_u for picture in pictures], "v": [picture.psnr_v for picture in pictures]}
        for name, psnrs in chroma.items():
            if f"orig_{name}" in self.planes:
                mses = [_chroma_mse(psnr, mse) for psnr, mse in zip(psnrs, luma, strict=True)]
                self._mses[f"picture_mse_{name}"] = np.array(mses, dtype=np.float32)

    def cut(self, patches: Sequence[Patch], transforms: Sequence[int] | IntArray) -> dict[str, npt.NDArray[Any]]:
        """Cut patches.

        Args:
            patches: Positions of the n patches.
            transforms: One of the eight symmetries of the square for each patch: bit 0 transposes, then bit 1 flips
                vertically, then bit 2 flips horizontally; 0 leaves the patch unchanged.

        Returns:
            The planes by name, shape (n, 1, side, side), uint8 or uint16 samples or int8 cells, and the arrays of
            `facts`.

        Raises:
            ConfigError: A patch with 4:2:0 chroma planes has an odd position.
            StoreError: A file is damaged.
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
        """Return the arrays of a batch that are not cut from files.

        Args:
            patches: Positions of the n patches.
            transforms: Symmetry of each patch, as for `cut`.

        Returns:
            float32 arrays, except for the boolean "rows" and "columns":

            - scale (n, 1, 1, 1): 2^-bit_depth.
            - qp, slice_type (n, 1, 1, 1), if requested: slice QP; 0 for intra and 1 for inter pictures.
            - picture_mse (n,): luma MSE of the whole picture in (x / 2^bit_depth)², from its PSNR; 1 without error.
            - picture_mse_u, picture_mse_v (n,), if orig_u, orig_v are requested: the same for chroma, at least
              CHROMA_FLOOR of luma's.
            - weight (n,): weight of the patch's loss.
            - rows (n, 1, S, 1), columns (n, 1, 1, S): a sample of the transformed patch is valid (inside the picture
              and not in the border) where both are true.

        Raises:
            ConfigError: A patch with 4:2:0 chroma planes has an odd position.
        """
        positions = np.array([patch[:4] for patch in patches], dtype=np.int64).reshape(-1, 4)
        symmetry = np.asarray(transforms)[:, None]
        unit = positions[:, 0]
        if any(cut.factor > 1 for cut in self.cuts) and (positions[:, 2:] % 2).any():
            raise ConfigError("planes of 4:2:0 chroma are cut at even positions only")
        picture = self._first_picture[unit] + positions[:, 1]
        columns = self._valid(positions[:, 2, None], self._widths[unit, None])
        rows = self._valid(positions[:, 3, None], self._heights[unit, None])
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
        values = {name: self._values[name][picture] for name in PICTURE_PLANES if name in self.planes}
        return facts | {name: value[:, None, None, None] for name, value in values.items()}

    def _valid(self, start: IntArray, extent: IntArray) -> npt.NDArray[np.bool_]:
        """Return which samples of patches are valid in one direction, shape (n, S).

        Args:
            start: First sample of each patch, shape (n, 1).
            extent: Width or height of its picture, shape (n, 1).
        """
        offset = np.arange(self.size)
        valid: npt.NDArray[np.bool_] = offset < extent - start
        if self.border:
            valid &= (offset >= self.border) | (start == 0)
            valid &= (offset < self.size - self.border) | (start + self.size >= extent)
        return valid

    def _copy_samples(self, cut: PlaneCut, patch: Patch, out: npt.NDArray[Any]) -> None:
        unit, picture, x, y, _ = patch
        picture = min(max(picture + cut.offset, 0), self.files.counts[unit] - 1)
        plane = self.files.plane(cut.file, unit, picture, cut.index)
        copy_window(out, plane, x // cut.factor - cut.halo, y // cut.factor - cut.halo)

    def _copy_cells(self, cut: PlaneCut, patch: Patch, out: npt.NDArray[Any]) -> None:
        unit, picture, x, y, _ = patch
        x, y = x - cut.halo, y - cut.halo
        # All cells that the window touches are repeated as samples, then the window is cut: it may start inside a cell.
        left, top = x // BLOCK_SIZE, y // BLOCK_SIZE
        right, bottom = ceil_div(x + cut.side, BLOCK_SIZE), ceil_div(y + cut.side, BLOCK_SIZE)

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
    """Copy a window of a plane into an array, repeating the nearest sample outside the plane.

    Args:
        out: Array that receives the window, shape (height, width).
        plane: The plane, shape (rows, columns).
        x: First column of the window; it may lie outside the plane.
        y: First row of the window; it may lie outside the plane.
    """
    height, width = out.shape
    rows, columns = plane.shape
    if x >= 0 and y >= 0 and x + width <= columns and y + height <= rows:
        out[...] = plane[y : y + height, x : x + width]
        return
    # The part of the window inside the plane (at least the nearest sample) is copied to (top, left) of `out`, and its
    # outermost rows and columns are repeated. Loading spends most of its time here, so no index arrays or padded copies
    # are made.
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
    """Return the view of `out` to which a patch is written so that `out` holds the transformed patch."""
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
    index = LUMA_FILES[source.file].index(name) if source.file in LUMA_FILES else source.component
    return PlaneCut(name, source.file, index, factor, size // factor + 2 * halo, halo, source.offset)


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


def _luma_mse(psnr: float | None) -> float:
    """Return the MSE in (x / 2^bit_depth)² of a PSNR in dB, 1 for None.

    The peak 255·2^(b-8) is 255/256 of 2^b at any bit depth b.
    """
    return 1.0 if psnr is None else float((255 / 256) ** 2 * 10 ** (-psnr / 10))


def _chroma_mse(psnr: float | None, luma: float) -> float:
    """Return the MSE of a chroma PSNR, 0 for None, but at least CHROMA_FLOOR of the picture's luma MSE."""
    return max(0.0 if psnr is None else _luma_mse(psnr), CHROMA_FLOOR * luma)
