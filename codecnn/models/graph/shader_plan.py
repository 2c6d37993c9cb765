"""Plan of a graph as passes of a shader: which pass computes which node, and where its channels are stored.

A thread computes one cell, the square of luma samples that one sample of the trunk represents. A pass can compute a
node once all that it reads in other cells is stored by earlier passes. Texels have four channels; those of a cell lie
beside and below each other in the texture of their pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.models.graph.nodes import Graph, Node

Texel = tuple[str, int]
"""Four channels of a node: its name, and the number of the group of channels."""


@dataclass(frozen=True)
class Store:
    """Texture that a pass writes for later passes.

    Attributes:
        places: Column and row within the cell, by texel.
        across: Texels of a cell along a row.
        down: Texels of a cell along a column.
        margin: Cells around the picture that the texture has.
    """

    places: Mapping[Texel, tuple[int, int]]
    across: int
    down: int
    margin: int


class Plan:
    """Passes of a shader for a graph.

    Attributes:
        graph: The graph.
        nodes: Nodes by name.
        users: Nodes that take a node, by name.
        cell: Side in luma samples of the cell of all nodes that compute.
        stages: Number of the first pass that can compute a node, by name; 0 for `is_source`.
        stores: Textures by the number of the pass that writes them.

    Raises:
        ModelError: A node has no form in a shader.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {node.name: node for node in graph.nodes}
        self.users = {name: [user for user in graph.nodes if name in user.inputs] for name in self.nodes}
        self.cell = next((graph.extents[node.name].cell for node in graph.nodes if node.op == "conv"), 1)
        self.stages: dict[str, int] = {}
        for node in graph.nodes:
            self.stages[node.name] = self._stage(node)
        self.stores = {stage: store for stage in range(1, max(self.stages.values())) if (store := self._store(stage))}

    def is_source(self, name: str) -> bool:
        """Return whether a node only rearranges planes, so that every pass can read it from the player's textures."""
        node = self.nodes[name]
        return node.op in ("plane", "qp") or (
            node.op in ("unshuffle", "concat") and all(self.is_source(part) for part in node.inputs)
        )

    def texels(self, name: str) -> list[Texel]:
        """Return all channels of a node as texels of the nodes that compute them."""
        node = self.nodes[name]
        if node.op == "crop" and not self.is_source(node.inputs[0]):
            return self.texels(node.inputs[0])
        if node.op == "concat" and not self.is_source(name):
            if any(self.graph.extents[part].channels % 4 for part in node.inputs[:-1]):
                raise unfit(node)
            return [texel for part in node.inputs for texel in self.texels(part)]
        return [(name, index) for index in range(ceil_div(self.graph.extents[name].channels, 4))]

    def margin(self, name: str) -> int:
        """Return the cells around the picture that a node has."""
        return (self.graph.halo - self.graph.extents[name].trim) // self.cell

    def residual(self, output: str) -> str:
        """Return the node whose channels are the samples of an output in a cell, row by row."""
        node = self.nodes[output]
        source = self.nodes[node.inputs[0]]
        factor = source.values["factor"] if source.op == "shuffle" else 1
        if factor * self.graph.extents[output].cell != self.cell:
            raise unfit(node)
        name = source.inputs[0] if source.op == "shuffle" else source.name
        if self.graph.extents[name].channels != factor**2 or self.is_source(name):
            raise unfit(node)
        return name

    def _stage(self, node: Node) -> int:
        if self.is_source(node.name):
            return 0
        reshaping = node.op in ("shuffle", "output")
        if not reshaping and self.graph.extents[node.name].cell != self.cell:
            raise unfit(node)
        if node.op in ("edge", "unshuffle"):
            raise unfit(node)
        if node.op == "shuffle" and any(user.op != "output" for user in self.users[node.name]):
            raise unfit(node)
        stage = max(1, *(self.stages[name] for name in node.inputs))
        return stage + 1 if is_spatial(node) and not self.is_source(node.inputs[0]) else stage

    def _store(self, stage: int) -> Store | None:
        """Return the texture for the nodes of a stage that later stages read; None if there are none."""
        readers = [node for node in self.graph.nodes if self.stages[node.name] > stage]
        read = [texel for node in readers for name in node.inputs for texel in self.texels(name)]
        texels = [texel for texel in dict.fromkeys(read) if self.stages[texel[0]] == stage]
        if not texels:
            return None
        across, down = layout(len(texels))
        places = {texel: (index % across, index // across) for index, texel in enumerate(texels)}
        return Store(places, across, down, max(self.margin(name) for name, _ in texels))


def is_spatial(node: Node) -> bool:
    """Return whether a node is a convolution that reads more than one cell."""
    return node.op == "conv" and node.tensors["weight"].shape[2:] != (1, 1)


def layout(count: int) -> tuple[int, int]:
    """Return how many texels of a cell lie beside and below each other: nearly square, with the fewest empty ones."""
    side = isqrt(count - 1) + 1
    across = min(range(side, 2 * side), key=lambda width: ceil_div(count, width) * width)
    return across, ceil_div(count, across)


def unfit(node: Node) -> ModelError:
    """Return the error for a node that has no form in a shader."""
    return ModelError(f"node {node.name!r} ({node.op}) has no form in a shader: use the format onnx")
