"""Raw YUV files, in planar and other sample layouts."""

import contextlib
import dataclasses
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError, FormatError, MissingFileError
from codecnn.pictures.files.formats import CHROMA_SUBSAMPLING, VideoFormat
from codecnn.pictures.files.names import NameFields, guess_format, is_pixel_format, parse_name
from codecnn.pictures.files.pictures import Plane, ReadPlanes, Video, planes_at
from codecnn.pictures.files.pixel_formats import PLANAR, PixelFormat, parse_pixel_format

_RAW_SUFFIXES = (".yuv", ".raw")

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


def is_raw_name(path: Path) -> bool:
    """Return whether a file is raw by its suffix: .yuv, .raw, or a pixel format such as .nv12."""
    suffix = path.suffix.lower()
    return suffix in _RAW_SUFFIXES or is_pixel_format(suffix[1:])


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
    with _readable(path):
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Check that a path is a regular file with content, and convert errors of the enclosed reads."""
    try:
        if path.is_fifo() or str(path) == "-":
            raise FormatError(f"{path} is a pipe, and pictures are not read in one pass: write them into a file first")
        if not path.exists():
            raise MissingFileError(f"{path} does not exist")
        if not path.is_file():
            raise FormatError(f"{path} is a directory or a device, not a file of pictures")
        if path.stat().st_size == 0:
            raise FormatError(f"{path} is empty")
        yield
    except MissingFileError:
        raise
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from error


class FileBytes:
    """The bytes of a file, read by position.

    Reading a memory map of a file that another program cuts short kills the process; this raises an error instead.

    Attributes:
        path: The file.
        size: Its size in bytes when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Open a file; errors as in `map_file`."""
        self.path = path
        with _readable(path):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int, count: int) -> NDArray[np.uint8]:
        """Return `count` bytes from the offset `start`, or those up to the end of the file as it was opened.

        Raises:
            FormatError: The file is shorter than it was.
            MissingFileError: The file cannot be read.
        """
        data = np.empty(max(min(count, self.size - start), 0), np.uint8)
        rest = data.data
        while rest:
            try:
                done = os.preadv(self._descriptor, [rest], start + len(data) - len(rest))
            except OSError as error:
                raise MissingFileError(f"{self.path} cannot be read: {error.strerror}") from error
            if done == 0:
                raise FormatError(
                    f"{self.path} had {self.size} bytes, and {os.fstat(self._descriptor).st_size} while it was read: "
                    "another program cut it short: write it again"
                )
            rest = rest[done:]
        return data

    def planes_at(self, starts: Sequence[int], video_format: VideoFormat) -> ReadPlanes:
        """Return a reader of planar pictures that begin at the offsets `starts`."""

        def read(number: int) -> tuple[Plane, ...]:
            return planes_at(self.read(starts[number], video_format.picture_bytes), (0,), video_format)(0)

        return read


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
    file, starts = _open_pictures(path, video_format)
    return Video(path, video_format, file.planes_at(starts, video_format), len(starts))


def open_packed(
    path: Path,
    *,
    packing: str | None,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
) -> Video:
    """Open raw YUV in the layout of the option, else of the file's name, else planar.

    Pictures of every layout have planar samples aligned to the least significant bit; those of another layout are
    converted when they are read.

    Args:
        path: The raw file.
        packing: "planar", a name that `parse_pixel_format` takes, or None.
        size: Picture size, as for `guess_format`.
        bit_depth: Bits per sample, as for `guess_format`.
        chroma: Chroma format, as for `guess_format`.
        fps: Frame rate, as for `guess_format`.

    Raises:
        ConfigError: The packing is unknown.
        FormatError: The name states a layout that is not read; chroma format or bit depth contradict the layout; or the
            number of pictures in the name fits another chroma format or bit depth. Reading a picture raises it where
            the lower bits of a word are not zero, because such a file has another layout.
    """
    FileBytes(path)  # reports a missing file before a missing size
    named = parse_name(path)
    video_format, layout = _resolve(
        path, named, packing=packing, size=size, bit_depth=bit_depth, chroma=chroma, fps=fps
    )
    if layout is not None:
        return _open_layout(path, layout, video_format)
    if bit_depth is None and named.bit_depth is None and packing in (None, PLANAR):
        _check_default_depth(path)
    video = open_raw(path, video_format)
    if named.frames not in (None, len(video)):
        _check_count(path, video, named, chroma is None, bit_depth is None)
    return video


def depth_beside(path: Path, bit_depth: int) -> int | None:
    """Guess the bit depth of a raw file whose name states none and which belongs to pictures of a known depth.

    Args:
        path: The raw file.
        bit_depth: Bit depth of the other pictures.

    Returns:
        `bit_depth`, or None, i.e. the default, if it is 8 or the file holds larger samples.

    Raises:
        CodecnnError: As `map_file`.
    """
    samples = FileBytes(path).read(0, 1 << 20)
    words = samples[: samples.size // 2 * 2].view("<u2")
    return bit_depth if bit_depth > 8 and words.size and int(words.max()) < 1 << bit_depth else None


def _check_default_depth(path: Path) -> None:
    """Raise FormatError if a file that is assumed to have 8 bits looks like one of words of more bits."""
    data = FileBytes(path).read(0, 1 << 20)
    first, second = data[: data.size // 2 * 2 : 2], data[1::2]
    for low, high, hint in ((first, second, "--bit-depth 10"), (second, first, "--packing yuv420p10be")):
        if high.size and int(high.max()) < 16 and float(np.mean(low >= 16)) > 0.25:
            raise FormatError(
                f"{path} looks like samples of more than 8 bits, because every second byte is at most {high.max()}: "
                f"give its bit depth, e.g. {hint}, or --bit-depth 8 if it has 8"
            )


def _resolve(
    path: Path,
    named: NameFields,
    *,
    packing: str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    **options: Any,
) -> tuple[VideoFormat, PixelFormat | None]:
    """Return geometry and layout of a raw file by options and the fields of its name; None for the planar layout."""
    layout = _layout(path, packing, named)
    video_format = guess_format(path, bit_depth=bit_depth, chroma=chroma, named=named, **options)
    if layout is None:
        return video_format, None
    # An explicit packing overrides the name, so only options can contradict it.
    stated = video_format.chroma, video_format.bit_depth
    if packing is not None:
        stated = chroma or layout.chroma, bit_depth or layout.bit_depth or 8
    expected = layout.chroma, layout.bit_depth or stated[1]
    if stated != expected:
        raise FormatError(
            f"{path}: packing {layout.name} holds {expected[0]} at {expected[1]} bit, which contradicts "
            f"{stated[0]} at {stated[1]} bit: give its true packing, or {PLANAR} if the file is not packed"
        )
    video_format = dataclasses.replace(video_format, chroma=expected[0], bit_depth=expected[1])
    return video_format, None if layout.is_planar else layout


def _layout(path: Path, packing: str | None, named: NameFields) -> PixelFormat | None:
    """Return the layout of the option or the name; None for planar files of the name's chroma format and bit depth."""
    name = packing or named.packing or PLANAR
    if name == PLANAR:
        return None
    layout = parse_pixel_format(name.lower())
    if layout is None and packing is not None:
        raise ConfigError(
            f"unknown packing {packing!r}: use {PLANAR} or a pixel format such as nv12, p010le, yuv420p10be, yuyv422"
        )
    if layout is None:
        raise FormatError(
            f"the name of {path} states the pixel format {name}, which codecnn does not read: convert the file, e.g. "
            "with ffmpeg -f rawvideo -pix_fmt FORMAT -s WxH -i IN.yuv -pix_fmt yuv420p OUT.yuv, or, if the name is "
            f"wrong, rename the file or give packing {PLANAR}"
        )
    return layout


