"""A label table as flat files to be memory-mapped: rows by block size, and the luma that they lie in.

A table of Parquet is read from one end to the other, but training draws rows from anywhere. So a table is copied once
into a folder beside it, which is whole or absent, and made again where the table is another:

facts.json          the table's SHA-256, settings, sizes, inputs
pictures.npy        PICTURE records, one a labelled picture
planes.bin          uint16 luma of all pictures; an original that was coded at several QPs is there once
rows_SPLIT_WxH.bin  ROW records in the table's order; SPLIT is that of a store, or "all"

Costs are not in it: they follow from the samples, and computing them is quicker than 268 bytes a row are read.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from codecnn.errors import MissingFileError, TableError
from codecnn.intra import MODE_COUNT
from codecnn.labels import SCHEMA_VERSION, Input, Source, input_from_facts, read_inputs
from codecnn.runs import disk_errors, read_json, remove_tree, sha256_file, write_json

Array = npt.NDArray[Any]
Size = tuple[int, int]

CACHE_SCHEMA, FACTS = 1, "facts.json"
ALL = "all"
"""Stands for the split of pictures that no store has put into one."""
ROW = np.dtype([("picture", "<i4"), ("x", "<i4"), ("y", "<i4"), ("mode", "u1")])
_PICTURE = {"width": "<i4", "height": "<i4", "bit_depth": "<i4", "qp": "<i4", "original": "<i8", "references": "<i8"}
PICTURE = np.dtype(list(_PICTURE.items()))
"""Geometry, QP, and where in planes.bin the original and the plane of its references start, in samples."""
_BATCH = 1 << 16
"""Rows of a table in memory at once."""


@dataclass(frozen=True)
class LabelCache:
    """A label table whose pictures are what they were when it was made, ready to be mapped.

    sha256     of the table
    standard   whose modes the labels are, and `ctu_size`, which decides which neighbours are references
    sizes      (width, height) of the blocks, by the split that they are in, or ALL
    originals  SHA-256 -> path of the files that a split's pictures are from, by the split
    """

    table: Path
    folder: Path
    sha256: str
    standard: str
    ctu_size: int
    sizes: Mapping[str, tuple[Size, ...]]
    originals: Mapping[str, Mapping[str, str]]

    def rows(self, split: str, size: Size) -> npt.NDArray[np.void]:
        """ROW records (n,) of a split's blocks of one size, by memmap; none where it has no such blocks."""
        if size not in self.sizes[split]:
            return np.empty(0, ROW)
        return np.memmap(self.folder / _name(split, size), ROW, "r")

    def pictures(self) -> npt.NDArray[np.void]:
        """PICTURE records (n,)."""
        return np.asarray(np.load(self.folder / "pictures.npy"))

    def planes(self) -> npt.NDArray[np.uint16]:
        """The samples of all pictures, (n,), by memmap."""
        return np.memmap(self.folder / "planes.bin", np.uint16, "r")


def open_labels(table: Path, cost: str) -> LabelCache:
    """The labels of `table` by `cost`, from the folder `TABLE.COST.cache`, which is made where it is not there.

    Every file that was labelled is hashed. Raises MissingFileError for a table or a picture that is not there,
    TableError for a table that is not one of labels by that cost, that does not say at which QP its pictures were
    decoded, or whose pictures have changed.
    """
    facts = _table_facts(table, cost)
    inputs = [input_from_facts(entry, table) for entry in facts["inputs"]]
    for entry in inputs:
        if entry.decoded is not None and entry.qps is None:
            raise TableError(f"{table} does not say at which QP {entry.decoded} was coded: label it again with -q")
    facts = {"schema": CACHE_SCHEMA, "table_sha256": sha256_file(table)} | facts
    folder = table.with_name(f"{table.name}.{cost}.cache")
    # The processes of one training open the table at the same time.
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        found = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
        if any(found.get(name) != value for name, value in facts.items()):
            found = _build(table, folder, cost, inputs, facts)
    sizes = {split: tuple((w, h) for name, w, h in found["rows"] if name == split) for split in found["splits"]}
    originals: dict[str, dict[str, str]] = {split: {} for split in sizes}
    for entry in found["inputs"]:
        originals[entry.get("split", ALL)][entry["sha256"]] = entry["picture"]
    settings = found["settings"]
    return LabelCache(
        table, folder, found["table_sha256"], settings["standard"], settings["ctu_size"], sizes, originals
    )


