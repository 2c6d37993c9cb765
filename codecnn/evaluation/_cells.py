"""The cells of an evaluation: each is measured once, and kept under all that decides it; by one machine or several."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import ValidationError

from codecnn.cluster import Progress, Shard, check_shard, of_shard, work_through
from codecnn.dataset import Unit
from codecnn.errors import CodecnnError, ConfigError, ModelError
from codecnn.evaluation.measure import (
    Cell,
    Entry,
    PictureMeasure,
    measure_decoded,
    measure_filtered,
    parse_metrics,
)
from codecnn.filtering import QP_OFFSETS, Decisions
from codecnn.runs import atomic_path, read_json, sha256_json, write_json

CELL_SCHEMA = 2
"""Goes up when filters come to make other samples: from 2 on they are told no QP that they did not learn."""


@dataclass(frozen=True)
class _Wanted:
    """A cell to measure: the filter, or how a worker loads it, the unit, and the file that says that it is done."""

    entry: Entry | Callable[[], Entry]
    unit: Unit
    file: Path


def measure_cells(
    entries: Sequence[Entry],
    units: Sequence[Unit],
    folder: Path,
    metrics: Sequence[str],
    decisions: Decisions,
    ctu_size: int,
    progress: Progress | None = None,
) -> list[Cell]:
    """Every unit through every filter, filter by filter; what `folder` holds of them is not measured again.

    Raises ConfigError or ModelError for what cannot be evaluated, before anything is measured.
    """
    _check(entries, metrics, decisions)
    report = progress or (lambda done, total: None)
    cells: dict[str, list[Cell]] = {entry.name: [] for entry in entries}
    # Unit by unit, so that an interrupted evaluation has compared all filters on what it came to.
    for index, (unit, entry) in enumerate((unit, entry) for unit in units for entry in entries):
        report(index, len(units) * len(entries))
        cells[entry.name].append(_measure_cell(entry, unit, folder, metrics, decisions, ctu_size))
    report(len(units) * len(entries), len(units) * len(entries))
    return [cell for group in cells.values() for cell in group]


def measure_spread(
    entries: Sequence[Entry],
    units: Sequence[Unit],
    folder: Path,
    metrics: Sequence[str],
    decisions: Decisions,
    ctu_size: int,
    *,
    shard: Shard,
    scheduler: str | None,
    progress: Progress | None,
) -> bool:
    """Measure the cells of a shard that `folder` does not hold, as `measure_cells`; returns whether it now holds all.

    Workers load the filters themselves: weights and store must lie under the same paths there. Raises ConfigError for
    a filter that cannot be loaded again, and what `work_through` raises.
    """
    check_shard(shard)
    _check(entries, metrics, decisions)
    # Workers have working folders of their own.
    folder = folder.absolute()
    every = []
    for unit in (unit.model_copy(update={"folder": unit.folder.absolute()}) for unit in units):
        for entry in entries:
            file, _ = _cell_file(entry, unit, folder, metrics, decisions, ctu_size)
            every.append(_Wanted(_sent(entry) if scheduler else entry, unit, file))
    mine = of_shard(every, shard)
    missing = [wanted for wanted in mine if not wanted.file.is_file()]
    work_through(
        functools.partial(_measure, folder=folder, metrics=metrics, decisions=decisions, ctu_size=ctu_size),
        missing,
        lambda wanted: wanted.file,
        scheduler=scheduler,
        progress=progress,
        done=len(mine) - len(missing),
    )
    return all(wanted.file.is_file() for wanted in every)


def _sent(entry: Entry) -> Callable[[], Entry]:
    if entry.load is None:
        raise ConfigError(f"{entry.name} does not say how it is loaded, as it must be by each worker of a cluster")
    return entry.load


def _measure(wanted: _Wanted, *, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int) -> None:
    entry = wanted.entry if isinstance(wanted.entry, Entry) else wanted.entry()
    _measure_cell(entry, wanted.unit, folder, metrics, decisions, ctu_size)


def _check(entries: Sequence[Entry], metrics: Sequence[str], decisions: str) -> None:
    parse_metrics(",".join(metrics))
    if decisions not in QP_OFFSETS:
        raise ConfigError(f"unknown decisions {decisions!r}: one of {', '.join(QP_OFFSETS)}")
    names = [entry.name for entry in entries]
    if not names:
        raise ConfigError("there is no filter to evaluate")
    if len(set(names)) < len(names):
        raise ConfigError(f"two filters have one name: {', '.join(names)}")
    for entry in entries:
        if not entry.card.sha256:
            raise ModelError(f"the card of {entry.name} does not tell the sha256 of its weights")


def _measure_cell(
    entry: Entry, unit: Unit, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> Cell:
    """The cell from its files, or measured and written."""
    key = _decoded_key(unit, metrics)
    path = folder / _file_name(unit, key)
    decoded = _kept(path, key)
    if decoded is None:
        decoded = measure_decoded(unit, metrics)
        write_json(path, {"key": key, "pictures": [picture.to_json() for picture in decoded]})
    path, key = _cell_file(entry, unit, folder, metrics, decisions, ctu_size)
    table = path.with_suffix(".parquet")
    filtered = _kept(path, key)
    if filtered is None or not table.is_file():
        filtered, ctus = measure_filtered(entry.filter, unit, metrics, decisions, ctu_size)
        # The table first: a kill in between leaves no JSON, and the JSON says that both are whole.
        with atomic_path(table) as part:
            pq.write_table(ctus, part)
        told = [picture.to_json() for picture in filtered]
        write_json(path, {"key": key, "device": entry.device, "pictures": told})
    return Cell(entry.name, unit, decoded, filtered, table)


def _cell_file(
    entry: Entry, unit: Unit, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> tuple[Path, dict[str, Any]]:
    """The file that says what was measured of a unit through a filter, written last, and all that decides it."""
    key = _decoded_key(unit, metrics) | {"weights": entry.card.sha256, "filter": type(entry.filter).__name__}
    key |= {"decisions": decisions, "ctu": ctu_size}
    return folder / _file_name(unit, key), key


def _decoded_key(unit: Unit, metrics: Sequence[str]) -> dict[str, Any]:
    key = {"schema": CELL_SCHEMA, "unit": unit.key, "original": unit.files[unit.original_file]}
    return key | {"metrics": sorted(metrics)}


def _file_name(unit: Unit, key: Mapping[str, Any]) -> str:
    # A store from elsewhere may name a sequence as it likes.
    return f"{re.sub(r'[^0-9A-Za-z_-]', '_', unit.name)[:80]}_qp{unit.qp}_{sha256_json(key)[:16]}.json"


def _kept(path: Path, key: Mapping[str, Any]) -> list[PictureMeasure] | None:
    """The pictures of a cell that was measured before; None where there is none, or what is there is damaged."""
    try:
        cell = read_json(path)
        return [PictureMeasure.model_validate(one) for one in cell["pictures"]] if cell["key"] == key else None
    except (CodecnnError, KeyError, TypeError, ValidationError):
        return None
