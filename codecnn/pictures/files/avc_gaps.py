"""Pictures that are missing in an AVC stream, by the frame_num of its slices (H.264 clause 7.4.3).

ffmpeg's decoder repeats earlier pictures in place of reference pictures that are missing, without a message.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.pictures.files.annexb import avc_units
from codecnn.pictures.files.decoding import advice
from codecnn.pictures.files.raw import map_file

_SLICE, _IDR, _SPS, _PPS = 1, 5, 7, 8
_HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
"""Values of profile_idc whose SPS has chroma format and bit depths (clause 7.3.2.1.1)."""
_HEADER_BYTES = 48
"""Bytes of a slice that are enough for its header up to frame_num."""
_MAX_REORDERED = 16
"""Largest number of pictures that precede a picture in coding order and follow it in output order."""


class _Sps(NamedTuple):
    """Elements of a sequence parameter set that decide how frame_num is read and checked."""

    separate_planes: bool
    frame_num_bits: int
    gaps_allowed: bool
    is_reordered: bool


def check_gaps(stream: Path, name: str, frames: int | None = None) -> None:
    """Raise FormatError if reference pictures are missing in an AVC byte stream that does not allow it.

    A jump to frame_num 1 is not reported, because it may follow a reset of the picture order count, and neither are
    missing pictures to which no other refers, because the other pictures are right without them.

    Args:
        stream: Byte stream.
        name: Name of the file in messages.
        frames: Number of pictures in output order that are needed; None for all.
    """
    sets: dict[int, _Sps] = {}
    pictures: dict[int, int] = {}
    previous, number = None, -1
    for unit in avc_units(map_file(stream), (_SLICE, _IDR, _SPS, _PPS), _HEADER_BYTES):
        kind, is_reference = unit[0] & 31, unit[0] & 0x60 != 0
        ue, u = _reader(unit[1:])
        try:
            if kind == _SPS:
                profile, _, _ = u(8), u(8), u(8)
                identifier = ue()
                sets[identifier] = _read_sps(profile, ue, u)
                continue
            if kind == _PPS:
                identifier = ue()
                pictures[identifier] = ue()
                continue
            first, _, pps = ue(), ue(), ue()
            sps = sets[pictures[pps]]
            if sps.separate_planes:
                u(2)
            frame_num = u(sps.frame_num_bits)
        except (IndexError, KeyError):
            continue  # damage that the decoder reports
        number += first == 0
        if kind == _IDR:
            previous = 0
        elif previous is not None and not sps.gaps_allowed:
            following = (previous + 1) % (1 << sps.frame_num_bits)
            if frame_num not in (previous, following, 1):
                _report(name, number, previous, frame_num, sps, frames)
        if is_reference or previous is None:
            previous = frame_num


def _report(name: str, number: int, previous: int, frame_num: int, sps: _Sps, frames: int | None) -> None:
    """Raise FormatError about pictures missing before picture `number` in coding order, unless it is not needed."""
    whole = max(number - (_MAX_REORDERED if sps.is_reordered else 0), 0)
    if frames is not None and frames <= whole:
        return
    raise FormatError(
        f"{name} lacks pictures to which others refer: before picture {number} in coding order, frame_num jumps from "
        f"{previous} to {frame_num}, and the stream allows no gaps{advice(whole)}"
    )


def _read_sps(profile: int, ue: Callable[[], int], u: Callable[[int], int]) -> _Sps:
    """Read an SPS from behind its identifier up to gaps_in_frame_num_value_allowed_flag (clause 7.3.2.1.1)."""
    separate_planes = False
    if profile in _HIGH_PROFILES:
        chroma = ue()
        separate_planes = chroma == 3 and u(1) == 1
        ue(), ue(), u(1)
        if u(1):
            for n in range(8 if chroma != 3 else 12):
                if u(1):
                    _skip_scaling_list(16 if n < 6 else 64, ue)
    frame_num_bits = 4 + ue()
    kind = ue()
    if kind == 0:
        ue()
    elif kind == 1:
        u(1), ue(), ue()
        for _ in range(ue()):
            ue()
    ue()
    return _Sps(separate_planes, frame_num_bits, u(1) == 1, kind != 2)


def _skip_scaling_list(size: int, ue: Callable[[], int]) -> None:
    """Read a scaling list (clause 7.3.2.1.1.1)."""
    last = following = 8
    for _ in range(size):
        if following:
            code = ue()
            following = (last + (-(code // 2) if code % 2 == 0 else (code + 1) // 2)) % 256
        last = following or last


def _reader(data: bytes) -> tuple[Callable[[], int], Callable[[int], int]]:
    """Return readers of the codes ue(v) and u(n) (clause 9.1); they raise IndexError where the data ends."""
    bits = "".join(f"{byte:08b}" for byte in data.replace(b"\0\0\3", b"\0\0"))
    position = 0

    def u(count: int) -> int:
        nonlocal position
        if position + count > len(bits):
            raise IndexError
        position += count
        return int(bits[position - count : position] or "0", 2)

    def ue() -> int:
        first_one = bits.find("1", position)
        if first_one < 0:
            raise IndexError
        zeros = first_one - position
        u(zeros + 1)
        return (1 << zeros) - 1 + u(zeros)

    return ue, u
