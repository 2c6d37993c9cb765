"""Rows of results (one coded unit before and after one filter), and the PSNR gains and BD-rates of rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from codecnn.base.errors import ConfigError, TableError
from codecnn.dataset import Unit
from codecnn.evaluation.measure import PictureMeasure
from codecnn.pictures.metrics import (
    MIN_POINTS,
    MIN_SIDE,
    bd_rate,
    mean_psnr,
    psnr_of_mean_mse,
    psnr_yuv_611,
    psnr_yuv_mse,
)

PLANES = ("y", "u", "v")
"""Names of the colour planes."""

PSNRS = (*PLANES, "yuv_611", "yuv_mse")
"""Kinds of PSNR: of a plane; (6 Y + U + V) / 8 of the planes' PSNRs; of all samples together (YUV-PSNR of VTM)."""

STRUCTURAL = ("ssim", "ms_ssim")
"""Structural similarities, which enter BD-rates as -10 log10(1 - s)."""

QUALITIES = {name: f"psnr_{name}" for name in PSNRS} | {name: name for name in (*STRUCTURAL, "vmaf")}
"""Quality measures for which BD-rates are computed, with the field of a row that holds them."""

AFTER = "_filtered"
"""Suffix of the fields after the filter (with decisions, if there are any)."""

NETWORK = "_network"
"""Suffix of the fields of the network applied everywhere, without decisions."""

Rates = dict[str, float | None]
"""BD-rates in % by quality measure; negative values save bits, None means that there is no BD-rate."""

Gains = dict[str, float]
"""Gains in dB by QP, e.g. "22", and their "mean"."""


