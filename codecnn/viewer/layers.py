"""Content of a view, collected from a stream or a store: layers of samples, CUs and facts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec import (
    HEVC_SUFFIXES,
    VVC_SUFFIXES,
    BlockTable,
    first_references,
    read_blocks,
    read_output_pictures,
    stream_info,
    stream_plane_reader,
    table_of_units,
)
from codecnn.dataset import Unit
from codecnn.errors import ConfigError, FormatError, UnsupportedError
from codecnn.planes import TEMPORAL_PLANES
from codecnn.quality import psnr
from codecnn.video import Picture, VideoFormat, convert, open_like, open_video, pad_to_even
from codecnn.viewer.blocks import Blocks, blocks_of_table, blocks_of_units

Plane = npt.NDArray[Any]

ORIGINAL, PREDICTION, UNFILTERED, DECODED, FILTERED = "original", "prediction", "unfiltered", "decoded", "filtered"
"""Names of the layers, in the order of the page."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Content of the view of one picture.

    Attributes:
        title: Title of the page.
        facts: Names and values to list.
        form: Format of the picture.
        layers: Pictures of the same format, by the name of the layer.
        blocks: CUs.
        ctu_size: CTU size in luma samples.
        notes: Sentences on what is missing and why.
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
    """A picture of a VVC stream: its CUs, and if it is intra its planes before the in-loop filters.

    `count` is the number of pictures that the stream outputs.
    """

    units: npt.NDArray[np.int32]
    planes: Mapping[str, Plane]
    ctu_size: int
    slice_type: str
    slice_qps: tuple[int, ...]
    count: int
    notes: tuple[str, ...]


def shown_stream(
    path: Path | str,
    number: int = 0,
    *,
    original: Path | str | None = None,
    model: Path | str | None = None,
    device: str = "auto",
) -> Shown:
    """Collect the view of a picture of a VVC stream.

    Args:
        path: The stream.
        number: Number of the picture in output order, from 0.
        original: Original pictures; None shows no original.
        model: Weights for a filtered layer; None shows none.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        The content of the view.

    Raises:
        ConfigError: The stream has no such picture, or the original has another size.
        FormatError: The stream is damaged.
        ModelError: The network cannot be loaded.
    """
    path = Path(path)
    coded = _read_coded(path, number)
    with open_video(path, frames=number + 1) as video:
        form, decoded = video.format, _copied(video[number])
    layers = {DECODED: decoded, **_reconstructed_layers(coded.planes, form.bit_depth)}
    if original is not None:
        layers[ORIGINAL], count = _original(Path(original), number, form)
        if count != coded.count:
            counts = f"The original has {count} pictures and the stream {coded.count}"
            coded = replace(coded, notes=(*coded.notes, f"{counts}: picture {number} of each is compared."))
    if model is not None:
        table = table_of_units(coded.units, np.full(len(coded.units), number, np.int32))

        def auxiliary(names: tuple[str, ...]) -> dict[str, Plane]:
            return _auxiliary_planes(names, path, coded, form, table, number)

        layers[FILTERED] = _filtered(decoded, _single_qp(path, coded.slice_qps), auxiliary, model, device)
    return _shown(f"{path.name}, picture {number}", coded, form, layers, blocks_of_units(coded.units))


def shown_unit(unit: Unit, number: int = 0, *, model: Path | str | None = None, device: str = "auto") -> Shown:
    """Collect the view of a picture of a store's unit.

    For a unit without a VVC stream the view contains the CUs and layers that the store holds.

    Args:
        unit: The unit.
        number: Number of the picture in output order, from 0.
        model: Weights for a filtered layer; None shows none.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        The content of the view.

    Raises:
        ConfigError: The unit has no such picture.
        ModelError: The network cannot be loaded.
        StoreError: The unit lacks a plane of the network.
    """
    from codecnn.filtering import unit_planes

    if not 0 <= number < len(unit.pictures):
        raise ConfigError(f"{unit.name} {_available(len(unit.pictures))}, not {number}")
    record = sorted(unit.pictures, key=lambda picture: picture.poc)[number]
    if unit.bitstream_file is not None and unit.bitstream_file.endswith(VVC_SUFFIXES):
        coded = _read_coded(unit.path("bitstream"), number)
    else:
        note = "The prediction is missing: it is read from VVC streams only, and this unit has none."
        empty = np.zeros((0, 0), np.int32)
        ctu_size = unit.coding.ctu_size if unit.coding else 64
        coded = _Coded(empty, {}, ctu_size, record.slice_type, (record.qp,), len(unit.pictures), (note,))
    layers: dict[str, Picture] = _reconstructed_layers(coded.planes, unit.format.bit_depth)
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
        notes = (*notes, unit.no_blocks or "The CUs are missing: the unit has no CU table.")
    if model is not None:

        def auxiliary(names: tuple[str, ...]) -> dict[str, Plane]:
            stored = [name for name in names if name not in coded.planes]
            return {name: coded.planes[name] for name in names if name in coded.planes} | unit_planes(
                unit, number, stored
            )

        layers[FILTERED] = _filtered(layers[DECODED], record.qp, auxiliary, model, device)
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
    """Sort the layers and collect the facts, with PSNR if there is an original."""
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
    """Read picture `number`, in output order, of a VVC stream."""
    info = stream_info(path)
    shown = {picture.position: i for i, picture in enumerate(info.pictures) if picture.position is not None}
    if number not in shown:
        raise ConfigError(f"{path} {_available(len(shown))}, not {number}")
    # numba takes half a second to import, so it is imported after the check.
    from codecnn.vvc import coding_units

    header = info.pictures[shown[number]]
    picture = read_output_pictures(path)[number]
    planes: Mapping[str, Plane] = {}
    notes: tuple[str, ...] = ()
    letters = "y" if info.chroma == "400" else "yuv"
    names = [f"{kind}_{letter}" for kind in ("pred", "unf") for letter in letters]
    try:
        planes = stream_plane_reader(path, names)(number)
    except (FormatError, UnsupportedError) as error:
        notes = (f"The prediction is missing: {error}.",)
    return _Coded(coding_units(picture), planes, info.ctu_size, header.slice_type, header.slice_qps, len(shown), notes)


