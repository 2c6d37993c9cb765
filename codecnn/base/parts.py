"""Parts of codecnn that can be taken out: what each adds, found without importing any of them.

The core never imports a part. Where a part can add something, the core asks by name: `extension` for one function,
`command_modules` for the modules that add commands, `tasks` for kinds of training. A part lists what it provides in its
module `part`, as texts "package.module:name" that are imported on first use. The parts of codecnn itself are found as
subpackages; a package of somebody else adds a part with an entry point of the group `codecnn.parts`.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codecnn.base.errors import ToolMissingError

ENTRY_POINTS = "codecnn.parts"
"""Group of entry points with which an installed package adds a part: the name of the part, and its `Part`."""

OWN_PARTS = ("analysis", "viewer", "modes", "signalling")
"""Names of the parts that belong to codecnn; each is the subpackage of this name."""


@dataclass(frozen=True)
class Part:
    """Functions, commands and tasks of a part; places are texts "package.module:name".

    Attributes:
        functions: Places of functions and constants by the name with which the core asks for them.
        commands: Modules that register commands when they are imported, each with the module of `codecnn.cli` whose
            commands it follows in --help.
        tasks: Places of classes of training configurations, by the value of their key `task`.
        weights: Kinds of weights by the task of their card: what they are, and what reads them.
    """

    functions: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@functools.cache
def parts() -> dict[str, Part]:
    """Return the parts that are present, by name."""
    package = Path(__file__).parents[1]
    places = {name: f"codecnn.{name}.part:PART" for name in OWN_PARTS if (package / name / "part.py").is_file()}
    if _named_by_a_package():
        from importlib import metadata

        for point in metadata.entry_points(group=ENTRY_POINTS):
            if point.name not in OWN_PARTS:  # an installation may be older than the folders
                places[point.name] = point.value
    return {name: _load(place) for name, place in places.items()}


def _named_by_a_package() -> bool:
    """Return whether an installed package has entry points of the group.

    importlib.metadata answers this as well, but its import takes longer than that of all commands.
    """
    for folder in map(Path, sys.path):
        if folder.is_file():
            return True  # an archive of packages, which importlib.metadata reads
        for file in folder.glob("*-info/entry_points.txt"):
            with contextlib.suppress(OSError):
                if f"[{ENTRY_POINTS}]".encode() in file.read_bytes():
                    return True
    return False


def find_extension(name: str) -> Any | None:
    """Return a function of a part, or None if the part is absent.

    Args:
        name: "part.function", e.g. "signalling.filter_carried".
    """
    part, _, function = name.partition(".")
    return _load(parts()[part].functions[function]) if part in parts() else None


def extension(name: str) -> Any:
    """Return a function of a part that a request needs.

    Args:
        name: "part.function", e.g. "signalling.filter_carried".

    Raises:
        ToolMissingError: The part is absent.
    """
    function = find_extension(name)
    if function is None:
        raise ToolMissingError(missing_part(name.partition(".")[0]))
    return function


def missing_part(name: str, request: str = "this") -> str:
    """Return the sentence that says which part a request needs."""
    return f"{request} needs codecnn.{name}, a part of codecnn that is not installed: install codecnn with it"


def command_modules(after: str) -> list[str]:
    """Return the modules of all parts that add commands after those of a module of `codecnn.cli`."""
    return [module for part in parts().values() for module, place in part.commands.items() if place == after]


def tasks() -> dict[str, str]:
    """Return the places of the configurations of all kinds of training that parts add, by task."""
    return {task: place for part in parts().values() for task, place in part.tasks.items()}


def task_configuration(task: str) -> Any:
    """Return the class of the configurations of a kind of training that a part adds."""
    return _load(tasks()[task])


def weight_kinds() -> dict[str, tuple[str, str]]:
    """Return the kinds of weights that parts add, by the task of their card: what they are, and what reads them."""
    return {task: kind for part in parts().values() for task, kind in part.weights.items()}


def absent_parts() -> list[str]:
    """Return the names of the parts of codecnn that are not installed."""
    return [name for name in OWN_PARTS if name not in parts()]


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
