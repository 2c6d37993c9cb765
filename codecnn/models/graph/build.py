"""The graph of every network of the zoo, with all that is linear folded into the convolutions.

Folded are branches, batch normalisation, the 2x2 DCT in front and behind, EDSR's scale, and transposed convolutions,
which are a convolution and a shuffle. A family that is not here is refused; a test builds every network that
`list_models` names.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from codecnn.codec.base import QP_SCALE
from codecnn.errors import ModelError
from codecnn.models.base import (
    CENTRED_SCALE,
    CHROMA_PLANES,
    DIFFERENCE_PLANES,
    DIFFERENCE_SCALE,
    RESIDUAL_SCALE,
    FilterNetwork,
)
from codecnn.models.blocks import RDB, DepthwiseBlock, Haar, InverseHaar, SeparableBlock
from codecnn.models.conditioning import QpModulation
from codecnn.models.families.baselines import EDSR, VRCNN, Chain
from codecnn.models.families.low_cost import LowCost
from codecnn.models.families.rdn import RDN
from codecnn.models.families.yuv import YuvRDN
from codecnn.models.graph.nodes import QPS, Array, Graph, Node
from codecnn.models.inference import fold

_HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float64)


class _Draft:
    """Nodes in the making; every method returns the name of the node it adds."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, name: str, op: str, *inputs: str, tensors: dict[str, Array] | None = None, **values: int) -> str:
        self.nodes.append(Node(name, op, inputs, values, tensors or {}))
        return name

    def once(self, name: str, op: str, *inputs: str) -> str:
        """The node of that name, added where there is none yet."""
        return name if any(node.name == name for node in self.nodes) else self.add(name, op, *inputs)

    def weights(
        self, name: str, x: str, weight: Array, bias: Array, *, pad: int = 1, groups: int = 1, relu: int = 0
    ) -> str:
        return self.add(name, "conv", x, tensors={"weight": weight, "bias": bias}, pad=pad, groups=groups, relu=relu)

    def conv(self, name: str, x: str, layer: nn.Module, *, relu: int = 0, scale: float = 1.0) -> str:
        assert isinstance(layer, nn.Conv2d)
        weight, bias = _arrays(layer)
        return self.weights(
            name, x, weight * scale, bias * scale, pad=int(layer.padding != (0, 0) or layer.kernel_size == (1, 1)),
            groups=layer.groups, relu=relu,
        )  # fmt: skip


def build_graph(model: FilterNetwork) -> Graph:
    """The graph that computes what `model` computes in evaluation mode, to float rounding.

    Raises ModelError for a network of a family that has no graph.
    """
    double = fold(model).double().cpu().requires_grad_(False)
    draft = _Draft()
    match double:
        case RDN():
            made = _rdn(draft, double)
        case LowCost():
            made = {"y": _low_cost(draft, double)}
        case Chain() | VRCNN() | EDSR():
            made = {"y": _baseline(draft, double)}
        case _:
            raise ModelError(f"a network of the class {type(model).__name__} has no graph to export")
    for output, residual in made.items():
        _output(draft, double, output, residual)
    graph = Graph(tuple(draft.nodes))
    if (graph.halo, graph.outputs) != (model.halo, model.outputs):
        raise ModelError(f"the graph of {type(model).__name__} has halo {graph.halo}, the network {model.halo}")
    return graph


def _output(draft: _Draft, model: FilterNetwork, output: str, residual: str) -> None:
    if isinstance(model, RDN) and model.predicts_picture:
        draft.add(output, "output", residual, tensors={"gain": np.array([0.25])}, crop=0)
        return
    gain = np.ones(1)
    if model.gain is not None:
        gain = model.gain(torch.arange(QPS, dtype=torch.float64) / QP_SCALE).numpy()
    plane = draft.once(f"rec_{output}", "plane")
    crop = model.halo // (1 if output == "y" else 2)
    draft.add(output, "output", residual, plane, tensors={"gain": gain * RESIDUAL_SCALE}, crop=crop)


