"""Decisions on the filter against brute force, NumPy's least squares and an arithmetic coder; never worse than off."""

import itertools
import math
import time
import tracemalloc

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, FormatError, ModelError
from codecnn.filtering import FloatFilter, decide_picture, round_samples, sequence_pays
from codecnn.filtering.decisions import choose_flags, chroma_weight, flag_bits, rd_lambda, residual_scale
from codecnn.models import create_model
from codecnn.pictures.files import Picture, open_video
from tests.helpers.networks import SMALL, awaken


def coded(rng, size, bit_depth=10, components=3, spread=6.0):
    """Draw an original and a decoded picture, 4:2:0; `rng` is a generator or its seed."""
    rng, (height, width) = np.random.default_rng(rng), size
    shapes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * (components - 1)
    dtype = np.uint16 if bit_depth > 8 else np.uint8
    originals = [rng.integers(0, 2**bit_depth, shape) for shape in shapes]
    decoded = [np.clip(np.rint(p + rng.normal(0, spread, p.shape)), 0, 2**bit_depth - 1) for p in originals]
    return tuple(Picture(tuple(p.astype(dtype) for p in planes), bit_depth) for planes in (originals, decoded))


def repaired(rng, original, decoded, names, noise=2.0):
    """Imitate a filter that removes a share of the error, which differs from place to place, and adds noise."""
    samples = {}
    for name, o, d in zip("yuv", original.planes, decoded.planes, strict=False):
        if name in names:
            cells = [ceil_div(extent, 8) for extent in d.shape]
            share = rng.uniform(-0.4, 0.8, cells).repeat(8, 0).repeat(8, 1)[: d.shape[0], : d.shape[1]]
            samples[name] = (d + share * (o.astype(float) - d) + rng.normal(0, noise, d.shape)).astype(np.float32)
    return samples


def coder_bits(flags):
    """Count the bits of the arithmetic coder of H.266 clause 9.3.4.3.2 for flags with the contexts of alf_ctb_flag."""
    rows, columns = flags.shape
    states = {count: [512, 8192] for count in range(3)}
    low, span, shifts = 0, 510, 0
    for y, x in itertools.product(range(rows), range(columns)):
        state = states[int(x > 0 and flags[y, x - 1]) + int(y > 0 and flags[y - 1, x])]
        probability = 16 * state[0] + state[1]
        likely = probability >> 14
        lps = ((span >> 5) * ((probability ^ (32767 if likely else 0)) >> 9) >> 1) + 4
        span -= lps
        if int(flags[y, x]) != likely:
            low, span = low + span, lps
        while span < 256:
            low, span, shifts = low << 1, span << 1, shifts + 1
        for index, (top, rate) in enumerate(((1023, 2), (16383, 5))):
            state[index] += ((top if flags[y, x] else 0) >> rate) - (state[index] >> rate)
    assert low < 1 << (shifts + 9)
    # The remaining interval says how many bits a number in it needs, none of which is written yet.
    return shifts + math.log2(510 / span)


def signalled(decision, candidates):
    """Count the bits of a decision by the documented syntax."""
    if decision.mode == "off":
        return 1
    bits = 1 + math.ceil(math.log2(candidates))
    for name, mode in decision.modes.items():
        bits += 1 if len(decision.modes) == 1 else {"off": 1, "on": 2, "ctu": 2}[mode]
        if mode != "off":
            bits += 1 if decision.scales[name] == 1 else 10
        if mode == "ctu":
            bits += flag_bits(decision.flags[name])
    return bits


def distortion(original, picture, names, qp):
    """Sum the squared errors of some components, chroma weighted."""
    total = 0.0
    for name, a, b in zip("yuv", original.planes, picture.planes, strict=False):
        if name in names:
            total += (1 if name == "y" else chroma_weight(qp)) * float(((a.astype(int) - b) ** 2).sum())
    return total


