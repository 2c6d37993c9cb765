"""Reader of x265's analysis file (`analysis-save`, reuse level 10): the coding tree of every coded picture.

The layout is that of `Encoder::writeAnalysisFile` in x265's source/encoder/encoder.cpp (build 217): a header of 20
int32, then one record per picture in coding order, little-endian without padding. Entries follow the z-order of each
CTU, one per CU; an inter CU has one entry per PU, of which only the first is complete.
"""

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError, MissingFileError
from codecnn.base.files import atomic_path
from codecnn.codec.blocks.table import COLUMNS, INTER, INTRA, LUMA, UNKNOWN, BlockTable

_HEADER = struct.Struct("<20i")
_RECORD = struct.Struct("<IIiiiqii")
_REUSE_LEVEL = 10
_MAX_SIDE = 16384
"""Largest plausible width or height; level 6.2 of HEVC ends at 8192x4320 (H.265 table A.8)."""

_MIN_PARTITION = 4
_WEIGHT_BYTES = 16
_MV_BYTES = 8
_DISTORTION_BYTES = 8
_IDR, _I, _P = 1, 2, 3
_LAST_TYPE = 5

_LAST_INTRA_MODE = 34
"""Largest intra mode of HEVC (H.265 table 8-1)."""

_MODE_INTRA = 2
"""predMode of an intra CU in x265: bit 0 inter, bit 1 intra, bit 2 skip; 0 is outside the picture."""

