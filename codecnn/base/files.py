"""Files that are complete or absent: atomic writes, JSON, JSON lines, CSV, hashes and provenance."""

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import platform
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from codecnn import __version__
from codecnn.base.errors import CodecnnError, ConfigError, DiskFullError, MissingFileError, OutputError, TableError
from codecnn.base.leftovers import part_path, remove_leftovers

_NOT_JSON = (ValueError, RecursionError)
"""Errors of the json module: malformed text, undecodable bytes or numbers with thousands of digits; deep nesting."""

_PROTECTED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Numbers of the operating system's errors for files, folders and disks that may not be written."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the operating system's errors for a full disk and an exceeded quota."""

_SETTLED_SECONDS = 2.0
"""Age from which a file that is written again has another time of change, also on coarse clocks."""

_hashes: dict[tuple[Any, ...], str] = {}
"""sha256 of files by `file_state`."""


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert errors of the enclosed writes that mean that the disk does not take a file.

    Args:
        path: File that the error message names.

    Raises:
        DiskFullError: The disk is full, the quota is exceeded, or a file is too large.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL and not isinstance(error, CodecnnError):
            raise DiskFullError(f"no space left on the disk while writing {path}") from error
        if error.errno == errno.EFBIG:
            raise DiskFullError(
                f"a file is too large for the file system or the limit of the shell while writing {path}: write it to "
                "another disk, or raise the limit (ulimit -f)"
            ) from error
        raise


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Provide a temporary path that replaces `path` on success and is removed on any error.

    The temporary file lies in the same folder. Its name is unique, so that simultaneous writers on any machine do not
    collide; those of killed processes are removed (`codecnn.base.leftovers`). A symbolic link stays and its target is
    written; an existing file keeps its permissions. A device or a pipe such as /dev/stdout cannot be replaced and is
    written to directly.

    Args:
        path: File to write.

    Yields:
        The path to write to; an empty file is there.

    Raises:
        ConfigError: `path` is a folder, or "-", which names standard output.
        OutputError: The file or its folder is write-protected.
        DiskFullError: The disk is full.
    """
    path = Path(path)
    if str(path) == "-":
        raise ConfigError("this cannot be written to standard output (-): name a file")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder and cannot be written as a file: name a file")
    if path.exists() and not path.is_file():
        with disk_errors(path):
            yield path
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    part = part_path(target)
    try:
        with disk_errors(path):
            _create(part, target, path)
            yield part
            _sync(part)
            _keep_permissions(part, target)
            part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _create(part: Path, target: Path, path: Path) -> None:
    """Create an empty temporary file beside `target`; errors name `path`, by which the user knows it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it is write-protected", str(path))
        remove_leftovers(target.parent, once=True)
        part.open("xb").close()
    except OSError as error:
        if error.errno in _PROTECTED:
            raise OutputError(f"{path} cannot be written ({error.strerror}): name another output") from error
        if error.filename == str(part):
            error.filename = str(path)
        raise


def _keep_permissions(part: Path, target: Path) -> None:
    """Give the new file the owner and the permissions of the one that it replaces, as far as the system allows."""
    with contextlib.suppress(OSError):
        before, after = target.stat(), part.stat()
        if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
            with contextlib.suppress(OSError):
                os.chown(part, before.st_uid, before.st_gid)
        part.chmod(stat.S_IMODE(before.st_mode))


def _sync(path: Path) -> None:
    """Flush a file to the disk, so that a power cut after the rename cannot leave it empty."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_text(path: Path | str, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_path(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write a JSON file atomically, indented by two spaces, keys in their order; NaN is an error."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file.

    Args:
        path: File to read.

    Returns:
        The value.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        CodecnnError: The file is not valid JSON.
    """
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
    """Append a line of JSON and flush it to the disk.

    If a killed process left the last line incomplete, that line is terminated first, so that it does not absorb this
    one.

    Args:
        path: File to append to; it is created if it does not exist.
        value: Value of the line; NaN is an error.

    Raises:
        DiskFullError: The disk is full.
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
    """Read the lines of a JSON-lines file that are JSON objects.

    Args:
        path: File to read.

    Returns:
        The objects. Lines that are no objects, such as the incomplete line of a killed process, are skipped. A missing
        file gives an empty list.
    """
    path = Path(path)
    if not path.exists():
        return []
    values = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(*_NOT_JSON):
            values.append(json.loads(line))
    return [value for value in values if isinstance(value, dict)]


def write_jsonl(path: Path | str, values: list[Any]) -> None:
    """Write a JSON-lines file atomically."""
    write_text(path, "".join(json.dumps(value, allow_nan=False) + "\n" for value in values))


def write_csv(path: Path | str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file atomically.

    Args:
        path: File to write.
        rows: Rows as mappings; each key of any row becomes a column, lists and dictionaries are written as JSON. A text
            that spreadsheets would take for a formula, because it begins with "=", "+", "-" or "@", gets an apostrophe
            in front of it.

    Raises:
        TableError: There are no rows.
    """
    if not rows:
        raise TableError(f"{path}: there is no row to write")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_value(value) for key, value in row.items()})
    write_text(path, text.getvalue())


def _csv_value(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return json.dumps(value) if isinstance(value, list | dict) else value


def sha256_file(path: Path | str) -> str:
    """Compute the SHA-256 of a file's bytes, hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_state(path: Path) -> tuple[Any, ...]:
    """Return what changes when a file is written or replaced: path, size, times of writing and of change, inode."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_settled(path: Path) -> bool:
    """Return whether a file is old enough that another write would change its `file_state`."""
    return time.time() - path.stat().st_ctime > _SETTLED_SECONDS


def content_sha256(path: Path | str) -> str:
    """Hash a file's bytes, once in a process as long as its `file_state` stays."""
    path = Path(path)
    state = file_state(path)
    if state not in _hashes:
        sha256 = sha256_file(path)
        if not is_settled(path):
            return sha256
        _hashes[state] = sha256
    return _hashes[state]


def sha256_json(value: Any) -> str:
    """Compute the SHA-256 of a JSON value in canonical form (sorted keys, no blanks), hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_stem(text: str, detail: str, identity: Any) -> str:
    """Name a file: the plain characters of a text, at most 80, a detail, and a hash of all that the file stands for.

    Args:
        text: Readable part, which need not be unique: other characters than 0-9, A-Z, a-z, "_" and "-" become "_".
        detail: Further readable part, of such characters.
        identity: JSON value that no other file has.
    """
    return f"{re.sub(r'[^0-9A-Za-z_-]', '_', text)[:80]}_{detail}_{sha256_json(identity)[:16]}"


def remove_tree(path: Path) -> None:
    """Remove a folder with its content; a missing folder is no error."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def provenance(extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe how a result file was made: versions of codecnn, Python and numeric libraries, and the command line.

    Args:
        extra: Further facts to include.

    Returns:
        A JSON object.
    """
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
