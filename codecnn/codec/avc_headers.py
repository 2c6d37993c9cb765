"""Headers of AVC (H.264) bitstreams: size, order, slice types and slice QPs of the pictures.

ffmpeg reads the syntax elements (its bitstream filter trace_headers). Slice data is not parsed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.codec.blocks.vvc_stream import StreamInfo, StreamPicture
from codecnn.codec.trace import trace_packets

MACROBLOCK = 16
"""Width and height of a macroblock in luma samples."""

_SLICE, _IDR, _SPS, _PPS = 1, 5, 7, 8
"""nal_unit_type (H.264 table 7-1)."""
_TYPES = "PBIPI"
"""Slice types by slice_type modulo 5 (H.264 table 7-6); SP and SI count as P and I."""
_SLICE_TYPE_ORDER = "BPI"
_CHROMA = ("400", "420", "422", "444")
_RESET = 5
"""memory_management_control_operation that resets the picture order count (H.264 clause 7.4.3.3)."""


@dataclass
class AvcPicture:
    """One coded picture.

    Attributes:
        period: Number of the IDR picture from which it follows.
        poc: TopFieldOrderCnt within that period (H.264 clause 8.2.1).
        bits: Size of its access unit in bits, start codes included.
        types: Types of its slices.
        qps: QPs of its slices.
    """

    period: int
    poc: int
    bits: int
    types: list[str]
    qps: list[int]


@dataclass(frozen=True)
class AvcStream:
    """Headers of an AVC stream: elements of the first SPS and PPS by name, and the pictures in coding order."""

    sps: Mapping[str, int]
    pps: Mapping[str, int]
    pictures: tuple[AvcPicture, ...]

    @property
    def output(self) -> list[AvcPicture]:
        """The pictures in output order."""
        return sorted(self.pictures, key=lambda picture: (picture.period, picture.poc))


@dataclass
class _State:
    """State that persists from one NAL unit to the next."""

    sps: dict[int, dict[str, int]] = field(default_factory=dict)
    pps: dict[int, dict[str, int]] = field(default_factory=dict)
    first: tuple[dict[str, int], dict[str, int]] | None = None
    period: int = -1
    msb: int = 0
    lsb: int = 0
    frame_num: int = 0
    frame_num_offset: int = 0


def read_avc(path: Path, name: str | None = None) -> AvcStream:
    """Read the headers of an AVC byte stream.

    Args:
        path: Byte stream (H.264 Annex B) that begins with an IDR picture.
        name: Name of the stream in error messages; the path by default.

    Raises:
        FormatError: The stream is damaged.
        UnsupportedError: The stream has fields, or a picture order count of type 1 or with resets.
    """
    name, state = name or str(path), _State()
    pictures = []
    try:
        for packet in trace_packets(path, "h264", name):
            units = [{name: element.value for name, element in unit.items()} for unit in packet.units]
            picture = _picture(state, units)
            if picture is None:
                raise FormatError("an access unit has no slice, or data partitions, which codecnn does not read")
            picture.bits = 8 * packet.size
            pictures.append(picture)
        if state.first is None:
            raise FormatError("there are no pictures in it")
    except KeyError as error:
        raise FormatError(f"{name}: there is no {error.args[0]}") from None
    except FormatError as error:
        raise type(error)(f"{name}: {error}") from None
    keys = {(picture.period, picture.poc) for picture in pictures}
    if len(keys) < len(pictures):
        raise FormatError(f"{name}: two pictures have one POC")
    return AvcStream(*state.first, tuple(pictures))


def _picture(state: _State, units: Sequence[dict[str, int]]) -> AvcPicture | None:
    """Return the picture of an access unit."""
    picture: AvcPicture | None = None
    for unit in units:
        kind = unit.get("nal_unit_type")
        if kind == _SPS:
            state.sps[unit["seq_parameter_set_id"]] = unit
        elif kind == _PPS:
            state.pps[unit["pic_parameter_set_id"]] = unit
        elif kind in (_SLICE, _IDR) and "slice_type" in unit:
            if unit["pic_parameter_set_id"] not in state.pps:
                raise FormatError(f"there is no PPS {unit['pic_parameter_set_id']}")
            pps = state.pps[unit["pic_parameter_set_id"]]
            if pps["seq_parameter_set_id"] not in state.sps:
                raise FormatError(f"there is no SPS {pps['seq_parameter_set_id']}")
            sps = state.sps[pps["seq_parameter_set_id"]]
            state.first = state.first or (sps, pps)
            if picture is None:
                picture = AvcPicture(state.period, _order(state, unit, sps), 0, [], [])
                picture.period = state.period
            picture.types.append(_TYPES[unit["slice_type"] % 5])
            picture.qps.append(26 + pps["pic_init_qp_minus26"] + unit["slice_qp_delta"])
    return picture


def _order(state: _State, unit: dict[str, int], sps: dict[str, int]) -> int:
    """Return the picture order count of the picture that begins with this slice (H.264 clause 8.2.1)."""
    if unit.get("field_pic_flag"):
        raise UnsupportedError("it has fields, which codecnn does not read")
    if any(value == _RESET for name, value in unit.items() if name.startswith("memory_management_control_operation")):
        raise UnsupportedError("it resets the picture order count without an IDR picture, which codecnn does not read")
    is_idr = unit["nal_unit_type"] == _IDR
    if state.period < 0 and not is_idr:
        raise FormatError("the stream does not begin with an IDR picture")
    if is_idr:
        state.period += 1
        state.msb = state.lsb = state.frame_num_offset = 0
    kind = sps["pic_order_cnt_type"]
    if kind == 0:
        size = 1 << (4 + sps["log2_max_pic_order_cnt_lsb_minus4"])
        lsb = unit["pic_order_cnt_lsb"]
        msb = state.msb
        if lsb < state.lsb and state.lsb - lsb >= size // 2:
            msb += size
        elif lsb > state.lsb and lsb - state.lsb > size // 2:
            msb -= size
        if unit["nal_ref_idc"]:
            state.msb, state.lsb = msb, lsb
        return msb + lsb
    if kind == 2:
        # Output order is coding order (H.264 clause 8.2.1.3).
        if not is_idr and state.frame_num > unit["frame_num"]:
            state.frame_num_offset += 1 << (4 + sps["log2_max_frame_num_minus4"])
        state.frame_num = unit["frame_num"]
        return 2 * (state.frame_num_offset + unit["frame_num"]) - (unit["nal_ref_idc"] == 0)
    raise UnsupportedError("it has picture order counts of type 1, which codecnn does not read")


def avc_info(stream: AvcStream, name: str) -> StreamInfo:
    """Return the headers of an AVC stream in the form of the other codecs; `name` is its name in error messages."""
    sps = stream.sps
    positions = {id(picture): position for position, picture in enumerate(stream.output)}
    try:
        # chroma_format_idc is inferred to be 1 in the profiles that do not have it (H.264 clause 7.4.2.1.1).
        chroma = _CHROMA[sps.get("chroma_format_idc", 1)]
        frames_only = sps["frame_mbs_only_flag"]
        width = MACROBLOCK * (sps["pic_width_in_mbs_minus1"] + 1)
        height = MACROBLOCK * (sps["pic_height_in_map_units_minus1"] + 1) * (2 - frames_only)
        across = 2 if chroma in ("420", "422") else 1
        down = (2 if chroma == "420" else 1) * (2 - frames_only)
        width -= across * (sps.get("frame_crop_left_offset", 0) + sps.get("frame_crop_right_offset", 0))
        height -= down * (sps.get("frame_crop_top_offset", 0) + sps.get("frame_crop_bottom_offset", 0))
        depth = 8 + sps.get("bit_depth_luma_minus8", 0)
    except KeyError as error:
        raise FormatError(f"{name}: there is no {error.args[0]}") from None
    pictures = tuple(
        StreamPicture(
            position=positions[id(picture)],
            poc=picture.poc,
            temporal_id=0,
            slice_type=min(picture.types, key=_SLICE_TYPE_ORDER.index),
            slice_qps=tuple(picture.qps),
        )
        for picture in stream.pictures
    )
    # mb_qp_delta is part of every macroblock with coefficients (H.264 clause 7.3.5).
    return StreamInfo(width, height, chroma, depth, MACROBLOCK, pictures, block_qps=True)
