"""Block statistics: one table of CUs whatever the source, and the planes and CTU depths drawn from it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from codecnn.errors import FormatError, MissingFileError, TableError
from codecnn.runs import atomic_path

LUMA, CHROMA = 0, 1
"""Values of the `channel` column in memory; files spell them as in `CHANNEL_NAMES`."""

CHANNEL_NAMES = ("L", "C")
UNKNOWN = -1
"""What a column holds where the source has no value."""

INTER, INTRA, IBC, PALETTE = range(4)
"""Values of the `pred_mode` column, numbered as VTM does; merge and skip are inter."""

IntColumn = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class BlockTable:
    """CUs of coded pictures, one row each: equal-length int32 columns of shape (n,), -1 where the source has no value.

    `poc` is the position in output order. `channel` is LUMA (also for CUs of a tree shared by luma and chroma) or
    CHROMA (a separate chroma tree). x, y, w and h are luma samples for both; a CU may reach past the picture's edge.
    `depth` counts the splits from the CTU down, `qt_depth` and `mt_depth` those of the quadtree and the multi-type
    tree. Raises TableError when columns differ in length or hold no whole numbers of 32 bit.
    """

    poc: IntColumn
    channel: IntColumn
    x: IntColumn
    y: IntColumn
    w: IntColumn
    h: IntColumn
    depth: IntColumn
    qt_depth: IntColumn
    mt_depth: IntColumn
    pred_mode: IntColumn
    intra_mode: IntColumn
    qp: IntColumn

    def __post_init__(self) -> None:
        for name in COLUMNS:
            object.__setattr__(self, name, _int_column(name, getattr(self, name)))
        lengths = {len(getattr(self, name)) for name in COLUMNS}
        if len(lengths) > 1:
            raise TableError(f"columns of block statistics have different lengths: {sorted(lengths)}")
        if not np.isin(self.channel, (LUMA, CHROMA)).all():
            raise TableError(f"channel of block statistics is not {LUMA} or {CHROMA} in every row")

    def __len__(self) -> int:
        return len(self.poc)

    def select(self, rows: npt.NDArray[Any]) -> "BlockTable":
        """The rows that a boolean mask of shape (n,) or an array of row numbers names."""
        return BlockTable(*(getattr(self, name)[rows] for name in COLUMNS))

    def to_arrow(self) -> pa.Table:
        """The same as an Arrow table of int32 columns; `channel` becomes the text "L" or "C"."""
        columns: dict[str, Any] = {name: pa.array(getattr(self, name), pa.int32()) for name in COLUMNS}
        columns["channel"] = pa.array(np.array(CHANNEL_NAMES, dtype=object)[self.channel], pa.string())
        return pa.table(columns)

    @staticmethod
    def from_arrow(table: pa.Table) -> "BlockTable":
        """The opposite of `to_arrow`; further columns are ignored. Raises TableError for a missing column or cell."""
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise TableError(f"block statistics lack the columns {', '.join(missing)}")
        columns = {}
        for name in COLUMNS:
            values = table[name].combine_chunks()
            if values.null_count:
                raise TableError(f"column {name} of block statistics has {values.null_count} empty cells")
            if name == "channel":
                names = np.asarray(values.to_pylist(), dtype=object)
                unknown = sorted({str(value) for value in names} - set(CHANNEL_NAMES))
                if unknown:
                    raise TableError(f"channel {unknown[0]!r} of block statistics is not L or C")
                columns[name] = _int_column(name, names == CHANNEL_NAMES[CHROMA])
            else:
                columns[name] = _int_column(name, values.to_numpy(zero_copy_only=False))
        return BlockTable(**columns)


COLUMNS = tuple(field.name for field in fields(BlockTable))


def _int_column(name: str, values: npt.ArrayLike) -> IntColumn:
    array = np.asarray(values)
    limits = np.iinfo(np.int32)
    if array.ndim != 1:
        raise TableError(f"column {name} of block statistics has {array.ndim} dimensions, not 1")
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iub" or array.min() < limits.min or array.max() > limits.max:
        raise TableError(f"column {name} of block statistics does not hold whole numbers of 32 bit")
    return np.ascontiguousarray(array, dtype=np.int32)


_VTM_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")


def read_table(path: Path | str) -> BlockTable:
    """Read block statistics from `.parquet`, `.csv`, `.csv.gz`, or a VTM trace in `.vtmbmsstats` or `.vtmbmsstats.gz`.

    Raises MissingFileError for an absent file, TableError for another name or for content that is no such table.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    suffix = _table_suffix(path, (".parquet", ".csv", ".csv.gz", *_VTM_SUFFIXES))
    if suffix in _VTM_SUFFIXES:
        # Its module builds on this one.
        from codecnn.codec.blocks.vtm_reader import read_vtm_stats

        try:
            return read_vtm_stats(path)
        except FormatError as error:
            raise TableError(str(error)) from error
    try:
        table = pq.read_table(path) if suffix == ".parquet" else pacsv.read_csv(path)
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(f"{path} is not a readable table of block statistics: {reason}") from error
    try:
        return BlockTable.from_arrow(table)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error


