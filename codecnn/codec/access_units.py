"""The access units of a VVC or HEVC byte stream: their sizes, and the syntax elements of their headers.

ffmpeg reads them (its filter trace_headers); slice data is not parsed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codecnn.errors import EncoderError, FormatError, MissingFileError
from codecnn.video import ffmpeg_path, run

Elements = Mapping[str, int]
"""The syntax elements of a NAL unit by their names in the standard; of a name that comes twice the last."""

_PACKET = re.compile(r"Packet: (\d+) bytes")
_ELEMENT = re.compile(r"\d+ +(\w+(?:\[\d+\])*) .*= (-?\d+)")
_FIRST = "forbidden_zero_bit"
"""What every NAL unit begins with (H.265 clause 7.3.1.2, H.266 clause 7.3.1.2)."""


@dataclass(frozen=True)
class AccessUnit:
    """One access unit in decoding order: its bytes, start codes included, and its NAL units."""

    bytes: int
    nal_units: tuple[Elements, ...]

    @property
    def has_md5(self) -> bool:
        """Whether it states the MD5 of its decoded picture (H.265 clause D.3.19, H.274 clause 8.17), as 0 says."""
        return any(0 in (unit.get("hash_type"), unit.get("dph_sei_hash_type")) for unit in self.nal_units)


def access_units(path: Path) -> tuple[AccessUnit, ...]:
    """The access units of a stream in decoding order.

    Raises MissingFileError, and FormatError for what is no such stream, or where their bytes are not those of the file.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "repeat+info", "-i", f"file:{path.resolve()}"]
    try:
        told = run([*argv, "-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-"], what=f"reading {path}").stderr
    except EncoderError as error:
        raise FormatError(f"the headers of {path} cannot be read: {error}") from error
    found: list[tuple[int, list[dict[str, int]]]] = []
    for line in told.splitlines():
        if not line.startswith("[trace_headers @ "):
            continue
        text = line.partition("] ")[2]
        if packet := _PACKET.match(text):
            found.append((int(packet[1]), []))
        # What comes before the first packet are the parameter sets, which the first access unit has as well.
        elif found and (element := _ELEMENT.fullmatch(text)):
            units = found[-1][1]
            if element[1] == _FIRST:
                units.append({})
            if units:
                units[-1][element[1]] = int(element[2])
    if sum(size for size, _ in found) != path.stat().st_size:
        total = sum(size for size, _ in found)
        raise FormatError(f"{path} has {path.stat().st_size} bytes, its access units {total}")
    return tuple(AccessUnit(size, tuple(units)) for size, units in found)
