"""Labels from paths: pictures or a store are the input, the table of the best intra modes is the output.

Several machines label by parts: each labels some of the inputs into files of a folder, and the last one writes the
table of all parts.
"""

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.base.cluster import Progress, Shard, check_shard, of_shard, work_through
from codecnn.base.errors import ConfigError, FormatError, MissingFileError, TableError
from codecnn.base.files import atomic_path, remove_tree, sha256_file, sha256_json
from codecnn.base.leftovers import companion_path, part_path, remove_leftovers
from codecnn.base.outputs import check_outputs
from codecnn.dataset import Store, input_files, is_store, open_store
from codecnn.models import pick_device
from codecnn.modes.labels.table import (
    LabelSettings,
    Source,
    check_output,
    exact_products,
    label_facts,
    label_pictures,
    label_schema,
    write_batches,
)
from codecnn.pictures.files import Video, convert, count_stills, is_still, open_video, stills_in

_PART_NAME = re.compile(r"\d{6}_[0-9a-f]{16}\.arrow")

SPLITS = ("train", "val")
"""Default splits of a store to label."""


class Labels(NamedTuple):
    """Result of labelling.

    Attributes:
        pictures: Number of pictures.
        blocks: Number of blocks of all sizes.
        table: One row per block; None if it was written to a file.
        complete: False if other shards still have pictures to label, so that there is no table yet.
    """

    pictures: int
    blocks: int
    table: pa.Table | None = None
    complete: bool = True


def check_table_output(
    output: Path | str, source: Path | str, decoded: Path | str | None, weights: Iterable[Path] = ()
) -> None:
    """Raise ConfigError if a table would replace pictures or weights."""
    check_outputs([output, companion_path(Path(output), ".parts")], [*input_files(source, decoded), *weights])


