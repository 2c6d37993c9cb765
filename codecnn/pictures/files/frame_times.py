"""Times at which the pictures of a container are shown."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.stream import Disposition

from codecnn.base.errors import ConversionError
from codecnn.pictures.files.ffmpeg import LOSSLESS_COPY, file_url

_MICROSECOND = Fraction(1, 1_000_000)
"""Unit of the times that PyAV states of a whole file."""


@dataclass(frozen=True)
class FrameTimes:
    """Times of the pictures of the first video stream of a container.

    Attributes:
        times: Time of each picture in output order, in units of `time_base`, after edit lists.
        shown: Whether each picture is shown; an edit list of an MP4 file can hide pictures.
        time_base: Unit of the times in seconds.
        offset: Time in seconds from the start of the file to the first picture that is shown.
        disposition: ffmpeg's names of the roles of the stream, e.g. ("default",).
        metadata: Tags of the stream, e.g. its language.
    """

    times: tuple[int, ...]
    shown: tuple[bool, ...]
    time_base: Fraction
    offset: Fraction
    disposition: tuple[str, ...]
    metadata: dict[str, str]


def read_frame_times(path: Path, count: int) -> FrameTimes:
    """Read the times of the pictures of a container, whose packets are pictures.

    Args:
        path: The container.
        count: Number of its pictures, those that an edit list hides included.

    Raises:
        ConversionError: The container states no time for a picture, or has an edit list that repeats or
            reorders pictures.
    """
    with av.open(file_url(path), options={"protocol_whitelist": "file"}) as container:
        videos = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
        stream = videos[0]
        packets = [(packet.pts, packet.is_discard, packet.dts) for packet in container.demux(stream) if packet.size]
        start = (container.start_time or 0) * _MICROSECOND
        time_base = stream.time_base
        metadata = dict(stream.metadata)
        roles = tuple(str(role.name) for role in Disposition if role and role in stream.disposition)
    stated = [(pts, hidden) for pts, hidden, _ in packets]
    if any(pts is None for pts, _ in stated):
        # An AVI file may only have the times of decoding, at which as many pictures are shown.
        stated = [(dts, hidden) for _, hidden, dts in packets]
    if any(time is None for time, _ in stated) or time_base is None:
        raise ConversionError(f"{path} states no time for some pictures: {LOSSLESS_COPY}")
    if len(packets) != count:
        raise ConversionError(
            f"{path} has an edit list that repeats or leaves out pictures ({len(packets)} of {count} are played): "
            f"{LOSSLESS_COPY}"
        )
    ordered = sorted((int(time or 0), hidden) for time, hidden in stated)
    times = tuple(time for time, _ in ordered)
    shown = tuple(not hidden for _, hidden in ordered)
    if len(set(times)) < len(times) or not any(shown):
        raise ConversionError(f"{path} has pictures with equal times: {LOSSLESS_COPY}")
    offset = times[shown.index(True)] * time_base - start
    return FrameTimes(times, shown, time_base, offset, roles, metadata)
