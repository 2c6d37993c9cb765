"""What becomes of sums after a convolution on a CPU, in one pass over memory: added to, rounded, saturated, stored.

PyTorch's operators read and write all features at each of these steps, which takes longer than the convolutions. No
step rounds but the one that is asked for, as the proof of `network` has it, so how it is compiled changes nothing.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from codecnn.models.graph import Array

_SMALL = 2**18
"""Elements that one thread is done with before others have begun."""


@dataclass(frozen=True)
class Ending:
    """How sums, over the power of two that they are shifted by, become the integers of a tensor.

    low, high   between which they are saturated
    to_even     they are rounded to the nearest integer, halves to the even one; otherwise down
    """

    low: int
    high: int
    to_even: bool


def saturated(sums: Tensor, ending: Ending) -> Tensor:
    """The tensor (n, c, h, w) of float32 sums, written over them."""
    # numba takes half a second to import, which filters in float do not need.
    from codecnn.filtering.integer._kernels import round_own

    return _passed(round_own, sums, (), (), ending)


def first_saturated(sums: Tensor, channels: int, ending: Ending) -> tuple[Tensor, Tensor]:
    """The tensor of the first so many channels of float32 sums, written over them too, and a copy of the other sums."""
    from codecnn.filtering.integer._kernels import round_first

    made, rest = (
        torch.empty_like(sums[:, :count], memory_format=torch.channels_last)
        for count in (channels, sums.shape[1] - channels)
    )
    own, front, behind = (_by_pixel(x) for x in (sums, made, rest))

    def part(rows: slice) -> None:
        round_first(own[rows], front[rows], behind[rows], *_numbers(ending))

    _in_threads(part, *own.shape)
    return made, rest


def summed(sums: Tensor, second: Tensor, scale: float, ending: Ending) -> Tensor:
    """The tensor of float32 sums and `scale` times another tensor, written over the sums."""
    from codecnn.filtering.integer._kernels import add_own

    return _passed(add_own, sums, (second,), (np.float32(scale),), ending)


def modulated(x: Tensor, factor: Tensor, offset: Tensor, ending: Ending) -> Tensor:
    """The tensor factor[c] · x + offset[c]."""
    from codecnn.filtering.integer._kernels import modulate_into

    source = _by_pixel(x)
    made = torch.empty_like(x, memory_format=torch.channels_last)
    target, by_channel = _by_pixel(made), (factor.numpy(), offset.numpy())
    low, high, to_even = _numbers(ending)

    def part(rows: slice) -> None:
        modulate_into(source[rows], *by_channel, target[rows], low, high, to_even)

    _in_threads(part, *source.shape)
    return made


def _passed(
    own: Callable[..., None],
    sums: Tensor,
    seconds: tuple[Tensor, ...],
    numbers: tuple[np.float32, ...],
    ending: Ending,
) -> Tensor:
    """What `own` writes over sums."""
    made = sums.contiguous(memory_format=torch.channels_last)
    tensors = [_by_pixel(x) for x in (made, *seconds)]

    def part(rows: slice) -> None:
        own(*(one[rows].reshape(-1) for one in tensors), *numbers, *_numbers(ending))

    _in_threads(part, *tensors[0].shape)
    return made


def _by_pixel(x: Tensor) -> Array:
    """The memory of a tensor (n, c, h, w) as (pixels, c)."""
    moved = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    found: Array = moved.view(-1, x.shape[1]).numpy()
    return found


def _numbers(ending: Ending) -> tuple[np.float32, np.float32, bool]:
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
