"""Choice of the tensors of an 8-bit network that keep 12 or 13 bits, by what rounding each to a byte costs.

The error that rounding adds to the filtered picture is nearly independent of the remaining coding error, and of the
error that other tensors add, so that their powers add up. The loss of any choice therefore follows from that of each
tensor alone, measured on crops from the middle of the calibration's pictures (`Crop`). `choose_precision` widens those
tensors that reduce the loss most for their cost, until the loss is below a limit.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from codecnn.base.cluster import Progress
from codecnn.base.division import ceil_div
from codecnn.base.runtime import float32_products
from codecnn.dataset import Unit
from codecnn.filtering.integer.eight_bits import (
    Layer,
    Moments,
    as_integers,
    fit_grid,
    input_moments,
    layer_of,
    real_tensors,
)
from codecnn.filtering.integer.grid import WIDE_MAXIMA, Bounds, Grid, grid_for
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.torch_engine import FastNetwork
from codecnn.filtering.planes import components, decoded_planes, unit_planes
from codecnn.filtering.tiles import in_full_scale, in_tiles, plane_tensors
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.models.graph import MOVES, Array, Graph, Node, run

DEFAULT_LOSS_DB = 0.004
"""Default limit in dB for the mean loss of the calibration's pictures."""
WORST_LOSS_FACTOR = 4
"""Largest loss allowed for one picture, as a multiple of the limit for the mean loss."""
CROP_SIDE = 192
"""Side in luma samples of the crop from the middle of a picture."""
_WRITE_COST = 16.0
"""Multiply-accumulates that take about as long as writing a sample in four bytes instead of one."""
_LEAST_ERROR = 1e-6
"""Mean squared error relative to full scale (60 dB) that is the least a plane counts with, e.g. grey chroma."""

Observe = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class Crop:
    """The middle of a picture.

    Attributes:
        planes: Input planes (1, 1, h, w), samples as x / 2^bit_depth.
        originals: Original samples of each output, shape (h, w).
        qp: Slice QP.
        bit_depth: Bit depth of the samples.
    """

    planes: Mapping[str, Tensor]
    originals: Mapping[str, Array]
    qp: int
    bit_depth: int


@dataclass(frozen=True)
class Mixture:
    """An 8-bit network of mixed precision.

    Attributes:
        network: The integer network.
        grid: Scales and bounds of its tensors.
        wide: Nodes whose tensors have 12 or 13 bits.
        losses: Loss against the float network in dB for each crop, the mean of the outputs.
    """

    network: IntegerNetwork
    grid: Grid
    wide: tuple[str, ...]
    losses: tuple[float, ...]


