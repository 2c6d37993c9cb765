"""What a training set is on disk, and reading it.

manifest.json   schema version, recipe, encoder; written last, so its presence means that the store is whole
units.jsonl     one line a coded unit (sequence x QP), from the unit.json in its folder: key, files, bits, PSNR, argv
ctus.parquet    one row a CTU
originals/      the pictures as the encoder got them, raw YUV
coded/          a folder a unit: bitstream, decoded pictures, log, its rows of the table; with `times` seconds.json
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from codecnn.dataset.records import CodedUnit, Coding, Manifest, Seconds
from codecnn.errors import MissingFileError, StoreError
from codecnn.planes import SLICE_TYPES
from codecnn.runs import read_json, read_jsonl, sha256_file
from codecnn.video import STILL_SUFFIXES, Video, open_raw

SCHEMA = 2
MANIFEST, UNITS, CTUS = "manifest.json", "units.jsonl", "ctus.parquet"
SECONDS = "seconds.json"

UNIT_SCHEMA = pa.schema(
    dict.fromkeys(("unit", "sequence"), pa.string())
    | dict.fromkeys(("poc", "x", "y", "w", "h", "qp"), pa.int32())
    | dict.fromkeys(("mse_y", "psnr_y", "depth_mean", "depth_max", "variance", "bits"), pa.float64()),
    metadata={"codecnn_schema": str(SCHEMA)},
)
"""Columns of a unit's own table. mse_y and variance in sample² at the coded bit depth; psnr_y in dB, peak 255·2^(b-8);
depths null where the codec's partition is not known, bits null where the encoder does not tell bits a CTU."""

CTU_SCHEMA = UNIT_SCHEMA.append(pa.field("group", pa.string())).append(pa.field("split", pa.string()))
"""Columns of ctus.parquet: those of a unit, and what the recipe says of its sequence."""


class Unit(CodedUnit):
    """A line of units.jsonl: a coded unit, what the recipe says of its sequence, and the folder of its store."""

    split: str
    group: str
    class_: str | None = Field(default=None, alias="class")
    coding: Coding | None = None
    folder: Path = Field(exclude=True)
    teacher_file: str | None = Field(
        default=None, alias="teacher", exclude=True, description="what a teacher made of the pictures"
    )

    all_intra: bool = Field(default=False, exclude=True, description="as the recipe says")

    def inter(self, picture: int) -> float:
        """The plane `slice_type` of picture number `picture`: 0 of an intra picture, 1 of an inter one.

        Raises StoreError for a picture that was given without a stream, of which a recipe tells no more than "ra".
        """
        known = "I" if self.all_intra else self.pictures[picture].slice_type
        if known not in SLICE_TYPES:
            raise StoreError(f"{self.name} at QP {self.qp} has no plane 'slice_type': only a stream tells types")
        return SLICE_TYPES[known]

    def has(self, file: str) -> bool:
        """Whether the unit has a file "original", "decoded", "unfiltered", "prediction", "residual", "teacher" of
        pictures, or "block_planes", "transforms", "strengths" of cells."""
        return getattr(self, f"{file}_file") is not None

    def path(self, file: str) -> Path:
        """Where that file lies. Raises StoreError for a unit that has none."""
        name: str | None = getattr(self, f"{file}_file")
        if name is None:
            raise StoreError(f"sequence {self.name!r} of store {self.folder} has no file {file}")
        return self.folder / name

    @property
    def original_path(self) -> Path:
        """The raw file of the original pictures."""
        return self.folder / self.original_file

    @property
    def decoded_path(self) -> Path:
        """The raw file of the decoded pictures."""
        return self.folder / self.decoded_file

    @property
    def encoder_seconds(self) -> float | None:
        """Processor time that the encoder took; None where the recipe's `times` did not ask for it."""
        path = self.decoded_path.with_name(SECONDS)
        return Seconds.from_json(path, read_json(path)).encoder_cpu if path.is_file() else None

    def originals(self) -> Video:
        """The original pictures, read by memmap."""
        return open_raw(self.original_path, self.format)

    def decoded(self) -> Video:
        """The decoded pictures, read by memmap."""
        return open_raw(self.decoded_path, self.format)

    def unfiltered(self) -> Video | None:
        """The pictures before the codec's in-loop filters, where the recipe asked for them."""
        return self.pictures_of("unfiltered")

    def prediction(self) -> Video | None:
        """The prediction signal, where the recipe asked for it or the decoder could write it."""
        return self.pictures_of("prediction")

    def residual(self) -> Video | None:
        """The residual plus 2^(bit_depth - 1), cut to samples, where the recipe asked for it."""
        return self.pictures_of("residual")

    def pictures_of(self, file: str) -> Video | None:
        """The pictures of one of the unit's files of samples, by memmap; None where the unit has no such file."""
        return open_raw(self.path(file), self.format) if self.has(file) else None

    def block_planes(self) -> npt.NDArray[np.int8] | None:
        """What each 4x4 block of the pictures belongs to, by memmap: (pictures, planes, ceil(h/4), ceil(w/4)).

        The planes are those of `codecnn.codec.blocks.planes.BLOCK_PLANES`; -1 where the source does not tell. None
        where the codec's partition is not known. Raises StoreError for a file that is no such array.
        """
        return self.cells("block_planes")

    def cells(self, file: str) -> npt.NDArray[np.int8] | None:
        """The planes of 4x4 cells of one of `plane_sources.CELL_FILES`, likewise."""
        return map_cells(self.path(file)) if self.has(file) else None


