"""Raw planar YUV files by memory map."""

import dataclasses
import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import FormatError, MissingFileError
from codecnn.video._formats import CHROMA_SUBSAMPLING, VideoFormat
from codecnn.video._video import Video, planes_at

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
"""Luma sizes (width, height) of the usual test sequences, proposed when a raw file does not divide."""


def map_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file as a read-only (n,) memory map.

    Raises MissingFileError when there is none or it may not be read, FormatError when it is empty or no regular file.
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
    """Let go of the memory that reading `plane` and others of its map took; they stay valid, and are read again.

    Without this a process that goes through a file seems to hold all of it. For a plane that is no part of a map
    nothing happens.
    """
    owner: object = plane
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def open_raw(path: Path | str, video_format: VideoFormat) -> Video:
    """Open raw planar YUV: pictures of `video_format` one after another, nothing between them.

    Raises FormatError when the file's size is not a whole number of pictures; the message names the picture sizes
    and sample layouts that would divide it.
    """
    path = Path(path)
    data, starts = map_pictures(path, video_format)
    return Video(path, video_format, planes_at(data, starts, video_format), len(starts))


def map_pictures(path: Path, video_format: VideoFormat) -> tuple[NDArray[np.uint8], range]:
    """The bytes of a raw file, (n,), and where in them each picture starts. Raises as `open_raw` does."""
    data = map_file(path)
    if data.size % video_format.picture_bytes:
        raise FormatError(_no_whole_number(path, data.size, video_format))
    return data, range(0, data.size, video_format.picture_bytes)


def _no_whole_number(path: Path, size: int, video_format: VideoFormat) -> str:
    candidates = [dataclasses.replace(video_format, width=width, height=height) for width, height in COMMON_SIZES]
    for depth in (8, max(10, video_format.bit_depth)):
        candidates += [dataclasses.replace(video_format, chroma=key, bit_depth=depth) for key in CHROMA_SUBSAMPLING]
    whole = [candidate for candidate in dict.fromkeys(candidates) if size % candidate.picture_bytes == 0]
    fitting = [f"{candidate} ({size // candidate.picture_bytes})" for candidate in whole]
    advice = f"whole pictures would be {', '.join(fitting)}" if fitting else "no common size divides it either"
    count = f"{size / video_format.picture_bytes:.3f}"
    return f"{path} has {size} bytes, which is {count} pictures of {video_format}: {advice}"
