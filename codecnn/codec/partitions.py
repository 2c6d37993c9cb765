"""The CUs or transform blocks of many VVC streams, or planes of their pictures, by one machine or several."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.codec.blocks.transform_blocks import stream_transform_blocks
from codecnn.codec.blocks.vvc_partition import READER, stream_table
from codecnn.codec.intra_planes import REBUILDER, check_planes, write_planes
from codecnn.errors import CodecnnError, ConfigError, MissingFileError
from codecnn.runs import atomic_path, read_json, sha256_file, write_json

PLANES_FILE = "planes.json"
"""Beside the planes of a stream: what they were made from, and where their pictures stand among those shown."""


@dataclass(frozen=True)
class _Wanted:
    """A stream, what is wanted of it instead of its CUs, and the file, written last, that holds `key`."""

    stream: Path
    planes: tuple[str, ...]
    tus: bool
    file: Path
    key: dict[str, Any]


def write_partitions(
    streams: Sequence[Path | str],
    folder: Path | str,
    planes: Sequence[str] = (),
    *,
    tus: bool = False,
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the CUs of every stream as NAME.parquet into `folder`, or with `planes` these into the folder NAME there.

    With `tus` the rows are transform blocks. Of a `shard` (i, n) every n-th stream is read; with `scheduler` the
    workers of that dask scheduler read. What is there of the same stream is not made again. Returns the tables of the
    shard, or its planes.json: files by plane, the `positions` of their pictures in output order, and how many pictures
    the stream has `shown`.

    Raises ConfigError for two streams of one name, and what `stream_table`, `write_planes` and `work_through` raise.
    """
    check_shard(shard)
    check_planes(planes)
    folder = Path(folder).absolute()
    if folder.is_file() or folder.suffix in (".parquet", ".csv", ".gz", ".vtmbmsstats"):
        raise ConfigError(f"{folder.name} is a file: of several streams each has its own, in a folder: -o FOLDER")
    paths = [Path(stream).absolute() for stream in streams]
    names = [path.stem for path in paths]
    for path in paths:
        if names.count(path.stem) > 1:
            raise ConfigError(f"two streams have one name: {path.stem}")
        if not path.is_file():
            raise MissingFileError(f"{path} does not exist")
    mine = [_wanted(path, folder, tuple(dict.fromkeys(planes)), tus) for path in of_shard(paths, shard)]
    missing = [wanted for wanted in mine if not _is_made(wanted)]
    work_through(
        _write,
        missing,
        lambda wanted: wanted.file,
        scheduler=scheduler,
        progress=progress,
        done=len(mine) - len(missing),
    )
    return [wanted.file for wanted in mine]


def _wanted(stream: Path, folder: Path, planes: tuple[str, ...], tus: bool) -> _Wanted:
    key: dict[str, Any] = {"stream": stream.name, "sha256": sha256_file(stream), "reader": READER}
    if not planes:
        key["table"] = "transform blocks" if tus else "CUs and their transforms"
        return _Wanted(stream, planes, tus, folder / f"{stream.stem}.parquet", key)
    key |= {"planes": list(planes), "rebuilder": REBUILDER}
    return _Wanted(stream, planes, tus, folder / stream.stem / PLANES_FILE, key)


def _is_made(wanted: _Wanted) -> bool:
    try:
        if wanted.planes:
            return bool(read_json(wanted.file)["key"] == wanted.key)
        return bool(json.loads(pq.read_schema(wanted.file).metadata[b"codecnn"]) == wanted.key)
    except (OSError, CodecnnError, pa.ArrowException, KeyError, TypeError, ValueError):
        return False


def _write(wanted: _Wanted) -> None:
    if wanted.planes:
        made = write_planes(wanted.stream, wanted.planes, wanted.file.parent)
        files = {name: path.name for name, path in made.files.items()}
        told = {"key": wanted.key, "files": files, "positions": list(made.positions), "shown": made.shown}
        write_json(wanted.file, told)
        return
    table = stream_transform_blocks(wanted.stream) if wanted.tus else stream_table(wanted.stream).to_arrow()
    table = table.replace_schema_metadata({"codecnn": json.dumps(wanted.key)})
    with atomic_path(wanted.file) as part:
        pq.write_table(table, part)
