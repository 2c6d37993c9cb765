"""Files that are whole or absent: atomic writes, JSON lines, hashes and provenance."""

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from codecnn import __version__
from codecnn.errors import CodecnnError, ConfigError, DiskFullError, MissingFileError

_NOT_JSON = (ValueError, RecursionError)
"""What json raises: malformed text, undecodable bytes, numbers of thousands of digits; brackets nested too deep."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn "no space left" from any write below into a DiskFullError that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL and not isinstance(error, CodecnnError):
            raise DiskFullError(f"no space left on the disk while writing {path}") from error
        raise


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a `.part` path beside `path`; on success it replaces `path`, on any error it is removed.

    Its name is drawn at random, so writers at the same time, on whatever machine, and leftovers of a killed one never
    mix. A device or a pipe, such as /dev/stdout, cannot be replaced and is written to as it is. Raises ConfigError when
    `path` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file that can be written")
    if path.exists() and not path.is_file():
        with disk_errors(path):
            yield path
        return
    part = path.with_name(f"{path.name}.part-{uuid.uuid4().hex[:12]}")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            _sync(part)
            part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    """Flush a file to the disk, so that a power cut after the rename cannot leave it empty."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_text(path: Path | str, text: str) -> None:
    """Write a text file atomically (UTF-8)."""
    with atomic_path(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write JSON atomically: two spaces, key order kept, NaN refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file; MissingFileError when there is none to read, CodecnnError for a malformed one, naming it."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist") from None
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error
    except _NOT_JSON as error:
        raise CodecnnError(f"{path} is not valid JSON: {error}") from error


def append_jsonl(path: Path | str, value: Any) -> None:
    """Append one JSON line and flush it to the disk.

    A line that a kill left incomplete is closed first, so that it cannot swallow this one.
    """
    path = Path(path)
    line = json.dumps(value, allow_nan=False).encode() + b"\n"
    with disk_errors(path), path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_jsonl(path: Path | str) -> list[dict[str, Any]]:
    """Read lines of JSON objects; an absent file has none, and a line that is none, as a kill leaves, is ignored."""
    path = Path(path)
    if not path.exists():
        return []
    values = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(*_NOT_JSON):
            values.append(json.loads(line))
    return [value for value in values if isinstance(value, dict)]


def write_jsonl(path: Path | str, values: list[Any]) -> None:
    """Write a whole JSON-lines file atomically."""
    write_text(path, "".join(json.dumps(value, allow_nan=False) + "\n" for value in values))


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form (sorted keys, no blanks), hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it; an absent one is fine."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def provenance(extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What made a result file: versions of codecnn, Python and the numeric libraries, and the command line."""
    versions = {}
    for name in ("numpy", "scipy", "torch", "imageio-ffmpeg", "bjontegaard", "bayesian-optimization"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "codecnn": __version__,
        "python": platform.python_version(),
        "versions": versions,
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        **(extra or {}),
    }
