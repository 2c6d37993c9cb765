"""Message of a filter in the coding loop: what a decoder needs to filter a picture as the encoder did.

docs/reference/loop_filter.md has the syntax. The first picture of a coded video sequence carries the parameters of all
its pictures, `LoopParameters`; every picture carries its decision.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.filtering.decisions.arithmetic import FlagDecoder, FlagEncoder
from codecnn.filtering.decisions.rate_distortion import (
    SCALE_BITS,
    SCALE_ONE,
    SCALE_RANGE,
    BoolArray,
    Mode,
    context_of,
)

VERSION = 1

Arithmetic = Literal["float", "int8", "int16"]
"""Arithmetic of the network: float, or integers of 8 or 16 bits, which give the same samples on every machine."""

ARITHMETICS: tuple[Arithmetic, ...] = ("float", "int8", "int16")

Placement = Literal["in_loop", "behind", "by_picture"]
"""Place of the filter: in the coding loop, behind it (of the output only), or as each picture says."""

PLACEMENTS: tuple[Placement, ...] = ("in_loop", "behind", "by_picture")

MD5_BYTES = 16
"""Size of the MD5 of the output of a picture that is filtered behind the loop, at the end of its message."""

_COMPONENTS = "yuv"
_OFFSET_ZERO = 64
"""Value of a qp_offset element that stands for no offset."""
_WIDTHS = {"version": 4, "arithmetic": 2, "placement": 2, "bit_depth": 4, "ctu_size": 3, "offsets": 3, "offset": 7}
"""Bits of the elements of fixed length."""


@dataclass(frozen=True)
class LoopParameters:
    """Parameters of a filter in the coding loop that hold for a coded video sequence.

    Attributes:
        arithmetic: Arithmetic of the network.
        sha256: SHA-256 of the weights file, 64 hexadecimal digits; zeros if the filter has no weights file.
        bit_depth: Bit depth of the samples.
        ctu_size: Width of a CTU of the decisions in luma samples.
        components: Filtered components, e.g. ("y",) or ("y", "u", "v").
        qp_offsets: Offsets to the slice QP that a picture can choose from; empty if every picture is filtered as a
            whole, at scale 1 and with its slice QP.
        placement: Place of the filter.
    """

    arithmetic: Arithmetic
    sha256: str
    bit_depth: int
    ctu_size: int
    components: tuple[str, ...]
    qp_offsets: tuple[int, ...]
    placement: Placement = "in_loop"


class PictureDecision(Protocol):
    """The part of a decision that is signalled; dictionaries are by component."""

    @property
    def modes(self) -> Mapping[str, Mode]:
        """Off, on in every CTU, or by CTU."""

    @property
    def flags(self) -> Mapping[str, BoolArray]:
        """True where a CTU is filtered, shape (CTU rows, CTU columns)."""

    @property
    def scales(self) -> Mapping[str, float]:
        """Factor of the residual of the network, a multiple of 1/256."""

    @property
    def qp_offset(self) -> int:
        """Offset to the slice QP for the network."""


@dataclass(frozen=True, eq=False)
class SignalledDecision:
    """A decision as it is read from a message; see `PictureDecision`."""

    modes: Mapping[str, Mode]
    flags: Mapping[str, BoolArray]
    scales: Mapping[str, float]
    qp_offset: int


@dataclass(frozen=True)
class LoopMessage:
    """A written message.

    Attributes:
        payload: Bytes after the UUID.
        decision_bits: Number of bits among them that the decision takes.
    """

    payload: bytes
    decision_bits: int


@dataclass(frozen=True)
class SignalledPicture:
    """The content of a message that was read.

    Attributes:
        parameters: Parameters of the coded video sequence.
        decision: Decision on the picture; None if the whole picture is filtered.
        output_md5: MD5 of the output if the picture is filtered behind the loop, else None.
    """

    parameters: LoopParameters
    decision: SignalledDecision | None
    output_md5: bytes | None


def write_message(
    parameters: LoopParameters,
    decision: PictureDecision | None,
    *,
    activate: bool,
    output_md5: bytes | None = None,
) -> LoopMessage:
    """Write the message of a picture.

    Args:
        parameters: Parameters of the coded video sequence.
        decision: Decision on the picture; None if the parameters have no QP offsets.
        activate: Write the parameters, for the first picture of a coded video sequence.
        output_md5: MD5 of the output if the filter is not off and is behind the loop, which the placement must allow.

    Returns:
        The message.
    """
    bits = f"{VERSION:04b}{int(activate)}"
    if activate:
        present = "".join(str(int(name in parameters.components)) for name in _COMPONENTS)
        offsets = "".join(f"{_OFFSET_ZERO + offset:07b}" for offset in parameters.qp_offsets)
        bits += f"{ARITHMETICS.index(parameters.arithmetic):02b}{PLACEMENTS.index(parameters.placement):02b}"
        bits += f"{int(parameters.sha256, 16):0256b}"
        bits += f"{parameters.bit_depth - 8:04b}{parameters.ctu_size.bit_length() - 5:03b}{present}"
        bits += f"{len(parameters.qp_offsets):03b}{offsets}"
    behind = str(int(output_md5 is not None)) if parameters.placement == "by_picture" else ""
    coded = behind if decision is None else _decision_bits(parameters, decision, behind)
    bits += coded
    bits += "0" * (-len(bits) % 8)
    return LoopMessage(int(bits, 2).to_bytes(len(bits) // 8, "big") + (output_md5 or b""), len(coded))


def _decision_bits(parameters: LoopParameters, decision: PictureDecision, behind: str) -> str:
    """Write the decision on a picture as zeros and ones; `behind` is its behind_flag, if it has one."""
    if all(mode == "off" for mode in decision.modes.values()):
        return "0"
    width = (len(parameters.qp_offsets) - 1).bit_length()
    bits = f"1{behind}" + (f"{parameters.qp_offsets.index(decision.qp_offset):0{width}b}" if width else "")
    encoder = FlagEncoder()
    several = len(parameters.components) > 1
    for name in parameters.components:
        mode = decision.modes[name]
        if several:
            bits += str(int(mode != "off"))
        if mode == "off":
            continue
        scale = round(SCALE_ONE * decision.scales[name])
        bits += str(int(mode == "ctu"))
        bits += "0" if scale == SCALE_ONE else f"1{scale - SCALE_RANGE[0]:0{int(SCALE_BITS)}b}"
        if mode == "ctu":
            _put_flags(encoder, decision.flags[name])
    return bits + encoder.bits()


def _put_flags(encoder: FlagEncoder, flags: BoolArray) -> None:
    encoder.restart()
    values = flags.ravel().tolist()
    for index, value in enumerate(values):
        encoder.put(context_of(values, index, flags.shape[1]), value)


def read_message(payload: bytes, size: tuple[int, int], active: LoopParameters | None) -> SignalledPicture:
    """Read the message of a picture.

    Args:
        payload: Bytes after the UUID.
        size: Height and width of the picture in luma samples.
        active: Parameters of the picture before in the coded video sequence; None for its first picture.

    Returns:
        The content of the message.

    Raises:
        FormatError: The message is damaged, or has no parameters although none are active.
        UnsupportedError: It has another version.
    """
    reader = _Reader(payload)
    version = reader.u(_WIDTHS["version"])
    if version != VERSION:
        raise UnsupportedError(
            f"the message of the filter in the loop has version {version}, and codecnn reads version {VERSION}"
        )
    parameters = _read_parameters(reader) if reader.u(1) else active
    if parameters is None:
        raise FormatError("the first picture has no parameters of the filter in the loop")
    is_on = not parameters.qp_offsets or reader.u(1) == 1
    output_md5 = None
    if is_on and parameters.placement != "in_loop" and (parameters.placement == "behind" or reader.u(1)):
        output_md5 = reader.last_bytes(MD5_BYTES)
    decision = _read_decision(reader, parameters, size, is_on) if parameters.qp_offsets else None
    reader.finish()
    return SignalledPicture(parameters, decision, output_md5)


def _read_parameters(reader: "_Reader") -> LoopParameters:
    arithmetic = reader.u(_WIDTHS["arithmetic"])
    if arithmetic >= len(ARITHMETICS):
        raise FormatError(f"the arithmetic of the filter in the loop is {arithmetic}, which is reserved")
    placement = reader.u(_WIDTHS["placement"])
    if placement >= len(PLACEMENTS):
        raise FormatError(f"the place of the filter in the loop is {placement}, which is reserved")
    sha256 = f"{reader.u(256):064x}"
    bit_depth = 8 + reader.u(_WIDTHS["bit_depth"])
    ctu_size = 16 << reader.u(_WIDTHS["ctu_size"])
    components = tuple(name for name in _COMPONENTS if reader.u(1))
    offsets = tuple(reader.u(_WIDTHS["offset"]) - _OFFSET_ZERO for _ in range(reader.u(_WIDTHS["offsets"])))
    if not components or bit_depth > 16 or ctu_size > 256:
        raise FormatError(
            f"the filter in the loop filters {', '.join(components) or 'no component'} of {bit_depth} bit by CTUs of "
            f"{ctu_size} samples, which is not possible"
        )
    place = PLACEMENTS[placement]
    return LoopParameters(ARITHMETICS[arithmetic], sha256, bit_depth, ctu_size, components, offsets, place)


def _read_decision(
    reader: "_Reader", parameters: LoopParameters, size: tuple[int, int], is_on: bool
) -> SignalledDecision:
    names = parameters.components
    rows, columns = (ceil_div(length, parameters.ctu_size) for length in size)
    modes: dict[str, Mode] = dict.fromkeys(names, "off")
    flags = {name: np.zeros((rows, columns), np.bool_) for name in names}
    scales = dict.fromkeys(names, 1.0)
    if not is_on:
        return SignalledDecision(modes, flags, scales, 0)
    number = reader.u((len(parameters.qp_offsets) - 1).bit_length())
    if number >= len(parameters.qp_offsets):
        raise FormatError(f"the filter in the loop has no QP offset of number {number}")
    for name in names:
        if len(names) > 1 and not reader.u(1):
            continue
        modes[name] = "ctu" if reader.u(1) else "on"
        if reader.u(1):
            scales[name] = _scale(reader.u(int(SCALE_BITS))) / SCALE_ONE
        flags[name] |= modes[name] == "on"
    if "ctu" in modes.values():
        get = FlagDecoder(reader.rest())
        for name in (name for name in names if modes[name] == "ctu"):
            get.restart()
            flags[name] = _get_flags(get.get, rows, columns)
    return SignalledDecision(modes, flags, scales, parameters.qp_offsets[number])


def _scale(value: int) -> int:
    scale = value + SCALE_RANGE[0]
    if scale > SCALE_RANGE[1]:
        raise FormatError(f"the scale of the filter in the loop is {scale}/256, more than {SCALE_RANGE[1]}/256")
    return scale


def _get_flags(get: Callable[[int], bool], rows: int, columns: int) -> BoolArray:
    values: list[bool] = []
    for index in range(rows * columns):
        values.append(get(context_of(values, index, columns)))
    return np.array(values, np.bool_).reshape(rows, columns)


class _Reader:
    """Reader of the bits of a message; `bits` is the message as zeros and ones."""

    def __init__(self, payload: bytes) -> None:
        self.bits = "".join(f"{byte:08b}" for byte in payload)
        self.position = 0

    def u(self, count: int) -> int:
        """Read an unsigned number of `count` bits."""
        end = self.position + count
        if end > len(self.bits):
            raise FormatError("the message of the filter in the loop ends early")
        value = int(self.bits[self.position : end] or "0", 2)
        self.position = end
        return value

    def last_bytes(self, count: int) -> bytes:
        """Take the last `count` bytes off the message."""
        bits = self.bits[-8 * count :]
        if len(self.bits) - self.position < 8 * count:
            raise FormatError("the message of the filter in the loop ends early")
        self.bits = self.bits[: -8 * count]
        return int(bits, 2).to_bytes(count, "big")

    def rest(self) -> str:
        """Read all bits that are left."""
        rest, self.position = self.bits[self.position :], len(self.bits)
        return rest

    def finish(self) -> None:
        """Check that only padding is left."""
        if not re.fullmatch("0{0,7}", self.bits[self.position :]):
            raise FormatError("the message of the filter in the loop has more bits than its decision")
