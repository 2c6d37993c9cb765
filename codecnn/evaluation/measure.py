"""One cell of an evaluation: what a coded unit is worth as decoded, and what one filter makes of it."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from codecnn.codec.base import MAX_QP
from codecnn.dataset.store import Unit
from codecnn.errors import ConfigError, FormatError
from codecnn.filtering import Decision, PictureFilter, decide_picture, rounded, sequence_pays, unit_planes
from codecnn.quality.grid import ctu_grid, ctu_sums
from codecnn.quality.libvmaf import vmaf
from codecnn.quality.metrics import mse
from codecnn.quality.structure import MIN_SIDE, ms_ssim, ssim
from codecnn.video import Picture, create_video
from codecnn.video.writer import VideoWriter

METRICS = ("psnr", "ssim", "ms_ssim", "vmaf")
Decisions = Literal["none", "ctu", "full"]
QP_OFFSETS: Mapping[Decisions, tuple[int, ...]] = {"none": (0,), "ctu": (0,), "full": (0, -5, 5)}
"""What is added to the slice QP that the network gets: the candidates of each kind of decisions, the first as it is."""


@dataclass(frozen=True)
class Entry:
    """A filter that takes part: the name it has in the results, the card of its weights, and where it runs."""

    name: str
    card: dict[str, Any]
    filter: PictureFilter
    device: str = "cpu"


def parse_metrics(text: str) -> tuple[str, ...]:
    """Metrics of a comma list, "ms-ssim" being "ms_ssim". Raises ConfigError for one that is not of METRICS."""
    names = tuple(name.strip().replace("-", "_") for name in text.split(","))
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ConfigError(f"unknown metric {unknown[0]!r}: one of {', '.join(METRICS)}")
    return names


def measure_decoded(unit: Unit, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Quality of each decoded picture of `unit` against its original; see `_quality`."""
    with unit.originals() as originals, unit.decoded() as decoded:
        rows = [_quality(a, b, metrics) for a, b in zip(originals, decoded, strict=True)]
    if "vmaf" in metrics:
        scores = vmaf(unit.folder / unit.record["original"], unit.folder / unit.record["decoded"], unit.format)
        for row, score in zip(rows, scores, strict=True):
            row["vmaf"] = score
    return rows


def measure_filtered(
    filter_: PictureFilter, unit: Unit, metrics: Sequence[str], decisions: Decisions, ctu: int
) -> tuple[list[dict[str, Any]], pa.Table]:
    """Quality of each picture of `unit` as filtered, and a table of its CTUs.

    With decisions the picture is the one an encoder would have chosen; then a row also holds `mse_network` of the
    network everywhere, `bits` of what was decided, and its `mode`, `scales` and `qp_offset`; where all of a sequence's
    decisions do not pay for their bits, it is taken as coded without the filter. `seconds` is the time of
    one pass of the filter. The table has poc, qp, x, y, w, h, mse_y, mse_y_filtered and flag: whether the CTU's luma is
    filtered, null without decisions.
    """
    rows, tables, decided = [], [], []
    with tempfile.TemporaryDirectory(prefix="codecnn-evaluate-") as folder:
        path = Path(folder) / "filtered.yuv"
        with unit.originals() as originals, unit.decoded() as decoded, _writer(path, unit, metrics) as writer:
            pictures = zip(unit.record["pictures"], originals, decoded, strict=True)
            for index, (coded, original, output) in enumerate(pictures):
                beside = unit_planes(unit, index, filter_.planes)
                picture, row, decision = filter_and_decide(
                    filter_, original, output, coded["qp"], beside, decisions, ctu
                )
                rows.append(_quality(original, picture, metrics) | row)
                tables.append(_ctus(coded, original, output, picture, decision, ctu))
                decided += [] if decision is None else [decision]
                if writer is not None:
                    writer.write(picture)
        if decided and not sequence_pays(decided):
            return _switched_off(unit, rows, tables, metrics)
        if "vmaf" in metrics:
            for row, score in zip(rows, vmaf(unit.folder / unit.record["original"], path, unit.format), strict=True):
                row["vmaf"] = score
    return rows, pa.concat_tables(tables)


