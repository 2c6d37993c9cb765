"""What an evaluation leaves beside results.json: rows of pictures and CTUs, CSV, Markdown, block statistics."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from codecnn.codec.blocks.vtm_writer import PLACE, write_block_values
from codecnn.dataset.store import Store, Unit
from codecnn.errors import TableError
from codecnn.evaluation.summary import APART
from codecnn.quality.metrics import mean_psnr
from codecnn.runs import atomic_path, write_text

COMPONENTS = ("y", "u", "v")
STATISTICS_RANGES = {"Filtered": (0, 1), "GainCentiDB": (-50, 50)}
"""Block statistics of a decision, and where the scale of colours begins and ends; gains in 0.01 dB."""
_MAX_GAIN = 1000


@dataclass(frozen=True)
class Measured:
    """One cell: what `measure_decoded` and `measure_filtered` told of a unit, and the file of its CTUs."""

    model: str
    unit: Unit
    decoded: list[dict[str, Any]]
    filtered: list[dict[str, Any]]
    ctus: Path

    def picture_rows(self) -> list[dict[str, Any]]:
        """A row a picture: PSNR of its planes before and after in dB (None without error), bits, what was decided."""
        depth = self.unit.format.bit_depth
        rows = []
        for coded, before, after in zip(self.unit.record["pictures"], self.decoded, self.filtered, strict=True):
            row: dict[str, Any] = {"model": self.model, "name": self.unit.name, "qp": self.unit.qp}
            row |= {"poc": coded["poc"], "slice_qp": coded["qp"], "bits": coded.get("bits")}
            row |= {"flag_bits": after.get("bits", 0), "mode": after.get("mode"), "qp_offset": after.get("qp_offset")}
            for suffix, values in (("", before["mse"]), ("_filtered", after["mse"])):
                for plane, value in zip(COMPONENTS, values, strict=False):
                    row[f"psnr_{plane}{suffix}"] = mean_psnr([value], depth) if value > 0 else None
            rows.append(row)
        return rows


def write_csv(path: Path | str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of one kind as CSV, with every key that any row has as a column. Raises TableError without rows."""
    if not rows:
        raise TableError(f"{path}: there is no row to write")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()})
    write_text(path, text.getvalue())


def write_ctus(path: Path, cells: Sequence[Measured], store: Store) -> None:
    """Write the CTUs of all cells as one table: those of `measure_filtered`, of which cell, and the mean CU depth.

    `mse_y` (sample²), `depth_mean` (null where the codec's partition is not known) and `qp` are the columns that the
    correlation analysis reads.
    """
    depths = _depths(store, {cell.unit.key for cell in cells})
    groups = []
    for cell in cells:
        table = pq.read_table(cell.ctus)
        places = zip(*(table[name].to_pylist() for name in ("poc", "x", "y")), strict=True)
        known: dict[str, Any] = {"model": cell.model, "unit": cell.unit.key, "sequence": cell.unit.name}
        known |= {"group": cell.unit.record.get("group")}
        for name, value in known.items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        depth = [depths.get((cell.unit.key, *place)) for place in places]
        groups.append(table.append_column("depth_mean", pa.array(depth, pa.float64())))
    with atomic_path(path) as part:
        pq.write_table(pa.concat_tables(groups), part)


def _depths(store: Store, units: set[str]) -> dict[tuple[str, int, int, int], float]:
    table = store.ctus()
    table = table.filter(pc.is_in(table["unit"], pa.array(sorted(units), pa.string())))
    columns = [table[name].to_pylist() for name in ("unit", "poc", "x", "y", "depth_mean")]
    return {(unit, poc, x, y): depth for unit, poc, x, y, depth in zip(*columns, strict=True)}


