"""Folder of a run: the mark by which it is recognised, and the lock that its training holds."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from codecnn.base.errors import CodecnnError, ConfigError, StoreError
from codecnn.base.files import read_json, read_jsonl, write_json
from codecnn.base.leftovers import remove_leftovers
from codecnn.training.distributed import Process, gather

CHECKPOINT, METRICS, CONFIG, LOG = "checkpoint.pt", "metrics.jsonl", "config.json", "log.jsonl"
BOARDS = "boards.json"
"""Names of the run in the programs that show it."""
RUN_FILES = (
    *(CHECKPOINT, METRICS, CONFIG, LOG, BOARDS, "summary.csv", "transfer.json"),
    *(f"{name}{suffix}" for name in ("best", "last") for suffix in (".safetensors", ".json")),
)
"""Files that a training writes into the folder of its run."""
SCHEMA = "codecnn.run/1"
"""Value of "schema" in config.json, which marks the folder as that of a run."""
LOCK, HOLDER = ".lock-training", ".lock-training.json"
"""The lock of a training, which the kernel releases when the process ends, and the description of that process."""
ORPHAN_SECONDS = 15.0
"""Longest wait for the loading processes of a killed training, which inherited its lock and end by themselves."""


@contextlib.contextmanager
def held_run_folder(run: Path, process: Process, *, resume: bool) -> Iterator[None]:
    """Hold the folder of a run within the context, so that no other training writes into it.

    The first process takes the lock; the others follow its decision. A folder without a mark must be empty, because
    training overwrites files with common names, such as config.json. If nothing is written, a folder that did not exist
    is removed again.

    Args:
        run: Folder of the run; a missing one is created.
        process: This process.
        resume: Whether the run in the folder continues.

    Raises:
        ConfigError: The folder holds other files, or already a run, or another training works in it.
        StoreError: There is no checkpoint to resume from.
    """
    with contextlib.ExitStack() as stack:
        refusal: CodecnnError | None = None
        if process.first:
            try:
                stack.enter_context(_held(run, resume=resume))
            except CodecnnError as error:
                refusal = error
        refusal = gather([refusal])[0]
        if refusal is not None:
            raise refusal
        yield


@contextlib.contextmanager
def _held(run: Path, *, resume: bool) -> Iterator[None]:
    remove_leftovers(run)  # a training that was killed while it wrote its first file
    if not (run / LOCK).exists():
        _check_content(run, resume=resume)  # before the lock is created in a folder of the user
    existed = run.exists()
    run.mkdir(parents=True, exist_ok=True)
    with _lock(run):
        try:
            _check_content(run, resume=resume)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(run / HOLDER, {"process": os.getpid(), "host": socket.gethostname(), "started": started})
            yield
        finally:
            (run / HOLDER).unlink(missing_ok=True)
            if not existed and {path.name for path in run.iterdir()} <= {LOCK}:
                (run / LOCK).unlink(missing_ok=True)
                run.rmdir()


def _lock(run: Path) -> contextlib.AbstractContextManager[Any]:
    """Take the lock of a folder; the context that is returned releases it."""
    lock = FileLock(run / LOCK)
    with contextlib.suppress(Timeout):
        return lock.acquire(timeout=0)
    with contextlib.suppress(Timeout):
        if _has_ended(_holder(run)):
            return lock.acquire(timeout=ORPHAN_SECONDS)
    raise ConfigError(
        f"another training, {_described(_holder(run))}, writes into {run}: wait until it ends, or choose another "
        "folder with -o"
    )


def _check_content(run: Path, *, resume: bool) -> None:
    """Raise an error unless the folder is that of a run, or may become one."""
    if run.exists() and not run.is_dir():
        raise ConfigError(f"{run} is a file: name a folder for the run with -o")
    if (run / CONFIG).exists() and is_run(run):
        if not resume and (run / CHECKPOINT).exists():
            raise ConfigError(f"{run} already holds a run: continue it with --resume, or choose another folder with -o")
    elif run.exists() and (other := sorted({path.name for path in run.iterdir()} - {LOCK, HOLDER})):
        raise ConfigError(
            f"{run} is not the folder of a run and holds other files, such as {other[0]}, which training could "
            "overwrite: choose another folder with -o"
        )
    if resume and not (run / CHECKPOINT).is_file():
        raise StoreError(f"{run} has no {CHECKPOINT} to resume from")


def is_run(run: Path) -> bool:
    """Return whether a folder has the mark of a run: a config.json that `codecnn train` wrote."""
    with contextlib.suppress(CodecnnError):
        content = read_json(run / CONFIG)
        return isinstance(content, dict) and content.get("schema") == SCHEMA
    return False


def threads_of_run(run: Path) -> int | None:
    """Return the CPU threads with which a run was computed last, on which its sums depend; None if unknown."""
    counts = [event["threads"] for event in read_jsonl(run / LOG) if isinstance(event.get("threads"), int)]
    return counts[-1] if counts else None


def _holder(run: Path) -> dict[str, Any]:
    """Read the description of the process that holds the lock; empty while it is being written."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads((run / HOLDER).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "which has just started"
    return f"process {holder.get('process')} on {holder.get('host')} since {holder.get('started')}"


def _has_ended(holder: dict[str, Any]) -> bool:
    """Return whether the process that took the lock has ended, on this machine."""
    if holder.get("host") != socket.gethostname() or not isinstance(holder.get("process"), int):
        return False
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
