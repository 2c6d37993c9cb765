"""The graph of a network as 8 bits want it: the same real numbers, from weights and sums that round better."""

from dataclasses import replace

import numpy as np

from codecnn.errors import ModelError
from codecnn.filtering.integer._grid import moved
from codecnn.models.graph import MOVES, Array, Graph, Node
from codecnn.planes import SLICE_TYPE_PLANE


def fused(graph: Graph) -> Graph:
    """The graph in which a convolution takes along the sum that it is part of, which is rounded once.

    What multiplies planes that have one value a picture is gathered, too. In real numbers it computes the same.
    """
    graph = _gathered(graph)
    users: dict[str, list[Node]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for name in node.inputs:
            users[name].append(node)
    by_name = {node.name: node for node in graph.nodes}
    merged: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "add":
            parts = [by_name[name] for name in node.inputs if len(users[name]) == 1]
            sums = [one for one in parts if one.op == "conv" and len(one.inputs) == 1 and not one.values["relu"]]
            if not sums:
                raise ModelError(f"node {node.name!r} adds no convolution, and has no form of 8 bits")
            (other,) = (name for name in node.inputs if name != sums[-1].name)
            merged[node.name] = replace(sums[-1], name=node.name, inputs=(sums[-1].inputs[0], other))
            by_name[sums[-1].name] = merged[node.name]
    gone = {name for name, node in by_name.items() if node.name != name}
    return Graph(tuple(merged.get(node.name, node) for node in graph.nodes if node.name not in gone))


def _gathered(graph: Graph) -> Graph:
    """The graph in which the weights of planes that have one value a picture are as few as can be.

    Training moves all that multiply such a plane alike, each is small, and all round the same way: of 36 weights of 0.4
    nothing would be left. So of each output their sum is in equal weights, as few as make none larger than the largest
    of the others. Where a convolution pads it stays as it is, for zeros around such a plane are not its value.
    """
    constant: dict[str, Array] = {}
    nodes = []
    for node in graph.nodes:
        inputs = [constant[name] for name in node.inputs]
        if node.op in MOVES:
            constant[node.name] = moved(node, inputs)
        else:
            one_value = node.op == "qp" or node.name == SLICE_TYPE_PLANE
            constant[node.name] = np.full(graph.extents[node.name].channels, one_value)
        if node.op == "conv" and node.values["groups"] == 1 and not node.values["pad"] and inputs[0].any():
            node = replace(node, tensors={**node.tensors, "weight": _in_few(node.tensors["weight"], inputs[0])})
        nodes.append(node)
    return Graph(tuple(nodes))


def _in_few(weight: Array, constant: Array) -> Array:
    """Weights (o, i, h, w) with the sums of those of the inputs that are `constant` (i) in few of them."""
    own = weight[:, constant].reshape(len(weight), -1)
    others = np.abs(weight[:, ~constant]).reshape(len(weight), -1)
    largest = others.max(axis=1, initial=1e-30)
    count = np.ceil(np.abs(own.sum(axis=1)) / largest).clip(1, own.shape[1])
    each = (own.sum(axis=1) / count)[:, None] * (np.arange(own.shape[1]) < count[:, None])
    made = weight.copy()
    made[:, constant] = each.reshape(len(weight), -1, *weight.shape[2:])
    return made
