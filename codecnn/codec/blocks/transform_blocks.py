"""The transform blocks of VVC bitstreams as a table, which files hold and YUView shows."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.codec.blocks.files import VTM_SUFFIXES, known_suffix, write_arrow
from codecnn.codec.blocks.vtm_writer import vtm_mts, write_block_values
from codecnn.codec.blocks.vvc_partition import of_shown_pictures

COMPONENTS = ("Y", "Cb", "Cr")


def stream_transform_blocks(path: Path | str) -> pa.Table:
    """Every transform block of a VVC byte stream (Annex B), in decoding order: a row a block, int32 but for its name.

    poc            position in output order; pictures that are not shown are left out
    component      Y, Cb or Cr
    x, y, w, h     luma samples, of chroma too
    cbf, ts        whether it is coded, and whether without a transform (transform skip, BDPCM among it)
    mts            mts_idx of the CU, 0 of chroma
    tr_hor, tr_ver 0 DCT-II, also where there is none, 1 DST-VII, 2 DCT-VIII
    lfnst          lfnst_idx where it applies to this block
    bdpcm          0, or 1 horizontal and 2 vertical
    joint_cbcr     0, or the residual of both chroma blocks is one, coded as that of Cr (1) or of Cb (2, 3)
    nonzero        levels that are not 0

    CUs without a transform tree, skipped ones and palettes, have no row. Raises as `stream_table`.
    """
    # numba takes half a second to import, which headers do not need.
    from codecnn.vvc import BLOCK_COLUMNS, transform_blocks

    rows, poc = of_shown_pictures(Path(path), transform_blocks, len(BLOCK_COLUMNS))
    columns = {"poc": pa.array(poc), "component": pa.array(np.array(COMPONENTS, dtype=object)[rows[:, 0]], pa.string())}
    return pa.table(columns | {name: pa.array(rows[:, 1 + i]) for i, name in enumerate(BLOCK_COLUMNS[1:])})


def write_transform_blocks(path: Path | str, table: pa.Table) -> None:
    """Write a table of `stream_transform_blocks` as `.parquet`, `.csv`, or as VTM traces them, `.vtmbmsstats[.gz]`.

    The last has VTM's names and values: Cbf_Y, MTS_Y (1 transform skip, else mts + 1 where mts is not 0), Cbf_Cb,
    MTS_Cb, Cbf_Cr, MTS_Cr, JointCbCr. Raises TableError for another name and an empty trace.
    """
    path = Path(path)
    if known_suffix(path, (".parquet", ".csv", *VTM_SUFFIXES)) not in VTM_SUFFIXES:
        write_arrow(path, table)
        return
    columns = {name: table[name].to_numpy() for name in ("poc", "x", "y", "w", "h", "cbf", "ts", "mts", "joint_cbcr")}
    component = np.asarray(table["component"].to_pylist())
    mts = vtm_mts(columns["ts"], columns["mts"])
    values: dict[str, npt.NDArray[np.integer]] = {name: columns[name] for name in ("poc", "x", "y", "w", "h")}
    for name in COMPONENTS:
        values[f"Cbf_{name}"] = np.ma.masked_where(component != name, columns["cbf"])
        values[f"MTS_{name}"] = np.ma.masked_where(component != name, mts)
    values["JointCbCr"] = np.ma.masked_where(component != "Cb", columns["joint_cbcr"])
    ranges = {f"Cbf_{name}": (0, 1) for name in COMPONENTS} | {f"MTS_{name}": (0, 5) for name in COMPONENTS}
    write_block_values(path, values, ranges | {"JointCbCr": (0, 3)})
