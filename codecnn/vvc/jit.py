"""Compilation of the loops that go over bins."""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from filelock import FileLock
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
"""False where the environment variable NUMBA_DISABLE_JIT=1 leaves all functions plain Python."""


_log = logging.getLogger(__name__)


def compiled(function: Function) -> Function:
    """`function` compiled by numba for compiled functions to call: a wrapper for Python would take a third longer.

    The environment variable NUMBA_DISABLE_JIT=1 leaves it plain Python, to debug; NUMBA_BOUNDSCHECK=1 checks indices.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, numba.njit(**options)(function))


def compiled_entry(function: Function) -> Function:
    """`function` compiled for Python to call, and kept on disk with all that it calls where numba finds a folder.

    It lets other threads run meanwhile.
    """
    try:
        fast = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        fast = numba.njit(nogil=True)(function)
    return cast(Function, fast)


class _Announcement(event.Listener):
    """Says when numba begins to compile, which it does not where it finds on disk what it needs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.since: float | None = None

    def on_start(self, event: Any) -> None:
        """Say it at the first function: all that it calls are compiled within."""
        if self.since is None:
            self.since = time.perf_counter()
            _log.warning("codecnn: %s", self.text)

    def on_end(self, event: Any) -> None:
        """Functions end within each other; the first of them when the call does."""


@contextlib.contextmanager
def compiled_once(function: Callable[..., Any], what: str, about: str) -> Iterator[None]:
    """Around a call of a `compiled_entry`: of many processes that come to it first, one compiles and the others wait.

    Those then read what the first has left on disk. Where nothing can be kept or locked, each compiles for itself.
    Who compiles logs a warning, which by default goes to stderr: `what` it is, `about` how long it takes, and how long
    it took.
    """
    name = function.__name__
    if not isinstance(function, numba.core.registry.CPUDispatcher) or function.signatures:
        yield
        return
    folder = function.stats.cache_path
    said = _Announcement(f"compiling {what}, once on this machine: about {about}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(event.install_listener("numba:compile", said))
        if folder is not None:
            with contextlib.suppress(OSError, NotImplementedError):
                Path(folder).mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(Path(folder) / f"{name}.lock"))
        yield
    if said.since is not None:
        kept = f"kept in {folder}" if folder else "which every process does: numba finds no folder to keep it in"
        _log.warning("codecnn: compiled in %.0f s, %s", time.perf_counter() - said.since, kept)


def _pointer(_context: Any, address: Any) -> Any:
    def inttoptr(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], numba.core.cgutils.voidptr_t)

    return numba.types.voidptr(address), inttoptr


pointer = cast(Callable[[int], Any], numba.extending.intrinsic(_pointer))
"""In compiled functions, an address as the pointer that `numba.carray` takes."""


def source_digest(*folders: Path) -> str:
    """A hash of the sources of this package and of those in `folders`, for what is kept on disk to depend on.

    Numba looks at one file only.
    """
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, *folders):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
