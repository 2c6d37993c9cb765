"""Intra prediction, palette and block copy equal plain NumPy versions of clauses 8.4.5 and 8.6."""

import numpy as np
import pytest

from codecnn.base.records import record_at
from codecnn.vvc.intra import predict_modes_reference
from tests.helpers.plain_decoder import (
    SIDE,
    coding_units,
    cross_component,
    empty_frame,
    intra_prediction,
    lg,
    random_frame,
    st,
)

LEVEL_SCALE = (40, 45, 51, 57, 64, 72)
DIVISION = (0, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1, 0)
"""divSigTable of clause 8.4.5.2.14."""


@pytest.mark.parametrize(
    ("bit_depth", "width", "height"), [(8, 4, 4), (10, 8, 4), (10, 4, 16), (8, 16, 16), (10, 32, 8)]
)
def test_planar_dc_and_angular_modes_of_luma(bit_depth, width, height):
    rng = np.random.default_rng(width * height)
    f = empty_frame(bit_depth)
    plane = f.planes[: SIDE * SIDE].reshape(SIDE, SIDE)
    plane[:] = rng.integers(0, 1 << bit_depth, plane.shape)
    corner, top = plane[63, 63], plane[63, 64 : 64 + 2 * width]
    left = plane[64 : 64 + 2 * height, 63]
    expected = predict_modes_reference(corner[None], top[None], left[None], width, height, bit_depth)[0]
    actual = f.planes[SIDE * SIDE :].reshape(SIDE, SIDE)[64 : 64 + height, 64 : 64 + width]
    for mode in range(67):
        intra_prediction.predict(f, 0, 64, 64, width, height, mode, 0, 0, 0, False)
        np.testing.assert_array_equal(actual, expected[mode])


def matrix_prediction(top, left, weights, transposed, bit_depth):
    """Predict a block below `top` (w,) and right of `left` (h,) by MIP (clauses 8.4.5.2.2 to 8.4.5.2.4)."""
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


