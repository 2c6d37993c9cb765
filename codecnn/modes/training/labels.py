"""Label tables of `codecnn labels` as flat files for memory mapping, and labelled blocks cut from them.

A Parquet table is read from one end to the other, but training draws rows at random. So a table is copied once into a
folder beside it, which is complete or absent and is built again when the table changes:

- facts.json: SHA-256 of the table, its settings, sizes and inputs.
- pictures.npy: PICTURE records, one per labelled picture.
- planes.bin: uint16 luma of all pictures; an original that was coded at several QPs is stored once.
- rows_SPLIT_WxH.bin: ROW records in the order of the table; SPLIT is a split of a store, or "all".

Costs are not stored: they follow from the samples, and computing them is faster than reading 268 bytes per row.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from codecnn.base.errors import MissingFileError, TableError
from codecnn.base.files import disk_errors, read_json, remove_tree, sha256_file, write_json
from codecnn.base.leftovers import companion_path, part_path, remove_leftovers
from codecnn.modes.labels import SCHEMA_VERSION, Input, Source, input_from_facts, read_inputs
from codecnn.vvc.intra import MODE_COUNT, reference_positions

Array = npt.NDArray[Any]
Size = tuple[int, int]

CACHE_SCHEMA, FACTS = 1, "facts.json"
ALL = "all"
"""Name of the split for pictures without one."""
ROW = np.dtype([("picture", "<i4"), ("x", "<i4"), ("y", "<i4"), ("mode", "u1")])
_PICTURE = {"width": "<i4", "height": "<i4", "bit_depth": "<i4", "qp": "<i4", "original": "<i8", "references": "<i8"}
PICTURE = np.dtype(list(_PICTURE.items()))
"""Geometry, QP, and offsets in planes.bin, in samples, of the original and of the plane with its references."""
_BATCH = 1 << 16
"""Rows of a table that are in memory at the same time."""


@dataclass(frozen=True)
class LabelCache:
    """A label table, ready for memory mapping, whose pictures have not changed since it was written.

    Attributes:
        table: File of the table.
        folder: Folder of the flat files.
        sha256: Hash of the table.
        standard: Standard of the modes, "vvc" or "hevc".
        ctu_size: CTU size, which determines which neighbours are available as references.
        sizes: (width, height) of the blocks by split.
        originals: Paths of the files that the pictures of a split come from, by split and SHA-256.
    """

    table: Path
    folder: Path
    sha256: str
    standard: str
    ctu_size: int
    sizes: Mapping[str, tuple[Size, ...]]
    originals: Mapping[str, Mapping[str, str]]

    def rows(self, split: str, size: Size) -> npt.NDArray[np.void]:
        """Map the ROW records (n,) of the blocks of one size in a split; empty if there are none."""
        if size not in self.sizes[split]:
            return np.empty(0, ROW)
        return np.memmap(self.folder / _name(split, size), ROW, "r")

    def pictures(self) -> npt.NDArray[np.void]:
        """Read the PICTURE records (n,)."""
        return np.asarray(np.load(self.folder / "pictures.npy"))

    def planes(self) -> npt.NDArray[np.uint16]:
        """Map the samples of all pictures, shape (n,)."""
        return np.memmap(self.folder / "planes.bin", np.uint16, "r")


def open_labels(table: Path, cost: str) -> LabelCache:
    """Open the labels of a table by a cost, from the folder `TABLE.COST.cache`, which is built if it is missing.

    Every labelled file is hashed.

    Args:
        table: File of the table.
        cost: Cost by which the modes were labelled.

    Returns:
        The labels.

    Raises:
        MissingFileError: The table or a picture does not exist.
        TableError: The file is not a table of labels by that cost, does not say at which QP its pictures were decoded,
            or has pictures that have changed.
    """
    facts = _table_facts(table, cost)
    inputs = [input_from_facts(entry, table) for entry in facts["inputs"]]
    for entry in inputs:
        if entry.decoded is not None and entry.qps is None:
            raise TableError(f"{table} does not say at which QP {entry.decoded} was coded: label it again with -q")
    facts = {"schema": CACHE_SCHEMA, "table_sha256": sha256_file(table)} | facts
    folder = companion_path(table, f".{cost}.cache")
    # The processes of one training open the table at the same time.
    with FileLock(companion_path(folder, ".lock")):
        cached = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
        if any(cached.get(name) != value for name, value in facts.items()):
            cached = _build(table, folder, cost, inputs, facts)
    sizes = {split: tuple((w, h) for name, w, h in cached["rows"] if name == split) for split in cached["splits"]}
    originals: dict[str, dict[str, str]] = {split: {} for split in sizes}
    for entry in cached["inputs"]:
        originals[entry.get("split", ALL)][entry["sha256"]] = entry["picture"]
    settings = cached["settings"]
    return LabelCache(
        table, folder, cached["table_sha256"], settings["standard"], settings["ctu_size"], sizes, originals
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
        raise TableError(f"{table} is not a table of `codecnn labels`: write one with that command") from error
    if version != SCHEMA_VERSION or standard not in MODE_COUNT:
        raise TableError(f"{table} has labels of schema {version}, not {SCHEMA_VERSION}: label the pictures again")
    if cost not in costs:
        raise TableError(f"{table} has labels by {', '.join(costs)}, not by {cost!r}: choose one of these as cost")
    return {"settings": settings, "inputs": inputs}


def _build(table: Path, folder: Path, cost: str, inputs: list[Input], facts: dict[str, Any]) -> dict[str, Any]:
    if folder.exists() and not (folder / FACTS).is_file():
        raise TableError(f"{folder} is in the way: codecnn keeps the labels of {table.name} there: move it away")
    remove_leftovers(folder.parent)
    part, old = part_path(folder), part_path(folder)
    try:
        with disk_errors(folder):
            part.mkdir()
            pictures = _write_planes(part, read_inputs(inputs), [entry["sha256"] for entry in facts["inputs"]])
            first = np.cumsum([0, *(entry.count for entry in inputs)])
            if len(pictures) != first[-1]:
                raise TableError(
                    f"{table} labels {first[-1]} pictures, but its files now hold {len(pictures)}: label them again"
                )
            splits = [entry.split or ALL for entry in inputs]
            rows = _write_rows(part, _pieces(table, cost, facts, pictures, first), splits, first)
            facts = facts | {"splits": list(dict.fromkeys(splits)), "rows": rows}
            write_json(part / FACTS, facts)
            if folder.exists():
                folder.rename(old)
            part.rename(folder)
    finally:
        remove_tree(part)
        remove_tree(old)
    return facts


def _write_planes(folder: Path, sources: Iterable[Source], originals: list[str]) -> Array:
    """Write planes.bin and pictures.npy; `originals` are the hashes of the files of the inputs."""
    records, offsets, end = [], {}, 0
    with (folder / "planes.bin").open("wb") as file:
        for source in sources:
            key = (originals[source.input], source.frame, source.bit_depth, source.original.shape)
            if key not in offsets:
                source.original.astype("<u2").tofile(file)
                offsets[key], end = end, end + source.original.size
            references = offsets[key]
            if source.references is not source.original:
                source.references.astype("<u2").tofile(file)
                references, end = end, end + source.references.size
            height, width = source.original.shape
            records.append((width, height, source.bit_depth, source.qp or 0, offsets[key], references))
    pictures = np.array(records, PICTURE)
    np.save(folder / "pictures.npy", pictures)
    return pictures


def _pieces(
    table: Path, cost: str, facts: dict[str, Any], pictures: Array, first: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield pieces of the table: ROW records (n,) and the widths and heights (n, 2) of the blocks.

    Args:
        table: File of the table.
        cost: Cost of the labels.
        facts: Facts of the table.
        pictures: PICTURE records.
        first: Number of the first picture of each input.

    Raises:
        TableError: A block lies outside its picture, or the standard does not have its mode.
    """
    modes = MODE_COUNT[facts["settings"]["standard"]]
    names = ["input", "frame", "x", "y", "w", "h", f"mode_{cost}"]
    for batch in pq.ParquetFile(table).iter_batches(_BATCH, columns=names):
        number, frame, x, y, w, h, mode = (batch.column(name).to_numpy().astype(np.int64) for name in names)
        exists = (number >= 0) & (number < len(first) - 1)
        picture = first[np.where(exists, number, 0)] + frame
        exists &= (frame >= 0) & (picture < first[np.where(exists, number, 0) + 1])
        record = pictures[np.where(exists, picture, 0)]
        inside = (x >= 0) & (y >= 0) & (x + w <= record["width"]) & (y + h <= record["height"])
        if not (exists & inside & (mode < modes)).all():
            raise TableError(
                f"{table} has rows of blocks or modes that its pictures do not have: label the pictures again"
            )
        rows = np.empty(len(batch), ROW)
        rows["picture"], rows["x"], rows["y"], rows["mode"] = picture, x, y, mode
        yield rows, np.stack((w, h), 1)


