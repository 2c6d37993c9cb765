"""A picture through a network in tiles, and the size of those tiles.

`in_tiles` cuts a picture into tiles, gives the network a window around each one, and assembles the outputs. The windows
are large enough that the result equals that of the picture in one piece: to float rounding, or bit for bit in integers.
`measure_tile_memory`, `fast_tile` and `fit_tile` choose the side of the tiles: small tensors are fast on a CPU, and a
limit of memory may ask for still smaller ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.base.choices import Tile as Tile
from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, ModelError
from codecnn.models import (
    CHROMA_PLANES,
    SAMPLE_PLANES,
    FilterNetwork,
    NetworkOutput,
    largest_tensor,
    named_outputs,
    peak_bytes,
)
from codecnn.models.graph import Array

LARGEST_TILE = 1088
"""Largest side that "auto" chooses, and the side on a GPU: two tiles cover a picture of 1920x1080."""

_PROBE_SIDE = 96
"""Side of the output that `measure_tile_memory` computes; memory grows in proportion to the area of the window."""
_SIDE_STEP = 16
"""Sides of tiles are multiples of this number."""
_FAST_BYTES = 32 * 2**20 - 2**16
"""Bytes of the largest tensor of a fast tile on a CPU.

glibc returns larger blocks to the system when they are freed, so that every page of the next one is mapped and cleared
again.
"""
_SMALLEST_FAST_SIDE = 128


class Geometry(Protocol):
    """Properties of a network that tiles depend on; `FilterNetwork` and `Graph` have them."""

    @property
    def planes(self) -> tuple[str, ...]:
        """Names of the input planes."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output components."""

    @property
    def halo(self) -> int:
        """Luma samples that the network loses on each side."""

    @property
    def radius(self) -> int:
        """Largest distance in luma samples from an output sample to an input sample that it depends on."""

    @property
    def stride(self) -> int:
        """Number of luma samples that the sides of a window are a multiple of."""


@dataclass(frozen=True)
class _Span:
    """One direction of a tile: it contributes samples [start, stop), and the network computes [first, last)."""

    start: int
    stop: int
    first: int
    last: int


_TileSpans = tuple[_Span, _Span]
"""Rows and columns of a tile."""


def filter_outputs(model: FilterNetwork, planes: Mapping[str, Tensor], tile: int | None = None) -> dict[str, Tensor]:
    """Compute each output of a network for one picture before rounding; see `in_tiles`."""
    return in_tiles(model, model, planes, tile)


def in_tiles(
    compute: Callable[[dict[str, Tensor]], NetworkOutput],
    geometry: Geometry,
    planes: Mapping[str, Tensor],
    tile: int | None = None,
    threads: int = 1,
) -> dict[str, Tensor]:
    """Compute each output of a network for one picture, tile by tile.

    Args:
        compute: Computes the outputs from the planes of a window.
        geometry: Planes, outputs, halo, radius and stride of the network.
        planes: Planes of the picture by name: luma (1, 1, h, w), 4:2:0 chroma (1, 1, (h + 1) // 2, (w + 1) // 2), or
            (1, 1, 1, 1) if a plane is constant.
        tile: Largest side of the tiles in luma samples; None is the picture in one piece.
        threads: Number of tiles that are computed at a time on a CPU, if there are as many tiles. They are computed
            without gradients, and `compute` must set per-thread state of PyTorch, such as autocast, itself.

    Returns:
        The outputs by component, each at its own resolution. They do not depend on `tile` beyond float rounding.

    Raises:
        ConfigError: The tile is not positive.
        ModelError: A plane is missing or has another size than the picture.
    """
    check_tile(tile)
    missing = [name for name in geometry.planes if name not in planes]
    if missing:
        raise ModelError(f"the network needs the plane {missing[0]!r}, which is missing")
    height, width = planes["rec_y"].shape[2:]
    padded = {name: _pad(planes[name], name, (height, width), geometry) for name in geometry.planes}
    output = {name: torch.empty_like(planes[f"rec_{name}"]) for name in geometry.outputs}

    def compute_tile(spans: _TileSpans) -> None:
        rows, columns = spans
        window = {name: _window(plane, name, rows, columns, geometry.halo) for name, plane in padded.items()}
        for name, plane in named_outputs(compute(window)).items():
            factor = 1 if name == "y" else 2
            (target_rows, source_rows), (target_columns, source_columns) = (
                _output_slices(span, factor) for span in spans
            )
            output[name][:, :, target_rows, target_columns] = plane[:, :, source_rows, source_columns]

    tiles = list(product(_spans(height, tile, geometry), _spans(width, tile, geometry)))
    if 1 < threads <= len(tiles):
        _compute_tiles(compute_tile, tiles, threads)
    else:
        for spans in tiles:
            compute_tile(spans)
    return output


