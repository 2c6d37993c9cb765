"""Compare each stage of inter prediction with plain NumPy: `python -m tests.helpers.inter_stages`.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions; an
index out of range then raises.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.reconstruct import frame as fr
from codecnn.reconstruct import inter_prediction
from codecnn.reconstruct import interpolation as ip
from tests.helpers import inter_references as plain
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
    assert scene.p[fr.FAULT] == ip.FAULT_REFERENCE
    assert (scene.result(0, (0, 0, 16, 16)) == 512).all()


CHECKS = (check_regular, check_padding, check_weights, check_mapping, check_missing_reference)

if __name__ == "__main__":
    generator = np.random.default_rng(11)
    for check in CHECKS:
        if len(sys.argv) == 1 or check.__name__ in sys.argv[1:]:
            check(generator)
