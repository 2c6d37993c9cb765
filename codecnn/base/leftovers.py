"""Temporary files and folders whose names state their process, and removal of those that killed processes left.

A name ends in MACHINE-PID-RANDOM. MACHINE stands for one boot of one machine and one set of process numbers, so that
containers and machines that share a folder are told apart. A file is removed if its process on this machine has ended,
or if it is of another machine and old. Files of other users and files with other names are never touched.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path

ABANDONED_DAYS = 7
"""Age in days after its last change at which a temporary file of another machine counts as abandoned."""

_OWNER = r"(?P<machine>[0-9a-f]{8})-(?P<pid>[0-9]{1,10})-[0-9a-z_]{8}"
_PART = re.compile(rf".+\.part-{_OWNER}", re.DOTALL)
_FOLDER = re.compile(rf"codecnn-[a-z]+-{_OWNER}")

_SHORTEST = 64
"""Bytes of the name of a temporary file that are always allowed."""

_searched: set[Path] = set()


def part_path(path: Path) -> Path:
    """Return a new name in the folder of a path, for a file or folder that is later renamed to it.

    Args:
        path: The final path.

    Returns:
        A path that does not exist. Its name begins as that of `path`, and is not longer in bytes than that, or
        64 bytes, so that it fits wherever the final name does.
    """
    suffix = f".part-{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    kept = max(len(os.fsencode(path.name)), _SHORTEST) - len(suffix)
    return path.with_name(_cut(path.name, kept) + suffix)


def companion_path(path: Path, suffix: str) -> Path:
    """Return the path of a file beside another one: its name with a suffix, shortened to 255 bytes by a hash."""
    return path.with_name(shortened(path.name, 255 - len(suffix)) + suffix)


def shortened(name: str, length: int) -> str:
    """Shorten a name of a file to a number of bytes; a hash tells apart names with the same beginning."""
    if len(os.fsencode(name)) <= length:
        return name
    return f"{_cut(name, length - 13)}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


def temporary_folder(kind: str, parent: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Create a folder for temporary files that is removed with the returned object.

    Args:
        kind: Purpose, in lower case letters, as part of the name.
        parent: Folder in which it is created; TMPDIR by default.
    """
    parent = parent or Path(tempfile.gettempdir())
    remove_leftovers(parent, once=True)
    prefix = f"codecnn-{kind}-{_machine()}-{os.getpid()}-"
    return tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)


def remove_leftovers(folder: Path, *, once: bool = False) -> None:
    """Remove temporary files and folders of killed processes from a folder.

    Args:
        folder: The folder; its subfolders are not searched.
        once: Do nothing if this process has searched the folder before.
    """
    folder = folder.absolute()
    if once and folder in _searched:
        return
    _searched.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PART.fullmatch(entry.name) or _FOLDER.fullmatch(entry.name)
            if match and _is_abandoned(match, entry.stat(follow_symlinks=False)):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        Path(entry).unlink()


def _is_abandoned(match: "re.Match[str]", status: os.stat_result) -> bool:
    if status.st_uid != os.geteuid() or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return False
    if match["machine"] != _machine():
        return time.time() - status.st_mtime > ABANDONED_DAYS * 24 * 3600
    try:
        os.kill(int(match["pid"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


@functools.cache
def _machine() -> str:
    """Return a hash of what makes a process number unique: the boot of the machine and the space of the numbers."""
    facts = [platform.node()]
    with contextlib.suppress(OSError):
        facts = [Path("/proc/sys/kernel/random/boot_id").read_text("ascii"), str(Path("/proc/self/ns/pid").readlink())]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:8]


def _cut(name: str, length: int) -> str:
    """Cut a name to a number of bytes, at the boundary of a character."""
    while len(os.fsencode(name)) > length:
        name = name[:-1]
    return name
