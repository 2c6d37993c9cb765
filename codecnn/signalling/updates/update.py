"""Updates of a last layer, and their text form for messages and files.

The text is base64url (RFC 4648, without padding) of bytes: a check value of 16 bits, then for each output of the
network a flag that it has a part, and 5 bits of its `fraction` if it has one, then one arithmetic code word with the
values of all parts. A value is coded as a flag that it is not zero, a flag of its sign, and a unary code of its
magnitude minus 1. Bits at the end that are zero are left out.

The check value is the CRC-CCITT of the SHA-256 of the weights and all that follows, so that an update of other weights
is found to be damaged too.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.filtering.decisions import FlagDecoder, FlagEncoder

MAX_TEXT = 2**16
"""Largest number of characters of an update."""

MAX_VALUE = 255
"""Largest magnitude of a value."""

MAX_FRACTION = 31
"""Largest fraction of a part."""

_CHECK_BYTES = 2
_FRACTION_BITS = 5
_TEXT = re.compile(r"[A-Za-z0-9_-]*")

_IS_WEIGHT, _IS_BIAS, _SIGN, _MORE, _CONTEXTS = 0, 1, 2, 3, 8
_START = {_IS_WEIGHT: (48, 768)}
"""Initial states of contexts other than one half: a weight changes with a probability of about 1/20."""


@dataclass(frozen=True)
class Part:
    """Change of the last layer for one output component.

    Attributes:
        fraction: The values are multiples of 2^-fraction in units of the layer's real weights.
        values: One value for each input channel and tap of the layer in the order of its weights, the same for all its
            output channels, and a last one for the bias.
    """

    fraction: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Update:
    """Change of a network for one sequence.

    Attributes:
        parts: A part for each output component of the network in its order; None leaves it unchanged.
    """

    parts: tuple[Part | None, ...]

    @property
    def changed(self) -> int:
        """Number of values that are not zero."""
        return sum(value != 0 for part in self.parts if part is not None for value in part.values)


def write_update(update: Update, weights_sha256: str) -> str:
    """Return the text form of an update.

    Args:
        update: The update.
        weights_sha256: SHA-256 of the weights that it changes, in hexadecimal.

    Raises:
        FormatError: A fraction or a value is out of range.
    """
    header = ""
    encoder = FlagEncoder(states=_states())
    for part in update.parts:
        header += "0" if part is None else "1"
        if part is None:
            continue
        if not 0 <= part.fraction <= MAX_FRACTION:
            raise FormatError(f"the fraction {part.fraction} of an update is not in 0 to {MAX_FRACTION}")
        header += f"{part.fraction:0{_FRACTION_BITS}b}"
        for index, value in enumerate(part.values):
            _put(encoder, value, is_bias=index == len(part.values) - 1)
    bits = header + encoder.bits()
    content = int(bits.ljust(ceil_div(len(bits), 8) * 8, "0"), 2).to_bytes(ceil_div(len(bits), 8), "big").rstrip(b"\0")
    return base64.urlsafe_b64encode(_check(content, weights_sha256) + content).decode().rstrip("=")


def read_update(text: str, sizes: Sequence[int], weights_sha256: str) -> Update:
    """Read an update from its text form.

    Args:
        text: The text.
        sizes: Number of values of each output component of the network.
        weights_sha256: SHA-256 of the weights that it is to change, in hexadecimal.

    Raises:
        FormatError: The text is too long, damaged, or of other weights.
    """
    if len(text) > MAX_TEXT:
        raise FormatError(f"the update has {len(text)} characters, more than {MAX_TEXT}")
    if not _TEXT.fullmatch(text) or len(text) % 4 == 1:
        raise FormatError("the update is no base64url text")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    content = data[_CHECK_BYTES:]
    if len(data) < _CHECK_BYTES or data[:_CHECK_BYTES] != _check(content, weights_sha256):
        raise FormatError("the update is damaged, or was made for other weights")
    bits = "".join(f"{byte:08b}" for byte in content)
    fractions: list[int | None] = []
    at = 0
    for _ in sizes:
        present = bits[at : at + 1] == "1"
        at += 1
        fractions.append(int(bits[at : at + _FRACTION_BITS].ljust(_FRACTION_BITS, "0"), 2) if present else None)
        at += _FRACTION_BITS * present
    decoder = FlagDecoder(bits[at:], _states())
    parts = tuple(
        None if fraction is None else Part(fraction, tuple(_get(decoder, index == size - 1) for index in range(size)))
        for fraction, size in zip(fractions, sizes, strict=True)
    )
    update = Update(parts)
    if write_update(update, weights_sha256) != text:
        raise FormatError("the update is damaged: its bits are not those of its values")
    return update


def _states() -> list[tuple[int, int]]:
    half = FlagEncoder().states[0]
    return [_START.get(context, half) for context in range(_CONTEXTS)]


def _put(encoder: FlagEncoder, value: int, *, is_bias: bool) -> None:
    if abs(value) > MAX_VALUE:
        raise FormatError(f"the value {value} of an update is larger than {MAX_VALUE}")
    encoder.put(_IS_BIAS if is_bias else _IS_WEIGHT, value != 0)
    if value == 0:
        return
    encoder.put(_SIGN, value < 0)
    for size in range(1, abs(value) + 1):
        if size < MAX_VALUE:
            encoder.put(min(_MORE + size - 1, _CONTEXTS - 1), abs(value) > size)


def _get(decoder: FlagDecoder, is_bias: bool) -> int:
    if not decoder.get(_IS_BIAS if is_bias else _IS_WEIGHT):
        return 0
    negative = decoder.get(_SIGN)
    size = 1
    while size < MAX_VALUE and decoder.get(min(_MORE + size - 1, _CONTEXTS - 1)):
        size += 1
    return -size if negative else size


def _check(content: bytes, weights_sha256: str) -> bytes:
    return binascii.crc_hqx(bytes.fromhex(weights_sha256) + content, 0).to_bytes(_CHECK_BYTES, "big")
