"""Networks prepared once to filter picture after picture.

`NetworkFilter` is the common part: tiles, memory, QPs, planes. `FloatFilter`, `BFloat16Filter` and `TF32Filter` compute
a network in floating point; `codecnn.filtering.integer.ExactFilter` computes in integers.
"""

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, nn

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords
from codecnn.base.planes import QP_SCALE
from codecnn.base.runtime import Runtime, applied
from codecnn.filtering.planes import (
    NO_PLANES,
    Planes,
    PlaneSource,
    check_slice_qp,
    decoded_planes,
    round_samples,
)
from codecnn.filtering.sequence import PicturesDone, filter_video
from codecnn.filtering.tiles import (
    LARGEST_TILE,
    Geometry,
    Tile,
    TileMemory,
    check_tile,
    fast_tile,
    fit_tile,
    in_full_scale,
    in_tiles,
    measure_tile_memory,
    plane_tensors,
)
from codecnn.models import Card, FilterNetwork, NetworkOutput, as_card, as_filter_network, has_user_code, prepare
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture, Video


class FilterOptions(TypedDict, total=False):
    """Options of every network filter; `NetworkFilter` documents them and has their defaults."""

    device: str | torch.device
    tile: Tile
    memory: int | None
    card: Card | None


class NetworkFilter(ABC):
    """A network prepared for a device, which filters luma planes, pictures and videos.

    It is a `PictureFilter`; `load_filter` creates one from weights. On a CPU each of PyTorch's threads computes a tile
    of its own if there are enough tiles.

    The network receives the QP that its card lists as trained and that is nearest to the picture's QP, because its
    modulations by QP diverge outside the trained range. Without such a list it receives QPs from 0 on unchanged, and 0
    for the QPs below 0 that pictures of more than 8 bit may have.

    Args:
        geometry: Planes, outputs, halo, radius and stride of the network.
        device: Device to compute on.
        tile: Largest side of the tiles in luma samples; None is the picture in one piece, "auto" a side that is fast
            on the device. The result is the same, to float rounding or, in integers, to the bit.
        memory: Limit for the bytes of all tensors without the weights; tiles become smaller to stay below it.
        card: Card of the weights; None for a network that was created in memory.

    Attributes:
        precision: How the network computes: "float32", "bfloat16", "tf32" or "integer".

    Raises:
        ConfigError: The tile is not positive, or the memory is too small.
    """

    precision: ClassVar[str]

    def __init__(
        self,
        geometry: Geometry,
        *,
        device: str | torch.device = "cpu",
        tile: Tile = "auto",
        memory: int | None = None,
        card: Card | None = None,
    ) -> None:
        if tile != "auto":
            check_tile(tile)
        self.geometry = geometry
        self.planes, self.outputs = geometry.planes, geometry.outputs
        self.device = torch.device(device)
        self.tile = tile
        self.memory = memory
        self.card = card or as_card({})
        if memory is not None:
            self.tile_memory = self._tile_memory()

    def __repr__(self) -> str:
        network = self.card.network or "network"
        planes = ", ".join(self.planes)
        return f"<{type(self).__name__} of {network}: planes {planes}, {self.precision} on {self.device}>"

    @torch.inference_mode()
    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Filter a picture and return each output (h, w) before rounding and clipping; see `PictureFilter.samples`."""
        check_slice_qp(qp, picture.bit_depth)
        planes = plane_tensors(decoded_planes(picture, self.planes, beside), self.device)
        tiles = self.tiles(picture.y.shape)
        with applied(self.runtime):
            filtered = self._filter_planes(planes, self.card.nearest_qp(qp), picture.bit_depth, *tiles)
            return {name: plane[0, 0].cpu().numpy() for name, plane in filtered.items()}

    @property
    def runtime(self) -> Runtime:
        """Runtime of the next picture, which is set for each picture and restored afterwards."""
        return Runtime.of_filter(self.device, self.precision)

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture; components that the network does not filter are passed on.

        Args:
            picture: The decoded picture.
            qp: Slice QP that the picture was coded at.
            beside: Auxiliary planes that the network declares; see `unit_planes` and `auxiliary_planes`.

        Returns:
            The filtered picture.

        Raises:
            ConfigError: The QP is out of range.
            ModelError: A plane is missing or does not fit the picture, or filtered samples are not finite.
        """
        return round_samples(picture, self.samples(picture, qp, beside))

    def luma(self, y: Array, qp: int, bit_depth: int, beside: Planes = NO_PLANES) -> Array:
        """Filter a decoded luma plane.

        Args:
            y: Luma samples, shape (h, w), uint8 or uint16.
            qp: Slice QP that the picture was coded at.
            bit_depth: Bit depth of the samples.
            beside: Auxiliary planes that the network declares.

        Returns:
            The filtered plane, of the same shape and type.
        """
        return self(Picture((y,), bit_depth), qp, beside).y

    def video(
        self,
        video: Video,
        qps: Sequence[int],
        output: Path | str,
        *,
        beside: PlaneSource | None = None,
        progress: PicturesDone | None = None,
    ) -> None:
        """Filter every picture of a video into a file of the same format; see `filter_video`."""
        filter_video(self, video, qps, output, beside=beside, progress=progress)

    def tiles(self, size: tuple[int, int]) -> tuple[int | None, int]:
        """Choose how a picture is cut into tiles.

        Args:
            size: Height and width of the picture in luma samples.

        Returns:
            The largest side of the tiles (None: the picture in one piece), and how many are computed at a time.
        """
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        side = self.tile
        if side == "auto":
            on_cpu = self.device.type == "cpu"
            side = fast_tile(self.tile_memory.largest, self.geometry, size, threads) if on_cpu else LARGEST_TILE
        if self.memory is None:
            return side, threads
        return fit_tile(self.memory, self.tile_memory.all, self.geometry, size, side, threads)

    @functools.cached_property
    def tile_memory(self) -> TileMemory:
        """Memory per luma sample of a tile, measured at the first picture unless a limit needs it earlier."""
        return self._tile_memory()

    @abstractmethod
    def _filter_planes(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        """Compute the outputs (1, 1, h, w) in units of samples.

        Planes are float32: samples as integers, others as the loader scales them.
        """

    @abstractmethod
    def _tile_memory(self) -> TileMemory:
        """Measure the memory of a tile; see `measure_tile_memory`."""


class FloatFilter(NetworkFilter):
    """A float network as a filter: a copy in float32, with layers folded and weights laid out for the device.

    Attributes:
        network: The network as it was passed.
        user_network: The same if it has code outside of codecnn, else None.

    Args:
        model: The network, perhaps a plain module (`codecnn.models.as_filter_network`); it is copied.
        options: Options of `NetworkFilter`.
    """

    precision = "float32"

    def __init__(self, model: nn.Module, **options: Unpack[FilterOptions]) -> None:
        model = as_filter_network(model)
        self.network = model
        self.user_network = model if has_user_code(model) else None
        self.model = prepare(copy.deepcopy(model).to(options.get("device", "cpu")))
        self._compute: Callable[[dict[str, Tensor]], NetworkOutput] = self.model
        super().__init__(self.model, **options)

    def _filter_planes(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        scaled = in_full_scale(planes, bit_depth) | {"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE, device=self.device)}
        filtered = in_tiles(self._compute, self.model, scaled, tile, threads)
        return {name: x.mul_(float(2**bit_depth)) for name, x in filtered.items()}

    def _tile_memory(self) -> TileMemory:
        weights = [*self.model.parameters(), *self.model.buffers()]
        return measure_tile_memory(self.model, self.model, weights, self.device)


class BFloat16Filter(FloatFilter):
    """A `FloatFilter` whose convolutions multiply in bfloat16, with 8 significant bits, and sum in float32.

    It is faster on processors and GPUs that multiply bfloat16; docs/howto/filter.md shows by how much, and what it
    loses.

    Raises:
        ConfigError: The network outputs samples instead of a residual, which would lose bits.
    """

    precision = "bfloat16"

    def __init__(self, model: nn.Module, **options: Unpack[FilterOptions]) -> None:
        network = as_filter_network(model)
        if network.predicts_picture:
            raise ConfigError("a network with output: picture needs 10 bits for its samples, and bfloat16 has 8")
        super().__init__(network, **options)
        self._compute = self._compute_in_bfloat16

    def _compute_in_bfloat16(self, window: dict[str, Tensor]) -> NetworkOutput:
        with torch.autocast(self.device.type, torch.bfloat16):
            filtered: NetworkOutput = self.model(window)
            return filtered


class TF32Filter(FloatFilter):
    """A `FloatFilter` whose convolutions on a GPU multiply in TF32, with 11 significant bits, and sum in float32.

    Raises:
        ConfigError: The device is the CPU, which has no TF32.
    """

    precision = "tf32"

    def __init__(self, model: nn.Module, **options: Unpack[FilterOptions]) -> None:
        super().__init__(model, **options)
        if self.device.type == "cpu":
            raise ConfigError("TF32 exists on GPUs only: choose the precision float32 for the CPU")


@checked_keywords()
def filter_luma(
    model: FilterNetwork,
    y: Array,
    qp: int,
    bit_depth: int,
    *,
    planes: Planes = NO_PLANES,
    tile: Tile = "auto",
    device: str | torch.device = "cpu",
) -> Array:
    """Filter one decoded luma plane by a network in memory.

    The network is copied and prepared for this one plane. For several pictures prepare it once:
    `load_filter(weights).luma(y, qp, bit_depth)`, or `FloatFilter(model)`.

    Args:
        model: The network, with its present weights.
        y: Luma samples, shape (h, w), uint8 or uint16.
        qp: Slice QP that the picture was coded at.
        bit_depth: Bit depth of the samples.
        planes: Auxiliary planes that the network declares.
        tile: Largest side of the tiles; see `NetworkFilter`.
        device: Device to compute on.

    Returns:
        The filtered plane, of the same shape and type.

    Raises:
        ConfigError: The QP is out of range, or the tile is not positive.
        ModelError: A plane is missing or does not fit, or filtered samples are not finite.
    """
    return FloatFilter(model, device=device, tile=tile).luma(y, qp, bit_depth, planes)
