"""What becomes of sums after a convolution on a CPU, in one pass over memory: added to, rounded, saturated, stored.

PyTorch's operators read and write all features at each of these steps, which takes longer than the convolutions. No
step rounds but the one that is asked for, as the proof of `network` has it, so how it is compiled changes nothing.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from codecnn.models.graph.nodes import Array

_SMALL = 2**18
"""Elements that one thread is done with before others have begun."""
_jit = numba.njit(nogil=True, cache=True, error_model="numpy")


@dataclass(frozen=True)
class Ending:
    """How sums, over the power of two that they are shifted by, become the integers of a tensor.

    low, high   between which they are saturated
    to_even     they are rounded to the nearest integer, halves to the even one; otherwise down
    zero        the zero point of the bytes that they are stored as; None for float32
    """

    low: int
    high: int
    to_even: bool
    zero: int | None = None


def saturated(sums: Tensor, ending: Ending) -> Tensor:
    """The tensor (n, c, h, w) of float32 sums, which may be written over them."""
    return _passed(_round_own, _round, sums, (), (), ending)


def summed(sums: Tensor, second: Tensor, zero: int | None, scale: float, ending: Ending) -> Tensor:
    """The tensor of float32 sums and `scale` times another tensor, of float32 or of bytes with the zero point `zero`.

    It may be written over the sums.
    """
    numbers = np.float32(zero or 0), np.float32(scale)
    return _passed(_add_own, _add, sums, (second,), numbers, ending)


def modulated(x: Tensor, zero: int | None, factor: Tensor, offset: Tensor, ending: Ending) -> Tensor:
    """The tensor factor[c] · x + offset[c] of one of float32 or of bytes with the zero point `zero`."""
    source = _by_pixel(x)
    kind = torch.float32 if ending.zero is None else torch.uint8
    made = torch.empty_like(x, dtype=kind, memory_format=torch.channels_last)
    target = _by_pixel(made)
    tables, ends = (factor.numpy(), offset.numpy()), _numbers(ending)
    kernel: Callable[..., None] = _modulate

    def part(rows: slice) -> None:
        kernel(source[rows], np.float32(zero or 0), *tables, target[rows], *ends, np.float32(ending.zero or 0))

    _in_threads(part, *source.shape)
    return made


def _passed(
    own: Callable[..., None],
    other: Callable[..., None],
    sums: Tensor,
    seconds: tuple[Tensor, ...],
    numbers: tuple[np.float32, ...],
    ending: Ending,
) -> Tensor:
    """What `own` writes over sums, or `other` into bytes."""
    sums = sums.contiguous(memory_format=torch.channels_last)
    made = sums if ending.zero is None else torch.empty_like(sums, dtype=torch.uint8)
    source, target, *added = (_by_pixel(x) for x in (sums, made, *seconds))
    # Compiled for two names of one memory a loop would go sample by sample.
    kernel = own if ending.zero is None else other
    into = () if ending.zero is None else (target,)
    ends = _numbers(ending) + (() if ending.zero is None else (np.float32(ending.zero),))

    def part(rows: slice) -> None:
        flat = [one[rows].reshape(-1) for one in (source, *added, *into)]
        kernel(*flat, *numbers, *ends)

    _in_threads(part, *source.shape)
    return made


def _by_pixel(x: Tensor) -> Array:
    """The memory of a tensor (n, c, h, w) as (pixels, c)."""
    moved = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    found: Array = moved.view(-1, x.shape[1]).numpy()
    return found


def _numbers(ending: Ending) -> tuple[Any, ...]:
    return np.float32(ending.low), np.float32(ending.high), ending.to_even


def _in_threads(part: Callable[[slice], None], pixels: int, channels: int) -> None:
    """Let as many threads as PyTorch's do a part of the pixels each."""
    threads = torch.get_num_threads()
    if threads == 1 or pixels * channels < _SMALL:
        part(slice(None))
        return
    ends = np.linspace(0, pixels, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, map(slice, ends[:-1], ends[1:])))


@_jit
def _ended(number, low, high, to_even):  # type: ignore[no-untyped-def]
    return min(max(np.rint(number) if to_even else np.floor(number), low), high)


@_jit
def _round_own(sums, low, high, to_even):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        sums[i] = _ended(sums[i], low, high, to_even)


@_jit
def _round(sums, made, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        made[i] = _ended(sums[i], low, high, to_even) + zero


@_jit
def _add_own(sums, second, second_zero, scale, low, high, to_even):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        sums[i] = _ended(sums[i] + scale * (np.float32(second[i]) - second_zero), low, high, to_even)


@_jit
def _add(sums, second, made, second_zero, scale, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        number = sums[i] + scale * (np.float32(second[i]) - second_zero)
        made[i] = _ended(number, low, high, to_even) + zero


@_jit
def _modulate(x, x_zero, factor, offset, made, low, high, to_even, zero):  # type: ignore[no-untyped-def]
    for pixel in range(x.shape[0]):
        for c in range(x.shape[1]):
            number = (np.float32(x[pixel, c]) - x_zero) * factor[c] + offset[c]
            made[pixel, c] = _ended(number, low, high, to_even) + zero
