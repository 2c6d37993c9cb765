"""Integer networks as filters of pictures."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codecnn.codec.base import MAX_QP
from codecnn.errors import ConfigError
from codecnn.filtering.frame import DEFAULT_TILE, filter_outputs
from codecnn.filtering.integer.fast import FastNetwork
from codecnn.filtering.integer.network import IntegerNetwork, check_bit_depth
from codecnn.filtering.picture_filter import NOTHING, Array, decoded_planes
from codecnn.filtering.tile_memory import tile_within
from codecnn.models.activations import peak_bytes
from codecnn.models.base import CHROMA_PLANES
from codecnn.models.graph.nodes import Graph
from codecnn.video import Picture

_PROBE = 96


class TiledGraph:
    """A function on the planes of a graph's tiles, with what `filter_outputs` has to know of the graph."""

    def __init__(self, graph: Graph, compute: Any) -> None:
        self.planes, self.outputs = graph.planes, graph.outputs
        self.halo, self.radius, self.stride = graph.halo, graph.radius, graph.stride
        self.compute = compute

    def __call__(self, planes: dict[str, Tensor]) -> Any:
        return self.compute(planes)


class ExactFilter:
    """An integer network that gives the same samples on every machine; `exact_filter` makes it. A `PictureFilter`."""

    def __init__(self, fast: FastNetwork, tile: int | None, memory: int | None) -> None:
        self.fast = fast
        self.tile = tile
        self.memory = memory
        self.bytes_per_sample = 0.0 if memory is None else _bytes_per_sample(fast)

    @property
    def planes(self) -> tuple[str, ...]:
        graph = self.fast.network.graph
        return (*graph.planes, "qp") if graph.uses_qp else graph.planes

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.fast.network.graph.outputs

    def samples(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        if not 0 <= qp <= MAX_QP:
            raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
        network = self.fast.network
        check_bit_depth(network, picture.bit_depth)
        planes = {
            name: torch.from_numpy(plane.astype(np.float32)).to(self.fast.device)[None, None]
            for name, plane in decoded_planes(picture, self.planes, beside).items()
        }
        tiled = TiledGraph(network.graph, partial(self.fast, qp=qp, bit_depth=picture.bit_depth))
        tile = self.tile
        if self.memory is not None:
            tile = tile_within(self.memory, self.bytes_per_sample, tiled, picture.y.shape, tile)
        filtered = filter_outputs(tiled, planes, tile)
        return {name: plane[0, 0].cpu().numpy() for name, plane in filtered.items()}

    def __call__(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> Picture:
        samples = self.samples(picture, qp, beside)
        planes = zip("yuv", picture.planes, strict=False)
        return Picture(
            tuple(samples[name].astype(plane.dtype) if name in samples else plane for name, plane in planes),
            picture.bit_depth,
        )


def exact_filter(
    network: IntegerNetwork,
    *,
    device: str | torch.device = "cpu",
    tile: int | None = DEFAULT_TILE,
    memory: int | None = None,
    wide: bool = False,
) -> ExactFilter:
    """`network` as a filter of pictures whose samples depend on nothing but the network and the picture.

    Neither `device`, nor `tile`, the largest side of the tiles in luma samples, nor `memory`, which makes them smaller
    as for `float_filter`, nor the number of threads changes one of them; nor does `wide`, which computes in float64
    what float32 holds as well.
    """
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")
    return ExactFilter(FastNetwork(network, device, wide=wide), tile, memory)


def _bytes_per_sample(fast: FastNetwork) -> float:
    """Bytes of tensors for one luma sample of the window that the network is given, measured on a small one."""
    graph = fast.network.graph
    side = _PROBE + -_PROBE % graph.stride + 2 * graph.halo
    planes = {}
    for name in graph.planes:
        own = side // 2 if name in CHROMA_PLANES else side
        planes[name] = torch.zeros(1, 1, own, own, device=fast.device)
    weights = [tensor for tensors in fast.tensors.values() for tensor in tensors.values()]
    return peak_bytes(lambda: fast(planes, 0, fast.network.bit_depth), [*weights, *planes.values()]) / side**2