@dataclass(frozen=True)
class Store:
    """A whole store, opened for reading."""

    folder: Path
    manifest: Manifest
    units: tuple[Unit, ...]

    def split(self, name: str) -> tuple[Unit, ...]:
        """The units of the split "train", "val" or "test". Raises StoreError when there are none."""
        chosen = tuple(unit for unit in self.units if unit.split == name)
        if not chosen:
            raise StoreError(f"store {self.folder} has no pictures in the split {name!r}")
        return chosen

    @property
    def data_key(self) -> str:
        """sha256 over the keys of all units: what weights name as the data they were trained on."""
        return self.manifest.data_key

    def ctus(self) -> pa.Table:
        """The table of CTUs, columns of CTU_SCHEMA. Raises StoreError when it is damaged."""
        path = self.folder / CTUS
        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{path} is not a readable table: build the store again") from error


def map_cells(path: Path) -> npt.NDArray[np.int8]:
    """The planes of cells of a unit's file in a memory map. Raises StoreError for what is no array."""
    try:
        planes: npt.NDArray[np.int8] = np.load(path, mmap_mode="r")
    except Exception as error:  # a damaged header is evaluated as Python text, so its errors are of any type
        raise StoreError(f"{path} is not a readable array: build the store again") from error
    return planes


def is_store(folder: Path) -> bool:
    """Whether `folder` is a store, finished or not; a folder without pictures is taken for one that went wrong."""
    if not folder.is_dir():
        return False
    return (folder / "coded").exists() or not any(path.suffix.lower() in STILL_SUFFIXES for path in folder.iterdir())


def open_store(folder: Path | str) -> Store:
    """Open a finished store, its records checked. Raises MissingFileError or StoreError with what to do about it."""
    folder = Path(folder)
    if folder.is_file():
        raise StoreError(f"{folder} is a file, not the folder of a store, as `codecnn dataset build` makes it")
    if not folder.is_dir():
        raise MissingFileError(f"store {folder} does not exist: `codecnn dataset build RECIPE -o {folder}` makes it")
    if not (folder / MANIFEST).is_file():
        if (folder / UNITS).exists() or (folder / "coded").exists():
            raise StoreError(f"store {folder} is not finished: run the same `codecnn dataset build` again to continue")
        raise StoreError(f"{folder} is not a store: it has no {MANIFEST}, as `codecnn dataset build` makes it")
    value = read_json(folder / MANIFEST)
    found = value.get("schema") if isinstance(value, dict) else None
    if found != SCHEMA:
        raise StoreError(f"store {folder} has schema {found}, this codecnn reads schema {SCHEMA}: build it again")
    manifest = Manifest.from_json(folder / MANIFEST, value)
    facts: dict[str, Any] = {"folder": folder, "all_intra": manifest.recipe.configuration == "ai"}
    units = tuple(Unit.from_json(folder / UNITS, line, **facts) for line in read_jsonl(folder / UNITS))
    if len(units) != manifest.units:
        raise StoreError(f"store {folder} lists {len(units)} units, its manifest says {manifest.units}")
    return Store(folder, manifest, units)


def verify_store(store: Store) -> Iterator[tuple[str, str | None]]:
    """Hash every file again: yields (relative path, None) for a good file, (path, what is wrong) for a bad one."""
    expected = {CTUS: store.manifest.ctus_sha256, UNITS: store.manifest.units_sha256}
    for unit in store.units:
        expected |= unit.files
    for name, sha256 in sorted(expected.items()):
        path = store.folder / name
        if not path.is_file():
            yield name, "is missing"
        elif sha256_file(path) != sha256:
            yield name, "has other content than when it was built"
        else:
            yield name, None
