"""Videos in memory maps: raw YUV files, and the one reader that every kind of file ends in."""

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError, MissingFileError
from codecnn.video.formats import CHROMA_SUBSAMPLING, VideoFormat
from codecnn.video.picture import Picture

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


class Video(Sequence[Picture]):
    """Pictures of `format`, each stored plane after plane in `data` from its own byte offset on.

    Indexing gives read-only views without copying; a slice gives a list. `data` is (n,) uint8, usually a memory map.
    """

    def __init__(self, path: Path, video_format: VideoFormat, data: NDArray[np.uint8], offsets: Sequence[int]) -> None:
        self.path = path
        self.format = video_format
        self._data: NDArray[np.uint8] | None = data
        self._offsets = offsets
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Picture: ...

    @overload
    def __getitem__(self, index: slice) -> list[Picture]: ...

    def __getitem__(self, index: int | slice) -> Picture | list[Picture]:
        """The picture at `index`, counted from the end if negative; a list for a slice.

        Raises IndexError beyond the end, FormatError when a sample is too large for the bit depth, ConfigError after
        close().
        """
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.path} has {len(self)} pictures: there is no picture {index}")
        return self._picture(position)

    def _picture(self, position: int) -> Picture:
        data = self._open_data()
        planes = []
        start = self._offsets[position]
        for height, width in self.format.plane_shapes:
            end = start + height * width * self.format.dtype.itemsize
            planes.append(data[start:end].view(self.format.dtype).reshape(height, width))
            start = end
        picture = Picture(tuple(planes), self.format.bit_depth)
        if position not in self._checked:
            self._check_range(picture, position)
            self._checked.add(position)
        return picture

    def _open_data(self) -> NDArray[np.uint8]:
        if self._data is None:
            raise ConfigError(f"{self.path} has been closed: its pictures can no longer be read")
        return self._data

    def _check_range(self, picture: Picture, position: int) -> None:
        if picture.bit_depth in (8, 16):
            return
        peak = (1 << picture.bit_depth) - 1
        largest = max(int(plane.max()) for plane in picture.planes)
        if largest > peak:
            raise FormatError(
                f"{self.path}: picture {position} has a sample of {largest}, more than the {peak} of "
                f"{picture.bit_depth} bit: the bit depth is another, or the samples sit in the upper bits"
            )

    def select(self, *, frames: int | None = None, fps: Fraction | None = None) -> "Video":
        """The same video with its first `frames` pictures only, or at another frame rate (Hz).

        More `frames` than there are gives all; fewer than 1 is a ConfigError.
        """
        check_frames(self.path, frames)
        video_format = self.format if fps is None else dataclasses.replace(self.format, fps=fps)
        return Video(self.path, video_format, self._open_data(), self._offsets[:frames])

    def close(self) -> None:
        """Let go of the file; pictures taken before stay valid."""
        self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_frames(path: Path, frames: int | None) -> None:
    """Raise ConfigError unless `frames` is a positive number or None."""
    if frames is not None and frames < 1:
        raise ConfigError(f"{path}: {frames} frames were asked for, which is not a positive number")


def map_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file as a read-only (n,) memory map.

    Raises MissingFileError when there is none or it may not be read, FormatError when it is empty or no regular file.
    """
    try:
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


def open_raw(path: Path | str, video_format: VideoFormat) -> Video:
    """Open raw planar YUV: pictures of `video_format` one after another, nothing between them.

    Raises FormatError when the file's size is not a whole number of pictures; the message names the picture sizes
    and sample layouts that would divide it.
    """
    path = Path(path)
    data = map_file(path)
    if data.size % video_format.picture_bytes:
        raise FormatError(_no_whole_number(path, data.size, video_format))
    return Video(path, video_format, data, range(0, data.size, video_format.picture_bytes))


def _no_whole_number(path: Path, size: int, video_format: VideoFormat) -> str:
    candidates = [dataclasses.replace(video_format, width=width, height=height) for width, height in COMMON_SIZES]
    candidates += [
        dataclasses.replace(video_format, chroma=chroma, bit_depth=bit_depth)
        for bit_depth in dict.fromkeys((8, max(10, video_format.bit_depth)))
        for chroma in CHROMA_SUBSAMPLING
    ]
    fitting = [
        f"{candidate} ({size // candidate.picture_bytes})"
        for candidate in dict.fromkeys(candidates)
        if size % candidate.picture_bytes == 0
    ]
    advice = f"whole pictures would be {', '.join(fitting)}" if fitting else "no common size divides it either"
    count = f"{size / video_format.picture_bytes:.3f}"
    return f"{path} has {size} bytes, which is {count} pictures of {video_format}: {advice}"
