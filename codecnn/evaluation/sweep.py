"""The evaluation: every coded unit of a split through every filter. A kill loses one cell at most."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from codecnn.dataset.store import Store, Unit
from codecnn.errors import CodecnnError, ConfigError, ModelError
from codecnn.evaluation.measure import QP_OFFSETS, Decisions, Entry, measure_decoded, measure_filtered, parse_metrics
from codecnn.evaluation.quantisation import add_losses
from codecnn.evaluation.report.crops import make_crop
from codecnn.evaluation.report.page import write_report
from codecnn.evaluation.summary import make_row, summarise, untrained_qp
from codecnn.evaluation.tables import Measured, write_csv, write_ctus, write_markdown, write_statistics
from codecnn.runs import atomic_path, read_json, sha256_json, write_json

Progress = Callable[[int, int], None]
CELL_SCHEMA = 1
CELLS, STATISTICS = "cells", "statistics"
MAX_CROPS = 6


def evaluate(
    entries: Sequence[Entry],
    store: Store,
    split: str,
    output: Path,
    *,
    metrics: Sequence[str] = ("psnr",),
    decisions: Decisions = "none",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run every filter over every unit of a split, and write what came of it into `output`.

    results.json, results.csv, results.md, report.html; pictures.csv with a row a picture; ctus.parquet with a row a
    CTU, as `codecnn correlate` reads it; and with decisions statistics/*.vtmbmsstats for YUView. Bits are those of the
    whole bitstream file. Returns the content of results.json: that of `summarise`, or of several filters {"schema",
    "models"} with one such a filter.

    A cell (sequence, QP, filter) is measured once, and kept in cells/ under all that decides it: an evaluation that was
    interrupted or killed goes on where it was, and another filter costs only its own cells. Raises ConfigError for an
    unknown metric or two filters of one name, ModelError for a filter whose card does not name its weights.
    """
    units = store.split(split)
    _check(entries, metrics, decisions)
    total = len(units) * len(entries)
    cells: dict[str, list[Measured]] = {entry.name: [] for entry in entries}
    for index, (entry, unit) in enumerate((entry, unit) for unit in units for entry in entries):
        if progress is not None:
            progress(index, total)
        cells[entry.name].append(_cell(entry, unit, output / CELLS, metrics, decisions, _ctu_size(store)))
    if progress is not None:
        progress(total, total)

    every = [
        summarise(
            [make_row(cell.unit, cell.decoded, cell.filtered) for cell in cells[entry.name]],
            *(entry.card, store, split),
            name=entry.name,
            decisions=decisions,
            device=entry.device,
        )
        for entry in entries
    ]
    add_losses(entries, every)
    results = every[0] if len(every) == 1 else {"schema": every[0]["schema"], "models": every}
    listed = [cell for group in cells.values() for cell in group]
    write_json(output / "results.json", results)
    write_csv(output / "results.csv", [{"model": one["name"]} | row for one in every for row in one["sequences"]])
    write_csv(output / "pictures.csv", [row for cell in listed for row in cell.picture_rows()])
    write_markdown(output / "results.md", every)
    write_ctus(output / "ctus.parquet", listed, store)
    if decisions != "none":
        write_statistics(output / STATISTICS, listed)
    crops = [make_crop(entries[0], unit, decisions, _ctu_size(store)) for unit in _shown(units)]
    write_report(output / "report.html", every, crops, listed)
    return results


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
        if not entry.card.get("sha256"):
            raise ModelError(f"the card of {entry.name} does not tell the sha256 of its weights")


def _ctu_size(store: Store) -> int:
    return int(store.manifest["recipe"]["ctu_size"])


def _cell(entry: Entry, unit: Unit, folder: Path, metrics: Sequence[str], decisions: Decisions, ctu: int) -> Measured:
    """The cell from its files, or measured and written: its table first, so that the JSON says that both are whole."""
    what = {"schema": CELL_SCHEMA, "unit": unit.key, "original": unit.files[unit.record["original"]]}
    what |= {"metrics": sorted(metrics)}
    decoded = _kept(folder / _name(unit, what), what)
    if decoded is None:
        decoded = measure_decoded(unit, metrics)
        write_json(folder / _name(unit, what), {"key": what, "pictures": decoded})
    what |= {"weights": entry.card["sha256"], "filter": type(entry.filter).__name__, "decisions": decisions, "ctu": ctu}
    path = folder / _name(unit, what)
    filtered = _kept(path, what)
    if filtered is None or not path.with_suffix(".parquet").is_file():
        filtered, ctus = measure_filtered(entry.filter, unit, metrics, decisions, ctu)
        with atomic_path(path.with_suffix(".parquet")) as part:
            pq.write_table(ctus, part)
        write_json(path, {"key": what, "device": entry.device, "pictures": filtered})
    return Measured(entry.name, unit, decoded, filtered, path.with_suffix(".parquet"))


def _name(unit: Unit, what: dict[str, Any]) -> str:
    # A store from elsewhere may name a sequence as it likes.
    return f"{re.sub(r'[^0-9A-Za-z_-]', '_', unit.name)[:80]}_qp{unit.qp}_{sha256_json(what)[:16]}.json"


def _kept(path: Path, what: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The pictures of a cell that was measured before; None where there is none, or what is there is damaged."""
    try:
        cell = read_json(path)
        return list(cell["pictures"]) if cell["key"] == what else None
    except (CodecnnError, KeyError, TypeError):
        return None


def _shown(units: Sequence[Unit]) -> list[Unit]:
    """One unit a sequence for the crops: the second highest QP, where the codec's error and the repair are visible."""
    by_name: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        by_name[unit.name].append(unit)
    shown = [sorted(group, key=lambda unit: unit.qp)[max(len(group) - 2, 0)] for group in by_name.values()]
    return shown[:MAX_CROPS]


__all__ = ["Entry", "evaluate", "untrained_qp"]
