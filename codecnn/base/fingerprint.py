"""Hashes of what decides a result, for the keys of cached results.

Code counts as the sha256 of its source file and of the user's modules that it imports, or of the RECORD of the package
that is installed. Weights count with their bytes, and values as they are: numbers, texts, paths, members of enums, and
lists, tuples, sets, dicts and plain objects of these, in arguments, attributes, defaults, closures, and in the globals
that a function names. Anything else, such as an array in a closure or a function typed into a notebook, needs a key
from the user, or its results are not kept.

What code reads by itself (files, environment variables, the network) is not seen: name its version in a key.

    cache                                  key
    cells of evaluate                      unit with its files; filter_key; decisions, metrics, size of CTUs
    streams coded in the loop              samples, encoder settings, library's file; filter_key; decisions
    units of a store                       original; settings; encoder with its files; versions of readers
    originals of a store                   source's bytes and how they are read; scale, variant, bit depth
    pictures of a teacher                  unit; filter_key of each network
    sums of adapt                          weights with their card; stream, original and how it is read; QP
    tables and planes of partition         stream; versions of readers; columns or planes
    labels and their cache                 pictures and how they are read; settings; table

`codecnn.filtering.filter_key` is the hash of a filter: its weights with the whole card, or `fingerprint`.
"""

import dis
import enum
import functools
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from codecnn.base.errors import ConfigError
from codecnn.base.files import sha256_json
from codecnn.base.user_code import code_hashes, is_installed

_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
_TORCH_TEXTS = ("dtype", "device", "memory_format", "layout")
"""Classes of torch whose text is their value."""


def weights_sha256(tensors: Mapping[str, Any]) -> str:
    """Hash arrays or tensors with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        if not isinstance(tensor, np.ndarray):
            tensor = tensor.detach().cpu().contiguous()
            kind, data = str(tensor.dtype), tensor.reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes()
        else:
            kind, data = tensor.dtype.str, tensor.tobytes()
        digest.update(f"{name}\0{kind}\0{tuple(tensor.shape)}\0".encode() + data)
    return digest.hexdigest()


def fingerprint(thing: Any, key: str | None = None) -> str:
    """Hash what decides the results of a function, an object or a network of torch; see the module for what counts.

    Args:
        thing: The function or object.
        key: Text of the user that stands for all of it; whoever gives one changes it with the results.

    Returns:
        The sha256 in hexadecimal.

    Raises:
        ConfigError: The object needs a key.
    """
    if key is not None:
        return sha256_json(["key", key])
    _module_sha256.cache_clear()
    try:
        return sha256_json(_facts(thing))
    except RecursionError:
        raise ConfigError(f"{_described(thing)} contains itself or is nested too deeply") from None


def _facts(thing: Any) -> Any:
    """Return an object as a JSON value that is equal for equal objects only."""
    kind = type(thing)
    if kind in _SCALARS:
        return [kind.__name__, repr(thing)]
    if isinstance(thing, np.generic) and not thing.dtype.hasobject:
        return [thing.dtype.str, thing.tobytes().hex()]
    if isinstance(thing, enum.Enum):
        return ["enum", _code(kind), thing.name, _facts(thing.value)]
    if isinstance(thing, PurePath):
        return ["path", str(thing)]
    if isinstance(thing, type):
        return ["class", _code(thing)]
    if isinstance(thing, types.ModuleType):
        return ["module", _module_sha256(thing.__name__)]
    if (name := _installed_name(thing)) is not None:
        return ["installed", name, _module_sha256(thing.__module__)]
    if isinstance(thing, types.FunctionType):
        return _function_facts(thing)
    if isinstance(thing, types.MethodType):
        return ["method", _facts(thing.__func__), _facts(thing.__self__)]
    if isinstance(thing, functools.partial):
        return ["partial", *map(_facts, (thing.func, thing.args, thing.keywords))]
    if isinstance(thing, np.dtype) or (kind.__module__ == "torch" and kind.__name__ in _TORCH_TEXTS):
        return [kind.__name__, str(thing)]
    if "torch" in sys.modules and isinstance(thing, sys.modules["torch"].nn.Module):
        return _network_facts(thing)
    return _value_facts(thing)


def _value_facts(thing: Any) -> Any:
    """Return a container or an object with attributes; a subclass counts with its class and attributes."""
    kind = type(thing)
    content: Any
    if isinstance(thing, list | tuple):
        content = [_facts(item) for item in thing]
    elif isinstance(thing, set | frozenset):
        content = sorted((_facts(item) for item in thing), key=json.dumps)
    elif isinstance(thing, dict):
        content = [[_facts(name), _facts(value)] for name, value in thing.items()]
    else:
        content = None
    if kind in (list, tuple, set, frozenset, dict):
        return [kind.__name__, content]
    # A compiled class may have state that no attribute shows.
    if not all(base in (object, list, tuple, set, frozenset, dict) or _is_python(base) for base in kind.__mro__):
        raise ConfigError(f"{_described(thing)} has a state that cannot be read")
    names = [*getattr(thing, "__dict__", {}), *(name for base in kind.__mro__ for name in _slots(base))]
    values = {name: getattr(thing, name) for name in sorted(names) if hasattr(thing, name)}
    return ["object", _code(kind), content, {name: _facts(value) for name, value in values.items()}]


def _function_facts(function: types.FunctionType) -> Any:
    """Return the source of a function with the values that the source does not show."""
    code = function.__code__
    module = function.__globals__.get("__name__", "")
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    values = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
    facts = ["function", _module_sha256(module), code.co_qualname, list(map(str, code.co_positions()))]
    if not _is_of_file(code):
        raise ConfigError(f"{_described(function)} is not in its file as it is in memory")
    used = _global_names(code) & function.__globals__.keys()
    # Functions, classes and modules among the globals are part of the source.
    values |= {name: value for name in used if not _is_code(value := function.__globals__[name])}
    attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
    references = [values.pop(name) for name in [*values] if values[name] is function]  # to itself
    more = (function.__defaults__, function.__kwdefaults__, attributes)
    return [*facts, len(references), {name: _facts(values[name]) for name in sorted(values)}, *map(_facts, more)]


def _network_facts(network: Any) -> Any:
    """Return the classes, tensors and attributes of a network of torch."""
    plain = vars(sys.modules["torch"].nn.Module())
    parts = []
    for name, module in network.named_modules():
        attributes = {}
        for key, value in vars(module).items():
            if key not in plain:
                attributes[key] = _facts(value)
            elif key.endswith("_hooks") and value:
                raise ConfigError(f"{_described(module)} has hooks")
        parts.append([name, _code(type(module)), attributes])
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return ["network", parts, weights_sha256(tensors)]


def _installed_name(thing: Any) -> str | None:
    """Return the full name of a function, also a compiled one, of Python, codecnn or an installed package."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if not callable(thing) or not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return None
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return f"{module}.{name}" if target is thing else None


