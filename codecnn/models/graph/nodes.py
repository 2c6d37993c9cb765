"""Graphs of plain operations: the form in which networks are exported, quantised and specified.

A graph is a flat list of operations on tensors (n, c, h, w), without control flow, shapes or PyTorch modules. `run`
defines each operation in real numbers, docs/explanation/integers.md in integers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.base.errors import ModelError
from codecnn.base.planes import MAX_QP
from codecnn.models.planes import (
    CENTRED_SCALE,
    CHROMA_PLANES,
    DIFFERENCE_PLANES,
    DIFFERENCE_SCALE,
    KNOWN_PLANES,
    SIGNED_PLANES,
    centred,
)

QPS = MAX_QP + 1
"""Rows of a table by QP: one for each QP from 0 to 63."""

OUTPUTS = ("y", "u", "v")

Array = npt.NDArray[Any]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Node:
    """One operation and the tensor it computes, which has the node's name.

    The operations:

    - plane: the input plane of the node's name, centred: 4·(x - 1/2)
    - qp: the QP as a plane of the input's size: (q - 32) / 16
    - conv: convolution, zero padded to keep the size if `pad` is 1, plus the second input if there is one; then ReLU
      if `relu` is 1
    - add, concat: sum or concatenation of the inputs
    - modulate: factor[q]·x + offset[q] by channel; tables of shape (64, c)
    - crop: the input without `size` samples on each side
    - edge: the input with one more sample on each side, the nearest one repeated
    - unshuffle, shuffle: PyTorch's PixelUnshuffle and PixelShuffle by `factor`
    - output: gain[q]·x of one channel, plus the plane that is the second input without `crop` samples on each side, or
      plus 1/2 if there is no second input; tables of shape (64,) or, for all QPs, (1,)

    Attributes:
        name: Name of the node and of its tensor.
        op: Name of the operation.
        inputs: Names of the input nodes.
        values: Integer parameters of the operation, as in `GRAPH_VALUES`.
        tensors: Constant tensors of the operation, as in `GRAPH_TENSORS`.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    values: Mapping[str, int] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Extent:
    """Size of a node's tensor relative to the picture, derived without running the graph.

    Attributes:
        channels: Number of channels.
        cell: Side, in luma samples, of the square that one sample of the tensor represents.
        trim: Luma samples that are missing on each side.
        reach: Distance, in luma samples along rows and along columns, over which a sample depends on the planes.
    """

    channels: int
    cell: int
    trim: int
    reach: tuple[int, int]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed.

    Attributes:
        nodes: The operations; each one comes after its inputs.
        extents: Size of each node's tensor.

    Raises:
        ModelError: The nodes do not fit together.
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
            # In a window of a multiple of the stride plus the halo, every tensor must have a whole number of samples.
            if extent.trim > self.halo or 2 * (self.halo - extent.trim) % extent.cell:
                raise ModelError(f"node {name!r} has no whole number of samples in a window with halo {self.halo}")
        if self.halo % 2 and any(name in CHROMA_PLANES for name in self.planes):
            raise ModelError(f"a halo of {self.halo} luma samples has no half for planes of chroma")

    @property
    def planes(self) -> tuple[str, ...]:
        """Input planes without the QP, which is a number."""
        return tuple(node.name for node in self.nodes if node.op == "plane")

    @property
    def uses_qp(self) -> bool:
        """True if the result depends on the QP."""
        return any(
            node.op in ("qp", "modulate") or (node.op == "output" and len(node.tensors["gain"]) > 1)
            for node in self.nodes
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the filtered components: ("y",) or ("y", "u", "v")."""
        return tuple(node.name for node in self.nodes if node.op == "output")

    @property
    def halo(self) -> int:
        """Luma samples that the graph removes on each side."""
        return self.extents[self.outputs[0]].trim

    @property
    def radius(self) -> int:
        """Distance, in luma samples, over which an output sample depends on the input."""
        return max(max(self.extents[name].reach) for name in self.outputs)

    @property
    def stride(self) -> int:
        """Multiple, in luma samples, of which height and width without halo must be."""
        return lcm(*(extent.cell for extent in self.extents.values()))


def walk(nodes: Sequence[Node], compute: Callable[[Node, list[Value]], Value]) -> dict[str, Value]:
    """Compute all nodes in order and return the values of the output nodes.

    Args:
        nodes: Nodes, each one after its inputs.
        compute: Function of a node and the values of its inputs. A value is released after its last use.

    Returns:
        Value by name of the output node.
    """
    last_use = {name: node.name for node in nodes for name in (node.name, *node.inputs)}
    values: dict[str, Value] = {}
    outputs = {}
    for node in nodes:
        values[node.name] = compute(node, [values[name] for name in node.inputs])
        if node.op == "output":
            outputs[node.name] = values[node.name]
        for name in {node.name, *node.inputs}:
            if last_use[name] == node.name:
                del values[name]
    return outputs


def run(
    graph: Graph,
    planes: Mapping[str, Tensor],
    qp: int,
    observe: Callable[[str, Tensor], None] | None = None,
    known: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Compute a graph in real numbers, in the type of the plane `rec_y`.

    Args:
        graph: The graph.
        planes: Planes as the network takes them, with halo.
        qp: Slice QP, 0 to 63.
        observe: Function that receives name and tensor of each node that is computed.
        known: Tensors by node name that are used instead of being computed.

    Returns:
        Filtered planes by output name.
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
    """Return the vertical and horizontal zero padding with which a kernel (o, i, h, w) keeps the size."""
    return weight.shape[2] // 2, weight.shape[3] // 2


def _conv(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    padding = same_padding(tensors["weight"]) if node.values["pad"] else (0, 0)
    x = F.conv2d(inputs[0], tensors["weight"], tensors["bias"], padding=padding, groups=node.values["groups"])
    x = x + inputs[1] if len(inputs) == 2 else x
    return x.relu() if node.values["relu"] else x


def _modulate(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    return inputs[0] * tensors["factor"][qp, :, None, None] + tensors["offset"][qp, :, None, None]


def cropped(x: Tensor, size: int) -> Tensor:
    """Return `x` (n, c, h, w) without `size` samples on each side."""
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
"""Operations that only move samples; they are the same for real numbers and integers."""

_COMPUTE: dict[str, Operation] = MOVES | {
    "qp": lambda node, inputs, tensors, qp: torch.full_like(inputs[0][:, :1], (qp - 32) / 16),
    "conv": _conv,
    "add": lambda node, inputs, tensors, qp: inputs[0] + inputs[1],
    "modulate": _modulate,
}

_INPUTS = {"plane": (0,), "conv": (1, 2), "add": (2,), "output": (1, 2), "concat": range(1, 10_000)}
"""Numbers of inputs that an operation accepts; operations that are not listed take one."""

GRAPH_VALUES = {
    "conv": {"pad": 1, "groups": 2**16},
    "crop": {"size": 2**10},
    "unshuffle": {"factor": 16},
    "shuffle": {"factor": 16},
    "output": {"crop": 2**10},
}
"""Integer parameters of each operation and their largest allowed values."""

GRAPH_TENSORS = {"conv": {"weight": 4, "bias": 1}, "modulate": {"factor": 2, "offset": 2}, "output": {"gain": 1}}
"""Constant tensors of each operation and their numbers of dimensions."""

MAX_REACH, MAX_CHANNELS = 2**11, 2**14
"""Largest reach in luma samples and largest number of channels, many times those of the shipped networks."""


def _extent(node: Node, inputs: list[Extent]) -> Extent:
    """Return the extent of a node's tensor; raise ModelError for an invalid node or inputs that do not fit."""

    def need(condition: bool, problem: str) -> None:
        if not condition:
            raise ModelError(f"node {node.name[:80]!r} ({node.op[:20]}) {problem}")

    need(node.op in _COMPUTE or node.op in ("plane", "output"), "is no known operation")
    need(len(inputs) in _INPUTS.get(node.op, (1,)), f"cannot take {len(inputs)} inputs")
    for name, largest in GRAPH_VALUES.get(node.op, {}).items():
        value = node.values.get(name)
        need(type(value) is int and 0 <= value <= largest, f"has {name} {str(value)[:30]}, not 0 to {largest}")
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
    """Check an output node; its first input is the residual."""
    residual = inputs[0]
    need(node.name in OUTPUTS, "is no known output")
    cell = 1 if node.name == "y" else 2
    need(residual.channels == 1 and residual.cell == cell, "is not one plane of its component's size")
    need(
        residual.trim >= 0 and len(node.tensors["gain"]) in (1, QPS),
        "has samples outside the picture, or a gain table that has neither 1 nor 64 entries",
    )
    if len(inputs) == 2:
        need(node.inputs[1] == f"rec_{node.name}", "is not added to its own component")
        need(
            residual.trim == residual.cell * node.values["crop"], "crops the plane to another size than the residual's"
        )


class Draft:
    """A graph under construction; every method adds nodes and returns the name of the last one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, name: str, op: str, *inputs: str, tensors: dict[str, Array] | None = None, **values: int) -> str:
        """Add a node of any operation."""
        self.nodes.append(Node(name, op, inputs, values, tensors or {}))
        return name

    def once(self, name: str) -> str:
        """Add the input plane `name` unless it is there already."""
        return name if any(node.name == name for node in self.nodes) else self.add(name, "plane")

    def joined(self, name: str, parts: Sequence[str]) -> str:
        """Add the concatenation of `parts`; a single part is returned as it is."""
        return parts[0] if len(parts) == 1 else self.add(name, "concat", *parts)

    def shuffled(self, name: str, op: str, x: str, factor: int) -> str:
        """Add the operation "shuffle" or "unshuffle"; for factor 1 return `x`."""
        return x if factor == 1 else self.add(name, op, x, factor=factor)

    def weights(
        self, name: str, x: str, weight: Array, bias: Array, *, pad: int = 1, groups: int = 1, relu: int = 0
    ) -> str:
        """Add a convolution with the given weight (o, i, h, w) and bias (o,)."""
        return self.add(name, "conv", x, tensors={"weight": weight, "bias": bias}, pad=pad, groups=groups, relu=relu)

    def conv(self, name: str, x: str, layer: nn.Module, *, relu: int = 0, scale: float = 1.0) -> str:
        """Add a convolution of a network, its output multiplied by `scale`."""
        assert isinstance(layer, nn.Conv2d)
        weight, bias = arrays(layer)
        pad = int(layer.padding != (0, 0) or layer.kernel_size == (1, 1))
        return self.weights(name, x, weight * scale, bias * scale, pad=pad, groups=layer.groups, relu=relu)

    def plane(self, name: str) -> str:
        """Add a plane as it enters the first convolution: centred, as a difference to `rec_y`, or scaled if signed."""
        plane = self.once(name)
        if name in SIGNED_PLANES:
            scale = np.full((1, 1, 1, 1), DIFFERENCE_SCALE / CENTRED_SCALE)
            return self.weights(f"{name}.scaled", plane, scale, np.zeros(1))
        if name not in DIFFERENCE_PLANES:
            return plane
        both = self.add(f"{name}.both", "concat", plane, self.once("rec_y"))
        # Both inputs are 4·(x - 1/2), so that the halves cancel.
        weight = np.array([1.0, -1.0]).reshape(1, 2, 1, 1) * DIFFERENCE_SCALE / CENTRED_SCALE
        return self.weights(f"{name}.difference", both, weight, np.zeros(1))

    def plane_at_luma(self, name: str) -> str:
        """Add a plane at the size of luma, chroma upsampled as by `codecnn.models.planes.upsample_chroma`.

        The four luma samples of a chroma sample have different bilinear weights: a convolution with four outputs
        computes them, and a shuffle moves them to their positions.
        """
        if name == "qp":
            return self.add("qp", "qp", "rec_y")
        plane = self.plane(name)
        if name not in CHROMA_PLANES:
            return plane
        rows = np.array([[0.25, 0.75, 0], [0, 0.75, 0.25]])
        columns = np.array([[0, 1, 0], [0, 0.5, 0.5]])
        weight = np.einsum("ay,bx->abyx", rows, columns).reshape(4, 1, 3, 3)
        edge = self.add(f"{name}.edge", "edge", plane)
        phases = self.weights(f"{name}.phases", edge, weight, np.zeros(4), pad=0)
        return self.add(f"{name}.upsampled", "shuffle", phases, factor=2)


def arrays(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[Array, Array]:
    """Return weight and bias of a convolution as arrays."""
    assert layer.bias is not None
    return layer.weight.numpy(), layer.bias.numpy()
