"""Integer networks with PyTorch: float convolutions whose sums are all exact, so that order and threads do not matter.

Integers up to 2^24 are float32 numbers, those up to 2^53 float64 numbers. A node whose sums are proven to stay within
2^24 is computed in float32, any other in float64. Weights are divided by the power of two that follows the sum, which
changes no digit, and what is left of the rounding shift is a floor.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.filtering.integer._network import FLOAT32_EXACT, IntegerNetwork, check_bit_depth, gain_shift, half
from codecnn.filtering.integer._parts import Sums, by_parts
from codecnn.filtering.integer._passes import Ending, first_saturated, modulated, saturated, summed
from codecnn.models import SAMPLE_PLANES, add_convolution
from codecnn.models.graph import MOVES, Node, Operation, cropped, same_padding, walk

_DIRECT = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
"""oneDNN's convolution, which PyTorch's compiler uses. PyTorch itself takes another, half as fast, for one thread's."""

# Why this is exact: the proof of `network` bounds every partial sum, in whatever order it is added. While those are
# integers below 2^24 (2^53), each is a float32 (float64) number, so no addition rounds, with or without fused
# multiply-add, and addition is associative again: blocking, vector width and threads change nothing. Dividing all
# terms by 2^shift only moves exponents; floor(sum / 2^shift + 1/2) is then the integers' (sum + half) >> shift, and
# torch's round, which takes halves to even, that of networks of 8 bits.


class FastNetwork:
    """An integer network ready to run on a device; `wide` computes every node in float64.

    A call takes planes (n, 1, h, w) with the halo, as float32 tensors: samples as integers, others as the loader scales
    them. It gives samples, float32 as well: {"y": (n, 1, h, w), ...}.
    """

    def __init__(self, network: IntegerNetwork, device: str | torch.device = "cpu", *, wide: bool = False) -> None:
        self.network = network
        self.device = torch.device(device)
        self.types: dict[str, torch.dtype] = {}
        self.tensors: dict[str, dict[str, Tensor]] = {}
        # cuDNN and cuBLAS may compute float32 in fewer bits (TF32), or by transforms; float64 they multiply and add.
        wide = wide or self.device.type != "cpu"
        for node in network.graph.nodes:
            widest = network.ranges[node.name].widest
            kind = torch.float32 if widest <= FLOAT32_EXACT and not wide else torch.float64
            self.types[node.name] = kind
            tensors = _scaled(node, network.bits)
            self.tensors[node.name] = {name: tensor.to(self.device, kind) for name, tensor in tensors.items()}
        self.nodes: Sequence[Node] = network.graph.nodes
        self.sums: dict[str, Sums] = {}
        if not wide:
            self.nodes, self.sums = by_parts(network.graph, self.tensors, self._sums_in_any_order)

    def _sums_in_any_order(self, node: Node) -> bool:
        """Whether a convolution may add what it makes of parts of its input, which keep their size."""
        in_float32 = self.types[node.name] == torch.float32
        return in_float32 and node.values["groups"] == 1 and bool(node.values["pad"])

    def __call__(self, planes: Mapping[str, Tensor], qp: int, bit_depth: int) -> dict[str, Tensor]:
        check_bit_depth(self.network, bit_depth)
        with torch.inference_mode(), exact_arithmetic(self.device.type):
            return self._computed(lambda node, inputs: self._node(node, inputs, planes, qp, bit_depth), qp)

    def _computed(self, compute: Callable[[Node, list[Tensor]], Tensor], qp: int) -> dict[str, Tensor]:
        """The outputs, from what computes a node."""
        return walk(self.nodes, compute)

    def _node(self, node: Node, inputs: list[Tensor], planes: Mapping[str, Tensor], qp: int, bit_depth: int) -> Tensor:
        if node.op == "plane":
            return _centred(node.name, planes[node.name], bit_depth, self.network.bit_depth)
        if node.op == "output":
            return self._output(node, inputs[0], planes, qp, bit_depth)
        return self._compute(node, inputs, qp)

    def _compute(self, node: Node, inputs: list[Tensor], qp: int) -> Tensor:
        if node.op == "qp":
            middle = 1 << (self.network.bit_depth - 1)
            return torch.full_like(inputs[0][:, :1], (qp << (self.network.bit_depth - 6)) - middle)
        if node.name in self.sums:
            return self._summed(node, self.sums[node.name], inputs)
        kind = self.types[node.name]
        if kind == torch.float32 and node.op in ("conv", "modulate") and self.device.type == "cpu":
            return self._in_passes(node, inputs, qp)
        made = _COMPUTE[node.op](node, [x.to(kind) for x in inputs], self.tensors[node.name], qp)
        return self._saturated(node, made) if "low" in node.values else made.to(torch.float32)

    def _in_passes(self, node: Node, inputs: list[Tensor], qp: int) -> Tensor:
        """A convolution or modulation in float32 on a CPU: one pass over memory beside the convolution itself."""
        tensors = self.tensors[node.name]
        if node.op == "modulate":
            return modulated(inputs[0], tensors["factor"][qp], tensors["offset"][qp], self._ending(node))
        return self._ended(node, _convolved(node, inputs[0], tensors["weight"], tensors["bias"]), inputs[1:])

    def _summed(self, node: Node, parts: Sums, inputs: list[Tensor]) -> Tensor:
        """A convolution part by part, or several layers, whose results are one tensor."""
        sums = _convolved(node, inputs[0], parts.weights[0], parts.bias)
        for x, weight in zip(inputs[1:], parts.weights[1:], strict=False):
            add_convolution(sums, x, weight)
        rest = sums = sums.contiguous(memory_format=torch.channels_last)
        start = 0
        for layer, weight in zip(parts.layers, parts.within, strict=False):
            made, behind = first_saturated(rest, rest.shape[1] - weight.shape[0], self._ending(layer))
            if start > 0:
                sums[:, start : start + made.shape[1]] = made
            add_convolution(behind, made, weight)
            rest, start = behind, start + made.shape[1]
        last = self._ended(parts.layers[-1], rest, inputs[len(parts.weights) :])
        if start > 0:
            sums[:, start:] = last
        return sums if start > 0 else last

    def _ended(self, node: Node, sums: Tensor, added: list[Tensor]) -> Tensor:
        """What becomes of a convolution's sums, and of a tensor that is added to them."""
        if not added:
            return saturated(sums, self._ending(node))
        return summed(sums, added[0], 2.0 ** -node.values["skip"], self._ending(node))

    def _ending(self, node: Node) -> Ending:
        return Ending(node.values["low"], node.values["high"], self.network.bits == 8)

    def _saturated(self, node: Node, sums: Tensor) -> Tensor:
        """What becomes of a node's sums, which are divided by the power of two that they are shifted by."""
        if self.network.bits == 8:
            sums.round_()
        else:
            if node.op == "add" and node.values["shift"] > 0:
                sums.add_(0.5)
            sums.floor_()
        # What is kept between nodes is saturated to 16 bits, so float32 holds it whatever the sums took.
        return sums.clamp_(node.values["low"], node.values["high"]).to(torch.float32)

    def _output(self, node: Node, x: Tensor, planes: Mapping[str, Tensor], qp: int, bit_depth: int) -> Tensor:
        gain = self.tensors[node.name]["gain"]
        shift = gain_shift(node, bit_depth)
        factor = gain[qp if len(gain) > 1 else 0].to(torch.float64) * 2.0**-shift
        if self.network.bits == 8:
            change = (x * float(factor)).round_()
        else:
            # 16 bits times 16 bits, always in float64: the picture's bit depth changes the shift, so nothing is folded.
            change = (x.to(torch.float64) * factor + half(shift) * 2.0**-shift).floor_()
        base: Tensor | float = 1 << (bit_depth - 1)
        if len(node.inputs) == 2:
            base = cropped(planes[node.inputs[1]], node.values["crop"])
        return change.add_(base).clamp_(0, (1 << bit_depth) - 1).to(torch.float32)


