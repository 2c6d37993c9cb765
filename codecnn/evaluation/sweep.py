"""The evaluation of filters on a store in three steps: measure every cell, summarise the cells, write the files.

Data flows in one direction: units and filters, then `Cell`, then `Results`, then files.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from codecnn.base.cluster import WHOLE, Progress, Shard
from codecnn.base.files import atomic_path, file_stem, write_csv, write_json, write_text
from codecnn.codec import POSITION_COLUMNS, write_block_values
from codecnn.dataset import Store
from codecnn.evaluation.cells import measure_cells, measure_distributed, prune_cells
from codecnn.evaluation.crops import Crop, make_crops
from codecnn.evaluation.entries import Entry
from codecnn.evaluation.groups import picture_types
from codecnn.evaluation.jvet import tables_of
from codecnn.evaluation.measure import Cell
from codecnn.evaluation.report import write_report
from codecnn.evaluation.results import Results, ResultsList
from codecnn.evaluation.rows import PLANES
from codecnn.evaluation.summaries import summarise
from codecnn.evaluation.workbook import write_workbook
from codecnn.filtering import Decisions

RESULT_FILES = (
    *("results.json", "results.csv", "results.md", "pictures.csv", "jvet.csv", "jvet.xlsx"),
    *("ctus.parquet", "report.html", "statistics", "cells"),
)
"""Files and folders that an evaluation writes into its folder."""

STATISTICS_RANGES = {"Filtered": (0, 1), "GainCentiDB": (-50, 50)}
"""Block statistics of the decisions and the ranges of their colour scales; gains are in 0.01 dB."""

_MAX_GAIN = 1000


def evaluate(
    entries: Sequence[Entry],
    store: Store,
    split: str,
    output: Path,
    *,
    metrics: Sequence[str] = ("psnr",),
    decisions: Decisions = "none",
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    prune: bool = False,
    progress: Progress | None = None,
) -> ResultsList:
    """Run filters over the units of a split and write results, tables and a report.

    Files in `output`: results.json, results.csv, results.md, report.html; jvet.csv and jvet.xlsx; pictures.csv with a
    row a picture; ctus.parquet with a row a CTU, which `codecnn correlate` reads; with decisions,
    statistics/*.vtmbmsstats for YUView.
    Bits are those of the whole bitstream file.

    Each cell (one filter on one unit) is measured once and kept in cells/. An interrupted evaluation continues with the
    missing cells, and a further filter costs only its own cells. Several processes can therefore share the cells: with
    a shard, the process that finds all cells measured writes the results. Cells of other evaluations stay in cells/,
    and the results of the last one are in the other files.

    Args:
        entries: The filters.
        store: The store.
        split: Split to evaluate, e.g. "test".
        output: Folder to write to.
        metrics: Names from "psnr", "ssim", "ms_ssim", "vmaf", "vmaf_neg" and "xpsnr".
        decisions: "none", "ctu" or "full".
        shard: (i, n): measure the i-th of n parts of the cells.
        scheduler: Address of a dask scheduler whose workers measure; None measures in this process.
        prune: Remove the cells of other evaluations from `output` when the results are written.
        progress: Called with (cells done, all cells).

    Returns:
        Results of each filter; empty if other shards have not measured their cells yet.

    Raises:
        ConfigError: Unknown metric or decisions, or two filters with the same name.
        ModelError: A card does not state the SHA-256 of its weights.
        WorkerError: The workers failed; see `codecnn.base.cluster.work_through`.
    """
    units = store.split(split)
    ctu_size = store.manifest.recipe.ctu_size
    if shard != WHOLE or scheduler is not None:
        if not measure_distributed(
            entries,
            units,
            output / "cells",
            metrics,
            decisions,
            ctu_size,
            shard=shard,
            scheduler=scheduler,
            progress=progress,
        ):
            return ResultsList()
        progress = None
    cells = measure_cells(entries, units, output / "cells", metrics, decisions, ctu_size, progress)
    crops = make_crops(entries, cells, decisions, ctu_size)
    types = picture_types(units)
    results = summarise(entries, cells, store, split, decisions, types)
    _write_results(output, results, cells, crops, store, types)
    if prune:
        prune_cells(entries, units, output / "cells", metrics, decisions, ctu_size)
    return results


def _write_results(
    output: Path,
    all_results: Sequence[Results],
    cells: Sequence[Cell],
    crops: Sequence[Crop],
    store: Store,
    types: Mapping[str, Sequence[str]],
) -> None:
    """Write all files of an evaluation into the folder `output`."""
    write_json(output / "results.json", results_json(all_results))
    rows = [{"model": results.name} | row.to_json() for results in all_results for row in results.sequences]
    write_csv(output / "results.csv", rows)
    write_csv(output / "pictures.csv", [row for cell in cells for row in _picture_rows(cell, types)])
    tables = tables_of(all_results)
    write_csv(output / "jvet.csv", [row for table in tables for row in table.csv_rows()])
    write_workbook(output / "jvet.xlsx", tables)
    write_markdown(output / "results.md", all_results)
    _write_ctus(output / "ctus.parquet", cells, store)
    if all_results[0].decisions != "none":
        _write_statistics(output / "statistics", cells)
    write_report(output / "report.html", all_results, crops, cells)


def results_json(all_results: Sequence[Results]) -> dict[str, Any]:
    """Return the content of results.json: the results of one filter, or {"schema", "models"} of several."""
    models = [results.to_json() for results in all_results]
    return models[0] if len(models) == 1 else {"schema": all_results[0].schema_, "models": models}


def _picture_rows(cell: Cell, types: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """List the pictures of a cell: PSNR of each plane in dB before and after (None without error), bits, decisions."""
    depth = cell.unit.format.bit_depth
    rows = []
    kinds = types.get(cell.unit.key) or [coded.slice_type for coded in cell.unit.pictures]
    for coded, kind, before, after in zip(cell.unit.pictures, kinds, cell.decoded, cell.filtered, strict=True):
        row: dict[str, Any] = {"model": cell.model, "name": cell.unit.name, "qp": cell.unit.qp}
        row |= {} if cell.unit.rate is None else {"rate": cell.unit.rate}
        row |= {"poc": coded.poc, "type": kind, "slice_qp": coded.qp, "bits": coded.bits}
        row |= {"flag_bits": after.bits, "mode": after.mode, "qp_offset": after.qp_offset}
        for suffix, picture in (("", before), ("_filtered", after)):
            row |= {f"psnr_{plane}{suffix}": value for plane, value in zip(PLANES, picture.psnrs(depth), strict=False)}
        rows.append(row)
    return rows


def _write_ctus(path: Path, cells: Sequence[Cell], store: Store) -> None:
    """Write the CTU tables of all cells as one table, with the names of their cells and the mean CU depth.

    The correlation analysis reads the columns `mse_y` (sample units squared), `depth_mean` (null if the coding tree is
    unknown) and `qp`.
    """
    keys = pa.array(sorted({cell.unit.key for cell in cells}), pa.string())
    known = store.ctus()
    known = known.filter(pc.is_in(known["unit"], keys))
    columns = [known[name].to_pylist() for name in ("unit", "poc", "x", "y", "depth_mean")]
    depths = {tuple(position): depth for *position, depth in zip(*columns, strict=True)}
    groups = []
    for cell in cells:
        table = pq.read_table(cell.ctus)
        positions = zip(*(table[name].to_pylist() for name in ("poc", "x", "y")), strict=True)
        depth = [depths.get((cell.unit.key, *position)) for position in positions]
        texts = {"model": cell.model, "unit": cell.unit.key, "sequence": cell.unit.name}
        for name, text in (texts | {"group": cell.unit.group}).items():
            table = table.append_column(name, pa.array([text] * len(table), pa.string()))
        groups.append(table.append_column("depth_mean", pa.array(depth, pa.float64())))
    with atomic_path(path) as part:
        pq.write_table(pa.concat_tables(groups), part)


def _write_statistics(folder: Path, cells: Sequence[Cell]) -> None:
    """Write the decisions of each cell as block statistics, which YUView overlays on the video.

    The file name is MODEL_SEQUENCE_qpQP_HASH.vtmbmsstats; files.csv lists those of this evaluation. `Filtered` is 1
    where luma is filtered, `GainCentiDB` is the luma gain of the CTU in 0.01 dB.
    """
    files = []
    for cell in cells:
        table = pq.read_table(cell.ctus)
        columns = {name: np.asarray(table[name]) for name in POSITION_COLUMNS}
        # A CTU without error has no PSNR; the gain is limited to 10 dB anyway.
        before, after = (np.maximum(np.asarray(table[name]), 1e-6) for name in ("mse_y", "mse_y_filtered"))
        gain = np.clip(np.rint(1000 * np.log10(before / after)), -_MAX_GAIN, _MAX_GAIN).astype(np.int32)
        flags = np.asarray(table["flag"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False))
        columns |= {"Filtered": flags.astype(np.int32), "GainCentiDB": gain}
        form = cell.unit.format
        # The name of the cell's file stands for the unit, the weights and the decisions.
        identity = [cell.model, cell.unit.name, cell.ctus.name]
        name = f"{file_stem(f'{cell.model}_{cell.unit.name}', f'qp{cell.unit.qp}', identity)}.vtmbmsstats"
        write_block_values(folder / name, columns, STATISTICS_RANGES, width=form.width, height=form.height)
        files.append({"file": name, "model": cell.model, "sequence": cell.unit.name, "qp": cell.unit.qp})
    write_csv(folder / "files.csv", files)


def write_markdown(path: Path, all_results: Sequence[Results]) -> None:
    """Write results.md: for each filter, BD-rates by class and sequence, and PSNR gains by QP."""
    write_text(path, "\n".join(_markdown(results) for results in all_results))


def _markdown(results: Results) -> str:
    qps = [str(qp) for qp in results.qps]
    facts = [f"{results.kmac_per_pixel:.1f} kMAC/pixel"] if results.kmac_per_pixel is not None else []
    facts += [results.coding]
    table = [["", "BD-rate Y", "U", "V", *(f"gain Y {results.rate_mode.text(qp)}" for qp in qps), "mean"]]
    table.append(["---", *["---:"] * (len(table[0]) - 1)])
    for name, rates, gains in results.summary():
        cells = [_signed(rates.get(plane), 2) for plane in PLANES]
        cells += [_signed(gains.get(qp), 3) for qp in (*qps, "mean")]
        # The name of a sequence may contain characters with a meaning in Markdown.
        table.append([re.sub(r"([\\|<>`*_\[\]])", r"\\\1", name), *cells])
    lines = [f"# {results.name}", "", ", ".join([*facts, str(results.label)]), ""]
    lines += [f"| {' | '.join(line)} |" for line in table]
    lines += [f"\nMeans over classes: {results.over_classes}."] if results.over_classes is not None else []
    lines += [
        "",
        "BD-rate in %, negative values save bits; PSNR gain in dB.",
        *(f"\n- {note}" for note in results.notes),
    ]
    return "\n".join(lines) + "\n"


def _signed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"
