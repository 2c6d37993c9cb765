"""Figures of groups of measurements: means over classes of sequences, and figures by type of picture."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import stdtrit

from codecnn.base.errors import CodecnnError
from codecnn.codec import UNKNOWN_CODEC, output_pictures, read_headers
from codecnn.dataset import Unit
from codecnn.evaluation.measure import Cell
from codecnn.evaluation.rates import Gains, Rates, bd_rates, gains_by_plane, mean_rates
from codecnn.evaluation.rows import Record, by_sequence, make_row
from codecnn.pictures.files import stream_codec

CONFIDENCE = 0.95
"""Share of samples whose confidence interval contains the true mean."""


class ClassMeans(BaseModel):
    """Means over classes of sequences, and the class and the sequence that gain least.

    A mean over sequences is dominated by the class with the most sequences. Here each class has the same weight.

    Attributes:
        classes: Number of classes.
        gain_db: Mean over classes of the mean luma PSNR gain in dB over sequences and QPs.
        bd_rate_y: Mean over classes of the mean luma BD-rate in % of a class.
        bd_rate_u: The same for U, over the sequences that have a BD-rate; None if a class has none.
        bd_rate_v: The same for V.
        bd_rate_y_ci95: 95 % confidence interval of `bd_rate_y`, see `class_mean_interval`; None if each class has one
            sequence.
        worst_class: Name and luma BD-rate of the class that gains least.
        worst_sequence: Name and luma BD-rate of the sequence that gains least.
        losing_cells: Number of (sequence, QP) pairs in which the filter lowers the luma PSNR.
        cells: Number of (sequence, QP) pairs.
        left_out: By plane, the number of sequences without BD-rate, e.g. because V is coded without loss.
    """

    model_config = ConfigDict(frozen=True)

    classes: int
    gain_db: float
    bd_rate_y: float
    bd_rate_u: float | None
    bd_rate_v: float | None
    bd_rate_y_ci95: tuple[float, float] | None
    worst_class: tuple[str, float]
    worst_sequence: tuple[str, float]
    losing_cells: int
    cells: int
    left_out: dict[str, int] = {}

    def __str__(self) -> str:
        limits = self.bd_rate_y_ci95
        interval = "{:+.2f} to {:+.2f}".format(*limits) if limits else "no interval: each class has one sequence"
        chroma = {"u": self.bd_rate_u, "v": self.bd_rate_v}
        rates = [
            f"{plane.upper()} {rate:+.2f} %" if rate is not None else f"no {plane.upper()}"
            for plane, rate in chroma.items()
        ]
        rates += [
            f"{count} sequence{'s' * (count > 1)} without BD-rate {plane.upper()}"
            for plane, count in self.left_out.items()
        ]
        return (
            f"mean of {self.classes} classes: BD-rate Y {self.bd_rate_y:+.2f} % ({interval}), {', '.join(rates)}, "
            f"gain Y {self.gain_db:+.3f} dB; worst class {self.worst_class[0]} {self.worst_class[1]:+.2f} %, "
            f"worst sequence {self.worst_sequence[0]} {self.worst_sequence[1]:+.2f} %; "
            f"PSNR Y is lower in {self.losing_cells} of {self.cells} cells"
        )


def class_means(
    classes: Mapping[str, str | None],
    rates: Mapping[str, Mapping[str, float | None]],
    gains: Mapping[str, Sequence[float]],
    notes: list[str],
) -> ClassMeans | None:
    """Compute means over classes of sequences.

    Args:
        classes: Class of each sequence, by the name of the sequence.
        rates: BD-rates in % by plane, by the name of the sequence.
        gains: Luma PSNR gains in dB at each QP, by the name of the sequence.
        notes: List that receives the reason of a mean that is missing though the sequences have classes.

    Returns:
        The means; None if a sequence has no class, no luma BD-rate or no gain, or if there is only one class.
    """
    if (reason := _no_means(classes, rates, gains)) is not None:
        if any(classes.values()):
            notes.append(f"no means over classes: {reason}")
        return None
    members: dict[str, list[str]] = defaultdict(list)
    for name, label in classes.items():
        members[str(label)].append(name)

    def mean(plane: str) -> float | None:
        known = [[rate for name in names if (rate := rates[name].get(plane)) is not None] for names in members.values()]
        if without := [label for label, of_class in zip(members, known, strict=True) if not of_class]:
            which = "any class" if len(without) == len(members) else f"class {', '.join(without)}"
            notes.append(f"no BD-rate {plane.upper()} in the mean over classes: no sequence of {which} has one")
            return None
        return float(np.mean([np.mean(of_class) for of_class in known]))

    missing = {plane: sum(rates[name].get(plane) is None for name in classes) for plane in "uv"}
    luma = {name: float(rates[name]["y"] or 0.0) for name in classes}
    by_class = {label: float(np.mean([luma[name] for name in names])) for label, names in members.items()}
    worst_class = max(by_class, key=by_class.__getitem__)
    worst_sequence = max(luma, key=luma.__getitem__)
    cells = [gain for name in classes for gain in gains[name]]
    return ClassMeans(
        classes=len(members),
        gain_db=float(np.mean([np.mean([np.mean(gains[name]) for name in names]) for names in members.values()])),
        bd_rate_y=float(np.mean(list(by_class.values()))),
        bd_rate_u=mean("u"),
        bd_rate_v=mean("v"),
        bd_rate_y_ci95=class_mean_interval([[luma[name] for name in names] for names in members.values()]),
        worst_class=(worst_class, by_class[worst_class]),
        worst_sequence=(worst_sequence, luma[worst_sequence]),
        losing_cells=sum(gain < 0 for gain in cells),
        cells=len(cells),
        left_out={plane: count for plane, count in missing.items() if 0 < count < len(classes)},
    )


def _no_means(
    classes: Mapping[str, str | None],
    rates: Mapping[str, Mapping[str, float | None]],
    gains: Mapping[str, Sequence[float]],
) -> str | None:
    """Return the reason why there are no means over classes, None if there are."""
    for name, label in classes.items():
        if label is None:
            return f"{name} has no class"
        if rates[name].get("y") is None or not gains.get(name):
            return f"{name} has no BD-rate Y or no gain"
    labels = {str(label) for label in classes.values()}
    return None if len(labels) > 1 else f"all sequences are of class {''.join(labels)}"


def class_mean_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Compute the 95 % confidence interval of the mean over classes of the class means.

    The classes are fixed and the sequences of a class are a sample of it, so the interval is for other sequences of
    these classes, not for other classes. A class of one sequence shows no variance. Therefore the variance is taken to
    be the same in all classes: s^2, the squared deviations from the class means over N - C, for N sequences in C
    classes. With n sequences in a class, the variance of the mean is s^2 / C^2 times the sum over classes of 1 / n, and
    the limits are its root times the quantiles of Student's t with N - C degrees of freedom (a one-way analysis of
    variance, e.g. Montgomery, "Design and Analysis of Experiments", section 3.3).

    Args:
        groups: For each class, the values of its sequences.

    Returns:
        Lower and upper limit; None if no class has two sequences.
    """
    values = [np.asarray(group, np.float64) for group in groups]
    freedom = sum(group.size - 1 for group in values)
    if freedom == 0:
        return None
    variance = sum(float(np.square(group - group.mean()).sum()) for group in values) / freedom
    error = np.sqrt(variance * sum(1 / group.size for group in values)) / len(values)
    mean = float(np.mean([group.mean() for group in values]))
    width = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
    return mean - width, mean + width


