"""Compare each stage of inter prediction with plain NumPy: `python -m tests.helpers.inter_stages`.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions; an
index out of range then raises.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder import inter_prediction, intra_prediction
from codecnn.vvc.decoder import interpolation as ip
from codecnn.vvc.syntax import state as st
from tests.helpers import inter_references as plain
from tests.helpers.loop_filter_stages import Checked
from tests.helpers.reconstruct_stages import SIDE, random_frame

Ints = npt.NDArray[np.int64]
SUBSAMPLINGS = ((1, 1), (1, 0), (0, 0))


class Scene:
    """A picture of random samples with two reference pictures, the second of which has entry 1 of L1.

    Attributes:
        f: The frame.
        planes: Samples of each reference and component.
        predicted: Prediction planes.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        bit_depth: int,
        sub: tuple[int, int] = (1, 1),
        sizes: tuple[tuple[int, int], ...] = ((SIDE, SIDE), (SIDE, SIDE)),
        smooth: int = 0,
    ) -> None:
        f, _, self.predicted = random_frame(rng, bit_depth, sub)
        self.sub, self.bit_depth = sub, bit_depth
        self.planes: list[list[Ints]] = []
        parts: list[Ints] = []
        at = 0
        for number, (width, height) in enumerate(sizes):
            entry = self.entry(number)
            f.p[entry + fr.REF_WIDTH], f.p[entry + fr.REF_HEIGHT] = width, height
            f.p[entry + fr.REF_SCALE_X] = f.p[entry + fr.REF_SCALE_Y] = 1 << 14
            f.p[entry + fr.REF_WEIGHT : entry + fr.REF_WEIGHT + 6 : 2] = 1
            f.p[entry + fr.REF_POC] = 2 - 4 * number
            self.planes.append([])
            for component in range(3):
                shape = (height >> sub[1], width >> sub[0]) if component else (height, width)
                plane = rng.integers(0, 1 << bit_depth, shape)
                if smooth:
                    steps = rng.integers(-smooth, smooth + 1, shape).cumsum(0).cumsum(1)
                    plane = (steps + (1 << (bit_depth - 1))).clip(0, (1 << bit_depth) - 1)
                self.planes[-1].append(plane)
                parts.append(plane.ravel())
                f.p[entry + fr.REF_AT + component], f.p[entry + fr.REF_STRIDE + component] = at, shape[1]
                at += plane.size
        self.f = f._replace(references=np.concatenate(parts).astype(np.uint16))
        self.p = f.p
        self.p[fr.SUBPICTURE_RIGHT], self.p[fr.SUBPICTURE_BOTTOM] = SIDE, SIDE

    @staticmethod
    def entry(number: int) -> int:
        """Return the position of an entry: 0 is entry 0 of L0, 1 is entry 1 of L1."""
        return fr.LISTS_OF_REFERENCES + fr.REFERENCE * (17 * number)

    def unit(self, place: tuple[int, int, int, int], vectors: tuple[Any, Any], **facts: int) -> None:
        """Set the motion of the current unit; the list of a vector None is unused."""
        at = fr.MOTION_OF_UNIT
        self.p[at : at + fr.MOTION_UNIT] = 0
        self.p[at : at + 4] = place
        for number, vector in enumerate(vectors):
            self.p[at + fr.UNIT_REF + number] = -1 if vector is None else number
            if vector is not None:
                self.p[at + fr.UNIT_MV + 2 * number :][:2] = vector
        for name, value in facts.items():
            self.p[at + getattr(fr, name)] = value

    def place(self, component: int, place: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """Convert a block in luma samples to its component."""
        x, y, width, height = place
        sx, sy = self.sub if component else (0, 0)
        return x >> sx, y >> sy, width >> sx, height >> sy

    def expected(self, component: int, place: tuple[int, int, int, int], vectors: Any, **options: Any) -> list[Ints]:
        """Return the plain predictions of the used lists of a block given in luma samples."""
        return [
            plain.interpolated(
                self.planes[number][component],
                self.place(component, place),
                vector,
                bit_depth=self.bit_depth,
                sub=self.sub if component else None,
                **options,
            )
            for number, vector in enumerate(vectors)
            if vector is not None
        ]

    def window(
        self, number: int, component: int, place: tuple[int, int, int, int], vector: tuple[int, int]
    ) -> tuple[Ints, tuple[int, int, int, int]]:
        """Return the samples that DMVR may use for a block, and the place of the block in them.

        They are those that interpolation with the vector before its refinement needs.
        """
        x, y, width, height = self.place(component, place)
        before, units = (1, (4 + self.sub[0], 4 + self.sub[1])) if component else (3, (4, 4))
        whole_x, whole_y = vector[0] >> units[0], vector[1] >> units[1]
        plane = self.planes[number][component]
        columns = np.arange(x + whole_x - before, x + whole_x + width + before + 1).clip(0, plane.shape[1] - 1)
        rows = np.arange(y + whole_y - before, y + whole_y + height + before + 1).clip(0, plane.shape[0] - 1)
        return plane[rows[:, None], columns], (before - whole_x, before - whole_y, width, height)

    def result(self, component: int, place: tuple[int, int, int, int]) -> npt.NDArray[np.int32]:
        """Return the block of the prediction plane."""
        x, y, width, height = self.place(component, place)
        return self.predicted[component][y : y + height, x : x + width]


def random_vector(rng: np.random.Generator, reach: int = 500) -> tuple[int, int]:
    """Return a vector whose components are often whole samples."""
    x, y = rng.integers(-reach, reach + 1, 2)
    return int(x & -16 if rng.random() < 0.3 else x), int(y & -16 if rng.random() < 0.3 else y)


def random_place(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Return the place of a unit."""
    width, height = (int(2 ** rng.integers(2, 8)) for _ in range(2))
    if width + height == 8:
        width = 8
    x, y = int(rng.integers(0, (SIDE - width) // 8 + 1)) * 8, int(rng.integers(0, (SIDE - height) // 8 + 1)) * 8
    return x, y, width, height


def check_regular(rng: np.random.Generator) -> None:
    """Check units with one or two vectors of every chroma format, at the edges of the picture and far outside."""
    for number in range(36):
        bit_depth, sub = (8, 10, 12)[number % 3], SUBSAMPLINGS[number // 3 % 3]
        scene = Scene(rng, bit_depth, sub)
        place, half = random_place(rng), int(rng.integers(0, 2))
        reach = 500 if number % 4 else 60000
        vectors: list[Any] = [random_vector(rng, reach), random_vector(rng, reach)]
        if number % 3:
            vectors[number % 2] = None
        if number % 5 == 0:
            vectors = [None if vector is None else (vector[0] | 8, vector[1] | 8) for vector in vectors]
        scene.unit(place, tuple(vectors), UNIT_HALF=half)
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(3):
            kind = ip.HALF_SAMPLE if half and component == 0 else ip.REGULAR
            predictions = scene.expected(component, place, vectors, kind=kind)
            expected = plain.default_weighted(predictions, bit_depth)
            np.testing.assert_array_equal(scene.result(component, place), expected, f"{place} {vectors} {sub}")


def check_padding(rng: np.random.Generator) -> None:
    """Check padding at the edges of a subpicture that is treated as a picture, and horizontal wraparound."""
    for number in range(16):
        scene = Scene(rng, 10, SUBSAMPLINGS[number % 3])
        place, vectors = (64, 64, 32, 16), [random_vector(rng, 3000), random_vector(rng, 3000)]
        left, right, top, bottom = 64, 128, 32, 128
        offset = SIDE - 8 * int(rng.integers(0, 4))
        if number % 2:
            scene.p[fr.TREATED_AS_PICTURE] = 1
            scene.p[fr.SUBPICTURE_LEFT], scene.p[fr.SUBPICTURE_RIGHT] = left, right
            scene.p[fr.SUBPICTURE_TOP], scene.p[fr.SUBPICTURE_BOTTOM] = top, bottom
        else:
            scene.p[fr.WRAPAROUND] = offset
        scene.unit(place, (vectors[0], vectors[1]))
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(3):
            sx, sy = scene.sub if component else (0, 0)
            options: dict[str, Any] = {"columns": plain.wrapping(offset >> sx, SIDE >> sx)}
            if number % 2:
                options = {"columns": plain.clamped(left >> sx, (right >> sx) - 1)}
                options["rows"] = plain.clamped(top >> sy, (bottom >> sy) - 1)
            expected = plain.default_weighted(scene.expected(component, place, vectors, **options), 10)
            np.testing.assert_array_equal(scene.result(component, place), expected, f"{vectors} {number}")


def check_weights(rng: np.random.Generator) -> None:
    """Check explicit weights of one and two lists, and weights by bcw_idx, which replace them."""
    for number in range(24):
        bit_depth = (8, 10, 12)[number % 3]
        scene = Scene(rng, bit_depth)
        vectors: list[Any] = [random_vector(rng), random_vector(rng)]
        bcw = number % 5 if number % 4 == 3 else 0
        if number % 4 < 2:
            vectors[number % 4] = None
        logs = int(rng.integers(0, 8)), int(rng.integers(0, 8))
        scene.p[fr.WEIGHTED] = 1
        scene.p[fr.LOG2_DENOMINATOR], scene.p[fr.LOG2_DENOMINATOR_C] = logs
        weights = rng.integers(-128, 128, (2, 3)) + (1 << logs[0])
        offsets = rng.integers(-128, 128, (2, 3)) << (bit_depth - 8)
        for entry in range(2):
            at = scene.entry(entry) + fr.REF_WEIGHT
            scene.p[at : at + 6 : 2], scene.p[at + 1 : at + 7 : 2] = weights[entry], offsets[entry]
        place = random_place(rng)
        scene.unit(place, (vectors[0], vectors[1]), UNIT_BCW=bcw)
        inter_prediction.predict_inter_unit(scene.f)
        used = [entry for entry in range(2) if vectors[entry] is not None]
        for component in range(3):
            predictions = scene.expected(component, place, vectors)
            if bcw:
                expected = plain.bcw_weighted(predictions[0], predictions[1], bcw, bit_depth)
            else:
                numbers = [weights[used, component].tolist(), offsets[used, component].tolist()]
                log2 = logs[min(component, 1)]
                expected = plain.explicitly_weighted(predictions, numbers[0], numbers[1], log2, bit_depth)
            np.testing.assert_array_equal(scene.result(component, place), expected, f"{place} {bcw} {number}")


def check_mapping(rng: np.random.Generator) -> None:
    """Check that luma, and luma only, is mapped forward."""
    for bit_depth in (8, 10):
        scene = Scene(rng, bit_depth)
        words = rng.integers(1 << (bit_depth - 6), 1 << (bit_depth - 4), 16)
        pivot = np.concatenate([[0], words.cumsum()])
        scale = (words * 2048 + (1 << (bit_depth - 5))) >> (bit_depth - 4)
        scene.p[fr.LMCS] = 1
        scene.p[fr.PIVOT : fr.PIVOT + 17], scene.p[fr.LUMA_SCALE : fr.LUMA_SCALE + 16] = pivot, scale
        place, vectors = (32, 16, 16, 32), (random_vector(rng), None)
        scene.unit(place, vectors)
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(2):
            expected = plain.default_weighted(scene.expected(component, place, vectors), bit_depth)
            if component == 0:
                expected = plain.mapped_forward(expected, pivot, scale, bit_depth)
            np.testing.assert_array_equal(scene.result(component, place), expected)


def check_missing_reference(rng: np.random.Generator) -> None:
    """Check that an entry without a picture is a fault and reads nothing."""
    scene = Scene(rng, 10)
    scene.unit((0, 0, 16, 16), ((5, 5), None), UNIT_REF=7)
    inter_prediction.predict_inter_unit(scene.f)
    assert scene.p[fr.FAULT] == fr.FAULT_REFERENCE
    assert (scene.result(0, (0, 0, 16, 16)) == 512).all()


def blocks_of(place: tuple[int, int, int, int], size: int) -> list[tuple[int, int, int, int]]:
    """Return the blocks of at most `size` luma samples that a unit is divided into."""
    x, y, width, height = place
    columns, rows = min(size, width), min(size, height)
    return [(x + i, y + j, columns, rows) for j in range(0, height, rows) for i in range(0, width, columns)]


def check_optical_flow(rng: np.random.Generator) -> None:
    """Check BDOF, and that each of its conditions switches it off."""
    for number in range(20):
        bit_depth = (8, 10, 12)[number % 3]
        scene = Scene(rng, bit_depth, smooth=(0, 2, 6)[number % 3])
        scene.p[fr.BDOF] = 1
        place = [(16, 32, 16, 8), (0, 0, 8, 16), (32, 16, 32, 32), (160, 176, 32, 16)][number % 4]
        vectors, half = (random_vector(rng), random_vector(rng)), number % 2
        scene.unit(place, vectors, UNIT_HALF=half)
        kind = ip.HALF_SAMPLE if half else ip.REGULAR
        off = number >= 8
        if off:
            entry = scene.entry(number % 2)
            changes = [(fr.BDOF, 0), (fr.MOTION_OF_UNIT + fr.UNIT_SYMMETRIC, 1), (entry + fr.REF_POC, 5)]
            changes += [(entry + fr.REF_LONG_TERM, 1), (fr.MOTION_OF_UNIT + fr.UNIT_BCW, 0), (fr.BDOF, 0)]
            at, value = changes[number % 6]
            scene.p[at] = value
            if number % 6 == 4:
                scene.p[fr.WEIGHTED] = scene.p[entry + fr.REF_WEIGHTED] = 1
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(3):
            expected = plain.default_weighted(
                scene.expected(component, place, vectors, kind=kind if component == 0 else 0), bit_depth
            )
            if component == 0 and not off:
                for x, y, width, height in blocks_of(place, 16):
                    block = (x, y, width, height)
                    pair = [
                        plain.bordered(scene.planes[i][0], block, vectors[i], bit_depth=bit_depth, kind=kind)
                        for i in range(2)
                    ]
                    inside = np.s_[y - place[1] : y - place[1] + height, x - place[0] : x - place[0] + width]
                    expected[inside] = plain.optical_flow(pair[0], pair[1], bit_depth)
            np.testing.assert_array_equal(scene.result(component, place), expected, f"{place} {vectors} {number}")


def check_vector_refinement(rng: np.random.Generator) -> None:
    """Check DMVR with and without BDOF: refined vectors, and samples padded around the first vectors."""
    refined = 0
    without_flow = 0
    for number in range(36):
        bit_depth, sub = (8, 10, 12)[number % 3], SUBSAMPLINGS[number % 4 % 3]
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
                at = scene.p[entry + fr.REF_AT + component]
                scene.f.references[at : at + copy.size] = copy.ravel()
            # The copy fits if the second vector is further by the shift and twice the difference.
            vectors = (
                vectors[0],
                tuple(v + 16 * s + d for v, s, d in zip(vectors[0], shift[::-1], extra, strict=True)),
            )
        scene.p[fr.DMVR], scene.p[fr.BDOF] = 1, number % 2
        place = [(16, 32, 16, 8), (0, 0, 8, 16), (32, 16, 32, 32), (160, 176, 32, 16)][number % 7 % 4]
        scene.unit(place, vectors, UNIT_MERGE=1)
        inter_prediction.predict_inter_unit(scene.f)
        for block in blocks_of(place, 16):
            x, y, width, height = block
            pair = [plain.bilinear(scene.planes[i][0], block, vectors[i], bit_depth) for i in range(2)]
            dx, dy, cost = plain.refined_difference(pair[0], pair[1], width, height)
            refined += dx != 0 or dy != 0
            without_flow += cost < 2 * width * height and number % 2
            moved = [(vectors[i][0] + (1 - 2 * i) * dx, vectors[i][1] + (1 - 2 * i) * dy) for i in range(2)]
            stored = scene.f.motion[fr.TEMPORAL_X0 : fr.TEMPORAL_X0 + 4, y >> 2 : (y + height) >> 2, x >> 2]
            np.testing.assert_array_equal(stored[:, 0], [*moved[0], *moved[1]], f"{block} {number}")
            assert (stored == stored[:, :1]).all()
            for component in range(3):
                predictions = []
                for i in range(2):
                    window, after = scene.window(i, component, block, vectors[i])
                    if component == 0 and number % 2 and cost >= 2 * width * height:
                        whole = plain.bordered(window, after, moved[i], bit_depth=bit_depth)
                        predictions.append(whole)
                        continue
                    options: dict[str, Any] = {"bit_depth": bit_depth, "sub": sub if component else None}
                    predictions.append(plain.interpolated(window, after, moved[i], **options))
                if component == 0 and number % 2 and cost >= 2 * width * height:
                    expected = plain.optical_flow(predictions[0], predictions[1], bit_depth)
                else:
                    expected = plain.default_weighted(predictions, bit_depth)
                np.testing.assert_array_equal(scene.result(component, block), expected, f"{block} {vectors} {number}")
    assert refined > 20
    assert without_flow > 5, without_flow


def check_affine(rng: np.random.Generator) -> None:
    """Check affine units of two and three control points, with and without PROF, in all chroma formats."""
    refined = 0
    for number in range(36):
        bit_depth, sub, six = (8, 10, 12)[number % 3], SUBSAMPLINGS[number // 3 % 3], number % 2
        scene = Scene(rng, bit_depth, sub)
        place = [(16, 32, 16, 16), (0, 0, 32, 16), (160, 160, 16, 32)][number % 3]
        x, y, width, height = place
        lists = [(0, 1), (0,), (1,)][number % 3]
        scene.unit(place, tuple((0, 0) if i in lists else None for i in range(2)), UNIT_KIND=fr.KIND_AFFINE)
        scene.p[fr.MOTION_OF_UNIT + fr.UNIT_POINTS] = 1 + six
        scene.p[fr.PROF] = number % 4 > 0
        scene.f.motion[fr.MV_X0 : fr.MV_Y1 + 1] = rng.integers(-300, 300, scene.f.motion[:4].shape)
        points = rng.integers(-100, 100, (2, 1, 2)) + rng.integers(-90, 91, (2, 3, 2)) // (1, 1, 8)[number % 3]
        if number % 8 == 7:
            points[:, 1:] = points[:, :1]
        scene.p[fr.MOTION_OF_UNIT + fr.UNIT_CONTROL :][:12] = points.ravel()
        inter_prediction.predict_inter_unit(scene.f)
        flows = [False, False]
        for i in lists if number % 4 > 0 and number % 8 != 7 else ():
            steps = plain.affine_steps(points[i], width, height, bool(six))
            flows[i] = not plain.falls_back(*steps, len(lists) == 2)
            refined += flows[i]
        for column, row, _, _ in blocks_of(place, 4):
            block, predictions = (column, row, 4, 4), []
            for i in lists:
                vector = tuple(scene.f.motion[2 * i : 2 * i + 2, row >> 2, column >> 2].tolist())
                options = {"bit_depth": bit_depth, "kind": ip.AFFINE}
                samples = plain.bordered(scene.planes[i][0], block, vector, **options)
                if flows[i]:
                    differences = plain.affine_differences(points[i], width, height, bool(six))
                    predictions.append(plain.flow_refined(samples, differences, bit_depth))
                else:
                    predictions.append(samples[1:-1, 1:-1])
            expected = plain.default_weighted(predictions, bit_depth)
            np.testing.assert_array_equal(scene.result(0, block), expected, f"{place} {number}")
        for row in range(y, y + height, 4 << sub[1]):
            for column in range(x, x + width, 4 << sub[0]):
                block = (column, row, 4 << sub[0], 4 << sub[1])
                first = scene.f.motion[:4, row >> 2, column >> 2].astype(np.int64)
                total = first + scene.f.motion[:4, (row >> 2) + sub[1], (column >> 2) + sub[0]]
                mean = np.trunc(total / 2).astype(np.int64).tolist()
                vectors = tuple(tuple(mean[2 * i : 2 * i + 2]) if i in lists else None for i in range(2))
                for component in (1, 2):
                    expected = plain.default_weighted(scene.expected(component, block, vectors), bit_depth)
                    np.testing.assert_array_equal(scene.result(component, block), expected)
    assert refined > 10


def check_temporal_subblocks(rng: np.random.Generator) -> None:
    """Check units whose subblocks of 8x8 samples have their own references and vectors."""
    for sub in SUBSAMPLINGS:
        scene = Scene(rng, 10, sub)
        place = (32, 64, 32, 16)
        scene.unit(place, ((0, 0), (0, 0)), UNIT_KIND=fr.KIND_TEMPORAL_SUBBLOCKS)
        for number, block in enumerate(blocks_of(place, 8)):
            x, y, width, height = block
            vectors: list[Any] = [random_vector(rng), random_vector(rng)]
            if number % 3:
                vectors[number % 2] = None
            cells = np.s_[y >> 2 : (y + height) >> 2, x >> 2 : (x + width) >> 2]
            for i in range(2):
                scene.f.motion[fr.REF_0 + i][cells] = -1 if vectors[i] is None else i
                for axis in range(2):
                    scene.f.motion[2 * i + axis][cells] = 0 if vectors[i] is None else vectors[i][axis]
            inter_prediction.predict_inter_unit(scene.f)
            for component in range(3):
                expected = plain.default_weighted(scene.expected(component, block, vectors), 10)
                np.testing.assert_array_equal(scene.result(component, block), expected, f"{block} {vectors}")


def check_geometric(rng: np.random.Generator) -> None:
    """Check all 64 partitions at several sizes."""
    shapes = ((8, 8), (16, 8), (8, 32), (64, 32), (32, 64), (16, 64))
    for partition in range(64):
        sub, bit_depth = SUBSAMPLINGS[partition % 3], (8, 10, 12)[partition % 3]
        scene = Scene(rng, bit_depth, sub)
        width, height = shapes[partition % len(shapes)]
        place = (64, 32, width, height)
        vectors = (random_vector(rng), random_vector(rng))
        scene.unit(place, vectors, UNIT_KIND=fr.KIND_GEOMETRIC, UNIT_PARTITION=partition, UNIT_POINTS=2)
        inter_prediction.predict_inter_unit(scene.f)
        for component in range(3):
            first, second = scene.expected(component, place, vectors)
            weights = plain.geometric_weights(partition, width, height, sub if component else (0, 0))
            expected = plain.geometric_blend(first, second, weights, bit_depth)
            np.testing.assert_array_equal(scene.result(component, place), expected, f"{partition} {place}")


def check_combined(rng: np.random.Generator) -> None:
    """Check CIIP with none to two intra neighbours, with luma mapping, and chroma that stays inter prediction."""
    for number in range(8):
        sub = SUBSAMPLINGS[number % 3]
        scene = Scene(rng, 10, sub)
        place = [(32, 16, 16, 8), (32, 16, 4, 16), (0, 64, 64, 64)][number % 3]
        x, y, width, height = place
        vectors = (random_vector(rng), random_vector(rng))
        scene.f.known[fr.BLOCKS] = st.MODE_INTER
        if number & 1 and x:
            scene.f.known[fr.BLOCKS, (y + height - 1) >> 2, (x - 1) >> 2] = st.MODE_INTRA
        if number & 2:
            scene.f.known[fr.BLOCKS, (y - 1) >> 2, (x + width - 1) >> 2] = st.MODE_INTRA
        neighbours = int(number & 1 and x > 0) + (number >> 1 & 1)
        scene.p[fr.LMCS] = number >> 2
        pivot = np.concatenate([[0], rng.integers(16, 64, 16).cumsum()])
        scale = np.diff(pivot) * 32
        scene.p[fr.PIVOT : fr.PIVOT + 17], scene.p[fr.LUMA_SCALE : fr.LUMA_SCALE + 16] = pivot, scale
        scene.unit(place, vectors, UNIT_CIIP=1, UNIT_BCW=3, UNIT_MERGE=1)
        inter_prediction.predict_inter_unit(scene.f)
        results = [scene.result(component, place).copy() for component in range(3)]
        for component in range(3):
            expected = plain.default_weighted(scene.expected(component, place, vectors), 10)
            if component == 0 and number >> 2:
                expected = plain.mapped_forward(expected, pivot, scale, 10)
            inside = scene.place(component, place)
            if component == 0 or inside[2] >= 4:
                intra_prediction.predict(scene.f, component, *inside, 0, 0, 0, 0, False)
                expected = plain.with_intra(expected, scene.result(component, place).astype(np.int64), neighbours)
            np.testing.assert_array_equal(results[component], expected, f"{place} {number} {component}")


def check_resampling(rng: np.random.Generator) -> None:
    """Check references of other sizes, with scaling windows, the filters of each scale, and affine subblocks."""
    for number in range(24):
        sub, bit_depth = SUBSAMPLINGS[number % 3], (8, 10, 12)[number % 3]
        size = [(96, 120), (384, 384), (288, 248), (SIDE, 344), (216, SIDE)][number % 5]
        scene = Scene(rng, bit_depth, sub, (size, (SIDE, SIDE)))
        windows = [rng.integers(0, 5, 2) * 4 for _ in range(2)]
        scale = tuple(((size[axis] << 14) + SIDE // 2) // SIDE for axis in range(2))
        entry = scene.entry(0)
        scene.p[entry + fr.REF_SCALED] = 1
        scene.p[entry + fr.REF_SCALE_X], scene.p[entry + fr.REF_SCALE_Y] = scale
        scene.p[fr.WINDOW_LEFT], scene.p[fr.WINDOW_TOP] = windows[0]
        scene.p[entry + fr.REF_LEFT], scene.p[entry + fr.REF_TOP] = windows[1]
        collocated = (True, True) if sub != (1, 1) else (bool(number & 1), bool(number & 2))
        scene.p[fr.COLLOCATED_X], scene.p[fr.COLLOCATED] = collocated
        half, affine = number % 4 == 1, number % 4 == 2
        place = (32, 48, 128, 64) if number % 4 == 0 else (64, 16, 16, 32)
        vectors: tuple[Any, Any] = (random_vector(rng), random_vector(rng) if number % 2 else None)
        facts = {"UNIT_KIND": fr.KIND_AFFINE, "UNIT_POINTS": 1} if affine else {}
        scene.unit(place, vectors, UNIT_HALF=int(half), **facts)
        scene.p[fr.PROF] = scene.p[fr.BDOF] = 1
        if affine:
            scene.f.motion[:2] = np.array(vectors[0])[:, None, None]
            scene.f.motion[2:4] = 0 if vectors[1] is None else np.array(vectors[1])[:, None, None]
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
                    plain.resampled(
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
                expected = plain.default_weighted(predictions, bit_depth)
                np.testing.assert_array_equal(scene.result(component, block), expected, f"{block} {size} {number}")


def check_random_units(rng: np.random.Generator) -> None:
    """Check that positions stay inside their arrays, and above zero, whatever the numbers of a unit and a reference."""
    kinds = (fr.KIND_REGULAR, fr.KIND_AFFINE, fr.KIND_TEMPORAL_SUBBLOCKS, fr.KIND_GEOMETRIC)
    for number in range(48):
        size = tuple(int(8 * rng.integers(1, 40)) for _ in range(2))
        scene = Scene(rng, 10, SUBSAMPLINGS[number % 3], (size, (SIDE, SIDE)))
        for name in ("BDOF", "DMVR", "PROF", "TREATED_AS_PICTURE"):
            scene.p[getattr(fr, name)] = rng.integers(0, 2)
        for name in ("SUBPICTURE_LEFT", "SUBPICTURE_TOP", "SUBPICTURE_RIGHT", "SUBPICTURE_BOTTOM"):
            scene.p[getattr(fr, name)] = rng.integers(0, SIDE + 1)
        scene.p[fr.WRAPAROUND] = rng.integers(0, 3 * SIDE)
        scene.p[scene.entry(0) + fr.REF_SCALED] = rng.integers(0, 2)
        scene.p[scene.entry(0) + fr.REF_SCALE_X : scene.entry(0) + fr.REF_SCALE_Y + 1] = rng.integers(0, 1 << 18, 2)
        far = rng.integers(-(1 << 17), 1 << 17, 4).tolist()
        scene.f.motion[:4] = rng.integers(-(1 << 17), 1 << 17, scene.f.motion[:4].shape)
        scene.f.motion[fr.REF_0 : fr.REF_1 + 1] = rng.integers(-1, 17, scene.f.motion[:2].shape)
        place = (64, 64, int(2 ** rng.integers(3, 6)), int(2 ** rng.integers(3, 6)))
        facts = {"UNIT_KIND": kinds[number % 4], "UNIT_PARTITION": int(rng.integers(0, 64))}
        scene.unit(place, ((far[0], far[1]), (far[2], far[3])), UNIT_MERGE=1, UNIT_BCW=number % 7, **facts)
        scene.p[fr.MOTION_OF_UNIT + fr.UNIT_POINTS] = rng.integers(0, 4)
        scene.p[fr.MOTION_OF_UNIT + fr.UNIT_CONTROL :][:12] = rng.integers(-(1 << 17), 1 << 17, 12)
        inter_prediction.predict_inter_unit(fr.Frame(*(numbers.view(Checked) for numbers in scene.f)))


CHECKS = (
    check_regular,
    check_padding,
    check_weights,
    check_mapping,
    check_missing_reference,
    check_optical_flow,
    check_vector_refinement,
    check_affine,
    check_temporal_subblocks,
    check_geometric,
    check_combined,
    check_resampling,
    check_random_units,
)

if __name__ == "__main__":
    generator = np.random.default_rng(11)
    for check in CHECKS:
        if len(sys.argv) == 1 or check.__name__ in sys.argv[1:]:
            check(generator)
