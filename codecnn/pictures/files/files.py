"""Videos by file name: open any kind of file, and create raw YUV or Y4M."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import atomic_path
from codecnn.base.keywords import checked_keywords
from codecnn.pictures.files.formats import VideoFormat, frame_rate, parse_size
from codecnn.pictures.files.names import parse_name, stated_sizes
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.pictures import Picture, Plane, Video, check_selection
from codecnn.pictures.files.pipes import STANDARD_STREAM, standard_input, standard_output
from codecnn.pictures.files.probing import StreamInfo, probe_stream
from codecnn.pictures.files.raw import depth_beside, is_raw_name, open_packed
from codecnn.pictures.files.stills import (
    STILL_SUFFIXES,
    Change,
    check_stills,
    is_still,
    open_still,
    open_still_folder,
    still_format,
)
from codecnn.pictures.files.streams import STANDARD_NAMES, count_packets, open_stream
from codecnn.pictures.files.y4m import format_frame_line, format_header, open_y4m

_CONTAINERS = {
    *(".mp4", ".mkv", ".mov", ".avi", ".webm", ".ivf", ".ts", ".m2ts", ".mts", ".m4v", ".mpg", ".mpeg", ".vob"),
    *(".wmv", ".flv", ".3gp", ".ogv", ".mxf"),
}
_STREAMS = {".obu", ".264", ".h264", ".265", ".h265", ".hevc", ".266", ".h266", ".vvc"}
OTHER_CONTAINERS = frozenset(_CONTAINERS)
"""Suffixes of containers."""
_NOT_RAW = STILL_SUFFIXES | _CONTAINERS | _STREAMS
"""Suffixes that `create_video` refuses because programs take such files for something else."""


@checked_keywords()
def open_video(
    path: Path | str,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
    start: int = 0,
    frames: int | None = None,
    step: int = 1,
    packing: str | None = None,
    matrix: str = "bt709",
    full_range: bool = False,
    change: Change | None = None,
) -> Video:
    """Open raw YUV (.yuv, .raw), Y4M, a still picture, a folder of still pictures, or anything that ffmpeg decodes.

    The suffix of the name selects the kind, and "-" is Y4M from standard input. For raw files options override the name
    (see `guess_format`). For still pictures the options state the result of the conversion (see `read_still`,
    `open_still_folder`). All other files have headers, and options must agree with them.

    Args:
        path: File or folder.
        size: (width, height) or "WxH" in luma samples.
        bit_depth: Bits per sample; 10 by default for still pictures.
        chroma: Chroma format: 400, 420, 422 or 444.
        fps: Frame rate of the file in Hz, overriding that of the name or header. The rate of the video is divided by
            `step`.
        start: Number of pictures to skip.
        frames: Largest number of pictures to select; None for all.
        step: Distance between selected pictures (8 with all intra in JVET test conditions).
        packing: Sample layout of a raw file: planar, or a pixel format such as nv12, p010 or yuyv422 (see
            `parse_pixel_format`). Its pictures have planar samples aligned to the least significant bit in any case.
        matrix: Colour matrix for still pictures: bt601, bt709 or bt2020.
        full_range: Convert still pictures to the full range instead of the limited range.
        change: Function applied to the stored samples of still pictures before their conversion.

    Returns:
        Sequence of pictures with planes y, u, v; its `format` is the geometry of all.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is damaged, or an option contradicts its header.
        EncoderError: ffmpeg cannot decode the file.
        ConfigError: An option cannot be used, or not with this kind of file.
    """
    path = Path(path)
    check_selection(path, start=start, frames=frames, step=step)
    rate = None if fps is None else frame_rate(fps)
    suffix = path.suffix.lower()
    is_folder = os.path.isdir(path)  # noqa: PTH112 - unlike Path.is_dir it accepts names that are too long
    is_raw = is_raw_name(path) and not is_folder
    holds_stills = is_still(path)
    if packing is not None and not is_raw:
        raise ConfigError(f"{path} is not raw YUV: it cannot be opened with packing {packing}")
    if (matrix, full_range, change) != ("bt709", False, None) and not holds_stills:
        if not _is_uncoded(path):
            probe_stream(path)  # says what the file is if it cannot be read at all
        raise ConfigError(f"{path} holds YCbCr already: matrix, full range and change are for still pictures")
    if is_raw:
        video = open_packed(path, packing=packing, size=size, bit_depth=bit_depth, chroma=chroma, fps=fps)
        return video.select(start=start, frames=frames, step=step)
    if holds_stills:
        depth = 10 if bit_depth is None else bit_depth
        open_stills = open_still_folder if is_folder else open_still
        video = open_stills(path, chroma=chroma, bit_depth=depth, matrix=matrix, full_range=full_range, change=change)
    elif suffix == ".y4m":
        video = open_y4m(path)
    elif str(path) == STANDARD_STREAM:
        video = open_y4m(standard_input(), name="standard input")
    else:
        # Pictures after the last selected one are not decoded.
        video = open_stream(path, frames=None if frames is None else start + (frames - 1) * step + 1)
    _check_options(path, video.format, size, bit_depth, chroma)
    return video.select(start=start, frames=frames, step=step, fps=rate)


class VideoSummary(NamedTuple):
    """Geometry and number of pictures of a video file.

    Attributes:
        format: Geometry.
        pictures: Number of pictures; None if it is only known after decoding.
        codec: Name of the standard or, where it has none, ffmpeg's name of the codec; None for pictures that are not
            coded.
        counted: What was counted: "pictures", or "packets" where each packet of the container is a picture.
        fields: "top field first" or "bottom field first" for interlaced frames, else None.
    """

    format: VideoFormat
    pictures: int | None
    codec: str | None
    counted: str
    fields: str | None


def summarise_video(path: Path | str, **options: Any) -> VideoSummary:
    """Read geometry and number of pictures of a file of any kind without decoding a stream.

    Args:
        path: File or folder that `open_video` opens.
        options: Options of `open_video`.

    Raises:
        CodecnnError: As `open_video`.
    """
    path = Path(path)
    if is_still(path):
        return _summarise_stills(path, **options)
    if _is_uncoded(path):
        with open_video(path, **options) as video:
            return VideoSummary(video.format, len(video), None, "pictures", None)
    info = _probe(path, options)
    rate = options.get("fps")
    video_format = info.format if rate is None else dataclasses.replace(info.format, fps=frame_rate(rate))
    codec = STANDARD_NAMES.get(info.codec, info.codec).lower()
    # A field of interlaced video may be a packet, and so is a hidden picture of VP8.
    is_picture = info.fields is None and info.codec != "vp8"
    pictures = count_packets(path, info) if is_picture else None
    return VideoSummary(video_format, pictures, codec, "packets", info.fields)


def _summarise_stills(
    path: Path,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
    packing: str | None = None,
) -> VideoSummary:
    """Read the headers of still pictures, with the options of `open_video`."""
    if packing is not None:
        raise ConfigError(f"{path} is not raw YUV: it cannot be opened with packing {packing}")
    form, pictures = still_format(path, chroma=chroma, bit_depth=10 if bit_depth is None else bit_depth)
    _check_options(path, form, size, bit_depth, chroma)
    form = dataclasses.replace(form, fps=None if fps is None else frame_rate(fps))
    return VideoSummary(form, pictures, None, "pictures", None)


def check_video(path: Path | str, **options: Any) -> None:
    """Check that `open_video` can open a file, reading headers only; samples can be damaged nevertheless.

    Args:
        path: File or folder.
        options: Options of `open_video`.

    Raises:
        CodecnnError: As `open_video`.
    """
    path = Path(path)
    if is_still(path):
        check_stills(path)
    elif _is_uncoded(path):
        open_video(path, **options).close()
    else:
        _probe(path, options)


def is_coded(path: Path) -> bool:
    """Return whether a path is a coded video by its name: neither still pictures, raw YUV nor Y4M."""
    return not (_is_uncoded(path) or is_still(path))


def _is_uncoded(path: Path) -> bool:
    """Return whether a path is raw YUV or Y4M by its name."""
    return str(path) == STANDARD_STREAM or path.suffix.lower() == ".y4m" or is_raw_name(path)


def _probe(path: Path, options: Mapping[str, Any]) -> StreamInfo:
    """Read the headers of a stream and check the options of `open_video` against them."""
    info = probe_stream(path)
    if options.get("packing") is not None:
        raise ConfigError(f"{path} is not raw YUV: it cannot be opened with packing {options['packing']}")
    chosen = {name: options.get(name) for name in ("size", "bit_depth", "chroma")}
    _check_options(path, info.format, **chosen)
    return info


def open_like(path: Path | str, form: VideoFormat) -> Video:
    """Open a file that belongs to pictures of a known format, e.g. the original of a decoded sequence.

    Args:
        path: File of any kind that `open_video` opens.
        form: Geometry of a raw file, as far as its name does not state it; its bit depth, or 8 if that does not fit
            the samples. Other kinds of file do not use it.

    Raises:
        CodecnnError: As `open_video`.
    """
    path = Path(path)
    if not is_raw_name(path):
        return open_video(path)
    named = parse_name(path)
    depth = None if named.bit_depths else named.bit_depth or depth_beside(path, form.bit_depth)
    # A name can state several sizes, such as those before and after a crop.
    size = (form.width, form.height)
    return open_video(
        path,
        size=size if named.width is None or size in stated_sizes(path) else None,
        bit_depth=depth,
        chroma=None if named.chromas else named.chroma or form.chroma,
    )


def _check_options(
    path: Path,
    video_format: VideoFormat,
    size: tuple[int, int] | str | None,
    bit_depth: int | None,
    chroma: str | None,
) -> None:
    """Raise FormatError if an explicit option contradicts the format in the file's header."""
    options = (*(parse_size(size) if isinstance(size, str) else size or (None, None)), chroma, bit_depth)
    actual = (video_format.width, video_format.height, video_format.chroma, video_format.bit_depth)
    names = ("width", "height", "chroma format", "bit depth")
    for name, option, value in zip(names, options, actual, strict=True):
        if option is not None and option != value:
            raise FormatError(f"{path} has {name} {value} by its own header: it cannot be opened with {option}")