def _write_rows(
    folder: Path, pieces: Iterable[tuple[Array, Array]], splits: list[str], first: Array
) -> list[tuple[str, int, int]]:
    """Write rows_*.bin, each in the order of the table, and return the existing (split, w, h)."""
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


Part = tuple[LabelCache, str]
"""A table and one of its splits."""


class LabelledBlocks:
    """The labelled blocks of some splits of some tables, by size and number.

    Files are mapped when they are first read; a pickled object, which a spawned worker process receives, holds paths
    only.

    Attributes:
        parts: Tables and their splits.
        standard: Standard of the modes.
        ctu_size: CTU size of the labels.
        modes: Number of modes of the standard.
        sizes: (width, height) of the blocks, sorted.
    """

    def __init__(self, parts: Sequence[Part], only: Sequence[Size] | None = None) -> None:
        """Collect the blocks.

        Args:
            parts: Tables and their splits.
            only: Sizes (width, height) to use; None for all.

        Raises:
            TableError: There are no blocks, or the tables have different standards or CTU sizes.
        """
        if not parts:
            raise TableError("there are no labels to train on: give a table of `codecnn labels`")
        self.parts = tuple(parts)
        first = parts[0][0]
        for cache, _ in parts:
            for name, same in (
                ("standard", cache.standard == first.standard),
                ("ctu_size", cache.ctu_size == first.ctu_size),
            ):
                if not same:
                    raise TableError(
                        f"{cache.table} and {first.table} have labels of a different {name}: label both alike"
                    )
        self.standard, self.ctu_size = first.standard, first.ctu_size
        self.modes = MODE_COUNT[self.standard]
        available = {size for cache, split in parts for size in cache.sizes[split]}
        self.sizes = tuple(sorted(available if only is None else available & set(only)))
        if not self.sizes:
            sizes = ", ".join(f"{width}x{height}" for width, height in only or ())
            raise TableError(f"{first.table} has no blocks of {sizes or 'any size'} in the split {parts[0][1]}")
        self._mapped_files: dict[Any, Array] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped_files": {}}

    def count(self, size: Size) -> int:
        """Return the number of blocks of a size."""
        return int(self._ends(size)[-1])

    def cut(self, size: Size, numbers: npt.NDArray[np.int64]) -> dict[str, Array]:
        """Cut blocks of one size from their pictures.

        Args:
            size: (width, height) of the blocks.
            numbers: Numbers of the blocks, shape (n,).

        Returns:
            - "line": references as `reference_lines` returns them, shape (n, 2h+1+2w), int32.
            - "block": samples of the original, shape (n, h, w), int32.
            - "bit_depth" and "qp": shape (n,), int32; the QP is 0 if the references come from the original.
            - "mode": the best mode, shape (n,), int64.
        """
        width, height = size
        count = len(numbers)
        blocks: dict[str, Array] = {
            "line": np.empty((count, 2 * height + 1 + 2 * width), np.int32),
            "block": np.empty((count, height, width), np.int32),
            "bit_depth": np.empty(count, np.int32),
            "qp": np.empty(count, np.int32),
            "mode": np.empty(count, np.int64),
        }
        ends = self._ends(size)
        part_of = np.searchsorted(ends, numbers, side="right")
        for part in np.unique(part_of):
            selected = part_of == part
            start = ends[part - 1] if part else 0
            for name, values in self._cut(int(part), size, numbers[selected] - start).items():
                blocks[name][selected] = values
        return blocks

    def _cut(self, part: int, size: Size, numbers: npt.NDArray[np.int64]) -> dict[str, Array]:
        width, height = size
        cache = self.parts[part][0]
        planes = self._mapped((part, "planes"), cache.planes)
        rows = self._rows(part, size)[numbers]
        picture = self._mapped((part, "pictures"), cache.pictures)[rows["picture"]]
        positions = np.stack((rows["x"], rows["y"]), 1).astype(np.int64)
        stride = picture["width"].astype(np.int64)[:, None]
        x, y, available = reference_positions(
            positions, width, height, stride, picture["height"].astype(np.int64)[:, None], self.ctu_size
        )
        line = planes[picture["references"][:, None] + y * stride + x].astype(np.int32)
        line[~available] = 1 << (picture["bit_depth"][~available, None] - 1)
        corner = picture["original"] + positions[:, 1] * stride[:, 0] + positions[:, 0]
        inside = np.arange(height)[:, None] * stride[:, :, None] + np.arange(width)
        block = planes[corner[:, None, None] + inside].astype(np.int32)
        facts = {"bit_depth": picture["bit_depth"], "qp": picture["qp"]}
        return {"line": line, "block": block, "mode": rows["mode"]} | facts

    def most_frequent(self, size: Size) -> int:
        """Return the most frequent label of the blocks of a size; of two, the lower one."""
        counts = np.zeros(self.modes, np.int64)
        for part in range(len(self.parts)):
            rows = self._rows(part, size)
            for start in range(0, len(rows), 1 << 20):
                counts += np.bincount(rows[start : start + (1 << 20)]["mode"], minlength=self.modes)
        return int(counts.argmax())

    def _rows(self, part: int, size: Size) -> Array:
        cache, split = self.parts[part]
        return self._mapped((part, size), lambda: cache.rows(split, size))

    def _ends(self, size: Size) -> Array:
        return np.cumsum([len(self._rows(part, size)) for part in range(len(self.parts))])

    def _mapped(self, key: Any, opener: Callable[[], Array]) -> Array:
        if key not in self._mapped_files:
            self._mapped_files[key] = np.asarray(opener())
        return self._mapped_files[key]
