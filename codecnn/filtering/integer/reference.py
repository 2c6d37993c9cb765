"""docs/integer.md in plain NumPy: integers, one operation after the other, no tiles.

It is there to be read and to be compared with; `fast` computes the same samples in a fraction of the time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.filtering.integer._network import IntegerNetwork, Ints, check_bit_depth, finest, gain_shift, half
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.models.graph import Node, same_padding, walk

Array = npt.NDArray[Any]
Observe = Callable[[str, Ints], None]
"""Gets every node's name and result (n, channels, h, w), in the order of the nodes."""


def filter_reference(
    network: IntegerNetwork,
    planes: Mapping[str, Array],
    qp: int,
    bit_depth: int,
    observe: Observe | None = None,
) -> dict[str, Array]:
    """Filtered planes {"y": (h, w), ...} of one picture, in the type of the decoded ones.

    Planes are (h, w), 4:2:0 chroma ((h + 1) // 2, (w + 1) // 2): samples as integers, others as the loader scales them.
    The picture's edge samples are repeated for the halo, and to the right and below up to a multiple of the stride.
    `observe` sees what every operation makes, for an implementation of one's own to be compared with.
    """
    graph = network.graph
    height, width = planes["rec_y"].shape
    padded = {}
    for name in graph.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        halo = graph.halo // factor
        below, right = (
            (extent + -extent % graph.stride) // factor - own
            for extent, own in zip((height, width), planes[name].shape, strict=True)
        )
        padded[name] = np.pad(planes[name], ((halo, halo + below), (halo, halo + right)), mode="edge")[None, None]
    filtered = run_reference(network, padded, qp, bit_depth, observe)
    cut = {}
    for name, plane in filtered.items():
        decoded = planes[f"rec_{name}"]
        cut[name] = plane[0, 0, : decoded.shape[0], : decoded.shape[1]].astype(decoded.dtype)
    return cut


def run_reference(
    network: IntegerNetwork,
    planes: Mapping[str, Array],
    qp: int,
    bit_depth: int,
    observe: Observe | None = None,
) -> dict[str, Ints]:
    """Outputs (n, 1, h, w) as samples of `bit_depth`, from planes (n, 1, h, w) with the halo; `observe` sees each node.

    Raises ModelError for samples of more bits than the network takes.
    """
    check_bit_depth(network, bit_depth)

    def computed(node: Node, x: list[Ints]) -> Ints:
        if node.op == "plane":
            return centred_integers(node.name, planes[node.name], bit_depth, network.bit_depth)
        if node.op == "qp":
            return np.full_like(x[0][:, :1], (qp << (network.bit_depth - 6)) - (1 << (network.bit_depth - 1)))
        if node.op == "output":
            return _output(node, x[0], planes, qp, bit_depth, network.bits)
        return _compute(node, x, qp, network.bits)

    def compute(node: Node, x: list[Ints]) -> Ints:
        made = computed(node, x)
        if observe is not None:
            observe(node.name, made)
        return made

    return walk(network.graph.nodes, compute)


def centred_integers(name: str, plane: Array, bit_depth: int, network_bit_depth: int) -> Ints:
    """A plane's integers: from -2^(B-1) to 2^(B-1) - 1 for a network of B bits."""
    if name in SAMPLE_PLANES:
        return (plane.astype(np.int64) << (network_bit_depth - bit_depth)) - (1 << (network_bit_depth - 1))
    scaled = np.floor(plane.astype(np.float64) * (1 << network_bit_depth) + 0.5).astype(np.int64)
    return np.clip(scaled, 0, (1 << network_bit_depth) - 1) - (1 << (network_bit_depth - 1))


def rounded(sums: Ints, shift: int) -> Ints:
    """sums / 2^shift to the nearest integer, halves up."""
    # One addition and one shift, in C and hardware as well, with no look at the sum's bits.
    return (sums + half(shift)) >> shift


