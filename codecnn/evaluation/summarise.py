"""Summarising: from measured cells to results, which are rows, gains by QP and BD-rates. Reads and writes no file."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from codecnn.dataset.records import StoredRecipe
from codecnn.dataset.stats import codecs
from codecnn.dataset.store import Store, Unit
from codecnn.errors import ConfigError, TableError
from codecnn.evaluation.measure import Cell, Entry, PictureMeasure
from codecnn.evaluation.over_classes import OverClasses, over_classes
from codecnn.evaluation.unfit import untrained_coding, untrained_qp
from codecnn.models import Card
from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import mean_psnr, peak_value, psnr_of_mean_mse, psnr_yuv_611, psnr_yuv_mse
from codecnn.runs import provenance

PLANES = ("y", "u", "v")
PSNRS = (*PLANES, "yuv_611", "yuv_mse")
"""What a PSNR is of: a plane; (6 Y + U + V) / 8 of the planes' PSNRs; all samples, as VTM's YUV-PSNR."""

STRUCTURAL = ("ssim", "ms_ssim")
QUALITIES = {name: f"psnr_{name}" for name in PSNRS} | {name: name for name in (*STRUCTURAL, "vmaf")}
"""What a BD-rate is of, and the key of its figures in a row."""

APART = {"ai": ("D", "F"), "ra": ("D", "E", "F"), "ldb": ("A1", "A2", "D", "F")}
"""What JVET leaves out of its overall figures, by configuration (JVET-T2010): classes D and F, which it reports apart,
and those that it does not code so: class E in random access, A1 and A2 in low delay."""

AFTER, NETWORK = "_filtered", "_network"
SETTINGS = ("preset", "configuration", "ctc", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
"""What results say of the recipe."""

Rates = dict[str, float | None]
"""BD-rates in % by quality, negative where bits are saved; None where there is none."""
Gains = dict[str, float]
"""Gains in dB at each QP, "22" and so on, and their "mean"."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)

    def to_json(self) -> dict[str, Any]:
        """As it stands in results.json: what was not measured is not there."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class ResultRow(_Record):
    """One coded unit before and after one filter.

    PSNRs are means over pictures of per-picture PSNR in dB, peak 255·2^(b-8); None where a plane is missing or without
    error in some picture (grey pictures in 4:2:0 have such chroma). `psnr_yuv_mse` is of the mean MSE, as VTM logs it.
    With decisions `_filtered` is what was decided, and `_network` the network everywhere.
    """

    name: str
    class_: str | None = Field(None, alias="class")
    qp: int
    pictures: int | None = None
    bits: int | float | None
    flag_bits: int | float = 0
    seconds_per_picture: float | None = None
    psnr_y: float | None = None
    psnr_u: float | None = None
    psnr_v: float | None = None
    psnr_yuv_611: float | None = None
    psnr_yuv_mse: float | None = None
    psnr_y_of_mean_mse: float | None = None
    psnr_u_of_mean_mse: float | None = None
    psnr_v_of_mean_mse: float | None = None
    psnr_y_filtered: float | None = None
    psnr_u_filtered: float | None = None
    psnr_v_filtered: float | None = None
    psnr_yuv_611_filtered: float | None = None
    psnr_yuv_mse_filtered: float | None = None
    psnr_y_of_mean_mse_filtered: float | None = None
    psnr_u_of_mean_mse_filtered: float | None = None
    psnr_v_of_mean_mse_filtered: float | None = None
    psnr_y_network: float | None = None
    psnr_u_network: float | None = None
    psnr_v_network: float | None = None
    psnr_yuv_611_network: float | None = None
    psnr_yuv_mse_network: float | None = None
    ssim: float | None = None
    ssim_filtered: float | None = None
    ms_ssim: float | None = None
    ms_ssim_filtered: float | None = None
    vmaf: float | None = None
    vmaf_filtered: float | None = None

    def quality(self, name: str, suffix: str = "") -> float | None:
        """The figure that rises with quality `name` of QUALITIES, in dB but for VMAF; None where it is not known.

        A structural similarity s becomes -10·log10(1 - s), as RD curves draw it; 1 has no such value.
        """
        value: float | None = getattr(self, f"{QUALITIES[name]}{suffix}")
        if value is None or name not in STRUCTURAL:
            return value
        return None if value >= 1 else -10 * float(np.log10(1 - value))

    def gain(self, plane: str = "y", suffix: str = AFTER) -> float | None:
        """Filtered minus decoded PSNR in dB, `plane` of PSNRS; None where either is not known."""
        before, after = self.quality(plane), self.quality(plane, suffix)
        return None if before is None or after is None else after - before


class Loss(_Record):
    """What integers lose to the float filter `name`: PSNR gain in dB that is missing, BD-rate points that are added."""

    name: str | None
    db: dict[str, Gains]
    bd_rate: Rates


class Results(_Record):
    """What results.json says of one filter.

    Gains are means over sequences. BD-rates (flag bits counted with the filter's) are per sequence, then averaged:
    `bd_rate` over all sequences, `bd_rate_by_class` over those of a class, `bd_rate_jvet` over the sequences of all
    classes but those APART in the configuration; `over_classes` is there where there are several classes.
    `bd_rate_akima` interpolates by Akima instead of PCHIP, `bd_rate_network` is that of the network without its
    decisions. A mean is None where a sequence has no BD-rate, and `notes` says why.
    """

    schema_: int = Field(2, alias="schema")
    model: str | None = None
    name: str | None = None
    weights_sha256: str | None = None
    kmac_per_pixel: int | float | None = None
    parameters: int | None = None
    codec: str | None = None
    encoder: str | None = None
    settings: dict[str, Any] = {}
    label: str | None = None
    decisions: str = "none"
    device: str | None = None
    psnr_peak: dict[str, float | str] = {}
    split: str | None = None
    trained_on_this_data: bool = False
    sequences: tuple[ResultRow, ...]
    gain_db: dict[str, Gains] = {}
    bd_rate: Rates = {}
    bd_rate_by_class: dict[str, Rates] = {}
    over_classes: OverClasses | None = None
    bd_rate_per_sequence: dict[str, Rates] = {}
    bd_rate_akima: Rates = {}
    bd_rate_jvet: Rates | None = None
    gain_db_network: dict[str, Gains] | None = None
    bd_rate_network: Rates | None = None
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = {}
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
        return {name: mean_gains(rows, plane) for name, rows in _by_sequence(self.sequences).items()}

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
    entries: Sequence[Entry], cells: Sequence[Cell], store: Store, split: str, decisions: str = "none"
) -> tuple[Results, ...]:
    """The results of each filter from its cells; those of integers say what they lose to the float filter beside."""
    every = []
    for entry in entries:
        rows = [make_row(cell.unit, cell.decoded, cell.filtered) for cell in cells if cell.model == entry.name]
        every.append(summarise_rows(rows, entry.card, store, split, entry.name, decisions, entry.device))
    by_weights = {results.weights_sha256: results for results in every}
    plains = [by_weights.get(entry.card.source_sha256 or "") for entry in entries]
    return tuple(one if plain is None else _with_loss(one, plain) for one, plain in zip(every, plains, strict=True))


def make_row(unit: Unit, decoded: Sequence[PictureMeasure], filtered: Sequence[PictureMeasure]) -> ResultRow:
    """The row of one coded unit, before and after one filter."""
    figures: dict[str, Any] = _psnrs([one.mse for one in decoded], unit)
    figures |= {f"{name}{AFTER}": value for name, value in _psnrs([one.mse for one in filtered], unit).items()}
    networks = [one.mse_network for one in filtered if one.mse_network is not None]
    if len(networks) == len(filtered):
        alone = _psnrs(networks, unit)
        figures |= {f"psnr_{name}{NETWORK}": alone[f"psnr_{name}"] for name in PSNRS}
    for name in (*STRUCTURAL, "vmaf"):
        for suffix, pictures in (("", decoded), (AFTER, filtered)):
            if any(name in picture.model_fields_set for picture in pictures):
                values = [getattr(picture, name) for picture in pictures]
                figures[f"{name}{suffix}"] = None if None in values else float(np.mean(values))
    figures["class"] = unit.class_
    return ResultRow(
        name=unit.name,
        qp=unit.qp,
        pictures=len(decoded),
        bits=unit.bits,
        flag_bits=sum(picture.bits for picture in filtered),
        seconds_per_picture=float(np.median([picture.seconds for picture in filtered])),
        **figures,
    )


def _psnrs(mses: Sequence[Sequence[float]], unit: Unit) -> dict[str, float | None]:
    depth = unit.format.bit_depth
    planes = np.array(mses, np.float64).T
    figures: dict[str, float | None] = {f"psnr_{plane}": None for plane in PSNRS}
    for plane, values in zip(PLANES, planes, strict=False):
        if values.all():
            figures[f"psnr_{plane}"] = mean_psnr(values, depth)
            figures[f"psnr_{plane}_of_mean_mse"] = psnr_of_mean_mse(values, depth)
    y, u, v = (figures[f"psnr_{plane}"] for plane in PLANES)
    if y is not None and u is not None and v is not None:
        figures["psnr_yuv_611"] = psnr_yuv_611(y, u, v)
        samples = [height * width for height, width in unit.format.plane_shapes]
        figures["psnr_yuv_mse"] = psnr_yuv_mse(list(planes.mean(axis=1)), samples, depth)
    return figures


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
    by_name = _by_sequence(rows)
    rates = {name: _bd_rates(group, AFTER, "pchip", notes) for name, group in by_name.items()}
    classes = {name: group[0].class_ for name, group in by_name.items()}
    recipe = store.manifest.recipe
    depth = recipe.internal_bit_depth
    apart: dict[str, Any] = {}
    counted = [name for name, label in classes.items() if label not in APART[recipe.configuration]]
    # Without every class JVET's mean would leave out or take in sequences by chance.
    if all(classes.values()) and counted:
        apart["bd_rate_jvet"] = _mean_rates(rates[name] for name in counted)
    per_cell = {name: [gain for row in group if (gain := row.gain()) is not None] for name, group in by_name.items()}
    if (found := over_classes(classes, rates, per_cell)) is not None:
        apart["over_classes"] = found
    if decisions != "none":
        apart["gain_db_network"] = _gains(rows, NETWORK)
        alone = (_bd_rates(group, NETWORK, "pchip", []) for group in by_name.values())
        apart["bd_rate_network"] = _mean_rates(alone)
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
        gain_db=_gains(rows, AFTER),
        bd_rate=_mean_rates(rates.values()),
        bd_rate_by_class={
            label: _mean_rates(rates[name] for name in classes if classes[name] == label)
            for label in sorted({label for label in classes.values() if label is not None})
        },
        bd_rate_per_sequence=rates,
        bd_rate_akima=_mean_rates(_bd_rates(group, AFTER, "akima", []) for group in by_name.values()),
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
    return "post-filter (the coding loop did not see the filtered pictures)"


def _by_sequence(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """The rows of each sequence."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return dict(groups)


def mean_gains(rows: Iterable[ResultRow], plane: str = "y", suffix: str = AFTER) -> Gains:
    """Mean gain over the rows at each QP, and the mean of those over the QPs; empty where no gain is known."""
    by_qp: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (gain := row.gain(plane, suffix)) is not None:
            by_qp[row.qp].append(gain)
    gains = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
    return gains | {"mean": float(np.mean(list(gains.values())))} if gains else {}


def _gains(rows: Sequence[ResultRow], suffix: str) -> dict[str, Gains]:
    return {plane: gains for plane in PSNRS if (gains := mean_gains(rows, plane, suffix))}


def _bd_rates(rows: Sequence[ResultRow], suffix: str, method: str, notes: list[str]) -> Rates:
    """BD-rate of one sequence by quality; None, and a note, where there is none.

    `bd_rate` refuses curves of fewer than four points, of a quality that does not rise with the rate, and with less
    than half of the shorter one's range in common: there the integral would be of what the interpolation makes up.
    """
    rates: Rates = {}
    bits = [row.bits for row in rows if row.bits is not None]
    if len(bits) < len(rows):
        notes.append(f"no BD-rate for {rows[0].name}: of pictures without a stream the bits are not known")
    for name, key in QUALITIES.items():
        if name not in PLANES and not any(f"{key}{suffix}" in row.model_fields_set for row in rows):
            continue
        rates[name] = None
        before = [row.quality(name) for row in rows]
        after = [row.quality(name, suffix) for row in rows]
        if None in before or None in after or len(bits) < len(rows):
            continue
        # The network alone is on everywhere, so it has no flags to count.
        own = [0 if suffix == NETWORK else row.flag_bits for row in rows]
        anchor = [(rate, value) for rate, value in zip(bits, before, strict=True) if value is not None]
        test = [(rate + c, b) for rate, b, c in zip(bits, after, own, strict=True) if b is not None]
        try:
            rates[name] = bd_rate(anchor, test, method)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {name.upper()} for {rows[0].name}: {error}")
    return rates


def _mean_rates(rates: Iterable[Rates]) -> Rates:
    """Mean by quality; None unless every sequence has one, for a mean of some would not be what its name promises."""
    listed = list(rates)
    means: Rates = dict.fromkeys(PLANES)
    for name in (name for name in QUALITIES if any(name in each for each in listed)):
        known = [rate for each in listed if (rate := each.get(name)) is not None]
        means[name] = float(np.mean(known)) if len(known) == len(listed) else None
    return means