@dataclass(frozen=True)
class Input:
    """A file of pictures to label.

    Attributes:
        name: Name of the pictures in the table.
        picture: File of the pictures.
        count: Number of pictures.
        decoded: File of the same pictures decoded, which references are taken from; None to take them from `picture`.
        options: Options of `open_video` for both files.
        qps: QP of each decoded picture, None if unknown.
        split: Split of the store's recipe, None if not from a store.
    """

    name: str
    picture: Path
    count: int
    decoded: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    qps: tuple[int, ...] | None = None
    split: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return the metadata of an input in a table: the arguments of `input_from_facts` and SHA-256 of the files."""
        facts = {"name": self.name, "picture": str(self.picture), "sha256": sha256_file(self.picture)}
        if self.decoded is not None:
            facts |= {"decoded": str(self.decoded), "decoded_sha256": sha256_file(self.decoded)}
        optional = {"count": self.count, "options": self.options, "qps": self.qps, "split": self.split}
        return facts | {name: value for name, value in optional.items() if value is not None}


def input_from_facts(facts: dict[str, Any], table: Path) -> Input:
    """Restore an input from the metadata of a table.

    Args:
        facts: Result of `Input.facts`.
        table: The table, for error messages.

    Raises:
        TableError: The metadata is incomplete, or the content of a file has changed.
        MissingFileError: A file does not exist.
    """
    try:
        entry = Input(
            name=str(facts["name"]),
            picture=Path(facts["picture"]),
            count=int(facts["count"]),
            decoded=Path(facts["decoded"]) if "decoded" in facts else None,
            options=dict(facts["options"]),
            qps=tuple(facts["qps"]) if "qps" in facts else None,
            split=facts.get("split"),
        )
        hashes = (facts["sha256"], facts.get("decoded_sha256"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TableError(f"{table} does not say which files were labelled: make it again") from error
    for path, expected in zip((entry.picture, entry.decoded), hashes, strict=True):
        if path is None:
            continue
        if not path.is_file():
            raise MissingFileError(
                f"{path}, which {table} labels, does not exist: run from the folder where the table was made if the "
                "path is relative"
            )
        if sha256_file(path) != expected:
            raise TableError(f"{path} has other content than when {table} was made: label it again")
    return entry


def list_inputs(
    source: Path, decoded: Path | None, qp: int | None, splits: Sequence[str] | None, options: dict[str, Any]
) -> list[Input]:
    """List the inputs of a path with the arguments of `label_blocks`; ConfigError if they do not fit the path."""
    if not is_store(source):
        if splits:
            raise ConfigError(f"{source} is not a store: it has no split {','.join(splits)!r}")
        return file_inputs(source, decoded, qp=qp, **options)
    given = {name for name, value in {"decoded": decoded, "qp": qp, **options}.items() if value is not None}
    if given:
        raise ConfigError(f"{source} is a store, which defines {', '.join(sorted(given))} itself: leave them out")
    return store_inputs(open_store(source), splits or SPLITS)


def file_inputs(path: Path, decoded: Path | None = None, *, qp: int | None = None, **options: Any) -> list[Input]:
    """List the inputs of a file or folder.

    Args:
        path: A video, a still picture, or a folder whose still pictures may differ in size.
        decoded: The same pictures decoded; a folder with as many files if `path` is a folder.
        qp: QP of the decoded pictures.
        options: Options of `open_video` for both; `frames` of a folder selects its first files.

    Raises:
        MissingFileError: A path does not exist.
        FormatError: The two paths hold different numbers of files or pictures.
        ConfigError: There is a QP without decoded pictures.
    """
    if qp is not None and decoded is None:
        raise ConfigError(f"QP {qp} is that of decoded pictures, but no decoded pictures of {path} are given")
    files = _files(path, options.get("frames"))
    decoded_files = [None] * len(files) if decoded is None else _files(decoded, options.get("frames"))
    if len(decoded_files) != len(files):
        raise FormatError(f"{path} holds {len(files)} files, {decoded} {len(decoded_files)} decoded ones")
    given = {key: value for key, value in options.items() if value is not None}
    inputs = []
    for file, decoded_file in zip(files, decoded_files, strict=True):
        count = _count(file, given)
        if decoded_file is not None and (decoded_count := _count(decoded_file, given)) != count:
            raise FormatError(f"{file} holds {count} pictures, {decoded_file} {decoded_count} decoded ones")
        inputs.append(Input(file.stem, file, count, decoded_file, given, None if qp is None else (qp,) * count))
    return inputs


def store_inputs(store: Store, splits: Sequence[str] = SPLITS) -> list[Input]:
    """List the units of a store as inputs: the originals, with the decoded pictures as references.

    If the store holds the reconstruction before the in-loop filters, references are taken from it, because a decoder
    predicts from it.

    Args:
        store: The store.
        splits: Splits to list.

    Raises:
        StoreError: A split has no pictures.
    """
    inputs = []
    for unit in (unit for split in splits for unit in store.split(split)):
        form = unit.format
        options = {"size": f"{form.width}x{form.height}", "bit_depth": form.bit_depth, "chroma": form.chroma}
        decoded = unit.path("unfiltered" if unit.has("unfiltered") else "decoded")
        qps = tuple(picture.qp for picture in unit.pictures)
        inputs.append(Input(unit.name, unit.original_path, len(qps), decoded, options, qps, unit.split))
    return inputs


def read_inputs(inputs: Iterable[Input], first: int = 0) -> Iterator[Source]:
    """Read the pictures of inputs in order.

    If a picture and its decoded version differ in bit depth, the smaller depth is converted to the larger one.

    Args:
        inputs: Files to read.
        first: Number of the first input.

    Yields:
        Pictures to label.
    """
    for number, entry in enumerate(inputs, first):
        qps = entry.qps or (None,) * entry.count
        with _open(entry.picture, entry.options) as video:
            if entry.decoded is None:
                for frame, picture in enumerate(video):
                    yield Source(entry.name, frame, picture.y, picture.y, picture.bit_depth, None, number)
                continue
            with _open(entry.decoded, entry.options) as decoded_video:
                pictures = zip(video, decoded_video, qps, strict=True)
                for frame, (picture, decoded, qp) in enumerate(pictures):
                    depth = max(picture.bit_depth, decoded.bit_depth)
                    planes = convert(picture, depth).y, convert(decoded, depth).y
                    yield Source(entry.name, frame, *planes, depth, qp, number)


def _open(file: Path, options: dict[str, Any]) -> Video:
    # For a still picture, the bit depth is that of the conversion; other options do not apply.
    still = is_still(file)
    return open_video(file, **{key: value for key, value in options.items() if not still or key == "bit_depth"})


def _count(file: Path, options: dict[str, Any]) -> int:
    if is_still(file) and file.is_file():
        return count_stills(file)
    with _open(file, options) as video:
        return len(video)


def _files(path: Path, frames: int | None) -> list[Path]:
    return stills_in(path)[:frames] if path.is_dir() else [path]


@dataclass(frozen=True)
class _Part:
    """An input to label, its number among all inputs, and the file of its rows."""

    entry: Input
    number: int
    file: Path


def write_labels_by_parts(
    output: Path,
    inputs: Sequence[Input],
    settings: LabelSettings,
    *,
    shard: Shard,
    scheduler: str | None,
    jobs: int,
    device: str,
    progress: Progress | None,
) -> int | None:
    """Label the inputs of a shard, each into a file of the folder OUTPUT.parts, unless that file exists.

    A process that then finds the parts of all inputs writes the table, byte for byte as `write_labels` does, and
    removes the folder. Workers pick `device` themselves.

    Returns:
        Number of rows of the table, None while parts are missing.
    """
    check_shard(shard)
    check_output(output)
    # Workers may run in other working folders.
    output = output.absolute()
    folder = companion_path(output, ".parts")
    input_facts = [entry.facts() for entry in inputs]
    facts = label_facts(settings, input_facts)
    if (rows := _rows_of_table(output, facts)) is not None:
        return rows
    if foreign := _foreign_names(folder):
        raise ConfigError(
            f"{folder}, the folder of the parts of {output.name}, holds other files, e.g. {foreign[0]}: move it away, "
            "or name another output"
        )
    parts = []
    for number, (entry, entry_facts) in enumerate(zip(inputs, input_facts, strict=True)):
        key = sha256_json([number, label_facts(settings, [entry_facts])])
        decoded = None if entry.decoded is None else entry.decoded.absolute()
        entry = replace(entry, picture=entry.picture.absolute(), decoded=decoded)
        parts.append(_Part(entry, number, folder / f"{number:06}_{key[:16]}.arrow"))
    shard_parts = of_shard(parts, shard, [part.entry.picture.stat().st_size for part in parts])
    missing = [part for part in shard_parts if not part.file.is_file()]
    work_through(
        functools.partial(_label_part, settings=settings, jobs=jobs, device=device),
        missing,
        lambda part: part.file,
        scheduler=scheduler,
        progress=progress,
        done=len(shard_parts) - len(missing),
    )
    try:
        if not all(part.file.is_file() for part in parts):
            return _rows_of_table(output, facts)
        rows = write_batches(
            output, ((batch, False) for part in parts for batch in _read_batches(part.file)), settings, input_facts
        )
    except FileNotFoundError:
        # Another process finished at the same time: it has written the table and removed the parts.
        if (rows := _rows_of_table(output, facts)) is None:
            raise
        return rows
    # All parts disappear at once, so that no process sees a subset and labels the rest again.
    if not _foreign_names(folder):
        with contextlib.suppress(FileNotFoundError):
            remove_tree(folder.rename(part_path(folder)))
    remove_leftovers(output.parent)
    return rows


def _foreign_names(folder: Path) -> list[str]:
    """Return the names of files in the folder of parts that are neither parts nor temporary files of parts."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir() if not _PART_NAME.match(path.name))
    return []


def _label_part(part: _Part, *, settings: LabelSettings, jobs: int, device: str) -> None:
    """Write the rows of an input in their original batches, because the bytes of the table depend on them."""
    sources = read_inputs([part.entry], part.number)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    device = str(pick_device(device))
    with (
        exact_products(device),
        atomic_path(part.file) as path,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, label_schema(settings), options=options) as writer,
    ):
        for _, batch, _ in label_pictures(sources, settings, jobs=jobs, device=device):
            writer.write_batch(batch)


def _read_batches(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as batches:
        yield from batches


def _rows_of_table(output: Path, facts: dict[str, Any]) -> int | None:
    """Return the number of rows of a table with the metadata `facts`; None if there is no such table."""
    try:
        metadata = pq.read_metadata(output)
        stored = json.loads(metadata.metadata[b"codecnn"])
        return int(metadata.num_rows) if {name: stored[name] for name in facts} == facts else None
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
