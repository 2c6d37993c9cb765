"""Headers of AV1 bitstreams, and the QP that a quantiser index of AV1 corresponds to.

Clause numbers refer to the AV1 Bitstream & Decoding Process Specification (version 1.0.0 with Errata 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codecnn.base.errors import FormatError, MissingFileError, UnsupportedError
from codecnn.codec.blocks.vvc_stream import StreamInfo, StreamPicture
from codecnn.codec.trace import Element, Packet, trace_packets

AC_STEPS = (
    *(4, *range(8, 103)),
    *range(104, 153, 2),
    *range(155, 204, 3),
    *range(207, 256, 4),
    *range(260, 306, 5),
    *range(311, 360, 6),
    *range(366, 409, 7),
    *range(416, 457, 8),
    *range(465, 511, 9),
    *(520, 530, 540, 550, 560, 571, 582, 593, 604, 615, 627, 639, 651, 663, 676, 689, 702, 715, 729, 743, 757, 771),
    *(786, 801, 816, 832, 848, 864, 881, 898, 915, 933, 951, 969, 988, 1007, 1026, 1046, 1066, 1087, 1108, 1129, 1151),
    *(1173, 1196, 1219, 1243, 1267, 1292, 1317, 1343, 1369, 1396, 1423, 1451, 1479, 1508, 1537, 1567, 1597, 1628, 1660),
    *(1692, 1725, 1759, 1793, 1828),
)
"""Quantiser step of AC coefficients at 8 bit by quantiser index, 0 to 255 (Ac_Qlookup[0], clause 7.12.2)."""

STEP_SCALE = 8
"""Scale of AV1's coefficients over those of an orthonormal transform (clause 7.12.3)."""

_SEQUENCE_HEADER, _FRAME_HEADER, _TILE_GROUP, _FRAME = 1, 3, 4, 6
"""obu_type (clause 6.2.2)."""
_KEY_FRAME, _SWITCH_FRAME = 0, 3
_INTRA_TYPES = (0, 2)
"""frame_type of key frames and intra-only frames (clause 6.8.2)."""
_ALL_SLOTS = 0xFF
_KEPT = ("frame_type", "order_hint", "temporal_id")
"""Elements of a frame header that `av1_info` and later frames use."""
_VARYING = (
    "delta_q_y_dc.delta_coded",
    "delta_q_u_dc.delta_coded",
    "delta_q_u_ac.delta_coded",
    "delta_q_v_dc.delta_coded",
    "delta_q_v_ac.delta_coded",
    "using_qmatrix",
    "segmentation_enabled",
    "delta_q_present",
)
"""Flags of syntax by which a frame's quantiser differs from base_q_idx (clauses 5.9.12, 5.9.14 and 5.9.17)."""


def av1_qp(quantiser: int) -> int:
    """Return the QP on the scale of VVC and HEVC for a quantiser index of AV1.

    It is the QP with the same step: in VVC and HEVC the step of an orthonormal transform is 2^((QP - 4) / 6) (H.265
    clause 8.6.4.2), in AV1 it is AC_STEPS / 8. Indices 4 to 255 become QP 7 to 51. Index 0, which is lossless or has
    the smallest step, becomes QP 0.

    Args:
        quantiser: base_q_idx, 0 to 255.

    Returns:
        The nearest whole QP.
    """
    return max(0, round(4 + 6 * math.log2(AC_STEPS[quantiser] / STEP_SCALE)))


@dataclass
class Av1Frame:
    """A coded frame, or a repetition of one.

    Attributes:
        position: Position in output order; None if the frame is not shown.
        slice_type: "I", "P" (inter without compound prediction) or "B".
        quantiser: base_q_idx.
        bits: Size in bits; headers outside of frames belong to the frame that the temporal unit shows.
        varying: Names of the flags by which the quantiser of its coefficients differs from `quantiser`.
        elements: Elements of its header; empty for a repetition.
        obu: Range of bytes of its OBU in the stream; None for a repetition.
    """

    position: int | None
    slice_type: str
    quantiser: int
    bits: int
    varying: tuple[str, ...] = ()
    elements: tuple[Element, ...] = ()
    obu: slice | None = None

    def value(self, name: str) -> int:
        """Return the value of an element of the header; 0 if it is not coded."""
        return next((element.value for element in self.elements if element.name == name), 0)