def _compute_tiles(compute_tile: Callable[[_TileSpans], None], tiles: Sequence[_TileSpans], threads: int) -> None:
    """Compute tiles in several threads, each with one thread of PyTorch, so that none waits within a layer."""
    before = torch.get_num_threads()

    @torch.inference_mode()
    def compute_alone(spans: _TileSpans) -> None:
        compute_tile(spans)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(compute_alone, tiles))
    finally:
        # A new thread takes over the number of threads that any thread has set last.
        torch.set_num_threads(before)


def plane_tensors(planes: Mapping[str, Array], device: str | torch.device) -> dict[str, Tensor]:
    """Convert planes (h, w) to float32 tensors (1, 1, h, w) on a device; integer samples keep their values."""
    return {name: torch.from_numpy(x.astype(np.float32)).to(device)[None, None] for name, x in planes.items()}


def in_full_scale(planes: Mapping[str, Tensor], bit_depth: int) -> dict[str, Tensor]:
    """Divide planes of samples by 2^bit_depth in place, as float networks take them."""
    return {name: x.div_(float(2**bit_depth)) if name in SAMPLE_PLANES else x for name, x in planes.items()}


def check_tile(tile: int | None) -> None:
    """Raise ConfigError if the side of the tiles is not positive."""
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")


def tile_count(size: tuple[int, int], tile: int | None) -> int:
    """Return the number of tiles that a picture of (h, w) luma samples is cut into."""
    return 1 if tile is None else ceil_div(size[0], tile) * ceil_div(size[1], tile)


def _pad(plane: Tensor, name: str, luma: tuple[int, int], geometry: Geometry) -> Tensor:
    """Repeat the edge samples of a picture for the halo, and at the right and bottom up to a multiple of the stride.

    Only the picture is padded, never a tile: the samples around a tile are those of the picture, as in training.
    """
    if _is_constant(plane, name):
        return plane
    factor = 2 if name in CHROMA_PLANES else 1
    size = [ceil_div(extent, factor) for extent in luma]
    if list(plane.shape) != [1, 1, *size]:
        raise ModelError(f"plane {name!r} has shape {tuple(plane.shape)}, the picture {(1, 1, *size)}")
    halo = geometry.halo // factor
    bottom, right = (
        (full + -full % geometry.stride) // factor - extent for full, extent in zip(luma, size, strict=True)
    )
    if halo == bottom == right == 0:
        return plane
    return F.pad(plane, (halo, halo + right, halo, halo + bottom), mode="replicate")


def _is_constant(plane: Tensor, name: str) -> bool:
    """Return whether a plane is one number for the whole picture, as the QP is; samples of a 1x1 picture are not."""
    return plane.shape[2:] == (1, 1) and name not in SAMPLE_PLANES


