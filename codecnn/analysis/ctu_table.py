"""The table of CTUs that an analysis reads: loading, validation, and numbering of its pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from codecnn.base.errors import MissingFileError, TableError
from codecnn.base.keywords import checked_keywords

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REQUIRED = ("qp", "depth_mean", "mse_y")
PREDICTORS = ("qp", "depth_mean", "depth_max", "variance", "bits")
"""Columns whose correlation with the targets is computed; the first two are required."""
TARGETS = ("mse_y", "log_mse", "gain_db", "mse_saved")
"""Targets: the CTU's MSE (sample units squared), ln MSE, and for a filter its gain (dB) and the MSE that it removes.

PSNR is -10·log10(MSE) plus a constant, so its coefficients are those of ln MSE with the sign changed.
"""
NUMBERS = (*PREDICTORS, "mse_y", "psnr_y", "gain_db", "mse_y_filtered")
"""All columns of numbers that are read."""

PICTURE_COLUMNS = ("picture", "group", "sequence", "unit")
"""Columns that can identify the picture of a row, the best first; together with `poc` if the table has it."""

MIN_ROWS = MIN_PICTURES = 3
"""Fewest rows, and fewest pictures, of a correlation and its intervals."""

MAX_QPS = 128
"""Largest number of different QPs, above that of any codec."""
_DB_PER_BIT = 20 * np.log10(2)


@dataclass(frozen=True)
class CtuTable:
    """Rows with QP, depth and MSE.

    Attributes:
        columns: PREDICTORS and TARGETS of the table, shape (n,) each. Predictors and mse_y are finite, other targets
            are NaN where they are not defined.
        qps: The different QPs, sorted.
        qp_index: Index of each row's QP in `qps`, shape (n,).
        picture: Index of each row's picture, the same at all QPs, shape (n,); None if pictures are not known.
        dropped: Number of rows without a depth, which are excluded.
        notes: Sentences on excluded rows and columns.
    """

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
        """Names in PREDICTORS that the table has."""
        return tuple(name for name in PREDICTORS if name in self.columns)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names in TARGETS that the table has."""
        return tuple(name for name in TARGETS if name in self.columns)

    def qp_name(self, index: int) -> str:
        """Return a QP as text, "22" rather than "22.0"."""
        return f"{self.qps[index]:g}"


@checked_keywords()
def load_table(path: Path | str) -> dict[str, NDArray[Any]]:
    """Load a table of CTUs.

    Args:
        path: A store or an evaluation (a folder with ctus.parquet), a .parquet file or a .csv file.

    Returns:
        The columns of NUMBERS, PICTURE_COLUMNS and `poc` that the table has, shape (n,) each. Columns that identify
        pictures hold integers, one for each different value.

    Raises:
        MissingFileError: The file does not exist.
        TableError: The file is not a table, or a column of numbers holds other values.
    """
    path = Path(path)
    file = path / "ctus.parquet" if path.is_dir() else path
    if not file.is_file():
        if path.is_dir():
            raise MissingFileError(f"{path} is not a finished store: it has no ctus.parquet")
        raise MissingFileError(f"{path} does not exist")
    if file.suffix not in (".parquet", ".csv"):
        raise TableError(f"{path} is not a table: give a store, a .parquet or a .csv file")
    try:
        if file.suffix == ".csv":
            table = pa.csv.read_csv(file)
            return {name: _loaded(name, table[name]) for name in _wanted(table.column_names)}
        names = _wanted(pa.parquet.read_schema(file).names)
        # One column at a time, so that text columns of long tables are not all in memory.
        return {name: _loaded(name, pa.parquet.read_table(file, columns=[name])[name]) for name in names}
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TableError(f"{path} cannot be read as a table: {str(error).splitlines()[0][:200]}") from None


