"""Rate and distortion of a filtered component: λ, bits of the flags, scales, and the choices of one component.

`Component` combines them: it lists the ways in which one component of a picture can be filtered, each with its samples,
bits and squared error.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from codecnn.models.graph import Array
from codecnn.pictures.metrics import ctu_sums

BoolArray = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Mode = Literal["off", "on", "ctu"]

State = tuple[int, int]
"""Two estimates of the probability of a 1 in a context, with 10 and 14 fractional bits (H.266 clause 9.3.2.2)."""

SCALE_ONE = 256
"""Scale of the residual that stands for 1: scales have 8 fractional bits."""
SCALE_RANGE = (16, 320)
"""Smallest and largest scale: 0.0625 and 1.25."""
LOOP_SCALE_STEP = 16
"""Distance of the scales in streams with a filter in the loop, 1/16: 20 scales instead of 305."""

_CHROMA_QP = ((17, 17), (22, 23), (34, 35), (42, 39))
"""Pairs of a luma QP and its chroma QP: 4:2:0 in the JVET common test conditions, and libvvenc's default."""
START: State = (512, 8192)
"""Initial state of a context: both estimates are one half."""
_SHIFTS = (2, 5)
"""Adaptation shifts of the two estimates for shiftIdx 0, which most contexts of VVC's alf_ctb_flag have."""
_BEAM = 16
"""Number of partial flag maps that are kept during the search; with fewer the best map is missed more often."""
_RIDGE = 0.1
"""Regularisation in sample², which pulls the scale towards 1 where there is hardly a residual to estimate it from."""


def rd_lambda(qp: int, bit_depth: int) -> float:
    """Return λ, the squared error of luma that equals the cost of one bit, in sample² at `bit_depth` b.

    λ = 0.57 · 2^((QP - 12) / 3) · 4^(b - 8), as VTM's EncSlice::calculateLambda computes it with LambdaFromQPEnable in
    the JVET common test conditions, where slices of all types have the factor 0.57. VTM keeps squared errors at their
    own bit depth (FULL_NBIT) and adds 6 · (b - 8) to the QP instead, which equals the last factor.
    """
    # The best λ is the slope -dD/dR of the rate-distortion curve. For fine quantisation it is proportional to the
    # squared step (Sullivan and Wiegand, "Rate-distortion optimization for video compression", 1998). Six QPs double
    # the step, and so multiply λ by four.
    return float(0.57 * 2.0 ** ((qp - 12) / 3) * 4.0 ** (bit_depth - 8))


def chroma_weight(qp: int) -> float:
    """Return the weight of chroma's squared error relative to luma's: 2^((QP - QPc) / 3).

    The formula is that of VTM's EncSlice::setUpLambda. QPc is the chroma QP for 4:2:0 by the ChromaQpTable of the
    common test conditions (H.266 clause 7.4.3.4), without offsets and without VTM's factor for dependent quantisation.
    """
    return float(2.0 ** ((qp - _chroma_qp(qp)) / 3))


def _chroma_qp(qp: int) -> int:
    """Interpolate and extrapolate ChromaQpTable in integers, as H.266 clause 7.4.3.4 derives it."""
    first, last = _CHROMA_QP[0], _CHROMA_QP[-1]
    if qp <= first[0]:
        return first[1] + qp - first[0]
    for (low, at_low), (high, at_high) in pairwise(_CHROMA_QP):
        if qp <= high:
            span = high - low
            return at_low + ((at_high - at_low) * (qp - low) + (span >> 1)) // span
    return last[1] + qp - last[0]


def flag_bits(flags: BoolArray) -> float:
    """Compute the bits that code the CTU flags of one component of one picture.

    Each flag is a bin with one of three contexts, the number of its left and upper neighbours that are on, as VVC codes
    alf_ctb_flag (H.266 clause 9.3.4.2.2). In each picture the contexts start at a probability of one half and adapt as
    in VVC, by two estimates with the rates 1/4 and 1/32 (clause 9.3.4.3.2). A bin costs -log2 of its probability.

    Args:
        flags: Flags, shape (CTU rows, CTU columns), coded in raster order.

    Returns:
        The number of bits, not rounded.
    """
    states = [START] * 3
    bits = 0.0
    values = flags.ravel().tolist()
    for index, value in enumerate(values):
        context = context_of(values, index, flags.shape[1])
        bits += _bits(states[context], value)
        states[context] = next_state(states[context], value)
    return bits


