"""Workbook in the layout of JVET's sheets: a summary of BD-rates by class, and a sheet of RD points a configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codecnn.base.files import atomic_path
from codecnn.evaluation.jvet import RATE_COLUMNS, Table, by_filter
from codecnn.evaluation.rows import PLANES, ResultRow, by_sequence

SUMMARY_ROWS = ("Class A1", "Class A2", "Class B", "Class C", "Class E", "Overall", "Class D", "Class F")
"""Rows of the summary in the order of the common test conditions; further rows of a table follow them."""

_FORBIDDEN = str.maketrans(dict.fromkeys("[]:*?/\\", "_"))
"""Characters that the name of a sheet cannot contain."""


def write_workbook(path: Path, tables: Sequence[Table]) -> None:
    """Write a workbook: the sheet Summary, then a sheet for each filter and configuration.

    A sheet lists, for each sequence and QP, rate and PSNR of the anchor (the decoded pictures) and of the test (the
    filtered ones, with the bits of the decisions), and the times of encoder and filter for the whole sequence; the
    BD-rates of a sequence stand in its first row, which has the lowest QP or highest bit rate. Rates are in kbit/s, or
    in kbit per picture where a frame rate is unknown. All figures are values, not formulas.

    Args:
        path: File to write, .xlsx.
        tables: Tables with their RD points.
    """
    from openpyxl import Workbook
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    from openpyxl.styles import Font

    book = Workbook()
    bold = Font(bold=True)

    def write(sheet: Any, rows: Sequence[Sequence[Any]], heads: int) -> None:
        for number, row in enumerate(rows, 1):
            sheet.append([ILLEGAL_CHARACTERS_RE.sub("\ufffd", v) if isinstance(v, str) else v for v in row])
            for cell in sheet[number]:
                if isinstance(cell.value, str):
                    cell.data_type = "s"  # a name that begins with "=" is no formula
                if number <= heads:
                    cell.font = bold
                elif isinstance(cell.value, float):
                    cell.number_format = "0.0000"
        sheet.freeze_panes = sheet.cell(heads + 1, 3)
        sheet.column_dimensions["B"].width = 36

    book.active.title = "Summary"
    write(book.active, _summary(tables), 0)
    names = ["Summary"]
    for table in tables:
        name = _sheet_name(table, names)
        names.append(name)
        write(book.create_sheet(name), _sheet(table), 3)
    with atomic_path(path) as part:
        book.save(part)


def _sheet_name(table: Table, taken: Sequence[str]) -> str:
    """Return a name of at most 31 characters that no other sheet has."""
    base = f"{table.configuration.upper()} {table.name}".translate(_FORBIDDEN)
    name, number = base[:31], 2
    while name.lower() in [other.lower() for other in taken]:
        suffix = f" {number}"
        name, number = base[: 31 - len(suffix)] + suffix, number + 1
    return name


def _summary(tables: Sequence[Table]) -> list[list[Any]]:
    """List the rows of the summary: for each filter and configuration the BD-rates and times by class."""
    lines: list[list[Any]] = []
    for name, group in by_filter(tables):
        for table in group:
            lines.append([name, f"{table.title}, {table.coded}, {table.label}"])
            lines.append(["", "BD-rate, %", *RATE_COLUMNS.values(), "gain Y, dB", "encoder s", "filter s"])
            known = {row.name: row for row in table.rows if row.kind != "sequence"}
            order = [title for title in SUMMARY_ROWS if title in known]
            for title in (*order, *(title for title in known if title not in SUMMARY_ROWS)):
                row = known[title]
                rates = [_number(row.bd_rate.get(key)) for key in RATE_COLUMNS]
                lines.append(["", title, *rates, row.gain_y, row.encoder_seconds, row.filter_seconds])
            lines.append([])
    return lines


def _sheet(table: Table) -> list[list[Any]]:
    """List the rows of the sheet of a table."""
    timed = all(row.fps for row in table.points)
    rate = "kbit/s" if timed else "kbit per picture"
    psnrs = [f"{plane.upper()} PSNR" for plane in PLANES]
    title = next((row.rate_mode.title for row in table.points), "QP")
    lines: list[list[Any]] = [
        [table.name, f"{table.title}, {table.coded}, {table.label}"],
        ["", "", "", "Anchor", "", "", "", "Test", "", "", "", "", "", "BD-rate, %"],
        ["Class", "Sequence", title, rate, *psnrs, rate, *psnrs, "encoder s", "filter s", "Y", "U", "V"],
    ]
    rates = {row.name: row.bd_rate for row in table.rows if row.kind == "sequence"}
    for name, rows in by_sequence(table.points).items():
        for index, row in enumerate(sorted(rows, key=lambda row: row.rate_mode.from_best(row.qp))):
            first = index == 0
            pictures = row.pictures or 1
            line: list[Any] = [row.class_ if first else "", name if first else "", row.qp]
            for quality, extra in ((row.before, 0), (row.after, row.flag_bits)):
                line.append(_kbit(row, extra, timed))
                line += [quality.psnr.get(plane) for plane in PLANES]
            line += [_times(value, pictures) for value in (row.encoder_seconds_per_picture, row.seconds_per_picture)]
            lines.append(line + ([_number(rates.get(name, {}).get(plane)) for plane in PLANES] if first else []))
    return lines


def _kbit(row: ResultRow, extra: float, timed: bool) -> float | None:
    """Return the rate in kbit per second, or per picture if `timed` is False; `extra` bits are added."""
    if row.bits is None:
        return None
    per_picture = (row.bits + extra) / (1000 * (row.pictures or 1))
    return per_picture * (row.fps or 1) if timed else per_picture


def _times(value: float | None, pictures: int) -> float | None:
    return None if value is None else value * pictures


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
