"""Pictures for tests: random samples, video files, PNG files written without a library, comparison."""

import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.pictures.files import Picture, VideoFormat, create_video, ffmpeg_path

FFMPEG = (ffmpeg_path(), "-hide_banner", "-nostdin", "-y", "-loglevel", "error")


def random_samples(shape: tuple[int, ...], dtype: Any = np.uint8, seed: int = 5) -> np.ndarray:
    """Return random samples over the whole range of their type."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def random_pictures(video_format: VideoFormat, count: int, seed: int = 0) -> list[Picture]:
    """Return random pictures that include both ends of the sample range."""
    rng = np.random.default_rng(seed)
    top = 1 << video_format.bit_depth
    pictures = []
    for _ in range(count):
        planes = [rng.integers(0, top, shape).astype(video_format.dtype) for shape in video_format.plane_shapes]
        planes[0][0, 0], planes[-1][-1, -1] = top - 1, 0
        pictures.append(Picture(tuple(planes), video_format.bit_depth))
    return pictures


def write_video(path: Path, video_format: VideoFormat, pictures: Iterable[Picture | Sequence[np.ndarray]]) -> None:
    """Write pictures as raw YUV or Y4M, depending on the suffix."""
    with create_video(path, video_format) as out:
        for picture in pictures:
            out.write(picture)


def assert_same(actual: Picture, expected: Picture) -> None:
    """Compare the bit depth and all samples."""
    assert actual.bit_depth == expected.bit_depth
    for actual_plane, expected_plane in zip(actual.planes, expected.planes, strict=True):
        np.testing.assert_array_equal(actual_plane, expected_plane)


def joined(pictures: Iterable[Picture]) -> bytes:
    """Return all samples, plane after plane, as little-endian bytes."""
    return b"".join(plane.astype(plane.dtype.newbyteorder("<")).tobytes() for p in pictures for plane in p.planes)


def write_png(path: Path, samples: np.ndarray, colour_type: int, palette: bytes = b"", bit_depth: int = 0) -> None:
    """Write a PNG without a library that could change its depth; `samples` (h, w) or (h, w, channels).

    With `bit_depth` 1, each sample is a byte with eight pixels.
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = samples.shape[0], samples.shape[1] * (8 if bit_depth == 1 else 1)
    head = struct.pack(">IIBBBBB", width, height, bit_depth or 8 * samples.dtype.itemsize, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in samples.astype(samples.dtype.newbyteorder(">")))
    chunks = [(b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in chunks if part[1] or part[0] == b"IEND"))
