"""Byte streams of NAL units (Annex B of H.264, H.265 and H.266): their codec, and where decoding can start.

Only start codes and NAL unit headers are read, so that a file is recognised by its content, whatever its suffix is.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_START_CODE = re.compile(rb"\x00\x00\x01(..)", re.DOTALL)
_MAX_UNITS = 20_000
"""Number of NAL units after which the search for parameter sets ends."""

_START_TYPES = {"vvc": (7, 8, 9, 10), "hevc": tuple(range(16, 24)), "avc": (5,)}
"""nal_unit_type of pictures at which decoding can start (H.266 table 5, H.265 table 7-1, H.264 table 7-1): IRAP, in VVC
also GDR, in AVC IDR."""
_LAST_PICTURE_TYPE = {"vvc": 11, "hevc": 31, "avc": 5}
"""Largest nal_unit_type of slices."""
_LEADING_TYPES = (6, 7, 8, 9)
"""nal_unit_type of leading pictures of HEVC."""
_PICTURE_HEADER = 19
"""nal_unit_type of a picture header of VVC that is not part of a slice."""
_PARAMETER_SETS = {"vvc": tuple(range(12, 18)), "hevc": (32, 33, 34), "avc": (7, 8, 13, 15)}
"""nal_unit_type of parameter sets; in VVC also OPI, DCI and prefix APS."""
_AFTER_PICTURE = {"vvc": (18, 21, 22, 24), "hevc": (36, 37, 40)}
"""nal_unit_type of units that belong to the preceding picture: suffix APS and SEI, end of sequence and of bitstream."""


class Start(NamedTuple):
    """Start of decoding in a byte stream.

    Attributes:
        parts: Ranges of bytes that make up the decodable stream, in order; empty if there are no pictures to start at.
        skipped: Number of pictures before the start.
    """

    parts: tuple[slice, ...]
    skipped: int


def begins_with_start_code(data: NDArray[np.uint8]) -> bool:
    """Return whether the bytes, shape (n,), begin with zeros and a start code 00 00 01."""
    head = data[:64].tobytes().lstrip(b"\0")
    return head[:1] == b"\x01" and data[:64].tobytes().find(b"\x01") >= 2


def annexb_codec(data: NDArray[np.uint8]) -> str | None:
    """Recognise the codec of a byte stream by its NAL unit headers.

    A stream of a codec has sequence and picture parameter sets and slices of it, its first NAL unit is valid in it, and
    so are most others.

    Args:
        data: The bytes of a file, shape (n,).

    Returns:
        "vvc", "hevc" or "avc"; None if the file does not begin with a start code or is none of them.
    """
    if not begins_with_start_code(data):
        return None
    parts: dict[str, set[str]] = {"vvc": set(), "hevc": set(), "avc": set()}
    counts = dict.fromkeys(parts, 0)
    for number, match in enumerate(_START_CODE.finditer(data.data), 1):
        first, second = match[1]
        for codec in tuple(parts):
            part = _part(codec, first, second)
            if part is not None:
                counts[codec] += 1
                parts[codec].add(part)
            elif number == 1:
                del parts[codec]
        complete = [codec for codec, known in parts.items() if known >= {"SPS", "PPS", "slice"}]
        best = max(complete, key=counts.__getitem__, default=None)
        if best is not None and 2 * counts[best] > number:
            return best
        if not parts or number == _MAX_UNITS:
            break
    return None


def _part(codec: str, first: int, second: int) -> str | None:
    """Classify a NAL unit by the two bytes after its start code, as a unit of `codec`; None if it cannot be one."""
    if codec == "avc":
        kind, invalid = first & 31, first & 0x80
        names = {7: "SPS", 8: "PPS", 1: "slice", 5: "slice"} if first & 0x60 else {1: "slice"}
        return None if invalid or not 1 <= kind <= 21 else names.get(kind, "other")
    if not second & 7:
        return None
    if codec == "hevc":
        kind, layer = first >> 1 & 63, (first & 1) << 5 | second >> 3
        names = {33: "SPS", 34: "PPS"} | dict.fromkeys((*range(10), *range(16, 22)), "slice")
        return None if first & 0x80 or layer else names.get(kind, "other")
    kind = second >> 3
    names = {15: "SPS", 16: "PPS"} | dict.fromkeys((*range(4), *range(7, 11)), "slice")
    # The TemporalId of an SPS is 0; other bits there are those of a unit of AVC.
    return None if first & 0xC0 or (kind == 15 and second & 7 != 1) else names.get(kind, "other")


def find_start(data: NDArray[np.uint8], codec: str) -> Start:
    """Find the first picture of a VVC or HEVC stream at which decoding can start.

    Parameter sets before that picture are kept, pictures before it and what belongs to them are left out.

    Args:
        data: The bytes of the stream, shape (n,).
        codec: "vvc" or "hevc".

    Returns:
        The parts of the stream to decode. The whole stream is one part if it starts with such a picture or if it has no
        pictures at all.
    """
    whole = Start((slice(0, data.size),), 0)
    kept: list[slice] = []
    of_picture: list[slice] = []
    skipped, has_header, slices_seen = 0, False, False
    for position, end, kind in _units(data, codec):
        if kind > _LAST_PICTURE_TYPE[codec]:
            has_header = has_header or (codec == "vvc" and kind == _PICTURE_HEADER)
            if kind in _PARAMETER_SETS[codec]:
                kept.append(slice(position, end))
            elif kind not in _AFTER_PICTURE[codec]:
                of_picture.append(slice(position, end))
            continue
        if kind in _START_TYPES[codec]:
            parts = sorted((*kept, *of_picture), key=lambda part: part.start)
            return Start((*parts, slice(position, data.size)), max(skipped, 1)) if slices_seen else whole
        skipped += has_header or _has_first_flag(data, position)
        has_header, slices_seen = False, True
        # All that stands before a slice belongs to its picture, except parameter sets.
        of_picture.clear()
    return Start((), max(skipped, 1)) if slices_seen else whole


class Period(NamedTuple):
    """End of a stream from a picture at which decoding can start.

    Attributes:
        parts: Ranges of bytes: the parameter sets before that picture, and all from it on.
        pictures: Number of coded pictures.
    """

    parts: tuple[slice, ...]
    pictures: int


def last_period(data: NDArray[np.uint8], codec: str) -> Period | None:
    """Return the end of a stream that has the last picture and all to which it refers.

    Args:
        data: The bytes of the stream, shape (n,).
        codec: "hevc" or "avc".

    Returns:
        The period; None if the stream does not end in a slice.
    """
    parameters: list[slice] = []
    pictures, last = 0, -1
    # Position, number of parameter sets before it, and number of pictures before it.
    starts = [(0, 0, 0)]
    for position, end, last in _units(data, codec):
        if last in _PARAMETER_SETS[codec]:
            parameters.append(slice(position, end))
        elif _is_slice(last, codec) and _has_first_flag(data, position - (codec == "avc")):
            if last in _START_TYPES[codec]:
                starts = [starts[-1], (position, len(parameters), pictures)]
            pictures += 1
    if not _is_slice(last, codec):
        return None
    # Leading pictures refer to pictures before the start.
    start, known, before = starts[0] if codec == "hevc" and last in _LEADING_TYPES else starts[-1]
    return Period((*parameters[:known], slice(start, data.size)), pictures - before)


def _is_slice(kind: int, codec: str) -> bool:
    """Return whether a value of nal_unit_type is that of slices; AVC does not use type 0."""
    return (1 if codec == "avc" else 0) <= kind <= _LAST_PICTURE_TYPE[codec]


def _units(data: NDArray[np.uint8], codec: str) -> Iterator[tuple[int, int, int]]:
    """Yield the position of the start code of each NAL unit, the end of the unit and its nal_unit_type."""
    previous: tuple[int, int] | None = None
    for match in _START_CODE.finditer(data.data):
        if previous is not None:
            yield previous[0], match.start(), previous[1]
        previous = match.start(), _kind(data, match.start(), codec)
    if previous is not None:
        yield previous[0], data.size, previous[1]


def _kind(data: NDArray[np.uint8], position: int, codec: str) -> int:
    """Return the nal_unit_type of the unit whose start code is at `position`."""
    if codec == "avc":
        return int(data[position + 3]) & 31
    return int(data[position + 4]) >> 3 if codec == "vvc" else int(data[position + 3]) >> 1 & 63


def _has_first_flag(data: NDArray[np.uint8], position: int) -> bool:
    """Return whether the first bit of a slice marks the first slice of its picture.

    The bit is first_slice_segment_in_pic_flag in HEVC, and first_mb_in_slice = 0 in AVC, whose header of a NAL unit is
    one byte shorter. It is sh_picture_header_in_slice_header_flag in VVC, where
    pictures of several slices have a separate picture header instead.
    """
    return data[position + 5 : position + 6].tobytes() >= b"\x80"


def avc_units(data: NDArray[np.uint8], kinds: tuple[int, ...], size: int) -> Iterator[bytes]:
    """Yield the beginnings of NAL units of AVC.

    Args:
        data: The bytes of the stream, shape (n,).
        kinds: Values of nal_unit_type.
        size: Largest number of bytes of a unit; parameter sets are whole.
    """
    for position, end, kind in _units(data, "avc"):
        if kind in kinds:
            limit = end if kind in _PARAMETER_SETS["avc"] else min(end, position + 3 + size)
            yield data[position + 3 : limit].tobytes()
