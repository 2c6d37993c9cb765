"""Networks of 8 bits: what becomes of the weights between tensors of a grid."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.filtering.integer._fused import fused
from codecnn.filtering.integer._grid import Grid, cells, linked, spans, together
from codecnn.filtering.integer._network import FLOAT32_EXACT, MAX_FINER, MAX_SHIFT, IntegerNetwork
from codecnn.filtering.integer._rounding import Moments, whole_weights
from codecnn.models.graph import Array, Graph, Node

MAX_FRACTION = 28


@dataclass(frozen=True)
class Layer:
    """What stands around a convolution or modulation, ready for its weights.

    ratio       scale of each output over that of each input, shaped as the weights
    outputs     scale of each output
    low, high   of what each weight multiplies
    skip        the added tensor's scale is the output's times 2^skip; `added` bounds its magnitude
    most        the largest magnitude of a weight
    """

    node: Node
    ratio: Tensor
    outputs: Tensor
    low: Tensor
    high: Tensor
    most: int
    skip: int
    added: int

    def integers(
        self, weight: Tensor, bias: Tensor, nearest: Callable[[Tensor], Tensor] = torch.round
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (o, ...), biases and shifts (o,), as whole numbers: the finest with which no sum leaves float32's.

        Of a modulation, (c, 64) factors and offsets. Raises ModelError for weights that no shift fits.
        """
        scaled, offset, shift = self._scaled(weight, bias)
        return nearest(scaled), nearest(offset), shift

    def fitted_integers(self, weight: Tensor, bias: Tensor, seen: Moments | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `integers`; of a convolution, whose inputs have been `seen`, weights that err least on them."""
        if seen is None:
            return self.integers(weight, bias)
        scaled, offset, shift = self._scaled(weight, bias)
        whole, missing = whole_weights(scaled, self.outputs[:, None, None, None] / self.ratio, seen, self.most)
        moved = (offset + missing).round()
        # Where these, a few units larger, could leave float32's range, the nearest ones do not.
        beyond = self._widest_of(whole, moved, shift) > FLOAT32_EXACT
        whole[beyond], moved[beyond] = scaled[beyond].round(), offset[beyond].round()
        return whole, moved, shift

    def _scaled(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and biases in the units of their sums, which the shifts tell."""
        scaled, offset = weight * self.ratio, bias * _by_output(self.outputs, bias)
        with torch.no_grad():
            shift = self._shifts(scaled, offset)
            if bool((self._missing(scaled, offset, shift) > 0).any()):
                raise ModelError(f"node {self.node.name!r} has weights that no power-of-two scale fits")
        unit = torch.exp2(shift).to(scaled)
        return scaled * _by_output(unit, scaled), offset * _by_output(unit, offset), shift

    def excess(self, weight: Tensor, bias: Tensor) -> Array:
        """By how many powers of two the scale of each output must be coarser for `integers` to find a shift."""
        scaled, offset = weight * self.ratio, bias * _by_output(self.outputs, bias)
        found: Array = self._missing(scaled, offset, self._shifts(scaled, offset)).cpu().numpy()
        return found

    @property
    def _least(self) -> int:
        return max(self.skip - MAX_FINER, 0)

    def _missing(self, scaled: Tensor, offset: Tensor, shift: Tensor) -> Tensor:
        """By how many bits shifts are too small, or sums too large that no smaller shift makes less."""
        over = torch.log2(self._widest(scaled, offset, shift) / FLOAT32_EXACT).ceil()
        return torch.maximum(self._least - shift, over).clamp(min=0)

    def _shifts(self, scaled: Tensor, offset: Tensor) -> Tensor:
        scaled, offset = scaled.detach().double(), offset.detach().double()
        largest = scaled.abs().flatten(1).amax(1)
        if not bool(torch.isfinite(largest).all()):
            raise ModelError("the network's weights are not finite numbers")
        most = MAX_SHIFT // 2 + min(self.skip, 0)
        shift = torch.log2((self.most + 0.49) / largest.clamp(min=1e-30)).floor().clamp(max=most)
        for _ in range(MAX_SHIFT):
            over = self._widest(scaled, offset, shift) > FLOAT32_EXACT
            if self.added:
                over &= shift > self.skip  # below that all is counted in what is added
            if not bool(over.any()):
                break
            shift -= over.to(shift)
        return shift

    def _widest(self, scaled: Tensor, offset: Tensor, shift: Tensor) -> Tensor:
        """The largest magnitude of each output's sums, by the proof of `IntegerNetwork`."""
        unit = torch.exp2(shift)
        whole, added = (scaled * _by_output(unit, scaled)).round(), (offset * _by_output(unit, offset)).round()
        return self._widest_of(whole, added, shift)

    def _widest_of(self, whole: Tensor, added: Tensor, shift: Tensor) -> Tensor:
        """The same of integers."""
        up = whole.clamp(min=0) * self.high - whole.clamp(max=0) * -self.low
        down = whole.clamp(min=0) * -self.low - whole.clamp(max=0) * self.high
        if self.node.op == "conv":
            up, down = up.flatten(1).sum(1), down.flatten(1).sum(1)
        both = torch.maximum(up + added.clamp(min=0), down - added.clamp(max=0))
        if both.dim() > 1:
            both = both.flatten(1).amax(1)
        if self.added == 0:
            return both
        fraction = shift.clamp(min=self.skip)
        return both * torch.exp2(fraction - shift) + self.added * torch.exp2(fraction - self.skip)


def _by_output(values: Tensor, like: Tensor) -> Tensor:
    """One value an output (o,), shaped to multiply tensors (o, ...) such as `like`."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def layer_of(
    node: Node,
    scales: Mapping[str, Array],
    limits: Mapping[str, tuple[Array, Array]],
    device: str | torch.device = "cpu",
) -> Layer:
    """The surroundings of a convolution or modulation of a fused graph."""
    first, outputs = node.inputs[0], scales[node.name]
    inputs, low, high = scales[first], *limits[first]
    skip, added = 0, 0
    if len(node.inputs) == 2:
        skip = round(math.log2(scales[node.inputs[1]][0] / outputs[0]))
        added = int(max(np.abs(limits[node.inputs[1]][0]).max(), limits[node.inputs[1]][1].max()))
    if node.op == "conv":
        groups, shape = node.values["groups"], node.tensors["weight"].shape
        inputs, low, high = (
            one.reshape(groups, shape[1]).repeat(shape[0] // groups, axis=0)[:, :, None, None]
            for one in (inputs, low, high)
        )
        ratio = outputs[:, None, None, None] / inputs
        most = 127 if int(low.min()) >= -128 and int(high.max()) <= 255 else 2**15 - 1
    else:
        ratio, most = (outputs / inputs)[:, None], 2**15 - 1
        low, high = low[:, None], high[:, None]

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.array(array, np.float64)).to(device)

    return Layer(node, tensor(ratio), tensor(outputs), tensor(low), tensor(high), most, skip, added)


def real_tensors(node: Node) -> tuple[Tensor, Tensor]:
    """Weights and biases of a convolution, (c, 64) factors and offsets of a modulation, as `Layer` takes them."""
    names = ("weight", "bias") if node.op == "conv" else ("factor", "offset")
    first, second = (torch.from_numpy(np.asarray(node.tensors[name], np.float64)) for name in names)
    return (first.T, second.T) if node.op == "modulate" else (first, second)


def fitted(graph: Graph, grid: Grid, bit_depth: int) -> Grid:
    """The grid with the channels coarser, by powers of two, whose weights would fit no shift.

    Such are channels that are next to nothing on the calibration's pictures, whose scales know no limit.
    """
    roots = {name: name for name in grid.scales}
    for name, source in linked(graph).items():
        roots[name] = roots[source]
    scales, shared = dict(grid.scales), cells(graph)
    for _ in graph.nodes:
        before = dict(scales)
        for node in graph.nodes:
            if node.name in scales:
                now = Grid(scales, grid.bounds)
                layer = layer_of(node, now.all_scales(graph, bit_depth), now.all_bounds(graph, bit_depth))
                excess = together(layer.excess(*real_tensors(node)), shared.get(node.name, 1))
                for name in [name for name in scales if excess.any() and roots[name] == roots[node.name]]:
                    scales[name] = scales[name] * 2.0**-excess
        if all(scales[name] is before[name] for name in scales):
            break
    return Grid(scales, grid.bounds)


def as_integers(graph: Graph, grid: Grid, bit_depth: int, seen: Mapping[str, Moments] | None = None) -> IntegerNetwork:
    """The network of 8 bits of a fused graph, its tensors real numbers, for samples of up to `bit_depth` bits.

    `seen` are moments of what each convolution multiplies, without which its weights are the nearest integers. Raises
    ModelError for weights that no shift fits; see `fitted`.
    """
    known, limits = grid.all_scales(graph, bit_depth), grid.all_bounds(graph, bit_depth)
    nodes = []
    for node in graph.nodes:
        if node.name in grid.bounds:
            layer, (low, high) = layer_of(node, known, limits), grid.bounds[node.name]
            made = layer.fitted_integers(*real_tensors(node), (seen or {}).get(node.name))
            weight, bias, shift = (tensor.numpy() for tensor in made)
            values = {"low": low, "high": high}
            if node.op == "conv":
                values |= {"pad": node.values["pad"], "groups": node.values["groups"], "skip": layer.skip}
                kind = np.int8 if layer.most == 127 else np.int16
                tensors = {"weight": weight.astype(kind), "bias": bias.astype(np.int32)}
            else:
                tensors = {"factor": weight.T.astype(np.int16), "offset": bias.T.astype(np.int32)}
            tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
            nodes.append(replace(node, values=values, tensors=tensors | {"shift": shift.astype(np.int8)}))
        elif node.op == "output":
            nodes.append(_output(node, known[node.inputs[0]], limits[node.inputs[0]]))
        else:
            nodes.append(node)
    return IntegerNetwork(Graph(tuple(nodes)), bit_depth, 8)


def quantise_eight(graph: Graph, magnitudes: Mapping[str, float], bit_depth: int) -> IntegerNetwork:
    """The network of 8 bits of a graph whose tensors become so large: one scale a tensor, without saturation.

    For comparisons and timing, as `quantise`; `integer_network` looks for better scales. Raises as `as_integers` does.
    """
    joined, bounds = fused(graph), spans(fused(graph))
    octaves = {name: math.log2(high / magnitudes[name]) for name, (_, high) in bounds.items()}
    for name, source in linked(joined).items():
        octaves[name] = octaves[source] + round(octaves[name] - octaves[source])
    scales = {name: np.full(joined.extents[name].channels, 2.0**octave) for name, octave in octaves.items()}
    return as_integers(joined, fitted(joined, Grid(scales, bounds), bit_depth), bit_depth)


def _output(node: Node, scale: Array, limits: tuple[Array, Array]) -> Node:
    real = node.tensors["gain"] / scale[0]
    largest, residual = float(np.abs(real).max()), float(max(-limits[0].min(), limits[1].max()))
    # Half of what the sum may be, so that rounding is within it whatever the bit depth.
    most = min((2**15 - 1) / largest, FLOAT32_EXACT / 2 / (residual * largest)) if largest > 0 else 2.0**20
    fraction = min(math.floor(math.log2(most)), MAX_FRACTION)
    values = {"crop": node.values["crop"], "fraction": fraction}
    return replace(node, values=values, tensors={"gain": np.rint(real * 2.0**fraction).astype(np.int16)})
