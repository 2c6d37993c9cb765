"""Quantisation-aware training: a network that computes during training what its 8-bit integers will compute.

In the forward pass every tensor is rounded and saturated as in the 8-bit network. In the backward pass rounding is the
identity, and saturated values have no gradient (the straight-through estimator of Bengio et al., 2013; Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.base.planes import QP_SCALE
from codecnn.dataset import Unit, to_device
from codecnn.filtering.integer.conversion import calibrated_bit_depth, calibration_units, channel_magnitudes
from codecnn.filtering.integer.eight_bits import Layer, as_integers, layer_of
from codecnn.filtering.integer.grid import Grid, fuse, tensor_bounds
from codecnn.filtering.integer.mixed_precision import choose_precision
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.models import FilterNetwork, NetworkOutput, build_graph, centred
from codecnn.models.graph import MOVES, Array, Graph, Node, cropped, same_padding, walk


@dataclass(frozen=True)
class _Prepared:
    """Everything that a forward pass derives from the grid, so that no pass waits for the device to read it.

    Attributes:
        device: Device of the tensors.
        grid: The grid.
        scales: Scales of all tensors.
        layers: Layer of each convolution, on the device.
        cpu_layers: The same on the CPU, where shifts are computed.
        modulations: Integer factors and offsets by QP of each modulation, divided by their power of two, on the device.
    """

    device: torch.device
    grid: Grid
    scales: Mapping[str, Array]
    layers: Mapping[str, Layer]
    cpu_layers: Mapping[str, Layer]
    modulations: Mapping[str, tuple[Tensor, Tensor]]


class EightBitNetwork(FilterNetwork):
    """The 8-bit form of a network with real weights to train: those of the convolutions, folded.

    Modulations and gains, which depend on the QP, are fixed, because training sees few of the 64 QPs of their tables.
    The grid is fixed too.

    Args:
        model: The float network.
        grid: Scales and bounds of its tensors; None if they are loaded with a state.
        bit_depth: Bit depth of the network.

    Raises:
        ModelError: The network has no graph, or no form of 8 bits.
    """

    def __init__(self, model: FilterNetwork, grid: Grid | None, bit_depth: int) -> None:
        super().__init__(model.planes, halo=model.halo, radius=model.radius, stride=model.stride, outputs=model.outputs)
        # The radius of the model already includes the share of chroma.
        self.radius, self.options, self.bit_depth = model.radius, model.options, bit_depth
        self.graph = fuse(build_graph(model))
        self.convolutions = nn.ModuleDict()
        for node in self.graph.nodes:
            if node.op == "conv":
                self.convolutions[_key(node.name)] = _convolution(node)
            else:
                for name, tensor in node.tensors.items():
                    self.register_buffer(f"{name}_{_key(node.name)}", torch.from_numpy(np.array(tensor, np.float64)))
        for name, bounds in tensor_bounds(self.graph).items():
            scale = np.ones(self.graph.extents[name].channels) if grid is None else grid.scales[name]
            self.register_buffer(f"scale_{_key(name)}", torch.from_numpy(np.array(scale, np.float64)))
            self.register_buffer(f"bounds_{_key(name)}", torch.tensor(bounds if grid is None else grid.bounds[name]))
        self._prepared: _Prepared | None = None
        self.register_load_state_dict_post_hook(_forget_grid)  # type: ignore[no-untyped-call]

    def forget_grid(self) -> None:
        """Discard what was derived from the grid, because other scales and bounds were loaded."""
        self._prepared = None

    @classmethod
    def of(
        cls, model: FilterNetwork, units: Sequence[Unit], *, loss: float, calibrate: bool = True
    ) -> "EightBitNetwork":
        """Create the 8-bit form of a network for the pictures of some units.

        Args:
            model: The float network.
            units: Units that the network is trained on.
            loss: dB that bytes may lose on these pictures before training; see `choose_precision`.
            calibrate: Choose the grid on some of the units; False if the grid is loaded with a state.
        """
        graph, bit_depth, grid = fuse(build_graph(model)), calibrated_bit_depth(units), None
        if calibrate:
            chosen = calibration_units(units)
            largest = channel_magnitudes(graph, chosen)
            grid = choose_precision(graph, largest, chosen, bit_depth, loss=loss, nearest=True).grid
        return cls(model, grid, bit_depth)

    def integers(self) -> IntegerNetwork:
        """Convert the present weights to an integer network.

        Raises:
            ModelError: No shift fits some weights.
        """
        nodes = []
        for node in self.graph.nodes:
            if node.op == "conv":
                parameters: dict[str, Tensor] = dict(self.convolutions[_key(node.name)].named_parameters())
            else:
                parameters = {name: self._table(node, name) for name in node.tensors}
            tensors = {name: tensor.detach().cpu().numpy() for name, tensor in parameters.items()}
            nodes.append(replace(node, tensors=tensors))
        return as_integers(Graph(tuple(nodes)), self.grid, self.bit_depth)

    def _table(self, node: Node, name: str) -> Tensor:
        table: Tensor = self.get_buffer(f"{name}_{_key(node.name)}")
        return table

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Filter patches with rounding and saturation in place.

        On a GPU a call waits for the device once, to read the weights: shifts are computed on the CPU, as in
        `integers`.

        Args:
            planes: Planes that the float network takes, samples as x / 2^bit_depth.

        Returns:
            The outputs of the float network, in the same scale.
        """
        self.check(planes)
        like, unit = planes["rec_y"], 2.0 ** (self.bit_depth - 2)
        prepared = self._prepare(like.device)
        grid, scales, shifts = prepared.grid, prepared.scales, self._shifts(prepared)
        qp_plane = planes["qp"] if "qp" in planes else like.new_zeros(len(like), 1, 1, 1)
        qps = (qp_plane.flatten() * QP_SCALE).round().long()

        def compute(node: Node, x: list[Tensor]) -> Tensor:
            if node.op == "plane":
                plane = planes[node.name]
                return centred(plane.expand_as(like) if plane.shape[2:] == (1, 1) else plane) * unit
            if node.op == "qp":
                return (centred(qp_plane) * unit).expand_as(x[0][:, :1])
            if node.op == "output":
                gain = (self._table(node, "gain") / scales[node.inputs[0]][0]).to(like)
                by_qp = gain[qps if len(gain) > 1 else qps * 0]
                base = cropped(planes[node.inputs[1]], node.values["crop"]) if len(node.inputs) == 2 else 0.5
                filtered: Tensor = x[0] * by_qp[:, None, None, None] + base
                return filtered
            if node.op in MOVES:
                return MOVES[node.op](node, x, {}, 0)
            if node.op == "modulate":
                factor, offset = (table[qps].to(like) for table in prepared.modulations[node.name])
                sums = x[0] * factor[:, :, None, None] + offset[:, :, None, None]
            else:
                layer = prepared.layers[node.name]
                convolution = self.convolutions[_key(node.name)]
                assert isinstance(convolution, nn.Conv2d)
                assert convolution.bias is not None
                weight, bias, shift = layer.integers(
                    convolution.weight, convolution.bias, _straight_through, shifts[node.name]
                )
                weight, bias = weight * torch.exp2(-shift)[:, None, None, None], bias * torch.exp2(-shift)
                padding = same_padding(weight) if node.values["pad"] else (0, 0)
                sums = F.conv2d(x[0], weight.to(like), bias.to(like), padding=padding, groups=node.values["groups"])
                sums = sums + x[1] * 2.0**-layer.skip if len(x) == 2 else sums
            low, high = grid.bounds[node.name]
            return _straight_through(sums.clamp(low, high))

        outputs = walk(self.graph.nodes, compute)
        return outputs if len(outputs) > 1 else outputs["y"]

    def _prepare(self, device: torch.device) -> _Prepared:
        """Derive what forward passes on a device need from the grid, unless that was done."""
        if self._prepared is None or self._prepared.device != device:
            grid = self.grid
            scales, bounds = grid.all_scales(self.graph, self.bit_depth), grid.all_bounds(self.graph, self.bit_depth)
            layers: dict[str, Layer] = {}
            cpu_layers: dict[str, Layer] = {}
            modulations: dict[str, tuple[Tensor, Tensor]] = {}
            with torch.inference_mode(False), torch.no_grad():  # a later call may need gradients
                for node in self.graph.nodes:
                    if node.op == "conv":
                        layers[node.name] = layer_of(node, scales, bounds, device)
                        cpu_layers[node.name] = layer_of(node, scales, bounds)
                    elif node.op == "modulate":
                        factor, offset = (self._table(node, name).cpu().T for name in ("factor", "offset"))
                        factor, offset, shift = layer_of(node, scales, bounds).integers(factor, offset)
                        factor, offset = ((table * torch.exp2(-shift)[:, None]).T for table in (factor, offset))
                        modulations[node.name] = factor.to(device), offset.to(device)
            self._prepared = _Prepared(device, grid, scales, layers, cpu_layers, modulations)
        return self._prepared

    @torch.no_grad()
    def _shifts(self, prepared: _Prepared) -> dict[str, Tensor]:
        """Compute the shifts of all convolutions for the present weights, with one copy from and one to the device."""
        names = list(prepared.cpu_layers)
        tensors = [parameter.detach() for name in names for parameter in self.convolutions[_key(name)].parameters()]
        if prepared.device.type != "cpu":
            flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
            parts = torch.split(flat, [tensor.numel() for tensor in tensors])
            tensors = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
        pairs = zip(tensors[::2], tensors[1::2], strict=True)  # weight and bias, in the order of nn.Conv2d
        shifts = [prepared.cpu_layers[name].shifts(*pair) for name, pair in zip(names, pairs, strict=True)]
        on_device = torch.split(to_device(torch.cat(shifts), prepared.device), [len(shift) for shift in shifts])
        return dict(zip(names, on_device, strict=True))

    @property
    def grid(self) -> Grid:
        """Scales and bounds of the tensors, from the buffers."""
        scales, bounds = {}, {}
        for name in tensor_bounds(self.graph):
            scales[name] = self.get_buffer(f"scale_{_key(name)}").cpu().numpy()
            low, high = self.get_buffer(f"bounds_{_key(name)}").tolist()
            bounds[name] = (low, high)
        return Grid(scales, bounds)


def _forget_grid(network: nn.Module, incompatible_keys: Any) -> None:
    """Follow the loading of a state; PyTorch passes the network to a function."""
    assert isinstance(network, EightBitNetwork)
    network.forget_grid()


def _key(name: str) -> str:
    """Turn a node's name into the name of a module, which cannot contain dots."""
    return name.replace(".", "/")


def _convolution(node: Node) -> nn.Conv2d:
    """Put the real weights of a node into a layer, as optimisers expect them."""
    weight, groups = torch.from_numpy(node.tensors["weight"]).float(), node.values["groups"]
    layer = nn.Conv2d(weight.shape[1] * groups, weight.shape[0], (weight.shape[2], weight.shape[3]), groups=groups)
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.from_numpy(node.tensors["bias"]))
    return layer


def _straight_through(x: Tensor) -> Tensor:
    """Round to integers in the forward pass, with the gradient of the identity."""
    return x + (x.round() - x).detach()