def rounded_to_even(sums: Ints, shift: int | Ints) -> Ints:
    """sums / 2^shift to the nearest integer, halves to the even one, as floating-point units and int8 libraries do."""
    below = sums >> shift
    rest = (sums - (below << shift)) << 1
    whole = np.int64(1) << np.asarray(shift, np.int64)
    made: Ints = below + ((rest > whole) | ((rest == whole) & (below & 1 == 1)))
    return made


def _saturated(node: Node, sums: Ints, bits: int) -> Ints:
    # Once for each sum, when it is whole: every rounding of a part would lose a fraction of its own.
    made = rounded(sums, node.values["shift"]) if bits == 16 else rounded_to_even(sums, _by_channel(finest(node)))
    return np.clip(made, node.values["low"], node.values["high"])


def _by_channel(tensor: Array) -> Ints:
    channels: Ints = tensor.astype(np.int64)
    return channels[:, None, None]


def _compute(node: Node, x: list[Ints], qp: int, bits: int = 16) -> Ints:
    first = x[0]
    match node.op:
        case "conv":
            sums = _conv(node, first)
            if len(x) == 2:
                fraction = finest(node)
                own, other = fraction - node.tensors["shift"], fraction - node.values["skip"]
                sums = (sums << _by_channel(own)) + (x[1] << _by_channel(other))
            return _saturated(node, sums, bits)
        case "add":
            return _saturated(node, (first << node.values["left"]) + (x[1] << node.values["right"]), bits)
        case "modulate":
            factor, offset = (_by_channel(node.tensors[name][qp]) for name in ("factor", "offset"))
            return _saturated(node, first * factor + offset, bits)
        case "concat":
            return np.concatenate(x, axis=1)
        case "crop":
            size = node.values["size"]
            return first[:, :, size : first.shape[2] - size, size : first.shape[3] - size]
        case "edge":
            return np.pad(first, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
        case "unshuffle":
            n, c, h, w = first.shape
            s = node.values["factor"]
            cells = first.reshape(n, c, h // s, s, w // s, s)
            return cells.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * s * s, h // s, w // s)
        case "shuffle":
            n, c, h, w = first.shape
            s = node.values["factor"]
            cells = first.reshape(n, c // (s * s), s, s, h, w)
            return cells.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (s * s), h * s, w * s)
        case _:
            raise AssertionError(node.op)


def _conv(node: Node, x: Ints) -> Ints:
    """Sums (n, o, h, w) of a convolution, tap by tap, in the 32 bits that are proven to hold them."""
    weight, groups = node.tensors["weight"].astype(np.int32), node.values["groups"]
    outputs, inputs, height, width = weight.shape
    if node.values["pad"]:
        rows, columns = same_padding(weight)
        x = np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
    by_sample = np.moveaxis(x, 1, 3).astype(np.int32)
    n, h, w = x.shape[0], x.shape[2] - height + 1, x.shape[3] - width + 1
    by_group = weight.reshape(groups, outputs // groups, inputs, height, width)
    sums = np.zeros((n, h * w, groups, outputs // groups), np.int32)
    for dy in range(height):
        for dx in range(width):
            window = by_sample[:, dy : dy + h, dx : dx + w].reshape(n, h * w, groups, inputs)
            sums += np.einsum("goi,npgi->npgo", np.ascontiguousarray(by_group[..., dy, dx]), window)
    sums += node.tensors["bias"].reshape(groups, outputs // groups)
    return np.moveaxis(sums.reshape(n, h, w, outputs), 3, 1).astype(np.int64)


def _output(node: Node, x: Ints, planes: Mapping[str, Array], qp: int, bit_depth: int, bits: int) -> Ints:
    gain = node.tensors["gain"].astype(np.int64)
    nearest = rounded if bits == 16 else rounded_to_even
    change = nearest(x * gain[qp if len(gain) > 1 else 0], gain_shift(node, bit_depth))
    base: Array | int = 1 << (bit_depth - 1)
    if len(node.inputs) == 2:
        plane, crop = planes[node.inputs[1]].astype(np.int64), node.values["crop"]
        base = plane[:, :, crop : plane.shape[2] - crop, crop : plane.shape[3] - crop]
    return np.clip(base + change, 0, (1 << bit_depth) - 1)
