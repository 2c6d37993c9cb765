"""VVC bitstreams as tables: headers of the pictures, CUs with their modes and QPs, and transform blocks."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.base.errors import EncoderError, FormatError, MissingFileError
from codecnn.codec.base import CodedSequence
from codecnn.codec.blocks.table import ALL_COLUMNS, INTRA, UNKNOWN, BlockTable
from codecnn.pictures.files import VVC_SUFFIXES as VVC_SUFFIXES
from codecnn.pictures.files import byte_stream, warn
from codecnn.vvc.syntax import CHROMA_FORMATS, CU_COLUMNS, ParsedPicture, read_pictures

READER_VERSION = 1
"""Version of the VVC reader in cache keys; increase it with every change that alters the table of a stream."""

COMPONENTS = ("Y", "Cb", "Cr")

_SLICE_TYPE_ORDER = {"I": 0, "P": 1, "B": 2}

Rows = npt.NDArray[np.int32]
"""Rows of one picture, shape (n, columns)."""


@dataclass(frozen=True)
class StreamPicture:
    """One picture of a bitstream of VVC, HEVC, AVC or AV1.

    Attributes:
        position: Position in output order; None for a picture that is not output.
        poc: Picture order count within its coded video sequence.
        temporal_id: Temporal sub-layer.
        slice_type: Most general type of its slices: "I", "P" or "B".
        slice_qps: QP of every slice.
    """

    position: int | None
    poc: int
    temporal_id: int
    slice_type: str
    slice_qps: tuple[int, ...]


@dataclass(frozen=True)
class StreamInfo:
    """Headers of a bitstream of VVC, HEVC, AVC or AV1; the geometry is that of the first picture.

    Attributes:
        width: Width in luma samples, cropped to the conformance window.
        height: Height in luma samples, cropped to the conformance window.
        chroma: Chroma format: "400", "420", "422" or "444".
        bit_depth: Bit depth of luma.
        ctu_size: Size of CTUs, macroblocks or superblocks in luma samples.
        pictures: All pictures in decoding order.
        fields: The pictures are single fields of interlaced video, of half its height.
        block_qps: Blocks may have other QPs than their slice, as perceptual adaptation and rate control choose them.
    """

    width: int
    height: int
    chroma: str
    bit_depth: int
    ctu_size: int
    pictures: tuple[StreamPicture, ...]
    fields: bool = False
    block_qps: bool = False


def stream_info(path: Path | str) -> StreamInfo:
    """Read the headers of a VVC stream; slice data is not parsed, and one picture at a time is in memory.

    Args:
        path: Byte stream (H.266 Annex B), or a container with a VVC stream, see `codecnn.pictures.files.byte_stream`.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    path = Path(path)
    first: ParsedPicture | None = None
    headers = []
    for picture in _pictures(path, str(path)):
        first = first or picture
        headers.append(_PictureHeader.of(picture))
    assert first is not None  # a stream without pictures is an error
    sps, pps = first.sps, first.pps
    window = pps.conformance_window
    return StreamInfo(
        width=pps.pps_pic_width_in_luma_samples - ((window.left + window.right) << sps.log2_sub_width_c),
        height=pps.pps_pic_height_in_luma_samples - ((window.top + window.bottom) << sps.log2_sub_height_c),
        chroma=CHROMA_FORMATS[sps.sps_chroma_format_idc],
        bit_depth=sps.bit_depth,
        ctu_size=1 << sps.ctb_log2_size_y,
        pictures=_stream_pictures(headers, str(path)),
        fields=sps.sps_field_seq_flag,
        block_qps=bool(pps.pps_cu_qp_delta_enabled_flag),
    )


def stream_table(path: Path | str) -> BlockTable:
    """Read every CU of a VVC stream in decoding order; the file is that of `stream_info`.

    The table equals the block statistics that VTM traces. `poc` is the position in output order; pictures that are not
    output are left out. Rows of a separate chroma tree have no modes, and the QP of the luma CU at their centre.
    `intra_mode` is the index of the matrix where `mip` is 1. CUs end at the border of the coded picture, which is
    padded to whole 8x8 blocks. The first call on a machine compiles for about a minute.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    path = Path(path)
    return _table(_read(path, str(path)), str(path))


def coded_table(sequence: CodedSequence) -> BlockTable:
    """Read the CUs of a coded sequence from its VVC bitstream, and check the bitstream against the encoder's log.

    Error messages name the bitstream without its folder.

    Raises:
        MissingFileError: The sequence has no bitstream.
        EncoderError: Output order, slice type or slice QP of a picture differs from the log.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    if sequence.bitstream is None:
        raise MissingFileError(f"there is no bitstream for {sequence.decoded}")
    name = sequence.bitstream.name
    pictures = _read(sequence.bitstream, name)
    listed = _stream_pictures([_PictureHeader.of(picture) for picture in pictures], name)
    parsed = sorted((p.position, p.slice_type, p.slice_qps) for p in listed if p.position is not None)
    logged = [(picture.poc, picture.slice_type, picture.qp) for picture in sequence.pictures]
    for in_stream, in_log in zip_longest(parsed, logged):
        if in_stream is None or in_log is None or in_stream[:2] != in_log[:2] or set(in_stream[2]) != {in_log[2]}:
            raise EncoderError(
                f"{name} holds the picture (position, type, QPs) {in_stream}, the encoder's log {in_log}"
            )
    return _table(pictures, name)


