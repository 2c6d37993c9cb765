"""Networks and losses from code outside of codecnn, named "package.module:Name".

Importing a module runs its code. codecnn imports a module only if the user has named it: in a configuration, in a call,
on the command line, or with `permit`. The name on the card of a weights file does not count, since weights may come
from anyone.
"""

import importlib
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from codecnn.errors import ConfigError
from codecnn.runs import sha256_file, sha256_json

ENTRY_POINTS = "codecnn.models"
"""Group of entry points with which an installed package adds networks by name."""

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_OWN_PACKAGES = ("codecnn", "torch")
"""Packages whose code is not hashed: their versions are part of the provenance of weights and results."""

_permitted: set[str] = set()


def is_reference(name: str) -> bool:
    """Return whether a text has the form "package.module:Name"."""
    return _REFERENCE.fullmatch(name) is not None


def permit(*references: str) -> None:
    """Permit this process to import code that the card of a weights file names.

    Args:
        *references: Names of the form "package.module:Name".

    Raises:
        ConfigError: A name has another form.
    """
    for reference in references:
        if not is_reference(reference):
            raise ConfigError(f"{reference!r} does not name code: write package.module:Name, e.g. my_networks:Net")
        _permitted.add(reference)


def is_permitted(reference: str) -> bool:
    """Return whether the user has named this code, in a configuration, in a call or with `permit`."""
    return reference in _permitted


def import_reference(reference: str) -> Any:
    """Import the class or function of a name that the user has given, and permit it for weights that name it too.

    The current folder is searched after the installed packages.

    Args:
        reference: Name of the form "package.module:Name".

    Returns:
        The class or function.

    Raises:
        ConfigError: The module does not exist, fails while it is imported, or has no such name.
    """
    permit(reference)
    module_name, _, name = reference.partition(":")
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{reference}: no module {error.name!r} in the folder {Path.cwd()} or among the installed packages"
            ) from error
        raise ConfigError(f"{reference} cannot be imported: {error}") from error
    except Exception as error:  # code of the user can raise anything
        reason = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"{reference} cannot be imported: {type(error).__name__}: {reason}") from error
    if not callable(item := getattr(module, name, None)):
        problem = "is not a class or function" if hasattr(module, name) else "does not exist"
        raise ConfigError(f"{reference}: {name} {problem} in {getattr(module, '__file__', module_name)}")
    return item


def entry_points() -> dict[str, metadata.EntryPoint]:
    """Return the networks that installed packages add, by name; nothing is imported."""
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS) if "." not in point.name}


def source_hashes(objects: Iterable[Any]) -> dict[str, str]:
    """Hash the source files of classes and functions from outside of codecnn, torch and Python.

    Args:
        objects: Classes and functions; the base classes of a class count too.

    Returns:
        sha256 of each file by name of the module; empty if there is no such code.

    Raises:
        ConfigError: Code has no file, as in an interactive session.
    """
    modules = {kind.__module__ for thing in objects for kind in getattr(thing, "__mro__", (thing,))}
    hashes = {}
    for name in sorted(modules):
        if name.partition(".")[0] in (*_OWN_PACKAGES, *sys.stdlib_module_names) and name != "__main__":
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not Path(file).is_file():
            raise ConfigError(f"the code of {name} is in no file: write it into a module")
        hashes[name] = sha256_file(Path(file))
    return hashes


def source_sha256(objects: Iterable[Any]) -> str | None:
    """Hash the source files of `source_hashes` together; None if all code is from codecnn, torch or Python.

    Raises:
        ConfigError: Code has no file.
    """
    hashes = source_hashes(objects)
    return sha256_json(hashes) if hashes else None
