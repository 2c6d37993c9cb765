"""VTM block statistics (VTMBMS files): the reader of VTM's traces, and the writer of files that YUView displays.

VTM writes them with D_BLOCK_STATISTICS_ALL or D_BLOCK_STATISTICS_CODED, as text or as CSV; the reader takes both. The
writer produces the text form of VTM's source/Lib/CommonLib/dtrace_blockstatistics.cpp as YUView's
StatisticsFileVTMBMS.cpp reads it: header lines name the picture size and each statistic with its colour range, then
there is one line per block and statistic. All lines of a picture are contiguous, because YUView stores one file
position per POC. YUView opens uncompressed files only.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError, MissingFileError, TableError
from codecnn.base.files import atomic_path
from codecnn.codec.blocks.table import CHROMA, INTRA, LUMA, UNKNOWN, BlockTable

VALUES = ("depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp", "lfnst", "bdpcm", "cbf_y", "ts_y", "mts")
"""Columns of the CU table that VTM traces."""

STATISTICS = {
    "Depth": (LUMA, 0),
    "QT_Depth": (LUMA, 1),
    "MT_Depth": (LUMA, 2),
    "PredMode": (LUMA, 3),
    "Luma_IntraMode": (LUMA, 4),
    "QP": (LUMA, 5),
    "LFNSTIdx": (LUMA, 6),
    "BDPCM": (LUMA, 7),
    "Depth_Chroma": (CHROMA, 0),
    "QT_Depth_Chroma": (CHROMA, 1),
    "MT_Depth_Chroma": (CHROMA, 2),
    "QP_Chroma": (CHROMA, 5),
}
"""Channel and index into `VALUES` of VTM's statistics of CUs. Statistics with other names are skipped."""

CBF, MTS = TRANSFORM_STATISTICS = ("Cbf_Y", "MTS_Y")
"""Statistics of luma transform blocks, which follow their CU in a trace.

Cbf_Y is 0 or the depth of the transform tree plus 1. MTS_Y is 0 for DCT-II, 1 for transform skip, else mts_idx + 1.
"""

POSITION_COLUMNS = ("poc", "x", "y", "w", "h")
"""Columns that give the position of a block, in luma samples."""

RANGES = {
    "depth": (0, 10),
    "qt_depth": (0, 7),
    "mt_depth": (0, 7),
    "pred_mode": (0, 4),
    "intra_mode": (0, 70),
    "qp": (0, 63),
    "lfnst": (0, 3),
    "bdpcm": (0, 2),
}
"""Colour ranges of the statistics: those of VTM, with three exceptions.

QP ends at 63, where VTM has HEVC's 51. Depth ends at 10, where VTM has 7 for luma and 10 for chroma. Flags have a
range, where VTM has none.
"""

_NAMES = frozenset((*STATISTICS, *TRANSFORM_STATISTICS))
_CBF_INDEX, _TS_INDEX, _MTS_INDEX = (VALUES.index(name) for name in ("cbf_y", "ts_y", "mts"))
_PRED_INDEX, _INTRA_INDEX = (VALUES.index(name) for name in ("pred_mode", "intra_mode"))

_TEXT_LINE = re.compile(
    r"BlockStat: POC (\d{1,9}) @\( *(\d{1,9}), *(\d{1,9})\) \[ *(\d{1,9})x *(\d{1,9})\] \w+=(-?\d{1,9})\s*"
)
_CSV_LINE = re.compile(r"BlockStat;" + r" *(\d{1,9});" * 5 + r" *\w+; *(-?\d{1,9})\s*")
_SIZE_LINE = re.compile(r"# Sequence size: \[ *(\d{1,9})x *(\d{1,9})\]")
_MAX_LINE = 65536
_ROWS_PER_CHUNK = 16384

_Cu = tuple[int, int, int, int, int, int]
"""poc, channel, x, y, w, h."""

Range = tuple[int, int]
Columns = Mapping[str, npt.NDArray[np.integer]]


