"""Measure the quality of coded units before and after a filter.

This is the only module of the evaluation that reads pictures; the modules that follow it work on the records it
returns.
"""

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

from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import sha256_json
from codecnn.base.leftovers import temporary_folder
from codecnn.base.runtime import Runtime
from codecnn.dataset import PictureRecord, Unit
from codecnn.filtering import (
    Decisions,
    Filtered,
    PictureFilter,
    filter_and_decide,
    filter_key,
    sequence_pays,
    unit_planes,
    user_network,
)
from codecnn.models import Card, as_card
from codecnn.pictures.files import Picture, create_video
from codecnn.pictures.metrics import MIN_SIDE, ctu_grid, ctu_means, mean_psnr, ms_ssim, mse, psnr, ssim, vmaf

METRICS = ("psnr", "ssim", "ms_ssim", "vmaf")
"""Names of the quality metrics that an evaluation can measure."""

MAX_CROPS = 6
"""Largest number of sequences of which the report shows a crop."""

CROP_SIZE = 192
"""Width and height in luma samples of the crops in the report."""

CROP_STEP = 32
"""Distance in luma samples between the positions that are tried for a crop."""

UNKNOWN_DEVICE = "unknown"
"""Device of a cell whose file does not name one."""


@dataclass(frozen=True)
class Entry:
    """A filter that takes part in an evaluation.

    Attributes:
        name: Name of the filter in the results; unique within an evaluation.
        card: Card of its weights.
        filter: The filter itself.
        device: Description of the device it runs on, e.g. "cpu, 2 threads".
        load: Function that creates the same entry in another process, on the device of that process; None if the
            entry cannot be sent to the workers of a cluster.
        code: The filter's `filter_key`, part of the key of its cells; None if the card alone identifies the filter.
        not_kept: Reason why `filter_key` cannot be computed, so that the filter is measured anew each time; or None.
    """

    name: str
    card: Card
    filter: PictureFilter
    device: str = "cpu"
    load: Callable[[], "Entry"] | None = None
    code: str | None = None
    not_kept: str | None = None

    @classmethod
    def of(
        cls,
        filter_: Any,
        name: str,
        *,
        card: Card | None = None,
        device: str = "cpu",
        key: str | None = None,
        **facts: Any,
    ) -> "Entry":
        """Create the entry of a filter with its `filter_key`; arguments as the attributes.

        Args:
            filter_: A `PictureFilter`, such as one of `load_filter` or a `FunctionFilter`.
            name: Name in the results.
            card: Card of the weights; None for filters without weights.
            device: Description of the device.
            key: Text that stands for all that decides the filter's samples, if `filter_key` needs it.
            **facts: Further attributes.
        """
        code = None
        if key is not None or card is None or card.sha256 is None or user_network(filter_) is not None:
            try:
                code = filter_key(filter_, key)
            except ConfigError as error:
                facts["not_kept"] = f"{error}; give it a key to keep its measurements (key=... in Python)"
        return cls(name, card or as_card({}), filter_, device, code=code, **facts)

    @property
    def runtime(self) -> Runtime | None:
        """Runtime of the filter's network; None for filters without a network of codecnn."""
        runtime = getattr(self.filter, "runtime", None)
        return runtime if isinstance(runtime, Runtime) else None

    @property
    def cache_key(self) -> dict[str, Any]:
        """Facts that decide the samples of the filter, for keys of cached results.

        The cards count as a whole: that of the filter decides, for example, which QPs the network receives.
        """
        cards = [dict(card) for card in (self.card, getattr(self.filter, "card", None)) if isinstance(card, Card)]
        key: dict[str, Any] = {"weights": self.card.sha256, "cards": sha256_json(cards), "code": self.code}
        key["filter"] = type(self.filter).__name__
        key["runtime"] = {} if self.runtime is None else self.runtime.cache_key()
        return key if self.not_kept is None else key | {"not_kept": self.name}


