"""Rows of results: one coded unit before and after one filter, and the gains and BD-rates of rows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from codecnn.dataset import Unit
from codecnn.errors import ConfigError, TableError
from codecnn.evaluation.measure import PictureMeasure
from codecnn.quality import bd_rate, mean_psnr, psnr_of_mean_mse, psnr_yuv_611, psnr_yuv_mse

PLANES = ("y", "u", "v")
PSNRS = (*PLANES, "yuv_611", "yuv_mse")
"""What a PSNR is of: a plane; (6 Y + U + V) / 8 of the planes' PSNRs; all samples, as VTM's YUV-PSNR."""

STRUCTURAL = ("ssim", "ms_ssim")
QUALITIES = {name: f"psnr_{name}" for name in PSNRS} | {name: name for name in (*STRUCTURAL, "vmaf")}
"""What a BD-rate is of, and the key of its figures in a row."""

AFTER, NETWORK = "_filtered", "_network"

Rates = dict[str, float | None]
"""BD-rates in % by quality, negative where bits are saved; None where there is none."""
Gains = dict[str, float]
"""Gains in dB at each QP, "22" and so on, and their "mean"."""


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)

    def to_json(self) -> dict[str, Any]:
        """As it stands in results.json: what was not measured is not there."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class ResultRow(Record):
    """One coded unit before and after one filter.

    PSNRs are means over pictures of per-picture PSNR in dB, peak 255·2^(b-8); None where a plane is missing or without
    error in some picture (grey pictures in 4:2:0 have such chroma). `psnr_yuv_mse` is of the mean MSE, as VTM logs it.
    With decisions `_filtered` is what was decided, and `_network` the network everywhere. `seconds_per_picture` is the
    filter's, by the clock; `encoder_seconds_per_picture` the encoder's, of the processor; None where nobody noted it.
    """

    name: str
    class_: str | None = Field(None, alias="class")
    qp: int
    pictures: int | None = None
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
        """The figure that rises with quality `name` of QUALITIES, in dB but for VMAF; None where it is not known.

        A structural similarity s becomes -10·log10(1 - s), as RD curves draw it; 1 has no such value.
        """
        value: float | None = getattr(self, f"{QUALITIES[name]}{suffix}")
        if value is None or name not in STRUCTURAL:
            return value
        return None if value >= 1 else -10 * float(np.log10(1 - value))

    def gain(self, plane: str = "y", suffix: str = AFTER) -> float | None:
        """Filtered minus decoded PSNR in dB, `plane` of PSNRS; None where either is not known."""
        before, after = self.quality(plane), self.quality(plane, suffix)
        return None if before is None or after is None else after - before


def make_row(
    unit: Unit,
    decoded: Sequence[PictureMeasure],
    filtered: Sequence[PictureMeasure],
    which: Sequence[int] | None = None,
) -> ResultRow:
    """The row of one coded unit, before and after one filter; of the pictures `which` with their own bits alone."""
    bits = unit.bits
    if which is not None:
        decoded, filtered = ([every[index] for index in which] for every in (decoded, filtered))
        own = [unit.pictures[index].bits for index in which]
        bits = None if None in own else sum(one or 0 for one in own)
    figures: dict[str, Any] = psnrs_of([one.mse for one in decoded], unit)
    figures |= {f"{name}{AFTER}": value for name, value in psnrs_of([one.mse for one in filtered], unit).items()}
    networks = [one.mse_network for one in filtered if one.mse_network is not None]
    if len(networks) == len(filtered):
        alone = psnrs_of(networks, unit)
        figures |= {f"psnr_{name}{NETWORK}": alone[f"psnr_{name}"] for name in PSNRS}
    for name in (*STRUCTURAL, "vmaf"):
        for suffix, pictures in (("", decoded), (AFTER, filtered)):
            if any(name in picture.model_fields_set for picture in pictures):
                values = [getattr(picture, name) for picture in pictures]
                figures[f"{name}{suffix}"] = None if None in values else float(np.mean(values))
    figures["class"] = unit.class_
    if which is None and (seconds := unit.encoder_seconds) is not None:
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
    depth = unit.format.bit_depth
    planes = np.array(mses, np.float64).T
    figures: dict[str, float | None] = {f"psnr_{plane}": None for plane in PSNRS}
    for plane, values in zip(PLANES, planes, strict=False):
        if values.all():
            figures[f"psnr_{plane}"] = mean_psnr(values, depth)
            figures[f"psnr_{plane}_of_mean_mse"] = psnr_of_mean_mse(values, depth)
    y, u, v = (figures[f"psnr_{plane}"] for plane in PLANES)
    if y is not None and u is not None and v is not None:
        figures["psnr_yuv_611"] = psnr_yuv_611(y, u, v)
        samples = [height * width for height, width in unit.format.plane_shapes]
        figures["psnr_yuv_mse"] = psnr_yuv_mse(list(planes.mean(axis=1)), samples, depth)
    return figures


def by_sequence(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """The rows of each sequence."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return dict(groups)


def mean_gains(rows: Iterable[ResultRow], plane: str = "y", suffix: str = AFTER) -> Gains:
    """Mean gain over the rows at each QP, and the mean of those over the QPs; empty where no gain is known."""
    by_qp: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (gain := row.gain(plane, suffix)) is not None:
            by_qp[row.qp].append(gain)
    gains = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
    return gains | {"mean": float(np.mean(list(gains.values())))} if gains else {}


def gains_by_plane(rows: Sequence[ResultRow], suffix: str) -> dict[str, Gains]:
    return {plane: gains for plane in PSNRS if (gains := mean_gains(rows, plane, suffix))}


def bd_rates(rows: Sequence[ResultRow], suffix: str, method: str, notes: list[str]) -> Rates:
    """BD-rate of one sequence by quality; None, and a note, where there is none.

    `bd_rate` refuses curves of fewer than four points, of a quality that does not rise with the rate, and with less
    than half of the shorter one's range in common: there the integral would be of what the interpolation makes up.
    """
    rates: Rates = {}
    bits = [row.bits for row in rows if row.bits is not None]
    if len(bits) < len(rows):
        notes.append(f"no BD-rate for {rows[0].name}: of pictures without a stream the bits are not known")
    for name, key in QUALITIES.items():
        if name not in PLANES and not any(f"{key}{suffix}" in row.model_fields_set for row in rows):
            continue
        rates[name] = None
        before = [row.quality(name) for row in rows]
        after = [row.quality(name, suffix) for row in rows]
        if None in before or None in after or len(bits) < len(rows):
            continue
        # The network alone is on everywhere, so it has no flags to count.
        own = [0 if suffix == NETWORK else row.flag_bits for row in rows]
        anchor = [(rate, value) for rate, value in zip(bits, before, strict=True) if value is not None]
        test = [(rate + c, b) for rate, b, c in zip(bits, after, own, strict=True) if b is not None]
        try:
            rates[name] = bd_rate(anchor, test, method)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {name.upper()} for {rows[0].name}: {error}")
    return rates


def mean_rates(rates: Iterable[Rates]) -> Rates:
    """Mean by quality; None unless every sequence has one, for a mean of some would not be what its name promises."""
    listed = list(rates)
    means: Rates = dict.fromkeys(PLANES)
    for name in (name for name in QUALITIES if any(name in each for each in listed)):
        known = [rate for each in listed if (rate := each.get(name)) is not None]
        means[name] = float(np.mean(known)) if len(known) == len(listed) else None
    return means
