"""Networks of 8 bits: which tensors have how many, how fine each is, and what becomes of the weights.

A tensor's integers are its real values times a scale by channel, any positive number: weights take the ratio of the
scales on both sides of them along, so that only powers of two are left to divide by. Where one tensor is added to
another, both scales differ by a power of two.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.filtering.integer._network import FLOAT32_EXACT, MAX_SHIFT, IntegerNetwork
from codecnn.models.graph.nodes import Array, Graph, Node

SIGNED, UNSIGNED, POSITIVE, WIDE = (-128, 127), (0, 255), (0, 127), (-4095, 4095)
MAX_FRACTION = 28
FEW_CHANNELS = 4
"""What a convolution makes of planes in so few channels is no feature yet: it keeps more bits."""
MOVES = ("concat", "crop", "edge", "unshuffle", "shuffle")
Scales = Mapping[str, Array]
"""Real scale by channel of each convolution's and modulation's tensor."""


def fused(graph: Graph) -> Graph:
    """The graph in which a convolution takes along the sum that it is part of: it is rounded once."""
    users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    by_name = {node.name: node for node in graph.nodes}
    merged: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "add":
            parts = [by_name[name] for name in node.inputs if len(users[name]) == 1]
            sums = [one for one in parts if one.op == "conv" and len(one.inputs) == 1 and not one.values["relu"]]
            if not sums:
                raise ModelError(f"node {node.name!r} adds no convolution, and has no form of 8 bits")
            (other,) = (name for name in node.inputs if name != sums[-1].name)
            merged[node.name] = replace(sums[-1], name=node.name, inputs=(sums[-1].inputs[0], other))
            by_name[sums[-1].name] = merged[node.name]
    gone = {name for name, node in by_name.items() if node.name != name}
    return Graph(tuple(merged.get(node.name, node) for node in graph.nodes if node.name not in gone))


def spans(graph: Graph) -> dict[str, tuple[int, int]]:
    """The least and the largest integer of each convolution's and modulation's tensor; `graph` is a fused one."""
    users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    by_name = {node.name: node for node in graph.nodes}

    def beyond(name: str) -> set[str]:
        """The operations that take a tensor, whatever moves it on the way."""
        return {op for node in users[name] for op in (beyond(node.name) if node.op in MOVES else {node.op})}

    def before(name: str) -> list[Node]:
        """The nodes that make what a tensor consists of."""
        node = by_name[name]
        return [one for part in node.inputs for one in before(part)] if node.op in MOVES else [node]

    def joined(name: str) -> list[Node]:
        """All that a tensor is concatenated with."""
        found: list[Node] = []
        for node in users[name]:
            found += before(node.name) if node.op == "concat" else []
            found += joined(node.name) if node.op in MOVES else []
        return found

    made: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if node.op not in ("conv", "modulate"):
            continue
        of_planes = all(one.op in ("plane", "qp") for one in before(node.inputs[0]))
        few = graph.extents[node.name].channels <= FEW_CHANNELS
        if beyond(node.name) == {"output"} or (of_planes and few and not node.values.get("relu")):
            made[node.name] = WIDE
        elif not node.values.get("relu"):
            made[node.name] = SIGNED
        else:
            # Bytes of one tensor have one zero point: beside signed channels a ReLU's have half of the range.
            alone = all(one.values.get("relu") for one in joined(node.name))
            made[node.name] = UNSIGNED if alone else POSITIVE
    return made


def linked(graph: Graph) -> dict[str, str]:
    """For each convolution that adds a tensor, the node whose scale that tensor has."""
    by_name = {node.name: node for node in graph.nodes}
    found = {}
    for node in graph.nodes:
        if node.op == "conv" and len(node.inputs) == 2:
            source = by_name[node.inputs[1]]
            while source.op in ("crop", "edge"):
                source = by_name[source.inputs[0]]
            if source.op not in ("conv", "modulate"):
                raise ModelError(f"node {node.name!r} adds a tensor of several scales, and has no form of 8 bits")
            found[node.name] = source.name
    return found


def moved(node: Node, inputs: list[Array]) -> Array:
    """What belongs to the channels of a node that moves samples, such as their scales, from that of its inputs'."""
    match node.op:
        case "concat":
            return np.concatenate(inputs)
        case "unshuffle":
            return inputs[0].repeat(node.values["factor"] ** 2)
        case "shuffle":
            # Its channels become one another's neighbours: one scale holds for all.
            return inputs[0].reshape(-1, node.values["factor"] ** 2)[:, 0]
        case _:
            return inputs[0]


