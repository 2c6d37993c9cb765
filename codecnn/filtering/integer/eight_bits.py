"""Weights of 8-bit networks: from real weights and a grid to an integer network.

Between two tensors of a grid the real weights are multiplied by the ratio of the scales, and by the power of two with
which they are finest while no sum leaves float32's exact integers (`Layer`). `as_integers` applies this to a graph.

Weights are rounded either to the nearest integers, or so that their error on the calibration's pictures is small. The
inputs of a convolution are neighbouring samples and similar features, so that the error of one weight can be
compensated by the next. With the second moments H of the inputs (`Moments`), the power of the error is
(w - q)' H (w - q). The integers q are chosen one after the other, each taking over the error of those before: Babai's
nearest plane, known for networks as OPTQ (Frantar et al., "OPTQ: Accurate Quantization for Generative Pre-trained
Transformers", ICLR 2023).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.base.errors import ModelError
from codecnn.filtering.integer.grid import Grid, fuse, group_maximum, linked_scales, shared_channels, tensor_bounds
from codecnn.filtering.integer.network import FLOAT32_EXACT, MAX_FINER, MAX_SHIFT, IntegerNetwork
from codecnn.models.graph import Array, Graph, Node, same_padding

MAX_FRACTION = 28
"""Largest number of fractional bits of an output's gain."""
_WINDOWS = 1024
"""Number of windows of a picture's tensor that moments are computed from, evenly spaced."""
_ROUNDING_POWER = 1 / 12
"""Mean squared error that rounding to integers adds to an input."""
_REGULARISATION = 1e-5
"""Share of the inputs' mean power that is added to each input's, because the moments are sums in float32."""


@dataclass(frozen=True)
class Moments:
    """Moments of the windows that the weights (o, k) of a convolution multiply.

    Attributes:
        count: Number of windows.
        total: Sum of the windows, shape (groups, k).
        second: Sum of the windows' outer products, shape (groups, k, k).
    """

    count: int
    total: Tensor
    second: Tensor

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.second + other.second)

    @property
    def mean(self) -> Tensor:
        """Mean of the windows, shape (groups, k)."""
        return self.total / self.count

    @property
    def covariance(self) -> Tensor:
        """Covariance of the windows, shape (groups, k, k)."""
        mean = self.mean
        return self.second / self.count - mean[:, :, None] * mean[:, None, :]


def input_moments(node: Node, x: Tensor) -> Moments:
    """Compute the moments of the windows that a convolution multiplies.

    Args:
        node: The convolution.
        x: Its first input, shape (1, c, h, w).

    Returns:
        The moments, in float64 on the CPU whatever the device of `x`.
    """
    weight, groups = node.tensors["weight"], node.values["groups"]
    kernel = weight.shape[2:]
    stride = max(int((x.shape[2] * x.shape[3] / _WINDOWS) ** 0.5), 1)
    padding = same_padding(weight) if node.values["pad"] else (0, 0)
    windows = F.unfold(x, kernel, padding=padding, stride=stride)[0]
    windows = windows.reshape(groups, weight.shape[1] * kernel[0] * kernel[1], -1)
    total, second = windows.sum(2), windows @ windows.transpose(1, 2)
    return Moments(windows.shape[2], total.cpu().double(), second.cpu().double())


