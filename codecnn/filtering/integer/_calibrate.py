"""How large a network's tensors become on real pictures."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from codecnn.dataset.store import Unit
from codecnn.filtering._base import decoded_planes
from codecnn.filtering._frame import in_full_scale, in_tiles, plane_tensors
from codecnn.filtering._inputs import unit_planes
from codecnn.models.graph.nodes import Graph, run

TILE = 256
PICTURES = 4
"""Pictures that are looked at for each QP."""


def magnitudes(
    graph: Graph,
    units: Sequence[Unit],
    *,
    pictures: int = PICTURES,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """The largest magnitude that each node's tensor has on decoded pictures of `units`, at every QP among them.

    At each QP, `pictures` are taken from units at even distances, from each the one in its middle. Raises StoreError
    and ModelError where a unit lacks a plane.
    """
    largest: dict[str, float] = defaultdict(float)

    def observe(name: str, tensor: Tensor) -> None:
        largest[name] = max(largest[name], float(tensor.abs().max()))

    report = progress or (lambda done, total: None)
    chosen = _spread(units, pictures)
    for done, unit in enumerate(chosen):
        report(done, len(chosen))
        index = len(unit.pictures) // 2
        with unit.decoded() as decoded:
            picture = decoded[index]
            named = decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes))
            planes = in_full_scale(plane_tensors(named, device), picture.bit_depth)
        qp = unit.pictures[index].qp
        with torch.inference_mode():
            in_tiles(partial(run, graph, qp=qp, observe=observe), graph, planes, TILE)
    report(len(chosen), len(chosen))
    return dict(largest)


def _spread(units: Sequence[Unit], pictures: int) -> list[Unit]:
    """`pictures` of each QP's units, at even distances."""
    by_qp: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_qp[unit.qp].append(unit)
    chosen = []
    for qp in sorted(by_qp):
        count = min(pictures, len(by_qp[qp]))
        chosen += [by_qp[qp][index * len(by_qp[qp]) // count] for index in range(count)]
    return chosen
