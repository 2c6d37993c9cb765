"""The table of a contribution to JVET: what filters save in each configuration, and what they cost. Writes no file."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from codecnn.evaluation.rows import Gains, Rates, Record, ResultRow, by_sequence, mean_gains
from codecnn.evaluation.summarise import APART, Results

CONFIGURATIONS = {"ai": "All intra", "ra": "Random access", "ldb": "Low delay B"}
"""As the sheets of the common test conditions call them, in their order."""
CLASSES = ("A1", "A2", "B", "C", "E")
"""Classes above the overall figure; D and F stand below it."""
QUALITIES = {"y": "Y", "u": "U", "v": "V", "yuv_611": "YUV"}
"""What BD-rates are of: the planes, and (6 Y + U + V) / 8 of their PSNRs."""


class TableRow(Record):
    """A line of a table: a class, a mean of classes or sequences, a sequence, or the pictures of one type.

    `kind` is "class", "overall", "sequence" or "pictures". BD-rates in %, mean luma gain in dB. Times in seconds a
    picture, mean over QPs and sequences: the encoder's of the processor, the filter's by the clock.
    """

    kind: str
    name: str
    bd_rate: Rates
    gain_y: float | None
    encoder_seconds: float | None = None
    filter_seconds: float | None = None


class Table(Record):
    """A filter in one configuration; `weights` tells whether two tables are of the same filter."""

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

    def csv_rows(self) -> list[dict[str, Any]]:
        """Its lines as flat records, each with what is said of the whole."""
        told = {"filter": self.name, "configuration": self.title, "coded": self.coded, "decisions": self.decisions}
        cost = {"kmac_per_pixel": self.kmac_per_pixel, "parameters": self.parameters}
        return [
            told
            | {"kind": row.kind, "name": row.name}
            | {f"bd_rate_{title.lower()}": row.bd_rate.get(quality) for quality, title in QUALITIES.items()}
            | {"gain_y": row.gain_y}
            | cost
            | {"encoder_seconds_per_picture": row.encoder_seconds, "filter_seconds_per_picture": row.filter_seconds}
            | {"device": self.device}
            for row in self.rows
        ]


def tables_of(every: Iterable[Results]) -> tuple[Table, ...]:
    """The table of each result, those of one filter together and its configurations in JVET's order."""
    return sorted_tables(_table(results) for results in every)


def sorted_tables(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Tables of one filter together, in the order in which the filters come, configurations in JVET's order."""
    listed = list(tables)
    filters = list(dict.fromkeys(table.weights or table.name for table in listed))
    order = list(CONFIGURATIONS)
    return tuple(
        sorted(listed, key=lambda one: (filters.index(one.weights or one.name), order.index(one.configuration)))
    )


def _table(results: Results) -> Table:
    configuration = results.settings.get("configuration", "ai")
    ctc = ", CTC" if results.settings.get("ctc") else ""
    return Table(
        weights=results.weights_sha256,
        name=results.title,
        configuration=configuration,
        title=f"{CONFIGURATIONS[configuration]}{ctc}",
        coded=" ".join(str(part) for part in (results.codec, results.settings.get("preset")) if part),
        label=results.label,
        decisions=results.decisions,
        kmac_per_pixel=results.kmac_per_pixel,
        parameters=results.parameters,
        device=results.device,
        rows=tuple(_rows(results, APART[configuration])),
    )


def _rows(results: Results, apart: Sequence[str]) -> list[TableRow]:
    """Classes in JVET's order, the overall figure, the classes apart from it, sequences, types of pictures."""
    rows = results.sequences
    classes = sorted(results.bd_rate_by_class, key=lambda label: (label not in CLASSES, label))

    def of_class(label: str) -> TableRow:
        own = [row for row in rows if row.class_ == label]
        return table_row("class", f"Class {label}", results.bd_rate_by_class[label], own)

    lines = [of_class(label) for label in classes if label not in apart]
    if results.bd_rate_jvet is not None:
        counted = [row for row in rows if row.class_ not in apart]
        lines.append(table_row("overall", "Overall", results.bd_rate_jvet, counted))
    lines += [of_class(label) for label in classes if label in apart]
    if results.bd_rate_jvet != results.bd_rate:
        lines.append(table_row("overall", "All sequences", results.bd_rate, rows))
    rates = results.bd_rate_per_sequence
    lines += [table_row("sequence", name, rates.get(name, {}), own) for name, own in by_sequence(rows).items()]
    lines += [
        TableRow(kind="pictures", name=name, bd_rate=of.bd_rate, gain_y=of.gain_db.get("y", {}).get("mean"))
        for name, of in results.picture_types.items()
    ]
    return lines


def table_row(kind: str, name: str, rates: Rates, rows: Sequence[ResultRow]) -> TableRow:
    """The line of some rows whose BD-rates are known."""
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
    """The mean, None unless all are known."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return float(np.mean(known)) if known and len(known) == len(listed) else None