def _switched_off(
    unit: Unit, rows: list[dict[str, Any]], tables: list[pa.Table], metrics: Sequence[str]
) -> tuple[list[dict[str, Any]], pa.Table]:
    """What a sequence is that its encoder leaves the filter out of: the decoded pictures, and no bits at all."""
    off = {"bits": 0.0, "mode": "off", "scales": {}, "qp_offset": 0}
    rows = [row | decoded | off for row, decoded in zip(rows, measure_decoded(unit, metrics), strict=True)]
    table = pa.concat_tables(tables)
    for name, values in (("mse_y_filtered", table["mse_y"]), ("flag", pa.array([False] * len(table)))):
        table = table.set_column(table.column_names.index(name), name, values)
    return rows, table


def _writer(path: Path, unit: Unit, metrics: Sequence[str]) -> AbstractContextManager[VideoWriter | None]:
    """Takes the filtered pictures where a metric reads them from a file."""
    return create_video(path, unit.format) if "vmaf" in metrics else nullcontext()


def filter_and_decide(
    filter_: PictureFilter,
    original: Picture,
    decoded: Picture,
    qp: int,
    beside: Mapping[str, Any],
    decisions: Decisions,
    ctu: int,
) -> tuple[Picture, dict[str, Any], Decision | None]:
    """The picture that counts, what else its row holds, and what was decided; see `measure_filtered`."""
    start = time.perf_counter()
    candidates = {0: filter_.samples(decoded, qp, beside)}
    network = rounded(decoded, candidates[0])
    row: dict[str, Any] = {"seconds": time.perf_counter() - start}
    if decisions == "none":
        return network, row, None
    for offset in QP_OFFSETS[decisions]:
        if offset and 0 <= qp + offset <= MAX_QP:
            candidates[offset] = filter_.samples(decoded, qp + offset, beside)
    picture, decision = decide_picture(original, decoded, candidates, qp=qp, ctu=ctu)
    row |= {"mse_network": _mses(original, network), "bits": decision.bits, "mode": decision.mode}
    return picture, row | {"scales": dict(decision.scales), "qp_offset": decision.qp_offset}, decision


def _quality(original: Picture, picture: Picture, metrics: Sequence[str]) -> dict[str, Any]:
    """`mse` of each plane (sample²), and `ssim` and `ms_ssim` of luma where asked for; null where it is too small."""
    row: dict[str, Any] = {"mse": _mses(original, picture)}
    if "ssim" in metrics:
        row["ssim"] = ssim(original.y, picture.y, picture.bit_depth)
    if "ms_ssim" in metrics:
        fits = min(picture.y.shape) >= MIN_SIDE
        row["ms_ssim"] = ms_ssim(original.y, picture.y, picture.bit_depth) if fits else None
    return row


def _mses(original: Picture, picture: Picture) -> list[float]:
    if original.bit_depth != picture.bit_depth:
        raise FormatError(f"pictures of {original.bit_depth} and {picture.bit_depth} bit have no common error")
    return [mse(a, b) for a, b in zip(original.planes, picture.planes, strict=True)]


def _ctus(
    coded: dict[str, Any], original: Picture, decoded: Picture, filtered: Picture, decision: Decision | None, ctu: int
) -> pa.Table:
    height, width = original.y.shape
    grid = ctu_grid(width, height, ctu)
    area = (grid[:, 2] * grid[:, 3]).astype(np.float64)
    source = original.y.astype(np.float64)
    flags = None if decision is None or "y" not in decision.flags else decision.flags["y"].ravel()
    columns: dict[str, Any] = {
        "poc": pa.array(np.full(len(grid), coded["poc"]), pa.int32()),
        "qp": pa.array(np.full(len(grid), coded["qp"]), pa.int32()),
        **{name: pa.array(grid[:, index], pa.int32()) for index, name in enumerate("xywh")},
        "mse_y": pa.array(ctu_sums((source - decoded.y) ** 2, ctu) / area),
        "mse_y_filtered": pa.array(ctu_sums((source - filtered.y) ** 2, ctu) / area),
        "flag": pa.nulls(len(grid), pa.bool_()) if flags is None else pa.array(flags, pa.bool_()),
    }
    return pa.table(columns)