def _open_layout(path: Path, layout: PixelFormat, video_format: VideoFormat) -> Video:
    """Open a raw file whose pictures are converted when they are read."""
    size = layout.picture_bytes(video_format)
    file, starts = _open_pictures(path, video_format, layout)

    def read(number: int) -> tuple[Plane, ...]:
        data = file.read(starts[number], size)
        try:
            return layout.read(data, video_format)
        except FormatError as error:
            raise FormatError(f"{path}: picture {number} {error}: give its true packing or size") from error

    return Video(path, video_format, read, len(starts))


def _check_count(path: Path, video: Video, named: NameFields, any_chroma: bool, any_depth: bool) -> None:
    """Raise FormatError if the number of pictures in the name fits another format than that which was assumed.

    Args:
        path: The raw file.
        video: The file in the assumed format.
        named: Fields of its name, with the number of pictures.
        any_chroma: No option states the chroma format.
        any_depth: No option states the bit depth.
    """
    chromas = CHROMA_SUBSAMPLING if any_chroma and named.chroma is None else (video.format.chroma,)
    depths = (8, 10) if any_depth and named.bit_depth is None else (video.format.bit_depth,)
    formats = [dataclasses.replace(video.format, chroma=key, bit_depth=depth) for key in chromas for depth in depths]
    fitting = [str(each) for each in formats if each.picture_bytes * (named.frames or 0) == path.stat().st_size]
    if fitting:
        raise FormatError(
            f"{path} has {len(video)} pictures as {video.format}, but {named.frames} by its name, which fits "
            f"{' and '.join(fitting)}: give its chroma format and bit depth"
        )


def _open_pictures(path: Path, video_format: VideoFormat, layout: PixelFormat | None = None) -> tuple[FileBytes, range]:
    """Open a raw file; return it with the offsets of its pictures. Raises as `open_raw`."""
    file = FileBytes(path)
    size = video_format.picture_bytes if layout is None else layout.picture_bytes(video_format)
    if file.size % size:
        raise FormatError(_size_message(path, file.size, video_format, layout))
    return file, range(0, file.size, size)


def _size_message(path: Path, size: int, video_format: VideoFormat, layout: PixelFormat | None) -> str:
    """Return the message for a file of `size` bytes that is not a whole number of pictures."""

    def picture_bytes(candidate: VideoFormat) -> int:
        return candidate.picture_bytes if layout is None else layout.picture_bytes(candidate)

    candidates = [dataclasses.replace(video_format, width=width, height=height) for width, height in COMMON_SIZES]
    for depth in (8, max(10, video_format.bit_depth)) if layout is None else ():
        candidates += [dataclasses.replace(video_format, chroma=key, bit_depth=depth) for key in CHROMA_SUBSAMPLING]
    whole = [candidate for candidate in dict.fromkeys(candidates) if size % picture_bytes(candidate) == 0]
    fitting = [f"{candidate} ({size // picture_bytes(candidate)})" for candidate in whole]
    advice = f"whole pictures would be {', '.join(fitting)}" if fitting else "no common size divides it either"
    kind = str(video_format) if layout is None else f"{video_format} in packing {layout.name}"
    return f"{path} has {size} bytes, which is {size / picture_bytes(video_format):.3f} pictures of {kind}: {advice}"
