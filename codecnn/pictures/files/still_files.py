"""Files of still pictures (JPEG, BMP, WebP, GIF): the samples that a viewer would show.

Samples are upright and use the whole range of their type. Palettes are expanded, rotation tags are applied, and pages
or frames are separate pictures; a file that cannot be read so is refused. Where a file holds more than its samples
(transparency, a colour profile), a warning names it. `png` and `tiff` do the same for files of PNG and TIFF.
"""

import contextlib
import functools
import importlib.util
import io
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, UnidentifiedImageError

from codecnn.base.errors import FormatError
from codecnn.pictures.files.bands import Samples, band_rows, joined_rows, split_rows
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.raw import map_file

SIGNATURES = {
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "BMP": (b"BM",),
    "WebP": (b"RIFF",),
    "GIF": (b"GIF87a", b"GIF89a"),
}
"""Kind of file -> possible first bytes."""

_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"mif2", b"msf1", b"avif", b"avis")

_JPEG_METADATA = frozenset(range(0xE1, 0xF0)) - {0xEE} | {0xFE}
"""Second byte of the markers of comments and of APP1 to APP15, except Adobe's APP14, which decides the colours."""

_JPEG_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])", re.DOTALL)
"""Marker behind the start of a scan, whose data contain restart markers and 0xFF followed by 0 only."""
_END_OF_IMAGE = 0xD9

_PROFILE_TOLERANCE = 4
"""Largest difference of 8-bit values at which a colour profile is taken for sRGB."""
_BIT_12 = 1 << 12
"""16-bit samples that are all below this value may be samples of 10 or 12 bits."""


@dataclass(frozen=True)
class StillFile:
    """A file of one or several still pictures, known by its header.

    Attributes:
        path: The file.
        size: Width and height of each picture in samples, upright.
        channels: Number of channels as stored, 3 for a palette.
        grey: The pictures are grey; of an animation this holds for the first frame.
        orientations: Orientation of each picture, see `upright`.
        stored_bands: Function that yields the samples of a picture as stored, given its number, in bands of rows from
            top to bottom. All bands but the last have an even number of rows.
    """

    path: Path
    size: tuple[int, int]
    channels: int
    grey: bool
    orientations: tuple[int, ...]
    stored_bands: Callable[[int], Iterator[Samples]]

    @property
    def count(self) -> int:
        """Number of pictures (pages or frames)."""
        return len(self.orientations)

    def bands(self, number: int) -> Iterator[Samples]:
        """Yield the upright samples of a picture in bands of rows, all but the last of an even number of rows.

        Memory holds a band, or the whole picture if its kind of file or its rotation asks for that.
        """
        if self.orientations[number] == 1:
            yield from self.stored_bands(number)
        else:
            yield from split_rows(self.read(number))

    def read(self, number: int) -> Samples:
        """Return the upright samples of a picture."""
        return upright(np.concatenate(list(self.stored_bands(number))), self.orientations[number])


def still_kind(path: Path) -> str | None:
    """Return the kind of still picture by the content of a file, a key of `SIGNATURES`, or None.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is empty or not a regular file, or it is a HEIF or AVIF picture.
    """
    head = map_file(path)[:16].tobytes()
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS:
        raise FormatError(f"{path} is a HEIF or AVIF picture, which codecnn does not read: convert it to PNG")
    for kind, signatures in SIGNATURES.items():
        if head.startswith(signatures) and (kind != "WebP" or head[8:12] == b"WEBP"):
            return kind
    return None


def open_still_file(path: Path, kind: str) -> StillFile:
    """Read the header of a file of still pictures.

    Args:
        path: The file.
        kind: Its kind, a key of `SIGNATURES` except PNG and TIFF.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is damaged or holds pictures that codecnn does not read. Reading a picture raises it if
            its samples are damaged.
    """
    if kind == "JPEG":
        return _open_jpeg(path)
    with readable(path), opened(path) as image:
        size, count, mode = image.size, getattr(image, "n_frames", 1), image.mode
        icc, exif = image.info.get("icc_profile"), image.info.get("exif")
    warn_of_profile(path, icc)
    parts = functools.partial(pillow_parts, path)
    return still_file(path, size, count, exif_orientation(exif), mode_channels(mode), parts)


def still_file(
    path: Path,
    size: tuple[int, int],
    count: int,
    orientation: int,
    channels: int,
    parts: Callable[[int], Iterator[NDArray[Any]]],
) -> StillFile:
    """Describe the pictures of a file.

    Args:
        path: The file.
        size: Width and height as stored.
        count: Number of pictures.
        orientation: Exif orientation.
        channels: Number of channels with alpha.
        parts: Function that yields the rows of a picture with alpha, given its number, in parts of any height.
    """

    def stored_bands(number: int) -> Iterator[Samples]:
        with readable(path):
            yield from watched((without_alpha(band, path) for band in joined_rows(parts(number))), path)

    upright = upright_size(size, orientation)
    return StillFile(path, upright, channels, channels < 3, (orientation,) * count, stored_bands)


