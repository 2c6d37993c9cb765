"""How large the tiles may be for what a network takes to stay within a limit of memory."""

import torch

from codecnn.errors import ConfigError
from codecnn.filtering.frame import Tileable
from codecnn.models import FilterNetwork
from codecnn.models.activations import inference_peak, probe_planes

_PROBE = 96
"""Side of the output that `bytes_per_sample` computes: what a network takes grows with the area of its window."""
_SMALLEST = 16


def bytes_per_sample(model: FilterNetwork, device: torch.device) -> float:
    """Bytes of activations for one luma sample of the window that `model` is given, measured on a small one."""
    side = _PROBE + -_PROBE % model.stride
    peak = inference_peak(model, probe_planes(model, side, side, device))
    return peak / (side + 2 * model.halo) ** 2


def tile_within(memory: int, per_sample: float, model: Tileable, size: tuple[int, int], tile: int | None) -> int | None:
    """The largest tile, at most `tile` (None: the picture in one piece), with which tensors take `memory` bytes.

    They are the planes of a picture of `size` (h, w) luma samples, their copies padded for the network, its outputs,
    and `per_sample` bytes of activations for a sample of a tile's window. Raises ConfigError where not even tiles of
    16x16 fit.
    """
    height, width = size
    rows, columns = (extent + 2 * model.halo + model.stride for extent in size)
    pictures = 4 * height * width * (len(model.planes) + len(model.outputs)) + 4 * rows * columns * len(model.planes)

    def needed(side: int | None) -> float:
        if side is None:
            return pictures + per_sample * rows * columns
        window = side + 2 * model.radius + 3 * model.stride
        return pictures + per_sample * min(window, rows) * min(window, columns)

    if needed(tile) <= memory:
        return tile
    largest = max(height, width) if tile is None else tile
    sides = (side for side in range(largest // _SMALLEST * _SMALLEST, 0, -_SMALLEST) if needed(side) <= memory)
    found = next(sides, None)
    if found is None:
        raise ConfigError(
            f"{memory / 2**20:.0f} MiB are too little for pictures of {width}x{height}: "
            f"this network takes {needed(_SMALLEST) / 2**20:.0f} MiB in the smallest tiles"
        )
    return found