def check(original, decoded, filtered, qp, ctu):
    """Check picture, bits and costs of a decision, and that it never costs more than no filter."""
    picture, decision = decide_picture(original, decoded, filtered, qp=qp, ctu=ctu)
    names = tuple(next(iter(filtered.values())))
    lambda_ = rd_lambda(qp, decoded.bit_depth)
    assert tuple(decision.modes) == tuple(decision.flags) == tuple(decision.scales) == names
    assert decision.bits == pytest.approx(signalled(decision, len(filtered)))
    before, after = (distortion(original, p, names, qp) for p in (decoded, picture))
    assert decision.cost_before == pytest.approx(before + lambda_)
    assert decision.cost_after == pytest.approx(after + lambda_ * decision.bits)
    assert decision.cost_after <= decision.cost_before
    grid = (ceil_div(decoded.y.shape[0], ctu), ceil_div(decoded.y.shape[1], ctu))
    for index, (plane, old) in enumerate(zip(picture.planes, decoded.planes, strict=True)):
        name = "yuv"[index]
        assert plane.dtype == old.dtype
        if name not in names:
            assert plane is old
            continue
        assert decision.flags[name].shape == grid
        assert 0.0625 <= decision.scales[name] <= 1.25
        assert decision.scales[name] * 256 == int(decision.scales[name] * 256)
        side = ctu if name == "y" else ctu // 2
        for row, column in itertools.product(*map(range, grid)):
            at = (slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side))
            expected = old[at].astype(float)
            if decision.flags[name][row, column]:
                samples = filtered[decision.qp_offset][name][at]
                expected = expected + decision.scales[name] * (samples - expected)
            assert np.array_equal(plane[at], np.clip(np.rint(expected), 0, 2**decoded.bit_depth - 1))
    return picture, decision


def test_lambda_and_the_weight_of_chroma_are_those_of_vtm():
    assert rd_lambda(12, 8) == 0.57
    assert rd_lambda(37, 8) == pytest.approx(183.84768, abs=1e-5)
    # VTM instead moves the QP by 6 · (10 - 8).
    assert rd_lambda(37, 10) == pytest.approx(0.57 * 2 ** ((37 + 12 - 12) / 3))
    chroma_qps = {10: 10, 17: 17, 20: 21, 22: 23, 27: 28, 34: 35, 37: 37, 42: 39, 50: 47}
    for qp, chroma in chroma_qps.items():
        assert chroma_weight(qp) == pytest.approx(2 ** ((qp - chroma) / 3)), qp


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_bits_are_those_of_an_arithmetic_coder(share):
    """The coder bounds the interval of the rarer value from below, which costs 0.01 bit a flag if all are equal."""
    flags = np.random.default_rng(2).random((20, 30)) < share
    assert flag_bits(flags) == pytest.approx(coder_bits(flags), rel=0.025, abs=0.01 * flags.size)
    assert flag_bits(flags[:1, :1]) == 1.0


def test_neighbours_select_the_context():
    """Flags that are on in one half of the picture cost fewer bits than as many scattered flags."""
    halves = np.zeros((16, 16), bool)
    halves[:, 8:] = True
    scattered = np.random.default_rng(3).permutation(halves.ravel()).reshape(16, 16)
    assert flag_bits(halves) < 0.5 * flag_bits(scattered)
    assert flag_bits(halves) == pytest.approx(coder_bits(halves), rel=0.03)


def test_flags_are_the_best_of_all_maps():
    rng = np.random.default_rng(0)
    for shape in ((1, 10), (3, 3), (2, 5), (4, 2), (1, 1)) * 6:
        gains = rng.normal(rng.choice([-0.5, 0, 0.5]), rng.choice([0.5, 1, 2]), shape) * 100
        maps = (np.array(bits).reshape(shape) for bits in itertools.product([False, True], repeat=gains.size))
        best = min(100 * flag_bits(flags) - gains[flags].sum() for flags in maps)
        flags = choose_flags(gains, 100)
        assert 100 * flag_bits(flags) - gains[flags].sum() == pytest.approx(best)


def choose_flags_by_copies(gains, lambda_, beam=16):
    """Search flags as `choose_flags` does, with a copy of all flags in each partial map: O(n^2) for n CTUs."""

    def bits(state, value):
        probability = (state[1] + 16 * state[0]) / 32768
        return -math.log2(probability if value else 1 - probability)

    def adapt(state, value):
        short, long = state
        ends = (1023, 16383) if value else (0, 0)
        return short - (short >> 2) + (ends[0] >> 2), long - (long >> 5) + (ends[1] >> 5)

    columns = gains.shape[1]
    maps = [(0.0, (), ((512, 8192),) * 3)]
    for index, gain in enumerate(gains.ravel().tolist()):
        longer = []
        for cost, flags, states in maps:
            left = index % columns > 0 and flags[index - 1]
            above = index >= columns and flags[index - columns]
            context = int(left) + int(above)
            for value in (False, True):
                after = (*states[:context], adapt(states[context], value), *states[context + 1 :])
                added = lambda_ * bits(states[context], value) - gain * value
                longer.append((cost + added, (*flags, value), after))
        longer.sort(key=lambda path: path[0])
        maps = longer[:beam]
    return np.array(maps[0][1], dtype=bool).reshape(gains.shape)


