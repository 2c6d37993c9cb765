"""Decoded picture hash SEI messages (H.274 clause 8.8.2): MD5, CRC or checksum of each component of a picture.

A message in a scalable nesting SEI message (H.266 clause D.6) has the hash of a subpicture.
"""

import binascii
import contextlib
import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import Bits
from codecnn.vvc.syntax.sei import DECODED_PICTURE_HASH, SCALABLE_NESTING, SeiMessage, read_sei
from codecnn.vvc.syntax.sps import MAX_SLICES

MD5, CRC, CHECKSUM = range(3)
"""Values of dph_sei_hash_type."""

_BITS = {MD5: 128, CRC: 16, CHECKSUM: 32}


class PictureHash(NamedTuple):
    """Hash of a decoded picture or subpicture.

    Attributes:
        kind: MD5, CRC or CHECKSUM.
        values: Hash of each component; one if the picture has no chroma.
        subpicture: Subpicture ID; None for the whole picture.
    """

    kind: int
    values: tuple[int, ...]
    subpicture: int | None = None

    def equals(self, planes: Sequence[npt.NDArray[Any]], bit_depth: int) -> bool:
        """Return True if all components have this hash.

        Args:
            planes: All components of the picture or subpicture, each (h, w), not cropped to the conformance window.
            bit_depth: Bit depth of the samples.
        """
        function = (_md5, _crc, _checksum)[self.kind]
        return self.values == tuple(function(plane, bit_depth) for plane in planes)


def read_picture_hashes(rbsp: bytes) -> list[PictureHash]:
    """Read the decoded picture hashes of an SEI NAL unit.

    Args:
        rbsp: Payload of the NAL unit, sei_rbsp().

    Returns:
        The hashes of the picture and of its subpictures; those of an unknown kind and damaged ones are left out.
    """
    hashes = []
    for message in read_sei(rbsp):
        with contextlib.suppress(FormatError):
            if message.type == DECODED_PICTURE_HASH:
                hashes += _hash(message.payload)
            elif message.type == SCALABLE_NESTING:
                hashes += _nested_hashes(message.payload)
    return hashes


def md5_message(planes: Sequence[npt.NDArray[Any]], bit_depth: int) -> SeiMessage:
    """Write the decoded picture hash of a picture as a message with the MD5 of each component.

    Args:
        planes: All components, each (h, w), not cropped to the conformance window.
        bit_depth: Bit depth of the samples.
    """
    values = b"".join(_md5(plane, bit_depth).to_bytes(16, "big") for plane in planes)
    return SeiMessage(DECODED_PICTURE_HASH, bytes([MD5, 0x80 if len(planes) == 1 else 0]) + values)


def _hash(payload: bytes) -> list[PictureHash]:
    """Read decoded_picture_hash(); return no hash if its kind is unknown."""
    r = Bits(payload)
    kind = r.u(8)
    single = r.flag()
    r.skip(7)
    if kind not in _BITS:
        return []
    return [PictureHash(kind, tuple(r.u(_BITS[kind]) for _ in range(1 if single else 3)))]


def _nested_hashes(payload: bytes) -> list[PictureHash]:
    """Read the hashes of subpictures in scalable_nesting() (H.266 clause D.6.1)."""
    r = Bits(payload)
    of_sets, of_subpictures = r.flag(), r.flag()
    if of_sets:
        for _ in range(r.ue("sn_num_olss_minus1", 256) + 1):
            r.ue("sn_ols_idx_delta_minus1", 256)
    elif not r.flag():  # sn_all_layers_flag
        r.skip(6 * r.ue("sn_num_layers_minus1", 63))
    if not of_subpictures:
        return []
    count = r.ue("sn_num_subpics_minus1", MAX_SLICES - 1) + 1
    length = r.ue("sn_subpic_id_len_minus1", 15) + 1
    subpictures = sorted({r.u(length) for _ in range(count)})
    r.ue("sn_num_seis_minus1", 63)
    r.align()
    # `read_sei` expects the stop bit of a NAL unit after the messages.
    nested = read_sei(payload[r.position // 8 :] + b"\x80")
    hashes = (each for message in nested if message.type == DECODED_PICTURE_HASH for each in _hash(message.payload))
    # Only the first hash: a damaged message may have thousands for each of a thousand subpictures.
    return [each._replace(subpicture=subpicture) for each in islice(hashes, 1) for subpicture in subpictures]


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
