"""An integer network: a graph whose tensors are integers, and the proof that no sum in it can overflow.

What the operations compute is written in docs/integer.md; `codecnn.filtering.integer.reference` computes it plainly,
`codecnn.filtering.integer._fast` with PyTorch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from codecnn.errors import ModelError
from codecnn.models.graph import GRAPH_TENSORS, GRAPH_VALUES, Graph, Node

Ints = npt.NDArray[np.int64]

INT16 = (-(2**15), 2**15 - 1)
INT32_MAX = 2**31 - 1
MAX_SHIFT = 31
MIN_BIT_DEPTH, MAX_BIT_DEPTH = 8, 16

FLOAT32_EXACT = 2**24
"""All integers up to this magnitude are float32 numbers."""
WIDEST = {8: FLOAT32_EXACT, 16: INT32_MAX}
"""The largest magnitude of a sum, by a network's bits."""

TYPES: dict[str, tuple[type[np.generic], ...]] = {
    "weight": (np.int16,),
    "bias": (np.int32,),
    "factor": (np.int16,),
    "offset": (np.int32,),
    "gain": (np.int16,),
}
TYPES_8 = TYPES | {"weight": (np.int8, np.int16), "shift": (np.int8,)}
"""The types that each tensor of a node may have."""
_SATURATION = {"low": INT16, "high": INT16}
VALUES: dict[str, dict[str, tuple[int, int]]] = {
    "conv": {"shift": (0, MAX_SHIFT)} | _SATURATION,
    "modulate": {"shift": (0, MAX_SHIFT)} | _SATURATION,
    "add": {"left": (0, 15), "right": (0, 15), "shift": (0, MAX_SHIFT)} | _SATURATION,
    "output": {"fraction": (MAX_BIT_DEPTH, MAX_SHIFT + MIN_BIT_DEPTH)},
}
VALUES_8 = VALUES | {"conv": {"skip": (-MAX_SHIFT, MAX_SHIFT)} | _SATURATION, "modulate": _SATURATION}
"""Numbers that the integer form of an operation has, and the least and the largest that each may be."""
MAX_FINER = 15
"""By so many bits the tensor that is added to a convolution may be finer than the convolution's own sums."""
SHIFTED_BY_CHANNEL = ("conv", "modulate")
"""Operations of 8-bit networks whose shift is a tensor, one number a channel."""


@dataclass(frozen=True)
class Range:
    """The least and the largest value that a node's tensor can have, by channel.

    `widest` is the largest magnitude of any sum on the way to it, partial sums in whatever order and rounding included.
    """

    low: Ints
    high: Ints
    widest: int = 0


@dataclass(frozen=True)
class IntegerNetwork:
    """A proven integer network. Raises ModelError that names the node which is not one.

    `bit_depth` is that of the samples it was made for; pictures of fewer bits are shifted up to it, pictures of more
    are refused. `bits` is 16 or 8: networks of 8 have weights of 8 bits where their inputs have 8, shifts by channel,
    halves rounded to even, and no sum beyond FLOAT32_EXACT.
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
                raise ModelError(f"it makes {name} and does not take the plane rec_{name}")
        if type(self.bits) is not int or self.bits not in WIDEST:
            raise ModelError(f"networks have 8 or 16 bits, not {str(self.bits)[:20]}")
        ranges: dict[str, Range] = {}
        for node in self.graph.nodes:
            _check(node, self.bits)
            inputs = [ranges[name] for name in node.inputs]
            ranges[node.name] = found = node_range(node, inputs, self.bit_depth)
            if found.widest > WIDEST[self.bits]:
                beyond = "32 bits" if self.bits == 16 else "2^24"
                raise ModelError(f"a sum of node {node.name!r} can reach {found.widest}, beyond {beyond}")
        object.__setattr__(self, "ranges", ranges)

    @property
    def accumulator_bits(self) -> int:
        """Bits of a signed integer that holds every sum."""
        return max(found.widest for found in self.ranges.values()).bit_length() + 1


def node_range(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    """What the tensor of an integer node can be, from what its inputs can be."""
    return _RANGES[node.op](node, inputs, bit_depth)


def _check(node: Node, bits: int) -> None:
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
        raise ModelError(f"node {node.name!r} adds a tensor to a convolution, which networks of 8 bits do")
    for shift in [node.tensors[name] for name in by_channel]:
        channels = node.tensors["bias" if node.op == "conv" else "offset"].shape[-1]
        if shift.shape != (channels,) or int(shift.min()) < 0 or int(shift.max()) > MAX_SHIFT:
            raise ModelError(f"node {node.name!r} has shifts that are not {channels} numbers from 0 to {MAX_SHIFT}")
        left = shift.astype(int) - node.values.get("skip", 0)
        if len(node.inputs) == 2 and not -MAX_FINER <= left.min() <= left.max() <= MAX_SHIFT:
            raise ModelError(f"node {node.name!r} would add its second input shifted by {left.min()} to {left.max()}")


def finest(node: Node) -> Ints:
    """By channel the fractional bits of an 8-bit network's whole sums: their own, or those of what is added to them."""
    if "shift" in node.values:
        return np.array([node.values["shift"]])
    shift = node.tensors["shift"].astype(np.int64)
    return np.maximum(shift, node.values["skip"]) if node.op == "conv" and len(node.inputs) == 2 else shift