def test_flags_are_those_of_the_search_with_copies():
    """Also where equal gains make partial maps of equal cost, whose order decides."""
    rng = np.random.default_rng(17)
    for number in range(120):
        shape = tuple(rng.integers(1, 13, 2))
        gains = rng.normal(rng.choice([-0.5, 0, 0.5]), rng.choice([0.5, 1, 2]), shape) * 100
        if number % 3 == 0:
            gains = np.rint(gains / 100) * 100
        np.testing.assert_array_equal(choose_flags(gains, 100.0), choose_flags_by_copies(gains, 100.0))


def test_the_search_for_flags_takes_linear_time_and_memory():
    """A picture of 1920x1080 has 8,160 CTUs of 16x16; copies of the flags in 16 maps took 256 bytes a CTU and more."""
    gains = np.random.default_rng(18).normal(0, 100, (68, 120))
    tracemalloc.start()
    choose_flags(gains[:17], 100.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * gains[:17].size

    def seconds(part):
        start = time.process_time()
        choose_flags(part, 100.0)
        return time.process_time() - start

    quarter, whole = (min(seconds(part) for _ in range(3)) for part in (gains[:17], gains))
    assert whole < 8 * quarter, "four times as many CTUs; with copies the factor is about 15"


def test_the_scale_is_numpys_least_squares():
    rng = np.random.default_rng(4)
    for factor in (0.1, 0.5, 0.9, 1.2):
        c = rng.normal(1.5, 0.8, 500)
        o = factor * c + rng.normal(2, 0.5, 500)
        # A row for the ridge: 500 times ε = 0.1 of squared distance of the slope from 1.
        rows = np.vstack([np.column_stack([c, np.ones(500)]), [math.sqrt(500 * 0.1), 0]])
        slope = np.linalg.lstsq(rows, np.append(o, math.sqrt(500 * 0.1)), rcond=None)[0][0]
        assert residual_scale(500, c.sum(), o.sum(), (c * c).sum(), (c * o).sum()) == round(256 * slope)
    assert residual_scale(4, 0, 0, 40, 400) == 320
    assert residual_scale(4, 0, 0, 40, -400) == 16
    assert residual_scale(4, 0, 0, 0, 0) == 256


@pytest.mark.parametrize("qp", [22, 42])
def test_a_decision_is_the_best_of_all_maps(qp):
    """The cost is the least of all 2^6 flag maps, at the chosen scale and at full strength, and of on everywhere."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        original, decoded = coded(rng, (30, 44), components=1)
        filtered = {0: repaired(rng, original, decoded, "y")}
        _, decision = check(original, decoded, filtered, qp, 16)
        costs = []
        for scale in {1.0, decision.scales["y"]}:
            moved = decoded.y + scale * (filtered[0]["y"].astype(float) - decoded.y)
            moved = np.clip(np.rint(moved), 0, 1023)
            for flags in itertools.product([False, True], repeat=6):
                flags = np.array(flags).reshape(2, 3)
                mask = flags.repeat(16, 0).repeat(16, 1)[:30, :44]
                error = ((original.y - np.where(mask, moved, decoded.y)) ** 2).sum()
                costs.append(error + decision.rd_lambda * (3 + (scale != 1) * 9 + flag_bits(flags)))
            costs.append(((original.y - moved) ** 2).sum() + decision.rd_lambda * (3 + (scale != 1) * 9))
        best = min(*costs, decision.cost_before)
        assert decision.cost_after == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize("size", [(64, 64), (33, 47), (1, 5), (130, 20)])
@pytest.mark.parametrize("names", ["y", "yuv"])
def test_decisions_are_what_they_say(bit_depth, size, names):
    rng = np.random.default_rng(7)
    original, decoded = coded(rng, size, bit_depth)
    filtered = {offset: repaired(rng, original, decoded, names, noise) for offset, noise in ((0, 3), (5, 1), (-5, 4))}
    for ctu, qp in itertools.product((16, 128), (12, 37)):
        check(original, decoded, filtered, qp, ctu)


def test_samples_at_the_ends_of_the_range():
    rng = np.random.default_rng(8)
    original, decoded = (Picture((rng.choice([0, 1023], (40, 40)).astype(np.uint16),), 10) for _ in range(2))
    samples = {"y": rng.choice([-300.0, 0, 1023, 1500], (40, 40)).astype(np.float32)}
    check(original, decoded, {0: samples}, 32, 16)
    picture, decision = check(original, decoded, {0: {"y": 3 * original.y.astype(np.float32) - 1000}}, 32, 64)
    assert decision.mode == "on"
    assert np.abs(picture.y.astype(int) - original.y).max() <= 1


def test_full_strength_is_what_the_filter_gives():
    original, decoded = coded(9, (40, 56))
    samples = {name: np.float32(p + 0.5) for name, p in zip("yuv", original.planes, strict=True)}
    picture, decision = decide_picture(original, decoded, {0: samples}, qp=32)
    assert decision.modes == {"y": "on", "u": "on", "v": "on"}
    assert set(decision.scales.values()) == {1.0}
    for decided, filtered in zip(picture.planes, round_samples(decoded, samples).planes, strict=True):
        np.testing.assert_array_equal(decided, filtered)


def test_the_scale_is_that_of_the_ctus_that_are_on():
    """The filter overshoots twofold on the left and does harm on the right, so that a scale for all CTUs is wrong."""
    original, decoded = coded(16, (64, 64), components=1, spread=20)
    error = original.y.astype(float) - decoded.y
    samples = {"y": decoded.y + error * np.where(np.arange(64) < 32, 2.0, -1.5)}
    picture, decision = check(original, decoded, {0: samples}, 22, 32)
    assert decision.flags["y"].tolist() == [[True, False]] * 2
    assert decision.scales["y"] == 0.5
    np.testing.assert_array_equal(picture.y[:, :32], original.y[:, :32])


def test_the_offset_that_repairs_most_is_chosen():
    original, decoded = coded(10, (64, 64), components=1)
    filtered = {0: {"y": decoded.y + 0.0}, 5: {"y": original.y + 0.0}, -5: {"y": decoded.y + 1.0}}
    picture, decision = decide_picture(original, decoded, filtered, qp=32)
    assert (decision.qp_offset, decision.mode, decision.bits) == (5, "on", 1 + 2 + 1 + 1)
    np.testing.assert_array_equal(picture.y, original.y)


def test_components_are_decided_apart():
    original, decoded = coded(11, (64, 64))
    samples = {"y": decoded.y + 40.0, "u": original.u + 0.0, "v": np.where(np.arange(32) < 16, original.v, 0) + 0.0}
    picture, decision = check(original, decoded, {0: samples}, 22, 32)
    assert decision.modes == {"y": "off", "u": "on", "v": "ctu"}
    assert decision.flags["v"].tolist() == [[True, False]] * 2
    assert decision.mode == "ctu"
    np.testing.assert_array_equal(picture.y, decoded.y)
    np.testing.assert_array_equal(picture.u, original.u)


def test_a_gain_below_the_cost_of_its_bits_is_not_used():
    original = Picture((np.full((8, 8), 500, np.uint16),), 10)
    decoded = Picture((np.full((8, 8), 501, np.uint16),), 10)
    # The filter removes 64 sample² for 3 bits, one of which is spent in any case.
    for qp, mode in ((12, "on"), (15, "on"), (20, "off")):
        assert decide_picture(original, decoded, {0: {"y": original.y + 0.0}}, qp=qp)[1].mode == mode
        assert (2 * rd_lambda(qp, 10) < 64) == (mode == "on")


def test_a_picture_stands_for_the_planes_it_filtered():
    original, decoded = coded(12, (32, 32))
    better = Picture((original.y, *decoded.planes[1:]), 10)
    picture, decision = decide_picture(original, decoded, {0: better}, qp=32)
    assert tuple(decision.modes) == ("y",)
    np.testing.assert_array_equal(picture.y, original.y)
    assert picture.v is decoded.v


def test_an_eight_bit_original_is_brought_to_the_decoded_depth():
    original = Picture((np.full((16, 16), 100, np.uint8),), 8)
    decoded = Picture((np.full((16, 16), 404, np.uint16),), 10)
    picture, _ = decide_picture(original, decoded, {0: {"y": np.full((16, 16), 400.0)}}, qp=22)
    assert (picture.y == 400).all()


def test_a_sequence_that_does_not_pay():
    original, decoded = coded(13, (32, 32), components=1)

    def decision(samples):
        return decide_picture(original, decoded, {0: {"y": samples}}, qp=37)[1]

    bad, good = decision(decoded.y + 99.0), decision(original.y + 0.0)
    assert (bad.mode, good.mode) == ("off", "on")
    assert not sequence_pays([bad, bad])
    assert sequence_pays([bad, good])


def test_invalid_arguments_are_refused():
    original, decoded = coded(14, (32, 32))
    good = {0: {"y": decoded.y + 0.0}}
    broken = {"y": np.where(np.eye(32) > 0, np.nan, decoded.y)}
    for error, message, changes in (
        (ConfigError, "no filtered picture", {"filtered": {}}),
        (ConfigError, "QP offset 5 filters y, u", {"filtered": good | {5: {"y": decoded.y, "u": decoded.u}}}),
        (FormatError, r"y of shape \(31, 32\)", {"filtered": {0: {"y": decoded.y[1:]}}}),
        (ModelError, "values for y that are not finite", {"filtered": {0: broken}}),
        (ConfigError, "CTU size 100", {"ctu": 100}),
        (FormatError, "original's planes are 30x32", {"original": Picture((original.y[:, :30],), 10)}),
    ):
        with pytest.raises(error, match=message):
            decide_picture(**{"original": original, "decoded": decoded, "filtered": good, "qp": 32} | changes)
    with pytest.raises(ModelError, match="values for y that are not finite"):
        round_samples(decoded, broken)


@pytest.mark.parametrize("name", ["rdn", "rdn_yuv"])
@pytest.mark.parametrize("bit_depth", [8, 10])
def test_a_bad_network_never_makes_it_worse(name, bit_depth):
    """Random weights of all strengths on random pictures."""
    rng = np.random.default_rng(15)
    modes = set()
    for strength in (0.001, 0.03, 0.5):
        filter_ = FloatFilter(awaken(create_model(name, **SMALL), std=strength))
        original, decoded = coded(rng, (70, 54), bit_depth)
        for qp in (22, 42):
            filtered = {offset: filter_.samples(decoded, qp + offset) for offset in (0, 5, -5)}
            modes.add(check(original, decoded, filtered, qp, 16)[1].mode)
    assert modes


def val_pictures(shared_data, count):
    """Yield original, decoded picture and QP of up to `count` golden streams, evenly spaced."""
    streams = sorted((shared_data / "golden" / "val_vvc").glob("*.266"))
    for path in streams[:: ceil_div(len(streams), count)]:
        name, qp = path.stem.rsplit("_QP", 1)
        (source,) = (shared_data / "images" / "val").glob(f"{name}.*")
        with open_video(path) as coded_video, open_video(source, bit_depth=10) as originals:
            decoded, original = coded_video[0], originals[0]
            shapes = [plane.shape for plane in decoded.planes]
            crops = zip(original.planes, shapes, strict=True)
            yield Picture(tuple(plane[:h, :w] for plane, (h, w) in crops), 10), decoded, int(qp)


@pytest.mark.parametrize("count", [3, pytest.param(1000, marks=pytest.mark.slow)])
def test_never_worse_on_real_pictures(shared_data, count):
    """Random weights never cost more than no filter, and a filter that helps in places is used.

    The pictures are coded by libvvenc: 3 of the 68 streams, or all in the slow test.
    """
    filters = [FloatFilter(awaken(create_model(n, **SMALL), std=s)) for n, s in (("rdn", 0.003), ("rdn_yuv", 0.01))]
    seen = 0
    for original, decoded, qp in val_pictures(shared_data, count):
        assert np.square(original.y.astype(float) - decoded.y).mean() < 2500
        cases = [{offset: filter_.samples(decoded, qp + offset) for offset in (0, 5)} for filter_ in filters]
        cases.append({0: repaired(np.random.default_rng(seen), original, decoded, "yuv")})
        for filtered in cases:
            picture, decision = decide_picture(original, decoded, filtered, qp=qp)
            after = distortion(original, picture, tuple(filtered[0]), qp) + decision.rd_lambda * decision.bits
            before = distortion(original, decoded, tuple(filtered[0]), qp) + decision.rd_lambda
            assert decision.cost_after == pytest.approx(after, rel=1e-12)
            assert decision.cost_before == pytest.approx(before, rel=1e-12)
            assert decision.cost_after <= decision.cost_before
        assert after < before
        seen += 1
    assert seen >= min(count, 3)
