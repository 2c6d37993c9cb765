"""What a training set is on disk, and reading it.

manifest.json   schema version, recipe, encoder; written last, so its presence means that the store is whole
units.jsonl     one line a coded unit (sequence x QP), from the unit.json in its folder: key, files, bits, PSNR, argv
ctus.parquet    one row a CTU
originals/      the pictures as the encoder got them, raw YUV
coded/          a folder a unit: bitstream, decoded pictures, log, its rows of the table
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.dataset.records import check_manifest, check_unit
from codecnn.errors import MissingFileError, StoreError
from codecnn.runs import read_json, read_jsonl, sha256_file
from codecnn.video import STILL_SUFFIXES, Video, VideoFormat, open_raw

SCHEMA = 2
MANIFEST, UNITS, CTUS = "manifest.json", "units.jsonl", "ctus.parquet"

UNIT_SCHEMA = pa.schema(
    [
        pa.field("unit", pa.string()),
        pa.field("sequence", pa.string()),
        pa.field("poc", pa.int32()),
        pa.field("x", pa.int32()),
        pa.field("y", pa.int32()),
        pa.field("w", pa.int32()),
        pa.field("h", pa.int32()),
        pa.field("qp", pa.int32()),
        pa.field("mse_y", pa.float64()),
        pa.field("psnr_y", pa.float64()),
        pa.field("depth_mean", pa.float64()),
        pa.field("depth_max", pa.float64()),
        pa.field("variance", pa.float64()),
        pa.field("bits", pa.float64()),
    ],
    metadata={"codecnn_schema": str(SCHEMA)},
)
"""Columns of a unit's own table. mse_y and variance in sample² at the coded bit depth; psnr_y in dB, peak 255·2^(b-8);
depths null where the codec's partition is not known, bits null where the encoder does not tell bits a CTU."""

CTU_SCHEMA = UNIT_SCHEMA.append(pa.field("group", pa.string())).append(pa.field("split", pa.string()))
"""Columns of ctus.parquet: those of a unit, and what the recipe says of its sequence."""


@dataclass(frozen=True)
class Unit:
    """A coded unit: one sequence at one QP. `record` is its line of units.jsonl."""

    folder: Path
    record: dict[str, Any]

    @property
    def key(self) -> str:
        """sha256 of all that decides the unit's bytes."""
        return str(self.record["key"])

    @property
    def name(self) -> str:
        """The sequence's name."""
        return str(self.record["sequence"])

    @property
    def qp(self) -> int:
        """The QP asked for; the slice QP of every picture is in `record["pictures"]`."""
        return int(self.record["qp"])

    @property
    def format(self) -> VideoFormat:
        """Format of the decoded pictures, and of the originals."""
        return format_from_json(self.record["format"])

    @property
    def files(self) -> dict[str, str]:
        """Relative path -> sha256 of every file that belongs to the unit, the original included."""
        return dict(self.record["files"])

    def originals(self) -> Video:
        """The original pictures, read by memmap."""
        return open_raw(self.folder / self.record["original"], self.format)

    def decoded(self) -> Video:
        """The decoded pictures, read by memmap."""
        return open_raw(self.folder / self.record["decoded"], self.format)

    def unfiltered(self) -> Video | None:
        """The pictures before the codec's in-loop filters, where the recipe asked for them."""
        return self._optional("unfiltered")

    def prediction(self) -> Video | None:
        """The prediction signal, where the decoder could write it."""
        return self._optional("prediction")

    def _optional(self, name: str) -> Video | None:
        path = self.record.get(name)
        return None if path is None else open_raw(self.folder / path, self.format)

    def block_planes(self) -> npt.NDArray[np.int8] | None:
        """What each 4x4 block of the pictures belongs to, by memmap: (pictures, planes, ceil(h/4), ceil(w/4)).

        The planes are those of `codecnn.codec.blocks.planes.BLOCK_PLANES`; -1 where the source does not tell. None
        where the codec's partition is not known.
        """
        name = self.record.get("block_planes")
        if name is None:
            return None
        path = self.folder / name
        try:
            planes: npt.NDArray[np.int8] = np.load(path, mmap_mode="r")
        except Exception as error:  # a damaged header is evaluated as Python text, so its errors are of any type
            raise StoreError(f"{path} is not a readable array: build the store again") from error
        return planes


@dataclass(frozen=True)
class Store:
    """A whole store, opened for reading."""

    folder: Path
    manifest: dict[str, Any]
    units: tuple[Unit, ...]

    def split(self, name: str) -> tuple[Unit, ...]:
        """The units of the split "train", "val" or "test". Raises StoreError when there are none."""
        chosen = tuple(unit for unit in self.units if unit.record["split"] == name)
        if not chosen:
            raise StoreError(f"store {self.folder} has no pictures in the split {name!r}")
        return chosen

    @property
    def data_key(self) -> str:
        """sha256 over the keys of all units: what weights name as the data they were trained on."""
        return str(self.manifest["data_key"])

    def ctus(self) -> pa.Table:
        """The table of CTUs, columns of CTU_SCHEMA. Raises StoreError when it is damaged."""
        path = self.folder / CTUS
        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{path} is not a readable table: build the store again") from error


def is_store(folder: Path) -> bool:
    """Whether `folder` is a store, finished or not; a folder without pictures is taken for one that went wrong."""
    if not folder.is_dir():
        return False
    return (folder / "coded").exists() or not any(path.suffix.lower() in STILL_SUFFIXES for path in folder.iterdir())


def open_store(folder: Path | str) -> Store:
    """Open a finished store. Raises MissingFileError or StoreError with what to do about it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(f"store {folder} does not exist")
    if not (folder / MANIFEST).is_file():
        if (folder / UNITS).exists() or (folder / "coded").exists():
            raise StoreError(f"store {folder} is not finished: run the same `codecnn dataset build` again to continue")
        raise StoreError(f"{folder} is not a store: it has no {MANIFEST}")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise StoreError(f"store {folder} has schema {found}, this codecnn reads schema {SCHEMA}: build it again")
    check_manifest(folder / MANIFEST, manifest)
    units = tuple(Unit(folder, record) for record in read_jsonl(folder / UNITS))
    for unit in units:
        check_unit(folder / UNITS, unit.record)
    if len(units) != manifest.get("units"):
        raise StoreError(f"store {folder} lists {len(units)} units, its manifest says {manifest.get('units')}")
    return Store(folder, manifest, units)


def verify_store(store: Store) -> Iterator[tuple[str, str | None]]:
    """Hash every file again: yields (relative path, None) for a good file, (path, what is wrong) for a bad one."""
    expected = {CTUS: store.manifest["ctus_sha256"], UNITS: store.manifest["units_sha256"]}
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


def format_to_json(form: VideoFormat) -> dict[str, Any]:
    """A VideoFormat as JSON; the frame rate as text, so that 30000/1001 stays exact."""
    return {
        "width": form.width,
        "height": form.height,
        "chroma": form.chroma,
        "bit_depth": form.bit_depth,
        "fps": None if form.fps is None else str(form.fps),
    }


def format_from_json(value: dict[str, Any]) -> VideoFormat:
    """The inverse of `format_to_json`."""
    return VideoFormat(**value)
