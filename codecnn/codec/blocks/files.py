"""The files that hold tables of CUs: which is which, by its name, and reading and writing every one of them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from codecnn.codec.blocks._vtm_reader import read_vtm_stats
from codecnn.codec.blocks._x265_analysis import read_x265_analysis
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.vtm_writer import write_vtm_stats
from codecnn.codec.blocks.vvc_partition import SUFFIXES, stream_table
from codecnn.errors import FormatError, MissingFileError, TableError
from codecnn.runs import atomic_path

VTM_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")


def read_blocks(path: Path | str) -> BlockTable:
    """The CUs of coded pictures from whatever file tells them, known by its name.

    `.parquet`, `.csv` and `.csv.gz` hold the table itself, `.vtmbmsstats[.gz]` is VTM's trace, `.dat` x265's analysis
    file (without QPs, which only its log has), and `.266`, `.vvc` and `.h266` are VVC bitstreams.

    Raises MissingFileError for an absent file, TableError for another name or for content that is no such table, and
    FormatError (for what codecnn does not read of VVC UnsupportedError) for a stream or an analysis file.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    suffix = known_suffix(path, (".parquet", ".csv", ".csv.gz", *VTM_SUFFIXES, ".dat", *SUFFIXES))
    if suffix in SUFFIXES:
        return stream_table(path)
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
    """Write block statistics by the name as `.parquet`, `.csv`, or as a VTM trace, `.vtmbmsstats[.gz]`, for YUView.

    The file appears whole or not at all. `codecnn.codec.blocks.vtm_writer` tells what a VTM trace holds and refuses.
    """
    path = Path(path)
    suffix = known_suffix(path, (".parquet", ".csv", *VTM_SUFFIXES))
    if suffix in VTM_SUFFIXES:
        write_vtm_stats(path, table)
        return
    write_arrow(path, table.to_arrow())


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write an Arrow table as `.parquet` if its name ends so, else as CSV; whole or not at all."""
    with atomic_path(path) as part:
        if path.name.lower().endswith(".parquet"):
            pq.write_table(table, part)
        else:
            with part.open("wb") as file:
                # pyarrow would put quotes around the names.
                file.write(",".join(table.column_names).encode() + b"\n")
                pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False, quoting_style="none"))


def known_suffix(path: Path, suffixes: tuple[str, ...]) -> str:
    """Which of `suffixes` the file's name ends in. Raises TableError for none."""
    for suffix in suffixes:
        if path.name.lower().endswith(suffix):
            return suffix
    raise TableError(f"{path} does not end in {' or '.join(suffixes)}")
