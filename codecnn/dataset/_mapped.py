"""The files of many units in memory maps, of which only so many are open at a time."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.dataset.store import Unit, map_cells
from codecnn.errors import StoreError
from codecnn.planes import CELL_FILES
from codecnn.video import map_file

OPEN_FILES = 256
"""Each open map holds a file descriptor, of which a process often may have no more than 1,024."""


class MappedUnits:
    """Read-only planes of units by number; `files` as in `Unit.has`, of which CELL_FILES hold planes of 4x4 cells.

    Maps are opened when they are first read, and the one that was opened first of more than OPEN_FILES is let go. What
    is pickled are paths and geometry, so that a worker process opens its own.
    """

    def __init__(self, units: Sequence[Unit], files: Iterable[str]) -> None:
        self.formats = [unit.format for unit in units]
        self.counts = [len(unit.pictures) for unit in units]
        self.paths = {file: [unit.path(file) for unit in units] for file in files}
        self._open: dict[tuple[str, int], npt.NDArray[Any]] = {}
        self._planes: dict[tuple[str, int, int, int], npt.NDArray[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}, "_planes": {}}

    def pictures(self, file: str, unit: int) -> npt.NDArray[Any]:
        """(pictures, samples of a picture) of a file of samples, (pictures, planes, h/4, w/4) of CELL_FILES.

        Raises MissingFileError or StoreError for a file that is not there or has another size than it should have.
        """
        key = (file, unit)
        found = self._open.get(key)
        if found is None:
            found = self._map_cells(file, unit) if file in CELL_FILES else self._map_samples(file, unit)
            if len(self._open) >= OPEN_FILES:
                del self._open[next(iter(self._open))]
                self._planes.clear()  # a view of the file would keep it open
        self._open[key] = found
        return found

    def plane(self, file: str, unit: int, picture: int, index: int) -> npt.NDArray[Any]:
        """(h, w): component `index` of a picture, or one of its planes of cells."""
        key = (file, unit, picture, index)
        plane = self._planes.get(key)
        if plane is None:
            pictures = self.pictures(file, unit)
            if file in CELL_FILES:
                plane = pictures[picture, index]
            else:
                start, (height, width) = self.extent(unit, index)
                plane = pictures[picture, start : start + height * width].reshape(height, width)
            self._planes[key] = plane
        return plane

    def extent(self, unit: int, component: int) -> tuple[int, tuple[int, int]]:
        """Where a component starts within a picture, in samples, and its (height, width)."""
        form = self.formats[unit]
        if component == 0:
            return 0, (form.height, form.width)
        shapes = form.plane_shapes
        return sum(height * width for height, width in shapes[:component]), shapes[component]

    def _map_samples(self, file: str, unit: int) -> npt.NDArray[Any]:
        path, form, count = self.paths[file][unit], self.formats[unit], self.counts[unit]
        data = map_file(path)
        if data.size != count * form.picture_bytes:
            raise StoreError(
                f"{path} has {data.size} bytes, {count} pictures of {form} have {count * form.picture_bytes}"
            )
        return data.view(form.dtype).reshape(count, -1)

    def _map_cells(self, file: str, unit: int) -> npt.NDArray[Any]:
        path, form, count = self.paths[file][unit], self.formats[unit], self.counts[unit]
        cells = np.asarray(map_cells(path))
        shape = (count, len(CELL_FILES[file]), -(-form.height // 4), -(-form.width // 4))
        if cells.shape != shape or cells.dtype != np.int8:
            raise StoreError(f"{path} holds {cells.dtype} {cells.shape}, its unit asks for int8 {shape}")
        return cells
