"""A whole picture through a network, in tiles that give the same result as the picture in one piece."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.codec.base import MAX_QP, QP_SCALE
from codecnn.errors import ConfigError
from codecnn.models import FilterNetwork

DEFAULT_TILE = 512
"""Side of a tile in samples: large enough that the context around it costs little, small enough for any memory."""


@dataclass(frozen=True)
class _Tile:
    """Samples [top, bottom) x [left, right) that the tile contributes, and the window that the network computes."""

    top: int
    bottom: int
    left: int
    right: int
    window: tuple[int, int, int, int]


def filter_planes(model: FilterNetwork, planes: Mapping[str, Tensor], tile: int | None = DEFAULT_TILE) -> Tensor:
    """Filtered luma (1, 1, h, w) of the planes (1, 1, h, w) or constant (1, 1, 1, 1) of one picture, before rounding.

    `tile` is the side of the tiles, None the picture in one piece; the result is the same to float rounding. Each tile
    is computed with the context that the network's radius asks for, taken from the picture; where that context would
    leave the picture, the tile's window ends at the picture's edge just as the whole picture does.
    """
    height, width = planes["rec_y"].shape[2:]
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")
    # The unpadded head and the stride want samples beyond the edge: the nearest one is repeated.
    right, bottom = -width % model.stride, -height % model.stride
    pad = (model.halo, model.halo + right, model.halo, model.halo + bottom)
    padded = {
        name: plane if plane.shape[2:] == (1, 1) else F.pad(plane, pad, mode="replicate")
        for name, plane in planes.items()
    }
    output = torch.empty_like(planes["rec_y"])
    for part in _tiles(height, width, tile, model):
        y0, y1, x0, x1 = part.window
        inputs = {
            name: plane
            if plane.shape[2:] == (1, 1)
            else plane[:, :, y0 : y1 + 2 * model.halo, x0 : x1 + 2 * model.halo]
            for name, plane in padded.items()
        }
        result = model(inputs)
        inner = result[:, :, part.top - y0 : part.bottom - y0, part.left - x0 : part.right - x0]
        output[:, :, part.top : part.bottom, part.left : part.right] = inner
    return output


def _tiles(height: int, width: int, tile: int | None, model: FilterNetwork) -> Iterator[_Tile]:
    context = model.radius - model.halo

    def spans(size: int) -> Iterator[tuple[int, int, int, int]]:
        end = size + -size % model.stride
        step = tile or size
        for start in range(0, size, step):
            stop = min(start + step, size)
            first = max(start - context, 0) // model.stride * model.stride
            last = min(stop + context, end)
            yield start, stop, first, last + -last % model.stride

    for top, bottom, y0, y1 in spans(height):
        for left, right, x0, x1 in spans(width):
            yield _Tile(top, bottom, left, right, (y0, y1, x0, x1))


@torch.inference_mode()
def filter_luma(
    model: FilterNetwork,
    decoded: npt.NDArray[Any],
    qp: int,
    bit_depth: int,
    *,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
) -> npt.NDArray[Any]:
    """Filter the decoded luma plane (h, w) of a picture coded at slice QP `qp`; same shape and type.

    Rounded to the nearest integer and clipped to [0, 2^bit_depth - 1]. Raises ConfigError for a QP out of range.
    """
    if not 0 <= qp <= MAX_QP:
        raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
    full_scale = 2**bit_depth
    rec = torch.from_numpy(decoded.astype(np.float32)).to(device) / full_scale
    planes = {"rec_y": rec[None, None], "qp": torch.full((1, 1, 1, 1), qp / QP_SCALE, device=device)}
    filtered = filter_planes(model, planes, tile)[0, 0]
    samples = (filtered * full_scale).round_().clamp_(0, full_scale - 1)
    result: npt.NDArray[Any] = samples.cpu().numpy().astype(decoded.dtype)
    return result
