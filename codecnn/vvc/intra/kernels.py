"""Costs of intra modes on a CPU, compiled by numba: one mode of a few blocks at a time, within the cache.

The last axis of all arrays is a group of blocks ("lanes"), so that every loop processes whole vectors for any block
size. Samples are float32: a vector holds as many of them as of int32, and the DCT needs floating point. Their 24-bit
mantissa holds every sum of the prediction exactly up to 12 bit: weights in 1/64 give sums of 18 bits, and those of
planar, multiples of the shorter side of the block, sums of 19 bits. Only the DCT rounds.
"""

import numba
import numpy as np

# The compiler may fuse multiply-add ("contract") and lose the sign of zero ("nsz"): neither changes the exact sums. It
# may not reorder sums, which would make the DCT depend on the machine.
_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")

MAX_BIT_DEPTH = 12
"""Largest bit depth for which float32 holds Hadamard sums exactly.

The magnitudes of a tile's 128 coefficients add up to at most 128^1.5 · 4095 < 2^23.
"""


@_jit
def mode_costs(  # type: ignore[no-untyped-def]
    rows,
    original,
    index,
    weight,
    blend_index,
    blend_weight,
    blend_round,
    peak,
    matrix_v,
    matrix_h,
    tile,
    quantiser,
    lanes,
    out,
):
    """Compute the cost of m modes of n blocks into `out`; arrays are float32 if not stated otherwise.

    The tables are those of `Taps` with weights already divided by 2^shift.

    Args:
        rows: Reference rows, shape (n, e).
        original: Original samples, shape (n, h, w).
        index: Positions of the first sum, shape (m, h, w, 4), int32.
        weight: Weights of the first sum, shape (m, h, w, 4).
        blend_index: Positions of the second sum, shape (m, h, w, 2), int32.
        blend_weight: Weights of the second sum, shape (m, h, w, 3); the third is `keep`.
        blend_round: Rounding offset of the second sum, shape (m,).
        peak: Largest sample value.
        matrix_v: Orthonormal DCT matrix of h samples.
        matrix_h: Orthonormal DCT matrix of w samples.
        tile: Height and width of the Hadamard tiles; a height of 0 selects the DCT.
        quantiser: Step, rounding offset and λ of `rate_cost`; a step of 0 selects the sum of magnitudes.
        lanes: Number of blocks in a group.
        out: Costs, shape (n, m), float64, overwritten.
    """
    count, entries = rows.shape
    _, height, width = original.shape
    row = np.empty((entries, lanes), np.float32)
    samples = np.empty((height * width, lanes), np.float32)
    work = np.empty((4, height * width * lanes), np.float32)
    totals = np.empty(lanes, np.float64)
    for start in range(0, count, lanes):
        for lane in range(lanes):
            block = min(start + lane, count - 1)  # unused lanes repeat the last block, so that all groups are full
            for entry in range(entries):
                row[entry, lane] = rows[block, entry]
            for y in range(height):
                for x in range(width):
                    samples[y * width + x, lane] = original[block, y, x]
        for mode in range(index.shape[0]):
            tables = index[mode], weight[mode], blend_index[mode], blend_weight[mode], blend_round[mode]
            _mode_cost(row, samples, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals)
            for lane in range(min(lanes, count - start)):
                out[start + lane, mode] = totals[lane]


@_jit
def selected_costs(  # type: ignore[no-untyped-def]
    rows,
    original,
    index,
    weight,
    blend_index,
    blend_weight,
    blend_round,
    peak,
    matrix_v,
    matrix_h,
    tile,
    quantiser,
    lanes,
    block,
    mode,
    out,
):
    """Compute the cost of mode `mode[i]` of block `block[i]` into `out[i]`.

    `block` and `mode` have the shape (p,) and are sorted by mode; `out` has the shape (p,), float64. The other
    arguments are those of `mode_costs`.
    """
    entries = rows.shape[1]
    count, height, width = original.shape
    blocks = original.reshape(count, height * width)
    row = np.empty((entries, lanes), np.float32)
    samples = np.empty((height * width, lanes), np.float32)
    work = np.empty((4, height * width * lanes), np.float32)
    totals = np.empty(lanes, np.float64)
    start = 0
    while start < len(block):
        end = start
        while end < min(len(block), start + lanes) and mode[end] == mode[start]:
            end += 1
        for lane in range(lanes):
            number = block[min(start + lane, end - 1)]
            for entry in range(entries):
                row[entry, lane] = rows[number, entry]
            for place in range(height * width):
                samples[place, lane] = blocks[number, place]
        m = mode[start]
        tables = index[m], weight[m], blend_index[m], blend_weight[m], blend_round[m]
        _mode_cost(row, samples, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals)
        for lane in range(end - start):
            out[start + lane] = totals[lane]
        start = end