def _code(kind: type) -> Any:
    """Return a class by its name and the code of its bases outside of Python."""
    modules = sorted({base.__module__ for base in kind.__mro__})
    return [f"{kind.__module__}.{kind.__qualname__}", *map(_module_sha256, modules)]


@functools.cache
def _module_sha256(module: str) -> str:
    """Hash the code of a module once for each fingerprint."""
    return sha256_json(code_hashes(module))


def _is_of_file(code: types.CodeType) -> bool:
    """Return whether the file of a function contains its code, which is not so after the file was changed."""

    def contains(outer: types.CodeType) -> bool:
        inner = (const for const in outer.co_consts if isinstance(const, types.CodeType))
        return outer == code or any(contains(each) for each in inner)

    try:
        return contains(compile(Path(code.co_filename).read_bytes(), code.co_filename, "exec", dont_inherit=True))
    except (OSError, SyntaxError, ValueError):
        return False


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names of globals that a function and the functions within it read."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_global_names(const) for const in code.co_consts if isinstance(const, types.CodeType)))


def _is_code(thing: Any) -> bool:
    kinds = (type, types.ModuleType, types.FunctionType)
    return isinstance(thing, kinds) or type(thing).__module__ == "typing" or _installed_name(thing) is not None


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if the variable has no value yet
    except ValueError:
        return False
    return True


def _is_python(kind: type) -> bool:
    """Return whether a class is written in Python, in a file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return "__module__" in vars(kind) and str(file).endswith(".py")


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return [name for name in ([slots] if isinstance(slots, str) else slots) if not name.startswith("__")]


def _described(thing: Any) -> str:
    if isinstance(thing, types.FunctionType):
        return f"the function {thing.__qualname__}"
    return f"an object of the class {type(thing).__module__}.{type(thing).__qualname__}"
