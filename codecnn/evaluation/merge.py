"""Several evaluations, each of one configuration, as one table: `merge_results`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from codecnn.errors import ConfigError, MissingFileError, TableError
from codecnn.evaluation.in_loop import LoopResults
from codecnn.evaluation.in_loop._results import LoopModel, LoopRow
from codecnn.evaluation.jvet import CONFIGURATIONS, Table, TableRow, sorted_tables, table_row, tables_of
from codecnn.evaluation.report import write_tables
from codecnn.evaluation.rows import AFTER, ResultRow, bd_rates, by_sequence, mean_rates
from codecnn.evaluation.summarise import Results
from codecnn.evaluation.write import write_csv
from codecnn.quality import psnr_yuv_611
from codecnn.runs import read_json

RESULTS, IN_LOOP = "results.json", "in_loop.json"
LOOP_CHAINS = {"post_filter": "post-filter, of the library's encoder", "in_loop": "in the loop"}
"""Chains of a coding with the filter in the loop that the table shows, and what it says of them."""


def merge_results(folders: Sequence[Path], output: Path) -> tuple[Table, ...]:
    """Write the table of what evaluations left in `folders` into `output`: jvet.csv and report.html; return it.

    A folder holds results.json of an evaluation, or in_loop.json of one with the filter in the loop. Raises
    MissingFileError for one without, TableError for a damaged one or two of one filter, configuration and coding, and
    ConfigError where `output` is one of them, whose report it would replace.
    """
    if any(folder.resolve() == output.resolve() for folder in folders):
        raise ConfigError(f"{output} holds one of the results, whose report would be replaced: name another folder")
    tables = sorted_tables(table for folder in folders for table in _read(folder))
    seen: set[tuple[str | None, ...]] = set()
    for table in tables:
        key = (table.weights or table.name, table.title, table.coded, table.label, table.decisions)
        if key in seen:
            raise TableError(f"two of the results are of {table.name}, {table.title}, {table.coded}, {table.label}")
        seen.add(key)
    write_csv(output / "jvet.csv", [row for table in tables for row in table.csv_rows()])
    write_tables(output / "report.html", tables)
    return tables


def _read(folder: Path) -> tuple[Table, ...]:
    path = folder / RESULTS
    try:
        if path.is_file():
            content = read_json(path)
            every = content.get("models", [content])
            return tables_of(Results.model_validate(one) for one in every)
        path = folder / IN_LOOP
        if path.is_file():
            return _loop_tables(LoopResults.model_validate(read_json(path)))
    except (ValidationError, AttributeError, TypeError) as error:
        raise TableError(f"{path} is not what an evaluation writes: {str(error).splitlines()[0]}") from None
    raise MissingFileError(f"{folder} holds no {RESULTS} and no {IN_LOOP}, as `codecnn evaluate -o {folder}` writes")


def _loop_tables(results: LoopResults) -> tuple[Table, ...]:
    # Those of before what took part was noted.
    unknown = LoopModel(weights_sha256=None, kmac_per_pixel=None, parameters=None, device="")
    models = {model: results.models.get(model, unknown) for model in results.bd_rate}
    return tuple(
        Table(
            weights=models[model].weights_sha256,
            name=model,
            configuration="ldb",
            title=CONFIGURATIONS["ldb"],
            coded=f"{results.library} {results.settings['preset']}",
            label=label,
            decisions=results.decisions,
            kmac_per_pixel=models[model].kmac_per_pixel,
            parameters=models[model].parameters,
            device=models[model].device or None,
            rows=tuple(_loop_rows([row for row in results.rows if row.model == model], chain)),
        )
        for model in results.bd_rate
        for chain, label in LOOP_CHAINS.items()
    )


def _loop_rows(rows: Sequence[LoopRow], chain: str) -> list[TableRow]:
    without = {(row.name, row.qp): row for row in rows if row.chain == "without"}
    groups = by_sequence(_as_row(without[row.name, row.qp], row) for row in rows if row.chain == chain)
    rates = {name: bd_rates(group, AFTER, "pchip", []) for name, group in groups.items()}
    every = [row for group in groups.values() for row in group]
    lines = [table_row("overall", "All sequences", mean_rates(rates.values()), every)]
    return lines + [table_row("sequence", name, rates[name], group) for name, group in groups.items()]


def _as_row(anchor: LoopRow, test: LoopRow) -> ResultRow:
    """A row of results, in which the bits that the loop changes count as the filter's own."""
    figures: dict[str, Any] = {"name": test.name, "qp": test.qp, "bits": anchor.bits}
    figures |= {"flag_bits": test.bits + test.flag_bits - anchor.bits, "seconds_per_picture": test.seconds_per_picture}
    figures["encoder_seconds_per_picture"] = test.encoder_seconds_per_picture
    for suffix, row in (("", anchor), (AFTER, test)):
        y, u, v = row.psnr_y, row.psnr_u, row.psnr_v
        figures |= {f"psnr_y{suffix}": y, f"psnr_u{suffix}": u, f"psnr_v{suffix}": v}
        if y is not None and u is not None and v is not None:
            # Means of PSNRs over pictures, so that theirs is the mean of the pictures' own.
            figures[f"psnr_yuv_611{suffix}"] = psnr_yuv_611(y, u, v)
    return ResultRow.model_validate(figures)
