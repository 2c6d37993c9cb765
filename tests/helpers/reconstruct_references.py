"""Stages of reconstruction in plain NumPy: they process blocks where the compiled functions process samples.

Pictures are arrays (h, w), int64; blocks lie at (x, y) of their component; the whole picture is reconstructed.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LEVEL_SCALE = (40, 45, 51, 57, 64, 72)
DIVISION = (0, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1, 0)
"""divSigTable of clause 8.4.5.2.14."""


def matrix_prediction(top: Ints, left: Ints, weights: Ints, transposed: bool, bit_depth: int) -> Ints:
    """Predict a block below `top` (w,) and right of `left` (h,) by MIP (clauses 8.4.5.2.2 to 8.4.5.2.4).

    `weights` is mWeight of the mode, (results, inputs), with 7 inputs for the largest blocks.
    """
    width, height = len(top), len(left)
    sides = 2 if width == height == 4 else 4
    side = 8 if weights.shape[1] == 7 else 4
    reduced = [edge.reshape(sides, -1).sum(1) for edge in (top, left)]
    each = [len(edge) // sides for edge in (top, left)]
    boundary = np.concatenate(
        [(r + n // 2) // n for r, n in zip(reduced, each, strict=True)][:: -1 if transposed else 1]
    )
    base = boundary[0]
    inputs = boundary - base
    if weights.shape[1] == 7:
        inputs = inputs[1:]
    else:
        inputs[0] = (1 << (bit_depth - 1)) - base
    reduced_block = ((weights @ inputs + 32 - 32 * inputs.sum()) >> 6) + base
    block = reduced_block.reshape(side, side).clip(0, (1 << bit_depth) - 1)
    block = block.T if transposed else block
    down = height // side
    return interpolated(interpolated(block, left[down - 1 :: down], width // side).T, top, down).T


def interpolated(block: Ints, before: Ints, factor: int) -> Ints:
    """Interpolate rows to `factor` times their length, starting from the sample `before` each (clause 8.4.5.2.4)."""
    knots = np.column_stack([before, block])
    out = np.empty((len(block), factor * block.shape[1]), np.int64)
    for step in range(1, factor + 1):
        out[:, step - 1 :: factor] = ((factor - step) * knots[:, :-1] + step * knots[:, 1:] + factor // 2) // factor
    return out


def downsampled(luma: Ints, sub_x: int, sub_y: int, collocated: bool) -> Ints:
    """Downsample luma to chroma (clause 8.4.5.2.14, pDsY); samples outside the picture repeat the nearest one."""
    if not sub_x:
        return luma
    p = np.pad(luma, 1, mode="edge")
    rows = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    if not sub_y:
        return ((rows[1:-1] + 2) >> 2)[:, ::2]
    if collocated:
        cross = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + 4 * p[1:-1, 1:-1]
        return ((cross + 4) >> 3)[::2, ::2]
    return ((rows[1:-1:2] + rows[2::2] + 4) >> 3)[:, ::2]


def linear_model_prediction(
    luma: Ints,
    chroma: Ints,
    place: tuple[int, int, int, int],
    mode: int,
    bit_depth: int,
    *,
    sub: tuple[int, int],
    collocated: bool = False,
    ctu: int = 128,
) -> Ints:
    """Predict the chroma block (x, y, w, h) by CCLM (clause 8.4.5.2.14) in mode 67, 68 (left) or 69 (above)."""
    x, y, width, height = place
    small = downsampled(luma, *sub, collocated)
    above, left = y > 0 and mode != 68, x > 0 and mode != 69
    count_t = (width + (min(width, height) if mode == 69 else 0)) if above else 0
    count_l = (height + (min(width, height) if mode == 68 else 0)) if left else 0
    row = small[y - 1]
    if (y << sub[1]) % ctu == 0 and sub[0]:
        # Only one row of luma of another CTU may be used.
        last = np.pad(luma[(y << sub[1]) - 1], 1, mode="edge")
        row = ((last[:-2] + 2 * last[1:-1] + last[2:] + 2) >> 2)[::2]
    pairs = []
    alone = 0 if count_t and count_l else 1
    sides = [(count_t, row[x : x + count_t], chroma[y - 1, x : x + count_t])]
    sides += [(count_l, small[y : y + count_l, x - 1], chroma[y : y + count_l, x - 1])]
    for count, lumas, chromas in sides:
        places = range(count >> (2 + alone), count, max(1, count >> (1 + alone)))
        pairs += [(int(lumas[i]), int(chromas[i])) for i in places][: 2 << alone]
    factor, offset, shift = linear_model(pairs, bit_depth)
    block = small[y : y + height, x : x + width]
    return (((block * factor) >> shift) + offset).clip(0, (1 << bit_depth) - 1)


def linear_model(pairs: list[tuple[int, int]], bit_depth: int) -> tuple[int, int, int]:
    """Derive a, b and k of clause 8.4.5.2.14 from none, two or four pairs of luma and chroma."""
    if not pairs:
        return 0, 1 << (bit_depth - 1), 0
    if len(pairs) == 2:
        pairs = [pairs[1], pairs[0], pairs[1], pairs[0]]
    lower, upper = [pairs[0], pairs[2]], [pairs[1], pairs[3]]
    for two in (lower, upper):
        if two[0][0] > two[1][0]:
            two.reverse()
    if lower[0][0] > upper[1][0]:
        lower, upper = upper, lower
    if lower[1][0] > upper[0][0]:
        lower[1], upper[0] = upper[0], lower[1]
    least, most = (tuple((a + b + 1) >> 1 for a, b in zip(*two, strict=True)) for two in (lower, upper))
    spread, spread_c = most[0] - least[0], most[1] - least[1]
    if spread == 0:
        return 0, least[1], 0
    x = spread.bit_length() - 1
    norm = ((spread << 4) >> x) & 15
    x += norm != 0
    y = abs(spread_c).bit_length()
    a = (spread_c * (DIVISION[norm] | 8) + ((1 << y) >> 1)) >> y
    if 3 + x - y < 1:
        a, k = 15 * int(np.sign(a)), 1
    else:
        k = 3 + x - y
    return a, least[1] - ((a * least[0]) >> k), k


def palette_samples(values: Ints, qp: int, least_qp: int, bit_depth: int) -> Ints:
    """Derive the samples of a palette block (clause 8.4.5.3); a value below 0 is -1 - palette_escape_val."""
    qp = max(qp + 6 * (bit_depth - 8), least_qp)
    escaped = ((-1 - values) * (LEVEL_SCALE[qp % 6] << (qp // 6)) + 32) >> 6
    return np.where(values < 0, escaped.clip(0, (1 << bit_depth) - 1), values)


def mapped_back(samples: Ints, pivot: Ints, first: int, last: int, bit_depth: int) -> Ints:
    """Invert the luma mapping (clause 8.8.2.2) by the pivots of 16 bins, of which `first` to `last` are used."""
    width = 1 << (bit_depth - 4)
    words = np.diff(pivot)
    inverse = np.where(words > 0, width * 2048 // np.maximum(words, 1), 0)
    bins = np.searchsorted(pivot[1:16], samples, side="right").clip(first, last + 1).clip(0, 15)
    mapped = width * bins + ((inverse[bins] * (samples - pivot[bins]) + 1024) >> 11)
    return mapped.clip(0, (1 << bit_depth) - 1)


def chroma_scale(luma: Ints, x: int, y: int, pivot: Ints, scales: Ints, used: tuple[int, int], bit_depth: int) -> int:
    """Derive varScale (clause 8.7.5.3) from the mean mapped luma next to the block of 64x64 at (x, y)."""
    rows, columns = np.arange(y, y + 64).clip(0, len(luma) - 1), np.arange(x, x + 64).clip(0, luma.shape[1] - 1)
    sides = [*([luma[rows, x - 1]] if x else []), *([luma[y - 1, columns]] if y else [])]
    mean = (1 << bit_depth) >> 1
    if sides:
        total = np.concatenate(sides)
        mean = (int(total.sum()) + len(total) // 2) // len(total)
    index = int(np.searchsorted(pivot[1:16], mean, side="right").clip(used[0], used[1] + 1))
    return int(scales[min(index, 15)])


def scaled_residual(residual: Ints, scale: int, bit_depth: int) -> Ints:
    """Scale chroma residuals with LMCS ((1237) and (1238))."""
    limited = residual.clip(-(1 << bit_depth), (1 << bit_depth) - 1)
    return np.sign(limited) * ((np.abs(limited) * scale + 1024) >> 11)
