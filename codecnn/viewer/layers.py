"""Content of a view, collected from a stream or a store: layers of samples, coding of the blocks, and facts."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec import (
    HEVC_SUFFIXES,
    VVC_SUFFIXES,
    StreamPicture,
    first_references,
    has_loop_filter,
    output_pictures,
    picture_bits,
    read_blocks,
    read_headers,
    residual_samples,
)
from codecnn.dataset import Unit
from codecnn.errors import CodecnnError, ConfigError, FormatError
from codecnn.planes import CELL_PLANES, REBUILT_PLANES, TEMPORAL_PLANES
from codecnn.quality import psnr
from codecnn.video import Picture, Video, VideoFormat, convert, open_like, open_video, pad_to_even, stream_codec
from codecnn.viewer.blocks import Blocks, blocks_of_table
from codecnn.viewer.coded import CodedPicture, Coding, read_coded
from codecnn.viewer.filters import CtuValues, Networks, layer_names, network_titles

Plane = npt.NDArray[Any]

ORIGINAL: str = "original"
PREDICTION: str = "prediction"
UNFILTERED: str = "unfiltered"
DECODED: str = "decoded"
FILTERED: str = "filtered"
"""Names of the layers, in the order of the page; further networks have the layers "filtered 2" and so on."""

DEFAULT_PICTURES = 17
"""Number of pictures of a page if none is given: an intra period and a half of eight pictures in random access."""


@dataclass(frozen=True)
class Header:
    """Facts of a coded picture.

    Attributes:
        number: Position in output order.
        slice_type: Most general type of its slices: I, P or B.
        slice_qps: QPs of its slices.
        poc: Picture order count, None if it is unknown.
        temporal_id: Temporal sub-layer, None if it is unknown.
        bits: Size with all headers, None if it is unknown.
        hash: Comparison with the hash in the stream: "ok", "differs", "none", or "" if it is not compared.
    """

    number: int
    slice_type: str
    slice_qps: tuple[int, ...]
    poc: int | None = None
    temporal_id: int | None = None
    bits: int | None = None
    hash: str = ""


@dataclass(frozen=True, eq=False)
class Shown:
    """Content of the view of one picture.

    Attributes:
        title: Stream or sequence, and number of the picture.
        header: Facts of the coded picture.
        form: Format of the picture.
        layers: Pictures of the same format, by the name of the layer.
        coding: Coding of its blocks.
        psnr: PSNR of Y, U and V of each layer but the original, in dB; empty without an original.
        ctus: Effect of the networks on the CTUs, by layer.
        titles: Title of the layer of each network.
        notes: Sentences on what is missing and why.
    """

    title: str
    header: Header
    form: VideoFormat
    layers: Mapping[str, Picture]
    coding: Coding
    psnr: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    ctus: Mapping[str, CtuValues] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> Blocks:
        """CUs of the picture."""
        return self.coding.blocks


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
            (_vvc_part(coded, coded.form) for coded in read_coded(path, numbers, loop_weights, device))
            if stream_codec(path) == "vvc"
            else _other_pictures(path, numbers, headers, info.ctu_size)
        )
        temporal = _TemporalPlanes(path, len(headers), numbers, stack)
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
    if _is_vvc(unit):
        models, loop_weights = _split_models(unit.path("bitstream"), models)
    networks = Networks(models, device)
    records = sorted(unit.pictures, key=lambda picture: picture.poc)
    with contextlib.ExitStack() as stack:
        videos: dict[str, Video] = {}
        for name in (ORIGINAL, DECODED, UNFILTERED, PREDICTION):
            if (video := unit.pictures_of(name)) is not None:
                videos[name] = stack.enter_context(video)
        for part in _unit_parts(unit, numbers, loop_weights, device):
            shown, number = part.shown, part.shown.header.number
            stored = {name: _copied(video[number]) for name, video in videos.items() if name not in shown.layers}
            header = replace(shown.header, bits=records[number].bits)
            title = f"{unit.name} at QP {unit.qp}, picture {number}"
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


# --- sources of pictures ---------------------------------------------------------------------------------------------


class _TemporalPlanes:
    """Planes of neighbouring and reference pictures of a stream; its pictures are decoded once a network takes any."""

    def __init__(self, path: Path, count: int, numbers: Sequence[int], stack: contextlib.ExitStack) -> None:
        self._path, self._count, self._numbers, self._stack = path, count, numbers, stack
        self._opened: tuple[Video, Any] | None = None

    def add(self, number: int, auxiliary: Any, names: tuple[str, ...]) -> dict[str, Plane]:
        """Return the auxiliary planes of a picture, with `auxiliary` as the source of the others."""
        temporal = tuple(name for name in names if name in TEMPORAL_PLANES)
        planes: dict[str, Plane] = {}
        if temporal:
            from codecnn.filtering import temporal_source

            video, references = self._open()
            planes = {
                name: np.array(plane) for name, plane in temporal_source(temporal, video, references)(number).items()
            }
        return planes | dict(auxiliary(tuple(name for name in names if name not in planes)))

    def _open(self) -> tuple[Video, Any]:
        if self._opened is None:
            references = first_references(self._path, self._count) if stream_codec(self._path) == "vvc" else []
            used = (position for number in self._numbers for position in references[number : number + 1])
            last = max(self._numbers[-1] + 1, *(max(pair) for pair in used), 0)
            self._opened = self._stack.enter_context(open_video(self._path, frames=last + 1)), references
        return self._opened


@dataclass(frozen=True, eq=False)
class _Part:
    """View of a picture without original, networks and PSNR, and the source of auxiliary planes of networks."""

    shown: Shown
    auxiliary: Any


def _vvc_part(coded: CodedPicture, form: VideoFormat) -> _Part:
    """Return the view of a picture of a VVC stream, cropped to `form` if it was padded for the encoder."""
    layers = {}
    for name, kind in ((PREDICTION, "pred"), (UNFILTERED, "unf"), (DECODED, "rec")):
        if (picture := coded.picture(kind)) is not None:
            layers[name] = _cropped(picture, form)
    header = Header(coded.number, coded.slice_type, coded.slice_qps, coded.poc, coded.temporal_id, None, coded.hash)

    def auxiliary(names: tuple[str, ...]) -> dict[str, Plane]:
        from codecnn.filtering import auxiliary_planes

        planes = _network_planes(names, coded, form)
        rest = tuple(name for name in names if name not in planes)
        source = auxiliary_planes(rest, form, {}, coded.table, slice_types=[coded.slice_type])
        return planes | dict(source(coded.number))

    return _Part(Shown("", header, form, layers, coded.coding, notes=coded.notes), auxiliary)


def _other_pictures(
    path: Path, numbers: Sequence[int], headers: Sequence[StreamPicture], ctu_size: int
) -> Iterator[_Part]:
    """Yield the pictures of a stream of HEVC, AVC or AV1, of which only headers are parsed."""
    note = "Prediction, CUs and motion are missing: they are read from VVC streams only."
    with open_video(path, frames=numbers[-1] + 1) as video:
        if len(video) <= numbers[-1]:
            raise FormatError(f"{path}: the headers announce {len(headers)} pictures, but {len(video)} are decoded")
        for number in numbers:
            picture = headers[number]
            header = Header(number, picture.slice_type, picture.slice_qps, picture.poc, picture.temporal_id)
            shown = Shown(
                "",
                header,
                video.format,
                {DECODED: _copied(video[number])},
                Coding(Blocks.none(), ctu_size),
                notes=(note,),
            )
            yield _Part(shown, _StreamPlanes(video.format, picture.slice_type))


@dataclass(frozen=True)
class _StreamPlanes:
    """Auxiliary planes of a picture of which only headers are parsed."""

    form: VideoFormat
    slice_type: str

    def __call__(self, names: tuple[str, ...]) -> dict[str, Plane]:
        from codecnn.filtering import auxiliary_planes

        return dict(auxiliary_planes(names, self.form, {}, None, slice_types=[self.slice_type])(0))


def _is_vvc(unit: Unit) -> bool:
    return unit.bitstream_file is not None and unit.bitstream_file.endswith(VVC_SUFFIXES)


def _unit_parts(unit: Unit, numbers: Sequence[int], loop_weights: Path | str | None, device: str) -> Iterator[_Part]:
    from codecnn.filtering import unit_planes

    records = sorted(unit.pictures, key=lambda picture: picture.poc)
    coded_pictures = None
    if _is_vvc(unit):
        coded_pictures = read_coded(unit.path("bitstream"), numbers, loop_weights, device)
    is_hevc = unit.bitstream_file is not None and unit.bitstream_file.endswith(HEVC_SUFFIXES)
    table = read_blocks(unit.path("blocks")) if coded_pictures is None and unit.has("blocks") else None
    for number in numbers:

        def stored(names: tuple[str, ...], number: int = number) -> dict[str, Plane]:
            return unit_planes(unit, number, names)

        if coded_pictures is not None:
            coded = next(coded_pictures)

            def rebuilt(names: tuple[str, ...], coded: CodedPicture = coded, number: int = number) -> dict[str, Plane]:
                planes = _network_planes(names, coded, unit.format)
                return planes | unit_planes(unit, number, [name for name in names if name not in planes])

            yield _Part(_vvc_part(coded, unit.format).shown, rebuilt)
            continue
        record = records[number]
        notes = ["The prediction is missing: it is read from VVC streams only, and this unit has none."]
        blocks = Blocks.none()
        if table is not None:
            blocks = blocks_of_table(table.select(table.poc == number), "hevc" if is_hevc else "vvc")
        if not len(blocks):
            notes.append(unit.no_blocks or "The CUs are missing: the unit has no CU table.")
        coding = Coding(blocks, unit.coding.ctu_size if unit.coding else 64)
        header = Header(number, record.slice_type, (record.qp,))
        yield _Part(Shown("", header, unit.format, {}, coding, notes=tuple(notes)), stored)


# --- parts of a view -------------------------------------------------------------------------------------------------


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


def _network_planes(names: Sequence[str], coded: CodedPicture, form: VideoFormat) -> dict[str, Plane]:
    """Return the planes among `names` that are rebuilt from the stream, in the form in which networks take them."""
    planes: dict[str, Plane] = {}
    for name in names:
        if name not in REBUILT_PLANES or name not in coded.planes:
            continue
        plane = coded.planes[name][: form.height, : form.width]
        if name in CELL_PLANES:
            plane = plane.astype(np.float32) / np.float32(CELL_PLANES[name].scale)
        elif name.startswith("resid"):
            plane = residual_samples(plane, form.bit_depth)
        planes[name] = plane
    return planes


def _original(video: Video, path: Path, number: int, form: VideoFormat) -> Picture:
    """Read an original picture at the bit depth of the decoded one, padded to the even size that encoders need."""
    picture = pad_to_even(convert(_copied(video[number]), form.bit_depth), video.format.chroma)
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


def _cropped(picture: Picture, form: VideoFormat) -> Picture:
    if picture.y.shape == (form.height, form.width):
        return picture
    parts = zip(picture.planes, form.plane_shapes, strict=True)
    return Picture(tuple(plane[:height, :width] for plane, (height, width) in parts), picture.bit_depth)


def _copied(picture: Picture) -> Picture:
    """Copy a picture into memory, because its file is closed afterwards."""
    return Picture(tuple(np.array(plane) for plane in picture.planes), picture.bit_depth)