def pillow_parts(source: Path | bytes, number: int = 0) -> Iterator[NDArray[Any]]:
    """Decode a picture by Pillow, and yield its rows with alpha in bands; `source` is a file or its bytes."""
    with opened(source) as image:
        image.seek(number)
        image.load()
        rows = band_rows(image.width)
        for top in range(0, image.height, rows):
            yield _pillow_samples(image.crop((0, top, image.width, min(top + rows, image.height))))


def mode_channels(mode: str) -> int:
    """Return the number of channels of Pillow's `mode`; those of a palette are its colours."""
    return {"1": 1, "L": 1, "LA": 2, "P": 3, "PA": 4, "RGB": 3}.get(mode, 4)


_pillow_lock = threading.Lock()
_pillow_limits: list[int | None] = []


@contextlib.contextmanager
def opened(source: Path | bytes) -> Iterator[Image.Image]:
    """Open a picture by Pillow without Pillow's limit of pixels, which has no override; `check_size` has ours."""
    with _pillow_lock:
        _pillow_limits.append(Image.MAX_IMAGE_PIXELS)
        Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            yield image
    finally:
        with _pillow_lock:
            # The first value is that of the user; others were stored while it was changed.
            limit = _pillow_limits[0]
            _pillow_limits.pop()
            if not _pillow_limits:
                Image.MAX_IMAGE_PIXELS = limit


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any error of a reader into a FormatError that names the file."""
    try:
        yield
    except (FormatError, MemoryError):
        raise
    except (UnidentifiedImageError, struct.error) as error:
        # Their messages name objects in memory.
        raise FormatError(f"{path} cannot be read as a picture: its header is damaged or of an unknown kind") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path} cannot be read as a picture: {reason}") from error


def upright_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return the (width, height) of a picture after `upright`."""
    return (size[1], size[0]) if orientation > 4 else size


def upright(samples: Samples, orientation: int) -> Samples:
    """Rotate and mirror samples as the Exif and TIFF tag Orientation requires.

    Args:
        samples: Samples as stored.
        orientation: 1 to 8; 1 changes nothing.
    """
    if orientation in (5, 6, 7, 8):
        samples = samples.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return np.ascontiguousarray(samples)


def without_alpha(samples: NDArray[Any], path: Path) -> Samples:
    """Drop the alpha channel; a warning says so unless all samples are opaque.

    Args:
        samples: Shape (h, w), or (h, w, channels); of 2 and 4 channels the last is alpha.
        path: The file, for the warning.

    Returns:
        Samples of shape (h, w) or (h, w, 3).
    """
    if samples.ndim == 2:
        return samples
    channels = samples.shape[2]
    if channels in (2, 4) and samples[:, :, -1].min() < np.iinfo(samples.dtype).max:
        warn(f"{path} has transparent samples: the colours stored under them are used as if they were opaque")
    return samples[:, :, 0] if channels < 3 else samples[:, :, :3]


def watched(bands: Iterable[Samples], path: Path) -> Iterator[Samples]:
    """Yield bands, and warn of 16-bit samples that may be samples of 10 or 12 bits, as cameras often store them."""
    largest = 0
    for band in bands:
        if band.dtype == np.uint16:
            largest = max(largest, int(band.max()))
        yield band
    if np.iinfo(np.uint8).max < largest < _BIT_12:
        warn(
            f"{path} has 16-bit samples of at most {largest}, which is nearly black: if they are samples of fewer "
            "bits, scale them to 16 bits first"
        )


def warn_of_profile(path: Path, icc: bytes | None) -> None:
    """Warn of a colour profile by which samples are not sRGB; a damaged profile is ignored.

    The sample pictures of scikit-image are exempt: nobody can convert them, and their colours do not matter.
    """
    if icc and (name := _foreign_profile(icc)) and not _is_sample(path):
        warn(
            f"{path} has the colour profile {name!r}, which is not applied: its samples are read as sRGB; convert the "
            "picture to sRGB if its colours matter"
        )


def _is_sample(path: Path) -> bool:
    """Return whether a file is a sample picture of scikit-image."""
    package = importlib.util.find_spec("skimage")
    return package is not None and package.origin is not None and path.is_relative_to(Path(package.origin).parent)


