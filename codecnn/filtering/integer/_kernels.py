"""The loops of `_passes`, compiled by numba: over the samples of a part of a tensor, in float32.

`own` writes over the sums themselves: compiled for two names of one memory a loop would go sample by sample.
"""

from typing import Any

import numpy as np

from codecnn.models.graph.nodes import Array
from codecnn.vvc.compiled import compiled, compiled_entry


@compiled
def _ended(number: np.float32, low: np.float32, high: np.float32, to_even: bool) -> Any:
    return min(max(np.rint(number) if to_even else np.floor(number), low), high)


@compiled_entry
def round_own(sums: Array, low: np.float32, high: np.float32, to_even: bool) -> None:
    for i in range(sums.size):
        sums[i] = _ended(sums[i], low, high, to_even)


@compiled_entry
def round_into(sums: Array, made: Array, low: np.float32, high: np.float32, to_even: bool, zero: np.float32) -> None:
    for i in range(sums.size):
        made[i] = _ended(sums[i], low, high, to_even) + zero


@compiled_entry
def add_own(
    sums: Array,
    second: Array,
    second_zero: np.float32,
    scale: np.float32,
    low: np.float32,
    high: np.float32,
    to_even: bool,
) -> None:
    for i in range(sums.size):
        sums[i] = _ended(sums[i] + scale * (np.float32(second[i]) - second_zero), low, high, to_even)


@compiled_entry
def add_into(
    sums: Array,
    second: Array,
    made: Array,
    second_zero: np.float32,
    scale: np.float32,
    low: np.float32,
    high: np.float32,
    to_even: bool,
    zero: np.float32,
) -> None:
    for i in range(sums.size):
        number = sums[i] + scale * (np.float32(second[i]) - second_zero)
        made[i] = _ended(number, low, high, to_even) + zero


@compiled_entry
def modulate_into(
    x: Array,
    x_zero: np.float32,
    factor: Array,
    offset: Array,
    made: Array,
    low: np.float32,
    high: np.float32,
    to_even: bool,
    zero: np.float32,
) -> None:
    for pixel in range(x.shape[0]):
        for c in range(x.shape[1]):
            number = (np.float32(x[pixel, c]) - x_zero) * factor[c] + offset[c]
            made[pixel, c] = _ended(number, low, high, to_even) + zero
