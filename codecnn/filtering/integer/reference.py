"""The reference engine: docs/explanation/integers.md in plain NumPy, one operation after the other, without tiles.

It is written to be read, and to be compared with. `torch_engine` and `row_engine` compute the same samples in a
fraction of the time. Tensors are int64 arrays (n, channels, h, w).
"""

from collections.abc import Callable, Mapping

import numpy as np

from codecnn.filtering.integer.network import IntegerNetwork, Ints, check_bit_depth, gain_shift, half, sum_fractions
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.models.graph import Array, Node, same_padding, walk

Observe = Callable[[str, Ints], None]
"""A function that receives the name and result (n, channels, h, w) of every node, in the order of the nodes."""


def filter_reference(
    network: IntegerNetwork,
    planes: Mapping[str, Array],
    qp: int,
    bit_depth: int,
    observe: Observe | None = None,
) -> dict[str, Array]:
    """Filter one picture.

    The picture's edge samples are repeated for the halo, and at the right and bottom up to a multiple of the stride.

    Args:
        network: The network.
        planes: Planes by name: luma (h, w), 4:2:0 chroma ((h + 1) // 2, (w + 1) // 2). Samples are integers, other
            planes are as the loader scales them.
        qp: Slice QP.
        bit_depth: Bit depth of the samples.
        observe: Called with the result of every operation, to compare another implementation with.

    Returns:
        The filtered planes by component, {"y": (h, w), ...}, in the types of the decoded planes.

    Raises:
        ModelError: The samples have more bits than the network takes.
    """
    graph = network.graph
    height, width = planes["rec_y"].shape
    padded = {}
    for name in graph.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        halo = graph.halo // factor
        below, right = (
            (extent + -extent % graph.stride) // factor - size
            for extent, size in zip((height, width), planes[name].shape, strict=True)
        )
        padded[name] = np.pad(planes[name], ((halo, halo + below), (halo, halo + right)), mode="edge")[None, None]
    filtered = run_reference(network, padded, qp, bit_depth, observe)
    cropped = {}
    for name, plane in filtered.items():
        decoded = planes[f"rec_{name}"]
        cropped[name] = plane[0, 0, : decoded.shape[0], : decoded.shape[1]].astype(decoded.dtype)
    return cropped


def run_reference(
    network: IntegerNetwork,
    planes: Mapping[str, Array],
    qp: int,
    bit_depth: int,
    observe: Observe | None = None,
) -> dict[str, Ints]:
    """Compute the outputs of a network from planes that include the halo.

    Args:
        network: The network.
        planes: Planes by name, shape (n, 1, h, w), halo included.
        qp: Slice QP.
        bit_depth: Bit depth of the samples.
        observe: Called with the result of every operation.

    Returns:
        Samples of `bit_depth` by component, shape (n, 1, h, w).

    Raises:
        ModelError: The samples have more bits than the network takes.
    """
    check_bit_depth(network, bit_depth)

    def compute(node: Node, x: list[Ints]) -> Ints:
        if node.op == "plane":
            return centred_integers(node.name, planes[node.name], bit_depth, network.bit_depth)
        if node.op == "qp":
            return np.full_like(x[0][:, :1], (qp << (network.bit_depth - 6)) - (1 << (network.bit_depth - 1)))
        if node.op == "output":
            return _compute_output(node, x[0], planes, qp, bit_depth, network.bits)
        return compute_node(node, x, qp, network.bits)

    def compute_observed(node: Node, x: list[Ints]) -> Ints:
        result = compute(node, x)
        if observe is not None:
            observe(node.name, result)
        return result

    return walk(network.graph.nodes, compute_observed)


def centred_integers(name: str, plane: Array, bit_depth: int, network_bit_depth: int) -> Ints:
    """Convert a plane to the integers that enter a network of B bits: -2^(B-1) to 2^(B-1) - 1.

    Args:
        name: Name of the plane, which says whether it holds samples.
        plane: The plane.
        bit_depth: Bit depth of the picture's samples.
        network_bit_depth: Bit depth B of the network.
    """
    if name in SAMPLE_PLANES:
        return (plane.astype(np.int64) << (network_bit_depth - bit_depth)) - (1 << (network_bit_depth - 1))
    scaled = np.floor(plane.astype(np.float64) * (1 << network_bit_depth) + 0.5).astype(np.int64)
    return np.clip(scaled, 0, (1 << network_bit_depth) - 1) - (1 << (network_bit_depth - 1))


