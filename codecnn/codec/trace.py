"""Syntax elements of the headers of a coded stream, read by ffmpeg's bitstream filter trace_headers.

ffmpeg prints a line for each element, also for each byte of a message. The lines are read while ffmpeg writes them, so
memory holds one packet.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from codecnn.base.errors import EncoderError, FormatError, ToolMissingError
from codecnn.pictures.files import ffmpeg_path, run

_PACKET = re.compile(r"Packet: (\d+) bytes")
_ELEMENT = re.compile(r"(\d+) +([\w.]+(?:\[\d+\])*) .*?([01]*) = (-?\d+)")
_BULK = re.compile(r"\d+ +[\w.]+\[\d{4,}\]")
"""Beginning of an element of the content of a message: arrays of headers have fewer elements."""

_FIRST_ELEMENTS = {"obu": "obu_forbidden_bit"}
"""First element of each unit by demuxer; that of the others is `_FIRST_OF_NAL_UNIT`."""
_FIRST_OF_NAL_UNIT = "forbidden_zero_bit"
"""H.264, H.265 and H.266 clause 7.3.1."""


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


Unit = Mapping[str, Element]
"""Elements of a NAL unit or OBU by name, in coding order; of a repeated element the last one."""


class Packet(NamedTuple):
    """An access unit or temporal unit: its size in bytes, start codes included, and its NAL units or OBUs."""

    size: int
    units: tuple[Unit, ...]


def trace_packets(stream: Path, demuxer: str, name: str) -> Iterator[Packet]:
    """Read the headers of every packet of a byte stream in coding order.

    Args:
        stream: The byte stream.
        demuxer: ffmpeg's name of its format, e.g. "hevc" or "obu".
        name: Name of the stream in error messages.

    Yields:
        The packets, each as soon as ffmpeg has read it.

    Raises:
        FormatError: ffmpeg cannot read the headers, or the packets do not add up to the size of the file.
    """
    first = _FIRST_ELEMENTS.get(demuxer, _FIRST_OF_NAL_UNIT)
    total, size, units = 0, 0, list[dict[str, Element]]()
    for line in _trace_lines(stream, demuxer, name):
        if packet := _PACKET.match(line):
            if total:
                yield Packet(size, tuple(units))
            size, units = int(packet[1]), []
            total += size
        # The headers before the first packet are skipped: the first packet contains them as well.
        elif total and not _BULK.match(line) and (match := _ELEMENT.fullmatch(line)):
            element = Element(int(match[1]), match[2], len(match[3]), int(match[4]))
            if element.name == first:
                units.append({})
            if units:
                units[-1][element.name] = element
    if total:
        yield Packet(size, tuple(units))
    if total != (actual := stream.stat().st_size):
        raise FormatError(f"the stream of {name} has {actual} bytes, its access units {total}")


def _trace_lines(stream: Path, demuxer: str, name: str) -> Iterator[str]:
    """Yield the lines of trace_headers without their prefix while ffmpeg runs; raises as `trace_packets`."""
    source = ("-f", demuxer, "-i", f"file:{stream.resolve()}")
    copy = (*source, "-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-")
    start = (ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel")
    try:
        process = subprocess.Popen(
            (*start, "repeat+info", *copy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ToolMissingError(f"{start[0]} cannot be started: {error.strerror}") from error
    with process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("[trace_headers @ "):
                    yield line.partition("] ")[2].rstrip("\n")
        finally:
            # The reader may stop before the end.
            if process.poll() is None:
                process.kill()
    if process.returncode:
        try:
            # Without the trace, the lines name the cause alone.
            run((*start, "error", *copy), what=f"reading {name}")
        except EncoderError as error:
            raise FormatError(f"the headers of {name} cannot be read: {error}") from error
        raise FormatError(f"the headers of {name} cannot be read: ffmpeg ended with status {process.returncode}")
