"""Files of PNG: the samples that a viewer would show, by the image chunks alone."""

import contextlib
import functools
import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import FormatError
from codecnn.video.notices import warn
from codecnn.video.raw import map_file
from codecnn.video.still_files import SIGNATURES, StillFile, exif_orientation, still_file, warn_of_profile

_PNG_IMAGE_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT")
"""Chunks that decide the samples of a PNG."""

_SRGB_PRIMARIES = (31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
"""Content of a cHRM chunk for the primaries of sRGB and BT.709."""
_PRIMARIES_TOLERANCE = 1000
_SRGB_GAMMA, _GAMMA_TOLERANCE = 45455, 2300
"""Content of a gAMA chunk for 1 / 2.2, and the distance up to which another value is taken for it."""


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
    size, deep = (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")), header[8] == 16
    count = max(int.from_bytes(metadata.get(b"acTL", b"")[:4], "big"), 1)
    if count > 1 and deep:
        raise FormatError(f"{path} is an animated PNG of 16 bits: convert it to one PNG for each picture")
    # An image in front of the first frame's control chunk is shown where animations are not supported.
    first = int(count > 1 and b"fcTL" in kinds and kinds.index(b"IDAT") < kinds.index(b"fcTL"))

    def clean() -> bytes:
        return SIGNATURES["PNG"][0] + b"".join(chunk.whole(data) for chunk in images)

    return still_file(
        path, clean, size, count, exif_orientation(metadata.get(b"eXIf")), first, _deep_png if deep else None
    )


def _deep_png(data: bytes) -> NDArray[Any]:
    """Decode a PNG of 16 bits, which Pillow would reduce to 8 bits."""
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
            warn_of_profile(path, zlib.decompress(metadata[b"iCCP"].partition(b"\0")[2][1:]))
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
