"""Raw YUV files by memory map: planar, and semi-planar with 16-bit words (P010 and similar packings).

The layout of semi-planar files is that of Microsoft's "10-bit and 16-bit YUV Video Formats": a plane of Y, then a plane
of alternating Cb and Cr, in little-endian words whose upper bits hold the sample and whose lower bits are zero.
"""

import dataclasses
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError, MissingFileError
from codecnn.video.formats import CHROMA_SUBSAMPLING, PACKINGS, PLANAR, VideoFormat, guess_format, parse_name
from codecnn.video.pictures import Plane, Video, planes_at

RAW_SUFFIXES = frozenset((".yuv", ".raw"))

COMMON_SIZES = (
    (176, 144),
    (352, 288),
    (416, 240),
    (832, 480),
    (1024, 768),
    (1280, 720),
    (1920, 1080),
    (2560, 1600),
    (3840, 2160),
)
"""Luma sizes (width, height) of common test sequences, proposed when a raw file is not a whole number of pictures."""


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map the bytes of a file into memory, read-only.

    Args:
        path: A regular file.

    Returns:
        The bytes, shape (n,).

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is empty or not a regular file.
    """
    try:
        if path.is_fifo() or str(path) == "-":
            raise FormatError(f"{path} is a pipe, and pictures are not read in one pass: write them into a file first")
        if not path.exists():
            raise MissingFileError(f"{path} does not exist")
        if not path.is_file():
            raise FormatError(f"{path} is a directory or a device, not a file of pictures")
        if path.stat().st_size == 0:
            raise FormatError(f"{path} is empty")
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except MissingFileError:
        raise
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error


def forget_pages(plane: NDArray[np.generic]) -> None:
    """Release the physical memory of the mapped file that `plane` is a view of.

    All views stay valid; accessing them reads the file again. Without this call, the resident memory of a process that
    reads through a file grows to the size of the file. An array that is not part of a memory map is ignored.
    """
    owner: object = plane
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def open_raw(path: Path | str, video_format: VideoFormat) -> Video:
    """Open raw planar YUV: pictures of `video_format` one after another without gaps.

    Args:
        path: The raw file.
        video_format: Geometry of its pictures.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is empty, or not a whole number of pictures. The message names the picture sizes and
            sample layouts that divide its size.
    """
    path = Path(path)
    data, starts = _map_pictures(path, video_format)
    return Video(path, video_format, planes_at(data, starts, video_format), len(starts))


def open_packed(
    path: Path, *, packing: str | None, bit_depth: int | None = None, chroma: str | None = None, **options: Any
) -> Video:
    """Open raw YUV in the packing of the option, else of the file's name, else planar.

    Pictures of every packing have planar samples aligned to the least significant bit; semi-planar pictures are
    unpacked when they are read.

    Args:
        path: The raw file.
        packing: "planar", a key of `PACKINGS`, or None.
        bit_depth: Bits per sample, as for `guess_format`.
        chroma: Chroma format, as for `guess_format`.
        options: Other options of `guess_format`.

    Raises:
        ConfigError: The packing is unknown.
        FormatError: Chroma format or bit depth contradict the packing. Reading a picture raises it where the lower bits
            of a word are not zero, because such a file has another packing.
    """
    map_file(path)  # reports a missing file before a missing size
    explicit = packing is not None
    packing = packing or parse_name(path).packing or PLANAR
    if packing == PLANAR:
        return open_raw(path, guess_format(path, bit_depth=bit_depth, chroma=chroma, **options))
    if packing not in PACKINGS:
        raise ConfigError(f"unknown packing {packing!r}: use one of {PLANAR}, {', '.join(PACKINGS)}")
    expected = PACKINGS[packing]
    guessed = guess_format(path, bit_depth=bit_depth, chroma=chroma, **options)
    # An explicit packing overrides the name, so only options can contradict it.
    stated = (chroma or expected[0], bit_depth or expected[1]) if explicit else (guessed.chroma, guessed.bit_depth)
    if stated != expected:
        raise FormatError(
            f"{path}: packing {packing} holds {expected[0]} at {expected[1]} bit, which contradicts {stated[0]} at "
            f"{stated[1]} bit: give packing {PLANAR} if the file is not packed"
        )
    return _open_semiplanar(path, packing, VideoFormat(guessed.width, guessed.height, *expected, guessed.fps))


def _open_semiplanar(path: Path, packing: str, video_format: VideoFormat) -> Video:
    data, starts = _map_pictures(path, video_format)
    shift = 16 - video_format.bit_depth
    luma, (height, width) = video_format.plane_shapes[:2]
    luma_words = luma[0] * luma[1]

    def read(number: int) -> tuple[Plane, ...]:
        words = data[starts[number] : starts[number] + video_format.picture_bytes].view("<u2")
        low = words & ((1 << shift) - 1)
        if low.any():
            word = int(words[low != 0][0])
            raise FormatError(
                f"{path}: picture {number} has a word of {word}, but in {packing} the lower {shift} bits are zero: "
                "give its true packing or size"
            )
        samples = words >> shift
        chroma = samples[luma_words:].reshape(height, width, 2)
        return (samples[:luma_words].reshape(luma), chroma[:, :, 0].copy(), chroma[:, :, 1].copy())

    return Video(path, video_format, read, len(starts))


def _map_pictures(path: Path, video_format: VideoFormat) -> tuple[NDArray[np.uint8], range]:
    """Map a raw file; return its bytes, shape (n,), and the offsets of its pictures. Raises as `open_raw`."""
    data = map_file(path)
    if data.size % video_format.picture_bytes:
        raise FormatError(_size_message(path, data.size, video_format))
    return data, range(0, data.size, video_format.picture_bytes)


def _size_message(path: Path, size: int, video_format: VideoFormat) -> str:
    """Return the message for a file of `size` bytes that is not a whole number of pictures."""
    candidates = [dataclasses.replace(video_format, width=width, height=height) for width, height in COMMON_SIZES]
    for depth in (8, max(10, video_format.bit_depth)):
        candidates += [dataclasses.replace(video_format, chroma=key, bit_depth=depth) for key in CHROMA_SUBSAMPLING]
    whole = [candidate for candidate in dict.fromkeys(candidates) if size % candidate.picture_bytes == 0]
    fitting = [f"{candidate} ({size // candidate.picture_bytes})" for candidate in whole]
    advice = f"whole pictures would be {', '.join(fitting)}" if fitting else "no common size divides it either"
    count = f"{size / video_format.picture_bytes:.3f}"
    return f"{path} has {size} bytes, which is {count} pictures of {video_format}: {advice}"
