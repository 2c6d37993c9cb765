"""Still pictures (PNG, JPEG, TIFF, BMP, WebP) as Y'CbCr."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import EncoderError, FormatError
from codecnn.video.colour import neutral_chroma, quantise_luma, rgb_to_ycbcr
from codecnn.video.ffmpeg import decode
from codecnn.video.formats import VideoFormat
from codecnn.video.picture import Picture
from codecnn.video.raw import Video, map_file

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

_DEEP_PNG_LAYOUTS = {2: ("rgb48le", 3), 4: ("ya16le", 2), 6: ("rgba64le", 4)}
"""PNG colour type -> ffmpeg's layout and its channels, for the 16-bit types that Pillow cuts to 8 bit."""


def read_still(
    path: Path | str,
    *,
    chroma: str | None = None,
    bit_depth: int = 10,
    matrix: str = "bt709",
    full_range: bool = False,
) -> Picture:
    """Read a still picture as Y'CbCr, by default 420 (grey pictures: 400), 10 bit, BT.709, limited range.

    Colour is converted as `rgb_to_ycbcr` tells, from all bits the file has (16-bit PNG and TIFF too). A grey picture
    gets neutral chroma where a chroma format other than 400 is asked for. Palettes are expanded. Alpha is dropped
    without compositing: the colour that is stored under it is taken. Rotation tags and colour profiles are not applied.
    Raises FormatError when the file is damaged, holds several pictures, or CMYK or float samples.
    """
    path = Path(path)
    samples = _without_alpha(_read_samples(path), path)
    if samples.ndim == 3:
        return rgb_to_ycbcr(samples, chroma=chroma or "420", bit_depth=bit_depth, matrix=matrix, full_range=full_range)
    height, width = samples.shape
    video_format = VideoFormat(width, height, chroma=chroma or "400", bit_depth=bit_depth)
    luma = quantise_luma(samples.astype(np.float64) / np.iinfo(samples.dtype).max, bit_depth, full_range)
    planes = (luma.astype(video_format.dtype),)
    return Picture(planes if video_format.chroma == "400" else planes + neutral_chroma(video_format), bit_depth)


def open_still(path: Path | str, *, chroma: str | None = None, bit_depth: int | None = None) -> Video:
    """A still picture as a video of one picture, converted as `read_still` does by default."""
    path = Path(path)
    picture = read_still(path, chroma=chroma, bit_depth=10 if bit_depth is None else bit_depth)
    height, width = picture.y.shape
    if chroma is None:
        chroma = "400" if picture.u is None else "420"
    video_format = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    data = np.concatenate([plane.reshape(-1).view(np.uint8) for plane in picture.planes])
    data.flags.writeable = False
    return Video(path, video_format, data, [0])


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
        samples: NDArray[Any] = imread(str(path.absolute()))
    except Exception as error:  # the readers' own errors are of any type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path} cannot be read as a picture: {reason}") from error
    if samples.dtype == np.bool_:
        samples = samples.astype(np.uint8) * 255
    if samples.dtype not in (np.uint8, np.uint16):
        raise FormatError(f"{path} has samples of type {samples.dtype}: only 8 and 16 bit integers can be read")
    return samples


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
