"""Block statistics: one table of CUs, whatever source it was read from."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.errors import TableError
from codecnn.vvc import TRANSFORM_COLUMNS

LUMA, CHROMA = 0, 1
"""Values of the `channel` column in memory; files spell them as in `CHANNEL_NAMES`."""

CHANNEL_NAMES = ("L", "C")
UNKNOWN = -1
"""What a column holds where the source has no value."""

INTER, INTRA, IBC, PALETTE = range(4)
"""Values of the `pred_mode` column, numbered as VTM does; merge and skip are inter."""

IntColumn = npt.NDArray[np.int32]


def _untold() -> IntColumn:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class BlockTable:
    """CUs of coded pictures, one row each: equal-length int32 columns of shape (n,), -1 where the source has no value.

    `poc` is the position in output order. `channel` is LUMA (also for CUs of a tree shared by luma and chroma) or
    CHROMA (a separate chroma tree). x, y, w and h are luma samples for both; a CU may reach past the picture's edge.
    `depth` counts the splits from the CTU down, `qt_depth` and `mt_depth` those of the quadtree and the multi-type
    tree. TRANSFORM_COLUMNS are what VVC bitstreams tell of the CU's transforms beyond, all -1 where they are left out:

    cbf_y, cbf_cb, cbf_cr    1 where a transform block of the component is coded
    ts_y, ts_cb, ts_cr       1 where one has no transform (transform skip, BDPCM among it)
    mts, lfnst               mts_idx, 0 to 4, and lfnst_idx, 0 to 2
    tr_hor, tr_ver           of luma's coded blocks: 0 DCT-II, also where there is none, 1 DST-VII, 2 DCT-VIII
    bdpcm, bdpcm_chroma      0, or 1 horizontal and 2 vertical
    joint_cbcr               0, or 1 if Cr, 2 if Cb, 3 if both are coded by one residual

    Raises TableError when columns differ in length or hold no whole numbers of 32 bit.
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
    cbf_y: IntColumn = field(default_factory=_untold)
    cbf_cb: IntColumn = field(default_factory=_untold)
    cbf_cr: IntColumn = field(default_factory=_untold)
    ts_y: IntColumn = field(default_factory=_untold)
    ts_cb: IntColumn = field(default_factory=_untold)
    ts_cr: IntColumn = field(default_factory=_untold)
    mts: IntColumn = field(default_factory=_untold)
    tr_hor: IntColumn = field(default_factory=_untold)
    tr_ver: IntColumn = field(default_factory=_untold)
    lfnst: IntColumn = field(default_factory=_untold)
    bdpcm: IntColumn = field(default_factory=_untold)
    bdpcm_chroma: IntColumn = field(default_factory=_untold)
    joint_cbcr: IntColumn = field(default_factory=_untold)

    def __post_init__(self) -> None:
        for name in TRANSFORM_COLUMNS:
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.poc), UNKNOWN, np.int32))
        for name in ALL_COLUMNS:
            object.__setattr__(self, name, _int_column(name, getattr(self, name)))
        lengths = {len(getattr(self, name)) for name in ALL_COLUMNS}
        if len(lengths) > 1:
            raise TableError(f"columns of block statistics have different lengths: {sorted(lengths)}")
        if not np.isin(self.channel, (LUMA, CHROMA)).all():
            raise TableError(f"channel of block statistics is not {LUMA} or {CHROMA} in every row")

    def __len__(self) -> int:
        return len(self.poc)

    def select(self, rows: npt.NDArray[Any]) -> "BlockTable":
        """The rows that a boolean mask of shape (n,) or an array of row numbers names."""
        return BlockTable(*(getattr(self, name)[rows] for name in ALL_COLUMNS))

    def tells(self, column: str) -> bool:
        """Whether any luma CU has a value of `column`."""
        return bool((getattr(self, column)[self.channel == LUMA] != UNKNOWN).any())

    def without_transforms(self) -> "BlockTable":
        """The same with none of TRANSFORM_COLUMNS told."""
        return BlockTable(*(getattr(self, name) for name in COLUMNS))

    def to_arrow(self) -> pa.Table:
        """This table as an Arrow table of int32 columns; `channel` becomes the text "L" or "C".

        TRANSFORM_COLUMNS are among them where one of them tells anything.
        """
        names = ALL_COLUMNS if any(self.tells(name) for name in TRANSFORM_COLUMNS) else COLUMNS
        columns: dict[str, Any] = {name: pa.array(getattr(self, name), pa.int32()) for name in names}
        columns["channel"] = pa.array(np.array(CHANNEL_NAMES, dtype=object)[self.channel], pa.string())
        return pa.table(columns)

    @staticmethod
    def from_arrow(table: pa.Table) -> "BlockTable":
        """The opposite of `to_arrow`; further columns are ignored, and TRANSFORM_COLUMNS may lack.

        Raises TableError for another missing column or a missing cell.
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


ALL_COLUMNS = tuple(one.name for one in fields(BlockTable))
COLUMNS = tuple(name for name in ALL_COLUMNS if name not in TRANSFORM_COLUMNS)
"""The columns that every table has in files."""


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
