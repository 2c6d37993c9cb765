"""Checks that no output of a command replaces one of its inputs, another of its outputs, or a file of the user."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from codecnn.base.errors import ConfigError, OutputError

RESULTS_MARK = ".codecnn-results"
"""File that marks a folder as one of results, whose files later results may replace."""

_Name = Path | str | None


def check_outputs(outputs: Iterable[_Name], inputs: Iterable[_Name] = ()) -> None:
    """Check that outputs can be written, that none is an input, and that no two outputs are the same file.

    Two paths are the same file if they lead to it through symbolic links or are hard links to it. An input that is a
    folder stands for everything in it, and so does an output that is a folder. Call this before any work.

    Args:
        outputs: Files and folders that will be written; None and "-" (standard output) are skipped.
        inputs: Files and folders that will be read; None, "-", missing files, devices and pipes are skipped.

    Raises:
        ConfigError: An output is an input or another output, lies in a folder of inputs, or is a folder with an input.
        OutputError: The folder of an output is write-protected.
    """
    written: dict[object, Path] = {}
    around: dict[object, Path] = {}
    holds_folder = False
    for path in _paths(outputs):
        _check_writable(path)
        identities = _identities(path)
        for identity in identities:
            if identity in written:
                raise ConfigError(f"two outputs are the same file, {_both(written[identity], path)}: name another")
        written |= dict.fromkeys(identities, path)
        around |= dict.fromkeys(_folders(path), path)
        holds_folder = holds_folder or path.is_dir()
    for path in _paths(inputs):
        if not path.exists():
            continue
        identities = _identities(path)
        for identity in identities:
            if identity in written:
                raise ConfigError(
                    f"input and output are the same file, {_both(path, written[identity])}: name another output"
                )
        if identities[0] in around and path.is_dir():
            raise ConfigError(
                f"output {around[identities[0]]} lies in the input folder {path}, of which nothing may be replaced: "
                "name another output"
            )
        for folder in _folders(path) if holds_folder else ():
            if folder in written:
                raise ConfigError(
                    f"input {path} lies in the output folder {written[folder]}: name another output, or move the input"
                )


def claim_results(folder: Path, names: Iterable[str]) -> None:
    """Mark a folder as one of results, unless it holds files of others that results would replace.

    Call this before any work.

    Args:
        folder: Folder that the results are written into; a missing one is created.
        names: Names of the files and folders that will be written.

    Raises:
        ConfigError: The folder is not marked and holds a file or folder with one of the names.
    """
    mark = folder / RESULTS_MARK
    if mark.exists():
        return
    if taken := next((folder / name for name in names if os.path.lexists(folder / name)), None):
        raise ConfigError(
            f"{taken} would be replaced, and {folder} is not a folder of results: name another folder with -o, or move "
            f"{taken.name} away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _check_writable(path: Path) -> None:
    """Raise OutputError if the folder in which an output is created is write-protected."""
    target = Path(os.path.realpath(path))
    around = target if target.is_dir() else next((folder for folder in target.parents if folder.exists()), target)
    if around.is_dir() and not os.access(around, os.W_OK | os.X_OK):
        raise OutputError(f"{path} cannot be written, because {around} is write-protected: name another output")


def _paths(names: Iterable[_Name]) -> list[Path]:
    """Return the paths of files and folders, with devices and pipes left out."""
    paths = [Path(name) for name in names if name is not None and str(name) != "-"]
    return [path for path in paths if not path.exists() or path.is_file() or path.is_dir()]


def _identities(path: Path) -> list[object]:
    """Return the resolved path, and device and inode if the file exists."""
    identities: list[object] = [os.path.realpath(path)]
    try:
        status = path.stat()
    except (OSError, ValueError):
        return identities
    # Some network file systems have no inode numbers.
    if status.st_ino and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        identities.append((status.st_dev, status.st_ino))
    return identities


def _folders(path: Path) -> list[str]:
    """Return the resolved folders around a path."""
    return [str(folder) for folder in Path(os.path.realpath(path)).parents]


def _both(first: Path, second: Path) -> str:
    return str(first) if first == second else f"{first} and {second}"
