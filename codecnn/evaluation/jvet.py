"""Tables in the layout of JVET's sheets: BD-rate, gain, complexity and time of filters in several configurations."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from codecnn.evaluation.rates import Gains, Rates, mean_gains, unchanged_planes, without_unchanged
from codecnn.evaluation.results import EXCLUDED_CLASSES, Results
from codecnn.evaluation.rows import Record, ResultRow, by_sequence

CONFIGURATIONS = {"ai": "All intra", "ra": "Random access", "ldb": "Low delay B"}
"""Titles of the configurations, in the order of the sheets of the common test conditions."""

CLASSES = ("A1", "A2", "B", "C", "E")
"""Classes above the overall figure; D and F follow below it."""

RATE_COLUMNS = {"y": "Y", "u": "U", "v": "V", "yuv_611": "YUV"}
"""Quality measures with a BD-rate column and their titles; YUV is (6 Y + U + V) / 8 of the PSNRs."""


class TableRow(Record):
    """A row of a table.

    Attributes:
        kind: "class", "overall" (a mean of classes or sequences), "sequence" or "pictures" (one type of picture).
        name: Title of the row.
        bd_rate: BD-rates in %.
        gain_y: Mean luma PSNR gain in dB.
        encoder_seconds: CPU time of the encoder in seconds a picture, mean over QPs and sequences.
        filter_seconds: Wall-clock time of the filter in seconds a picture, mean over QPs and sequences.
    """

    kind: str
    name: str
    bd_rate: Rates
    gain_y: float | None
    encoder_seconds: float | None = None
    filter_seconds: float | None = None


class Table(Record):
    """The table of one filter in one configuration; tables with equal `weights` show the same filter.

    Attributes:
        rows: Means of classes and sequences.
        points: RD points of the sequences: anchor and filtered pictures at each QP.
        notes: Notes of the evaluation, and the reason of each figure that is missing.
    """

    weights: str | None
    name: str
    configuration: str
    title: str
    coded: str
    label: str | None
    decisions: str
    kmac_per_pixel: float | None
    parameters: int | None
    device: str | None
    rows: tuple[TableRow, ...]
    points: tuple[ResultRow, ...] = ()
    notes: tuple[str, ...] = ()

    def csv_rows(self) -> list[dict[str, Any]]:
        """Return the rows as flat records that repeat the facts of the table."""
        facts = {"filter": self.name, "configuration": self.title, "coded": self.coded, "decisions": self.decisions}
        cost = {"kmac_per_pixel": self.kmac_per_pixel, "parameters": self.parameters}
        return [
            facts
            | {"kind": row.kind, "name": row.name}
            | {f"bd_rate_{title.lower()}": row.bd_rate.get(quality) for quality, title in RATE_COLUMNS.items()}
            | {"gain_y": row.gain_y}
            | cost
            | {"encoder_seconds_per_picture": row.encoder_seconds, "filter_seconds_per_picture": row.filter_seconds}
            | {"device": self.device}
            for row in self.rows
        ]


def tables_of(all_results: Iterable[Results]) -> tuple[Table, ...]:
    """Build the table of each result, sorted as `sorted_tables` does."""
    return sorted_tables(_table(results) for results in all_results)


def sorted_tables(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Sort tables by filter, in the order in which the filters occur, and then by configuration in JVET's order."""
    listed = list(tables)
    filters = list(dict.fromkeys(table.weights or table.name for table in listed))
    order = list(CONFIGURATIONS)
    return tuple(
        sorted(listed, key=lambda table: (filters.index(table.weights or table.name), order.index(table.configuration)))
    )


def by_filter(tables: Iterable[Table]) -> list[tuple[str, list[Table]]]:
    """Group sorted tables by filter; returns its name and its tables."""
    grouped = [list(group) for _, group in groupby(tables, key=lambda table: table.weights or table.name)]
    return [(group[0].name, group) for group in grouped]


