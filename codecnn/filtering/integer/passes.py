"""One pass over memory after a convolution on a CPU: add, round, saturate, store.

PyTorch's operators read and write all features at each of these steps, which takes longer than the convolutions. The
loops here are compiled by numba, and run in as many threads as PyTorch has. By the proof of `IntegerNetwork` no step
but the requested rounding changes a number, so that the result does not depend on how a loop is compiled.

Tensors are float32 (n, c, h, w) that hold integers, or integers over a power of two.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codecnn.base.compiled import compiled, compiled_entry
from codecnn.models.graph import Array

_SMALL = 2**18
"""Number of elements up to which one thread is finished before others have started."""


@dataclass(frozen=True)
class Rounding:
    """Rounding and saturation of sums that are already divided by the power of two of their shift.

    Attributes:
        low: Smallest integer; smaller sums saturate.
        high: Largest integer; larger sums saturate.
        to_even: Round to the nearest integer, halves to even; False rounds down.
    """

    low: int
    high: int
    to_even: bool


def round_in_place(sums: Tensor, rounding: Rounding) -> Tensor:
    """Round and saturate sums; the result overwrites them if they are laid out channels-last."""
    return _run_in_place(_round, sums, (), (), rounding)


def add_in_place(sums: Tensor, added: Tensor, scale: float, rounding: Rounding) -> Tensor:
    """Add `scale` times another tensor to sums, then round and saturate them as `round_in_place` does."""
    return _run_in_place(_add_and_round, sums, (added,), (np.float32(scale),), rounding)


def split_rounded(sums: Tensor, channels: int, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """Round and saturate the first channels of sums.

    Args:
        sums: Sums, laid out channels-last; the first channels are overwritten by the result.
        channels: Number of channels to round.
        rounding: Rounding and saturation.

    Returns:
        The rounded channels, and a copy of the remaining sums.
    """
    first, rest = (
        torch.empty_like(sums[:, :count], memory_format=torch.channels_last)
        for count in (channels, sums.shape[1] - channels)
    )
    all_pixels, first_pixels, rest_pixels = (_by_pixel(x) for x in (sums, first, rest))

    def run_part(rows: slice) -> None:
        _round_first(all_pixels[rows], first_pixels[rows], rest_pixels[rows], *_numbers(rounding))

    _run_on_pixels(run_part, *all_pixels.shape)
    return first, rest


def modulate(x: Tensor, factor: Tensor, offset: Tensor, rounding: Rounding) -> Tensor:
    """Compute factor[c] · x + offset[c], rounded and saturated, as a new tensor."""
    source = _by_pixel(x)
    result = torch.empty_like(x, memory_format=torch.channels_last)
    target, by_channel = _by_pixel(result), (factor.numpy(), offset.numpy())
    low, high, to_even = _numbers(rounding)

    def run_part(rows: slice) -> None:
        _modulate(source[rows], *by_channel, target[rows], low, high, to_even)

    _run_on_pixels(run_part, *source.shape)
    return result


def weigh_channels(x: Tensor, weight: Tensor, bias: float, rounding: Rounding) -> Tensor:
    """Compute a sum of channels, each times its weight, plus `bias`, rounded and saturated, as a new tensor.

    oneDNN's convolutions of few planes to one take seven times as long.

    Args:
        x: Channels, shape (n, c, h, w).
        weight: Weight of each channel, shape (c).
        bias: Number to add.
        rounding: Rounding and saturation.

    Returns:
        The sum, shape (n, 1, h, w).
    """
    result = torch.empty_like(x[:, :1], memory_format=torch.contiguous_format)
    channels, sums, factors = x.contiguous().flatten(2).numpy(), result.flatten(1).numpy(), weight.numpy()

    def run_part(samples: slice) -> None:
        _weigh_channels(channels[..., samples], factors, np.float32(bias), sums[:, samples], *_numbers(rounding))

    _run_on_pixels(run_part, sums.shape[1], len(sums) * len(factors))
    return result


def _run_in_place(
    loop: Callable[..., None],
    sums: Tensor,
    inputs: tuple[Tensor, ...],
    numbers: tuple[np.float32, ...],
    rounding: Rounding,
) -> Tensor:
    """Run a compiled loop that overwrites sums, on sums laid out channels-last."""
    result = sums.contiguous(memory_format=torch.channels_last)
    tensors = [_by_pixel(x) for x in (result, *inputs)]

    def run_part(rows: slice) -> None:
        loop(*(pixels[rows].reshape(-1) for pixels in tensors), *numbers, *_numbers(rounding))

    _run_on_pixels(run_part, *tensors[0].shape)
    return result


def _by_pixel(x: Tensor) -> Array:
    """View the memory of a tensor (n, c, h, w) as (pixels, c); it is copied unless it is channels-last."""
    channels_last = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    pixels: Array = channels_last.view(-1, x.shape[1]).numpy()
    return pixels


def _numbers(rounding: Rounding) -> tuple[np.float32, np.float32, bool]:
    return np.float32(rounding.low), np.float32(rounding.high), rounding.to_even


def _run_on_pixels(run_part: Callable[[slice], None], pixels: int, channels: int) -> None:
    """Divide the pixels among as many threads as PyTorch has."""
    threads = torch.get_num_threads()
    if threads == 1 or pixels * channels < _SMALL:
        run_part(slice(None))
        return
    ends = np.linspace(0, pixels, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run_part, map(slice, ends[:-1], ends[1:])))


@compiled
def _rounded(number: np.float32, low: np.float32, high: np.float32, to_even: bool) -> Any:
    return min(max(np.rint(number) if to_even else np.floor(number), low), high)


# The loops below overwrite the array that they read where the result has its shape. With two names for one memory the
# compiler would not vectorise them.


@compiled_entry
def _round(sums: Array, low: np.float32, high: np.float32, to_even: bool) -> None:
    for i in range(sums.size):
        sums[i] = _rounded(sums[i], low, high, to_even)


@compiled_entry
def _add_and_round(
    sums: Array, added: Array, scale: np.float32, low: np.float32, high: np.float32, to_even: bool
) -> None:
    for i in range(sums.size):
        sums[i] = _rounded(sums[i] + scale * added[i], low, high, to_even)


@compiled_entry
def _round_first(sums: Array, first: Array, rest: Array, low: np.float32, high: np.float32, to_even: bool) -> None:
    count = first.shape[1]
    for pixel in range(sums.shape[0]):
        for c in range(count):
            first[pixel, c] = _rounded(sums[pixel, c], low, high, to_even)
        for c in range(count):
            sums[pixel, c] = first[pixel, c]
        for c in range(rest.shape[1]):
            rest[pixel, c] = sums[pixel, count + c]


@compiled_entry
def _modulate(
    x: Array, factor: Array, offset: Array, result: Array, low: np.float32, high: np.float32, to_even: bool
) -> None:
    for pixel in range(x.shape[0]):
        for c in range(x.shape[1]):
            result[pixel, c] = _rounded(x[pixel, c] * factor[c] + offset[c], low, high, to_even)


@compiled_entry
def _weigh_channels(
    x: Array, weight: Array, bias: np.float32, result: Array, low: np.float32, high: np.float32, to_even: bool
) -> None:
    for picture in range(x.shape[0]):
        for start in range(0, x.shape[2], 1024):
            sums = result[picture, start : start + 1024]
            sums[:] = bias
            for channel in range(x.shape[1]):
                samples = x[picture, channel, start : start + 1024]
                for i in range(sums.size):
                    sums[i] += weight[channel] * samples[i]
            for i in range(sums.size):
                sums[i] = _rounded(sums[i], low, high, to_even)
