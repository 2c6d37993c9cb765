"""TIFF files: pages as pictures, with each interpretation of samples read right or refused."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import FormatError
from codecnn.pictures.files import bands
from codecnn.pictures.files.bands import Samples, joined_rows
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.still_files import StillFile, readable, upright_size, warn_of_profile, watched

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_REFUSED = {
    4: "transparency mask",
    5: "CMYK",
    8: "Lab",
    9: "Lab",
    10: "Lab",
    32803: "raw camera",
    34892: "raw camera",
}
"""Photometric interpretations (tag 262) that have no R'G'B' without a colour profile or further processing."""
_BASE_CHANNELS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3, _PALETTE: 1, _YCBCR: 3}

_UNSIGNED, _UNDEFINED = 1, 4
_JPEG = 7
_PREMULTIPLIED = 1
"""Value of ExtraSamples (tag 338) for alpha by which the colours have been multiplied."""
_REDUCED, _MASK = 1, 4
"""Bits of NewSubfileType (tag 254) of pages that are not pictures of their own."""
_ORIENTATION, _PHOTOMETRIC, _ICC = 274, 262, 34675
_CONVERT = "convert it to 8- or 16-bit RGB or grey first"


def open_tiff(path: Path) -> StillFile:
    """Read the header of a TIFF file; each page is a picture, except reduced copies and masks.

    Args:
        path: The file.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is damaged or incomplete, holds pictures that codecnn does not read, or has pages of
            different sizes. Reading a page raises it if the samples of the page are damaged.
    """
    from tifffile import TiffFile

    with readable(path), TiffFile(path) as file:
        pages = [page.aspage() for page in file.pages]
        numbers = [number for number, page in enumerate(pages) if not page.subfiletype & (_REDUCED | _MASK)]
        if not numbers:
            raise FormatError(f"{path} holds only previews of a picture: {_CONVERT}")
        _check_stack(file, pages, path)
        for number in numbers:
            _check_page(pages[number], path)
        orientations = [_orientation(pages[number]) for number in numbers]
        sizes = [
            upright_size((pages[number].imagewidth, pages[number].imagelength), orientation)
            for number, orientation in zip(numbers, orientations, strict=True)
        ]
        if len(set(sizes)) > 1:
            listed = ", ".join(f"{width}x{height}" for width, height in dict.fromkeys(sizes))
            raise FormatError(f"{path} has pages of different sizes ({listed}): save each page as a file of its own")
        profiles = [tag.value for number in numbers if (tag := pages[number].tags.get(_ICC)) is not None]
    for icc in dict.fromkeys(profile for profile in profiles if isinstance(profile, bytes)):
        warn_of_profile(path, icc)

    def stored_bands(number: int) -> Iterator[Samples]:
        with readable(path), TiffFile(path) as file:
            page = file.pages[numbers[number]].aspage()
            yield from watched((_band_samples(band, page, path) for band in joined_rows(_parts(page, path))), path)

    first = pages[numbers[0]]
    grey = _BASE_CHANNELS[int(first.photometric)] == 1 and int(first.photometric) != _PALETTE
    channels = max(pages[number].samplesperpixel for number in numbers)
    return StillFile(path, sizes[0], channels, grey, tuple(orientations), stored_bands)


def _check_stack(file: Any, pages: Sequence[Any], path: Path) -> None:
    """Raise FormatError if the file holds pictures that its pages do not list, as ImageJ and MetaMorph write them."""
    listed = len(pages)
    metadata = file.imagej_metadata if file.is_imagej else None
    stated = int((metadata or {}).get("images", listed))
    if stated > listed or file.is_stk or any(page.imagedepth > 1 for page in pages):
        raise FormatError(
            f"{path} holds a stack of pictures that its TIFF pages do not list: save it with one page for each picture"
        )


def _check_page(page: Any, path: Path) -> None:
    """Raise FormatError for a page that `_page_samples` does not read right."""
    if not all(isinstance(value, int) for value in (page.imagewidth, page.imagelength, page.samplesperpixel)):
        raise FormatError(f"{path} cannot be read as a picture: its size is damaged")
    if _PHOTOMETRIC not in page.tags:
        raise FormatError(f"{path} does not state how its samples are to be interpreted (TIFF tag 262): {_CONVERT}")
    photometric, compression = int(page.photometric), int(page.compression)
    if photometric in _REFUSED:
        raise FormatError(f"{path} is a TIFF of {_REFUSED[photometric]} samples: {_CONVERT}")
    # Of YCbCr, tifffile converts JPEG without further channels alone to RGB.
    converted = compression == _JPEG and page.samplesperpixel == 3 and int(page.planarconfig) == 1
    if photometric not in _BASE_CHANNELS or (photometric == _YCBCR and not converted):
        name = getattr(page.photometric, "name", str(photometric))
        raise FormatError(f"{path} is a TIFF of photometric interpretation {name}: {_CONVERT}")
    if (kind := int(page.sampleformat)) not in (_UNSIGNED, _UNDEFINED):
        raise FormatError(f"{path} has samples of type {page.dtype or f'{kind} (TIFF tag 339)'}: {_CONVERT}")
    if not isinstance(page.bitspersample, int) or page.bitspersample > 16:
        raise FormatError(f"{path} has samples of {page.bitspersample} bits: {_CONVERT}")
    base = _BASE_CHANNELS[photometric]
    extra = page.samplesperpixel - base
    if extra < 0 or (base == 1 and extra > 1):
        raise FormatError(
            f"{path} has {page.samplesperpixel} channels that are not red, green and blue: save each as a grey picture"
        )
    _check_parts(page, path)


