"""Colour matrices and ranges of Y'CbCr, and the conversion of planes to R'G'B' for display.

The coefficients KR and KB and the quantisation of both ranges are those of Rec. ITU-T H.273 clause 8.3
(MatrixCoefficients 1, 5 / 6 and 9); for bt709 they equal Rec. ITU-R BT.709-6 items 3.2 to 3.4.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from codecnn.base.errors import ConfigError
from codecnn.pictures.files.formats import check_bit_depth

MATRICES = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Matrix name -> (KR, KB); bt2020 is the form with non-constant luminance."""

Real = NDArray[np.float64]


def planes_to_rgb(
    planes: Sequence[NDArray[Any]], bit_depth: int, *, matrix: str = "bt709", full_range: bool = False
) -> NDArray[np.uint8]:
    """Convert planes to 8-bit R'G'B' as `codecnn.pictures.files.ycbcr_to_rgb` converts a picture.

    Args:
        planes: Y, or Y, U and V of any chroma format, each of shape (h, w).
        bit_depth: Bits per sample.
        matrix: Name of the colour matrix, a key of `MATRICES`.
        full_range: The samples use the full range.

    Returns:
        Samples of shape (h, w, 3), 0 to 255.

    Raises:
        ConfigError: The matrix is unknown.
    """
    kr, kb = coefficients(matrix)
    scale_y, offset_y, scale_c, offset_c = value_ranges(bit_depth, full_range)
    luma = (planes[0].astype(np.float64) - offset_y) / scale_y
    if len(planes) < 3:
        red = green = blue = luma
    else:
        cb, cr = ((_interpolate(plane.astype(np.float64), luma.shape) - offset_c) / scale_c for plane in planes[1:3])
        blue = luma + 2 * (1 - kb) * cb
        red = luma + 2 * (1 - kr) * cr
        green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    rgb = np.stack((red, green, blue), axis=2)
    return np.clip(np.floor(255 * rgb + 0.5), 0, 255).astype(np.uint8)


def encode_png(rgb: NDArray[np.uint8]) -> bytes:
    """Encode R'G'B' samples of shape (h, w, 3) as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, format="PNG")
    return file.getvalue()


def value_ranges(bit_depth: int, full_range: bool) -> tuple[float, float, float, float]:
    """Return scale and offset of luma, scale and offset of chroma."""
    check_bit_depth(bit_depth)
    if full_range:
        peak = float((1 << bit_depth) - 1)
        return peak, 0.0, peak, float(1 << (bit_depth - 1))
    step = float(1 << (bit_depth - 8))
    return 219 * step, 16 * step, 224 * step, 128 * step


def coefficients(matrix: str) -> tuple[float, float]:
    """Return KR and KB of a matrix; ConfigError if it is unknown."""
    if matrix not in MATRICES:
        raise ConfigError(f"unknown colour matrix {matrix!r}: use one of {', '.join(MATRICES)}")
    return MATRICES[matrix]


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
