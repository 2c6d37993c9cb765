"""Summarising: from measured cells to results, which are rows, gains by QP and BD-rates. Reads and writes no file."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from codecnn.dataset import Store, StoredRecipe, codecs
from codecnn.evaluation.measure import Cell, Entry
from codecnn.evaluation.over_classes import OverClasses, over_classes
from codecnn.evaluation.picture_types import PictureTypes, by_picture_type
from codecnn.evaluation.rows import (
    AFTER,
    NETWORK,
    Gains,
    Rates,
    Record,
    ResultRow,
    bd_rates,
    by_sequence,
    gains_by_plane,
    make_row,
    mean_gains,
    mean_rates,
)
from codecnn.evaluation.unfit import untrained_coding, untrained_qp
from codecnn.models import Card
from codecnn.quality import peak_value
from codecnn.runs import provenance

APART = {"ai": ("D", "F"), "ra": ("D", "E", "F"), "ldb": ("A1", "A2", "D", "F")}
"""What JVET leaves out of its overall figures, by configuration (JVET-T2010): classes D and F, which it reports apart,
and those that it does not code so: class E in random access, A1 and A2 in low delay."""

SETTINGS = ("preset", "configuration", "ctc", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
"""What results say of the recipe."""


class Loss(Record):
    """What integers lose to the float filter `name`: PSNR gain in dB that is missing, BD-rate points that are added."""

    name: str | None
    db: dict[str, Gains]
    bd_rate: Rates


class Results(Record):
    """What results.json says of one filter.

    Gains are means over sequences. BD-rates (flag bits counted with the filter's) are per sequence, then averaged:
    `bd_rate` over all sequences, `bd_rate_by_class` over those of a class, `bd_rate_jvet` over the sequences of all
    classes but those APART in the configuration; `over_classes` is there where there are several classes.
    `bd_rate_akima` interpolates by Akima instead of PCHIP, `bd_rate_network` is that of the network without its
    decisions. A mean is None where a sequence has no BD-rate, and `notes` says why. `picture_types` is there where
    pictures are of several types or temporal layers.
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
    psnr_peak: dict[str, float | str] = Field({})
    split: str | None = None
    trained_on_this_data: bool = False
    sequences: tuple[ResultRow, ...]
    gain_db: dict[str, Gains] = Field({})
    bd_rate: Rates = Field({})
    bd_rate_by_class: dict[str, Rates] = Field({})
    over_classes: OverClasses | None = None
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
        """The name that tables and curves give the filter."""
        return str(self.name or self.model)

    @property
    def qps(self) -> list[int]:
        """The QPs of its rows, rising."""
        return sorted({row.qp for row in self.sequences})

    @property
    def seconds(self) -> float | None:
        """Mean of the rows' seconds a picture."""
        known = [row.seconds_per_picture for row in self.sequences if row.seconds_per_picture is not None]
        return sum(known) / len(known) if known else None

    def mean_gain(self, plane: str, *, network: bool = False) -> float | None:
        """Mean gain in dB over sequences and QPs, with decisions or of the network alone; None where not known."""
        gains = self.gain_db_network if network else self.gain_db
        return (gains or {}).get(plane, {}).get("mean")

    def sequence_gains(self, plane: str = "y") -> dict[str, Gains]:
        """The gains of each sequence."""
        return {name: mean_gains(rows, plane) for name, rows in by_sequence(self.sequences).items()}

    def summary(self) -> list[tuple[str, Rates, Gains]]:
        """The rows of JVET's summary, BD-rates and luma gains: classes and their mean, all sequences, each of them."""
        rows = [
            (f"Class {label}", rates, mean_gains(row for row in self.sequences if row.class_ == label))
            for label, rates in self.bd_rate_by_class.items()
        ]
        if self.bd_rate_jvet is not None and self.bd_rate_jvet != self.bd_rate:
            apart = APART[self.settings.get("configuration", "ai")]
            counted = mean_gains(row for row in self.sequences if row.class_ not in apart)
            there = [label for label in apart if label in {row.class_ for row in self.sequences}]
            rows.append((f"Overall without {' and '.join(there)}", self.bd_rate_jvet, counted))
        if (over := self.over_classes) is not None:
            means: Rates = {"y": over.bd_rate_y, "u": over.bd_rate_u, "v": over.bd_rate_v}
            rows.append((f"Mean of the {over.classes} classes", means, {"mean": over.gain_db}))
        rows.append(("Overall", self.bd_rate, mean_gains(self.sequences)))
        rates = self.bd_rate_per_sequence
        return rows + [(name, rates.get(name, {}), gains) for name, gains in self.sequence_gains().items()]


def summarise(
    entries: Sequence[Entry],
    cells: Sequence[Cell],
    store: Store,
    split: str,
    decisions: str = "none",
    types: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Results, ...]:
    """The results of each filter from its cells; those of integers say what they lose to the float filter beside.

    `types` are those of the units' pictures, by the units' keys.
    """
    every = []
    for entry in entries:
        own = [cell for cell in cells if cell.model == entry.name]
        rows = [make_row(cell.unit, cell.decoded, cell.filtered) for cell in own]
        one = summarise_rows(rows, entry.card, store, split, entry.name, decisions, entry.device)
        if found := by_picture_type(own, types or {}):
            one = one.model_copy(update={"picture_types": found})
        every.append(one)
    by_weights = {results.weights_sha256: results for results in every}
    plains = [by_weights.get(entry.card.source_sha256 or "") for entry in entries]
    return tuple(one if plain is None else _with_loss(one, plain) for one, plain in zip(every, plains, strict=True))


def summarise_rows(
    rows: Sequence[ResultRow],
    card: Card,
    store: Store,
    split: str,
    name: str | None = None,
    decisions: str = "none",
    device: str = "cpu",
) -> Results:
    """The results of the filter whose weights `card` describes, from its rows."""
    notes = [note for qp in {row.qp for row in rows} if (note := untrained_qp(card, qp))]
    notes += untrained_coding(card, store.manifest.recipe, codecs(store, split))
    by_name = by_sequence(rows)
    rates = {name: bd_rates(group, AFTER, "pchip", notes) for name, group in by_name.items()}
    classes = {name: group[0].class_ for name, group in by_name.items()}
    recipe = store.manifest.recipe
    depth = recipe.internal_bit_depth
    apart: dict[str, Any] = {}
    counted = [name for name, label in classes.items() if label not in APART[recipe.configuration]]
    # Without every class JVET's mean would leave out or take in sequences by chance.
    if all(classes.values()) and counted:
        apart["bd_rate_jvet"] = mean_rates(rates[name] for name in counted)
    per_cell = {name: [gain for row in group if (gain := row.gain()) is not None] for name, group in by_name.items()}
    if (found := over_classes(classes, rates, per_cell)) is not None:
        apart["over_classes"] = found
    if decisions != "none":
        apart["gain_db_network"] = gains_by_plane(rows, NETWORK)
        alone = (bd_rates(group, NETWORK, "pchip", []) for group in by_name.values())
        apart["bd_rate_network"] = mean_rates(alone)
    return Results(
        schema=2,
        model=card.network,
        name=name or card.network,
        weights_sha256=card.sha256,
        kmac_per_pixel=card.kmac_per_pixel,
        parameters=card.parameters,
        codec=" and ".join(codecs(store, split)),
        encoder=store.manifest.encoder,
        settings={name: getattr(recipe, name) for name in SETTINGS},
        label=label(recipe),
        decisions=decisions,
        device=device,
        psnr_peak={"jvet": peak_value(depth), "full": peak_value(depth, "full"), "used": "jvet"},
        split=split,
        trained_on_this_data=card.data_key == store.data_key and split == "train",
        sequences=tuple(rows),
        gain_db=gains_by_plane(rows, AFTER),
        bd_rate=mean_rates(rates.values()),
        bd_rate_by_class={
            label: mean_rates(rates[name] for name in classes if classes[name] == label)
            for label in sorted({label for label in classes.values() if label is not None})
        },
        bd_rate_per_sequence=rates,
        bd_rate_akima=mean_rates(bd_rates(group, AFTER, "akima", []) for group in by_name.values()),
        notes=tuple(sorted(set(notes))),
        provenance=provenance({"data_key": store.data_key}),
        **apart,
    )


def _with_loss(results: Results, plain: Results) -> Results:
    """The results of an integer filter with what it loses to the float filter that it was made from."""
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
        note = f"integers against {plain.name} in float: PSNR Y {-db['y']['mean']:+.4f} dB, {points}"
        update["notes"] = (*results.notes, note)
    return results.model_copy(update=update)


def label(recipe: StoredRecipe) -> str:
    """What the gain means. All intra predicts from unfiltered samples, so filtering after is filtering in the loop."""
    if recipe.configuration == "ai":
        return "in-loop (all intra: no picture predicts from a filtered one)"
    if recipe.in_loop is not None:
        return f"over pictures that nobody is shown (predicted from those that {recipe.in_loop.weights} filtered)"
    return "post-filter (the coding loop did not see the filtered pictures)"
