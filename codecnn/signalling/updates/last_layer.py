"""The last layer of a network in integers or in float32, and the network with an update of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from codecnn.base.errors import ModelError
from codecnn.base.files import sha256_json
from codecnn.filtering import FilterOptions, FloatFilter, GraphFilter, NetworkFilter
from codecnn.filtering.integer import WIDEST, ExactFilter, IntegerNetwork, node_range
from codecnn.models import build_graph
from codecnn.models.graph import Graph, Node
from codecnn.signalling.updates.files import read_update_file
from codecnn.signalling.updates.update import MAX_FRACTION, Part, Update, read_update

Floats = npt.NDArray[np.float64]

BIAS_BITS = {None: 0, 8: 6, 16: 12}
"""Bits by which the steps of the bias are larger than those of the weights, by the bits of the network."""


@dataclass(frozen=True)
class LastLayer:
    """The last convolution of a network for one output component.

    Attributes:
        output: The component: "y", "u" or "v".
        conv: The convolution.
        shuffle: Factor of the shuffle between convolution and output; 1 without.
        gain: The output node, which multiplies the convolution's result by a gain.
        bits: Bits of the network; None for a network in float.
    """

    output: str
    conv: Node
    shuffle: int
    gain: Node
    bits: int | None

    @property
    def size(self) -> int:
        """Number of values of an update: weights of one output channel, and the bias."""
        return int(self.conv.tensors["weight"][0].size) + 1

    @property
    def shifts(self) -> list[int]:
        """Right shift of the sums of each output channel; 0 in float."""
        if self.bits is None:
            return [0] * len(self.conv.tensors["weight"])
        if "shift" in self.conv.values:
            return [int(self.conv.values["shift"])] * len(self.conv.tensors["weight"])
        return [int(shift) for shift in self.conv.tensors["shift"]]

    @property
    def bias_bits(self) -> int:
        """Bits by which the steps of the bias are larger than those of the weights."""
        return BIAS_BITS[self.bits]

    @property
    def finest(self) -> int:
        """Largest `fraction` of an update."""
        return MAX_FRACTION if self.bits is None else min(self.shifts)

    @property
    def real_weights(self) -> Floats:
        """Weights in real numbers, shape (o, i, h, w)."""
        weights: Floats = self.conv.tensors["weight"] * 2.0 ** -np.array(self.shifts).reshape(-1, 1, 1, 1)
        return weights

    def sample_scale(self, qp: int, bit_depth: int) -> float:
        """Return the factor from results of the convolution to samples."""
        gain = self.gain.tensors["gain"]
        fraction = 0 if self.bits is None else self.gain.values["fraction"]
        return float(gain[qp if len(gain) > 1 else 0]) * 2.0 ** (bit_depth - fraction)


def _graph(filter_: NetworkFilter, name: str) -> tuple[Graph, int | None]:
    """Return the graph of a filter, and the bits of its network."""
    if isinstance(filter_, ExactFilter):
        return filter_.network.graph, filter_.network.bits
    if isinstance(filter_, GraphFilter):
        return filter_.graph, None
    if type(filter_) is FloatFilter:
        return build_graph(filter_.network), None
    raise ModelError(f"{name} computes in {filter_.precision}, and networks are adapted in integers or in float32")


def observed(filter_: NetworkFilter, observe: Callable[[str, Tensor], None], name: str) -> NetworkFilter:
    """Return a filter of the same samples that passes the tensors which it computes to a function.

    Args:
        filter_: The filter.
        observe: Called with name and tensor of each node of the graph.
        name: Name of its weights, for error messages.

    Raises:
        ModelError: The filter computes in bfloat16 or TF32, or the network has no graph.
    """
    options: FilterOptions = {"device": filter_.device, "tile": None, "card": filter_.card}
    if isinstance(filter_, ExactFilter):
        return ExactFilter(filter_.network, engine="float32", observe=observe, **options)
    return GraphFilter(_graph(filter_, name)[0], observe=observe, **options)


def last_layers(filter_: NetworkFilter, name: str) -> list[LastLayer]:
    """Return the last layer of each output of a filter.

    Args:
        filter_: The filter, in integers or in float32.
        name: Name of its weights, for error messages.

    Raises:
        ModelError: The filter computes in bfloat16 or TF32, the network has no graph, or an output is not a
            convolution of one tensor.
    """
    graph, bits = _graph(filter_, name)
    nodes = {node.name: node for node in graph.nodes}
    layers = []
    for output in filter_.outputs:
        node, factor = nodes[nodes[output].inputs[0]], 1
        if node.op == "shuffle":
            factor, node = int(node.values["factor"]), nodes[node.inputs[0]]
        whole = node.op == "conv" and len(node.inputs) == 1
        if not (whole and node.values["groups"] == 1 and node.values["pad"]):
            raise ModelError(f"{name} cannot be adapted: its last layer for {output} is no padded convolution")
        layers.append(LastLayer(output, node, factor, nodes[output], bits))
    return layers


def adapted(filter_: NetworkFilter, update: Update, name: str) -> NetworkFilter:
    """Return a filter with an update.

    Args:
        filter_: The filter.
        update: The update.
        name: Name of the weights, for error messages.

    Raises:
        ModelError: The filter cannot be adapted, or the update does not fit: its values are too fine, or a weight or
            a sum could overflow.
    """
    layers = last_layers(filter_, name)
    options: FilterOptions = {
        "device": filter_.device,
        "tile": filter_.tile,
        "memory": filter_.memory,
        # A filter is identified by its card, so this one has the update on it.
        "card": filter_.card | {"update": sha256_json(repr(update.parts))},
    }
    if len(update.parts) != len(layers):
        raise ModelError(f"the update has {len(update.parts)} parts, and {name} has {len(layers)} outputs")
    try:
        if not isinstance(filter_, ExactFilter):
            return GraphFilter(_updated(_graph(filter_, name)[0], layers, update.parts, _updated_float), **options)
        network = filter_.network

        def updated(layer: LastLayer, part: Part) -> Node:
            return _fitting(network, _updated_integers(layer, part))

        graph = _updated(network.graph, layers, update.parts, updated)
        return ExactFilter(IntegerNetwork(graph, network.bit_depth, network.bits), **options)
    except ModelError as error:
        raise ModelError(f"the update does not fit {name}: {error}") from error


def apply_text(filter_: NetworkFilter, text: str, name: str) -> NetworkFilter:
    """Return a filter with an update in its text form.

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


