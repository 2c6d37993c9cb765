"""Integer networks, and the proof that none of their sums can overflow.

An `IntegerNetwork` is a graph whose tensors are integers. Its construction checks the types and values of every node
and derives, node by node, the range that each tensor can have for any picture (`node_range`). If a partial sum could
leave the accumulator, the network is refused. docs/explanation/integers.md specifies what the operations compute;
`codecnn.filtering.integer.reference` computes them in plain NumPy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import ModelError
from codecnn.models.graph import GRAPH_TENSORS, GRAPH_VALUES, Graph, Node

Ints = npt.NDArray[np.int64]

INT16 = (-(2**15), 2**15 - 1)
INT32_MAX = 2**31 - 1
MAX_SHIFT = 31
"""Largest right shift of a sum."""
MIN_BIT_DEPTH, MAX_BIT_DEPTH = 8, 16
"""Bit depths of the samples that networks can take."""

FLOAT32_EXACT = 2**24
"""All integers up to this magnitude are float32 numbers."""
WIDEST = {8: FLOAT32_EXACT, 16: INT32_MAX}
"""Largest allowed magnitude of a sum, by the bits of the network."""

TYPES: dict[str, tuple[type[np.generic], ...]] = {
    "weight": (np.int16,),
    "bias": (np.int32,),
    "factor": (np.int16,),
    "offset": (np.int32,),
    "gain": (np.int16,),
}
"""Types that each tensor of a node may have in networks of 16 bits."""
TYPES_8 = TYPES | {"weight": (np.int8, np.int16), "shift": (np.int8,)}
"""Types that each tensor of a node may have in networks of 8 bits."""
_SATURATION = {"low": INT16, "high": INT16}
VALUES: dict[str, dict[str, tuple[int, int]]] = {
    "conv": {"shift": (0, MAX_SHIFT)} | _SATURATION,
    "modulate": {"shift": (0, MAX_SHIFT)} | _SATURATION,
    "add": {"left": (0, 15), "right": (0, 15), "shift": (0, MAX_SHIFT)} | _SATURATION,
    "output": {"fraction": (MAX_BIT_DEPTH, MAX_SHIFT + MIN_BIT_DEPTH)},
}
"""Values that the integer form of each operation has, with their smallest and largest value; 16 bits."""
VALUES_8 = VALUES | {"conv": {"skip": (-MAX_SHIFT, MAX_SHIFT)} | _SATURATION, "modulate": _SATURATION}
"""The same for networks of 8 bits."""
MAX_FINER = 15
"""Bits by which the tensor that is added to a convolution may be finer than the convolution's own sums."""
SHIFTED_BY_CHANNEL = ("conv", "modulate")
"""Operations of 8-bit networks whose shift is a tensor with one number for each channel."""


@dataclass(frozen=True)
class Range:
    """Values that a node's tensor can have.

    Attributes:
        low: Smallest value of each channel.
        high: Largest value of each channel.
        widest: Largest magnitude of any sum that the node computes, including partial sums in any order and rounding.
    """

    low: Ints
    high: Ints
    widest: int = 0


@dataclass(frozen=True)
class IntegerNetwork:
    """A graph of integer operations whose sums are proven not to overflow.

    Networks of 8 bits have weights of 8 bits where their inputs have 8 bits, one shift for each channel, halves rounded
    to even, and no sum beyond `FLOAT32_EXACT`. Networks of 16 bits have weights of 16 bits, one shift for each node,
    halves rounded up, and sums of up to 32 bits.

    Attributes:
        graph: The operations, with integer tensors.
        bit_depth: Largest bit depth of the samples. Samples of fewer bits are shifted up; more bits are refused.
        bits: 8 or 16.
        ranges: Range of each node's tensor, by name.

    Raises:
        ModelError: A node is not valid, or one of its sums could overflow; the message names the node.
    """

    graph: Graph
    bit_depth: int
    bits: int = 16
    ranges: Mapping[str, Range] = field(init=False)

    def __post_init__(self) -> None:
        if type(self.bit_depth) is not int or not MIN_BIT_DEPTH <= self.bit_depth <= MAX_BIT_DEPTH:
            raise ModelError(f"bit depth {str(self.bit_depth)[:20]} is not {MIN_BIT_DEPTH} to {MAX_BIT_DEPTH}")
        for name in self.graph.outputs:
            if f"rec_{name}" not in self.graph.planes:
                raise ModelError(f"the network outputs {name} and does not take the plane rec_{name}")
        if type(self.bits) is not int or self.bits not in WIDEST:
            raise ModelError(f"integer networks have 8 or 16 bits, not {str(self.bits)[:20]}")
        ranges: dict[str, Range] = {}
        for node in self.graph.nodes:
            _check_node(node, self.bits)
            inputs = [ranges[name] for name in node.inputs]
            ranges[node.name] = node_range(node, inputs, self.bit_depth)
            widest = ranges[node.name].widest
            if widest > WIDEST[self.bits]:
                limit = "32 bits" if self.bits == 16 else "2^24"
                raise ModelError(f"a sum of node {node.name!r} can reach {widest}, beyond {limit}")
        object.__setattr__(self, "ranges", ranges)

    @property
    def accumulator_bits(self) -> int:
        """Bits of a signed integer that holds every sum."""
        return max(interval.widest for interval in self.ranges.values()).bit_length() + 1