def choose_precision(
    graph: Graph,
    largest: Mapping[str, Array],
    units: Sequence[Unit],
    bit_depth: int,
    *,
    loss: float = DEFAULT_LOSS_DB,
    nearest: bool = False,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Mixture:
    """Find the fastest 8-bit network whose bytes lose at most `loss` dB.

    The limit applies to the mean over crops of the units' middle pictures, and `WORST_LOSS_FACTOR` times the limit to
    each crop. It counts only the tensors that stay bytes; the loss of the wide tensors comes on top, and is part of
    `Mixture.losses`. Of 12 and 13 bits for the wide tensors the network that loses less is returned.

    Args:
        graph: A graph from `fuse`.
        largest: Largest magnitude by node and channel, from `channel_magnitudes`.
        units: Coded units; the middle picture of each is used.
        bit_depth: Bit depth of the network.
        loss: Limit in dB; 0 widens all tensors, infinity none.
        nearest: Round weights to the nearest integers, as training does, instead of by the moments of their inputs.
        device: Device to compute on.
        progress: Called with the number of crops that are done, and of all crops, in each pass.
    """
    crops = [middle_crop(unit, graph, device) for unit in units]
    moments = {} if nearest else moments_on(graph, crops, progress)
    byte_grid = fit_grid(graph, grid_for(graph, largest), bit_depth)
    powers = {} if math.isinf(loss) else error_powers(graph, byte_grid, crops, bit_depth, moments, progress)
    wide = choose_wide(graph, powers, loss)
    float_errors = [_squared_errors(crop, filter_float(graph, crop)) for crop in crops]
    mixtures = []
    for maximum in WIDE_MAXIMA if wide else WIDE_MAXIMA[:1]:
        grid = fit_grid(graph, grid_for(graph, largest, wide, maximum), bit_depth)
        network = as_integers(graph, grid, bit_depth, moments)
        engine = FastNetwork(network, device)
        ratios = [
            _squared_errors(crop, filter_exact(engine, crop)) / errors
            for crop, errors in zip(crops, float_errors, strict=True)
        ]
        losses = tuple(10 * float(np.log10(ratio).mean()) for ratio in ratios)
        mixtures.append(Mixture(network, grid, tuple(sorted(wide)), losses))
    return min(mixtures, key=lambda mixture: sum(mixture.losses))


def middle_crop(unit: Unit, graph: Graph, device: str | torch.device) -> Crop:
    """Read the crop from the middle of a unit's middle picture.

    Args:
        unit: A coded unit.
        graph: The float graph, which says what planes and outputs are needed.
        device: Device of the planes.
    """
    index = len(unit.pictures) // 2
    with unit.decoded() as decoded, unit.originals() as originals:
        picture, original = decoded[index], components(originals[index])
        named = decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes))
    side = CROP_SIDE - CROP_SIDE % (2 * graph.stride)
    rows, columns = (
        slice(start, min(start + side, size))
        for size in picture.y.shape
        for start in [max(size - side, 0) // 2 // (2 * graph.stride) * 2 * graph.stride]
    )

    def crop_plane(plane: Array, name: str) -> Array:
        factor = 2 if name in CHROMA_PLANES or name in ("u", "v") else 1
        down, across = (slice(span.start // factor, ceil_div(span.stop, factor)) for span in (rows, columns))
        return plane[down, across]

    planes = plane_tensors({name: crop_plane(plane, name) for name, plane in named.items()}, device)
    targets = {name: crop_plane(original[name], name).astype(np.float64) for name in graph.outputs}
    return Crop(
        in_full_scale(planes, picture.bit_depth), targets, unit.pictures[index].qp_for_networks, picture.bit_depth
    )


def filter_float(
    graph: Graph, crop: Crop, observe: Observe | None = None, known: Mapping[str, Tensor] | None = None
) -> dict[str, Array]:
    """Compute the float network on a crop.

    Args:
        graph: The float graph.
        crop: The crop.
        observe: Called with the name and tensor of every node.
        known: Tensors of nodes that are taken as given instead of computed.

    Returns:
        Each output (h, w) in units of samples, neither rounded nor clipped.
    """
    with torch.inference_mode(), float32_products():
        compute = partial(run, graph, qp=crop.qp, observe=observe, known=known)
        outputs = in_tiles(compute, graph, crop.planes, None)
    return {name: plane[0, 0].cpu().numpy().astype(np.float64) * 2**crop.bit_depth for name, plane in outputs.items()}


def filter_exact(engine: FastNetwork, crop: Crop) -> dict[str, Array]:
    """Compute an integer network on a crop; returns each output (h, w) in samples."""
    whole = {name: plane * 2**crop.bit_depth if name in SAMPLE_PLANES else plane for name, plane in crop.planes.items()}
    outputs = in_tiles(partial(engine, qp=crop.qp, bit_depth=crop.bit_depth), engine.network.graph, whole, None)
    return {name: plane[0, 0].cpu().numpy().astype(np.float64) for name, plane in outputs.items()}


def _squared_errors(crop: Crop, filtered: Mapping[str, Array]) -> Array:
    """Return the mean squared error of each output, rounded and clipped, against the originals."""
    peak = 2**crop.bit_depth - 1
    errors = [np.square(np.clip(np.rint(filtered[name]), 0, peak) - crop.originals[name]).mean() for name in filtered]
    return np.maximum(errors, _LEAST_ERROR * float(peak) ** 2)


def moments_on(graph: Graph, crops: Sequence[Crop], progress: Progress | None = None) -> dict[str, Moments]:
    """Compute the moments of the inputs of each convolution over all crops."""
    report = progress or (lambda done, total: None)
    moments: dict[str, Moments] = {}
    for done, crop in enumerate(crops):
        report(done, len(crops))
        tensors: dict[str, Tensor] = {}
        filter_float(graph, crop, tensors.__setitem__)
        for node in graph.nodes:
            if node.op == "conv":
                of_crop = input_moments(node, tensors[node.inputs[0]])
                moments[node.name] = moments[node.name] + of_crop if node.name in moments else of_crop
    report(len(crops), len(crops))
    return moments


def error_powers(
    graph: Graph,
    grid: Grid,
    crops: Sequence[Crop],
    bit_depth: int,
    moments: Mapping[str, Moments],
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Measure what each byte tensor alone adds to the squared error of the filtered picture.

    A tensor is rounded to bytes, and the weights that multiply it to 8 bits, in a network that is otherwise float.

    Args:
        graph: A graph from `fuse`.
        grid: A grid of bytes.
        crops: Crops to measure on.
        bit_depth: Bit depth of the network.
        moments: Moments of the inputs of each convolution, to round the weights by; may be empty.
        progress: Called with the number of crops that are done, and of all crops.

    Returns:
        For each byte tensor the added error relative to the filtered picture's error, shape (crops,).
    """
    report = progress or (lambda done, total: None)
    scales, bounds = grid.all_scales(graph, bit_depth), grid.all_bounds(graph, bit_depth)
    names = [name for name in grid.bounds if grid.is_byte(name)]
    rounded_nodes = {
        node.name: replace(node, tensors=_rounded_weights(layer_of(node, scales, bounds), moments.get(node.name)))
        for node in graph.nodes
        if node.op == "conv"
    }
    rounded_graphs = {}
    for name in names:
        readers = {node.name for node in _readers(graph, name)}
        nodes = tuple(rounded_nodes[node.name] if node.name in readers else node for node in graph.nodes)
        rounded_graphs[name] = Graph(nodes)
    affected = {name: _affected_nodes(graph, name) for name in names}
    powers: dict[str, list[float]] = {name: [] for name in names}
    for done, crop in enumerate(crops):
        report(done, len(crops))
        tensors: dict[str, Tensor] = {}
        plain = filter_float(graph, crop, tensors.__setitem__)
        for name in names:
            known = {other: x for other, x in tensors.items() if other not in affected[name]}
            known[name] = _as_byte(tensors[name], grid.scales[name], grid.bounds[name])
            powers[name].append(added_error(crop, plain, filter_float(rounded_graphs[name], crop, known=known)))
    report(len(crops), len(crops))
    return {name: np.array(values) for name, values in powers.items()}


def _as_byte(x: Tensor, scale: Array, bounds: Bounds) -> Tensor:
    """Round and saturate a tensor to bytes, and return it in real numbers."""
    by_channel = torch.from_numpy(scale)[:, None, None].to(x)
    return (x * by_channel).round().clamp(*bounds) / by_channel


def _affected_nodes(graph: Graph, name: str) -> set[str]:
    """Return a node and all nodes that depend on it."""
    affected = {name}
    for node in graph.nodes:
        if affected & set(node.inputs):
            affected.add(node.name)
    return affected


def added_error(crop: Crop, plain: Mapping[str, Array], changed: Mapping[str, Array]) -> float:
    """Return the squared difference of two filtered pictures over the squared error of the first, mean of the outputs.

    Args:
        crop: The crop, with the originals.
        plain: Outputs of the float network.
        changed: Outputs of the same network with rounding.
    """
    errors = zip(plain, _squared_errors(crop, plain), strict=True)
    return float(np.mean([np.square(changed[name] - plain[name]).mean() / error for name, error in errors]))


def _rounded_weights(layer: Layer, moments: Moments | None) -> dict[str, Array]:
    """Return the weights of a convolution in real numbers after rounding to the integers of an 8-bit network."""
    weight, bias, shift = layer.fitted_integers(*real_tensors(layer.node), moments)
    unit = torch.exp2(-shift)
    return {
        "weight": (weight * unit[:, None, None, None] / layer.ratio).numpy(),
        "bias": (bias * unit / layer.outputs).numpy(),
    }


def _readers(graph: Graph, name: str) -> list[Node]:
    """Return the convolutions that multiply a tensor, directly or through nodes that only move samples."""
    readers = []
    for node in graph.nodes:
        if node.op in MOVES and name in node.inputs:
            readers += _readers(graph, node.name)
        elif node.op == "conv" and node.inputs[0] == name:
            readers.append(node)
    return readers


def choose_wide(graph: Graph, powers: Mapping[str, Array], loss: float) -> set[str]:
    """Choose the tensors to widen so that the remaining bytes lose at most `loss` dB.

    Tensors are added one after the other, each time the one that reduces the loss most for its cost. Then tensors that
    are not needed are removed again.

    Args:
        graph: A graph from `fuse`.
        powers: Added error of each byte tensor by crop, from `error_powers`.
        loss: Limit of the mean loss in dB; a single crop may lose `WORST_LOSS_FACTOR` times as much.

    Returns:
        The nodes whose tensors are widened.
    """
    if loss == 0:
        return set(powers)
    limits = np.array([10 ** (loss / 10) - 1, 10 ** (WORST_LOSS_FACTOR * loss / 10) - 1])
    readers = {name: _readers(graph, name) for name in powers}

    def cost(wide: Collection[str]) -> float:
        """Return the extra work for a luma sample: wider multiplications, and writing wider tensors."""
        slower = {node.name: node for name in wide for node in readers[name]}
        products = [node.tensors["weight"].size / graph.extents[node.name].cell ** 2 for node in slower.values()]
        written = [graph.extents[name].channels / graph.extents[name].cell ** 2 for name in wide]
        return sum(products) + _WRITE_COST * sum(written)

    def relative_loss(wide: Collection[str]) -> Array:
        """Return the mean and the worst loss of the remaining bytes relative to their limits."""
        remaining = sum((power for name, power in powers.items() if name not in wide), np.zeros(1))
        ratios: Array = np.array([remaining.mean(), remaining.max()]) / limits
        return ratios

    wide: set[str] = set()
    while len(wide) < len(powers) and (current := relative_loss(wide)).max() > 1:
        wide.add(
            max(
                (name for name in powers if name not in wide),
                key=lambda name: (
                    (np.maximum(current, 1) - np.maximum(relative_loss({*wide, name}), 1)).sum()
                    / (cost({*wide, name}) - cost(wide))
                ),
            )
        )
    for name in sorted(wide, key=lambda name: cost(wide - {name})):
        if relative_loss(wide - {name}).max() <= 1:
            wide.remove(name)
    return wide
