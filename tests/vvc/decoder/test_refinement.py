"""BDOF, DMVR and PROF equal plain NumPy versions of clauses 8.5.3, 8.5.5.9, 8.5.6.4 and 8.5.6.5."""

import numpy as np
import pytest

from tests.helpers.inter_scenes import SUBSAMPLINGS, Scene, blocks_of, default_weighted, interpolated, random_vector
from tests.helpers.plain_decoder import inter_prediction, ip, put_vectors, rc, refinement, vectors_of


def bordered(plane, place, vector, *, bit_depth, **options):
    """Return a luma prediction with a border of the whole samples next to the positions of the border (8.5.6.3.3)."""
    width, height = place[2:]
    left, top = (place[axis] + (vector[axis] >> 4) + ((vector[axis] & 15) >> 3) - 1 for axis in range(2))
    rows = np.clip(np.arange(top, top + height + 2), 0, plane.shape[0] - 1)
    columns = np.clip(np.arange(left, left + width + 2), 0, plane.shape[1] - 1)
    result = plane[rows[:, None], columns] << max(2, 14 - bit_depth)
    result[1:-1, 1:-1] = interpolated(plane, place, vector, bit_depth=bit_depth, **options)
    return result


def gradients(samples):
    """Return the horizontal and vertical gradients inside the border ((1001) and (1002))."""
    coarse = samples >> 6
    return coarse[1:-1, 2:] - coarse[1:-1, :-2], coarse[2:, 1:-1] - coarse[:-2, 1:-1]


def optical_flow(first, second, bit_depth):
    """Average two bordered predictions by bi-directional optical flow (8.5.6.5)."""
    height, width = first.shape[0] - 2, first.shape[1] - 2
    across, down = zip(gradients(first), gradients(second), strict=True)
    inner = first[1:-1, 1:-1], second[1:-1, 1:-1]
    temp_h, temp_v = (np.pad((pair[0] + pair[1]) >> 1, 1, mode="edge") for pair in (across, down))
    difference = np.pad((inner[0] >> 4) - (inner[1] >> 4), 1, mode="edge")
    flow_x, flow_y = np.zeros((height, width), np.int64), np.zeros((height, width), np.int64)
    for y in range(0, height, 4):
        for x in range(0, width, 4):
            area = np.s_[y : y + 6, x : x + 6]
            h, v, d = temp_h[area], temp_v[area], difference[area]
            gx2, gy2, gxgy = np.abs(h).sum(), np.abs(v).sum(), (np.sign(v) * h).sum()
            gxdi, gydi = (-np.sign(h) * d).sum(), (-np.sign(v) * d).sum()
            vx = vy = 0
            if gx2:
                vx = int(np.clip((gxdi << 2) >> int(np.log2(gx2)), -15, 15))
            if gy2:
                vy = int(np.clip(((gydi << 2) - ((vx * gxgy) >> 1)) >> int(np.log2(gy2)), -15, 15))
            flow_x[y : y + 4, x : x + 4], flow_y[y : y + 4, x : x + 4] = vx, vy
    shift = max(3, 15 - bit_depth)
    total = inner[0] + inner[1] + flow_x * (across[0] - across[1]) + flow_y * (down[0] - down[1])
    return ((total + (1 << (shift - 1))) >> shift).clip(0, (1 << bit_depth) - 1)


@pytest.mark.parametrize("number", range(20))
def test_optical_flow_and_what_switches_it_off(number):
    """Check BDOF, and that each of its conditions switches it off."""
    rng = np.random.default_rng(number)
    bit_depth = (8, 10, 12)[number % 3]
    scene = Scene(rng, bit_depth, smooth=(0, 2, 6)[number % 3])
    scene.slice.bdof_enabled = 1
    place = [(16, 32, 16, 8), (0, 0, 8, 16), (32, 16, 32, 32), (160, 176, 32, 16)][number % 4]
    vectors, half = (random_vector(rng), random_vector(rng)), number % 2
    scene.unit(place, vectors, {"hpel_if_idx": half})
    kind = ip.HALF_SAMPLE if half else ip.REGULAR
    off = number >= 8
    if off:
        entry = scene.entry(number % 2)
        if number % 6 == 1:
            scene.f.unit.sym_mvd_flag = 1
        elif number % 6 == 2:
            entry.poc = 5
        elif number % 6 == 3:
            entry.long_term = 1
        elif number % 6 == 4:
            scene.slice.weighted_pred_flag = entry.weighted = 1
        else:
            scene.slice.bdof_enabled = 0
    inter_prediction.predict_inter_unit(scene.f)
    for component in range(3):
        expected = default_weighted(
            scene.expected(component, place, vectors, kind=kind if component == 0 else 0), bit_depth
        )
        if component == 0 and not off:
            for x, y, width, height in blocks_of(place, 16):
                block = (x, y, width, height)
                pair = [
                    bordered(scene.planes[i][0], block, vectors[i], bit_depth=bit_depth, kind=kind) for i in range(2)
                ]
                inside = np.s_[y - place[1] : y - place[1] + height, x - place[0] : x - place[0] + width]
                expected[inside] = optical_flow(pair[0], pair[1], bit_depth)
        np.testing.assert_array_equal(scene.result(component, place), expected)


