"""Merge candidates equal plain versions of clauses 8.5.2.4, 8.5.2.5, 8.5.2.7 and 8.5.5.6."""

import numpy as np
import pytest

from codecnn.base.records import new_record
from tests.helpers.plain_decoder import empty_frame, merge, rc, subblock_merge


def random_motion(rng, reach=131072):
    """Return a motion whose lists are used or not, at least one of them."""
    motion = new_record(rc.Motion)
    used = (1, 1), (1, 0), (0, 1)
    for i, is_used in enumerate(used[rng.integers(0, 3)]):
        motion.ref_idx[i] = rng.integers(0, 3) if is_used else -1
        if is_used:
            motion.mv[i].x, motion.mv[i].y = rng.integers(-reach, reach, 2)
    motion.hpel_if_idx = rng.integers(0, 2)
    return motion


def vector(motion, i):
    """Return the vector of a list, horizontal component first."""
    return int(motion.mv[i].x), int(motion.mv[i].y)


@pytest.mark.parametrize("number", range(20))
def test_average_of_two_candidates(number):
    """Clause 8.5.2.4: means of vectors are rounded towards zero; a list of one candidate is taken over."""
    rng = np.random.default_rng(number)
    first, second, average = random_motion(rng), random_motion(rng), random_motion(rng)
    merge.average_candidate(first, second, average)
    for i in range(2):
        used = [each for each in (first, second) if each.ref_idx[i] >= 0]
        expected = tuple(
            int(sum(values) / len(used)) for values in zip(*(vector(each, i) for each in used), strict=True)
        )
        assert average.ref_idx[i] == (used[0].ref_idx[i] if used else -1)
        assert vector(average, i) == (expected or (0, 0))
    assert average.hpel_if_idx == first.hpel_if_idx * second.hpel_if_idx
    assert average.bcw_idx == 0


@pytest.mark.parametrize(("is_b", "active"), [(0, (3, 1)), (1, (3, 2)), (1, (2, 4))])
def test_zero_candidates_refer_to_one_picture_after_the_other(is_b, active):
    """Clause 8.5.2.5: zeroIdx counts up to the smaller number of entries, and stays 0 after it."""
    f = empty_frame(8)
    f.slice.is_b, f.slice.num_ref_idx_active[:] = is_b, active
    merge.zero_candidates(f, 1, 5)
    entries = min(active) if is_b else active[0]
    for zero_idx, candidate in enumerate(f.candidates.merge_cand_list[1:6]):
        ref_idx = zero_idx if zero_idx < entries else 0
        assert candidate.ref_idx.tolist() == [ref_idx, ref_idx if is_b else -1]
        assert (vector(candidate, 0), vector(candidate, 1)) == ((0, 0), (0, 0))


def plain_differences(offset, diff_0, diff_1, long_term):
    """Derive mMvdL0 and mMvdL1 of a bi-directional candidate (8.5.2.7) from the POC differences of its references."""
    if diff_0 == diff_1:
        return offset, offset
    if abs(diff_0) < abs(diff_1):
        return plain_differences(offset, diff_1, diff_0, long_term)[::-1]
    if long_term:
        return offset, offset if np.sign(diff_0) == np.sign(diff_1) else -offset
    td, tb = (min(127, max(-128, diff)) for diff in (diff_0, diff_1))
    factor = (tb * int((16384 + abs(td) // 2) / td) + 32) >> 6
    product = np.clip(factor, -4096, 4095) * offset
    return offset, (product + 128 - (product >= 0)) >> 8


@pytest.mark.parametrize("number", range(40))
def test_merge_with_vector_differences(number):
    rng = np.random.default_rng(number)
    f = empty_frame(8)
    f.slice.poc, f.slice.ph_mmvd_fullpel_only_flag = 100, number & 1
    differences = [int(value) for value in rng.choice([-140, -8, -3, -1, 1, 2, 3, 140], 2)]
    long_term = rng.integers(0, 2, 2) if number % 4 == 0 else [0, 0]
    motion = random_motion(rng, 4000)
    for i in range(2):
        for entry in f.slice.ref_pic_list[i]:
            entry.poc, entry.long_term = 100 - differences[i], long_term[i]
    before = [vector(motion, i) for i in range(2)]
    distance_idx, direction_idx = (int(rng.integers(0, end)) for end in (8, 4))
    merge.add_difference(f, motion, distance_idx, direction_idx)
    # MmvdDistance is in quarters of a sample, or in whole samples.
    length = 2**distance_idx * (16 if number & 1 else 4)
    axis, sign = direction_idx // 2, 1 - 2 * (direction_idx % 2)
    both = min(motion.ref_idx) >= 0
    added = plain_differences(sign * length, *differences, any(long_term)) if both else (sign * length,) * 2
    for i in range(2):
        expected = np.array(before[i])
        if motion.ref_idx[i] >= 0:
            expected[axis] += added[i]
        assert vector(motion, i) == tuple(expected), f"L{i}, POC differences {differences}"


CORNERS = {1: (0, 1, 2), 2: (0, 1, 3), 3: (0, 2, 3), 4: (1, 2, 3), 5: (0, 1), 6: (0, 2)}
"""Corners of Const1 to Const6: upper left, upper right, lower left and lower right."""


@pytest.mark.parametrize("const_idx", CORNERS)
def test_constructed_candidates(const_idx):
    """The fourth corner of an affine field follows from the other three; two corners turn and scale the unit."""
    rng = np.random.default_rng(const_idx)
    f = empty_frame(8)
    f.unit.width, f.unit.height = 16, 32
    for _ in range(20):
        vectors = rng.integers(-2000, 2000, (2, 4, 2))
        ref_idx = rng.integers(-1, 1, (2, 4))
        for point, corner in enumerate(f.candidates.corner):
            corner.ref_idx[:], corner.bcw_idx = ref_idx[:, point], 1 + point
            for i in range(2):
                corner.mv[i].x, corner.mv[i].y = vectors[i, point]
        used = (ref_idx[:, CORNERS[const_idx]] >= 0).all(1)
        assert subblock_merge.constructed_motion(f, const_idx) == used.any()
        assert f.unit.motion.ref_idx.tolist() == np.where(used, 0, -1).tolist()
        assert f.unit.motion.bcw_idx == (1 + CORNERS[const_idx][0] if used.all() else 0)
        for i in np.flatnonzero(used):
            c0, c1, c2, c3 = vectors[i]
            if const_idx == 6:
                # The vectors change half as much over the width as over the height, turned by 90 degrees.
                down = (c2 - c0) * 16 / 32
                c1 = c0 + np.array([down[1], -down[0]])
                c1 = np.sign(c1) * np.ceil(np.abs(c1) - 0.5)
            expected = {2: (c0, c1, c3 + c0 - c1), 3: (c0, c3 + c0 - c2, c2), 4: (c1 + c2 - c3, c1, c2)}
            points = expected.get(const_idx, (c0, c1, c2))[: 3 if const_idx <= 4 else 2]
            for point, value in enumerate(points):
                actual = f.unit.cp_mv[i, point]
                assert (int(actual.x), int(actual.y)) == tuple(value), f"control point {point} of L{i}"