def apply_update(filter_: NetworkFilter, file: Path | str, name: str) -> NetworkFilter:
    """Return a filter with the update of a file that `adapt` wrote; see `apply_text`.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file holds no update, or one of other weights.
        ModelError: The filter cannot be adapted, or the update does not fit.
    """
    return apply_text(filter_, read_update_file(file).update, name)


def real_change(layer: LastLayer, part: Part) -> Floats:
    """Return the change of a layer by a part in real numbers, shape (1, size): weights in their order, and the bias.

    Raises:
        ModelError: The part has another number of values.
    """
    _check_size(layer, part)
    return np.array([part.values]) * 2.0**-part.fraction * ([1.0] * (layer.size - 1) + [2.0**layer.bias_bits])


def _updated(
    graph: Graph,
    layers: Sequence[LastLayer],
    parts: Sequence[Part | None],
    updated: Callable[[LastLayer, Part], Node],
) -> Graph:
    """Replace the last layers that have a part."""
    changed = {
        layer.conv.name: updated(layer, part) for layer, part in zip(layers, parts, strict=True) if part is not None
    }
    return Graph(tuple(changed.get(node.name, node) for node in graph.nodes))


def _updated_float(layer: LastLayer, part: Part) -> Node:
    """Add the values of a part to the weights and biases of a convolution in float."""
    change, tensors = real_change(layer, part)[0], layer.conv.tensors
    weight = tensors["weight"] + change[:-1].reshape(tensors["weight"][0].shape)
    return replace(layer.conv, tensors={**tensors, "weight": weight, "bias": tensors["bias"] + change[-1]})


def _check_size(layer: LastLayer, part: Part) -> None:
    if len(part.values) != layer.size:
        raise ModelError(f"{len(part.values)} values for {layer.output} instead of {layer.size}")


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


def _updated_integers(layer: LastLayer, part: Part) -> Node:
    """Add the values of a part to the weights and biases of a convolution in integers."""
    node = layer.conv
    _check_size(layer, part)
    if part.fraction > layer.finest:
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
