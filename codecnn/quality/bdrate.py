"""BD-rate between two rate-distortion curves, computed by the `bjontegaard` package."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError, TableError

METHODS = ("pchip", "akima", "cubic")
MIN_POINTS = 4
"""Points a curve must have: the common test conditions' four QPs, and what a cubic needs (VCEG-M33)."""

MIN_OVERLAP = 0.5
"""Share of the shorter curve's PSNR interval that both must cover: below half of it the mean says little of either."""


def bd_rate(
    anchor: Sequence[tuple[float, float]] | NDArray[Any],
    test: Sequence[tuple[float, float]] | NDArray[Any],
    method: str = "pchip",
) -> float:
    """Mean rate difference at equal PSNR in percent; negative means `test` saves bits.

    `anchor` and `test` are (rate, PSNR) pairs, (n, 2) with n >= 4 in any order; rates in any unit common to both, PSNR
    in dB. log10(rate) is interpolated over PSNR ("pchip" as JVET does, "akima", or "cubic" as VCEG-M33 did) and
    averaged over the PSNR interval that the curves share. Raises ConfigError for another method,
    and TableError for a curve that is too short, has a rate that is not positive, a value that is not finite, or a PSNR
    that does not rise with the rate, and for curves that share less than MIN_OVERLAP of the shorter one's interval.
    """
    if method not in METHODS:
        raise ConfigError(f"unknown BD-rate method {method!r}: one of {', '.join(METHODS)}")
    rate_a, psnr_a = _checked_curve(anchor, "anchor")
    rate_t, psnr_t = _checked_curve(test, "test")
    shared = min(psnr_a[-1], psnr_t[-1]) - max(psnr_a[0], psnr_t[0])
    share = shared / min(psnr_a[-1] - psnr_a[0], psnr_t[-1] - psnr_t[0])
    if share < MIN_OVERLAP:
        what = f"only {100 * share:.0f} % of the shorter one's PSNR" if share > 0 else "no PSNR"
        raise TableError(
            f"BD-rate is not defined: the curves share {what} (anchor {psnr_a[0]:.3f} to {psnr_a[-1]:.3f} dB, "
            f"test {psnr_t[0]:.3f} to {psnr_t[-1]:.3f} dB)"
        )
    import bjontegaard  # here, because it loads pyplot, which those who only want a PSNR need not wait for

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the package's doubts (rank, overflow) make no result
            percent = bjontegaard.bd_rate(
                rate_a, psnr_a, rate_t, psnr_t, method=method, require_matching_points=False, min_overlap=0
            )
    except Warning as warning:
        raise TableError(f"BD-rate cannot be computed, the points lie too close together: {warning}") from None
    return float(percent)


def _checked_curve(
    points: Sequence[tuple[float, float]] | NDArray[Any], name: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rates and PSNRs of a curve, both (n,) and rising; a TableError says what is wrong with any other curve."""
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
    rate, psnr = curve[np.lexsort((curve[:, 1], curve[:, 0]))].T
    for i in range(1, len(rate)):
        if rate[i] <= rate[i - 1] or psnr[i] <= psnr[i - 1]:
            raise TableError(
                f"BD-rate is not defined: PSNR of the {name} does not rise with the rate "
                f"({psnr[i - 1]:.3f} dB at {rate[i - 1]:g}, {psnr[i]:.3f} dB at {rate[i]:g})"
            )
    return rate, psnr