def read_vtm_stats(path: Path | str) -> BlockTable:
    """Read the CUs of a VTM block-statistics trace in the order of the trace.

    Luma rows are the CUs of the luma tree or the shared tree, CHROMA rows those of a separate chroma tree, in luma
    samples. The picture size is the coded one, padded to whole minimum CUs. Values are those of VTM: `pred_mode` is 0
    inter, 1 intra, 2 IBC, 3 palette; `intra_mode` is the index of the matrix for a MIP CU; a chroma tree has -1 for
    both. VTM traces planar for a CU with combined inter and intra prediction (CIIP); its mode is -1 here, as for every
    CU that is not intra. `cbf_y` and `ts_y` of a CU are 1 if one of its transform blocks is coded, or has no transform.
    Other transform columns, and those of tools, are -1. Blocks of size zero, vectors and polygons are skipped.

    Args:
        path: Trace in text or CSV form; gzip if the name ends in `.gz`.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file is truncated, malformed, or has no such statistics.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="ascii", errors="replace") as file:
            cus = _parse(iter(lambda: file.readline(_MAX_LINE), ""))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{path} is a damaged gzip file: {error}") from error
    except FormatError as error:
        raise FormatError(f"{path}, {error}") from None
    positions = np.array(list(cus), np.int32).T
    values = np.array(list(cus.values()), np.int32).T
    values[_INTRA_INDEX, ~np.isin(values[_PRED_INDEX], (INTRA, UNKNOWN))] = UNKNOWN
    columns = dict(zip(("poc", "channel", "x", "y", "w", "h"), positions, strict=True))
    return BlockTable(**columns, **dict(zip(VALUES, values, strict=True)))


def _parse(lines: Iterable[str]) -> dict[_Cu, list[int]]:
    """Return the CUs with their values in the order of `VALUES`; FormatError names the line."""
    cus: dict[_Cu, list[int]] = {}
    size, latest = None, None
    line = "\n"
    for number, line in enumerate(lines, start=1):
        if not line.startswith("BlockStat"):
            if match := _SIZE_LINE.match(line):
                size = (int(match[1]), int(match[2]))
            continue
        statistic = _statistic(line, number)
        if statistic is None:
            continue
        name, poc, x, y, w, h, value = statistic
        if w == 0 or h == 0:
            continue
        if size is not None and (x + w > size[0] or y + h > size[1]):
            raise FormatError(f"line {number}: a CU of {w}x{h} at ({x}, {y}) exceeds the picture of {size}")
        if name in TRANSFORM_STATISTICS:
            if latest is not None and _is_inside((poc, x, y, w, h), latest):
                _add_transform_block(cus[latest], name, value)
            continue
        channel, index = STATISTICS[name]
        cu = (poc, channel, x, y, w, h)
        row = cus.get(cu)
        if row is None:
            row = cus[cu] = [UNKNOWN] * len(VALUES)
        if channel == LUMA:
            latest = cu
        if row[index] != value:
            if row[index] != UNKNOWN:
                raise FormatError(f"line {number}: {name} of POC {poc} at ({x}, {y}) is {row[index]} and {value}")
            row[index] = value
    if not line.endswith("\n"):
        raise FormatError("the last line is cut off")
    if not cus:
        raise FormatError("there are no block statistics in it")
    for (poc, _, x, y, _, _), row in cus.items():
        if row[0] == UNKNOWN:
            raise FormatError(f"the CU of POC {poc} at ({x}, {y}) has no depth")
    return cus


def _is_inside(block: tuple[int, int, int, int, int], cu: _Cu) -> bool:
    """Return whether a transform block (poc, x, y, w, h) lies inside the CU."""
    if block[0] == cu[0] and block[1:] == cu[2:]:
        return True
    poc, x, y, w, h = block
    left, top = x - cu[2], y - cu[3]
    return poc == cu[0] and left >= 0 and top >= 0 and left + w <= cu[4] and top + h <= cu[5]


def _add_transform_block(row: list[int], name: str, value: int) -> None:
    """Merge a statistic of a transform block into the row of its CU."""
    if name == CBF:
        row[_CBF_INDEX] = max(row[_CBF_INDEX], int(value > 0))
    else:
        row[_TS_INDEX] = max(row[_TS_INDEX], int(value == 1))
        row[_MTS_INDEX] = max(row[_MTS_INDEX], value - 1, 0)


def _statistic(line: str, number: int) -> tuple[str, int, int, int, int, int, int] | None:
    """Return name, poc, x, y, w, h and value of a line; None for a statistic that is skipped."""
    if line.startswith("BlockStat:"):
        end = line.find("=")
        name, pattern = line[line.rfind(" ", 0, end) + 1 : end], _TEXT_LINE
    elif line.startswith("BlockStat;"):
        name, pattern = "".join(line.split(";", 7)[6:7]).strip(), _CSV_LINE
    else:
        return None
    if name not in _NAMES:
        return None
    match = pattern.fullmatch(line)
    if match is None:
        raise FormatError(f"line {number} is not a block statistic: {line[:80].strip()!r}")
    poc, x, y, w, h, value = map(int, match.groups())
    return name, poc, x, y, w, h, value


# --- writer ----------------------------------------------------------------------------------------------------------


def write_vtm_stats(path: Path | str, table: BlockTable, *, width: int = 0, height: int = 0) -> None:
    """Write CUs as a VTM trace, which `read_vtm_stats` reads back as far as VTM has names for the columns.

    A value of -1 has no line; nor have the modes of a separate chroma tree, for which VTM has no names. Of transforms,
    the trace contains those of luma: LFNSTIdx and BDPCM, and Cbf_Y and MTS_Y of whole CUs, which VTM and
    `write_transform_blocks` write per transform block. Pictures keep their order, each with all its CUs together.

    Args:
        path: Output file; gzip if the name ends in `.gz`.
        table: The CUs.
        width: Smallest width in the header. The default is the width that the CUs cover, which is the coded width if
            the table has whole pictures.
        height: Smallest height in the header.

    Raises:
        TableError: The table is empty, a CU has no depth, or the position of a CU is invalid.
    """
    if (table.depth == UNKNOWN).any():
        row = int(np.flatnonzero(table.depth == UNKNOWN)[0])
        raise TableError(
            f"{path}: the CU of POC {table.poc[row]} at ({table.x[row]}, {table.y[row]}) has no depth, "
            "which every CU of a VTM trace has"
        )
    columns: dict[str, npt.NDArray[np.integer]] = {name: table.columns[name] for name in POSITION_COLUMNS}
    ranges = {}
    for name, (channel, index) in STATISTICS.items():
        values = table.columns[VALUES[index]]
        # Masked cells have no line.
        columns[name] = np.ma.masked_where((table.channel != channel) | (values == UNKNOWN), values)
        ranges[name] = RANGES[VALUES[index]]
    unknown = (table.channel != LUMA) | (table.cbf_y == UNKNOWN)
    columns |= {CBF: np.ma.masked_where(unknown, table.cbf_y)}
    columns |= {MTS: np.ma.masked_where(unknown, vtm_mts(table.ts_y, table.mts))}
    ranges |= {CBF: (0, 1), MTS: (0, 5)}
    if unknown.all():
        # Names without a value would only lengthen YUView's list.
        ranges = {name: ends for name, ends in ranges.items() if name not in (CBF, MTS, "LFNSTIdx", "BDPCM")}
    write_block_values(path, columns, ranges, width=width, height=height)


def vtm_mts(ts: npt.NDArray[np.int32], mts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return VTM's MTS_Y: 0 for DCT-II, 1 for transform skip, else mts_idx + 1."""
    return np.where(ts == 1, 1, np.where(mts > 0, mts + 1, 0)).astype(np.int32)


