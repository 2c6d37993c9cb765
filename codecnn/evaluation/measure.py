"""Measure the quality of coded units before and after a filter.

Only this module and `crops` read pictures; the other modules of the evaluation work on the records they return.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from codecnn.base.choices import METRICS
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.leftovers import temporary_folder
from codecnn.dataset import PictureRecord, Unit
from codecnn.filtering import Decisions, Filtered, PictureFilter, filter_and_decide, sequence_pays, unit_planes
from codecnn.pictures.files import Picture, create_video
from codecnn.pictures.metrics import (
    MIN_SIDE,
    VMAF_NEG_MODEL,
    ctu_grid,
    ctu_means,
    mean_psnr,
    ms_ssim,
    mse,
    ssim,
    vmaf,
    xpsnr,
)

_FROM_FILES = ("vmaf", "vmaf_neg", "xpsnr")
"""Metrics that read their pictures from a file; the others take arrays."""

UNKNOWN_DEVICE = "unknown"
"""Device of a cell whose file does not name one."""


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
        vmaf_neg: VMAF NEG of the picture.
        xpsnr: XPSNR of luma in dB; None for equal pictures.
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
    vmaf_neg: float | None = None
    xpsnr: float | None = None

    def psnrs(self, bit_depth: int) -> list[float | None]:
        """Compute the PSNR of each plane in dB; None for a plane without error."""
        return [mean_psnr([value], bit_depth) if value > 0 else None for value in self.mse]

    def perceptual(self) -> dict[str, float | None]:
        """Return the measures other than errors that were taken, by name."""
        return self.model_dump(include={"ssim", "ms_ssim", *_FROM_FILES}, exclude_unset=True)

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
    return _with_scores(pictures, unit, unit.decoded_path, metrics)


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
    needs_file = any(name in metrics for name in _FROM_FILES)
    with temporary_folder("evaluate") if needs_file else nullcontext("") as folder:
        path = Path(folder) / "filtered.yuv"
        writing = create_video(path, unit.format) if needs_file else nullcontext()
        with unit.originals() as originals, unit.decoded() as decoded, writing as writer:
            for index, (coded, original, output) in enumerate(zip(unit.pictures, originals, decoded, strict=True)):
                auxiliary = unit_planes(unit, index, filter_.planes)
                qp = coded.qp_for_networks
                filtered = filter_and_decide(filter_, original, output, qp, auxiliary, decisions, ctu_size)
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
        return _with_scores(pictures, unit, path, metrics), table


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


def _quality(original: Picture, picture: Picture, metrics: Sequence[str], **facts: Any) -> PictureMeasure:
    if "ssim" in metrics:
        facts["ssim"] = ssim(original.y, picture.y, picture.bit_depth)
    if "ms_ssim" in metrics:
        fits = min(picture.y.shape) >= MIN_SIDE
        facts["ms_ssim"] = ms_ssim(original.y, picture.y, picture.bit_depth) if fits else None
    return PictureMeasure(mse=_mses(original, picture), **facts)


def _with_scores(
    pictures: list[PictureMeasure], unit: Unit, path: Path, metrics: Sequence[str]
) -> list[PictureMeasure]:
    """Add the metrics that filters of ffmpeg compute from the files of all pictures."""
    scores: dict[str, list[float]] = {}
    if "vmaf" in metrics:
        scores["vmaf"] = vmaf(unit.original_path, path, unit.format)
    if "vmaf_neg" in metrics:
        scores["vmaf_neg"] = vmaf(unit.original_path, path, unit.format, model=VMAF_NEG_MODEL)
    if "xpsnr" in metrics:
        scores["xpsnr"] = [luma for luma, *_ in xpsnr(unit.original_path, path, unit.format)]
    return [
        picture.model_copy(
            update={name: each[number] if math.isfinite(each[number]) else None for name, each in scores.items()}
        )
        for number, picture in enumerate(pictures)
    ]


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
