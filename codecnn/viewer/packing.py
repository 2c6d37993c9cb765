"""Compression of samples and numbers for the page; web/samples.js decompresses them."""

import base64
import io
import re
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from codecnn.pictures.files import Picture, ycbcr_to_rgb

Plane = npt.NDArray[Any]

_LEVEL = 6
_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_RLE)
"""Strategies of deflate: repeated text, prediction errors, runs."""
_THUMBNAIL = 112
"""Width of a thumbnail."""
_RESERVED = re.compile(b"[\x00\r<=]")
"""Bytes that HTML changes inside of a script element (0, carriage return), that could end it, and the escape sign."""


def pack_plane(plane: Plane, like: Plane | None = None) -> bytes:
    """Compress a plane of samples without loss.

    The samples are predicted from `like`, or by the median predictor of JPEG-LS (ITU-T T.87, A.3) with zeros outside of
    the plane. The prediction errors are mapped to unsigned numbers with the sign in the lowest bit, and all low bytes
    are stored before the high ones.

    Args:
        plane: Samples, shape (h, w), unsigned integers of at most 16 bits.
        like: Samples of a similar plane of the same shape that the reader has already.

    Returns:
        Deflated bytes.
    """
    return _packed(_folded(plane, like))


def pack_similar(plane: Plane, like: Plane) -> tuple[bytes, bool, int]:
    """Compress a plane as `pack_plane` does, from `like` if that takes fewer bits, and without bits that are always 0.

    The originals of a 10-bit stream are often pictures of 8 bit, whose samples are multiples of 4.

    Returns:
        The compressed plane, True if it is predicted from `like`, and the number of low bits that are 0: plane and
        `like` are shifted right by it before.
    """
    used = int(np.bitwise_or.reduce(plane, axis=None))
    shift = (used & -used).bit_length() - 1 if used else 0
    alone, from_like = _folded(plane >> shift, None), _folded(plane >> shift, like >> shift)
    uses_like = _entropy(from_like) <= _entropy(alone)
    return _packed(from_like if uses_like else alone), uses_like, shift


def _folded(plane: Plane, like: Plane | None) -> npt.NDArray[np.uint32]:
    if like is None:
        samples = np.pad(plane.astype(np.int32), ((1, 0), (1, 0)))
        left, above, corner = samples[1:, :-1], samples[:-1, 1:], samples[:-1, :-1]
        guess = np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))
    else:
        guess = like.astype(np.int32)
    return _unsigned(plane.astype(np.int32) - guess)


def _unsigned(values: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """Map signed numbers to unsigned ones, 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    return ((values << 1) ^ (values >> 31)).view(np.uint32)


def _packed(folded: npt.NDArray[np.uint32]) -> bytes:
    return deflate((folded & 255).astype(np.uint8).tobytes() + (folded >> 8).astype("<u2").tobytes())


def _entropy(folded: npt.NDArray[np.uint32]) -> float:
    """Return the entropy of the low bytes in bits per sample."""
    counts = np.bincount((folded & 255).ravel().astype(np.uint8), minlength=256)
    shares = counts[counts > 0] / folded.size
    return float(-(shares * np.log2(shares)).sum())


def pack_integers(values: npt.NDArray[Any]) -> bytes:
    """Compress an array of 32-bit integers: differences of neighbours, modulo 2^32, lowest bytes first.

    Args:
        values: Integers of any shape; those of the last axis are neighbours.

    Returns:
        Deflated bytes.
    """
    flat = values.astype(np.int32).ravel()
    folded = _unsigned(np.diff(flat, prepend=np.int32(0)))
    return deflate(np.ascontiguousarray(folded.astype("<u4").view(np.uint8).reshape(-1, 4).T).tobytes())


def deflate(content: bytes) -> bytes:
    """Return deflated bytes, by the strategy that gives the fewest."""
    return min((_deflated(content, strategy) for strategy in _STRATEGIES), key=len)


def _deflated(content: bytes, strategy: int) -> bytes:
    compressor = zlib.compressobj(_LEVEL, strategy=strategy)
    return compressor.compress(content) + compressor.flush()


def as_text(content: bytes) -> bytes:
    """Return bytes as the text of a script element of a page in windows-1252, in which each byte is a character.

    The four bytes that cannot stand there are written as "=" and the byte plus 64, modulo 256, as in yEnc. Deflated
    bytes grow by 1.6 %, those of base64 by 33 %.
    """
    return _RESERVED.sub(lambda found: bytes((ord("="), (found[0][0] + 64) & 255)), content)


def thumbnail(picture: Picture) -> str:
    """Return a small version of a picture as a data URI of a JPEG."""
    step = max(1, picture.y.shape[1] // (2 * _THUMBNAIL))
    small = Picture(tuple(np.ascontiguousarray(plane[::step, ::step]) for plane in picture.planes), picture.bit_depth)
    image = Image.fromarray(_rgb(small))
    image.thumbnail((_THUMBNAIL, 2 * _THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=75)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _rgb(picture: Picture) -> npt.NDArray[np.uint8]:
    """Convert a decimated picture, whose chroma may be a sample larger or smaller than its luma needs."""
    luma, *chroma = picture.planes
    if not chroma:
        return ycbcr_to_rgb(picture)
    rows, columns = (np.arange(size) for size in luma.shape)
    full = [
        plane[np.ix_(_at(rows, luma.shape[0], plane.shape[0]), _at(columns, luma.shape[1], plane.shape[1]))]
        for plane in chroma
    ]
    return ycbcr_to_rgb(Picture((luma, *full), picture.bit_depth))


def _at(index: npt.NDArray[np.int64], size: int, other: int) -> npt.NDArray[np.int64]:
    """Return the index in a plane of `other` samples that corresponds to one in a plane of `size` samples."""
    return np.minimum(index * other // size, other - 1)