@_jit
def _mode_cost(  # type: ignore[no-untyped-def]
    row, samples, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals
):
    """Compute the cost of one mode of a group of blocks into `totals` (lanes,); `work` (4, h·w·lanes) is scratch."""
    index, weight, blend_index, blend_weight, blend_round = tables
    height, width, _ = index.shape
    lanes = row.shape[1]
    a, b = work[0].reshape(height, width * lanes), work[1].reshape(height, width * lanes)
    c, d = work[2].reshape(width, height * lanes), work[3].reshape(width, height * lanes)
    residual = work[0].reshape(height * width, lanes)
    _residual(row, samples, index, weight, blend_index, blend_weight, blend_round, peak, residual)
    # Both transforms work along the first axis; an exchange of rows and columns separates them.
    if tile[0] > 0:
        _hadamard(a, tile[0])
        _transpose(a, c, lanes)
        _hadamard(c, tile[1])
        _tile_sums(c, tile[0], tile[1], lanes, totals)
        return
    _dct(a, b, matrix_v)
    _transpose(a, c, lanes)
    _dct(c, d, matrix_h)
    sums = b.reshape(width, height * lanes)[0]
    sums[:] = 0
    if quantiser[0] > 0:
        _rate(c, d, quantiser, sums)
    else:
        for x in range(width):
            for r in range(height * lanes):
                sums[r] += abs(c[x, r])
    totals[:] = 0
    for y in range(height):
        for lane in range(lanes):
            totals[lane] += sums[y * lanes + lane]


@_jit
def _residual(row, samples, index, weight, blend_index, blend_weight, blend_round, peak, residual):  # type: ignore[no-untyped-def]
    """Compute the residual of one mode, original minus prediction, shape (h·w, lanes)."""
    height, width, _ = index.shape
    lanes = row.shape[1]
    half, zero = np.float32(0.5), np.float32(0)
    for y in range(height):
        for x in range(width):
            place = y * width + x
            i0, i1, i2, i3 = index[y, x, 0], index[y, x, 1], index[y, x, 2], index[y, x, 3]
            w0, w1, w2, w3 = weight[y, x, 0], weight[y, x, 1], weight[y, x, 2], weight[y, x, 3]
            j0, j1 = blend_index[y, x, 0], blend_index[y, x, 1]
            v0, v1, keep = blend_weight[y, x, 0], blend_weight[y, x, 1], blend_weight[y, x, 2]
            # Most samples have no second sum (PDPC of H.266 8.4.5.2.15, edge filters of H.265 8.4.4.2.6).
            if v0 == zero and v1 == zero:
                for lane in range(lanes):
                    total = row[i0, lane] * w0 + row[i1, lane] * w1 + row[i2, lane] * w2 + row[i3, lane] * w3
                    pred = min(max(np.floor(total + half), zero), peak)
                    residual[place, lane] = samples[place, lane] - pred
            else:
                for lane in range(lanes):
                    total = row[i0, lane] * w0 + row[i1, lane] * w1 + row[i2, lane] * w2 + row[i3, lane] * w3
                    pred = min(max(np.floor(total + half), zero), peak)
                    total = row[j0, lane] * v0 + row[j1, lane] * v1 + pred * keep + blend_round
                    pred = min(max(np.floor(total), zero), peak)
                    residual[place, lane] = samples[place, lane] - pred


