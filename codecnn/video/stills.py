"""Still pictures (PNG, JPEG, TIFF, BMP, WebP), and folders of them, as Y'CbCr."""

import math
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import EncoderError, FormatError, MissingFileError
from codecnn.video.colour import coefficients, neutral_chroma, quantise_luma, rgb_to_ycbcr
from codecnn.video.ffmpeg import decode
from codecnn.video.formats import VideoFormat
from codecnn.video.pictures import Picture, Plane, Video
from codecnn.video.raw import map_file

_SIGNATURES = {
    ".png": (b"\x89PNG\r\n\x1a\n",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".tif": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    ".tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    ".bmp": (b"BM",),
    ".webp": (b"RIFF",),
}
"""File name suffix -> possible first bytes of the file."""

STILL_SUFFIXES = frozenset(_SIGNATURES)
"""Lower-case suffixes of the still pictures that can be read."""

Change = Callable[[NDArray[Any]], NDArray[Any]]
"""Function applied to stored samples (uint8 or uint16, whole range) before they are converted to Y'CbCr."""

_DEEP_PNG_LAYOUTS = {2: ("rgb48le", 3), 4: ("ya16le", 2), 6: ("rgba64le", 4)}
"""PNG colour type -> (ffmpeg's pixel format, channels), for the 16-bit types that Pillow reduces to 8 bit."""


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

    The conversion is that of `rgb_to_ycbcr` and uses the full precision of the file, including 16-bit PNG and TIFF.
    Palettes are expanded. Alpha is dropped without compositing: the colour stored under it is used. Rotation tags and
    colour profiles are not applied.

    Args:
        path: A file with one of `STILL_SUFFIXES`.
        chroma: Chroma format of the picture; by default 420, and 400 for a grey picture. A grey picture has neutral
            chroma planes if a chroma format other than 400 is given.
        bit_depth: Bits per sample of the picture.
        matrix: Name of the colour matrix: bt601, bt709 or bt2020.
        full_range: Quantise to the full range instead of the limited range.
        change: Function applied to the samples as stored, shape (h, w, 3) or, if grey, (h, w); its result is converted.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is damaged, or holds several pictures, CMYK or float samples.
        ConfigError: The matrix is unknown.
    """
    path = Path(path)
    coefficients(matrix)  # checks the matrix of grey pictures too
    samples = _without_alpha(_read_samples(path), path)
    if change is not None:
        samples = change(samples)
    if samples.ndim == 3:
        return rgb_to_ycbcr(samples, chroma=chroma or "420", bit_depth=bit_depth, matrix=matrix, full_range=full_range)
    height, width = samples.shape
    video_format = VideoFormat(width, height, chroma=chroma or "400", bit_depth=bit_depth)
    luma = quantise_luma(samples.astype(np.float64) / np.iinfo(samples.dtype).max, bit_depth, full_range)
    planes = (luma.astype(video_format.dtype),)
    return Picture(planes if video_format.chroma == "400" else planes + neutral_chroma(video_format), bit_depth)


def open_still(path: Path | str, *, chroma: str | None = None, **options: Any) -> Video:
    """Read a still picture as a video of one picture, with the options and errors of `read_still`."""
    path = Path(path)
    picture = read_still(path, chroma=chroma, **options)
    return Video(path, _format_of(picture, chroma), lambda _: picture.planes, 1)


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
    size = _stored_size(paths[0])
    for path in paths:
        _check_same(path, _stored_size(path), paths[0], size)

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
    """Return "WxH" from a still picture's header, without reading its samples."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            # Pillow warns of very large pictures; the warning appears when the picture is read.
            warnings.simplefilter("ignore")
            return f"{image.width}x{image.height}"
    except Exception as error:  # the readers raise errors of any type
        raise FormatError(f"{path} cannot be read as a picture") from error


def _check_same(path: Path, actual: str, first: Path, expected: str) -> None:
    if actual != expected:
        raise FormatError(f"{path} is {actual}, but {first.name}, the first of its folder, is {expected}")


def _format_of(picture: Picture, chroma: str | None) -> VideoFormat:
    height, width = picture.y.shape
    return VideoFormat(width, height, chroma or ("400" if picture.u is None else "420"), picture.bit_depth)


def _read_samples(path: Path) -> NDArray[Any]:
    """Read samples as stored: uint8 or uint16, shape (h, w) if grey, else (h, w, channels)."""
    head = map_file(path)[:32].tobytes()
    # Checked here because imread tries about thirty plugins on a file whose content does not match its name.
    if not head.startswith(_SIGNATURES.get(path.suffix.lower(), ())):
        raise FormatError(f"{path} is not a {path.suffix.lower().lstrip('.').upper()} picture, despite its name")
    if path.suffix.lower() == ".png" and head[24:25] == b"\x10" and head[25] in _DEEP_PNG_LAYOUTS:
        return _read_deep_png(path, head)
    from skimage.io import imread

    try:
        if path.suffix.lower() in (".tif", ".tiff"):
            _check_tiff(path)
        samples: NDArray[Any] = imread(str(path.absolute()))
    except Exception as error:  # the readers raise errors of any type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path} cannot be read as a picture: {reason}") from error
    if samples.dtype == np.bool_:
        samples = samples.astype(np.uint8) * 255
    if samples.dtype not in (np.uint8, np.uint16):
        raise FormatError(f"{path} has samples of type {samples.dtype}: only 8 and 16 bit integers can be read")
    return samples


def _check_tiff(path: Path) -> None:
    """Raise ValueError if strips or tiles are missing, which the reader would fill with zeros, however large."""
    from tifffile import TiffFile

    with TiffFile(path) as file:
        size = path.stat().st_size
        for page in file.pages:
            parts = list(zip(page.dataoffsets, page.databytecounts, strict=True))
            if len(parts) != math.prod(page.chunked) or any(
                count == 0 or start + count > size for start, count in parts
            ):
                raise ValueError("strips or tiles are missing")


def _read_deep_png(path: Path, head: bytes) -> NDArray[Any]:
    """Read a 16-bit PNG of a type in `_DEEP_PNG_LAYOUTS` through ffmpeg; `head` is the start of the file."""
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    layout, channels = _DEEP_PNG_LAYOUTS[head[25]]
    with tempfile.TemporaryDirectory(prefix="codecnn-", ignore_cleanup_errors=True) as folder:
        decoded = Path(folder) / "decoded.raw"
        # The demuxer is named because ffmpeg would take a % in the name for the pattern of a numbered series.
        try:
            decode(path, layout, decoded, demuxer="png_pipe")
        except EncoderError as error:
            raise FormatError(f"{path} cannot be read as a picture: {error}") from error
        samples = np.fromfile(decoded, dtype="<u2")
    if samples.size != height * width * channels:
        raise FormatError(f"{path} does not hold one picture of {width}x{height}")
    return samples.reshape(height, width, channels)


def _without_alpha(samples: NDArray[Any], path: Path) -> NDArray[Any]:
    """Reduce the samples read from `path` to shape (h, w) or (h, w, 3)."""
    if samples.ndim == 2:
        return samples
    if samples.ndim != 3 or samples.shape[2] not in (1, 2, 3, 4):
        raise FormatError(f"{path} holds samples of shape {samples.shape}, not one grey or colour picture")
    channels = samples.shape[2]
    if channels == 4 and path.suffix.lower() in (".jpg", ".jpeg"):
        raise FormatError(f"{path} is a CMYK picture: convert it to RGB first")
    return samples[:, :, 0] if channels < 3 else samples[:, :, :3]
