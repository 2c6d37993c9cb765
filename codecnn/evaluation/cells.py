"""Measurement cells that are measured once and kept in files, by one process or by several.

The name and content of a cell's file depend on everything that decides the measured figures, except for the time of the
filter. A time depends on the machine, so each file also states the device and the number of threads of its timing. The
record of the runtime is in each file, and its part that changes samples in the key.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import ValidationError

from codecnn.base.cluster import Progress, Shard, check_shard, of_shard, work_through
from codecnn.base.errors import CodecnnError, ConfigError, ModelError
from codecnn.base.files import atomic_path, file_stem, read_json, sha256_file, sha256_json, write_json
from codecnn.dataset import Unit
from codecnn.evaluation.entries import Entry
from codecnn.evaluation.measure import (
    UNKNOWN_DEVICE,
    Cell,
    PictureMeasure,
    measure_decoded,
    measure_filtered,
    parse_metrics,
)
from codecnn.filtering import QP_OFFSETS, Decisions
from codecnn.pictures.files import warn

CELL_SCHEMA = 3
"""Schema version of cell files, part of their key; raise it when filters start to compute other samples.
"""

OTHER_KMAC = 10
"""Work on a cell besides its network in kMAC/pixel: that of 0.24 of the 0.35 and 0.65 s of processor time in which a
thread measured a million luma samples with low_cost_5 and low_cost_17."""


@dataclass(frozen=True)
class _CellTask:
    """A cell to measure: the filter (or a function that loads it on a worker), the unit, and the file to write."""

    entry: Entry | Callable[[], Entry]
    unit: Unit
    file: Path


@dataclass(frozen=True)
class _StoredCell:
    """Content of a cell's file: measurements, the device and threads of the timing, and the record of the runtime."""

    pictures: list[PictureMeasure]
    device: str
    threads: int | None
    runtime: dict[str, Any] | None
    table_sha256: str | None


def measure_cells(
    entries: Sequence[Entry],
    units: Sequence[Unit],
    folder: Path,
    metrics: Sequence[str],
    decisions: Decisions,
    ctu_size: int,
    progress: Progress | None = None,
) -> list[Cell]:
    """Measure every unit through every filter; cells that `folder` holds are read instead.

    Args:
        entries: The filters.
        units: The coded units.
        folder: Folder of the cell files.
        metrics: Names from `METRICS`.
        decisions: "none", "ctu" or "full".
        ctu_size: Width and height of a CTU in luma samples.
        progress: Called with (cells done, all cells).

    Returns:
        The cells, filter by filter.

    Raises:
        ConfigError: Unknown metric or decisions, no filter, or two filters with the same name.
        ModelError: A card does not state the SHA-256 of its weights.
    """
    _check(entries, metrics, decisions)
    report = progress or (lambda done, total: None)
    cells: dict[str, list[Cell]] = {entry.name: [] for entry in entries}
    # Units are the outer loop, so that an interrupted evaluation has compared all filters on the same units.
    for index, (unit, entry) in enumerate((unit, entry) for unit in units for entry in entries):
        report(index, len(units) * len(entries))
        cells[entry.name].append(_measure_cell(entry, unit, folder, metrics, decisions, ctu_size))
    report(len(units) * len(entries), len(units) * len(entries))
    return [cell for group in cells.values() for cell in group]


