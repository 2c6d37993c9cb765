"""CU tables, transform blocks or planes of many VVC streams, computed by one machine or by several."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.codec.blocks.stream_planes import REBUILDER_VERSION, check_planes, write_planes
from codecnn.codec.blocks.vvc_stream import READER_VERSION, stream_table, stream_transform_blocks
from codecnn.errors import CodecnnError, ConfigError, MissingFileError
from codecnn.runs import atomic_path, read_json, sha256_file, write_json

VERSION = 2
"""Version of the outputs in their cache keys, besides those of the readers; 2 leaves out pictures before the recovery
point of a GDR picture."""

PLANES_FILE = "planes.json"
"""File beside the planes of a stream: their cache key, and the positions of their pictures in output order."""


@dataclass(frozen=True)
class _Task:
    """The output of one stream.

    Attributes:
        stream: VVC stream.
        planes: Planes to write instead of a table.
        tus: The table has transform blocks instead of CUs.
        file: The file that is written last and contains `key`.
        key: Cache key.
    """

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
    """Write the CUs of every stream as NAME.parquet, or planes into a folder NAME.

    Existing output of the same stream is kept.

    Args:
        streams: VVC byte streams with different names.
        folder: Output folder.
        planes: Planes to write instead of CUs, see `write_planes`.
        tus: Write transform blocks instead of CUs.
        shard: (i, n) reads every n-th stream only, starting at the i-th.
        scheduler: Address of a dask scheduler whose workers read the streams.
        progress: Called with the number of finished streams and the number of all streams.

    Returns:
        The tables of the shard, or its planes.json files: `files` by plane, `positions` of their pictures in output
        order, and the number of pictures that the stream outputs (`shown`).

    Raises:
        ConfigError: Two streams have the same name, a plane does not exist, or the folder is a file.
        MissingFileError: A stream does not exist.
        FormatError: A stream is damaged.
        UnsupportedError: A stream uses a feature that codecnn does not read.
        WorkerError: A worker fails.
    """
    check_shard(shard)
    check_planes(planes)
    folder = Path(folder).absolute()
    if folder.is_file() or folder.suffix in (".parquet", ".csv", ".gz", ".vtmbmsstats"):
        raise ConfigError(f"{folder.name} is a file: several streams need a folder: -o FOLDER")
    paths = [Path(stream).absolute() for stream in streams]
    names = [path.stem for path in paths]
    for path in paths:
        if names.count(path.stem) > 1:
            raise ConfigError(f"two streams have the same name: {path.stem}")
        if not path.is_file():
            raise MissingFileError(f"{path} does not exist")
    tasks = [_task(path, folder, tuple(dict.fromkeys(planes)), tus) for path in of_shard(paths, shard)]
    missing = [task for task in tasks if not _is_complete(task)]
    work_through(
        _write,
        missing,
        lambda task: task.file,
        scheduler=scheduler,
        progress=progress,
        done=len(tasks) - len(missing),
    )
    return [task.file for task in tasks]


def _task(stream: Path, folder: Path, planes: tuple[str, ...], tus: bool) -> _Task:
    key: dict[str, Any] = {
        "stream": stream.name,
        "sha256": sha256_file(stream),
        "reader": READER_VERSION,
        "version": VERSION,
    }
    if not planes:
        key["table"] = "transform blocks" if tus else "CUs and their transforms"
        return _Task(stream, planes, tus, folder / f"{stream.stem}.parquet", key)
    key |= {"planes": list(planes), "rebuilder": REBUILDER_VERSION}
    return _Task(stream, planes, tus, folder / stream.stem / PLANES_FILE, key)


def _is_complete(task: _Task) -> bool:
    try:
        if task.planes:
            return bool(read_json(task.file)["key"] == task.key)
        return bool(json.loads(pq.read_schema(task.file).metadata[b"codecnn"]) == task.key)
    except (OSError, CodecnnError, pa.ArrowException, KeyError, TypeError, ValueError):
        return False


def _write(task: _Task) -> None:
    if task.planes:
        written = write_planes(task.stream, task.planes, task.file.parent)
        files = {name: path.name for name, path in written.files.items()}
        content = {"key": task.key, "files": files, "positions": list(written.positions), "shown": written.shown}
        write_json(task.file, content)
        return
    table = stream_transform_blocks(task.stream) if task.tus else stream_table(task.stream).to_arrow()
    table = table.replace_schema_metadata({"codecnn": json.dumps(task.key)})
    with atomic_path(task.file) as part:
        pq.write_table(table, part)
