"""The cost of every mode of every block on a CPU: one mode of some blocks at a time, all inside the cache.

Blocks lie side by side in the last axis ("lanes"), so that every loop below works on whole vectors whatever the block's
size. Samples are float32: a vector holds as many of them as of int32, and the DCT needs floating point anyway. Its 24
bits hold every sum of the prediction exactly up to 12 bit: weights in 1/64 give sums of 18 bits, planar's, multiples of
the block's shorter side, sums of 19. Only the DCT itself rounds.
"""

import numba
import numpy as np

# Multiply-add may fuse ("contract") and the sign of zero be lost ("nsz"): neither changes the exact sums. Reordering,
# which would make the DCT depend on the machine, stays forbidden.
_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")

MAX_BIT_DEPTH = 12
"""Largest bit depth for which float32 holds Hadamard sums exactly: the sizes of a tile's 128 coefficients add up to at
most 128^1.5 · 4095 < 2^23."""


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
    """Fill `out` (n, m) float64 with the cost of m modes of n blocks; all else is float32 but the int32 indices.

    `rows` (n, e) and `original` (n, h, w); the tables of `Taps` with weights already divided by 2^shift: `index`,
    `weight` (m, h, w, 4), `blend_index` (m, h, w, 2), `blend_weight` (m, h, w, 3) the third of which is what is kept,
    `blend_round` (m,). A first `tile` of 0 asks for the DCT, by the orthonormal matrices; else it holds height and
    width of Hadamard tiles. `quantiser` holds step, rounding offset and λ of `cost.rate_cost`; a step of 0 asks for the
    sum of magnitudes.
    """
    count, entries = rows.shape
    _, height, width = original.shape
    row = np.empty((entries, lanes), np.float32)
    wanted = np.empty((height * width, lanes), np.float32)
    work = np.empty((4, height * width * lanes), np.float32)
    totals = np.empty(lanes, np.float64)
    for start in range(0, count, lanes):
        for lane in range(lanes):
            block = min(start + lane, count - 1)  # the last lanes repeat the last block, so that no loop has a rest
            for entry in range(entries):
                row[entry, lane] = rows[block, entry]
            for y in range(height):
                for x in range(width):
                    wanted[y * width + x, lane] = original[block, y, x]
        for mode in range(index.shape[0]):
            tables = index[mode], weight[mode], blend_index[mode], blend_weight[mode], blend_round[mode]
            _mode_cost(row, wanted, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals)
            for lane in range(min(lanes, count - start)):
                out[start + lane, mode] = totals[lane]


