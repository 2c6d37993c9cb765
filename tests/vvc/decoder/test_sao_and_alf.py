"""SAO, ALF and cross-component ALF equal plain NumPy versions of clauses 8.8.4 and 8.8.5."""

from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from codecnn.base.records import new_record
from tests.helpers.plain_decoder import alf, cells, checked, fr, loop_filters, maps, rc, sao

FORMATS = ((1, 1), (1, 0), (0, 0))


class Layout(NamedTuple):
    """Boundaries that in-loop filters of a picture do not cross."""

    ctu: int
    slices: Any
    tiles: Any
    subpictures: Any
    across: tuple[bool, bool, list[bool]]
    columns: tuple[int, ...]
    rows: tuple[int, ...]

    def usable(self, here, there):
        """Return True if the CTU `here` (row, column) may use samples of the CTU `there`."""
        if min(there) < 0 or there[0] >= self.slices.shape[0] or there[1] >= self.slices.shape[1]:
            return False
        subpicture = self.subpictures[here]
        return (
            (self.across[0] or self.slices[here] == self.slices[there])
            and (self.across[1] or self.tiles[here] == self.tiles[there])
            and (self.across[2][subpicture] or subpicture == self.subpictures[there])
        )


def sao_plane(plane, sao, layout, sub, depth):
    """Apply SAO to a component, a sample at a time (clause 8.8.4.2)."""
    out = plane.copy()
    width, height = layout.ctu >> sub[0], layout.ctu >> sub[1]
    for y, x in np.ndindex(plane.shape):
        here = y // height, x // width
        kind, number, *offsets = sao[here].tolist()
        value = int(plane[y, x])
        if kind == 1:
            bands = {(number + k) % 32: offsets[k] for k in range(4)}
            out[y, x] = value + bands.get(value >> (depth - 5), 0)
        elif kind == 2:
            dx, dy = ((1, 0), (0, 1), (1, 1), (-1, 1))[number]
            index = 2
            for sign in (-1, 1):
                near_x, near_y = x + sign * dx, y + sign * dy
                inside = 0 <= near_x < plane.shape[1] and 0 <= near_y < plane.shape[0]
                crossed = any(min(x, near_x) < (b >> sub[0]) <= max(x, near_x) for b in layout.columns)
                crossed |= any(min(y, near_y) < (b >> sub[1]) <= max(y, near_y) for b in layout.rows)
                if not inside or crossed or not layout.usable(here, (near_y // height, near_x // width)):
                    index = 2
                    break
                index += int(np.sign(value - plane[near_y, near_x]))
            out[y, x] = value + (offsets[0], offsets[1], 0, offsets[2], offsets[3])[index]
    return out.clip(0, 2**depth - 1)


def surroundings(plane, layout, sub, x0, y0, margin):
    """Return a part of a CTU with padded samples around it, and its width and height (clause 8.8.5.6)."""
    sizes = layout.ctu >> sub[0], layout.ctu >> sub[1]
    here = y0 // sizes[1], x0 // sizes[0]
    indices, blocked = [], []
    for axis, first in ((0, x0), (1, y0)):
        boundaries = [b >> sub[axis] for b in (layout.columns if axis == 0 else layout.rows)]
        end = min(plane.shape[1 - axis], (first // sizes[axis] + 1) * sizes[axis])
        end = min([end, *(b for b in boundaries if b > first)])
        steps = np.array([(0, 1), (1, 0)][axis])
        before = first % sizes[axis] or layout.usable(here, tuple(here - steps))
        after = end % sizes[axis] or layout.usable(here, tuple(here + steps))
        low = first if first in boundaries or not before else first - margin
        high = end - 1 if end in boundaries or not after else end - 1 + margin
        indices.append(np.arange(first - margin, end + margin).clip(low, min(high, plane.shape[1 - axis] - 1)))
        blocked.append((low == first, high == end - 1))
    columns = np.repeat(indices[0][None], len(indices[1]), 0)
    rows = np.repeat(indices[1][:, None], len(indices[0]), 1)
    width, height = len(indices[0]) - 2 * margin, len(indices[1]) - 2 * margin
    first, last = (here[0] - 1, here[1] - 1), (here[0] + 1, here[1] + 1)
    in_corner = x0 % sizes[0] == 0 and y0 % sizes[1] == 0 and not blocked[0][0] and not blocked[1][0]
    if in_corner and not layout.usable(here, first):
        columns[:margin, :margin] = x0
    end_x, end_y = x0 + width, y0 + height
    in_corner = end_x % sizes[0] == 0 and end_y % sizes[1] == 0 and not blocked[0][1] and not blocked[1][1]
    if in_corner and not layout.usable(here, last):
        columns[-margin:, -margin:] = end_x - 1
    return plane[rows, columns], width, height


def parts(plane, layout, sub):
    """List the upper left corners of the CTUs of a component, divided at virtual boundaries."""
    places = []
    for axis, boundaries in ((0, layout.columns), (1, layout.rows)):
        size = plane.shape[1 - axis]
        firsts = {*range(0, size, layout.ctu >> sub[axis]), *(b >> sub[axis] for b in boundaries)}
        places.append(sorted(first for first in firsts if first < size))
    return [(x, y) for y in places[1] for x in places[0]]


LINE_BUFFER = {5: (0, 0, 0), 4: (0, 0, 0), 6: (1, 1, 1), 3: (1, 1, 1), 7: (1, 2, 2), 2: (1, 2, 2)}
"""Row distances y1, y2 and y3 by the distance of a luma row from the end of its CTU (table 45)."""

LUMA_TAPS = ((0, 3), (1, 2), (0, 2), (-1, 2), (2, 1), (1, 1), (0, 1), (-1, 1), (-2, 1), (3, 0), (2, 0), (1, 0))
CHROMA_TAPS = ((0, 2), (1, 1), (0, 1), (-1, 1), (2, 0), (1, 0))
TRANSPOSED = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    (9, 4, 10, 8, 1, 5, 11, 7, 3, 0, 2, 6),
    (0, 3, 2, 1, 8, 7, 6, 5, 4, 9, 10, 11),
    (9, 8, 10, 4, 3, 7, 11, 5, 1, 0, 2, 6),
)


def filtered_row(block, row, width, taps, reach, filters):
    """Filter one row of a part with 4 padded samples around it."""
    centre = block[row, 4 : 4 + width]
    total = np.zeros(width, np.int64)
    for (dx, dy), weight, limit in zip(taps, *filters, strict=True):
        down = reach[dy - 1] if dy else 0
        for sign in (-1, 1):
            samples = block[row + sign * down, 4 + sign * dx : 4 + sign * dx + width]
            total += weight * np.clip(samples - centre, -limit, limit)
    near = reach[0] == 0
    return centre + (((total + 512) >> 10) if near else ((total + 64) >> 7))


def alf_luma(plane, filters, layout, depth):
    """Apply ALF to luma."""
    out = plane.copy()
    for x0, y0 in parts(plane, layout, (0, 0)):
        chosen = filters.get((y0 // layout.ctu, x0 // layout.ctu))
        if chosen is None:
            continue
        block, width, height = surroundings(plane, layout, (0, 0), x0, y0, 4)
        for j in range(height):
            kinds = [classes(block, j // 4 * 4, i, y0, layout.ctu, depth) for i in range(0, width, 4)]
            rows = np.stack([chosen[:, kind][:, list(TRANSPOSED[turned])] for kind, turned in kinds], 2).repeat(4, 2)
            reach = LINE_BUFFER.get(layout.ctu - (y0 + j) % layout.ctu, (1, 2, 3))
            values = filtered_row(block, j + 4, width, LUMA_TAPS, reach, rows)
            out[y0 + j, x0 : x0 + width] = values
    return out.clip(0, 2**depth - 1)


def classes(block, row, column, y0, ctu, depth):
    """Derive filtIdx and transposeIdx of 4x4 samples of a part (clause 8.8.5.3)."""
    place = (y0 + row) % ctu
    rows = np.arange(row - 3, row + 7)
    summed = range(-2, 6)
    if place == ctu - 8:
        rows, summed = rows.clip(None, row + 3), range(-2, 4)
    elif place == ctu - 4:
        rows, summed = rows.clip(row, None), range(0, 6)
    area = block[4 + rows][:, 4 + column - 3 : 4 + column + 7]
    sums = np.zeros(4, np.int64)
    for j in summed:
        for i in range(-2, 6):
            if (i + j) % 2:
                continue
            y, x = j + 3, i + 3
            for index, (dy, dx) in enumerate(((1, 0), (0, 1), (1, 1), (-1, 1))):
                sums[index] += abs(2 * area[y, x] - area[y - dy, x - dx] - area[y + dy, x + dx])
    vertical, horizontal, falling, rising = sums.tolist()
    scale = 96 if len(summed) < 8 else 64
    activity = min(15, (vertical + horizontal) * scale >> (depth + 4))
    straight = (vertical, horizontal, 1) if vertical > horizontal else (horizontal, vertical, 3)
    oblique = (falling, rising, 0) if falling > rising else (rising, falling, 2)
    first, second = (oblique, straight) if oblique[0] * straight[1] > straight[0] * oblique[1] else (straight, oblique)
    direction = 0
    if 2 * first[0] > 9 * first[1]:
        direction = 2
    elif first[0] > 2 * first[1]:
        direction = 1
    if direction:
        direction += 2 * (first[2] % 2)
    index = 5 * direction + (0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4)[activity]
    return index, (0, 1, 0, 2, 2, 3, 1, 3)[2 * first[2] + second[2] // 2]


def alf_chroma(plane, filters, layout, sub, depth):
    """Apply ALF to a chroma component; `filters` has coefficients and clipping values by CTU, shape (2, 6)."""
    out = plane.copy()
    width_c, height_c = layout.ctu >> sub[0], layout.ctu >> sub[1]
    for x0, y0 in parts(plane, layout, sub):
        chosen = filters.get((y0 // height_c, x0 // width_c))
        if chosen is None:
            continue
        block, width, height = surroundings(plane, layout, sub, x0, y0, 4)
        for j in range(height):
            distance = height_c - (y0 + j) % height_c
            reach = (0, 0) if distance in (2, 3) else (1, 1) if distance in (1, 4) else (1, 2)
            rows = np.repeat(chosen[:, :, None], width, 2)
            out[y0 + j, x0 : x0 + width] = filtered_row(block, j + 4, width, CHROMA_TAPS, reach, rows)
    return out.clip(0, 2**depth - 1)


def cross_component(luma, chroma, filters, layout, sub, depth):
    """Apply cross-component ALF to a chroma component; `filters` has the 7 coefficients by CTU."""
    out = chroma.copy()
    for x0, y0 in parts(luma, layout, (0, 0)):
        chosen = filters.get((y0 // layout.ctu, x0 // layout.ctu))
        if chosen is None:
            continue
        block, width, height = surroundings(luma, layout, (0, 0), x0, y0, 4)
        for j in range(0, height, 1 << sub[1]):
            distance = layout.ctu - (y0 + j) % layout.ctu
            if sub[1] == 0 and distance in (3, 4):
                continue
            near, second = (0, 0) if distance in (4, 5) else (1, 1) if distance in (3, 6) else (1, 2)
            taps = ((0, -near), (-1, 0), (1, 0), (-1, near), (0, near), (1, near), (0, second))
            centre = block[4 + j, 4 : 4 + width]
            total = np.zeros(width, np.int64)
            for (dx, dy), weight in zip(taps, chosen.tolist(), strict=True):
                total += weight * (block[4 + j + dy, 4 + dx : 4 + dx + width] - centre)
            correction = ((total + 64) >> 7).clip(-(2 ** (depth - 1)), 2 ** (depth - 1) - 1)[:: 1 << sub[0]]
            row = (y0 + j) >> sub[1]
            target = out[row, x0 >> sub[0] : (x0 + width) >> sub[0]]
            target += correction
    return out.clip(0, 2**depth - 1)


class Scene:
    """A picture of random samples, CTU parameters and boundaries."""

    def __init__(self, rng, sub, depth):
        """Draw a picture."""
        rows, columns, self.depth = int(rng.integers(2, 4)), int(rng.integers(2, 4)), depth
        self.sub = sub
        height, width = 32 * rows - 8 * int(rng.integers(0, 4)), 32 * columns - 8 * int(rng.integers(0, 4))
        cut = int(rng.integers(0, rows * columns))
        slices = (np.arange(rows * columns) >= cut).astype(np.int64).reshape(rows, columns)
        tiles = np.zeros((rows, columns), np.int64)
        tiles[:, columns // 2 :] = 1
        subpictures = np.zeros((rows, columns), np.int64)
        below = int(rng.integers(0, rows))
        subpictures[below:] = 1
        across = rng.random(4) < 0.5
        boundaries = [(), ()]
        if rng.random() < 0.6:
            boundaries = [
                tuple(sorted({int(b) for b in 8 * rng.integers(1, side // 8, 2)})) for side in (width, height)
            ]
        self.layout = Layout(
            32, slices, tiles, subpictures, (bool(across[0]), bool(across[1]), across[2:].tolist()), *boundaries
        )
        sizes = [(height, width)] + [(height >> sub[1], width >> sub[0])] * 2 if sub else [(height, width)]
        self.planes = []
        for size in sizes:
            noise = rng.integers(-30, 31, size).cumsum(0).cumsum(1) * int(rng.integers(0, 3))
            noise += rng.integers(0, 40, size)
            self.planes.append((noise + (1 << (depth - 1))).clip(0, (1 << depth) - 1).astype(np.int32))
        self.filters = [random_filters(rng) for _ in range(2)]
        self.ctbs = np.zeros((rows, columns), maps.CTB_CELL)
        self.ctbs["region"] = 1 + tiles + fr.SLICE_REGIONS * slices
        self.ctbs["alf"][..., 0] = rng.integers(0, 16 + 2 + 1, (rows, columns))
        self.ctbs["alf"][..., 1:] = rng.integers(0, 4, (rows, columns, 2))
        self.ctbs["cc_alf"] = rng.integers(0, 3, (rows, columns, 2))
        for component in range(3):
            parameters = self.ctbs["sao"][..., component]
            parameters["sao_type_idx"] = rng.integers(0, 3, (rows, columns))
            edge = parameters["sao_type_idx"] == 2
            parameters["sao_class"] = np.where(edge, rng.integers(0, 4, edge.shape), rng.integers(0, 32, edge.shape))
            parameters["sao_offset_val"] = rng.integers(-31, 32, (rows, columns, 4))
        self.picture = self._picture(across.tolist(), below)

    def _picture(self, across, below):
        rows, columns = self.ctbs.shape
        height, width = self.planes[0].shape
        subpictures = [
            SimpleNamespace(x=0, y=0, width=columns, height=below, filtered=across[2]),
            SimpleNamespace(x=0, y=below, width=columns, height=rows - below, filtered=across[3]),
        ]
        selections = (((5, 2), 2, 5, 2), ((2, 5), 5, 2, 5))
        slices = [
            SimpleNamespace(
                header=SimpleNamespace(
                    alf=SimpleNamespace(
                        alf_aps_id_luma=luma, alf_aps_id_chroma=chroma, alf_cc_cb_aps_id=cb, alf_cc_cr_aps_id=cr
                    ),
                    sh_lmcs_used_flag=False,
                    sh_deblocking_filter_disabled_flag=True,
                    subpicture=0,
                    deblocking_offsets=SimpleNamespace(beta=(0, 0, 0), tc=(0, 0, 0)),
                ),
                picture_header=SimpleNamespace(virtual_boundaries=(self.layout.columns, self.layout.rows)),
                filters=dict(zip((2, 5), self.filters, strict=True)),
            )
            for luma, chroma, cb, cr in selections
        ]
        sub = self.sub or (0, 0)
        sps = SimpleNamespace(
            ctb_log2_size_y=5,
            log2_sub_width_c=sub[0],
            log2_sub_height_c=sub[1],
            bit_depth=self.depth,
            subpictures=subpictures,
        )
        tiles = SimpleNamespace(filter_across_slices=across[0], filter_across_tiles=across[1])
        pps = SimpleNamespace(tiles=tiles, pps_pic_width_in_luma_samples=width, pps_pic_height_in_luma_samples=height)
        return SimpleNamespace(sps=sps, pps=pps, slices=slices)

    def chosen(self, indices, name):
        """Return coefficients, and clipping values except of cross-component filters, by CTU."""
        limits = np.array([1 << self.depth, *(1 << (self.depth - 1 - 2 * i) for i in range(1, 4))])
        filters = {}
        for row, column in np.ndindex(indices.shape):
            index = int(indices[row, column]) - 1
            if index < 0:
                continue
            second = int(self.layout.slices[row, column])
            if name == "luma":
                if index < 16:
                    fixed = loop_filters.FIXED_FILTERS[index]
                    filters[row, column] = np.stack([fixed, np.full_like(fixed, 1 << self.depth)])
                    continue
                f = self.filters[(1, 0)[index - 16] if second == 0 else (0, 1)[index - 16]]
                filters[row, column] = np.stack([f.luma, limits[f.luma_clip]])
            elif name == "chroma":
                f = self.filters[second]
                filters[row, column] = np.stack([f.chroma[index], limits[f.chroma_clip[index]]])
            else:
                f = self.filters[1 - second if name == "cc_cb" else second]
                filters[row, column] = (f.cc_cb if name == "cc_cb" else f.cc_cr)[index]
        return filters


def random_filters(rng):
    """Draw the filters of an ALF parameter set with three chroma and two cross-component filters."""
    return SimpleNamespace(
        luma=rng.integers(-20, 21, (25, 12)),
        luma_clip=rng.integers(0, 4, (25, 12)),
        chroma=rng.integers(-30, 31, (3, 6)),
        chroma_clip=rng.integers(0, 4, (3, 6)),
        cc_cb=rng.integers(-64, 65, (2, 7)),
        cc_cr=rng.integers(-64, 65, (2, 7)),
    )


def in_loop_filtered(scene, by_rows):
    """Filter the picture of a scene as the decoder does, after each row of CTUs or once at the end."""
    pic, sps = new_record(rc.PictureValues), scene.picture.sps
    pic.log2_sub_width_c, pic.log2_sub_height_c, pic.bit_depth = (
        sps.log2_sub_width_c,
        sps.log2_sub_height_c,
        scene.depth,
    )
    pic.ctb_log2_size_y, pic.sps_chroma_format_idc = sps.ctb_log2_size_y, len(scene.planes) > 1
    shape = [side // 4 for side in scene.planes[0].shape]
    frame = SimpleNamespace(
        pic=pic,
        slice=new_record(rc.SliceValues),
        known=np.zeros(shape, cells.BLOCK_CELL),
        motion=np.zeros(shape, cells.MOTION_CELL),
    )
    with (
        mock.patch.object(sao, "offset_samples", checked(sao.offset_samples)),
        mock.patch.object(alf, "filter_ctus", checked(alf.filter_ctus)),
    ):
        filters = loop_filters.PictureFilters(
            scene.picture, frame, scene.ctbs, [plane.copy() for plane in scene.planes]
        )
        rows = scene.ctbs.shape[0]
        for reconstructed in range(1, rows + 1) if by_rows else [rows]:
            filters.advance(reconstructed, {})
    return filters.filtered


@pytest.mark.parametrize("number", range(8))
def test_sao_and_alf(number):
    rng = np.random.default_rng(number)
    sub = (*FORMATS, None)[number % 4]
    scene = Scene(rng, sub, int(rng.choice([8, 10, 12])))
    layout, depth, ctbs = scene.layout, scene.depth, scene.ctbs
    after_sao = []
    for component, plane in enumerate(scene.planes):
        numbers = np.ascontiguousarray(ctbs["sao"][..., component]).view(np.int32).reshape(*ctbs.shape, -1)
        used = sub if component and sub else (0, 0)
        after_sao.append(sao_plane(plane.astype(np.int64), numbers.astype(np.int64), layout, used, depth))
    expected = [alf_luma(after_sao[0], scene.chosen(ctbs["alf"][..., 0], "luma"), layout, depth)]
    for component in range(1, len(scene.planes)):
        assert sub is not None
        chroma = alf_chroma(
            after_sao[component], scene.chosen(ctbs["alf"][..., component], "chroma"), layout, sub, depth
        )
        name = ("cc_cb", "cc_cr")[component - 1]
        chosen = scene.chosen(ctbs["cc_alf"][..., component - 1], name)
        expected.append(cross_component(after_sao[0], chroma, chosen, layout, sub, depth))
    for by_rows in (False, True):
        filtered = in_loop_filtered(scene, by_rows)
        for component in range(len(scene.planes)):
            np.testing.assert_array_equal(filtered.sao[component], after_sao[component])
            np.testing.assert_array_equal(filtered.rec[component], expected[component])
        assert (filtered.rec[0] != filtered.sao[0]).any() or not ctbs["alf"][..., 0].any()


def test_classes_and_transpositions_of_alf():
    rng, seen = np.random.default_rng(7), set()
    for _ in range(400):
        block = rng.integers(0, 1024, (16, 16)) >> int(rng.integers(0, 11))
        block = block + rng.integers(-60, 61) * np.arange(16)[:, None] + rng.integers(-60, 61) * np.arange(16)
        if rng.random() < 0.5:
            block[:, :] += (
                rng.integers(0, 300) * (np.add(*np.mgrid[:16, :16] * rng.integers(-1, 2, (2, 1, 1))) % 3)
            ).astype(int)
        block = block.clip(0, 1023).astype(np.int32)
        y0 = int(rng.choice([0, 24, 28]))
        sums = np.zeros((4, 18, 18), np.int64)
        alf.gradients(block, sums, y0, 4, 4, 32)
        kind = alf.classify(sums, 0, 0, y0, 32, 10)
        assert divmod(int(kind), 4) == classes(block.astype(np.int64), 0, 0, y0, 32, 10)
        seen.add(int(kind))
    assert len({kind // 4 for kind in seen}) > 20, seen
    assert {kind % 4 for kind in seen} == set(range(4)), seen
