"""Correlation of QP and CU depth with the error a codec leaves, over CTUs.

The notebook asked which a·QP + b·depth has the highest Pearson correlation with a CTU's MSE, and searched for it by
Bayesian optimisation. Least squares has the answer in closed form (its multiple correlation), and both depend on the
data through the 3x3 covariance matrix of (QP, depth, MSE) alone, so neither search nor bootstrap passes over the rows.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from bayes_opt import BayesianOptimization, acquisition
from bayes_opt.exception import NotUniqueError
from numpy.typing import NDArray
from scipy.optimize import minimize

from codecnn.errors import MissingFileError, TableError

REQUIRED = ("qp", "depth_mean", "mse_y")
PICTURE_COLUMNS = ("picture", "group", "sequence", "unit")
"""Columns that may say which picture a row belongs to, the best first; with `poc` where the table has it."""

REACHED = 1e-4
"""How near to the closed form's correlation the search has to come."""
RESAMPLES = 1000
_MAX_GROUPS = 4096
_MIN_ROWS = _MIN_PICTURES = 3
_INITIAL_POINTS, _STEPS = 5, 10

Floats = NDArray[np.float64]


def load_table(path: Path | str) -> dict[str, NDArray[Any]]:
    """Columns of a table of CTUs: a store (a folder with ctus.parquet), a .parquet or a .csv file.

    Returns those of REQUIRED, PICTURE_COLUMNS and `poc` that are there, each (n,). Raises MissingFileError for a path
    that is not there, TableError for a file that is no such table.
    """
    path = Path(path)
    file = path / "ctus.parquet" if path.is_dir() else path
    if not file.is_file():
        what = f"{path} is not a finished store: it has no ctus.parquet" if path.is_dir() else f"{path} does not exist"
        raise MissingFileError(what)
    try:
        if file.suffix == ".parquet":
            table = pa.parquet.read_table(file)
        elif file.suffix == ".csv":
            table = pa.csv.read_csv(file)
        else:
            raise TableError(f"{path} is not a table: give a store, a .parquet or a .csv file")
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} cannot be read as a table: {str(error).splitlines()[0][:200]}") from None
    columns: dict[str, NDArray[Any]] = {
        name: _numbers(name, table[name]) for name in REQUIRED if name in table.column_names
    }
    others = [name for name in (*PICTURE_COLUMNS, "poc") if name in table.column_names]
    return columns | {name: np.asarray(table[name].to_pylist()).astype(str) for name in others}


