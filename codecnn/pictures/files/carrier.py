"""Coded videos whose sound, subtitles, times and tags a filtered video gets."""

from dataclasses import dataclass
from pathlib import Path

import av

from codecnn.base.errors import ConversionError
from codecnn.pictures.files.ffmpeg import DEMUXERS, LOSSLESS_COPY, file_url, input_arguments
from codecnn.pictures.files.frame_times import FrameTimes, read_frame_times
from codecnn.pictures.files.packets import summarise_packets
from codecnn.pictures.files.probing import StreamInfo, probe_stream

_FULL_RANGE = 2
"""ffmpeg's number of the full range of samples (AVCOL_RANGE_JPEG)."""


@dataclass(frozen=True)
class Carrier:
    """Container whose sound, subtitles, times and tags the output gets.

    Attributes:
        path: The container, or a byte stream, which has tags only.
        info: Properties of its first video stream.
        times: Times of its pictures; None for a byte stream, whose pictures follow each other at a constant rate.
        range: ffmpeg's number of the range of samples: 0 unknown, 1 limited, 2 full.
        matrix: Primaries, transfer and matrix as arguments of ffmpeg's filter setparams.
    """

    path: Path
    info: StreamInfo
    times: FrameTimes | None
    range: int
    matrix: str

    @property
    def full_range(self) -> bool:
        """True if samples have full range."""
        return self.range == _FULL_RANGE

    @property
    def colour(self) -> str:
        """Range and colour as arguments of ffmpeg's filter setparams."""
        return f"range={self.range}:{self.matrix}"

    @property
    def limited_colour(self) -> str:
        """The same with the limited range instead of the full one, for encoders that have no other."""
        return f"range={1 if self.full_range else self.range}:{self.matrix}"

    def input_arguments(self) -> tuple[str, ...]:
        """Return ffmpeg's arguments to read the file as players do, with its edit lists."""
        container = self.info.container
        return input_arguments(self.path, container if container in DEMUXERS.values() else None)


def read_carrier(path: Path) -> Carrier:
    """Read times and properties of a coded video that is filtered into a container.

    Raises:
        ConversionError: The video is interlaced, cropped by its container, or its times cannot be kept.
        FormatError: The file is not a video.
    """
    info = probe_stream(path)
    if info.fields is not None:
        raise ConversionError(
            f"{path} is interlaced, and a filtered video is written as progressive: deinterlace it first, e.g. with "
            "ffmpeg -i IN -map 0 -map -0:d -c copy -c:v:0 ffv1 -filter:v:0 bwdif OUT.mkv"
        )
    if info.cropping is not None:
        raise ConversionError(f"{path} is cropped by its container, which the output cannot state: {LOSSLESS_COPY}")
    times = None
    if info.container not in DEMUXERS.values():
        times = read_frame_times(path, summarise_packets(path, container=info.container).shown)
    return Carrier(path, info, times, *_colour(path))


def _colour(path: Path) -> tuple[int, str]:
    """Return the range of a video, and its colour properties as arguments of ffmpeg's filter setparams."""
    with av.open(file_url(path), options={"protocol_whitelist": "file"}) as container:
        context = container.streams.video[0].codec_context
        values = {
            "color_primaries": int(context.color_primaries),
            "color_trc": int(context.color_trc),
            "colorspace": int(context.colorspace),
        }
        color_range = int(context.color_range)
    return color_range, ":".join(f"{name}={value}" for name, value in values.items())