def bilinear(plane, place, vector, bit_depth):
    """Interpolate luma for the search of DMVR, with two samples more at each side (8.5.3.2.2)."""
    x, y, width, height = place
    left, top = x + (vector[0] >> 4) - 2, y + (vector[1] >> 4) - 2
    rows = np.clip(np.arange(top, top + height + 5), 0, plane.shape[0] - 1)
    columns = np.clip(np.arange(left, left + width + 5), 0, plane.shape[1] - 1)
    samples = plane[rows[:, None], columns]
    fraction_x, fraction_y = vector[0] & 15, vector[1] & 15
    shift = bit_depth - 6
    half = 1 << (shift - 1)
    if fraction_x == 0 and fraction_y == 0:
        samples = samples[:-1, :-1]
        return (
            samples << (10 - bit_depth) if bit_depth <= 10 else (samples + (1 << (bit_depth - 11))) >> (bit_depth - 10)
        )
    if fraction_x == 0:
        return (((16 - fraction_y) * samples[:-1] + fraction_y * samples[1:] + half) >> shift)[:, :-1]
    across = ((16 - fraction_x) * samples[:, :-1] + fraction_x * samples[:, 1:] + half) >> shift
    if fraction_y == 0:
        return across[:-1]
    return ((16 - fraction_y) * across[:-1] + fraction_y * across[1:] + 8) >> 4


