"""Which tensors of a network of 8 bits keep 12 or 13: chosen by what a byte of each would cost on real pictures.

The error that rounding adds to the filtered picture is nearly independent of what is left of the codec's, and of that
of other tensors: powers add. So the loss of any choice follows from that of each tensor alone.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from codecnn.dataset import Unit
from codecnn.filtering._base import components, decoded_planes
from codecnn.filtering._frame import in_full_scale, in_tiles, plane_tensors
from codecnn.filtering._inputs import unit_planes
from codecnn.filtering.integer._calibrate import Progress, grid_for
from codecnn.filtering.integer._eight import Layer, as_integers, fitted, layer_of, real_tensors
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._grid import FINE, Bounds, Grid
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._rounding import Moments, moments
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.models.graph import MOVES, Array, Graph, Node, run

LOSS = 0.004
"""dB that bytes may cost in the mean over the calibration's pictures, unless it is told otherwise."""
WORST = 4
"""In no picture more than so many times the mean."""
CROP = 192
"""Side of the middle of a picture that is looked at."""
_ELEMENT = 16.0
"""Multiply-accumulates that take about as long as writing a sample in four bytes rather than in one."""
_LEAST_ERROR = 1e-6
"""Mean squared error, of full scale (60 dB), below which a plane has none to speak of, as a grey picture's chroma."""
Observe = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class Crop:
    """Planes (1, 1, h, w) of the middle of a picture, in full scale, and of each output the original's samples."""

    planes: Mapping[str, Tensor]
    originals: Mapping[str, Array]
    qp: int
    bit_depth: int


@dataclass(frozen=True)
class Mixture:
    """A network of 8 bits, the tensors that keep more, and what it loses against float: dB, by crop."""

    network: IntegerNetwork
    grid: Grid
    wide: tuple[str, ...]
    losses: tuple[float, ...]