def node_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    """Derive the range of a node's tensor from the ranges of its inputs.

    Args:
        node: An integer node.
        inputs: Ranges of its inputs.
        bit_depth: Bit depth of the network.
    """
    return _RANGES[node.op](node, inputs, bit_depth)


def _check_node(node: Node, bits: int) -> None:
    """Raise ModelError if a node has values or tensors that its integer form cannot have."""
    allowed, types = (VALUES, TYPES) if bits == 16 else (VALUES_8, TYPES_8)
    for name, (least, most) in allowed.get(node.op, {}).items():
        value = node.values.get(name)
        if type(value) is not int or not least <= value <= most:
            raise ModelError(f"node {node.name!r} has {name} {str(value)[:30]}, not {least} to {most}")
    unknown = set(node.values) - set(allowed.get(node.op, ())) - set(GRAPH_VALUES.get(node.op, ()))
    by_channel = {"shift"} if bits == 8 and node.op in SHIFTED_BY_CHANNEL else set()
    if unknown or set(node.tensors) != set(GRAPH_TENSORS.get(node.op, ())) | by_channel:
        raise ModelError(f"node {node.name!r} ({node.op}) has values or tensors that its operation does not have")
    if "low" in node.values and node.values["low"] > node.values["high"]:
        raise ModelError(f"node {node.name!r} cannot be between {node.values['low']} and {node.values['high']}")
    for name, tensor in node.tensors.items():
        if tensor.dtype not in types.get(name, ()):
            raise ModelError(f"node {node.name!r} has {name[:30]} of type {tensor.dtype}")
    if bits == 16 and node.op == "conv" and len(node.inputs) != 1:
        raise ModelError(f"node {node.name!r} adds a tensor to a convolution, which only networks of 8 bits can do")
    for shift in [node.tensors[name] for name in by_channel]:
        channels = node.tensors["bias" if node.op == "conv" else "offset"].shape[-1]
        if shift.shape != (channels,) or int(shift.min()) < 0 or int(shift.max()) > MAX_SHIFT:
            raise ModelError(f"node {node.name!r} has shifts that are not {channels} numbers from 0 to {MAX_SHIFT}")
        left = shift.astype(int) - node.values.get("skip", 0)
        if len(node.inputs) == 2 and not -MAX_FINER <= left.min() <= left.max() <= MAX_SHIFT:
            raise ModelError(f"node {node.name!r} would add its second input shifted by {left.min()} to {left.max()}")


def sum_fractions(node: Node) -> Ints:
    """Return the fractional bits of a node's sums before rounding, by channel.

    In an 8-bit network these are the bits of the shift, or of the added tensor if that is finer.
    """
    if "shift" in node.values:
        return np.array([node.values["shift"]])
    shift = node.tensors["shift"].astype(np.int64)
    return np.maximum(shift, node.values["skip"]) if node.op == "conv" and len(node.inputs) == 2 else shift


def half(shift: int) -> int:
    """Return the number to add before a right shift by `shift` so that it rounds to nearest, halves up."""
    return 1 << (shift - 1) if shift > 0 else 0


