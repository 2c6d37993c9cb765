"""Rows of results: one coded unit before and after one filter."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from codecnn.base.rate_modes import RateMode, RateName, rate_mode
from codecnn.dataset import Unit
from codecnn.evaluation.measure import PictureMeasure
from codecnn.pictures.metrics import mean_psnr, psnr_of_mean_mse, psnr_yuv_611, psnr_yuv_mse

PLANES = ("y", "u", "v")
"""Names of the colour planes."""

PSNRS = (*PLANES, "yuv_611", "yuv_mse")
"""Kinds of PSNR: of a plane; (6 Y + U + V) / 8 of the planes' PSNRs; of all samples together (YUV-PSNR of VTM)."""

SIMILARITIES = ("ssim", "ms_ssim")
"""Structural similarities, which enter BD-rates as -10 log10(1 - s)."""

PERCEPTUAL = (*SIMILARITIES, "vmaf", "vmaf_neg", "xpsnr")
"""Quality measures other than PSNRs."""

QUALITIES = (*PSNRS, *PERCEPTUAL)
"""Quality measures for which BD-rates are computed."""


class Record(BaseModel):
    """Base of the records in results.json."""

    model_config = ConfigDict(frozen=True)

    def to_json(self) -> dict[str, Any]:
        """Return the content for results.json, without the fields that were not measured."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Quality(Record):
    """Quality of the pictures of one coded unit; a measure that was not taken is absent.

    Attributes:
        psnr: By name from `PSNRS`, in dB with peak 255 * 2^(b - 8). "y", "u", "v" and "yuv_611" are means of the
            pictures' PSNRs; None if the plane has no error in a picture, e.g. chroma of grey pictures in 4:2:0.
            "yuv_mse" is that of the mean MSE of all planes, as in the log of VTM; None if no picture has an error.
        psnr_of_mean_mse: By plane, the PSNR of the mean MSE in dB; None if no picture has an error.
        perceptual: By name from `PERCEPTUAL`, the mean over pictures; None if it has no value for a picture.
    """

    psnr: dict[str, float | None] = {}
    psnr_of_mean_mse: dict[str, float | None] = {}
    perceptual: dict[str, float | None] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether a measure of `QUALITIES` was taken."""
        return name in self.psnr or name in self.perceptual

    def measured(self, name: str) -> float | None:
        """Return a measure of `QUALITIES` as it was taken; None if it was not."""
        return self.psnr.get(name, self.perceptual.get(name))

    def quality(self, name: str) -> float | None:
        """Return a measure of `QUALITIES` as RD curves draw it.

        Returns:
            The value in dB, or the VMAF score. A structural similarity s is returned as -10 log10(1 - s). None if it
            was not measured or is infinite.
        """
        value = self.measured(name)
        if value is None or name not in SIMILARITIES:
            return value
        return None if value >= 1 else -10 * float(np.log10(1 - value))