def half(shift: int) -> int:
    """What is added before a right shift by `shift`, so that it rounds to nearest, halves up."""
    return 1 << (shift - 1) if shift > 0 else 0


def _plane(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    middle = 1 << (bit_depth - 1)
    return Range(np.array([-middle]), np.array([middle - 1]))


def _saturated(node: Node, channels: int, least: Ints, most: Ints) -> Range:
    """The range of an operation that ends in rounding, a shift and saturation, from that of its sums."""
    # Saturation makes ranges independent of each other: without it those of a deep network would grow with its depth,
    # and no weights of use would be proven. What is added for rounding is positive, so it counts above alone.
    # To even, the sum as it is decides; a shift by channel is that of such a network.
    rounding = half(node.values["shift"]) if "shift" in node.values else 0
    widest = max(int(most.max()) + rounding, -int(least.min()))
    return Range(np.full(channels, node.values["low"]), np.full(channels, node.values["high"]), widest)


def by_weight(node: Node, channels: Ints) -> Ints:
    """What belongs to the input channel of each weight (o, i, h, w) of a convolution, as (o, i, 1, 1)."""
    outputs, inputs = node.tensors["weight"].shape[:2]
    groups = node.values["groups"]
    return channels.reshape(groups, inputs).repeat(outputs // groups, axis=0)[:, :, None, None]


def _with_zero(*bounds: Ints) -> tuple[Ints, Ints]:
    """The least and the largest that a term can be which lies between two bounds or is missing.

    It is missing from partial sums that have not come to it yet, and where a convolution is padded with zeros. So the
    negative terms together bound every partial sum from below, and the positive ones from above, in whatever order
    they are added.
    """
    return np.minimum(np.minimum(*bounds), 0), np.maximum(np.maximum(*bounds), 0)


def _conv(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    weight, bias = node.tensors["weight"].astype(np.int64), node.tensors["bias"].astype(np.int64)
    # A product is least or largest at an end of its input's range, at which one depends on the weight's sign.
    least, most = _with_zero(weight * by_weight(node, inputs[0].low), weight * by_weight(node, inputs[0].high))
    axes = (1, 2, 3)
    below, above = _with_zero(bias, bias)
    lowest, highest = least.sum(axis=axes) + below, most.sum(axis=axes) + above
    if len(inputs) == 2:
        own, other = finest(node) - node.tensors["shift"], finest(node) - node.values["skip"]
        below, above = _with_zero(inputs[1].low << other, inputs[1].high << other)
        # What is refused anyway is not to come back from beyond 64 bits as something small.
        lowest, highest = np.maximum(lowest, -INT32_MAX), np.minimum(highest, INT32_MAX)
        lowest, highest = (lowest << own) + below, (highest << own) + above
    return _saturated(node, len(bias), lowest, highest)


def _modulate(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    factor, offset = node.tensors["factor"].astype(np.int64), node.tensors["offset"].astype(np.int64)
    least, most = _with_zero(factor * inputs[0].low, factor * inputs[0].high)
    offset_least, offset_most = _with_zero(offset, offset)
    return _saturated(node, factor.shape[1], least + offset_least, most + offset_most)


def _add(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    left, right = (
        _with_zero(one.low << node.values[side], one.high << node.values[side])
        for one, side in zip(inputs, ("left", "right"), strict=True)
    )
    return _saturated(node, len(left[0]), left[0] + right[0], left[1] + right[1])


def _concat(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    return Range(np.concatenate([one.low for one in inputs]), np.concatenate([one.high for one in inputs]))


def _unshuffle(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    cells = node.values["factor"] ** 2
    return Range(inputs[0].low.repeat(cells), inputs[0].high.repeat(cells))


def _shuffle(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    cells = node.values["factor"] ** 2
    return Range(inputs[0].low.reshape(-1, cells).min(axis=1), inputs[0].high.reshape(-1, cells).max(axis=1))


def _output(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    """The change in samples; the least bit depth has the largest shift and so the largest rounding."""
    gain = np.abs(node.tensors["gain"].astype(np.int64)).max()
    residual = max(-int(inputs[0].low.min()), int(inputs[0].high.max()), 0)
    widest = residual * int(gain) + half(node.values["fraction"] - MIN_BIT_DEPTH)
    return Range(np.zeros(1, np.int64), np.full(1, 2**bit_depth - 1), widest)


def _same(node: Node, inputs: list[Range], bit_depth: int) -> Range:
    return Range(inputs[0].low, inputs[0].high)


_RANGES: dict[str, Callable[[Node, list[Range], int], Range]] = {
    "plane": _plane,
    "qp": _plane,
    "conv": _conv,
    "add": _add,
    "concat": _concat,
    "modulate": _modulate,
    "crop": _same,
    "edge": _same,
    "unshuffle": _unshuffle,
    "shuffle": _shuffle,
    "output": _output,
}


def gain_shift(node: Node, bit_depth: int) -> int:
    """The right shift that brings an output's products to samples of `bit_depth`."""
    return node.values["fraction"] - bit_depth


def check_bit_depth(network: IntegerNetwork, bit_depth: int) -> None:
    """Raise ModelError for samples of more bits than the network was made for."""
    if not MIN_BIT_DEPTH <= bit_depth <= network.bit_depth:
        raise ModelError(
            f"the integer network takes samples of {MIN_BIT_DEPTH} to {network.bit_depth} bit, and the picture has "
            f"{bit_depth}: export it again from a store of that bit depth"
        )
