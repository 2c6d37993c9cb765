"""CU tables, transform blocks or planes of many VVC streams, computed by one machine or by several."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.base.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.base.errors import CodecnnError, ConfigError, MissingFileError
from codecnn.base.files import atomic_path, read_json, sha256_file, write_json
from codecnn.base.outputs import check_outputs
from codecnn.codec.blocks.motion_table import stream_motion
from codecnn.codec.blocks.stream_planes import REBUILDER_VERSION, check_planes, write_planes
from codecnn.codec.blocks.vvc_stream import READER_VERSION, stream_table, stream_transform_blocks

VERSION = 2
"""Version of the outputs in their cache keys, besides those of the readers; 2 leaves out pictures before the recovery
point of a GDR picture."""

PLANES_FILE = "planes.json"
"""File beside the planes of a stream: their cache key, names and sizes, and the number of their pictures."""

_TABLES: dict[str, Callable[[Path], pa.Table]] = {
    "CUs and their transforms": lambda stream: stream_table(stream).to_arrow(),
    "CUs and their motion": stream_motion,
    "transform blocks": stream_transform_blocks,
}
"""Functions that read a table from a stream, by the content of the table."""


@dataclass(frozen=True)
class _Task:
    """The output of one stream.

    Attributes:
        stream: VVC stream.
        planes: Planes to write instead of a table.
        rows: Content of the table, a key of _TABLES.
        file: The file that is written last and contains `key`.
        key: Cache key.
    """

    stream: Path
    planes: tuple[str, ...]
    rows: str
    file: Path
    key: dict[str, Any]


def write_partitions(
    streams: Sequence[Path | str],
    folder: Path | str,
    planes: Sequence[str] = (),
    *,
    tus: bool = False,
    motion: bool = False,
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the CUs of every stream as NAME.parquet, or planes into a folder NAME.

    Complete output of the same stream is kept.

    Args:
        streams: VVC byte streams with different names.
        folder: Output folder.
        planes: Planes to write instead of CUs, see `write_planes`.
        tus: Write transform blocks instead of CUs.
        motion: Write CUs with their motion, see `stream_motion`.
        shard: (i, n) reads the i-th of n parts of the streams, which have about the same number of bytes.
        scheduler: Address of a dask scheduler whose workers read the streams.
        progress: Called with the number of finished streams and the number of all streams.

    Returns:
        The tables of the shard, or its planes.json files: `files` and their size in `bytes` by plane, and the number of
        `pictures` that the stream outputs.

    Raises:
        ConfigError: Two streams have the same name, a plane does not exist, the folder is a file, or several of planes,
            tus and motion are given.
        MissingFileError: A stream does not exist.
        FormatError: A stream is damaged.
        UnsupportedError: A stream uses a feature that codecnn does not read.
        WorkerError: A worker fails.
    """
    check_shard(shard)
    check_planes(planes)
    if bool(planes) + tus + motion > 1:
        raise ConfigError("planes, transform blocks and motion exclude each other: ask for one of them")
    rows = "transform blocks" if tus else "CUs and their motion" if motion else "CUs and their transforms"
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
    check_outputs([_output(path, folder, bool(planes)) for path in paths], paths)
    shard_paths = of_shard(paths, shard, [path.stat().st_size for path in paths])
    tasks = [_task(path, folder, tuple(dict.fromkeys(planes)), rows) for path in shard_paths]
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


def _output(stream: Path, folder: Path, planes: bool) -> Path:
    """Return the file that is written last for a stream."""
    return folder / stream.stem / PLANES_FILE if planes else folder / f"{stream.stem}.parquet"


def _task(stream: Path, folder: Path, planes: tuple[str, ...], rows: str) -> _Task:
    key: dict[str, Any] = {
        "stream": stream.name,
        "sha256": sha256_file(stream),
        "reader": READER_VERSION,
        "version": VERSION,
    }
    if not planes:
        key["table"] = rows
        if rows == "CUs and their motion":
            key["rebuilder"] = REBUILDER_VERSION
    else:
        key |= {"planes": list(planes), "rebuilder": REBUILDER_VERSION}
    return _Task(stream, planes, rows, _output(stream, folder, bool(planes)), key)


def _is_complete(task: _Task) -> bool:
    try:
        if task.planes:
            content = read_json(task.file)
            sizes = {name: (task.file.parent / file).stat().st_size for name, file in content["files"].items()}
            return bool(content["key"] == task.key and set(sizes) == set(task.planes) and sizes == content["bytes"])
        return bool(json.loads(pq.read_schema(task.file).metadata[b"codecnn"]) == task.key)
    except (OSError, CodecnnError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError):
        return False


def _write(task: _Task) -> None:
    if task.planes:
        written = write_planes(task.stream, task.planes, task.file.parent)
        files = {name: path.name for name, path in written.files.items()}
        sizes = {name: path.stat().st_size for name, path in written.files.items()}
        content = {"key": task.key, "files": files, "bytes": sizes, "pictures": written.pictures}
        write_json(task.file, content)
        return
    table = _TABLES[task.rows](task.stream).replace_schema_metadata({"codecnn": json.dumps(task.key)})
    with atomic_path(task.file) as part:
        pq.write_table(table, part)
