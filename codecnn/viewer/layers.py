"""Content of a view, collected from a stream or a store: layers of samples, coding of the blocks, and facts."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from codecnn.base.errors import CodecnnError, ConfigError
from codecnn.codec import (
    has_loop_filter,
    output_pictures,
    picture_bits,
    read_headers,
)
from codecnn.dataset import Unit
from codecnn.pictures.files import Picture, Video, VideoFormat, convert, open_like, pad_to_even, stream_codec
from codecnn.pictures.metrics import psnr
from codecnn.viewer.coded import read_coded
from codecnn.viewer.filters import Networks, layer_names, network_titles
from codecnn.viewer.parts import TemporalPlanes, copied, is_vvc, other_parts, unit_parts, vvc_part
from codecnn.viewer.shown import DECODED, ORIGINAL, PREDICTION, UNFILTERED, Shown

DEFAULT_PICTURES = 17
"""Number of pictures of a page if none is given: an intra period and a half of eight pictures in random access."""


def shown_stream(
    path: Path | str,
    number: int = 0,
    *,
    original: Path | str | None = None,
    model: Path | str | Sequence[Path | str] | None = None,
    device: str = "auto",
) -> Shown:
    """Collect the view of one picture of a stream of VVC, HEVC, AVC or AV1.

    Args:
        path: The stream, also in a container.
        number: Number of the picture in output order, from 0.
        original: Original pictures; None shows no original.
        model: Weights for a filtered layer, or several; None shows none. Of a stream with a CNN filter in the coding
            loop the weights of that filter; None finds them among those of the package.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        The content of the view.

    Raises:
        ConfigError: The stream has no such picture, or the original has another size.
        FormatError: The stream is damaged.
        ModelError: The network cannot be loaded.
    """
    return next(stream_pictures(path, number, 1, original=original, model=model, device=device))


def stream_pictures(
    path: Path | str,
    first: int = 0,
    count: int | None = None,
    *,
    original: Path | str | None = None,
    model: Path | str | Sequence[Path | str] | None = None,
    device: str = "auto",
) -> Iterator[Shown]:
    """Collect the views of consecutive pictures of a stream, one at a time; see `shown_stream`.

    Args:
        path: The stream, also in a container.
        first: Number of the first picture in output order, from 0.
        count: Largest number of pictures; None for all that follow.
        original: Original pictures; None shows no original.
        model: Weights for a filtered layer, or several; None shows none. Of a stream with a CNN filter in the coding
            loop the weights of that filter; None finds them among those of the package.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Yields:
        The content of the view of each picture.

    Raises:
        ConfigError: The stream has no such picture, or the original has another size.
        FormatError: The stream is damaged.
        ModelError: The network cannot be loaded.
    """
    path = Path(path)
    info = read_headers(path)
    headers = output_pictures(info)
    numbers = _numbers(path, len(headers), first, count)
    models, loop_weights = _split_models(path, as_models(model))
    sizes, notes = _bits(path, len(headers))
    with contextlib.ExitStack() as stack:
        networks = Networks(models, device)
        source = None
        if original is not None:
            form = VideoFormat(info.width, info.height, info.chroma, info.bit_depth)
            source = stack.enter_context(open_like(Path(original), form))
            if numbers[-1] >= len(source):
                raise ConfigError(f"{original} {_available(len(source))}, not {max(first, len(source))}")
            if len(source) != len(headers):
                counts = f"The original has {len(source)} pictures and the stream {len(headers)}"
                notes = (*notes, f"{counts}: pictures of the same number are compared.")
        parts = (
            (vvc_part(coded, coded.form) for coded in read_coded(path, numbers, loop_weights, device))
            if stream_codec(path) == "vvc"
            else other_parts(path, numbers, headers, info.ctu_size)
        )
        temporal = TemporalPlanes(path, len(headers), numbers, stack)
        for part in parts:
            shown = replace(part.shown, title=f"{path.name}, picture {part.shown.header.number}")
            number = shown.header.number
            layers = dict(shown.layers)
            if source is not None:
                layers[ORIGINAL] = _original(source, Path(str(original)), number, shown.form)
            header = replace(shown.header, bits=sizes[number] if sizes else None)
            shown = replace(shown, layers=layers, header=header, notes=(*notes, *shown.notes))
            yield _finished(shown, networks, models, partial(temporal.add, number, part.auxiliary))


def shown_unit(
    unit: Unit, number: int = 0, *, model: Path | str | Sequence[Path | str] | None = None, device: str = "auto"
) -> Shown:
    """Collect the view of one picture of a store's unit.

    For a unit without a VVC stream the view contains the CUs and layers that the store holds.

    Args:
        unit: The unit.
        number: Number of the picture in output order, from 0.
        model: Weights for a filtered layer, or several; None shows none. Of a stream with a CNN filter in the coding
            loop the weights of that filter; None finds them among those of the package.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        The content of the view.

    Raises:
        ConfigError: The unit has no such picture.
        ModelError: The network cannot be loaded.
        StoreError: The unit lacks a plane of the network.
    """
    return next(unit_pictures(unit, number, 1, model=model, device=device))


def unit_pictures(
    unit: Unit,
    first: int = 0,
    count: int | None = None,
    *,
    model: Path | str | Sequence[Path | str] | None = None,
    device: str = "auto",
) -> Iterator[Shown]:
    """Collect the views of consecutive pictures of a store's unit, one at a time; see `shown_unit`.

    Args:
        unit: The unit.
        first: Number of the first picture in output order, from 0.
        count: Largest number of pictures; None for all that follow.
        model: Weights for a filtered layer, or several; None shows none. Of a stream with a CNN filter in the coding
            loop the weights of that filter; None finds them among those of the package.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Yields:
        The content of the view of each picture.

    Raises:
        ConfigError: The unit has no such picture.
        ModelError: The network cannot be loaded.
        StoreError: The unit lacks a plane of the network.
    """
    numbers = _numbers(unit.name, len(unit.pictures), first, count)
    models, loop_weights = as_models(model), None
    if is_vvc(unit):
        models, loop_weights = _split_models(unit.path("bitstream"), models)
    networks = Networks(models, device)
    records = sorted(unit.pictures, key=lambda picture: picture.poc)
    with contextlib.ExitStack() as stack:
        videos: dict[str, Video] = {}
        for name in (ORIGINAL, DECODED, UNFILTERED, PREDICTION):
            if (video := unit.pictures_of(name)) is not None:
                videos[name] = stack.enter_context(video)
        for part in unit_parts(unit, numbers, loop_weights, device):
            shown, number = part.shown, part.shown.header.number
            stored = {name: copied(video[number]) for name, video in videos.items() if name not in shown.layers}
            header = replace(shown.header, bits=records[number].bits)
            title = f"{unit.title}, picture {number}"
            shown = replace(shown, title=title, header=header, form=unit.format, layers={**stored, **shown.layers})
            yield _finished(shown, networks, models, part.auxiliary)


def as_models(model: Path | str | Sequence[Path | str] | None) -> tuple[Path | str, ...]:
    """Return a tuple of weights."""
    if model is None:
        return ()
    return (model,) if isinstance(model, (str, Path)) else tuple(model)


def _split_models(path: Path, models: tuple[Path | str, ...]) -> tuple[tuple[Path | str, ...], Path | str | None]:
    """Return the weights for layers, and those of the CNN filter in the coding loop of the stream, if it has one."""
    if stream_codec(path) != "vvc" or not has_loop_filter(path):
        return models, None
    if len(models) > 1:
        raise ConfigError(f"{path} was coded with a CNN filter in the loop: give only its weights as -m")
    return (), models[0] if models else None


def _finished(shown: Shown, networks: Networks, models: Sequence[Path | str], auxiliary: Any) -> Shown:
    """Add the filtered layers and the PSNR, and sort the layers."""
    layers = dict(shown.layers)
    original = layers.get(ORIGINAL)
    qps = shown.header.slice_qps
    if models and len(set(qps)) > 1:
        raise ConfigError(
            f"{shown.title}: the slices have different QPs ({', '.join(map(str, qps))}), "
            "but a network takes one: leave out --model"
        )
    filtered, values = networks.apply(layers[DECODED], qps[0], auxiliary, original, shown.coding.ctu_size)
    layers |= filtered
    order = (ORIGINAL, PREDICTION, UNFILTERED, DECODED, *layer_names(len(models)))
    layers = {name: layers[name] for name in order if name in layers}
    quality = {}
    if original is not None:
        for name, picture in layers.items():
            if name != ORIGINAL:
                pairs = zip(original.planes, picture.planes, strict=False)
                quality[name] = tuple(psnr(first, second, picture.bit_depth) for first, second in pairs)
    return replace(shown, layers=layers, psnr=quality, ctus=values, titles=network_titles(models))


def _original(video: Video, path: Path, number: int, form: VideoFormat) -> Picture:
    """Read an original picture at the bit depth of the decoded one, padded to the even size that encoders need."""
    picture = pad_to_even(convert(copied(video[number]), form.bit_depth), video.format.chroma)
    height, width = picture.y.shape
    if (width, height) != (form.width, form.height):
        raise ConfigError(
            f"{path} has {width}x{height} samples, but the decoded picture {form.width}x{form.height}: "
            "give the original of this stream"
        )
    if tuple(plane.shape for plane in picture.planes) != form.plane_shapes:
        picture = Picture(picture.planes[:1], picture.bit_depth)
    return picture


def _numbers(name: Path | str, available: int, first: int, count: int | None) -> range:
    if not 0 <= first < available:
        raise ConfigError(f"{name} {_available(available)}, not {first}")
    return range(first, available if count is None else min(available, first + count))


def _available(count: int) -> str:
    """Describe which numbers of pictures exist, e.g. "has 1 picture; use --picture 0"."""
    return f"has {count} picture{'s' * (count != 1)}; use --picture 0{f' to {count - 1}' if count > 1 else ''}"


def _bits(path: Path, count: int) -> tuple[list[int], tuple[str, ...]]:
    """Return the bits of the pictures; if they cannot be read, none and a note."""
    try:
        bits = picture_bits(path)
    except CodecnnError as error:
        return [], (f"The bits of the pictures are missing: {error}.",)
    if len(bits) != count:
        return [], (f"The bits of the pictures are missing: the stream has {len(bits)} access units.",)
    return bits, ()
