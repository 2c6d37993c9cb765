"""Networks of 8 bits through oneDNN's convolutions of bytes, which PyTorch brings: the samples of the plain form.

A convolution of bytes sums in 32 bits, multiplies the sum, as a float32, by a power of two, adds the bias and rounds to
even: with sums below 2^24 nothing of it rounds but the last step, as docs/integer.md asks. Tensors are stored as
unsigned bytes; those that can be negative lie 128 higher, which the library calls a zero point, and pads with.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.models.graph.nodes import MOVES, Node, same_padding

_MOVED_AS_BYTES = ("concat", "crop", "unshuffle", "shuffle")
_NATURAL = {(-128, 127): "none", (0, 127): "relu", (0, 255): "none"}
"""What saturates by itself where a result becomes a byte, and the activation that is needed in front of that."""


class ByteNetwork(FastNetwork):
    """A network of 8 bits whose convolutions of bytes are oneDNN's; everything else is computed as `FastNetwork` does.

    Raises ModelError for a network of 16 bits, and on a machine that has no exact ones; see `computes_bytes`.
    """

    def __init__(self, network: IntegerNetwork) -> None:
        if network.bits != 8 or not computes_bytes():
            raise ModelError("there are no exact convolutions of bytes on this machine, or for this network")
        super().__init__(network)
        self.last_use = {name: node.name for node in network.graph.nodes for name in node.inputs}
        # A crop is a view of its input, which may be needed longer than the input itself.
        self.viewed = {name for node in network.graph.nodes if node.op == "crop" for name in (node.name, *node.inputs)}
        self.layers: dict[tuple[str, int], _Layer] = {}
        for node in network.graph.nodes:
            self.zeros[node.name] = zero_point(node, [self.zeros[name] for name in node.inputs])

    def _compute(self, node: Node, inputs: list[Tensor], qp: int) -> Tensor:
        zero = self.zeros[node.name]
        if node.op in _MOVED_AS_BYTES and zero is not None:
            return MOVES[node.op](node, inputs, {}, qp)
        first = self.zeros[node.inputs[0]]
        if first is not None and node.op == "conv" and node.tensors["weight"].dtype == np.int8:
            return self._convolved(node, inputs, first)
        if first is not None and node.op == "modulate" and zero is not None:
            return self._layer(node, qp, first)(inputs[0], zero, natural(node) or "none")
        return super()._compute(node, inputs, qp)

    def _convolved(self, node: Node, inputs: list[Tensor], first: int) -> Tensor:
        layer, zero = self._layer(node, 0, first), self.zeros[node.name]
        if len(inputs) == 1 and zero is not None:
            return layer(inputs[0], zero, natural(node) or "none")
        skip = 2.0 ** -node.values.get("skip", 0)
        if zero == 128 and natural(node) == "none" and (added := self.zeros[node.inputs[1]]) is not None:
            # The sum may be written over the tensor that it is added to.
            x, added_to = node.inputs
            kept = x == added_to or self.last_use[added_to] != node.name or added_to in self.viewed
            sums = inputs[1].contiguous(memory_format=torch.channels_last)
            return layer.added(inputs[0], sums.clone() if kept and sums is inputs[1] else sums, skip, added)
        return self._ended(node, layer(inputs[0], None), inputs)

    def _layer(self, node: Node, qp: int, zero: int) -> "_Layer":
        """The convolution of a node, or that which modulates at a QP, packed when it is first asked for."""
        key = (node.name, qp)
        if key not in self.layers:
            self.layers[key] = _convolution(node, zero) if node.op == "conv" else _modulation(node, qp, zero)
        return self.layers[key]


@dataclass(frozen=True)
class _Layer:
    """A convolution of bytes with the zero point `zero`; `scales` (o) are what its sums are multiplied by."""

    packed: Tensor
    scales: Tensor
    bias: Tensor
    zero: int
    padding: tuple[int, int]
    groups: int

    @classmethod
    def of(
        cls, weight: Tensor, scales: Tensor, bias: Tensor, zero: int, padding: tuple[int, int], groups: int
    ) -> "_Layer":
        unit = [1, 1]
        packed = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, zero, unit, list(padding), unit, groups, None)
        return cls(packed, scales, bias, zero, padding, groups)

    def __call__(self, x: Tensor, zero: int | None, activation: str = "none") -> Tensor:
        """The sums as bytes with the zero point `zero`, or, with None, as float32, neither rounded nor saturated."""
        kind = torch.float32 if zero is None else torch.uint8
        made: Tensor = torch.ops.onednn.qconv2d_pointwise(
            *self._operands(x), self.bias, *self._shape(), 1.0, zero or 0, kind, activation, [], ""
        )
        return made

    def added(self, x: Tensor, sums: Tensor, scale: float, zero: int) -> Tensor:
        """The sums and `scale` times the bytes `sums` of zero point `zero`, as bytes of zero point 128."""
        made: Tensor = torch.ops.onednn.qconv2d_pointwise.binary(
            *self._operands(x),
            sums,
            self.bias,
            *self._shape(),
            1.0,
            128,
            torch.uint8,
            scale,
            zero,
            "sum",
            1.0,
            None,
            [],
            None,
        )
        return made

    def _operands(self, x: Tensor) -> tuple[Tensor, float, int, Tensor, Tensor, Tensor]:
        return x, 1.0, self.zero, self.packed, self.scales, torch.zeros(len(self.scales), dtype=torch.int32)

    def _shape(self) -> tuple[list[int], list[int], list[int], int]:
        return [1, 1], list(self.padding), [1, 1], self.groups


def _convolution(node: Node, zero: int) -> _Layer:
    weight, shift = node.tensors["weight"], node.tensors["shift"].astype(np.float64)
    scales = torch.from_numpy(2.0**-shift).float()
    bias = torch.from_numpy(node.tensors["bias"] * 2.0**-shift).float()
    padding = same_padding(weight) if node.values["pad"] else (0, 0)
    return _Layer.of(torch.from_numpy(weight), scales, bias, zero, padding, node.values["groups"])


def _modulation(node: Node, qp: int, zero: int) -> _Layer:
    """Factors of 16 bits as the scales of a convolution by channel whose weights are their signs: exact products."""
    factor, offset = (node.tensors[name][qp].astype(np.float64) for name in ("factor", "offset"))
    unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
    weight = torch.from_numpy(np.where(factor < 0, -1, 1).astype(np.int8))[:, None, None, None]
    scales = torch.from_numpy(np.abs(factor) * unit).float()
    # A factor of 0 is a weight of 0: a scale of 0 is none.
    weight[scales == 0] = 0
    scales[scales == 0] = 1
    return _Layer.of(weight, scales, torch.from_numpy(offset * unit).float(), zero, (0, 0), len(factor))


def natural(node: Node) -> str | None:
    return _NATURAL.get((node.values["low"], node.values["high"]))


def zero_point(node: Node, zeros: list[int | None]) -> int | None:
    """The zero point of a node's bytes; None where they are float32 tensors."""
    if node.op in _MOVED_AS_BYTES:
        return zeros[0] if len(set(zeros)) == 1 else None
    if "low" in node.values and natural(node) is not None:
        return 0 if node.values["high"] == 255 else 128
    return None


