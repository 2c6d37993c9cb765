"""What one component of a picture may come to when it is filtered: everywhere or by CTU, at one strength or another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from codecnn.filtering.decisions.rate_distortion import BoolArray, choose_flags, flag_bits

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Mode = Literal["off", "on", "ctu"]

SCALE_ONE = 256
"""Scales have 8 fractional bits."""
SCALE_RANGE = (16, 320)
"""0.0625 to 1.25."""
_SCALE_BITS = 9.0
"""There are 305 scales."""
_RIDGE = 0.1
"""Sample². Draws the scale towards 1 where there is hardly a residual to tell it by."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One component as it may be filtered: samples (h, w), bits to say so, weighted squared error in sample²."""

    mode: Mode
    flags: BoolArray
    scale: int
    plane: Array
    bits: float
    distortion: float

    def cost(self, worth: float) -> float:
        """RD cost in sample², a bit being worth `worth`."""
        return self.distortion + worth * self.bits


def off_choice(original: Array, decoded: Array, step: int, weight: float) -> Choice:
    """A component (h, w) as it was decoded; CTUs have `step` samples a side. One bit says so."""
    errors = _squared_errors(original, decoded, step)
    return Choice("off", np.zeros(errors.shape, np.bool_), SCALE_ONE, decoded, 1.0, weight * float(errors.sum()))


def filter_choices(
    original: Array,
    decoded: Array,
    samples: Array,
    *,
    step: int,
    weight: float,
    worth: float,
    mode_bits: float,
    peak: int,
) -> list[Choice]:
    """A component on and by CTU, with scales of 1, the picture's best, and the best of the CTUs that are then on."""
    before = _squared_errors(original, decoded, step)
    sums = _residual_sums(original, decoded, samples, step)

    def at(scale: int) -> Iterator[Choice]:
        full = scaled(decoded, samples, scale, peak)
        after = _squared_errors(original, full, step)
        bits = mode_bits + (1.0 if scale == SCALE_ONE else 1.0 + _SCALE_BITS)
        yield Choice("on", np.ones(after.shape, np.bool_), scale, full, bits, weight * float(after.sum()))
        flags = choose_flags(weight * (before - after), worth)
        mask = flags.repeat(step, axis=0).repeat(step, axis=1)[: decoded.shape[0], : decoded.shape[1]]
        distortion = weight * float(np.where(flags, after, before).sum())
        yield Choice("ctu", flags, scale, np.where(mask, full, decoded), bits + flag_bits(flags), distortion)

    scales = {SCALE_ONE, residual_scale(*sums.sum(axis=(1, 2)))}
    choices = [choice for scale in sorted(scales) for choice in at(scale)]
    best = min((choice for choice in choices if choice.mode == "ctu"), key=lambda choice: choice.cost(worth))
    again = residual_scale(*sums[:, best.flags].sum(axis=1))
    return choices if again in scales else [*choices, *at(again)]


def residual_scale(count: float, c: float, o: float, cc: float, co: float) -> int:
    """The least-squares scale of a residual in 1/256, 16 to 320, from sums over `count` samples, in float64.

    c is the network's residual and o that of the original, both against the decoded samples; cc and co are the sums of
    c² and c·o: (N·Σco - ΣcΣo + N²ε) / (N·Σc² - (Σc)² + N²ε), ε = 0.1 sample² (residual scaling of JVET's neural
    network-based video coding). 256, which is 1, for no samples.
    """
    if count == 0:
        return SCALE_ONE
    ridge = count * count * _RIDGE
    ratio = (count * co - c * o + ridge) / (count * cc - c * c + ridge)
    return int(np.clip(np.rint(SCALE_ONE * ratio), *SCALE_RANGE))


def scaled(decoded: Array, samples: Array, scale: int, peak: int) -> Array:
    """Decoded samples plus `scale`/256 of the residual, rounded half to even and clipped; in `decoded`'s type.

    With 256 this is what the filter itself gives, to the bit.
    """
    base = decoded.astype(np.float64)
    moved = base + (samples - base) * (scale / SCALE_ONE)
    made: Array = np.clip(np.rint(moved), 0, peak).astype(decoded.dtype)
    return made


def _squared_errors(a: Array, b: Array, step: int) -> Floats:
    """Sum of squared differences in each CTU, (CTU rows, CTU columns); whole numbers, so exact."""
    return _ctu_sums(np.square(np.subtract(a, b, dtype=np.float64)), step)


def _residual_sums(original: Array, decoded: Array, samples: Array, step: int) -> Floats:
    """What `residual_scale` takes, by CTU: (5, CTU rows, CTU columns) of N, Σc, Σo, Σc², Σco."""
    c = np.subtract(samples, decoded, dtype=np.float64)
    o = np.subtract(original, decoded, dtype=np.float64)
    return np.stack([_ctu_sums(part, step) for part in (np.ones_like(c), c, o, c * c, c * o)])


def _ctu_sums(plane: Floats, step: int) -> Floats:
    rows = np.add.reduceat(plane, np.arange(0, plane.shape[0], step), axis=0)
    sums: Floats = np.add.reduceat(rows, np.arange(0, plane.shape[1], step), axis=1)
    return sums
