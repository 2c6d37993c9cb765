"""What a filter gains over classes of pictures: their mean, how sure it is, and where the filter does worst.

A mean over pictures is mostly that of the class with most of them; here every class counts as one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

DRAWS = 2000
"""Draws of the bootstrap, which leave its limits uncertain by some hundredths of the interval."""


class OverClasses(BaseModel):
    """BD-rates in % and luma gains in dB over classes, and the worst of them.

    bd_rate_y, _u, _v    mean over the classes of each class's mean over its sequences that have one; None where a class
                         has none
    left_out             by plane how many sequences have no BD-rate, such as a V that is coded without loss
    gain_db              the same of luma's PSNR gain, mean of the QPs
    bd_rate_y_ci95       95 % interval of bd_rate_y by picture: bootstrap of the sequences within each class (Efron and
                         Tibshirani, "An Introduction to the Bootstrap", 1993, percentile intervals)
    worst_class, worst_sequence    name and luma BD-rate of the ones that gain least
    losing_cells, cells            (sequence, QP) pairs in which luma is worse than decoded, of how many
    """

    model_config = ConfigDict(frozen=True)

    classes: int
    gain_db: float
    bd_rate_y: float
    bd_rate_u: float | None
    bd_rate_v: float | None
    bd_rate_y_ci95: tuple[float, float]
    worst_class: tuple[str, float]
    worst_sequence: tuple[str, float]
    losing_cells: int
    cells: int
    left_out: dict[str, int] = {}

    def __str__(self) -> str:
        low, high = self.bd_rate_y_ci95
        told = f"mean of {self.classes} classes: BD-rate Y {self.bd_rate_y:+.2f} % ({low:+.2f} to {high:+.2f}), "
        if self.bd_rate_u is not None and self.bd_rate_v is not None:
            told += f"U {self.bd_rate_u:+.2f} %, V {self.bd_rate_v:+.2f} %, "
            told += "".join(f"{name.upper()} without {count} that has none, " for name, count in self.left_out.items())
        told += f"gain Y {self.gain_db:+.3f} dB; worst class {self.worst_class[0]} {self.worst_class[1]:+.2f} %, "
        told += f"worst sequence {self.worst_sequence[0]} {self.worst_sequence[1]:+.2f} %; "
        return told + f"{self.losing_cells} of {self.cells} cells lose"


def over_classes(
    classes: Mapping[str, str | None],
    rates: Mapping[str, Mapping[str, float | None]],
    gains: Mapping[str, Sequence[float]],
) -> OverClasses | None:
    """The figures of sequences by name: their class, their BD-rates by plane, and their luma gains in dB by QP.

    None where a sequence has no class, no luma BD-rate or no gain, or where there is but one class.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for name, label in classes.items():
        if label is None or rates[name].get("y") is None or not gains.get(name):
            return None
        members[label].append(name)
    if len(members) < 2:
        return None

    def mean(plane: str) -> float | None:
        known = [[rate for name in names if (rate := rates[name].get(plane)) is not None] for names in members.values()]
        return float(np.mean([np.mean(of_class) for of_class in known])) if all(known) else None

    missing = {plane: sum(rates[name].get(plane) is None for name in classes) for plane in "uv"}
    luma = {name: float(rates[name]["y"] or 0.0) for name in classes}
    by_class = {label: float(np.mean([luma[name] for name in names])) for label, names in members.items()}
    worst_class = max(by_class, key=by_class.__getitem__)
    worst_sequence = max(luma, key=luma.__getitem__)
    cells = [gain for name in classes for gain in gains[name]]
    return OverClasses(
        classes=len(members),
        gain_db=float(np.mean([np.mean([np.mean(gains[name]) for name in names]) for names in members.values()])),
        bd_rate_y=float(np.mean(list(by_class.values()))),
        bd_rate_u=mean("u"),
        bd_rate_v=mean("v"),
        bd_rate_y_ci95=_interval([[luma[name] for name in names] for names in members.values()]),
        worst_class=(worst_class, by_class[worst_class]),
        worst_sequence=(worst_sequence, luma[worst_sequence]),
        losing_cells=sum(gain < 0 for gain in cells),
        cells=len(cells),
        left_out={plane: count for plane, count in missing.items() if 0 < count < len(classes)},
    )


def _interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % percentile interval of the mean of the groups' means, the members of each drawn again with replacement."""
    rng = np.random.default_rng(0)
    means = [np.asarray(group)[rng.integers(len(group), size=(DRAWS, len(group)))].mean(axis=1) for group in groups]
    low, high = np.percentile(np.mean(means, axis=0), [2.5, 97.5])
    return float(low), float(high)