@dataclass(frozen=True)
class Av1Stream:
    """Headers of an AV1 stream: elements of the first sequence header by name, and the frames in coding order."""

    sequence: dict[str, int]
    frames: tuple[Av1Frame, ...]

    @property
    def shown(self) -> list[Av1Frame]:
        """The shown frames in output order."""
        frames = [frame for frame in self.frames if frame.position is not None]
        return sorted(frames, key=lambda frame: frame.position or 0)

    @property
    def picture_bits(self) -> list[int]:
        """Bits of the shown frames in output order, each with those of the frames before it that are never shown."""
        bits = [0] * len(self.shown)
        hidden = 0
        for frame in self.frames:
            if frame.position is None:
                hidden += frame.bits
            else:
                bits[frame.position], hidden = frame.bits + hidden, 0
        bits[-1] += hidden
        return bits


@dataclass
class _Reader:
    whole_headers: bool
    sequence: dict[str, int] = field(default_factory=dict)
    frames: list[Av1Frame] = field(default_factory=list)
    slots: dict[int, Av1Frame] = field(default_factory=dict)
    shown: int = 0


def read_av1(path: Path, name: str | None = None, *, whole_headers: bool = True) -> Av1Stream:
    """Read the headers of an AV1 byte stream.

    Args:
        path: Byte stream of temporal units (.obu).
        name: Name of the stream in error messages; the path by default.
        whole_headers: Keep all elements of the frame headers, some 30 kB a frame, instead of those in `_KEPT`.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream has spatial layers.
    """
    name = name or str(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    reader, offset = _Reader(whole_headers), 0
    try:
        for packet in trace_packets(path, "obu", name):
            _read_packet(reader, packet, offset)
            offset += packet.size
    except KeyError as error:
        raise FormatError(f"{name}: there is no {error.args[0]}") from None
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{name}: {error}") from None
    if not reader.frames:
        raise FormatError(f"{name}: there are no pictures in it")
    return Av1Stream(reader.sequence, tuple(reader.frames))


def _read_packet(reader: _Reader, packet: Packet, offset: int) -> None:
    """Read a temporal unit that begins at a byte of the stream."""
    start, first, other_bytes = offset, len(reader.frames), 0
    shown: Av1Frame | None = None
    for unit in packet.units:
        elements = tuple(unit.values())
        values = {name: element.value for name, element in unit.items()}
        size = _obu_bytes(elements, offset + packet.size - start)
        part = slice(start, start + size)
        start += size
        kind = values["obu_type"]
        if values.get("spatial_id"):
            raise UnsupportedError("it has spatial layers, which codecnn does not read")
        if kind == _SEQUENCE_HEADER and not reader.sequence:
            reader.sequence = values
        if kind in (_FRAME_HEADER, _FRAME) and ("show_existing_frame" in values or _is_still(reader, values)):
            frame = _read_frame(reader, values, elements, part)
            if frame.obu == part:
                frame.bits += 8 * size
            else:
                other_bytes += size
            shown = frame if frame.position is not None else shown
        elif kind == _TILE_GROUP and len(reader.frames) > first:
            reader.frames[-1].bits += 8 * size
        else:
            other_bytes += size
    if start != offset + packet.size:
        raise FormatError("its OBUs do not add up to its temporal units")
    if shown is None:
        raise FormatError("a temporal unit shows no picture")
    shown.bits += 8 * other_bytes


def _is_still(reader: _Reader, values: dict[str, int]) -> bool:
    """Return whether an OBU has the header of the only frame of a still picture, which is shown (clause 5.9.2)."""
    return bool(reader.sequence.get("reduced_still_picture_header")) and "base_q_idx" in values


def _obu_bytes(elements: Sequence[Element], remaining: int) -> int:
    """Return the size of an OBU with its header; without obu_size it extends to the end of the temporal unit."""
    for element in elements:
        if element.name == "obu_size":
            return (element.position + element.bits) // 8 + element.value
    return remaining


def _read_frame(reader: _Reader, values: dict[str, int], elements: tuple[Element, ...], part: slice) -> Av1Frame:
    """Return the frame of a frame header, which may show an earlier frame (clauses 5.9.2 and 7.20)."""
    position = reader.shown
    if "show_existing_frame" not in values:
        inferred = {
            "show_existing_frame": 0,
            "frame_type": _KEY_FRAME,
            "show_frame": 1,
            "refresh_frame_flags": _ALL_SLOTS,
        }
        values = inferred | values
    if values["show_existing_frame"]:
        slot = values["frame_to_show_map_idx"]
        if slot not in reader.slots:
            raise FormatError(f"it shows the frame of slot {slot}, which is empty")
        frame = reader.slots[slot]
        reader.shown += 1
        if frame.position is not None:
            frame = Av1Frame(position, frame.slice_type, frame.quantiser, 0, frame.varying)
            reader.frames.append(frame)
        frame.position = position
        if frame.value("frame_type") == _KEY_FRAME:
            reader.slots = dict.fromkeys(range(8), frame)
        return frame
    show = values["show_frame"]
    intra = values["frame_type"] in _INTRA_TYPES
    frame = Av1Frame(
        position=position if show else None,
        slice_type="I" if intra else "B" if values.get("reference_select") else "P",
        quantiser=values["base_q_idx"],
        bits=0,
        varying=tuple(name for name in _VARYING if values.get(name)),
        elements=tuple(each for each in elements if reader.whole_headers or each.name in _KEPT),
        obu=part,
    )
    reader.shown += show
    reader.frames.append(frame)
    all_slots = values["frame_type"] == _SWITCH_FRAME or (values["frame_type"] == _KEY_FRAME and show)
    refreshed = _ALL_SLOTS if all_slots else values["refresh_frame_flags"]
    reader.slots |= {slot: frame for slot in range(8) if refreshed >> slot & 1}
    return frame


def av1_info(stream: Av1Stream) -> StreamInfo:
    """Return the headers of an AV1 stream in the form of the other codecs; the slice QPs are those of `av1_qp`."""
    sequence = stream.sequence
    width, height = sequence["max_frame_width_minus_1"] + 1, sequence["max_frame_height_minus_1"] + 1
    chroma, bit_depth = _samples(sequence)
    ctu_size = 128 if sequence["use_128x128_superblock"] else 64
    pictures = tuple(
        StreamPicture(
            position=frame.position,
            poc=frame.value("order_hint"),
            temporal_id=frame.value("temporal_id"),
            slice_type=frame.slice_type,
            slice_qps=(av1_qp(frame.quantiser),),
        )
        for frame in stream.frames
    )
    block_qps = any(frame.varying for frame in stream.frames)
    return StreamInfo(width, height, chroma, bit_depth, ctu_size, pictures, block_qps=block_qps)


def _samples(sequence: dict[str, int]) -> tuple[str, int]:
    """Return chroma format and bit depth of a sequence header (clause 5.5.2)."""
    profile, high = sequence["seq_profile"], sequence["high_bitdepth"]
    bit_depth = 12 if high and sequence.get("twelve_bit") else 10 if high else 8
    if sequence.get("mono_chrome"):
        return "400", bit_depth
    if profile == 2 and bit_depth == 12:
        return {(1, 1): "420", (1, 0): "422"}.get(
            (sequence["subsampling_x"], sequence.get("subsampling_y", 0)), "444"
        ), bit_depth
    return ("420", "444", "422")[profile], bit_depth