def _arrays(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[Array, Array]:
    assert layer.bias is not None
    return layer.weight.numpy(), layer.bias.numpy()


def _joined(draft: _Draft, name: str, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else draft.add(name, "concat", *parts)


def _stack(draft: _Draft, model: FilterNetwork, factor: int = 1) -> str:
    """The network's channels at luma's resolution, unshuffled by `factor`, as one tensor."""
    draft.once("rec_y", "plane")
    parts = []
    for name in model.channels:
        if name == "qp":
            part = draft.add("qp", "qp", "rec_y")
        else:
            part = _plane(draft, name)
            if name in CHROMA_PLANES:
                part = _upsampled(draft, part)
        parts.append(part if factor == 1 else draft.add(f"{name}.unshuffled", "unshuffle", part, factor=factor))
    return _joined(draft, "channels", parts)


def _plane(draft: _Draft, name: str) -> str:
    """A plane as the network takes it: centred, or less the decoded one."""
    plane = draft.once(name, "plane")
    if name not in DIFFERENCE_PLANES:
        return plane
    both = draft.add(f"{name}.both", "concat", plane, draft.once("rec_y", "plane"))
    weight = np.array([1.0, -1.0]).reshape(1, 2, 1, 1) * DIFFERENCE_SCALE / CENTRED_SCALE
    return draft.weights(f"{name}.difference", both, weight, np.zeros(1))


def _upsampled(draft: _Draft, plane: str) -> str:
    """As `codecnn.models.base.upsample_chroma`: four phases of bilinear weights, the nearest sample beyond the edge."""
    rows = np.array([[0.25, 0.75, 0], [0, 0.75, 0.25]])
    columns = np.array([[0, 1, 0], [0, 0.5, 0.5]])
    weight = np.einsum("ay,bx->abyx", rows, columns).reshape(4, 1, 3, 3)
    phases = draft.weights(f"{plane}.phases", draft.add(f"{plane}.edge", "edge", plane), weight, np.zeros(4), pad=0)
    return draft.add(f"{plane}.upsampled", "shuffle", phases, factor=2)


def _modulated(draft: _Draft, name: str, x: str, modulation: nn.Module) -> str:
    assert isinstance(modulation, QpModulation)
    unit = torch.ones(1, modulation.out.out_features // (2 if modulation.kind == "film" else 1), 1, 1).double()
    factors, offsets = [], []
    for qp in range(QPS):
        position = torch.full((1, 1, 1, 1), qp / QP_SCALE, dtype=torch.float64)
        zero = modulation(torch.zeros_like(unit), position)
        offsets.append(zero.flatten().numpy())
        factors.append((modulation(unit, position) - zero).flatten().numpy())
    return draft.add(name, "modulate", x, tensors={"factor": np.stack(factors), "offset": np.stack(offsets)})


def _block(draft: _Draft, name: str, x: str, block: nn.Module) -> str:
    match block:
        case RDB():
            dense = x
            for index, layer in enumerate(block.layers):
                new = draft.conv(f"{name}.layers.{index}", dense, layer, relu=1)
                dense = draft.add(f"{name}.dense.{index}", "concat", dense, new)
            fused = draft.conv(f"{name}.fusion", dense, block.fusion)
            return draft.add(f"{name}.sum", "add", x, fused) if block.local_residual else fused
        case SeparableBlock():
            y = draft.conv(f"{name}.expand", x, block.expand, relu=1)
            for part in ("project", "row", "column"):
                y = draft.conv(f"{name}.{part}", y, getattr(block, part))
        case DepthwiseBlock():
            y = draft.conv(f"{name}.depthwise", x, block.depthwise)
            y = draft.conv(f"{name}.expand", y, block.expand, relu=1)
            y = draft.conv(f"{name}.project", y, block.project)
        case _:
            raise ModelError(f"a block of the class {type(block).__name__} has no graph to export")
    return draft.add(f"{name}.sum", "add", x, y)


def _rdn(draft: _Draft, model: RDN) -> dict[str, str]:
    factor = int(model.options.get("shuffle", 2))
    head_weight, head_bias = _arrays(model.head)
    if isinstance(model.unshuffle, Haar):
        bands = head_weight.reshape(len(head_weight), -1, 4, *head_weight.shape[2:])
        head_weight = np.einsum("ocjyx,jk->ockyx", bands, _HADAMARD / 4).reshape(head_weight.shape)
    channels = _at_chroma(draft, model) if isinstance(model, YuvRDN) else _stack(draft, model, factor)
    first = draft.weights("head", channels, head_weight, head_bias, pad=0)
    x = first if model.head2 is None else draft.conv("head2", first, model.head2)
    made = []
    for index, block in enumerate(model.blocks):
        x = _block(draft, f"blocks.{index}", x, block)
        if model.modulations is not None:
            x = _modulated(draft, f"modulations.{index}", x, model.modulations[index])
        made.append(x)
    x = draft.conv("fusion", _joined(draft, "blocks", made), model.fusion)
    x = draft.conv("fusion2", x, model.fusion2)
    if model.global_residual:
        skip = first if model.head2 is None else draft.add("head.cropped", "crop", first, size=1)
        x = draft.add("sum", "add", x, skip)
    weight, bias = _tail(model, factor)
    if isinstance(model, YuvRDN):
        luma = draft.weights("tail.y", x, weight[:4], bias[:4])
        return {
            "y": draft.add("tail.y.shuffled", "shuffle", luma, factor=2),
            **{
                name: draft.weights(f"tail.{name}", x, weight[i : i + 1], bias[i : i + 1])
                for i, name in ((4, "u"), (5, "v"))
            },
        }
    residual = draft.weights("tail", x, weight, bias)
    return {"y": residual if factor == 1 else draft.add("tail.shuffled", "shuffle", residual, factor=factor)}


def _at_chroma(draft: _Draft, model: YuvRDN) -> str:
    """The channels of a YUV network at chroma's resolution."""
    draft.once("rec_u", "plane")
    parts = []
    for name in model.channels:
        if name == "qp":
            parts.append(draft.add("qp", "qp", "rec_u"))
        elif name in CHROMA_PLANES:
            parts.append(draft.once(name, "plane"))
        else:
            parts.append(draft.add(f"{name}.unshuffled", "unshuffle", _plane(draft, name), factor=2))
    return _joined(draft, "channels", parts)


def _tail(model: RDN, factor: int) -> tuple[Array, Array]:
    """Weights and bias of the last convolution such that nothing but a shuffle follows."""
    weight, bias = _arrays(model.tail)
    if isinstance(model.shuffle, InverseHaar):
        return np.einsum("kj,jiyx->kiyx", _HADAMARD, weight), _HADAMARD @ bias
    if isinstance(model.tail, nn.ConvTranspose2d):
        # Sample r of cell I takes tap r + s·(1 - d) of the cell I + d.
        taps = weight[:, 0].reshape(len(weight), 3, factor, 3, factor)[:, ::-1, :, ::-1]
        return taps.transpose(2, 4, 0, 1, 3).reshape(factor**2, len(weight), 3, 3), np.repeat(bias, factor**2)
    return weight, bias


def _low_cost(draft: _Draft, model: LowCost) -> str:
    factor = int(model.options["shuffle"])
    x = draft.conv("head", _stack(draft, model, factor), model.head)
    for index, block in enumerate(model.blocks):
        x = _block(draft, f"blocks.{index}", x, block)
        if model.modulations is not None:
            x = _modulated(draft, f"modulations.{index}", x, model.modulations[index])
    x = draft.conv("tail", x, model.tail)
    return x if factor == 1 else draft.add("tail.shuffled", "shuffle", x, factor=factor)


def _baseline(draft: _Draft, model: Chain | VRCNN | EDSR) -> str:
    x = _stack(draft, model)
    match model:
        case Chain():
            last = len(model.layers) - 1
            for index, layer in enumerate(model.layers):
                x = draft.conv(f"layers.{index}", x, layer, relu=int(index < last))
            return x
        case VRCNN():
            x = draft.conv("first", x, model.first, relu=1)
            for name in ("second", "third"):
                pair: Any = getattr(model, name)
                parts = [draft.conv(f"{name}.{index}", x, layer, relu=1) for index, layer in enumerate(pair)]
                x = draft.add(name, "concat", *parts)
            return draft.conv("last", x, model.last)
        case EDSR():
            first = x = draft.conv("head", x, model.head)
            for index, (layer, second) in enumerate(zip(model.layers, model.seconds, strict=True)):
                y = draft.conv(f"layers.{index}", x, layer, relu=1)
                y = draft.conv(f"seconds.{index}", y, second, scale=model.SCALE)
                x = draft.add(f"sum.{index}", "add", x, y)
            x = draft.add("sum", "add", first, draft.conv("body", x, model.body))
            return draft.conv("tail", x, model.tail)
