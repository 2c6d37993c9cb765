"""Integer networks as filters of pictures."""

import time
from functools import partial
from typing import Literal, Unpack

import torch
from torch import Tensor

from codecnn.filtering._base import NO_PLANES, Planes, components
from codecnn.filtering._frame import in_tiles
from codecnn.filtering._picture_filter import FilterOptions, NetworkFilter
from codecnn.filtering._tile_memory import TileMemory, measured
from codecnn.filtering.integer._fast import FastNetwork, exact_arithmetic
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._rows import RowNetwork, goes_in_rows
from codecnn.models import CHROMA_PLANES
from codecnn.video import Picture

Engine = Literal["float32", "float64", "int8"]
_TRIAL = 96
"""Side of the luma that engines are timed with."""


def engines(network: IntegerNetwork, device: str | torch.device = "cpu") -> list[Engine]:
    """What can compute a network on a device, all to the same samples, apart from "float64": all in float64.

    "float32"  float convolutions, each in float32 where its sums are proven to fit
    "int8"     of a network of 8 bits, row by row in products of bytes, on processors with AVX512_VNNI or AMX
    """
    rows_too = torch.device(device).type == "cpu" and goes_in_rows(network)
    return ["float32", "int8"] if rows_too else ["float32"]


def build_engine(network: IntegerNetwork, engine: Engine, device: str | torch.device = "cpu") -> FastNetwork:
    """The network ready to run by an engine; raises ModelError for one that is not among `engines`."""
    return RowNetwork(network) if engine == "int8" else FastNetwork(network, device, wide=engine == "float64")


def _fastest(network: IntegerNetwork, device: str | torch.device) -> FastNetwork:
    """The network by the engine that takes the least time for a small window."""
    built = [build_engine(network, engine, device) for engine in engines(network, device)]
    if len(built) == 1:
        return built[0]
    side = _TRIAL + -_TRIAL % network.graph.stride + 2 * network.graph.halo
    planes = {
        name: torch.zeros(1, 1, *[side // (2 if name in CHROMA_PLANES else 1)] * 2) for name in network.graph.planes
    }

    def seconds(one: FastNetwork) -> float:
        one(planes, 32, network.bit_depth)  # what is packed and allocated once
        start = time.perf_counter()
        one(planes, 32, network.bit_depth)
        return time.perf_counter() - start

    return min(built, key=seconds)


class ExactFilter(NetworkFilter):
    """`network` as a filter whose samples depend on nothing but the network and the picture.

    Neither `device`, `tile`, `memory`, as of `NetworkFilter`, nor the number of threads changes one of them; nor does
    `engine`, of which None takes the fastest.
    """

    def __init__(
        self, network: IntegerNetwork, *, engine: Engine | None = None, **options: Unpack[FilterOptions]
    ) -> None:
        self.network = network
        device = options.get("device", "cpu")
        self.fast = _fastest(network, device) if engine is None else build_engine(network, engine, device)
        super().__init__(network.graph, **options)
        if network.graph.uses_qp:
            self.planes = (*self.planes, "qp")

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """As of every `NetworkFilter`; what it makes are whole samples, which need no rounding."""
        samples = self.samples(picture, qp, beside)
        made = {
            name: samples[name].astype(x.dtype) if name in samples else x for name, x in components(picture).items()
        }
        return Picture(tuple(made.values()), picture.bit_depth)

    def _filtered(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        # What it switches off is switched off for all threads, and on again when it ends: not by one of several tiles.
        with exact_arithmetic(self.device.type):
            return in_tiles(partial(self.fast, qp=qp, bit_depth=bit_depth), self.geometry, planes, tile, threads)

    def _tile_memory(self) -> TileMemory:
        weights = [tensor for tensors in self.fast.tensors.values() for tensor in tensors.values()]
        compute = partial(self.fast, qp=0, bit_depth=self.network.bit_depth)
        return measured(compute, self.geometry, weights, self.device)
