"""One or several processes of a run, as torchrun starts them, and their communication."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from codecnn.models import pick_device, stay_in_evaluation

TIMEOUT = timedelta(hours=6)
"""Longest wait of a process for another one, which may still validate; torchrun notices processes that died."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Process:
    """One of the processes of a run.

    Attributes:
        rank: Number of the process.
        world: Number of processes.
        device: Device of the process.
        leaving: Callbacks to run before the process leaves the process group.
    """

    rank: int
    world: int
    device: torch.device
    leaving: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """True for the process that writes files."""
        return self.rank == 0


def is_first() -> bool:
    """Return whether this process is the only one, or the first of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextlib.contextmanager
def process_group(device: str) -> Iterator[Process]:
    """Join the process group of torchrun, if any, within the context: NCCL on CUDA, Gloo on the CPU.

    Args:
        device: Device of the settings: auto, cpu, cuda or cuda:N.

    Yields:
        This process.

    Raises:
        ConfigError: The device does not exist.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Process(0, 1, pick_device(device))
        return
    if device in ("auto", "cuda") and torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    process = Process(int(os.environ["RANK"]), world, pick_device(device))
    if process.device.type == "cuda":
        torch.cuda.set_device(process.device)
    # All communication except that of gradients stays on the CPU: it must not wait for a device.
    dist.init_process_group("cpu:gloo,cuda:nccl" if process.device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        with process.leaving:
            yield process
    finally:
        dist.destroy_process_group()


def share(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items that this process works on: all of them for a single process."""
    return items[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else items


def gather(results: Sequence[Item]) -> list[Item]:
    """Collect the results of all processes in every process.

    Args:
        results: Results of this process for the items that `share` returned.

    Returns:
        The results for all items, in the order of the items.
    """
    if not dist.is_initialized():
        return list(results)
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, results)
    return [parts[index % len(parts)][index // len(parts)] for index in range(sum(map(len, parts)))]


def mean_over_processes(values: Tensor) -> Tensor:
    """Average a tensor on the CPU over the processes, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return values


class Agreement:
    """Lets all processes act on a number of any process after the same step.

    The exchange of one step is read in the next one, so that no step waits for it; a single process gets its number at
    once.
    """

    def __init__(self) -> None:
        self._value = torch.zeros((), dtype=torch.int64)
        self._work: Any = None

    def largest(self, value: int) -> int:
        """Return the largest `value` of all processes at the previous step; every process calls this once per step."""
        if not dist.is_initialized():
            return value
        agreed = 0
        if self._work is not None:
            self._work.wait()
            agreed = int(self._value)
        self._value = torch.tensor(value, dtype=torch.int64)
        self._work = dist.all_reduce(self._value, dist.ReduceOp.MAX, async_op=True)
        return agreed

    def close(self) -> None:
        """Wait for the exchange in progress."""
        if self._work is not None:
            self._work.wait()
            self._work = None


def synchronise_norms(model: nn.Module, process: Process) -> str | None:
    """Compute the statistics of batch norms over the patches of all processes where torch can do so, on CUDA.

    On the CPU each process normalises by its own patches. Frozen norms stay frozen.

    Returns:
        A note for the log, or None.
    """
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if process.world == 1 or not norms:
        return None
    if process.device.type != "cuda":
        return "batch norm uses the patches of its own process only: torch synchronises it on CUDA only"
    nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    for name, norm in norms.items():
        if "train" in vars(norm):  # frozen, see `stay_in_evaluation`
            stay_in_evaluation(model.get_submodule(name))
    return "batch norm is synchronised over the processes"


def in_parallel(model: nn.Module, process: Process) -> nn.Module:
    """Wrap a network so that its gradients are averaged over the processes; return it unchanged for a single one."""
    if process.world == 1:
        return model
    devices = None if process.device.type == "cpu" else [process.device]
    network = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    process.leaving.callback(_release_group, network)
    return network


def _release_group(network: DistributedDataParallel) -> None:
    """Remove the references of a network to its process group; the network cannot run afterwards.

    Otherwise the reducer may be the last owner of the group and end the threads of the group while it holds Python's
    lock. A thread that waits for the lock at that moment, to free a tensor, then deadlocks with the process
    (torch 2.13; github.com/pytorch/pytorch/issues/56297).
    """
    del network.logger, network.reducer, network.process_group