@contextlib.contextmanager
def exact_arithmetic(device: str) -> Iterator[None]:
    """Convolutions that multiply and add in the type of their operands: no transforms, nothing of fewer bits.

    NNPACK convolves by Winograd's and Fourier's transforms, cuDNN may; oneDNN and cuBLAS may take float32 for less
    where a user allowed it, and so does autocast.
    """
    onednn = torch.backends.mkldnn.conv  # type: ignore[attr-defined]
    before = onednn.fp32_precision
    onednn.fp32_precision = "ieee"
    try:
        with (
            torch.backends.nnpack.flags(enabled=False),
            torch.backends.cudnn.flags(enabled=False),
            torch.autocast(device, enabled=False),
        ):
            yield
    finally:
        onednn.fp32_precision = before


def _scaled(node: Node, bits: int) -> dict[str, Tensor]:
    """A node's tensors, float64, over the power of two that its shift divides by.

    Where halves are rounded up, what that takes is in the offset.
    """
    tensors = {name: torch.from_numpy(tensor.astype(np.float64)) for name, tensor in node.tensors.items()}
    shift = tensors.pop("shift", torch.tensor(float(node.values.get("shift", 0))))
    scaled = {}
    for name, tensor in tensors.items():
        if bits == 16 and name in ("bias", "offset"):
            tensor += half(int(shift))
        by_channel = shift[:, None, None, None] if name == "weight" and shift.dim() else shift
        scaled[name] = tensor * 2.0**-by_channel
    if "weight" in scaled:
        scaled["weight"] = scaled["weight"].contiguous(memory_format=torch.channels_last)
    return scaled


def _centred(name: str, plane: Tensor, bit_depth: int, network_bit_depth: int) -> Tensor:
    middle = 1 << (network_bit_depth - 1)
    if name in SAMPLE_PLANES:
        scale = 1 << (network_bit_depth - bit_depth)
        return plane - middle if scale == 1 else (plane * scale).sub_(middle)
    scaled = (plane.to(torch.float64) * (1 << network_bit_depth) + 0.5).floor_()
    return (scaled.clamp_(0, 2 * middle - 1) - middle).to(torch.float32)


def _convolved(node: Node, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The sums of a convolution."""
    x = x.contiguous(memory_format=torch.channels_last)
    padding, groups = list(same_padding(weight) if node.values["pad"] else (0, 0)), node.values["groups"]
    if x.dtype == torch.float32 and x.device.type == "cpu" and _DIRECT is not None:
        sums: Tensor = _DIRECT(x, weight, bias, padding, [1, 1], [1, 1], groups, "none", [], "")
        return sums
    return F.conv2d(x, weight, bias, padding=padding, groups=groups)


def _conv(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    sums = _convolved(node, inputs[0], tensors["weight"], tensors["bias"])
    return sums.add_(inputs[1], alpha=2.0 ** -node.values["skip"]) if len(inputs) == 2 else sums


def _add(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    left, right, shift = (node.values[name] for name in ("left", "right", "shift"))
    return (inputs[0] * 2.0 ** (left - shift)).add_(inputs[1], alpha=2.0 ** (right - shift))


def _modulate(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    factor, offset = (tensors[name][qp, :, None, None] for name in ("factor", "offset"))
    return torch.addcmul(offset, inputs[0], factor)


_COMPUTE: dict[str, Operation] = MOVES | {"conv": _conv, "add": _add, "modulate": _modulate}
