"""The one reader that every kind of file ends in: pictures by index and in turn."""

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError
from codecnn.video._formats import VideoFormat
from codecnn.video.picture import Picture, Plane

ReadPlanes = Callable[[int], tuple[Plane, ...]]
"""Gives the planes of the picture with a number, counted from 0 in its file."""


class Video(Sequence[Picture]):
    """Pictures of `format` with the numbers `numbers` in their file, read one at a time when they are asked for.

    Indexing gives read-only planes, of files in a memory map without copying; a slice gives a list.
    """

    def __init__(self, path: Path, video_format: VideoFormat, read: ReadPlanes, numbers: int | range) -> None:
        self.path = path
        self.format = video_format
        self._read: ReadPlanes | None = read
        self._numbers = range(numbers) if isinstance(numbers, int) else numbers
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return len(self._numbers)

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
        number = self._numbers[position]
        picture = Picture(self._open_reader()(number), self.format.bit_depth)
        for plane in picture.planes:
            plane.flags.writeable = False
        if number not in self._checked:
            self._check_range(picture, number)
            self._checked.add(number)
        return picture

    def _open_reader(self) -> ReadPlanes:
        if self._read is None:
            raise ConfigError(f"{self.path} has been closed: its pictures can no longer be read")
        return self._read

    def _check_range(self, picture: Picture, number: int) -> None:
        if picture.bit_depth in (8, 16):
            return
        peak = (1 << picture.bit_depth) - 1
        largest = max(int(plane.max()) for plane in picture.planes)
        if largest > peak:
            raise FormatError(
                f"{self.path}: picture {number} has a sample of {largest}, more than the {peak} of "
                f"{picture.bit_depth} bit: the bit depth is another, or the samples sit in the upper bits as in p010"
            )

    def select(
        self, *, start: int = 0, frames: int | None = None, step: int = 1, fps: Fraction | None = None
    ) -> "Video":
        """Skip the first `start` pictures, take every `step`-th of the rest, and of these the first `frames`.

        `fps` is the rate of this video in Hz where it is another than its format tells; that of the result is the
        `step`-th part of it. More `frames` than there are gives all. Raises ConfigError when `start` leaves no picture,
        or a number cannot be used.
        """
        check_selection(self.path, start=start, frames=frames, step=step)
        if start >= len(self):
            raise ConfigError(f"{self.path} has {len(self)} pictures: none is left from start {start} on")
        rate = self.format.fps if fps is None else fps
        video_format = dataclasses.replace(self.format, fps=None if rate is None else rate / step)
        return Video(self.path, video_format, self._open_reader(), self._numbers[start::step][:frames])

    def close(self) -> None:
        """Let go of the file; pictures taken before stay valid."""
        self._read = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_selection(path: Path, *, start: int = 0, frames: int | None = None, step: int = 1) -> None:
    """Raise ConfigError unless `start` is not negative, and `frames` (or None) and `step` are positive."""
    if frames is not None and frames < 1:
        raise ConfigError(f"{path}: {frames} frames were asked for, which is not a positive number")
    if start < 0:
        raise ConfigError(f"{path}: start {start} is negative: pictures are counted from 0")
    if step < 1:
        raise ConfigError(f"{path}: step {step} is not a positive number")


def planes_at(data: NDArray[np.uint8], starts: Sequence[int], video_format: VideoFormat) -> ReadPlanes:
    """Reads pictures that lie plane after plane in `data`, (n,) bytes, each from its own byte on; planes are views."""

    def read(number: int) -> tuple[Plane, ...]:
        planes = []
        start = starts[number]
        for height, width in video_format.plane_shapes:
            end = start + height * width * video_format.dtype.itemsize
            planes.append(data[start:end].view(video_format.dtype).reshape(height, width))
            start = end
        return tuple(planes)

    return read
