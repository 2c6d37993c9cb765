"""SSIM and MS-SSIM of luma planes, in float64.

The window is a Gaussian of 11x11 samples with sigma 1.5, K1 = 0.01, K2 = 0.03, the data range 2^bit_depth - 1, and only
places where the window lies inside the picture count: Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment:
from error visibility to structural similarity", 2004. libvmaf's float_ssim shrinks large pictures first, and its
float_ms_ssim shrinks by the low-pass of a wavelet, so its figures are not those of the papers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from codecnn.errors import FormatError

WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03
SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment", 2003, section 3.2."""

MIN_SIDE = (WINDOW - 1) * 2 ** (len(SCALE_WEIGHTS) - 1) + 1
"""Shortest side that MS-SSIM takes: the window must fit into the smallest of its five pictures."""

Array = NDArray[Any]


def ssim(a: Array, b: Array, bit_depth: int) -> float:
    """SSIM of two planes (h, w) of integer samples: the mean over all places of the window.

    Raises FormatError where shapes differ or the window does not fit.
    """
    first, second = _planes(a, b, WINDOW)
    similarity, _ = _means(first, second, (1 << bit_depth) - 1)
    return similarity


def ms_ssim(a: Array, b: Array, bit_depth: int) -> float:
    """MS-SSIM over five scales of two planes (h, w) of integer samples.

    A scale is the mean of 2x2 samples of the one before, the last line or column twice where their number is odd.
    A negative mean of contrast and structure counts as 0, for its power is not defined. Raises FormatError where
    shapes differ or a side is shorter than MIN_SIDE.
    """
    first, second = _planes(a, b, MIN_SIDE)
    result = 1.0
    for scale, weight in enumerate(SCALE_WEIGHTS):
        if scale:
            first, second = _halved(first), _halved(second)
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
    """Mean SSIM, and mean of its factor of contrast and structure alone."""
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    mean_a, mean_b = _blurred(a), _blurred(b)
    variances = _blurred(a * a) + _blurred(b * b) - mean_a * mean_a - mean_b * mean_b
    covariance = _blurred(a * b) - mean_a * mean_b
    contrast = (2 * covariance + c2) / (variances + c2)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a * mean_a + mean_b * mean_b + c1)
    return float(np.mean(luminance * contrast)), float(np.mean(contrast))


def _blurred(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted mean under the window, at every place where it lies inside."""
    reach = WINDOW // 2
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SIGMA) ** 2)
    taps /= taps.sum()
    rows = correlate1d(plane, taps, axis=0)[reach:-reach]
    blurred: NDArray[np.float64] = correlate1d(rows, taps, axis=1)[:, reach:-reach]
    return blurred


def _halved(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    even = np.pad(plane, [(0, extent % 2) for extent in plane.shape], mode="edge")
    return 0.25 * (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2])