class Record(BaseModel):
    """Base of the records in results.json."""

    model_config = ConfigDict(frozen=True)

    def to_json(self) -> dict[str, Any]:
        """Return the content for results.json, without the fields that were not measured."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class ResultRow(Record):
    """One coded unit before and after one filter.

    PSNRs are the means of the pictures' PSNRs in dB with peak 255 * 2^(b - 8). A PSNR is None if the plane has no error
    in a picture, e.g. chroma of grey pictures in 4:2:0; PSNRs of a missing plane are not set. `psnr_yuv_mse` is
    computed from the mean MSE of all planes, as in the log of VTM, and `psnr_PLANE_of_mean_mse` from that of a plane;
    they are None if no picture has an error. With decisions, the suffix `_filtered` stands for the decided pictures and
    `_network` for the network applied everywhere. `seconds_per_picture` is the wall-clock time of the filter,
    `encoder_seconds_per_picture` the CPU time of the encoder; None if it was not recorded. Bits are those of the whole
    bitstream file. `fps` is the frame rate of a video.
    """

    name: str
    class_: str | None = Field(None, alias="class")
    qp: int
    pictures: int | None = None
    fps: float | None = None
    bits: int | float | None
    flag_bits: int | float = 0
    seconds_per_picture: float | None = None
    encoder_seconds_per_picture: float | None = None
    psnr_y: float | None = None
    psnr_u: float | None = None
    psnr_v: float | None = None
    psnr_yuv_611: float | None = None
    psnr_yuv_mse: float | None = None
    psnr_y_of_mean_mse: float | None = None
    psnr_u_of_mean_mse: float | None = None
    psnr_v_of_mean_mse: float | None = None
    psnr_y_filtered: float | None = None
    psnr_u_filtered: float | None = None
    psnr_v_filtered: float | None = None
    psnr_yuv_611_filtered: float | None = None
    psnr_yuv_mse_filtered: float | None = None
    psnr_y_of_mean_mse_filtered: float | None = None
    psnr_u_of_mean_mse_filtered: float | None = None
    psnr_v_of_mean_mse_filtered: float | None = None
    psnr_y_network: float | None = None
    psnr_u_network: float | None = None
    psnr_v_network: float | None = None
    psnr_yuv_611_network: float | None = None
    psnr_yuv_mse_network: float | None = None
    ssim: float | None = None
    ssim_filtered: float | None = None
    ms_ssim: float | None = None
    ms_ssim_filtered: float | None = None
    vmaf: float | None = None
    vmaf_filtered: float | None = None

    def quality(self, name: str, suffix: str = "") -> float | None:
        """Return a quality measure as RD curves draw it.

        Args:
            name: Name from `QUALITIES`.
            suffix: "" (decoded), `AFTER` or `NETWORK`.

        Returns:
            The value in dB, or the VMAF score. A structural similarity s is returned as -10 log10(1 - s). None if it
            was not measured or is infinite.
        """
        value: float | None = getattr(self, f"{QUALITIES[name]}{suffix}")
        if value is None or name not in STRUCTURAL:
            return value
        return None if value >= 1 else -10 * float(np.log10(1 - value))

    def gain(self, plane: str = "y", suffix: str = AFTER) -> float | None:
        """Return the filtered minus the decoded PSNR in dB, `plane` from `PSNRS`; None if either is unknown."""
        before, after = self.quality(plane), self.quality(plane, suffix)
        return None if before is None or after is None else after - before


def make_row(
    unit: Unit,
    decoded: Sequence[PictureMeasure],
    filtered: Sequence[PictureMeasure],
    positions: Sequence[int] | None = None,
) -> ResultRow:
    """Summarise the pictures of one coded unit, before and after one filter.

    Args:
        unit: The coded unit.
        decoded: Quality of each decoded picture.
        filtered: Quality of each filtered picture.
        positions: Indices of the pictures to include; the bits are then those of these pictures alone. None includes
            all pictures and the bits of the whole bitstream.

    Returns:
        The row of the unit.
    """
    bits = unit.bits
    if positions is not None:
        decoded, filtered = ([pictures[index] for index in positions] for pictures in (decoded, filtered))
        picture_bits = [unit.pictures[index].bits for index in positions]
        bits = None if None in picture_bits else sum(count or 0 for count in picture_bits)
    figures: dict[str, Any] = psnrs_of([picture.mse for picture in decoded], unit)
    figures |= {f"{name}{AFTER}": value for name, value in psnrs_of([each.mse for each in filtered], unit).items()}
    networks = [picture.mse_network for picture in filtered if picture.mse_network is not None]
    if len(networks) == len(filtered):
        network_figures = psnrs_of(networks, unit)
        keys = [f"psnr_{name}" for name in PSNRS if f"psnr_{name}" in network_figures]
        figures |= {f"{key}{NETWORK}": network_figures[key] for key in keys}
    for name in (*STRUCTURAL, "vmaf"):
        for suffix, pictures in (("", decoded), (AFTER, filtered)):
            if any(name in picture.model_fields_set for picture in pictures):
                values = [getattr(picture, name) for picture in pictures]
                figures[f"{name}{suffix}"] = None if None in values else float(np.mean(values))
    figures["class"] = unit.class_
    if unit.format.fps is not None:
        figures["fps"] = float(unit.format.fps)
    if positions is None and (seconds := unit.encoder_seconds) is not None:
        figures["encoder_seconds_per_picture"] = seconds / len(decoded)
    return ResultRow(
        name=unit.name,
        qp=unit.qp,
        pictures=len(decoded),
        bits=bits,
        flag_bits=sum(picture.bits for picture in filtered),
        seconds_per_picture=float(np.median([picture.seconds for picture in filtered])),
        **figures,
    )


def psnrs_of(mses: Sequence[Sequence[float]], unit: Unit) -> dict[str, float | None]:
    """Compute all kinds of PSNR from the squared errors of a unit's pictures.

    Args:
        mses: For each picture, the mean squared error of each plane, in sample units squared.
        unit: The unit; its format gives bit depth and plane sizes.

    Returns:
        "psnr_" and each name of `PSNRS` in dB, and "psnr_PLANE_of_mean_mse", without those of missing planes; None if
        there is no error, see `ResultRow`.
    """
    depth = unit.format.bit_depth
    planes = np.array(mses, np.float64).T
    figures: dict[str, float | None] = {}
    for plane, values in zip(PLANES, planes, strict=False):
        figures[f"psnr_{plane}"] = mean_psnr(values, depth) if values.all() else None
        figures[f"psnr_{plane}_of_mean_mse"] = psnr_of_mean_mse(values, depth) if values.any() else None
    if len(planes) == len(PLANES):
        y, u, v = (figures[f"psnr_{plane}"] for plane in PLANES)
        figures["psnr_yuv_611"] = None if y is None or u is None or v is None else psnr_yuv_611(y, u, v)
        samples = [height * width for height, width in unit.format.plane_shapes]
        figures["psnr_yuv_mse"] = psnr_yuv_mse(list(planes.mean(axis=1)), samples, depth) if planes.any() else None
    return figures


def by_sequence(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """Group rows by the name of their sequence."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return dict(groups)