def refined_difference(first, second, width, height):
    """Search the difference of two vectors and the lowest cost (8.5.3.1 and 8.5.3.3 to 8.5.3.5)."""

    def cost(dx, dy):
        moved = first[2 + dy : 2 + dy + height : 2, 2 + dx : 2 + dx + width]
        opposite = second[2 - dy : 2 - dy + height : 2, 2 - dx : 2 - dx + width]
        return int(np.abs(moved - opposite).sum())

    costs = {(dx, dy): cost(dx, dy) for dy in range(-2, 3) for dx in range(-2, 3)}
    costs[0, 0] -= costs[0, 0] >> 2
    if costs[0, 0] < width * height:
        return 0, 0, costs[0, 0]
    # The centre is the first to be compared; of equal costs the first one counts.
    order = [(0, 0), *(key for key in costs if key != (0, 0))]
    dx, dy = min(order, key=lambda key: costs[key])
    lowest = costs[dx, dy]
    steps = [16 * dx, 16 * dy]
    if abs(dx) < 2 and abs(dy) < 2:
        for axis, (before, after) in enumerate((((dx - 1, dy), (dx + 1, dy)), ((dx, dy - 1), (dx, dy + 1)))):
            a, b = costs[before], costs[after]
            curvature = a + b - 2 * lowest
            if curvature == 0:
                continue
            if a == lowest or b == lowest:
                steps[axis] += -8 if a == lowest else 8
            else:
                # Eighths are cut off: the quotient has three bits.
                steps[axis] += int(np.sign(a - b)) * min(7, abs(a - b) * 16 // (2 * curvature))
    return steps[0], steps[1], lowest


@pytest.mark.parametrize(
    ("costs", "step"),
    [((5, 5, 9), -8), ((9, 5, 5), 8), ((5, 5, 5), 0), ((9, 5, 9), 0), ((20, 5, 9), 4), ((9, 5, 20), -4)],
)
def test_minimum_of_the_parabola_through_three_costs(costs, step):
    assert refinement.fractional_step(*costs) == step


def usable_window(scene, number, component, place, vector):
    """Return the samples that DMVR may use for a block, and the place of the block in them."""
    x, y, width, height = scene.place(component, place)
    before, units = (1, (4 + scene.sub[0], 4 + scene.sub[1])) if component else (3, (4, 4))
    whole_x, whole_y = vector[0] >> units[0], vector[1] >> units[1]
    plane = scene.planes[number][component]
    columns = np.arange(x + whole_x - before, x + whole_x + width + before + 1).clip(0, plane.shape[1] - 1)
    rows = np.arange(y + whole_y - before, y + whole_y + height + before + 1).clip(0, plane.shape[0] - 1)
    return plane[rows[:, None], columns], (before - whole_x, before - whole_y, width, height)


@pytest.mark.parametrize("bit_depth", [8, 10, 12])
def test_refined_vectors_and_samples_padded_around_the_first_vectors(bit_depth):
    rng = np.random.default_rng(bit_depth)
    refined = without_flow = 0
    for number in range(12):
        sub = SUBSAMPLINGS[number % 4 % 3]
        scene = Scene(rng, bit_depth, sub, smooth=(3, 0)[number // 2 % 2] << (bit_depth - 8))
        vectors = (random_vector(rng, 200), random_vector(rng, 200))
        if number % 5:
            # The second reference is a shifted copy of the first, so that the search finds a difference.
            shift, extra = rng.integers(-3, 4, 2).tolist(), rng.integers(-50, 51, 2).tolist()
            if number % 4 == 1:
                # A difference of whole samples fits so well that BDOF is not needed.
                extra = (32 * rng.integers(-2, 3, 2)).tolist()
            for component in range(3):
                entry = scene.entry(1)
                copy = np.roll(scene.planes[0][component], shift, (0, 1))
                copy = copy + rng.integers(0, 2 if number % 4 == 1 else 8, copy.shape)
                copy = copy.clip(0, (1 << bit_depth) - 1)
                scene.planes[1][component][:] = copy
                at = entry.start[component]
                scene.f.references[at : at + copy.size] = copy.ravel()
            # The copy fits if the second vector is further by the shift and twice the difference.
            vectors = (
                vectors[0],
                tuple(v + 16 * s + d for v, s, d in zip(vectors[0], shift[::-1], extra, strict=True)),
            )
        scene.slice.dmvr_enabled, scene.slice.bdof_enabled = 1, number % 2
        place = [(16, 32, 16, 8), (0, 0, 8, 16), (32, 16, 32, 32), (160, 176, 32, 16)][number % 7 % 4]
        scene.unit(place, vectors, {"general_merge_flag": 1})
        inter_prediction.predict_inter_unit(scene.f)
        for block in blocks_of(place, 16):
            x, y, width, height = block
            pair = [bilinear(scene.planes[i][0], block, vectors[i], bit_depth) for i in range(2)]
            dx, dy, cost = refined_difference(pair[0], pair[1], width, height)
            refined += dx != 0 or dy != 0
            without_flow += cost < 2 * width * height and number % 2
            moved = [(vectors[i][0] + (1 - 2 * i) * dx, vectors[i][1] + (1 - 2 * i) * dy) for i in range(2)]
            stored = vectors_of(scene.f.motion[y >> 2 : (y + height) >> 2, x >> 2], "mv_dmvr")
            np.testing.assert_array_equal(stored[0], [*moved[0], *moved[1]])
            assert (stored == stored[:1]).all()
            for component in range(3):
                predictions = []
                for i in range(2):
                    samples, after = usable_window(scene, i, component, block, vectors[i])
                    if component == 0 and number % 2 and cost >= 2 * width * height:
                        whole = bordered(samples, after, moved[i], bit_depth=bit_depth)
                        predictions.append(whole)
                        continue
                    options = {"bit_depth": bit_depth, "sub": sub if component else None}
                    predictions.append(interpolated(samples, after, moved[i], **options))
                if component == 0 and number % 2 and cost >= 2 * width * height:
                    expected = optical_flow(predictions[0], predictions[1], bit_depth)
                else:
                    expected = default_weighted(predictions, bit_depth)
                np.testing.assert_array_equal(scene.result(component, block), expected)
    assert refined > 6
    assert without_flow > 1


def affine_steps(points, width, height, six):
    """Return (dHorX, dHorY) and (dVerX, dVerY) of 8.5.5.9 from control point vectors, shape (3, 2)."""
    d_hor = (points[1] - points[0]) << (7 - int(np.log2(width)))
    d_ver = np.array([-d_hor[1], d_hor[0]])
    if six:
        d_ver = (points[2] - points[0]) << (7 - int(np.log2(height)))
    return d_hor, d_ver


def falls_back(d_hor, d_ver, both):
    """Derive fallbackModeTriggered of 8.5.5.9; `both` is bi-prediction."""

    def size(*ends):
        return ((max(0, *ends) - min(0, *ends)) >> 11) + 9

    h, v = 4 * (2048 + int(d_hor[0])), 4 * (2048 + int(d_ver[1]))
    x, y = 4 * int(d_ver[0]), 4 * int(d_hor[1])
    if both:
        return size(h, x, h + x) * size(y, v, y + v) > 225
    return size(h) * size(y) > 165 or size(x) * size(v) > 165


def affine_differences(points, width, height, six):
    """Return diffMvLX of the samples of a subblock, horizontal and vertical, shape (4, 4) (8.5.5.9)."""
    d_hor, d_ver = affine_steps(points, width, height, six)
    y, x = np.mgrid[:4, :4]
    results = []
    for axis in range(2):
        difference = x * (d_hor[axis] << 2) + y * (d_ver[axis] << 2) - 6 * (d_hor[axis] + d_ver[axis])
        rounded = np.sign(difference) * ((np.abs(difference) + 127) >> 8)
        results.append(rounded.clip(-31, 31))
    return results[0], results[1]


def flow_refined(samples, differences, bit_depth):
    """Refine a bordered prediction of 4x4 samples by optical flow (8.5.6.4)."""
    across, down = gradients(samples)
    limit = 1 << max(13, bit_depth + 1)
    change = across * differences[0] + down * differences[1]
    return samples[1:-1, 1:-1] + change.clip(-limit, limit - 1)


@pytest.mark.parametrize("bit_depth", [8, 10, 12])
def test_affine_units_with_and_without_refinement(bit_depth):
    rng = np.random.default_rng(bit_depth)
    refined = 0
    for number in range(12):
        sub, six = SUBSAMPLINGS[number // 3 % 3], number % 2
        scene = Scene(rng, bit_depth, sub)
        place = [(16, 32, 16, 16), (0, 0, 32, 16), (160, 160, 16, 32)][number % 3]
        x, y, width, height = place
        lists = [(0, 1), (0,), (1,)][number % 3]
        scene.unit(place, tuple((0, 0) if i in lists else None for i in range(2)), {"kind": rc.KIND_AFFINE})
        scene.f.unit.motion_model_idc = 1 + six
        scene.slice.prof_enabled = number % 4 > 0
        put_vectors(scene.f.motion, rng.integers(-300, 300, (*scene.f.motion.shape, 4)))
        points = rng.integers(-100, 100, (2, 1, 2)) + rng.integers(-90, 91, (2, 3, 2)) // (1, 1, 8)[number % 3]
        if number % 8 == 7:
            points[:, 1:] = points[:, :1]
        cp_mv = scene.f.unit.cp_mv
        cp_mv["x"], cp_mv["y"] = points[..., 0], points[..., 1]
        inter_prediction.predict_inter_unit(scene.f)
        flows = [False, False]
        for i in lists if number % 4 > 0 and number % 8 != 7 else ():
            steps = affine_steps(points[i], width, height, bool(six))
            flows[i] = not falls_back(*steps, len(lists) == 2)
            refined += flows[i]
        for column, row, _, _ in blocks_of(place, 4):
            block, predictions = (column, row, 4, 4), []
            for i in lists:
                vector = tuple(vectors_of(scene.f.motion)[row >> 2, column >> 2, 2 * i : 2 * i + 2].tolist())
                options = {"bit_depth": bit_depth, "kind": ip.AFFINE}
                samples = bordered(scene.planes[i][0], block, vector, **options)
                if flows[i]:
                    differences = affine_differences(points[i], width, height, bool(six))
                    predictions.append(flow_refined(samples, differences, bit_depth))
                else:
                    predictions.append(samples[1:-1, 1:-1])
            expected = default_weighted(predictions, bit_depth)
            np.testing.assert_array_equal(scene.result(0, block), expected)
        for row in range(y, y + height, 4 << sub[1]):
            for column in range(x, x + width, 4 << sub[0]):
                block = (column, row, 4 << sub[0], 4 << sub[1])
                cells = vectors_of(scene.f.motion).astype(np.int64)
                total = cells[row >> 2, column >> 2] + cells[(row >> 2) + sub[1], (column >> 2) + sub[0]]
                mean = np.trunc(total / 2).astype(np.int64).tolist()
                vectors = tuple(tuple(mean[2 * i : 2 * i + 2]) if i in lists else None for i in range(2))
                for component in (1, 2):
                    expected = default_weighted(scene.expected(component, block, vectors), bit_depth)
                    np.testing.assert_array_equal(scene.result(component, block), expected)
    assert refined > 3