def round_weights(scaled: Tensor, input_scales: Tensor, moments: Moments, limit: int) -> tuple[Tensor, Tensor]:
    """Round weights so that the error on the inputs with the given moments is small.

    Args:
        scaled: Real weights in integer units, shape (o, i, h, w).
        input_scales: Scales of the inputs, shape (o, i, 1, 1); `moments` are of the real inputs.
        moments: Moments of the inputs.
        limit: Largest magnitude of an integer.

    Returns:
        The integer weights (o, i, h, w), and the correction of the biases (o,), which removes the mean of the error so
        that only the covariance of the inputs matters.
    """
    outputs, groups = len(scaled), len(moments.total)
    by_group = scaled.reshape(groups, outputs // groups, -1)
    units = input_scales.expand_as(scaled).reshape(groups, outputs // groups, -1)[:, 0]
    covariance = moments.covariance * units[:, :, None] * units[:, None, :]
    whole = torch.stack(
        [_nearest_plane(rows, matrix, limit) for rows, matrix in zip(by_group, covariance, strict=True)]
    )
    correction = ((by_group - whole) * (moments.mean * units)[:, None]).sum(2)
    return whole.reshape(scaled.shape), correction.reshape(outputs)


def _nearest_plane(rows: Tensor, covariance: Tensor, limit: int) -> Tensor:
    """Choose integers (n, k) for `rows`, those of the largest inputs first, so that small inputs correct the rest."""
    order = torch.argsort(covariance.diagonal())
    root = _cholesky(covariance[order][:, order])
    target = rows[:, order]
    whole, error = torch.empty_like(target), torch.zeros_like(target)
    for index in reversed(range(len(order))):
        carried = error[:, index + 1 :] @ root[index, index + 1 :]
        whole[:, index] = (target[:, index] + carried / root[index, index]).round().clamp(-limit, limit)
        error[:, index] = target[:, index] - whole[:, index]
    return whole[:, torch.argsort(order)]


def _cholesky(covariance: Tensor) -> Tensor:
    """Return the upper triangular R with R' R = `covariance`, plus the power of rounding and a regularisation."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    added = _ROUNDING_POWER + _REGULARISATION * float(covariance.diagonal().mean())
    while True:
        root: Tensor
        root, failed = torch.linalg.cholesky_ex(covariance + added * identity, upper=True)
        if not failed:
            return root
        added *= 10


@dataclass(frozen=True)
class Layer:
    """Scales and bounds around a convolution or modulation, which turn its real weights into integers.

    Attributes:
        node: The convolution or modulation of a fused graph.
        ratio: Scale of each output divided by that of each input, shaped as the weights.
        outputs: Scale of each output.
        low: Smallest integer that each weight multiplies.
        high: Largest integer that each weight multiplies.
        limit: Largest magnitude of an integer weight.
        skip: The scale of the added tensor is that of the output times 2^skip.
        added: Largest magnitude of the added tensor, 0 if nothing is added.
    """

    node: Node
    ratio: Tensor
    outputs: Tensor
    low: Tensor
    high: Tensor
    limit: int
    skip: int
    added: int

    def integers(
        self,
        weight: Tensor,
        bias: Tensor,
        nearest: Callable[[Tensor], Tensor] = torch.round,
        shift: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Round weights and biases to the nearest integers on the finest scale that the proof of sums allows.

        Args:
            weight: Real weights (o, ...), or the factors (c, 64) of a modulation.
            bias: Real biases (o,), or the offsets (c, 64) of a modulation.
            nearest: Rounds to integers.
            shift: Result of `shifts` for these weights and biases; None computes it.

        Returns:
            Integer weights, biases and shifts (o,), as float tensors of whole numbers.

        Raises:
            ModelError: No shift fits the weights, or they are not finite.
        """
        scaled, offset, shift = self._scaled(weight, bias, shift)
        return nearest(scaled), nearest(offset), shift

    def fitted_integers(self, weight: Tensor, bias: Tensor, moments: Moments | None) -> tuple[Tensor, Tensor, Tensor]:
        """Round as `integers`, but for a convolution with known input moments by `round_weights`."""
        if moments is None:
            return self.integers(weight, bias)
        scaled, offset, shift = self._scaled(weight, bias)
        input_scales = self.outputs[:, None, None, None] / self.ratio
        whole, correction = round_weights(scaled, input_scales, moments, self.limit)
        whole_bias = (offset + correction).round()
        # These integers can be a few units larger than the nearest ones. Outputs whose sums could then leave float32's
        # exact integers take the nearest ones.
        too_wide = self.widest_sums(whole, whole_bias, shift) > FLOAT32_EXACT
        whole[too_wide], whole_bias[too_wide] = scaled[too_wide].round(), offset[too_wide].round()
        return whole, whole_bias, shift

    @torch.no_grad()
    def shifts(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the largest shift of each output (o,) with which weights and sums fit; waits for the device.

        Raises:
            ModelError: No shift fits the weights, or they are not finite.
        """
        scaled, offset = weight * self.ratio, bias * _by_output(self.outputs, bias)
        shift = self._shifts(scaled, offset)
        if bool((self._missing_bits(scaled, offset, shift) > 0).any()):
            raise ModelError(f"node {self.node.name!r} has weights that no power-of-two scale fits")
        return shift

    def _scaled(self, weight: Tensor, bias: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights and biases in the units of the sums, and the shifts that define these units."""
        shift = self.shifts(weight, bias) if shift is None else shift
        scaled, offset = weight * self.ratio, bias * _by_output(self.outputs, bias)
        unit = torch.exp2(shift).to(scaled)
        return scaled * _by_output(unit, scaled), offset * _by_output(unit, offset), shift

    def excess(self, weight: Tensor, bias: Tensor) -> Array:
        """Return the powers of two by which each output's scale must be coarser for `integers` to find a shift."""
        scaled, offset = weight * self.ratio, bias * _by_output(self.outputs, bias)
        missing: Array = self._missing_bits(scaled, offset, self._shifts(scaled, offset)).cpu().numpy()
        return missing

    @property
    def _least_shift(self) -> int:
        return max(self.skip - MAX_FINER, 0)

    def _missing_bits(self, scaled: Tensor, offset: Tensor, shift: Tensor) -> Tensor:
        """Return by how many bits shifts are too small, or sums too wide although the shift cannot be reduced."""
        over = torch.log2(self._widest_rounded(scaled, offset, shift) / FLOAT32_EXACT).ceil()
        return torch.maximum(self._least_shift - shift, over).clamp(min=0)

    def _shifts(self, scaled: Tensor, offset: Tensor) -> Tensor:
        """Return for each output the largest shift with which weights and sums fit."""
        scaled, offset = scaled.detach().double(), offset.detach().double()
        largest = scaled.abs().flatten(1).amax(1)
        if not bool(torch.isfinite(largest).all()):
            raise ModelError("the network's weights are not finite numbers")
        most = MAX_SHIFT // 2 + min(self.skip, 0)
        shift = torch.log2((self.limit + 0.49) / largest.clamp(min=1e-30)).floor().clamp(max=most)
        for _ in range(MAX_SHIFT):
            over = self._widest_rounded(scaled, offset, shift) > FLOAT32_EXACT
            if self.added:
                over &= shift > self.skip  # below that the sums are in the unit of the added tensor
            if not bool(over.any()):
                break
            shift -= over.to(shift)
        return shift

    def _widest_rounded(self, scaled: Tensor, offset: Tensor, shift: Tensor) -> Tensor:
        """Return the largest magnitude of each output's sums after rounding the weights to the nearest integers."""
        unit = torch.exp2(shift)
        whole, whole_bias = (scaled * _by_output(unit, scaled)).round(), (offset * _by_output(unit, offset)).round()
        return self.widest_sums(whole, whole_bias, shift)

    def widest_sums(self, whole: Tensor, whole_bias: Tensor, shift: Tensor) -> Tensor:
        """Return the largest magnitude of each output's sums, as the proof of `IntegerNetwork` derives it.

        Args:
            whole: Integer weights (o, ...).
            whole_bias: Integer biases (o, ...).
            shift: Shifts (o,).
        """
        above = whole.clamp(min=0) * self.high - whole.clamp(max=0) * -self.low
        below = whole.clamp(min=0) * -self.low - whole.clamp(max=0) * self.high
        if self.node.op == "conv":
            above, below = above.flatten(1).sum(1), below.flatten(1).sum(1)
        widest = torch.maximum(above + whole_bias.clamp(min=0), below - whole_bias.clamp(max=0))
        if widest.dim() > 1:
            widest = widest.flatten(1).amax(1)
        if self.added == 0:
            return widest
        fraction = shift.clamp(min=self.skip)
        return widest * torch.exp2(fraction - shift) + self.added * torch.exp2(fraction - self.skip)


def _by_output(values: Tensor, like: Tensor) -> Tensor:
    """Reshape a value of each output (o,) to multiply tensors (o, ...) such as `like`."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def layer_of(
    node: Node,
    scales: Mapping[str, Array],
    bounds: Mapping[str, tuple[Array, Array]],
    device: str | torch.device = "cpu",
) -> Layer:
    """Collect the scales and bounds around a convolution or modulation.

    Args:
        node: The node of a fused graph.
        scales: Scales of all tensors, from `Grid.all_scales`.
        bounds: Bounds of all tensors, from `Grid.all_bounds`.
        device: Device of the layer's tensors.
    """
    first, outputs = node.inputs[0], scales[node.name]
    inputs, low, high = scales[first], *bounds[first]
    skip, added = 0, 0
    if len(node.inputs) == 2:
        skip = round(math.log2(scales[node.inputs[1]][0] / outputs[0]))
        added = int(max(np.abs(bounds[node.inputs[1]][0]).max(), bounds[node.inputs[1]][1].max()))
    if node.op == "conv":
        groups, shape = node.values["groups"], node.tensors["weight"].shape
        inputs, low, high = (
            values.reshape(groups, shape[1]).repeat(shape[0] // groups, axis=0)[:, :, None, None]
            for values in (inputs, low, high)
        )
        ratio = outputs[:, None, None, None] / inputs
        limit = 127 if int(low.min()) >= -128 and int(high.max()) <= 255 else 2**15 - 1
    else:
        ratio, limit = (outputs / inputs)[:, None], 2**15 - 1
        low, high = low[:, None], high[:, None]

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.array(array, np.float64)).to(device)

    return Layer(node, tensor(ratio), tensor(outputs), tensor(low), tensor(high), limit, skip, added)


def real_tensors(node: Node) -> tuple[Tensor, Tensor]:
    """Return the arguments of `Layer`: weights and biases, or factors and offsets (c, 64) of a modulation; float64."""
    names = ("weight", "bias") if node.op == "conv" else ("factor", "offset")
    first, second = (torch.from_numpy(np.asarray(node.tensors[name], np.float64)) for name in names)
    return (first.T, second.T) if node.op == "modulate" else (first, second)


def fit_grid(graph: Graph, grid: Grid, bit_depth: int) -> Grid:
    """Make channels whose weights would fit no shift coarser, by powers of two.

    Such channels are nearly zero on the calibration's pictures, so that their scales are very large.

    Args:
        graph: A graph from `fuse`.
        grid: Scales and bounds of its tensors.
        bit_depth: Bit depth of the network.
    """
    roots = {name: name for name in grid.scales}
    for name, source in linked_scales(graph).items():
        roots[name] = roots[source]
    scales, shared = dict(grid.scales), shared_channels(graph)
    for _ in graph.nodes:
        before = dict(scales)
        for node in graph.nodes:
            if node.name in scales:
                current = Grid(scales, grid.bounds)
                layer = layer_of(node, current.all_scales(graph, bit_depth), current.all_bounds(graph, bit_depth))
                excess = group_maximum(layer.excess(*real_tensors(node)), shared.get(node.name, 1))
                for name in [name for name in scales if excess.any() and roots[name] == roots[node.name]]:
                    scales[name] = scales[name] * 2.0**-excess
        if all(scales[name] is before[name] for name in scales):
            break
    return Grid(scales, grid.bounds)


def as_integers(
    graph: Graph, grid: Grid, bit_depth: int, moments: Mapping[str, Moments] | None = None
) -> IntegerNetwork:
    """Convert a float graph to an 8-bit integer network on a grid.

    Args:
        graph: A graph from `fuse`.
        grid: Scales and bounds of its tensors; see `fit_grid`.
        bit_depth: Bit depth of the network.
        moments: Moments of the inputs of each convolution; without them its weights are the nearest integers.

    Raises:
        ModelError: No shift fits some weights.
    """
    scales, bounds = grid.all_scales(graph, bit_depth), grid.all_bounds(graph, bit_depth)
    nodes = []
    for node in graph.nodes:
        if node.name in grid.bounds:
            layer, (low, high) = layer_of(node, scales, bounds), grid.bounds[node.name]
            integers = layer.fitted_integers(*real_tensors(node), (moments or {}).get(node.name))
            weight, bias, shift = (tensor.numpy() for tensor in integers)
            values = {"low": low, "high": high}
            if node.op == "conv":
                values |= {"pad": node.values["pad"], "groups": node.values["groups"], "skip": layer.skip}
                kind = np.int8 if layer.limit == 127 else np.int16
                tensors = {"weight": weight.astype(kind), "bias": bias.astype(np.int32)}
            else:
                tensors = {"factor": weight.T.astype(np.int16), "offset": bias.T.astype(np.int32)}
            tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
            nodes.append(replace(node, values=values, tensors=tensors | {"shift": shift.astype(np.int8)}))
        elif node.op == "output":
            nodes.append(_integer_output(node, scales[node.inputs[0]], bounds[node.inputs[0]]))
        else:
            nodes.append(node)
    return IntegerNetwork(Graph(tuple(nodes)), bit_depth, 8)


def _integer_output(node: Node, scale: Array, bounds: tuple[Array, Array]) -> Node:
    """Convert the gains of an output to integers with as many fractional bits as fit."""
    real = node.tensors["gain"] / scale[0]
    largest, residual = float(np.abs(real).max()), float(max(-bounds[0].min(), bounds[1].max()))
    # Products take at most half of what a sum may be, so that rounding fits at every bit depth.
    most = min((2**15 - 1) / largest, FLOAT32_EXACT / 2 / (residual * largest)) if largest > 0 else 2.0**20
    fraction = min(math.floor(math.log2(most)), MAX_FRACTION)
    values = {"crop": node.values["crop"], "fraction": fraction}
    return replace(node, values=values, tensors={"gain": np.rint(real * 2.0**fraction).astype(np.int16)})


def quantise_eight(graph: Graph, magnitudes: Mapping[str, float], bit_depth: int) -> IntegerNetwork:
    """Convert a float graph to an 8-bit network with one scale for each tensor and without saturation.

    It serves comparisons and timings, as `quantise` does for 16 bits; `integer_network` finds better scales.

    Args:
        graph: A float graph.
        magnitudes: Largest magnitude of each node's tensor.
        bit_depth: Bit depth of the network.

    Raises:
        ModelError: The graph has no form of 8 bits, or no shift fits some weights.
    """
    joined, bounds = fuse(graph), tensor_bounds(fuse(graph))
    octaves = {name: math.log2(high / magnitudes[name]) for name, (_, high) in bounds.items()}
    for name, source in linked_scales(joined).items():
        octaves[name] = octaves[source] + round(octaves[name] - octaves[source])
    scales = {name: np.full(joined.extents[name].channels, 2.0**octave) for name, octave in octaves.items()}
    return as_integers(joined, fit_grid(joined, Grid(scales, bounds), bit_depth), bit_depth)
