"""Process-wide state of a training run, set on entry and restored on exit: torch settings, allocator, signal handlers.

`Runtime` is the record of how a run computes. `applied` sets the part of it that torch and the C library keep for the
whole process; what ran before `codecnn.train` and what runs after it is not affected.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Literal

import torch

from codecnn.training.settings import LoopSettings

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt in glibc (malloc.h)."""
_TRIMMING_OFF = 2**31 - 1
"""Trim threshold that keeps all freed memory in the process."""
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
"""Size in bytes of the largest block that glibc can take from the heap."""
_LARGEST_ADJUSTED_TRIM_THRESHOLD = 2 * _LARGEST_MMAP_THRESHOLD
"""Trim threshold that glibc reaches by its own adjustment: twice the mmap threshold (mallopt(3))."""


@dataclass(frozen=True)
class Runtime:
    """Record of how a training run computes.

    Attributes:
        device: Device of the network, e.g. "cpu" or "cuda:0".
        precision: Precision of the convolutions; "auto" until the loop has chosen one.
        compile: Whether torch.compile is used; "auto" until the loop has chosen.
        channels_last: Whether network and batches have the memory format channels-last.
        threads: CPU threads of torch.
        tf32: Whether CUDA may multiply float32 with the 10-bit mantissa of TF32. Off, so that float32 means float32.
        cudnn_benchmark: Whether cuDNN times its algorithms for each new shape.
        keep_freed_memory: Whether the C library keeps freed memory for the next step.
    """

    device: str
    precision: str
    compile: bool | Literal["auto"]
    channels_last: bool
    threads: int
    tf32: bool
    cudnn_benchmark: bool
    keep_freed_memory: bool

    @classmethod
    def of(cls, settings: LoopSettings, device: torch.device) -> "Runtime":
        """Return the runtime that the settings ask for on a device."""
        return cls(
            device=str(device),
            precision=settings.precision,
            compile=settings.compile,
            channels_last=True,
            threads=torch.get_num_threads() if settings.threads is None else settings.threads,
            tf32=False,
            # All patches have one size, so the timing at the first step pays off at all others.
            cudnn_benchmark=device.type == "cuda",
            keep_freed_memory=device.type == "cpu",
        )


@contextlib.contextmanager
def applied(runtime: Runtime) -> Iterator[None]:
    """Set the process-wide part of a runtime, and restore the previous state on exit, also after an exception."""
    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    with contextlib.ExitStack() as stack:
        stack.enter_context(allow_tf32(runtime.tf32))
        if runtime.keep_freed_memory:
            stack.enter_context(keep_freed_memory())
        stack.callback(torch.set_num_threads, threads)
        stack.callback(setattr, torch.backends.cudnn, "benchmark", benchmark)
        torch.set_num_threads(runtime.threads)
        torch.backends.cudnn.benchmark = runtime.cudnn_benchmark
        yield


@contextlib.contextmanager
def allow_tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in convolutions and matrix products on CUDA within the context."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextlib.contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Let the process keep freed memory for the next step within the context; no effect without glibc.

    By default glibc returns the memory of large tensors to the system, which clears every page before it hands it out
    again. glibc cannot report its thresholds, so on exit they become those of the environment variables
    MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ or, without them, the values at which glibc's own adjustment ends
    once large tensors have been freed. Memory that was kept is then returned to the system.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    libc.mallopt(_M_TRIM_THRESHOLD, _TRIMMING_OFF)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_THRESHOLD, _threshold("MALLOC_MMAP_THRESHOLD_", _LARGEST_MMAP_THRESHOLD))
        libc.mallopt(_M_TRIM_THRESHOLD, _threshold("MALLOC_TRIM_THRESHOLD_", _LARGEST_ADJUSTED_TRIM_THRESHOLD))
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            if libc.mallopt and libc.malloc_trim:
                return libc
    return None


def _threshold(variable: str, default: int) -> int:
    """Return the value of an environment variable of glibc, or the default if it is missing or not a number."""
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ[variable])
    return default


class StopNow(BaseException):
    """Raised by a signal within `StopSignals.at_once`; not an Exception, so that no handler on the way catches it."""


class StopSignals:
    """Context in which SIGTERM and SIGINT are recorded in `caught` instead of ending the process.

    The loop stops at the next step, when its state is complete. Python allows signal handlers only in the main thread;
    in other threads this context has no effect.

    Attributes:
        caught: Number of the first signal that was received, or 0.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, *, second_interrupts: bool) -> None:
        """Create the context; with `second_interrupts` a second SIGINT raises KeyboardInterrupt at once."""
        self.caught = 0
        self._second_interrupts, self._at_once = second_interrupts, False
        self._handlers_before: dict[signal.Signals, object] = {}
        self._process = os.getpid()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._handlers_before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a process that was forked within the context
            return
        if self.caught and self._second_interrupts and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or number
        if self._at_once:
            self._at_once = False
            raise StopNow

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise StopNow within the context, for work that is discarded rather than completed."""
        self._at_once = True
        try:
            if self.caught:
                raise StopNow
            yield
        finally:
            self._at_once = False
