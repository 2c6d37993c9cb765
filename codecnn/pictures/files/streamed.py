"""Videos in containers, decoded while they are read, so that memory and disk do not grow with their length."""

import contextlib
import os
import select
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from codecnn.base.errors import CodecnnError, ConfigError, ConversionError
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files.decoding import decode
from codecnn.pictures.files.ffmpeg import LOSSLESS_COPY
from codecnn.pictures.files.pictures import Plane, Video, planes_at
from codecnn.pictures.files.streams import Decoding, prepare_decoding

_WINDOW = 8
"""Number of pictures that stay readable behind the last one that was read."""
_POLL_MILLISECONDS = 100


@contextlib.contextmanager
def stream_video(path: Path | str, count: int) -> Iterator[Video]:
    """Decode a container while its pictures are read in order.

    The last eight pictures can be read again, so that a filter can look at neighbours; earlier ones are an error.
    Damage raises an error when the pictures behind it are read, at the latest at the end of the block.

    Args:
        path: Any container that ffmpeg decodes.
        count: Number of its pictures.

    Yields:
        The video.

    Raises:
        ConversionError: The file has another number of pictures that can be decoded.
        FormatError: The file is damaged.
        EncoderError: ffmpeg cannot decode it.
    """
    decoding = prepare_decoding(Path(path), None)
    with temporary_folder("streamed") as folder, ThreadPoolExecutor(1) as pool:
        pipe = Path(folder) / "pictures"
        os.mkfifo(pipe)
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        decoder = pool.submit(_decode_into, pipe, decoding)
        pictures = _PictureWindow(descriptor, decoder, decoding, count)
        video = Video(Path(path), decoding.info.format, pictures.planes, count, decoding.tags)
        try:
            yield video
            complete = pictures.following == count
        except BaseException:
            complete = False
            raise
        finally:
            os.close(descriptor)
            video.close()
            if not complete:
                _stop(decoder, pipe)
        if complete:
            decoder.result()


def _decode_into(pipe: Path, decoding: Decoding) -> int:
    return decode(
        decoding.source,
        decoding.pix_fmt,
        pipe,
        demuxer=decoding.demuxer,
        container=decoding.container,
        info=decoding.info,
        name=decoding.name,
        options=decoding.options,
    )


def _stop(decoder: "Future[int]", pipe: Path) -> None:
    """Let a decoder fail, because nobody reads its pictures any longer."""
    while not decoder.done():
        # A decoder that has not opened the pipe yet would wait for a reader.
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        wait([decoder], _POLL_MILLISECONDS / 1000)
        os.close(descriptor)
    with contextlib.suppress(CodecnnError):
        decoder.result()


class _PictureWindow:
    """The last pictures read from a pipe that a decoder writes.

    Attributes:
        following: Number of the picture that is read next from the pipe.
    """

    def __init__(self, descriptor: int, decoder: "Future[int]", decoding: Decoding, count: int) -> None:
        self.following = 0
        self._descriptor = descriptor
        self._decoder = decoder
        self._decoding = decoding
        self._count = count
        self._pictures: dict[int, tuple[Plane, ...]] = {}

    def planes(self, number: int) -> tuple[Plane, ...]:
        """Return the planes of a picture; reads all pictures up to it."""
        if number < self.following - _WINDOW:
            raise ConfigError(f"{self._decoding.name} is read in order: picture {number} is no longer in memory")
        while self.following <= number:
            self._pictures[self.following] = self._next_planes()
            self._pictures.pop(self.following - _WINDOW, None)
            self.following += 1
        return self._pictures[number]

    def _next_planes(self) -> tuple[Plane, ...]:
        form = self._decoding.info.format
        data = np.empty(form.picture_bytes, np.uint8)
        view = data.data
        done = 0
        while done < len(view):
            size = self._read(view[done:])
            if not size:
                decoded = self._decoder.result()
                raise ConversionError(
                    f"{self._decoding.name} decodes to {decoded} of its {self._count} pictures: {LOSSLESS_COPY}"
                )
            done += size
        return planes_at(data, [0], form)(0)

    def _read(self, view: memoryview) -> int:
        """Read bytes of the pipe; 0 at its end."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not poll.poll(_POLL_MILLISECONDS):
            if self._decoder.done():  # it failed before it opened the pipe
                return 0
        return os.readv(self._descriptor, [view])