def _window(plane: Tensor, name: str, rows: _Span, columns: _Span, halo: int) -> Tensor:
    """Cut the window that the network needs to compute the spans: the spans and the halo on both sides."""
    if _is_constant(plane, name):
        return plane
    f = 2 if name in CHROMA_PLANES else 1
    vertical, horizontal = (slice(span.first // f, (span.last + 2 * halo) // f) for span in (rows, columns))
    return plane[:, :, vertical, horizontal]


def _output_slices(span: _Span, factor: int) -> tuple[slice, slice]:
    """Return the slice of a tile in the output picture, and in the network's output for the tile's window."""
    start, stop, first = span.start // factor, ceil_div(span.stop, factor), span.first // factor
    return slice(start, stop), slice(start - first, stop - first)


def _spans(size: int, tile: int | None, geometry: Geometry) -> Iterator[_Span]:
    """Divide one direction of a picture into tiles of about equal size that start at multiples of the stride."""
    # An output sample depends on input samples up to `radius` away. The halo is part of the radius: unpadded
    # convolutions lose it, and every window contains it. Convolutions with zero padding lose no samples, but at a
    # window's edge inside the picture they see zeros instead of the picture. Their outputs are therefore wrong within
    # `radius - halo` of such an edge; these outputs are computed and discarded. At the picture's edge the zeros are
    # those that the whole picture sees.
    context = geometry.radius - geometry.halo
    count = 1 if tile is None else ceil_div(size, tile)
    # A space-to-depth layer gathers cells of stride x stride samples: a window must begin at the edge of a cell.
    side = ceil_div(size, count)
    side += -side % geometry.stride
    end = size + -size % geometry.stride
    for start in range(0, size, side):
        stop = min(start + side, size)
        first = max(start - context, 0) // geometry.stride * geometry.stride
        last = min(stop + context, end)
        yield _Span(start, stop, first, last + -last % geometry.stride)


@dataclass(frozen=True)
class TileMemory:
    """Memory that a network needs for one luma sample of a tile's window, in bytes.

    Attributes:
        all: All activations at the peak.
        largest: The largest tensor that is allocated for each tile; tensors kept between tiles do not count.
    """

    all: float
    largest: float


@torch.no_grad()
def measure_tile_memory(
    compute: Callable[[dict[str, Tensor]], NetworkOutput],
    geometry: Geometry,
    weights: Iterable[Tensor],
    device: torch.device,
) -> TileMemory:
    """Measure the memory that a network needs per luma sample, on a small window.

    Args:
        compute: Computes the outputs from the planes of a window.
        geometry: Planes, halo and stride of the network.
        weights: Tensors that exist already and do not count.
        device: Device that the planes are on.
    """
    side = _PROBE_SIDE + -_PROBE_SIDE % geometry.stride + 2 * geometry.halo
    sides = {name: side // 2 if name in CHROMA_PLANES else side for name in geometry.planes} | {"qp": 1}
    planes = {name: torch.zeros(1, 1, sides[name], sides[name], device=device) for name in geometry.planes}
    existing = [*weights, *planes.values()]
    # In the second run the tensors that the network keeps exist already.
    per_sample = [measure(lambda: compute(planes), existing) / side**2 for measure in (peak_bytes, largest_tensor)]
    return TileMemory(*per_sample)


def fast_tile(largest: float, geometry: Geometry, size: tuple[int, int], threads: int) -> int:
    """Choose the side of the tiles that a CPU filters fastest: small tensors, and work for all threads.

    Args:
        largest: Bytes of the largest tensor per luma sample; see `TileMemory`.
        geometry: Radius and stride of the network.
        size: Height and width of the picture in luma samples.
        threads: Number of tiles that are computed at a time.

    Returns:
        The side in luma samples.
    """
    upper = int((_FAST_BYTES / largest) ** 0.5) - _context(geometry)
    upper = min(max(upper // _SIDE_STEP * _SIDE_STEP, _SMALLEST_FAST_SIDE), LARGEST_TILE)

    def busiest_thread(side: int) -> float:
        """Return the samples that the busiest thread computes, context included, if all tiles have one size."""
        count = tile_count(size, side)
        height, width = (extent / ceil_div(extent, side) + _context(geometry) for extent in size)
        # Fewer tiles than threads are computed one after the other, with all threads within each.
        return height * width * (count / threads if count < threads else ceil_div(count, threads))

    return min(range(upper, _SMALLEST_FAST_SIDE - 1, -_SIDE_STEP), key=busiest_thread)


def fit_tile(
    memory: int, per_sample: float, geometry: Geometry, size: tuple[int, int], tile: int | None, threads: int = 1
) -> tuple[int | None, int]:
    """Choose the largest tile with which all tensors fit into a limit of memory.

    The tensors are the planes of a picture, their padded copies, the outputs, and the activations of the tiles that are
    computed at a time.

    Args:
        memory: Limit in bytes.
        per_sample: Bytes of activations per luma sample of a window; see `TileMemory`.
        geometry: Planes, outputs, halo, radius and stride of the network.
        size: Height and width of the picture in luma samples.
        tile: Largest side to consider; None is the picture in one piece.
        threads: Number of tiles to compute at a time if they fit.

    Returns:
        The side, and the number of tiles to compute at a time: `threads`, or 1 if so many do not fit.

    Raises:
        ConfigError: Not even one tile of 16x16 fits.
    """
    height, width = size
    rows, columns = (extent + 2 * geometry.halo + geometry.stride for extent in size)
    # All planes are counted in float32 and at luma's size: a simple upper bound.
    whole_planes = len(geometry.planes) + len(geometry.outputs)
    pictures = 4 * height * width * whole_planes + 4 * rows * columns * len(geometry.planes)

    def needed(side: int | None, at_a_time: int = 1) -> float:
        window = max(rows, columns) if side is None else side + _context(geometry)
        return pictures + at_a_time * per_sample * min(window, rows) * min(window, columns)

    largest = max(height, width) if tile is None else tile
    for side in (tile, *range(largest // _SIDE_STEP * _SIDE_STEP, 0, -_SIDE_STEP)):
        if needed(side) <= memory:
            return side, threads if needed(side, threads) <= memory else 1
    raise ConfigError(
        f"{_format_bytes(memory)} of memory are too little for pictures of {width}x{height}: "
        f"the network needs {_format_bytes(needed(_SIDE_STEP))} with the smallest tiles"
    )


def _context(geometry: Geometry) -> int:
    """Return an upper bound of how much wider a tile's window is than the tile."""
    return 2 * geometry.radius + 3 * geometry.stride


def _format_bytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