class PictureMeasure(BaseModel):
    """Quality of one decoded or filtered picture, as stored in the JSON of a cell.

    Fields that were not measured are not set, and `to_json` omits them.

    Attributes:
        mse: Mean squared error of each plane, in sample units squared.
        ssim: SSIM of luma.
        ms_ssim: MS-SSIM of luma; None if the picture is too small for five scales.
        seconds: Time of one pass of the filter in seconds.
        mse_network: With decisions, the mean squared error of the network applied everywhere.
        bits: Bits of the decisions.
        mode: With decisions, "off", "on" or "ctu".
        scales: With decisions, the residual scale of each component.
        qp_offset: With decisions, the offset added to the slice QP at the network's input.
        vmaf: VMAF of the picture.
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
        """Compute the PSNR of each plane in dB; None for a plane without error."""
        return [mean_psnr([value], bit_depth) if value > 0 else None for value in self.mse]

    def to_json(self) -> dict[str, Any]:
        """Return the fields that were measured."""
        return self.model_dump(exclude_unset=True)


@dataclass(frozen=True)
class Cell:
    """A measurement cell: one coded unit through one filter.

    Attributes:
        model: Name of the filter.
        unit: The coded unit.
        decoded: Quality of each decoded picture.
        filtered: Quality of each filtered picture.
        ctus: Parquet file with a row for each CTU.
        device: Device on which the filter was timed; "unknown" if the file of the cell does not name it.
        threads: Number of CPU threads of PyTorch when the filter was timed; None if the file does not state it.
        runtime: Record of how the network was computed; None for other filters.
    """

    model: str
    unit: Unit
    decoded: Sequence[PictureMeasure]
    filtered: Sequence[PictureMeasure]
    ctus: Path
    device: str = UNKNOWN_DEVICE
    threads: int | None = None
    runtime: dict[str, Any] | None = None


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


def parse_metrics(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of metrics.

    Args:
        text: Names from `METRICS`, e.g. "psnr,ms-ssim"; a hyphen counts as an underscore.

    Returns:
        The names as written in `METRICS`.

    Raises:
        ConfigError: A name is not in `METRICS`.
    """
    names = tuple(name.strip().replace("-", "_") for name in text.split(","))
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ConfigError(f"unknown metric {unknown[0]!r}: use one of {', '.join(METRICS).replace('_', '-')}")
    return names


def measure_decoded(unit: Unit, metrics: Sequence[str]) -> list[PictureMeasure]:
    """Measure each decoded picture of a unit against its original.

    Args:
        unit: The coded unit.
        metrics: Names from `METRICS`; the squared error is always measured.

    Returns:
        One record a picture, in output order.
    """
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = [_quality(a, b, metrics) for a, b in zip(originals, decoded, strict=True)]
    return _with_vmaf(pictures, unit, unit.decoded_path, metrics)


def measure_filtered(
    filter_: PictureFilter, unit: Unit, metrics: Sequence[str], decisions: Decisions, ctu_size: int
) -> tuple[list[PictureMeasure], pa.Table]:
    """Filter each decoded picture of a unit and measure it against its original.

    With decisions, each picture is filtered as an encoder would choose. If the decisions of the sequence do not lower
    its RD cost, including their bits, the sequence counts as coded without the filter.

    Args:
        filter_: The filter.
        unit: The coded unit.
        metrics: Names from `METRICS`; the squared error is always measured.
        decisions: "none", "ctu" or "full".
        ctu_size: Width and height of a CTU in luma samples.

    Returns:
        One record a picture, in output order, and a table with a row a CTU: poc, qp, x, y, w, h, mse_y,
        mse_y_filtered (sample units squared) and flag (true if luma of the CTU is filtered, null without decisions).
    """
    pictures, tables, all_decisions = [], [], []
    # VMAF reads its pictures from a file; the other metrics take arrays.
    needs_file = "vmaf" in metrics
    with temporary_folder("evaluate") if needs_file else nullcontext("") as folder:
        path = Path(folder) / "filtered.yuv"
        writing = create_video(path, unit.format) if needs_file else nullcontext()
        with unit.originals() as originals, unit.decoded() as decoded, writing as writer:
            for index, (coded, original, output) in enumerate(zip(unit.pictures, originals, decoded, strict=True)):
                auxiliary = unit_planes(unit, index, filter_.planes)
                filtered = filter_and_decide(filter_, original, output, coded.qp, auxiliary, decisions, ctu_size)
                facts: dict[str, Any] = {"seconds": filtered.seconds}
                if (decision := filtered.decision) is not None:
                    all_decisions.append(decision)
                    facts |= {"mse_network": _mses(original, filtered.network), "bits": decision.bits}
                    facts |= {"mode": decision.mode, "scales": dict(decision.scales), "qp_offset": decision.qp_offset}
                pictures.append(_quality(original, filtered.picture, metrics, **facts))
                tables.append(_ctu_table(coded, original, output, filtered, ctu_size))
                if writer is not None:
                    writer.write(filtered.picture)
        table = pa.concat_tables(tables)
        if all_decisions and not sequence_pays(all_decisions):
            return _switched_off(unit, pictures, table, metrics)
        return _with_vmaf(pictures, unit, path, metrics), table


