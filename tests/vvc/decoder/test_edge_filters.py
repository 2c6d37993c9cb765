"""The filters of deblocking equal plain NumPy versions of clause 8.8.3.6, whole edges at a time."""

from typing import NamedTuple

import numpy as np
import pytest

from codecnn.base.records import new_record
from tests.helpers.plain_decoder import cells, checked, edge_filters

_TC = "3 4 4 4 4 5 5 5 5 7 7 8 9 10 10 11 13 14 15 17 19 21 24 25 29 33 36 41 45 51 57 64 71 80 89 100 112 125 141 157"
TC = [*[0] * 18, *map(int, _TC.split()), 177, 198, 222, 250, 280, 314, 352, 395]
"""tC' of table 43."""

BETA = [0 if q < 16 else q - 10 if q < 28 else 2 * q - 38 for q in range(64)]
"""β' of table 43."""

LONG = {3: ((53, 32, 11), (6, 4, 2)), 5: ((58, 45, 32, 19, 6), (6, 5, 4, 3, 2))}
LONG[7] = ((59, 50, 41, 32, 23, 14, 5), (6, 5, 4, 3, 2, 1, 1))


class Edge(NamedTuple):
    """Parameters of an edge of four lines, or of fewer lines of chroma."""

    strength: int
    length_p: int
    length_q: int
    qp: int
    beta_offset: int
    tc_offset: int
    depth: int
    ctb_edge: bool = False
    keep_p: bool = False
    keep_q: bool = False

    @property
    def tc(self):
        """tC of the edge."""
        value = TC[min(max(self.qp + 2 * (self.strength - 1) + 2 * self.tc_offset, 0), 65)]
        return (
            value * 2 ** (self.depth - 10) if self.depth >= 10 else (value + 2 ** (9 - self.depth)) >> 10 - self.depth
        )

    @property
    def beta(self):
        """β of the edge."""
        return BETA[min(max(self.qp + 2 * self.beta_offset, 0), 63)] * 2 ** (self.depth - 8)


def curvature(samples, first=0):
    """Return |x0 - 2 x1 + x2| of each line, from the sample `first` on."""
    return np.abs(samples[:, first] - 2 * samples[:, first + 1] + samples[:, first + 2])


def bounded(values, samples, change):
    """Clip `values` to the range of `samples` plus or minus `change`."""
    return np.minimum(np.maximum(values, samples - change), samples + change)


