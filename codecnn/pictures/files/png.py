"""Files of PNG: the samples that a viewer would show, by the image chunks alone."""

import contextlib
import functools
import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.pictures.files import bands
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.raw import map_file
from codecnn.pictures.files.still_files import (
    SIGNATURES,
    StillFile,
    exif_orientation,
    pillow_parts,
    still_file,
    warn_of_profile,
)

_PNG_IMAGE_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT")
"""Chunks that decide the samples of a PNG."""

_SRGB_PRIMARIES = (31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
"""Content of a cHRM chunk for the primaries of sRGB and BT.709."""
_PRIMARIES_TOLERANCE = 1000
_SRGB_GAMMA, _GAMMA_TOLERANCE = 45455, 2300
"""Content of a gAMA chunk for 1 / 2.2, and the distance up to which another value is taken for it."""


_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Colour type -> samples of a pixel as stored; a palette (3) has indices."""
_PALETTE = 3
_UNFILTERED_AS = {1: (0, 8), 2: (4, 8), 3: (2, 8), 4: (6, 8), 6: (2, 16), 8: (6, 16)}
"""Bytes of a pixel -> colour type and bit depth whose pixels have as many bytes and are decoded as they are."""
_READ_BYTES = 1 << 16
"""Compressed bytes that are read at a time."""
_MAX_PROFILE = 1 << 24
"""Largest size of a colour profile in bytes."""


@dataclass(frozen=True)
class _Chunk:
    """A chunk of a PNG in a mapped file: its type, and the offsets of its content."""

    kind: bytes
    start: int
    end: int

    def body(self, data: NDArray[np.uint8]) -> bytes:
        return data[self.start : self.end].tobytes()

    def intact(self, data: NDArray[np.uint8]) -> bool:
        checksum = zlib.crc32(self.kind + self.body(data)).to_bytes(4, "big")
        return data[self.end : self.end + 4].tobytes() == checksum

    def whole(self, data: NDArray[np.uint8]) -> bytes:
        return data[self.start - 8 : self.end + 4].tobytes()


def open_png(path: Path) -> StillFile:
    """Open a PNG by its image chunks alone, so that damaged metadata do not cost a sound picture."""
    data = map_file(path)
    chunks = list(_png_chunks(data))
    if not chunks or chunks[0].kind != b"IHDR" or chunks[0].end - chunks[0].start != 13 or not chunks[0].intact(data):
        raise FormatError(f"{path} cannot be read as a picture: the PNG header is damaged")
    kinds = [chunk.kind for chunk in chunks]
    if unknown := [kind for kind in kinds if kind not in _PNG_IMAGE_CHUNKS and kind[:1].isupper()]:
        raise FormatError(f"{path} has a PNG chunk {unknown[0].decode('latin-1')!r}, which is not of the standard")
    images = [chunk for chunk in chunks if chunk.kind in _PNG_IMAGE_CHUNKS]
    metadata = {
        chunk.kind: chunk.body(data)
        for chunk in reversed(chunks)
        if (chunk.kind not in _PNG_IMAGE_CHUNKS or chunk.kind == b"acTL") and chunk.intact(data)
    }
    _warn_of_png_colour(path, metadata)
    header = chunks[0].body(data)
    size, deep, colour = (
        (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")),
        header[8] == 16,
        header[9],
    )
    if colour not in _CHANNELS or b"IDAT" not in kinds:
        raise FormatError(f"{path} cannot be read as a picture: the PNG header is damaged, or there are no image data")
    count = max(int.from_bytes(metadata.get(b"acTL", b"")[:4], "big"), 1)
    if count > 1 and deep:
        raise FormatError(f"{path} is an animated PNG of 16 bits: convert it to one PNG for each picture")
    # An image in front of the first frame's control chunk is shown where animations are not supported.
    first = int(count > 1 and b"fcTL" in kinds and kinds.index(b"IDAT") < kinds.index(b"fcTL"))

    def parts(number: int) -> Iterator[NDArray[Any]]:
        if count == 1 and header[12] == 0 and size[0] * size[1] > bands.WHOLE_SAMPLES:
            yield from _scanline_bands(path, data, images)
            return
        content = _joined([chunk.whole(data) for chunk in images])
        yield from (iter((_deep_png(content),)) if deep else pillow_parts(content, first + number))

    channels = 3 if colour == _PALETTE else _CHANNELS[colour]
    return still_file(path, size, count, exif_orientation(metadata.get(b"eXIf")), channels, parts)


def _joined(chunks: Sequence[bytes]) -> bytes:
    return SIGNATURES["PNG"][0] + b"".join(chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def _small_png(header: bytes, others: Sequence[bytes], rows: bytes) -> bytes:
    """Write a PNG whose image data are stored without compression."""
    image = _chunk(b"IDAT", zlib.compress(rows, 0))
    return _joined([_chunk(b"IHDR", header), *others, image, _chunk(b"IEND", b"")])


def _scanline_bands(path: Path, data: NDArray[np.uint8], images: Sequence[_Chunk]) -> Iterator[NDArray[Any]]:
    """Decode a PNG that is not interlaced in bands, each as a small PNG of its own.

    Args:
        path: The file.
        data: Its bytes, shape (n,).
        images: Its chunks that decide the samples, the header first.

    Yields:
        Samples with alpha, as `_deep_png` and `pillow_parts` return them.

    Raises:
        FormatError: The image data are damaged or incomplete.
    """
    header = images[0].body(data)
    # As libpng does; Pillow relies on the checksum of the compressed data.
    if header[8] == 16 and not all(chunk.intact(data) for chunk in images):
        raise FormatError(f"{path} cannot be read as a picture: its image data are damaged")
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    bits = _CHANNELS[header[9]] * header[8]
    row_bytes, pixel_bytes = ceil_div(width * bits, 8), max(bits // 8, 1)
    if pixel_bytes not in _UNFILTERED_AS:
        raise FormatError(f"{path} cannot be read as a picture: the PNG header is damaged")
    others = [chunk.whole(data) for chunk in images if chunk.kind in (b"PLTE", b"tRNS")]
    inflated = _Inflated(path, data, [chunk for chunk in images if chunk.kind == b"IDAT"])
    rows, above = bands.band_rows(width), b""
    for top in range(0, height, rows):
        count = min(rows, height - top)
        filtered = inflated.read(count * (1 + row_bytes))
        plain = _unfiltered(filtered, above, row_bytes, pixel_bytes)
        above = plain[-1].tobytes()
        stored = np.zeros((count, 1 + row_bytes), np.uint8)
        stored[:, 1:] = plain
        band = _small_png(header[:4] + count.to_bytes(4, "big") + header[8:], others, stored.tobytes())
        yield from (iter((_deep_png(band),)) if header[8] == 16 else pillow_parts(band))
    inflated.check_end()


class _Inflated:
    """Image data of a PNG, decompressed piece by piece."""

    def __init__(self, path: Path, data: NDArray[np.uint8], chunks: Sequence[_Chunk]) -> None:
        self._path = path
        starts = ((start, chunk.end) for chunk in chunks for start in range(chunk.start, chunk.end, _READ_BYTES))
        self._parts = (data[start : min(start + _READ_BYTES, end)].tobytes() for start, end in starts)
        self._stream = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; raise FormatError if there are fewer."""
        pieces: list[bytes] = []
        while size:
            compressed = self._stream.unconsumed_tail or next(self._parts, b"")
            piece = self._stream.decompress(compressed, size)
            if not piece and (self._stream.eof or not (compressed or self._stream.unconsumed_tail)):
                raise FormatError(f"{self._path} cannot be read as a picture: its image data end early")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def check_end(self) -> None:
        """Read on to the checksum, if the data have one; zlib raises an error if it is wrong."""
        while not self._stream.eof and (part := self._stream.unconsumed_tail or next(self._parts, b"")):
            self._stream.decompress(part, _READ_BYTES)


def _unfiltered(filtered: bytes, above: bytes, row_bytes: int, pixel_bytes: int) -> NDArray[np.uint8]:
    """Undo the filters of scanlines (PNG clause 9) by decoding them as pixels of as many bytes.

    Args:
        filtered: Scanlines, each with its filter type.
        above: Bytes of the scanline above them; none at the top of the picture.
        row_bytes: Bytes of a scanline without its filter type.
        pixel_bytes: Bytes of a pixel, 1 if several pixels share a byte.

    Returns:
        Bytes of the scanlines, shape (rows, row_bytes).
    """
    colour, depth = _UNFILTERED_AS[pixel_bytes]
    rows = (b"\0" + above if above else b"") + filtered
    count = len(rows) // (1 + row_bytes)
    size = (row_bytes // pixel_bytes).to_bytes(4, "big") + count.to_bytes(4, "big")
    samples = _deep_png(_small_png(size + bytes((depth, colour, 0, 0, 0)), (), rows))
    plain = samples.astype(">u2" if depth == 16 else np.uint8, copy=False).view(np.uint8).reshape(count, row_bytes)
    return plain[1:] if above else plain


def _deep_png(data: bytes) -> NDArray[Any]:
    """Decode a PNG by libpng; Pillow would reduce 16 bits to 8 bits."""
    from imagecodecs import png_decode

    _drop_interlace_hint()
    samples: NDArray[Any] = png_decode(data)
    return samples


@functools.cache
def _drop_interlace_hint() -> None:
    """Drop a hint of libpng to programmers, which imagecodecs logs as a warning for each interlaced picture."""
    logging.getLogger("imagecodecs").addFilter(lambda record: "Interlace handling" not in record.getMessage())


def _png_chunks(data: NDArray[np.uint8]) -> Iterator[_Chunk]:
    """Yield the chunks of a PNG up to IEND."""
    start = len(SIGNATURES["PNG"][0])
    while start + 12 <= data.size:
        end = start + 8 + int.from_bytes(data[start : start + 4].tobytes(), "big")
        chunk = _Chunk(data[start + 4 : start + 8].tobytes(), start + 8, end)
        yield chunk
        if chunk.kind == b"IEND":
            return
        start = end + 4


def _warn_of_png_colour(path: Path, metadata: dict[bytes, bytes]) -> None:
    """Warn of the first chunk, in the order of precedence of the standard, by which samples are not sRGB."""
    if len(coding := metadata.get(b"cICP", b"")) == 4:
        if coding[0] != 1 or coding[1] not in (1, 6, 13, 14, 15) or coding[2:] != b"\0\1":
            values = "/".join(map(str, coding))
            warn(f"{path} has the colour coding {values} (cICP), which is not applied: its samples are read as sRGB")
    elif b"iCCP" in metadata:
        with contextlib.suppress(zlib.error):
            profile = zlib.decompressobj().decompress(metadata[b"iCCP"].partition(b"\0")[2][1:], _MAX_PROFILE)
            warn_of_profile(path, profile)
    elif b"sRGB" not in metadata:
        numbers = [int.from_bytes(metadata.get(b"gAMA", b"")[:4], "big")]
        primaries = metadata.get(b"cHRM", b"")
        corners = [int.from_bytes(primaries[at : at + 4], "big") for at in range(0, len(primaries), 4)]
        other = len(corners) == 8 and any(
            abs(value - srgb) > _PRIMARIES_TOLERANCE for value, srgb in zip(corners, _SRGB_PRIMARIES, strict=True)
        )
        if numbers[0] and abs(numbers[0] - _SRGB_GAMMA) > _GAMMA_TOLERANCE:
            warn(f"{path} has a gamma of {numbers[0] / 1e5:g}, which is not applied: its samples are read as sRGB")
        elif other:
            warn(f"{path} has colour primaries other than sRGB, which are not applied: its samples are read as sRGB")
