"""The reconstruction of AV1 before the in-loop filters.

Deblocking and CDEF are parameters of the frame header. In all intra, prediction uses unfiltered samples of the same
picture, so the stream with these parameters set to zero decodes to the samples before both filters. Loop restoration
also has parameters in the tile data, which depend on its presence, so it cannot be switched off in a coded stream.
"""

from collections.abc import Iterator

from codecnn.base.division import ceil_div
from codecnn.base.errors import EncoderError, FormatError
from codecnn.codec.av1_headers import Av1Frame, Av1Stream
from codecnn.codec.trace import Element

_LEVELS = ("loop_filter_level[0]", "loop_filter_level[1]")
_CHROMA_LEVELS = ("loop_filter_level[2]", "loop_filter_level[3]")
"""Levels that the header has only if one of the other two is not 0 (clause 5.9.11)."""
_STRENGTHS = ("cdef_y_pri_strength", "cdef_y_sec_strength", "cdef_uv_pri_strength", "cdef_uv_sec_strength")
_AFTER_HEADER = ("zero_bit", "trailing_one_bit", "tile_start_and_end_present_flag")
"""First elements after the frame header: padding, or the tile group."""
_FRAME = 6
_RESTORATION = ("lr_type", "lr_unit_shift", "lr_uv_shift", "lr_unit_extra_shift")
"""Elements of loop restoration (clause 5.9.20)."""


def uses_restoration(stream: Av1Stream) -> bool:
    """Return whether a frame of the stream has loop restoration."""
    return any(frame.value(f"lr_type[{plane}]") for frame in stream.frames for plane in range(3))


def without_filters(data: bytes, stream: Av1Stream) -> bytes:
    """Return an AV1 stream of intra frames with deblocking and CDEF switched off in all frame headers.

    Args:
        data: Byte stream.
        stream: Its headers.

    Returns:
        The changed byte stream, which decodes to the reconstruction before both filters.

    Raises:
        EncoderError: The stream has inter frames or loop restoration.
        FormatError: The header of a frame is not understood.
    """
    if any(frame.slice_type != "I" for frame in stream.frames) or uses_restoration(stream):
        raise EncoderError("the filters of a stream with inter frames or loop restoration cannot be switched off")
    parts, end = [], 0
    for frame in stream.frames:
        if frame.obu is None:
            continue
        parts += [data[end : frame.obu.start], _rewrite(data[frame.obu], frame)]
        end = frame.obu.stop
    return b"".join([*parts, data[end:]])


def _rewrite(obu: bytes, frame: Av1Frame) -> bytes:
    """Return the OBU of a frame with the filters switched off."""
    bits = "".join(f"{byte:08b}" for byte in obu[: _header_bytes(frame)])
    size = next((element for element in frame.elements if element.name == "obu_size"), None)
    if size is None:
        raise FormatError("an OBU has no obu_size")
    start, end = size.position + size.bits, _header_end(frame)
    header = "".join(_changed_bits(frame, bits, start, end))
    kind = frame.value("obu_type")
    header += "1" if kind != _FRAME else ""
    header += "0" * (-len(header) % 8)
    tiles = obu[ceil_div(end, 8) :] if kind == _FRAME else b""
    payload = int(header, 2).to_bytes(len(header) // 8, "big") + tiles
    return obu[: size.position // 8] + _leb128(len(payload)) + payload


def _changed_bits(frame: Av1Frame, bits: str, start: int, end: int) -> Iterator[str]:
    """Yield the bits of a frame header element by element, with those of the filters set to 0 or left out."""
    position = start
    for element in frame.elements:
        if not start <= element.position < end:
            continue
        if element.position != position:
            raise FormatError(f"bits between the elements of a frame header before {element.name}")
        position += element.bits
        if element.name in _CHROMA_LEVELS:
            continue
        off = element.name in _LEVELS or element.name.partition("[")[0] in _STRENGTHS
        yield "0" * element.bits if off else bits[element.position : position]
    if position != end:
        raise FormatError("the elements of a frame header do not add up to its bits")


def _header_end(frame: Av1Frame) -> int:
    """Return the position after the last bit of the frame header."""
    end = 0
    for element in frame.elements:
        if element.name in _AFTER_HEADER:
            break
        end = element.position + element.bits
    return end


def _header_bytes(frame: Av1Frame) -> int:
    return ceil_div(_header_end(frame), 8)


def _leb128(value: int) -> bytes:
    """Return a number as leb128 (clause 4.10.5)."""
    parts = []
    while True:
        parts.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(parts)


def verify_same_headers(name: str, filtered: Av1Stream, plain: Av1Stream) -> None:
    """Check that two streams have the same frame headers except for loop restoration.

    The parameters of deblocking and CDEF are among the compared ones. The encoder chooses them by the error of the
    whole reconstruction, so they hardly stay equal if it decides otherwise.

    Args:
        name: Name of the sequence in error messages.
        filtered: Stream with loop restoration.
        plain: Stream that was coded without it.

    Raises:
        EncoderError: The number of frames or an element differs.
    """
    if len(filtered.frames) != len(plain.frames):
        raise EncoderError(
            f"{name}: {len(filtered.frames)} frames were coded and {len(plain.frames)} without restoration"
        )
    for number, (with_filter, without) in enumerate(zip(filtered.frames, plain.frames, strict=True)):
        first, second = _compared(with_filter.elements), _compared(without.elements)
        differs = [name for name in first | second if first.get(name) != second.get(name)]
        if differs:
            raise EncoderError(
                f"{name}, frame {number} in coding order: without loop restoration the encoder decided otherwise, "
                f"{differs[0]} is {second.get(differs[0])} instead of {first.get(differs[0])}"
            )


def _compared(elements: tuple[Element, ...]) -> dict[str, int]:
    ignored = (*_RESTORATION, *_AFTER_HEADER, "obu_size")
    return {element.name: element.value for element in elements if element.name.partition("[")[0] not in ignored}
