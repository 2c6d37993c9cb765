"""Inter prediction of units equals plain NumPy versions of the formulas of clause 8.5.6."""

import numpy as np
import pytest

from tests.helpers.inter_scenes import (
    SUBSAMPLINGS,
    Scene,
    blocks_of,
    clamped,
    default_weighted,
    random_place,
    random_vector,
    wrapping,
)
from tests.helpers.plain_decoder import (
    SIDE,
    as_checked,
    fr,
    inter_prediction,
    intra_prediction,
    ip,
    put_vectors,
    rc,
    st,
)


@pytest.mark.parametrize("number", range(36))
def test_vectors_at_the_edges_and_far_outside(number):
    rng = np.random.default_rng(number)
    bit_depth, sub = (8, 10, 12)[number % 3], SUBSAMPLINGS[number // 3 % 3]
    scene = Scene(rng, bit_depth, sub)
    place, half = random_place(rng), int(rng.integers(0, 2))
    reach = 500 if number % 4 else 60000
    vectors = [random_vector(rng, reach), random_vector(rng, reach)]
    if number % 3:
        vectors[number % 2] = None
    if number % 5 == 0:
        vectors = [None if vector is None else (vector[0] | 8, vector[1] | 8) for vector in vectors]
    scene.unit(place, tuple(vectors), {"hpel_if_idx": half})
    inter_prediction.predict_inter_unit(scene.f)
    for component in range(3):
        kind = ip.HALF_SAMPLE if half and component == 0 else ip.REGULAR
        predictions = scene.expected(component, place, vectors, kind=kind)
        expected = default_weighted(predictions, bit_depth)
        np.testing.assert_array_equal(scene.result(component, place), expected)


@pytest.mark.parametrize("number", range(16))
def test_padding_of_subpictures_and_horizontal_wraparound(number):
    rng = np.random.default_rng(number)
    scene = Scene(rng, 10, SUBSAMPLINGS[number % 3])
    place, vectors = (64, 64, 32, 16), [random_vector(rng, 3000), random_vector(rng, 3000)]
    left, right, top, bottom = 64, 128, 32, 128
    offset = SIDE - 8 * int(rng.integers(0, 4))
    if number % 2:
        scene.slice.subpic_treated_as_pic = 1
        scene.slice.subpic_left, scene.slice.subpic_right = left, right
        scene.slice.subpic_top, scene.slice.subpic_bottom = top, bottom
    else:
        scene.slice.ref_wraparound_offset = offset
    scene.unit(place, (vectors[0], vectors[1]))
    inter_prediction.predict_inter_unit(scene.f)
    for component in range(3):
        sx, sy = scene.sub if component else (0, 0)
        options = {"columns": wrapping(offset >> sx, SIDE >> sx)}
        if number % 2:
            options = {"columns": clamped(left >> sx, (right >> sx) - 1)}
            options["rows"] = clamped(top >> sy, (bottom >> sy) - 1)
        expected = default_weighted(scene.expected(component, place, vectors, **options), 10)
        np.testing.assert_array_equal(scene.result(component, place), expected)


def bcw_weighted(first, second, index, bit_depth):
    """Average two predictions by bcwWLut ((982) of 8.5.6.6.2)."""
    weight = (4, 5, 3, 10, -2)[index]
    shift = max(2, 14 - bit_depth)
    total = (8 - weight) * first + weight * second + (1 << (shift + 2))
    return (total >> (shift + 3)).clip(0, (1 << bit_depth) - 1)


def explicitly_weighted(predictions, weights, offsets, log2, bit_depth):
    """Weight predictions explicitly (8.5.6.6.3); `log2` is the denominator, offsets are in units of the samples."""
    denominator = log2 + max(2, 14 - bit_depth)
    if len(predictions) == 1:
        total = ((predictions[0] * weights[0] + (1 << (denominator - 1))) >> denominator) + offsets[0]
    else:
        total = predictions[0] * weights[0] + predictions[1] * weights[1] + ((sum(offsets) + 1) << denominator)
        total >>= denominator + 1
    return total.clip(0, (1 << bit_depth) - 1)


@pytest.mark.parametrize("number", range(24))
def test_explicit_weights_and_bcw(number):
    """Check explicit weights of one and two lists, and weights by bcw_idx, which replace them."""
    rng = np.random.default_rng(number)
    bit_depth = (8, 10, 12)[number % 3]
    scene = Scene(rng, bit_depth)
    vectors = [random_vector(rng), random_vector(rng)]
    bcw = number % 5 if number % 4 == 3 else 0
    if number % 4 < 2:
        vectors[number % 4] = None
    logs = int(rng.integers(0, 8)), int(rng.integers(0, 8))
    scene.slice.weighted_pred_flag = 1
    scene.slice.log2_weight_denom[:] = logs[0], logs[1], logs[1]
    weights = rng.integers(-128, 128, (2, 3)) + (1 << logs[0])
    offsets = rng.integers(-128, 128, (2, 3)) << (bit_depth - 8)
    for entry in range(2):
        weighting = scene.entry(entry).weighting
        weighting["weight"], weighting["offset"] = weights[entry], offsets[entry]
    place = random_place(rng)
    scene.unit(place, (vectors[0], vectors[1]), {"bcw_idx": bcw})
    inter_prediction.predict_inter_unit(scene.f)
    used = [entry for entry in range(2) if vectors[entry] is not None]
    for component in range(3):
        predictions = scene.expected(component, place, vectors)
        if bcw:
            expected = bcw_weighted(predictions[0], predictions[1], bcw, bit_depth)
        else:
            numbers = [weights[used, component].tolist(), offsets[used, component].tolist()]
            log2 = logs[min(component, 1)]
            expected = explicitly_weighted(predictions, numbers[0], numbers[1], log2, bit_depth)
        np.testing.assert_array_equal(scene.result(component, place), expected)


def mapped_forward(samples, pivot, scale, bit_depth):
    """Map luma forward by (1223) of 8.7.5.2."""
    width = 1 << (bit_depth - 4)
    index = samples // width
    return pivot[index] + ((scale[index] * (samples - index * width) + 1024) >> 11)


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_luma_alone_is_mapped_forward(bit_depth):
    rng = np.random.default_rng(bit_depth)
    scene = Scene(rng, bit_depth)
    words = rng.integers(1 << (bit_depth - 6), 1 << (bit_depth - 4), 16)
    pivot = np.concatenate([[0], words.cumsum()])
    scale = (words * 2048 + (1 << (bit_depth - 5))) >> (bit_depth - 4)
    scene.f.slice.sh_lmcs_used_flag = 1
    scene.f.slice.lmcs_pivot[:], scene.f.slice.scale_coeff[:] = pivot, scale
    place, vectors = (32, 16, 16, 32), (random_vector(rng), None)
    scene.unit(place, vectors)
    inter_prediction.predict_inter_unit(scene.f)
    luma, chroma = (default_weighted(scene.expected(component, place, vectors), bit_depth) for component in (0, 1))
    np.testing.assert_array_equal(scene.result(0, place), mapped_forward(luma, pivot, scale, bit_depth))
    np.testing.assert_array_equal(scene.result(1, place), chroma)


def test_an_entry_without_a_picture_is_a_fault_and_reads_nothing():
    scene = Scene(np.random.default_rng(0), 10)
    scene.unit((0, 0, 16, 16), ((5, 5), None))
    scene.f.unit.motion.ref_idx[0] = 7
    inter_prediction.predict_inter_unit(scene.f)
    assert scene.f.current.fault == rc.FAULT_REFERENCE
    assert (scene.result(0, (0, 0, 16, 16)) == 512).all()


@pytest.mark.parametrize("sub", SUBSAMPLINGS)
def test_subblocks_with_references_and_vectors_of_their_own(sub):
    rng = np.random.default_rng(0)
    scene = Scene(rng, 10, sub)
    place = (32, 64, 32, 16)
    scene.unit(place, ((0, 0), (0, 0)), {"kind": rc.KIND_TEMPORAL_SUBBLOCKS})
    for number, block in enumerate(blocks_of(place, 8)):
        x, y, width, height = block
        vectors = [random_vector(rng), random_vector(rng)]
        if number % 3:
            vectors[number % 2] = None
        cells = scene.f.motion[y >> 2 : (y + height) >> 2, x >> 2 : (x + width) >> 2]
        put_vectors(cells, np.array([value for vector in vectors for value in vector or (0, 0)]))
        for i in range(2):
            cells["ref_idx"][..., i] = -1 if vectors[i] is None else i
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(3):
            expected = default_weighted(scene.expected(component, block, vectors), 10)
            np.testing.assert_array_equal(scene.result(component, block), expected)


_ANGLES = (0, 2, 3, 4, 5, 8, 11, 12, 13, 14, 16, 18, 19, 20, 21, 24, 27, 28, 29, 30)
_COUNTS = (2, 4, 4, 4, 4, 2, 4, 4, 4, 4, 2, 3, 3, 3, 3, 2, 3, 3, 3, 3)
ANGLES_OF_PARTITIONS = np.repeat(_ANGLES, _COUNTS).tolist()
"""angleIdx by merge_gpm_partition_idx (table 36)."""
DISTANCES_OF_PARTITIONS = [
    *[1, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 1, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
    *[0, 1, 2, 3, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3],
]
"""distanceIdx by merge_gpm_partition_idx (table 36)."""
DISPLACEMENTS = np.repeat(
    (8, 4, 2, 1, 0, -1, -2, -4, -8, -4, -2, -1, 0, 1, 2, 4, 8), (4, 2, 1, 1, 1, 1, 1, 2, 7, 2, 1, 1, 1, 1, 1, 2, 3)
).tolist()
"""disLut by angle (table 37)."""


def geometric_weights(partition, width, height, sub):
    """Return the weights of part 0 in 1/8 over a unit, for a component (8.5.7.2)."""
    angle, distance = ANGLES_OF_PARTITIONS[partition], DISTANCES_OF_PARTITIONS[partition]
    ratio = height / width
    shift_hor = 0 if angle % 16 == 8 or (angle % 16 != 0 and ratio >= 1) else 1
    offset_x, offset_y = (-width) >> 1, (-height) >> 1
    if shift_hor == 0:
        offset_y += (distance * height) >> 3 if angle < 16 else -((distance * height) >> 3)
    else:
        offset_x += (distance * width) >> 3 if angle < 16 else -((distance * width) >> 3)
    y, x = np.mgrid[0 : height : 1 << sub[1], 0 : width : 1 << sub[0]]
    index = (((x + offset_x) << 1) + 1) * DISPLACEMENTS[angle]
    index = index + (((y + offset_y) << 1) + 1) * DISPLACEMENTS[(angle + 8) % 32]
    flipped = 0 if 13 <= angle <= 27 else 1
    return ((32 + index if flipped else 32 - index) + 4 >> 3).clip(0, 8)


@pytest.mark.parametrize("partition", range(64))
def test_geometric_partitions(partition):
    rng = np.random.default_rng(partition)
    shapes = ((8, 8), (16, 8), (8, 32), (64, 32), (32, 64), (16, 64))
    sub, bit_depth = SUBSAMPLINGS[partition % 3], (8, 10, 12)[partition % 3]
    scene = Scene(rng, bit_depth, sub)
    width, height = shapes[partition % len(shapes)]
    place = (64, 32, width, height)
    vectors = (random_vector(rng), random_vector(rng))
    facts = {"kind": rc.KIND_GEOMETRIC, "merge_gpm_partition_idx": partition, "pred_list_flag": (0, 1)}
    scene.unit(place, vectors, facts)
    inter_prediction.predict_inter_unit(scene.f)
    for component in range(3):
        first, second = scene.expected(component, place, vectors)
        weights = geometric_weights(partition, width, height, sub if component else (0, 0))
        shift = max(5, 17 - bit_depth)
        expected = (first * weights + second * (8 - weights) + (1 << (shift - 1))) >> shift
        np.testing.assert_array_equal(scene.result(component, place), expected.clip(0, (1 << bit_depth) - 1))


@pytest.mark.parametrize("number", range(8))
def test_combined_inter_and_intra_prediction(number):
    """Check CIIP with none to two intra neighbours, with luma mapping, and chroma that stays inter prediction."""
    rng = np.random.default_rng(number)
    sub = SUBSAMPLINGS[number % 3]
    scene = Scene(rng, 10, sub)
    place = [(32, 16, 16, 8), (32, 16, 4, 16), (0, 64, 64, 64)][number % 3]
    x, y, width, height = place
    vectors = (random_vector(rng), random_vector(rng))
    scene.f.known["block"][..., 0] = st.MODE_INTER
    if number & 1 and x:
        scene.f.known[(y + height - 1) >> 2, (x - 1) >> 2].block[0] = st.MODE_INTRA
    if number & 2:
        scene.f.known[(y - 1) >> 2, (x + width - 1) >> 2].block[0] = st.MODE_INTRA
    neighbours = int(number & 1 and x > 0) + (number >> 1 & 1)
    scene.f.slice.sh_lmcs_used_flag = number >> 2
    pivot = np.concatenate([[0], rng.integers(16, 64, 16).cumsum()])
    scale = np.diff(pivot) * 32
    scene.f.slice.lmcs_pivot[:], scene.f.slice.scale_coeff[:] = pivot, scale
    scene.unit(place, vectors, {"ciip_flag": 1, "bcw_idx": 3, "general_merge_flag": 1})
    inter_prediction.predict_inter_unit(scene.f)
    results = [scene.result(component, place).copy() for component in range(3)]
    for component in range(3):
        expected = default_weighted(scene.expected(component, place, vectors), 10)
        if component == 0 and number >> 2:
            expected = mapped_forward(expected, pivot, scale, 10)
        inside = scene.place(component, place)
        if component == 0 or inside[2] >= 4:
            intra_prediction.predict(scene.f, component, *inside, 0, 0, 0, 0, False)
            weight, intra = 1 + neighbours, scene.result(component, place)
            expected = (weight * intra + (4 - weight) * expected + 2) >> 2
        np.testing.assert_array_equal(results[component], expected)


@pytest.mark.parametrize("number", range(48))
def test_positions_stay_inside_their_arrays_whatever_the_numbers(number):
    kinds = (rc.KIND_REGULAR, rc.KIND_AFFINE, rc.KIND_TEMPORAL_SUBBLOCKS, rc.KIND_GEOMETRIC)
    rng = np.random.default_rng(number)
    size = tuple(int(8 * rng.integers(1, 40)) for _ in range(2))
    scene = Scene(rng, 10, SUBSAMPLINGS[number % 3], (size, (SIDE, SIDE)))
    s, entry, cells = scene.slice, scene.entry(0), scene.f.motion
    s.bdof_enabled, s.dmvr_enabled, s.prof_enabled, s.subpic_treated_as_pic = rng.integers(0, 2, 4)
    s.subpic_left, s.subpic_top, s.subpic_right, s.subpic_bottom = rng.integers(0, SIDE + 1, 4)
    s.ref_wraparound_offset = rng.integers(0, 3 * SIDE)
    entry.scaled, (entry.scale_x, entry.scale_y) = rng.integers(0, 2), rng.integers(0, 1 << 18, 2)
    far = rng.integers(-(1 << 17), 1 << 17, 4).tolist()
    put_vectors(cells, rng.integers(-(1 << 17), 1 << 17, (*cells.shape, 4)))
    cells["ref_idx"] = rng.integers(-1, 17, (*cells.shape, 2))
    place = (64, 64, int(2 ** rng.integers(3, 6)), int(2 ** rng.integers(3, 6)))
    facts = {"kind": kinds[number % 4], "merge_gpm_partition_idx": int(rng.integers(0, 64))}
    facts |= {"general_merge_flag": 1, "bcw_idx": number % 7, "motion_model_idc": int(rng.integers(0, 4))}
    scene.unit(place, ((far[0], far[1]), (far[2], far[3])), facts)
    scene.f.unit.pred_list_flag[:] = rng.integers(0, 2, 2)
    for axis in "xy":
        scene.f.unit.cp_mv[axis] = rng.integers(-(1 << 17), 1 << 17, (2, 3))
    inter_prediction.predict_inter_unit(fr.Frame(*map(as_checked, scene.f)))
