"""Convolutions for inference on the CPU that take ReLU, sums and conditioning along, and memory that is used again.

An operation of its own reads and writes all features again, and much of its time is the system's clearing of memory
that is new: of a low-cost network's time PyTorch's plain operations spend nearly half beside the convolutions. oneDNN,
PyTorch's library of convolutions on CPUs, can apply ReLU to a result, or add it to a tensor, while it is still in the
cache; PyTorch reaches that through operators that its own compiler uses, and that have no public name.
"""

import threading

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FUSES = hasattr(torch.ops.mkldnn, "_convolution_pointwise") and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")
"""Whether oneDNN's convolutions with ReLU, and into a sum, are here; without them these are operations of their own."""

GROUP_WIDTH = 48
"""Features that layers of a dense block make in one convolution: three vectors of 16 floats, where 24 leave half of one
idle."""


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


def _padding(weight: Tensor) -> list[int]:
    return [weight.shape[2] // 2, weight.shape[3] // 2]


class Scratch(threading.local):
    """Tensors (n, channels, h, w) by name, kept as long as the shape stays; their content is whatever was there.

    Each thread has its own.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def like(self, x: Tensor, name: str, channels: int) -> Tensor:
        """One with the size, type and device of `x`, channels last."""
        shape = (x.shape[0], channels, *x.shape[2:])
        found = self.kept.get(name)
        if found is None or found.shape != shape or found.dtype != x.dtype:
            self.kept.pop(name, None)
            found = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
            self.kept[name] = found
        return found
