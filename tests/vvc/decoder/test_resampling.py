"""References of another size are interpolated at the positions of clause 8.5.6.3.1."""

import numpy as np
import pytest

from tests.helpers.inter_scenes import SUBSAMPLINGS, Scene, default_weighted, random_vector
from tests.helpers.plain_decoder import SIDE, inter_prediction, ip, put_vectors, rc


def resampled(
    plane, place, vector, *, bit_depth, scale, kinds, windows=((0, 0), (0, 0)), sub=None, collocated=(True, True)
):
    """Interpolate a block of a reference of another size, by the positions of 8.5.6.3.1."""
    table = (ip.LUMA_FILTERS if sub is None else ip.CHROMA_FILTERS).astype(np.int64)
    bits, taps = (4, 8) if sub is None else (5, 4)
    sampled = []
    for axis in range(2):
        size = place[2 + axis]
        if sub is None:
            start, moved, addend = place[axis] - windows[0][axis], vector[axis], 0
            window = windows[1][axis] << 10
        else:
            # Positions of chroma are in units of 1/32 sample.
            start = ((place[axis] << sub[axis]) - windows[0][axis]) >> sub[axis]
            moved = vector[axis] * 2 // (1 << sub[axis])
            addend = 0 if collocated[axis] else 8 * (scale[axis] - 16384)
            window = windows[1][axis] << (10 - sub[axis])
        position = ((start << bits) + moved) * scale[axis] + addend
        rounding = bits + 4
        first = int(np.sign(position)) * ((abs(position) + (1 << (rounding - 1))) >> rounding) + window
        steps = first + np.arange(size) * ((scale[axis] + 8) >> 4)
        fine = (steps + (1 << (9 - bits))) >> (10 - bits)
        whole, fraction = fine >> bits, fine & ((1 << bits) - 1)
        places = whole[:, None] + np.arange(taps) - (taps // 2 - 1)
        sampled.append((np.clip(places, 0, plane.shape[1 - axis] - 1), table[kinds[axis]][fraction]))
    (columns, filters_x), (rows, filters_y) = sampled
    samples = plane[rows[:, :, None, None], columns[None, None]]
    half = np.einsum("abcd,cd->abc", samples, filters_x) >> min(4, bit_depth - 8)
    return np.einsum("abc,ab->ac", half, filters_y) >> 6


@pytest.mark.parametrize("number", range(24))
def test_references_of_other_sizes(number):
    """Check references of other sizes, with scaling windows, the filters of each scale, and affine subblocks."""
    rng = np.random.default_rng(number)
    sub, bit_depth = SUBSAMPLINGS[number % 3], (8, 10, 12)[number % 3]
    size = [(96, 120), (384, 384), (288, 248), (SIDE, 344), (216, SIDE)][number % 5]
    scene = Scene(rng, bit_depth, sub, (size, (SIDE, SIDE)))
    windows = [rng.integers(0, 5, 2) * 4 for _ in range(2)]
    scale = tuple(((size[axis] << 14) + SIDE // 2) // SIDE for axis in range(2))
    entry = scene.entry(0)
    entry.scaled = 1
    entry.scale_x, entry.scale_y = scale
    scene.slice.window_left, scene.slice.window_top = windows[0]
    entry.window_left, entry.window_top = windows[1]
    collocated = (True, True) if sub != (1, 1) else (bool(number & 1), bool(number & 2))
    scene.slice.sps_chroma_horizontal_collocated_flag, scene.f.pic.sps_chroma_vertical_collocated_flag = collocated
    half, affine = number % 4 == 1, number % 4 == 2
    place = (32, 48, 128, 64) if number % 4 == 0 else (64, 16, 16, 32)
    vectors = (random_vector(rng), random_vector(rng) if number % 2 else None)
    facts = {"kind": rc.KIND_AFFINE, "motion_model_idc": 1} if affine else {}
    scene.unit(place, vectors, {"hpel_if_idx": int(half)} | facts)
    scene.slice.prof_enabled = scene.slice.bdof_enabled = 1
    if affine:
        put_vectors(scene.f.motion, np.array([*vectors[0], *(vectors[1] or (0, 0))]))
    inter_prediction.predict_inter_unit(scene.f)
    for component in range(3):
        side = (4 << sub[0], 4 << sub[1]) if component else (4, 4)
        blocks = [place]
        if affine:
            x, y, width, height = place
            blocks = [(x + i, y + j, *side) for j in range(0, height, side[1]) for i in range(0, width, side[0])]
        for block in blocks:
            kinds = []
            for axis in range(2):
                kind = ip.AFFINE if affine and component == 0 else ip.REGULAR
                if scale[axis] > 28672:
                    kind = ip.AFFINE_DOWN_2 if kind == ip.AFFINE else ip.DOWN_2
                elif scale[axis] > 20480:
                    kind = ip.AFFINE_DOWN_1 if kind == ip.AFFINE else ip.DOWN_1
                elif half and component == 0 and scale[axis] == 16384:
                    kind = ip.HALF_SAMPLE
                kinds.append(kind)
            predictions = [
                resampled(
                    scene.planes[0][component],
                    scene.place(component, block),
                    vectors[0],
                    bit_depth=bit_depth,
                    scale=scale,
                    kinds=(kinds[0], kinds[1]),
                    windows=tuple(tuple(window.tolist()) for window in windows),
                    sub=sub if component else None,
                    collocated=collocated,
                )
            ]
            if vectors[1] is not None:
                kind = 0 if component else ip.AFFINE if affine else ip.HALF_SAMPLE if half else 0
                predictions += scene.expected(component, block, (None, vectors[1]), kind=kind)
            expected = default_weighted(predictions, bit_depth)
            np.testing.assert_array_equal(scene.result(component, block), expected)
