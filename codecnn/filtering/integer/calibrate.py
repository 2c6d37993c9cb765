"""How large a network's tensors become on real pictures."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from codecnn.dataset.store import Unit
from codecnn.filtering.frame import filter_outputs
from codecnn.filtering.inputs import unit_planes
from codecnn.filtering.integer.exact_filter import TiledGraph
from codecnn.filtering.picture_filter import decoded_planes
from codecnn.models.base import SAMPLE_PLANES
from codecnn.models.graph.nodes import Graph, run

TILE = 256
PICTURES = 4
"""Pictures a QP that are looked at."""


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

    chosen = _spread(units, pictures)
    for done, unit in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        index = len(unit.record["pictures"]) // 2
        with unit.decoded() as decoded:
            picture = decoded[index]
            planes = {}
            for name, plane in decoded_planes(picture, graph.planes, unit_planes(unit, index, graph.planes)).items():
                tensor = torch.from_numpy(plane.astype(np.float32)).to(device)[None, None]
                planes[name] = tensor.div_(2**picture.bit_depth) if name in SAMPLE_PLANES else tensor
        qp = int(unit.record["pictures"][index]["qp"])
        with torch.inference_mode():
            filter_outputs(TiledGraph(graph, partial(run, graph, qp=qp, observe=observe)), planes, TILE)
    if progress is not None:
        progress(len(chosen), len(chosen))
    return dict(largest)


def _spread(units: Sequence[Unit], pictures: int) -> list[Unit]:
    """Of each QP's units `pictures`, at even distances."""
    by_qp: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_qp[unit.qp].append(unit)
    chosen = []
    for qp in sorted(by_qp):
        count = min(pictures, len(by_qp[qp]))
        chosen += [by_qp[qp][index * len(by_qp[qp]) // count] for index in range(count)]
    return chosen