@functools.cache
def computes_bytes() -> bool:
    """Whether oneDNN convolves bytes here, and exactly: without VNNI it adds pairs of products in saturating 16 bits.

    Tried with the largest products that there are, in the forms that are used: dense, by channel, into a sum.
    """
    x = torch.full((1, 32, 6, 6), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    try:
        for sign, groups, size, zero in ((1, 1, 3, 0), (-1, 1, 1, 128), (1, 32, 3, 0), (-1, 32, 1, 128)):
            weight = torch.full((32, 32 // groups, size, size), 127 * sign, dtype=torch.int8)
            padding = (size // 2, size // 2)
            layer = _Layer.of(weight, torch.ones(32), torch.ones(32), zero, padding, groups)
            expected = F.conv2d(x.double() - zero, weight.double(), padding=padding, groups=groups) + 1
            if not torch.equal(layer(x, None).double(), expected):
                return False
        scaled = _Layer.of(weight, torch.full((32,), 2.0**-9), torch.zeros(32), 128, (0, 0), 32)
        halves = scaled.added(x, x.clone(memory_format=torch.preserve_format), 0.5, 128).double()
        expected = ((x.double() - 128) * weight.double().view(1, -1, 1, 1) / 512 + (x.double() - 128) / 2).round() + 128
        return torch.equal(halves, expected.clamp(0, 255))
    except (AttributeError, RuntimeError):  # a PyTorch without oneDNN, or whose private operators are others
        return False
