"""Write raw YUV or Y4M, picture by picture; a file is whole or absent."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from codecnn.errors import ConfigError, FormatError
from codecnn.runs import atomic_path
from codecnn.video._formats import VideoFormat
from codecnn.video._stills import STILL_SUFFIXES
from codecnn.video._y4m import FRAME_LINE, format_header
from codecnn.video.picture import Picture, Plane


class VideoWriter:
    """Appends pictures of one format to an open file; `create_video` makes it."""

    def __init__(self, path: Path, video_format: VideoFormat, file: BinaryIO, picture_head: bytes) -> None:
        self.path = path
        self.format = video_format
        self.count = 0
        self._file = file
        self._picture_head = picture_head

    def write(self, picture: Picture | Sequence[Plane]) -> None:
        """Append a picture, or its planes Y or Y, U, V.

        Raises FormatError when the number of planes, their shapes (h, w), sample type or range do not fit the format.
        Wider integer types than the format's own are fine as long as every sample is in range.
        """
        where = f"{self.path}, picture {self.count}"
        if isinstance(picture, Picture):
            if picture.bit_depth != self.format.bit_depth:
                raise FormatError(f"{where}: samples of {picture.bit_depth} bit do not fit {self.format}")
            picture = picture.planes
        shapes = tuple(plane.shape for plane in picture)
        if shapes != self.format.plane_shapes:
            raise FormatError(
                f"{where}: planes of {shapes} do not fit {self.format}: it has {self.format.plane_shapes}"
            )
        # All planes are checked before the first byte, so that a refused picture leaves nothing behind.
        samples = [self._checked(plane, where) for plane in picture]
        self._file.write(self._picture_head)
        for plane in samples:
            self._file.write(plane.data)
        self.count += 1

    def _checked(self, plane: Plane, where: str) -> Plane:
        if plane.dtype.kind not in "ui" or plane.dtype.itemsize < self.format.dtype.itemsize:
            raise FormatError(
                f"{where}: samples of type {plane.dtype} do not fit {self.format}: use {self.format.dtype}"
            )
        smallest, largest = int(plane.min()), int(plane.max())
        if smallest < 0 or largest >= 1 << self.format.bit_depth:
            value = smallest if smallest < 0 else largest
            raise FormatError(f"{where}: sample {value} is outside 0 to {(1 << self.format.bit_depth) - 1}")
        return np.ascontiguousarray(plane, dtype=self.format.dtype)


_CONTAINERS = {".mp4", ".mkv", ".mov", ".avi", ".webm", ".ivf"}
_STREAMS = {".264", ".h264", ".265", ".h265", ".hevc", ".266", ".h266", ".vvc"}
_NOT_RAW = STILL_SUFFIXES | _CONTAINERS | _STREAMS
"""Names of pictures, containers and streams."""


@contextlib.contextmanager
def create_video(path: Path | str, video_format: VideoFormat) -> Iterator[VideoWriter]:
    """Write a video: `with create_video("out.yuv", video_format) as out: out.write(picture)`.

    A name that ends in .y4m gives Y4M, any other raw YUV; one that programs would take for something else (.mp4, .png,
    ...) is refused by ConfigError. The file appears when the block ends well; after an exception, or when no picture
    was written (FormatError), nothing is left and an older file stays as it was.
    """
    path = Path(path)
    if path.suffix.lower() in _NOT_RAW:
        raise ConfigError(f"{path} would hold raw samples, whatever its name says: end it in .yuv, or in .y4m for Y4M")
    is_y4m = path.suffix.lower() == ".y4m"
    with atomic_path(path) as part, part.open("wb") as file:
        if is_y4m:
            file.write(format_header(video_format))
        writer = VideoWriter(path, video_format, file, FRAME_LINE if is_y4m else b"")
        yield writer
        if writer.count == 0:
            raise FormatError(f"{path}: no picture was written")