@_jit
def some_costs(  # type: ignore[no-untyped-def]
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
    """Fill `out` (p,) float64 with the cost of mode `mode[i]` of block `block[i]`, both (p,), sorted by mode.

    All else is as in `mode_costs`.
    """
    entries = rows.shape[1]
    count, height, width = original.shape
    samples = original.reshape(count, height * width)
    row = np.empty((entries, lanes), np.float32)
    wanted = np.empty((height * width, lanes), np.float32)
    work = np.empty((4, height * width * lanes), np.float32)
    totals = np.empty(lanes, np.float64)
    start = 0
    while start < len(block):
        end = start
        while end < min(len(block), start + lanes) and mode[end] == mode[start]:
            end += 1
        for lane in range(lanes):
            one = block[min(start + lane, end - 1)]
            for entry in range(entries):
                row[entry, lane] = rows[one, entry]
            for place in range(height * width):
                wanted[place, lane] = samples[one, place]
        m = mode[start]
        tables = index[m], weight[m], blend_index[m], blend_weight[m], blend_round[m]
        _mode_cost(row, wanted, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals)
        for lane in range(end - start):
            out[start + lane] = totals[lane]
        start = end


@_jit
def _mode_cost(  # type: ignore[no-untyped-def]
    row, wanted, tables, peak, matrix_v, matrix_h, tile, quantiser, work, totals
):
    """Cost of one mode of some blocks, (lanes,), from their rows and samples; `work` (4, h·w·lanes) is overwritten."""
    index, weight, blend_index, blend_weight, blend_round = tables
    height, width, _ = index.shape
    lanes = row.shape[1]
    a, b = work[0].reshape(height, width * lanes), work[1].reshape(height, width * lanes)
    c, d = work[2].reshape(width, height * lanes), work[3].reshape(width, height * lanes)
    residual = work[0].reshape(height * width, lanes)
    _residual(row, wanted, index, weight, blend_index, blend_weight, blend_round, peak, residual)
    # Both transforms work along the first axis: rows become columns by an exchange in between.
    if tile[0] > 0:
        _hadamard(a, tile[0])
        _exchange(a, c, lanes)
        _hadamard(c, tile[1])
        _tile_sums(c, tile[0], tile[1], lanes, totals)
        return
    _dct(a, b, matrix_v)
    _exchange(a, c, lanes)
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
def _residual(row, wanted, index, weight, blend_index, blend_weight, blend_round, peak, residual):  # type: ignore[no-untyped-def]
    """Residual of one mode, original minus prediction, (h·w, lanes)."""
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
            # Most samples have no second sum (PDPC of H.266 8.4.5.2.15, the edge filters of H.265 8.4.4.2.6).
            if v0 == zero and v1 == zero:
                for lane in range(lanes):
                    total = row[i0, lane] * w0 + row[i1, lane] * w1 + row[i2, lane] * w2 + row[i3, lane] * w3
                    pred = min(max(np.floor(total + half), zero), peak)
                    residual[place, lane] = wanted[place, lane] - pred
            else:
                for lane in range(lanes):
                    total = row[i0, lane] * w0 + row[i1, lane] * w1 + row[i2, lane] * w2 + row[i3, lane] * w3
                    pred = min(max(np.floor(total + half), zero), peak)
                    total = row[j0, lane] * v0 + row[j1, lane] * v1 + pred * keep + blend_round
                    pred = min(max(np.floor(total), zero), peak)
                    residual[place, lane] = wanted[place, lane] - pred


@_jit
def _dct(data, work, matrix):  # type: ignore[no-untyped-def]
    """DCT-II along the first axis, n = 4, 8, ... 64, in place: even and odd halves apart, as far down as 4.

    Even frequencies of n samples are the DCT-II of the n/2 sums of samples mirrored about the middle, odd ones depend
    on their differences alone (partial butterflies, as in HM and VTM): a third of the multiplications at n = 64.
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
        # The odd half of `data` is free from here on: the odd frequencies go there, low to high.
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
    """Add squared quantisation error + λ · bits of every coefficient of `data` to `sums`, as `cost.rate_cost`."""
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
        # 2·floor(log2(2·level)) + 1 from the exponent of a float32, its upper bits; of level 0 it would be below 0.
        for r in range(length):
            sums[r] += lagrange * np.float32(max(2 * (bits[x, r] >> 23) - 251, 0))


@_jit
def _exchange(source, target, lanes):  # type: ignore[no-untyped-def]
    """(h, w·lanes) to (w, h·lanes)."""
    height, width = source.shape[0], target.shape[0]
    for y in range(height):
        for x in range(width):
            for lane in range(lanes):
                target[x, y * lanes + lane] = source[y, x * lanes + lane]


@_jit
def _hadamard(data, tile):  # type: ignore[no-untyped-def]
    """Walsh-Hadamard along the first axis in tiles, in place."""
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
    """VTM's sum of tiles, (w, h·lanes) in: a quarter of the DC terms, normalised and cut to whole numbers."""
    width, height = data.shape[0], data.shape[1] // lanes
    tile = np.empty(lanes, np.float32)
    totals[:] = 0
    for x0 in range(0, width, tile_w):
        for y0 in range(0, height, tile_h):
            # The normalisation is not linear (it cuts), so every tile is summed and divided on its own.
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
