"""Results of an evaluation, summarised from its cells: rows, gains by QP, BD-rates and notes.

This module reads and writes no files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import Field

from codecnn.base.files import provenance
from codecnn.base.notebook import data_frame, html_table
from codecnn.codec import UNKNOWN_CODEC, UNKNOWN_PRESET
from codecnn.dataset import Store, StoredRecipe, codecs
from codecnn.evaluation.entries import Entry
from codecnn.evaluation.groups import ClassMeans, PictureTypes, by_picture_type, class_means
from codecnn.evaluation.measure import UNKNOWN_DEVICE, Cell
from codecnn.evaluation.rates import Gains, Rates, bd_rates, gains_by_plane, mean_gains, mean_rates
from codecnn.evaluation.rows import PLANES, Record, ResultRow, by_sequence, make_row
from codecnn.evaluation.training_range import CONFIGURATION_NAMES, untrained_coding, untrained_qp
from codecnn.models import Card
from codecnn.pictures.metrics import peak_value

if TYPE_CHECKING:
    import pandas as pd

EXCLUDED_CLASSES = {"ai": ("D", "F"), "ra": ("D", "E", "F"), "ldb": ("A1", "A2", "D", "F")}
"""Classes that JVET leaves out of its overall figures, by configuration (JVET-T2010).

