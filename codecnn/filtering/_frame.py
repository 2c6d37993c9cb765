"""A whole picture through a network, in tiles that give the same result as the picture in one piece."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.errors import ConfigError, ModelError
from codecnn.filtering._base import Array
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES, Filtered, FilterNetwork, named_outputs


class Geometry(Protocol):
    """What tiles depend on, as a `FilterNetwork` and a `Graph` say it of themselves."""

    @property
    def planes(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def halo(self) -> int: ...
    @property
    def radius(self) -> int: ...
    @property
    def stride(self) -> int: ...


@dataclass(frozen=True)
class _Span:
    """Samples [start, stop) that a tile contributes in one direction, and [first, last) that the network computes."""

    start: int
    stop: int
    first: int
    last: int


_Part = tuple[_Span, _Span]
"""A tile: its rows and its columns."""


def filter_outputs(model: FilterNetwork, planes: Mapping[str, Tensor], tile: int | None = None) -> dict[str, Tensor]:
    """Each output of `model` for the planes of one picture, at its own resolution, before rounding; see `in_tiles`."""
    return in_tiles(model, model, planes, tile)


def in_tiles(
    compute: Callable[[dict[str, Tensor]], Filtered],
    geometry: Geometry,
    planes: Mapping[str, Tensor],
    tile: int | None = None,
    threads: int = 1,
) -> dict[str, Tensor]:
    """Each output of `compute`, a network of this `geometry`, for the planes of one picture, at its own resolution.

    Planes are (1, 1, h, w), of 4:2:0 chroma (1, 1, (h + 1) // 2, (w + 1) // 2), or constant (1, 1, 1, 1). `tile` is
    the largest side of the tiles in luma samples, None the picture in one piece; the result is the same to float
    rounding. On a CPU `threads` tiles are computed at a time where there are so many: then without gradients, and what
    of PyTorch's state belongs to a thread, such as autocast, is for `compute` to set. Raises ConfigError for a tile
    that is no size, ModelError for a plane that is missing or of another size.
    """
    check_tile(tile)
    missing = [name for name in geometry.planes if name not in planes]
    if missing:
        raise ModelError(f"the network needs the plane {missing[0]!r}, which is missing")
    height, width = planes["rec_y"].shape[2:]
    padded = {name: _padded(planes[name], name, (height, width), geometry) for name in geometry.planes}
    output = {name: torch.empty_like(planes[f"rec_{name}"]) for name in geometry.outputs}

    def make(part: _Part) -> None:
        rows, columns = part
        window = {name: _window(plane, name, rows, columns, geometry.halo) for name, plane in padded.items()}
        for name, plane in named_outputs(compute(window)).items():
            factor = 1 if name == "y" else 2
            target, source = _cut(rows, factor), _cut(columns, factor)
            output[name][:, :, target[0], source[0]] = plane[:, :, target[1], source[1]]

    parts = list(product(_spans(height, tile, geometry), _spans(width, tile, geometry)))
    if 1 < threads <= len(parts):
        _in_threads(make, parts, threads)
    else:
        for part in parts:
            make(part)
    return output


def _in_threads(make: Callable[[_Part], None], parts: Sequence[_Part], threads: int) -> None:
    """Each part by one of so many threads, each with one of PyTorch's: none waits for another within a layer."""
    before = torch.get_num_threads()

    @torch.inference_mode()
    def alone(part: _Part) -> None:
        make(part)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(alone, parts))
    finally:
        # A thread that is new has as many as any thread has set last.
        torch.set_num_threads(before)


def plane_tensors(planes: Mapping[str, Array], device: str | torch.device) -> dict[str, Tensor]:
    """Planes (h, w) as float32 tensors (1, 1, h, w) on `device`; integer samples stay whole numbers."""
    return {name: torch.from_numpy(x.astype(np.float32)).to(device)[None, None] for name, x in planes.items()}


def in_full_scale(planes: Mapping[str, Tensor], bit_depth: int) -> dict[str, Tensor]:
    """The planes with samples divided, in place, by 2^bit_depth, as networks in float take them."""
    return {name: x.div_(float(2**bit_depth)) if name in SAMPLE_PLANES else x for name, x in planes.items()}


def check_tile(tile: int | None) -> None:
    """Raise ConfigError for a largest side of the tiles that is none."""
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")


def tile_count(size: tuple[int, int], tile: int | None) -> int:
    """How many tiles a picture of (h, w) luma samples is cut into."""
    return 1 if tile is None else -(-size[0] // tile) * -(-size[1] // tile)


def _padded(plane: Tensor, name: str, luma: tuple[int, int], geometry: Geometry) -> Tensor:
    """The unpadded head and the stride want samples beyond the edge: the nearest one is repeated.

    Only the picture is padded, never a tile: the samples around a tile are the picture's own, as training saw them.
    """
    if _is_constant(plane, name):
        return plane
    factor = 2 if name in CHROMA_PLANES else 1
    size = [-(-extent // factor) for extent in luma]
    if list(plane.shape) != [1, 1, *size]:
        raise ModelError(f"plane {name!r} has shape {tuple(plane.shape)}, the picture {(1, 1, *size)}")
    halo = geometry.halo // factor
    bottom, right = ((full + -full % geometry.stride) // factor - own for full, own in zip(luma, size, strict=True))
    if halo == bottom == right == 0:
        return plane
    return F.pad(plane, (halo, halo + right, halo, halo + bottom), mode="replicate")


def _is_constant(plane: Tensor, name: str) -> bool:
    """Whether a plane is one number for the whole picture, as the QP is; samples of a picture of 1x1 are not."""
    return plane.shape[2:] == (1, 1) and name not in SAMPLE_PLANES


def _window(plane: Tensor, name: str, rows: _Span, columns: _Span, halo: int) -> Tensor:
    """What the network gets of a padded plane to compute the spans: they and the halo on both sides."""
    if _is_constant(plane, name):
        return plane
    f = 2 if name in CHROMA_PLANES else 1
    vertical, horizontal = (slice(span.first // f, (span.last + 2 * halo) // f) for span in (rows, columns))
    return plane[:, :, vertical, horizontal]


def _cut(span: _Span, factor: int) -> tuple[slice, slice]:
    """Where a tile's samples go in the output, and where they are in what the network made of its window."""
    start, stop, first = span.start // factor, -(-span.stop // factor), span.first // factor
    return slice(start, stop), slice(start - first, stop - first)


def _spans(size: int, tile: int | None, geometry: Geometry) -> Iterator[_Span]:
    """Tiles of about equal size along one direction, starting at multiples of the stride."""
    # An output sample looks `radius` samples far into the input. The halo is part of that: it is lost on the way and
    # every window has it. Convolutions padded with zeros lose nothing but see those zeros in place of samples beyond
    # the window's edge, so that what they make within `radius - halo` of an edge inside the picture is wrong: it is
    # computed as context and thrown away. At the picture's own edge the zeros are what the whole picture sees as well.
    context = geometry.radius - geometry.halo
    count = 1 if tile is None else -(-size // tile)
    # A space-to-depth layer gathers cells of stride x stride samples: a window that began within a cell would gather
    # other ones than the whole picture does.
    side = -(-size // count)
    side += -side % geometry.stride
    end = size + -size % geometry.stride
    for start in range(0, size, side):
        stop = min(start + side, size)
        first = max(start - context, 0) // geometry.stride * geometry.stride
        last = min(stop + context, end)
        yield _Span(start, stop, first, last + -last % geometry.stride)
