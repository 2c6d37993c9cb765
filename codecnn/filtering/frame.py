"""A whole picture through a network, in tiles that give the same result as the picture in one piece."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.nn import functional as F

from codecnn.errors import ConfigError, ModelError
from codecnn.models import FilterNetwork, named_outputs
from codecnn.models.base import CHROMA_PLANES, SAMPLE_PLANES

DEFAULT_TILE = 960
"""Largest side of a tile in luma samples: larger ones spend less on the context around them, and need more memory."""


class Tileable(Protocol):
    """What can be run tile by tile: a `FilterNetwork`, or anything else that says the same of itself."""

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
    def __call__(self, planes: dict[str, Tensor], /) -> Any: ...


@dataclass(frozen=True)
class _Span:
    """Samples [start, stop) that a tile contributes in one direction, and [first, last) that the network computes."""

    start: int
    stop: int
    first: int
    last: int


def filter_planes(model: FilterNetwork, planes: Mapping[str, Tensor], tile: int | None = DEFAULT_TILE) -> Tensor:
    """Filtered luma (1, 1, h, w) of the planes (1, 1, h, w) or constant (1, 1, 1, 1) of one picture, before rounding.

    As `filter_outputs`, for what of a network's outputs is luma.
    """
    return filter_outputs(model, planes, tile)["y"]


def filter_outputs(model: Tileable, planes: Mapping[str, Tensor], tile: int | None = DEFAULT_TILE) -> dict[str, Tensor]:
    """Each output of `model` for the planes of one picture, at its own resolution, before rounding.

    Planes are (1, 1, h, w), of 4:2:0 chroma (1, 1, (h + 1) // 2, (w + 1) // 2), or constant (1, 1, 1, 1). `tile` is
    the largest side of the tiles, None the picture in one piece; the result is the same to float rounding. Each tile is
    computed with the context that the network's radius asks for, taken from the picture; where that context would leave
    the picture, the tile's window ends at the picture's edge just as the whole picture does. Raises ModelError for a
    plane that is missing or of another size.
    """
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")
    missing = [name for name in model.planes if name not in planes]
    if missing:
        raise ModelError(f"the network needs the plane {missing[0]!r}, which is missing")
    height, width = planes["rec_y"].shape[2:]
    padded = {name: _padded(planes[name], name, (height, width), model) for name in model.planes}
    output = {
        name: planes["rec_y" if name == "y" else f"rec_{name}"].new_empty(1, 1, *_size((height, width), name))
        for name in model.outputs
    }
    for rows in _spans(height, tile, model):
        for columns in _spans(width, tile, model):
            made = named_outputs(
                model({name: _window(plane, name, rows, columns, model.halo) for name, plane in padded.items()})
            )
            for name, plane in made.items():
                factor = 1 if name == "y" else 2
                target, source = _cut(rows, factor), _cut(columns, factor)
                output[name][:, :, target[0], source[0]] = plane[:, :, target[1], source[1]]
    return output


def _size(luma: tuple[int, int], name: str) -> tuple[int, int]:
    """Height and width of a plane or an output in a picture of `luma` samples."""
    if name in CHROMA_PLANES or name in ("u", "v"):
        return (luma[0] + 1) // 2, (luma[1] + 1) // 2
    return luma


def _padded(plane: Tensor, name: str, luma: tuple[int, int], model: Tileable) -> Tensor:
    """The unpadded head and the stride want samples beyond the edge: the nearest one is repeated."""
    if plane.shape[2:] == (1, 1) and name not in SAMPLE_PLANES:
        return plane
    size = _size(luma, name)
    if tuple(plane.shape) != (1, 1, *size):
        raise ModelError(f"plane {name!r} has shape {tuple(plane.shape)}, the picture {(1, 1, *size)}")
    factor = 2 if name in CHROMA_PLANES else 1
    halo = model.halo // factor
    bottom, right = ((extent + -extent % model.stride) // factor - own for extent, own in zip(luma, size, strict=True))
    if halo == bottom == right == 0:
        return plane
    return F.pad(plane, (halo, halo + right, halo, halo + bottom), mode="replicate")


def _window(plane: Tensor, name: str, rows: _Span, columns: _Span, halo: int) -> Tensor:
    if plane.shape[2:] == (1, 1) and name not in SAMPLE_PLANES:
        return plane
    f = 2 if name in CHROMA_PLANES else 1
    return plane[
        :, :, rows.first // f : (rows.last + 2 * halo) // f, columns.first // f : (columns.last + 2 * halo) // f
    ]


def _cut(span: _Span, factor: int) -> tuple[slice, slice]:
    """Where a tile's samples go in the output, and where they are in what the network made of its window."""
    start, stop, first = span.start // factor, -(-span.stop // factor), span.first // factor
    return slice(start, stop), slice(start - first, stop - first)


def _spans(size: int, tile: int | None, model: Tileable) -> Iterator[_Span]:
    """Tiles of about equal size along one direction, starting at multiples of the stride."""
    context = model.radius - model.halo
    count = 1 if tile is None else -(-size // tile)
    step = -(-size // count)
    step += -step % model.stride
    end = size + -size % model.stride
    for start in range(0, size, step):
        stop = min(start + step, size)
        last = min(stop + context, end)
        yield _Span(start, stop, max(start - context, 0) // model.stride * model.stride, last + -last % model.stride)