@_jit
def _dct(data, work, matrix):  # type: ignore[no-untyped-def]
    """Compute the DCT-II of n = 4, 8, ... 64 samples along the first axis, in place, by partial butterflies.

    The even frequencies of n samples are the DCT-II of the n/2 sums of mirrored samples, the odd frequencies depend on
    their differences only (as in HM and VTM). The halves are split down to 4 samples, which saves two thirds of the
    multiplications at n = 64.
    """
    size, length = data.shape
    count, stride = size, 1
    while count > 4:
        half = count // 2
        for i in range(half):
            for r in range(length):
                first, last = data[i, r], data[count - 1 - i, r]
                data[i, r] = first + last
                work[i, r] = first - last
        # The second half of `data` is no longer needed and receives the odd frequencies, low to high.
        for k in range(half):
            m = matrix[(2 * k + 1) * stride]
            for r in range(length):
                data[half + k, r] = m[0] * work[0, r] + m[1] * work[1, r] + m[2] * work[2, r] + m[3] * work[3, r]
            for i in range(4, half, 4):
                for r in range(length):
                    data[half + k, r] += (
                        m[i] * work[i, r]
                        + m[i + 1] * work[i + 1, r]
                        + m[i + 2] * work[i + 2, r]
                        + m[i + 3] * work[i + 3, r]
                    )
        count, stride = half, 2 * stride
    m0, m1, m2, m3 = matrix[0], matrix[stride], matrix[2 * stride], matrix[3 * stride]
    for r in range(length):
        even0, even1 = data[0, r] + data[3, r], data[1, r] + data[2, r]
        odd0, odd1 = data[0, r] - data[3, r], data[1, r] - data[2, r]
        data[0, r] = m0[0] * (even0 + even1)
        data[1, r] = m1[0] * odd0 + m1[1] * odd1
        data[2, r] = m2[0] * (even0 - even1)
        data[3, r] = m3[0] * odd0 + m3[1] * odd1


@_jit
def _rate(data, work, quantiser, sums):  # type: ignore[no-untyped-def]
    """Add squared quantisation error + λ · bits of every coefficient of `data` to `sums`, as `rate_cost`."""
    size, length = data.shape
    step, rounding, lagrange = quantiser
    bits = work.view(np.int32)
    for x in range(size):
        for r in range(length):
            magnitude = abs(data[x, r])
            level = np.floor(magnitude / step + rounding)
            error = magnitude - level * step
            sums[r] += error * error
            work[x, r] = level
        # 2·floor(log2(2·level)) + 1 from the exponent, the upper bits of a float32; negative, hence 0, for level 0.
        for r in range(length):
            sums[r] += lagrange * np.float32(max(2 * (bits[x, r] >> 23) - 251, 0))


@_jit
def _transpose(source, target, lanes):  # type: ignore[no-untyped-def]
    """Copy (h, w·lanes) to (w, h·lanes)."""
    height, width = source.shape[0], target.shape[0]
    for y in range(height):
        for x in range(width):
            for lane in range(lanes):
                target[x, y * lanes + lane] = source[y, x * lanes + lane]


@_jit
def _hadamard(data, tile):  # type: ignore[no-untyped-def]
    """Compute the Walsh-Hadamard transform of tiles along the first axis, in place."""
    size, length = data.shape
    step = 1
    while step < tile:
        for i in range(size):
            if not i & step:
                for r in range(length):
                    first, second = data[i, r], data[i + step, r]
                    data[i, r] = first + second
                    data[i + step, r] = first - second
        step *= 2


@_jit
def _tile_sums(data, tile_h, tile_w, lanes, totals):  # type: ignore[no-untyped-def]
    """Sum the magnitudes of tiles in (w, h·lanes) as VTM: a quarter of the DC terms, normalised and truncated."""
    width, height = data.shape[0], data.shape[1] // lanes
    tile = np.empty(lanes, np.float32)
    totals[:] = 0
    for x0 in range(0, width, tile_w):
        for y0 in range(0, height, tile_h):
            # The normalisation truncates, so every tile is summed and divided separately.
            for lane in range(lanes):
                dc = abs(data[x0, y0 * lanes + lane])
                tile[lane] = np.floor(dc * np.float32(0.25)) - dc
            for x in range(x0, x0 + tile_w):
                for y in range(y0, y0 + tile_h):
                    for lane in range(lanes):
                        tile[lane] += abs(data[x, y * lanes + lane])
            for lane in range(lanes):
                if tile_h == tile_w:
                    totals[lane] += np.floor((tile[lane] + tile_h // 4) / (tile_h // 2))
                else:
                    totals[lane] += np.floor(tile[lane] / np.sqrt(float(tile_h * tile_w)) * 2)
