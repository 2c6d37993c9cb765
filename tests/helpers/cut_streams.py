"""VVC and HEVC streams that do not start with an IDR picture: cut ones, and one that starts with a GDR picture."""

import re
from unittest import mock

from codecnn.base.division import ceil_div
from codecnn.vvc.syntax import bitstream, read_pictures
from codecnn.vvc.syntax.slice_header import SliceHeader

START = b"\0\0\1"


def units_of(stream: bytes) -> list[bytes]:
    """Split a byte stream into NAL units with their start codes."""
    starts = [match.start() for match in re.finditer(re.escape(START), stream)]
    return [stream[first:last] for first, last in zip(starts, [*starts[1:], len(stream)], strict=True)]


def vvc_type(unit: bytes) -> int:
    """Return nal_unit_type of a NAL unit of VVC."""
    return unit[4] >> 3


def hevc_type(unit: bytes) -> int:
    """Return nal_unit_type of a NAL unit of HEVC."""
    return unit[3] >> 1 & 63


def starting_with_gdr(stream: bytes, recovery: int) -> bytes:
    """Make the IDR picture at the start of a VVC stream of low delay a GDR picture.

    Only headers change: the type of the NAL unit, the picture header, and the slice header, in which two empty
    reference picture lists are inserted.

    Args:
        stream: Stream whose first picture is the only IDR picture, has one slice with the picture header in it, and
            whose PPS leaves reference picture lists to the slice header.
        recovery: ph_recovery_poc_cnt of the GDR picture.
    """
    units = units_of(stream)
    (at,) = (number for number, unit in enumerate(units) if vvc_type(unit) in (7, 8))
    (picture,) = read_pictures(b"".join(units[: at + 1]))
    (part,) = picture.slices
    lists_at = []
    read_active = SliceHeader._read_active_references

    def noting(self, r, ph):
        lists_at.append(r.position)
        read_active(self, r, ph)

    with mock.patch.object(SliceHeader, "_read_active_references", noting):
        list(read_pictures(b"".join(units[: at + 1])))
    rbsp, sps, pps = part.rbsp, picture.sps, picture.pps
    text = "".join(f"{byte:08b}" for byte in rbsp[: part.start])
    # sh_picture_header_in_slice_header_flag, ph_gdr_or_irap_pic_flag, ph_non_ref_pic_flag, ph_gdr_pic_flag,
    # ph_inter_slice_allowed_flag and, where that is 1, ph_intra_slice_allowed_flag
    after_flags = 5 + int(text[4])
    reader = bitstream.Bits(rbsp)
    reader.skip(after_flags)
    reader.ue("ph_pic_parameter_set_id", 63)
    reader.u(sps.log2_max_pic_order_cnt_lsb)
    header = text[:3] + "1" + text[4 : reader.position] + exp_golomb(recovery) + text[reader.position : lists_at[0]]
    for i in range(2):
        has_flag = sps.ref_pic_lists[i] and (i == 0 or pps.pps_rpl1_idx_present_flag)
        header += ("0" if has_flag else "") + exp_golomb(0)
    header += text[lists_at[0] :].rstrip("0")
    header = header.ljust(ceil_div(len(header), 8) * 8, "0")
    payload = int(header, 2).to_bytes(len(header) // 8, "big") + rbsp[part.start :]
    units[at] = START + bytes([0, bitstream.GDR << 3 | 1]) + escaped(payload)
    return b"".join(units)


def exp_golomb(value: int) -> str:
    """Return the code ue(v) of a value as a string of zeros and ones (clause 9.2)."""
    return f"{value + 1:b}".rjust(2 * (value + 1).bit_length() - 1, "0")


def escaped(rbsp: bytes) -> bytes:
    """Insert emulation prevention bytes (clause 7.3.1.1)."""
    return re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", rbsp)
