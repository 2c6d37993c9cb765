"""The CU table, and planes painted from it: samples of one column, depths of CTUs, and 4x4 cells for networks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.base.division import ceil_div
from codecnn.base.errors import TableError
from codecnn.base.notebook import SHOWN_ROWS, arrow_html, data_frame
from codecnn.base.planes import BLOCK_PLANES, BLOCK_SIZE, CELL_PLANES, TRANSFORM_PLANES, CellArray
from codecnn.pictures.metrics import ctu_means
from codecnn.vvc.syntax import TRANSFORM_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

LUMA: int = 0
CHROMA: int = 1
"""Values of the `channel` column in memory; files contain `CHANNEL_NAMES`."""

CHANNEL_NAMES = ("L", "C")
"""Values of the `channel` column in files."""

UNKNOWN = -1
"""Value of a column for which the source has no value."""

INTER, INTRA, IBC, PALETTE = range(4)
"""Values of the `pred_mode` column, numbered as in VTM; merge and skip are inter."""

LEFT_EDGE, TOP_EDGE = 1, 2
"""Bits of the plane `partition`: the left or the upper side of the cell is an edge of a CU."""

TOOL_COLUMNS = ("mip", "isp", "mrl", "skip")
"""Columns of the CU table for tools of prediction, which VVC bitstreams provide."""

IntColumn = npt.NDArray[np.int32]


def _no_values() -> IntColumn:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class BlockTable:
    """CUs of coded pictures, one row each: int32 columns of shape (n,), -1 where the source has no value.

    A CU may extend beyond the picture. The columns of TRANSFORM_COLUMNS and TOOL_COLUMNS, from `cbf_y` on, are known
    from VVC bitstreams only; if they are omitted, all values are -1.

    Attributes:
        poc: Position in output order.
        channel: LUMA, also for CUs of a tree that luma and chroma share, or CHROMA for a separate chroma tree.
        x: Left edge in luma samples, for both channels.
        y: Upper edge in luma samples.
        w: Width in luma samples.
        h: Height in luma samples.
        depth: Number of splits below the CTU.
        qt_depth: Number of quadtree splits.
        mt_depth: Number of multi-type tree splits.
        pred_mode: INTER, INTRA, IBC or PALETTE.
        intra_mode: Intra mode of luma, 0 to 66; of a CU with `mip` 1 the index of the matrix, intra_mip_mode, as in
            VTM's statistics.
        qp: QP.
        cbf_y: 1 if a transform block of Y is coded.
        cbf_cb: 1 if a transform block of Cb is coded.
        cbf_cr: 1 if a transform block of Cr is coded.
        ts_y: 1 if a transform block of Y has no transform (transform skip, including BDPCM).
        ts_cb: 1 if a transform block of Cb has no transform.
        ts_cr: 1 if a transform block of Cr has no transform.
        mts: mts_idx, 0 to 4.
        tr_hor: Horizontal transform of coded luma blocks: 0 DCT-II or no coded block, 1 DST-VII, 2 DCT-VIII.
        tr_ver: Vertical transform of coded luma blocks.
        lfnst: lfnst_idx, 0 to 2.
        bdpcm: BDPCM of luma: 0 none, 1 horizontal, 2 vertical.
        bdpcm_chroma: BDPCM of chroma.
        joint_cbcr: 2 * tu_cb_coded_flag + tu_cr_coded_flag if both chroma residuals are coded jointly, else 0.
        mip: 1 if an intra CU is predicted by a matrix (MIP); -1 if the CU is not intra.
        isp: Sub-partitions of an intra CU: 0 none, 1 horizontal, 2 vertical; -1 if the CU is not intra.
        mrl: Reference line of an intra CU, intra_luma_ref_idx, 0 to 2; -1 if the CU is not intra.
        skip: cu_skip_flag: 1 if a CU is merged and has no residual.

    Raises:
        TableError: Columns differ in length, or do not contain 32-bit integers.
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
    cbf_y: IntColumn = field(default_factory=_no_values)
    cbf_cb: IntColumn = field(default_factory=_no_values)
    cbf_cr: IntColumn = field(default_factory=_no_values)
    ts_y: IntColumn = field(default_factory=_no_values)
    ts_cb: IntColumn = field(default_factory=_no_values)
    ts_cr: IntColumn = field(default_factory=_no_values)
    mts: IntColumn = field(default_factory=_no_values)
    tr_hor: IntColumn = field(default_factory=_no_values)
    tr_ver: IntColumn = field(default_factory=_no_values)
    lfnst: IntColumn = field(default_factory=_no_values)
    bdpcm: IntColumn = field(default_factory=_no_values)
    bdpcm_chroma: IntColumn = field(default_factory=_no_values)
    joint_cbcr: IntColumn = field(default_factory=_no_values)
    mip: IntColumn = field(default_factory=_no_values)
    isp: IntColumn = field(default_factory=_no_values)
    mrl: IntColumn = field(default_factory=_no_values)
    skip: IntColumn = field(default_factory=_no_values)

    def __post_init__(self) -> None:
        for name in (*TRANSFORM_COLUMNS, *TOOL_COLUMNS):
            if not len(self.columns[name]):
                object.__setattr__(self, name, np.full(len(self.poc), UNKNOWN, np.int32))
        for name in ALL_COLUMNS:
            object.__setattr__(self, name, _int_column(name, self.columns[name]))
        lengths = {len(values) for values in self.columns.values()}
        if len(lengths) > 1:
            raise TableError(f"columns of block statistics have different lengths: {sorted(lengths)}")
        if not np.isin(self.channel, (LUMA, CHROMA)).all():
            raise TableError(f"channel of block statistics is not {LUMA} or {CHROMA} in every row")

    def __len__(self) -> int:
        return len(self.poc)

    @property
    def columns(self) -> Mapping[str, IntColumn]:
        """The columns by name, in the order of `ALL_COLUMNS`."""
        return vars(self)

    def select(self, rows: npt.NDArray[Any]) -> "BlockTable":
        """Return the rows that a boolean mask of shape (n,) or an array of row numbers selects."""
        return BlockTable(**{name: values[rows] for name, values in self.columns.items()})

    def has_values(self, column: str) -> bool:
        """Return whether any luma CU has a value of `column`."""
        return bool((self.columns[column][self.channel == LUMA] != UNKNOWN).any())

    def without_transforms(self) -> "BlockTable":
        """Return the same table with all TRANSFORM_COLUMNS set to -1."""
        return BlockTable(**{name: values for name, values in self.columns.items() if name not in TRANSFORM_COLUMNS})

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table of int32 columns, in which `channel` is the text "L" or "C".

        It contains TRANSFORM_COLUMNS and TOOL_COLUMNS only if one of their columns has a value.
        """
        groups = (TRANSFORM_COLUMNS, TOOL_COLUMNS)
        used = (group for group in groups if any(self.has_values(name) for name in group))
        names = [*COLUMNS, *(name for group in used for name in group)]
        columns: dict[str, Any] = {name: pa.array(self.columns[name], pa.int32()) for name in names}
        columns["channel"] = pa.array(np.array(CHANNEL_NAMES, dtype=object)[self.channel], pa.string())
        return pa.table(columns)

    def to_pandas(self) -> "pd.DataFrame":
        """Return `to_arrow` as a data frame; ToolMissingError without pandas."""
        return data_frame(self.to_arrow())

    def __repr__(self) -> str:
        return f"<BlockTable of {len(self):,} CUs of {len(np.unique(self.poc))} pictures>"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        pictures = len(np.unique(self.poc))
        table = self.select(np.arange(min(len(self), SHOWN_ROWS))).to_arrow()
        rest = f", the first {SHOWN_ROWS}" if len(self) > SHOWN_ROWS else ""
        return arrow_html(table, f"{len(self):,} CUs of {pictures} pictures{rest}")

    @staticmethod
    def from_arrow(table: pa.Table) -> "BlockTable":
        """Convert an Arrow table as `to_arrow` returns it; additional columns are ignored.

        Raises:
            TableError: A column of COLUMNS is missing, or a cell is empty.
        """
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise TableError(f"block statistics lack the columns {', '.join(missing)}")
        columns = {}
        for name in (name for name in ALL_COLUMNS if name in table.column_names):
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


ALL_COLUMNS = tuple(column.name for column in fields(BlockTable))
"""Names of all columns."""

COLUMNS = tuple(name for name in ALL_COLUMNS if name not in (*TRANSFORM_COLUMNS, *TOOL_COLUMNS))
"""Names of the columns that every table has in files."""


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


# --- planes ----------------------------------------------------------------------------------------------------------


def block_planes(
    table: BlockTable, pocs: Sequence[int], width: int, height: int, names: Sequence[str] = BLOCK_PLANES
) -> npt.NDArray[np.int8]:
    """Paint columns of the luma CUs into planes of 4x4 cells.

    The plane `partition` is LEFT_EDGE | TOP_EDGE where the cell to the left or above belongs to another CU. The border
    of the picture is not an edge, because no filter works across it.

    Args:
        table: CUs of the coded pictures.
        pocs: POCs of the pictures to paint.
        width: Width of the pictures in luma samples.
        height: Height of the pictures in luma samples.
        names: Planes, of BLOCK_PLANES and TRANSFORM_PLANES.

    Returns:
        Planes, shape (pictures, names, ceil(height / 4), ceil(width / 4)); -1 in cells without a CU or a value. CUs
        are cut at the border of the picture.

    Raises:
        TableError: A CU is not on the 4x4 grid, a value exceeds 8 bit, the picture is empty, or the table has no
            values for one of TRANSFORM_PLANES.
    """
    missing = [name for name in names if name in TRANSFORM_PLANES and not table.has_values(name)]
    if missing:
        raise TableError(f"the table of CUs has no values of {', '.join(missing)}: read it from a VVC bitstream")
    if width < 1 or height < 1:
        raise TableError(f"a picture of {width}x{height} has no blocks")
    rows, columns = ceil_div(height, BLOCK_SIZE), ceil_div(width, BLOCK_SIZE)
    planes = np.empty((len(pocs), len(names), rows, columns), np.int8)
    luma = table.channel == LUMA
    for picture, poc in zip(planes, pocs, strict=True):
        cus = np.flatnonzero(luma & (table.poc == poc))
        positions = np.array([table.x[cus], table.y[cus], table.w[cus], table.h[cus]])
        cu_index = _paint_cu_index(positions, poc, rows, columns)
        for plane, name in zip(picture, names, strict=True):
            if name == "partition":
                plane[:] = _edges(cu_index)
            else:
                # The appended value is what index -1, a cell without a CU, selects.
                plane[:] = np.append(_int8_values(table.columns[name][cus], poc, name), np.int8(UNKNOWN))[cu_index]
    return planes


def _paint_cu_index(positions: IntColumn, poc: int, rows: int, columns: int) -> IntColumn:
    """Return the index of the CU of each cell, the later CU where CUs overlap, and -1 without a CU.

    `positions` has shape (4, n): x, y, w and h of the CUs.
    """
    wide = positions.astype(np.int64)
    off_grid = (wide % BLOCK_SIZE).any(axis=0)
    if off_grid.any():
        x, y, w, h = wide[:, np.flatnonzero(off_grid)[0]].tolist()
        raise TableError(f"the CU of {w}x{h} at ({x}, {y}) of POC {poc} does not lie on the grid of 4x4 blocks")
    index = np.full((rows, columns), -1, np.int32)
    return cast(IntColumn, _paint(wide // BLOCK_SIZE, np.arange(positions.shape[1]), index))


def _paint(positions: npt.NDArray[np.int64], values: npt.NDArray[np.integer], plane: npt.NDArray[Any]) -> Any:
    """Paint each value over its rectangle of `positions`, shape (4, n): x, y, w, h; return `plane`."""
    x, y, w, h = positions
    # A negative index would count from the far edge.
    left, top = np.maximum(x, 0).tolist(), np.maximum(y, 0).tolist()
    right, bottom = np.maximum(x + w, 0).tolist(), np.maximum(y + h, 0).tolist()
    for x0, y0, x1, y1, value in zip(left, top, right, bottom, values.tolist(), strict=True):
        plane[y0:y1, x0:x1] = value
    return plane


def _int8_values(values: IntColumn, poc: int, name: str) -> npt.NDArray[np.int8]:
    limits = np.iinfo(np.int8)
    outside = values[(values < limits.min) | (values > limits.max)]
    if outside.size:
        raise TableError(f"{name} of POC {poc} has the value {outside[0]}, beyond 8 bit")
    return values.astype(np.int8)


def _edges(cu_index: IntColumn) -> IntColumn:
    edges = np.zeros_like(cu_index)
    edges[:, 1:] |= LEFT_EDGE * (cu_index[:, 1:] != cu_index[:, :-1])
    edges[1:] |= TOP_EDGE * (cu_index[1:] != cu_index[:-1])
    return np.where(cu_index < 0, UNKNOWN, edges)


def rasterise(table: BlockTable, poc: int, column: str, width: int, height: int) -> npt.NDArray[np.int16]:
    """Paint one column of the luma CUs of a picture into a plane of samples.

    Args:
        table: CUs of the coded pictures.
        poc: POC of the picture.
        column: Column of the table.
        width: Width of the picture in luma samples.
        height: Height of the picture in luma samples.

    Returns:
        The plane, shape (height, width); -1 in samples without a CU. CUs are cut at the border of the picture.

    Raises:
        TableError: The column does not exist, or a value exceeds 16 bit.
    """
    if column not in ALL_COLUMNS:
        raise TableError(f"block statistics have no column {column!r}: one of {', '.join(ALL_COLUMNS)}")
    rows = np.flatnonzero((table.poc == poc) & (table.channel == LUMA))
    values = table.columns[column][rows]
    limits = np.iinfo(np.int16)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise TableError(f"column {column} of POC {poc} holds values beyond 16 bit")
    # int64, because x + w of a damaged table may overflow int32.
    positions = np.array([values[rows] for values in (table.x, table.y, table.w, table.h)], np.int64)
    return cast(npt.NDArray[np.int16], _paint(positions, values, np.full((height, width), UNKNOWN, np.int16)))


def ctu_depths(
    table: BlockTable, poc: int, width: int, height: int, ctu_size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    """Compute the mean and the largest luma depth of every CTU.

    The grid may differ from the codec's CTUs: a CU that crosses CTUs counts in each with its area there.

    Args:
        table: CUs of the coded pictures.
        poc: POC of the picture.
        width: Width of the picture in luma samples.
        height: Height of the picture in luma samples.
        ctu_size: CTU size in luma samples.

    Returns:
        Mean depth, weighted by the area inside the picture, and largest depth, each of shape (CTUs,) in raster order.

    Raises:
        TableError: The grid or the picture is empty, or a sample has no depth.
    """
    if ctu_size < 1 or width < 1 or height < 1:
        raise TableError(f"no CTU grid of size {ctu_size} fits a picture of {width}x{height}")
    plane = rasterise(table, poc, "depth", width, height)
    unknown = int(np.count_nonzero(plane < 0))
    if unknown:
        raise TableError(f"block statistics have no depth for {unknown} of {plane.size} luma samples of POC {poc}")
    rows, columns = np.arange(0, height, ctu_size), np.arange(0, width, ctu_size)
    largest = np.maximum.reduceat(np.maximum.reduceat(plane, columns, axis=1), rows, axis=0)
    return ctu_means(plane, ctu_size), largest.ravel()


def draw_cells(table: BlockTable, poc: int, width: int, height: int, names: Iterable[str]) -> dict[str, CellArray]:
    """Draw planes of the coding tree of one picture.

    Args:
        table: CUs of the coded pictures.
        poc: Picture order count of the picture.
        width: Width of the picture in luma samples.
        height: Height of the picture in luma samples.
        names: Planes to draw, of `codecnn.base.planes.TREE_PLANES`.

    Returns:
        Planes by name, int8, shape (ceil(height / 4), ceil(width / 4)).
    """
    planes = {name: CELL_PLANES[name] for name in names}
    columns = list(dict.fromkeys(column for plane in planes.values() for column in plane.columns))
    if not columns:
        return {}
    cells = dict(zip(columns, block_planes(table, [poc], width, height, columns)[0], strict=True))
    return {name: plane.combine(cells.__getitem__) for name, plane in planes.items()}
