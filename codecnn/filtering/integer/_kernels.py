"""The loops of `_passes`, compiled by numba: over the samples of a part of a tensor, in float32.

`own` writes over the sums themselves: compiled for two names of one memory a loop would go sample by sample.
"""

from typing import Any

import numpy as np

from codecnn.models.graph import Array
from codecnn.vvc import compiled, compiled_entry


@compiled
def _ended(number: np.float32, low: np.float32, high: np.float32, to_even: bool) -> Any:
    return min(max(np.rint(number) if to_even else np.floor(number), low), high)


@compiled_entry
def round_own(sums: Array, low: np.float32, high: np.float32, to_even: bool) -> None:
    for i in range(sums.size):
        sums[i] = _ended(sums[i], low, high, to_even)


@compiled_entry
def add_own(sums: Array, second: Array, scale: np.float32, low: np.float32, high: np.float32, to_even: bool) -> None:
    for i in range(sums.size):
        sums[i] = _ended(sums[i] + scale * second[i], low, high, to_even)


@compiled_entry
def round_first(sums: Array, made: Array, rest: Array, low: np.float32, high: np.float32, to_even: bool) -> None:
    first = made.shape[1]
    for pixel in range(sums.shape[0]):
        for c in range(first):
            made[pixel, c] = _ended(sums[pixel, c], low, high, to_even)
        for c in range(first):
            sums[pixel, c] = made[pixel, c]
        for c in range(rest.shape[1]):
            rest[pixel, c] = sums[pixel, first + c]


@compiled_entry
def modulate_into(
    x: Array, factor: Array, offset: Array, made: Array, low: np.float32, high: np.float32, to_even: bool
) -> None:
    for pixel in range(x.shape[0]):
        for c in range(x.shape[1]):
            made[pixel, c] = _ended(x[pixel, c] * factor[c] + offset[c], low, high, to_even)
