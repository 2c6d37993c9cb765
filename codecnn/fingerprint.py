"""A hash of everything that decides what a Python object computes: code, closures, globals, attributes and weights.

Evaluations keep measurements under such a hash, so that a filter that was changed is measured anew. Code is hashed as
compiled, so that comments do not count. What cannot be hashed is an error, never ignored.
"""

import enum
import functools
import hashlib
import sys
import sysconfig
import threading
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from codecnn.errors import ConfigError

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
_CLASS_FACTS = ("__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__")
"""Attributes of a class that do not change what it computes."""


def fingerprint(thing: Any) -> str:
    """Hash an object and all that it refers to.

    Code of installed packages is represented by the version of its package.

    Args:
        thing: A function, method, class, module of torch, callable object, array, tensor, or plain values.

    Returns:
        The sha256 in hexadecimal.

    Raises:
        ConfigError: The object refers to something whose state cannot be read, e.g. an open file or a random generator.
    """
    hasher = _Hasher()
    hasher.add(thing)
    return hasher.digest.hexdigest()


class _Hasher:
    """Walks through an object and feeds all that it meets to a hash; each object once."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # keeps objects alive, so that no two have the same id

    def write(self, *parts: Any) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode()
            self.digest.update(f"{len(data)}:".encode() + data)

    def add(self, thing: Any) -> None:
        kind = type(thing)
        if kind in _PLAIN:
            self.write(kind.__name__, thing)
            return
        if id(thing) in self.seen:
            self.write("seen", self.seen[id(thing)])
            return
        self.seen[id(thing)] = len(self.seen)
        self.kept.append(thing)
        self.write(f"{kind.__module__}.{kind.__qualname__}")
        if isinstance(thing, np.ndarray | np.generic):
            self._add_array(np.asarray(thing))
        elif isinstance(thing, types.ModuleType):
            self._add_module(thing)
        elif isinstance(thing, types.CodeType):
            self._add_code(thing)
        elif isinstance(thing, types.FunctionType):
            self._add_function(thing)
        elif isinstance(thing, types.MethodType):
            self._add_all((thing.__func__, thing.__self__))
        elif isinstance(thing, types.BuiltinFunctionType | np.ufunc | types.MethodDescriptorType):
            self._add_builtin(thing)
        elif isinstance(thing, type):
            self._add_class(thing)
        else:
            self._add_instance(thing)

    def _add_all(self, things: Iterable[Any]) -> None:
        items = list(things)
        self.write(len(items))
        for item in items:
            self.add(item)

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.hasobject:
            self._add_all(array.ravel().tolist())
        self.write(array.dtype.str, array.shape, b"" if array.dtype.hasobject else array.tobytes())

    def _add_module(self, module: types.ModuleType) -> None:
        self.write(module.__name__, _version(module.__name__))
        if not _is_installed(module.__name__):
            self.write(Path(str(module.__file__)).read_bytes() if getattr(module, "__file__", None) else b"")

    def _add_code(self, code: types.CodeType) -> None:
        self.write(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)
        self.write(getattr(code, "co_exceptiontable", b""))
        self._add_all(code.co_consts)

    def _add_function(self, function: types.FunctionType) -> None:
        if _is_installed(function.__module__):
            self.write(function.__module__, function.__qualname__, _version(function.__module__))
            closure = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
            self._add_all(closure)
            return
        self.add(function.__code__)
        self._add_all((function.__defaults__, function.__kwdefaults__, dict(function.__dict__)))
        names = sorted(set(_names(function.__code__)))
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        used = {name: function.__globals__[name] for name in names if name in function.__globals__}
        used |= {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
        for name, value in used.items():
            self.write(name)
            self.add(value)
            self._add_used(value, names, set())

    def _add_used(self, module: Any, names: Sequence[str], visited: set[str]) -> None:
        """Add what a function takes from a module of the user: its attributes of these names, and those of modules."""
        if not isinstance(module, types.ModuleType) or _is_installed(module.__name__) or module.__name__ in visited:
            return
        visited.add(module.__name__)
        for name in names:
            if hasattr(module, name):
                self.write(name)
                self.add(getattr(module, name))
                self._add_used(getattr(module, name), names, visited)

    def _add_builtin(self, thing: Any) -> None:
        owner = getattr(thing, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType | type):
            self.add(owner)
        module = getattr(thing, "__module__", None) or ""
        self.write(module, getattr(thing, "__qualname__", thing.__name__), _version(module))

    def _add_class(self, kind: type) -> None:
        self.write(kind.__module__, kind.__qualname__)
        if _is_installed(kind.__module__):
            self.write(_version(kind.__module__))
            return
        self._add_all(base for base in kind.__mro__[1:] if base is not object)
        for name, value in sorted(vars(kind).items()):
            if name not in _CLASS_FACTS and not isinstance(value, types.GetSetDescriptorType):
                self.write(name)
                self.add(value)

    def _add_instance(self, thing: Any) -> None:
        kind = type(thing)
        if isinstance(thing, list | tuple):
            self._add_all(thing)
        elif isinstance(thing, set | frozenset):
            self.write(sorted(fingerprint(item) for item in thing))
        elif isinstance(thing, Mapping) and not hasattr(thing, "__dict__"):
            self._add_all(value for pair in thing.items() for value in pair)
        elif isinstance(thing, staticmethod | classmethod):
            self.add(thing.__func__)
        elif isinstance(thing, property):
            self._add_all((thing.fget, thing.fset))
        elif isinstance(thing, functools.partial):
            self._add_all((thing.func, thing.args, thing.keywords, dict(thing.__dict__)))
        elif isinstance(thing, PurePath):  # its attributes keep what has been computed of it
            self.write(str(thing))
        elif isinstance(thing, enum.Enum):
            self.write(thing.name)
        elif _is_tensor(thing):
            self._add_tensor(thing)
        elif kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "Size", "memory_format"):
            self.write(str(thing))
        elif isinstance(thing, threading.local) and _is_installed(kind.__module__):
            pass  # memory of codecnn that each thread uses again, whose content does not matter
        elif hasattr(thing, "__wrapped__"):
            self.add(thing.__wrapped__)
        elif hasattr(thing, "__dict__") or hasattr(kind, "__slots__"):
            self._add_attributes(thing)
        else:
            raise ConfigError(f"an object of the class {kind.__module__}.{kind.__qualname__} cannot be hashed")

    def _add_tensor(self, tensor: Any) -> None:
        plain = tensor.detach().cpu().contiguous()
        self.write(str(plain.dtype), tuple(plain.shape))
        if plain.numel():
            self.write(plain.reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes())

    def _add_attributes(self, thing: Any) -> None:
        kind = type(thing)
        # An object of a compiled class may hold state that no attribute shows.
        if not all(_is_python(base) for base in kind.__mro__):
            raise ConfigError(f"an object of the class {kind.__module__}.{kind.__qualname__} cannot be hashed")
        self.add(kind)
        if isinstance(thing, Mapping):
            self._add_all(value for pair in thing.items() for value in pair)
        slots = [name for base in kind.__mro__ for name in _slots(base)]
        values = dict(getattr(thing, "__dict__", {})) | {
            name: getattr(thing, name) for name in slots if hasattr(thing, name)
        }
        self._add_all(part for name in sorted(values, key=str) for part in (name, values[name]))


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if the variable has no value yet
    except ValueError:
        return False
    return True


def _is_tensor(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def _is_python(kind: type) -> bool:
    """Return whether a class is written in Python, or is a plain container of Python."""
    if kind in (object, dict, list, tuple, set, frozenset):
        return True
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    return module not in sys.builtin_module_names and (file is None or str(file).endswith(".py"))


def _names(code: types.CodeType) -> list[str]:
    """Return the names of globals and attributes of a function and of the functions within it."""
    inner = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names(const)]
    return [*code.co_names, *inner]


@functools.cache
def _is_installed(module: str | None) -> bool:
    """Return whether a module belongs to codecnn, to Python or to an installed package."""
    if module is None or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top in ("codecnn", *sys.builtin_module_names, *sys.stdlib_module_names):
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or getattr(sys.modules.get(top), "__file__", None)
    if file is None:
        return False
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return any(Path(file).resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


def _version(module: str) -> str:
    top = module.partition(".")[0]
    return str(getattr(sys.modules.get(top), "__version__", ""))
