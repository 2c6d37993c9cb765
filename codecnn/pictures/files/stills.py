"""Still pictures (PNG, JPEG, TIFF, BMP, WebP, GIF), and folders of them, as Y'CbCr."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import FormatError, MissingFileError
from codecnn.pictures.files.bands import Samples, check_size, split_rows
from codecnn.pictures.files.colour import neutral_chroma, quantise_luma, rgb_to_ycbcr
from codecnn.pictures.files.formats import VideoFormat
from codecnn.pictures.files.pictures import Picture, Plane, Video
from codecnn.pictures.files.png import open_png
from codecnn.pictures.files.raw import is_raw_name
from codecnn.pictures.files.rgb import coefficients
from codecnn.pictures.files.still_files import StillFile, open_still_file, still_kind
from codecnn.pictures.files.tiff import open_tiff

STILL_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"))
"""Lower-case suffixes of still pictures; files with these suffixes are the pictures of a folder."""

VIDEO_OF_STILLS = (".mjpeg", ".mjpg")
"""Suffixes of Motion JPEG, which begins as a JPEG does."""

Change = Callable[[NDArray[Any]], NDArray[Any]]
"""Function applied to stored samples (uint8 or uint16, whole range) before they are converted to Y'CbCr."""


def is_still(path: Path | str) -> bool:
    """Return whether `open_video` reads a path as R'G'B' or grey still pictures rather than as Y'CbCr.

    That is the case for folders, for files with one of `STILL_SUFFIXES`, and for files with another name whose content
    is that of a PNG, JPEG, TIFF, WebP or GIF file, unless they are raw YUV, Y4M or Motion JPEG by their name.

    Raises:
        MissingFileError: The file cannot be read.
        FormatError: The file is empty, or a HEIF or AVIF picture.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir it accepts names that are too long
        return True
    if suffix in STILL_SUFFIXES:
        return True
    if suffix == ".y4m" or suffix in VIDEO_OF_STILLS or is_raw_name(path):
        return False
    return os.path.isfile(path) and still_kind(path) not in (None, "BMP")  # noqa: PTH113


def read_still(
    path: Path | str,
    *,
    chroma: str | None = None,
    bit_depth: int = 10,
    matrix: str = "bt709",
    full_range: bool = False,
    change: Change | None = None,
) -> Picture:
    """Read a still picture and convert it to Y'CbCr.

    The conversion is that of `rgb_to_ycbcr` and uses the full precision of the file, up to 16 bits. The kind of file is
    determined by its content. Palettes are expanded, WhiteIsZero samples are inverted, and the picture is rotated as
    its orientation tag requires. Alpha is dropped: the colours stored under it are used, with a warning in the log
    unless all samples are opaque. Colour profiles and gamma are not applied: a warning names a file whose samples are
    not sRGB by them.

    Args:
        path: A file of one picture.
        chroma: Chroma format of the picture; by default 420, and 400 for a grey picture. A grey picture has neutral
            chroma planes if a chroma format other than 400 is given.
        bit_depth: Bits per sample of the picture.
        matrix: Name of the colour matrix: bt601, bt709 or bt2020.
        full_range: Quantise to the full range instead of the limited range.
        change: Function applied to the upright samples, shape (h, w, 3) or, if grey, (h, w); its result is converted.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is damaged, holds several pictures, or holds samples that have no R'G'B', such as CMYK.
        ConfigError: The matrix is unknown.
    """
    still = _open(Path(path))
    if still.count > 1:
        raise FormatError(f"{path} holds {still.count} pictures, not one: open it as a video")
    return _convert(still, 0, chroma, bit_depth, matrix, full_range, change)


def _open(path: Path) -> StillFile:
    """Read the header of a file of still pictures and check its size."""
    still = _open_any_size(path)
    check_size(path, still.size, still.channels)
    return still


def _open_any_size(path: Path) -> StillFile:
    kind = still_kind(path)
    suffix = path.suffix.lower()
    if kind is None or (kind == "BMP" and suffix not in STILL_SUFFIXES):
        raise FormatError(f"{path} is not a {suffix.lstrip('.').upper()} picture, despite its name")
    if kind == "PNG":
        return open_png(path)
    if kind != "TIFF":
        return open_still_file(path, kind)
    if suffix not in STILL_SUFFIXES:
        raise FormatError(
            f"{path} is a TIFF file by its content: name it .tif, or convert it to RGB first if it is a raw photograph"
        )
    return open_tiff(path)


def _convert(
    still: StillFile,
    number: int,
    chroma: str | None,
    bit_depth: int,
    matrix: str,
    full_range: bool,
    change: Change | None,
) -> Picture:
    """Convert a picture of a file to Y'CbCr in bands of rows, see `read_still`."""
    coefficients(matrix)  # checks the matrix of grey pictures too
    if change is None:
        return _convert_bands(still.bands(number), still.size, chroma, bit_depth, matrix, full_range)
    samples = change(still.read(number))
    size = samples.shape[1], samples.shape[0]
    return _convert_bands(split_rows(samples), size, chroma, bit_depth, matrix, full_range)


