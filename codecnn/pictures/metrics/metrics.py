"""MSE and PSNR of pictures in float64, and BD-rate between rate-distortion curves.

The peak of a PSNR is always explicit, because codecs and tools differ: at 10 bit, "jvet" (1020) and "full" (1023) are
0.0255 dB apart on the same picture.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError, FormatError, TableError
from codecnn.base.keywords import checked_keywords

PEAKS = ("jvet", "full")
_MAX_BIT_DEPTH = 16
_INT_MIN, _INT_MAX = -(2**15), 2**16 - 1

METHODS = ("pchip", "akima", "cubic")
"""Interpolation methods of BD-rate."""

MIN_POINTS = 4
"""Fewest points of a curve: the four QPs of the common test conditions, and the minimum for a cubic (VCEG-M33)."""

MIN_OVERLAP = 0.5
"""Smallest share of the shorter curve's PSNR interval that the curves must have in common.

Below half of it the mean describes neither curve.
"""


def peak_value(bit_depth: int, peak: str = "jvet") -> float:
    """Return the peak of the PSNR in sample units.

    Args:
        bit_depth: Bits per sample, 8 to 16.
        peak: "jvet" for 255·2^(b-8), which HM, VTM and vvenc log (JVET common test conditions); "full" for 2^b - 1,
            which ffmpeg and scikit-image use.

    Raises:
        ConfigError: The name of the peak is unknown, or the bit depth is out of range.
    """
    if not 8 <= bit_depth <= _MAX_BIT_DEPTH:
        raise ConfigError(f"bit depth {bit_depth} is out of range: 8 to {_MAX_BIT_DEPTH}")
    if peak == "jvet":
        return float(255 << (bit_depth - 8))
    if peak == "full":
        return float((1 << bit_depth) - 1)
    raise ConfigError(f"unknown peak {peak!r}: use one of {', '.join(PEAKS)}")


def mse(a: Any, b: Any) -> float:
    """Compute the mean squared error of two arrays.

    Args:
        a: NumPy array or torch tensor of integers that fit 16 bits (samples or residuals), or of floats in sample units
            (not scaled to 1).
        b: Array of the same shape.

    Returns:
        Mean squared error in sample units squared.

    Raises:
        FormatError: The shapes differ, an array is empty, or a value is not such a sample.
    """
    first, second = _samples(a), _samples(b)
    _check_shapes(first, second)
    return _mse(first, second)


@checked_keywords()
def psnr(a: Any, b: Any, bit_depth: int, peak: str = "jvet") -> float:
    """Compute the PSNR of a picture, or the mean of the PSNRs of a stack of pictures as codecs log it.

    Identical pictures have an infinite PSNR, and one identical pair makes the mean infinite.

    Args:
        a: Picture of shape (h, w) or stack of pictures of shape (..., h, w); types as for `mse`.
        b: Array of the same shape.
        bit_depth: Bits per sample; integers must fit it.
        peak: "jvet" or "full", see `peak_value`.

    Returns:
        PSNR in dB.

    Raises:
        FormatError: As `mse`, and for integers outside the range of the bit depth.
        ConfigError: As `peak_value`.
    """
    top = peak_value(bit_depth, peak)
    first, second = _samples(a, bit_depth), _samples(b, bit_depth)
    _check_shapes(first, second)
    if first.ndim < 2:
        raise FormatError(f"PSNR needs a picture (h, w) or a stack of them, not an array of shape {first.shape}")
    pictures = zip(first.reshape(-1, *first.shape[-2:]), second.reshape(-1, *second.shape[-2:]), strict=True)
    return float(np.mean([_decibel(_mse(x, y), top) for x, y in pictures]))


def psnr_of_mse(errors: Any, bit_depth: int, peak: str = "jvet") -> Any:
    """Convert MSEs to PSNRs: 10·log10(peak²/MSE), infinite for 0.

    Args:
        errors: A number or an array of any shape, in sample units squared.
        bit_depth: Bits per sample.
        peak: "jvet" or "full", see `peak_value`.

    Returns:
        PSNR of each MSE in dB, of the same shape.
    """
    return _decibel(errors, peak_value(bit_depth, peak))


def mean_psnr(mses: Iterable[float], bit_depth: int, peak: str = "jvet") -> float:
    """Compute the mean over pictures of their PSNR, the value that codecs log.

    Args:
        mses: MSE of each picture in sample units squared.
        bit_depth: Bits per sample.
        peak: "jvet" or "full", see `peak_value`.

    Returns:
        Mean PSNR in dB.

    Raises:
        FormatError: There is no picture, or an MSE is negative or not finite.
    """
    top = peak_value(bit_depth, peak)
    return float(np.mean(_decibel(_checked_mses(mses), top)))


def psnr_of_mean_mse(mses: Iterable[float], bit_depth: int, peak: str = "jvet") -> float:
    """Compute the PSNR of the mean MSE of pictures, which is never above `mean_psnr` and not what codecs log.

    Args:
        mses: MSE of each picture in sample units squared.
        bit_depth: Bits per sample.
        peak: "jvet" or "full", see `peak_value`.

    Returns:
        PSNR in dB.

    Raises:
        FormatError: As `mean_psnr`.
    """
    top = peak_value(bit_depth, peak)
    return float(_decibel(np.mean(_checked_mses(mses)), top))


def psnr_yuv_611(y: float, u: float, v: float) -> float:
    """Compute (6 Y + U + V) / 8 of three PSNRs in dB, the weighted mean of comparisons of HEVC and VVC for 4:2:0.

    Source: Ohm, Sullivan, Schwarz, Tan and Wiegand, "Comparison of the coding efficiency of video coding standards",
    2012.
    """
    return (6 * y + u + v) / 8


def psnr_yuv_mse(mses: Sequence[float], samples: Sequence[int], bit_depth: int, peak: str = "jvet") -> float:
    """Compute the PSNR of the squared error over all samples of all planes: column YUV-PSNR of HM and VTM.

    Args:
        mses: MSE of each plane in sample units squared, of one picture or, as in HM and VTM, the mean over pictures.
        samples: Number of samples of each plane; 4:2:0 has the weights 4:1:1.
        bit_depth: Bits per sample.
        peak: "jvet" or "full", see `peak_value`.

    Returns:
        PSNR in dB.

    Raises:
        FormatError: As `mean_psnr`.
    """
    values = _checked_mses(mses)
    return float(psnr_of_mse(np.average(values, weights=samples), bit_depth, peak))


def _samples(array: Any, bit_depth: int | None = None) -> NDArray[Any]:
    """Return a NumPy view of an array or tensor after checking its values; integers must fit `bit_depth`, if given."""
    if hasattr(array, "detach"):  # a torch tensor, recognised without importing torch
        array = array.detach().cpu()
        if array.is_floating_point():
            array = array.double()  # NumPy has no bfloat16
    samples = np.asarray(array)
    if samples.dtype.kind not in "iuf":
        raise FormatError(f"samples must be integers or floats, not {samples.dtype}")
    if samples.size == 0:
        raise FormatError(f"an array of shape {samples.shape} holds no samples")
    if samples.dtype.kind != "f":
        low, high = (_INT_MIN, _INT_MAX) if bit_depth is None else (0, (1 << bit_depth) - 1)
        smallest, largest = int(samples.min()), int(samples.max())
        if smallest < low or largest > high:
            limit = "16 bits" if bit_depth is None else f"bit depth {bit_depth}"
            raise FormatError(f"sample value {largest if largest > high else smallest} does not fit {limit}")
    return samples


def _check_shapes(a: NDArray[Any], b: NDArray[Any]) -> None:
    if a.shape != b.shape:
        raise FormatError(f"pictures differ in shape: {a.shape} and {b.shape}")


def _mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    # Converted to float64 before the difference: uint8 and uint16 would wrap around, float32 would round the sum.
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(a, b, dtype=np.float64).ravel()
        value = float(difference @ difference / difference.size)
    if not np.isfinite(value):
        raise FormatError("a sample is NaN or infinite")
    return value


def _decibel(errors: Any, peak: float) -> Any:
    with np.errstate(divide="ignore"):
        return 10 * np.log10(peak * peak / np.asarray(errors, np.float64))


def _checked_mses(mses: Iterable[float]) -> list[float]:
    values = [float(value) for value in mses]
    if not values:
        raise FormatError("there is no picture to average over")
    for value in values:
        if not 0 <= value < float("inf"):
            raise FormatError(f"an MSE of {value} is not a finite number of at least 0")
    return values


@checked_keywords()
def bd_rate(
    anchor: Sequence[tuple[float, float]] | NDArray[Any],
    test: Sequence[tuple[float, float]] | NDArray[Any],
    method: str = "pchip",
) -> float:
    """Compute the mean rate difference at equal PSNR (Bjontegaard delta rate) with the `bjontegaard` package.

    log10(rate) is interpolated over PSNR and averaged over the PSNR interval that the curves share.

    Args:
        anchor: (rate, PSNR) pairs, shape (n, 2) with n >= 4, in any order; rates in any unit, PSNR in dB.
        test: (rate, PSNR) pairs of the curve to compare, with rates in the same unit.
        method: Interpolation: "pchip" as in JVET test conditions, "akima", or "cubic" as in VCEG-M33.

    Returns:
        Rate difference in percent; negative means that `test` needs fewer bits.

    Raises:
        ConfigError: The method is unknown.
        TableError: A curve is too short, has a rate that is not positive, a value that is not finite, or a PSNR that
            does not rise with the rate; or the curves share less than MIN_OVERLAP of the shorter one's PSNR interval.
    """
    if method not in METHODS:
        raise ConfigError(f"unknown BD-rate method {method!r}: use one of {', '.join(METHODS)}")
    rate_a, psnr_a = _checked_curve(anchor, "anchor")
    rate_t, psnr_t = _checked_curve(test, "test")
    shared = min(psnr_a[-1], psnr_t[-1]) - max(psnr_a[0], psnr_t[0])
    share = shared / min(psnr_a[-1] - psnr_a[0], psnr_t[-1] - psnr_t[0])
    if share < MIN_OVERLAP:
        overlap = f"only {100 * share:.0f} % of the shorter one's PSNR" if share > 0 else "no PSNR"
        raise TableError(
            f"BD-rate is not defined: the curves share {overlap} (anchor {psnr_a[0]:.3f} to {psnr_a[-1]:.3f} dB, "
            f"test {psnr_t[0]:.3f} to {psnr_t[-1]:.3f} dB)"
        )
    import bjontegaard  # imported here because it loads pyplot, which takes long

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a result with a warning (rank, overflow) is not usable
            percent = bjontegaard.bd_rate(
                rate_a, psnr_a, rate_t, psnr_t, method=method, require_matching_points=False, min_overlap=0
            )
    except Warning as warning:
        raise TableError(f"BD-rate cannot be computed, the points are too close together: {warning}") from None
    return float(percent)


def _checked_curve(
    points: Sequence[tuple[float, float]] | NDArray[Any], name: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rates and PSNRs of a curve, both (n,) and rising; raise TableError if it is not such a curve."""
    try:
        curve = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        raise TableError(f"BD-rate needs (rate, PSNR) pairs of numbers, which the {name} is not") from None
    if curve.ndim != 2 or curve.shape[1] != 2:
        raise TableError(f"BD-rate needs (rate, PSNR) pairs, shape (n, 2): the {name} has shape {curve.shape}")
    if len(curve) < MIN_POINTS:
        raise TableError(f"BD-rate needs at least {MIN_POINTS} points: the {name} has {len(curve)}")
    if not np.isfinite(curve).all():
        raise TableError(f"BD-rate needs finite numbers: the {name} holds NaN or infinity")
    if curve[:, 0].min() <= 0:
        raise TableError(f"BD-rate needs rates above 0: the {name} has {curve[:, 0].min():g}")
    rates, psnrs = curve[np.lexsort((curve[:, 1], curve[:, 0]))].T
    for i in range(1, len(rates)):
        if rates[i] <= rates[i - 1] or psnrs[i] <= psnrs[i - 1]:
            raise TableError(
                f"BD-rate is not defined: PSNR of the {name} does not rise with the rate "
                f"({psnrs[i - 1]:.3f} dB at {rates[i - 1]:g}, {psnrs[i]:.3f} dB at {rates[i]:g})"
            )
    return rates, psnrs
