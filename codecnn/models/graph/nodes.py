"""A network as a list of operations: what is exported, quantised and written down for others to implement.

A graph is flat: no control flow, no shapes, nothing of PyTorch's modules. Every operation takes and returns tensors
(n, c, h, w). What each computes is `run` below for real numbers, and docs/integer.md for integers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.models.planes import CHROMA_PLANES, KNOWN_PLANES, centred
from codecnn.planes import MAX_QP

QPS = MAX_QP + 1
"""Rows of a table by QP: one for each QP from 0 to 63."""
OUTPUTS = ("y", "u", "v")

Array = npt.NDArray[Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Node:
    """One operation; its name is that of the tensor it makes.

    plane      the input plane of the node's name, centred: 4·(x - 1/2)
    qp         the QP as a plane of its input's size: (q - 32) / 16
    conv       convolution, padded with zeros to keep the size where `pad` is 1, and the second input added where there
               is one; `relu` 1 cuts what is negative
    add, concat of their inputs
    modulate   factor[q]·x + offset[q] by channel; tables (64, c)
    crop       without `size` samples on each side
    edge       one sample more on each side, the nearest one repeated
    unshuffle, shuffle by `factor`, channels ordered as PyTorch's PixelUnshuffle and PixelShuffle order them
    output     gain[q]·x, of one channel, added to the plane that is its second input without `crop` samples on each
               side; without a second input to 1/2; tables (64,) or, for all QPs, (1,)
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    values: Mapping[str, int] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Extent:
    """What is known of a node's tensor without running it.

    channels  how many it has
    cell      side, in luma samples, of the square that one of its samples stands for
    trim      luma samples that are missing on each side
    reach     how far, in luma samples, one of its samples looks into the planes along rows and along columns
    """

    channels: int
    cell: int
    trim: int
    reach: tuple[int, int]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed. Raises ModelError where they do not fit together.

    planes and outputs are those of a FilterNetwork; halo, radius and stride too, derived from the nodes.
    """

    nodes: tuple[Node, ...]
    extents: Mapping[str, Extent] = field(init=False)

    def __post_init__(self) -> None:
        extents: dict[str, Extent] = {}
        for node in self.nodes:
            if node.name in extents:
                raise ModelError(f"two nodes are called {node.name!r}")
            missing = [name for name in node.inputs if name not in extents]
            if missing:
                raise ModelError(f"node {node.name!r} takes {missing[0]!r}, which no node before it makes")
            extents[node.name] = _extent(node, [extents[name] for name in node.inputs])
        object.__setattr__(self, "extents", extents)
        if self.outputs not in (("y",), OUTPUTS):
            raise ModelError(f"the outputs are {', '.join(self.outputs) or 'none'}, neither y nor y, u, v")
        if "rec_y" not in self.planes:
            raise ModelError("no node is the plane rec_y")
        if len({extents[name].trim for name in self.outputs}) > 1:
            raise ModelError("the outputs have lost different numbers of samples")
        for name, extent in extents.items():
            # Windows are a multiple of the stride and the halo; what a node has of them must be whole samples.
            if extent.trim > self.halo or 2 * (self.halo - extent.trim) % extent.cell:
                raise ModelError(f"node {name!r} has no whole number of samples in a window with halo {self.halo}")
        if self.halo % 2 and any(name in CHROMA_PLANES for name in self.planes):
            raise ModelError(f"a halo of {self.halo} luma samples has no half for planes of chroma")

    @property
    def planes(self) -> tuple[str, ...]:
        """Planes that the graph takes, but for the QP, which is a number."""
        return tuple(node.name for node in self.nodes if node.op == "plane")

    @property
    def uses_qp(self) -> bool:
        return any(
            node.op in ("qp", "modulate") or (node.op == "output" and len(node.tensors["gain"]) > 1)
            for node in self.nodes
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.op == "output")

    @property
    def halo(self) -> int:
        return self.extents[self.outputs[0]].trim

    @property
    def radius(self) -> int:
        return max(max(self.extents[name].reach) for name in self.outputs)

    @property
    def stride(self) -> int:
        return lcm(*(extent.cell for extent in self.extents.values()))


def walk(nodes: Sequence[Node], compute: Callable[[Node, list[Made]], Made]) -> dict[str, Made]:
    """The outputs, from what `compute` makes of each node and its inputs; a tensor is let go after its last use."""
    last_use = {name: node.name for node in nodes for name in (node.name, *node.inputs)}
    made: dict[str, Made] = {}
    outputs = {}
    for node in nodes:
        made[node.name] = compute(node, [made[name] for name in node.inputs])
        if node.op == "output":
            outputs[node.name] = made[node.name]
        for name in {node.name, *node.inputs}:
            if last_use[name] == node.name:
                del made[name]
    return outputs


def run(
    graph: Graph,
    planes: Mapping[str, Tensor],
    qp: int,
    observe: Callable[[str, Tensor], None] | None = None,
    known: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Outputs of the graph in real numbers, as the network that it was built from gives them.

    Planes are as the network takes them, with halo; `observe` gets the name and the tensor of every node that is
    computed, which those whose tensors are `known` are not. Computed in the type of `rec_y`.
    """

    def compute(node: Node, inputs: list[Tensor]) -> Tensor:
        if known is not None and node.name in known:
            return known[node.name]
        tensors = {name: torch.from_numpy(array).to(planes["rec_y"]) for name, array in node.tensors.items()}
        if node.op == "plane":
            result = centred(planes[node.name])
        elif node.op == "output":
            result = _output(node, inputs[0], tensors["gain"], planes, qp)
        else:
            result = _COMPUTE[node.op](node, inputs, tensors, qp)
        if observe is not None:
            observe(node.name, result)
        return result

    return walk(graph.nodes, compute)


