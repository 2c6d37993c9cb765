"""Integer scales of an 8-bit network: which integers each tensor consists of.

The integers of a tensor are its real values times a scale for each channel, which can be any positive number: the
weights before and after the tensor absorb the ratio of the scales, so that only powers of two remain to divide by. If a
tensor is added to another, their scales must differ by a power of two.

`fuse` prepares the float graph. `tensor_bounds` says how many bits each tensor has, and `grid_for` chooses the finest
scales that hold the values seen in calibration. The result is a `Grid`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from codecnn.base.errors import ModelError
from codecnn.base.planes import SLICE_TYPE_PLANE
from codecnn.models.graph import MOVES, Array, Graph, Node

Bounds = tuple[int, int]
"""Smallest and largest integer of a tensor."""
SIGNED, UNSIGNED, WIDE = (-128, 127), (0, 255), (-4095, 4095)
RESIDUAL = (-2047, 2047)
"""Bounds of the residual that leaves the network: fewer bits leave more bits to the gain by QP that multiplies it."""
WIDE_MAXIMA = (2047, 4095)
"""Largest integer of a tensor of 12 or 13 bits.

More bits in a tensor leave fewer bits to the weights that multiply it, because their products must sum to at most 2^24.
"""
FEW_CHANNELS = 4
"""A convolution of input planes with at most so many channels outputs no features yet, and keeps more bits."""
_SATURATION_OCTAVES = 1.0
"""Octaves by which a byte that is added to another tensor may be finer than its largest values allow."""


def fuse(graph: Graph) -> Graph:
    """Prepare a float graph for 8 bits: merge each addition into a convolution, whose sum is then rounded once.

    Weights of planes that have one value for each picture are gathered first. In real numbers the result computes the
    same function.

    Raises:
        ModelError: An addition has no convolution among its terms.
    """
    graph = _gather_constants(graph)
    users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    by_name = {node.name: node for node in graph.nodes}
    merged: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "add":
            terms = [by_name[name] for name in node.inputs if len(users[name]) == 1]
            sums = [term for term in terms if term.op == "conv" and len(term.inputs) == 1 and not term.values["relu"]]
            if not sums:
                raise ModelError(f"node {node.name!r} adds no convolution, and has no form of 8 bits")
            (added,) = (name for name in node.inputs if name != sums[-1].name)
            merged[node.name] = replace(sums[-1], name=node.name, inputs=(sums[-1].inputs[0], added))
            by_name[sums[-1].name] = merged[node.name]
    removed = {name for name, node in by_name.items() if node.name != name}
    return Graph(tuple(merged.get(node.name, node) for node in graph.nodes if node.name not in removed))


def _gather_constants(graph: Graph) -> Graph:
    """Gather the weights of input channels that have one value for each picture into as few weights as possible.

    Training moves all weights of such a channel alike. Each of them is small, and all round the same way, so that
    rounding can remove their whole effect. Therefore their sum is divided into equal weights, as few as keep each below
    the largest of the other weights. A convolution that pads is left unchanged, because the zeros around such a plane
    are not its value.
    """
    constant: dict[str, Array] = {}
    nodes = []
    for node in graph.nodes:
        inputs = [constant[name] for name in node.inputs]
        if node.op in MOVES:
            constant[node.name] = move_channels(node, inputs)
        else:
            is_constant = node.op == "qp" or node.name == SLICE_TYPE_PLANE
            constant[node.name] = np.full(graph.extents[node.name].channels, is_constant)
        if node.op == "conv" and node.values["groups"] == 1 and not node.values["pad"] and inputs[0].any():
            weight = _gather_weights(node.tensors["weight"], inputs[0])
            node = replace(node, tensors={**node.tensors, "weight": weight})
        nodes.append(node)
    return Graph(tuple(nodes))


def _gather_weights(weight: Array, constant: Array) -> Array:
    """Concentrate weights (o, i, h, w) of the inputs that are `constant` (i) in few of them, keeping their sums."""
    gathered = weight[:, constant].reshape(len(weight), -1)
    rest = np.abs(weight[:, ~constant]).reshape(len(weight), -1)
    largest = rest.max(axis=1, initial=1e-30)
    count = np.ceil(np.abs(gathered.sum(axis=1)) / largest).clip(1, gathered.shape[1])
    equal = (gathered.sum(axis=1) / count)[:, None] * (np.arange(gathered.shape[1]) < count[:, None])
    result = weight.copy()
    result[:, constant] = equal.reshape(len(weight), -1, *weight.shape[2:])
    return result


def tensor_bounds(graph: Graph) -> dict[str, Bounds]:
    """Choose the bounds of each convolution's and modulation's tensor: a byte wherever possible.

    Args:
        graph: A graph from `fuse`.

    Returns:
        The smallest and largest integer by node.
    """
    users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    by_name = {node.name: node for node in graph.nodes}

    def reader_operations(name: str) -> set[str]:
        """Return the operations that read a tensor, directly or through nodes that only move samples."""
        return {op for node in users[name] for op in (reader_operations(node.name) if node.op in MOVES else {node.op})}

    def sources(name: str) -> list[Node]:
        """Return the nodes that compute a tensor, or its parts if nodes only move samples."""
        node = by_name[name]
        return [source for part in node.inputs for source in sources(part)] if node.op in MOVES else [node]

    bounds: dict[str, Bounds] = {}
    for node in graph.nodes:
        if node.op not in ("conv", "modulate"):
            continue
        reads_planes = all(source.op in ("plane", "qp") for source in sources(node.inputs[0]))
        few = graph.extents[node.name].channels <= FEW_CHANNELS
        if reader_operations(node.name) == {"output"}:
            bounds[node.name] = RESIDUAL
        elif reads_planes and few and not node.values.get("relu"):
            bounds[node.name] = WIDE
        else:
            bounds[node.name] = UNSIGNED if node.values.get("relu") else SIGNED
    return bounds


def linked_scales(graph: Graph) -> dict[str, str]:
    """Map each convolution that adds a tensor to the node whose scales that tensor has.

    Raises:
        ModelError: The tensor consists of parts with several scales.
    """
    by_name = {node.name: node for node in graph.nodes}
    sources = {}
    for node in graph.nodes:
        if node.op == "conv" and len(node.inputs) == 2:
            source = by_name[node.inputs[1]]
            while source.op in ("crop", "edge"):
                source = by_name[source.inputs[0]]
            if source.op not in ("conv", "modulate"):
                raise ModelError(f"node {node.name!r} adds a tensor of several scales, and has no form of 8 bits")
            sources[node.name] = source.name
    return sources


def shared_channels(graph: Graph) -> dict[str, int]:
    """Map each tensor that a shuffle reads to the number of successive channels that must share a scale.

    A shuffle turns these channels into neighbouring samples of one channel. Tensors that are added to such a tensor
    share scales in the same way.

    Raises:
        ModelError: A shuffle reads a tensor with several scales.
    """
    by_name = {node.name: node for node in graph.nodes}
    shared: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "shuffle":
            source = by_name[node.inputs[0]]
            while source.op in ("crop", "edge"):
                source = by_name[source.inputs[0]]
            if source.op not in ("conv", "modulate"):
                raise ModelError(f"node {node.name!r} shuffles a tensor of several scales, and has no form of 8 bits")
            shared[source.name] = node.values["factor"] ** 2
    sources = linked_scales(graph)
    for name, added in [*sources.items(), *reversed(sources.items())]:
        if name in shared or added in shared:
            shared |= dict.fromkeys((name, added), max(shared.get(name, 1), shared.get(added, 1)))
    return shared


def group_maximum(values: Array, group: int) -> Array:
    """Replace each `group` successive values by the largest of them."""
    largest: Array = values.reshape(-1, group).max(axis=1).repeat(group)
    return largest


def move_channels(node: Node, inputs: list[Array]) -> Array:
    """Derive a property of the channels, such as their scales, for a node that only moves samples."""
    match node.op:
        case "concat":
            return np.concatenate(inputs)
        case "unshuffle":
            return inputs[0].repeat(node.values["factor"] ** 2)
        case "shuffle":
            # The channels of a group become neighbouring samples and share the property.
            return inputs[0].reshape(-1, node.values["factor"] ** 2)[:, 0]
        case _:
            return inputs[0]


@dataclass(frozen=True)
class Grid:
    """Scales and bounds of the tensors of convolutions and modulations; those of other tensors follow from them.

    Attributes:
        scales: Integers per unit of the real values, by node, shape (channels,).
        bounds: Smallest and largest integer, by node.
    """

    scales: Mapping[str, Array]
    bounds: Mapping[str, Bounds]

    def all_scales(self, graph: Graph, bit_depth: int) -> dict[str, Array]:
        """Return the scales of every node's tensor by channel.

        The scale of planes is 2^(bit_depth - 2), since 4·(x / 2^b - 1/2) is (x - 2^(b-1)) / 2^(b-2).
        """
        scales: dict[str, Array] = {}
        for node in graph.nodes:
            if node.op in ("plane", "qp"):
                scales[node.name] = np.array([2.0 ** (bit_depth - 2)])
            elif node.name in self.scales:
                scales[node.name] = self.scales[node.name]
            elif node.op != "output":
                scales[node.name] = move_channels(node, [scales[name] for name in node.inputs])
        return scales

    def all_bounds(self, graph: Graph, bit_depth: int) -> dict[str, tuple[Array, Array]]:
        """Return the smallest and the largest integer of every node's tensor by channel."""
        middle = 1 << (bit_depth - 1)
        bounds: dict[str, tuple[Array, Array]] = {}
        for node in graph.nodes:
            if node.op in ("plane", "qp"):
                bounds[node.name] = (np.array([-middle]), np.array([middle - 1]))
            elif node.name in self.bounds:
                least, most = (np.full(graph.extents[node.name].channels, end) for end in self.bounds[node.name])
                bounds[node.name] = (least, most)
            elif node.op != "output":
                low, high = ([bounds[name][end] for name in node.inputs] for end in (0, 1))
                bounds[node.name] = (move_channels(node, low), move_channels(node, high))
        return bounds

    def is_byte(self, name: str) -> bool:
        """Return whether the tensor of a node has 8 bits."""
        return self.bounds[name] in (SIGNED, UNSIGNED)

    def widened(self, names: Collection[str], maximum: int = WIDE_MAXIMA[0]) -> "Grid":
        """Return the grid in which the bytes `names` have 12 or 13 bits, with accordingly finer scales.

        Args:
            names: Nodes whose tensors are bytes.
            maximum: Largest integer of these tensors, one of `WIDE_MAXIMA`.
        """
        scales, bounds = dict(self.scales), dict(self.bounds)
        for name in names:
            low, high = self.bounds[name]
            bounds[name] = (-maximum if low < 0 else 0, maximum)
            scales[name] = self.scales[name] * ((maximum + 1) // (high + 1))
        return Grid(scales, bounds)


def grid_for(
    graph: Graph, largest: Mapping[str, Array], wide: Collection[str] = (), maximum: int = WIDE_MAXIMA[0]
) -> Grid:
    """Choose the finest grid that holds the values seen in calibration.

    Tensors that are added to each other have scales between the best of each, with a ratio that is a power of two.
    There the largest values of a byte may saturate; a tensor in `wide` holds all of its values.

    Args:
        graph: A graph from `fuse`.
        largest: Largest magnitude by node and channel, from `channel_magnitudes`.
        wide: Nodes whose tensors have 12 or 13 bits instead of 8.
        maximum: Largest integer of the tensors in `wide`, one of `WIDE_MAXIMA`.
    """
    bounds, shared = tensor_bounds(graph), shared_channels(graph)
    best = {}
    for name, (_, high) in bounds.items():
        magnitude = group_maximum(np.maximum(largest[name], 1e-6), shared.get(name, 1))
        # A tensor of more bits than a byte can spare one, for pictures with larger values.
        best[name] = (high if high <= UNSIGNED[1] else (high + 1) / 2) / magnitude
    return Grid(_link_scales(graph, best, wide), bounds).widened(wide, maximum)


def _link_scales(graph: Graph, best: dict[str, Array], wide: Collection[str]) -> dict[str, Array]:
    """Replace the scales of tensors that are added to each other by their geometric means, up to powers of two.

    If one tensor is much larger in a channel than another can hold, as an RDN's fused features are compared with its
    first ones, the mean would saturate it. There the other tensor gets a coarser scale, which more bits can compensate.
    """
    roots: dict[str, str] = {}
    for name, source in linked_scales(graph).items():
        roots[name] = roots.get(source, source)
    for root in set(roots.values()):
        names = [root, *(name for name, linked_root in roots.items() if linked_root == root)]
        octaves = np.log2([best[name] for name in names])
        steps = np.rint(np.median(octaves - octaves[0], axis=1))
        aligned = octaves - steps[:, None]
        allowance = np.array([0.0 if name in wide else _SATURATION_OCTAVES for name in names])
        mean = np.minimum(aligned.mean(axis=0), (aligned + allowance[:, None]).min(axis=0))
        best |= {name: 2.0 ** (mean + step) for name, step in zip(names, steps, strict=True)}
    return best