def measure_distributed(
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
    """Measure the missing cells of a shard, here or on the workers of a dask scheduler.

    Workers load the filters themselves, so weights and store must lie under the same paths there.

    Args:
        entries: The filters.
        units: The coded units.
        folder: Folder of the cell files.
        metrics: Names from `METRICS`.
        decisions: "none", "ctu" or "full".
        ctu_size: Width and height of a CTU in luma samples.
        shard: (i, n): measure the i-th of n parts of the cells.
        scheduler: Address of a dask scheduler, or None to measure in this process.
        progress: Called with (cells done, cells of the shard).

    Returns:
        True if `folder` now holds the cells of all shards.

    Raises:
        ConfigError: An entry has no `load` function for the workers, or an option is invalid (see `measure_cells`).
        WorkerError: The workers failed; see `codecnn.base.cluster.work_through`.
    """
    check_shard(shard)
    _check(entries, metrics, decisions)
    for entry in entries:
        if entry.not_kept is not None:
            raise ConfigError(f"{entry.name} cannot be measured by several processes: {entry.not_kept}")
    # Workers run in other working folders.
    folder = folder.absolute()
    tasks = []
    for unit in (unit.model_copy(update={"folder": unit.folder.absolute()}) for unit in units):
        for entry in entries:
            file, _ = _cell_file(entry, unit, folder, metrics, decisions, ctu_size)
            tasks.append(_CellTask(_entry_loader(entry) if scheduler else entry, unit, file))
    costs = [_cost(entry, unit) for unit in units for entry in entries]
    shard_tasks = of_shard(tasks, shard, costs)
    missing = [task for task in shard_tasks if not task.file.is_file()]
    work_through(
        functools.partial(_run_task, folder=folder, metrics=metrics, decisions=decisions, ctu_size=ctu_size),
        missing,
        lambda task: task.file,
        scheduler=scheduler,
        progress=progress,
        done=len(shard_tasks) - len(missing),
    )
    return all(task.file.is_file() for task in tasks)


def _cost(entry: Entry, unit: Unit) -> int:
    """Return the predicted work of a cell in millions of multiply-accumulates."""
    samples = unit.format.width * unit.format.height * len(unit.pictures)
    return round(samples * (OTHER_KMAC + (entry.card.kmac_per_pixel or 0)) / 1000)


def _entry_loader(entry: Entry) -> Callable[[], Entry]:
    if entry.load is None:
        raise ConfigError(f"{entry.name} has no `load` function, which each worker of a cluster needs: set Entry.load")
    return entry.load


def _run_task(task: _CellTask, *, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int) -> None:
    entry = task.entry if isinstance(task.entry, Entry) else task.entry()
    _measure_cell(entry, task.unit, folder, metrics, decisions, ctu_size)


def _check(entries: Sequence[Entry], metrics: Sequence[str], decisions: str) -> None:
    parse_metrics(",".join(metrics))
    if decisions not in QP_OFFSETS:
        raise ConfigError(f"unknown decisions {decisions!r}: use one of {', '.join(QP_OFFSETS)}")
    names = [entry.name for entry in entries]
    if not names:
        raise ConfigError("there is no filter to evaluate: name weights with --model")
    if len(set(names)) < len(names):
        raise ConfigError(f"two filters have the same name: {', '.join(names)}")
    for entry in entries:
        if not (entry.card.sha256 or entry.code or entry.not_kept):
            raise ModelError(f"the card of {entry.name} does not state the sha256 of its weights: save them again")


def prune_cells(
    entries: Sequence[Entry],
    units: Sequence[Unit],
    folder: Path,
    metrics: Sequence[str],
    decisions: Decisions,
    ctu_size: int,
) -> None:
    """Remove the cells of other evaluations; the arguments are those of `measure_cells`.

    A file is a cell if its name ends in the hash of the key that it states; all other files stay.
    """
    kept = {folder / _file_name(unit, _decoded_key(unit, metrics)) for unit in units}
    kept |= {_cell_file(entry, unit, folder, metrics, decisions, ctu_size)[0] for unit in units for entry in entries}
    for path in set(folder.glob("*.json")) - kept:
        with contextlib.suppress(CodecnnError, KeyError, TypeError):
            if path.stem.endswith(file_stem("", "", read_json(path)["key"])[1:]):
                # The JSON is removed first: without it there is no cell.
                path.unlink()
                path.with_suffix(".parquet").unlink(missing_ok=True)


def _measure_cell(
    entry: Entry, unit: Unit, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> Cell:
    """Read a cell from its files, or measure it and write them."""
    key = _decoded_key(unit, metrics)
    path = folder / _file_name(unit, key)
    if (stored := _read_stored(path, key)) is not None:
        decoded = stored.pictures
    else:
        decoded = measure_decoded(unit, metrics)
        write_json(path, {"key": key, "pictures": [picture.to_json() for picture in decoded]})
    path, key = _cell_file(entry, unit, folder, metrics, decisions, ctu_size)
    table = path.with_suffix(".parquet")
    stored = _read_stored(path, key) if entry.not_kept is None else None
    if stored is not None and not (table.is_file() and sha256_file(table) == stored.table_sha256):
        warn(f"{table} is missing or has another content than {path} says: the cell is measured again")
        stored = None
    if stored is None:
        filtered, ctus = measure_filtered(entry.filter, unit, metrics, decisions, ctu_size)
        runtime = None if entry.runtime is None else entry.runtime.as_json()
        # The table is written first: if the JSON is there, both files are complete.
        with atomic_path(table) as part:
            pq.write_table(ctus, part)
            table_sha256 = sha256_file(part)
        stored = _StoredCell(filtered, entry.device, cpu_threads(), runtime, table_sha256)
        pictures = [picture.to_json() for picture in filtered]
        content = {"key": key, "device": stored.device, "threads": stored.threads, "table_sha256": table_sha256}
        content |= {} if runtime is None else {"runtime": runtime}
        write_json(path, content | {"pictures": pictures})
    return Cell(entry.name, unit, decoded, stored.pictures, table, stored.device, stored.threads, stored.runtime)


def cpu_threads() -> int:
    """Return the number of CPU threads that PyTorch computes with."""
    import torch

    return torch.get_num_threads()


def _cell_file(
    entry: Entry, unit: Unit, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> tuple[Path, dict[str, Any]]:
    """Return the JSON file of a cell, which is written last, and its key."""
    key = _decoded_key(unit, metrics) | entry.cache_key | {"decisions": decisions, "ctu": ctu_size}
    return folder / _file_name(unit, key), key


def _decoded_key(unit: Unit, metrics: Sequence[str]) -> dict[str, Any]:
    # The files decide the figures; the unit's key has its settings, which the files alone do not show.
    key = {"schema": CELL_SCHEMA, "unit": unit.key, "files": sha256_json(unit.files)}
    return key | {"metrics": sorted(metrics)}


def _file_name(unit: Unit, key: Mapping[str, Any]) -> str:
    return f"{file_stem(unit.name, f'qp{unit.qp}', key)}.json"


def _read_stored(path: Path, key: Mapping[str, Any]) -> _StoredCell | None:
    """Read a cell's file; None if it is missing, has another key, or, with a warning, is damaged."""
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        if content["key"] != key:
            return None
        pictures = [PictureMeasure.model_validate(picture) for picture in content["pictures"]]
        device, threads = content.get("device") or UNKNOWN_DEVICE, content.get("threads")
        return _StoredCell(pictures, device, threads, content.get("runtime"), content.get("table_sha256"))
    except (CodecnnError, KeyError, TypeError, AttributeError, ValidationError):
        warn(f"{path} is no cell of an evaluation: it is measured again")
        return None
