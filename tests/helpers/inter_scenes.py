"""Pictures with two references, and plain NumPy interpolation, for the tests of inter prediction (clause 8.5.6)."""

import numpy as np

from tests.helpers.plain_decoder import SIDE, ip, random_frame

SUBSAMPLINGS = ((1, 1), (1, 0), (0, 0))


class Scene:
    """A picture of random samples with two reference pictures, the second of which has entry 1 of L1."""

    def __init__(self, rng, bit_depth, sub=(1, 1), sizes=((SIDE, SIDE), (SIDE, SIDE)), smooth=0):
        f, _, self.predicted = random_frame(rng, bit_depth, sub)
        self.sub, self.bit_depth = sub, bit_depth
        self.planes, parts, at = [], [], 0
        for number, (width, height) in enumerate(sizes):
            entry = f.slice.ref_pic_list[number, number]
            entry.width, entry.height, entry.poc = width, height, 2 - 4 * number
            entry.scale_x = entry.scale_y = 1 << 14
            entry.weighting["weight"] = 1
            self.planes.append([])
            for component in range(3):
                shape = (height >> sub[1], width >> sub[0]) if component else (height, width)
                plane = rng.integers(0, 1 << bit_depth, shape)
                if smooth:
                    steps = rng.integers(-smooth, smooth + 1, shape).cumsum(0).cumsum(1)
                    plane = (steps + (1 << (bit_depth - 1))).clip(0, (1 << bit_depth) - 1)
                self.planes[-1].append(plane)
                parts.append(plane.ravel())
                entry.start[component], entry.stride[component] = at, shape[1]
                at += plane.size
        self.f = f._replace(references=np.concatenate(parts).astype(np.uint16))
        self.slice = f.slice
        self.slice.subpic_right = self.slice.subpic_bottom = SIDE

    def entry(self, number):
        """Return an entry of a reference picture list: 0 is entry 0 of L0, 1 is entry 1 of L1."""
        return self.slice.ref_pic_list[number, number]

    def unit(self, place, vectors, facts=None):
        """Set the motion of the current unit; the list of a vector None is unused. `facts` has values by field."""
        unit, motion = self.f.unit, self.f.unit.motion
        for record in (unit, motion):
            record.setfield(np.zeros(1, record.dtype)[0], record.dtype)
        unit.x, unit.y, unit.width, unit.height = place
        for number, vector in enumerate(vectors):
            motion.ref_idx[number] = -1 if vector is None else number
            if vector is not None:
                motion.mv[number].x, motion.mv[number].y = vector
        for field, value in (facts or {}).items():
            setattr(motion if field in motion.dtype.names else unit, field, value)

    def place(self, component, place):
        """Convert a block in luma samples to its component."""
        x, y, width, height = place
        sx, sy = self.sub if component else (0, 0)
        return x >> sx, y >> sy, width >> sx, height >> sy

    def expected(self, component, place, vectors, **options):
        """Return the plain predictions of the used lists of a block given in luma samples."""
        return [
            interpolated(
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

    def result(self, component, place):
        """Return the block of the prediction plane."""
        x, y, width, height = self.place(component, place)
        return self.predicted[component][y : y + height, x : x + width]


def random_vector(rng, reach=500):
    """Return a vector whose components are often whole samples."""
    x, y = rng.integers(-reach, reach + 1, 2)
    return int(x & -16 if rng.random() < 0.3 else x), int(y & -16 if rng.random() < 0.3 else y)


def random_place(rng):
    """Return the place of a unit."""
    width, height = (int(2 ** rng.integers(2, 8)) for _ in range(2))
    if width + height == 8:
        width = 8
    x, y = int(rng.integers(0, (SIDE - width) // 8 + 1)) * 8, int(rng.integers(0, (SIDE - height) // 8 + 1)) * 8
    return x, y, width, height


def blocks_of(place, size):
    """Return the blocks of at most `size` luma samples that a unit is divided into."""
    x, y, width, height = place
    columns, rows = min(size, width), min(size, height)
    return [(x + i, y + j, columns, rows) for j in range(0, height, rows) for i in range(0, width, columns)]


def clamped(low, high):
    """Return the padding of a picture or subpicture from `low` to `high`: Clip3(low, high, x)."""
    return lambda places: np.clip(places, low, high)


def wrapping(offset, size):
    """Return the padding with horizontal wraparound: Clip3(0, size - 1, ClipH(offset, size, x))."""

    def move(places):
        moved = np.where(places < 0, places + offset, np.where(places > size - 1, places - offset, places))
        return np.clip(moved, 0, size - 1)

    return move


def interpolated(plane, place, vector, *, bit_depth, sub=None, kind=0, columns=None, rows=None):
    """Interpolate a block by (8.5.6.3.2) or, for chroma, (8.5.6.3.4); all sums are full sums without shortcuts."""
    x, y, width, height = place
    columns = columns or clamped(0, plane.shape[1] - 1)
    rows = rows or clamped(0, plane.shape[0] - 1)
    if sub is None:
        table, unit = ip.LUMA_FILTERS[kind].astype(np.int64), (16, 16)
        steps = vector
    else:
        # mvCLX is in units of 1/32 chroma sample: mvLX * 2 / SubWidthC and mvLX * 2 / SubHeightC.
        table, unit = ip.CHROMA_FILTERS[kind].astype(np.int64), (32, 32)
        steps = (vector[0] * 2 // (1 << sub[0]), vector[1] * 2 // (1 << sub[1]))
    taps = table.shape[1]
    around = np.arange(taps) - (taps // 2 - 1)
    across = columns(x + steps[0] // unit[0] + np.arange(width)[:, None] + around)
    down = rows(y + steps[1] // unit[1] + np.arange(height)[:, None] + around)
    samples = plane[down[:, :, None, None], across[None, None]]
    first, third = min(4, bit_depth - 8), max(2, 14 - bit_depth)
    filter_x, filter_y = table[steps[0] % unit[0]], table[steps[1] % unit[1]]
    middle = taps // 2 - 1
    if steps[0] % unit[0] == 0 and steps[1] % unit[1] == 0:
        return samples[:, middle, :, middle] << third
    if steps[1] % unit[1] == 0:
        return (samples[:, middle] @ filter_x) >> first
    if steps[0] % unit[0] == 0:
        return np.einsum("abc,b->ac", samples[:, :, :, middle], filter_y) >> first
    half = (samples @ filter_x) >> first
    return np.einsum("abc,b->ac", half, filter_y) >> 6


def default_weighted(predictions, bit_depth):
    """Round one prediction or average two ((980) and (981) of 8.5.6.6.2)."""
    shift = max(2, 14 - bit_depth) + len(predictions) - 1
    return ((sum(predictions) + (1 << (shift - 1))) >> shift).clip(0, (1 << bit_depth) - 1)
