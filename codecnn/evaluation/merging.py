"""Merge evaluations of several configurations into one table in the layout of JVET's sheets, and write it."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from codecnn.base.errors import ConfigError, MissingFileError, TableError
from codecnn.base.files import provenance, read_json, write_csv, write_text
from codecnn.base.outputs import check_outputs, claim_results
from codecnn.base.parts import extension
from codecnn.evaluation.jvet import CONFIGURATIONS, RATE_COLUMNS, Table, by_filter, sorted_tables, tables_of
from codecnn.evaluation.report import render
from codecnn.evaluation.results import Results
from codecnn.evaluation.workbook import write_workbook

RESULTS, IN_LOOP = "results.json", "in_loop.json"
"""Files that an evaluation leaves in its folder."""

MERGED_FILES = ("jvet.csv", "jvet.xlsx", "report.html")
"""Files that `merge_results` writes."""


def merge_results(folders: Sequence[Path], output: Path) -> tuple[Table, ...]:
    """Merge evaluations into one table and write it as jvet.csv, jvet.xlsx and report.html.

    Args:
        folders: Folders of evaluations: each contains results.json, or in_loop.json if the filter was in the loop.
        output: Folder to write to.

    Returns:
        The tables of each filter together, its configurations in JVET's order.

    Raises:
        MissingFileError: A folder contains neither file.
        TableError: A file is damaged, or two results are of the same filter, configuration and coding.
        ConfigError: `output` is one of the folders, whose report would be replaced.
    """
    if any(folder.is_dir() and output.is_dir() and folder.samefile(output) for folder in folders):
        raise ConfigError(
            f"{output} is the folder of an evaluation, whose report would be replaced: name another with -o, e.g. "
            f"{output / 'jvet'}"
        )
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    check_outputs([output / name for name in MERGED_FILES], files)
    tables = sorted_tables(table for folder in folders for table in _read(folder))
    seen: set[tuple[str | None, ...]] = set()
    for table in tables:
        key = (table.weights or table.name, table.title, table.coded, table.label, table.decisions)
        if key in seen:
            raise TableError(
                f"two of the results are of {table.name}, {table.title}, {table.coded}, {table.label}: name one of them"
            )
        seen.add(key)
    claim_results(output, MERGED_FILES)
    write_csv(output / "jvet.csv", [row for table in tables for row in table.csv_rows()])
    write_workbook(output / "jvet.xlsx", tables)
    _write_page(output / "report.html", tables)
    return tables


def _write_page(path: Path, tables: Sequence[Table]) -> None:
    """Write an HTML page with the tables of each filter below one another, without a script."""
    write_text(path, render("tables.html.j2", filters=by_filter(tables), titles=RATE_COLUMNS, footer=provenance()))


def _read(folder: Path) -> tuple[Table, ...]:
    path = folder / RESULTS
    try:
        if path.is_file():
            content = read_json(path)
            models = [Results.model_validate(model) for model in content.get("models", [content])]
            if unknown := {str(model.settings.get("configuration", "ai")) for model in models} - {*CONFIGURATIONS}:
                raise TableError(
                    f"{path} has the configuration {unknown.pop()[:40]!r}, which is none of "
                    f"{', '.join(CONFIGURATIONS)}: write the file again with `codecnn evaluate`"
                )
            return tables_of(models)
        path = folder / IN_LOOP
        if path.is_file():
            in_loop: tuple[Table, ...] = extension("signalling.loop_tables")(read_json(path))
            return in_loop
    except (ValidationError, AttributeError, TypeError, KeyError) as error:
        raise TableError(f"{path} is not a results file of an evaluation: {str(error).splitlines()[0]}") from None
    raise MissingFileError(
        f"{folder} contains no {RESULTS} and no {IN_LOOP}: write them with `codecnn evaluate -o {folder}`"
    )
