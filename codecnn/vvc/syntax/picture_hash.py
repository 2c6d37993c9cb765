"""Decoded picture hash SEI messages (H.274 clause 8.8.2): MD5, CRC or checksum of each component of a picture."""

import binascii
import contextlib
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import Bits
from codecnn.vvc.syntax.sei import DECODED_PICTURE_HASH, SeiMessage, read_sei

MD5, CRC, CHECKSUM = range(3)
"""Values of dph_sei_hash_type."""

_BITS = {MD5: 128, CRC: 16, CHECKSUM: 32}


class PictureHash(NamedTuple):
    """Hash of a decoded picture.

    Attributes:
        kind: MD5, CRC or CHECKSUM.
        values: Hash of each component; one if the picture has no chroma.
    """

    kind: int
    values: tuple[int, ...]

    def equals(self, planes: Sequence[npt.NDArray[Any]], bit_depth: int) -> bool:
        """Return True if all components of a picture have this hash.

        Args:
            planes: All components, each (h, w), not cropped to the conformance window.
            bit_depth: Bit depth of the samples.
        """
        function = (_md5, _crc, _checksum)[self.kind]
        return self.values == tuple(function(plane, bit_depth) for plane in planes)


def read_picture_hash(rbsp: bytes) -> PictureHash | None:
    """Read the decoded picture hash of an SEI NAL unit.

    Args:
        rbsp: Payload of the NAL unit, sei_rbsp().

    Returns:
        The hash, None if the unit has no such message, or one of an unknown kind or damaged.
    """
    for message in read_sei(rbsp):
        if message.type == DECODED_PICTURE_HASH:
            with contextlib.suppress(FormatError):
                return _hash(Bits(message.payload))
    return None


def md5_message(planes: Sequence[npt.NDArray[Any]], bit_depth: int) -> SeiMessage:
    """Write the decoded picture hash of a picture as a message with the MD5 of each component.

    Args:
        planes: All components, each (h, w), not cropped to the conformance window.
        bit_depth: Bit depth of the samples.
    """
    values = b"".join(_md5(plane, bit_depth).to_bytes(16, "big") for plane in planes)
    return SeiMessage(DECODED_PICTURE_HASH, bytes([MD5, 0x80 if len(planes) == 1 else 0]) + values)


def _hash(r: Bits) -> PictureHash | None:
    kind = r.u(8)
    single = r.flag()
    r.skip(7)
    if kind not in _BITS:
        return None
    return PictureHash(kind, tuple(r.u(_BITS[kind]) for _ in range(1 if single else 3)))


def _data(plane: npt.NDArray[Any], bit_depth: int) -> memoryview:
    """Return the samples row by row in 8 bit, or in 16 bit, little-endian, if they have more than 8 bit."""
    return plane.astype(np.uint8 if bit_depth == 8 else "<u2", order="C", copy=False).data


def _md5(plane: npt.NDArray[Any], bit_depth: int) -> int:
    return int.from_bytes(hashlib.md5(_data(plane, bit_depth), usedforsecurity=False).digest(), "big")


def _crc(plane: npt.NDArray[np.uint16], bit_depth: int) -> int:
    # The standard appends 16 zero bits to the data; crc_hqx needs none, but starts from the CRC of those.
    return binascii.crc_hqx(_data(plane, bit_depth), binascii.crc_hqx(b"\0\0", 0xFFFF))


def _checksum(plane: npt.NDArray[np.uint16], bit_depth: int) -> int:
    height, width = plane.shape
    x, y = np.arange(width, dtype=np.uint32), np.arange(height, dtype=np.uint32)[:, None]
    mask = (x & 0xFF) ^ (y & 0xFF) ^ (x >> 8) ^ (y >> 8)
    total = int(((plane & 0xFF) ^ mask).sum(dtype=np.uint64))
    if bit_depth > 8:
        total += int(((plane >> 8) ^ mask).sum(dtype=np.uint64))
    return total & 0xFFFFFFFF
