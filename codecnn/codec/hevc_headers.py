"""The pictures of a HEVC stream by its headers: order, types, slice QPs (H.265 clauses 7.4.7.1, 7.4.9.14 and 8.3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codecnn.codec.access_units import AccessUnit, Elements, access_units
from codecnn.codec.blocks.vvc_partition import StreamInfo, StreamPicture
from codecnn.errors import FormatError

HEVC_SUFFIXES: tuple[str, ...] = (".265", ".hevc", ".h265")
"""Names of HEVC elementary streams."""

_CHROMA = ("400", "420", "422", "444")
_RADL_N, _RADL_R, _RASL_N, _RASL_R = 6, 7, 8, 9
_BLA, _IDR, _CRA = (16, 17, 18), (19, 20), 21
_LAST_SUB_LAYER = 14
"""Up to here even values of nal_unit_type are those of sub-layer non-reference pictures (table 7-1)."""
_LAST_VCL = 31
_TYPES = "BPI"
"""Slice types by slice_type (table 7-7)."""


@dataclass
class _Reader:
    """What carries over from one NAL unit to the next."""

    sps: dict[int, Elements] = field(default_factory=dict)
    pps: dict[int, Elements] = field(default_factory=dict)
    first: Elements | None = None
    cvs: int = -1
    previous_poc: int = 0
    skip_leading: bool = False


@dataclass
class _Picture:
    cvs: int
    poc: int
    temporal_id: int
    output: bool
    types: list[str]
    qps: list[int]


def hevc_info(path: Path) -> StreamInfo:
    """The headers of a HEVC byte stream, as `stream_info` tells those of VVC.

    Raises MissingFileError, and FormatError for what is no whole stream.
    """
    return hevc_pictures(access_units(path), str(path))


def hevc_pictures(units: Sequence[AccessUnit], name: str) -> StreamInfo:
    """The same of access units that are read already; `name` is what errors call the stream."""
    reader = _Reader()
    try:
        found = [one for unit in units if (one := _picture(reader, unit.nal_units)) is not None]
        if reader.first is None:
            raise FormatError("there are no pictures in it")
        sps = reader.first
        keys = sorted((one.cvs, one.poc) for one in found if one.output)
        if len(set(keys)) < len(keys):
            raise FormatError("two pictures have one POC")
        place = {key: position for position, key in enumerate(keys)}
        chroma = _CHROMA[sps["chroma_format_idc"]]
        width, height = sps["pic_width_in_luma_samples"], sps["pic_height_in_luma_samples"]
        across, down = (2 if chroma in ("420", "422") else 1), (2 if chroma == "420" else 1)
        width -= across * (sps.get("conf_win_left_offset", 0) + sps.get("conf_win_right_offset", 0))
        height -= down * (sps.get("conf_win_top_offset", 0) + sps.get("conf_win_bottom_offset", 0))
        log2_ctb = 3 + sps["log2_min_luma_coding_block_size_minus3"] + sps["log2_diff_max_min_luma_coding_block_size"]
        depth = 8 + sps["bit_depth_luma_minus8"]
    except KeyError as error:
        raise FormatError(f"{name}: there is no {error.args[0]}") from None
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    pictures = tuple(
        StreamPicture(
            position=place[one.cvs, one.poc] if one.output else None,
            poc=one.poc,
            temporal_id=one.temporal_id,
            slice_type=min(one.types, key=_TYPES.index),
            slice_qps=tuple(one.qps),
        )
        for one in found
    )
    return StreamInfo(width, height, chroma, depth, 1 << log2_ctb, pictures)


def _picture(reader: _Reader, units: Sequence[Elements]) -> _Picture | None:
    """The picture of an access unit; None for one without any, or whose picture cannot be decoded."""
    picture: _Picture | None = None
    for unit in units:
        if unit.get("nuh_layer_id"):
            continue
        if "sps_seq_parameter_set_id" in unit:
            reader.sps[unit["sps_seq_parameter_set_id"]] = unit
        elif "pps_pic_parameter_set_id" in unit:
            reader.pps[unit["pps_pic_parameter_set_id"]] = unit
        elif unit.get("nal_unit_type", _LAST_VCL + 1) <= _LAST_VCL and "slice_pic_parameter_set_id" in unit:
            pps = _parameter_set(reader.pps, "PPS", unit["slice_pic_parameter_set_id"])
            sps = _parameter_set(reader.sps, "SPS", pps["pps_seq_parameter_set_id"])
            if picture is None:
                picture = _start(reader, unit, sps)
                if picture is None:
                    return None
            # A dependent slice segment has the QP of the slice that it belongs to.
            if "slice_qp_delta" in unit:
                picture.types.append(_TYPES[unit["slice_type"]])
                picture.qps.append(26 + pps["init_qp_minus26"] + unit["slice_qp_delta"])
    if picture is not None and not picture.qps:
        raise FormatError("a picture has dependent slice segments only")
    return picture


def _parameter_set(known: Mapping[int, Elements], kind: str, number: int) -> Elements:
    if number not in known:
        raise FormatError(f"there is no {kind} {number}")
    return known[number]


def _start(reader: _Reader, unit: Elements, sps: Elements) -> _Picture | None:
    """Begin a picture at its first slice; None for a leading picture that refers to what precedes the stream."""
    kind = unit["nal_unit_type"]
    if reader.cvs < 0 and kind not in (*_BLA, *_IDR, _CRA):
        raise FormatError("the stream does not begin with an IRAP picture")
    starts = kind in (*_BLA, *_IDR) or reader.cvs < 0
    if kind in (*_BLA, *_IDR, _CRA):
        reader.skip_leading = starts and kind not in _IDR
    if kind in (_RASL_N, _RASL_R) and reader.skip_leading:
        return None
    reader.first = reader.first or sps
    size = 1 << (4 + sps["log2_max_pic_order_cnt_lsb_minus4"])
    poc = unit.get("slice_pic_order_cnt_lsb", 0)
    if starts:
        reader.cvs += 1
    else:
        # The value nearest to the POC of the previous picture of temporal layer 0 (clause 8.3.1).
        poc += (reader.previous_poc - poc + size // 2) // size * size
    temporal_id = unit["nuh_temporal_id_plus1"] - 1
    leading = kind in (_RADL_N, _RADL_R, _RASL_N, _RASL_R)
    if temporal_id == 0 and not leading and not (kind <= _LAST_SUB_LAYER and kind % 2 == 0):
        reader.previous_poc = poc
    return _Picture(reader.cvs, poc, temporal_id, bool(unit.get("pic_output_flag", 1)), [], [])
