"""Plain NumPy versions of the stages of inter prediction, written from the formulas of H.266 clause 8.5."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from codecnn.reconstruct.interpolation import CHROMA_FILTERS, LUMA_FILTERS

Ints = npt.NDArray[np.int64]
Place = tuple[int, int, int, int]
"""Column, row, width and height of a block in its component."""

Columns = Callable[[Ints], Ints]
"""Function that maps columns or rows of a reference to those that are read."""


def clamped(low: int, high: int) -> Columns:
    """Return the padding of a picture or subpicture from `low` to `high`: Clip3(low, high, x)."""
    return lambda places: np.clip(places, low, high)


def wrapping(offset: int, size: int) -> Columns:
    """Return the padding with horizontal wraparound: Clip3(0, size - 1, ClipH(offset, size, x))."""

    def move(places: Ints) -> Ints:
        moved = np.where(places < 0, places + offset, np.where(places > size - 1, places - offset, places))
        return np.clip(moved, 0, size - 1)

    return move


def interpolated(
    plane: Ints,
    place: Place,
    vector: tuple[int, int],
    *,
    bit_depth: int,
    sub: tuple[int, int] | None = None,
    kind: int = 0,
    columns: Columns | None = None,
    rows: Columns | None = None,
) -> Ints:
    """Interpolate a block by (8.5.6.3.2) or, for chroma, (8.5.6.3.4); all sums are full sums without shortcuts.

    Args:
        plane: Reference.
        place: The block.
        vector: Motion vector in 1/16 luma sample.
        bit_depth: Bit depth.
        sub: log2 of the chroma subsampling; None for luma.
        kind: Filter set.
        columns: Padding of columns; None for that of the whole picture.
        rows: Padding of rows.
    """
    x, y, width, height = place
    columns = columns or clamped(0, plane.shape[1] - 1)
    rows = rows or clamped(0, plane.shape[0] - 1)
    if sub is None:
        table, unit = LUMA_FILTERS[kind].astype(np.int64), (16, 16)
        steps = vector
    else:
        # mvCLX is in units of 1/32 chroma sample: mvLX * 2 / SubWidthC and mvLX * 2 / SubHeightC.
        table, unit = CHROMA_FILTERS[kind].astype(np.int64), (32, 32)
        steps = (vector[0] * 2 // (1 << sub[0]), vector[1] * 2 // (1 << sub[1]))
    taps = table.shape[1]
    around = np.arange(taps) - (taps // 2 - 1)
    across = columns(x + steps[0] // unit[0] + np.arange(width)[:, None] + around)
    down = rows(y + steps[1] // unit[1] + np.arange(height)[:, None] + around)
    samples = plane[down[:, :, None, None], across[None, None]]
    first, third = min(4, bit_depth - 8), max(2, 14 - bit_depth)
    filter_x, filter_y = table[steps[0] % unit[0]], table[steps[1] % unit[1]]
    middle = taps // 2 - 1
    if steps[0] % unit[0] == 0 and steps[1] % unit[1] == 0:
        return samples[:, middle, :, middle] << third
    if steps[1] % unit[1] == 0:
        return (samples[:, middle] @ filter_x) >> first
    if steps[0] % unit[0] == 0:
        return np.einsum("abc,b->ac", samples[:, :, :, middle], filter_y) >> first
    half = (samples @ filter_x) >> first
    return np.einsum("abc,b->ac", half, filter_y) >> 6


def default_weighted(predictions: list[Ints], bit_depth: int) -> Ints:
    """Round one prediction or average two ((980) and (981) of 8.5.6.6.2)."""
    shift = max(2, 14 - bit_depth) + len(predictions) - 1
    return ((sum(predictions) + (1 << (shift - 1))) >> shift).clip(0, (1 << bit_depth) - 1)


def bcw_weighted(first: Ints, second: Ints, index: int, bit_depth: int) -> Ints:
    """Average two predictions by bcwWLut ((982) of 8.5.6.6.2)."""
    weight = (4, 5, 3, 10, -2)[index]
    shift = max(2, 14 - bit_depth)
    total = (8 - weight) * first + weight * second + (1 << (shift + 2))
    return (total >> (shift + 3)).clip(0, (1 << bit_depth) - 1)


def explicitly_weighted(
    predictions: list[Ints], weights: list[int], offsets: list[int], log2: int, bit_depth: int
) -> Ints:
    """Weight predictions explicitly (8.5.6.6.3); `log2` is the denominator, offsets are in units of the samples."""
    denominator = log2 + max(2, 14 - bit_depth)
    if len(predictions) == 1:
        total = ((predictions[0] * weights[0] + (1 << (denominator - 1))) >> denominator) + offsets[0]
    else:
        total = predictions[0] * weights[0] + predictions[1] * weights[1] + ((sum(offsets) + 1) << denominator)
        total >>= denominator + 1
    return total.clip(0, (1 << bit_depth) - 1)


def mapped_forward(samples: Ints, pivot: Ints, scale: Ints, bit_depth: int) -> Ints:
    """Map luma forward by (1223) of 8.7.5.2."""
    width = 1 << (bit_depth - 4)
    index = samples // width
    return pivot[index] + ((scale[index] * (samples - index * width) + 1024) >> 11)
