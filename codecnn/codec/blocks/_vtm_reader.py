"""Read the block statistics that VTM traces: D_BLOCK_STATISTICS_ALL or _CODED, VTMBMS files, and their CSV form."""

import gzip
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from codecnn.codec.blocks.table import CHROMA, INTRA, LUMA, UNKNOWN, BlockTable
from codecnn.errors import FormatError, MissingFileError

VALUES = ("depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp", "lfnst", "bdpcm", "cbf_y", "ts_y", "mts")

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
"""VTM's name -> channel and index into `VALUES`; every other name but those of BLOCK_STATISTICS is passed over."""

CBF, MTS = BLOCK_STATISTICS = ("Cbf_Y", "MTS_Y")
"""Names of what VTM traces of the luma transform blocks of a CU, behind it: 0, or the depth of the transform tree + 1;
0 DCT-II, 1 transform skip, from 2 on mts_idx + 1."""
_NAMES = frozenset((*STATISTICS, *BLOCK_STATISTICS))
_CBF_AT, _TS_AT, _MTS_AT = (VALUES.index(name) for name in ("cbf_y", "ts_y", "mts"))
_PRED_AT, _INTRA_AT = (VALUES.index(name) for name in ("pred_mode", "intra_mode"))

_TEXT_LINE = re.compile(
    r"BlockStat: POC (\d{1,9}) @\( *(\d{1,9}), *(\d{1,9})\) \[ *(\d{1,9})x *(\d{1,9})\] \w+=(-?\d{1,9})\s*"
)
_CSV_LINE = re.compile(r"BlockStat;" + r" *(\d{1,9});" * 5 + r" *\w+; *(-?\d{1,9})\s*")
_SIZE_LINE = re.compile(r"# Sequence size: \[ *(\d{1,9})x *(\d{1,9})\]")
_MAX_LINE = 65536

Cu = tuple[int, int, int, int, int, int]
"""poc, channel, x, y, w, h."""


def read_vtm_stats(path: Path | str) -> BlockTable:
    """Read the CUs of a VTM block-statistics trace (plain, or gzip where the name ends in .gz), in its own order.

    Luma rows are the CUs of the luma or the shared tree, CHROMA rows those of a separate chroma tree, in luma
    samples; the picture size is the coded one, padded to whole minimum CUs. Values are VTM's own: `pred_mode` 0
    inter, 1 intra, 2 IBC, 3 palette; `intra_mode` is the MIP index for a MIP CU, and a chroma tree has -1 for both.
    Of a CU with both predictions (CIIP), which is inter, VTM traces planar: as of all but intra, the mode is -1.
    A CU's `cbf_y` and `ts_y` say whether any of its transform blocks is coded, is without transform; what else is
    known of transforms VTM does not trace, or not of CUs. Zero-size CUs, vectors and polygons are passed over.

    Raises MissingFileError, or FormatError when the file is truncated, malformed or has no such statistics.
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
    places = np.array(list(cus), np.int32).T
    values = np.array(list(cus.values()), np.int32).T
    values[_INTRA_AT, ~np.isin(values[_PRED_AT], (INTRA, UNKNOWN))] = UNKNOWN
    columns = dict(zip(("poc", "channel", "x", "y", "w", "h"), places, strict=True))
    return BlockTable(**columns, **dict(zip(VALUES, values, strict=True)))


def _parse(lines: Iterable[str]) -> dict[Cu, list[int]]:
    """CUs with their values in the order of `VALUES`. Raises FormatError naming the line."""
    cus: dict[Cu, list[int]] = {}
    size, latest = None, None
    line = "\n"
    for number, line in enumerate(lines, start=1):
        if not line.startswith("BlockStat"):
            if match := _SIZE_LINE.match(line):
                size = (int(match[1]), int(match[2]))
            continue
        found = _statistic(line, number)
        if found is None:
            continue
        name, poc, x, y, w, h, value = found
        if w == 0 or h == 0:
            continue
        if size is not None and (x + w > size[0] or y + h > size[1]):
            raise FormatError(f"line {number}: a CU of {w}x{h} at ({x}, {y}) leaves the picture of {size}")
        if name in BLOCK_STATISTICS:
            if latest is not None and _lies_in((poc, x, y, w, h), latest):
                _note_block(cus[latest], name, value)
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


def _lies_in(block: tuple[int, int, int, int, int], cu: Cu) -> bool:
    """Whether a transform block (poc, x, y, w, h) is of the CU."""
    if block[0] == cu[0] and block[1:] == cu[2:]:
        return True
    poc, x, y, w, h = block
    left, top = x - cu[2], y - cu[3]
    return poc == cu[0] and left >= 0 and top >= 0 and left + w <= cu[4] and top + h <= cu[5]


def _note_block(row: list[int], name: str, value: int) -> None:
    """Take a statistic of a transform block into the row of its CU."""
    if name == CBF:
        row[_CBF_AT] = max(row[_CBF_AT], int(value > 0))
    else:
        row[_TS_AT] = max(row[_TS_AT], int(value == 1))
        row[_MTS_AT] = max(row[_MTS_AT], value - 1, 0)


def _statistic(line: str, number: int) -> tuple[str, int, int, int, int, int, int] | None:
    """The statistic on one line if it is one of ours: its name, and poc, x, y, w, h, value."""
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
