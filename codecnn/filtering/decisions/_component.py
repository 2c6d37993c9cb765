"""What one component of a picture may come to when it is filtered: everywhere or by CTU, at one strength or another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from codecnn.filtering._base import Array
from codecnn.filtering.decisions._rate_distortion import BoolArray, choose_flags, flag_bits
from codecnn.quality import ctu_sums

Floats = npt.NDArray[np.float64]
Mode = Literal["off", "on", "ctu"]

SCALE_ONE = 256
"""Scales have 8 fractional bits."""
SCALE_RANGE = (16, 320)
"""Scales go from 0.0625 to 1.25."""
_SCALE_BITS = 9.0
"""What tells one of the 305 scales."""
_RIDGE = 0.1
"""In sample²; draws the scale towards 1 where there is hardly a residual to tell it by."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One component as it may be filtered: samples (h, w), bits to say so, weighted squared error in sample²."""

    mode: Mode
    flags: BoolArray
    scale: int
    plane: Array
    bits: float
    distortion: float

    def cost(self, lambda_: float) -> float:
        """RD cost D + λ·R in sample²."""
        return self.distortion + lambda_ * self.bits


class Component:
    """One component (h, w) of a picture that is decided on.

    `ctu_size` is the side of a CTU in the component's own samples, `weight` what its squared error counts beside that
    of luma, `lambda_` the squared error that one bit is worth, and `peak` the largest sample.
    """

    def __init__(
        self, original: Array, decoded: Array, ctu_size: int, *, weight: float, lambda_: float, peak: int
    ) -> None:
        self.original, self.decoded, self.ctu_size = original, decoded, ctu_size
        self.weight, self.lambda_, self.peak = weight, lambda_, peak
        # CTU row by CTU row, all that is computed of one stays in the processor's caches.
        self.bands = [slice(start, start + ctu_size) for start in range(0, len(decoded), ctu_size)]
        self.errors = self._squared_errors(decoded)

    def off(self) -> Choice:
        """The component as it was decoded; one bit says so."""
        flags = np.zeros(self.errors.shape, np.bool_)
        return Choice("off", flags, SCALE_ONE, self.decoded, 1.0, self.weight * float(self.errors.sum()))

    def filtered(self, samples: Array, mode_bits: float) -> list[Choice]:
        """On and by CTU, with scales of 1, the picture's best, and the best of the CTUs that are then on.

        `samples` (h, w) are the network's at full strength; `mode_bits` say on or by CTU.
        """
        sums = self._residual_sums(samples)

        def at(scale: int) -> Iterator[Choice]:
            full = np.empty_like(self.decoded)
            for band in self.bands:
                full[band] = scaled(self.decoded[band], samples[band], scale, self.peak)
            errors = self._squared_errors(full)
            bits = mode_bits + (1.0 if scale == SCALE_ONE else 1.0 + _SCALE_BITS)
            yield Choice("on", np.ones_like(errors, np.bool_), scale, full, bits, self.weight * float(errors.sum()))
            flags = choose_flags(self.weight * (self.errors - errors), self.lambda_)
            mask = flags.repeat(self.ctu_size, axis=0).repeat(self.ctu_size, axis=1)[: full.shape[0], : full.shape[1]]
            distortion = self.weight * float(np.where(flags, errors, self.errors).sum())
            plane = np.where(mask, full, self.decoded)
            yield Choice("ctu", flags, scale, plane, bits + flag_bits(flags), distortion)

        scales = {SCALE_ONE, residual_scale(*sums.sum(axis=(1, 2)))}
        choices = [choice for scale in sorted(scales) for choice in at(scale)]
        # The scale of the whole picture also heeds CTUs where the filter harms. Fitted to those that are on alone it
        # is better for them. Flags and scale could go on to be chosen in turn; this stops after one round.
        best = min((choice for choice in choices if choice.mode == "ctu"), key=lambda choice: choice.cost(self.lambda_))
        again = residual_scale(*sums[:, best.flags].sum(axis=1))
        return choices if again in scales else [*choices, *at(again)]

    def _squared_errors(self, plane: Array) -> Floats:
        """Sum of squared differences from the original in each CTU, (CTU rows, CTU columns); whole, so exact."""
        return np.stack(
            [
                ctu_sums(np.square(np.subtract(self.original[band], plane[band], dtype=np.float64)), self.ctu_size)
                for band in self.bands
            ]
        )

    def _residual_sums(self, samples: Array) -> Floats:
        """What `residual_scale` takes, by CTU: (5, CTU rows, CTU columns) of N, Σc, Σo, Σc², Σco."""

        def sums(band: slice) -> Floats:
            c = np.subtract(samples[band], self.decoded[band], dtype=np.float64)
            o = np.subtract(self.original[band], self.decoded[band], dtype=np.float64)
            return np.stack([ctu_sums(part, self.ctu_size) for part in (np.ones_like(c), c, o, c * c, c * o)])

        return np.stack([sums(band) for band in self.bands], axis=1)


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
    # Rounded once, at the end, as the filter itself is: of a residual that was rounded before it is scaled, all that
    # is below half a sample would be lost.
    base = decoded.astype(np.float64)
    moved = base + (samples - base) * (scale / SCALE_ONE)
    made: Array = np.clip(np.rint(moved), 0, peak).astype(decoded.dtype)
    return made
