"""Conversion of pictures between R'G'B' and Y'CbCr in float64, with the matrices of `codecnn.pictures.files.rgb`."""

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import FormatError
from codecnn.pictures.files.formats import CHROMA_SUBSAMPLING, VideoFormat
from codecnn.pictures.files.pictures import Picture, Plane
from codecnn.pictures.files.rgb import coefficients, planes_to_rgb, value_ranges

Real = NDArray[np.float64]


def rgb_to_ycbcr(
    rgb: NDArray[np.uint8] | NDArray[np.uint16],
    *,
    chroma: str = "420",
    bit_depth: int = 10,
    matrix: str = "bt709",
    full_range: bool = False,
) -> Picture:
    """Convert R'G'B' samples to a Y'CbCr picture, with one rounding at the end.

    Chroma is subsampled to location type 0 of H.266 (between the rows, on the even columns): [1 2 1] / 4 across and
    the mean of two rows down, with the edge replicated.

    Args:
        rgb: Samples of shape (h, w, 3) that use the whole range of their type.
        chroma: Chroma format of the picture.
        bit_depth: Bits per sample of the picture.
        matrix: Name of the colour matrix, a key of `codecnn.pictures.files.rgb.MATRICES`.
        full_range: Quantise to the full range (0 to 1023 at 10 bit) instead of the limited range (64 to 940).

    Raises:
        FormatError: The shape, type, chroma format or bit depth cannot be used.
        ConfigError: The matrix is unknown.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype not in (np.uint8, np.uint16):
        raise FormatError(f"R'G'B' of shape {rgb.shape} and type {rgb.dtype} is not (h, w, 3) of uint8 or uint16")
    video_format = VideoFormat(rgb.shape[1], rgb.shape[0], chroma=chroma, bit_depth=bit_depth)
    kr, kb = coefficients(matrix)
    red, green, blue = np.moveaxis(rgb.astype(np.float64) / np.iinfo(rgb.dtype).max, 2, 0)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    planes = [quantise_luma(luma, bit_depth, full_range)]
    if chroma != "400":
        _, _, scale, offset = value_ranges(bit_depth, full_range)
        for difference in ((blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))):
            planes.append(_round_clip(scale * _subsample(difference, chroma) + offset, bit_depth))
    return Picture(tuple(plane.astype(video_format.dtype) for plane in planes), bit_depth)


def ycbcr_to_rgb(picture: Picture, *, matrix: str = "bt709", full_range: bool = False) -> NDArray[np.uint8]:
    """Convert a picture to 8-bit R'G'B' for display; colours outside R'G'B' are clipped.

    Chroma is interpolated bilinearly from location type 0 with the edge replicated. A picture without chroma is grey.

    Args:
        picture: Picture of any chroma format and bit depth.
        matrix: Name of the colour matrix, a key of `codecnn.pictures.files.rgb.MATRICES`.
        full_range: The samples of the picture use the full range.

    Returns:
        Samples of shape (h, w, 3), 0 to 255.

    Raises:
        ConfigError: The matrix is unknown.
    """
    return planes_to_rgb(picture.planes, picture.bit_depth, matrix=matrix, full_range=full_range)


def neutral_chroma(video_format: VideoFormat) -> tuple[Plane, Plane]:
    """Return two chroma planes without colour, filled with 2^(b-1); FormatError for 400."""
    if video_format.chroma == "400":
        raise FormatError(f"{video_format} has no chroma planes")
    shape = video_format.plane_shapes[1]
    value = 1 << (video_format.bit_depth - 1)
    return np.full(shape, value, video_format.dtype), np.full(shape, value, video_format.dtype)


def quantise_luma(luma: Real, bit_depth: int, full_range: bool) -> Real:
    """Quantise E'Y in [0, 1] to integer values: 64 to 940 at 10 bit limited range, 0 to 1023 full range."""
    scale, offset, _, _ = value_ranges(bit_depth, full_range)
    return _round_clip(scale * luma + offset, bit_depth)


def _round_clip(values: Real, bit_depth: int) -> Real:
    rounded: Real = np.clip(np.floor(values + 0.5), 0, (1 << bit_depth) - 1)
    return rounded


def _subsample(plane: Real, chroma: str) -> Real:
    sub_width, sub_height = CHROMA_SUBSAMPLING[chroma]
    if sub_width == 2:
        wide = np.pad(plane, ((0, 0), (1, 1)), mode="edge")
        plane = ((wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4)[:, ::2]
    if sub_height == 2:
        tall = np.pad(plane, ((0, plane.shape[0] % 2), (0, 0)), mode="edge")
        plane = (tall[0::2] + tall[1::2]) / 2
    return plane
