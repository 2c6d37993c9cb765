"""The loops of `_passes`, compiled by numba: over the samples of a part of a tensor, in float32.

`own` writes over the sums themselves: compiled for two names of one memory a loop would go sample by sample.
"""

import numpy as np

from codecnn.vvc.compiled import compiled, compiled_entry


@compiled
def _ended(number, low, high, to_even):  # type: ignore[no-untyped-def]
    return min(max(np.rint(number) if to_even else np.floor(number), low), high)


@compiled_entry
def round_own(sums, low, high, to_even):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        sums[i] = _ended(sums[i], low, high, to_even)


@compiled_entry
def round_into(sums, made, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        made[i] = _ended(sums[i], low, high, to_even) + zero


@compiled_entry
def add_own(sums, second, second_zero, scale, low, high, to_even):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        sums[i] = _ended(sums[i] + scale * (np.float32(second[i]) - second_zero), low, high, to_even)


@compiled_entry
def add_into(sums, second, made, second_zero, scale, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        number = sums[i] + scale * (np.float32(second[i]) - second_zero)
        made[i] = _ended(number, low, high, to_even) + zero


@compiled_entry
def modulate_into(x, x_zero, factor, offset, made, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for pixel in range(x.shape[0]):
        for c in range(x.shape[1]):
            number = (np.float32(x[pixel, c]) - x_zero) * factor[c] + offset[c]
            made[pixel, c] = _ended(number, low, high, to_even) + zero
