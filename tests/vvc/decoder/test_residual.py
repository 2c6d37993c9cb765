"""Scaling, inverse transforms and luma mapping equal plain NumPy versions of clauses 8.7 and 8.8.2."""

import numpy as np
import pytest

from codecnn.vvc.intra import kernel_matrix
from codecnn.vvc.syntax import LumaMapping, inverse_map
from tests.helpers.plain_decoder import empty_frame, fr, lg, luma_mapping, random_frame, residuals, st, transforms

KERNELS = {"DCT2": st.DCT2, "DST7": st.DST7, "DCT8": st.DCT8}
LEVEL_SCALE = (40, 45, 51, 57, 64, 72)


@pytest.mark.parametrize(
    ("bit_depth", "width", "height"),
    [
        (8, 4, 4),
        (10, 16, 8),
        (10, 8, 32),
        (12, 32, 32),
        (16, 8, 8),
        (16, 16, 8),
        (16, 32, 32),
        (16, 1, 16),
        (16, 32, 1),
    ],
)
@pytest.mark.parametrize("horizontal", KERNELS)
@pytest.mark.parametrize("vertical", KERNELS)
def test_transforms_on_few_and_on_many_coefficients(bit_depth, width, height, horizontal, vertical):
    """Samples of 16 bits have extended precision: coefficients of 21 bits, and residuals that are not clipped."""
    rng = np.random.default_rng(width * height)
    f = empty_frame(bit_depth)
    f.pic.log2_transform_range = precision = 15 if bit_depth <= 12 else 20
    least, shift = -(1 << precision), 5 + precision - bit_depth
    across = 16 if horizontal != "DCT2" and width == 32 else width
    down = 16 if vertical != "DCT2" and height == 32 else height
    coefficients = np.zeros((height, width), np.int64)
    coefficients[:down, :across] = rng.integers(least, -least, (down, across))
    coefficients[rng.random((height, width)) < rng.random()] = 0
    f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height] = coefficients.ravel()
    f.current.last_x, f.current.last_y = across - 1, down - 1
    logs = width.bit_length() - 1, height.bit_length() - 1
    transforms.inverse_transform(f, *logs, KERNELS[horizontal], KERNELS[vertical], fr.RESIDUALS)
    expected = coefficients
    if height > 1:
        expected = kernel_matrix(vertical, height).astype(np.int64).T @ expected
    if min(width, height) > 1:
        expected = ((expected + 64) >> 7).clip(least, -least - 1)
    else:
        shift += 1
    if width > 1:
        expected = expected @ kernel_matrix(horizontal, width).astype(np.int64)
    expected = (expected + (1 << shift >> 1)) >> shift
    if bit_depth <= 12:
        expected = expected.clip(-(1 << 15), (1 << 15) - 1)
    actual = f.s[fr.RESIDUALS : fr.RESIDUALS + width * height].reshape(height, width)
    np.testing.assert_array_equal(actual, expected)


def packed(levels, odd):
    """Pack non-zero levels as in the log; `odd` is 1 where the quantizer of odd multiples is used."""
    y, x = np.nonzero(levels)
    return (levels[y, x] << lg.LEVEL_SHIFT | odd[y, x] << 10 | y << 5 | x).astype(np.int32)