def deblock_luma(p, q, edge):
    """Filter four lines of a luma edge."""
    out_p, out_q = p.copy(), q.copy()
    tc, beta = edge.tc, edge.beta
    large_p, large_q = edge.length_p > 3 and not edge.ctb_edge, edge.length_q > 3
    ends = np.array([0, 3])
    dp, dq = curvature(p)[ends], curvature(q)[ends]
    if large_p or large_q:
        dp_long = (dp + curvature(p, 3)[ends] + 1) >> 1 if large_p else dp
        dq_long = (dq + curvature(q, 3)[ends] + 1) >> 1 if large_q else dq
        slopes = np.zeros(2, np.int64)
        for samples, large, length in ((p[ends], large_p, edge.length_p), (q[ends], large_q, edge.length_q)):
            slope = np.abs(samples[:, 3] - samples[:, 0])
            if large and length == 7:
                slope = slope + np.abs(samples[:, 4] - samples[:, 5] - samples[:, 6] + samples[:, 7])
            if large:
                slope = (slope + np.abs(samples[:, 3] - samples[:, length]) + 1) >> 1
            slopes += slope
        smooth = (slopes < 3 * beta // 32) & (2 * (dp_long + dq_long) < beta // 16)
        smooth &= np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2
        if (dp_long + dq_long).sum() < beta and smooth.all():
            lengths = edge.length_p if large_p else 3, edge.length_q if large_q else 3
            out_p, out_q = long_filter(p, q, lengths, tc)
            return p if edge.keep_p else out_p, q if edge.keep_q else out_q
    if (dp + dq).sum() < beta:
        shortest = min(edge.length_p, edge.length_q)
        smooth = np.abs(p[ends, 3] - p[ends, 0]) + np.abs(q[ends, 3] - q[ends, 0]) < beta // 8
        smooth &= (2 * (dp + dq) < beta // 4) & (np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2)
        if shortest >= 3 and smooth.all():
            for out, a, b in ((out_p, p, q), (out_q, q, p)):
                total = a[:, 0] + b[:, 0]
                out[:, 0] = bounded((a[:, 2] + 2 * a[:, 1] + 2 * total + b[:, 1] + 4) >> 3, a[:, 0], 3 * tc)
                out[:, 1] = bounded((a[:, 2] + a[:, 1] + total + 2) >> 2, a[:, 1], 2 * tc)
                out[:, 2] = bounded((2 * a[:, 3] + 3 * a[:, 2] + a[:, 1] + total + 4) >> 3, a[:, 2], tc)
        else:
            threshold = (beta + beta // 2) >> 3
            delta = (9 * (q[:, 0] - p[:, 0]) - 3 * (q[:, 1] - p[:, 1]) + 8) >> 4
            used = np.abs(delta) < 10 * tc
            delta = delta.clip(-tc, tc)
            peak = 2**edge.depth - 1
            for out, a, sign, activity in ((out_p, p, 1, dp), (out_q, q, -1, dq)):
                out[used, 0] = (a[:, 0] + sign * delta).clip(0, peak)[used]
                if shortest >= 2 and activity.sum() < threshold:
                    second = (((a[:, 2] + a[:, 0] + 1) >> 1) - a[:, 1] + sign * delta) >> 1
                    out[used, 1] = (a[:, 1] + second.clip(-(tc >> 1), tc >> 1)).clip(0, peak)[used]
    return p if edge.keep_p else out_p, q if edge.keep_q else out_q


def long_filter(p, q, lengths, tc):
    """Filter up to seven samples on each side (clause 8.8.3.6.8)."""
    p_weights, q_weights, divisor = {
        (7, 7): ((2, 1, 1, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1, 1), 16),
        (5, 5): ((2, 2, 2, 1, 1), (2, 2, 2, 1, 1), 16),
        (7, 5): ((2, 2, 1, 1, 1, 1), (2, 2, 1, 1, 1, 1), 16),
        (5, 7): ((2, 2, 1, 1, 1, 1), (2, 2, 1, 1, 1, 1), 16),
        (7, 3): ((2, 1, 1, 1, 1, 1, 1), (3, 3, 2), 16),
        (3, 7): ((3, 3, 2), (2, 1, 1, 1, 1, 1, 1), 16),
        (5, 3): ((1, 1, 1, 1), (1, 1, 1, 1), 8),
        (3, 5): ((1, 1, 1, 1), (1, 1, 1, 1), 8),
    }[lengths]
    middle = (p[:, : len(p_weights)] @ np.array(p_weights) + q[:, : len(q_weights)] @ np.array(q_weights)) * 2 + divisor
    middle //= 2 * divisor
    out = p.copy(), q.copy()
    for target, samples, length in zip(out, (p, q), lengths, strict=True):
        end = (samples[:, length - 1] + samples[:, length] + 1) >> 1
        for i, (weight, limit) in enumerate(zip(*LONG[length], strict=True)):
            value = (middle * weight + end * (64 - weight) + 32) >> 6
            target[:, i] = bounded(value, samples[:, i], tc * limit >> 1)
    return out


def deblock_chroma(p, q, edge):
    """Filter some lines of a chroma edge; the lengths of `edge` are 3 if both blocks have eight samples, else 1."""
    large = edge.length_p == edge.length_q == 3
    if edge.strength == 0 or (edge.strength == 1 and not large):
        return p, q
    out_p, out_q = p.copy(), q.copy()
    tc, beta, peak = edge.tc, edge.beta, 2**edge.depth - 1
    above = p[:, [0, 1, 1, 1]] if edge.ctb_edge else p[:, :4]
    ends = np.array([0, len(p) - 1])
    activity = (curvature(above) + curvature(q))[ends]
    slopes = (np.abs(above[:, 3] - p[:, 0]) + np.abs(q[:, 3] - q[:, 0]))[ends]
    smooth = (slopes < beta // 8) & (2 * activity < beta // 4) & (np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2)
    if large and activity.sum() < beta and smooth.all():
        line = np.concatenate([above[:, ::-1], q[:, :4]], 1)
        # Each sample is the mean of seven around it and itself; the ends of the line are repeated.
        padded = np.pad(line, ((0, 0), (3, 3)), mode="edge")
        for i in range(1 if edge.ctb_edge else 3):
            at = 3 - i + 3
            total = padded[:, at - 3 : at + 4].sum(1) + line[:, 3 - i]
            out_p[:, i] = bounded((total + 4) >> 3, p[:, i], tc)
        for i in range(3):
            at = 4 + i + 3
            total = padded[:, at - 3 : at + 4].sum(1) + line[:, 4 + i]
            out_q[:, i] = bounded((total + 4) >> 3, q[:, i], tc)
    else:
        delta = ((4 * (q[:, 0] - p[:, 0]) + p[:, 1] - q[:, 1] + 4) >> 3).clip(-tc, tc)
        out_p[:, 0], out_q[:, 0] = (p[:, 0] + delta).clip(0, peak), (q[:, 0] - delta).clip(0, peak)
    return p if edge.keep_p else out_p, q if edge.keep_q else out_q


def lines(rng, count, depth):
    """Return `count` lines of 16 samples with a step in the middle, between smooth and noisy."""
    steps = rng.integers(-3, 4, (count, 16)) * int(rng.integers(0, 3))
    steps[1:-1] = rng.integers(-3, 4, steps[1:-1].shape) * int(rng.integers(0, 8))
    steps[:, 8] += rng.integers(-25, 26)
    values = (1 << (depth - 1)) + steps.cumsum(1) * (1 << (depth - 8)) // 2
    return values.clip(0, (1 << depth) - 1)


@pytest.mark.parametrize("depth", [8, 10, 12])
def test_luma_and_chroma_edges_of_all_lengths_in_both_directions(depth):
    rng = np.random.default_rng(depth)
    changed = set()
    for _ in range(500):
        offsets = [int(value) for value in rng.integers(-3, 4, 2)]
        flags = [bool(value) for value in rng.random(3) < 0.15]
        length_p, length_q = (int(value) for value in rng.choice([1, 2, 3, 5, 7], 2))
        edge = Edge(int(rng.integers(1, 3)), length_p, length_q, int(rng.integers(10, 60)), *offsets, depth, *flags)
        count = 4
        chroma = rng.random() < 0.4
        if chroma:
            count = int(rng.choice([2, 4]))
            length = int(rng.choice([1, 3]))
            edge = edge._replace(length_p=length, length_q=length)
        samples = lines(rng, count, depth)
        expected_p, expected_q = (deblock_chroma if chroma else deblock_luma)(samples[:, 7::-1], samples[:, 8:], edge)
        expected = np.concatenate([expected_p[:, ::-1], expected_q], 1)
        across, along = (1, 16) if rng.random() < 0.5 else (count, 1)
        work = (samples if across == 1 else samples.T).astype(np.int32).reshape(-1)
        at = 8 * across
        if chroma:
            checked(edge_filters.filter_chroma)(
                work, at, across, along, count, edge.strength, edge.length_p == 3, edge.qp, *offsets, depth, *flags
            )
        else:
            record = new_record(cells.Edge, np.int8)
            record.bs, record.max_filter_length_p, record.max_filter_length_q = edge[:3]
            checked(edge_filters.filter_luma)(work, at, across, along, record, edge.qp, *offsets, depth, *flags)
        actual = work.reshape(samples.shape) if across == 1 else work.reshape(samples.T.shape).T
        np.testing.assert_array_equal(actual, expected, f"{edge} chroma {chroma}")
        changed.add((chroma, *(np.count_nonzero((expected != samples).any(0)[part]) for part in np.s_[:8, 8:])))
    # All filters were in use: weak, strong and long ones of luma, weak and strong ones of chroma.
    assert {(False, 1, 1), (False, 3, 3), (False, 5, 5), (False, 7, 7), (True, 1, 1), (True, 3, 3)} <= changed, changed
