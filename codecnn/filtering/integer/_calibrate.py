"""How large a network's tensors become on real pictures, and how fine 8 bits can be there."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from codecnn.dataset import Unit
from codecnn.filtering._base import decoded_planes
from codecnn.filtering._frame import in_full_scale, in_tiles, plane_tensors
from codecnn.filtering._inputs import unit_planes
from codecnn.filtering.integer._grid import FINE, UNSIGNED, Grid, cells, linked, spans, together
from codecnn.models.graph import Array, Graph, run

TILE = 256
PICTURES = 4
"""Pictures that are looked at for each QP."""
_SATURATED = 1.0
"""Octaves by which a byte that is added to another tensor may be finer than what holds its largest values."""
Progress = Callable[[int, int], None]


def magnitudes(
    graph: Graph,
    units: Sequence[Unit],
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> dict[str, float]:
    """The largest magnitude that each node's tensor has on the decoded picture in the middle of each of `units`.

    Raises StoreError and ModelError where a unit lacks a plane.
    """
    largest: dict[str, float] = defaultdict(float)

    def observe(name: str, tensor: Tensor) -> None:
        largest[name] = max(largest[name], float(tensor.abs().max()))

    _observe(graph, units, device, progress, observe)
    return dict(largest)


def reach(
    graph: Graph,
    units: Sequence[Unit],
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> dict[str, Array]:
    """The largest magnitude of each convolution's and modulation's tensor, by channel, on the pictures of `magnitudes`.

    `graph` is fused. Raises as `magnitudes` does.
    """
    own = spans(graph)
    largest: dict[str, Array] = {}

    def observe(name: str, tensor: Tensor) -> None:
        if name in own:
            most = tensor.abs().amax((0, 2, 3)).cpu().numpy().astype(np.float64)
            largest[name] = np.maximum(largest.get(name, most), most)

    _observe(graph, units, device, progress, observe)
    return largest


def grid_for(graph: Graph, largest: Mapping[str, Array], wide: Collection[str] = (), fine: int = FINE[0]) -> Grid:
    """The finest grid that holds the values of `reach`, of bytes wherever that can be and of more bits in `wide`.

    Tensors that are added to each other have scales between what is best for each, with a ratio that is a power of
    two: there a byte's largest values may saturate. What has more bits, up to `fine`, one of FINE, holds all of them.
    """
    own, shared = spans(graph), cells(graph)
    best = {}
    for name, (_, high) in own.items():
        most = together(np.maximum(largest[name], 1e-6), shared.get(name, 1))
        # What has more bits than a byte can spare one, for pictures that go farther.
        best[name] = (high if high <= UNSIGNED[1] else (high + 1) / 2) / most
    return Grid(_linked_scales(graph, best, wide), own).widened(wide, fine)


def _linked_scales(graph: Graph, best: dict[str, Array], wide: Collection[str]) -> dict[str, Array]:
    """The scales of tensors that are added to each other, up to powers of two their geometric means.

    Where in a channel one of them is much larger than the other has room for, as an RDN's fused features are than the
    first ones, the mean would saturate it: there the other one is coarser, which bits can cure.
    """
    roots: dict[str, str] = {}
    for name, source in linked(graph).items():
        roots[name] = roots.get(source, source)
    for root in set(roots.values()):
        names = [root, *(name for name, own in roots.items() if own == root)]
        octaves = np.log2([best[name] for name in names])
        steps = np.rint(np.median(octaves - octaves[0], axis=1))
        own = octaves - steps[:, None]
        saturated = np.array([0.0 if name in wide else _SATURATED for name in names])
        mean = np.minimum(own.mean(axis=0), (own + saturated[:, None]).min(axis=0))
        best |= {name: 2.0 ** (mean + step) for name, step in zip(names, steps, strict=True)}
    return best


def _observe(
    graph: Graph,
    units: Sequence[Unit],
    device: str | torch.device,
    progress: Progress | None,
    observe: Callable[[str, Tensor], None],
) -> None:
    """Show every node's tensor to `observe`, for the picture in the middle of each unit."""
    report = progress or (lambda done, total: None)
    for done, unit in enumerate(units):
        report(done, len(units))
        index = len(unit.pictures) // 2
        with unit.decoded() as decoded:
            picture = decoded[index]
            named = decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes))
            planes = in_full_scale(plane_tensors(named, device), picture.bit_depth)
        qp = unit.pictures[index].qp
        with torch.inference_mode():
            in_tiles(partial(run, graph, qp=qp, observe=observe), graph, planes, TILE)
    report(len(units), len(units))


def spread(units: Sequence[Unit], pictures: int = PICTURES) -> list[Unit]:
    """`pictures` of each QP's units, at even distances: what a calibration looks at."""
    by_qp: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_qp[unit.qp].append(unit)
    chosen = []
    for qp in sorted(by_qp):
        count = min(pictures, len(by_qp[qp]))
        chosen += [by_qp[qp][index * len(by_qp[qp]) // count] for index in range(count)]
    return chosen
