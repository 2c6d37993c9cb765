"""Measuring: the quality of coded units as decoded and as each filter makes them, cell by cell.

A cell is a sequence at a QP through a filter. Only this module reads pictures; what follows it has records.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from codecnn.dataset import PictureRecord, Unit
from codecnn.errors import ConfigError, FormatError
from codecnn.filtering import Decisions, Filtered, PictureFilter, filter_and_decide, sequence_pays, unit_planes
from codecnn.models import Card
from codecnn.quality import MIN_SIDE, ctu_grid, ctu_means, mean_psnr, ms_ssim, mse, psnr, ssim, vmaf
from codecnn.video import Picture, create_video

METRICS = ("psnr", "ssim", "ms_ssim", "vmaf")
MAX_CROPS = 6
CROP_SIZE = 192
"""Side in luma samples of the crops that the report shows."""
_STEP = 32

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Entry:
    """A filter that takes part: the name it has in the results, the card of its weights, and where it runs.

    `load` makes the same entry in another process, on the device that there is there.
    """

    name: str
    card: Card
    filter: PictureFilter
    device: str = "cpu"
    load: Callable[[], "Entry"] | None = None


class PictureMeasure(BaseModel):
    """One picture, decoded or filtered, against its original, as the JSON of a cell holds it.

    `mse` of each plane, sample²; `ssim` and `ms_ssim` of luma, the latter None where the picture is too small; `vmaf`.
    A filtered picture has `seconds`, the time of one pass of the filter; with decisions also `mse_network`, that of the
    network everywhere, and what was decided. What was not measured is not set.
    """

    model_config = ConfigDict(frozen=True)

    mse: tuple[float, ...]
    ssim: float | None = None
    ms_ssim: float | None = None
    seconds: float = 0
    mse_network: tuple[float, ...] | None = None
    bits: float = 0
    mode: str | None = None
    scales: dict[str, float] | None = None
    qp_offset: int | None = None
    vmaf: float | None = None

    def psnrs(self, bit_depth: int) -> list[float | None]:
        """PSNR of each plane in dB, None where it is without error."""
        return [mean_psnr([value], bit_depth) if value > 0 else None for value in self.mse]

    def to_json(self) -> dict[str, Any]:
        """What was measured."""
        return self.model_dump(exclude_unset=True)


@dataclass(frozen=True)
class Cell:
    """A coded unit through the filter `model`: its pictures as decoded and as filtered, and the file of its CTUs."""

    model: str
    unit: Unit
    decoded: Sequence[PictureMeasure]
    filtered: Sequence[PictureMeasure]
    ctus: Path


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

    @property
    def gain(self) -> float | None:
        """Gain of this cut in dB; None where it had no error."""
        return None if np.isinf(self.psnr_decoded) else self.psnr_filtered - self.psnr_decoded


def parse_metrics(text: str) -> tuple[str, ...]:
    """Metrics of a comma list, "ms-ssim" being "ms_ssim". Raises ConfigError for one that is not of METRICS."""
    names = tuple(name.strip().replace("-", "_") for name in text.split(","))
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ConfigError(f"unknown metric {unknown[0]!r}: one of {', '.join(METRICS).replace('_', '-')}")
    return names


def measure_decoded(unit: Unit, metrics: Sequence[str]) -> list[PictureMeasure]:
    """Quality of each decoded picture of `unit` against its original."""
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = [_quality(a, b, metrics) for a, b in zip(originals, decoded, strict=True)]
    return _with_vmaf(pictures, unit, unit.decoded_path, metrics)


def measure_filtered(
    filter_: PictureFilter, unit: Unit, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> tuple[list[PictureMeasure], pa.Table]:
    """Quality of each picture of `unit` as filtered, and a table of its CTUs.

    With decisions the picture is the one an encoder would have chosen; where all of a sequence's decisions do not pay
    for their bits, it is taken as coded without the filter. The table has poc, qp, x, y, w, h, mse_y, mse_y_filtered
    (sample²) and flag: whether the CTU's luma is filtered, null without decisions.
    """
    pictures, tables, decided = [], [], []
    # VMAF is the one metric that reads its pictures from a file.
    from_file = "vmaf" in metrics
    with tempfile.TemporaryDirectory(prefix="codecnn-evaluate-") if from_file else nullcontext("") as folder:
        path = Path(folder) / "filtered.yuv"
        writing = create_video(path, unit.format) if from_file else nullcontext()
        with unit.originals() as originals, unit.decoded() as decoded, writing as writer:
            for index, (coded, original, output) in enumerate(zip(unit.pictures, originals, decoded, strict=True)):
                beside = unit_planes(unit, index, filter_.planes)
                made = filter_and_decide(filter_, original, output, coded.qp, beside, decisions, ctu_size)
                told: dict[str, Any] = {"seconds": made.seconds}
                if (decision := made.decision) is not None:
                    decided.append(decision)
                    told |= {"mse_network": _mses(original, made.network), "bits": decision.bits}
                    told |= {"mode": decision.mode, "scales": dict(decision.scales), "qp_offset": decision.qp_offset}
                pictures.append(_quality(original, made.picture, metrics, **told))
                tables.append(_ctus(coded, original, output, made, ctu_size))
                if writer is not None:
                    writer.write(made.picture)
        table = pa.concat_tables(tables)
        if decided and not sequence_pays(decided):
            return _switched_off(unit, pictures, table, metrics)
        return _with_vmaf(pictures, unit, path, metrics), table


def _switched_off(
    unit: Unit, pictures: Sequence[PictureMeasure], table: pa.Table, metrics: Sequence[str]
) -> tuple[list[PictureMeasure], pa.Table]:
    """A sequence that its encoder leaves the filter out of: the decoded pictures, and no bits at all.

    An encoder knows before it writes the sequence's parameters that the filter loses over all pictures together, flags
    included; it then turns the tool off there, and no picture has even the one bit that says "off".
    """
    off = {"bits": 0.0, "mode": "off", "scales": {}, "qp_offset": 0}
    decoded = measure_decoded(unit, metrics)
    for name, values in (("mse_y_filtered", table["mse_y"]), ("flag", pa.array([False] * len(table)))):
        table = table.set_column(table.column_names.index(name), name, values)
    return [a.model_copy(update=b.to_json() | off) for a, b in zip(pictures, decoded, strict=True)], table


def make_crops(entry: Entry, units: Sequence[Unit], decisions: Decisions, ctu_size: int) -> list[Crop]:
    """A crop of each of the first sequences, at the QP that reports show, as one filter makes it."""
    return [_crop(entry, unit, decisions, ctu_size) for unit in shown_units(units)[:MAX_CROPS]]


def shown_units(units: Iterable[Unit]) -> list[Unit]:
    """The unit of each sequence that reports show: its second highest QP.

    There the codec's error and its repair are visible, and it is still a QP that is used.
    """
    by_name: dict[str, dict[int, Unit]] = defaultdict(dict)
    for unit in units:
        by_name[unit.name][unit.qp] = unit
    return [group[sorted(group)[max(len(group) - 2, 0)]] for group in by_name.values()]


def _quality(original: Picture, picture: Picture, metrics: Sequence[str], **told: Any) -> PictureMeasure:
    if "ssim" in metrics:
        told["ssim"] = ssim(original.y, picture.y, picture.bit_depth)
    if "ms_ssim" in metrics:
        fits = min(picture.y.shape) >= MIN_SIDE
        told["ms_ssim"] = ms_ssim(original.y, picture.y, picture.bit_depth) if fits else None
    return PictureMeasure(mse=_mses(original, picture), **told)


def _with_vmaf(pictures: list[PictureMeasure], unit: Unit, path: Path, metrics: Sequence[str]) -> list[PictureMeasure]:
    if "vmaf" not in metrics:
        return pictures
    scores = vmaf(unit.original_path, path, unit.format)
    return [one.model_copy(update={"vmaf": score}) for one, score in zip(pictures, scores, strict=True)]


def _mses(original: Picture, picture: Picture) -> tuple[float, ...]:
    if original.bit_depth != picture.bit_depth:
        raise FormatError(f"pictures of {original.bit_depth} and {picture.bit_depth} bit have no common error")
    return tuple(mse(a, b) for a, b in zip(original.planes, picture.planes, strict=True))


def _ctus(coded: PictureRecord, original: Picture, decoded: Picture, made: Filtered, ctu_size: int) -> pa.Table:
    height, width = original.y.shape
    grid = ctu_grid(width, height, ctu_size)
    source = original.y.astype(np.float64)
    flags = None if made.decision is None else made.decision.flags.get("y")
    columns: dict[str, Any] = {
        "poc": pa.array(np.full(len(grid), coded.poc), pa.int32()),
        "qp": pa.array(np.full(len(grid), coded.qp), pa.int32()),
        **{name: pa.array(grid[:, index], pa.int32()) for index, name in enumerate("xywh")},
        "mse_y": pa.array(ctu_means((source - decoded.y) ** 2, ctu_size)),
        "mse_y_filtered": pa.array(ctu_means((source - made.picture.y) ** 2, ctu_size)),
        "flag": pa.nulls(len(grid), pa.bool_()) if flags is None else pa.array(flags.ravel(), pa.bool_()),
    }
    return pa.table(columns)


def _crop(entry: Entry, unit: Unit, decisions: Decisions, ctu_size: int) -> Crop:
    """Luma of the first picture of `unit`, where the filter changes most, with that cut's own PSNRs.

    On a whole picture hardly a change can be seen, and a place chosen by its gain would flatter: that of the largest
    change shows a loss as readily. The picture is filtered again, for cells keep figures and no pictures.
    """
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output = originals[0], decoded[0]
        qp, beside = unit.pictures[0].qp, unit_planes(unit, 0, entry.filter.planes)
        filtered = filter_and_decide(entry.filter, original, output, qp, beside, decisions, ctu_size).picture
        planes = [np.array(picture.y) for picture in (original, output, filtered)]
    y, x = _busiest(planes[2].astype(np.float64) - planes[1], CROP_SIZE)
    cuts = [plane[y : y + CROP_SIZE, x : x + CROP_SIZE] for plane in planes]
    depth = unit.format.bit_depth
    before, after = (psnr(cuts[0], cut, depth) for cut in cuts[1:])
    return Crop(unit.name, unit.qp, cuts[0], cuts[1], cuts[2], depth, before, after)


def _busiest(change: NDArray[np.float64], size: int) -> tuple[int, int]:
    """Upper left corner of the window in which a (h, w) plane has the most energy, on a grid of 32 samples."""
    height, width = (max(extent - size, 0) for extent in change.shape)
    corners = [(y, x) for y in range(0, height + 1, _STEP) for x in range(0, width + 1, _STEP)]
    return max(corners, key=lambda at: float(np.square(change[at[0] : at[0] + size, at[1] : at[1] + size]).sum()))
