"""Record of how networks are computed, set on entry of a computation and restored on exit.

`Runtime` is the record. Logs of training, cards, results of evaluations and keys of cached measurements hold it.
`applied` sets the part of it that PyTorch and the C library keep for the whole process; what runs before and after is
not affected.

float32 means float32: by default PyTorch lets cuDNN multiply float32 with the 10-bit mantissa of TF32, and programs can
allow the same for matrix products, or bfloat16 for oneDNN on CPUs. Within `applied` none of this happens unless the
record says `tf32`.
"""

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

Compile = bool | Literal["auto", "reduce-overhead"]
"""Use of torch.compile: "auto" until it is chosen, "reduce-overhead" with CUDA graphs."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt in glibc (malloc.h)."""
_TRIMMING_OFF = 2**31 - 1
"""Trim threshold that keeps all freed memory in the process."""
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
"""Size in bytes of the largest block that glibc can take from the heap."""
_LARGEST_ADJUSTED_TRIM_THRESHOLD = 2 * _LARGEST_MMAP_THRESHOLD
"""Trim threshold that glibc reaches by its own adjustment: twice the mmap threshold (mallopt(3))."""
_CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable without which matrix products of cuBLAS may differ between runs (NVIDIA, cuBLAS, "Results
reproducibility")."""


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which a user sets the number of CPU threads of PyTorch."""
MOST_DEFAULT_THREADS = 8
"""Largest number of CPU threads of a training that names none."""

_PROBE_SECONDS = 0.1
"""Time for which each number of threads is timed by `fastest_threads`."""
_PROBE_GAIN = 1.2
"""Factor by which fewer threads have to be faster than all of them."""


@dataclass(frozen=True)
class Runtime:
    """Record of how a network is computed.

    Attributes:
        device: Device of the network with its number, e.g. "cpu" or "cuda:1".
        precision: Precision of the convolutions, "float32", "bfloat16" or "integer", which is exact on all devices;
            "auto" until training has chosen one.
        tf32: Whether a GPU may multiply float32 with the 10-bit mantissa of TF32.
        compile: Whether torch.compile is used.
        channels_last: Whether network and batches have the memory format channels-last.
        threads: CPU threads of PyTorch.
        deterministic: Whether only algorithms are used that give the same bits each time.
        cudnn_benchmark: Whether cuDNN times its algorithms for each new shape.
        keep_freed_memory: Whether the C library keeps freed memory for the next step.
    """

    device: str
    precision: str = "float32"
    tf32: bool = False
    compile: Compile = False
    channels_last: bool = True
    threads: int = 1
    deterministic: bool = False
    cudnn_benchmark: bool = False
    keep_freed_memory: bool = False

    @classmethod
    def of_filter(cls, device: torch.device, precision: str = "float32") -> "Runtime":
        """Return the record of a filter that computes whole pictures on a device.

        cuDNN does not time its algorithms, since each size of picture would be timed anew.

        Args:
            device: Device of the filter.
            precision: "float32", "bfloat16", "integer", or "tf32" for float32 with products in TF32.
        """
        return cls(
            device=str(device),
            precision="float32" if precision == "tf32" else precision,
            tf32=precision == "tf32",
            threads=torch.get_num_threads(),
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return asdict(self)

    def cache_key(self) -> dict[str, Any]:
        """Return what belongs into the key of cached samples besides the class of a filter, which states its precision.

        Device and threads change the order of float32 sums only. A machine without a GPU can therefore report what a
        GPU has measured; the whole record is in the content of a cache.
        """
        return {"tf32": True} if self.tf32 else {}


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or the number of threads of the CPU, e.g. "cpu, 2 threads"."""
    if device.type == "cpu":
        return f"cpu, {torch.get_num_threads()} threads"
    return str(torch.get_device_module(device).get_device_name(device))


def default_threads() -> int:
    """Return the number of CPU threads of a training that names none.

    It is that of PyTorch, one for each physical core that the process may use, but at most 8; the number of an
    environment variable of `THREAD_VARIABLES` is taken as it is. It does not depend on the load of the machine, because
    the sums of float32, and with them the trained weights, depend on it in their last bits.
    """
    threads = torch.get_num_threads()
    return threads if any(os.environ.get(name) for name in THREAD_VARIABLES) else min(threads, MOST_DEFAULT_THREADS)


def fastest_threads(threads: int, speed: Callable[[int], float] | None = None) -> int:
    """Choose how many CPU threads compute fastest, given the load of other processes.

    The threads of a convolution wait for each other without sleeping. If other processes use the cores, each layer
    waits for the thread whose core is taken, and fewer threads are faster, often by a factor of ten.

    Args:
        threads: Number of threads that PyTorch would use.
        speed: Function that returns the speed with a number of threads; by default a small convolution is timed.

    Returns:
        `threads`, or the half, a quarter and so on, down to 1, that is fastest and `_PROBE_GAIN` times faster.
    """
    measure = speed or _convolutions_per_second
    counts = [max(1, threads >> halvings) for halvings in range(threads.bit_length())]
    speeds = {count: measure(count) for count in counts}
    best = max(speeds, key=lambda count: speeds[count])
    return best if speeds[best] > _PROBE_GAIN * speeds[threads] else threads


def _convolutions_per_second(threads: int) -> float:
    """Time convolutions of about a millisecond each, and restore the number of threads."""
    before = torch.get_num_threads()
    samples, weights = torch.zeros(1, 16, 96, 96), torch.zeros(16, 16, 3, 3)
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            torch.conv2d(samples, weights, padding=1)  # starts the threads
            done, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < _PROBE_SECONDS:
                torch.conv2d(samples, weights, padding=1)
                done += 1
    finally:
        torch.set_num_threads(before)
    return done / elapsed


@contextlib.contextmanager
def applied(runtime: Runtime) -> Iterator[None]:
    """Set the process-wide part of a runtime, and restore the previous state on exit, also after an exception."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(current_device(torch.device(runtime.device)))
        stack.enter_context(float32_products(tf32=runtime.tf32))
        stack.enter_context(_cudnn(runtime))
        if runtime.deterministic:
            stack.enter_context(_deterministic_algorithms())
        if runtime.keep_freed_memory:
            stack.enter_context(keep_freed_memory())
        if (threads := torch.get_num_threads()) != runtime.threads:
            stack.callback(torch.set_num_threads, threads)
            torch.set_num_threads(runtime.threads)
        yield


@contextlib.contextmanager
def current_device(device: torch.device) -> Iterator[None]:
    """Make a GPU the current device of the process within the context; no effect for the CPU.

    Functions without an argument for the device, such as seeds, events and compiled kernels, use the current device.
    """
    if device.type in ("cpu", "meta"):
        yield
        return
    module = torch.get_device_module(device)
    before = module.current_device()
    index = before if device.index is None else device.index
    module.set_device(index)
    try:
        yield
    finally:
        module.set_device(before)


def seed(number: int, device: torch.device) -> None:
    """Seed the random numbers of the CPU and of a device."""
    # Without CUDA torch.manual_seed gives the same numbers but records a stack trace each time.
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        with current_device(device):
            torch.get_device_module(device).manual_seed(number)


@contextlib.contextmanager
def float32_products(*, tf32: bool = False) -> Iterator[None]:
    """Let products of float32 use all bits within the context, or TF32 on a GPU; also after the user allowed less.

    Args:
        tf32: Whether convolutions and matrix products on a GPU may use TF32.
    """
    backends: Any = torch.backends
    on_gpu = (backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul)
    on_cpu = (backends.mkldnn.conv, backends.mkldnn.rnn, backends.mkldnn.matmul)
    parents = {backends.cuda.matmul: backends}
    parents |= dict.fromkeys(on_gpu[:2], backends.cudnn) | dict.fromkeys(on_cpu, backends.mkldnn)
    # PyTorch has an old and a new interface to these flags. Both are set, because the old one refuses to be read when
    # the new one was set to something else; its flags then have their defaults.
    allow_tf32, matmul_precision = True, "highest"
    with contextlib.suppress(RuntimeError):
        allow_tf32 = backends.cudnn.allow_tf32
    with contextlib.suppress(RuntimeError):
        matmul_precision = torch.get_float32_matmul_precision()
    before = {}
    for operation, parent in parents.items():
        precision = operation.fp32_precision
        # A value that is inherited is returned like an own one, and must be inherited again afterwards.
        before[operation] = "none" if precision == parent.fp32_precision else precision
    try:
        backends.cudnn.allow_tf32 = tf32
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        for operation in parents:
            operation.fp32_precision = "tf32" if tf32 and operation in on_gpu else "ieee"
        yield
    finally:
        backends.cudnn.allow_tf32 = allow_tf32
        torch.set_float32_matmul_precision(matmul_precision)
        for operation, precision in before.items():
            operation.fp32_precision = precision


@contextlib.contextmanager
def _cudnn(runtime: Runtime) -> Iterator[None]:
    """Set whether cuDNN times its algorithms, and whether it uses deterministic ones only."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark = runtime.cudnn_benchmark
    cudnn.deterministic = runtime.deterministic or cudnn.deterministic
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


@contextlib.contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    """Let PyTorch use deterministic algorithms only; an operation without one raises RuntimeError."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    workspace = os.environ.get(_CUBLAS_WORKSPACE)
    os.environ.setdefault(_CUBLAS_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        if workspace is None:
            os.environ.pop(_CUBLAS_WORKSPACE, None)


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
