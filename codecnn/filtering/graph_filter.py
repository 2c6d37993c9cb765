"""Graphs of plain operations as filters, for what needs the tensors inside of a float network."""

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from codecnn.filtering.network_filter import FilterOptions, NetworkFilter
from codecnn.filtering.tiles import TileMemory, in_full_scale, in_tiles, measure_tile_memory
from codecnn.models.graph import Graph, run

_PROBED_QP = 32


class GraphFilter(NetworkFilter):
    """A graph in real numbers as a filter, with the same samples as its network's `FloatFilter` up to float rounding.

    It is slower than `FloatFilter`, but its tensors can be observed and its nodes replaced.

    Args:
        graph: The graph, from `codecnn.models.build_graph`.
        observe: Called with name and tensor of each node, for each tile.
        options: Options of `NetworkFilter`.
    """

    precision = "float32"

    def __init__(
        self, graph: Graph, *, observe: Callable[[str, Tensor], None] | None = None, **options: Unpack[FilterOptions]
    ) -> None:
        self.graph = graph
        self.observe = observe
        super().__init__(graph, **options)
        if graph.uses_qp:
            self.planes = (*self.planes, "qp")

    def _filter_planes(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        compute = partial(run, self.graph, qp=qp, observe=self.observe)
        filtered = in_tiles(compute, self.geometry, in_full_scale(planes, bit_depth), tile, threads)
        return {name: x.mul_(float(2**bit_depth)) for name, x in filtered.items()}

    def _tile_memory(self) -> TileMemory:
        tensors = [torch.from_numpy(array) for node in self.graph.nodes for array in node.tensors.values()]
        return measure_tile_memory(partial(run, self.graph, qp=_PROBED_QP), self.geometry, tensors, self.device)
