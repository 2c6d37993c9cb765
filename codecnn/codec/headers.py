"""Headers of coded streams: size, order, slice types and slice QPs of the pictures.

VVC headers are parsed by `codecnn.vvc.syntax`; `av1_headers` and `avc_headers` read those of AV1 and AVC. HEVC headers
and the sizes of access units come from ffmpeg (its bitstream filter trace_headers). Slice data is not parsed.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codecnn.base.errors import EncoderError, FormatError, MissingFileError
from codecnn.codec.av1_headers import av1_info, read_av1
from codecnn.codec.avc_headers import avc_info, read_avc
from codecnn.codec.blocks.vvc_stream import StreamInfo, StreamPicture, stream_info, warn_of_fields
from codecnn.codec.trace import trace_packets
from codecnn.pictures.files import HEVC_SUFFIXES as HEVC_SUFFIXES
from codecnn.pictures.files import byte_stream

Elements = Mapping[str, int]
"""Syntax elements of a NAL unit by their names in the standard; of a repeated element the last value."""

_CHROMA = ("400", "420", "422", "444")
_RADL_N, _RADL_R, _RASL_N, _RASL_R = 6, 7, 8, 9
_BLA, _IDR, _CRA = (16, 17, 18), (19, 20), 21
_LAST_SUB_LAYER = 14
"""Up to this nal_unit_type, even values denote sub-layer non-reference pictures (H.265 table 7-1)."""
_LAST_VCL = 31
_TYPES = "BPI"
"""Slice types by slice_type (H.265 table 7-7)."""


def read_headers(path: Path) -> StreamInfo:
    """Read the headers of a stream of VVC, HEVC, AVC or AV1, see `codecnn.pictures.files.byte_stream`.

    The slice QPs of AV1 are those of `av1_qp`.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    stream = byte_stream(path)
    if stream.codec == "avc":
        return avc_info(read_avc(stream.path, str(path)), str(path))
    if stream.codec == "av1":
        return av1_info(read_av1(stream.path, str(path), whole_headers=False))
    return hevc_info(path) if stream.codec == "hevc" else stream_info(path)


def picture_bits(path: Path) -> list[int]:
    """Return the bits of the pictures that a stream outputs, in output order; raise the errors of `read_headers`."""
    stream = byte_stream(path)
    if stream.codec == "avc":
        return [picture.bits for picture in read_avc(stream.path, str(path)).output]
    if stream.codec == "av1":
        return read_av1(stream.path, str(path), whole_headers=False).picture_bits
    info, sizes = read_headers(path), [unit.bytes for unit in access_units(path)]
    if len(sizes) != len(info.pictures):
        raise EncoderError(f"{path} has {len(sizes)} access units and {len(info.pictures)} pictures that decode")
    bits = {picture.position: 8 * size for picture, size in zip(info.pictures, sizes, strict=True)}
    return [bits[picture.position] for picture in output_pictures(info)]


def output_pictures(info: StreamInfo) -> list[StreamPicture]:
    """Return the pictures that a stream outputs, in output order."""
    by_position = {picture.position: picture for picture in info.pictures if picture.position is not None}
    return [by_position[position] for position in range(len(by_position))]


def slice_qp(picture: StreamPicture, path: Path) -> int:
    """Return the slice QP of a picture of the stream `path`; raise FormatError if its slices have different QPs."""
    if len(set(picture.slice_qps)) > 1:
        listed = ", ".join(map(str, picture.slice_qps))
        raise FormatError(f"{path}: the slices of picture {picture.position} have the QPs {listed}")
    return picture.slice_qps[0]


def picture_qp(picture: StreamPicture, codec: str) -> int:
    """Return the QP of a picture, whose slices may have different QPs.

    In AVC it is that of the first slice: x264 gives it the QP of the picture, and other slices the QP of their first
    macroblock. Of other codecs it is the mean of the slices.
    """
    qps = picture.slice_qps
    return qps[0] if codec == "avc" else round(sum(qps) / len(qps))


# --- access units ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessUnit:
    """One access unit of a VVC or HEVC stream: its size in bytes with start codes, and its NAL units."""

    bytes: int
    nal_units: tuple[Elements, ...]

    @property
    def has_md5(self) -> bool:
        """True if an SEI message has the MD5 of the picture, hash type 0 (H.265 clause D.3.19, H.274 clause 8.17)."""
        return any(0 in (unit.get("hash_type"), unit.get("dph_sei_hash_type")) for unit in self.nal_units)


