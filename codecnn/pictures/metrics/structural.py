"""Structural similarity of luma: SSIM and MS-SSIM in float64.

SSIM uses a Gaussian window of 11x11 samples with sigma 1.5, K1 = 0.01, K2 = 0.03 and the data range 2^bit_depth - 1,
and averages over the positions where the window is inside the picture: Wang, Bovik, Sheikh and Simoncelli, "Image
quality assessment: from error visibility to structural similarity", 2004. The features float_ssim and float_ms_ssim of
libvmaf differ from the papers: the former downscales large pictures first, the latter downscales with the low-pass
filter of a wavelet.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from codecnn.base.errors import FormatError

WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03
SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment", 2003, section 3.2."""

MIN_SIDE = (WINDOW - 1) * 2 ** (len(SCALE_WEIGHTS) - 1) + 1
"""Shortest side of a picture for MS-SSIM: the window must fit into the smallest of the five scales."""

Array = NDArray[Any]


def ssim(a: Array, b: Array, bit_depth: int) -> float:
    """Compute the structural similarity of two planes.

    Args:
        a: Integer samples of shape (h, w), with sides of at least 11.
        b: Integer samples of the same shape.
        bit_depth: Bits per sample.

    Returns:
        Mean SSIM over all positions of the window, at most 1.

    Raises:
        FormatError: The shapes differ, or the window does not fit.
    """
    first, second = _planes(a, b, WINDOW)
    similarity, _ = _means(first, second, (1 << bit_depth) - 1)
    return similarity


def ms_ssim(a: Array, b: Array, bit_depth: int) -> float:
    """Compute the multi-scale structural similarity of two planes over five scales.

    Each scale is the mean of 2x2 samples of the one before, with the last row or column replicated if their number is
    odd. A negative mean of contrast and structure counts as 0, because its power is not defined.

    Args:
        a: Integer samples of shape (h, w), with sides of at least MIN_SIDE.
        b: Integer samples of the same shape.
        bit_depth: Bits per sample.

    Returns:
        MS-SSIM, 0 to 1.

    Raises:
        FormatError: The shapes differ, or a side is shorter than MIN_SIDE.
    """
    first, second = _planes(a, b, MIN_SIDE)
    result = 1.0
    for scale, weight in enumerate(SCALE_WEIGHTS):
        if scale:
            first, second = halve(first), halve(second)
        similarity, contrast = _means(first, second, (1 << bit_depth) - 1)
        last = scale == len(SCALE_WEIGHTS) - 1
        result *= max(similarity if last else contrast, 0.0) ** weight
    return result


def _planes(a: Array, b: Array, smallest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if a.shape != b.shape or a.ndim != 2:
        raise FormatError(f"structural similarity needs two planes (h, w) of one shape, not {a.shape} and {b.shape}")
    if min(a.shape) < smallest:
        raise FormatError(f"a plane of {a.shape[1]}x{a.shape[0]} is too small: each side needs {smallest} samples")
    return a.astype(np.float64), b.astype(np.float64)


def _means(a: NDArray[np.float64], b: NDArray[np.float64], data_range: float) -> tuple[float, float]:
    """Return the mean SSIM, and the mean of its factor of contrast and structure."""
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    mean_a, mean_b = _blur(a), _blur(b)
    variances = _blur(a * a) + _blur(b * b) - mean_a * mean_a - mean_b * mean_b
    covariance = _blur(a * b) - mean_a * mean_b
    contrast = (2 * covariance + c2) / (variances + c2)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a * mean_a + mean_b * mean_b + c1)
    return float(np.mean(luminance * contrast)), float(np.mean(contrast))


def _blur(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean under the window at every position where it is inside the plane."""
    reach = WINDOW // 2
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SIGMA) ** 2)
    taps /= taps.sum()
    rows = correlate1d(plane, taps, axis=0)[reach:-reach]
    blurred: NDArray[np.float64] = correlate1d(rows, taps, axis=1)[:, reach:-reach]
    return blurred


def halve(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average 2x2 samples; the last row or column is replicated if their number is odd."""
    even = np.pad(plane, [(0, extent % 2) for extent in plane.shape], mode="edge")
    return 0.25 * (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2])
