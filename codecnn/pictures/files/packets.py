"""Packets of containers: the number and the times of the pictures of a file, and whether it is cut off."""

import functools
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from codecnn.base.errors import EncoderError, FormatError
from codecnn.pictures.files.ffmpeg import ffmpeg_path, input_arguments, reason_of, run

_DAMAGE = re.compile(r"(?:corrupt input packet|partial file|File ended prematurely|Truncat|Packet corrupt)")
"""Messages of demuxers, of any level, about a file that is cut off or damaged."""
_STREAM = re.compile(r"\bstream (?:= )?(\d+)")
_SOURCE = re.compile(r"^(?:\[info\] )?  Stream #0:(\d+).* -> #0:0", re.MULTILINE)
_FLAGS = re.compile(r", F=0x([0-9A-F]+)")
_CORRUPT, _DISCARD = 2, 4
"""Flags of packets: damaged; decoded but not shown (AV_PKT_FLAG_CORRUPT, AV_PKT_FLAG_DISCARD)."""
_UNKNOWN = 2**62


@dataclass(frozen=True)
class PacketSummary:
    """Facts from the packets of the first video stream of a file; a packet is a picture of most codecs.

    Attributes:
        shown: Number of packets whose pictures are shown.
        damage: ffmpeg's message if the file is cut off or damaged inside a packet, else None.
        whole: Number of pictures from the start, in output order, that precede all that are damaged or missing; 0 if
            the times of the packets are unknown.
        end: Time in seconds at which the last picture ends; None if unknown.
        vary: The distances between the pictures differ by more than rounding.
        parameters_change: New parameter sets are in force behind the first packet, by another sample description.
    """

    shown: int
    damage: str | None
    whole: int
    end: float | None
    vary: bool
    parameters_change: bool


def file_damage(report: str) -> str | None:
    """Return what ffmpeg reports about damage of a file, outside of streams that it does not read; None if nothing."""
    source = _SOURCE.search(report)
    for line in report.splitlines():
        if _DAMAGE.search(line):
            stream = _STREAM.search(line)
            if stream is None or source is None or stream[1] == source[1]:
                return re.sub(r"\[\S+ @ 0x[0-9a-f]+\] |^\[\w+\] ", "", line).strip(" .")
    return None


def summarise_packets(path: Path, demuxer: str | None = None, container: str = "") -> PacketSummary:
    """Read the packets of the first video stream of a file without decoding them; see `input_arguments`.

    Raises:
        FormatError: ffmpeg cannot read the file.
    """
    state = path.stat()
    return _summarise_version(path.absolute(), demuxer, container, state.st_size, state.st_mtime_ns)


@functools.cache
def _summarise_version(path: Path, demuxer: str | None, container: str, size: int, time: int) -> PacketSummary:
    """Do the work of `summarise_packets`; `size` and `time` distinguish versions of the file."""
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", *input_arguments(path, demuxer, container)]
    argv += ["-map", "0:V:0", "-c", "copy", "-copyinkf:v", "-f", "framecrc", "-"]
    try:
        finished = run(argv, what=f"reading {path}")
    except EncoderError as error:
        raise FormatError(f"{path} cannot be read: {reason_of(error)}") from error
    lines = [line for line in finished.stdout.splitlines() if line and not line.startswith("#")]
    rows = [[_time(text) for text in line.split(",")[1:4]] for line in lines]
    # A line has flags unless they are those of a plain key picture.
    flags = [int(match[1], 16) if (match := _FLAGS.search(line)) else 1 for line in lines]
    shown = sum(not flag & _DISCARD for flag in flags)
    times = sorted(row[1] for row, flag in zip(rows, flags, strict=True) if row[1] is not None and not flag & _DISCARD)
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    base = re.search(r"^#tb 0: (\d+)/(\d+)$", finished.stdout, re.MULTILINE)
    end = max((row[1] + (row[2] or 0) for row in rows if row[1] is not None), default=None)
    corrupt = any(flag & _CORRUPT for flag in flags)
    damage = file_damage(finished.stderr) or ("a packet is damaged" if corrupt else None)
    return PacketSummary(
        shown=shown,
        damage=damage,
        whole=_whole_pictures(rows, flags),
        end=None if end is None or base is None else end * int(base[1]) / int(base[2]),
        vary=len(steps) > 1 and max(steps) > 1.5 * min(steps) + 1,
        parameters_change=_parameters_change(finished.stdout),
    )


def _parameters_change(report: str) -> bool:
    """Return whether the parameter sets change, of which ffmpeg states sizes and checksums where they begin."""
    first = re.search(r"^#extradata 0: *(\d+, 0x[0-9a-f]+)", report, re.MULTILINE)
    others = re.findall(r"New Extradata, *(\d+, 0x[0-9a-f]+)", report)
    return bool(others) and (first is None or {first[1]} != set(others))


def _time(text: str) -> int | None:
    """Return a time of the report, None if ffmpeg does not know it, which it writes as the smallest integer."""
    value = int(text) if text.strip(" -").isdigit() else _UNKNOWN
    return None if abs(value) >= _UNKNOWN else value


def _whole_pictures(rows: list[list[int | None]], flags: list[int]) -> int:
    """Return how many pictures precede, in output order, all that are damaged or missing.

    Such a picture is decoded, and therefore also shown, after the last whole packet before it.

    Args:
        rows: Decoding time, presentation time and duration of each packet in the same unit.
        flags: Flags of each packet.
    """
    count = next((n for n, flag in enumerate(flags) if flag & _CORRUPT), len(flags))
    whole = [(dts, pts) for dts, pts, _ in rows[:count] if dts is not None and pts is not None]
    if not whole or len(whole) < count:
        return 0
    end = whole[-1][0] + (rows[count - 1][2] or 0)
    return sum(pts < end for _, pts in whole)
