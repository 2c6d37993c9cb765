"""What is shown of a picture, gathered from a stream or a store: layers of samples, and the tree of its CUs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec import HEVC_SUFFIXES, SUFFIXES, BlockTable, read_blocks, stream_info, table_of_units
from codecnn.dataset import Unit
from codecnn.errors import ConfigError, UnsupportedError
from codecnn.quality import psnr
from codecnn.video import Picture, VideoFormat, convert, open_like, open_video, pad_to_even
from codecnn.viewer._blocks import Blocks, blocks_of_table, blocks_of_units
from codecnn.vvc import read_pictures

Plane = npt.NDArray[Any]

ORIGINAL, PREDICTION, UNFILTERED, DECODED, FILTERED = "original", "prediction", "unfiltered", "decoded", "filtered"
"""Layers, in the order in which the page offers them."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture to show: `layers` by name, all of one geometry; `blocks`, its CUs; `facts` to be said of it.

    `notes` say in a sentence each what is not there and why.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    form: VideoFormat
    layers: Mapping[str, Picture]
    blocks: Blocks
    ctu_size: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Coded:
    """What a VVC stream tells of one picture: its CUs, and its planes before the loop filters if it is intra."""

    units: npt.NDArray[np.int32]
    planes: Mapping[str, Plane]
    ctu_size: int
    slice_type: str
    slice_qps: tuple[int, ...]
    notes: tuple[str, ...]


def shown_stream(
    path: Path | str,
    number: int = 0,
    *,
    original: Path | str | None = None,
    model: Path | str | None = None,
    device: str = "auto",
) -> Shown:
    """Picture `number` in output order of a VVC stream, with `original` beside it and filtered by `model` if given."""
    path = Path(path)
    coded = _read_coded(path, number)
    with open_video(path, frames=number + 1) as video:
        form, decoded = video.format, _copied(video[number])
    layers = {DECODED: decoded, **_own_layers(coded.planes, form.bit_depth)}
    if original is not None:
        layers[ORIGINAL] = _original(Path(original), number, form)
    if model is not None:
        table = table_of_units(coded.units, np.full(len(coded.units), number, np.int32))

        def beside(names: tuple[str, ...]) -> dict[str, Plane]:
            return _beside(names, coded, form, table, number)

        layers[FILTERED] = _filtered(decoded, _one_qp(path, coded.slice_qps), beside, model, device)
    return _shown(f"{path.name}, picture {number}", coded, form, layers, blocks_of_units(coded.units))


def shown_unit(unit: Unit, number: int = 0, *, model: Path | str | None = None, device: str = "auto") -> Shown:
    """Picture `number` in output order of a store's unit, filtered by `model` if given.

    Of a unit without a VVC stream there is shown what the store holds of its CUs and layers.
    """
    from codecnn.filtering import unit_planes

    if not 0 <= number < len(unit.pictures):
        raise ConfigError(f"{unit.name} has no picture {number}: it has {len(unit.pictures)}, counted from 0")
    record = sorted(unit.pictures, key=lambda one: one.poc)[number]
    if unit.bitstream_file is not None and unit.bitstream_file.endswith(SUFFIXES):
        coded = _read_coded(unit.path("bitstream"), number)
    else:
        why = "the prediction is read from VVC streams only, and this unit has none"
        empty = np.zeros((0, 0), np.int32)
        coded = _Coded(empty, {}, unit.coding.ctu_size if unit.coding else 64, record.slice_type, (record.qp,), (why,))
    layers: dict[str, Picture] = _own_layers(coded.planes, unit.format.bit_depth)
    for name in (ORIGINAL, DECODED, UNFILTERED, PREDICTION):
        if name not in layers and (video := unit.pictures_of(name)) is not None:
            with video:
                layers[name] = _copied(video[number])
    blocks = blocks_of_units(coded.units) if len(coded.units) else Blocks.none()
    notes = coded.notes
    if not len(coded.units) and unit.has("blocks"):
        table = read_blocks(unit.path("blocks"))
        hevc = unit.bitstream_file is not None and unit.bitstream_file.endswith(HEVC_SUFFIXES)
        blocks = blocks_of_table(table.select(table.poc == number), "hevc" if hevc else "vvc")
    if not len(blocks):
        notes = (*notes, unit.no_blocks or "the unit has no table of its CUs")
    if model is not None:

        def beside(names: tuple[str, ...]) -> dict[str, Plane]:
            stored = [name for name in names if name not in coded.planes]
            return {name: coded.planes[name] for name in names if name in coded.planes} | unit_planes(
                unit, number, stored
            )

        layers[FILTERED] = _filtered(layers[DECODED], record.qp, beside, model, device)
    title = f"{unit.name} at QP {unit.qp}, picture {number}"
    return _shown(title, coded, unit.format, layers, blocks, notes)


