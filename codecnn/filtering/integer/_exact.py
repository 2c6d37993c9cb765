"""Integer networks as filters of pictures."""

from functools import partial
from typing import Unpack

from torch import Tensor

from codecnn.filtering._frame import in_tiles
from codecnn.filtering._picture_filter import FilterOptions, NetworkFilter
from codecnn.filtering._tile_memory import bytes_per_sample
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._network import IntegerNetwork


class ExactFilter(NetworkFilter):
    """`network` as a filter whose samples depend on nothing but the network and the picture.

    Neither `device`, `tile`, `memory`, as of `NetworkFilter`, nor the number of threads changes one of them; nor does
    `wide`, which computes in float64 what float32 holds as well.
    """

    def __init__(self, network: IntegerNetwork, *, wide: bool = False, **options: Unpack[FilterOptions]) -> None:
        self.network = network
        self.fast = FastNetwork(network, options.get("device", "cpu"), wide=wide)
        super().__init__(network.graph, **options)
        if network.graph.uses_qp:
            self.planes = (*self.planes, "qp")

    def _filtered(self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None) -> dict[str, Tensor]:
        return in_tiles(partial(self.fast, qp=qp, bit_depth=bit_depth), self.geometry, planes, tile)

    def _bytes_per_sample(self) -> float:
        weights = [tensor for tensors in self.fast.tensors.values() for tensor in tensors.values()]
        compute = partial(self.fast, qp=0, bit_depth=self.network.bit_depth)
        return bytes_per_sample(compute, self.geometry, weights, self.device)
