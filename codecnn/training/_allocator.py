"""Memory between the steps of a training run."""

import contextlib
import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
_LARGEST_THRESHOLD = 32 * 2**20
"""Bytes of the largest tensor that comes from the heap; glibc takes no higher threshold."""


def keep_freed_memory() -> None:
    """Let the process keep the memory that a step frees, for the next one to take. Nothing where glibc is not.

    By default glibc gives tensors of more than some hundred kB back to the system, which clears every page that it
    hands out again: for the demo's network 4,500 page faults a step, and 8 to 12 of 84 ms on one thread.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
            libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