def write_block_values(
    path: Path | str, columns: Columns, ranges: Mapping[str, Range], *, width: int = 0, height: int = 0
) -> None:
    """Write integers of arbitrary blocks for YUView, e.g. the decisions of a filter in each CTU.

    Args:
        path: Output file; gzip if the name ends in `.gz`.
        columns: Arrays of shape (n,): POSITION_COLUMNS, and one array for each statistic. Masked cells (`numpy.ma`)
            are not written.
        ranges: Statistics to write, with the values at which the colour scale begins and ends.
        width: Smallest width in the header, see `write_vtm_stats`.
        height: Smallest height in the header.

    Raises:
        TableError: A column is missing or does not contain integers, a name contains other characters than letters,
            digits and _, or the position of a block is invalid.
    """
    lines = block_value_lines(columns, ranges, width=width, height=height)
    try:
        # All checks run before the first line, so an invalid table does not touch the file.
        lines = chain([next(lines)], lines)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    with atomic_path(path) as part:
        _write_lines(part, lines, compressed=Path(path).name.lower().endswith(".gz"))


def block_value_lines(
    columns: Columns, ranges: Mapping[str, Range], *, width: int = 0, height: int = 0
) -> Iterator[str]:
    """Yield the lines of `write_block_values` with their line ends: the header, then one line per block and statistic.

    Raises TableError before the first line.
    """
    missing = [name for name in (*POSITION_COLUMNS, *ranges) if name not in columns]
    if missing:
        raise TableError(f"block values lack the columns {', '.join(missing)}")
    if len({len(columns[name]) for name in (*POSITION_COLUMNS, *ranges)}) > 1:
        raise TableError("columns of block values have different lengths")
    not_integer = [name for name in (*POSITION_COLUMNS, *ranges) if columns[name].dtype.kind not in "iub"]
    if not_integer:
        raise TableError(f"column {not_integer[0]} of block values does not hold whole numbers")
    bad_names = [name for name in ranges if not re.fullmatch(r"[0-9A-Za-z_]+", name)]
    if bad_names:
        raise TableError(f"{bad_names[0]!r} cannot name a statistic: use letters, digits and _")
    poc, x, y, w, h = (np.asarray(columns[name], np.int64) for name in POSITION_COLUMNS)
    invalid = (poc < 0) | (x < 0) | (y < 0) | (w < 1) | (h < 1)
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        raise TableError(f"POC {poc[row]} has a block of {w[row]}x{h[row]} at ({x[row]}, {y[row]})")
    if not len(poc):
        raise TableError("there are no blocks to write")
    yield "# VTMBMS Block Statistics\n"
    yield f"# Sequence size: [{max(width, int((x + w).max()))}x {max(height, int((y + h).max()))}]\n"
    for name, (lowest, largest) in ranges.items():
        yield f"# Block Statistic Type: {name}; Integer; [{lowest}, {largest}]\n"
    # By the first row of each POC. The sort is stable, so a table whose pictures are contiguous keeps its order.
    _, first, picture = np.unique(poc, return_index=True, return_inverse=True)
    order = np.argsort(first[picture], kind="stable")
    for start in range(0, len(order), _ROWS_PER_CHUNK):
        rows = order[start : start + _ROWS_PER_CHUNK]
        positions = zip(*(values[rows].tolist() for values in (poc, x, y, w, h)), strict=True)
        cells = zip(*(columns[name][rows].astype(np.int64).tolist() for name in ranges), strict=True)
        for (picture_poc, left, top, wide, high), values in zip(positions, cells, strict=True):
            block = f"BlockStat: POC {picture_poc} @({left:4d},{top:4d}) [{wide:2d}x{high:2d}]"
            for name, value in zip(ranges, values, strict=True):
                if value is not None:
                    yield f"{block} {name}={value}\n"


def _write_lines(path: Path, lines: Iterable[str], *, compressed: bool) -> None:
    with path.open("wb") as file:
        if not compressed:
            file.writelines(line.encode("ascii") for line in lines)
            return
        # No name and no time in the gzip header, so equal tables give equal bytes.
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            packed.writelines(line.encode("ascii") for line in lines)