def correlate(table: pa.Table | Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Correlate QP and mean CU depth with MSE, over the rows (CTUs) of a table.

    `table` has columns of one length n: `qp`, `depth_mean` (splits from the CTU down), `mse_y` (sample²), and as a rule
    one of PICTURE_COLUMNS. Rows without a depth (null, NaN) are left out.

    Returns what correlation.json holds. "pearson" and "per_qp": Pearson's r with the MSE; "qp_depth": r of QP with
    depth; "closed_form": the a and b of a·QP + b·depth that least squares gives, scaled so that the larger is ±1, and
    r; "ratio": their a / b; "bayes", "bayes_b1": the best that a search with a and b in [0, 1], or with b = 1, found;
    "ci95": bootstrap percentile intervals with CTUs and with whole pictures (all QPs of a picture together) as the
    sample; "dropped": rows without depth; "notes": what could not be computed (its values are None) and why.
    Raises TableError where nothing can be computed.
    """
    columns = _by_name(table)
    data, kept, dropped = _checked(columns)
    notes: list[str] = []
    if dropped:
        notes.append(f"{dropped} of {dropped + len(data)} rows have no depth and were left out")
    covariance = covariance_of(data)
    r = _pearson(covariance)
    varies = [bool(covariance[i, i] > 0) for i in range(2)]
    if not varies[0]:
        notes.append(f"all rows have QP {data[0, 0]:g}, so only the correlation with depth is defined")
    if not varies[1]:
        notes.append(f"all rows have depth {data[0, 1]:g}, so no correlation with depth is defined")
    result: dict[str, Any] = {
        "n": len(data),
        "dropped": dropped,
        "pearson": {"qp": _or_none(r[0, 2]), "depth": _or_none(r[1, 2])},
        "qp_depth": _or_none(r[0, 1]),
        "per_qp": _per_qp(data, notes),
        **_combinations(covariance, seed, notes, possible=all(varies)),
    }
    rng = np.random.default_rng(seed)
    by_ctu = _intervals(data, np.arange(len(data)), rng)
    pictures = _pictures(columns, kept, data, notes)
    by_picture = None if pictures is None else {"pictures": int(pictures.max()) + 1} | _intervals(data, pictures, rng)
    return result | {"ci95": {"by_picture": by_picture, "by_ctu": by_ctu}, "notes": notes}


def closed_form(covariance: Floats) -> tuple[float, float, float]:
    """(a, b, r) that maximise Pearson's r of a·QP + b·depth with the MSE, by least squares; max(|a|, |b|) = 1.

    `covariance` is (3, 3) over (QP, depth, MSE), with variances above 0. r is the multiple correlation, at least 0.
    Where QP and depth are proportional to each other the shortest standardised solution is taken.
    """
    correlation = _pearson(covariance)
    standardised = np.linalg.lstsq(correlation[:2, :2], correlation[:2, 2], rcond=1e-10)[0]
    weights = standardised / np.sqrt(np.diag(covariance)[:2])
    largest = np.abs(weights).max()
    if largest == 0:
        return 0.0, 0.0, 0.0
    a, b = weights / largest
    return float(a), float(b), float(combined_r(covariance, a, b))


def combined_r(covariance: Floats, a: Any, b: Any) -> Any:
    """Pearson's r of a·QP + b·depth with the MSE from the (3, 3) covariance; a and b broadcast; -1 where both are 0."""
    variance = a * a * covariance[0, 0] + 2 * a * b * covariance[0, 1] + b * b * covariance[1, 1]
    together = a * covariance[0, 2] + b * covariance[1, 2]
    safe = np.where(variance > 0, variance, 1.0)
    return np.where(variance > 0, together / np.sqrt(safe * covariance[2, 2]), -1.0)


def search(covariance: Floats, seed: int, b: float | None = None) -> tuple[float, float, float]:
    """(a, b, r) with a and b in [0, 1], or with the `b` given, that a Bayesian search for the highest r finds.

    Gaussian process and expected improvement (the notebook's method), then a descent from its best point, since the
    process alone stops some 1e-3 short. Knows nothing of the closed form. The same seed gives the same answer.
    """
    names = ("a", "b") if b is None else ("a",)
    bounds = dict.fromkeys(names, (0.0, 1.0))

    def objective(point: Any) -> float:
        return float(combined_r(covariance, *(*point, b)[:2]))

    optimiser = BayesianOptimization(
        f=None, pbounds=bounds, acquisition_function=_ExpectedImprovement(xi=0.0), random_state=seed, verbose=0
    )
    optimiser.set_gp_params(n_restarts_optimizer=0)
    best = [1.0] * len(names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of the process's fit, and of a deviation of 0 at a point it knows
        for step in range(_INITIAL_POINTS + _STEPS):
            suggested = optimiser.random_sample()[0] if step < _INITIAL_POINTS else optimiser.suggest()
            point = [float(suggested[name]) for name in names]
            try:
                optimiser.register(suggested, objective(point))
            except NotUniqueError:
                break  # nothing is expected to be better than a point that is known
            best = max(best, point, key=objective)
    polished = minimize(lambda point: -objective(point), best, method="L-BFGS-B", bounds=list(bounds.values()))
    best = max(best, [float(x) for x in polished.x], key=objective)
    return best[0], best[1] if b is None else b, objective(best)


class _ExpectedImprovement(acquisition.ExpectedImprovement):
    """Expected improvement over random candidates only: ample for two parameters, and ten times as fast."""

    def suggest(self, *args: Any, **kwargs: Any) -> Any:
        return super().suggest(*args, **({"n_random": 1000, "n_smart": 0} | kwargs))


def checked_rows(table: pa.Table | Mapping[str, Any]) -> Floats:
    """The rows with a depth, (n, 3) of QP, depth, MSE. Raises TableError as `correlate` does."""
    return _checked(_by_name(table))[0]


def _by_name(table: pa.Table | Mapping[str, Any]) -> dict[str, Any]:
    return {name: table[name] for name in (table.column_names if isinstance(table, pa.Table) else table)}


def _checked(columns: Mapping[str, Any]) -> tuple[Floats, NDArray[np.bool_], int]:
    """The rows that have a depth as (n, 3) of QP, depth, MSE; which rows those are; how many are not."""
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise TableError(f"the table has no column {', '.join(missing)}, only {', '.join(columns) or 'none at all'}")
    qp, depth, mse = (_numbers(name, columns[name]) for name in REQUIRED)
    if not len(qp) == len(depth) == len(mse):
        raise TableError(f"columns differ in length: qp {len(qp)}, depth_mean {len(depth)}, mse_y {len(mse)}")
    for name, bad in (("qp", ~np.isfinite(qp)), ("mse_y", ~np.isfinite(mse)), ("depth_mean", np.isinf(depth))):
        if bad.any():
            raise TableError(f"column {name} is empty, NaN or infinite in {bad.sum()} of {len(bad)} rows")
    kept = ~np.isnan(depth)
    if len(kept) and not kept.any():
        raise TableError(
            "the table has no depth: build the store with vvc or hevc, or bring depth_mean from block statistics "
            "(a VTM trace, or `codecnn partition` of a VVC stream)"
        )
    data = np.stack([qp, depth, mse], axis=1)[kept]
    if len(data) < _MIN_ROWS:
        raise TableError(f"a correlation needs at least {_MIN_ROWS} rows with a depth, the table has {len(data)}")
    if data[:, 2].min() == data[:, 2].max():
        raise TableError(f"mse_y is {data[0, 2]:g} in all rows, so no correlation with it is defined")
    return data, kept, int((~kept).sum())


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


def _centred(data: Floats) -> Floats:
    """Columns minus their mean; a constant column is exactly 0, whatever its mean was rounded to."""
    return np.where(data.min(axis=0) == data.max(axis=0), 0.0, data - data.mean(axis=0))


def covariance_of(data: Floats) -> Floats:
    """(3, 3) covariance of (n, 3) rows of QP, depth, MSE, over n rather than n - 1."""
    centred = _centred(data)
    covariance: Floats = centred.T @ centred / len(data)
    return covariance


def _pearson(covariance: Floats) -> Floats:
    """Matrix of correlations, NaN where a variance is 0."""
    deviation = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix: Floats = np.clip(covariance / np.outer(deviation, deviation), -1.0, 1.0)
    return matrix


def _or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _per_qp(data: Floats, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for qp in np.unique(data[:, 0]):
        rows = data[data[:, 0] == qp]
        depth = _or_none(_pearson(covariance_of(rows))[1, 2]) if len(rows) >= _MIN_ROWS else None
        if depth is None:
            why = f"only {len(rows)} rows" if len(rows) < _MIN_ROWS else "its depth or its MSE does not vary"
            notes.append(f"no correlation with depth at QP {qp:g}: {why}")
        found[f"{qp:g}"] = {"n": len(rows), "depth": depth}
    return found


def _combinations(covariance: Floats, seed: int, notes: list[str], *, possible: bool) -> dict[str, Any]:
    """The closed form and the two searches; None throughout where QP or depth does not vary."""
    if not possible:
        nothing = {"a": None, "b": None, "r": None}
        return {"closed_form": nothing, "ratio": None, "bayes": nothing, "bayes_b1": {"a": None, "r": None}}
    a, b, r = closed_form(covariance)
    outside = min(a, b) < 0
    if outside:
        notes.append(f"the closed form (a = {a:.4g}, b = {b:.4g}) lies outside the search's box: a and b in [0, 1]")
    found_a, found_b, found_r = search(covariance, seed)
    b1_a, _, b1_r = search(covariance, seed, b=1.0)
    reached = bool(abs(found_r - r) <= REACHED)
    if not reached and not outside:
        notes.append(f"the search stopped {r - found_r:.2g} below the closed form's correlation")
    return {
        "closed_form": {"a": a, "b": b, "r": r, "outside_box": outside},
        "ratio": a / b if b else None,
        "bayes": {"a": found_a, "b": found_b, "r": found_r, "reached_closed_form": reached},
        "bayes_b1": {"a": b1_a, "r": b1_r, "reached_closed_form": bool(abs(b1_r - r) <= REACHED)},
    }


def _pictures(
    columns: Mapping[str, Any], kept: NDArray[np.bool_], data: Floats, notes: list[str]
) -> NDArray[Any] | None:
    """Number (n,) of the picture of each row kept, from 0, all its QPs alike. None where it is not known."""
    name = next((name for name in PICTURE_COLUMNS if name in columns), None)
    if name is None:
        notes.append(f"no interval by picture: the table has none of the columns {', '.join(PICTURE_COLUMNS)}")
        return None
    if name == "unit" and len(np.unique(data[:, 0])) > 1:
        notes.append("without a column picture or sequence, each unit counts as pictures of its own in the intervals")
    numbers = np.zeros(len(data), dtype=np.int64)
    for key in (name, "poc") if "poc" in columns else (name,):
        values = np.asarray(columns[key]).astype(str)
        if values.shape != kept.shape:
            raise TableError(f"columns differ in length: {key} {len(values)}, qp {len(kept)}")
        codes = np.unique(values[kept], return_inverse=True)[1]
        numbers = np.unique(numbers * (int(codes.max()) + 1) + codes, return_inverse=True)[1]
    count = int(numbers.max()) + 1
    if count < _MIN_PICTURES:
        notes.append(f"no interval by picture: that needs at least {_MIN_PICTURES} pictures, the table has {count}")
        return None
    return numbers


def _intervals(data: Floats, groups: NDArray[Any], rng: np.random.Generator) -> dict[str, Any]:
    """95 % percentile intervals over RESAMPLES resamples of the groups, `groups` (n,) numbering them from 0.

    A group enters as the ten sums that a covariance needs. More than _MAX_GROUPS of them are first put together at
    random, which leaves the spread of the sums as it is and the work independent of the table's length.
    """
    count = int(groups.max()) + 1
    if count > _MAX_GROUPS:
        groups, count = (rng.permutation(count) % _MAX_GROUPS)[groups], _MAX_GROUPS
    centred = _centred(data)
    deviation = centred.std(axis=0)
    x = centred / np.where(deviation > 0, deviation, 1.0)
    first, second = np.triu_indices(3)
    terms = np.column_stack([np.ones(len(x)), x, x[:, first] * x[:, second]])
    sums = np.column_stack([np.bincount(groups, weights=term, minlength=count) for term in terms.T])
    drawn = rng.integers(0, count, (RESAMPLES, count)) + count * np.arange(RESAMPLES)[:, None]
    weights = np.bincount(drawn.ravel(), minlength=RESAMPLES * count).reshape(RESAMPLES, count)
    total = weights.astype(np.float64) @ sums
    mean = total[:, 1:4] / total[:, :1]
    covariance = total[:, 4:] / total[:, :1] - mean[:, first] * mean[:, second]
    qq, qd, qm, dd, dm, mm = np.where(np.abs(covariance) < 1e-12, 0.0, covariance).T
    with np.errstate(divide="ignore", invalid="ignore"):
        r_qp, r_depth, r_both = qm / np.sqrt(qq * mm), dm / np.sqrt(dd * mm), qd / np.sqrt(qq * dd)
        # The multiple correlation of two predictors, written out.
        squared = (r_qp**2 + r_depth**2 - 2 * r_qp * r_depth * r_both) / (1 - r_both**2)
        multiple = np.sqrt(np.clip(squared, 0.0, 1.0))
    return {
        "pearson": {"qp": _percentiles(r_qp), "depth": _percentiles(r_depth)},
        "closed_form": {"r": _percentiles(multiple)},
    }


def _percentiles(values: Floats) -> list[float] | None:
    """The middle 95 % of the resamples; None where most of them had no correlation."""
    finite = values[np.isfinite(values)]
    if 2 * len(finite) < len(values):
        return None
    return [float(value) for value in np.percentile(finite, [2.5, 97.5])]
