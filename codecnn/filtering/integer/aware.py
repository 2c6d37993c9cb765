"""Training that knows of the 8 bits: a network that computes, while it learns, what its integers will.

Forwards every tensor is rounded and saturated as in the network of 8 bits; backwards rounding is the identity, and
what saturates has no gradient (the straight-through estimator of Bengio et al., 2013; Jacob et al., "Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.dataset import Unit
from codecnn.filtering.integer._calibrate import reach, spread
from codecnn.filtering.integer._convert import bit_depth_for
from codecnn.filtering.integer._eight import as_integers, layer_of
from codecnn.filtering.integer._fused import fused
from codecnn.filtering.integer._grid import Grid, spans
from codecnn.filtering.integer._mixed import mixture
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.models import Filtered, FilterNetwork, build_graph, centred
from codecnn.models.graph import MOVES, Graph, Node, cropped, same_padding, walk
from codecnn.planes import QP_SCALE


class EightBitNetwork(FilterNetwork):
    """The network of 8 bits of `model`, with real weights to train: those of the convolutions, folded.

    What depends on the QP, modulations and gains, stays as it is: training sees a few QPs of the 64 that tables have.
    `grid` stays too; without, it comes with a state. Raises ModelError for a network that has no graph, or no form of 8
    bits.
    """

    def __init__(self, model: FilterNetwork, grid: Grid | None, bit_depth: int) -> None:
        super().__init__(model.planes, halo=model.halo, radius=model.radius, stride=model.stride, outputs=model.outputs)
        # As the model has them, of which chroma has taken its part already.
        self.radius, self.options, self.bit_depth = model.radius, model.options, bit_depth
        self.graph = fused(build_graph(model))
        self.convolutions = nn.ModuleDict()
        for node in self.graph.nodes:
            if node.op == "conv":
                self.convolutions[_key(node.name)] = _convolution(node)
            else:
                for name, tensor in node.tensors.items():
                    self.register_buffer(f"{name}_{_key(node.name)}", torch.from_numpy(np.array(tensor, np.float64)))
        for name, bounds in spans(self.graph).items():
            scale = np.ones(self.graph.extents[name].channels) if grid is None else grid.scales[name]
            self.register_buffer(f"scale_{_key(name)}", torch.from_numpy(np.array(scale, np.float64)))
            self.register_buffer(f"bounds_{_key(name)}", torch.tensor(bounds if grid is None else grid.bounds[name]))

    @classmethod
    def of(
        cls, model: FilterNetwork, units: Sequence[Unit], *, loss: float, calibrate: bool = True
    ) -> "EightBitNetwork":
        """That of `model` for the pictures of these units, calibrated on some unless its grid comes with a state.

        Bytes may lose `loss` dB on them in the mean, see `mixture`: what training is there to take back.
        """
        graph, bit_depth, grid = fused(build_graph(model)), bit_depth_for(units), None
        if calibrate:
            looked_at = spread(units)
            grid = mixture(graph, reach(graph, looked_at), looked_at, bit_depth, loss=loss, nearest=True).grid
        return cls(model, grid, bit_depth)

    def integers(self) -> IntegerNetwork:
        """The integers of the weights as they are now; raises ModelError for weights that no shift fits."""
        nodes = []
        for node in self.graph.nodes:
            if node.op == "conv":
                own: dict[str, Tensor] = dict(self.convolutions[_key(node.name)].named_parameters())
            else:
                own = {name: self._table(node, name) for name in node.tensors}
            tensors = {name: tensor.detach().cpu().numpy() for name, tensor in own.items()}
            nodes.append(replace(node, tensors=tensors))
        return as_integers(Graph(tuple(nodes)), self.grid, self.bit_depth)

    def _table(self, node: Node, name: str) -> Tensor:
        table: Tensor = self.get_buffer(f"{name}_{_key(node.name)}")
        return table

    def forward(self, planes: Mapping[str, Tensor]) -> Filtered:
        """Filtered planes as those of `model`, from its planes, in the scale of samples (x / 2^bit_depth)."""
        self.check(planes)
        grid, unit = self.grid, 2.0 ** (self.bit_depth - 2)
        known, limits = grid.all_scales(self.graph, self.bit_depth), grid.all_bounds(self.graph, self.bit_depth)
        like = planes["rec_y"]
        given = planes["qp"] if "qp" in planes else like.new_zeros(len(like), 1, 1, 1)
        qps = (given.flatten() * QP_SCALE).round().long()

        def compute(node: Node, x: list[Tensor]) -> Tensor:
            if node.op == "plane":
                plane = planes[node.name]
                return centred(plane.expand_as(like) if plane.shape[2:] == (1, 1) else plane) * unit
            if node.op == "qp":
                return (centred(given) * unit).expand_as(x[0][:, :1])
            if node.op == "output":
                gain = (self._table(node, "gain") / known[node.inputs[0]][0]).to(like)
                by_qp = gain[qps if len(gain) > 1 else qps * 0]
                base = cropped(planes[node.inputs[1]], node.values["crop"]) if len(node.inputs) == 2 else 0.5
                filtered: Tensor = x[0] * by_qp[:, None, None, None] + base
                return filtered
            if node.op in MOVES:
                return MOVES[node.op](node, x, {}, 0)
            layer = layer_of(node, known, limits, like.device)
            if node.op == "modulate":
                factor, offset, shift = layer.integers(self._table(node, "factor").T, self._table(node, "offset").T)
                factor, offset = ((one * torch.exp2(-shift)[:, None]).T[qps].to(like) for one in (factor, offset))
                sums = x[0] * factor[:, :, None, None] + offset[:, :, None, None]
            else:
                own_layer = self.convolutions[_key(node.name)]
                assert isinstance(own_layer, nn.Conv2d)
                assert own_layer.bias is not None
                weight, bias, shift = layer.integers(own_layer.weight, own_layer.bias, _straight_through)
                weight, bias = weight * torch.exp2(-shift)[:, None, None, None], bias * torch.exp2(-shift)
                padding = same_padding(weight) if node.values["pad"] else (0, 0)
                sums = F.conv2d(x[0], weight.to(like), bias.to(like), padding=padding, groups=node.values["groups"])
                sums = sums + x[1] * 2.0**-layer.skip if len(x) == 2 else sums
            low, high = grid.bounds[node.name]
            return _straight_through(sums.clamp(low, high))

        outputs = walk(self.graph.nodes, compute)
        return outputs if len(outputs) > 1 else outputs["y"]

    @property
    def grid(self) -> Grid:
        scales, bounds = {}, {}
        for name in spans(self.graph):
            scales[name] = self.get_buffer(f"scale_{_key(name)}").cpu().numpy()
            low, high = self.get_buffer(f"bounds_{_key(name)}").tolist()
            bounds[name] = (low, high)
        return Grid(scales, bounds)


def _key(name: str) -> str:
    """A node's name as that of a module, which has no points."""
    return name.replace(".", "/")


def _convolution(node: Node) -> nn.Conv2d:
    """The real weights of a node as a layer, for optimisers that look for those."""
    weight, groups = torch.from_numpy(node.tensors["weight"]).float(), node.values["groups"]
    layer = nn.Conv2d(weight.shape[1] * groups, weight.shape[0], (weight.shape[2], weight.shape[3]), groups=groups)
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.from_numpy(node.tensors["bias"]))
    return layer


def _straight_through(x: Tensor) -> Tensor:
    return x + (x.round() - x).detach()
