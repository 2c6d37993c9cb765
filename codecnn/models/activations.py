"""Peak memory of the tensors that a computation makes, counted as they are made: the same figure on every machine.

What a process takes depends on the allocator, on threads and on what ran before. Here every operation that PyTorch
dispatches is seen with the tensors it returns; bytes count from when their storage first shows up until Python frees
it, so that a view costs nothing and what autograd keeps for the backward pass counts as long as it is kept. That works
on the meta device too, where tensors have shapes and no samples: no memory is needed to know how much would be.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.planes import CHROMA_PLANES


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage from the operation that makes it until it is freed."""

    def __init__(self, existing: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = self.largest = 0
        self.known: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
        for tensor in existing:
            self.known[tensor.untyped_storage()] = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to be skipped by a compiler that is not in use takes two seconds, in which it is imported."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._count, made)
        return made

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self.known:
            return
        self.known[storage] = None
        size = storage.nbytes()
        self.live += size
        self.largest = max(self.largest, size)
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.live -= size


def peak_bytes(compute: Callable[[], object], existing: list[Tensor]) -> int:
    """Most bytes alive at once in tensors that `compute` makes on this thread, without those of `existing`.

    What an operation uses inside itself (a reordered copy of its input, say) is not seen. On CUDA it is what the
    allocator handed out beyond what was there before, and does include that.
    """
    if existing and existing[0].is_cuda:
        device = existing[0].device
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        compute()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    with _Allocations(existing) as allocations:
        compute()
    peak: int = allocations.peak
    return peak


def largest_tensor(compute: Callable[[], object], existing: list[Tensor]) -> int:
    """Bytes of the largest tensor that `compute` makes on this thread, none of `existing`."""
    with _Allocations(existing) as allocations:
        compute()
    largest: int = allocations.largest
    return largest


def probe_planes(
    model: FilterNetwork, height: int, width: int, device: str | torch.device = "meta"
) -> dict[str, Tensor]:
    """Planes of zeros for one output of (height, width) luma samples; on "meta" they have a shape and no samples."""
    outer = [size + 2 * model.halo for size in (height, width)]
    sizes = {name: [size // 2 for size in outer] if name in CHROMA_PLANES else outer for name in model.planes}
    sizes |= {"qp": [1, 1]} if "qp" in model.planes else {}
    return {name: torch.zeros(1, 1, *size, device=device) for name, size in sizes.items()}


def training_peak(model: FilterNetwork, planes: Mapping[str, Tensor]) -> int:
    """Bytes of activations and gradients of one forward and backward pass of a mean squared output."""

    def step() -> None:
        made = named_outputs(model(planes))
        torch.stack([plane.square().mean() for plane in made.values()]).sum().backward()  # type: ignore[no-untyped-call]

    model.zero_grad(set_to_none=True)
    peak = peak_bytes(step, [*model.parameters(), *model.buffers(), *planes.values()])
    model.zero_grad(set_to_none=True)
    return peak


def inference_peak(model: FilterNetwork, planes: Mapping[str, Tensor]) -> int:
    """Bytes of activations of one forward pass without gradients."""
    with torch.no_grad():
        return peak_bytes(lambda: model(planes), [*model.parameters(), *model.buffers(), *planes.values()])
