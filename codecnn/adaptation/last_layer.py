"""The last layer of an integer network, and the network with an update of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codecnn.adaptation.update import Part, Update, read_update
from codecnn.errors import ModelError
from codecnn.filtering import NetworkFilter
from codecnn.filtering.integer import WIDEST, ExactFilter, IntegerNetwork, node_range
from codecnn.models.graph import Graph, Node

BIAS_BITS = {8: 6, 16: 12}
"""Bits by which the steps of the bias are larger than those of the weights, by the bits of the network."""


@dataclass(frozen=True)
class LastLayer:
    """The last convolution of an integer network for one output component.

    Attributes:
        output: The component: "y", "u" or "v".
        conv: The convolution.
        shuffle: Factor of the shuffle between convolution and output; 1 without.
        gain: The output node, which multiplies the convolution's result by a gain.
        bits: Bits of the network.
    """

    output: str
    conv: Node
    shuffle: int
    gain: Node
    bits: int

    @property
    def size(self) -> int:
        """Number of values of an update: weights of one output channel, and the bias."""
        return int(self.conv.tensors["weight"][0].size) + 1

    @property
    def shifts(self) -> list[int]:
        """Right shift of the sums of each output channel."""
        if "shift" in self.conv.values:
            return [int(self.conv.values["shift"])] * len(self.conv.tensors["weight"])
        return [int(shift) for shift in self.conv.tensors["shift"]]

    @property
    def bias_bits(self) -> int:
        """Bits by which the steps of the bias are larger than those of the weights."""
        return BIAS_BITS[self.bits]


def last_layers(filter_: NetworkFilter, name: str) -> list[LastLayer]:
    """Return the last layer of each output of a filter in integers.

    Args:
        filter_: The filter.
        name: Name of its weights, for error messages.

    Raises:
        ModelError: The filter is not in integers, or an output is not a convolution of one tensor.
    """
    if not isinstance(filter_, ExactFilter):
        raise ModelError(
            f"{name} computes in float, and only networks in integers are adapted, because their pictures are the same "
            "on all machines: export them with codecnn export --format int8"
        )
    network = filter_.network
    nodes = {node.name: node for node in network.graph.nodes}
    layers = []
    for output in filter_.outputs:
        node, factor = nodes[nodes[output].inputs[0]], 1
        if node.op == "shuffle":
            factor, node = int(node.values["factor"]), nodes[node.inputs[0]]
        whole = node.op == "conv" and len(node.inputs) == 1
        if not (whole and node.values["groups"] == 1 and node.values["pad"]):
            raise ModelError(f"{name} cannot be adapted: its last layer for {output} is no padded convolution")
        layers.append(LastLayer(output, node, factor, nodes[output], network.bits))
    return layers


def adapted(filter_: NetworkFilter, update: Update, name: str) -> ExactFilter:
    """Return a filter in integers with an update.

    Args:
        filter_: The filter.
        update: The update.
        name: Name of the weights, for error messages.

    Raises:
        ModelError: The filter cannot be adapted, or the update does not fit: its values are too fine, or a weight or
            a sum could overflow.
    """
    layers = last_layers(filter_, name)
    assert isinstance(filter_, ExactFilter)
    if len(update.parts) != len(layers):
        raise ModelError(f"the update has {len(update.parts)} parts, and {name} has {len(layers)} outputs")
    try:
        network = _updated(filter_.network, layers, update.parts)
    except ModelError as error:
        raise ModelError(f"the update does not fit {name}: {error}") from error
    return ExactFilter(network, device=filter_.device, tile=filter_.tile, memory=filter_.memory, card=filter_.card)


def apply_text(filter_: NetworkFilter, text: str, name: str) -> ExactFilter:
    """Return a filter in integers with an update in its text form.

    Args:
        filter_: The filter, loaded from a file.
        text: The text.
        name: Name of the weights, for error messages.

    Raises:
        FormatError: The text is damaged, or the update is of other weights.
        ModelError: The filter cannot be adapted, or the update does not fit.
    """
    sizes = [layer.size for layer in last_layers(filter_, name)]
    return adapted(filter_, read_update(text, sizes, filter_.card.sha256 or ""), name)


def _updated(network: IntegerNetwork, layers: Sequence[LastLayer], parts: Sequence[Part | None]) -> IntegerNetwork:
    changed = {}
    for layer, part in zip(layers, parts, strict=True):
        if part is not None:
            changed[layer.conv.name] = _fitting(network, _updated_conv(layer, part))
    nodes = tuple(changed.get(node.name, node) for node in network.graph.nodes)
    return IntegerNetwork(Graph(nodes), network.bit_depth, network.bits)


def _fitting(network: IntegerNetwork, node: Node) -> Node:
    """Halve the weights and biases of a convolution, halves to even, as often as its sums need to fit.

    Networks have the finest weights that their sums allow, so that larger weights must be coarser.
    """
    inputs = [network.ranges[name] for name in node.inputs]
    while node_range(node, inputs, network.bit_depth).widest > WIDEST[network.bits]:
        tensors, values = dict(node.tensors), dict(node.values)
        for name in ("weight", "bias"):
            tensors[name] = np.rint(tensors[name] / 2).astype(tensors[name].dtype)
        if "shift" in values:
            values["shift"] -= 1
            lowest = values["shift"]
        else:
            tensors["shift"] = tensors["shift"] - np.int8(1)
            lowest = int(tensors["shift"].min())
        if lowest < 0:
            raise ModelError(f"the sums of {node.name} could overflow")
        node = replace(node, tensors=tensors, values=values)
    return node


def _updated_conv(layer: LastLayer, part: Part) -> Node:
    """Add the values of a part to the weights and biases of a convolution."""
    node = layer.conv
    if len(part.values) != layer.size:
        raise ModelError(f"{len(part.values)} values for {layer.output} instead of {layer.size}")
    if part.fraction > min(layer.shifts):
        raise ModelError(f"its steps for {layer.output} are finer than the weights")
    shape = node.tensors["weight"][0].shape
    change = np.array(part.values[:-1], np.int64).reshape(shape)
    steps = np.array([1 << (shift - part.fraction) for shift in layer.shifts], np.int64)
    weight = node.tensors["weight"].astype(np.int64) + change * steps.reshape(-1, *[1] * len(shape))
    bias = node.tensors["bias"].astype(np.int64) + (part.values[-1] << layer.bias_bits) * steps
    for name, tensor, limits in (("weight", weight, np.iinfo(np.int16)), ("bias", bias, np.iinfo(np.int32))):
        if tensor.min() < limits.min or tensor.max() > limits.max:
            raise ModelError(f"a {name} for {layer.output} reaches {np.abs(tensor).max()}")
    kind = node.tensors["weight"].dtype
    if np.abs(weight).max() > np.iinfo(kind).max:
        kind = np.dtype(np.int16)
    tensors = {**node.tensors, "weight": weight.astype(kind), "bias": bias.astype(np.int32)}
    return replace(node, tensors=tensors)
