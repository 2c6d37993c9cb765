"""Data in slice header extensions (H.266 clauses 7.3.2.5 and 7.3.7): writing them into the access units of a stream.

Decoders of the standard skip these bytes. They cost no NAL unit and no start code: a bit if there are none, else 3 to
17 bits for their number, and the bytes.
"""

import re

from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.vvc.syntax.bitstream import (
    PH,
    PPS,
    SLICES,
    SPS,
    Bits,
    BitWriter,
    with_emulation_prevention,
    without_emulation_prevention,
)
from codecnn.vvc.syntax.picture_header import PictureHeader
from codecnn.vvc.syntax.pps import PictureParameterSet
from codecnn.vvc.syntax.slice_header import SliceHeader
from codecnn.vvc.syntax.sps import SequenceParameterSet

MAX_EXTENSION_BYTES = 256
"""Largest value of sh_slice_header_extension_length."""


def extension_bits(data: bytes) -> int:
    """Return the bits that data take in a slice header: their number as ue(v), and the bytes."""
    return 2 * (len(data) + 1).bit_length() - 1 + 8 * len(data)


class SliceExtensionWriter:
    """Writes data into the slice headers of a stream, access unit by access unit from its beginning.

    In every PPS pps_slice_header_extension_present_flag becomes 1, so that every slice header has an extension, which
    replaces that of the stream. All other syntax elements stay as they are.
    """

    def __init__(self) -> None:
        self._sps: dict[int, SequenceParameterSet] = {}
        self._pps: dict[int, PictureParameterSet] = {}

    def write(self, access_unit: bytes, data: bytes) -> bytes:
        """Write data into the first slice header of an access unit, and no bytes into the others.

        Args:
            access_unit: The NAL units of a picture, with start codes.
            data: At most `MAX_EXTENSION_BYTES` bytes.

        Returns:
            The access unit with the data.

        Raises:
            FormatError: The access unit is damaged, or there are too many bytes.
            UnsupportedError: A PPS has extension data, before which the flag is not found.
        """
        if len(data) > MAX_EXTENSION_BYTES:
            raise FormatError(f"a slice header extension holds {MAX_EXTENSION_BYTES} bytes, not {len(data)}")
        written, header = b"", None
        starts = [*re.finditer(rb"\x00?\x00\x00\x01", access_unit)]
        ends = [*(match.start() for match in starts[1:]), len(access_unit)]
        for match, end in zip(starts, ends, strict=True):
            unit = access_unit[match.end() : end].rstrip(b"\0")
            zeros = access_unit[match.end() + len(unit) : end]
            kind, rbsp = unit[1] >> 3, without_emulation_prevention(unit[2:])
            if kind == SPS:
                sps = SequenceParameterSet(rbsp)
                self._sps[sps.sps_seq_parameter_set_id] = sps
            elif kind == PPS:
                rbsp = self._take_pps(rbsp)
            elif kind == PH:
                header = PictureHeader(Bits(rbsp), self._parameter_sets, in_slice=False)
            elif kind in SLICES:
                r = Bits(rbsp)
                if r.flag():
                    header = PictureHeader(r, self._parameter_sets, in_slice=True)
                if header is None:
                    raise FormatError("a slice has no picture header")
                rbsp = _extended(rbsp, SliceHeader(r, kind, header), r.position, data)
                data = b""
            if kind in (PPS, *SLICES):
                unit = unit[:2] + _escaped(rbsp)
            written += match.group() + unit + zeros
        return access_unit[: starts[0].start()] + written

    def _parameter_sets(self, number: int) -> tuple[SequenceParameterSet, PictureParameterSet]:
        if number not in self._pps:
            raise FormatError(f"there is no PPS {number}")
        pps = self._pps[number]
        return self._sps[pps.pps_seq_parameter_set_id], pps

    def _take_pps(self, rbsp: bytes) -> bytes:
        """Keep a PPS, and return it with pps_slice_header_extension_present_flag 1."""
        reader = Bits(rbsp)
        number, sps_id = reader.u(6), reader.u(4)
        if sps_id not in self._sps:
            raise FormatError(f"there is no SPS {sps_id}")
        pps = self._pps[number] = PictureParameterSet(rbsp, self._sps[sps_id])
        if pps.pps_slice_header_extension_present_flag:
            return rbsp
        # The flag, pps_extension_flag 0 and the stop bit end the PPS.
        value = int.from_bytes(rbsp, "big")
        stop = (value & -value).bit_length() - 1
        written = (value | 4 << stop).to_bytes(len(rbsp), "big")
        if value >> stop & 2:
            raise UnsupportedError(f"PPS {number} has extension data, which codecnn does not write again")
        assert PictureParameterSet(written, self._sps[sps_id]).pps_slice_header_extension_present_flag
        return written


def _extended(rbsp: bytes, header: SliceHeader, end: int, data: bytes) -> bytes:
    """Return a slice with another extension in its header.

    Args:
        rbsp: Payload of the slice.
        header: Its header.
        end: Position of the slice data in bits.
        data: The bytes of the extension.
    """
    r, writer, at = Bits(rbsp), BitWriter(), header.extension_position
    # byte_alignment() is a one and zeros up to the slice data.
    last = rbsp[end // 8 - 1]
    stop = end - (last & -last).bit_length()
    writer.u(r.u(at), at)
    writer.ue(len(data))
    writer.u(int.from_bytes(data, "big"), 8 * len(data))
    if header.extension is not None:
        r.skip(extension_bits(header.extension))
    after = stop - r.position
    writer.u(r.u(after), after)
    writer.u(1, 1)
    writer.u(0, -writer.position & 7)
    return writer.content() + rbsp[end // 8 :]


def _escaped(rbsp: bytes) -> bytes:
    """Insert the emulation prevention bytes, and the one that ends cabac_zero_words (clause 7.4.2.1)."""
    escaped = with_emulation_prevention(rbsp)
    return escaped + b"\3" if escaped.endswith(b"\0") else escaped
