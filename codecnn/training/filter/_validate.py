"""Validation as evaluation measures it: whole pictures, PSNR gain in dB by QP."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from codecnn.dataset.store import Unit
from codecnn.filtering import FloatFilter, unit_planes
from codecnn.models import FilterNetwork
from codecnn.quality import mse
from codecnn.training.distributed import gather, share


def limit_pictures(units: Sequence[Unit], pictures: int | None) -> list[Unit]:
    """The first units of each QP, at most `pictures` of them; None keeps all."""
    kept: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        if pictures is None or len(kept[unit.qp]) < pictures:
            kept[unit.qp].append(unit)
    return [unit for qp in sorted(kept) for unit in kept[qp]]


def psnr_gain(model: FilterNetwork, units: Sequence[Unit], device: str | torch.device) -> dict[int, float]:
    """Luma PSNR gain in dB by QP: the mean over pictures of PSNR(filtered) - PSNR(decoded), after rounding.

    The gain does not depend on PSNR's peak. A picture coded without any error has none and is left out. Where several
    processes train together each must ask for the same, and filters its share of the units.
    """
    own = [_picture_gains(model, unit, device) for unit in share(units)]
    gains: dict[int, list[float]] = defaultdict(list)
    for unit, values in zip(units, gather(own), strict=True):
        gains[unit.qp] += values
    return {qp: float(np.mean(values)) for qp, values in sorted(gains.items()) if values}


def _picture_gains(model: FilterNetwork, unit: Unit, device: str | torch.device) -> list[float]:
    """The gain in dB of each picture of a unit that has an error."""
    gains, filter_ = [], FloatFilter(model, device=device)
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = zip(unit.pictures, originals, decoded, strict=True)
        for index, (coded, original, output) in enumerate(pictures):
            beside = unit_planes(unit, index, model.planes)
            filtered = filter_(output, coded.qp, beside).y
            before, after = mse(original.y, output.y), mse(original.y, filtered)
            if before > 0 and after > 0:
                gains.append(float(10 * np.log10(before / after)))
    return gains
