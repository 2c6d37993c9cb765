"""What a network costs: multiply-accumulates a pixel, parameters, receptive field."""

import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.models.base import FilterNetwork


@dataclass(frozen=True)
class Complexity:
    """Cost of a network.

    kmac_per_pixel            thousands of multiply-accumulates of convolutions per output sample, halo not counted
    kmac_per_pixel_with_halo  the same for one 128x128 CTU filtered alone, its halo counted
    parameters                trainable numbers
    receptive_field           width of the square of input samples that one output sample can depend on
    halo                      input samples taken away on each side
    """

    kmac_per_pixel: float
    kmac_per_pixel_with_halo: float
    parameters: int
    receptive_field: int
    halo: int

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, as JSON results carry them."""
        return asdict(self)


def complexity(model: FilterNetwork, ctu_size: int = 128) -> Complexity:
    """Count the convolutions of `model` on tensors without data; the model is not changed.

    On an n x n output a chain of convolutions costs a·n² + b·n + c, where b and c come from unpadded borders. The cost
    without halo is a, had exactly from three sizes by the second difference.
    """
    probe = copy.deepcopy(model).to("meta", torch.float32).eval()
    step = 16 * model.stride
    sizes = (ctu_size, ctu_size + step, ctu_size + 2 * step)
    small, middle, large = (_macs(probe, size) for size in sizes)
    quadratic = (large - 2 * middle + small) / (2 * step**2)
    return Complexity(
        kmac_per_pixel=quadratic / 1000,
        kmac_per_pixel_with_halo=small / ctu_size**2 / 1000,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        receptive_field=_receptive_field(model),
        halo=model.halo,
    )


def _receptive_field(model: FilterNetwork) -> int:
    """Whole cells of stride x stride samples: the farthest sample on both sides of the cell that holds the output."""
    cells = (model.radius - (model.stride - 1)) // model.stride
    return (2 * cells + 1) * model.stride


def _macs(model: FilterNetwork, size: int) -> int:
    """Multiply-accumulates of all convolutions for one output of size x size."""
    total = 0

    def count(module: nn.Module, _inputs: object, output: Tensor) -> None:
        nonlocal total
        assert isinstance(module, nn.Conv2d)
        total += output[0].numel() * module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]

    hooks = [module.register_forward_hook(count) for module in model.modules() if isinstance(module, nn.Conv2d)]
    side = size + 2 * model.halo
    with torch.no_grad():
        model({name: torch.zeros(1, 1, side, side, device="meta") for name in model.planes})
    for hook in hooks:
        hook.remove()
    return total
