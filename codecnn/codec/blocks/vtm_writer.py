"""Write block statistics as VTM traces them (VTMBMS), which YUView draws over a video.

The form is that of VTM's source/Lib/CommonLib/dtrace_blockstatistics.cpp as YUView's StatisticsFileVTMBMS.cpp reads it:
header lines name the picture size and each statistic with its range of colours; then one line a block and statistic,
all lines of a picture together, because YUView looks a POC up by one place in the file. YUView opens plain files only.
"""

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.codec.blocks._vtm_reader import CBF, MTS, STATISTICS, VALUES
from codecnn.codec.blocks.table import LUMA, UNKNOWN, BlockTable
from codecnn.errors import TableError
from codecnn.runs import atomic_path

PLACE = ("poc", "x", "y", "w", "h")
"""The columns that say where a block lies, in luma samples."""

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
"""VTM's ranges, but for QP, which it ends at HEVC's 51, for depth, where it has 7 for luma and 10 for chroma, and for
flags, of which it states none."""

_ROWS_AT_ONCE = 16384

Range = tuple[int, int]
Columns = Mapping[str, npt.NDArray[np.integer]]


def write_vtm_stats(path: Path | str, table: BlockTable, *, width: int = 0, height: int = 0) -> None:
    """Write CUs as a VTM trace, gzip where the name ends in .gz; `read_vtm_stats` gives back what VTM has names for.

    The size in the header is what the CUs cover, which for whole pictures is the size they are coded in; `width` and
    `height` make it larger for a table of some CUs only. A value of -1 has no line, nor have the modes of a separate
    chroma tree, for which VTM has no name. Of transforms there are luma's: LFNSTIdx and BDPCM, and of whole CUs Cbf_Y
    and MTS_Y, which VTM traces, and `write_transform_blocks` writes, of transform blocks. Pictures stay in their order,
    each with all its CUs together.

    Raises TableError for an empty table, a CU without depth, and a place that no picture has.
    """
    if (table.depth == UNKNOWN).any():
        row = int(np.flatnonzero(table.depth == UNKNOWN)[0])
        raise TableError(
            f"{path}: the CU of POC {table.poc[row]} at ({table.x[row]}, {table.y[row]}) has no depth, "
            "which every CU of a VTM trace has"
        )
    columns: dict[str, npt.NDArray[np.integer]] = {name: getattr(table, name) for name in PLACE}
    ranges = {}
    for name, (channel, index) in STATISTICS.items():
        values = getattr(table, VALUES[index])
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
    """What VTM calls MTS_Y: 0 DCT-II, 1 transform skip, from 2 on mts_idx + 1."""
    return np.where(ts == 1, 1, np.where(mts > 0, mts + 1, 0)).astype(np.int32)


def write_block_values(
    path: Path | str, columns: Columns, ranges: Mapping[str, Range], *, width: int = 0, height: int = 0
) -> None:
    """Write whole numbers of any blocks for YUView, for instance what a filter decided and gained in each CTU.

    `columns` are arrays of shape (n,): poc, x, y, w, h in luma samples, and the statistics that `ranges` names with
    the values where the scale of colours begins and ends. Sizes and order are as in `write_vtm_stats`.

    Raises TableError for a missing column, one that does not hold whole numbers, a name that is more than letters,
    digits and _, and a place that no picture has.
    """
    lines = block_value_lines(columns, ranges, width=width, height=height)
    try:
        # The first line comes only after every check, so a refused table touches no file.
        lines = chain([next(lines)], lines)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    with atomic_path(path) as part:
        _write_lines(part, lines, compressed=Path(path).name.lower().endswith(".gz"))


def block_value_lines(
    columns: Columns, ranges: Mapping[str, Range], *, width: int = 0, height: int = 0
) -> Iterator[str]:
    """The lines of `write_block_values`, each with its line end: the header, then a line a block and statistic.

    A masked cell (`numpy.ma`) has no line. Raises TableError before the first line.
    """
    missing = [name for name in (*PLACE, *ranges) if name not in columns]
    if missing:
        raise TableError(f"block values lack the columns {', '.join(missing)}")
    if len({len(columns[name]) for name in (*PLACE, *ranges)}) > 1:
        raise TableError("columns of block values have different lengths")
    broken = [name for name in (*PLACE, *ranges) if columns[name].dtype.kind not in "iub"]
    if broken:
        raise TableError(f"column {broken[0]} of block values does not hold whole numbers")
    unfit = [name for name in ranges if not re.fullmatch(r"[0-9A-Za-z_]+", name)]
    if unfit:
        raise TableError(f"{unfit[0]!r} cannot name a statistic: letters, digits and _ can")
    poc, x, y, w, h = (np.asarray(columns[name], np.int64) for name in PLACE)
    wrong = (poc < 0) | (x < 0) | (y < 0) | (w < 1) | (h < 1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise TableError(f"POC {poc[row]} has a block of {w[row]}x{h[row]} at ({x[row]}, {y[row]})")
    if not len(poc):
        raise TableError("there are no blocks to write")
    yield "# VTMBMS Block Statistics\n"
    yield f"# Sequence size: [{max(width, int((x + w).max()))}x {max(height, int((y + h).max()))}]\n"
    for name, (lowest, largest) in ranges.items():
        yield f"# Block Statistic Type: {name}; Integer; [{lowest}, {largest}]\n"
    # By the place where a POC first appears: stable, so a table whose pictures lie together keeps its order.
    _, first, picture = np.unique(poc, return_index=True, return_inverse=True)
    order = np.argsort(first[picture], kind="stable")
    for start in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[start : start + _ROWS_AT_ONCE]
        places = zip(*(values[rows].tolist() for values in (poc, x, y, w, h)), strict=True)
        cells = zip(*(columns[name][rows].astype(np.int64).tolist() for name in ranges), strict=True)
        for (picture_poc, left, top, wide, high), values in zip(places, cells, strict=True):
            block = f"BlockStat: POC {picture_poc} @({left:4d},{top:4d}) [{wide:2d}x{high:2d}]"
            for name, value in zip(ranges, values, strict=True):
                if value is not None:
                    yield f"{block} {name}={value}\n"


def _write_lines(path: Path, lines: Iterable[str], *, compressed: bool) -> None:
    with path.open("wb") as file:
        if not compressed:
            file.writelines(line.encode("ascii") for line in lines)
            return
        # No name and no time in the file, so equal tables give equal bytes.
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            packed.writelines(line.encode("ascii") for line in lines)
