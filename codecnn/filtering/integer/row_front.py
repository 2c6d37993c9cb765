"""Tensors from before the rows, as the row engine stores them.

A network concatenates planes, and divides them into cells whose samples become channels ("unshuffle"). The rows are
written from the planes in one pass, so that these nodes are not computed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from codecnn.base.compiled import compiled_entry
from codecnn.models.graph import Array, Graph, Node


@dataclass(frozen=True)
class Source:
    """A tensor that some channels of a stored tensor are written from.

    Attributes:
        name: Node of the tensor.
        factor: Width and height of its cells: each is one pixel of the stored tensor.
        first: First channel that is written.
    """

    name: str
    factor: int
    first: int


def find_sources(graph: Graph, name: str, first: int = 0) -> list[Source]:
    """Find the tensors that a tensor is put together from; they are written from channel `first` on."""
    node = next(node for node in graph.nodes if node.name == name)
    if node.op == "unshuffle":
        return [Source(node.inputs[0], node.values["factor"], first)]
    if node.op != "concat":
        return [Source(name, 1, first)]
    sources = []
    for part in node.inputs:
        sources += find_sources(graph, part, first)
        first += graph.extents[part].channels
    return sources


def needed_nodes(nodes: Sequence[Node], names: Collection[str]) -> list[Node]:
    """Return those of some nodes, each after its inputs, that tensors are computed from."""
    needed = set(names)
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return [node for node in nodes if node.name in needed]


@compiled_entry
def store_integers(x: Array, factor: int, stored: Array, zero: int) -> None:
    """Write cells of integers plus a zero point.

    Args:
        x: Integers in float32, shape (c, h · factor, w · factor).
        factor: Width and height of a cell.
        stored: Channels to write, shape (h, w, c · factor²), in the type that rows are stored in.
        zero: The zero point.
    """
    for channel in range(x.shape[0]):
        for row in range(stored.shape[0]):
            for cell_row in range(factor):
                samples = x[channel, row * factor + cell_row]
                for cell_column in range(factor):
                    target = (channel * factor + cell_row) * factor + cell_column
                    for column in range(stored.shape[1]):
                        stored[row, column, target] = int(samples[column * factor + cell_column]) + zero
