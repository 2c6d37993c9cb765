"""Results of an evaluation: rows, gains by QP, BD-rates and notes, as stored in results.json."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from codecnn.base.notebook import data_frame, html_table
from codecnn.base.rate_modes import RateMode, rate_mode
from codecnn.codec import UNKNOWN_CODEC, UNKNOWN_PRESET
from codecnn.evaluation.groups import ClassMeans, PictureTypes
from codecnn.evaluation.rates import Gains, Rates, mean_gains, without_unchanged
from codecnn.evaluation.rows import PLANES, Record, ResultRow, by_sequence
from codecnn.evaluation.training_range import CONFIGURATION_NAMES

if TYPE_CHECKING:
    import pandas as pd

EXCLUDED_CLASSES = {"ai": ("D", "F"), "ra": ("D", "E", "F"), "ldb": ("A1", "A2", "D", "F")}
"""Classes that JVET leaves out of its overall figures, by configuration (JVET-T2010).

Classes D and F are reported separately; class E is not coded in random access, A1 and A2 are not coded in low delay.
"""


class Loss(Record):
    """Loss of an integer filter against the float filter that it was made from.

    Attributes:
        name: Name of the float filter.
        db: Missing PSNR gain in dB, by plane and QP.
        bd_rate: Added BD-rate in percentage points, by quality measure.
    """

    name: str | None
    db: dict[str, Gains]
    bd_rate: Rates


class Results(Record):
    """Results of one filter, as stored in results.json.

    Gains are means over sequences. A BD-rate counts the bits of the decisions; it is computed for each sequence and
    then averaged. A mean BD-rate is None if a sequence has none; `notes` states the reason.

    Attributes:
        model: Name of the network.
        name: Name of the filter in the evaluation.
        label: Meaning of the gain: in the loop, behind the decoder, or before the in-loop filter.
        device: Device on which the cells were timed; "mixed" if they were timed on several, "unknown" if unrecorded.
        threads: Number of CPU threads of the timing; None if it differs between cells or is unrecorded.
        runtime: How the network was computed, as `codecnn.base.runtime.Runtime`; None if it differs between cells or is
            unrecorded.
        bd_rate: Mean over all sequences.
        bd_rate_by_class: Mean over the sequences of a class.
        bd_rate_jvet: Mean over the sequences of all classes except `EXCLUDED_CLASSES`.
        bd_rate_akima: As `bd_rate`, with Akima instead of PCHIP interpolation.
        bd_rate_network: BD-rate of the network applied everywhere, without decisions.
        over_classes: Means over classes; None unless there are several classes.
        picture_types: Figures by picture type; empty if all pictures have the same type and layer.
        loss_to_float: For integers, the loss against the float filter of the same evaluation.
    """

    schema_: int = Field(2, alias="schema")
    model: str | None = None
    name: str | None = None
    weights_sha256: str | None = None
    kmac_per_pixel: int | float | None = None
    parameters: int | None = None
    codec: str | None = None
    encoder: str | None = None
    settings: dict[str, Any] = Field({})
    label: str | None = None
    decisions: str = "none"
    device: str | None = None
    threads: int | None = None
    runtime: dict[str, Any] | None = None
    psnr_peak: dict[str, float | str] = Field({})
    split: str | None = None
    trained_on_this_data: bool = False
    sequences: tuple[ResultRow, ...]
    gain_db: dict[str, Gains] = Field({})
    bd_rate: Rates = Field({})
    bd_rate_by_class: dict[str, Rates] = Field({})
    over_classes: ClassMeans | None = None
    bd_rate_per_sequence: dict[str, Rates] = Field({})
    bd_rate_akima: Rates = Field({})
    bd_rate_jvet: Rates | None = None
    gain_db_network: dict[str, Gains] | None = None
    bd_rate_network: Rates | None = None
    picture_types: dict[str, PictureTypes] = Field({})
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = Field({})
    loss_to_float: Loss | None = None

    @property
    def title(self) -> str:
        """Name of the filter in tables and plots."""
        return str(self.name or self.model)

    @property
    def qps(self) -> list[int]:
        """QPs of the rows in ascending order."""
        return sorted({row.qp for row in self.sequences})

    @property
    def rate_mode(self) -> RateMode:
        """Rate control whose values `qps` are, with its names in tables."""
        return next((row.rate_mode for row in self.sequences), rate_mode(None))

    @property
    def seconds(self) -> float | None:
        """Mean wall-clock time of the filter in seconds a picture; None if unknown."""
        known = [row.seconds_per_picture for row in self.sequences if row.seconds_per_picture is not None]
        return sum(known) / len(known) if known else None

    @property
    def encoder_seconds(self) -> float | None:
        """Mean CPU time of the encoder in seconds a picture; None unless all rows have it."""
        known = [row.encoder_seconds_per_picture for row in self.sequences]
        return None if None in known or not known else sum(value or 0.0 for value in known) / len(known)

    @property
    def coder(self) -> str:
        """Codec, preset and rate control, e.g. "vvc medium" at constant QP, or "hevc medium -crf".

        The codec of supplied pictures may be unknown.
        """
        if self.codec is None or self.codec == UNKNOWN_CODEC:
            return "decoded pictures, codec unknown"
        preset = self.settings.get("preset")
        words = (self.codec, None if preset == UNKNOWN_PRESET else preset, self.rate_mode.option)
        return " ".join(word for word in words if word is not None)

    @property
    def coding(self) -> str:
        """Codec, preset, rate control and configuration, e.g. "vvc medium, all intra", without what is unknown."""
        parts = [self.coder]
        if (configuration := self.settings.get("configuration")) is not None:
            parts.append(CONFIGURATION_NAMES.get(configuration, configuration))
        return ", ".join(parts + (["common test conditions"] if self.settings.get("ctc") else []))

    def mean_gain(self, plane: str, *, network: bool = False) -> float | None:
        """Return the mean gain in dB over sequences and QPs, with decisions or of the network; None if unknown."""
        gains = self.gain_db_network if network else self.gain_db
        return (gains or {}).get(plane, {}).get("mean")

    def sequence_gains(self, plane: str = "y") -> dict[str, Gains]:
        """Compute the gains of each sequence."""
        return {name: mean_gains(rows, plane) for name, rows in by_sequence(self.sequences).items()}

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table: a row a sequence and QP, columns as in results.csv."""
        return rows_table([self])

    def to_pandas(self) -> "pd.DataFrame":
        """Return `to_arrow` as a data frame; ToolMissingError without pandas."""
        return data_frame(self.to_arrow())

    def __repr__(self) -> str:
        """Return one line; `to_json` has all fields."""
        gain, rate = _rounded(self.mean_gain("y"), 3), _rounded(self.bd_rate.get("y"), 2)
        count = len(by_sequence(self.sequences))
        names = "1 sequence" if count == 1 else f"{count} sequences"
        figures = f"gain Y {gain or 'unknown'} dB, BD-rate Y {rate or 'unknown'} %"
        qps = self.rate_mode.text(" ".join(map(str, self.qps)))
        return f"<Results of {self.title}: {names}, {self.coding}, {qps}, {figures}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Show BD-rates and gains of classes and sequences in a notebook."""
        qps = [str(qp) for qp in self.qps]
        heads = (
            "",
            *(f"BD-rate {plane.upper()}, %" for plane in PLANES),
            *(f"gain Y {self.rate_mode.text(qp)}, dB" for qp in qps),
            "mean",
        )
        rows = [
            (
                name,
                *(_rounded(rates.get(plane), 2) for plane in PLANES),
                *(_rounded(gains.get(qp), 3) for qp in (*qps, "mean")),
            )
            for name, rates, gains in self.summary()
        ]
        cost = "" if self.kmac_per_pixel is None else f", {self.kmac_per_pixel:.1f} kMAC/pixel"
        return html_table(heads, rows, f"{self.title}{cost}, {self.coding}, {self.label}")

    def changed_rates(self, rates: Rates) -> Rates:
        """Return BD-rates of these results, with None for planes that the filter does not change at no cost of bits."""
        return without_unchanged(rates, self.sequences)

    def summary(self) -> list[tuple[str, Rates, Gains]]:
        """Return the rows of the summary table.

        Returns:
            Title, BD-rates as `changed_rates` returns them, and luma gains of each class, the means over classes and
            sequences, and each sequence.
        """
        rows = [
            (f"Class {label}", rates, mean_gains(row for row in self.sequences if row.class_ == label))
            for label, rates in self.bd_rate_by_class.items()
        ]
        if self.bd_rate_jvet is not None and self.bd_rate_jvet != self.bd_rate:
            excluded = EXCLUDED_CLASSES[self.settings.get("configuration", "ai")]
            counted = mean_gains(row for row in self.sequences if row.class_ not in excluded)
            present = [label for label in excluded if label in {row.class_ for row in self.sequences}]
            rows.append((f"Overall without {' and '.join(present)}", self.bd_rate_jvet, counted))
        if (over := self.over_classes) is not None:
            means: Rates = {"y": over.bd_rate_y, "u": over.bd_rate_u, "v": over.bd_rate_v}
            rows.append((f"Mean of the {over.classes} classes", means, {"mean": over.gain_db}))
        rows.append(("Overall", self.bd_rate, mean_gains(self.sequences)))
        rates = self.bd_rate_per_sequence
        rows += [(name, rates.get(name, {}), gains) for name, gains in self.sequence_gains().items()]
        return [(name, self.changed_rates(row_rates), gains) for name, row_rates, gains in rows]


class ResultsList(tuple[Results, ...]):
    """Results of several filters: a tuple of `Results` that a notebook shows, and that converts to tables."""

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """Return the rows of all filters as an Arrow table; the column `model` has the name of the filter."""
        return rows_table(self)

    def to_pandas(self) -> "pd.DataFrame":
        """Return `to_arrow` as a data frame; ToolMissingError without pandas."""
        return data_frame(self.to_arrow())

    def __repr__(self) -> str:
        return f"<ResultsList: {', '.join(map(repr, self)) or 'empty'}>"

    def _repr_html_(self) -> str:
        """Show the tables of all filters in a notebook."""
        return "\n".join(results._repr_html_() for results in self)


def rows_table(all_results: Sequence[Results]) -> pa.Table:
    """Return the rows of results as an Arrow table, without columns that no row has."""
    rows = [{"model": results.name} | row.to_json() for results in all_results for row in results.sequences]
    columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))
    return pa.table({name: [row.get(name) for row in rows] for name in columns})


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:+.{digits}f}"
