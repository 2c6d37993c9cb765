"""Convolutions over concatenations, computed part by part, and several layers of a dense block at once.

A convolution over a concatenation is the sum of those over its parts, and sums of integer networks are exact in any
order. What dense blocks concatenate is several times as large as what they make, and small tensors are quick
(`_tile_memory`). As in `GroupedRDB`, layers go together: oneDNN makes 16 channels a vector instruction.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from codecnn.models import GROUP_WIDTH
from codecnn.models.graph import Graph, Node

Names = tuple[str, ...]
Reads = Mapping[str, Names]
"""By convolution the tensors that it convolves the concatenation of."""


@dataclass(frozen=True)
class Sums:
    """A convolution as a sum over parts, or several `layers`, of which each reads what the one before reads and makes.

    weights  of what all of them read, part by part, for all layers' channels
    bias     of all layers' channels
    within   of what each layer but the last makes, for the channels of those behind it
    """

    layers: tuple[Node, ...]
    weights: tuple[Tensor, ...]
    bias: Tensor
    within: tuple[Tensor, ...]


def by_parts(
    graph: Graph, tensors: Mapping[str, Mapping[str, Tensor]], in_any_order: Callable[[Node], bool]
) -> tuple[list[Node], dict[str, Sums]]:
    """The nodes without the concatenations that only convolutions read, and by name those that are computed as `Sums`.

    The inputs of these are the parts, and behind them what is added to the sum where there is such a tensor. Layers
    that go together make one tensor, of the first one's name. `tensors` are those of each node; `in_any_order` says
    of a convolution whether its terms may be added so.
    """
    reads, undone = _reads(graph, in_any_order)
    kept = [node for node in graph.nodes if node.name not in undone]
    read_whole = frozenset(name for node in kept for name in (node.inputs[1:] if node.name in reads else node.inputs))
    groups = _groups({node.name: node for node in kept if node.name in reads}, reads, read_whole)
    nodes: list[Node] = []
    sums: dict[str, Sums] = {}
    for node in kept:
        names, parts = groups.get(node.name, (node.name,)), _parts(reads.get(node.name, ()), groups)
        if node.name != names[0]:
            continue
        if len(names) > 1 or (parts and parts != [node.inputs[:1]]):
            layers = tuple(one for one in kept if one.name in names)
            widths = [[graph.extents[name].channels for name in part] for part in (*parts, names)]
            node = replace(node, inputs=(*(part[0] for part in parts), *node.inputs[1:]))
            sums[node.name] = _sums(layers, widths, tensors)
        nodes.append(node)
    return nodes, sums


def _sums(layers: tuple[Node, ...], widths: list[list[int]], tensors: Mapping[str, Mapping[str, Tensor]]) -> Sums:
    """`widths` are the channels of all tensors, those of what all layers read first, part by part, and their own."""
    *read, own = widths
    columns = [
        torch.split(tensors[layer.name]["weight"], [*map(sum, read), *own[:index]], dim=1)
        for index, layer in enumerate(layers)
    ]

    def stacked(index: int) -> Tensor:
        """The weights of a part, for all layers that read it."""
        weights = [parts[index] for parts in columns if index < len(parts)]
        return torch.cat(weights).contiguous(memory_format=torch.channels_last)

    made = [stacked(index) for index in range(len(columns[-1]))]
    bias = torch.cat([tensors[layer.name]["bias"] for layer in layers])
    return Sums(layers, tuple(made[: len(read)]), bias, tuple(made[len(read) :]))


def _reads(graph: Graph, in_any_order: Callable[[Node], bool]) -> tuple[Reads, Collection[str]]:
    """Of each convolution whose terms may be added in any order what it reads; the concatenations undone for it."""
    reads = {node.name: node.inputs[:1] for node in graph.nodes if node.op == "conv" and in_any_order(node)}
    undone: dict[str, Names] = {}
    for node in reversed(graph.nodes):
        users = [user for user in graph.nodes if node.name in user.inputs]
        if node.op == "concat" and all(
            user.name in undone or (user.name in reads and node.name not in user.inputs[1:]) for user in users
        ):
            undone[node.name] = node.inputs

    def flat(name: str) -> Names:
        return tuple(part for one in undone[name] for part in flat(one)) if name in undone else (name,)

    return {name: flat(read) for name, (read,) in reads.items()}, undone


def _groups(convolutions: Mapping[str, Node], reads: Reads, read_whole: frozenset[str]) -> dict[str, Names]:
    """The layers that go together, by each of them: as many as make about GROUP_WIDTH channels.

    Each reads what the one before reads and makes, with taps of the same size. What else reads one of them reads all,
    one behind the other, and as parts.
    """
    found: dict[str, Names] = {}
    for first, node in convolutions.items():
        channels, *_, rows, columns = node.tensors["weight"].shape
        group: Names = (first,)
        for name, other in convolutions.items():
            alike = len(other.inputs) == 1 and other.tensors["weight"].shape[2:] == (rows, columns)
            if alike and len(group) < round(GROUP_WIDTH / channels) and reads[name] == reads[first] + group:
                group = (*group, name)
        together = all(_reads_all(read, group) for name, read in reads.items() if name not in group)
        if len(group) > 1 and first not in found and together and read_whole.isdisjoint(group):
            found |= dict.fromkeys(group, group)
    return found


def _reads_all(read: Names, group: Names) -> bool:
    """Whether a group is read in one piece, or not at all."""
    at = read.index(group[0]) if group[0] in read else len(read)
    return set(group).isdisjoint(read[:at] + read[at + len(group) :]) and read[at : at + len(group)] in (group, ())


def _parts(read: Names, groups: Mapping[str, Names]) -> list[Names]:
    """What a convolution reads as it is computed: groups, and what is in none by itself."""
    parts: list[Names] = []
    while read:
        parts.append(groups.get(read[0], read[:1]))
        read = read[len(parts[-1]) :]
    return parts
