"""Networks made ready once to filter picture after picture: in float here, in integers in `integer.exact`."""

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from codecnn.errors import ConfigError
from codecnn.filtering._base import NO_PLANES, Array, Planes, decoded_planes, rounded
from codecnn.filtering._frame import Geometry, check_tile, in_full_scale, in_tiles, plane_tensors
from codecnn.filtering._inputs import Beside
from codecnn.filtering._sequence import Progress, filter_video
from codecnn.filtering._tile_memory import LARGEST_TILE, Tile, TileMemory, measured, quick_tile, tiles_within
from codecnn.models import Card, Filtered, FilterNetwork, as_card, prepare
from codecnn.planes import MAX_QP, QP_SCALE
from codecnn.video import Picture, Video


class FilterOptions(TypedDict, total=False):
    """What every filter takes beside its network; `NetworkFilter` says what it means, and has the defaults."""

    device: str | torch.device
    tile: Tile
    memory: int | None
    card: Card | None


class NetworkFilter(ABC):
    """A network made ready for a device, which filters luma planes, pictures and videos; `load_filter` makes one.

    A `PictureFilter`. `card` is the card of its weights, empty for a network that was made in memory. `tile` is the
    largest side of the tiles in luma samples, None the picture in one piece, "auto" what is quick on the device; the
    result is the same, to float rounding or, in integers, to the bit. On a CPU each of PyTorch's threads computes a
    tile of its own where there are enough. `memory` bounds the bytes of tensors, weights aside: tiles become smaller
    where they must. Raises ConfigError for a tile that is no size.

    The network is told the nearest QP of those that the card says it learned, for beyond them its modulations by QP run
    away. Without such a card it is told every QP as it is.
    """

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

    @torch.inference_mode()
    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Each output (h, w) in units of samples, before it is rounded and clipped; raises as `__call__` does."""
        if not 0 <= qp <= MAX_QP:
            raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
        planes = plane_tensors(decoded_planes(picture, self.planes, beside), self.device)
        tiles = self.tiles(picture.y.shape)
        filtered = self._filtered(planes, self.card.nearest_qp(qp), picture.bit_depth, *tiles)
        return {name: plane[0, 0].cpu().numpy() for name, plane in filtered.items()}

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """`picture`, coded at slice QP `qp`, filtered; components that the network does not filter are passed on.

        `beside` holds what else the network declares; see `unit_planes` and `planes_beside`. Raises ConfigError for a
        QP out of range, ModelError for a plane that is missing or does not fit, and for samples that are not finite.
        """
        return rounded(picture, self.samples(picture, qp, beside))

    def luma(self, y: Array, qp: int, bit_depth: int, beside: Planes = NO_PLANES) -> Array:
        """The decoded luma plane `y` (h, w) filtered, of the same shape and type; as for a picture of it alone."""
        return self(Picture((y,), bit_depth), qp, beside).y

    def video(
        self,
        video: Video,
        qps: Sequence[int],
        output: Path | str,
        *,
        beside: Beside | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Every picture of `video` filtered, written to `output` in the same format; as `filter_video`."""
        filter_video(self, video, qps, output, beside=beside, progress=progress)

    def tiles(self, size: tuple[int, int]) -> tuple[int | None, int]:
        """The largest side of the tiles of a picture of (h, w) luma samples, and how many are computed at a time."""
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        side = self.tile
        if side == "auto":
            on_cpu = self.device.type == "cpu"
            side = quick_tile(self.tile_memory.largest, self.geometry, size, threads) if on_cpu else LARGEST_TILE
        if self.memory is None:
            return side, threads
        return tiles_within(self.memory, self.tile_memory.all, self.geometry, size, side, threads)

    @functools.cached_property
    def tile_memory(self) -> TileMemory:
        """What a tile takes, measured at the first picture where no limit asks for it before."""
        return self._tile_memory()

    @abstractmethod
    def _filtered(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        """The outputs (1, 1, h, w) in samples, from float32 planes: samples as integers, others as they are scaled."""

    @abstractmethod
    def _tile_memory(self) -> TileMemory:
        """What a tile takes; see `_tile_memory.measured`."""


class FloatFilter(NetworkFilter):
    """A copy of `model` in float32, folded and laid out for `device` once; the rest as for `NetworkFilter`."""

    def __init__(self, model: FilterNetwork, **options: Unpack[FilterOptions]) -> None:
        self.model = prepare(copy.deepcopy(model).to(options.get("device", "cpu")))
        super().__init__(self.model, **options)

    def _filtered(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        given = in_full_scale(planes, bit_depth) | {"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE, device=self.device)}
        filtered = in_tiles(self._compute, self.model, given, tile, threads)
        return {name: x.mul_(float(2**bit_depth)) for name, x in filtered.items()}

    def _compute(self, window: dict[str, Tensor]) -> Filtered:
        """What the network makes of a tile's window."""
        made: Filtered = self.model(window)
        return made

    def _tile_memory(self) -> TileMemory:
        weights = [*self.model.parameters(), *self.model.buffers()]
        return measured(self.model, self.model, weights, self.device)


class BFloat16Filter(FloatFilter):
    """A `FloatFilter` whose convolutions multiply in bfloat16, of 8 significant bits, and sum in float32.

    Quicker where the processor or GPU multiplies it; docs/filtering.md says what that gains and loses. Raises
    ConfigError for a network that makes samples by itself instead of adding to them.
    """

    def __init__(self, model: FilterNetwork, **options: Unpack[FilterOptions]) -> None:
        if getattr(model, "predicts_picture", False):
            raise ConfigError("a network with output: picture makes samples of 10 bits, and bfloat16 has 8")
        super().__init__(model, **options)

    def _compute(self, window: dict[str, Tensor]) -> Filtered:
        with torch.autocast(self.device.type, torch.bfloat16):
            return super()._compute(window)


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
    """The decoded luma plane `y` (h, w) of a picture coded at slice QP `qp`, filtered; same shape and type.

    The network is copied and made ready for this one picture, as its weights are now. For several make it ready once:
    `load_filter(weights).luma(y, qp, bit_depth)`, or `FloatFilter(model)` of a network in memory.
    """
    return FloatFilter(model, device=device, tile=tile).luma(y, qp, bit_depth, planes)