def write_table(path: Path | str, table: BlockTable) -> None:
    """Write block statistics by the name as `.parquet`, `.csv`, or as a VTM trace, `.vtmbmsstats[.gz]`, for YUView.

    The file appears whole or not at all. `codecnn.codec.blocks.vtm_writer` tells what a VTM trace holds and refuses.
    """
    path = Path(path)
    suffix = _table_suffix(path, (".parquet", ".csv", *_VTM_SUFFIXES))
    if suffix in _VTM_SUFFIXES:
        from codecnn.codec.blocks.vtm_writer import write_vtm_stats

        write_vtm_stats(path, table)
        return
    arrow = table.to_arrow()
    with atomic_path(path) as part:
        if suffix == ".parquet":
            pq.write_table(arrow, part)
        else:
            with part.open("wb") as file:
                # pyarrow would put quotes around the names.
                file.write(",".join(COLUMNS).encode() + b"\n")
                pacsv.write_csv(arrow, file, pacsv.WriteOptions(include_header=False, quoting_style="none"))


def _table_suffix(path: Path, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path} does not end in {' or '.join(suffixes)}")


def rasterise(table: BlockTable, poc: int, column: str, width: int, height: int) -> npt.NDArray[np.int16]:
    """The luma CUs of picture `poc` painted with `column`: an int16 plane of shape (height, width).

    Samples that no CU covers are -1; what reaches past the picture's edge is cut off.
    Raises TableError for an unknown column or a value that is no int16.
    """
    if column not in COLUMNS:
        raise TableError(f"block statistics have no column {column!r}: one of {', '.join(COLUMNS)}")
    rows = np.flatnonzero((table.poc == poc) & (table.channel == LUMA))
    values = getattr(table, column)[rows]
    limits = np.iinfo(np.int16)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise TableError(f"column {column} of POC {poc} holds values beyond 16 bit")
    plane = np.full((height, width), UNKNOWN, np.int16)
    left, top = np.maximum(table.x[rows], 0), np.maximum(table.y[rows], 0)
    # Sums in int64: a hostile x + w must not wrap; a negative end would count from the far edge.
    right = np.maximum(table.x[rows].astype(np.int64) + table.w[rows], 0)
    bottom = np.maximum(table.y[rows].astype(np.int64) + table.h[rows], 0)
    for x0, y0, x1, y1, value in zip(
        left.tolist(), top.tolist(), right.tolist(), bottom.tolist(), values.tolist(), strict=True
    ):
        plane[y0:y1, x0:x1] = value
    return plane


def ctu_depths(
    table: BlockTable, poc: int, width: int, height: int, ctu_size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    """Mean and largest luma `depth` of every cell of a CTU grid: two arrays of shape (CTUs,) in raster order.

    The mean is weighted by area over the part of the cell inside the picture. Cells need not be the codec's own CTUs:
    a CU that crosses cells counts in each with the area it has there. Raises TableError where a sample has no depth.
    """
    if ctu_size < 1 or width < 1 or height < 1:
        raise TableError(f"no CTU grid of size {ctu_size} fits a picture of {width}x{height}")
    plane = rasterise(table, poc, "depth", width, height)
    unknown = int(np.count_nonzero(plane < 0))
    if unknown:
        raise TableError(f"block statistics tell no depth for {unknown} of {plane.size} luma samples of POC {poc}")
    rows, columns = np.arange(0, height, ctu_size), np.arange(0, width, ctu_size)
    total = np.add.reduceat(np.add.reduceat(plane, columns, axis=1, dtype=np.int64), rows, axis=0)
    largest = np.maximum.reduceat(np.maximum.reduceat(plane, columns, axis=1), rows, axis=0)
    area = np.outer(np.diff(rows, append=height), np.diff(columns, append=width))
    return (total / area).ravel(), largest.ravel()