def all_scales(graph: Graph, scales: Scales, bit_depth: int) -> dict[str, Array]:
    """The scales of every node's tensor.

    Of planes they are 2^(bit_depth - 2), since 4·(x / 2^b - 1/2) is (x - 2^(b-1)) / 2^(b-2).
    """
    found: dict[str, Array] = {}
    for node in graph.nodes:
        if node.op in ("plane", "qp"):
            found[node.name] = np.array([2.0 ** (bit_depth - 2)])
        elif node.name in scales:
            found[node.name] = scales[node.name]
        elif node.op != "output":
            found[node.name] = moved(node, [found[name] for name in node.inputs])
    return found


def all_spans(graph: Graph, bit_depth: int) -> dict[str, tuple[Array, Array]]:
    """The least and the largest integer of every node's tensor, by channel."""
    own, middle = spans(graph), 1 << (bit_depth - 1)
    found: dict[str, tuple[Array, Array]] = {}
    for node in graph.nodes:
        if node.op in ("plane", "qp"):
            found[node.name] = (np.array([-middle]), np.array([middle - 1]))
        elif node.name in own:
            found[node.name] = (
                np.full(graph.extents[node.name].channels, own[node.name][0]),
                np.full(graph.extents[node.name].channels, own[node.name][1]),
            )
        elif node.op != "output":
            low, high = ([found[name][end] for name in node.inputs] for end in (0, 1))
            found[node.name] = (moved(node, low), moved(node, high))
    return found


