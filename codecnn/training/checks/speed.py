"""Checks of the machine: whether training waits for its data, whether the device is its own."""

import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator

import torch

from codecnn.training._waiting import timed
from codecnn.training.checks.base import Finding, Measured, check
from codecnn.training.task import Batch

WAITING_BOUND = 0.1
"""Share of the time that may be waited; training is built to wait for 2 % at most, but a short measurement errs."""
WAITING_SECONDS = 12.0
"""Time that steps are measured for, unless they are so slow that a few of them take longer."""
HELD = 32
"""Batches kept at a time."""
LOAD_BOUND = 0.6
"""Share of the processors that may be busy, a minute's mean. A second process can make a step several times slower."""
OTHERS_BYTES = 2**30
"""Bytes of a GPU's memory that others may hold, more than what CUDA itself takes (about half a GiB)."""
UTILISATION_BOUND = 10
"""Percent of the time in which kernels ran, while this process runs none."""


@check(
    "waiting for data",
    "data is the bottleneck: more training.workers, or training.resident on a GPU; a store on a local disk",
)
def check_waiting(
    step: Callable[[Batch], object],
    batches: Iterator[Batch],
    device: torch.device,
    *,
    prefetched: int = 0,
    rounds: int = 3,
    seconds: float | None = None,
) -> Measured:
    """Steps a second with data as it comes against the same steps with the same batches kept: the share data takes.

    Both are timed in turn, and the median of the rounds' shares counts, so that what else runs on the machine disturbs
    neither more. They are the same batches, since sizes may differ. It takes about `seconds` (WAITING_SECONDS), and
    `rounds` turns at least. A round is several times as long as the `prefetched` batches that loading processes hold.
    """
    seconds = WAITING_SECONDS if seconds is None else seconds
    first = next(batches)
    step(first)
    single = timed(lambda: step(first), device)
    count = max(1, 4 * prefetched, min(HELD, int(seconds / (2 * rounds * single))))
    rounds = max(rounds, int(seconds / (2 * count * single)))
    rounds = rounds if rounds * 2 * count * single <= 2 * seconds else 1
    kept: list[Batch] = []

    def with_data() -> None:
        kept.clear()
        for _ in range(count):
            kept.append(next(batches))
            step(kept[-1])

    def with_kept() -> None:
        for batch in kept:
            step(batch)

    real, cached = [], []
    for _ in range(rounds):
        real.append(timed(with_data, device) / count)
        cached.append(timed(with_kept, device) / count)
    share = max(0.0, statistics.median(1 - ours / theirs for ours, theirs in zip(cached, real, strict=True)))
    fast, slow = statistics.median(cached), statistics.median(real)
    measured = f"{share:.1%} of the time: {1 / slow:.3g} steps/s, {1 / fast:.3g} with batches that stay"
    return share <= WAITING_BOUND, measured


def check_device(device: torch.device) -> Finding:
    """The GPU holds no other process's memory and is idle; without a GPU, the processors have little else to do.

    To be called before this process has given the device any work.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return judge_gpu(total - free - torch.cuda.memory_reserved(device), total, gpu_utilisation(device))
    return judge_load(os.getloadavg()[0], os.cpu_count() or 1)


@check("device", "another process uses this GPU: nvidia-smi names it; training.device picks another one")
def judge_gpu(others: int, total: int, utilisation: int | None) -> Measured:
    """The finding for bytes of a GPU's memory that others hold, and percent of the time in which kernels run, if known.

    What CUDA itself takes for this process counts as others'.
    """
    busy = utilisation is not None and utilisation > UTILISATION_BOUND
    measured = f"GPU: {others / 2**30:.2f} of {total / 2**30:.0f} GiB taken before training"
    measured += "" if utilisation is None else f", busy {utilisation} % of the time"
    return others <= OTHERS_BYTES and not busy, measured


@check("device", "other processes are at work: speeds measured now mean little, and training shares the processors")
def judge_load(load: float, processors: int) -> Measured:
    """The finding for processes that want to run, a minute's mean, on so many processors."""
    return load <= LOAD_BOUND * processors, f"CPU: load {load:.2f} on {processors} processors"


def gpu_utilisation(device: torch.device) -> int | None:
    """Percent of the last moments in which a kernel ran on a GPU, by nvidia-smi; None where that does not tell."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--id=GPU-{uuid}"]
    try:
        answer = subprocess.run([program, *query], capture_output=True, text=True, timeout=10, check=True)
        return int(answer.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
