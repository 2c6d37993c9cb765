"""Compilation of the loops that go over bins."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """`function` compiled by numba at its first call, and kept on disk for the next process where a folder allows it.

    The environment variable NUMBA_DISABLE_JIT=1 leaves it plain Python, to debug; NUMBA_BOUNDSCHECK=1 checks indices.
    """
    try:
        fast = numba.njit(cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        fast = numba.njit(function)
    return cast(Function, fast)
