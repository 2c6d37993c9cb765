"""Convolutions for inference on the CPU that take ReLU, sums and conditioning along, and blocks made of them.

An operation of its own reads and writes all features again, and much of its time is the system's clearing of memory
that is new: of a low-cost network's time PyTorch's plain operations spend nearly half beside the convolutions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.models.blocks import DepthwiseBlock, SeparableBlock
from codecnn.models.conditioning import QpModulation

FUSES = hasattr(torch.ops.mkldnn, "_convolution_pointwise") and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")
"""Whether oneDNN's convolutions with ReLU, and into a sum, are here; without them these are operations of their own."""


def convolution(x: Tensor, layer: nn.Conv2d, *, relu: bool = False) -> Tensor:
    """A convolution of stride 1 with zero padding, and ReLU."""
    padding = _padding(layer.weight)
    if FUSES and x.dtype == torch.float32:
        after = "relu" if relu else "none"
        y: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, layer.weight, layer.bias, padding, [1, 1], [1, 1], layer.groups, after, [], ""
        )
        return y
    y = F.conv2d(x, layer.weight, layer.bias, padding=padding, groups=layer.groups)
    return y.relu_() if relu else y


def add_convolution(sums: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Add the convolution of `x`, padded to keep its size, to `sums` in place."""
    padding = _padding(weight)
    if FUSES and sums.dtype == torch.float32:
        torch.ops.mkldnn._convolution_pointwise_.binary(
            sums, x, weight, bias, padding, [1, 1], [1, 1], 1, "add", 1.0, None, [], None
        )
    else:
        sums += F.conv2d(x, weight, bias, padding=padding)


class FusedSeparable(nn.Module):
    """A `SeparableBlock` that adds to its input in place."""

    def __init__(self, block: SeparableBlock) -> None:
        super().__init__()
        self.expand, self.project, self.row, self.column = block.expand, block.project, block.row, block.column

    def forward(self, x: Tensor) -> Tensor:
        y = convolution(convolution(x, self.expand, relu=True), self.project)
        add_convolution(x, convolution(y, self.row), self.column.weight, self.column.bias)
        return x


class FusedDepthwise(nn.Module):
    """A folded `DepthwiseBlock` that adds to its input in place."""

    def __init__(self, block: DepthwiseBlock) -> None:
        super().__init__()
        self.depthwise, self.expand, self.project = block.depthwise, block.expand, block.project

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.depthwise, nn.Conv2d)
        y = convolution(convolution(x, self.depthwise), self.expand, relu=True)
        add_convolution(x, y, self.project.weight, self.project.bias)
        return x


class InPlaceModulation(nn.Module):
    """A `QpModulation` that overwrites its input."""

    def __init__(self, modulation: QpModulation) -> None:
        super().__init__()
        self.modulation = modulation

    def forward(self, x: Tensor, qp: Tensor) -> Tensor:
        scale, offset = self.modulation.factors(qp)
        return x.mul_(scale) if offset is None else torch.addcmul(offset, x, scale, out=x)


def _padding(weight: Tensor) -> list[int]:
    return [weight.shape[2] // 2, weight.shape[3] // 2]
