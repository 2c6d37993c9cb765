"""Inverse transforms (H.266 clauses 8.7.4.1 to 8.7.4.5)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, U, clip, residual_limit
from codecnn.vvc.syntax import SCAN
from codecnn.vvc.syntax import state as st

RANGE_OF_32_BITS = 18
"""Largest log2 of the range of coefficients for which sums of 32 bits are enough.

The sum of 64 products of coefficients of 19 bits, which 12-bit pictures with extended precision have, and transMatrix
fits into 32 bits; that of wider coefficients does not.
"""


@compiled
def kernel_of(f: Frame, kernel: int, log2_size: int) -> tuple[Array[int], int]:
    """Return transMatrix of 2^log2_size samples, row by row, and the step between its rows.

    Clause 8.7.4.5, Transformation matrix derivation process.
    """
    if kernel == st.DCT2:
        # The rows of a smaller matrix are every second, fourth, ... row of the one of 64 samples.
        return f.tables.dct2[:], 64 << (6 - log2_size)
    matrices = f.tables.dst7 if kernel == st.DST7 else f.tables.dct8
    return matrices[log2_size - 2], 1 << log2_size


@compiled
def inverse_transform(f: Frame, log2_w: int, log2_h: int, kernel_h: int, kernel_v: int, residual: Array[int]) -> None:
    """Transform the coefficients of a block to its residual.

    Clause 8.7.4.1, Transformation process for scaled transform coefficients.
    Clause 8.7.4.4, Transformation process.

    Columns come first, clipped to the range of coefficients, then rows. A block of one row or column has one stage with
    the shifts of both.

    Args:
        f: State of the picture; `current.last_x` and `last_y` are the last column and row with a coefficient.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        kernel_h: Horizontal kernel, DCT2, DST7 or DCT8 of `codecnn.vvc.syntax.state`.
        kernel_v: Vertical kernel.
        residual: The result, row by row.
    """
    if f.pic.log2_transform_range > RANGE_OF_32_BITS:
        inverse_transform_wide(f, log2_w, log2_h, kernel_h, kernel_v, residual)
        return
    coefficients, half = f.scratch.coefficients[:], f.scratch.half_transformed[:]
    width, height = 1 << log2_w, 1 << log2_h
    across, down = f.current.last_x + 1, f.current.last_y + 1
    shift = 5 + f.pic.log2_transform_range - f.pic.bit_depth
    least = np.int32(-(1 << f.pic.log2_transform_range))
    # The columns of `source` follow each other, so that the loops of the first stage are long.
    source = coefficients
    if height > 1:
        matrix, step = kernel_of(f, kernel_v, log2_h)
        source = half
        for i in range(across * height):
            half[U(i)] = 0
        for k in range(down):
            row = U(k * step)
            for x in range(across):
                value, to = coefficients[k * width + x], U(x * height)
                if value:
                    for y in range(height):
                        half[to + U(y)] += value * matrix[row + U(y)]
        if width > 1:
            for i in range(across * height):
                rounded = np.int32(np.int32(half[U(i)] + 64) >> 7)
                half[U(i)] = min(max(rounded, least), np.int32(-1 - least))
    else:
        shift += 1
    if width == 1:
        round_off(f, half, residual, height, shift + 1)
        return
    matrix, step = kernel_of(f, kernel_h, log2_w)
    for y in range(height):
        to = U(y * width)
        for x in range(width):
            residual[to + U(x)] = 0
        for k in range(across):
            value, row = source[k * height + y], U(k * step)
            if value:
                for x in range(width):
                    residual[to + U(x)] += value * matrix[row + U(x)]
    round_off(f, residual, residual, width * height, shift)


@compiled
def inverse_transform_wide(
    f: Frame, log2_w: int, log2_h: int, kernel_h: int, kernel_v: int, residual: Array[int]
) -> None:
    """Do what `inverse_transform` does, with sums of 64 bits for coefficients of more than 19 bits.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.

    Args:
        f: State of the picture, as in `inverse_transform`.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        kernel_h: Horizontal kernel.
        kernel_v: Vertical kernel.
        residual: The result, row by row.
    """
    coefficients, half = f.scratch.coefficients[:], f.scratch.half_transformed[:]
    width, height = 1 << log2_w, 1 << log2_h
    across, down = f.current.last_x + 1, f.current.last_y + 1
    shift = 5 + f.pic.log2_transform_range - f.pic.bit_depth
    if width == 1 or height == 1:
        shift += 1
    least = -(1 << f.pic.log2_transform_range)
    source = coefficients
    if height > 1:
        matrix, step = kernel_of(f, kernel_v, log2_h)
        source = half
        for y in range(height):
            for x in range(across):
                total = 0
                for k in range(down):
                    total += matrix[k * step + y] * coefficients[k * width + x]
                if width > 1:
                    half[y * width + x] = clip((total + 64) >> 7, least, -least - 1)
                else:
                    residual[y] = (total + (1 << (shift - 1))) >> shift
    if width > 1:
        matrix, step = kernel_of(f, kernel_h, log2_w)
        for y in range(height):
            for x in range(width):
                total = 0
                for k in range(across):
                    total += source[y * width + k] * matrix[k * step + x]
                residual[y * width + x] = (total + (1 << (shift - 1))) >> shift


@compiled
def round_off(f: Frame, source: Array[int], target: Array[int], count: int, shift: int) -> None:
    """Shift right with rounding and clip to the range in which decoders store residuals.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.
    """
    limit = np.int32(residual_limit(f))
    half = np.int32(1 << (shift - 1))
    for k in range(count):
        i = U(k)
        rounded = np.int32(np.int32(source[i] + half) >> shift)
        target[i] = min(max(rounded, np.int32(-limit)), np.int32(limit - 1))


@compiled
def inverse_lfnst(f: Frame, log2_w: int, log2_h: int, mode: int, index: int) -> None:
    """Apply the inverse low-frequency non-separable transform to the coefficients of a block.

    Clause 8.7.4.2, Low frequency non-separable transformation process.
    Clause 8.7.4.3, Low frequency non-separable transformation matrix derivation process.

    Args:
        f: State of the picture.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        mode: Intra mode, -14 to 80.
        index: lfnst_idx, 1 or 2.
    """
    coefficients, half, tables = f.scratch.coefficients, f.scratch.half_transformed, f.tables
    width = 1 << log2_w
    large = log2_w >= 3 and log2_h >= 3
    results = 48 if large else 16
    frequencies = 8 if log2_w == log2_h and log2_w <= 3 else 16
    kind = 0 if mode == 0 or mode == 1 else 1
    if 13 <= mode <= 23 or 45 <= mode <= 55:
        kind = 2
    elif 24 <= mode <= 44:
        kind = 3
    least = -(1 << f.pic.log2_transform_range)
    for i in range(results):
        total = 0
        for k in range(frequencies):
            value = coefficients[SCAN[2, 2, k, 1] * width + SCAN[2, 2, k, 0]]
            weight = tables.lfnst_48[kind, index - 1, k, i] if large else tables.lfnst_16[kind, index - 1, k, i]
            total += value * weight
        half[i] = clip((total + 64) >> 7, least, -least - 1)
    # The matrix of 8x8 blocks has 48 results; the last quarter of the block stays zero.
    side = 8 if large else 4
    for i in range(results):
        y, x = (i // side, i % side) if i < 32 or not large else (4 + (i - 32) // 4, (i - 32) % 4)
        if mode > 34:
            x, y = y, x
        coefficients[y * width + x] = half[i]
    f.current.last_x = f.current.last_y = side - 1


@compiled
def clear_coefficients(f: Frame, width: int, height: int) -> None:
    """Zero the coefficients of a block."""
    f.scratch.coefficients[: width * height] = np.int32(0)
