"""What a network costs: multiply-accumulates a pixel, parameters, receptive field, peak memory."""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.models._dense import RDB, rdb_macs
from codecnn.models._registry import create_model, list_models
from codecnn.models.activations import inference_peak, probe_planes, training_peak
from codecnn.models.base import FilterNetwork
from codecnn.models.inference import fold


@dataclass(frozen=True)
class Complexity:
    """Cost of a network as it filters, with its branches folded.

    kmac_per_pixel            thousands of multiply-accumulates of convolutions per luma sample, halo not counted
    kmac_per_pixel_with_halo  the same for one 128x128 CTU filtered alone, its halo counted: what unpadded convolutions
                              take away; padded ones see zeros at the CTU's edges
    kmac_per_pixel_alone      the same for one 128x128 CTU that comes out as in the whole picture: the network goes over
                              the CTU and its radius on each side, up to the stride
    parameters                numbers that a decoder stores
    receptive_field           width of the square of input samples that one output sample can depend on
    halo                      input samples taken away on each side
    rdb_macs                  multiply-accumulates of one RDB a sample of its own resolution, from `rdb_macs`' formula
    rdb_macs_counted          the same, counted; both None for a network without RDBs
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
        """The figures by name, as JSON results carry them."""
        return asdict(self)


def complexity(model: FilterNetwork, ctu_size: int = 128) -> Complexity:
    """Count the convolutions of `model` on tensors without data; the model is not changed.

    What is done once a picture, as the matrices of FiLM, is not counted. On an n x n output a chain of convolutions
    costs a·n² + b·n + c, where b and c come from unpadded borders. The cost without halo is a, had exactly from three
    sizes by the second difference.
    """
    folded = _without_data(fold(model))
    step = 16 * model.stride
    sizes = (ctu_size, ctu_size + step, ctu_size + 2 * step)
    small, middle, large = (_macs(folded, size) for size in sizes)
    quadratic = (large - 2 * middle + small) / (2 * step**2)
    # In whole cells: the network's output is cropped to the CTU.
    context = -(-(model.radius - model.halo) // model.stride) * model.stride
    block = next((module for module in folded.modules() if isinstance(module, RDB)), None)
    one = torch.zeros(1, block.fusion.out_channels if block else 0, 1, 1, device="meta")
    return Complexity(
        kmac_per_pixel=quadratic / 1000,
        kmac_per_pixel_with_halo=small / ctu_size**2 / 1000,
        kmac_per_pixel_alone=_macs(folded, ctu_size + 2 * context) / ctu_size**2 / 1000,
        parameters=sum(parameter.numel() for parameter in folded.parameters()),
        # A sample at any place of a cell of stride x stride sees the whole cell, and equally far on both sides of it.
        receptive_field=2 * model.radius - model.stride + 2,
        halo=model.halo,
        rdb_macs=None if block is None else rdb_macs(*block.sizes),
        rdb_macs_counted=None if block is None else _count(block, lambda: block(one)),
    )


def peak_memory(model: FilterNetwork, ctu_size: int = 128) -> dict[str, int]:
    """Most bytes of activations alive at once for one CTU, batch 1, float32; the model is not changed.

    training_bytes    a forward and a backward pass, with the gradients of the weights
    inference_bytes   a forward pass without gradients, branches folded
    """
    planes = probe_planes(model, ctu_size, ctu_size)
    return {
        "training_bytes": training_peak(_without_data(model).train(), planes),
        "inference_bytes": inference_peak(_without_data(fold(model)), planes),
    }


def full_cost(model: FilterNetwork) -> dict[str, Any]:
    """What `complexity` and `peak_memory` say of `model`."""
    return complexity(model).as_dict() | peak_memory(model)


def complexity_table() -> str:
    """The whole zoo at its defaults as a table in Markdown, cheapest first; memory in MiB for one 128x128 CTU."""
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
    """A copy of `model` on the meta device: shapes are computed there, samples are not."""
    return copy.deepcopy(model).to("meta", torch.float32)


def _macs(model: FilterNetwork, size: int) -> int:
    """Multiply-accumulates of all convolutions for one output of size x size luma samples."""
    planes = probe_planes(model, size, size)
    return _count(model, lambda: model(planes))


def _count(network: nn.Module, forward: Callable[[], object]) -> int:
    """Multiply-accumulates of the convolutions that `forward` goes through; every tap counts, padding or not."""
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
