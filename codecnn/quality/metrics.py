"""MSE and PSNR of pictures, in float64 whatever the sample type.

The peak is always explicit, because codecs and tools differ: at 10 bit "jvet" (1020) and "full" (1023) lie 0.0255 dB
apart on the same picture.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError

PEAKS = ("jvet", "full")
_MAX_BIT_DEPTH = 16
_INT_MIN, _INT_MAX = -(2**15), 2**16 - 1


def peak_value(bit_depth: int, peak: str = "jvet") -> float:
    """The peak of the PSNR, in sample units.

    "jvet" is 255·2^(b-8), what HM, VTM and vvenc log (JVET common test conditions); "full" is 2^b - 1, what ffmpeg and
    scikit-image use. Raises ConfigError for another name or a bit depth outside 8 to 16.
    """
    if not 8 <= bit_depth <= _MAX_BIT_DEPTH:
        raise ConfigError(f"bit depth {bit_depth} is out of range: 8 to {_MAX_BIT_DEPTH}")
    if peak == "jvet":
        return float(255 << (bit_depth - 8))
    if peak == "full":
        return float((1 << bit_depth) - 1)
    raise ConfigError(f"unknown peak {peak!r}: one of {', '.join(PEAKS)}")


def mse(a: Any, b: Any) -> float:
    """Mean squared error of two arrays of one shape, in sample².

    `a` and `b` are NumPy arrays or torch tensors: integers that fit 16 bits (pictures or residuals), or floats in
    sample units (not scaled to 1). Raises FormatError where shapes differ, an array is empty, or a value is no such
    sample.
    """
    first, second = _samples(a), _samples(b)
    _check_shapes(first, second)
    return _mse(first, second)


def psnr(a: Any, b: Any, bit_depth: int, peak: str = "jvet") -> float:
    """PSNR of `a` against `b` in dB; identical pictures give infinity.

    Arrays are (h, w), or a stack (..., h, w) of pictures, for which the result is the mean over pictures of each
    picture's PSNR, as codecs log it; one identical pair makes that mean infinite. Sample types as for `mse`. Raises
    FormatError where `mse` does and for integers beyond `bit_depth`, ConfigError where `peak_value` does.
    """
    top = peak_value(bit_depth, peak)
    first, second = _samples(a, bit_depth), _samples(b, bit_depth)
    _check_shapes(first, second)
    if first.ndim < 2:
        raise FormatError(f"PSNR needs a picture (h, w) or a stack of them, not an array of shape {first.shape}")
    pictures = zip(first.reshape(-1, *first.shape[-2:]), second.reshape(-1, *second.shape[-2:]), strict=True)
    return float(np.mean([_decibel(_mse(x, y), top) for x, y in pictures]))


def psnr_of_mse(errors: Any, bit_depth: int, peak: str = "jvet") -> Any:
    """PSNR in dB of each MSE (sample², a number or an array of them): 10·log10(peak²/MSE), infinite for 0."""
    return _decibel(errors, peak_value(bit_depth, peak))


def mean_psnr(mses: Iterable[float], bit_depth: int, peak: str = "jvet") -> float:
    """Mean over pictures of per-picture PSNR in dB, from each picture's MSE (sample²): the figure codecs log.

    Raises FormatError for no pictures and for an MSE that is negative or not finite.
    """
    top = peak_value(bit_depth, peak)
    return float(np.mean(_decibel(_checked_mses(mses), top)))


def psnr_of_mean_mse(mses: Iterable[float], bit_depth: int, peak: str = "jvet") -> float:
    """PSNR in dB of the mean of the pictures' MSE (sample²): never above `mean_psnr`, and not what codecs log.

    Raises FormatError as `mean_psnr` does.
    """
    top = peak_value(bit_depth, peak)
    return float(_decibel(np.mean(_checked_mses(mses)), top))


def psnr_yuv_611(y: float, u: float, v: float) -> float:
    """(6 Y + U + V) / 8 of three PSNRs in dB, the weighted mean that comparisons of HEVC and VVC quote for 4:2:0.

    Ohm, Sullivan, Schwarz, Tan and Wiegand, "Comparison of the coding efficiency of video coding standards", 2012.
    """
    return (6 * y + u + v) / 8


def psnr_yuv_mse(mses: Sequence[float], samples: Sequence[int], bit_depth: int, peak: str = "jvet") -> float:
    """PSNR in dB of the squared error over all samples of all planes: HM's and VTM's column YUV-PSNR.

    `mses` is the MSE of each plane (sample²), of one picture or, as HM and VTM take it, the mean over pictures;
    `samples` is the number of samples in each plane, so that 4:2:0 has the weights 4:1:1. Raises FormatError as
    `mean_psnr` does.
    """
    values = _checked_mses(mses)
    return float(psnr_of_mse(np.average(values, weights=samples), bit_depth, peak))


def _samples(array: Any, bit_depth: int | None = None) -> NDArray[Any]:
    """A NumPy view of an array or tensor whose values are samples; with a bit depth, integers must lie within it."""
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
            what = "16 bits" if bit_depth is None else f"bit depth {bit_depth}"
            raise FormatError(f"sample value {largest if largest > high else smallest} does not fit {what}")
    return samples


def _check_shapes(a: NDArray[Any], b: NDArray[Any]) -> None:
    if a.shape != b.shape:
        raise FormatError(f"pictures differ in shape: {a.shape} and {b.shape}")


def _mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    # float64 before the difference: uint8 and uint16 would wrap around, float32 would round the sum.
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
