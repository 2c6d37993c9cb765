"""Cuts of pictures for the report: original, decoded and filtered, where the filter changes most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.dataset.store import Unit
from codecnn.errors import FormatError
from codecnn.evaluation.measure import Decisions, Entry, filter_and_decide
from codecnn.filtering import unit_planes
from codecnn.quality.metrics import psnr

CROP_SIZE = 192
"""Side in luma samples of the crops that the report shows."""
_STEP = 32


@dataclass(frozen=True)
class Crop:
    """The same cut of a sequence at one QP: original, decoded, filtered.

    Pictures are luma (h, w), unsigned at `bit_depth`, or RGB (h, w, 3) uint8; PSNRs in dB. Raises FormatError where
    shapes differ.
    """

    name: str
    qp: int
    original: NDArray[Any]
    decoded: NDArray[Any]
    filtered: NDArray[Any]
    bit_depth: int
    psnr_decoded: float
    psnr_filtered: float

    def __post_init__(self) -> None:
        shapes = {self.original.shape, self.decoded.shape, self.filtered.shape}
        if len(shapes) != 1:
            raise FormatError(f"the pictures of the crop {self.name} at QP {self.qp} differ in shape: {sorted(shapes)}")


def make_crop(entry: Entry, unit: Unit, decisions: Decisions, ctu: int) -> Crop:
    """Luma of the first picture of `unit`, where the filter changes most, with that cut's own PSNRs."""
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output = originals[0], decoded[0]
        qp, beside = unit.record["pictures"][0]["qp"], unit_planes(unit, 0, entry.filter.planes)
        filtered, _, _ = filter_and_decide(entry.filter, original, output, qp, beside, decisions, ctu)
        planes = [np.array(picture.y) for picture in (original, output, filtered)]
    y, x = _busiest(planes[2].astype(np.float64) - planes[1], CROP_SIZE)
    windows = [plane[y : y + CROP_SIZE, x : x + CROP_SIZE] for plane in planes]
    return Crop(
        name=unit.name,
        qp=unit.qp,
        original=windows[0],
        decoded=windows[1],
        filtered=windows[2],
        bit_depth=unit.format.bit_depth,
        psnr_decoded=psnr(windows[0], windows[1], unit.format.bit_depth),
        psnr_filtered=psnr(windows[0], windows[2], unit.format.bit_depth),
    )


def _busiest(change: NDArray[np.float64], size: int) -> tuple[int, int]:
    """Upper left corner of the window in which a (h, w) plane has the most energy, on a grid of 32 samples."""
    height, width = (max(extent - size, 0) for extent in change.shape)
    corners = [(y, x) for y in range(0, height + 1, _STEP) for x in range(0, width + 1, _STEP)]
    return max(
        corners,
        key=lambda corner: float(np.square(change[corner[0] : corner[0] + size, corner[1] : corner[1] + size]).sum()),
    )
