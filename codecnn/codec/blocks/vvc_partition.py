"""What a VVC bitstream itself tells of its pictures: headers, and every CU with its depth, mode and QP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec.base import CodedSequence
from codecnn.codec.blocks.table import ALL_COLUMNS, BlockTable
from codecnn.errors import EncoderError, FormatError, MissingFileError
from codecnn.vvc import CHROMA_FORMATS, CU_COLUMNS, Picture, read_pictures

SUFFIXES: tuple[str, ...] = (".266", ".vvc", ".h266")
"""Names of VVC elementary streams."""

READER = 1
"""Goes up with every change after which a stream gives another table, for the keys of what is made from one."""

_ORDER = {"I": 0, "P": 1, "B": 2}

Rows = npt.NDArray[np.int32]
"""What is read of a picture, (n, columns)."""


@dataclass(frozen=True)
class StreamPicture:
    """One picture of a stream: position in output order (None where it is not shown), POC, temporal id, most general
    type of its slices, their QPs."""

    position: int | None
    poc: int
    temporal_id: int
    slice_type: str
    slice_qps: tuple[int, ...]


@dataclass(frozen=True)
class StreamInfo:
    """Size without the conformance window's margin, chroma format, bit depth and CTU size of the first picture of a
    stream; all pictures in decoding order."""

    width: int
    height: int
    chroma: str
    bit_depth: int
    ctu_size: int
    pictures: tuple[StreamPicture, ...]


def stream_info(path: Path | str) -> StreamInfo:
    """The headers of a VVC byte stream (Annex B); slice data is not parsed.

    Raises MissingFileError, FormatError for damage, and UnsupportedError for what codecnn does not read.
    """
    path = Path(path)
    pictures = _read(path, str(path))
    sps, pps = pictures[0].sps, pictures[0].pps
    window = pps.conformance_window
    return StreamInfo(
        width=pps.pps_pic_width_in_luma_samples - ((window.left + window.right) << sps.log2_sub_width_c),
        height=pps.pps_pic_height_in_luma_samples - ((window.top + window.bottom) << sps.log2_sub_height_c),
        chroma=CHROMA_FORMATS[sps.sps_chroma_format_idc],
        bit_depth=sps.bit_depth,
        ctu_size=1 << sps.ctb_log2_size_y,
        pictures=_listed(pictures, str(path)),
    )


def stream_table(path: Path | str) -> BlockTable:
    """Every CU of a VVC byte stream (Annex B), in decoding order, equal to what VTM traces as block statistics.

    `poc` is the position in output order; pictures that are not shown are left out. Rows of a separate chroma tree
    have no modes and the QP of the luma at their centre. `intra_mode` is the MIP index for a MIP CU. A CU does not
    reach past the coded picture, which is padded to whole 8x8 blocks. The first call ever compiles for about a minute.

    Raises MissingFileError, FormatError for damage, and UnsupportedError for what codecnn does not read.
    """
    path = Path(path)
    return _table(_read(path, str(path)), str(path))


def coded_table(sequence: CodedSequence) -> BlockTable:
    """`stream_table` of a coded sequence, whose pictures must be those of the encoder's log.

    Raises EncoderError unless each picture has the place in output order, the slice type and the slice QP that the log
    states, and what `stream_table` raises; the errors name the bitstream without its folder.
    """
    if sequence.bitstream is None:
        raise MissingFileError(f"{sequence.decoded} has no bitstream beside it")
    name = sequence.bitstream.name
    pictures = _read(sequence.bitstream, name)
    listed = _listed(pictures, name)
    read = sorted((one.position, one.slice_type, one.slice_qps) for one in listed if one.position is not None)
    logged = [(one.poc, one.slice_type, one.qp) for one in sequence.pictures]
    for found, stated in zip_longest(read, logged):
        if found is None or stated is None or found[:2] != stated[:2] or set(found[2]) != {stated[2]}:
            raise EncoderError(f"{name} holds the picture (place, type, QPs) {found}, the encoder's log {stated}")
    return _table(pictures, name)


def shown_pictures_of(path: Path | str) -> list[Picture]:
    """The pictures that a VVC byte stream shows, in output order; slice data is not parsed. Raises as `stream_info`."""
    pictures = _read(Path(path), str(path))
    found = dict(zip(_positions(pictures, str(path)), pictures, strict=True))
    return [found[position] for position in sorted(one for one in found if one is not None)]


def stream_units(path: Path) -> list[npt.NDArray[np.int32]]:
    """The coding units of every picture in decoding order, (n, columns) as in `codecnn.vvc.state.CU_COLUMNS`.

    Raises as `stream_table`.
    """
    from codecnn.vvc import coding_units

    return rows_of(coding_units, _read(path, str(path)), str(path))


def of_shown_pictures(path: Path, read: Callable[[Picture], Rows], columns: int) -> tuple[Rows, npt.NDArray[np.int32]]:
    """What `read` gives of each picture that a VVC byte stream shows, and the place in output order of each row.

    Raises as `stream_table`.
    """
    return _shown(_read(path, str(path)), str(path), read, columns)


def _table(pictures: Sequence[Picture], name: str) -> BlockTable:
    # numba takes half a second to import, which headers do not need.
    from codecnn.vvc import coding_units

    return table_of_units(*_shown(pictures, name, coding_units, len(CU_COLUMNS)))


def _shown(
    pictures: Sequence[Picture], name: str, read: Callable[[Picture], Rows], columns: int
) -> tuple[Rows, npt.NDArray[np.int32]]:
    rows, places = [np.zeros((0, columns), np.int32)], [np.zeros(0, np.int32)]
    for part, position in zip(rows_of(read, pictures, name), _positions(pictures, name), strict=True):
        if position is not None:
            rows.append(part)
            places.append(np.full(len(part), position, np.int32))
    return np.concatenate(rows), np.concatenate(places)


def table_of_units(units: npt.NDArray[np.int32], poc: npt.NDArray[np.int32]) -> BlockTable:
    """The table of coding units (n, columns) as `codecnn.vvc.parsed_units` reads them, in pictures `poc` of (n,)."""
    columns: dict[str, Any] = dict(zip(CU_COLUMNS, units.T, strict=True)) | {"poc": poc}
    columns["depth"] = columns["qt_depth"] + columns["mt_depth"]
    return BlockTable(**{name: columns[name] for name in ALL_COLUMNS})


def rows_of(read: Callable[[Picture], Rows], pictures: Sequence[Picture], name: str) -> list[Rows]:
    """What `read` gives of each of some pictures; errors name the stream `name` and the picture."""
    rows = []
    for picture in pictures:
        try:
            rows.append(read(picture))
        except FormatError as error:
            raise type(error)(f"{name}, POC {picture.poc}: {error}") from None
    return rows


def _read(path: Path, name: str) -> list[Picture]:
    if not path.is_file():
        raise MissingFileError(f"{name} does not exist")
    try:
        return list(read_pictures(path.read_bytes()))
    except FormatError as error:
        raise type(error)(f"{name}: {error}") from None


def _listed(pictures: Sequence[Picture], name: str) -> tuple[StreamPicture, ...]:
    return tuple(
        StreamPicture(
            position=position,
            poc=picture.poc,
            temporal_id=picture.temporal_id,
            slice_type=max((part.header.slice_type for part in picture.slices), key=_ORDER.__getitem__),
            slice_qps=tuple(part.header.slice_qp_y for part in picture.slices),
        )
        for picture, position in zip(pictures, _positions(pictures, name), strict=True)
    )


def _positions(pictures: Sequence[Picture], name: str) -> list[int | None]:
    """The position of each picture in output order (clause C.5.2: by sequence, then by POC); None where not shown."""
    keys = [(picture.cvs, picture.poc) for picture in pictures]
    if len(set(keys)) < len(keys):
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise FormatError(f"{name}: two pictures have the POC {twice[1]}")
    shown = sorted(key for key, picture in zip(keys, pictures, strict=True) if picture.output)
    rank = {key: position for position, key in enumerate(shown)}
    return [rank.get(key) for key in keys]