def access_units(path: Path) -> Iterator[AccessUnit]:
    """Read the access units of a VVC or HEVC stream in decoding order, see `codecnn.pictures.files.byte_stream`.

    Yields:
        The access units; memory holds one.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file is not such a stream, or its access units do not add up to its size.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    stream, codec, _ = byte_stream(path, ("vvc", "hevc"))
    for packet in trace_packets(stream, codec, str(path)):
        elements = ({name: element.value for name, element in unit.items()} for unit in packet.units)
        yield AccessUnit(packet.size, tuple(elements))


# --- HEVC ------------------------------------------------------------------------------------------------------------


@dataclass
class _ReaderState:
    """State that persists from one NAL unit to the next."""

    sps: dict[int, Elements] = field(default_factory=dict)
    pps: dict[int, Elements] = field(default_factory=dict)
    first_sps: Elements | None = None
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
    """Read the headers of an HEVC stream (H.265 clauses 7.4.7.1, 7.4.9.14 and 8.3.1).

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
    """
    return hevc_pictures(access_units(path), str(path))


def hevc_pictures(units: Iterable[AccessUnit], name: str) -> StreamInfo:
    """Interpret the access units of an HEVC stream; `name` is the name of the stream in error messages.

    Raises:
        FormatError: The stream has no picture, lacks a parameter set, or is not a valid order of pictures.
    """
    state = _ReaderState()
    decodable = []
    for unit in units:
        with _errors_of(name):
            picture = _picture(state, unit.nal_units)
        if picture is not None:
            decodable.append(picture)
    with _errors_of(name):
        if state.first_sps is None:
            raise FormatError("there are no pictures in it")
        sps = state.first_sps
        keys = sorted((picture.cvs, picture.poc) for picture in decodable if picture.output)
        if len(set(keys)) < len(keys):
            raise FormatError("two pictures have one POC")
        positions = {key: position for position, key in enumerate(keys)}
        chroma = _CHROMA[sps["chroma_format_idc"]]
        width, height = sps["pic_width_in_luma_samples"], sps["pic_height_in_luma_samples"]
        sub_width, sub_height = (2 if chroma in ("420", "422") else 1), (2 if chroma == "420" else 1)
        width -= sub_width * (sps.get("conf_win_left_offset", 0) + sps.get("conf_win_right_offset", 0))
        height -= sub_height * (sps.get("conf_win_top_offset", 0) + sps.get("conf_win_bottom_offset", 0))
        log2_ctb = 3 + sps["log2_min_luma_coding_block_size_minus3"] + sps["log2_diff_max_min_luma_coding_block_size"]
        depth = 8 + sps["bit_depth_luma_minus8"]
        fields = bool(sps.get("field_seq_flag", 0))
    pictures = tuple(
        StreamPicture(
            position=positions[picture.cvs, picture.poc] if picture.output else None,
            poc=picture.poc,
            temporal_id=picture.temporal_id,
            slice_type=min(picture.types, key=_TYPES.index),
            slice_qps=tuple(picture.qps),
        )
        for picture in decodable
    )
    if fields:
        warn_of_fields(name)
    block_qps = any(pps.get("cu_qp_delta_enabled_flag") for pps in state.pps.values())
    return StreamInfo(width, height, chroma, depth, 1 << log2_ctb, pictures, fields, block_qps)


@contextlib.contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Add the name of the stream to errors of its headers."""
    try:
        yield
    except KeyError as error:
        raise FormatError(f"{name}: there is no {error.args[0]}") from None
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None


def _picture(state: _ReaderState, units: Sequence[Elements]) -> _Picture | None:
    """Return the picture of an access unit; None if it has none or if the picture cannot be decoded."""
    picture: _Picture | None = None
    for unit in units:
        if unit.get("nuh_layer_id"):
            continue
        if "sps_seq_parameter_set_id" in unit:
            state.sps[unit["sps_seq_parameter_set_id"]] = unit
        elif "pps_pic_parameter_set_id" in unit:
            state.pps[unit["pps_pic_parameter_set_id"]] = unit
        elif unit.get("nal_unit_type", _LAST_VCL + 1) <= _LAST_VCL and "slice_pic_parameter_set_id" in unit:
            pps = _parameter_set(state.pps, "PPS", unit["slice_pic_parameter_set_id"])
            sps = _parameter_set(state.sps, "SPS", pps["pps_seq_parameter_set_id"])
            if picture is None:
                picture = _start_picture(state, unit, sps)
                if picture is None:
                    return None
            # A dependent slice segment has no slice_qp_delta: it uses the QP of its slice.
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


def _start_picture(state: _ReaderState, unit: Elements, sps: Elements) -> _Picture | None:
    """Start a picture at its first slice; return None for a RASL picture whose references are not in the stream."""
    kind = unit["nal_unit_type"]
    if state.cvs < 0 and kind not in (*_BLA, *_IDR, _CRA):
        raise FormatError("the stream does not begin with an IRAP picture")
    starts_cvs = kind in (*_BLA, *_IDR) or state.cvs < 0
    if kind in (*_BLA, *_IDR, _CRA):
        state.skip_leading = starts_cvs and kind not in _IDR
    if kind in (_RASL_N, _RASL_R) and state.skip_leading:
        return None
    state.first_sps = state.first_sps or sps
    size = 1 << (4 + sps["log2_max_pic_order_cnt_lsb_minus4"])
    poc = unit.get("slice_pic_order_cnt_lsb", 0)
    if starts_cvs:
        state.cvs += 1
    else:
        # The value nearest to the POC of the previous picture of temporal layer 0 (H.265 clause 8.3.1).
        poc += (state.previous_poc - poc + size // 2) // size * size
    temporal_id = unit["nuh_temporal_id_plus1"] - 1
    leading = kind in (_RADL_N, _RADL_R, _RASL_N, _RASL_R)
    if temporal_id == 0 and not leading and not (kind <= _LAST_SUB_LAYER and kind % 2 == 0):
        state.previous_poc = poc
    return _Picture(state.cvs, poc, temporal_id, bool(unit.get("pic_output_flag", 1)), [], [])
