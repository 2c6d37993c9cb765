"""The encoder's side of a filter decision: λ, the weight of chroma, and how many bits the flags of the CTUs take."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
State = tuple[int, int]

_CHROMA_QP = ((17, 17), (22, 23), (34, 35), (42, 39))
"""Luma QP and the chroma QP it becomes, JVET common test conditions for 4:2:0, and libvvenc's default."""
_START: State = (512, 8192)
"""Both estimates of the probability of a 1 at one half: 10 and 14 bits of fraction (H.266 clause 9.3.2.2)."""
_SHIFTS = (2, 5)
"""Adaptation rates of the two estimates for shiftIdx 0, which most of VVC's alf_ctb_flag have."""
_BEAM = 16
"""Paths kept while flags are chosen: with 16 all of 60 random maps of up to 10 CTUs came out best, with 1 a half."""


def rd_lambda(qp: int, bit_depth: int) -> float:
    """λ, the squared error of luma that one bit is worth, in sample² at `bit_depth` b.

    0.57 · 2^((QP - 12) / 3) · 4^(b - 8): VTM's EncSlice::calculateLambda with LambdaFromQPEnable, as JVET's common test
    conditions have it, where slices of every type take the factor 0.57. VTM leaves squared errors at their own bit
    depth (FULL_NBIT) and moves the QP by 6 · (b - 8) instead, which is the last factor.
    """
    # The best λ is the slope -dD/dR of the rate-distortion curve, which is a constant times the quantiser's squared
    # step where steps are fine (Sullivan and Wiegand, "Rate-distortion optimization for video compression", 1998).
    # Six QPs double the step, so they multiply λ by four.
    return float(0.57 * 2.0 ** ((qp - 12) / 3) * 4.0 ** (bit_depth - 8))


def chroma_weight(qp: int) -> float:
    """What squared error of chroma weighs beside that of luma: 2^((QP - QPc) / 3), from VTM's EncSlice::setUpLambda.

    QPc is the chroma QP of 4:2:0 by VVC's table of the common test conditions (H.266 clause 7.4.3.4, ChromaQpTable),
    without offsets and without the factor of up to 2^(0.2 / 3) that VTM has for dependent quantisation.
    """
    return float(2.0 ** ((qp - _chroma_qp(qp)) / 3))


def _chroma_qp(qp: int) -> int:
    """ChromaQpTable between and beyond its pivots, in whole numbers as H.266 clause 7.4.3.4 derives it."""
    first, last = _CHROMA_QP[0], _CHROMA_QP[-1]
    if qp <= first[0]:
        return first[1] + qp - first[0]
    for (low, at_low), (high, at_high) in pairwise(_CHROMA_QP):
        if qp <= high:
            span = high - low
            return at_low + ((at_high - at_low) * (qp - low) + (span >> 1)) // span
    return last[1] + qp - last[0]


def flag_bits(flags: BoolArray) -> float:
    """Bits of the flags (rows, columns) of one component of one picture, in raster order.

    Each is a bin with one of three contexts, the number of its left and upper neighbours that are on, as VVC codes
    alf_ctb_flag (H.266 clause 9.3.4.2.2); contexts begin each picture at one half and adapt as those of VVC do, by two
    estimates at the rates 1/4 and 1/32 (clause 9.3.4.3.2). A bin takes -log2 of the probability it had.
    """
    states = [_START] * 3
    bits = 0.0
    coded = flags.ravel().tolist()
    for index, value in enumerate(coded):
        context = _context(coded, index, flags.shape[1])
        bits += _bits(states[context], value)
        states[context] = _adapted(states[context], value)
    return bits


def choose_flags(gains: npt.NDArray[np.float64], lambda_: float) -> BoolArray:
    """Flags (rows, columns) that about minimise λ · bits - (sum of the gains where they are on).

    `gains` is the squared error that the filter takes away in each CTU. What a flag costs depends on those before it,
    so the best few beginnings are kept from CTU to CTU, not the best one.
    """
    # A flag moves the probabilities of all flags of its context after it, so choices are not independent, and no state
    # small enough for dynamic programming says all that matters of a beginning.
    columns = gains.shape[1]
    paths: list[tuple[float, tuple[bool, ...], tuple[State, ...]]] = [(0.0, (), (_START,) * 3)]
    for index, gain in enumerate(gains.ravel().tolist()):
        longer = []
        for cost, flags, states in paths:
            context = _context(flags, index, columns)
            state = states[context]
            for value in (False, True):
                after = (*states[:context], _adapted(state, value), *states[context + 1 :])
                added = lambda_ * _bits(state, value) - gain * value
                longer.append((cost + added, (*flags, value), after))
        longer.sort(key=lambda path: path[0])
        paths = longer[:_BEAM]
    return np.array(paths[0][1], dtype=np.bool_).reshape(gains.shape)


def _context(flags: Sequence[bool], index: int, columns: int) -> int:
    left = index % columns > 0 and flags[index - 1]
    above = index >= columns and flags[index - columns]
    return int(left) + int(above)


def _bits(state: State, value: bool) -> float:
    # The mean of the two estimates, brought to 15 bits: 16 · pStateIdx0 + pStateIdx1 (H.266 clause 9.3.4.3.2).
    one = (state[1] + 16 * state[0]) / 32768
    return -math.log2(one if value else 1 - one)


def _adapted(state: State, value: bool) -> State:
    # An estimate moves towards the bin's value by 1/4 or 1/32 of what is left: one learns fast, the other forgets
    # little. The shifts truncate, so that neither reaches 0 or 1, where the other value would cost infinitely much.
    short, long = state
    return (
        short - (short >> _SHIFTS[0]) + ((1023 if value else 0) >> _SHIFTS[0]),
        long - (long >> _SHIFTS[1]) + ((16383 if value else 0) >> _SHIFTS[1]),
    )
