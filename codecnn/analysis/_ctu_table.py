"""The table of CTUs that an analysis starts from: read, checked, its pictures numbered."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from codecnn.errors import MissingFileError, TableError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REQUIRED = ("qp", "depth_mean", "mse_y")
PREDICTORS = ("qp", "depth_mean", "depth_max", "variance", "bits")
"""Columns whose correlation with the targets is asked for; the first two are required."""
TARGETS = ("mse_y", "log_mse", "gain_db", "mse_saved")
"""What is explained: the CTU's MSE (sample²), ln MSE, and of a filter the gain (dB) and the MSE that it takes away.
PSNR is -10·log10(MSE) plus a constant, so its coefficients are those of ln MSE with the sign turned."""
NUMBERS = (*PREDICTORS, "mse_y", "psnr_y", "gain_db", "mse_y_filtered")
PICTURE_COLUMNS = ("picture", "group", "sequence", "unit")
"""Columns that may say which picture a row belongs to, the best first; with `poc` where the table has it."""

MIN_ROWS = MIN_PICTURES = 3
MAX_QPS = 128
"""More values than any codec has QPs."""
_DB_PER_BIT = 20 * np.log10(2)


@dataclass(frozen=True)
class CtuTable:
    """Rows that have QP, depth and MSE. `columns` are PREDICTORS and TARGETS that are there, (n,) each; predictors and
    mse_y are finite, other targets NaN where they are not defined. `picture` (n,) numbers the pictures from 0, all QPs
    of a picture alike, None where they are not known; `qp_index` (n,) points into the sorted `qps`."""

    columns: dict[str, Floats]
    qps: Floats
    qp_index: Ints
    picture: Ints | None
    dropped: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.qp_index)

    @property
    def predictors(self) -> tuple[str, ...]:
        """The names of PREDICTORS that the table has."""
        return tuple(name for name in PREDICTORS if name in self.columns)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of TARGETS that the table has."""
        return tuple(name for name in TARGETS if name in self.columns)

    def qp_name(self, index: int) -> str:
        """A QP as text, "22" rather than "22.0"."""
        return f"{self.qps[index]:g}"


def load_table(path: Path | str) -> dict[str, NDArray[Any]]:
    """Columns of a table of CTUs: a store or an evaluation (a folder with ctus.parquet), a .parquet or a .csv file.

    Returns those of NUMBERS, PICTURE_COLUMNS and `poc` that are there, each (n,); what names a picture comes as whole
    numbers, one a name. Raises MissingFileError for a path that is not there, TableError for a file that is no table.
    """
    path = Path(path)
    file = path / "ctus.parquet" if path.is_dir() else path
    if not file.is_file():
        what = f"{path} is not a finished store: it has no ctus.parquet" if path.is_dir() else f"{path} does not exist"
        raise MissingFileError(what)
    if file.suffix not in (".parquet", ".csv"):
        raise TableError(f"{path} is not a table: give a store, a .parquet or a .csv file")
    try:
        if file.suffix == ".csv":
            table = pa.csv.read_csv(file)
            return {name: _loaded(name, table[name]) for name in _wanted(table.column_names)}
        names = _wanted(pa.parquet.read_schema(file).names)
        # A column at a time: 10 million rows of text need no more memory than their own column.
        return {name: _loaded(name, pa.parquet.read_table(file, columns=[name])[name]) for name in names}
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TableError(f"{path} cannot be read as a table: {str(error).splitlines()[0][:200]}") from None


def check_table(table: CtuTable | pa.Table | Mapping[str, Any]) -> CtuTable:
    """The rows of a table that can be correlated, and what had to be left out of it.

    `table` has columns of one length: `qp`, `depth_mean` (splits from the CTU down), `mse_y` (sample²), and optionally
    the other NUMBERS, one of PICTURE_COLUMNS and `poc`. Rows without a depth (null, NaN) are left out. A gain is taken
    from `gain_db` or is 10·log10(mse_y / mse_y_filtered).

    Raises TableError where nothing can be computed, or where rows are of several bit depths, whose MSEs cannot be
    compared.
    """
    if isinstance(table, CtuTable):
        return table
    names = table.column_names if isinstance(table, pa.Table) else list(table)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        rest = f", only {', '.join(names)}" if names else ", nor any other that is looked for"
        raise TableError(f"the table has no column {', '.join(missing)}{rest}")
    numbers = {name: _numbers(name, table[name]) for name in NUMBERS if name in names}
    length = len(numbers["qp"])
    for name, values in numbers.items():
        if len(values) != length:
            raise TableError(f"columns differ in length: qp {length}, {name} {len(values)}")
    kept = _kept(numbers)
    notes: list[str] = []
    picture = _pictures({name: table[name] for name in (*PICTURE_COLUMNS, "poc") if name in names}, length, notes)
    dropped = length - int(kept.sum())
    if dropped:
        notes.append(f"{dropped} of {length} rows have no depth and were left out")
        numbers = {name: values[kept] for name, values in numbers.items()}
        picture = None if picture is None else np.unique(picture[kept], return_inverse=True)[1]
    mse = numbers["mse_y"]
    if len(mse) < MIN_ROWS:
        raise TableError(f"a correlation needs at least {MIN_ROWS} rows with a depth, the table has {len(mse)}")
    if mse.min() == mse.max():
        raise TableError(f"mse_y is {mse[0]:g} in all rows, so no correlation with it is defined")
    _check_bit_depth(mse, numbers.pop("psnr_y", None))
    qps, qp_index = np.unique(numbers["qp"], return_inverse=True)
    if len(qps) > MAX_QPS:
        raise TableError(f"column qp holds {len(qps)} different values, more than a codec has QPs")
    columns = _predictors(numbers, notes) | _targets(numbers, notes)
    if picture is not None and (count := int(picture.max()) + 1) < MIN_PICTURES:
        notes.append(f"no interval by picture: that needs at least {MIN_PICTURES} pictures, the table has {count}")
        picture = None
    if picture is not None and "unit" in names and not {"picture", "group", "sequence"} & set(names) and len(qps) > 1:
        notes.append("without a column picture or sequence, each unit counts as pictures of its own in the intervals")
    return CtuTable(columns, qps, qp_index, picture, dropped, tuple(notes))


