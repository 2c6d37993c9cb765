"""Networks prepared for inference: device, folded weights, and the fused convolutions of oneDNN on the CPU.

A separate operation for ReLU, a sum or the QP conditioning reads and writes all features again, and much of its time
goes into clearing new memory pages. oneDNN, PyTorch's library of convolutions on CPUs, can apply ReLU to a result or
add it to a tensor while it is still in the cache. PyTorch exposes that through private operators of its compiler.
"""

import copy
import threading
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.base.errors import ConfigError
from codecnn.base.runtime import float32_products

FUSES = hasattr(torch.ops.mkldnn, "_convolution_pointwise") and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")
"""True if PyTorch has oneDNN's convolutions with ReLU and with accumulation; else separate operations are used."""

DEVICE_TYPES = ("cpu", "cuda")
"""Types of the devices that `pick_device` accepts."""

GROUP_WIDTH = 48
"""Output features of one convolution in a grouped dense block: three AVX-512 vectors of 16 floats.

With 24 features, half of one vector would be idle.
"""

Network = TypeVar("Network", bound=nn.Module)


def pick_device(name: str) -> torch.device:
    """Return the torch device of a name.

    Args:
        name: "cpu", "cuda", "cuda:N", or "auto", which is CUDA if available, else the CPU.

    Returns:
        The device, on a GPU always with its number: "cuda" alone would be another one once the current device changes.

    Raises:
        ConfigError: The name is unknown, or the device cannot be used on this machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in DEVICE_TYPES:
        raise ConfigError(f"device {name!r} is none of auto, cpu, cuda and cuda:N")
    try:
        device = torch.empty(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device {name!r} cannot be used here, and `codecnn doctor` says why: {str(error).splitlines()[0]}"
        ) from error
    return device


def fold(model: Network) -> Network:
    """Return a copy in evaluation mode with branches and batch normalisation folded into the convolutions.

    In evaluation mode both are linear with constant factors. A convolution combined with a linear map is again one
    convolution, so that the copy computes the same samples with fewer operations and parameters.
    """
    with float32_products():
        return _convert(copy.deepcopy(model).eval(), "folded")


def prepare(model: Network) -> Network:
    """Return a copy that is ready to filter on the device of `model`, with the same result up to float rounding.

    Later changes of `model` do not affect the copy. The copy keeps memory between pictures and filters one at a time.
    """
    ready = fold(model)
    if next(ready.parameters(), torch.empty(0)).device.type == "cpu":
        ready = _convert(ready, "fused", Scratch())
    # oneDNN and cuDNN compute in channels-last order; other layouts are reordered before and after each convolution.
    ready.requires_grad_(False)
    return cast(Network, ready.to(memory_format=torch.channels_last))  # type: ignore[call-overload]


def _convert(network: Network, form: str, *arguments: "Scratch") -> Network:
    """Replace each module that has the method `form` ("folded" or "fused") by its result, inner modules first."""
    for name, child in list(network.named_children()):
        setattr(network, name, _convert(child, form, *arguments))
    # A module of the user may have a layer or a method of that name, which does something else.
    method = getattr(type(network), form, None)
    owned = getattr(method, "__module__", "").partition(".")[0] == "codecnn"
    return cast(Network, method(network, *arguments)) if callable(method) and owned else network


def convolution(x: Tensor, layer: nn.Conv2d, *, relu: bool = False) -> Tensor:
    """Compute a convolution of stride 1 with zero padding that keeps the size, and ReLU if asked."""
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
    """Add the convolution of `x`, zero padded to keep the size, to `sums` in place.

    Args:
        sums: Tensor that is changed, shape (n, outputs, h, w).
        x: Input, shape (n, inputs, h, w).
        weight: Kernel, shape (outputs, inputs, rows, columns), odd sides.
        bias: Bias, shape (outputs,).
    """
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
    """Reusable tensors (n, channels, h, w) by name, with undefined content; each thread has its own.

    A tensor is kept as long as its shape and type do not change, which saves the cost of clearing new memory pages.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def like(self, x: Tensor, name: str, channels: int) -> Tensor:
        """Return the tensor `name` with the size, type and device of `x`, in channels-last order."""
        shape = (x.shape[0], channels, *x.shape[2:])
        tensor = self.tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype != x.dtype:
            self.tensors.pop(name, None)
            tensor = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
            self.tensors[name] = tensor
        return tensor