def _convert_bands(
    bands: Iterable[Samples], size: tuple[int, int], chroma: str | None, bit_depth: int, matrix: str, full_range: bool
) -> Picture:
    """Convert bands of rows, all but the last of an even number of rows, to one picture of `size`."""
    planes: tuple[Plane, ...] = ()
    tops: list[int] = []
    for band in bands:
        if band.ndim == 3:
            options: dict[str, Any] = {"bit_depth": bit_depth, "matrix": matrix, "full_range": full_range}
            converted = rgb_to_ycbcr(band, chroma=chroma or "420", **options).planes
        else:
            converted = _convert_grey(band, chroma or "400", bit_depth, full_range)
        if not planes:
            form = VideoFormat(*size, chroma or ("400" if band.ndim == 2 else "420"), bit_depth)
            planes = tuple(np.empty(shape, form.dtype) for shape in form.plane_shapes)
            tops = [0] * len(planes)
        for index, (plane, part) in enumerate(zip(planes, converted, strict=True)):
            plane[tops[index] : tops[index] + len(part)] = part
            tops[index] += len(part)
    return Picture(planes, bit_depth)


def _convert_grey(samples: Samples, chroma: str, bit_depth: int, full_range: bool) -> tuple[Plane, ...]:
    height, width = samples.shape
    form = VideoFormat(width, height, chroma=chroma, bit_depth=bit_depth)
    luma = quantise_luma(samples.astype(np.float64) / np.iinfo(samples.dtype).max, bit_depth, full_range)
    planes = (luma.astype(form.dtype),)
    return planes if chroma == "400" else planes + neutral_chroma(form)


def still_format(path: Path, *, chroma: str | None = None, bit_depth: int = 10) -> tuple[VideoFormat, int]:
    """Return the geometry and the number of pictures of a file or folder, by headers alone; options as `read_still`.

    Raises:
        CodecnnError: As `check_stills`.
    """
    check_stills(path)
    paths = stills_in(path) if path.is_dir() else [path]
    still = _open(paths[0])
    form = VideoFormat(*still.size, chroma or ("400" if still.grey else "420"), bit_depth)
    return form, len(paths) if path.is_dir() else still.count


def count_stills(path: Path | str) -> int:
    """Return the number of pictures in a file of still pictures, read from its header.

    Raises:
        CodecnnError: As `read_still`.
    """
    return _open(Path(path)).count


def check_stills(path: Path) -> None:
    """Check by their headers that the pictures of a file or folder can be read as one video; raises as `open_video`."""
    if not path.is_dir():
        _open(path)
        return
    paths = stills_in(path)
    size = _stored_size(paths[0])
    for each in paths:
        _check_same(each, _stored_size(each), paths[0], size)


