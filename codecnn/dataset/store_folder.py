"""Folder of a store under construction: its mark, and removal of the files that killed builds and locks leave."""

import contextlib
import re
from pathlib import Path

from filelock import FileLock, Timeout

from codecnn.base.errors import CodecnnError, StoreError
from codecnn.base.files import read_json, remove_tree, write_text
from codecnn.base.leftovers import remove_leftovers
from codecnn.dataset.originals import HASHES, ORIGINAL_STEM, ORIGINALS, written_originals
from codecnn.dataset.planning import CODED
from codecnn.dataset.store import MANIFEST

MARK = ".codecnn-store"
"""File that marks a folder as a store; it is written before anything else, so that an interrupted build has it."""

_LOCK = re.compile(r"\.lock-(finish|\d+of\d+)")
_WORKING_FOLDER = re.compile(r"\.work-(\d+of\d+)-")
_HASH = re.compile(r"[0-9a-f]{64}\.json")

LOCK_SECONDS = 3
"""Seconds to wait for the lock of a shard: after a kill, child processes can hold it until they end."""


def claim_folder(store: Path) -> None:
    """Mark a new or empty folder as a store.

    Raises:
        StoreError: The folder holds files and is not a store.
    """
    names = sorted(path.name for path in store.iterdir()) if store.is_dir() else []
    if MARK in names:
        return
    # Another shard can be writing the mark at this moment.
    foreign = [name for name in names if not name.startswith(MARK)]
    if foreign and not _has_manifest(store):
        raise StoreError(
            f"{store} is not a store and holds other files, e.g. {foreign[0]}: name a new or empty folder for the store"
        )
    write_text(store / MARK, "This folder is a store of codecnn. `codecnn dataset build` replaces files in it.\n")


def _has_manifest(store: Path) -> bool:
    with contextlib.suppress(CodecnnError):
        manifest = read_json(store / MANIFEST)
        return isinstance(manifest, dict) and {"schema", "data_key", "units_sha256"} <= manifest.keys()
    return False


def working_prefix(label: str) -> str:
    """Return how the names of the working folders of a shard begin."""
    return f".work-{label}-"


def remove_working_folders(store: Path, label: str) -> None:
    """Remove unfinished units of killed builds of this shard.

    Each attempt has a new folder, so encoders that outlived a killed build do not disturb the next one.
    """
    for path in (store / CODED).glob(f"{working_prefix(label)}*"):
        remove_tree(path)


def remove_abandoned_folders(store: Path, label: str) -> None:
    """Remove unfinished units of workers that died: those of this shard, and those of shards that nobody works on."""
    remove_working_folders(store, label)
    others = {match[1] for path in (store / CODED).iterdir() if (match := _WORKING_FOLDER.match(path.name))}
    for other in others:
        with contextlib.suppress(Timeout), FileLock(store / f".lock-{other}", timeout=LOCK_SECONDS):
            remove_working_folders(store, other)


def clean_originals(store: Path, planned: set[str], prune: bool) -> None:
    """Remove the locks and temporary files of the conversion, and with `prune` the originals that no unit needs."""
    remove_leftovers(store / ORIGINALS)
    for lock in (store / ORIGINALS).glob("*.lock"):
        if ORIGINAL_STEM.fullmatch(lock.stem) and lock.stat().st_size == 0:
            lock.unlink(missing_ok=True)
    for name, path in written_originals(store).items():
        if prune and name not in planned:
            # The description is the record that codecnn wrote the file, so it goes last.
            path.unlink(missing_ok=True)
            path.with_suffix(".json").unlink(missing_ok=True)


def remove_hashes(store: Path) -> None:
    """Remove the cached hashes of the sources; another shard that begins now may write further ones."""
    folder = store / HASHES
    remove_leftovers(folder)
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _HASH.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


def remove_locks(store: Path) -> None:
    """Remove the lock files of the shards and of the completion."""
    for lock in store.glob(".lock-*"):
        if _LOCK.fullmatch(lock.name):
            lock.unlink(missing_ok=True)