def _check_parts(page: Any, path: Path) -> None:
    """Raise FormatError if strips or tiles are missing, which tifffile would fill with zeros, however large."""
    size = path.stat().st_size
    parts = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    complete = len(parts) == functools.reduce(lambda product, count: product * count, page.chunked, 1)
    if not complete or any(count == 0 or start + count > size for start, count in parts):
        raise FormatError(f"{path} cannot be read as a picture: strips or tiles are missing")


def _orientation(page: Any) -> int:
    tag = page.tags.get(_ORIENTATION)
    with contextlib.suppress(TypeError, ValueError):
        if tag is not None and int(tag.value) in range(1, 9):
            return int(tag.value)
    return 1


def _parts(page: Any, path: Path) -> Iterator[NDArray[Any]]:
    """Yield the rows of a page as stored, shape (rows, w) or (rows, w, channels), by rows of strips or tiles."""
    if page.axes not in ("YX", "YXS", "SYX"):
        raise FormatError(f"{path} has samples of the dimensions {page.axes}: {_CONVERT}")
    height, width = page.imagelength, page.imagewidth
    if page.axes == "SYX" or len(page.dataoffsets) == 1 or height * width <= bands.WHOLE_SAMPLES:
        samples: NDArray[Any] = page.asarray()
        yield np.moveaxis(samples, 0, 2) if page.axes == "SYX" else samples
        return
    row: list[NDArray[Any]] = []
    # One thread decodes a segment when it is needed; several would decode many in advance.
    for segment, (_, _, top, left, _), _ in page.segments(maxworkers=1, buffersize=1 << 20):
        # Tiles extend beyond the edges of the picture.
        part = segment[0, : height - top, : width - left]
        row.append(part[:, :, 0] if page.axes == "YX" else part)
        if left + part.shape[1] == width:
            yield np.concatenate(row, axis=1)
            row = []


def _band_samples(samples: NDArray[Any], page: Any, path: Path) -> Samples:
    """Return the samples of rows of a page in the whole range of their type, shape (h, w) if grey, else (h, w, 3)."""
    photometric = int(page.photometric)
    base = _BASE_CHANNELS[photometric]
    if samples.ndim == 3:
        _check_extra_channels(samples[:, :, base:], page, path)
        samples = samples[:, :, 0] if base == 1 else samples[:, :, :3]
    if photometric == _PALETTE:
        return _colours(page, path)[samples.astype(np.intp)]
    samples = _whole_range(samples, page.bitspersample)
    return np.iinfo(samples.dtype).max - samples if photometric == _WHITE_IS_ZERO else samples


def _check_extra_channels(extra: NDArray[Any], page: Any, path: Path) -> None:
    """Warn of channels other than red, green, blue or grey unless they are opaque alpha; refuse premultiplied colours.

    Args:
        extra: Samples of these channels, shape (h, w, n), n may be 0.
        page: The page.
        path: The file.

    Raises:
        FormatError: The colours have been multiplied by alpha.
    """
    if extra.size == 0 or extra.min() == (1 << page.bitspersample) - 1:
        return
    kinds = [int(kind) for kind in page.extrasamples]
    if _PREMULTIPLIED in kinds:
        raise FormatError(f"{path} has transparent samples whose colours are multiplied by alpha: flatten it first")
    what = "transparent samples" if kinds else f"{extra.shape[2]} channels besides its colours"
    warn(f"{path} has {what}: the colours are used as stored, as if they were opaque")


def _colours(page: Any, path: Path) -> NDArray[Any]:
    """Return the palette of a page, shape (n, 3), in 8 bits if its 16-bit values are 8-bit values."""
    palette = page.colormap
    if palette is None or palette.shape[0] != 3 or palette.shape[1] < 1 << page.bitspersample:
        raise FormatError(f"{path} cannot be read as a picture: its palette is missing or too short")
    colours: NDArray[Any] = np.moveaxis(palette, 0, 1).astype(np.uint16)
    # Writers of 8-bit palettes repeat the byte, shift it by 8, or leave it as it is against the standard.
    if colours.max() < 1 << 8:
        return colours.astype(np.uint8)
    for scale in (257, 256):
        if not (colours % scale).any():
            return (colours // scale).astype(np.uint8)
    return colours


def _whole_range(samples: NDArray[Any], bits: int) -> Samples:
    """Scale samples of `bits` bits to the whole range of uint8 or uint16."""
    dtype, peak = (np.uint8, 255) if bits <= 8 else (np.uint16, 65535)
    largest = (1 << bits) - 1
    if largest == peak:
        return samples.astype(dtype, copy=False)
    return ((samples.astype(np.uint32) * peak + largest // 2) // largest).astype(dtype)
