"""Compilation of the loops that go over bins."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """`function` compiled by numba for compiled functions to call: a wrapper for Python would take a third longer.

    The environment variable NUMBA_DISABLE_JIT=1 leaves it plain Python, to debug; NUMBA_BOUNDSCHECK=1 checks indices.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, numba.njit(**options)(function))


def compiled_entry(function: Function) -> Function:
    """The same for Python to call: kept on disk, with all that it calls, where numba finds a folder to write to."""
    try:
        fast = numba.njit(cache=True)(function)
    except RuntimeError:
        fast = numba.njit(function)
    return cast(Function, fast)


def source_digest() -> str:
    """A hash of the sources of this package, for what is kept on disk to depend on: numba looks at one file only."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