def round_half_up(sums: Ints, shift: int) -> Ints:
    """Divide sums by 2^shift and round to the nearest integer, halves up."""
    # One addition and one shift, also in C and in hardware.
    return (sums + half(shift)) >> shift


def round_half_to_even(sums: Ints, shift: int | Ints) -> Ints:
    """Divide sums by 2^shift and round to the nearest integer, halves to even, as floating-point units do."""
    below = sums >> shift
    twice_remainder = (sums - (below << shift)) << 1
    unit = np.int64(1) << np.asarray(shift, np.int64)
    result: Ints = below + ((twice_remainder > unit) | ((twice_remainder == unit) & (below & 1 == 1)))
    return result


def _saturate(node: Node, sums: Ints, bits: int) -> Ints:
    # Each sum is rounded once, when it is complete.
    if bits == 16:
        result = round_half_up(sums, node.values["shift"])
    else:
        result = round_half_to_even(sums, _by_channel(sum_fractions(node)))
    return np.clip(result, node.values["low"], node.values["high"])


def _by_channel(tensor: Array) -> Ints:
    channels: Ints = tensor.astype(np.int64)
    return channels[:, None, None]


def compute_node(node: Node, x: list[Ints], qp: int, bits: int = 16) -> Ints:
    """Compute one operation other than `plane`, `qp` and `output`.

    Args:
        node: The operation.
        x: Tensors of its inputs, shape (n, channels, h, w).
        qp: Slice QP.
        bits: Bits of the network, 8 or 16.
    """
    first = x[0]
    match node.op:
        case "conv":
            sums = _convolve(node, first)
            if len(x) == 2:
                fraction = sum_fractions(node)
                sum_shift, added_shift = fraction - node.tensors["shift"], fraction - node.values["skip"]
                sums = (sums << _by_channel(sum_shift)) + (x[1] << _by_channel(added_shift))
            return _saturate(node, sums, bits)
        case "add":
            return _saturate(node, (first << node.values["left"]) + (x[1] << node.values["right"]), bits)
        case "modulate":
            factor, offset = (_by_channel(node.tensors[name][qp]) for name in ("factor", "offset"))
            return _saturate(node, first * factor + offset, bits)
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


def _convolve(node: Node, x: Ints) -> Ints:
    """Sum the products of a convolution tap by tap, (n, o, h, w), in the 32 bits that are proven to hold them."""
    weight, groups = node.tensors["weight"].astype(np.int32), node.values["groups"]
    outputs, inputs, height, width = weight.shape
    if node.values["pad"]:
        rows, columns = same_padding(weight)
        x = np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
    channels_last = np.moveaxis(x, 1, 3).astype(np.int32)
    n, h, w = x.shape[0], x.shape[2] - height + 1, x.shape[3] - width + 1
    by_group = weight.reshape(groups, outputs // groups, inputs, height, width)
    sums = np.zeros((n, h * w, groups, outputs // groups), np.int32)
    for dy in range(height):
        for dx in range(width):
            window = channels_last[:, dy : dy + h, dx : dx + w].reshape(n, h * w, groups, inputs)
            sums += np.einsum("goi,npgi->npgo", np.ascontiguousarray(by_group[..., dy, dx]), window)
    sums += node.tensors["bias"].reshape(groups, outputs // groups)
    return np.moveaxis(sums.reshape(n, h, w, outputs), 3, 1).astype(np.int64)


def _compute_output(node: Node, x: Ints, planes: Mapping[str, Array], qp: int, bit_depth: int, bits: int) -> Ints:
    gain = node.tensors["gain"].astype(np.int64)
    round_sums = round_half_up if bits == 16 else round_half_to_even
    change = round_sums(x * gain[qp if len(gain) > 1 else 0], gain_shift(node, bit_depth))
    base: Array | int = 1 << (bit_depth - 1)
    if len(node.inputs) == 2:
        plane, crop = planes[node.inputs[1]].astype(np.int64), node.values["crop"]
        base = plane[:, :, crop : plane.shape[2] - crop, crop : plane.shape[3] - crop]
    return np.clip(base + change, 0, (1 << bit_depth) - 1)