@pytest.mark.parametrize(
    ("bit_depth", "width", "height", "qp"),
    [(8, 4, 4, 22), (10, 16, 16, 37), (10, 32, 8, 49), (12, 8, 8, 5), (8, 16, 4, 51)],
)
def test_scaling_of_transform_skip_bdpcm_and_dependent_quantisation(bit_depth, width, height, qp):
    """Flat scaling by (1155) to (1161)."""
    rng = np.random.default_rng(qp)
    log2_w, log2_h = width.bit_length() - 1, height.bit_length() - 1
    levels = rng.integers(-40, 41, (height, width)) * (rng.random((height, width)) < 0.3)
    odd = rng.integers(0, 2, levels.shape)
    for dependent in (False, True):
        for skip in (False, True):
            f = empty_frame(bit_depth)
            f.slice.sh_dep_quant_used_flag, f.current.cu_at = dependent, 1024
            values = packed(levels, odd if dependent else 0 * odd)
            f.log[: len(values)] = values
            residuals.scale_levels(f, 0, len(values), 0, log2_w, log2_h, qp, skip, False)
            doubled = (2 * levels - np.sign(levels) * odd) / 2 if dependent and not skip else levels
            # The step is 2^(QP/6) in units of 1/2^6; √2 is 181/128 for blocks of unequal sides.
            step = 2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64
            if dependent and not skip:
                step = 2.0 ** ((qp + 1) // 6) * LEVEL_SCALE[(qp + 1) % 6] / 64
            if not skip:
                step *= 2.0 ** (15 - bit_depth - (log2_w + log2_h) // 2)
            odd_size = (log2_w + log2_h) % 2 and not skip
            if odd_size:
                remainder = (qp + (dependent and not skip)) % 6
                step *= (57, 64, 72, 80, 90, 102)[remainder] / LEVEL_SCALE[remainder] / 2
            expected = np.floor(doubled * step + 0.5).clip(-(1 << 15), (1 << 15) - 1)
            actual = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
            np.testing.assert_array_equal(actual, expected)
    f = empty_frame(bit_depth)
    values = packed(levels, 0 * odd)
    f.log[: len(values)] = values
    residuals.accumulate(f, 0, len(values), width, height, qp, True)
    expected = np.floor(levels.cumsum(0) * (2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64) + 0.5)
    actual = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
    np.testing.assert_array_equal(actual, expected.clip(-(1 << 15), (1 << 15) - 1))


@pytest.mark.parametrize(("log2_w", "log2_h"), [(2, 2), (2, 4), (3, 3), (4, 3)])
def test_secondary_transform(log2_w, log2_h):
    """The matrix product, transposed for modes beyond the diagonal."""
    rng = np.random.default_rng(log2_w)
    sets = {0: 0, 1: 0, 2: 1, 12: 1, 13: 2, 23: 2, 24: 3, 34: 3, 44: 3, 45: 2, 55: 2, 56: 1, 66: 1, 80: 1, -14: 1}
    width, large = 1 << log2_w, min(log2_w, log2_h) > 2
    results = 48 if large else 16
    first = fr.LFNST_48_AT if large else fr.LFNST_16_AT
    for mode, number in sets.items():
        f = empty_frame(10)
        index = int(rng.integers(1, 3))
        used = 8 if log2_w == log2_h else 16
        values = rng.integers(-2000, 2001, used)
        scan = [(x, d - x) for d in range(7) for x in range(4) if 0 <= d - x < 4]
        for (x, y), value in zip(scan, values, strict=False):
            f.s[fr.COEFFICIENTS + y * width + x] = value
        matrix = f.s[first + (2 * number + index - 1) * 16 * results :][: 16 * results].reshape(16, results)
        out = (values @ matrix[:used].astype(np.int64) + 64) >> 7
        block = np.zeros((8, 8), np.int64)
        if large:
            block[:4], block[4:, :4] = out[:32].reshape(4, 8), out[32:].reshape(4, 4)
        else:
            block[:4, :4] = out.reshape(4, 4)
        block = block.T if mode > 34 else block
        transforms.inverse_lfnst(f, log2_w, log2_h, mode, index)
        side = 8 if large else 4
        actual = f.s[fr.COEFFICIENTS :][: width << log2_h].reshape(-1, width)[:side, :side]
        np.testing.assert_array_equal(actual, block[:side, :side])


def mapped_back(samples, pivot, first, last, bit_depth):
    """Invert the luma mapping (clause 8.8.2.2) by the pivots of 16 bins, of which `first` to `last` are used."""
    width = 1 << (bit_depth - 4)
    words = np.diff(pivot)
    inverse = np.where(words > 0, width * 2048 // np.maximum(words, 1), 0)
    bins = np.searchsorted(pivot[1:16], samples, side="right").clip(first, last + 1).clip(0, 15)
    mapped = width * bins + ((inverse[bins] * (samples - pivot[bins]) + 1024) >> 11)
    return mapped.clip(0, (1 << bit_depth) - 1)


def chroma_scale(luma, x, y, pivot, scales, used, bit_depth):
    """Derive varScale (clause 8.7.5.3) from the mean mapped luma next to the block of 64x64 at (x, y)."""
    rows, columns = np.arange(y, y + 64).clip(0, len(luma) - 1), np.arange(x, x + 64).clip(0, luma.shape[1] - 1)
    sides = [*([luma[rows, x - 1]] if x else []), *([luma[y - 1, columns]] if y else [])]
    mean = (1 << bit_depth) >> 1
    if sides:
        total = np.concatenate(sides)
        mean = (int(total.sum()) + len(total) // 2) // len(total)
    index = int(np.searchsorted(pivot[1:16], mean, side="right").clip(used[0], used[1] + 1))
    return int(scales[min(index, 15)])


def scaled_residual(residual, scale, bit_depth):
    """Scale chroma residuals with LMCS ((1237) and (1238))."""
    limited = residual.clip(-(1 << bit_depth), (1 << bit_depth) - 1)
    return np.sign(limited) * ((np.abs(limited) * scale + 1024) >> 11)


@pytest.mark.parametrize(("bit_depth", "first", "last"), [(8, 0, 15), (10, 1, 14), (10, 3, 11)])
def test_inverse_mapping_chroma_scale_and_scaled_residuals(bit_depth, first, last):
    rng = np.random.default_rng(first)
    width = 1 << (bit_depth - 4)
    words = np.zeros(16, np.int64)
    words[first : last + 1] = rng.integers(width // 2, width, last + 1 - first)
    pivot = np.concatenate([[0], words.cumsum()])
    scales = rng.integers(1000, 4000, 16)
    inverse = tuple(width * 2048 // word if word else 0 for word in words.tolist())
    mapping = LumaMapping(first, last, tuple(pivot.tolist()), (0,) * 16, inverse, tuple(scales.tolist()))
    samples = np.arange(1 << bit_depth)
    expected = mapped_back(samples, pivot, first, last, bit_depth)
    np.testing.assert_array_equal(inverse_map(mapping, bit_depth), expected)
    for x, y in ((64, 64), (0, 64), (64, 0), (0, 0), (128, 128)):
        f, recon, _ = random_frame(rng, bit_depth, (1, 1))
        recon[0][:] = recon[0] * rng.random() * rng.random()
        f.slice.lmcs_min_bin_idx, f.slice.lmcs_max_bin_idx, f.current.vpdu_x = first, last, -1
        f.slice.lmcs_pivot[:], f.slice.chroma_scale_coeff[:] = pivot, scales
        scale = chroma_scale(recon[0].astype(np.int64), x, y, pivot, scales, (first, last), bit_depth)
        assert luma_mapping.chroma_scale(f, x + 8, y + 24, 8, 8) == scale
        residual = rng.integers(-(2 << bit_depth), 2 << bit_depth, 256)
        f.s[fr.RESIDUALS : fr.RESIDUALS + 256] = residual
        luma_mapping.scale_residual(f, fr.RESIDUALS, 256, scale)
        expected = scaled_residual(residual, scale, bit_depth)
        np.testing.assert_array_equal(f.s[fr.RESIDUALS : fr.RESIDUALS + 256], expected)
