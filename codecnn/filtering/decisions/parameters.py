"""Parameters of a filter in the coding loop: what a decoder needs to filter a stream as the encoder did.

docs/reference/loop_filter.md has the syntax. The slice header of each intra picture has the parameters;
`DecisionWriter` codes the decisions on the pictures.
"""

import re
from dataclasses import dataclass
from typing import Literal

from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.vvc.syntax import LOOP_FILTER_MARKER

VERSION = 2

Arithmetic = Literal["float", "int8", "int16"]
"""Arithmetic of the network: float, or integers of 8 or 16 bits, which give the same samples on every machine."""

ARITHMETICS: tuple[Arithmetic, ...] = ("float", "int8", "int16")

Placement = Literal["in_loop", "behind", "by_picture"]
"""Place of the filter: in the coding loop, behind it (of the output only), or as each picture says."""

PLACEMENTS: tuple[Placement, ...] = ("in_loop", "behind", "by_picture")

ID_DIGITS = 16
"""Number of hexadecimal digits of the SHA-256 of the weights that identify them: 64 bits."""

_COMPONENTS = "yuv"
_OFFSET_ZERO = 64
"""Value of a qp_offset element that stands for no offset."""
_WIDTHS = {"version": 3, "arithmetic": 2, "placement": 2, "ctu_size": 3, "offsets": 3, "offset": 7}
"""Bits of the elements of fixed length."""


@dataclass(frozen=True)
class LoopParameters:
    """Parameters of a filter in the coding loop that hold from one intra picture to the next.

    Attributes:
        arithmetic: Arithmetic of the network.
        weights_id: First `ID_DIGITS` hexadecimal digits of the SHA-256 of the weights file; zeros if the filter has no
            weights file.
        ctu_size: Width of a CTU of the decisions in luma samples.
        components: Filtered components, e.g. ("y",) or ("y", "u", "v").
        qp_offsets: Offsets to the slice QP that a picture can choose from; empty if every picture is filtered as a
            whole, at scale 1 and with its slice QP.
        placement: Place of the filter.
    """

    arithmetic: Arithmetic
    weights_id: str
    ctu_size: int
    components: tuple[str, ...]
    qp_offsets: tuple[int, ...]
    placement: Placement = "in_loop"


def write_parameters(parameters: LoopParameters) -> bytes:
    """Write parameters, from `LOOP_FILTER_MARKER` on, in whole bytes."""
    present = "".join(str(int(name in parameters.components)) for name in _COMPONENTS)
    offsets = "".join(f"{_OFFSET_ZERO + offset:07b}" for offset in parameters.qp_offsets)
    bits = f"{VERSION:03b}{ARITHMETICS.index(parameters.arithmetic):02b}{PLACEMENTS.index(parameters.placement):02b}"
    bits += f"{int(parameters.weights_id, 16):0{4 * ID_DIGITS}b}"
    bits += f"{parameters.ctu_size.bit_length() - 5:03b}{present}{len(parameters.qp_offsets):03b}{offsets}"
    bits += "0" * (-len(bits) % 8)
    return LOOP_FILTER_MARKER + int(bits, 2).to_bytes(len(bits) // 8, "big")


def read_parameters(data: bytes) -> tuple[LoopParameters, bytes]:
    """Read parameters.

    Args:
        data: Bytes that begin with `LOOP_FILTER_MARKER`.

    Returns:
        The parameters, and the bytes after them.

    Raises:
        FormatError: The parameters are damaged.
        UnsupportedError: They have another version.
    """
    reader = _Reader(data)
    if data[: len(LOOP_FILTER_MARKER)] != LOOP_FILTER_MARKER:
        raise FormatError("there are no parameters of a filter in the loop")
    reader.u(8 * len(LOOP_FILTER_MARKER))
    version = reader.u(_WIDTHS["version"])
    if version != VERSION:
        raise UnsupportedError(
            f"the parameters of the filter in the loop have version {version}, and codecnn reads version {VERSION}: "
            "code the stream again"
        )
    parameters = _read_parameters(reader)
    return parameters, reader.rest()


def _read_parameters(reader: "_Reader") -> LoopParameters:
    arithmetic = reader.u(_WIDTHS["arithmetic"])
    if arithmetic >= len(ARITHMETICS):
        raise FormatError(f"the arithmetic of the filter in the loop is {arithmetic}, which is reserved")
    placement = reader.u(_WIDTHS["placement"])
    if placement >= len(PLACEMENTS):
        raise FormatError(f"the place of the filter in the loop is {placement}, which is reserved")
    weights_id = f"{reader.u(4 * ID_DIGITS):0{ID_DIGITS}x}"
    ctu_size = 16 << reader.u(_WIDTHS["ctu_size"])
    components = tuple(name for name in _COMPONENTS if reader.u(1))
    offsets = tuple(reader.u(_WIDTHS["offset"]) - _OFFSET_ZERO for _ in range(reader.u(_WIDTHS["offsets"])))
    if not components or ctu_size > 256:
        raise FormatError(
            f"the filter in the loop filters {', '.join(components) or 'no component'} by CTUs of {ctu_size} samples, "
            "which is not possible"
        )
    return LoopParameters(ARITHMETICS[arithmetic], weights_id, ctu_size, components, offsets, PLACEMENTS[placement])


class _Reader:
    """Reader of the bits of parameters."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.bits = "".join(f"{byte:08b}" for byte in payload)
        self.position = 0

    def u(self, count: int) -> int:
        """Read an unsigned number of `count` bits."""
        end = self.position + count
        if end > len(self.bits):
            raise FormatError("the parameters of the filter in the loop end early")
        value = int(self.bits[self.position : end] or "0", 2)
        self.position = end
        return value

    def rest(self) -> bytes:
        """Return the bytes that are left, after zero bits up to the next byte."""
        if not re.fullmatch("0{0,7}", self.bits[self.position : -(-self.position // 8) * 8]):
            raise FormatError("the parameters of the filter in the loop have ones in their padding")
        return self.payload[-(-self.position // 8) :]