class PictureTypes(Record):
    """Figures of the pictures of one type, over all sequences.

    Attributes:
        pictures: Number of pictures at each QP.
        gain_db: PSNR gains in dB by plane.
        bd_rate: BD-rates in %, from the mean PSNR and the bits of these pictures alone. None if a sequence has none:
            fewer than four QPs, or pictures so small that their PSNR does not rise with their bits.
    """

    pictures: int
    gain_db: dict[str, Gains]
    bd_rate: Rates


def picture_types(units: Iterable[Unit]) -> dict[str, tuple[str, ...]]:
    """Determine the type of each picture of the units that contain inter pictures.

    Args:
        units: Coded units.

    Returns:
        By the key of the unit, a type for each picture in output order: "I", "B layer 2" and so on. The temporal layer
        comes from the headers of the bitstream; without a readable bitstream the type has no layer.
    """
    types = {}
    for unit in units:
        kinds = [picture.slice_type for picture in unit.pictures]
        if set(kinds) <= {"I", UNKNOWN_CODEC}:
            continue
        layers = _temporal_layers(unit)
        if len(layers) == len(kinds):
            kinds = [
                kind if kind == "I" else f"{kind} layer {layer}" for kind, layer in zip(kinds, layers, strict=True)
            ]
        types[unit.key] = tuple(kinds)
    return types


def _temporal_layers(unit: Unit) -> list[int]:
    """Read the temporal layer of each picture in output order; empty without a readable bitstream of VVC or HEVC."""
    if not unit.has("bitstream") or stream_codec(unit.path("bitstream")) not in ("vvc", "hevc"):
        return []
    try:
        return [picture.temporal_id for picture in output_pictures(read_headers(unit.path("bitstream")))]
    except CodecnnError:
        return []


def by_picture_type(
    cells: Sequence[Cell], types: Mapping[str, Sequence[str]], notes: list[str]
) -> dict[str, PictureTypes]:
    """Compute the figures of each picture type.

    Args:
        cells: Cells of one filter.
        types: Types of the pictures as returned by `picture_types`; cells of other units are ignored.
        notes: Notes on whole sequences; receives a sentence for each further BD-rate that cannot be computed.

    Returns:
        Figures by type, I first and then by layer.
    """
    rows = defaultdict(list)
    for cell in cells:
        positions = defaultdict(list)
        for index, kind in enumerate(types.get(cell.unit.key, ())):
            positions[kind].append(index)
        for kind, indices in positions.items():
            rows[kind].append(make_row(cell.unit, cell.decoded, cell.filtered, indices))
    figures = {}
    for kind, type_rows in sorted(rows.items(), key=lambda item: (item[0] != "I", item[0])):
        reasons: list[str] = []
        figures[kind] = PictureTypes(
            pictures=sum(row.pictures or 0 for row in type_rows) // len({row.qp for row in type_rows}),
            gain_db=gains_by_plane(type_rows),
            bd_rate=mean_rates(bd_rates(group, reasons) for group in by_sequence(type_rows).values()),
        )
        notes += [f"pictures of type {kind}: {reason}" for reason in reasons if reason not in notes]
    return figures