def write_statistics(folder: Path, cells: Sequence[Measured]) -> None:
    """Write each cell's decisions as block statistics, which YUView shows over the video.

    A file is MODEL_SEQUENCE_qpQP.vtmbmsstats; `Filtered` is 1 where luma is filtered, `GainCentiDB` what that gains in
    0.01 dB.
    """
    for cell in cells:
        table = pq.read_table(cell.ctus)
        columns = {name: np.asarray(table[name]) for name in PLACE}
        before, after = (np.maximum(np.asarray(table[name]), 1e-6) for name in ("mse_y", "mse_y_filtered"))
        gain = np.clip(np.rint(1000 * np.log10(before / after)), -_MAX_GAIN, _MAX_GAIN).astype(np.int32)
        flags = np.asarray(table["flag"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False))
        columns |= {"Filtered": flags.astype(np.int32), "GainCentiDB": gain}
        form = cell.unit.format
        name = re.sub(r"[^0-9A-Za-z_-]", "_", f"{cell.model}_{cell.unit.name}")[:120]
        path = folder / f"{name}_qp{cell.unit.qp}.vtmbmsstats"
        write_block_values(path, columns, STATISTICS_RANGES, width=form.width, height=form.height)


def write_markdown(path: Path, every: Sequence[Mapping[str, Any]]) -> None:
    """Write results.md: of each filter BD-rates by class and sequence, and PSNR gain by QP."""
    write_text(path, "\n".join(_markdown(results) for results in every))


def _markdown(results: Mapping[str, Any]) -> str:
    qps = sorted({row["qp"] for row in results["sequences"]})
    facts = [f"{results['kmac_per_pixel']:.1f} kMAC/pixel"] if results.get("kmac_per_pixel") is not None else []
    facts += [f"{results['codec']} {results['settings']['preset']} {results['settings']['configuration'].upper()}"]
    lines = [f"# {results['name']}", "", ", ".join([*facts, results["label"]]), ""]
    lines += _table(
        ["", "BD-rate Y", "U", "V", *(f"gain Y QP {qp}" for qp in qps), "mean"],
        [
            [name, *(_percent(rates.get(c)) for c in COMPONENTS), *(_decibel(gain) for gain in gains)]
            for name, rates, gains in summary_rows(results, qps)
        ],
    )
    lines += ["", "BD-rate in %, negative saves bits; PSNR gain in dB.", *(f"\n- {note}" for note in results["notes"])]
    return "\n".join(lines) + "\n"


def summary_rows(
    results: Mapping[str, Any], qps: Sequence[int]
) -> list[tuple[str, Mapping[str, float | None], list[float | None]]]:
    """(name, BD-rates, luma gain at each QP and their mean): classes, all sequences together, then each of them."""
    gains: dict[str, dict[int, float]] = {}
    members: dict[str, list[str]] = {}
    for row in results["sequences"]:
        own = gains.setdefault(row["name"], {})
        if row["name"] not in members.setdefault(str(row.get("class")), []):
            members[str(row.get("class"))].append(row["name"])
        if row.get("psnr_y") is not None and row.get("psnr_y_filtered") is not None:
            own[row["qp"]] = row["psnr_y_filtered"] - row["psnr_y"]

    def mean(names: Sequence[str]) -> list[float | None]:
        cells: list[float | None] = []
        for qp in qps:
            known = [gains[name][qp] for name in names if qp in gains[name]]
            cells.append(sum(known) / len(known) if known else None)
        filled = [cell for cell in cells if cell is not None]
        return [*cells, sum(filled) / len(filled) if filled else None]

    by_class = results.get("bd_rate_by_class") or {}
    rows = [(f"Class {name}", rates, mean(members[name])) for name, rates in by_class.items()]
    overall = results.get("bd_rate") or {}
    if results.get("bd_rate_jvet") not in (None, overall):
        counted = [name for label, names in members.items() if label not in APART for name in names]
        rows.append((f"Overall without {' and '.join(APART)}", results["bd_rate_jvet"], mean(counted)))
    rows.append(("Overall", overall, mean(list(gains))))
    per_sequence = results.get("bd_rate_per_sequence") or {}
    return rows + [(name, per_sequence.get(name) or {}, mean([name])) for name in gains]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *[[_escaped(cell) for cell in row] for row in rows]]
    return [f"| {' | '.join(line)} |" for line in lines]


def _escaped(cell: str) -> str:
    return re.sub(r"([\\|<>`*_\[\]])", r"\\\1", cell)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _decibel(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"