def _shown(
    title: str,
    coded: _Coded,
    form: VideoFormat,
    layers: Mapping[str, Picture],
    blocks: Blocks,
    notes: tuple[str, ...] | None = None,
) -> Shown:
    """The layers in their order, and what is said of the picture; PSNR where there is an original."""
    order = (ORIGINAL, PREDICTION, UNFILTERED, DECODED, FILTERED)
    ordered = {name: layers[name] for name in order if name in layers}
    qps = ", ".join(map(str, sorted(set(coded.slice_qps))))
    facts = [("picture", str(form)), ("slices", f"{coded.slice_type}, QP {qps}"), ("CUs", f"{len(blocks):,}")]
    if ORIGINAL in ordered:
        source = ordered[ORIGINAL].y
        for name in (UNFILTERED, DECODED, FILTERED):
            if name in ordered:
                facts.append((f"PSNR Y {name}", f"{psnr(source, ordered[name].y, form.bit_depth):.3f} dB"))
    return Shown(title, tuple(facts), form, ordered, blocks, coded.ctu_size, coded.notes if notes is None else notes)


def _read_coded(path: Path, number: int) -> _Coded:
    """What the stream tells of its picture `number` in output order."""
    info = stream_info(path)
    shown = {one.position: index for index, one in enumerate(info.pictures) if one.position is not None}
    if number not in shown:
        raise ConfigError(f"{path} has no picture {number}: it shows {len(shown)}, counted from 0")
    # numba takes half a second to import, which an error above does not need.
    from codecnn.reconstruct import reconstruct
    from codecnn.vvc import coding_units

    header = info.pictures[shown[number]]
    picture = list(read_pictures(path.read_bytes()))[shown[number]]
    planes: Mapping[str, Plane] = {}
    notes: tuple[str, ...] = ()
    if all(part.header.slice_type == "I" for part in picture.slices):
        letters = "y" if info.chroma == "400" else "yuv"
        try:
            planes = reconstruct(picture, [f"{kind}_{letter}" for kind in ("pred", "unf") for letter in letters])
        except UnsupportedError as error:
            notes = (f"There is no prediction: {error}.",)
    else:
        notes = (f"There is no prediction: picture {number} has {header.slice_type} slices, not intra ones alone.",)
    return _Coded(coding_units(picture), planes, info.ctu_size, header.slice_type, header.slice_qps, notes)


def _own_layers(planes: Mapping[str, Plane], bit_depth: int) -> dict[str, Picture]:
    """Prediction and the picture before the loop filters, as pictures."""
    layers = {}
    for name, kind in ((PREDICTION, "pred"), (UNFILTERED, "unf")):
        parts = tuple(planes[f"{kind}_{letter}"] for letter in "yuv" if f"{kind}_{letter}" in planes)
        if parts:
            layers[name] = Picture(parts, bit_depth)
    return layers


def _original(path: Path, number: int, form: VideoFormat) -> Picture:
    """Picture `number` of a file at the decoded picture's bit depth, padded as encoders want it."""
    with open_like(path, form) as video:
        if number >= len(video):
            raise ConfigError(f"{path} has {len(video)} pictures, so it has no original of picture {number}")
        picture = pad_to_even(convert(_copied(video[number]), form.bit_depth), video.format.chroma)
    height, width = picture.y.shape
    if (width, height) != (form.width, form.height):
        raise ConfigError(f"{path} has {width}x{height} samples, the decoded picture {form.width}x{form.height}")
    if tuple(plane.shape for plane in picture.planes) != form.plane_shapes:
        picture = Picture(picture.planes[:1], picture.bit_depth)
    return picture


def _one_qp(path: Path, qps: tuple[int, ...]) -> int:
    if len(set(qps)) > 1:
        raise ConfigError(f"{path}: the picture's slices have the QPs {', '.join(map(str, qps))}, a network takes one")
    return qps[0]


def _beside(
    names: tuple[str, ...], coded: _Coded, form: VideoFormat, table: BlockTable, number: int
) -> dict[str, Plane]:
    """What a network takes beside the decoded picture: planes of the stream, and those of the coding tree."""
    from codecnn.filtering import planes_beside

    own = {name: coded.planes[name] for name in names if name in coded.planes}
    rest = tuple(name for name in names if name not in own)
    return own | dict(planes_beside(rest, form, {}, table, slice_types=[coded.slice_type])(number))


def _filtered(
    decoded: Picture, qp: int, beside: Callable[[tuple[str, ...]], dict[str, Plane]], model: Path | str, device: str
) -> Picture:
    """The decoded picture as the network repairs it."""
    from codecnn.filtering import load_filter
    from codecnn.models import pick_device

    network = load_filter(model, device=pick_device(device))
    return network(decoded, qp, beside(network.planes))


def _copied(picture: Picture) -> Picture:
    """The picture in memory, for its file is closed."""
    return Picture(tuple(np.array(plane) for plane in picture.planes), picture.bit_depth)