def same_padding(weight: Array | Tensor) -> tuple[int, int]:
    """Zeros above and below, left and right, that a convolution with `weight` (o, i, h, w) needs to keep the size."""
    return weight.shape[2] // 2, weight.shape[3] // 2


def _conv(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    padding = same_padding(tensors["weight"]) if node.values["pad"] else (0, 0)
    x = F.conv2d(inputs[0], tensors["weight"], tensors["bias"], padding=padding, groups=node.values["groups"])
    x = x + inputs[1] if len(inputs) == 2 else x
    return x.relu() if node.values["relu"] else x


def _modulate(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    return inputs[0] * tensors["factor"][qp, :, None, None] + tensors["offset"][qp, :, None, None]


def cropped(x: Tensor, size: int) -> Tensor:
    """`x` (n, c, h, w) without `size` samples on each side."""
    return x[:, :, size : x.shape[2] - size, size : x.shape[3] - size]


def _output(node: Node, x: Tensor, gain: Tensor, planes: Mapping[str, Tensor], qp: int) -> Tensor:
    change = x * gain[qp if len(gain) > 1 else 0]
    return change + (cropped(planes[node.inputs[1]], node.values["crop"]) if len(node.inputs) == 2 else 0.5)


Operation = Callable[[Node, list[Tensor], dict[str, Tensor], int], Tensor]

MOVES: dict[str, Operation] = {
    "concat": lambda node, inputs, tensors, qp: torch.cat(inputs, dim=1),
    "crop": lambda node, inputs, tensors, qp: cropped(inputs[0], node.values["size"]),
    "edge": lambda node, inputs, tensors, qp: F.pad(inputs[0], (1, 1, 1, 1), mode="replicate"),
    "unshuffle": lambda node, inputs, tensors, qp: F.pixel_unshuffle(inputs[0], node.values["factor"]),
    "shuffle": lambda node, inputs, tensors, qp: F.pixel_shuffle(inputs[0], node.values["factor"]),
}
"""Operations that only move samples: the same for real numbers and for integers."""
_COMPUTE: dict[str, Operation] = MOVES | {
    "qp": lambda node, inputs, tensors, qp: torch.full_like(inputs[0][:, :1], (qp - 32) / 16),
    "conv": _conv,
    "add": lambda node, inputs, tensors, qp: inputs[0] + inputs[1],
    "modulate": _modulate,
}

_INPUTS = {"plane": (0,), "conv": (1, 2), "add": (2,), "output": (1, 2), "concat": range(1, 10_000)}
"""How many inputs an operation takes; all others one."""
GRAPH_VALUES = {
    "conv": {"pad": 1, "groups": 2**16},
    "crop": {"size": 2**10},
    "unshuffle": {"factor": 16},
    "shuffle": {"factor": 16},
    "output": {"crop": 2**10},
}
"""Numbers that an operation has, and the largest that each may be."""
GRAPH_TENSORS = {"conv": {"weight": 4, "bias": 1}, "modulate": {"factor": 2, "offset": 2}, "output": {"gain": 1}}
"""Tensors that an operation has, and how many dimensions each has."""
MAX_REACH, MAX_CHANNELS = 2**11, 2**14
"""Luma samples and channels, many times those of the zoo's largest networks."""


def _extent(node: Node, inputs: list[Extent]) -> Extent:
    """The extent of a node's tensor. Raises ModelError for a node that is none, or that its inputs do not fit."""

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise ModelError(f"node {node.name[:80]!r} ({node.op[:20]}) {what}")

    need(node.op in _COMPUTE or node.op in ("plane", "output"), "is no known operation")
    need(len(inputs) in _INPUTS.get(node.op, (1,)), f"cannot take {len(inputs)} inputs")
    for name, most in GRAPH_VALUES.get(node.op, {}).items():
        value = node.values.get(name)
        need(type(value) is int and 0 <= value <= most, f"has {name} {str(value)[:30]}, not 0 to {most}")
    for name, dimensions in GRAPH_TENSORS.get(node.op, {}).items():
        tensor = node.tensors.get(name)
        need(
            tensor is not None and tensor.ndim == dimensions and tensor.size > 0, f"has no {name} of {dimensions} axes"
        )
    if node.op == "plane":
        need(node.name in KNOWN_PLANES and node.name != "qp", "is no known plane")
        return Extent(1, 2 if node.name in CHROMA_PLANES else 1, 0, (0, 0))
    channels, cell, trim = inputs[0].channels, inputs[0].cell, inputs[0].trim
    down, across = (max(extent.reach[axis] for extent in inputs) for axis in (0, 1))
    match node.op:
        case "qp":
            channels, down, across = 1, 0, 0
        case "conv":
            weight, groups = node.tensors["weight"], node.values["groups"]
            height, width = weight.shape[2:]
            need(height % 2 == width % 2 == 1, f"has a kernel of {height}x{width}, not of odd sides")
            need(
                groups > 0 and channels == weight.shape[1] * groups, f"has weights that do not fit {channels} channels"
            )
            need(weight.shape[0] % max(groups, 1) == 0, f"has {weight.shape[0]} outputs in {groups} groups")
            need(len(node.tensors["bias"]) == weight.shape[0], "has a bias that does not fit its weights")
            need(node.values["pad"] == 1 or height == width, "is not padded and not square")
            down, across = down + cell * (height // 2), across + cell * (width // 2)
            trim += 0 if node.values["pad"] else cell * (height // 2)
            channels = weight.shape[0]
            for added in inputs[1:]:
                fits = (added.channels, added.cell, added.trim) == (channels, cell, trim)
                need(fits, "is added to a tensor of another size")
        case "add" | "concat":
            same = all((extent.cell, extent.trim) == (cell, trim) for extent in inputs)
            need(same, "has inputs of different sizes")
            need(node.op == "concat" or inputs[0].channels == inputs[1].channels, "has inputs of different channels")
            channels = channels if node.op == "add" else sum(extent.channels for extent in inputs)
        case "modulate":
            for table in (node.tensors[name] for name in GRAPH_TENSORS["modulate"]):
                need(table.shape == (QPS, channels), f"has a table {table.shape}, not {(QPS, channels)}")
        case "crop":
            trim += cell * node.values["size"]
        case "edge":
            trim -= cell
        case "unshuffle":
            factor = node.values["factor"]
            need(factor > 0, "has factor 0")
            down, across = down + (factor - 1) * cell, across + (factor - 1) * cell
            channels, cell = channels * factor**2, cell * factor
        case "shuffle":
            factor = node.values["factor"]
            need(factor > 0 and cell % factor == 0 and channels % factor**2 == 0, f"cannot shuffle by {factor}")
            channels, cell = channels // factor**2, cell // factor
        case "output":
            _check_output(node, inputs, need)
    need(max(down, across, abs(trim)) <= MAX_REACH, f"reaches farther than {MAX_REACH} samples")
    need(channels <= MAX_CHANNELS, f"has more than {MAX_CHANNELS} channels")
    return Extent(channels, cell, trim, (down, across))


def _check_output(node: Node, inputs: list[Extent], need: Callable[[bool, str], None]) -> None:
    made = inputs[0]
    need(node.name in OUTPUTS, "is no known output")
    need(made.channels == 1 and made.cell == (1 if node.name == "y" else 2), "is not one plane of its component's size")
    need(made.trim >= 0 and len(node.tensors["gain"]) in (1, QPS), "has samples that are not there, or a wrong table")
    if len(inputs) == 2:
        need(node.inputs[1] == f"rec_{node.name}", "is not added to its own component")
        need(made.trim == made.cell * node.values["crop"], "crops the plane to another size than the residual's")
