"""Conversion of a float network to an integer network: calibration on a store, and quantisation to 16 bits.

`integer_network` is the entry for both 8 and 16 bits. It runs the float graph on decoded pictures of a store, records
the largest magnitude of each tensor (`tensor_magnitudes`, `channel_magnitudes`), and passes these to `quantise` for 16
bits or to `codecnn.filtering.integer.mixed_precision` for 8 bits.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.files import provenance
from codecnn.base.runtime import float32_products
from codecnn.dataset import Store, Unit
from codecnn.filtering.integer.grid import fuse, move_channels, tensor_bounds
from codecnn.filtering.integer.mixed_precision import DEFAULT_LOSS_DB, choose_precision
from codecnn.filtering.integer.network import (
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
from codecnn.filtering.planes import decoded_planes, unit_planes
from codecnn.filtering.tiles import in_full_scale, in_tiles, plane_tensors
from codecnn.models import Card, FilterNetwork, build_graph
from codecnn.models.graph import Array, Graph, Node, run

CALIBRATION_BIT_DEPTH = 10
"""Smallest bit depth of a calibrated network: 10-bit samples have the values of 8-bit samples, two bits finer."""
PICTURES_PER_QP = 4
"""Number of pictures of each QP that a calibration reads."""
CALIBRATION_TILE = 256
"""Largest side of the tiles in calibration."""
ACCUMULATOR_BITS = 25
"""Sums below 2^24 in magnitude, which are all float32 numbers, so that float32 convolutions are exact."""
MIN_ACCUMULATOR_BITS, MAX_ACCUMULATOR_BITS = 17, 32
HEADROOM = 1.25
"""Factor by which an activation may exceed the largest of the calibration before it saturates."""

Input = tuple[Ints, Range]
"""Fractional bits by channel, and range, of a node's input."""


