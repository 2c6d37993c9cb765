"""Compilation with numba of functions that loop over bins or samples."""

import contextlib
import functools
import hashlib
import logging
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.binding
import numba
from filelock import FileLock, Timeout
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NopythonTypeInference

Function = TypeVar("Function", bound=Callable[..., Any])

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
"""False if the environment variable NUMBA_DISABLE_JIT=1 leaves all functions plain Python."""

_log = logging.getLogger(__name__)


@functools.cache
def processor_features() -> dict[str, bool]:
    """Return the features of the processor that code is compiled for, by LLVM's names.

    There are none on other machines than x86-64, and none if numba's environment variables choose the processor or its
    features (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES, NUMBA_ENABLE_AVX=0).
    """
    config: Any = numba.config
    is_host = config.CPU_NAME is None and config.CPU_FEATURES is None and config.ENABLE_AVX
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return dict(llvmlite.binding.get_host_cpu_features()) if is_x86 and is_host else {}


class _PartLibrary(JITCodeLibrary):
    """Code of a function that only other compiled functions call.

    Numba optimises the code of a function and of all functions that it calls, and translates it to machine code, once
    more for each of its callers. This code is only linked; that happens once, in the function that Python calls.
    """

    class _NoEnvironment:
        """The function has no machine code that could refer to its Python module."""

        def set_env(self, env_name: str, env: Any) -> None:
            """Do nothing."""

    codegen = _NoEnvironment()

    def _optimize_final_module(self) -> None:
        """Leave the code as it is."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return the null pointer."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _PartPass(LoweringPass):
    """Pass that begins the code of a function as a `_PartLibrary`."""

    _name = "codecnn_part"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Set the library that the lowering writes to."""
        library: Any = _PartLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class _PartCompiler(CompilerBase):
    """Compiler of functions that only other compiled functions call."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of numba with `_PartPass`."""
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.add_pass_after(_PartPass, NopythonTypeInference)
        passes.finalize()
        return [passes]


def compiled(function: Function) -> Function:
    """Compile a function that only other compiled functions call.

    It has no wrapper for calls from Python and no machine code of its own. The environment variable
    NUMBA_DISABLE_JIT=1 leaves the function plain Python for debugging; NUMBA_BOUNDSCHECK=1 checks array indices.

    Numba compiles a function once more for every combination of constants that it is called with. This function is
    compiled once for all constants.
    """
    return _part(function, inlined=False)


def compiled_inline(function: Function) -> Function:
    """Compile a function as `compiled` does, but into each of its callers.

    This is for functions that take less time than passing their arguments, such as a NamedTuple of many arrays.
    """
    return _part(function, inlined=True)


def _part(function: Function, inlined: bool) -> Function:
    """Compile a function that only other compiled functions call."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler}
    fast: Any = numba.njit(forceinline=inlined, **options)(function)
    if COMPILED:
        resolve = fast.get_call_template

        def without_constants(args: Any, kws: Any) -> Any:
            unliteral: Any = numba.types.unliteral
            return resolve(tuple(unliteral(arg) for arg in args), {key: unliteral(arg) for key, arg in kws.items()})

        fast.get_call_template = without_constants
    return cast(Function, fast)


def compiled_entry(function: Function) -> Function:
    """Compile a function that Python calls; it releases the global interpreter lock.

    The compiled code is cached on disk together with that of all functions that it calls, if numba finds a folder.
    """
    try:
        fast = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        fast = numba.njit(nogil=True)(function)
    return cast(Function, fast)


_logged: set[str] = set()
"""Subjects of the messages that this process has logged."""


def _log_once(subject: str, message: str) -> None:
    """Log a warning unless this process has logged one on the same subject."""
    if subject not in _logged:
        _logged.add(subject)
        _log.warning("codecnn: %s", message)


class _CompilationListener(event.Listener):
    """Listener that logs a message when numba begins to compile, once in a process.

    If numba finds the compiled code in its cache, there is no event and no message.
    """

    def __init__(self, subject: str, message: str) -> None:
        self.subject, self.message = subject, message

    def on_start(self, event: Any) -> None:
        """Log the message at the first function."""
        _log_once(self.subject, self.message)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


@contextlib.contextmanager
def compiled_once(function: Callable[..., Any], what: str, about: str) -> Iterator[None]:
    """Let only one process compile a function; other processes that call it at the same time wait for the cached code.

    The call of a `compiled_entry` stands within this context. If the code cannot be cached or the cache cannot be
    locked, each process compiles for itself. The process that compiles logs a warning, which by default goes to stderr,
    and names the folder of the cache. A process that waits for more than a second logs that it waits. Functions with
    the same `what` have one message.

    Args:
        function: Function that `compiled_entry` returned.
        what: Name of the code in the messages, e.g. "the VVC decoder".
        about: Usual duration of the compilation in the messages, e.g. "a minute".

    Yields:
        Nothing.
    """
    name = function.__name__
    if not isinstance(function, numba.core.registry.CPUDispatcher) or len(function.overloads):
        yield
        return
    folder = function.stats.cache_path
    where = f"once on this machine, cached in {folder}" if folder else "as numba finds no folder for its cache"
    listener = _CompilationListener(f"compiling {what}", f"compiling {what} for about {about}, {where}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(event.install_listener("numba:compile", listener))
        if folder is not None:
            with contextlib.suppress(OSError, NotImplementedError):
                Path(folder).mkdir(parents=True, exist_ok=True)
                lock = FileLock(Path(folder) / f"{name}.lock")
                try:
                    lock.acquire(timeout=1)
                except Timeout:
                    _log_once(f"waiting for {what}", f"waiting for another process, which compiles {what}")
                    lock.acquire()
                stack.callback(lock.release)
        yield


def _pointer(_context: Any, address: Any) -> Any:
    def inttoptr(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], numba.core.cgutils.voidptr_t)

    return numba.types.voidptr(address), inttoptr


pointer = cast(Callable[[int], Any], numba.extending.intrinsic(_pointer))
"""Conversion, in compiled functions, of an address to the pointer that `numba.carray` takes."""


def source_digest(*folders: Path) -> str:
    """Compute a hash of Python sources, so that cached compiled code depends on all of them.

    Numba itself compares only the file that defines the cached function.

    Args:
        *folders: Folders whose .py files are hashed, also those in subfolders.

    Returns:
        SHA-256 as a hexadecimal string.
    """
    always = [Path(__file__).with_name(name) for name in ("compiled.py", "records.py")]
    digest = hashlib.sha256()
    for path in (*always, *(path for folder in folders for path in sorted(folder.rglob("*.py")))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
