"""How large the tiles of a picture are: so that they are quick, and what a network takes stays within a limit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from codecnn.errors import ConfigError
from codecnn.filtering._frame import Geometry, tile_count
from codecnn.models import CHROMA_PLANES, Filtered, largest_tensor, peak_bytes

_PROBE = 96
"""Side of the output that `measured` computes: what a network takes grows with the area of its window."""
_SMALLEST = 16
Tile = int | Literal["auto"] | None
"""Largest side of the tiles in luma samples; None the picture in one piece, "auto" what is quick on the device."""
LARGEST_TILE = 1088
"""The largest that "auto" takes, and what a GPU gets: two are a picture of 1920x1080."""
_QUICK = 32 * 2**20 - 2**16
"""Bytes of the largest tensor of a tile on a CPU. What is larger glibc gives back to the system when it is freed, and
every page of the next one is mapped and cleared anew: at 1920x1080 a third of a low-cost network's time."""
_SMALLEST_QUICK = 128


@dataclass(frozen=True)
class TileMemory:
    """Bytes for one luma sample of a tile's window: of all activations at once, and of the largest tensor.

    The latter of those that are made for each tile, not of what a network keeps from one to the next.
    """

    all: float
    largest: float


@torch.no_grad()
def measured(
    compute: Callable[[dict[str, Tensor]], Filtered],
    geometry: Geometry,
    weights: Iterable[Tensor],
    device: torch.device,
) -> TileMemory:
    """What the window that `compute` is given takes, measured on a small one.

    `weights` are what is there already and does not count.
    """
    side = _PROBE + -_PROBE % geometry.stride + 2 * geometry.halo
    sides = {name: side // 2 if name in CHROMA_PLANES else side for name in geometry.planes} | {"qp": 1}
    planes = {name: torch.zeros(1, 1, sides[name], sides[name], device=device) for name in geometry.planes}
    existing = [*weights, *planes.values()]
    # The second time a network has what it keeps.
    found = [measure(lambda: compute(planes), existing) / side**2 for measure in (peak_bytes, largest_tensor)]
    return TileMemory(*found)


def quick_tile(largest: float, geometry: Geometry, size: tuple[int, int], threads: int) -> int:
    """The side of the tiles with which a CPU is quick: tensors that stay small, and work for all threads.

    `largest` as of `TileMemory`; the picture is of `size` (h, w) luma samples, and `threads` tiles are computed at
    a time.
    """
    most = int((_QUICK / largest) ** 0.5) - _context(geometry)
    most = min(max(most // _SMALLEST * _SMALLEST, _SMALLEST_QUICK), LARGEST_TILE)

    def samples(side: int) -> float:
        """What the busiest thread computes, context included, if all tiles are of one size."""
        count = tile_count(size, side)
        height, width = (extent / -(-extent // side) + _context(geometry) for extent in size)
        # Fewer tiles than threads are computed one after the other, all threads within each.
        return height * width * (count / threads if count < threads else -(-count // threads))

    return min(range(most, _SMALLEST_QUICK - 1, -_SMALLEST), key=samples)


def tiles_within(
    memory: int, per_sample: float, geometry: Geometry, size: tuple[int, int], tile: int | None, threads: int = 1
) -> tuple[int | None, int]:
    """The largest tile, at most `tile` (None: the picture in one piece), with which tensors take `memory` bytes.

    And how many are computed at a time: `threads` where so many of that tile fit, or 1. Tensors are the planes of a
    picture of `size` (h, w) luma samples, their copies padded for the network, its outputs, and `per_sample` bytes of
    activations for a sample of a tile's window. Raises ConfigError where not even one tile of 16x16 fits.
    """
    height, width = size
    rows, columns = (extent + 2 * geometry.halo + geometry.stride for extent in size)
    # All in float32, chroma counted as if it had luma's size: a bound, and simple.
    whole_planes = len(geometry.planes) + len(geometry.outputs)
    pictures = 4 * height * width * whole_planes + 4 * rows * columns * len(geometry.planes)

    def needed(side: int | None, at_a_time: int = 1) -> float:
        window = max(rows, columns) if side is None else side + _context(geometry)
        return pictures + at_a_time * per_sample * min(window, rows) * min(window, columns)

    largest = max(height, width) if tile is None else tile
    for side in (tile, *range(largest // _SMALLEST * _SMALLEST, 0, -_SMALLEST)):
        if needed(side) <= memory:
            return side, threads if needed(side, threads) <= memory else 1
    raise ConfigError(
        f"{_told(memory)} are too little for pictures of {width}x{height}: "
        f"this network takes {_told(needed(_SMALLEST))} in the smallest tiles"
    )


def _context(geometry: Geometry) -> int:
    """What a tile's window has more than the tile, at most."""
    return 2 * geometry.radius + 3 * geometry.stride


def _told(size: float) -> str:
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
