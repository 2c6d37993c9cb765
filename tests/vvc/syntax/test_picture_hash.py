"""Hashes of decoded pictures in SEI messages."""

import numpy as np
import pytest

from codecnn.vvc.syntax.picture_hash import CHECKSUM, CRC, MD5, PictureHash, read_picture_hashes


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
    expected = PictureHash(MD5, (int.from_bytes(digest, "big"),))
    assert read_picture_hashes(other + hash_message + b"\x80") == [expected]
    assert read_picture_hashes(other + b"\x80") == []
    assert read_picture_hashes(bytes([132, 18, 0, 0x80, 1]) + b"\x80") == [], "cut"
    assert read_picture_hashes(bytes([132, 18, 7, 0x80]) + digest + b"\x80") == [], "unknown kind"


@pytest.mark.parametrize(
    ("head", "subpictures"),
    [
        ("01 1 1 010 10 1", [2]),
        # Two layers, of which one is listed; three subpictures with IDs of one bit.
        ("01 0 010 000011 011 1 0 1 0 1", [0, 1]),
        # An output layer set; IDs of three bits.
        ("11 1 010 010 011 110 001 1", [1, 6]),
        ("00 1 1", []),
    ],
)
def test_hashes_of_subpictures_are_read_from_nesting_messages(head, subpictures):
    """The bits are those of clause D.6.1 up to sn_num_seis_minus1."""
    bits = head.replace(" ", "")
    bits += "0" * (-len(bits) % 8)
    nesting = int(bits, 2).to_bytes(len(bits) // 8, "big") + bytes([5, 2, 9, 9, 132, 4, 1, 0x80, 0xAB, 0xCD])
    nesting += bytes([132, 4, 1, 0x80, 1, 2])  # a second hash, which is ignored
    rbsp = bytes([133, len(nesting)]) + nesting + b"\x80"
    assert read_picture_hashes(rbsp) == [PictureHash(CRC, (0xABCD,), number) for number in subpictures]
    assert read_picture_hashes(bytes([133, 1]) + nesting[:1] + b"\x80") == [], "cut"