def _table_facts(table: Path, cost: str) -> dict[str, Any]:
    if not table.is_file():
        raise MissingFileError(f"{table} does not exist")
    try:
        schema = pq.read_schema(table)
        facts = json.loads(schema.metadata[b"codecnn"])
        version, settings, inputs = facts["labels"], facts["settings"], list(facts["inputs"])
        costs, standard = tuple(settings["costs"]), str(settings["standard"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{table} is not a table of `codecnn labels`") from error
    if version != SCHEMA_VERSION or standard not in MODE_COUNT:
        raise TableError(f"{table} has labels of schema {version}, not {SCHEMA_VERSION}: make it again")
    if cost not in costs:
        raise TableError(f"{table} has labels by {', '.join(costs)}, not by {cost!r}")
    return {"settings": settings, "inputs": inputs}


def _build(table: Path, folder: Path, cost: str, inputs: list[Input], facts: dict[str, Any]) -> dict[str, Any]:
    part = folder.with_name(f"{folder.name}.part")
    remove_tree(part)
    try:
        with disk_errors(folder):
            part.mkdir()
            pictures = _write_planes(part, read_inputs(inputs), [entry["sha256"] for entry in facts["inputs"]])
            first = np.cumsum([0, *(entry.count for entry in inputs)])
            if len(pictures) != first[-1]:
                raise TableError(f"{table} labels {first[-1]} pictures, its files now hold {len(pictures)}")
            splits = [entry.split or ALL for entry in inputs]
            rows = _write_rows(part, _pieces(table, cost, facts, pictures, first), splits, first)
            facts = facts | {"splits": list(dict.fromkeys(splits)), "rows": rows}
            write_json(part / FACTS, facts)
            remove_tree(folder)
            part.rename(folder)
    finally:
        remove_tree(part)
    return facts


def _write_planes(folder: Path, sources: Iterable[Source], originals: list[str]) -> Array:
    """planes.bin and pictures.npy; `originals` are the hashes of the inputs' files."""
    records, known, end = [], {}, 0
    with (folder / "planes.bin").open("wb") as file:
        for source in sources:
            key = (originals[source.input], source.frame, source.bit_depth, source.original.shape)
            if key not in known:
                source.original.astype("<u2").tofile(file)
                known[key], end = end, end + source.original.size
            references = known[key]
            if source.references is not source.original:
                source.references.astype("<u2").tofile(file)
                references, end = end, end + source.references.size
            height, width = source.original.shape
            records.append((width, height, source.bit_depth, source.qp or 0, known[key], references))
    pictures = np.array(records, PICTURE)
    np.save(folder / "pictures.npy", pictures)
    return pictures


def _pieces(
    table: Path, cost: str, facts: dict[str, Any], pictures: Array, first: Array
) -> Iterator[tuple[Array, Array]]:
    """Pieces of the table: ROW records (n,), and the blocks' width and height (n, 2).

    `first` is the number of each input's first picture. Raises TableError for a block that lies outside its picture,
    or a mode that the standard does not have.
    """
    modes = MODE_COUNT[facts["settings"]["standard"]]
    names = ["input", "frame", "x", "y", "w", "h", f"mode_{cost}"]
    for batch in pq.ParquetFile(table).iter_batches(_BATCH, columns=names):
        number, frame, x, y, w, h, mode = (batch.column(name).to_numpy().astype(np.int64) for name in names)
        known = (number >= 0) & (number < len(first) - 1)
        picture = first[np.where(known, number, 0)] + frame
        known &= (frame >= 0) & (picture < first[np.where(known, number, 0) + 1])
        of = pictures[np.where(known, picture, 0)]
        good = known & (x >= 0) & (y >= 0) & (x + w <= of["width"]) & (y + h <= of["height"]) & (mode < modes)
        if not good.all():
            raise TableError(f"{table} has rows of blocks or modes that its pictures do not have: make it again")
        rows = np.empty(len(batch), ROW)
        rows["picture"], rows["x"], rows["y"], rows["mode"] = picture, x, y, mode
        yield rows, np.stack((w, h), 1)


def _write_rows(
    folder: Path, pieces: Iterable[tuple[Array, Array]], splits: list[str], first: Array
) -> list[tuple[str, int, int]]:
    """rows_*.bin, each in the table's order; the (split, w, h) that there are."""
    names = list(dict.fromkeys(splits))
    split_of = np.repeat([names.index(split) for split in splits], np.diff(first))
    with contextlib.ExitStack() as stack:
        files: dict[tuple[str, int, int], IO[bytes]] = {}
        for rows, sizes in pieces:
            kinds = (split_of[rows["picture"]] << 16) + (sizes[:, 0] << 8) + sizes[:, 1]
            for kind in np.unique(kinds).tolist():
                key = names[kind >> 16], kind >> 8 & 255, kind & 255
                if key not in files:
                    files[key] = stack.enter_context((folder / _name(key[0], key[1:])).open("wb"))
                rows[kinds == kind].tofile(files[key])
        return sorted(files)


def _name(split: str, size: Size) -> str:
    return f"rows_{split}_{size[0]}x{size[1]}.bin"