@dataclass(frozen=True)
class Layer:
    """What stands around a convolution or modulation, ready for its weights.

    ratio       scale of each output over that of each input, shaped as the weights
    outputs     scale of each output
    low, high   of what each weight multiplies
    skip        the added tensor's scale is the output's times 2^skip; `added` bounds its magnitude
    most        the largest magnitude of a weight
    """

    node: Node
    ratio: Tensor
    outputs: Tensor
    low: Tensor
    high: Tensor
    most: int
    skip: int
    added: int

    def integers(
        self, weight: Tensor, bias: Tensor, nearest: Callable[[Tensor], Tensor] = torch.round
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (o, ...), biases and shifts (o,), as whole numbers: the finest with which no sum leaves float32's.

        Of a modulation, (c, 64) factors and offsets. Raises ModelError for weights that no shift fits.
        """
        scaled = weight * self.ratio
        offset = bias * self.outputs.reshape(-1, *[1] * (bias.dim() - 1))
        with torch.no_grad():
            shift = self._shifts(scaled, offset)
        unit = torch.exp2(shift).to(scaled)
        return (
            nearest(scaled * unit.reshape(-1, *[1] * (scaled.dim() - 1))),
            nearest(offset * unit.reshape(-1, *[1] * (offset.dim() - 1))),
            shift,
        )

    def _shifts(self, scaled: Tensor, offset: Tensor) -> Tensor:
        scaled, offset = scaled.detach().double(), offset.detach().double()
        largest = scaled.abs().flatten(1).amax(1)
        if not bool(torch.isfinite(largest).all()):
            raise ModelError("the network's weights are not finite numbers")
        least, most = max(self.skip, 0), MAX_SHIFT // 2 + min(self.skip, 0)
        shift = torch.log2((self.most + 0.49) / largest.clamp(min=1e-30)).floor().clamp(max=most)
        for _ in range(MAX_SHIFT):
            over = self._widest(scaled, offset, shift) > FLOAT32_EXACT
            if not bool(over.any()):
                break
            shift -= over.to(shift)
        if bool((shift < least).any()):
            raise ModelError(f"node {self.node.name!r} has weights that no power-of-two scale fits")
        return shift

    def _widest(self, scaled: Tensor, offset: Tensor, shift: Tensor) -> Tensor:
        """The largest magnitude of each output's sums, by the proof of `IntegerNetwork`."""
        by_output = torch.exp2(shift).reshape(-1, *[1] * (scaled.dim() - 1))
        whole, added = (scaled * by_output).round(), (offset * by_output.reshape(-1, *[1] * (offset.dim() - 1))).round()
        up = whole.clamp(min=0) * self.high - whole.clamp(max=0) * -self.low
        down = whole.clamp(min=0) * -self.low - whole.clamp(max=0) * self.high
        if self.node.op == "conv":
            up, down = up.flatten(1).sum(1), down.flatten(1).sum(1)
        both = torch.maximum(up + added.clamp(min=0), down - added.clamp(max=0))
        if both.dim() > 1:
            both = both.flatten(1).amax(1)
        return both + self.added * torch.exp2(shift - self.skip)


def layer_of(
    node: Node,
    scales: Mapping[str, Array],
    limits: Mapping[str, tuple[Array, Array]],
    device: str | torch.device = "cpu",
) -> Layer:
    """The surroundings of a convolution or modulation of a fused graph."""
    first, outputs = node.inputs[0], scales[node.name]
    inputs, low, high = scales[first], *limits[first]
    skip, added = 0, 0
    if len(node.inputs) == 2:
        skip = round(math.log2(scales[node.inputs[1]][0] / outputs[0]))
        added = int(max(np.abs(limits[node.inputs[1]][0]).max(), limits[node.inputs[1]][1].max()))
    if node.op == "conv":
        groups, shape = node.values["groups"], node.tensors["weight"].shape
        inputs, low, high = (
            one.reshape(groups, shape[1]).repeat(shape[0] // groups, axis=0)[:, :, None, None]
            for one in (inputs, low, high)
        )
        ratio = outputs[:, None, None, None] / inputs
        most = 127 if int(low.min()) >= -128 and int(high.max()) <= 255 else 2**15 - 1
    else:
        ratio, most = (outputs / inputs)[:, None], 2**15 - 1
        low, high = low[:, None], high[:, None]

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.array(array, np.float64)).to(device)

    return Layer(node, tensor(ratio), tensor(outputs), tensor(low), tensor(high), most, skip, added)


def as_integers(graph: Graph, scales: Scales, bit_depth: int) -> IntegerNetwork:
    """The network of 8 bits of a fused graph, its tensors real numbers, for samples of up to `bit_depth` bits.

    Raises ModelError for weights that no shift fits.
    """
    known, limits, own = all_scales(graph, scales, bit_depth), all_spans(graph, bit_depth), spans(graph)
    nodes = []
    for node in graph.nodes:
        if node.name in own:
            layer, (low, high) = layer_of(node, known, limits), own[node.name]
            names = ("weight", "bias") if node.op == "conv" else ("factor", "offset")
            real = [torch.from_numpy(np.asarray(node.tensors[name], np.float64)) for name in names]
            if node.op == "modulate":
                real = [table.T for table in real]
            weight, bias, shift = (tensor.numpy() for tensor in layer.integers(real[0], real[1]))
            values = {"low": low, "high": high}
            if node.op == "conv":
                values |= {"pad": node.values["pad"], "groups": node.values["groups"], "skip": layer.skip}
                kind = np.int8 if layer.most == 127 else np.int16
                tensors = {"weight": weight.astype(kind), "bias": bias.astype(np.int32)}
            else:
                tensors = {"factor": weight.T.astype(np.int16), "offset": bias.T.astype(np.int32)}
            tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
            nodes.append(replace(node, values=values, tensors=tensors | {"shift": shift.astype(np.int8)}))
        elif node.op == "output":
            nodes.append(_output(node, known[node.inputs[0]], limits[node.inputs[0]]))
        else:
            nodes.append(node)
    return IntegerNetwork(Graph(tuple(nodes)), bit_depth, 8)


def quantise_eight(graph: Graph, magnitudes: Mapping[str, float], bit_depth: int) -> IntegerNetwork:
    """The network of 8 bits of a graph whose tensors become so large: one scale a tensor, without saturation.

    For comparisons and timing, as `quantise`; `integer_network` looks for better scales. Raises as `as_integers` does.
    """
    joined = fused(graph)
    octaves = {name: math.log2(high / magnitudes[name]) for name, (_, high) in spans(joined).items()}
    for name, source in linked(joined).items():
        octaves[name] = octaves[source] + round(octaves[name] - octaves[source])
    scales = {name: np.full(joined.extents[name].channels, 2.0**octave) for name, octave in octaves.items()}
    return as_integers(joined, scales, bit_depth)


def _output(node: Node, scale: Array, limits: tuple[Array, Array]) -> Node:
    real = node.tensors["gain"] / scale[0]
    largest, residual = float(np.abs(real).max()), float(max(-limits[0].min(), limits[1].max()))
    # Half of what the sum may be, so that rounding is within it whatever the bit depth.
    most = min((2**15 - 1) / largest, FLOAT32_EXACT / 2 / (residual * largest)) if largest > 0 else 2.0**20
    fraction = min(math.floor(math.log2(most)), MAX_FRACTION)
    values = {"crop": node.values["crop"], "fraction": fraction}
    return replace(node, values=values, tensors={"gain": np.rint(real * 2.0**fraction).astype(np.int16)})