def _wanted(names: list[str]) -> list[str]:
    return [name for name in (*NUMBERS, *PICTURE_COLUMNS, "poc") if name in names]


def _loaded(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    return _numbers(name, column) if name in NUMBERS else _codes(column)


def _kept(numbers: Mapping[str, Floats]) -> NDArray[np.bool_]:
    depth = numbers["depth_mean"]
    for name in REQUIRED:
        bad = np.isinf(depth) if name == "depth_mean" else ~np.isfinite(numbers[name])
        if bad.any():
            raise TableError(f"column {name} is empty, NaN or infinite in {bad.sum()} of {len(bad)} rows")
    if (numbers["mse_y"] < 0).any():
        raise TableError(f"column mse_y holds {numbers['mse_y'].min():g}, and no mean square is negative")
    kept = ~np.isnan(depth)
    if len(kept) and not kept.any():
        raise TableError(
            "the table has no depth: build the store from a codec that tells its partition, or bring depth_mean from "
            "block statistics (a VTM trace, or `codecnn partition` of a VVC stream)"
        )
    return kept


def _predictors(numbers: Mapping[str, Floats], notes: list[str]) -> dict[str, Floats]:
    found = {}
    for name in (name for name in PREDICTORS if name in numbers):
        values = numbers[name]
        unusable = int(np.count_nonzero(~np.isfinite(values)))
        what = {"qp": "QP", "depth_mean": "depth"}.get(name)
        if unusable:
            notes.append(
                f"column {name} is empty, NaN or infinite in {unusable} of {len(values)} rows and was left out"
            )
        elif what and values.min() == values.max():
            other = "depth" if what == "QP" else "QP"
            notes.append(f"all rows have {what} {values[0]:g}, so only correlations with {other} are defined")
            found[name] = values
        elif values.min() == values.max():
            notes.append(f"column {name} is {values[0]:g} in all rows and was left out")
        else:
            found[name] = values
    return found


def _targets(numbers: Mapping[str, Floats], notes: list[str]) -> dict[str, Floats]:
    """Targets (n,), NaN where a logarithm is not defined."""
    mse, filtered, gain = numbers["mse_y"], numbers.get("mse_y_filtered"), numbers.get("gain_db")
    with np.errstate(divide="ignore"):
        found = {"mse_y": mse, "log_mse": np.where(mse > 0, np.log(mse), np.nan)}
    if filtered is not None:
        if (filtered < 0).any():
            raise TableError(f"column mse_y_filtered holds {np.nanmin(filtered):g}, and no mean square is negative")
        found["mse_saved"] = mse - filtered
        if gain is None:
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = 10 * np.log10(mse / filtered)
    if gain is not None:
        found["gain_db"] = np.where(np.isfinite(gain), gain, np.nan)
    for name, values in list(found.items()):
        undefined = int(np.count_nonzero(np.isnan(values)))
        if undefined == len(values):
            notes.append(f"{name} is not defined in any row and was left out")
            del found[name]
        elif undefined:
            notes.append(f"{name} is not defined in {undefined} of {len(values)} rows, which its figures leave out")
    return found


def _check_bit_depth(mse: Floats, psnr: Floats | None) -> None:
    """Peak = 255·2^(b-8) or 2^b - 1 follows from PSNR and MSE of a row: one b for all rows, or MSEs do not compare."""
    if psnr is None:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = 8 + (psnr + 10 * np.log10(mse) - 20 * np.log10(255)) / _DB_PER_BIT
    bits = bits[np.isfinite(bits)]
    near = np.abs(bits - np.round(bits)) < 0.01
    if len(bits) and near.all() and np.round(bits.min()) != np.round(bits.max()):
        raise TableError(
            f"psnr_y and mse_y tell of rows of {bits.min():.0f} bit and of {bits.max():.0f} bit, whose MSEs cannot be "
            "compared: correlate each bit depth on its own"
        )


def _numbers(name: str, values: Any) -> Floats:
    """A column as float64, (n,), null as NaN."""
    try:
        if isinstance(values, pa.ChunkedArray | pa.Array):
            values = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        numbers = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TableError(f"column {name} holds values that are no numbers") from None
    if numbers.ndim != 1:
        raise TableError(f"column {name} has shape {numbers.shape}, not (n,)")
    return numbers


def _codes(values: Any) -> Ints:
    """A whole number from 0 for each different value of a column; an empty cell is a value of its own."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = pa.array(np.asarray(values))
    codes = values.dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes, dtype=np.int64)


def _pictures(columns: Mapping[str, Any], length: int, notes: list[str]) -> Ints | None:
    """Number (length,) of the picture of each row, from 0. None where no column tells."""
    name = next((name for name in PICTURE_COLUMNS if name in columns), None)
    if name is None:
        notes.append(f"pictures are not known: the table has none of the columns {', '.join(PICTURE_COLUMNS)}")
        return None
    numbers = np.zeros(length, dtype=np.int64)
    for key in (name, "poc") if "poc" in columns else (name,):
        codes = _codes(columns[key])
        if len(codes) != length:
            raise TableError(f"columns differ in length: qp {length}, {key} {len(codes)}")
        numbers = numbers * (int(codes.max(initial=0)) + 1) + codes
    return np.unique(numbers, return_inverse=True)[1]
