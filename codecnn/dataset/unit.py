"""A coded unit of a store: a sequence at a QP, with its pictures and planes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from codecnn.base.errors import StoreError
from codecnn.base.files import read_json
from codecnn.base.planes import LUMA_FILES, SAMPLE_PLANES, SLICE_TYPES, how_to_have
from codecnn.base.rate_modes import RateName, rate_mode
from codecnn.dataset.records import CodedUnit, Coding, EncoderTime
from codecnn.dataset.remote import copy_files
from codecnn.pictures.files import Video, open_raw
from codecnn.pictures.motion import temporal_number

SECONDS = "seconds.json"
"""File of a unit with the encoder's time."""


class Unit(CodedUnit):
    """A line of units.jsonl: a coded unit, the recipe's metadata of its sequence, and its store.

    Attributes:
        split: "train", "val" or "test".
        group: Sequences of one group show the same scene.
        class_: JVET class of the sequence, or None.
        coding: Encoder settings, if the recipe has several.
        folder: Folder of the store.
        address: Address in object storage from which files come into the folder when they are needed, or None.
        teacher_file: File of pictures that a teacher network filtered, or None.
        all_intra: The recipe's configuration is all-intra.
        rate: Rate control whose value `qp` is, a key of `RATE_MODES`; None at constant QP.
    """

    split: str
    group: str
    class_: str | None = Field(default=None, alias="class")
    coding: Coding | None = None
    folder: Path = Field(exclude=True)
    address: str | None = Field(default=None, exclude=True)
    teacher_file: str | None = Field(default=None, alias="teacher", exclude=True)
    all_intra: bool = Field(default=False, exclude=True)
    rate: RateName | None = Field(default=None, exclude=True)

    def __repr__(self) -> str:
        """Return one line; `to_json` has all fields."""
        return f"<Unit {self.title}: {len(self.pictures)} pictures, {self.format}, {self.split}>"

    __str__ = __repr__

    @property
    def title(self) -> str:
        """Name and QP in captions and messages, e.g. "Johnny at QP 32" or "Johnny at 800 kbit/s"."""
        return f"{self.name} at {rate_mode(self.rate).text(self.qp)}"

    def slice_type_value(self, picture: int) -> float:
        """Return the value of the plane `slice_type`: 0 for an intra picture, 1 for an inter picture.

        Args:
            picture: Index of the picture in output order.

        Raises:
            StoreError: The slice type is not known, because the picture was supplied without a stream.
        """
        known = "I" if self.all_intra else self.pictures[picture].slice_type
        if known not in SLICE_TYPES:
            raise StoreError(f"{self.title} has no plane 'slice_type': slice types are known from streams only")
        return SLICE_TYPES[known]

    def has(self, file: str) -> bool:
        """Return whether the unit has a file.

        Args:
            file: "original", "decoded", "unfiltered", "prediction", "residual" or "teacher" for pictures;
                "block_planes", "transforms" or "strengths" for planes of 4x4 cells; "neighbours",
                "second_neighbours" or "references" for temporal planes.
        """
        return self._named_files()[file] is not None

    def path(self, file: str) -> Path:
        """Return the path of a file, named as in `has`, which is copied from object storage if it is not there.

        Raises:
            StoreError: The unit has no such file.
        """
        name = self._named_files()[file]
        if name is None:
            raise StoreError(f"sequence {self.name!r} of store {self.folder} has no file {file}")
        return self._local(name)

    def _local(self, name: str) -> Path:
        """Return the path of a file by its name relative to the store."""
        # Pictures of teachers are computed into the folder.
        if self.address is not None and name in self.files:
            copy_files(self.address, self.folder, {name: self.files[name]})
        return self.folder / name

    def _named_files(self) -> dict[str, str | None]:
        """Return the files of the unit by the names of `has`."""
        return {
            "original": self.original_file,
            "bitstream": self.bitstream_file,
            "decoded": self.decoded_file,
            "unfiltered": self.unfiltered_file,
            "prediction": self.prediction_file,
            "residual": self.residual_file,
            "strengths": self.strengths_file,
            "neighbours": self.neighbours_file,
            "second_neighbours": self.second_neighbours_file,
            "references": self.references_file,
            "blocks": self.blocks_file,
            "block_planes": self.block_planes_file,
            "transforms": self.transforms_file,
            "teacher": self.teacher_file,
        }

    @property
    def original_path(self) -> Path:
        """Raw YUV file of the original pictures."""
        return self._local(self.original_file)

    @property
    def decoded_path(self) -> Path:
        """Raw YUV file of the decoded pictures."""
        return self._local(self.decoded_file)

    @property
    def encoder_seconds(self) -> float | None:
        """Processor time of the encoder in seconds; None without `times` in the recipe, and from object storage."""
        path = (self.folder / self.decoded_file).with_name(SECONDS)
        return EncoderTime.from_json(path, read_json(path)).encoder_cpu if path.is_file() else None

    def originals(self) -> Video:
        """Open the original pictures."""
        return open_raw(self.original_path, self.format)

    def decoded(self) -> Video:
        """Open the decoded pictures."""
        return open_raw(self.decoded_path, self.format)

    def unfiltered(self) -> Video | None:
        """Open the reconstruction before the in-loop filters; None if the unit has none."""
        return self.pictures_of("unfiltered")

    def prediction(self) -> Video | None:
        """Open the prediction signal; None if the unit has none."""
        return self.pictures_of("prediction")

    def residual(self) -> Video | None:
        """Open the residual plus 2^(bit_depth - 1), clipped to the sample range; None if the unit has none."""
        return self.pictures_of("residual")

    def pictures_of(self, file: str) -> Video | None:
        """Open one of the unit's files of pictures; None if the unit has no such file."""
        return open_raw(self.path(file), self.format) if self.has(file) else None

    def temporal_plane(self, name: str, picture: int) -> npt.NDArray[Any]:
        """Read a temporal plane of a picture.

        Args:
            name: Name of the plane, of `codecnn.base.planes.TEMPORAL_PLANES`.
            picture: Number of the picture in output order.

        Returns:
            Luma samples, shape (h, w).

        Raises:
            StoreError: The unit does not hold the plane.
        """
        file = SAMPLE_PLANES[name].file
        if file not in LUMA_FILES:
            with self.decoded() as decoded:
                return np.array(decoded[temporal_number(name, picture, len(decoded))].y)
        if not self.has(file):
            raise StoreError(f"{self.title} has no plane {name!r}{how_to_have(name)}")
        names = LUMA_FILES[file]
        with open_raw(self.path(file), replace(self.format, chroma="400")) as planes:
            return np.array(planes[picture * len(names) + names.index(name)].y)

    def block_planes(self) -> npt.NDArray[np.int8] | None:
        """Map the planes of the coding tree, shape (pictures, planes, ceil(h/4), ceil(w/4)).

        The planes are `codecnn.base.planes.BLOCK_PLANES`, -1 where a value is not known.

        Returns:
            The planes, or None if the unit's CU table is not known.

        Raises:
            StoreError: The file is damaged.
        """
        return self.cells("block_planes")

    def cells(self, file: str) -> npt.NDArray[np.int8] | None:
        """Map the planes of 4x4 cells of one of `codecnn.base.planes.CELL_FILES`, with the shape of `block_planes`.

        Returns:
            The planes, or None if the unit has no such file.

        Raises:
            StoreError: The file is damaged.
        """
        return map_cells(self.path(file)) if self.has(file) else None


def copy_to_folders(units: Iterable[Unit], files: Iterable[str]) -> None:
    """Copy the files of units, named as in `Unit.has`, from object storage into the folders of their stores.

    Args:
        units: The units; those of local stores are passed over.
        files: Names of the files.
    """
    names = tuple(files)
    stores: dict[tuple[str, Path], dict[str, str]] = defaultdict(dict)
    for unit in units:
        if unit.address is not None:
            paths = {unit._named_files()[name] for name in names}
            stores[unit.address, unit.folder] |= {path: unit.files[path] for path in paths if path in unit.files}
    for (address, folder), hashes in stores.items():
        copy_files(address, folder, hashes)


def map_cells(path: Path) -> npt.NDArray[np.int8]:
    """Map a file of planes of 4x4 cells.

    Raises:
        StoreError: The file is not a readable array.
    """
    try:
        planes: npt.NDArray[np.int8] = np.load(path, mmap_mode="r")
    except Exception as error:  # NumPy evaluates a damaged header as Python text, which can raise anything
        raise StoreError(f"{path} is not a readable array: build the store again") from error
    return planes
