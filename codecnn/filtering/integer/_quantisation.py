"""From a graph of real numbers, and how large its tensors become, to an integer network."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from codecnn.errors import ConfigError, ModelError
from codecnn.filtering.integer._grid import moved
from codecnn.filtering.integer._network import (
    INT16,
    INT32_MAX,
    MAX_SHIFT,
    MIN_BIT_DEPTH,
    IntegerNetwork,
    Ints,
    Range,
    by_weight,
    node_range,
)
from codecnn.models.graph import Array, Graph, Node

ACCUMULATOR_BITS = 25
"""Sums below 2^24 in magnitude: all of them are float32 numbers, so float32 convolutions are exact."""
MIN_ACCUMULATOR_BITS, MAX_ACCUMULATOR_BITS = 17, 32
HEADROOM = 1.25
"""How much larger than any that was seen an activation may be before it saturates."""

Input = tuple[Ints, Range]
"""Fractional bits, by channel, and range of what a node takes."""


def quantise(
    graph: Graph, magnitudes: Mapping[str, float], bit_depth: int, *, accumulator_bits: int = ACCUMULATOR_BITS
) -> IntegerNetwork:
    """The integer network of a graph for samples of up to `bit_depth` bits.

    `magnitudes` says how large the tensors of the convolutions, sums and modulations become: from pictures, see
    `codecnn.filtering.integer._calibrate`. Every tensor gets the finest power-of-two scale with which that fits into
    its bits, about half of those of a sum, and every convolution the finest scale of its weights with which no sum
    needs more than `accumulator_bits` bits, sign included, whatever the picture. Raises ConfigError for bits out of
    range, ModelError for weights that no scale fits.
    """
    if not MIN_ACCUMULATOR_BITS <= accumulator_bits <= MAX_ACCUMULATOR_BITS:
        raise ConfigError(
            f"sums of {accumulator_bits} bits cannot be: there are {MIN_ACCUMULATOR_BITS} to {MAX_ACCUMULATOR_BITS}"
        )
    # A product has the bits of its sample and its weight. About half of a sum's go to the samples; what the proof then
    # leaves go to the weights, after what adding many products takes beyond the largest.
    activation_bits = (accumulator_bits - 3) // 2
    limit = (1 << (accumulator_bits - 1)) - 1
    nodes: dict[str, Node] = {}
    fractions: dict[str, Ints] = {}
    ranges: dict[str, Range] = {}
    for node in graph.nodes:
        inputs = [(fractions[name], ranges[name]) for name in node.inputs]
        channels = graph.extents[node.name].channels
        if node.op in _QUANTISE:
            finest = _finest(magnitudes[node.name] * HEADROOM, activation_bits)
            most = (1 << activation_bits) - 1
            low = 0 if node.values.get("relu") else -most
            made, fraction = _QUANTISE[node.op](node, inputs, finest, {"low": low, "high": most}, limit)
            fractions[node.name] = np.full(channels, fraction)
        elif node.op == "output":
            made = _output(node, inputs, limit)
            fractions[node.name] = np.zeros(1, np.int64)
        else:
            made = node
            fractions[node.name] = _passed_on(node, [fraction for fraction, _ in inputs], bit_depth)
        nodes[node.name] = made
        ranges[node.name] = node_range(made, [ranges[name] for name in node.inputs], bit_depth)
    return IntegerNetwork(Graph(tuple(nodes.values())), bit_depth)


def _finest(magnitude: float, bits: int) -> int:
    """Most fractional bits with which `magnitude` fits into `bits` bits."""
    return math.floor(math.log2(((1 << bits) - 1) / magnitude)) if magnitude > 0 else MAX_SHIFT


def _passed_on(node: Node, inputs: list[Ints], bit_depth: int) -> Ints:
    """Fractional bits, by channel, of an operation that only moves samples."""
    match node.op:
        case "plane" | "qp":
            # 4·(x / 2^b - 1/2) is (x - 2^(b-1)) / 2^(b-2).
            return np.array([bit_depth - 2])
        case _:
            return moved(node, inputs)


def _weights_finest(weights: Array, fractions: Ints) -> int:
    """Most fractional bits of products with which all weights fit into 16 bits; `fractions` of what each multiplies."""
    sizes = np.abs(weights)
    scaled = sizes / np.exp2(fractions.astype(np.float64))
    if not np.isfinite(sizes).all():
        raise ModelError("the network's weights are not finite numbers")
    return math.floor(math.log2(INT16[1] / scaled.max())) if scaled.max() > 0 else int(fractions.max())


def _search(make: Callable[[int], Node], inputs: list[Range], start: int, limit: int) -> tuple[Node, int]:
    """The node with the most fractional bits of its sums, `start` at most, with which none can exceed `limit`."""
    fraction = start
    while fraction > start - 64:
        node = make(fraction)
        # The bit depth matters for planes alone.
        widest = node_range(node, inputs, MIN_BIT_DEPTH).widest
        if widest <= limit:
            return node, fraction
        # A bit less halves every sum, but for what rounding does.
        fraction -= max(1, math.floor(math.log2(widest / limit)))
    raise ModelError(f"node {make(start).name!r} has weights that no power-of-two scale fits")


def _products(node: Node, inputs: list[Input], finest: int, saturation: dict[str, int], limit: int) -> tuple[Node, int]:
    """A convolution or modulation: factors times samples, and what is added to the products."""
    (fractions, found), convolves = inputs[0], node.op == "conv"
    factor, added = ("weight", "bias") if convolves else ("factor", "offset")
    multiplied = by_weight(node, fractions) if convolves else fractions[None]
    kept = {name: node.values[name] for name in ("pad", "groups")} if convolves else {}

    def make(products: int) -> Node:
        # Parts of a concatenation have fractions of their own; their weights make up for it, so that all products of
        # a sum have one.
        scaled = node.tensors[factor] * np.exp2(products - multiplied)
        offsets = np.clip(np.rint(node.tensors[added] * 2.0**products), -INT32_MAX, INT32_MAX)
        tensors = {factor: np.rint(scaled).astype(np.int16), added: offsets.astype(np.int32)}
        shift = products - min(finest, products)
        return Node(node.name, node.op, node.inputs, kept | saturation | {"shift": shift}, tensors)

    start = min(_weights_finest(node.tensors[factor], multiplied), finest + MAX_SHIFT)
    made, products = _search(make, [found], start, limit)
    return made, min(finest, products)


def _add(node: Node, inputs: list[Input], finest: int, saturation: dict[str, int], limit: int) -> tuple[Node, int]:
    left, right = (_uniform(fractions, node) for fractions, _ in inputs)
    common = max(left, right)
    fraction = min(finest, common)
    values = saturation | {"left": common - left, "right": common - right, "shift": common - fraction}
    return Node(node.name, "add", node.inputs, values), fraction


def _output(node: Node, inputs: list[Input], limit: int) -> Node:
    (fractions, found), gain = inputs[0], node.tensors["gain"]
    residual = _uniform(fractions, node)

    def make(products: int) -> Node:
        values = {"crop": node.values["crop"], "fraction": products}
        tensors = {"gain": np.rint(gain * 2.0 ** (products - residual)).astype(np.int16)}
        return Node(node.name, "output", node.inputs, values, tensors)

    start = min(_weights_finest(gain, fractions), MAX_SHIFT + MIN_BIT_DEPTH)
    return _search(make, [found], start, limit)[0]


def _uniform(fractions: Ints, node: Node) -> int:
    assert (fractions == fractions[0]).all(), node.name
    return int(fractions[0])


_QUANTISE = {"conv": _products, "modulate": _products, "add": _add}
