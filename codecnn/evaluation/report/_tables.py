"""The page of a table over several configurations: one HTML file that needs no other, without a script."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from codecnn.evaluation.jvet import QUALITIES, Table
from codecnn.evaluation.report._page import render
from codecnn.runs import provenance, write_text


def write_tables(path: Path | str, tables: Sequence[Table]) -> None:
    """Write report.html with the tables of each filter below one another, as JVET's sheets have them."""
    grouped = [list(group) for _, group in groupby(tables, key=lambda table: table.weights or table.name)]
    filters = [(group[0].name, group) for group in grouped]
    write_text(path, render("tables.html.j2", filters=filters, titles=QUALITIES, footer=provenance()))
