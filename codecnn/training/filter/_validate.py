"""Validation as evaluation measures it: whole pictures, PSNR gain in dB by QP."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from codecnn.dataset import Unit
from codecnn.filtering import FloatFilter, NetworkFilter, unit_planes
from codecnn.filtering.integer import EightBitNetwork, ExactFilter
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
    """Luma PSNR gain in dB by QP, of `psnr_gains`."""
    return psnr_gains(model, units, device)["y"]


def psnr_gains(model: FilterNetwork, units: Sequence[Unit], device: str | torch.device) -> dict[str, dict[int, float]]:
    """PSNR gain in dB by QP of each component that `model` filters.

    The mean over pictures of PSNR(filtered) - PSNR(decoded), after rounding, which does not depend on PSNR's peak. A
    picture coded without any error in a component has no gain there and is left out. Where several processes train
    together each must ask for the same, and filters its share of the units. A network that learns 8 bits is measured
    as the integers that it makes.
    """
    filter_: NetworkFilter = (
        ExactFilter(model.integers(), device=device)
        if isinstance(model, EightBitNetwork)
        else FloatFilter(model, device=device)
    )
    own = [_unit_gains(filter_, unit) for unit in share(units)]
    gains: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in model.outputs}
    for unit, found in zip(units, gather(own), strict=True):
        for name, values in found.items():
            gains[name][unit.qp] += values
    return {
        name: {qp: float(np.mean(values)) for qp, values in sorted(by_qp.items()) if values}
        for name, by_qp in gains.items()
    }


def _unit_gains(filter_: NetworkFilter, unit: Unit) -> dict[str, list[float]]:
    """By component the gain in dB of each picture of a unit that has an error there."""
    gains: dict[str, list[float]] = {name: [] for name in filter_.outputs}
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = zip(unit.pictures, originals, decoded, strict=True)
        for index, (coded, original, output) in enumerate(pictures):
            filtered = filter_(output, coded.qp, unit_planes(unit, index, filter_.planes))
            # The planes of all three pictures are y, u, v; a network's outputs are the first, or all of them.
            planes = zip(original.planes, output.planes, filtered.planes, strict=True)
            for values, (target, decoded_plane, filtered_plane) in zip(gains.values(), planes, strict=False):
                before, after = mse(target, decoded_plane), mse(target, filtered_plane)
                if before > 0 and after > 0:
                    values.append(float(10 * np.log10(before / after)))
    return gains
