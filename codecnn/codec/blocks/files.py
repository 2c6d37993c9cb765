"""Files of CU tables and of transform blocks; the name of a file selects its format."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from codecnn.base.errors import FormatError, MissingFileError, TableError
from codecnn.base.files import atomic_path
from codecnn.base.keywords import checked_keywords
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.vtm_statistics import read_vtm_stats, vtm_mts, write_block_values, write_vtm_stats
from codecnn.codec.blocks.vvc_stream import COMPONENTS, stream_table
from codecnn.codec.blocks.x265_analysis import read_x265_analysis
from codecnn.pictures.files import stream_codec

VTM_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")
"""File suffixes of VTM block statistics."""


@checked_keywords()
def read_blocks(path: Path | str) -> BlockTable:
    """Read the CUs of coded pictures.

    Args:
        path: A table (`.parquet`, `.csv`, `.csv.gz`), a VTM trace (`.vtmbmsstats`, `.vtmbmsstats.gz`), an analysis file
            of x265 (`.dat`, which has no QPs), or a VVC stream with any other suffix.

    Raises:
        MissingFileError: The file does not exist.
        TableError: The file is neither a valid table nor a VVC stream.
        FormatError: A bitstream or an analysis file is damaged.
        UnsupportedError: A VVC bitstream uses a feature that codecnn does not read.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    if stream_codec(path) is not None:
        return stream_table(path)
    suffix = _suffix(path, (".parquet", ".csv", ".csv.gz", *VTM_SUFFIXES, ".dat"), "and is no VVC stream")
    if suffix == ".dat":
        return read_x265_analysis(path)
    try:
        if suffix in VTM_SUFFIXES:
            return read_vtm_stats(path)
        arrow = pq.read_table(path) if suffix == ".parquet" else pacsv.read_csv(path)
    except FormatError as error:
        raise TableError(str(error)) from error
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(f"{path} is not a readable table of block statistics: {reason}") from error
    try:
        return BlockTable.from_arrow(arrow)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error


def write_blocks(path: Path | str, table: BlockTable) -> None:
    """Write a CU table. The file is written completely or not at all.

    Args:
        path: Output file: `.parquet`, `.csv`, or a VTM trace for YUView, `.vtmbmsstats` or `.vtmbmsstats.gz`.
        table: The CUs.

    Raises:
        TableError: The suffix is unknown, or a VTM trace cannot hold the table, see `write_vtm_stats`.
    """
    path = Path(path)
    suffix = _suffix(path, (".parquet", ".csv", *VTM_SUFFIXES))
    if suffix in VTM_SUFFIXES:
        write_vtm_stats(path, table)
        return
    _write_arrow(path, table.to_arrow())


def write_transform_blocks(path: Path | str, table: pa.Table) -> None:
    """Write transform blocks.

    A VTM trace has VTM's names and values: Cbf_Y, MTS_Y (1 transform skip, else mts + 1 if mts is not 0), Cbf_Cb,
    MTS_Cb, Cbf_Cr, MTS_Cr and JointCbCr.

    Args:
        path: Output file: `.parquet`, `.csv`, or a VTM trace for YUView, `.vtmbmsstats` or `.vtmbmsstats.gz`.
        table: Transform blocks as `stream_transform_blocks` returns them.

    Raises:
        TableError: The suffix is unknown, or a VTM trace would be empty.
    """
    path = Path(path)
    if _suffix(path, (".parquet", ".csv", *VTM_SUFFIXES)) not in VTM_SUFFIXES:
        _write_arrow(path, table)
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


def write_motion(path: Path | str, table: pa.Table) -> None:
    """Write CUs with their motion. The file is written completely or not at all.

    Args:
        path: Output file, `.parquet` or `.csv`.
        table: CUs as `stream_motion` returns them.

    Raises:
        TableError: The suffix is unknown.
    """
    path = Path(path)
    _suffix(path, (".parquet", ".csv"))
    _write_arrow(path, table)


def _write_arrow(path: Path, table: pa.Table) -> None:
    """Write an Arrow table as Parquet if the name ends in `.parquet`, else as CSV."""
    with atomic_path(path) as part:
        if path.name.lower().endswith(".parquet"):
            pq.write_table(table, part)
        else:
            with part.open("wb") as file:
                # pyarrow would put quotes around the column names.
                file.write(",".join(table.column_names).encode() + b"\n")
                pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False, quoting_style="none"))


def _suffix(path: Path, suffixes: tuple[str, ...], otherwise: str = "") -> str:
    """Return the one of `suffixes` that the name ends in; raise TableError if there is none.

    Args:
        path: The file.
        suffixes: Suffixes that are allowed.
        otherwise: End of the error message.
    """
    for suffix in suffixes:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path} does not end in {' or '.join(suffixes)} {otherwise}".rstrip())
