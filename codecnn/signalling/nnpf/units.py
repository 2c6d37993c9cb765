"""NAL units of VVC and HEVC byte streams as they stand in the file, and SEI NAL units with post-filter messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.signalling.nnpf.messages import NNPFA, NNPFC, Characteristics, Message
from codecnn.signalling.nnpf.syntax import write_message
from codecnn.vvc.syntax import SeiMessage, read_sei, sei_rbsp, with_emulation_prevention, without_emulation_prevention

_START_CODE = b"\0\0\1"
_HEADER_BYTES = 2


@dataclass(frozen=True)
class NalTypes:
    """Values of nal_unit_type of one codec (H.266 table 5, H.265 table 7-1).

    Attributes:
        slices: Slices.
        irap: Pictures at which decoding can start, for VVC with GDR.
        idr: IRAP pictures whose leading pictures, if any, are decodable.
        starts_sequence: IRAP pictures that always begin a coded video sequence.
        rasl: Leading pictures that refer to pictures before their IRAP picture.
        radl: Leading pictures that do not.
        picture_header: Picture header; None if the codec has none.
        end_of_sequence: End of sequence and end of bitstream.
        prefix_sei: SEI in front of the picture.
        suffix_sei: SEI behind the picture.
    """

    slices: frozenset[int]
    irap: frozenset[int]
    idr: frozenset[int]
    starts_sequence: frozenset[int]
    rasl: frozenset[int]
    radl: frozenset[int]
    picture_header: int | None
    end_of_sequence: frozenset[int]
    prefix_sei: int
    suffix_sei: int


NAL_TYPES = {
    "vvc": NalTypes(
        slices=frozenset((0, 1, 2, 3, 7, 8, 9, 10)),
        irap=frozenset((7, 8, 9, 10)),
        idr=frozenset((7, 8)),
        starts_sequence=frozenset((7, 8)),
        rasl=frozenset((3,)),
        radl=frozenset((2,)),
        picture_header=19,
        end_of_sequence=frozenset((21, 22)),
        prefix_sei=23,
        suffix_sei=24,
    ),
    "hevc": NalTypes(
        slices=frozenset((*range(10), *range(16, 22))),
        irap=frozenset(range(16, 22)),
        idr=frozenset((19, 20)),
        starts_sequence=frozenset((16, 17, 18, 19, 20)),
        rasl=frozenset((8, 9)),
        radl=frozenset((6, 7)),
        picture_header=None,
        end_of_sequence=frozenset((36, 37)),
        prefix_sei=39,
        suffix_sei=40,
    ),
}
"""Types by the name of the codec."""


class RawUnit(NamedTuple):
    """One NAL unit in a byte stream.

    Attributes:
        start: Position of its start code, with the zero byte in front of it if there is one.
        payload: Position of the payload behind start code and header.
        end: Position of its end.
        type: nal_unit_type.
        layer: nuh_layer_id.
        temporal_id: TemporalId.
    """

    start: int
    payload: int
    end: int
    type: int
    layer: int
    temporal_id: int


def raw_units(stream: bytes, codec: str) -> Iterator[RawUnit]:
    """Find the NAL units of a byte stream of VVC or HEVC.

    Raises:
        FormatError: The header of a NAL unit is damaged.
    """
    at = stream.find(_START_CODE)
    while at >= 0:
        following = stream.find(_START_CODE, at + 3)
        end = len(stream) if following < 0 else following
        start, first = at - (at > 0 and stream[at - 1] == 0), at + 3
        at = following
        while end > first and stream[end - 1] == 0:
            end -= 1
        if end == first:
            continue
        header = stream[first : first + _HEADER_BYTES]
        if end - first < _HEADER_BYTES or header[0] & 0x80 or not header[1] & 7:
            raise FormatError(f"a NAL unit header is damaged: {header.hex(' ')}")
        if codec == "vvc":
            kind, layer = header[1] >> 3, header[0] & 63
        else:
            kind, layer = header[0] >> 1, (header[0] & 1) << 5 | header[1] >> 3
        yield RawUnit(start, first + _HEADER_BYTES, end, kind, layer, (header[1] & 7) - 1)


def message_unit(messages: Sequence[Message], codec: str, layer: int, temporal_id: int) -> bytes:
    """Write messages as a prefix SEI NAL unit with a start code of four bytes.

    Args:
        messages: The messages.
        codec: "vvc" or "hevc".
        layer: nuh_layer_id of the picture.
        temporal_id: TemporalId of the picture.

    Raises:
        ConfigError: A message is invalid.
    """
    payloads = [
        SeiMessage(NNPFC if isinstance(message, Characteristics) else NNPFA, write_message(message))
        for message in messages
    ]
    rbsp = sei_rbsp(payloads)
    nal_type = NAL_TYPES[codec].prefix_sei
    if codec == "vvc":
        header = bytes((layer, nal_type << 3 | temporal_id + 1))
    else:
        header = bytes((nal_type << 1 | layer >> 5, (layer & 31) << 3 | temporal_id + 1))
    return b"\0" + _START_CODE + header + with_emulation_prevention(rbsp)


def unit_messages(unit: bytes) -> list[SeiMessage]:
    """Split the payload of an SEI NAL unit, with emulation prevention bytes, into its messages.

    Raises:
        FormatError: A message is longer than the unit.
    """
    return list(read_sei(without_emulation_prevention(unit).rstrip(b"\0"), strict=True))


def has_only_filter_messages(messages: Sequence[SeiMessage]) -> bool:
    """Return whether all messages of an SEI NAL unit are about post-filters."""
    return bool(messages) and all(message.type in (NNPFC, NNPFA) for message in messages)
