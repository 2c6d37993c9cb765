"""Byte streams: NAL units and the codes of their payload (H.266 Annex B, clauses 7.2, 7.3.1, 7.4.2.2 and 9.2).

`nal_units` splits a stream, `Bits` reads a payload, `BitWriter` writes one, and `SyntaxStructure` is the base class of
parameter sets and headers.
"""

import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from mmap import mmap
from typing import NamedTuple

from codecnn.base.errors import FormatError

TRAIL, STSA, RADL, RASL = range(4)
IDR_W_RADL, IDR_N_LP, CRA, GDR = 7, 8, 9, 10
SPS, PPS, PREFIX_APS, SUFFIX_APS, PH, EOS, EOB, PREFIX_SEI, SUFFIX_SEI = 15, 16, 17, 18, 19, 21, 22, 23, 24

SLICES = (TRAIL, STSA, RADL, RASL, IDR_W_RADL, IDR_N_LP, CRA, GDR)
"""Values of nal_unit_type (table 5) of slices."""

_START = b"\x00\x00\x01"


class NalUnit(NamedTuple):
    """One NAL unit.

    Attributes:
        type: nal_unit_type.
        layer: nuh_layer_id.
        temporal_id: TemporalId.
        rbsp: Payload without emulation prevention bytes.
    """

    type: int
    layer: int
    temporal_id: int
    rbsp: bytes


def nal_units(stream: bytes | mmap) -> Iterator[NalUnit]:
    """Split an Annex B byte stream into NAL units.

    Zero bytes after a unit (trailing_zero_8bits and cabac_zero_words) are dropped: an RBSP ends with its stop bit.

    Args:
        stream: The whole byte stream.

    Yields:
        The NAL units in stream order.

    Raises:
        FormatError: The data does not begin with a start code, or a NAL unit header is damaged.
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
    # cabac_zero_words are 00 00 03; without emulation prevention bytes they are zeros after the stop bit.
    rbsp = without_emulation_prevention(unit[2:]).rstrip(b"\x00")
    return NalUnit(unit[1] >> 3, unit[0] & 63, (unit[1] & 7) - 1, rbsp)


def without_emulation_prevention(data: bytes) -> bytes:
    """Remove the emulation prevention bytes of a NAL unit's payload (clause 7.3.1.1; H.265 has the same)."""
    return data.replace(b"\x00\x00\x03", b"\x00\x00")


def with_emulation_prevention(rbsp: bytes) -> bytes:
    """Insert the emulation prevention bytes that keep start codes out of a payload (clause 7.4.2.1)."""
    return re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", rbsp)


class Bits:
    """Reader of an RBSP (payload of a NAL unit without emulation prevention bytes).

    The methods check the range of every value that later sizes a loop or an array. They raise FormatError with the name
    of the syntax element and its value, or if the data ends.

    Attributes:
        data: The RBSP.
        position: Number of bits read so far.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def u(self, bits: int) -> int:
        """Read an unsigned value of `bits` bits, most significant bit first."""
        end = self.position + bits
        if end > 8 * len(self.data):
            raise FormatError("the data of a header ends early")
        value = int.from_bytes(self.data[self.position >> 3 : (end + 7) >> 3], "big") >> (-end & 7)
        self.position = end
        return value & ((1 << bits) - 1)

    def flag(self) -> bool:
        """Read one bit."""
        return self.u(1) == 1

    def ue(self, name: str, top: int) -> int:
        """Read an unsigned Exp-Golomb value (clause 9.2.2).

        Args:
            name: Name of the syntax element for error messages.
            top: Largest value allowed.

        Returns:
            The value, 0 to `top`.

        Raises:
            FormatError: The value is larger, its code is longer than any valid one, or the data ends.
        """
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > 32:
                raise FormatError(f"{name} has no valid code")
        value = (1 << zeros) - 1 + self.u(zeros)
        if value > top:
            raise FormatError(f"{name} is {value}, more than {top}")
        return value

    def se(self, name: str, low: int, high: int) -> int:
        """Read a signed Exp-Golomb value (clause 9.2.3).

        Args:
            name: Name of the syntax element for error messages.
            low: Smallest value allowed.
            high: Largest value allowed.

        Returns:
            The value, `low` to `high`.

        Raises:
            FormatError: The value is out of range, its code is longer than any valid one, or the data ends.
        """
        code = self.ue(name, 2**32 - 1)
        value = (code + 1) // 2 if code % 2 else -(code // 2)
        if not low <= value <= high:
            raise FormatError(f"{name} is {value}, not in {low} to {high}")
        return value

    def skip(self, bits: int) -> None:
        """Skip `bits` bits; raise FormatError if the data has fewer."""
        self.position += bits
        if self.position > 8 * len(self.data):
            raise FormatError("the data of a header ends early")

    def align(self) -> None:
        """Move to the next byte boundary."""
        self.position = (self.position + 7) & ~7

    def byte_alignment(self) -> None:
        """Read the byte alignment (clause 7.3.2.15): a one, then zeros up to a byte boundary."""
        if not self.flag() or self.u(-self.position & 7):
            raise FormatError("a header does not end in its alignment bits")


class BitWriter:
    """Writer of an RBSP, the counterpart of `Bits`; values must have been checked to fit their codes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._bits = ""

    @property
    def position(self) -> int:
        """Number of bits written so far."""
        return 8 * len(self._bytes) + len(self._bits)

    def u(self, value: int, bits: int) -> None:
        """Write an unsigned value of `bits` bits, most significant bit first."""
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{value} does not fit into {bits} bits")
        if not bits:
            return
        text = self._bits + f"{value:0{bits}b}"
        whole = len(text) // 8
        self._bytes += int(text[: 8 * whole] or "0", 2).to_bytes(whole, "big")
        self._bits = text[8 * whole :]

    def ue(self, value: int) -> None:
        """Write an unsigned Exp-Golomb value (clause 9.2.2)."""
        self.u(value + 1, 2 * (value + 1).bit_length() - 1)

    def se(self, value: int) -> None:
        """Write a signed Exp-Golomb value (clause 9.2.3)."""
        self.ue(2 * value - 1 if value > 0 else -2 * value)

    def data(self, content: bytes) -> None:
        """Write whole bytes, for which the position must be a byte boundary."""
        if self._bits:
            raise ValueError("bytes are written at byte boundaries")
        self._bytes += content

    def content(self) -> bytes:
        """Return the bytes written so far; the position must be a byte boundary."""
        if self._bits:
            raise ValueError(f"{len(self._bits)} bits after the last byte boundary")
        return bytes(self._bytes)


class SyntaxStructure:
    """Base class of the syntax structures of clause 7.3, read from a `Bits` by their constructors and then frozen.

    An attribute has the name of its syntax element (`sps_lfnst_enabled_flag`) or, if it is derived, of the standard's
    variable (BitDepth is `bit_depth`). An absent element has the value that clause 7.4 infers. Elements that are needed
    neither for parsing nor for the CU table are skipped.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if "_read" in self.__dict__:
            raise FrozenInstanceError(f"{name} of a {type(self).__name__} cannot be set after it is read")
        object.__setattr__(self, name, value)

    def freeze(self) -> None:
        """Refuse all further changes; constructors call this last."""
        self._read = True
