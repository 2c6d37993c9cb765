"""Cost of a network: multiply-accumulates per pixel, parameters, receptive field and peak memory.

Memory is counted from the tensors of a computation instead of measured, so that it is the same on every machine: what a
process takes depends on the allocator, the threads and what ran before. Every operation that PyTorch dispatches is
observed with the tensors that it returns. Bytes count from when their storage first appears until Python frees it, so
that a view costs nothing and tensors that autograd keeps for the backward pass count as long as they are kept. This
works on the meta device too, where tensors have shapes but no samples, so that no memory is needed.
"""

import copy
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from codecnn.base.division import ceil_div
from codecnn.models.adapter import AdaptedNetwork
from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.families.rdn import RDB, rdb_macs
from codecnn.models.inference import fold
from codecnn.models.planes import CHROMA_PLANES
from codecnn.models.zoo import create_model, list_models


@dataclass(frozen=True)
class Complexity:
    """Cost of a network for filtering, with its branches folded.

    Attributes:
        kmac_per_pixel: Thousands of multiply-accumulates of convolutions per luma sample, without halo.
        kmac_per_pixel_with_halo: The same for one 128x128 CTU filtered alone, including the halo that unpadded
            convolutions remove; padded convolutions see zeros at the edges of the CTU.
        kmac_per_pixel_alone: The same for one 128x128 CTU with the same result as in the whole picture: the input
            is the CTU and its radius on each side, rounded up to the stride.
        parameters: Numbers that a decoder stores.
        receptive_field: Width of the square of input samples on which one output sample depends.
        halo: Input samples that are removed on each side.
        rdb_macs: Multiply-accumulates of one RDB per sample of its own resolution, by the formula of `rdb_macs`;
            None for a network without RDBs.
        rdb_macs_counted: The same, counted.
    """

    kmac_per_pixel: float
    kmac_per_pixel_with_halo: float
    kmac_per_pixel_alone: float
    parameters: int
    receptive_field: int
    halo: int
    rdb_macs: int | None
    rdb_macs_counted: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name, as in JSON results."""
        return asdict(self)


def complexity(model: FilterNetwork, ctu_size: int = 128) -> Complexity:
    """Count the cost of a network on tensors without data; the model is not changed.

    Operations that are done once per picture, such as the matrices of FiLM, do not count. On an n x n output a chain of
    convolutions costs a·n² + b·n + c, where b and c come from unpadded borders. The cost without halo is a, exactly
    the second difference of three sizes.
    """
    folded = _without_data(fold(model))
    step = 16 * model.stride
    sizes = (ctu_size, ctu_size + step, ctu_size + 2 * step)
    small, middle, large = (_macs(folded, size) for size in sizes)
    quadratic = (large - 2 * middle + small) / (2 * step**2)
    # In whole cells: the output of the network is cropped to the CTU.
    context = ceil_div(model.radius - model.halo, model.stride) * model.stride
    block = next((module for module in folded.modules() if isinstance(module, RDB)), None)
    sample = torch.zeros(1, block.fusion.out_channels if block else 0, 1, 1, device="meta")
    return Complexity(
        kmac_per_pixel=quadratic / 1000,
        kmac_per_pixel_with_halo=small / ctu_size**2 / 1000,
        kmac_per_pixel_alone=_macs(folded, ctu_size + 2 * context) / ctu_size**2 / 1000,
        parameters=sum(parameter.numel() for parameter in folded.parameters()),
        # A sample anywhere in a cell of stride x stride depends on the whole cell, and equally far on both sides of it.
        receptive_field=2 * model.radius - model.stride + 2,
        halo=model.halo,
        rdb_macs=None if block is None else rdb_macs(*block.sizes),
        rdb_macs_counted=None if block is None else _count(block, lambda: block(sample)),
    )


def peak_memory(model: FilterNetwork, ctu_size: int = 128) -> dict[str, int]:
    """Count the peak of bytes of activations for one CTU, batch 1, float32; the model is not changed.

    Returns:
        "training_bytes" of a forward and a backward pass, with the gradients of the weights, and "inference_bytes" of
        a forward pass without gradients, with branches folded.
    """
    planes = probe_planes(model, ctu_size, ctu_size, _counting_device(model))
    return {
        "training_bytes": training_peak(_without_data(model).train(), planes),
        "inference_bytes": inference_peak(_without_data(fold(model)), planes),
    }


def full_cost(model: FilterNetwork) -> dict[str, Any]:
    """Return the figures of `complexity` and `peak_memory`."""
    return complexity(model).as_dict() | peak_memory(model)


def complexity_table() -> str:
    """Return a Markdown table of the cost of all architectures, cheapest first; memory in MiB for one 128x128 CTU."""
    rows = [{"name": name} | full_cost(create_model(name)) for name in list_models()]
    lines = [
        "| network | kMAC/pixel | with halo | a CTU alone | parameters | receptive field | training MiB "
        "| inference MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: (row["kmac_per_pixel"], row["name"])):
        lines.append(
            f"| `{row['name']}` | {row['kmac_per_pixel']:.1f} | {row['kmac_per_pixel_with_halo']:.1f} "
            f"| {row['kmac_per_pixel_alone']:.1f} | {row['parameters']:,} | {row['receptive_field']} "
            f"| {row['training_bytes'] / 2**20:.1f} | {row['inference_bytes'] / 2**20:.1f} |"
        )
    return "\n".join(lines)


def _without_data(model: FilterNetwork) -> FilterNetwork:
    """Return a copy on the meta device, where shapes are computed but no samples, if the network can run there."""
    return copy.deepcopy(model).to(_counting_device(model), torch.float32)


def _counting_device(model: FilterNetwork) -> str:
    return model.counted_on if isinstance(model, AdaptedNetwork) else "meta"


def _macs(model: FilterNetwork, size: int) -> int:
    """Return the multiply-accumulates for an output of size x size luma samples.

    They are those of the convolutions, and in a module of the user also those of matrix products and attention.
    """
    planes = probe_planes(model, size, size, _counting_device(model))
    if isinstance(model, AdaptedNetwork):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(planes)
        return int(counter.get_total_flops()) // 2
    return _count(model, lambda: model(planes))


def _count(network: nn.Module, forward: Callable[[], object]) -> int:
    """Return the multiply-accumulates of all convolutions that `forward` executes; padding counts as well."""
    total = 0

    def count(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d | nn.ConvTranspose2d)
        taps = module.kernel_size[0] * module.kernel_size[1]
        if isinstance(module, nn.ConvTranspose2d):
            total += inputs[0].numel() * module.out_channels // module.groups * taps
        else:
            total += output.numel() * module.in_channels // module.groups * taps

    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.ConvTranspose2d)]
    hooks = [module.register_forward_hook(count) for module in convolutions]
    with torch.no_grad():
        forward()
    for hook in hooks:
        hook.remove()
    return total


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of every storage from the operation that creates it until it is freed."""

    def __init__(self, existing: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = self.largest = 0
        self.known: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
        for tensor in existing:
            self.known[tensor.untyped_storage()] = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to be skipped, the mode would import the compiler, which takes two seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._count, result)
        return result

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
    """Return the peak of bytes in tensors that a computation creates on this thread.

    Memory inside an operation, such as a reordered copy of its input, is not seen. On CUDA, the result is the peak of
    the allocator above its level before, which includes such memory.

    Args:
        compute: The computation.
        existing: Tensors that do not count, such as inputs and weights.
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
    """Return the bytes of the largest tensor that a computation creates on this thread; `existing` do not count."""
    with _Allocations(existing) as allocations:
        compute()
    largest: int = allocations.largest
    return largest


def probe_planes(
    model: FilterNetwork, height: int, width: int, device: str | torch.device = "meta"
) -> dict[str, Tensor]:
    """Create planes of zeros for one output of (height, width) luma samples; on "meta" they have no data."""
    outer = [size + 2 * model.halo for size in (height, width)]
    sizes = {name: [size // 2 for size in outer] if name in CHROMA_PLANES else outer for name in model.planes}
    sizes |= {"qp": [1, 1]} if "qp" in model.planes else {}
    return {name: torch.zeros(1, 1, *size, device=device) for name, size in sizes.items()}


def training_peak(model: FilterNetwork, planes: Mapping[str, Tensor]) -> int:
    """Return the peak of bytes of activations and gradients in a forward and backward pass of the mean square."""

    def step() -> None:
        outputs = named_outputs(model(planes))
        if not any(plane.requires_grad for plane in outputs.values()):
            return  # a module of the user without parameters
        torch.stack([plane.square().mean() for plane in outputs.values()]).sum().backward()  # type: ignore[no-untyped-call]

    model.zero_grad(set_to_none=True)
    peak = peak_bytes(step, [*model.parameters(), *model.buffers(), *planes.values()])
    model.zero_grad(set_to_none=True)
    return peak


def inference_peak(model: FilterNetwork, planes: Mapping[str, Tensor]) -> int:
    """Return the peak of bytes of activations in a forward pass without gradients."""
    with torch.no_grad():
        return peak_bytes(lambda: model(planes), [*model.parameters(), *model.buffers(), *planes.values()])
