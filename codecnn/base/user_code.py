"""Networks and losses from code outside of codecnn, named "package.module:Name".

Importing a module runs its code. codecnn imports a module only if the user has named it: in a configuration, in a call,
on the command line, or with `permit`. The name on the card of a weights file does not count, since weights may come
from anyone.
"""

import ast
import contextlib
import filecmp
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from codecnn.base.errors import ConfigError
from codecnn.base.files import sha256_file, sha256_json

ENTRY_POINTS = "codecnn.models"
"""Group of entry points with which an installed package adds networks by name."""

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_OWN_PACKAGES = ("codecnn", "torch")
"""Packages whose code is not hashed: their versions are part of the provenance of weights and results."""

_permitted: set[str] = set()
_configuration_folder: Path | None = None
"""Folder of the last configuration that was read."""


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


def search_folder(folder: Path | None) -> None:
    """Let `import_reference` search the folder of a configuration; None is a configuration without a file."""
    global _configuration_folder
    _configuration_folder = None if folder is None else folder.resolve()


def import_reference(reference: str) -> Any:
    """Import the class or function of a name that the user has given, and permit it for weights that name it too.

    The folder of the configuration and the current folder are searched after the installed packages.

    Args:
        reference: Name of the form "package.module:Name".

    Returns:
        The class or function.

    Raises:
        ConfigError: The module does not exist, is another one than that beside the configuration, fails while it is
            imported, or has no such name.
    """
    permit(reference)
    module_name, _, name = reference.partition(":")
    folders = [Path.cwd()] if _configuration_folder in (None, Path.cwd()) else [_configuration_folder, Path.cwd()]
    for folder in folders:
        if str(folder) not in sys.path and not (folder == Path.cwd() and "" in sys.path):
            sys.path.append(str(folder))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            searched = " and ".join(map(str, folders))
            raise ConfigError(
                f"{reference}: no module {error.name!r} in {searched}, nor among the installed packages"
            ) from error
        raise ConfigError(f"{reference} cannot be imported: {error}") from error
    except Exception as error:  # code of the user can raise anything
        reason = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"{reference} cannot be imported: {type(error).__name__}: {reason}") from error
    _check_beside_configuration(reference, module)
    if not callable(item := getattr(module, name, None)):
        problem = "is not a class or function" if hasattr(module, name) else "does not exist"
        raise ConfigError(f"{reference}: {name} {problem} in {getattr(module, '__file__', module_name)}")
    return item


def _check_beside_configuration(reference: str, module: ModuleType) -> None:
    """Raise ConfigError if a module with other content than the one beside the configuration was imported."""
    if _configuration_folder is None or (imported := getattr(module, "__file__", None)) is None:
        return
    place = _configuration_folder.joinpath(*module.__name__.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file() and not filecmp.cmp(file, imported, shallow=False):
            raise ConfigError(
                f"{reference} names {file}, which is beside the configuration, but Python has imported {imported}: "
                "give one of the modules another name, or start Python anew"
            )


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


def code_hashes(module: str) -> dict[str, str]:
    """Hash the code of a module: its source file, those of the user's modules that it imports, and installed packages.

    Import statements are followed wherever they stand, also within functions. Python and codecnn do not count.

    Args:
        module: Name of the module, e.g. "my_filters" or "__main__".

    Returns:
        sha256 by name: of a source file, or of the RECORD of an installed distribution, which lists its files with
        their hashes. Modules that do not exist here are left out.

    Raises:
        ConfigError: The module itself is in no file, as in an interactive session.
    """
    hashes: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in hashes:
            continue
        if is_installed(name):
            hashes |= {} if (record := _record_sha256(top)) is None else {top: record}
            continue
        file, package = _file_of_module(name)
        if file is None and name == module:
            raise ConfigError(f"the code of {name} is in no file: write it into a module")
        if file is None:  # an optional module that is missing, or a name that an import takes from a module
            continue
        hashes[name] = sha256_file(file)
        waiting += _imports(file, package)
    return dict(sorted(hashes.items()))


def is_installed(module: str) -> bool:
    """Return whether a module belongs to codecnn, to Python, or to a distribution that is installed."""
    top = module.partition(".")[0]
    return (top in ("codecnn", *sys.stdlib_module_names) and module != "__main__") or _record_sha256(top) is not None


def _file_of_module(name: str) -> tuple[Path | None, str]:
    """Return the file of a module, None if it has none, and the package from which it imports relatively."""
    module = sys.modules.get(name)
    if module is not None:
        file, package = getattr(module, "__file__", None), getattr(module, "__package__", None)
    else:
        file, package = None, None
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            if (spec := importlib.util.find_spec(name)) is not None and spec.has_location:
                file, package = spec.origin, spec.parent
    return (Path(file) if file is not None and Path(file).is_file() else None), package or ""


def _imports(file: Path, package: str) -> Iterator[str]:
    """List the names of modules in the import statements of a source file; some are names within modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # compiled code
        return
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


@functools.cache
def _record_sha256(top: str) -> str | None:
    """Hash the RECORD of the distribution that has installed a top-level module; None for other modules."""
    module = sys.modules.get(top)
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(top) if module is None else getattr(module, "__spec__", None)
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
        folders = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
        paths = [Path(place).resolve() for place in places if place is not None]
        # An installation in editable form has a distribution too, but its files lie elsewhere.
        if any(path.is_relative_to(folder) for path in paths for folder in folders):
            records = [metadata.distribution(name).read_text("RECORD") for name in _distributions().get(top, ())]
            if any(records):
                return hashlib.sha256("".join(record or "" for record in sorted(records, key=str)).encode()).hexdigest()
    return None


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())
