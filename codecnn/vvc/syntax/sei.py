"""SEI messages (H.266 clauses 7.3.2.11 and 7.3.6): reading, writing, and insertion into access units."""

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import PH, PREFIX_SEI, SLICES, SUFFIX_SEI, nal_units, with_emulation_prevention

USER_DATA_UNREGISTERED, DECODED_PICTURE_HASH, SCALABLE_NESTING = 5, 132, 133
"""Values of payloadType."""

OUTPUT_MD5_UUID = uuid.UUID("4fa58e53-9017-4b12-b4a9-d21830aa3db4").bytes
"""uuid_iso_iec_11578 of the MD5 of a picture filtered behind the coding loop (docs/reference/loop_filter.md)."""

_START = b"\x00\x00\x00\x01"
_BEGIN = (*range(12, 18), PH, 20, PREFIX_SEI)
"""Types of NAL units that begin an access unit if they follow a slice: OPI to prefix APS, PH, AUD, prefix SEI."""


class SeiMessage(NamedTuple):
    """One SEI message.

    Attributes:
        type: payloadType.
        payload: Bytes of the payload.
    """

    type: int
    payload: bytes


def read_sei(rbsp: bytes, *, strict: bool = False) -> Iterator[SeiMessage]:
    """Read the messages of an SEI NAL unit; H.265 has the same syntax.

    Args:
        rbsp: Payload of the NAL unit, sei_rbsp().
        strict: Raise an error at a damaged message.

    Yields:
        The messages; those after a damaged one are left out.

    Raises:
        FormatError: With `strict`, a message is longer than the unit.
    """
    at, end = 0, len(rbsp) - 1
    while at < end:
        try:
            kind, at = _read_code(rbsp, at)
            size, at = _read_code(rbsp, at)
        except IndexError:
            size = len(rbsp)
        if at + size > end:
            if strict:
                raise FormatError("an SEI message is longer than its NAL unit")
            return
        yield SeiMessage(kind, rbsp[at : at + size])
        at += size


def _read_code(rbsp: bytes, at: int) -> tuple[int, int]:
    """Read payload_type or payload_size: bytes of 255, then a smaller one, all added; return it and the next place."""
    value = 0
    while rbsp[at] == 255:
        value += 255
        at += 1
    return value + rbsp[at], at + 1


def _code(value: int) -> bytes:
    return b"\xff" * (value // 255) + bytes([value % 255])


def sei_unit(unit_type: int, temporal_id: int, messages: Sequence[SeiMessage]) -> bytes:
    """Write an SEI NAL unit with a start code of four bytes.

    Args:
        unit_type: `bitstream.PREFIX_SEI` or `bitstream.SUFFIX_SEI`.
        temporal_id: TemporalId of the picture.
        messages: The messages, at least one.
    """
    body = with_emulation_prevention(sei_rbsp(messages))
    return _START + bytes([0, unit_type << 3 | temporal_id + 1]) + body


def sei_rbsp(messages: Sequence[SeiMessage]) -> bytes:
    """Write the payload of an SEI NAL unit without emulation prevention bytes."""
    return b"".join(_code(each.type) + _code(len(each.payload)) + each.payload for each in messages) + b"\x80"


def add_sei(access_unit: bytes, prefix: Sequence[SeiMessage], suffix: Sequence[SeiMessage]) -> bytes:
    """Insert SEI messages into the access unit of one picture; all other bytes stay as they are.

    Prefix messages are inserted before the picture header or the first slice, suffix messages at the end.

    Args:
        access_unit: The NAL units of a picture, with start codes.
        prefix: Messages of a prefix SEI NAL unit; none adds no unit.
        suffix: Messages of a suffix SEI NAL unit; none adds no unit.

    Returns:
        The access unit with the messages.

    Raises:
        FormatError: The access unit has no slice.
    """
    at, temporal_id = _picture_start(access_unit)
    before = sei_unit(PREFIX_SEI, temporal_id, prefix) if prefix else b""
    after = sei_unit(SUFFIX_SEI, temporal_id, suffix) if suffix else b""
    return access_unit[:at] + before + access_unit[at:] + after


def access_units(stream: bytes) -> list[bytes]:
    """Split a byte stream into the access units of its pictures (clause 7.4.2.4.3, one layer).

    A picture begins with the first of these NAL units after the slices of the picture before: access unit delimiter,
    parameter set, prefix SEI, picture header, or a slice with a picture header.

    Args:
        stream: The whole byte stream.

    Returns:
        The access units, which together are the stream.
    """
    starts, has_slice = [0], False
    for match in re.finditer(rb"\x00?\x00\x00\x01", stream):
        header = stream[match.end() : match.end() + 3]
        if len(header) < 3:
            continue
        kind = header[1] >> 3
        begins = kind in _BEGIN or (kind in SLICES and header[2] & 0x80)
        if has_slice and begins:
            starts.append(match.start())
            has_slice = False
        has_slice |= kind in SLICES
    return [stream[first:last] for first, last in zip(starts, [*starts[1:], len(stream)], strict=True)]


def _picture_start(access_unit: bytes) -> tuple[int, int]:
    """Return the place of the start code of the picture header or the first slice, and its TemporalId."""
    for match in re.finditer(rb"\x00?\x00\x00\x01", access_unit):
        header = access_unit[match.end() : match.end() + 2]
        if len(header) == 2 and header[1] >> 3 in (PH, *SLICES):
            return match.start(), (header[1] & 7) - 1
    kinds = ", ".join(str(unit.type) for unit in nal_units(access_unit))
    raise FormatError(f"an access unit has no slice, only NAL units of the types {kinds}")
