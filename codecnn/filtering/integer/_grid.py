"""Which integers the tensors of a network of 8 bits become: how many bits each has, and how fine it is.

A tensor's integers are its real values times a scale by channel, any positive number: weights take the ratio of the
scales on both sides of them along, so that only powers of two are left to divide by. Where one tensor is added to
another, both scales differ by a power of two.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from codecnn.errors import ModelError
from codecnn.models.graph import Array, Graph, Node

Bounds = tuple[int, int]
SIGNED, UNSIGNED, WIDE = (-128, 127), (0, 255), (-4095, 4095)
RESIDUAL = (-2047, 2047)
"""Of what leaves the network: the fewer its bits, the more has the gain by QP, which it is multiplied by."""
FINE = (2047, 4095)
"""The largest integer of a tensor that is no byte, of 12 or of 13 bits: the more it has, the coarser are the weights
that multiply it, whose products sum to at most 2^24."""
FEW_CHANNELS = 4
"""What a convolution makes of planes in so few channels is no feature yet: it keeps more bits."""
MOVES = ("concat", "crop", "edge", "unshuffle", "shuffle")


def spans(graph: Graph) -> dict[str, Bounds]:
    """The least and the largest integer of each convolution's and modulation's tensor, bytes where it can be.

    `graph` is a fused one.
    """
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

    made: dict[str, Bounds] = {}
    for node in graph.nodes:
        if node.op not in ("conv", "modulate"):
            continue
        of_planes = all(one.op in ("plane", "qp") for one in before(node.inputs[0]))
        few = graph.extents[node.name].channels <= FEW_CHANNELS
        if beyond(node.name) == {"output"}:
            made[node.name] = RESIDUAL
        elif of_planes and few and not node.values.get("relu"):
            made[node.name] = WIDE
        else:
            made[node.name] = UNSIGNED if node.values.get("relu") else SIGNED
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


def cells(graph: Graph) -> dict[str, int]:
    """Of each tensor how many channels, one after the other, have one scale: those that a shuffle makes neighbours."""
    by_name = {node.name: node for node in graph.nodes}
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "shuffle":
            source = by_name[node.inputs[0]]
            while source.op in ("crop", "edge"):
                source = by_name[source.inputs[0]]
            if source.op not in ("conv", "modulate"):
                raise ModelError(f"node {node.name!r} shuffles a tensor of several scales, and has no form of 8 bits")
            found[source.name] = node.values["factor"] ** 2
    sources = linked(graph)
    for name, added in [*sources.items(), *reversed(sources.items())]:
        if name in found or added in found:
            found |= dict.fromkeys((name, added), max(found.get(name, 1), found.get(added, 1)))
    return found


def together(values: Array, cell: int) -> Array:
    """The largest value of each `cell` channels, for all of them."""
    most: Array = values.reshape(-1, cell).max(axis=1).repeat(cell)
    return most


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


@dataclass(frozen=True)
class Grid:
    """Of each convolution's and modulation's tensor the real scale by channel, and the least and the largest integer.

    Those of a tensor that only moves samples, and of planes, follow.
    """

    scales: Mapping[str, Array]
    bounds: Mapping[str, Bounds]

    def all_scales(self, graph: Graph, bit_depth: int) -> dict[str, Array]:
        """The scales of every node's tensor.

        Of planes they are 2^(bit_depth - 2), since 4·(x / 2^b - 1/2) is (x - 2^(b-1)) / 2^(b-2).
        """
        found: dict[str, Array] = {}
        for node in graph.nodes:
            if node.op in ("plane", "qp"):
                found[node.name] = np.array([2.0 ** (bit_depth - 2)])
            elif node.name in self.scales:
                found[node.name] = self.scales[node.name]
            elif node.op != "output":
                found[node.name] = moved(node, [found[name] for name in node.inputs])
        return found

    def all_bounds(self, graph: Graph, bit_depth: int) -> dict[str, tuple[Array, Array]]:
        """The least and the largest integer of every node's tensor, by channel."""
        middle = 1 << (bit_depth - 1)
        found: dict[str, tuple[Array, Array]] = {}
        for node in graph.nodes:
            if node.op in ("plane", "qp"):
                found[node.name] = (np.array([-middle]), np.array([middle - 1]))
            elif node.name in self.bounds:
                least, most = (np.full(graph.extents[node.name].channels, end) for end in self.bounds[node.name])
                found[node.name] = (least, most)
            elif node.op != "output":
                low, high = ([found[name][end] for name in node.inputs] for end in (0, 1))
                found[node.name] = (moved(node, low), moved(node, high))
        return found

    def is_byte(self, name: str) -> bool:
        return self.bounds[name] in (SIGNED, UNSIGNED)

    def widened(self, names: Collection[str], fine: int = FINE[0]) -> "Grid":
        """The grid in which those bytes go up to `fine`, one of FINE, and are as much finer."""
        scales, bounds = dict(self.scales), dict(self.bounds)
        for name in names:
            low, high = self.bounds[name]
            bounds[name] = (-fine if low < 0 else 0, fine)
            scales[name] = self.scales[name] * ((fine + 1) // (high + 1))
        return Grid(scales, bounds)
