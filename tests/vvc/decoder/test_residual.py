"""Scaling, inverse transforms and luma mapping equal plain NumPy versions of clauses 8.7 and 8.8.2."""

import numpy as np
import pytest

from codecnn.base.records import record_at
from codecnn.vvc.intra import kernel_matrix
from codecnn.vvc.syntax import LumaMapping, inverse_map
from tests.helpers.plain_decoder import empty_frame, lg, luma_mapping, random_frame, residuals, st, transforms

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
    f.scratch.coefficients[: width * height] = coefficients.ravel()
    f.current.last_x, f.current.last_y = across - 1, down - 1
    logs = width.bit_length() - 1, height.bit_length() - 1
    transforms.inverse_transform(f, *logs, KERNELS[horizontal], KERNELS[vertical], f.scratch.residuals[0])
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
    actual = f.scratch.residuals[0, : width * height].reshape(height, width)
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
    """Flat scaling (clause 8.7.3)."""
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
            actual = f.scratch.coefficients[: width * height].reshape(height, width)
            np.testing.assert_array_equal(actual, expected)
    f = empty_frame(bit_depth)
    values = packed(levels, 0 * odd)
    f.log[: len(values)] = values
    residuals.accumulate(f, 0, len(values), width, height, qp, True)
    expected = np.floor(levels.cumsum(0) * (2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64) + 0.5)
    actual = f.scratch.coefficients[: width * height].reshape(height, width)
    np.testing.assert_array_equal(actual, expected.clip(-(1 << 15), (1 << 15) - 1))


@pytest.mark.parametrize(("log2_w", "log2_h"), [(2, 2), (2, 4), (3, 3), (4, 3)])
def test_secondary_transform(log2_w, log2_h):
    """The matrix product, transposed for modes beyond the diagonal."""
    rng = np.random.default_rng(log2_w)
    sets = {0: 0, 1: 0, 2: 1, 12: 1, 13: 2, 23: 2, 24: 3, 34: 3, 44: 3, 45: 2, 55: 2, 56: 1, 66: 1, 80: 1, -14: 1}
    width, large = 1 << log2_w, min(log2_w, log2_h) > 2
    for mode, number in sets.items():
        f = empty_frame(10)
        index = int(rng.integers(1, 3))
        used = 8 if log2_w == log2_h else 16
        values = rng.integers(-2000, 2001, used)
        scan = [(x, d - x) for d in range(7) for x in range(4) if 0 <= d - x < 4]
        for (x, y), value in zip(scan, values, strict=False):
            f.scratch.coefficients[y * width + x] = value
        matrix = (f.tables.lfnst_48 if large else f.tables.lfnst_16)[number, index - 1]
        out = (values @ matrix[:used].astype(np.int64) + 64) >> 7
        block = np.zeros((8, 8), np.int64)
        if large:
            block[:4], block[4:, :4] = out[:32].reshape(4, 8), out[32:].reshape(4, 4)
        else:
            block[:4, :4] = out.reshape(4, 4)
        block = block.T if mode > 34 else block
        transforms.inverse_lfnst(f, log2_w, log2_h, mode, index)
        side = 8 if large else 4
        actual = f.scratch.coefficients[: width << log2_h].reshape(-1, width)[:side, :side]
        np.testing.assert_array_equal(actual, block[:side, :side])


