"""Syntax elements of the headers of a coded stream, read by ffmpeg's bitstream filter trace_headers."""

import re
from pathlib import Path
from typing import NamedTuple

from codecnn.errors import EncoderError, FormatError
from codecnn.video import ffmpeg_path, run

_PACKET = re.compile(r"Packet: (\d+) bytes")
_ELEMENT = re.compile(r"(\d+) +([\w.]+(?:\[\d+\])*) .*?([01]*) = (-?\d+)")


class Element(NamedTuple):
    """A syntax element.

    Attributes:
        position: Position of its first bit from the start of its unit (NAL unit or OBU).
        name: Name in the standard, with its indices, e.g. "loop_filter_level[0]".
        bits: Number of coded bits.
        value: Value.
    """

    position: int
    name: str
    bits: int
    value: int


class Packet(NamedTuple):
    """An access unit or temporal unit: its size in bytes, start codes included, and its elements in coding order."""

    size: int
    elements: tuple[Element, ...]


def trace_packets(stream: Path, demuxer: str, name: str) -> list[Packet]:
    """Read the headers of every packet of a byte stream in coding order.

    Args:
        stream: The byte stream.
        demuxer: ffmpeg's name of its format, e.g. "hevc" or "obu".
        name: Name of the stream in error messages.

    Raises:
        FormatError: ffmpeg cannot read the headers, or the packets do not add up to the size of the file.
    """
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "repeat+info"]
    argv += ["-f", demuxer, "-i", f"file:{stream.resolve()}"]
    try:
        trace = run([*argv, "-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-"], what=f"reading {name}").stderr
    except EncoderError as error:
        raise FormatError(f"the headers of {name} cannot be read: {error}") from error
    packets: list[tuple[int, list[Element]]] = []
    for line in trace.splitlines():
        if not line.startswith("[trace_headers @ "):
            continue
        text = line.partition("] ")[2]
        if packet := _PACKET.match(text):
            packets.append((int(packet[1]), []))
        # The headers before the first packet are skipped: the first packet contains them as well.
        elif packets and (match := _ELEMENT.fullmatch(text)):
            packets[-1][1].append(Element(int(match[1]), match[2], len(match[3]), int(match[4])))
    total, size = sum(size for size, _ in packets), stream.stat().st_size
    if total != size:
        raise FormatError(f"the stream of {name} has {size} bytes, its access units {total}")
    return [Packet(size, tuple(elements)) for size, elements in packets]
