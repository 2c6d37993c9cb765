"""Hashes of decoded pictures in SEI messages."""

import numpy as np
import pytest

from codecnn.vvc.syntax.picture_hash import CHECKSUM, CRC, MD5, PictureHash, read_picture_hash


def plain_crc(plane: np.ndarray, bit_depth: int) -> int:
    """CRC bit by bit as the standard writes it."""
    data = plane.astype(np.uint8 if bit_depth == 8 else "<u2").tobytes() + b"\0\0"
    crc = 0xFFFF
    for byte in data:
        for bit in range(7, -1, -1):
            msb = crc >> 15 & 1
            crc = (((crc << 1) + (byte >> bit & 1)) & 0xFFFF) ^ (msb * 0x1021)
    return crc


def plain_checksum(plane: np.ndarray, bit_depth: int) -> int:
    """Sum sample by sample as the standard writes it."""
    total = 0
    for y, row in enumerate(plane.tolist()):
        for x, value in enumerate(row):
            mask = (x & 0xFF) ^ (y & 0xFF) ^ (x >> 8) ^ (y >> 8)
            total += (value & 0xFF) ^ mask
            if bit_depth > 8:
                total += (value >> 8) ^ mask
    return total & 0xFFFFFFFF


@pytest.mark.parametrize("bit_depth", [8, 10, 16])
@pytest.mark.parametrize(("kind", "plain"), [(CRC, plain_crc), (CHECKSUM, plain_checksum)])
def test_hashes_equal_the_text_of_the_standard(kind, plain, bit_depth):
    rng = np.random.default_rng(bit_depth)
    planes = [rng.integers(0, 1 << bit_depth, shape).astype(np.uint16) for shape in ((9, 300), (280, 3), (2, 5))]
    right = PictureHash(kind, tuple(plain(plane, bit_depth) for plane in planes))
    assert right.equals(planes, bit_depth)
    planes[2][1, 4] ^= 1
    assert not right.equals(planes, bit_depth)


def test_message_is_found_between_others():
    digest = bytes(range(16))
    hash_message = bytes([132, 18, 0, 0x80]) + digest
    other = bytes([255, 3, 2, 9, 9])
    message = read_picture_hash(other + hash_message + b"\x80")
    assert message == PictureHash(MD5, (int.from_bytes(digest, "big"),))
    assert read_picture_hash(other + b"\x80") is None
    assert read_picture_hash(bytes([132, 18, 0, 0x80, 1]) + b"\x80") is None, "cut"
    assert read_picture_hash(bytes([132, 18, 7, 0x80]) + digest + b"\x80") is None, "unknown kind"
