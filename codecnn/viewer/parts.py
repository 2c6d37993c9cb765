"""Decoded pictures of a stream or a store with their coding, and the auxiliary planes of networks."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.base.planes import CELL_PLANES, REBUILT_PLANES, TEMPORAL_PLANES
from codecnn.codec import HEVC_SUFFIXES, VVC_SUFFIXES, StreamPicture, first_references, read_blocks, residual_samples
from codecnn.dataset import Unit
from codecnn.pictures.files import Picture, Video, VideoFormat, open_video, stream_codec
from codecnn.viewer.blocks import Blocks, blocks_of_table
from codecnn.viewer.coded import CodedPicture, Coding, read_coded
from codecnn.viewer.shown import DECODED, PREDICTION, UNFILTERED, Header, Shown

Plane = npt.NDArray[Any]


class TemporalPlanes:
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
class Part:
    """View of a picture without original, networks and PSNR, and the source of auxiliary planes of networks."""

    shown: Shown
    auxiliary: Any


def vvc_part(coded: CodedPicture, form: VideoFormat) -> Part:
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

    return Part(Shown("", header, form, layers, coded.coding, notes=coded.notes), auxiliary)


def other_parts(path: Path, numbers: Sequence[int], headers: Sequence[StreamPicture], ctu_size: int) -> Iterator[Part]:
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
                {DECODED: copied(video[number])},
                Coding(Blocks.none(), ctu_size),
                notes=(note,),
            )
            yield Part(shown, _StreamPlanes(video.format, picture.slice_type))


@dataclass(frozen=True)
class _StreamPlanes:
    """Auxiliary planes of a picture of which only headers are parsed."""

    form: VideoFormat
    slice_type: str

    def __call__(self, names: tuple[str, ...]) -> dict[str, Plane]:
        from codecnn.filtering import auxiliary_planes

        return dict(auxiliary_planes(names, self.form, {}, None, slice_types=[self.slice_type])(0))


def is_vvc(unit: Unit) -> bool:
    """Return whether a unit holds a stream of VVC."""
    return unit.bitstream_file is not None and unit.bitstream_file.endswith(VVC_SUFFIXES)


def unit_parts(unit: Unit, numbers: Sequence[int], loop_weights: Path | str | None, device: str) -> Iterator[Part]:
    """Yield pictures of a unit; those without a VVC stream have only the CUs that the store holds."""
    from codecnn.filtering import unit_planes

    records = sorted(unit.pictures, key=lambda picture: picture.poc)
    coded_pictures = None
    if is_vvc(unit):
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

            yield Part(vvc_part(coded, unit.format).shown, rebuilt)
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
        yield Part(Shown("", header, unit.format, {}, coding, notes=tuple(notes)), stored)


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


def _cropped(picture: Picture, form: VideoFormat) -> Picture:
    if picture.y.shape == (form.height, form.width):
        return picture
    parts = zip(picture.planes, form.plane_shapes, strict=True)
    return Picture(tuple(plane[:height, :width] for plane, (height, width) in parts), picture.bit_depth)


def copied(picture: Picture) -> Picture:
    """Copy a picture into memory, because its file is closed afterwards."""
    return Picture(tuple(np.array(plane) for plane in picture.planes), picture.bit_depth)