def stream_transform_blocks(path: Path | str) -> pa.Table:
    """Read every transform block of a VVC stream in decoding order; the file is that of `stream_info`.

    CUs without a transform tree (skipped and palette CUs) have no row.

    Returns:
        An Arrow table with one row per block. All columns are int32 except `component`:

        - poc: position in output order; pictures that are not output are left out
        - component: "Y", "Cb" or "Cr"
        - x, y, w, h: in luma samples, also for chroma
        - cbf: 1 if the block is coded
        - ts: 1 if it has no transform (transform skip, including BDPCM)
        - mts: mts_idx of the CU; 0 for chroma
        - tr_hor, tr_ver: 0 DCT-II (also without a transform), 1 DST-VII, 2 DCT-VIII
        - lfnst: lfnst_idx if it applies to this block
        - bdpcm: 0 none, 1 horizontal, 2 vertical
        - joint_cbcr: 0, or non-zero if one residual codes both chroma components: 1 coded as Cr, 2 or 3 coded as Cb
        - nonzero: number of non-zero levels

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    # Imported here because numba takes half a second to import and headers do not need it.
    from codecnn.vvc.syntax import BLOCK_COLUMNS, transform_blocks

    path = Path(path)
    rows, poc = _output_rows(_read(path, str(path)), str(path), transform_blocks, len(BLOCK_COLUMNS))
    columns = {"poc": pa.array(poc), "component": pa.array(np.array(COMPONENTS, dtype=object)[rows[:, 0]], pa.string())}
    return pa.table(columns | {name: pa.array(rows[:, 1 + i]) for i, name in enumerate(BLOCK_COLUMNS[1:])})


def read_output_pictures(path: Path | str) -> list[ParsedPicture]:
    """Read the pictures that a VVC stream outputs, in output order, as `codecnn.vvc.syntax` parses their headers.

    Slice data is not parsed. Raises the errors of `stream_info`.
    """
    pictures = _read(Path(path), str(path))
    by_position = dict(zip(_positions(pictures, str(path)), pictures, strict=True))
    return [by_position[position] for position in sorted(key for key in by_position if key is not None)]


def first_references(path: Path | str, count: int) -> list[tuple[int, int]]:
    """Return which pictures the first entries of the reference picture lists are.

    Args:
        path: VVC stream.
        count: Number of pictures that are used, from the first one in output order on.

    Returns:
        For each of these pictures, the positions in output order of the first picture of list 0 and of list 1, of the
        first slice that has the list. It is the position of the picture itself if it has I slices only, if no slice
        has the list, and if the reference picture is missing, is not output, or is not among the `count` pictures.

    Raises:
        FormatError: The stream is damaged, or has fewer pictures.
    """
    pictures = read_output_pictures(path)
    if len(pictures) < count:
        raise FormatError(f"{path} has the headers of {len(pictures)} pictures, and {count} were decoded")
    positions = {(picture.cvs, picture.poc): position for position, picture in enumerate(pictures[:count])}

    def first(number: int, reference_list: int) -> int:
        picture = pictures[number]
        entries = [part.references[reference_list] for part in picture.slices if part.references[reference_list]]
        return positions.get((picture.cvs, entries[0][0][1]), number) if entries else number

    return [(first(number, 0), first(number, 1)) for number in range(count)]


def stream_units(path: Path) -> list[Rows]:
    """Read the coding units of every picture in decoding order: (n, columns) of `vvc.syntax.CU_COLUMNS`.

    Raises the errors of `stream_table`.
    """
    from codecnn.vvc.syntax import coding_units

    return read_rows(coding_units, _read(path, str(path)), str(path))


def output_units(path: Path | str) -> tuple[Rows, npt.NDArray[np.int32]]:
    """Read the coding units of the pictures that a stream outputs, in decoding order.

    Returns:
        Coding units, shape (n, columns) with `codecnn.vvc.syntax.CU_COLUMNS`, and the position of the picture of each
        one in output order, shape (n,).

    Raises the errors of `stream_table`.
    """
    from codecnn.vvc.syntax import coding_units

    path = Path(path)
    return _output_rows(_read(path, str(path)), str(path), coding_units, len(CU_COLUMNS))


def table_of_units(units: Rows, poc: npt.NDArray[np.int32]) -> BlockTable:
    """Convert coding units to a table.

    Args:
        units: Coding units as `codecnn.vvc.syntax.coding_units` reads them, shape (n, columns).
        poc: POC of every unit, shape (n,).
    """
    columns: dict[str, Any] = dict(zip(CU_COLUMNS, units.T, strict=True)) | {"poc": poc}
    columns["depth"] = columns["qt_depth"] + columns["mt_depth"]
    intra = columns["pred_mode"] == INTRA
    columns |= {name: np.where(intra, columns[name], UNKNOWN) for name in ("mip", "isp", "mrl")}
    return BlockTable(**{name: columns[name] for name in ALL_COLUMNS})


def read_rows(read: Callable[[ParsedPicture], Rows], pictures: Sequence[ParsedPicture], name: str) -> list[Rows]:
    """Apply `read` to every picture; its errors get the name of the stream and the POC."""
    rows = []
    for picture in pictures:
        try:
            rows.append(read(picture))
        except FormatError as error:
            raise type(error)(f"{name}, POC {picture.poc}: {error}") from None
    return rows


def _table(pictures: Sequence[ParsedPicture], name: str) -> BlockTable:
    from codecnn.vvc.syntax import coding_units

    return table_of_units(*_output_rows(pictures, name, coding_units, len(CU_COLUMNS)))


def _output_rows(
    pictures: Sequence[ParsedPicture], name: str, read: Callable[[ParsedPicture], Rows], columns: int
) -> tuple[Rows, npt.NDArray[np.int32]]:
    """Return the rows of all pictures that are output, and the position in output order of each row."""
    rows, positions = [np.zeros((0, columns), np.int32)], [np.zeros(0, np.int32)]
    for part, position in zip(read_rows(read, pictures, name), _positions(pictures, name), strict=True):
        if position is not None:
            rows.append(part)
            positions.append(np.full(len(part), position, np.int32))
    return np.concatenate(rows), np.concatenate(positions)


def _read(path: Path, name: str) -> list[ParsedPicture]:
    return list(_pictures(path, name))


def _pictures(path: Path, name: str) -> Iterator[ParsedPicture]:
    """Yield the pictures of a stream in decoding order."""
    if not path.is_file():
        raise MissingFileError(f"{name} does not exist")
    stream = byte_stream(path, ("vvc",), name)
    try:
        with stream.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, picture in enumerate(read_pictures(data)):
                if number == 0 and picture.sps.sps_field_seq_flag:
                    warn_of_fields(name)
                yield picture
    except FormatError as error:
        raise type(error)(f"{name}: {error}") from None


def warn_of_fields(name: str) -> None:
    """Log a warning that the pictures of the stream `name` are fields."""
    warn(f"{name} codes interlaced video: its pictures are single fields of half the height of a frame")


class _PictureHeader(NamedTuple):
    """Values of a picture for `StreamPicture` and for the output order."""

    cvs: int
    poc: int
    output: bool
    temporal_id: int
    slice_type: str
    slice_qps: tuple[int, ...]

    @staticmethod
    def of(picture: ParsedPicture) -> "_PictureHeader":
        return _PictureHeader(
            cvs=picture.cvs,
            poc=picture.poc,
            output=picture.output,
            temporal_id=picture.temporal_id,
            slice_type=max((part.header.slice_type for part in picture.slices), key=_SLICE_TYPE_ORDER.__getitem__),
            slice_qps=tuple(part.header.slice_qp_y for part in picture.slices),
        )


def _stream_pictures(headers: Sequence[_PictureHeader], name: str) -> tuple[StreamPicture, ...]:
    return tuple(
        StreamPicture(position, header.poc, header.temporal_id, header.slice_type, header.slice_qps)
        for header, position in zip(headers, _positions(headers, name), strict=True)
    )


def _positions(pictures: Sequence[ParsedPicture | _PictureHeader], name: str) -> list[int | None]:
    """Return the position of each picture in output order, by sequence, then by POC; None if it is not output.

    Output order is that of H.266 clause C.5.2.
    """
    keys = [(picture.cvs, picture.poc) for picture in pictures]
    known: set[tuple[int, int]] = set()
    for key in keys:
        if key in known:
            raise FormatError(f"{name}: two pictures have the POC {key[1]}")
        known.add(key)
    output = sorted(key for key, picture in zip(keys, pictures, strict=True) if picture.output)
    ranks = {key: position for position, key in enumerate(output)}
    return [ranks.get(key) for key in keys]