def _table(results: Results) -> Table:
    configuration = results.settings.get("configuration", "ai")
    ctc = ", CTC" if results.settings.get("ctc") else ""
    return Table(
        weights=results.weights_sha256,
        name=results.title,
        configuration=configuration,
        title=f"{CONFIGURATIONS[configuration]}{ctc}",
        coded=results.coder,
        label=results.label,
        decisions=results.decisions,
        kmac_per_pixel=results.kmac_per_pixel,
        parameters=results.parameters,
        device=results.device,
        rows=changed_rows(_rows(results, EXCLUDED_CLASSES[configuration]), results.sequences),
        points=results.sequences,
        notes=(*results.notes, *missing_figures(results.sequences, bool(results.picture_types))),
    )


def changed_rows(rows: Iterable[TableRow], points: Sequence[ResultRow]) -> tuple[TableRow, ...]:
    """Return rows of a table without BD-rates of planes that the filter changes in none of its RD points."""
    return tuple(row.model_copy(update={"bd_rate": without_unchanged(row.bd_rate, points)}) for row in rows)


def missing_figures(points: Sequence[ResultRow], types: bool = False) -> list[str]:
    """List the reasons of missing figures that notes of BD-rates do not state: planes and times.

    Args:
        points: Rows of the results.
        types: Whether the table has rows of picture types.
    """
    reasons = []

    def add(figure: str, rows: Iterable[ResultRow], reason: str) -> None:
        if names := list(by_sequence(rows)):
            all_named = len(names) == len(by_sequence(points))
            reasons.append(f"no {figure} for {'all sequences' if all_named else ', '.join(names)}: {reason}")

    grey = (row for row in points if "u" not in row.after)
    add("BD-rate U, V and YUV", grey, "no chroma, or none with an error")
    if unchanged := unchanged_planes(points):
        listed = ", ".join(map(str.upper, unchanged))
        reasons.append(f"no BD-rate {listed}: the filter does not change {listed}")
    untimed = (row for row in points if row.encoder_seconds_per_picture is None)
    add("time of the encoder", untimed, "it was not recorded")
    add("time of the filter", (row for row in points if row.seconds_per_picture is None), "it was not recorded")
    if types:
        reasons.append("times are of whole sequences, so types of pictures have none")
    return reasons


def _rows(results: Results, excluded: Sequence[str]) -> list[TableRow]:
    """List classes in JVET's order, the overall figure, the excluded classes, sequences and types of pictures."""
    rows = results.sequences
    classes = sorted(results.bd_rate_by_class, key=lambda label: (label not in CLASSES, label))

    def of_class(label: str) -> TableRow:
        class_rows = [row for row in rows if row.class_ == label]
        return table_row("class", f"Class {label}", results.bd_rate_by_class[label], class_rows)

    lines = [of_class(label) for label in classes if label not in excluded]
    if results.bd_rate_jvet is not None:
        counted = [row for row in rows if row.class_ not in excluded]
        lines.append(table_row("overall", "Overall", results.bd_rate_jvet, counted))
    lines += [of_class(label) for label in classes if label in excluded]
    if results.bd_rate_jvet != results.bd_rate:
        lines.append(table_row("overall", "All sequences", results.bd_rate, rows))
    rates = results.bd_rate_per_sequence
    lines += [table_row("sequence", name, rates.get(name, {}), group) for name, group in by_sequence(rows).items()]
    lines += [
        TableRow(kind="pictures", name=name, bd_rate=figures.bd_rate, gain_y=figures.gain_db.get("y", {}).get("mean"))
        for name, figures in results.picture_types.items()
    ]
    return lines


def table_row(kind: str, name: str, rates: Rates, rows: Sequence[ResultRow]) -> TableRow:
    """Build a table row from rows of results and their BD-rates."""
    gains: Gains = mean_gains(rows)
    return TableRow(
        kind=kind,
        name=name,
        bd_rate=rates,
        gain_y=gains.get("mean"),
        encoder_seconds=_mean(row.encoder_seconds_per_picture for row in rows),
        filter_seconds=_mean(row.seconds_per_picture for row in rows),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """Average values; None unless all are known."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return float(np.mean(known)) if known and len(known) == len(listed) else None