def integer_network(
    model: FilterNetwork,
    card: Card,
    stores: Sequence[Store],
    split: str = "train",
    *,
    bits: int = 16,
    pictures: int = PICTURES_PER_QP,
    accumulator_bits: int = MAX_ACCUMULATOR_BITS,
    loss: float = DEFAULT_LOSS_DB,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> tuple[IntegerNetwork, dict[str, Any]]:
    """Convert a float network to an integer network, calibrated on decoded pictures of stores.

    Args:
        model: The float network.
        card: Card of its weights.
        stores: Stores to calibrate on.
        split: Split of the stores.
        bits: 8 or 16.
        pictures: Number of pictures that are read for each QP of each store: of evenly spaced units the middle one.
        accumulator_bits: Bits of the sums with 16 bits; see `quantise`.
        loss: With 8 bits, dB that the network may lose on these pictures; see `choose_precision`.
        device: Device to compute on.
        progress: Called with the number of steps that are done, and of all steps.

    Returns:
        The network and its card: that of the weights, their SHA-256 as `source_sha256`, and the calibration.

    Raises:
        StoreError: A store lacks the split or a plane.
        ModelError: The network has no integer form.
    """
    units = [unit for store in stores for unit in calibration_units(store.split(split), pictures)]
    graph = build_graph(model)
    bit_depth = calibrated_bit_depth(units)
    options: dict[str, Any] = {"device": device, "progress": progress}
    if bits == 8:
        joined = fuse(graph)
        largest = channel_magnitudes(joined, units, **options)
        mixture = choose_precision(joined, largest, units, bit_depth, loss=loss, **options)
        network = mixture.network
    else:
        magnitudes = tensor_magnitudes(graph, units, **options)
        network = quantise(graph, magnitudes, bit_depth, accumulator_bits=accumulator_bits)
    calibration: dict[str, Any] = {
        "data_keys": [store.data_key for store in stores],
        "split": split,
        "pictures_per_qp": pictures,
        "qps": sorted({unit.pictures[len(unit.pictures) // 2].qp_for_networks for unit in units}),
    }
    if bits == 16:
        calibration["accumulator_bits"] = accumulator_bits
    else:
        losses = {"loss_db": round(float(np.mean(mixture.losses)), 5), "worst_loss_db": round(max(mixture.losses), 5)}
        calibration |= {"wide": list(mixture.wide), **losses}
    return network, source_card(card) | {"calibration": calibration, "provenance": provenance()}


def calibrated_bit_depth(units: Sequence[Unit]) -> int:
    """Return the bit depth of the samples that a network calibrated on these units takes."""
    return max(CALIBRATION_BIT_DEPTH, *(unit.format.bit_depth for unit in units))


def source_card(card: Card) -> dict[str, Any]:
    """Return the entries of an integer network's card that come from the card of its weights.

    Test results are left out, because the weights were tested and not the integers.
    """
    dropped = ("schema", "task", "sha256", "provenance", "test")
    return {**{name: value for name, value in card.items() if name not in dropped}, "source_sha256": card.sha256}


def calibration_units(units: Sequence[Unit], pictures: int = PICTURES_PER_QP) -> list[Unit]:
    """Choose the units that a calibration reads: `pictures` of each QP, evenly spaced."""
    by_qp: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_qp[unit.qp].append(unit)
    chosen = []
    for qp in sorted(by_qp):
        count = min(pictures, len(by_qp[qp]))
        chosen += [by_qp[qp][index * len(by_qp[qp]) // count] for index in range(count)]
    return chosen


def tensor_magnitudes(
    graph: Graph,
    units: Sequence[Unit],
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> dict[str, float]:
    """Measure the largest magnitude of each node's tensor on the middle picture of each unit.

    Args:
        graph: A float graph.
        units: Coded units.
        device: Device to compute on.
        progress: Called with the number of units that are done, and of all units.

    Raises:
        StoreError: A unit lacks a plane.
        ModelError: A picture does not fit the network.
    """
    largest: dict[str, float] = defaultdict(float)

    def observe(name: str, tensor: Tensor) -> None:
        largest[name] = max(largest[name], float(tensor.abs().max()))

    _run_on_units(graph, units, device, progress, observe)
    return dict(largest)


def channel_magnitudes(
    graph: Graph,
    units: Sequence[Unit],
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Measure the largest magnitude of each channel of each convolution and modulation.

    Args:
        graph: A graph from `fuse`.
        units: Coded units; the middle picture of each is used.
        device: Device to compute on.
        progress: Called with the number of units that are done, and of all units.

    Returns:
        Magnitudes by node, shape (channels,), float64.

    Raises:
        StoreError: A unit lacks a plane.
        ModelError: A picture does not fit the network.
    """
    measured = tensor_bounds(graph)
    largest: dict[str, Array] = {}

    def observe(name: str, tensor: Tensor) -> None:
        if name in measured:
            most = tensor.abs().amax((0, 2, 3)).cpu().numpy().astype(np.float64)
            largest[name] = np.maximum(largest.get(name, most), most)

    _run_on_units(graph, units, device, progress, observe)
    return largest


def _run_on_units(
    graph: Graph,
    units: Sequence[Unit],
    device: str | torch.device,
    progress: Progress | None,
    observe: Callable[[str, Tensor], None],
) -> None:
    """Run a float graph on the middle picture of each unit and call `observe` with every node's tensor."""
    report = progress or (lambda done, total: None)
    for done, unit in enumerate(units):
        report(done, len(units))
        index = len(unit.pictures) // 2
        with unit.decoded() as decoded:
            picture = decoded[index]
            named = decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes))
            planes = in_full_scale(plane_tensors(named, device), picture.bit_depth)
        qp = unit.pictures[index].qp_for_networks
        with torch.inference_mode(), float32_products():
            in_tiles(partial(run, graph, qp=qp, observe=observe), graph, planes, CALIBRATION_TILE)
    report(len(units), len(units))


def quantise(
    graph: Graph, magnitudes: Mapping[str, float], bit_depth: int, *, accumulator_bits: int = ACCUMULATOR_BITS
) -> IntegerNetwork:
    """Convert a float graph to an integer network with weights of 16 bits.

    Every tensor gets the finest power-of-two scale with which its largest magnitude fits into its bits, about half of
    those of a sum. Every convolution gets the finest scale of its weights with which no sum needs more than
    `accumulator_bits` bits, sign included, whatever the picture.

    Args:
        graph: A float graph.
        magnitudes: Largest magnitude of the tensor of each convolution, addition and modulation, e.g. from
            `tensor_magnitudes`.
        bit_depth: Bit depth of the network; it takes samples of up to so many bits.
        accumulator_bits: Bits of the sums, 17 to 32.

    Raises:
        ConfigError: The accumulator bits are out of range.
        ModelError: No scale fits some weights, or they are not finite.
    """
    if not MIN_ACCUMULATOR_BITS <= accumulator_bits <= MAX_ACCUMULATOR_BITS:
        raise ConfigError(
            f"sums of {accumulator_bits} bits are not possible: give {MIN_ACCUMULATOR_BITS} to {MAX_ACCUMULATOR_BITS}"
        )
    # A product has the bits of its sample plus those of its weight. About half of a sum's bits go to the samples. The
    # bits that the proof leaves after adding many products go to the weights.
    activation_bits = (accumulator_bits - 3) // 2
    limit = (1 << (accumulator_bits - 1)) - 1
    nodes: dict[str, Node] = {}
    fractions: dict[str, Ints] = {}
    ranges: dict[str, Range] = {}
    for node in graph.nodes:
        inputs = [(fractions[name], ranges[name]) for name in node.inputs]
        channels = graph.extents[node.name].channels
        if node.op in _QUANTISE:
            finest = _finest_fraction(magnitudes[node.name] * HEADROOM, activation_bits)
            most = (1 << activation_bits) - 1
            low = 0 if node.values.get("relu") else -most
            integer, fraction = _QUANTISE[node.op](node, inputs, finest, {"low": low, "high": most}, limit)
            fractions[node.name] = np.full(channels, fraction)
        elif node.op == "output":
            integer = _quantise_output(node, inputs, limit)
            fractions[node.name] = np.zeros(1, np.int64)
        else:
            integer = node
            fractions[node.name] = _moved_fractions(node, [fraction for fraction, _ in inputs], bit_depth)
        nodes[node.name] = integer
        ranges[node.name] = node_range(integer, [ranges[name] for name in node.inputs], bit_depth)
    return IntegerNetwork(Graph(tuple(nodes.values())), bit_depth)


def _finest_fraction(magnitude: float, bits: int) -> int:
    """Return the most fractional bits with which `magnitude` fits into `bits` bits."""
    return math.floor(math.log2(((1 << bits) - 1) / magnitude)) if magnitude > 0 else MAX_SHIFT


def _moved_fractions(node: Node, inputs: list[Ints], bit_depth: int) -> Ints:
    """Return the fractional bits by channel of a plane, or of an operation that only moves samples."""
    match node.op:
        case "plane" | "qp":
            # 4·(x / 2^b - 1/2) is (x - 2^(b-1)) / 2^(b-2).
            return np.array([bit_depth - 2])
        case _:
            return move_channels(node, inputs)


def _finest_weights(weights: Array, fractions: Ints) -> int:
    """Return the most fractional bits of products with which all weights fit into 16 bits.

    `fractions` are the fractional bits of the input that each weight multiplies.
    """
    sizes = np.abs(weights)
    scaled = sizes / np.exp2(fractions.astype(np.float64))
    if not np.isfinite(sizes).all():
        raise ModelError("the network's weights are not finite numbers")
    return math.floor(math.log2(INT16[1] / scaled.max())) if scaled.max() > 0 else int(fractions.max())


def _finest_node(make_node: Callable[[int], Node], inputs: list[Range], start: int, limit: int) -> tuple[Node, int]:
    """Find the node with the most fractional bits of its sums, at most `start`, whose sums cannot exceed `limit`."""
    fraction = start
    while fraction > start - 64:
        node = make_node(fraction)
        # The bit depth matters for planes only.
        widest = node_range(node, inputs, MIN_BIT_DEPTH).widest
        if widest <= limit:
            return node, fraction
        # A bit less halves every sum, up to rounding.
        fraction -= max(1, math.floor(math.log2(widest / limit)))
    raise ModelError(f"node {make_node(start).name!r} has weights that no power-of-two scale fits")


def _quantise_products(
    node: Node, inputs: list[Input], finest: int, saturation: dict[str, int], limit: int
) -> tuple[Node, int]:
    """Quantise a convolution or modulation: factors, and the offsets that are added to the products."""
    (fractions, input_range), convolves = inputs[0], node.op == "conv"
    factor, added = ("weight", "bias") if convolves else ("factor", "offset")
    multiplied = by_weight(node, fractions) if convolves else fractions[None]
    kept = {name: node.values[name] for name in ("pad", "groups")} if convolves else {}

    def make_node(products: int) -> Node:
        # The parts of a concatenation differ in fractional bits. Their weights compensate for that, so that all
        # products of a sum have the same.
        scaled = node.tensors[factor] * np.exp2(products - multiplied)
        offsets = np.clip(np.rint(node.tensors[added] * 2.0**products), -INT32_MAX, INT32_MAX)
        tensors = {factor: np.rint(scaled).astype(np.int16), added: offsets.astype(np.int32)}
        shift = products - min(finest, products)
        return Node(node.name, node.op, node.inputs, kept | saturation | {"shift": shift}, tensors)

    start = min(_finest_weights(node.tensors[factor], multiplied), finest + MAX_SHIFT)
    integer, products = _finest_node(make_node, [input_range], start, limit)
    return integer, min(finest, products)


def _quantise_addition(
    node: Node, inputs: list[Input], finest: int, saturation: dict[str, int], limit: int
) -> tuple[Node, int]:
    left, right = (_uniform_fraction(fractions, node) for fractions, _ in inputs)
    common = max(left, right)
    fraction = min(finest, common)
    values = saturation | {"left": common - left, "right": common - right, "shift": common - fraction}
    return Node(node.name, "add", node.inputs, values), fraction


def _quantise_output(node: Node, inputs: list[Input], limit: int) -> Node:
    (fractions, input_range), gain = inputs[0], node.tensors["gain"]
    residual = _uniform_fraction(fractions, node)

    def make_node(products: int) -> Node:
        values = {"crop": node.values["crop"], "fraction": products}
        tensors = {"gain": np.rint(gain * 2.0 ** (products - residual)).astype(np.int16)}
        return Node(node.name, "output", node.inputs, values, tensors)

    start = min(_finest_weights(gain, fractions), MAX_SHIFT + MIN_BIT_DEPTH)
    return _finest_node(make_node, [input_range], start, limit)[0]


def _uniform_fraction(fractions: Ints, node: Node) -> int:
    assert (fractions == fractions[0]).all(), node.name
    return int(fractions[0])


_QUANTISE = {"conv": _quantise_products, "modulate": _quantise_products, "add": _quantise_addition}