class ResultRow(Record):
    """One coded unit before and after one filter.

    In results.json and in tables the measures are fields of the row: `psnr_y` of `before`, `psnr_y_filtered` of
    `after`, `psnr_y_network` of `network`, `psnr_y_of_mean_mse`, `ssim`, and so on.

    Attributes:
        name: Name of the sequence.
        class_: Class of the sequence.
        qp: QP of the unit.
        rate: Rate control whose value `qp` is, a key of `RATE_MODES`; None at constant QP.
        pictures: Number of pictures.
        fps: Frame rate of a video.
        bits: Bits of the whole bitstream file; None if unknown.
        flag_bits: Bits of the decisions.
        seconds_per_picture: Wall-clock time of the filter.
        encoder_seconds_per_picture: CPU time of the encoder; None if it was not recorded.
        before: Quality of the decoded pictures.
        after: Quality of the filtered pictures, with decisions if there are any.
        network: With decisions, the PSNRs of the network applied everywhere.
    """

    name: str
    class_: str | None = Field(None, alias="class")
    qp: int
    rate: RateName | None = None
    pictures: int | None = None
    fps: float | None = None
    bits: int | float | None
    flag_bits: int | float = 0
    seconds_per_picture: float | None = None
    encoder_seconds_per_picture: float | None = None
    before: Quality = Quality()
    after: Quality = Quality()
    network: Quality = Quality()

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, content: Any) -> Any:
        """Collect the measures of a row of results.json into records."""
        if not isinstance(content, Mapping):
            return content
        fields = {key: value for key, value in content.items() if key not in _MEASURES}
        for key in (key for key in content if key in _MEASURES):
            state, kind, name = _MEASURES[key]
            fields.setdefault(state, {}).setdefault(kind, {})[name] = content[key]
        return fields

    @model_serializer(mode="wrap")
    def _flat(self, nested: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the measures as fields of the row."""
        fields: dict[str, Any] = nested(self)
        states = {state: fields.pop(state, {}) for state in ("before", "after", "network")}
        for key, (state, kind, name) in _MEASURES.items():
            if name in (values := states[state].get(kind, {})):
                fields[key] = values[name]
        return fields

    @property
    def rate_mode(self) -> RateMode:
        """Rate control whose value `qp` is, with its names in tables."""
        return rate_mode(self.rate)

    def filtered(self, network: bool = False) -> Quality:
        """Return the quality of the filtered pictures, or of those of the network applied everywhere."""
        return self.network if network else self.after

    def gain(self, plane: str = "y", *, network: bool = False) -> float | None:
        """Return the filtered minus the decoded PSNR in dB, `plane` from `PSNRS`; None if either is unknown."""
        before, after = self.before.psnr.get(plane), self.filtered(network).psnr.get(plane)
        return None if before is None or after is None else after - before


def _measures() -> dict[str, tuple[str, str, str]]:
    """List the measures of a row of results.json in their order: key, and record, field and name in a `ResultRow`."""
    keys: dict[str, tuple[str, str, str]] = {}
    for state, suffix in (("before", ""), ("after", "_filtered")):
        keys |= {f"psnr_{name}{suffix}": (state, "psnr", name) for name in PSNRS}
        keys |= {f"psnr_{name}_of_mean_mse{suffix}": (state, "psnr_of_mean_mse", name) for name in PLANES}
    keys |= {f"psnr_{name}_network": ("network", "psnr", name) for name in PSNRS}
    for name in PERCEPTUAL:
        keys |= {name: ("before", "perceptual", name), f"{name}_filtered": ("after", "perceptual", name)}
    return keys


_MEASURES = _measures()


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
    facts: dict[str, Any] = {"class": unit.class_}
    networks = [picture.mse_network for picture in filtered if picture.mse_network is not None]
    if len(networks) == len(filtered):
        facts["network"] = Quality(psnr=_quality_of(networks, unit).psnr)
    if unit.rate is not None:
        facts["rate"] = unit.rate
    if unit.format.fps is not None:
        facts["fps"] = float(unit.format.fps)
    if positions is None and (seconds := unit.encoder_seconds) is not None:
        facts["encoder_seconds_per_picture"] = seconds / len(decoded)
    return ResultRow(
        name=unit.name,
        qp=unit.qp,
        pictures=len(decoded),
        bits=bits,
        flag_bits=sum(picture.bits for picture in filtered),
        seconds_per_picture=float(np.median([picture.seconds for picture in filtered])),
        before=_quality_of([picture.mse for picture in decoded], unit, decoded),
        after=_quality_of([picture.mse for picture in filtered], unit, filtered),
        **facts,
    )


def _quality_of(mses: Sequence[Sequence[float]], unit: Unit, pictures: Sequence[PictureMeasure] = ()) -> Quality:
    """Summarise the quality of a unit's pictures.

    Args:
        mses: For each picture, the mean squared error of each plane, in sample units squared.
        unit: The unit; its format gives bit depth and plane sizes.
        pictures: Pictures with the perceptual measures that were taken.
    """
    depth = unit.format.bit_depth
    planes = np.array(mses, np.float64).T
    psnr: dict[str, float | None] = {}
    of_mean: dict[str, float | None] = {}
    for plane, values in zip(PLANES, planes, strict=False):
        psnr[plane] = mean_psnr(values, depth) if values.all() else None
        of_mean[plane] = psnr_of_mean_mse(values, depth) if values.any() else None
    if len(planes) == len(PLANES):
        y, u, v = psnr.values()
        psnr["yuv_611"] = None if y is None or u is None or v is None else psnr_yuv_611(y, u, v)
        samples = [height * width for height, width in unit.format.plane_shapes]
        psnr["yuv_mse"] = psnr_yuv_mse(list(planes.mean(axis=1)), samples, depth) if planes.any() else None
    perceptual: dict[str, float | None] = {}
    scores = [picture.perceptual() for picture in pictures]
    for name in PERCEPTUAL:
        if any(name in each for each in scores):
            values = [each.get(name) for each in scores]
            perceptual[name] = None if None in values else float(np.mean(values))
    return Quality(psnr=psnr, psnr_of_mean_mse=of_mean, perceptual=perceptual)


def by_sequence(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """Group rows by the name of their sequence."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return dict(groups)