def interpolated(block, before, factor):
    """Interpolate rows to `factor` times their length, starting from the sample `before` each (clause 8.4.5.2.5)."""
    knots = np.column_stack([before, block])
    out = np.empty((len(block), factor * block.shape[1]), np.int64)
    for step in range(1, factor + 1):
        out[:, step - 1 :: factor] = ((factor - step) * knots[:, :-1] + step * knots[:, 1:] + factor // 2) // factor
    return out


@pytest.mark.parametrize("bit_depth", [8, 10, 12])
@pytest.mark.parametrize("size", [0, 1, 2])
def test_all_modes_of_mip(size, bit_depth):
    rng = np.random.default_rng(bit_depth)
    for width, height in (((4, 4),), ((8, 4), (4, 16), (8, 8)), ((16, 8), (8, 32), (32, 16), (64, 64)))[size]:
        f, recon, pred = random_frame(rng, bit_depth)
        for mode in range((16, 8, 6)[size]):
            results = 64 if size == 2 else 16
            weights = f.tables.mip_weights[size, mode, :results].astype(np.int64)
            weights = weights[:, 1:] if size == 2 else weights[:, : 4 if size == 0 else 8]
            for transposed in (False, True):
                intra_prediction.predict_by_matrix(f, 0, 64, 64, width, height, mode, transposed)
                luma = recon[0].astype(np.int64)
                top, left = luma[63, 64 : 64 + width], luma[64 : 64 + height, 63]
                expected = matrix_prediction(top, left, weights, transposed, bit_depth)
                actual = pred[0][64 : 64 + height, 64 : 64 + width]
                np.testing.assert_array_equal(actual, expected)


def downsampled(luma, sub_x, sub_y, collocated):
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


def linear_model_prediction(luma, chroma, place, mode, bit_depth, *, sub, collocated=False, ctu=128):
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


def linear_model(pairs, bit_depth):
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


@pytest.mark.parametrize(("sub", "collocated"), [((1, 1), False), ((1, 1), True), ((1, 0), True), ((0, 0), True)])
@pytest.mark.parametrize(("width", "height"), [(4, 4), (8, 16), (32, 8), (2, 8)])
@pytest.mark.parametrize("smooth", [0, 3])
def test_linear_model_inside_and_at_the_edges_of_picture_and_ctu(sub, collocated, width, height, smooth):
    f, recon, pred = random_frame(np.random.default_rng(width * height), 10, sub, smooth)
    f.pic.sps_chroma_vertical_collocated_flag, f.pic.ctb_log2_size_y = collocated, 5
    for x, y in ((40, 24), (0, 24), (40, 0), (0, 0), (40, 32 >> sub[1])):
        for mode in (67, 68, 69):
            cross_component.predict_from_luma(f, 1, x, y, width, height, mode)
            luma, chroma = recon[0].astype(np.int64), recon[1].astype(np.int64)
            place, options = (x, y, width, height), {"sub": sub, "collocated": collocated, "ctu": 32}
            expected = linear_model_prediction(luma, chroma, place, mode, 10, **options)
            actual = pred[1][y : y + height, x : x + width]
            np.testing.assert_array_equal(actual, expected)


def unit_in_log(f, x, y, width, height, mode, facts):
    """Write a coding unit without transform units to the beginning of the log."""
    f.log[: lg.UNIT_HEADER] = 0
    cu = record_at(f.log, 0, lg.CODING_UNIT)
    cu.x, cu.y, cu.width, cu.height, cu.pred_mode, cu.tree = x, y, width, height, mode, st.SINGLE
    for field, value in facts.items():
        setattr(cu, field, value)


def palette_samples(values, qp, least_qp, bit_depth):
    """Derive the samples of a palette block (clause 8.4.5.3); a value below 0 is -1 - palette_escape_val."""
    qp = max(qp + 6 * (bit_depth - 8), least_qp)
    escaped = ((-1 - values) * (LEVEL_SCALE[qp % 6] << (qp // 6)) + 32) >> 6
    return np.where(values < 0, escaped.clip(0, (1 << bit_depth) - 1), values)


@pytest.mark.parametrize(
    ("bit_depth", "sub", "qp"), [(8, (0, 0), 0), (8, (1, 0), 7), (10, (1, 1), 11), (10, (0, 0), 51)]
)
def test_palette_units_with_escape_values(bit_depth, sub, qp):
    rng = np.random.default_rng(qp)
    f, recon, pred = random_frame(rng, bit_depth, sub)
    f.pic.min_qp_prime_ts = 4
    offset = 6 * (bit_depth - 8)
    for kind in range(3):
        f.pic.chroma_qp_table[kind, : 64 + offset] = np.arange(-offset, 64)
    unit_in_log(f, 64, 32, 16, 8, st.MODE_PALETTE, {"qp_y": qp})
    at = lg.UNIT_HEADER
    expected = []
    for component in range(3):
        shape = (8 >> sub[1], 16 >> sub[0]) if component else (8, 16)
        values = rng.integers(0, 1 << bit_depth, shape)
        values = np.where(rng.random(shape) < 0.3, -1 - rng.integers(0, 40, shape), values)
        f.log[at : at + values.size] = values.ravel()
        at += values.size
        expected.append(palette_samples(values, qp, 4, bit_depth))
    coding_units.palette_unit(f)
    for component, samples in enumerate(expected):
        rows, columns = samples.shape
        y, x = (32 >> sub[1], 64 >> sub[0]) if component else (32, 64)
        for plane in (recon[component], pred[component]):
            np.testing.assert_array_equal(plane[y : y + rows, x : x + columns], samples)


@pytest.mark.parametrize("sub", [(0, 0), (1, 1), (1, 0)])
def test_block_copy_and_a_vector_to_samples_that_are_not_reconstructed(sub):
    rng = np.random.default_rng(0)
    f, recon, pred = random_frame(rng, 10, sub)
    before = [plane.copy() for plane in recon]
    unit_in_log(f, 64, 64, 16, 8, st.MODE_IBC, {"bv": (-24, -16)})
    coding_units.block_copy_unit(f)
    for component in range(3):
        sx, sy = sub if component else (0, 0)
        source = before[component][48 >> sy : 56 >> sy, 40 >> sx : 56 >> sx]
        for plane in (recon[component], pred[component]):
            np.testing.assert_array_equal(plane[64 >> sy : 72 >> sy, 64 >> sx : 80 >> sx], source)
    assert not f.current.fault
    f.known["region"][10:14, 10:14, 0] = 0
    coding_units.block_copy_unit(f)
    assert f.current.fault
