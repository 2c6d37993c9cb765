"""NAL units of a byte stream (H.266 Annex B, clauses 7.3.1 and 7.4.2.2)."""

from collections.abc import Iterator
from typing import NamedTuple

from codecnn.errors import FormatError

TRAIL, STSA, RADL, RASL = range(4)
IDR_W_RADL, IDR_N_LP, CRA, GDR = 7, 8, 9, 10
SPS, PPS, PREFIX_APS, SUFFIX_APS, PH, EOS, EOB = 15, 16, 17, 18, 19, 21, 22
SLICES = (TRAIL, STSA, RADL, RASL, IDR_W_RADL, IDR_N_LP, CRA, GDR)
"""Values of nal_unit_type (table 5)."""

_START = b"\x00\x00\x01"


class NalUnit(NamedTuple):
    """One NAL unit: its type, layer and temporal id, and the RBSP (payload without emulation prevention bytes)."""

    type: int
    layer: int
    temporal_id: int
    rbsp: bytes


def nal_units(stream: bytes) -> Iterator[NalUnit]:
    """The NAL units of an Annex B byte stream. Raises FormatError where it is none or a NAL unit header is damaged.

    The zero bytes behind a unit (trailing_zero_8bits and cabac_zero_words) are dropped: an RBSP ends in its stop bit.
    """
    at = stream.find(_START)
    if at < 0 or stream[:at].strip(b"\x00"):
        raise FormatError("it does not begin with a start code 00 00 01")
    while at >= 0:
        following = stream.find(_START, at + 3)
        unit = stream[at + 3 : following if following >= 0 else len(stream)].rstrip(b"\x00")
        if unit:
            yield _nal_unit(unit)
        at = following


def _nal_unit(unit: bytes) -> NalUnit:
    if len(unit) < 2 or unit[0] & 0x80 or not unit[1] & 7:
        raise FormatError(f"a NAL unit header is damaged: {unit[:2].hex(' ')}")
    # cabac_zero_words are 00 00 03: without their prevention bytes they leave zeros behind the stop bit.
    rbsp = unit[2:].replace(b"\x00\x00\x03", b"\x00\x00").rstrip(b"\x00")
    return NalUnit(unit[1] >> 3, unit[0] & 63, (unit[1] & 7) - 1, rbsp)
