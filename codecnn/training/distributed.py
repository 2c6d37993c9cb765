"""One or several processes of a run, as torchrun starts them, and their communication."""

import contextlib
import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from codecnn.base.errors import CodecnnError
from codecnn.models import BatchNorm, pick_device, stay_in_evaluation

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
        CodecnnError: Another process ended while this one communicated with it.
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
    except Exception as error:
        if not _is_lost_connection(error):
            raise
        raise CodecnnError(
            f"process {process.rank} of {world} lost its connection to another process, which has ended: read the "
            "message of that process, and continue the run with --resume from its last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def _is_lost_connection(error: Exception) -> bool:
    """Return whether a collective operation failed, which Gloo reports as RuntimeError with the path of its source."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error))


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
        self.forget()

    def forget(self) -> None:
        """Forget the exchange in progress, which would keep the process group, and thus its threads, alive."""
        self._work = None


class _AllReduce(torch.autograd.Function):
    """Sum over the processes; the gradient is the sum of the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


class SynchronisedNorm(nn.BatchNorm2d):
    """Batch norm over the patches of all processes, for devices that `nn.SyncBatchNorm` refuses, such as the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x, shape (n, channels, ...)."""
        if not self.training:
            local = self.running_mean is None
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, local, eps=self.eps)
        axes, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
        values = x if x.dtype == torch.float64 else x.float()  # under autocast it is bfloat16
        # The processes may have different numbers of patches.
        count = values.new_full((1,), x.numel() // x.shape[1])
        sums: Tensor = _AllReduce.apply(torch.cat([values.sum(axes), count]))  # type: ignore[no-untyped-call]
        mean, count = sums[:-1] / sums[-1], sums[-1]
        centred = values - mean.view(shape)
        variance: Tensor = _AllReduce.apply(centred.square().sum(axes)) / count  # type: ignore[no-untyped-call]
        self._track(mean, variance * count / (count - 1))
        y = centred * (variance + self.eps).rsqrt().view(shape)
        return (y * self.weight.view(shape) + self.bias.view(shape) if self.affine else y).to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean += share * (mean - self.running_mean)
        self.running_var += share * (variance - self.running_var)


def synchronise_norms(model: nn.Module, process: Process) -> str | None:
    """Compute the statistics of batch norms over the patches of all processes.

    The parameters and buffers stay the same objects, and frozen norms stay frozen.

    Returns:
        A note for the log, or None.
    """
    norms = {name: module for name, module in model.named_modules() if name and isinstance(module, BatchNorm)}
    if process.world == 1 or not norms:
        return None
    for name, norm in norms.items():
        model.set_submodule(name, _synchronised(norm, process.device))
    return "batch norm is synchronised over the processes"


def _synchronised(norm: BatchNorm, device: torch.device) -> nn.Module:
    """Return a synchronised norm with the parameters, buffers and mode of another one."""
    kind = nn.SyncBatchNorm if device.type == "cuda" else SynchronisedNorm
    synchronised = kind(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    for key, parameter in norm.named_parameters():
        synchronised.register_parameter(key, parameter)
    for key, buffer in norm.named_buffers():
        synchronised.register_buffer(key, buffer)
    synchronised.train(norm.training)
    if "train" in vars(norm):  # frozen, see `stay_in_evaluation`
        stay_in_evaluation(synchronised)
    return synchronised


def in_parallel(model: nn.Module, process: Process) -> nn.Module:
    """Wrap a network so that its gradients are averaged over the processes; return it unchanged for a single one."""
    if process.world == 1:
        return model
    network = _Parallel(model, process.device)
    process.leaving.push(network.release)
    return network


class _Parallel(nn.Module):
    """Network whose gradients are averaged over the processes until `release` is called."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim == 4:
                _fix_strides(parameter)
        devices = None if device.type == "cpu" else [device]
        self.module: nn.Module = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)

    def forward(self, *inputs: Any) -> Any:
        """Run the network."""
        return self.module(*inputs)

    def release(self, kind: object, error: BaseException | None, frames: object) -> None:
        """Free what averages the gradients; for `ExitStack.push`, which passes the error that ends the run, if any.

        Otherwise it may be the last owner of the process group and end the threads of the group while it holds
        Python's lock. A thread that waits for the lock at that moment, to free a tensor, then deadlocks with the
        process (torch 2.13; github.com/pytorch/pytorch/issues/56297).
        """
        if isinstance(self.module, DistributedDataParallel):
            self.module = self.module.module
        while error is not None:  # frames of a forward pass that failed own it as well
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__
        gc.collect()


def _fix_strides(parameter: nn.Parameter) -> None:
    """Give the gradients of a weight the strides of the weight; DDP warns if they differ.

    A weight with sides of 1, such as (24, 1, 3, 1), is contiguous and channels-last at once, with several possible
    strides. Which of them a gradient has depends on the device and the data type.
    """
    if parameter.is_contiguous() and parameter.is_contiguous(memory_format=torch.channels_last):
        shape, strides = parameter.shape, parameter.stride()
        parameter.register_hook(lambda gradient: gradient.contiguous().as_strided(shape, strides))  # type: ignore[no-untyped-call]