def _switched_off(
    unit: Unit, pictures: Sequence[PictureMeasure], table: pa.Table, metrics: Sequence[str]
) -> tuple[list[PictureMeasure], pa.Table]:
    """Replace the measurements of a sequence by those of its decoded pictures, without any bits for decisions.

    An encoder knows before it writes the sequence parameters that the filter raises the RD cost of the sequence. It
    disables the tool there, so not even the one bit a picture that says "off" is written.
    """
    off = {"bits": 0.0, "mode": "off", "scales": {}, "qp_offset": 0}
    decoded = measure_decoded(unit, metrics)
    for name, values in (("mse_y_filtered", table["mse_y"]), ("flag", pa.array([False] * len(table)))):
        table = table.set_column(table.column_names.index(name), name, values)
    return [a.model_copy(update=b.to_json() | off) for a, b in zip(pictures, decoded, strict=True)], table


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
    """Choose the unit of each sequence that reports show: the one with the second highest QP.

    At this QP the coding error and its reduction are visible, and the QP is still used in practice.
    """
    by_name: dict[str, dict[int, Unit]] = defaultdict(dict)
    for unit in units:
        by_name[unit.name][unit.qp] = unit
    return [group[sorted(group)[max(len(group) - 2, 0)]] for group in by_name.values()]


def _quality(original: Picture, picture: Picture, metrics: Sequence[str], **facts: Any) -> PictureMeasure:
    if "ssim" in metrics:
        facts["ssim"] = ssim(original.y, picture.y, picture.bit_depth)
    if "ms_ssim" in metrics:
        fits = min(picture.y.shape) >= MIN_SIDE
        facts["ms_ssim"] = ms_ssim(original.y, picture.y, picture.bit_depth) if fits else None
    return PictureMeasure(mse=_mses(original, picture), **facts)


def _with_vmaf(pictures: list[PictureMeasure], unit: Unit, path: Path, metrics: Sequence[str]) -> list[PictureMeasure]:
    if "vmaf" not in metrics:
        return pictures
    scores = vmaf(unit.original_path, path, unit.format)
    return [picture.model_copy(update={"vmaf": score}) for picture, score in zip(pictures, scores, strict=True)]


def _mses(original: Picture, picture: Picture) -> tuple[float, ...]:
    if original.bit_depth != picture.bit_depth:
        raise FormatError(
            f"the original has {original.bit_depth} bits a sample and the picture {picture.bit_depth}: "
            "convert them to the same bit depth"
        )
    return tuple(mse(a, b) for a, b in zip(original.planes, picture.planes, strict=True))


def _ctu_table(
    coded: PictureRecord, original: Picture, decoded: Picture, filtered: Filtered, ctu_size: int
) -> pa.Table:
    """Build the CTU table of one picture, with the columns that `measure_filtered` describes."""
    height, width = original.y.shape
    grid = ctu_grid(width, height, ctu_size)
    source = original.y.astype(np.float64)
    flags = None if filtered.decision is None else filtered.decision.flags.get("y")
    columns: dict[str, Any] = {
        "poc": pa.array(np.full(len(grid), coded.poc), pa.int32()),
        "qp": pa.array(np.full(len(grid), coded.qp), pa.int32()),
        **{name: pa.array(grid[:, index], pa.int32()) for index, name in enumerate("xywh")},
        "mse_y": pa.array(ctu_means((source - decoded.y) ** 2, ctu_size)),
        "mse_y_filtered": pa.array(ctu_means((source - filtered.picture.y) ** 2, ctu_size)),
        "flag": pa.nulls(len(grid), pa.bool_()) if flags is None else pa.array(flags.ravel(), pa.bool_()),
    }
    return pa.table(columns)


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
        original, output, qp = originals[0], decoded[0], unit.pictures[0].qp
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
