"""How large the tiles may be for what a network takes to stay within a limit of memory."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from codecnn.errors import ConfigError
from codecnn.filtering._frame import Geometry
from codecnn.models.activations import peak_bytes
from codecnn.models.base import Filtered
from codecnn.models.planes import CHROMA_PLANES

_PROBE = 96
"""Side of the output that `bytes_per_sample` computes: what a network takes grows with the area of its window."""
_SMALLEST = 16


@torch.no_grad()
def bytes_per_sample(
    compute: Callable[[dict[str, Tensor]], Filtered],
    geometry: Geometry,
    weights: Iterable[Tensor],
    device: torch.device,
) -> float:
    """Bytes of activations for one luma sample of the window that `compute` is given, measured on a small one.

    `weights` are what is there already and does not count.
    """
    side = _PROBE + -_PROBE % geometry.stride + 2 * geometry.halo
    sides = {name: side // 2 if name in CHROMA_PLANES else side for name in geometry.planes} | {"qp": 1}
    planes = {name: torch.zeros(1, 1, sides[name], sides[name], device=device) for name in geometry.planes}
    return peak_bytes(lambda: compute(planes), [*weights, *planes.values()]) / side**2


def tile_within(
    memory: int, per_sample: float, geometry: Geometry, size: tuple[int, int], tile: int | None
) -> int | None:
    """The largest tile, at most `tile` (None: the picture in one piece), with which tensors take `memory` bytes.

    They are the planes of a picture of `size` (h, w) luma samples, their copies padded for the network, its outputs,
    and `per_sample` bytes of activations for a sample of a tile's window. Raises ConfigError where not even tiles of
    16x16 fit.
    """
    height, width = size
    rows, columns = (extent + 2 * geometry.halo + geometry.stride for extent in size)
    # All in float32, chroma counted as if it had luma's size: a bound, and simple.
    whole_planes = len(geometry.planes) + len(geometry.outputs)
    pictures = 4 * height * width * whole_planes + 4 * rows * columns * len(geometry.planes)

    def needed(side: int | None) -> float:
        if side is None:
            return pictures + per_sample * rows * columns
        window = side + 2 * geometry.radius + 3 * geometry.stride
        return pictures + per_sample * min(window, rows) * min(window, columns)

    if needed(tile) <= memory:
        return tile
    largest = max(height, width) if tile is None else tile
    for side in range(largest // _SMALLEST * _SMALLEST, 0, -_SMALLEST):
        if needed(side) <= memory:
            return side
    raise ConfigError(
        f"{_told(memory)} are too little for pictures of {width}x{height}: "
        f"this network takes {_told(needed(_SMALLEST))} in the smallest tiles"
    )


def _told(size: float) -> str:
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