def check_table(table: CtuTable | pa.Table | Mapping[str, Any]) -> CtuTable:
    """Check a table of CTUs and select the rows that can be correlated.

    Args:
        table: Columns of one length: `qp`, `depth_mean` (splits below the CTU), `mse_y` (sample units squared), and
            optionally the other NUMBERS, one of PICTURE_COLUMNS and `poc`. Rows without a depth (null, NaN) are
            excluded. The gain is `gain_db`, or else 10·log10(mse_y / mse_y_filtered).

    Returns:
        The table; a `CtuTable` is returned as it is.

    Raises:
        TableError: Nothing can be computed, or the rows have several bit depths, whose MSEs cannot be compared.
    """
    if isinstance(table, CtuTable):
        return table
    names = table.column_names if isinstance(table, pa.Table) else list(table)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        rest = f", only {', '.join(names)}" if names else ", and no other known column"
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
        notes.append("without a column picture or sequence, each unit counts as separate pictures in the intervals")
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
            "the table has no depth: build the store with a codec whose CU table can be read, or add depth_mean from "
            "block statistics (a VTM trace, or `codecnn partition` of a VVC stream)"
        )
    return kept


def _predictors(numbers: Mapping[str, Floats], notes: list[str]) -> dict[str, Floats]:
    predictors = {}
    for name in (name for name in PREDICTORS if name in numbers):
        values = numbers[name]
        unusable = int(np.count_nonzero(~np.isfinite(values)))
        required = {"qp": "QP", "depth_mean": "depth"}.get(name)
        if unusable:
            notes.append(
                f"column {name} is empty, NaN or infinite in {unusable} of {len(values)} rows and was left out"
            )
        elif required and values.min() == values.max():
            other = "depth" if required == "QP" else "QP"
            notes.append(f"all rows have {required} {values[0]:g}, so only correlations with {other} are defined")
            predictors[name] = values
        elif values.min() == values.max():
            notes.append(f"column {name} is {values[0]:g} in all rows and was left out")
        else:
            predictors[name] = values
    return predictors


def _targets(numbers: Mapping[str, Floats], notes: list[str]) -> dict[str, Floats]:
    """Return the targets, shape (n,) each, NaN where a logarithm is not defined."""
    mse, filtered, gain = numbers["mse_y"], numbers.get("mse_y_filtered"), numbers.get("gain_db")
    with np.errstate(divide="ignore"):
        targets = {"mse_y": mse, "log_mse": np.where(mse > 0, np.log(mse), np.nan)}
    if filtered is not None:
        if (filtered < 0).any():
            raise TableError(f"column mse_y_filtered holds {np.nanmin(filtered):g}, and no mean square is negative")
        targets["mse_saved"] = mse - filtered
        if gain is None:
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = 10 * np.log10(mse / filtered)
    if gain is not None:
        targets["gain_db"] = np.where(np.isfinite(gain), gain, np.nan)
    for name, values in list(targets.items()):
        undefined = int(np.count_nonzero(np.isnan(values)))
        if undefined == len(values):
            notes.append(f"{name} is not defined in any row and was left out")
            del targets[name]
        elif undefined:
            notes.append(f"{name} is not defined in {undefined} of {len(values)} rows, which its figures leave out")
    return targets


def _check_bit_depth(mse: Floats, psnr: Floats | None) -> None:
    """Check that all rows have one bit depth b, which follows from PSNR and MSE: the peak is 255·2^(b-8) or 2^b - 1."""
    if psnr is None:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = 8 + (psnr + 10 * np.log10(mse) - 20 * np.log10(255)) / _DB_PER_BIT
    bits = bits[np.isfinite(bits)]
    near = np.abs(bits - np.round(bits)) < 0.01
    if len(bits) and near.all() and np.round(bits.min()) != np.round(bits.max()):
        raise TableError(
            f"psnr_y and mse_y imply rows of {bits.min():.0f} bit and of {bits.max():.0f} bit, whose MSEs cannot be "
            "compared: correlate each bit depth separately"
        )


def _numbers(name: str, values: Any) -> Floats:
    """Convert a column to float64, shape (n,), with null as NaN."""
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
    """Number the different values of a column from 0; null is a separate value."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = pa.array(np.asarray(values))
    codes = values.dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes, dtype=np.int64)


def _pictures(columns: Mapping[str, Any], length: int, notes: list[str]) -> Ints | None:
    """Number the pictures from 0, shape (length,); None if no column identifies them."""
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