def _reconstructed_layers(planes: Mapping[str, Plane], bit_depth: int) -> dict[str, Picture]:
    """Return prediction and unfiltered picture, as far as their planes exist."""
    layers = {}
    for name, kind in ((PREDICTION, "pred"), (UNFILTERED, "unf")):
        parts = tuple(planes[f"{kind}_{letter}"] for letter in "yuv" if f"{kind}_{letter}" in planes)
        if parts:
            layers[name] = Picture(parts, bit_depth)
    return layers


def _original(path: Path, number: int, form: VideoFormat) -> tuple[Picture, int]:
    """Read an original picture at the bit depth of the decoded one, padded to the even size that encoders need.

    The number of pictures in the file is returned too.
    """
    with open_like(path, form) as video:
        if number >= len(video):
            raise ConfigError(f"{path} {_available(len(video))}, not {number}")
        count = len(video)
        picture = pad_to_even(convert(_copied(video[number]), form.bit_depth), video.format.chroma)
    height, width = picture.y.shape
    if (width, height) != (form.width, form.height):
        raise ConfigError(
            f"{path} has {width}x{height} samples, but the decoded picture {form.width}x{form.height}: "
            "give the original of this stream"
        )
    if tuple(plane.shape for plane in picture.planes) != form.plane_shapes:
        picture = Picture(picture.planes[:1], picture.bit_depth)
    return picture, count


def _available(count: int) -> str:
    """Describe which numbers of pictures exist, e.g. "has 1 picture; use --picture 0"."""
    return f"has {count} picture{'s' * (count != 1)}; use --picture 0{f' to {count - 1}' if count > 1 else ''}"


def _single_qp(path: Path, qps: tuple[int, ...]) -> int:
    if len(set(qps)) > 1:
        raise ConfigError(
            f"{path}: the slices of the picture have different QPs ({', '.join(map(str, qps))}), "
            "but a network takes one: leave out --model"
        )
    return qps[0]


def _auxiliary_planes(
    names: tuple[str, ...], path: Path, coded: _Coded, form: VideoFormat, table: BlockTable, number: int
) -> dict[str, Plane]:
    """Collect the auxiliary planes of a network from the stream and its coding tree."""
    from codecnn.filtering import auxiliary_planes, temporal_source

    planes = {name: coded.planes[name] for name in names if name in coded.planes}
    temporal = [name for name in names if name in TEMPORAL_PLANES]
    if temporal:
        references = first_references(path, coded.count)
        with open_video(path, frames=max(number + 1, *references[number]) + 1) as video:
            planes |= {
                name: np.array(plane) for name, plane in temporal_source(temporal, video, references)(number).items()
            }
    rest = tuple(name for name in names if name not in planes)
    return planes | dict(auxiliary_planes(rest, form, {}, table, slice_types=[coded.slice_type])(number))


def _filtered(
    decoded: Picture, qp: int, auxiliary: Callable[[tuple[str, ...]], dict[str, Plane]], model: Path | str, device: str
) -> Picture:
    """Filter a decoded picture."""
    from codecnn.filtering import load_filter
    from codecnn.models import pick_device

    network = load_filter(model, device=pick_device(device))
    return network(decoded, qp, auxiliary(network.planes))


def _copied(picture: Picture) -> Picture:
    """Copy a picture into memory, because its file is closed afterwards."""
    return Picture(tuple(np.array(plane) for plane in picture.planes), picture.bit_depth)
