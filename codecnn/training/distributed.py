"""One process or several: what torchrun starts, and how the processes of a run agree."""

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

PATIENCE = timedelta(hours=6)
"""How long a process waits for the others, which may validate longer than it. Of one that died, torchrun knows."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Process:
    """One of the `world` processes of a run: its number (rank) among them, and its device.

    What is put into `leaving` is done before the process leaves the group.
    """

    rank: int
    world: int
    device: torch.device
    leaving: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0


def is_first() -> bool:
    """Whether this process is the only one or the first of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextlib.contextmanager
def joined(device: str) -> Iterator[Process]:
    """This process, within the group of those that torchrun started, if any: NCCL on CUDA, Gloo on the CPU.

    Raises ConfigError for a device that cannot be used.
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
    # What processes tell each other beside gradients stays on the CPU: it must not wait for a device.
    dist.init_process_group("cpu:gloo,cuda:nccl" if process.device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        with process.leaving:
            yield process
    finally:
        dist.destroy_process_group()


def share(items: Sequence[Item]) -> Sequence[Item]:
    """Those of `items` that this process works on: all of them where it is alone."""
    return items[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else items


def gather(results: Sequence[Item]) -> list[Item]:
    """The results of all processes for what `share` gave them, in the order of the items; every process gets them."""
    if not dist.is_initialized():
        return list(results)
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, results)
    return [parts[index % len(parts)][index // len(parts)] for index in range(sum(map(len, parts)))]


def mean_over_processes(values: Tensor) -> Tensor:
    """The mean over processes of a tensor on the CPU."""
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return values


class Agreement:
    """Lets all processes act on a number that any of them has, after the same step.

    The exchange of one step is read in the next, so that no step waits for it; a process alone has its own at once.
    """

    def __init__(self) -> None:
        self._value = torch.zeros((), dtype=torch.int64)
        self._work: Any = None

    def largest(self, value: int) -> int:
        """The largest `value` of all processes in the step before; to be called once a step by each."""
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
        """Wait for what is under way."""
        if self._work is not None:
            self._work.wait()
            self._work = None


def synchronise_norms(model: nn.Module, process: Process) -> str | None:
    """Let the batch norms of a network count the patches of all processes; returns what is to be said about it.

    Torch has that on CUDA alone; on the CPU each process normalises by its own patches. Norms that are frozen stay so.
    """
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if process.world == 1 or not norms:
        return None
    if process.device.type != "cuda":
        return "batch norm sees the patches of its own process: torch synchronises it on CUDA alone"
    nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    for name, norm in norms.items():
        if "train" in vars(norm):  # frozen, see `stay_in_evaluation`
            stay_in_evaluation(model.get_submodule(name))
    return "batch norm is synchronised over the processes"


def in_parallel(model: nn.Module, process: Process) -> nn.Module:
    """The network with gradients that are averaged over the processes; itself where this one is alone."""
    if process.world == 1:
        return model
    devices = None if process.device.type == "cpu" else [process.device]
    network = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    process.leaving.callback(_let_go, network)
    return network


def _let_go(network: DistributedDataParallel) -> None:
    """Part a network from its process group; it cannot run after that.

    Else the last to hold the group may be the reducer, which ends the group's threads while it holds Python's lock.
    A thread that waits for the lock at that moment, to free a tensor, and the process then wait for each other
    for ever (torch 2.13; github.com/pytorch/pytorch/issues/56297).
    """
    del network.logger, network.reducer, network.process_group
