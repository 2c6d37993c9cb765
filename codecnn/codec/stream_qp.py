"""QPs that a filter takes for the pictures of a stream.

Networks are trained at constant QP, where the QP of a slice is that of its blocks. Rate control and adaptive
quantisation, the defaults of encoders, code most blocks at other QPs, and then the QP of the slices leads to too strong
or too weak filters. The rules here were found on validation clips (docs/research/stream_qp.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codecnn.base.planes import MAX_QP
from codecnn.codec.blocks.vvc_stream import StreamPicture
from codecnn.codec.encoder_settings import read_encoder_settings
from codecnn.codec.headers import output_pictures, picture_qp, read_headers
from codecnn.pictures.files import stream_codec

QP_RULE_VERSION = 1
"""Version of the rule; stores hold its QPs and are built again when it changes."""

_QUALITY_OFFSETS = {("x265", "crf"): 0, ("x264", "crf"): 3, ("x264", "cqp"): -1}
"""Offsets to the value of -crf or -qp, by encoder and kind of rate control."""
_PROGRAM_CODECS = {"x265": "hevc", "x264": "avc"}
_INTRA_OFFSETS = {"hevc": -6, "avc": 2, "av1": 0}
"""Offsets to the slice QP of the last intra picture, by codec; 0 for HEVC whose blocks have the QPs of slices."""
_LOW_DELAY_QPS = 3
"""Number of different slice QPs of the inter pictures of low delay."""


@dataclass(frozen=True)
class StreamQps:
    """QPs for the pictures of a stream, in output order, and where they come from.

    Attributes:
        qps: One QP for all pictures, or one for each.
        source: Words for messages, e.g. "crf 28 of x265".
    """

    qps: tuple[int, ...]
    source: str


def choose_qps(path: Path, *, all_intra_weights: bool) -> StreamQps:
    """Choose the QPs that a filter takes for the pictures of a stream.

    The sources, in this order: the value of -crf or -qp that x264 or x265 wrote into the stream; the slice QP of intra
    pictures with an offset (HEVC, AVC, AV1); of VVC the QP of the sequence for weights that were trained on intra
    pictures, else the slice QPs.

    Args:
        path: Stream of VVC, HEVC, AVC or AV1, also in a container.
        all_intra_weights: The network was trained on intra pictures only, and is too strong for inter pictures at their
            slice QPs.

    Raises:
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    codec = str(stream_codec(path))
    info = read_headers(path)
    pictures = output_pictures(info)
    settings = read_encoder_settings(path)
    constant = not info.block_qps or (settings is not None and settings.rate_control == "cqp")
    if settings is not None and settings.quality is not None:
        offset = _QUALITY_OFFSETS.get((settings.program, settings.rate_control))
        if offset is not None:
            kind = {"cqp": "qp"}.get(settings.rate_control, settings.rate_control)
            source = f"{kind} {settings.quality:g} of {settings.program}"
            if (settings.program, kind) == ("x264", "qp"):
                # x264 counts -qp from the lowest QP of the bit depth, which is -12 at 10 bit.
                offset -= 6 * (info.bit_depth - 8)
            return StreamQps((_clipped(settings.quality + offset),), source)
    slices = [picture_qp(picture, codec) for picture in pictures]
    if codec in _INTRA_OFFSETS:
        offset = 0 if codec == "hevc" and constant else _INTRA_OFFSETS[codec]
        values = [_clipped(qp + offset) for qp in _intra_qps(pictures, slices)]
        return StreamQps(_shortened(values), f"slice QP of intra pictures{f' {offset:+d}' if offset else ''}")
    if all_intra_weights and (qp := sequence_qp(pictures)) is not None:
        return StreamQps((qp,), "QP of the sequence")
    return StreamQps(tuple(slices), "slice QPs")


def describe_qps(codec: str, *, all_intra_weights: bool) -> dict[str, str]:
    """Describe the QPs that `choose_qps` chooses for streams of a codec, by kind of stream.

    Returns:
        For example {"x265 -crf": "value of -crf", "other": "slice QP of the last intra picture - 6"}.
    """
    described = {}
    for (program, control), offset in _QUALITY_OFFSETS.items():
        if _PROGRAM_CODECS[program] == codec:
            option = {"cqp": "-qp"}.get(control, f"-{control}")
            described[f"{program} {option}"] = _with_offset(f"value of {option}", offset)
    if codec in _INTRA_OFFSETS:
        intra = "slice QP of the last intra picture"
        if codec == "hevc":
            described["constant QP"] = intra
        described["other" if described else "all"] = _with_offset(intra, _INTRA_OFFSETS[codec])
    elif all_intra_weights:
        described["inter, constant QP"] = "QP of the sequence"
        described["other"] = "slice QPs"
    else:
        described["all"] = "slice QPs"
    return described


def _with_offset(value: str, offset: int) -> str:
    return f"{value} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else value


def _clipped(qp: float) -> int:
    return min(max(round(qp), 0), MAX_QP)


def _shortened(values: Sequence[int]) -> tuple[int, ...]:
    """Return one value if all are equal."""
    return (values[0],) if len(set(values)) == 1 else tuple(values)


def _intra_qps(pictures: Sequence[StreamPicture], slices: Sequence[int]) -> list[int]:
    """Return for each picture the slice QP of the last intra picture in output order."""
    qps: list[int] = []
    for picture, qp in zip(pictures, slices, strict=True):
        qps.append(qp if picture.slice_type == "I" or not qps else qps[-1])
    return qps


def sequence_qp(pictures: Sequence[StreamPicture]) -> int | None:
    """Return the QP that a sequence with inter pictures was coded at, if its slice QPs leave no doubt.

    In the structures of VTM and vvenc for random access and low delay, intra pictures have the QP of the sequence, the
    inter pictures of the lowest temporal layer begin one above it, and each layer has fixed offsets. An offset of the
    intra pictures (-3 in the common test conditions, about -4 by default in vvenc), perceptual adaptation and rate
    control change this, and then the QP cannot be told from the slices.

    Args:
        pictures: Pictures of a stream.
    """
    intra = {qp for picture in pictures if picture.slice_type == "I" for qp in picture.slice_qps}
    layers: dict[int, set[int]] = {}
    for picture in pictures:
        if picture.slice_type != "I":
            layers.setdefault(picture.temporal_id, set()).update(picture.slice_qps)
    lowest = layers.get(0, set())
    if len(intra) != 1 or not lowest or min(lowest) != min(intra) + 1:
        return None
    # In low delay all pictures are in one layer: the first of each group, and the others by turns.
    most = 1 if len(layers) > 1 else _LOW_DELAY_QPS
    return min(intra) if all(len(qps) <= most for qps in layers.values()) else None