def by_weight(node: Node, channels: Ints) -> Ints:
    """Repeat a value of each input channel for each weight (o, i, h, w) of a convolution, as (o, i, 1, 1)."""
    outputs, inputs = node.tensors["weight"].shape[:2]
    groups = node.values["groups"]
    return channels.reshape(groups, inputs).repeat(outputs // groups, axis=0)[:, :, None, None]


def gain_shift(node: Node, bit_depth: int) -> int:
    """Return the right shift that scales an output's products to samples of `bit_depth`."""
    return node.values["fraction"] - bit_depth


def check_bit_depth(network: IntegerNetwork, bit_depth: int) -> None:
    """Raise ModelError if samples have more bits than a network takes."""
    if not MIN_BIT_DEPTH <= bit_depth <= network.bit_depth:
        raise ModelError(
            f"the integer network takes samples of {MIN_BIT_DEPTH} to {network.bit_depth} bit, and the picture has "
            f"{bit_depth}: compute it in float (--float), or export it again from a store of that bit depth"
        )


def _plane_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    middle = 1 << (bit_depth - 1)
    return Range(np.array([-middle]), np.array([middle - 1]))


def _saturated_range(node: Node, channels: int, least: Ints, most: Ints) -> Range:
    """Return the range of a node that rounds, shifts and saturates its sums, from the range of the sums."""
    # Saturation makes the ranges of successive nodes independent. Without it they would grow with the depth, and useful
    # weights could not be proven. The rounding offset is positive, so that it counts only above. Rounding to even adds
    # nothing to the sum; networks with a shift for each channel round so.
    rounding = half(node.values["shift"]) if "shift" in node.values else 0
    widest = max(int(most.max()) + rounding, -int(least.min()))
    return Range(np.full(channels, node.values["low"]), np.full(channels, node.values["high"]), widest)


def _with_zero(*bounds: Ints) -> tuple[Ints, Ints]:
    """Return the smallest and largest value of a term that lies between two bounds or is missing.

    A term is missing from a partial sum that has not reached it yet, and where a convolution is padded with zeros. The
    sum of all negative bounds therefore bounds every partial sum from below, and the sum of all positive bounds from
    above, in whatever order the terms are added.
    """
    return np.minimum(np.minimum(*bounds), 0), np.maximum(np.maximum(*bounds), 0)


def _conv_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    weight, bias = node.tensors["weight"].astype(np.int64), node.tensors["bias"].astype(np.int64)
    # A product is smallest or largest at an end of its input's range; the sign of the weight says at which.
    least, most = _with_zero(weight * by_weight(node, inputs[0].low), weight * by_weight(node, inputs[0].high))
    axes = (1, 2, 3)
    below, above = _with_zero(bias, bias)
    lowest, highest = least.sum(axis=axes) + below, most.sum(axis=axes) + above
    if len(inputs) == 2:
        sum_shift = sum_fractions(node) - node.tensors["shift"]
        added_shift = sum_fractions(node) - node.values["skip"]
        below, above = _with_zero(inputs[1].low << added_shift, inputs[1].high << added_shift)
        # Sums that are refused anyway are clipped, so that the shift does not wrap them around in 64 bits.
        lowest, highest = np.maximum(lowest, -INT32_MAX), np.minimum(highest, INT32_MAX)
        lowest, highest = (lowest << sum_shift) + below, (highest << sum_shift) + above
    return _saturated_range(node, len(bias), lowest, highest)


def _modulate_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    factor, offset = node.tensors["factor"].astype(np.int64), node.tensors["offset"].astype(np.int64)
    least, most = _with_zero(factor * inputs[0].low, factor * inputs[0].high)
    offset_least, offset_most = _with_zero(offset, offset)
    return _saturated_range(node, factor.shape[1], least + offset_least, most + offset_most)


def _add_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    left, right = (
        _with_zero(term.low << node.values[side], term.high << node.values[side])
        for term, side in zip(inputs, ("left", "right"), strict=True)
    )
    return _saturated_range(node, len(left[0]), left[0] + right[0], left[1] + right[1])


def _concat_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    return Range(np.concatenate([part.low for part in inputs]), np.concatenate([part.high for part in inputs]))


def _unshuffle_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    cells = node.values["factor"] ** 2
    return Range(inputs[0].low.repeat(cells), inputs[0].high.repeat(cells))


def _shuffle_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    cells = node.values["factor"] ** 2
    return Range(inputs[0].low.reshape(-1, cells).min(axis=1), inputs[0].high.reshape(-1, cells).max(axis=1))


def _output_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    """Return the range of an output; the smallest bit depth has the largest shift and so the largest rounding."""
    gain = np.abs(node.tensors["gain"].astype(np.int64)).max()
    residual = max(-int(inputs[0].low.min()), int(inputs[0].high.max()), 0)
    widest = residual * int(gain) + half(node.values["fraction"] - MIN_BIT_DEPTH)
    return Range(np.zeros(1, np.int64), np.full(1, 2**bit_depth - 1), widest)


def _same_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    return Range(inputs[0].low, inputs[0].high)


_RANGES: dict[str, Callable[[Node, list[Range], int], Range]] = {
    "plane": _plane_range,
    "qp": _plane_range,
    "conv": _conv_range,
    "add": _add_range,
    "concat": _concat_range,
    "modulate": _modulate_range,
    "crop": _same_range,
    "edge": _same_range,
    "unshuffle": _unshuffle_range,
    "shuffle": _shuffle_range,
    "output": _output_range,
}