_PUS = np.array([1, 2, 2, 4, 2, 2, 2, 2])
"""Number of PUs of an inter CU by partSize: 2Nx2N, 2NxN, Nx2N, NxN, 2NxnU, 2NxnD, nLx2N, nRx2N (H.265 table 7-10)."""

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Header:
    width: int
    height: int
    ctu_size: int
    min_cu_size: int
    cu_tree: bool
    ctu_distortion: bool

    @property
    def ctu_columns(self) -> int:
        return ceil_div(self.width, self.ctu_size)

    @property
    def ctus(self) -> int:
        return self.ctu_columns * ceil_div(self.height, self.ctu_size)

    @property
    def partitions(self) -> int:
        """Number of 4x4 partitions of a CTU."""
        return (self.ctu_size // _MIN_PARTITION) ** 2


@dataclass(frozen=True)
class _Entries:
    """Entries of one picture: depth, predMode and partSize, shape (n,); luma modes per 4x4 partition, or None."""

    depth: Bytes
    pred_mode: Bytes
    part_size: Bytes
    luma_modes: Bytes | None


def read_x265_analysis(path: Path | str, slice_qp: Mapping[int, int] | None = None) -> BlockTable:
    """Read every luma CU of an x265 analysis file, pictures in coding order and CUs in z-order.

    In the table, `poc` is the position in output order, `qt_depth` equals `depth`, and `mt_depth` is 0, because HEVC
    splits by quadtree only. `pred_mode` is 0 for inter, merge and skip, and 1 for intra. `intra_mode` is HEVC's 0 to
    34, for an NxN CU that of its first quarter. `qp` is -1 if `slice_qp` is omitted, or if the file was written with
    cutree, which changes the QP per CU. CUs that begin outside the picture are left out.

    Args:
        path: The analysis file.
        slice_qp: Slice QP by POC.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file is truncated, has another reuse level, or has another layout.
    """
    pictures: list[dict[str, Ints]] = []
    with _open(Path(path)) as file:
        header = _read_header(file)
        qps = {} if header.cu_tree or slice_qp is None else slice_qp
        for poc, entries in _pictures(file.read(), header):
            picture = _picture_columns(entries, header, poc)
            rows = len(picture["x"])
            pictures.append(picture | {"poc": np.full(rows, poc), "qp": np.full(rows, qps.get(poc, UNKNOWN))})
    return BlockTable(*(np.concatenate([picture[name] for picture in pictures]).astype(np.int32) for name in COLUMNS))


def clear_stale_entries(path: Path | str) -> None:
    """Zero the bytes of an analysis file that x265 does not initialise, so that equal runs give equal files.

    These are the depth, mode and part size of the second and further PUs of a CU. Raises the errors of
    `read_x265_analysis`.
    """
    path = Path(path)
    with _open(path) as file:
        header = _read_header(file)
        file.seek(0)
        head, data = file.read(_HEADER.size), bytearray(file.read())
        for poc, entries in _pictures(data, header):
            stale = np.ones(len(entries.depth), bool)
            stale[_first_entries(entries, poc)] = False
            if stale.any():
                for column in (entries.depth, entries.pred_mode, entries.part_size):
                    column[stale] = 0
    with atomic_path(path) as part:
        part.write_bytes(head + data)


def coded_size(path: Path | str) -> tuple[int, int]:
    """Return the coded width and height of the pictures of an analysis file: padded to whole minimum CUs.

    Raises the errors of `read_x265_analysis`.
    """
    with _open(Path(path)) as file:
        header = _read_header(file)
    unit = header.min_cu_size
    return ceil_div(header.width, unit) * unit, ceil_div(header.height, unit) * unit


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open the file for reading; a FormatError that is raised while it is read gets the file's name."""
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    try:
        with path.open("rb") as file:
            yield file
    except FormatError as error:
        raise FormatError(f"{path} is not an x265 analysis file of reuse level {_REUSE_LEVEL}: {error}") from None


def _read_header(file: BinaryIO) -> _Header:
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        raise FormatError(f"its header has {len(data)} of {_HEADER.size} bytes")
    values = _HEADER.unpack(data)
    min_cu_size, distortion, level, cu_tree, width, height, ctu_size = (values[i] for i in (9, 13, 15, 16, 17, 18, 19))
    if not (0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE):
        raise FormatError(f"its header has a picture size of {width}x{height}")
    if ctu_size not in (16, 32, 64) or min_cu_size not in (8, 16, 32, 64) or min_cu_size > ctu_size:
        raise FormatError(f"its header has CTUs of {ctu_size} with CUs from {min_cu_size}")
    if level != _REUSE_LEVEL:
        raise FormatError(f"its header has reuse level {level}")
    return _Header(width, height, ctu_size, min_cu_size, cu_tree != 0, distortion == 1)


def _pictures(data: bytes | bytearray, header: _Header) -> Iterator[tuple[int, _Entries]]:
    """Yield POC and entries of each picture; the entries of P and B pictures are views into `data`."""
    samples, offset, seen = np.frombuffer(data, np.uint8), 0, set()
    while offset < len(data):
        at = f"the record at byte {_HEADER.size + offset}"
        if offset + _RECORD.size > len(data):
            raise FormatError(f"it ends inside {at}")
        size, count, poc, slice_type, _, _, ctus, partitions = _RECORD.unpack_from(data, offset)
        if size < _RECORD.size or offset + size > len(data):
            raise FormatError(f"{at} states {size} bytes, and {len(data) - offset} are left")
        if (ctus, partitions) != (header.ctus, header.partitions) or not _IDR <= slice_type <= _LAST_TYPE:
            raise FormatError(f"{at} has {ctus} CTUs of type {slice_type}")
        if poc < 0 or poc in seen:
            raise FormatError(f"{at} has POC {poc}, negative or seen before")
        seen.add(poc)
        body = samples[offset + _RECORD.size : offset + size]
        if slice_type in (_IDR, _I):
            yield poc, _intra_entries(body, count, header, poc)
        else:
            yield poc, _inter_entries(body, count, 1 if slice_type == _P else 2, header, poc)
        offset += size
    if not seen:
        raise FormatError("it contains no picture")


def _intra_entries(body: Bytes, entries: int, header: _Header, poc: int) -> _Entries:
    """Read an I picture: depth, chroma mode, part size, [QP offset] per entry, luma modes per partition."""
    modes = header.ctus * header.partitions
    start = _DISTORTION_BYTES * header.ctus * header.ctu_distortion
    if len(body) != start + entries * (3 + header.cu_tree) + modes:
        raise FormatError(f"POC {poc} has {len(body)} bytes for {entries} entries")
    return _Entries(
        depth=body[start : start + entries],
        pred_mode=np.full(entries, _MODE_INTRA, np.uint8),
        part_size=np.zeros(entries, np.uint8),
        luma_modes=body[len(body) - modes :],
    )


def _inter_entries(body: Bytes, entries: int, directions: int, header: _Header, poc: int) -> _Entries:
    """Read a P or B picture: weights, then depth, mode, [QP offset], part size, merge flag, direction, vectors.

    The file does not contain the number of weighted planes (1 or 3), nor whether intra modes follow; the size of the
    record fits one combination only.
    """
    modes = header.ctus * header.partitions
    start = _DISTORTION_BYTES * header.ctus * header.ctu_distortion
    fixed = start + entries * (5 + header.cu_tree + directions * (2 + _MV_BYTES))
    for planes in (3, 1):
        weights = _WEIGHT_BYTES * planes * directions
        for with_intra in (True, False):
            if len(body) == fixed + weights + with_intra * (entries + modes):
                start += weights
                part_start = start + entries * (2 + header.cu_tree)
                return _Entries(
                    depth=body[start : start + entries],
                    pred_mode=body[start + entries : start + 2 * entries],
                    part_size=body[part_start : part_start + entries],
                    luma_modes=body[len(body) - modes :] if with_intra else None,
                )
    raise FormatError(f"POC {poc} has {len(body)} bytes for {entries} entries")


def _picture_columns(entries: _Entries, header: _Header, poc: int) -> dict[str, Ints]:
    """Convert the entries of a picture to columns, without CUs that begin outside the picture."""
    first = _first_entries(entries, poc)
    depth = entries.depth[first].astype(np.int64)
    deepest = (header.ctu_size // header.min_cu_size).bit_length() - 1
    if np.any(depth > deepest):
        raise FormatError(f"POC {poc} has a CU of depth {depth.max()}, deeper than {deepest}")
    step = header.partitions >> (2 * depth)
    start = np.cumsum(step) - step
    if int(step.sum()) != header.ctus * header.partitions or np.any(start % step):
        raise FormatError(f"the CUs of POC {poc} do not fill its CTUs")
    ctu, z = np.divmod(start, header.partitions)
    x = ctu % header.ctu_columns * header.ctu_size + _MIN_PARTITION * _even_bits(z)
    y = ctu // header.ctu_columns * header.ctu_size + _MIN_PARTITION * _even_bits(z >> 1)
    intra = entries.pred_mode[first] == _MODE_INTRA
    modes = np.full(len(start), UNKNOWN)
    if entries.luma_modes is not None:
        modes[intra] = entries.luma_modes[start[intra]]
    inside = (x < header.width) & (y < header.height)
    if modes[inside].max() > _LAST_INTRA_MODE:
        raise FormatError(f"POC {poc} has intra mode {modes[inside].max()}, beyond {_LAST_INTRA_MODE}")
    columns = {
        "channel": np.full(len(start), LUMA),
        "x": x,
        "y": y,
        "w": header.ctu_size >> depth,
        "h": header.ctu_size >> depth,
        "depth": depth,
        "qt_depth": depth,
        "mt_depth": np.zeros_like(depth),
        "pred_mode": np.where(intra, INTRA, INTER),
        "intra_mode": modes,
    }
    return {name: values[inside] for name, values in columns.items()}


def _first_entries(entries: _Entries, poc: int) -> Ints:
    """Return the indices of the entries that begin a CU; the entries of its further PUs contain stale bytes."""
    pus = np.where(entries.pred_mode == _MODE_INTRA, 1, _PUS[np.minimum(entries.part_size, len(_PUS) - 1)])
    if np.all(pus == 1):
        return np.arange(len(pus))
    steps, first, position = pus.tolist(), [], 0
    while position < len(steps):
        first.append(position)
        position += steps[position]
    if position != len(steps):
        raise FormatError(f"the last CU of POC {poc} lacks a PU")
    return np.array(first, np.int64)


def _even_bits(z: Ints) -> Ints:
    """Extract bits 0, 2, 4 and 6 of a z-order index as one number (a CTU has at most 256 partitions)."""
    return (z & 1) | (z >> 1 & 2) | (z >> 2 & 4) | (z >> 3 & 8)