def mixture(
    graph: Graph,
    largest: Mapping[str, Array],
    units: Sequence[Unit],
    bit_depth: int,
    *,
    loss: float = LOSS,
    nearest: bool = False,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Mixture:
    """The cheapest network of bytes, and of tensors of 12 or 13 bits, whose bytes lose `loss` dB in the mean.

    `graph` is fused, its tensors as large as `reach` found. The loss is that on the middle of the pictures of `units`,
    in none of them more than WORST times that. What the integers of the others lose comes on top, and is in the losses
    of what is made; of 12 and 13 bits they have those that lose less. Infinite `loss` leaves all bytes. Weights are
    those that err least on what they multiply there, or with `nearest` the nearest integers, as training rounds them.
    """
    crops = [_crop(unit, graph, device) for unit in units]
    seen = {} if nearest else _moments(graph, crops, progress)
    of_bytes = fitted(graph, grid_for(graph, largest), bit_depth)
    powers = {} if math.isinf(loss) else _powers(graph, of_bytes, crops, bit_depth, seen, progress)
    wide = _cheapest(graph, powers, loss)
    plain = [_errors(crop, _filtered(graph, crop)) for crop in crops]
    made = []
    for fine in FINE if wide else FINE[:1]:
        grid = fitted(graph, grid_for(graph, largest, wide, fine), bit_depth)
        network = as_integers(graph, grid, bit_depth, seen)
        fast = FastNetwork(network, device)
        ratios = [_errors(crop, _exact(fast, crop)) / own for crop, own in zip(crops, plain, strict=True)]
        losses = tuple(10 * float(np.log10(one).mean()) for one in ratios)
        made.append(Mixture(network, grid, tuple(sorted(wide)), losses))
    return min(made, key=lambda one: sum(one.losses))


def _crop(unit: Unit, graph: Graph, device: str | torch.device) -> Crop:
    index = len(unit.pictures) // 2
    with unit.decoded() as decoded, unit.originals() as originals:
        picture, original = decoded[index], components(originals[index])
        named = decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes))
    side = CROP - CROP % (2 * graph.stride)
    rows, columns = (
        slice(start, min(start + side, size))
        for size in picture.y.shape
        for start in [max(size - side, 0) // 2 // (2 * graph.stride) * 2 * graph.stride]
    )

    def middle(plane: Array, name: str) -> Array:
        factor = 2 if name in CHROMA_PLANES or name in ("u", "v") else 1
        down, across = (slice(one.start // factor, -(-one.stop // factor)) for one in (rows, columns))
        return plane[down, across]

    planes = plane_tensors({name: middle(plane, name) for name, plane in named.items()}, device)
    wanted = {name: middle(original[name], name).astype(np.float64) for name in graph.outputs}
    return Crop(in_full_scale(planes, picture.bit_depth), wanted, unit.pictures[index].qp, picture.bit_depth)


def _filtered(
    graph: Graph, crop: Crop, observe: Observe | None = None, known: Mapping[str, Tensor] | None = None
) -> dict[str, Array]:
    """Outputs of the network in real numbers, in samples, neither rounded nor clipped."""
    with torch.inference_mode():
        made = in_tiles(partial(run, graph, qp=crop.qp, observe=observe, known=known), graph, crop.planes, None)
    return {name: plane[0, 0].cpu().numpy().astype(np.float64) * 2**crop.bit_depth for name, plane in made.items()}


def _exact(fast: FastNetwork, crop: Crop) -> dict[str, Array]:
    whole = {name: plane * 2**crop.bit_depth if name in SAMPLE_PLANES else plane for name, plane in crop.planes.items()}
    made = in_tiles(partial(fast, qp=crop.qp, bit_depth=crop.bit_depth), fast.network.graph, whole, None)
    return {name: plane[0, 0].cpu().numpy().astype(np.float64) for name, plane in made.items()}


def _errors(crop: Crop, filtered: Mapping[str, Array]) -> Array:
    """By output the mean squared error of the filtered samples, rounded and clipped, against the originals."""
    peak = 2**crop.bit_depth - 1
    found = [np.square(np.clip(np.rint(filtered[name]), 0, peak) - crop.originals[name]).mean() for name in filtered]
    return np.maximum(found, _LEAST_ERROR * float(peak) ** 2)


def _moments(graph: Graph, crops: Sequence[Crop], progress: Progress | None = None) -> dict[str, Moments]:
    """Of what each convolution multiplies on all of the crops."""
    report = progress or (lambda done, total: None)
    found: dict[str, Moments] = {}
    for done, crop in enumerate(crops):
        report(done, len(crops))
        tensors: dict[str, Tensor] = {}
        _filtered(graph, crop, tensors.__setitem__)
        for node in graph.nodes:
            if node.op == "conv":
                own = moments(node, tensors[node.inputs[0]])
                found[node.name] = found[node.name] + own if node.name in found else own
    report(len(crops), len(crops))
    return found


def _powers(
    graph: Graph,
    grid: Grid,
    crops: Sequence[Crop],
    bit_depth: int,
    seen: Mapping[str, Moments],
    progress: Progress | None = None,
) -> dict[str, Array]:
    """For each tensor that is bytes, by crop: what it adds to the filtered picture's squared error, relative to that.

    It is rounded alone, and with it the weights that multiply it have 8 bits.
    """
    report = progress or (lambda done, total: None)
    scales, limits = grid.all_scales(graph, bit_depth), grid.all_bounds(graph, bit_depth)
    names = [name for name in grid.bounds if grid.is_byte(name)]
    whole = {
        node.name: replace(node, tensors=_rounded_weights(layer_of(node, scales, limits), seen.get(node.name)))
        for node in graph.nodes
        if node.op == "conv"
    }
    rounded = {}
    for name in names:
        readers = {node.name for node in _readers(graph, name)}
        rounded[name] = Graph(tuple(whole[node.name] if node.name in readers else node for node in graph.nodes))
    behind = {name: _behind(graph, name) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for done, crop in enumerate(crops):
        report(done, len(crops))
        tensors: dict[str, Tensor] = {}
        plain = _filtered(graph, crop, tensors.__setitem__)
        for name in names:
            # What comes before, or beside, is what it was.
            known = {other: x for other, x in tensors.items() if other not in behind[name]}
            known[name] = _as_byte(tensors[name], grid.scales[name], grid.bounds[name])
            found[name].append(_added(crop, plain, _filtered(rounded[name], crop, known=known)))
    report(len(crops), len(crops))
    return {name: np.array(powers) for name, powers in found.items()}


def _as_byte(x: Tensor, scale: Array, bounds: Bounds) -> Tensor:
    """A tensor once it is a byte, in real numbers."""
    by_channel = torch.from_numpy(scale)[:, None, None].to(x)
    return (x * by_channel).round().clamp(*bounds) / by_channel


def _behind(graph: Graph, name: str) -> set[str]:
    """The nodes that a tensor goes into, itself and what follows from them."""
    found = {name}
    for node in graph.nodes:
        if found & set(node.inputs):
            found.add(node.name)
    return found


def _added(crop: Crop, plain: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    """The squared difference of filtered pictures over the squared error of the first, in the mean of the outputs."""
    errors = zip(plain, _errors(crop, plain), strict=True)
    return float(np.mean([np.square(other[name] - plain[name]).mean() / error for name, error in errors]))


def _rounded_weights(layer: Layer, seen: Moments | None) -> dict[str, Array]:
    """The weights of a convolution as real numbers again, after they were rounded to what 8-bit integers hold."""
    weight, bias, shift = layer.fitted_integers(*real_tensors(layer.node), seen)
    unit = torch.exp2(-shift)
    return {
        "weight": (weight * unit[:, None, None, None] / layer.ratio).numpy(),
        "bias": (bias * unit / layer.outputs).numpy(),
    }


def _readers(graph: Graph, name: str) -> list[Node]:
    """The convolutions that multiply a tensor, whatever moves it on the way."""
    found = []
    for node in graph.nodes:
        if node.op in MOVES and name in node.inputs:
            found += _readers(graph, node.name)
        elif node.op == "conv" and node.inputs[0] == name:
            found.append(node)
    return found


def _cheapest(graph: Graph, powers: Mapping[str, Array], loss: float) -> set[str]:
    """Tensors that are wide so that the others together lose at most `loss` dB in the mean, WORST times that in one.

    One after the other, that which takes away most for its cost; then those go again that are not needed.
    """
    if loss == 0:
        return set(powers)
    aims = np.array([10 ** (loss / 10) - 1, 10 ** (WORST * loss / 10) - 1])
    readers = {name: _readers(graph, name) for name in powers}

    def cost(wide: Collection[str]) -> float:
        """Of what becomes slower, a luma sample: convolutions that multiply floats, and writing them."""
        slow = {node.name: node for name in wide for node in readers[name]}
        by_cell = [node.tensors["weight"].size / graph.extents[node.name].cell ** 2 for node in slow.values()]
        written = [graph.extents[name].channels / graph.extents[name].cell ** 2 for name in wide]
        return sum(by_cell) + _ELEMENT * sum(written)

    def over(wide: Collection[str]) -> Array:
        left = sum((power for name, power in powers.items() if name not in wide), np.zeros(1))
        shares: Array = np.array([left.mean(), left.max()]) / aims
        return shares

    wide: set[str] = set()
    while len(wide) < len(powers) and (now := over(wide)).max() > 1:
        wide.add(
            max(
                (name for name in powers if name not in wide),
                key=lambda name: (
                    (np.maximum(now, 1) - np.maximum(over({*wide, name}), 1)).sum() / (cost({*wide, name}) - cost(wide))
                ),
            )
        )
    for name in sorted(wide, key=lambda name: cost(wide - {name})):
        if over(wide - {name}).max() <= 1:
            wide.remove(name)
    return wide