class VideoWriter:
    """Writer that appends pictures of one format to an open file; `create_video` creates it.

    Attributes:
        path: The file to be written.
        format: Geometry of its pictures.
        count: Number of pictures written so far.
    """

    def __init__(
        self, path: Path, video_format: VideoFormat, file: BinaryIO, picture_head: Callable[[int], bytes]
    ) -> None:
        """Create a writer to `file` that writes the bytes `picture_head(n)` before picture n."""
        self.path = path
        self.format = video_format
        self.count = 0
        self._file = file
        self._picture_head = picture_head

    def write(self, picture: Picture | Sequence[Plane]) -> None:
        """Append a picture.

        Args:
            picture: A picture, or its planes Y or Y, U, V of shape (h, w). Integer types wider than that of the format
                are accepted if all samples are in range.

        Raises:
            FormatError: The number of planes, their shapes, sample type or range do not fit the format.
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
        # All planes are checked before the first byte is written, so that a refused picture changes nothing.
        samples = [self._checked(plane, where) for plane in picture]
        self._file.write(self._picture_head(self.count))
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


@contextlib.contextmanager
def create_video(
    path: Path | str, video_format: VideoFormat, *, like: Video | None = None, check_name: bool = True
) -> Iterator[VideoWriter]:
    """Create a raw YUV or Y4M file and yield a writer of its pictures.

    Use it as `with create_video("out.yuv", video_format) as out: out.write(picture)`. The file appears when
    the block ends without an exception. Otherwise nothing is written and an existing file stays unchanged.

    Args:
        path: The file; .y4m selects Y4M, any other suffix raw YUV. "-" writes Y4M to standard output.
        video_format: Geometry of the pictures.
        like: Video from which the pictures come, one for one. A Y4M file gets its field order, sample aspect ratio,
            position of chroma samples, range and other properties.
        check_name: Refuse a name of a raw file that states another size, chroma format, bit depth or layout than that
            of `video_format` in planar order, because readers would trust it.

    Yields:
        The writer.

    Raises:
        ConfigError: The suffix belongs to another kind of file (.mp4, .png, ...), or the name is refused.
        FormatError: The block wrote no picture.
    """
    path = Path(path)
    if path.suffix.lower() in _NOT_RAW:
        raise ConfigError(f"{path} would hold raw samples, despite its name: end it in .yuv, or in .y4m for Y4M")
    to_pipe = str(path) == STANDARD_STREAM
    is_y4m = to_pipe or path.suffix.lower() == ".y4m"
    if check_name and not is_y4m:
        _check_name(path, video_format)
    if is_y4m and like is not None and like.tags is not None and like.tags.without_place:
        warn(f"{like.path} has {' and '.join(like.tags.without_place)}, which Y4M cannot hold: {path} is without")
    with standard_output() if to_pipe else _new_file(path) as file:
        if is_y4m:
            file.write(format_header(video_format, None if like is None else like.tags))

        def picture_head(number: int) -> bytes:
            return format_frame_line("" if like is None else like.frame_tags(number)) if is_y4m else b""

        writer = VideoWriter(Path("standard output") if to_pipe else path, video_format, file, picture_head)
        yield writer
        if writer.count == 0:
            raise FormatError(f"{path}: no picture was written")


def _check_name(path: Path, video_format: VideoFormat) -> None:
    """Raise ConfigError if the name of a raw file states other properties than those of its planar pictures."""
    named, form = parse_name(path), video_format
    fits = named.width is None or (form.width, form.height) in stated_sizes(path)
    size = None if fits else f"{named.width}x{named.height}"
    depths = named.bit_depths or (() if named.bit_depth is None else (named.bit_depth,))
    depth = " and ".join(f"{each} bit" for each in depths) or None
    stated = (
        (named.packing, "planar"),
        (size, f"{form.width}x{form.height}"),
        (depth, f"{form.bit_depth} bit"),
        (" and ".join(named.chromas) or named.chroma, form.chroma),
    )
    if wrong := [text for text, actual in stated if text not in (None, actual)]:
        raise ConfigError(
            f"{path} would hold planar pictures of {form}, but its name states {' and '.join(wrong)}: name it e.g. "
            f"{path.with_name(f'filtered_{form.width}x{form.height}_{form.bit_depth}bit_{form.chroma}.yuv')}"
        )


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    with atomic_path(path) as part, part.open("wb") as file:
        yield file