@functools.lru_cache(maxsize=64)
def _foreign_profile(icc: bytes) -> str | None:
    """Return the description of a profile that changes colours by more than `_PROFILE_TOLERANCE` to sRGB, or None."""
    try:
        profile = ImageCms.getOpenProfile(io.BytesIO(icc))
        grey = profile.profile.xcolor_space.strip() == "GRAY"
        levels = np.arange(0, 256, 51, dtype=np.uint8)
        grid = levels[None] if grey else np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
        source = Image.fromarray(grid)
        shown = ImageCms.profileToProfile(source, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
        # A transformation that is not done in place returns a picture.
        assert shown is not None
        difference = np.abs(np.asarray(source.convert("RGB")).astype(int) - np.asarray(shown)).max()
        return ImageCms.getProfileDescription(profile).strip() if difference > _PROFILE_TOLERANCE else None
    except Exception:  # damaged profiles raise errors of any type
        return None


def _exif(data: bytes) -> Image.Exif:
    exif = Image.Exif()
    exif.load(data)
    return exif


def exif_orientation(exif: bytes | None) -> int:
    """Return the Exif orientation, 1 to 8; damaged or missing Exif data are orientation 1."""
    with contextlib.suppress(Exception):
        if exif and (value := int(_exif(exif).get(0x0112, 1))) in range(1, 9):
            return value
    return 1


def _open_jpeg(path: Path) -> StillFile:
    """Open a JPEG without its metadata, so that damaged ones do not cost a sound picture."""
    data = map_file(path)
    segments = list(_jpeg_segments(data))
    metadata = [data[start + 4 : end].tobytes() for start, end in segments if data[start + 1] in _JPEG_METADATA]
    exif = next((body for body in metadata if body.startswith(b"Exif\0\0")), None)
    # A profile is divided into segments: the mark, its number, the number of segments, its part.
    parts = sorted(body[12:] for body in metadata if body.startswith(b"ICC_PROFILE\0"))
    icc = b"".join(part[2:] for part in parts) or None

    def clean() -> bytes:
        pieces, done = [], 0
        for start, end in segments:
            if data[start + 1] in _JPEG_METADATA:
                pieces.append(data[done:start])
                done = end
        return b"".join(piece.tobytes() for piece in (*pieces, data[done:]))

    with readable(path), opened(clean()) as image:
        size, mode = image.size, image.mode
    if mode == "CMYK":
        raise FormatError(f"{path} is a CMYK picture: convert it to RGB first")
    if any(body.startswith(b"MPF\0") for body in metadata):
        _check_multi_picture(path)
    elif data[_jpeg_end(data) :][:64].tobytes().lstrip(b"\0\xff")[:1] == b"\xd8":
        raise FormatError(
            f"{path} holds several JPEG pictures one after another: end its name in .mjpeg if it is Motion JPEG, or "
            "save each picture as a file of its own"
        )
    warn_of_profile(path, icc)
    with contextlib.suppress(Exception):
        # Exif data state Adobe RGB in the interoperability directory (DCF 2.0).
        if icc is None and exif and _exif(exif).get_ifd(0xA005).get(1) == "R03":
            warn(f"{path} has samples in Adobe RGB by its Exif data, which are read as sRGB: convert it to sRGB first")
    channels = mode_channels(mode)
    return still_file(path, size, 1, exif_orientation(exif), channels, lambda _: pillow_parts(clean()))


def _jpeg_segments(data: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each segment of a JPEG between its first marker and the first scan."""
    start = 2
    while start + 4 <= data.size and data[start] == 0xFF and data[start + 1] != 0xDA:
        if data[start + 1] == 0xFF:
            start += 1
            continue
        end = start + 2 + int.from_bytes(data[start + 2 : start + 4].tobytes(), "big")
        if end > data.size:
            return
        yield start, end
        start = end


def _jpeg_end(data: NDArray[np.uint8]) -> int:
    """Return the offset of the first byte behind the first picture of a JPEG; the size of the file if it is cut."""
    start = max((end for _, end in _jpeg_segments(data)), default=2)
    while (match := _JPEG_MARKER.search(data.data, start)) is not None:
        if match[1][0] == _END_OF_IMAGE:
            return match.end()
        # Tables and the headers of further scans have a length; 0x01 is a marker alone.
        length = int.from_bytes(data[match.end() : match.end() + 2].tobytes(), "big") if match[1][0] > 1 else 0
        start = match.end() + length
    return data.size


def _check_multi_picture(path: Path) -> None:
    """Check the other pictures of a JPEG in Multi-Picture Format (CIPA DC-007): only the first one is read.

    Raises:
        FormatError: The pictures are views of one scene, e.g. a stereo pair.
    """
    kinds: list[str] = []
    with contextlib.suppress(Exception), Image.open(path) as image:
        kinds = [str(entry["Attribute"]["MPType"]) for entry in getattr(image, "mpinfo", {})[0xB002]]
    if any(kind.startswith("Multi-Frame") for kind in kinds):
        raise FormatError(f"{path} holds {len(kinds)} JPEG pictures of one scene: extract them into files of their own")
    if not all(kind.startswith("Large Thumbnail") for kind in kinds[1:]):
        warn(f"{path} holds {len(kinds)} JPEG pictures, such as a gain map: only the first is read")


def _pillow_samples(image: Image.Image) -> NDArray[Any]:
    """Return the samples of the current frame of an image, with palettes expanded and transparency as alpha."""
    transparent = "transparency" in image.info
    if image.mode == "1":
        return np.asarray(image).astype(np.uint8) * np.uint8(255)
    if image.mode in ("P", "PA") or (transparent and image.mode == "RGB"):
        image = image.convert("RGBA" if transparent or image.mode == "PA" else "RGB")
    elif transparent and image.mode == "L":
        image = image.convert("LA")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        # RGBX, La, RGBa and similar modes of Pillow, which its readers of these files do not return today.
        raise FormatError(f"pictures of mode {image.mode} are not supported: convert it to RGB")
    return np.array(image)
