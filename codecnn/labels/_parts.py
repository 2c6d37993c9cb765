"""Labels by several machines: a part for every input, and the table of all parts."""

import contextlib
import functools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.cluster import Progress, Shard, check_shard, of_shard, work_through
from codecnn.labels.sources import Input, read_inputs
from codecnn.labels.table import LabelSettings, check_output, label_facts, label_pictures, label_schema, write_batches
from codecnn.models import pick_device
from codecnn.runs import atomic_path, remove_tree, sha256_json


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
    """Label the inputs of a shard, each into a file of the folder OUTPUT.parts, unless that is there.

    Who then finds the parts of all inputs writes the table, as `write_labels` does and byte for byte the same, and
    removes the folder. Returns the rows of the table, None while parts are missing. Workers pick `device` themselves.
    """
    check_shard(shard)
    check_output(output)
    # Workers have working folders of their own.
    output = output.absolute()
    folder = output.with_name(f"{output.name}.parts")
    told = [entry.facts() for entry in inputs]
    facts = label_facts(settings, told)
    if (rows := _rows(output, facts)) is not None:
        return rows
    parts = []
    for number, (entry, own) in enumerate(zip(inputs, told, strict=True)):
        key = sha256_json([number, label_facts(settings, [own])])
        decoded = None if entry.decoded is None else entry.decoded.absolute()
        entry = replace(entry, picture=entry.picture.absolute(), decoded=decoded)
        parts.append(_Part(entry, number, folder / f"{number:06}_{key[:16]}.arrow"))
    mine = of_shard(parts, shard)
    missing = [part for part in mine if not part.file.is_file()]
    work_through(
        functools.partial(_label, settings=settings, jobs=jobs, device=device),
        missing,
        lambda part: part.file,
        scheduler=scheduler,
        progress=progress,
        done=len(mine) - len(missing),
    )
    try:
        if not all(part.file.is_file() for part in parts):
            return _rows(output, facts)
        rows = write_batches(
            output, ((batch, False) for part in parts for batch in _batches(part.file)), settings, told
        )
    except FileNotFoundError:
        # Of two that end at once the other was faster: it has written the table and taken the parts away.
        if (rows := _rows(output, facts)) is None:
            raise
        return rows
    # All parts go at once, so that nobody takes some of them for work that is not done.
    with contextlib.suppress(FileNotFoundError):
        remove_tree(folder.rename(folder.with_name(f"{folder.name}-{uuid.uuid4().hex[:12]}")))
    return rows


def _label(part: _Part, *, settings: LabelSettings, jobs: int, device: str) -> None:
    """Write the rows of an input in the batches in which they were made, on which the table's bytes depend."""
    sources = read_inputs([part.entry], part.number)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        atomic_path(part.file) as path,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, label_schema(settings), options=options) as writer,
    ):
        for _, batch, _ in label_pictures(sources, settings, jobs=jobs, device=str(pick_device(device))):
            writer.write_batch(batch)


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as batches:
        yield from batches


def _rows(output: Path, facts: dict[str, Any]) -> int | None:
    """The rows of a table that says `facts` of itself; None where there is no such table."""
    try:
        found = pq.read_metadata(output)
        told = json.loads(found.metadata[b"codecnn"])
        return int(found.num_rows) if {name: told[name] for name in facts} == facts else None
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