@pytest.mark.parametrize(("width", "height"), [(4, 4), (8, 8), (16, 4), (8, 32), (32, 32)])
@pytest.mark.parametrize("mode", [st.MODE_INTRA, st.MODE_INTER])
@pytest.mark.parametrize("component", [0, 1, 2])
def test_scaling_lists(width, height, mode, component):
    """Scaling by m[x][y] (clause 8.7.3): lists of 8x8 factors are stretched, the DC coefficient may have its own."""
    rng = np.random.default_rng(width * height + component)
    f, qp = empty_frame(10), 26
    record_at(f.log, 0, lg.CODING_UNIT).pred_mode = mode
    f.slice.sh_explicit_scaling_list_used_flag, f.slice.scaling_matrix_disabled_for_act = 1, -1
    f.slice.scaling_factor[:] = rng.integers(1, 256, (28, 8, 8))
    f.slice.scaling_factor_dc[:] = rng.integers(1, 256, 28)
    levels = rng.integers(-40, 41, (height, width))
    levels[levels == 0] = 1
    f.log[2048:][: levels.size] = packed(levels, 0 * levels)
    logs = width.bit_length() - 1, height.bit_length() - 1
    residuals.scale_levels(f, 2048, levels.size, component, *logs, qp, False, False)
    # Table 38: six lists for each size from 4 to 32, three of intra and three of other units.
    number = 6 * (max(logs) - 2) + 2 + component + (0 if mode == st.MODE_INTRA else 3)
    factors = f.slice.scaling_factor[number][np.arange(height) * 8 // height][:, np.arange(width) * 8 // width]
    if max(logs) > 3:
        factors[0, 0] = f.slice.scaling_factor_dc[number]
    scale = (57, 64, 72, 80, 90, 102) if sum(logs) % 2 else LEVEL_SCALE
    shift = 10 + 10 + sum(logs) % 2 + sum(logs) // 2 - 15
    expected = (levels * factors * (scale[qp % 6] << (qp // 6)) + (1 << shift >> 1)) >> shift
    actual = f.scratch.coefficients[: levels.size].reshape(height, width)
    np.testing.assert_array_equal(actual, expected.clip(-(1 << 15), (1 << 15) - 1))


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize("joint", [0, 1, 2, 3])
def test_quantization_parameters(bit_depth, joint):
    """Derive qP of the components (clause 8.7.1); with joint coding of both components (3) QpCbCr counts."""
    rng = np.random.default_rng(joint)
    offset = 6 * (bit_depth - 8)
    for _ in range(100):
        f = empty_frame(bit_depth)
        cu = record_at(f.log, 0, lg.CODING_UNIT)
        cu.qp_y, cu.cu_act_enabled_flag, cu.chroma_qp_offset_idx = rng.integers(-offset, 64), *rng.integers(0, 2, 2)
        f.pic.chroma_qp_table[:] = rng.integers(-offset, 64, (3, 160))
        f.slice.chroma_qp_offset[:], f.pic.min_qp_prime_ts = rng.integers(-12, 13, 3), rng.integers(4, 30)
        f.slice.cu_chroma_qp_offset[1] = rng.integers(-12, 13, 3)
        for component in range(1 if joint else 0, 3):
            qp, act = int(cu.qp_y), (-5, 1, 3)[component]
            if component:
                kind = 2 if joint == 3 else component - 1
                qp = int(f.pic.chroma_qp_table[kind, qp + offset] + f.slice.chroma_qp_offset[kind])
                qp += int(cu.chroma_qp_offset_idx * f.slice.cu_chroma_qp_offset[1, kind])
                qp, act = min(63, max(-offset, qp)), 1 if joint == 3 else act
            qp = min(63 + offset, max(0, qp + offset + act * int(cu.cu_act_enabled_flag)))
            assert residuals.qp_of_block(f, component, joint, False) == qp
            assert residuals.qp_of_block(f, component, joint, True) == max(qp, f.pic.min_qp_prime_ts)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("joint", [1, 2, 3])
def test_joint_residual(joint, sign):
    """The other component is half the coded one, or all of it (clause 8.7.2)."""
    f = empty_frame(10)
    f.slice.ph_joint_cbcr_sign_flag = sign < 0
    coded = np.random.default_rng(joint).integers(-(1 << 15), 1 << 15, 64)
    source, target = (2, 1) if joint == 1 else (1, 2)
    f.scratch.residuals[source, :64] = coded
    residuals.joint_residual(f, joint, 64)
    other = sign * coded if joint == 3 else (sign * coded) >> 1
    np.testing.assert_array_equal(f.scratch.residuals[source, :64], coded)
    np.testing.assert_array_equal(f.scratch.residuals[target, :64], other.clip(-(1 << 15), (1 << 15) - 1))


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_inverse_colour_transform(bit_depth):
    """Invert the lifting steps of YCgCo-R (clause 8.7.4.6) of residuals of G, B and R."""
    rng = np.random.default_rng(bit_depth)
    g, b, r = rng.integers(-(1 << bit_depth) + 1, 1 << bit_depth, (3, 64))
    orange = r - b
    middle = b + (orange >> 1)
    green = g - middle
    luma = middle + (green >> 1)
    f = empty_frame(bit_depth)
    f.scratch.residuals[:, :64] = luma, green, orange
    residuals.inverse_colour_transform(f, 64)
    np.testing.assert_array_equal(f.scratch.residuals[:, :64], [g, b, r])


@pytest.mark.parametrize("component", [0, 2])
def test_residual_is_added_and_kept(component):
    """Samples are clipped to the bit depth (clause 8.7.5.1)."""
    rng = np.random.default_rng(component)
    f, recon, pred = random_frame(rng, 10, (1, 1))
    pred[component][:] = rng.integers(0, 1024, pred[component].shape)
    residual = rng.integers(-1100, 1100, (8, 16), np.int32)
    residuals.add_residual(f, component, 24, 40, 16, 8, residual.ravel())
    area = np.s_[40:48, 24:40]
    np.testing.assert_array_equal(recon[component][area], (pred[component][area] + residual).clip(0, 1023))
    start, stride = f.pic.resid[component], f.pic.stride[component]
    kept = f.planes[start:][: recon[component].size].reshape(-1, stride)
    np.testing.assert_array_equal(kept[area], residual)
    residuals.copy_prediction(f, component, 24, 40, 16, 8)
    np.testing.assert_array_equal(recon[component][area], pred[component][area])


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
    """Scale chroma residuals with LMCS (clause 8.7.5.3)."""
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
        scaled = residual.astype(np.int32)
        luma_mapping.scale_residual(f, scaled, 256, scale)
        expected = scaled_residual(residual, scale, bit_depth)
        np.testing.assert_array_equal(scaled, expected)