def open_still(
    path: Path | str,
    *,
    chroma: str | None = None,
    bit_depth: int = 10,
    matrix: str = "bt709",
    full_range: bool = False,
    change: Change | None = None,
) -> Video:
    """Read a file of still pictures as a video: the pages of a TIFF file, the frames of an animation, or one picture.

    The options and errors are those of `read_still`. Several pictures are read and converted each time they are
    accessed; reading one raises FormatError if it is damaged or of another chroma format than the first.
    """
    path = Path(path)
    still = _open(path)
    first = _convert(still, 0, chroma, bit_depth, matrix, full_range, change)
    video_format = _format_of(first, chroma)

    def read(number: int) -> tuple[Plane, ...]:
        if number == 0:
            return first.planes
        picture = _convert(still, number, chroma, bit_depth, matrix, full_range, change)
        actual = _format_of(picture, chroma)
        if actual != video_format:
            raise FormatError(f"{path} has a picture {number} of {actual}, but its first picture is {video_format}")
        return picture.planes

    return Video(path, video_format, read, still.count)


def open_still_folder(folder: Path | str, *, chroma: str | None = None, **options: Any) -> Video:
    """Open the still pictures of a folder as one video, in natural order of their names (im2.png before im10.png).

    A picture is read and converted each time it is accessed, so memory holds one. Hidden files, subfolders and names
    without a suffix of `STILL_SUFFIXES` are ignored. The first picture determines the size and, unless `chroma` is
    given, the chroma format.

    Args:
        folder: The folder.
        chroma: Chroma format, as for `read_still`.
        options: Other options of `read_still`.

    Raises:
        MissingFileError: The folder cannot be read.
        FormatError: The folder has no picture, or one of another size. Reading a picture raises it if the picture is
            damaged or of another chroma format.
    """
    folder = Path(folder)
    paths = stills_in(folder)
    video_format = _format_of(read_still(paths[0], chroma=chroma, **options), chroma)
    check_stills(folder)

    def read(number: int) -> tuple[Plane, ...]:
        picture = read_still(paths[number], chroma=chroma, **options)
        _check_same(paths[number], str(_format_of(picture, chroma)), paths[0], str(video_format))
        return picture.planes

    return Video(folder, video_format, read, len(paths))


def stills_in(folder: Path) -> list[Path]:
    """List the still pictures of a folder in natural order of their names.

    Raises:
        MissingFileError: The folder cannot be read.
        FormatError: The folder has no still picture.
    """
    try:
        paths = [
            path
            for path in folder.iterdir()
            if path.suffix.lower() in STILL_SUFFIXES and not path.name.startswith(".") and path.is_file()
        ]
    except OSError as error:
        raise MissingFileError(f"{folder} cannot be read: {error.strerror}") from error
    if not paths:
        kinds = ", ".join(sorted(STILL_SUFFIXES))
        raise FormatError(f"{folder} is a directory without still pictures ({kinds}), not a file of pictures")
    return sorted(paths, key=lambda path: _natural_key(path.name))


def _natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that compares numbers in names by value; the name itself orders im1 and im01."""
    parts = re.split(r"(\d+)", name.lower(), flags=re.ASCII)
    # Even positions hold text and odd positions numbers, so keys compare like with like. Without leading zeros a longer
    # number is larger; int() is avoided because it refuses thousands of digits.
    keys = [(len(digits := part.lstrip("0")), digits) if place % 2 else (0, part) for place, part in enumerate(parts)]
    return keys, name


def _stored_size(path: Path) -> str:
    """Return "WxH" of the one picture in a file, upright, without reading its samples."""
    still = _open(path)
    if still.count > 1:
        raise FormatError(f"{path} holds {still.count} pictures: the files of a folder hold one picture each")
    return f"{still.size[0]}x{still.size[1]}"


def _check_same(path: Path, actual: str, first: Path, expected: str) -> None:
    if actual != expected:
        raise FormatError(f"{path} is {actual}, but {first.name}, the first of its folder, is {expected}")


def _format_of(picture: Picture, chroma: str | None) -> VideoFormat:
    height, width = picture.y.shape
    return VideoFormat(width, height, chroma or ("400" if picture.u is None else "420"), picture.bit_depth)