Classes D and F are reported separately; class E is not coded in random access, A1 and A2 are not coded in low delay.
"""

SETTINGS = ("preset", "configuration", "ctc", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
"""Keys of the recipe that the results repeat."""

MIXED = "mixed"
"""Device of results whose cells were timed on different devices."""


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
    def coding(self) -> str:
        """Codec, preset and configuration, e.g. "vvc medium, all intra", without what is unknown."""
        parts = [coder_text(self.codec, self.settings.get("preset"))]
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
        qps = " ".join(map(str, self.qps))
        return f"<Results of {self.title}: {names}, {self.coding}, QP {qps}, {figures}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Show BD-rates and gains of classes and sequences in a notebook."""
        qps = [str(qp) for qp in self.qps]
        heads = (
            "",
            *(f"BD-rate {plane.upper()}, %" for plane in PLANES),
            *(f"gain Y QP {qp}, dB" for qp in qps),
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

    def summary(self) -> list[tuple[str, Rates, Gains]]:
        """Return the rows of the summary table.

        Returns:
            Title, BD-rates and luma gains of each class, the means over classes and sequences, and each sequence.
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
        return rows + [(name, rates.get(name, {}), gains) for name, gains in self.sequence_gains().items()]


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


def coder_text(codec: str | None, preset: str | None) -> str:
    """Describe an encoder by codec and preset, e.g. "vvc medium"; the codec of supplied pictures may be unknown."""
    if codec is None or codec == UNKNOWN_CODEC:
        return "decoded pictures, codec unknown"
    return codec if preset is None or preset == UNKNOWN_PRESET else f"{codec} {preset}"


def summarise(
    entries: Sequence[Entry],
    cells: Sequence[Cell],
    store: Store,
    split: str,
    decisions: str = "none",
    types: Mapping[str, Sequence[str]] | None = None,
) -> ResultsList:
    """Summarise the cells of each filter.

    Args:
        entries: The filters.
        cells: Cells of all filters.
        store: The store of the units.
        split: Split of the units, e.g. "test".
        decisions: "none", "ctu" or "full".
        types: Types of the pictures, as returned by `picture_types`.

    Returns:
        Results in the order of `entries`. Integers whose float filter is also there state their loss against it.
    """
    all_results = []
    mixed = _mixed_arithmetic(entries)
    for entry in entries:
        entry_cells = [cell for cell in cells if cell.model == entry.name]
        rows = [make_row(cell.unit, cell.decoded, cell.filtered) for cell in entry_cells]
        device, threads, notes = timing_of([(cell.device, cell.threads) for cell in entry_cells])
        if entry.not_kept is not None:
            notes.append(f"{entry.name} was measured anew, and is each time: {entry.not_kept}")
        results = summarise_rows(rows, entry.card, store, split, entry.name, decisions, device, threads)
        notes = [*results.notes, *notes, *mixed]
        update: dict[str, Any] = {}
        if entry_cells and all(cell.runtime == entry_cells[0].runtime for cell in entry_cells):
            update["runtime"] = entry_cells[0].runtime
        if type_figures := by_picture_type(entry_cells, types or {}, notes):
            update["picture_types"] = type_figures
        update["notes"] = tuple(notes)
        all_results.append(results.model_copy(update=update))
    by_weights = {results.weights_sha256: results for results in all_results}
    float_results = [by_weights.get(entry.card.source_sha256 or "") for entry in entries]
    return ResultsList(
        results if plain is None else _with_loss(results, plain)
        for results, plain in zip(all_results, float_results, strict=True)
    )


def _mixed_arithmetic(entries: Sequence[Entry]) -> list[str]:
    """Return a note with the filters of each arithmetic, if not all are computed in the same."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry.runtime is not None:
            names.setdefault(entry.runtime.precision.replace("integer", "integers"), []).append(entry.name)
    listed = "; in ".join(f"{precision}: {', '.join(group)}" for precision, group in names.items())
    return [f"not all filters are computed in the same arithmetic: in {listed}"] if len(names) > 1 else []


def timing_of(timings: Sequence[tuple[str, int | None]]) -> tuple[str, int | None, list[str]]:
    """Determine on what device the filter of some cells was timed.

    Args:
        timings: Device and number of threads of each cell.

    Returns:
        Device, "mixed" if the cells differ; number of threads, None if the cells differ or none states it; and a note
        that lists devices and threads if the cells differ.
    """
    devices = {device for device, _ in timings}
    threads = {count for _, count in timings if count is not None}
    if len(devices) <= 1 and len(threads) <= 1:
        return next(iter(devices), UNKNOWN_DEVICE), next(iter(threads), None), []
    counts = Counter(timings)
    listed = [
        f"{device} ({'' if number is None else f'PyTorch threads: {number}; '}cells: {count})"
        for (device, number), count in sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    ]
    return MIXED, None, [f"the filter was timed on different devices or thread counts: {', '.join(listed)}"]


def summarise_rows(
    rows: Sequence[ResultRow],
    card: Card,
    store: Store,
    split: str,
    name: str | None = None,
    decisions: str = "none",
    device: str = "cpu",
    threads: int | None = None,
) -> Results:
    """Summarise the rows of one filter.

    Args:
        rows: Rows of the filter, one a unit.
        card: Card of the weights.
        store: The store of the units.
        split: Split of the units, e.g. "test".
        name: Name of the filter; None takes the name of the network.
        decisions: "none", "ctu" or "full".
        device: Device on which the filter was timed.
        threads: Number of CPU threads of the timing, None if unknown.

    Returns:
        The results.
    """
    notes = [note for qp in {row.qp for row in rows} if (note := untrained_qp(card, qp))]
    notes += untrained_coding(card, store.manifest.recipe, codecs(store, split))
    if not store.manifest.recipe.check:
        notes.append("it was not checked that the supplied pictures can come from their originals (check: false)")
    by_name = by_sequence(rows)
    rates = {name: bd_rates(group, notes) for name, group in by_name.items()}
    classes = {name: group[0].class_ for name, group in by_name.items()}
    recipe = store.manifest.recipe
    depth = recipe.internal_bit_depth
    optional: dict[str, Any] = {}
    counted = [name for name, label in classes.items() if label not in EXCLUDED_CLASSES[recipe.configuration]]
    # If a sequence has no class, it is unknown whether JVET's mean includes it.
    if all(classes.values()) and counted:
        optional["bd_rate_jvet"] = mean_rates(rates[name] for name in counted)
    per_cell = {name: [gain for row in group if (gain := row.gain()) is not None] for name, group in by_name.items()}
    if (means := class_means(classes, rates, per_cell, notes)) is not None:
        optional["over_classes"] = means
    if decisions != "none":
        optional["gain_db_network"] = gains_by_plane(rows, network=True)
        network_rates = (bd_rates(group, [], network=True) for group in by_name.values())
        optional["bd_rate_network"] = mean_rates(network_rates)
    return Results(
        schema=2,
        model=card.network,
        name=name or card.network,
        weights_sha256=card.sha256,
        kmac_per_pixel=card.kmac_per_pixel,
        parameters=card.parameters,
        codec=" and ".join(codecs(store, split)),
        encoder=store.manifest.encoder,
        settings=_settings(recipe),
        label=gain_label(recipe),
        decisions=decisions,
        device=device,
        threads=threads,
        psnr_peak={"jvet": peak_value(depth), "full": peak_value(depth, "full"), "used": "jvet"},
        split=split,
        trained_on_this_data=card.data_key == store.data_key and split == "train",
        sequences=tuple(rows),
        gain_db=gains_by_plane(rows),
        bd_rate=mean_rates(rates.values()),
        bd_rate_by_class={
            label: mean_rates(rates[name] for name in classes if classes[name] == label)
            for label in sorted({label for label in classes.values() if label is not None})
        },
        bd_rate_per_sequence=rates,
        bd_rate_akima=mean_rates(bd_rates(group, [], method="akima") for group in by_name.values()),
        notes=tuple(sorted(set(notes))),
        provenance=provenance({"data_key": store.data_key}),
        **optional,
    )


def _settings(recipe: StoredRecipe) -> dict[str, Any]:
    """Return the settings that results repeat: those of the encoder, and those of supplied pictures if not defaults."""
    values = recipe.model_dump(include=set(SETTINGS))
    settings = {name: values[name] for name in SETTINGS}
    if recipe.qp_scale is not None:
        settings["qp_scale"] = recipe.qp_scale.to_json()
    return settings if recipe.check else settings | {"check": False}


def _with_loss(results: Results, plain: Results) -> Results:
    """Add to the results of an integer filter its loss against the float filter that it was made from."""
    db = {
        plane: {qp: plain.gain_db[plane][qp] - gain for qp, gain in gains.items()}
        for plane, gains in results.gain_db.items()
    }
    rates: Rates = {}
    for name, rate in results.bd_rate.items():
        anchor = plain.bd_rate[name]
        rates[name] = None if rate is None or anchor is None else rate - anchor
    update: dict[str, Any] = {"loss_to_float": Loss(name=plain.name, db=db, bd_rate=rates)}
    if "y" in db:
        points = "no BD-rate" if rates["y"] is None else f"BD-rate Y {rates['y']:+.3f} points"
        note = f"difference of the integer filter to {plain.name} in float: PSNR Y {-db['y']['mean']:+.4f} dB, {points}"
        update["notes"] = (*results.notes, note)
    return results.model_copy(update=update)


def joint_notes(all_results: Sequence[Results]) -> list[str]:
    """Return the notes of several filters, each once; one that does not concern all of them names those it concerns."""
    concerned: dict[str, list[str]] = {}
    for results in all_results:
        for note in results.notes:
            concerned.setdefault(note, []).append(results.title)
    return [
        note if len(titles) == len(all_results) else f"{', '.join(titles)}: {note}"
        for note, titles in concerned.items()
    ]


def gain_label(recipe: StoredRecipe) -> str:
    """Describe what the gain of a filter means for pictures coded by a recipe.

    In all intra, pictures are predicted from unfiltered samples of the same picture, so filtering afterwards gives the
    same result as filtering in the loop.
    """
    if recipe.configuration == "ai":
        return "in-loop (all intra: no picture is predicted from a filtered picture)"
    if recipe.in_loop is not None:
        weights = recipe.in_loop.weights
        return f"measured on the reconstruction before the in-loop filter (coded with {weights} in the loop)"
    return "post-filter (pictures are predicted from unfiltered pictures)"
