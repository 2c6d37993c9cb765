"""Crops: the region of a picture that filters change most, in its original, decoded and filtered version."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import FormatError
from codecnn.base.rate_modes import rate_mode
from codecnn.dataset import Unit
from codecnn.evaluation.entries import Entry
from codecnn.evaluation.measure import Cell
from codecnn.filtering import Decisions, filter_and_decide, unit_planes
from codecnn.pictures.metrics import psnr

MAX_CROPS = 6
"""Largest number of sequences of which the report shows a crop."""

CROP_SIZE = 192
"""Width and height in luma samples of the crops in the report."""

CROP_STEP = 32
"""Distance in luma samples between the positions that are tried for a crop."""


@dataclass(frozen=True)
class Crop:
    """The same region of a picture in the original, the decoded and the filtered version.

    Attributes:
        name: Name of the sequence.
        qp: QP of the unit.
        original: Luma, shape (h, w), unsigned integers at `bit_depth`; or RGB, shape (h, w, 3), uint8.
        decoded: The decoded region, same shape and type.
        filtered: The filtered region, same shape and type.
        bit_depth: Bits per luma sample.
        psnr_decoded: PSNR of the decoded region in dB.
        psnr_filtered: PSNR of the filtered region in dB.
        model: Name of the filter.

    Raises:
        FormatError: The three regions differ in shape.
    """

    name: str
    qp: int
    original: NDArray[Any]
    decoded: NDArray[Any]
    filtered: NDArray[Any]
    bit_depth: int
    psnr_decoded: float
    psnr_filtered: float
    model: str = ""

    def __post_init__(self) -> None:
        shapes = {self.original.shape, self.decoded.shape, self.filtered.shape}
        if len(shapes) != 1:
            raise FormatError(f"the pictures of the crop {self.name} at QP {self.qp} differ in shape: {sorted(shapes)}")

    @property
    def gain(self) -> float | None:
        """PSNR gain of the region in dB; None if the decoded region has no error."""
        return None if np.isinf(self.psnr_decoded) else self.psnr_filtered - self.psnr_decoded


def make_crops(entries: Sequence[Entry], cells: Sequence[Cell], decisions: Decisions, ctu_size: int) -> list[Crop]:
    """Cut a region out of each of the first sequences, at the QP that reports show.

    Args:
        entries: The filters.
        cells: All cells of the evaluation, which tell whether the filter of a sequence is off.
        decisions: "none", "ctu" or "full".
        ctu_size: Width and height of a CTU in luma samples.

    Returns:
        Crops of at most `MAX_CROPS` sequences, one a filter, which show the same region.
    """
    off = {(cell.model, cell.unit.key) for cell in cells if all(picture.mode == "off" for picture in cell.filtered)}
    crops = []
    for unit in shown_units(cell.unit for cell in cells)[:MAX_CROPS]:
        filters = [(entry, (entry.name, unit.key) not in off) for entry in entries]
        crops += _crops(filters, unit, decisions, ctu_size)
    return crops


def shown_units(units: Iterable[Unit]) -> list[Unit]:
    """Choose the unit of each sequence that reports show: the one with the second highest QP or second lowest bit rate.

    There the coding error and its reduction are visible, and such a quality is still used in practice.
    """
    by_name: dict[str, dict[int, Unit]] = defaultdict(dict)
    for unit in units:
        by_name[unit.name][rate_mode(unit.rate).from_best(unit.qp)] = unit
    return [group[sorted(group)[max(len(group) - 2, 0)]] for group in by_name.values()]


def _crops(filters: Sequence[tuple[Entry, bool]], unit: Unit, decisions: Decisions, ctu_size: int) -> list[Crop]:
    """Cut luma of the first picture of a unit where the filters together change it most.

    A change is hardly visible on a whole picture. Choosing the region by its gain would show only gains; choosing it by
    the size of the change shows losses as well. The picture is filtered again because cells hold no pictures.

    Args:
        filters: Each filter, and whether it is on in the sequence; if not, the decoded picture counts as filtered.
        unit: The coded unit.
        decisions: "none", "ctu" or "full".
        ctu_size: Width and height of a CTU in luma samples.

    Returns:
        A crop for each filter.
    """
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output, qp = originals[0], decoded[0], unit.pictures[0].qp_for_networks
        filtered = []
        for entry, used in filters:
            if not used:
                filtered.append(np.array(output.y))
                continue
            auxiliary = unit_planes(unit, 0, entry.filter.planes)
            result = filter_and_decide(entry.filter, original, output, qp, auxiliary, decisions, ctu_size)
            filtered.append(np.array(result.picture.y))
        first, second = np.array(original.y), np.array(output.y)
    energy = sum(np.square(plane.astype(np.float64) - second) for plane in filtered)
    y, x = _largest_energy(np.asarray(energy), CROP_SIZE)
    depth = unit.format.bit_depth

    def cut(plane: NDArray[Any]) -> NDArray[Any]:
        return plane[y : y + CROP_SIZE, x : x + CROP_SIZE]

    before = psnr(cut(first), cut(second), depth)
    return [
        Crop(
            name=unit.name,
            qp=unit.qp,
            original=cut(first),
            decoded=cut(second),
            filtered=cut(plane),
            bit_depth=depth,
            psnr_decoded=before,
            psnr_filtered=psnr(cut(first), cut(plane), depth),
            model=entry.name,
        )
        for (entry, _), plane in zip(filters, filtered, strict=True)
    ]


def _largest_energy(energy: NDArray[np.float64], size: int) -> tuple[int, int]:
    """Find the upper left corner (y, x) of the window with the largest sum, on a grid of `CROP_STEP` samples."""
    height, width = (max(extent - size, 0) for extent in energy.shape)
    corners = [(y, x) for y in range(0, height + 1, CROP_STEP) for x in range(0, width + 1, CROP_STEP)]
    return max(corners, key=lambda at: float(energy[at[0] : at[0] + size, at[1] : at[1] + size].sum()))
