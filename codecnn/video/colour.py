"""Conversion between R'G'B' and Y'CbCr in float64.

The coefficients KR and KB and the quantisation of both ranges are those of Rec. ITU-T H.273 clause 8.3
(MatrixCoefficients 1, 5 / 6 and 9); for bt709 they equal Rec. ITU-R BT.709-6 items 3.2 to 3.4.
"""

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError
from codecnn.video.formats import CHROMA_SUBSAMPLING, VideoFormat, check_bit_depth
from codecnn.video.pictures import Picture, Plane

MATRICES = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Matrix name -> (KR, KB); bt2020 is the form with non-constant luminance."""

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
        matrix: Name of the colour matrix, a key of `MATRICES`.
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
        _, _, scale, offset = _ranges(bit_depth, full_range)
        for difference in ((blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))):
            planes.append(_round_clip(scale * _subsample(difference, chroma) + offset, bit_depth))
    return Picture(tuple(plane.astype(video_format.dtype) for plane in planes), bit_depth)


def ycbcr_to_rgb(picture: Picture, *, matrix: str = "bt709", full_range: bool = False) -> NDArray[np.uint8]:
    """Convert a picture to 8-bit R'G'B' for display; colours outside R'G'B' are clipped.

    Chroma is interpolated bilinearly from location type 0 with the edge replicated. A picture without chroma is grey.

    Args:
        picture: Picture of any chroma format and bit depth.
        matrix: Name of the colour matrix, a key of `MATRICES`.
        full_range: The samples of the picture use the full range.

    Returns:
        Samples of shape (h, w, 3), 0 to 255.

    Raises:
        ConfigError: The matrix is unknown.
    """
    kr, kb = coefficients(matrix)
    scale_y, offset_y, scale_c, offset_c = _ranges(picture.bit_depth, full_range)
    luma = (picture.y.astype(np.float64) - offset_y) / scale_y
    if picture.u is None or picture.v is None:
        red = green = blue = luma
    else:
        cb, cr = (
            (_interpolate(plane.astype(np.float64), luma.shape) - offset_c) / scale_c
            for plane in (picture.u, picture.v)
        )
        blue = luma + 2 * (1 - kb) * cb
        red = luma + 2 * (1 - kr) * cr
        green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    rgb = np.stack((red, green, blue), axis=2)
    return np.clip(np.floor(255 * rgb + 0.5), 0, 255).astype(np.uint8)


def neutral_chroma(video_format: VideoFormat) -> tuple[Plane, Plane]:
    """Return two chroma planes without colour, filled with 2^(b-1); FormatError for 400."""
    if video_format.chroma == "400":
        raise FormatError(f"{video_format} has no chroma planes")
    shape = video_format.plane_shapes[1]
    value = 1 << (video_format.bit_depth - 1)
    return np.full(shape, value, video_format.dtype), np.full(shape, value, video_format.dtype)


def quantise_luma(luma: Real, bit_depth: int, full_range: bool) -> Real:
    """Quantise E'Y in [0, 1] to integer values: 64 to 940 at 10 bit limited range, 0 to 1023 full range."""
    scale, offset, _, _ = _ranges(bit_depth, full_range)
    return _round_clip(scale * luma + offset, bit_depth)


def _ranges(bit_depth: int, full_range: bool) -> tuple[float, float, float, float]:
    """Return scale and offset of luma, scale and offset of chroma."""
    check_bit_depth(bit_depth)
    if full_range:
        peak = float((1 << bit_depth) - 1)
        return peak, 0.0, peak, float(1 << (bit_depth - 1))
    step = float(1 << (bit_depth - 8))
    return 219 * step, 16 * step, 224 * step, 128 * step


def _round_clip(values: Real, bit_depth: int) -> Real:
    rounded: Real = np.clip(np.floor(values + 0.5), 0, (1 << bit_depth) - 1)
    return rounded


def coefficients(matrix: str) -> tuple[float, float]:
    """Return KR and KB of a matrix; ConfigError if it is unknown."""
    if matrix not in MATRICES:
        raise ConfigError(f"unknown colour matrix {matrix!r}: use one of {', '.join(MATRICES)}")
    return MATRICES[matrix]


def _subsample(plane: Real, chroma: str) -> Real:
    sub_width, sub_height = CHROMA_SUBSAMPLING[chroma]
    if sub_width == 2:
        wide = np.pad(plane, ((0, 0), (1, 1)), mode="edge")
        plane = ((wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4)[:, ::2]
    if sub_height == 2:
        tall = np.pad(plane, ((0, plane.shape[0] % 2), (0, 0)), mode="edge")
        plane = (tall[0::2] + tall[1::2]) / 2
    return plane


def _interpolate(plane: Real, shape: tuple[int, ...]) -> Real:
    """Interpolate chroma at the position of every luma sample.

    Chroma samples lie on the even columns, so odd columns are the mean of two. They lie between the rows, so every row
    is 1/4 chroma sample away from the nearest chroma row.
    """
    height, width = shape
    if plane.shape[1] != width:
        following = np.pad(plane, ((0, 0), (0, 1)), mode="edge")[:, 1:]
        plane = np.stack((plane, (plane + following) / 2), axis=2).reshape(plane.shape[0], -1)[:, :width]
    if plane.shape[0] != height:
        tall = np.pad(plane, ((1, 1), (0, 0)), mode="edge")
        above = (3 * plane + tall[:-2]) / 4
        below = (3 * plane + tall[2:]) / 4
        plane = np.stack((above, below), axis=1).reshape(-1, width)[:height]
    return plane