def scale_bits(step: int) -> int:
    """Return the bits that signal one of the scales from `SCALE_RANGE` with a distance of `step`: 9 for 1, 5 for 16."""
    return ((SCALE_RANGE[1] - SCALE_RANGE[0]) // step).bit_length()


def choose_flags(gains: npt.NDArray[np.float64], lambda_: float) -> BoolArray:
    """Choose the flags that approximately minimise λ · bits - (sum of the gains of the CTUs that are on).

    A flag changes the probabilities of all later flags of its context, so that the flags cannot be chosen one by one. A
    beam search keeps the partial flag maps of least cost from CTU to CTU. Its time and memory are proportional to the
    number of CTUs: each map stores the flag of the last CTU and a link to the map that it extends, and the flags are
    read backwards along the links of the best map.

    Args:
        gains: Squared error that the filter removes in each CTU, shape (CTU rows, CTU columns).
        lambda_: Squared error that equals the cost of one bit.

    Returns:
        The flags, of the same shape.
    """
    columns = gains.shape[1]
    recent_mask = (1 << columns) - 1
    # Of each partial map: its cost, the flags of its last `columns` CTUs as bits (the latest lowest), and the states
    # of its contexts.
    beam: list[tuple[float, int, tuple[State, ...]]] = [(0.0, 0, (START,) * 3)]
    links = np.empty((gains.size, _BEAM), np.uint8)
    for index, gain in enumerate(map(float, gains.ravel())):
        has_left, has_above = index % columns > 0, index >= columns
        extensions = []
        for rank, (cost, recent, states) in enumerate(beam):
            context = (recent & 1 if has_left else 0) + (recent >> (columns - 1) if has_above else 0)
            bits_off, bits_on = _bits(states[context], False), _bits(states[context], True)
            # The second entry keeps the order among equal costs, and encodes the link: 2 · rank + flag.
            extensions.append((cost + lambda_ * bits_off, 2 * rank, context))
            extensions.append((cost + (lambda_ * bits_on - gain), 2 * rank + 1, context))
        extensions.sort()
        longer = []
        for place, (cost, link, context) in enumerate(extensions[:_BEAM]):
            _, recent, states = beam[link >> 1]
            value = link & 1
            states = (*states[:context], next_state(states[context], bool(value)), *states[context + 1 :])
            longer.append((cost, (recent << 1 | value) & recent_mask, states))
            links[index, place] = link
        beam = longer
    flags = np.empty(gains.size, np.bool_)
    rank = 0
    for index in reversed(range(gains.size)):
        link = int(links[index, rank])
        flags[index], rank = link & 1, link >> 1
    return flags.reshape(gains.shape)


def context_of(flags: Sequence[bool], index: int, columns: int) -> int:
    """Return the context of a flag: the number of its left and upper neighbours that are on."""
    left = index % columns > 0 and flags[index - 1]
    above = index >= columns and flags[index - columns]
    return int(left) + int(above)


def _bits(state: State, value: bool) -> float:
    """Return the bits of a bin: -log2 of its probability in a context."""
    # The mean of both estimates with 15 fractional bits: 16 · pStateIdx0 + pStateIdx1 (H.266 clause 9.3.4.3.2).
    probability = (state[1] + 16 * state[0]) / 32768
    return -math.log2(probability if value else 1 - probability)


def next_state(state: State, value: bool) -> State:
    """Return the state of a context after a bin."""
    # An estimate moves towards the bin's value by 1/4 or 1/32 of the distance: one follows quickly, the other averages
    # over more bins. The shifts truncate, so that neither reaches 0 or 1, where the other value would cost infinitely
    # many bits.
    short, long = state
    return (
        short - (short >> _SHIFTS[0]) + ((1023 if value else 0) >> _SHIFTS[0]),
        long - (long >> _SHIFTS[1]) + ((16383 if value else 0) >> _SHIFTS[1]),
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to filter a component.

    Attributes:
        mode: Off, on in every CTU, or by CTU.
        flags: True where a CTU is filtered, shape (CTU rows, CTU columns).
        scale: Scale of the residual in units of 1/256.
        plane: Samples of the component, shape (h, w).
        bits: Bits that signal the choice.
        distortion: Weighted squared error against the original, in sample².
    """

    mode: Mode
    flags: BoolArray
    scale: int
    plane: Array
    bits: float
    distortion: float

    def cost(self, lambda_: float) -> float:
        """Return the rate-distortion cost D + λ·R in sample²."""
        return self.distortion + lambda_ * self.bits


class Component:
    """One component of a picture that a decision is taken on.

    Args:
        original: Original samples, shape (h, w).
        decoded: Decoded samples, shape (h, w).
        ctu_size: Width of a CTU in samples of the component.
        weight: Weight of the component's squared error relative to luma's.
        lambda_: Squared error that equals the cost of one bit.
        peak: Largest sample value.
        scale_step: Distance of the scales in units of 1/256.
    """

    def __init__(
        self,
        original: Array,
        decoded: Array,
        ctu_size: int,
        *,
        weight: float,
        lambda_: float,
        peak: int,
        scale_step: int = 1,
    ) -> None:
        self.original, self.decoded, self.ctu_size = original, decoded, ctu_size
        self.weight, self.lambda_, self.peak, self.scale_step = weight, lambda_, peak, scale_step
        # Arrays are computed CTU row by CTU row, so that the intermediate ones stay in the processor's caches.
        self.bands = [slice(start, start + ctu_size) for start in range(0, len(decoded), ctu_size)]
        self.errors = self._squared_errors(decoded)

    def off(self) -> Choice:
        """Return the choice that leaves the component as it is decoded; one bit signals it."""
        flags = np.zeros(self.errors.shape, np.bool_)
        return Choice("off", flags, SCALE_ONE, self.decoded, 1.0, self.weight * float(self.errors.sum()))

    def filtered(self, samples: Array, mode_bits: float) -> list[Choice]:
        """List the choices that filter the component, everywhere or by CTU.

        The scales tried are 1, the best for the whole picture, and the best for the CTUs that are on in the better of
        the two.

        Args:
            samples: Samples of the network at full strength, shape (h, w).
            mode_bits: Bits that signal the mode on or by CTU.
        """
        sums = self._residual_sums(samples)

        def choices_at(scale: int) -> Iterator[Choice]:
            full = np.empty_like(self.decoded)
            for band in self.bands:
                full[band] = scale_residual(self.decoded[band], samples[band], scale, self.peak)
            errors = self._squared_errors(full)
            bits = mode_bits + (1.0 if scale == SCALE_ONE else 1.0 + scale_bits(self.scale_step))
            yield Choice("on", np.ones_like(errors, np.bool_), scale, full, bits, self.weight * float(errors.sum()))
            flags = choose_flags(self.weight * (self.errors - errors), self.lambda_)
            mask = flags.repeat(self.ctu_size, axis=0).repeat(self.ctu_size, axis=1)[: full.shape[0], : full.shape[1]]
            distortion = self.weight * float(np.where(flags, errors, self.errors).sum())
            plane = np.where(mask, full, self.decoded)
            yield Choice("ctu", flags, scale, plane, bits + flag_bits(flags), distortion)

        scales = {SCALE_ONE, self._scale(sums.sum(axis=(1, 2)))}
        choices = [choice for scale in sorted(scales) for choice in choices_at(scale)]
        # The scale of the whole picture also accounts for CTUs where the filter does harm. The scale fitted to the CTUs
        # that are on is better for them. Flags and scale could be optimised in turn further; this stops after a round.
        best = min((choice for choice in choices if choice.mode == "ctu"), key=lambda choice: choice.cost(self.lambda_))
        refined = self._scale(sums[:, best.flags].sum(axis=1))
        return choices if refined in scales else [*choices, *choices_at(refined)]

    def _scale(self, sums: Floats) -> int:
        """Return the least-squares scale, rounded to the distance of the scales, for the arguments of the function."""
        lowest = SCALE_RANGE[0]
        return lowest + self.scale_step * round((residual_scale(*sums) - lowest) / self.scale_step)

    def _squared_errors(self, plane: Array) -> Floats:
        """Sum the squared differences from the original in each CTU, (CTU rows, CTU columns); sums are exact."""
        return np.stack(
            [
                ctu_sums(np.square(np.subtract(self.original[band], plane[band], dtype=np.float64)), self.ctu_size)
                for band in self.bands
            ]
        )

    def _residual_sums(self, samples: Array) -> Floats:
        """Compute the arguments of `residual_scale` by CTU: N, Σc, Σo, Σc², Σco, (5, CTU rows, CTU columns)."""

        def sums(band: slice) -> Floats:
            c = np.subtract(samples[band], self.decoded[band], dtype=np.float64)
            o = np.subtract(self.original[band], self.decoded[band], dtype=np.float64)
            return np.stack([ctu_sums(part, self.ctu_size) for part in (np.ones_like(c), c, o, c * c, c * o)])

        return np.stack([sums(band) for band in self.bands], axis=1)


def residual_scale(count: float, c: float, o: float, cc: float, co: float) -> int:
    """Compute the least-squares scale of a residual.

    The scale is (N·Σco - ΣcΣo + N²ε) / (N·Σc² - (Σc)² + N²ε) with ε = 0.1 sample², as the residual scaling of JVET's
    neural network-based video coding derives it. c is the network's residual and o the original's, both relative to the
    decoded samples.

    Args:
        count: N, the number of samples.
        c: Σc, the sum of the network's residual.
        o: Σo, the sum of the original's residual.
        cc: Σc².
        co: Σc·o.

    Returns:
        The scale in units of 1/256, from 16 to 320; 256 if there are no samples.
    """
    if count == 0:
        return SCALE_ONE
    ridge = count * count * _RIDGE
    ratio = (count * co - c * o + ridge) / (count * cc - c * c + ridge)
    return int(np.clip(np.rint(SCALE_ONE * ratio), *SCALE_RANGE))


def scale_residual(decoded: Array, samples: Array, scale: int, peak: int) -> Array:
    """Add `scale`/256 of the residual to decoded samples, round half to even, and clip to `peak`.

    The result has the type of `decoded`. At 256 it equals the filter's own result, bit for bit.
    """
    # Samples are rounded once, at the end, as the filter itself does. A residual that was rounded before scaling would
    # lose everything below half a sample.
    base = decoded.astype(np.float64)
    moved = base + (samples - base) * (scale / SCALE_ONE)
    result: Array = np.clip(np.rint(moved), 0, peak).astype(decoded.dtype)
    return result
