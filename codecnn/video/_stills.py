"""Still pictures (PNG, JPEG, TIFF, BMP, WebP), or folders of them, as Y'CbCr."""

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
from codecnn.video._colour import coefficients, neutral_chroma, quantise_luma, rgb_to_ycbcr
from codecnn.video._ffmpeg import decode
from codecnn.video._formats import VideoFormat
from codecnn.video._video import Video
from codecnn.video.picture import Picture, Plane
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
STILL_SUFFIXES = frozenset(_SIGNATURES)

Change = Callable[[NDArray[Any]], NDArray[Any]]
"""What is done to stored samples, uint8 or uint16 of their whole range, before they become Y'CbCr."""

_DEEP_PNG_LAYOUTS = {2: ("rgb48le", 3), 4: ("ya16le", 2), 6: ("rgba64le", 4)}
"""PNG colour type -> ffmpeg's layout and its channels, for the 16-bit types that Pillow cuts to 8 bit."""


def read_still(
    path: Path | str,
    *,
    chroma: str | None = None,
    bit_depth: int = 10,
    matrix: str = "bt709",
    full_range: bool = False,
    change: Change | None = None,
) -> Picture:
    """Read a still picture as Y'CbCr, by default 420 (grey pictures: 400), 10 bit, BT.709, limited range.

    Colour is converted as `rgb_to_ycbcr` tells, from all bits the file has (16-bit PNG and TIFF too). A grey picture
    gets neutral chroma where a chroma format other than 400 is asked for. Palettes are expanded. Alpha is dropped
    without compositing: the colour that is stored under it is taken. Rotation tags and colour profiles are not applied.
    `change` is given the samples as they are stored, (h, w, 3) or grey (h, w), and what it returns is converted.
    Raises FormatError when the file is damaged, holds several pictures, or CMYK or float samples, ConfigError for a
    matrix that does not exist.
    """
    path = Path(path)
    coefficients(matrix)  # a grey picture does not ask for them
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
    """A still picture as a video of one picture, read and converted at once, by the options of `read_still`."""
    path = Path(path)
    picture = read_still(path, chroma=chroma, **options)
    return Video(path, _format_of(picture, chroma), lambda _: picture.planes, 1)


def open_still_folder(folder: Path | str, *, chroma: str | None = None, **options: Any) -> Video:
    """The still pictures of a folder as one video, in natural order of their names: im2.png stands before im10.png.

    A picture is read and converted, by the options of `read_still`, each time it is asked for: memory holds one.
    Hidden files, folders and names that do not end as a still picture's are passed over; the first picture tells size
    and, where `chroma` does not, the chroma format. Raises FormatError when there is no picture or one of another
    size, and, once it is read, for a picture that is damaged or of another chroma format; MissingFileError when the
    folder may not be read.
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
    """The still pictures of a folder, in natural order of their names. Raises as `open_still_folder` does."""
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
    return sorted(paths, key=lambda path: _natural(path.name))


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sorts numbers in names by value; the name itself decides between im1 and im01."""
    parts = re.split(r"(\d+)", name.lower(), flags=re.ASCII)
    # Texts stand at even places and numbers at odd ones, so two names compare like with like. A number without leading
    # zeros is the larger the longer it is: this does not end in int(), which refuses thousands of digits.
    keys = [(len(digits := part.lstrip("0")), digits) if place % 2 else (0, part) for place, part in enumerate(parts)]
    return keys, name


def _stored_size(path: Path) -> str:
    """WxH from a still's header, without reading its samples."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            # A picture that is merely large is told when it is read.
            warnings.simplefilter("ignore")
            return f"{image.width}x{image.height}"
    except Exception as error:  # the readers' own errors are of any type
        raise FormatError(f"{path} cannot be read as a picture") from error


def _check_same(path: Path, found: str, first: Path, wanted: str) -> None:
    if found != wanted:
        raise FormatError(f"{path} is {found}, but {first.name}, the first of its folder, is {wanted}")


def _format_of(picture: Picture, chroma: str | None) -> VideoFormat:
    height, width = picture.y.shape
    return VideoFormat(width, height, chroma or ("400" if picture.u is None else "420"), picture.bit_depth)


def _read_samples(path: Path) -> NDArray[Any]:
    """(h, w) grey or (h, w, channels) as stored, uint8 or uint16."""
    head = map_file(path)[:32].tobytes()
    # Checked here because imread tries some thirty plugins on a file that is not what its name says.
    if not head.startswith(_SIGNATURES.get(path.suffix.lower(), ())):
        raise FormatError(f"{path} is not a {path.suffix.lower().lstrip('.').upper()} picture, whatever its name says")
    if path.suffix.lower() == ".png" and head[24:25] == b"\x10" and head[25] in _DEEP_PNG_LAYOUTS:
        return _read_deep_png(path, head)
    from skimage.io import imread

    try:
        if path.suffix.lower() in (".tif", ".tiff"):
            _check_tiff(path)
        samples: NDArray[Any] = imread(str(path.absolute()))
    except Exception as error:  # the readers' own errors are of any type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path} cannot be read as a picture: {reason}") from error
    if samples.dtype == np.bool_:
        samples = samples.astype(np.uint8) * 255
    if samples.dtype not in (np.uint8, np.uint16):
        raise FormatError(f"{path} has samples of type {samples.dtype}: only 8 and 16 bit integers can be read")
    return samples


def _check_tiff(path: Path) -> None:
    """Raise ValueError where strips or tiles are missing: the reader would fill them with zeros, a billion of them."""
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
    """(h, w) or (h, w, 3) from what was read."""
    if samples.ndim == 2:
        return samples
    if samples.ndim != 3 or samples.shape[2] not in (1, 2, 3, 4):
        raise FormatError(f"{path} holds samples of shape {samples.shape}, not one grey or colour picture")
    channels = samples.shape[2]
    if channels == 4 and path.suffix.lower() in (".jpg", ".jpeg"):
        raise FormatError(f"{path} is a CMYK picture: convert it to RGB first")
    return samples[:, :, 0] if channels < 3 else samples[:, :, :3]
