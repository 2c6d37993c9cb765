"""Stores in object storage: files are copied into a local folder when they are needed, and read there.

A store at an address such as s3://bucket/stores/div2k is read through pyarrow. Its local folder is named by the hash of
its manifest, which holds the hashes of all other files: the copy of a store never mixes with that of another one, or
of an earlier build. Each file is complete or absent, and has the content that its record states.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from filelock import FileLock

from codecnn.base.errors import ConfigError, MissingFileError, StoreError
from codecnn.base.files import atomic_path

CACHE_VARIABLE = "CODECNN_CACHE"
"""Environment variable with the folder of local copies; by default ~/.cache/codecnn."""

_ADDRESS = re.compile(r"s3:/{1,2}([^/].*)", re.DOTALL)
"""Form of an address; a path of Python has one slash of the two."""

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the address of an S3 service other than that of AWS."""

_PARALLEL = 16
"""Files that are copied at the same time."""

_CHUNK = 1 << 24
"""Bytes that are copied at a time."""


def store_address(store: Path | str) -> str | None:
    """Return the address of a store in object storage, e.g. "s3://bucket/stores/div2k"; None for a folder."""
    match = _ADDRESS.fullmatch(str(store))
    return None if match is None else f"s3://{match[1].rstrip('/')}"


def copy_manifest(address: str, name: str) -> Path:
    """Copy the manifest of a store.

    Args:
        address: Address of the store.
        name: Name of the manifest.

    Returns:
        The local folder of the store, with its manifest.

    Raises:
        MissingFileError: The manifest does not exist or cannot be read.
        ConfigError: The address is not valid.
    """
    content = b"".join(_chunks(*_file_system(address), address, name))
    last = _without_options(address).rpartition("/")[2]
    folder = _cache() / "stores" / hashlib.sha256(content).hexdigest()[:16] / last
    if not (folder / name).is_file():
        with atomic_path(folder / name) as part:
            part.write_bytes(content)
    return folder


def copy_files(address: str, folder: Path, files: Mapping[str, str]) -> None:
    """Copy those files of a store that are not in its local folder; other processes that need them wait.

    Args:
        address: Address of the store.
        folder: Its local folder.
        files: SHA-256 of each file by its name relative to the store.

    Raises:
        MissingFileError: A file does not exist or cannot be read.
        StoreError: A file has other content than when the store was built.
        DiskFullError: The disk of the local folder is full.
    """
    if all((folder / name).is_file() for name in files):
        return
    from tqdm import tqdm

    with FileLock(folder / ".lock"), ThreadPoolExecutor(_PARALLEL) as pool:
        missing = [name for name in files if not (folder / name).is_file()]
        system, root = _file_system(address)
        shown = _without_options(address)

        def copy(name: str) -> None:
            digest = hashlib.sha256()
            with atomic_path(folder / name) as part:
                with part.open("wb") as file:
                    for chunk in _chunks(system, root, address, name):
                        digest.update(chunk)
                        file.write(chunk)
                if digest.hexdigest() != files[name]:
                    raise StoreError(
                        f"{shown}/{name} has other content than when it was built: copy the store there again"
                    )

        with tqdm(desc=f"copying {shown}", unit="file", total=len(missing), disable=None, leave=False) as bar:
            for _ in pool.map(copy, missing):
                bar.update()


def _chunks(system: Any, root: str, address: str, name: str) -> Iterator[bytes]:
    """Yield the content of a file; errors of object storage become errors of codecnn."""
    shown = f"{_without_options(address)}/{name}"
    try:
        with system.open_input_stream(f"{root}/{name}") as source:
            while chunk := source.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        raise MissingFileError(f"{shown} does not exist: copy a complete store there") from None
    except OSError as error:
        raise MissingFileError(f"{shown} cannot be read: {error}") from error


def _file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    from pyarrow.fs import FileSystem, S3FileSystem

    endpoint = next((value for name in _ENDPOINTS if (value := os.environ.get(name))), None)
    try:
        if endpoint is not None and "?" not in address:
            return S3FileSystem(endpoint_override=endpoint), address.removeprefix("s3://")
        system, path = FileSystem.from_uri(address)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{address} cannot be opened: {error}") from error
    return system, path


def _without_options(address: str) -> str:
    return address.partition("?")[0]


def _cache() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codecnn"
