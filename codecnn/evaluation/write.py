"""Writing: the files of an evaluation from its results and cells."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from codecnn.codec import PLACE, write_block_values
from codecnn.dataset import Store
from codecnn.errors import TableError
from codecnn.evaluation.jvet import tables_of
from codecnn.evaluation.measure import Cell, Crop
from codecnn.evaluation.report import write_report
from codecnn.evaluation.rows import AFTER, PLANES
from codecnn.evaluation.summarise import Results
from codecnn.runs import atomic_path, write_json, write_text

STATISTICS_RANGES = {"Filtered": (0, 1), "GainCentiDB": (-50, 50)}
"""Block statistics of a decision, and where the scale of colours begins and ends; gains in 0.01 dB."""
_MAX_GAIN = 1000


def write_results(
    output: Path,
    every: Sequence[Results],
    cells: Sequence[Cell],
    crops: Sequence[Crop],
    store: Store,
    types: Mapping[str, Sequence[str]],
) -> None:
    """Write all that an evaluation leaves into the folder `output`."""
    write_json(output / "results.json", results_json(every))
    write_csv(output / "results.csv", [{"model": one.name} | row.to_json() for one in every for row in one.sequences])
    write_csv(output / "pictures.csv", [row for cell in cells for row in _picture_rows(cell, types)])
    write_csv(output / "jvet.csv", [row for table in tables_of(every) for row in table.csv_rows()])
    write_markdown(output / "results.md", every)
    _write_ctus(output / "ctus.parquet", cells, store)
    if every[0].decisions != "none":
        _write_statistics(output / "statistics", cells)
    write_report(output / "report.html", every, crops, cells)


def results_json(every: Sequence[Results]) -> dict[str, Any]:
    """The content of results.json: what there is to say of one filter, or of several {"schema", "models"}."""
    models = [one.to_json() for one in every]
    return models[0] if len(models) == 1 else {"schema": every[0].schema_, "models": models}


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


def _picture_rows(cell: Cell, types: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A row a picture: PSNR of its planes before and after in dB (None without error), bits, what was decided."""
    depth = cell.unit.format.bit_depth
    rows = []
    kinds = types.get(cell.unit.key) or [coded.slice_type for coded in cell.unit.pictures]
    for coded, kind, before, after in zip(cell.unit.pictures, kinds, cell.decoded, cell.filtered, strict=True):
        row: dict[str, Any] = {"model": cell.model, "name": cell.unit.name, "qp": cell.unit.qp}
        row |= {"poc": coded.poc, "type": kind, "slice_qp": coded.qp, "bits": coded.bits}
        row |= {"flag_bits": after.bits, "mode": after.mode, "qp_offset": after.qp_offset}
        for suffix, picture in (("", before), (AFTER, after)):
            row |= {f"psnr_{plane}{suffix}": value for plane, value in zip(PLANES, picture.psnrs(depth), strict=False)}
        rows.append(row)
    return rows


def _write_ctus(path: Path, cells: Sequence[Cell], store: Store) -> None:
    """Write the CTUs of all cells as one table: those of `measure_filtered`, of which cell, and the mean CU depth.

    `mse_y` (sample²), `depth_mean` (null where the codec's partition is not known) and `qp` are the columns that the
    correlation analysis reads.
    """
    keys = pa.array(sorted({cell.unit.key for cell in cells}), pa.string())
    known = store.ctus()
    known = known.filter(pc.is_in(known["unit"], keys))
    columns = [known[name].to_pylist() for name in ("unit", "poc", "x", "y", "depth_mean")]
    depths = {tuple(place): depth for *place, depth in zip(*columns, strict=True)}
    groups = []
    for cell in cells:
        table = pq.read_table(cell.ctus)
        places = zip(*(table[name].to_pylist() for name in ("poc", "x", "y")), strict=True)
        depth = [depths.get((cell.unit.key, *place)) for place in places]
        texts = {"model": cell.model, "unit": cell.unit.key, "sequence": cell.unit.name}
        for name, text in (texts | {"group": cell.unit.group}).items():
            table = table.append_column(name, pa.array([text] * len(table), pa.string()))
        groups.append(table.append_column("depth_mean", pa.array(depth, pa.float64())))
    with atomic_path(path) as part:
        pq.write_table(pa.concat_tables(groups), part)


def _write_statistics(folder: Path, cells: Sequence[Cell]) -> None:
    """Write each cell's decisions as block statistics, which YUView shows over the video.

    A file is MODEL_SEQUENCE_qpQP.vtmbmsstats; `Filtered` is 1 where luma is filtered, `GainCentiDB` what that gains in
    0.01 dB.
    """
    for cell in cells:
        table = pq.read_table(cell.ctus)
        columns = {name: np.asarray(table[name]) for name in PLACE}
        # A CTU without error has no PSNR; its gain is cut off at 10 dB anyhow.
        before, after = (np.maximum(np.asarray(table[name]), 1e-6) for name in ("mse_y", "mse_y_filtered"))
        gain = np.clip(np.rint(1000 * np.log10(before / after)), -_MAX_GAIN, _MAX_GAIN).astype(np.int32)
        flags = np.asarray(table["flag"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False))
        columns |= {"Filtered": flags.astype(np.int32), "GainCentiDB": gain}
        form = cell.unit.format
        name = re.sub(r"[^0-9A-Za-z_-]", "_", f"{cell.model}_{cell.unit.name}")[:120]
        path = folder / f"{name}_qp{cell.unit.qp}.vtmbmsstats"
        write_block_values(path, columns, STATISTICS_RANGES, width=form.width, height=form.height)


def write_markdown(path: Path, every: Sequence[Results]) -> None:
    """Write results.md: of each filter BD-rates by class and sequence, and PSNR gain by QP."""
    write_text(path, "\n".join(_markdown(results) for results in every))


def _markdown(results: Results) -> str:
    qps = [str(qp) for qp in results.qps]
    facts = [f"{results.kmac_per_pixel:.1f} kMAC/pixel"] if results.kmac_per_pixel is not None else []
    facts += [f"{results.codec} {results.settings['preset']} {results.settings['configuration'].upper()}"]
    table = [["", "BD-rate Y", "U", "V", *(f"gain Y QP {qp}" for qp in qps), "mean"]]
    table.append(["---", *["---:"] * (len(table[0]) - 1)])
    for name, rates, gains in results.summary():
        cells = [_signed(rates.get(plane), 2) for plane in PLANES]
        cells += [_signed(gains.get(qp), 3) for qp in (*qps, "mean")]
        # Any character that Markdown gives a meaning to may stand in a sequence's name.
        table.append([re.sub(r"([\\|<>`*_\[\]])", r"\\\1", name), *cells])
    lines = [f"# {results.name}", "", ", ".join([*facts, str(results.label)]), ""]
    lines += [f"| {' | '.join(line)} |" for line in table]
    lines += [f"\nOver classes: {results.over_classes}."] if results.over_classes is not None else []
    lines += ["", "BD-rate in %, negative saves bits; PSNR gain in dB.", *(f"\n- {note}" for note in results.notes)]
    return "\n".join(lines) + "\n"


def _signed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"
