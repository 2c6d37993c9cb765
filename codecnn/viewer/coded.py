"""Pictures of VVC streams as the viewer shows them: reconstructed planes, CUs, motion, transforms, bits of the CTUs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.base.parts import extension
from codecnn.codec import CHROMA, LUMA, read_output_pictures, table_of_units
from codecnn.codec import BlockTable as BlockTable
from codecnn.pictures.files import Picture, VideoFormat, open_video
from codecnn.viewer.blocks import Blocks, blocks_of_units
from codecnn.vvc.syntax import BLOCK_COLUMNS, CHROMA_FORMATS, CU_COLUMNS, ParsedPicture, picture_syntax

if TYPE_CHECKING:
    from codecnn.vvc.decoder import PictureHook

Plane = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]

TRANSFORM_COLUMNS = ("channel", "x", "y", "w", "h", "cbf", "ts", "tr_hor", "tr_ver", "nonzero")
"""Columns of `Coding.transforms`; `channel` is that of the CUs."""

_KINDS = ("rec", "unf", "pred", "resid")


@dataclass(frozen=True, eq=False)
class Coding:
    """Coding of a picture: what its bitstream says about its blocks.

    Positions are those of the coded picture, before the crop to the conformance window. Cells are 4x4 luma samples.

    Attributes:
        blocks: CUs.
        ctu_size: CTU size in luma samples.
        offset: Position of the first shown sample in the coded picture: x, y in luma samples.
        transforms: Transform units, columns `TRANSFORM_COLUMNS`, shape (n, columns).
        vectors: Motion vectors of L0 and L1 in 1/16 luma sample before DMVR, shape (2, rows, columns, 2), x first; None
            if they are unknown.
        references: POC of the reference picture of L0 and L1, or `codecnn.vvc.decoder.NO_REFERENCE`, shape (2, rows,
            columns).
        strengths: Boundary strengths of luma at the left and upper edges of the cells, 0 to 2, shape (2, rows,
            columns), of the cells inside the shown picture; None if they are unknown.
        ctu_bits: Bits of each CTU, shape (CTU rows, CTU columns); None if they are unknown.
    """

    blocks: Blocks
    ctu_size: int
    offset: tuple[int, int] = (0, 0)
    transforms: Ints | None = None
    vectors: Ints | None = None
    references: Ints | None = None
    strengths: npt.NDArray[np.uint8] | None = None
    ctu_bits: Ints | None = None


@dataclass(frozen=True, eq=False)
class CodedPicture:
    """A picture of a VVC stream.

    Attributes:
        number: Position in output order.
        poc: Picture order count.
        slice_type: Most general type of its slices: I, P or B.
        slice_qps: QPs of its slices.
        temporal_id: Temporal sub-layer.
        form: Format of the decoded picture.
        planes: Planes of `codecnn.vvc.decoder.PLANES`: decoded picture and, unless a note says why they are missing,
            those before the in-loop filters, prediction, residual and boundary strengths.
        coding: Coding of its blocks.
        table: Its CUs as a table, whose `poc` is `number`.
        hash: "ok", "differs" or "none" as the decoder compares the picture with its hash; "" if it is not compared.
        notes: Sentences on what is missing and why.
    """

    number: int
    poc: int
    slice_type: str
    slice_qps: tuple[int, ...]
    temporal_id: int
    form: VideoFormat
    planes: Mapping[str, Plane]
    coding: Coding
    table: BlockTable
    hash: str
    notes: tuple[str, ...]

    def picture(self, kind: str) -> Picture | None:
        """Return the planes of a kind, e.g. "rec", as a picture; None if there are none."""
        parts = tuple(self.planes[f"{kind}_{letter}"] for letter in "yuv" if f"{kind}_{letter}" in self.planes)
        return Picture(parts, self.form.bit_depth) if parts else None


def read_coded(
    path: Path, numbers: Sequence[int], loop_weights: Path | str | None = None, device: str = "auto"
) -> Iterator[CodedPicture]:
    """Decode pictures of a VVC stream.

    A stream of intra pictures is decoded at these pictures only, another one from its start.

    Args:
        path: VVC byte stream, or a container with a VVC stream.
        numbers: Positions in output order, rising.
        loop_weights: Weights of the CNN filter in the coding loop; None finds them among those of the package.
        device: Device of that filter: "auto", "cpu", "cuda" or "cuda:N".

    Yields:
        The pictures.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream has a CNN filter in the loop that codecnn cannot apply.
    """
    pictures = read_output_pictures(path)
    names = _plane_names(pictures[0])
    decoded = _decoded(path, pictures, numbers, names, _hook(pictures, loop_weights, device))
    for number in numbers:
        planes, state, notes = next(decoded)
        try:
            yield _coded_picture(number, pictures[number], planes, state, notes)
        except FormatError as error:
            raise type(error)(f"{path}, POC {pictures[number].poc}: {error}") from None


_Decoded = tuple[dict[str, Plane], str, tuple[str, ...]]
"""Planes, comparison with the hash, and notes."""


def _plane_names(picture: ParsedPicture) -> tuple[str, ...]:
    letters = "y" if picture.sps.sps_chroma_format_idc == 0 else "yuv"
    return (*(f"{kind}_{letter}" for kind in _KINDS for letter in letters), "bs_v", "bs_h")


def _hook(pictures: Sequence[ParsedPicture], weights: Path | str | None, device: str) -> "PictureHook | None":
    """Return the CNN filter in the coding loop; None if the stream has none."""
    if all(picture.loop_filter is None for picture in pictures):
        return None
    # Imported here because torch takes seconds to import.
    from codecnn.models import pick_device

    hook: PictureHook = extension("signalling.loop_filter")(weights, device=pick_device(device))
    return hook


def _decoded(
    path: Path,
    pictures: Sequence[ParsedPicture],
    numbers: Sequence[int],
    names: tuple[str, ...],
    hook: "PictureHook | None",
) -> Iterator[_Decoded]:
    """Yield planes of the pictures; those that codecnn cannot decode are decoded by ffmpeg, without other planes."""
    done = 0
    try:
        for result in _reconstructed(path, pictures, numbers, names, hook):
            yield result
            done += 1
    except UnsupportedError as error:
        if hook is not None:
            # ffmpeg does not know the filter, and its pictures would differ.
            raise
        note = f"Prediction, residual and motion are missing: {error}."
        with open_video(path, frames=numbers[-1] + 1) as video:
            for number in numbers[done:]:
                parts = (np.array(plane) for plane in video[number].planes)
                yield {f"rec_{letter}": plane for letter, plane in zip("yuv", parts, strict=False)}, "", (note,)


def _reconstructed(
    path: Path,
    pictures: Sequence[ParsedPicture],
    numbers: Sequence[int],
    names: tuple[str, ...],
    hook: "PictureHook | None",
) -> Iterator[_Decoded]:
    # Imported here because numba takes half a second to import.
    from codecnn.codec import decode_pictures
    from codecnn.vvc.decoder import MOTION_PLANES, reconstruct

    if hook is None and numbers[0] > 0 and all(picture.is_intra for picture in pictures):
        for number in numbers:
            yield reconstruct(pictures[number], names), "", ()
        return
    last, wanted = numbers[-1], set(numbers)
    for number, picture in enumerate(decode_pictures(path, (*names, *MOTION_PLANES), hook)):
        if number in wanted:
            missing = ", ".join(map(str, picture.missing))
            notes = [f"It depends on pictures that are missing in the stream: POC {missing}."] if missing else []
            if picture.hash == "differs":
                notes.append("The decoded picture differs from its hash in the stream.")
            yield picture.planes, picture.hash, tuple(notes)
        if number == last:
            return
    raise FormatError(f"{path}: the headers announce {len(pictures)} pictures, but fewer are decoded")


def _coded_picture(
    number: int, picture: ParsedPicture, planes: dict[str, Plane], state: str, notes: tuple[str, ...]
) -> CodedPicture:
    sps, window = picture.sps, picture.pps.conformance_window
    syntax = picture_syntax(picture)
    offset = window.left << sps.log2_sub_width_c, window.top << sps.log2_sub_height_c
    models = None
    coding = Coding(Blocks.none(), 1 << sps.ctb_log2_size_y, offset, ctu_bits=syntax.ctu_bits)
    if "motion_model" in planes and not picture.is_intra:
        x, y = (syntax.units[:, CU_COLUMNS.index(name)] >> 2 for name in "xy")
        models = planes["motion_model"][y, x]
        coding = replace(
            coding,
            vectors=np.stack([planes["mv_l0"], planes["mv_l1"]]),
            references=np.stack([planes["ref_idx_l0"], planes["ref_idx_l1"]]),
        )
    if "bs_v" in planes:
        coding = replace(coding, strengths=_cells(planes, offset))
    coding = replace(
        coding,
        blocks=blocks_of_units(syntax.units, syntax.inter, models),
        transforms=_transform_units(syntax.blocks, syntax.units),
    )
    height, width = planes["rec_y"].shape
    headers = [part.header for part in picture.slices]
    return CodedPicture(
        number=number,
        poc=picture.poc,
        slice_type=max((header.slice_type for header in headers), key="IPB".index),
        slice_qps=tuple(header.slice_qp_y for header in headers),
        temporal_id=picture.temporal_id,
        form=VideoFormat(width, height, CHROMA_FORMATS[sps.sps_chroma_format_idc], sps.bit_depth),
        planes=planes,
        coding=coding,
        table=table_of_units(syntax.units, np.full(len(syntax.units), number, np.int32)),
        hash=state,
        notes=notes,
    )


def _cells(planes: Mapping[str, Plane], offset: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return one value of each 4x4 cell of the planes of boundary strengths, which begin at `offset` in the cells."""
    left, top = offset
    height, width = planes["bs_v"].shape
    rows = np.maximum(np.arange(top >> 2, (top + height + 3) >> 2) * 4 - top, 0)
    columns = np.maximum(np.arange(left >> 2, (left + width + 3) >> 2) * 4 - left, 0)
    return np.stack([planes[name][np.ix_(rows, columns)] for name in ("bs_v", "bs_h")]).astype(np.uint8)


def _transform_units(blocks: Ints, units: Ints) -> Ints:
    """Return luma blocks, and those of Cb where chroma has a separate tree."""
    columns = dict(zip(BLOCK_COLUMNS, blocks.T, strict=True))
    channel = np.where(columns["component"] == 0, LUMA, CHROMA)
    rows = np.column_stack([channel, *(columns[name] for name in TRANSFORM_COLUMNS[1:])])
    separate = bool((units[:, 0] == CHROMA).any())
    kept: Ints = rows[(columns["component"] == 0) | (separate & (columns["component"] == 1))]
    return kept.astype(np.int32)
