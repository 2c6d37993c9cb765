"""Scaling and compression of vectors, tables and histories of motion equal formulas of clause 8.5.2."""

import numpy as np
import pytest

from tests.helpers.plain_decoder import empty_frame, fr, geometric_motion, lg, motion, references, st, temporal_motion


def test_compression_of_all_vectors_of_18_bits():
    """Formulas 588 to 592, with Python integers."""
    vectors = np.arange(-131072, 131072, dtype=np.int32)
    expected = []
    for vector in vectors.tolist():
        shift = ((vector ^ (vector >> 17)) | 31).bit_length() - 5
        expected.append((vector + ((1 << shift) >> 2)) & ((-1 << shift) >> 1))
    np.testing.assert_array_equal(temporal_motion.compressed(vectors), expected)


def test_scaled_vectors_have_the_ratio_of_the_poc_distances():
    for current, other in ((1, 2), (-3, 4), (8, -8), (-5, -1), (127, 1), (1, 128)):
        factor = temporal_motion.scale_factor(current, other)
        ratio = max(-4096, min(4095, 256 * current / other))
        assert abs(factor - ratio) <= 1 + abs(ratio) / 256
        for value in (-20000, -17, 0, 5, 4000):
            expected = max(-131072, min(131071, value * factor / 256))
            assert abs(temporal_motion.scaled(value, factor) - expected) <= 0.5
    # Halves are rounded towards zero.
    assert [temporal_motion.scaled(value, 1) for value in (-384, -128, 127, 128, 129, 384)] == [-1, 0, 0, 0, 1, 1]


def test_geometric_partitions_are_20_angles_with_distances_of_which_no_pair_comes_twice():
    pairs = {tuple(pair) for pair in geometric_motion.PARTITIONS.tolist()}
    assert geometric_motion.PARTITIONS.shape == (64, 2)
    assert len(pairs) == 64
    assert {angle for angle, _ in pairs} == set(range(32)) - {1, 6, 7, 9, 10, 15, 17, 22, 23, 25, 26, 31}
    assert all(pair in pairs for angle, _ in pairs for pair in ((angle, 1), (angle, 3)))
    assert sum(distance == 0 for _, distance in pairs) == 8


def test_order_of_the_history():
    """A sixth entry removes the oldest one, a known one moves to the end."""
    f = empty_frame(8)
    unit = fr.MOTION_OF_UNIT
    f.p[unit + fr.UNIT_W] = f.p[unit + fr.UNIT_H] = 8
    f.p[fr.PARALLEL_LEVEL] = 2
    at = fr.NEIGHBOURS
    f.p[at + fr.C_REF_1] = -1
    entries = []
    for vector in (1, 2, 3, 4, 5, 6, 3, 6, 7):
        f.p[at] = vector
        motion.update_history(f, at)
        entries.append([int(f.p[fr.HISTORY + fr.CANDIDATE * i]) for i in range(f.p[fr.HISTORY_COUNT])])
    assert entries[4:] == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [2, 4, 5, 6, 3], [2, 4, 5, 3, 6], [4, 5, 3, 6, 7]]
    f.p[fr.PARALLEL_LEVEL] = 4
    f.p[at] = 8
    motion.update_history(f, at)
    assert f.p[fr.HISTORY + 4 * fr.CANDIDATE] == 7, "a unit inside a merge estimation region is left out"


@pytest.mark.parametrize(("index", "weight"), [(0, 1), (1, 0)])
def test_candidate_after_the_constructed_ones_has_no_motion(index, weight):
    """The unit lies at the top of the picture, beside a bi-directional unit with bcw_idx 1."""
    f, log = empty_frame(8), np.zeros(lg.UNIT_HEADER, np.int64)
    f = f._replace(log=log)
    f.p[fr.SLICE_IS_B], f.p[fr.ACTIVE_0], f.p[fr.ACTIVE_1] = 1, 1, 1
    f.p[fr.AFFINE], f.p[fr.AFFINE_SIX], f.p[fr.PARALLEL_LEVEL] = 1, 1, 2
    f.known[fr.LUMA_REGION] = 0
    references.mark(f, False, 0, 0, 16, 32)
    f.motion[:, :8, :4] = 0
    f.motion[fr.MV_X0 : fr.MV_Y1 + 1, :8, :4], f.motion[fr.BCW, :8, :4] = 40, 1
    log[lg.U_X], log[lg.U_W], log[lg.U_H], log[lg.U_PRED_MODE] = 16, 32, 32, st.MODE_INTER
    log[lg.U_MERGE], log[lg.U_SUBBLOCK], log[lg.U_MERGE_IDX] = 1, 1, index
    motion.derive_motion(f)
    assert f.p[fr.MOTION_OF_UNIT + fr.UNIT_BCW] == weight
    assert f.p[fr.MOTION_OF_UNIT + fr.UNIT_KIND] == fr.KIND_AFFINE
    vectors = f.motion[fr.MV_X0 : fr.MV_Y1 + 1, :8, 4:12]
    assert (vectors == (0 if index else 40)).all()
    assert (f.motion[fr.BCW, :8, 4:12] == weight).all()