def mean_gains(rows: Iterable[ResultRow], plane: str = "y", suffix: str = AFTER) -> Gains:
    """Compute the mean gain over the rows at each QP, and the mean over the QPs; empty if no gain is known."""
    by_qp: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (gain := row.gain(plane, suffix)) is not None:
            by_qp[row.qp].append(gain)
    gains = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
    return gains | {"mean": float(np.mean(list(gains.values())))} if gains else {}


def gains_by_plane(rows: Sequence[ResultRow], suffix: str) -> dict[str, Gains]:
    """Compute `mean_gains` for each name of `PSNRS` that has any."""
    return {plane: gains for plane in PSNRS if (gains := mean_gains(rows, plane, suffix))}


def bd_rates(rows: Sequence[ResultRow], suffix: str, method: str, notes: list[str]) -> Rates:
    """Compute the BD-rates of one sequence over its decoded pictures.

    `codecnn.pictures.metrics.bd_rate` refuses curves of fewer than four points, curves whose quality does not rise with
    the rate, and curves that share less than half of the shorter one's range, because the result would depend on the
    interpolation alone.

    Args:
        rows: The rows of the sequence, one a QP.
        suffix: `AFTER` (bits of the decisions are counted) or `NETWORK` (they are not: the network is on everywhere).
        method: Interpolation, "pchip" or "akima".
        notes: List that receives a sentence for each BD-rate that cannot be computed, except for missing planes.

    Returns:
        BD-rate in % by quality measure; None if it cannot be computed.
    """
    rates: Rates = {}
    unknown = []
    bits = [row.bits for row in rows if row.bits is not None]
    if len(bits) < len(rows):
        notes.append(f"no BD-rate for {rows[0].name}: its bits are unknown: state bits or bitstream in the recipe")
    elif len(rows) < MIN_POINTS:
        notes.append(f"no BD-rate for {rows[0].name}: it needs {MIN_POINTS} QPs, not {len(rows)}")
    for name, key in QUALITIES.items():
        if name not in PLANES and not any(f"{key}{suffix}" in row.model_fields_set for row in rows):
            continue
        rates[name] = None
        before = [row.quality(name) for row in rows]
        after = [row.quality(name, suffix) for row in rows]
        if None in before or None in after:
            unknown.append(name)
            continue
        if len(bits) < max(len(rows), MIN_POINTS):
            continue
        decision_bits = [0 if suffix == NETWORK else row.flag_bits for row in rows]
        anchor = [(rate, value) for rate, value in zip(bits, before, strict=True) if value is not None]
        test = [(rate + c, b) for rate, b, c in zip(bits, after, decision_bits, strict=True) if b is not None]
        try:
            rates[name] = bd_rate(anchor, test, method)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {name.upper()} for {rows[0].name}: {error}")
    if reasons := [reason for name in unknown if (reason := _without_value(rows, name, suffix))]:
        names = ", ".join(map(str.upper, unknown))
        notes.append(f"no gain and no BD-rate {names} for {rows[0].name}: {'; '.join(reasons)}")
    return rates


def _without_value(rows: Sequence[ResultRow], name: str, suffix: str) -> str | None:
    """Return why a quality measure has no value in some rows; None if the pictures have no such plane.

    There is none for "yuv_611" either, which has no value where one of its planes has none.
    """
    unknown = [row for row in rows if None in (row.quality(name), row.quality(name, suffix))]
    qps = ", ".join(str(row.qp) for row in unknown if QUALITIES[name] in row.model_fields_set)
    if not qps or name == "yuv_611":
        return None
    if name == "ms_ssim":
        return f"MS-SSIM has no value for pictures with a side below {MIN_SIDE} or without error (QP {qps})"
    where = "" if name in (*STRUCTURAL, "yuv_mse") else f" in {name.upper()}"
    return f"a picture has no error{where} at QP {qps}"


def mean_rates(rates: Iterable[Rates]) -> Rates:
    """Average BD-rates over sequences; None for a quality measure that a sequence has no BD-rate of."""
    sequence_rates = list(rates)
    means: Rates = dict.fromkeys(PLANES)
    for name in (name for name in QUALITIES if any(name in each for each in sequence_rates)):
        known = [rate for each in sequence_rates if (rate := each.get(name)) is not None]
        means[name] = float(np.mean(known)) if len(known) == len(sequence_rates) else None
    return means
