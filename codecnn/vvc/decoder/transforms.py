"""Inverse transforms (H.266 clauses 8.7.4.1 to 8.7.4.5)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame, clip, residual_limit
from codecnn.vvc.syntax import SCAN
from codecnn.vvc.syntax import state as st

RANGE_OF_32_BITS = 18
"""Largest log2 of the range of coefficients for which sums of 32 bits are enough.

The sum of 64 products of coefficients of 19 bits, which 12-bit pictures with extended precision have, and transMatrix
fits into 32 bits; that of wider coefficients does not.
"""


@compiled
def kernel_at(kernel: int, log2_size: int) -> tuple[int, int]:
    """Return the position of transMatrix of 2^log2_size samples in `Frame.s` and the step between its rows.

    Clause 8.7.4.5, Transformation matrix derivation process.
    """
    if kernel == st.DCT2:
        # The rows of a smaller matrix are every second, fourth, ... row of the one of 64 samples.
        return fr.DCT2_AT, 64 << (6 - log2_size)
    first = fr.DST7_AT if kernel == st.DST7 else fr.DCT8_AT
    return first + 1024 * (log2_size - 2), 1 << log2_size


@compiled
def inverse_transform(f: Frame, log2_w: int, log2_h: int, kernel_h: int, kernel_v: int, out: int) -> None:
    """Transform the coefficients of a block to its residual.

    Clause 8.7.4.1, Transformation process for scaled transform coefficients.
    Clause 8.7.4.4, Transformation process.

    Columns come first, clipped to the range of coefficients, then rows (8.7.4.1). A block of one row or column has one
    stage with the shifts of both.

    Args:
        f: State of the picture; LAST_X and LAST_Y are the last column and row with a coefficient.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        kernel_h: Horizontal kernel, DCT2, DST7 or DCT8 of `codecnn.vvc.syntax.state`.
        kernel_v: Vertical kernel.
        out: Position of the residual in `Frame.s`.
    """
    s = f.s
    if f.pic.log2_transform_range > RANGE_OF_32_BITS:
        inverse_transform_wide(f, log2_w, log2_h, kernel_h, kernel_v, out)
        return
    width, height = 1 << log2_w, 1 << log2_h
    across, down = f.current.last_x + 1, f.current.last_y + 1
    shift = 5 + f.pic.log2_transform_range - f.pic.bit_depth
    least = -(1 << f.pic.log2_transform_range)
    source = fr.COEFFICIENTS
    if height > 1:
        first, step = kernel_at(kernel_v, log2_h)
        for y in range(height):
            to = fr.HALF + y * width
            for x in range(across):
                s[to + x] = 0
            for k in range(down):
                weight = s[first + k * step + y]
                row = fr.COEFFICIENTS + k * width
                for x in range(across):
                    s[to + x] += weight * s[row + x]
            if width > 1:
                for x in range(across):
                    s[to + x] = clip((s[to + x] + 64) >> 7, least, -least - 1)
        source = fr.HALF
    else:
        shift += 1
    if width == 1:
        round_off(f, fr.HALF, out, height, shift + 1)
        return
    first, step = kernel_at(kernel_h, log2_w)
    for y in range(height):
        to = out + y * width
        for x in range(width):
            s[to + x] = 0
        for k in range(across):
            value = s[source + y * width + k]
            if value:
                row = first + k * step
                for x in range(width):
                    s[to + x] += value * s[row + x]
    round_off(f, out, out, width * height, shift)


@compiled
def inverse_transform_wide(f: Frame, log2_w: int, log2_h: int, kernel_h: int, kernel_v: int, out: int) -> None:
    """Do what `inverse_transform` does, with sums of 64 bits for coefficients of more than 19 bits.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.

    Args:
        f: State of the picture, as in `inverse_transform`.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        kernel_h: Horizontal kernel.
        kernel_v: Vertical kernel.
        out: Position of the residual in `Frame.s`.
    """
    s = f.s
    width, height = 1 << log2_w, 1 << log2_h
    across, down = f.current.last_x + 1, f.current.last_y + 1
    shift = 5 + f.pic.log2_transform_range - f.pic.bit_depth
    if width == 1 or height == 1:
        shift += 1
    least = -(1 << f.pic.log2_transform_range)
    source = fr.COEFFICIENTS
    if height > 1:
        first, step = kernel_at(kernel_v, log2_h)
        source = fr.HALF if width > 1 else out
        for y in range(height):
            for x in range(across):
                total = 0
                for k in range(down):
                    total += s[first + k * step + y] * s[fr.COEFFICIENTS + k * width + x]
                if width > 1:
                    s[source + y * width + x] = clip((total + 64) >> 7, least, -least - 1)
                else:
                    s[source + y] = (total + (1 << (shift - 1))) >> shift
    if width > 1:
        first, step = kernel_at(kernel_h, log2_w)
        for y in range(height):
            for x in range(width):
                total = 0
                for k in range(across):
                    total += s[source + y * width + k] * s[first + k * step + x]
                s[out + y * width + x] = (total + (1 << (shift - 1))) >> shift


@compiled
def round_off(f: Frame, source: int, out: int, count: int, shift: int) -> None:
    """Shift right with rounding and clip to the range in which decoders store residuals.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.
    """
    s, limit = f.s, residual_limit(f)
    half = 1 << (shift - 1)
    for i in range(count):
        s[out + i] = clip((s[source + i] + half) >> shift, -limit, limit - 1)


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
    s = f.s
    width = 1 << log2_w
    large = log2_w >= 3 and log2_h >= 3
    results = 48 if large else 16
    frequencies = 8 if log2_w == log2_h and log2_w <= 3 else 16
    kind = 0 if mode == 0 or mode == 1 else 1
    if 13 <= mode <= 23 or 45 <= mode <= 55:
        kind = 2
    elif 24 <= mode <= 44:
        kind = 3
    first = fr.LFNST_48_AT if large else fr.LFNST_16_AT
    first += (2 * kind + index - 1) * 16 * results
    least = -(1 << f.pic.log2_transform_range)
    for i in range(results):
        total = 0
        for k in range(frequencies):
            value = s[fr.COEFFICIENTS + SCAN[2, 2, k, 1] * width + SCAN[2, 2, k, 0]]
            total += value * s[first + k * results + i]
        s[fr.HALF + i] = clip((total + 64) >> 7, least, -least - 1)
    # The matrix of 8x8 blocks has 48 results; the last quarter of the block stays zero.
    side = 8 if large else 4
    for i in range(results):
        y, x = (i // side, i % side) if i < 32 or not large else (4 + (i - 32) // 4, (i - 32) % 4)
        if mode > 34:
            x, y = y, x
        s[fr.COEFFICIENTS + y * width + x] = s[fr.HALF + i]
    f.current.last_x = f.current.last_y = side - 1


@compiled
def clear_coefficients(f: Frame, width: int, height: int) -> None:
    """Zero the coefficients of a block."""
    f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height] = np.int32(0)
