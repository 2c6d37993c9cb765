"""Compare the in-loop filters with plain NumPy: `python -m tests.helpers.loop_filter_stages`.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions. An
index out of range then raises, also a negative one (`Checked`).
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

from codecnn.vvc.decoder import alf, block_state, deblocking, edge_filters, loop_filters, sao
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from tests.helpers import loop_filter_references as plain
from tests.helpers.reconstruct_stages import empty_frame

Ints = npt.NDArray[np.int64]
FORMATS = ((1, 1), (1, 0), (0, 0))


class Checked(np.ndarray[Any, Any]):
    """Array that refuses negative indices, which compiled code would count from the end without notice."""

    def __getitem__(self, index: Any) -> Any:
        """Return elements."""
        self._check(index)
        return np.ndarray.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set elements."""
        self._check(index)
        np.ndarray.__setitem__(self, index, value)

    def _check(self, index: Any) -> None:
        for number in index if isinstance(index, tuple) else (index,):
            if isinstance(number, int | np.integer) and number < 0:
                raise IndexError(f"the index {number} is negative")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function` with its arrays as `Checked`."""

    def call(*arguments: Any) -> Any:
        return function(*(a.view(Checked) if isinstance(a, np.ndarray) else a for a in arguments))

    call.__name__ = function.__name__
    return call


def lines(rng: np.random.Generator, count: int, depth: int) -> Ints:
    """Return `count` lines of 16 samples with a step in the middle, between smooth and noisy.

    The decisions depend on the first and the last line, so the lines between may have more noise.
    """
    steps = rng.integers(-3, 4, (count, 16)) * int(rng.integers(0, 3))
    steps[1:-1] = rng.integers(-3, 4, steps[1:-1].shape) * int(rng.integers(0, 8))
    steps[:, 8] += rng.integers(-25, 26)
    values = (1 << (depth - 1)) + steps.cumsum(1) * (1 << (depth - 8)) // 2
    return values.clip(0, (1 << depth) - 1)


def check_edges(rng: np.random.Generator) -> None:
    """Check the filters of luma and chroma edges with all lengths, in both directions."""
    changed = set()
    for _ in range(1500):
        depth = int(rng.choice([8, 10, 12]))
        offsets = [int(value) for value in rng.integers(-3, 4, 2)]
        flags = [bool(value) for value in rng.random(3) < 0.15]
        length_p, length_q = (int(value) for value in rng.choice([1, 2, 3, 5, 7], 2))
        edge = plain.Edge(
            int(rng.integers(1, 3)), length_p, length_q, int(rng.integers(10, 60)), *offsets, depth, *flags
        )
        count = 4
        chroma = rng.random() < 0.4
        if chroma:
            count = int(rng.choice([2, 4]))
            length = int(rng.choice([1, 3]))
            edge = edge._replace(length_p=length, length_q=length)
        samples = lines(rng, count, depth)
        expected_p, expected_q = (plain.deblock_chroma if chroma else plain.deblock_luma)(
            samples[:, 7::-1], samples[:, 8:], edge
        )
        expected = np.concatenate([expected_p[:, ::-1], expected_q], 1)
        across, along = (1, 16) if rng.random() < 0.5 else (count, 1)
        work = (samples if across == 1 else samples.T).astype(np.int32).reshape(-1)
        at = 8 * across
        if chroma:
            checked(edge_filters.filter_chroma)(
                work, at, across, along, count, edge.strength, edge.length_p == 3, edge.qp, *offsets, depth, *flags
            )
        else:
            packed = edge.strength | edge.length_p << 2 | edge.length_q << 5
            checked(edge_filters.filter_luma)(work, at, across, along, packed, edge.qp, *offsets, depth, *flags)
        actual = work.reshape(samples.shape) if across == 1 else work.reshape(samples.T.shape).T
        np.testing.assert_array_equal(actual, expected, f"{edge} chroma {chroma}")
        changed.add((chroma, *(np.count_nonzero((expected != samples).any(0)[part]) for part in np.s_[:8, 8:])))
    # All filters were in use: weak, strong and long ones of luma, weak and strong ones of chroma.
    assert {(False, 1, 1), (False, 3, 3), (False, 5, 5), (False, 7, 7), (True, 1, 1), (True, 3, 3)} <= changed, changed


class Unit(NamedTuple):
    """A coding unit of a random picture."""

    x: int
    y: int
    width: int
    height: int
    mode: int
    bdpcm: int
    ciip: int
    model: int


def random_units(rng: np.random.Generator, x: int, y: int, width: int, height: int) -> list[Unit]:
    """Split an area into coding units of random modes."""
    if min(width, height) > 8 and rng.random() < 0.7:
        across, down = ((2, 2), (2, 1), (1, 2))[rng.integers(0, 3)]
        w, h = width // across, height // down
        places = [(x + i * w, y + j * h) for j in range(down) for i in range(across)]
        return [unit for place in places for unit in random_units(rng, *place, w, h)]
    mode = int(rng.choice([st.MODE_INTER, st.MODE_INTER, st.MODE_INTER, st.MODE_INTRA, st.MODE_IBC, st.MODE_PALETTE]))
    inter = mode == st.MODE_INTER
    model = int(rng.choice([0, 1, 3])) if inter else 0
    ciip = int(inter and model == 0 and rng.random() < 0.2)
    return [Unit(x, y, width, height, mode, int(mode == st.MODE_INTRA and rng.random() < 0.5), ciip, model)]


def transform_blocks(rng: np.random.Generator, unit: Unit) -> list[tuple[int, int, int, int]]:
    """Split a unit into one or two transform blocks."""
    x, y, w, h = unit[:4]
    kind = rng.integers(0, 4)
    if kind == 0 and w >= 8 and unit.mode == st.MODE_INTER:
        first = w // 4 if w >= 16 and rng.random() < 0.5 else w // 2
        return [(x, y, first, h), (x + first, y, w - first, h)]
    if kind == 1 and h >= 8 and unit.mode == st.MODE_INTER:
        first = h // 4 if h >= 16 and rng.random() < 0.5 else h // 2
        return [(x, y, w, first), (x, y + first, w, h - first)]
    if kind == 2 and unit.mode == st.MODE_INTRA and not unit.bdpcm:
        # Sub-partitions (ISP), which may be one or two samples wide.
        return [(x + i * w // 4, y, w // 4, h) for i in range(4)]
    return [(x, y, w, h)]


def check_strengths(rng: np.random.Generator) -> None:
    """Check edges, strengths and lengths of random units against maps of the blocks in samples."""
    for number in range(6):
        f = empty_frame(10)
        p, side = f.p, p_side(f)
        p[fr.CHROMA], p[fr.SUB_X], p[fr.SUB_Y] = 1, *FORMATS[number % 3]
        p[fr.ACROSS_TILES], p[fr.ACROSS_SLICES] = number % 2, number < 3
        if number == 4:
            p[fr.COLUMNS], p[fr.ROWS] = 64, 72
        f.motion[:] = rng.integers(-6, 7, f.motion.shape) * rng.integers(0, 2, f.motion.shape)
        f.motion[fr.SLOT_0 : fr.SLOT_1 + 1] = rng.integers(-1, 2, (2, *f.motion.shape[1:]))
        # Two slices, the upper one of two tiles, each a part of another subpicture.
        f.known[fr.LUMA_REGION, : side // 8] = 1
        f.known[fr.LUMA_REGION, : side // 8, side // 8 :] = 2
        f.known[fr.LUMA_REGION, side // 8 :] = 1 + fr.SLICE_REGIONS
        slices = np.zeros((2, deblocking.SLICE_NUMBERS), np.int32)
        slices[1, deblocking.SLICE_SUBPICTURE] = 1
        slices[:, deblocking.SLICE_CROSSED] = (1, number != 1)
        slices[0, deblocking.SLICE_DISABLED] = number == 5
        maps = {
            name: np.zeros((side, side), np.int64)
            for name in ("unit", "block", "coded", "cb", "cr", "w", "h", "vector")
        }
        chroma = {name: np.zeros((side, side), np.int64) for name in ("block", "w", "h")}
        areas = [(x, y) for y in range(0, side, 64) for x in range(0, side, 64)]
        units = [unit for area in areas for unit in random_units(rng, *area, 64, 64)]
        for index, unit in enumerate(units):
            x, y, w, h = unit[:4]
            vector = [int(value) for value in rng.integers(-2, 0, 2)]
            f.log[: lg.UNIT_HEADER] = 0
            f.log[lg.U_X : lg.U_H + 1] = unit[:4]
            f.log[lg.U_PRED_MODE], f.log[lg.U_BDPCM] = unit.mode, unit.bdpcm
            f.log[lg.U_BDPCM_C], f.log[lg.U_QP] = unit.bdpcm, index % 50
            f.log[lg.U_VECTOR_X], f.log[lg.U_VECTOR_Y] = vector
            f.log[lg.U_CIIP] = unit.ciip
            cells = np.s_[y >> 2 : (y + h) >> 2, x >> 2 : (x + w) >> 2]
            planes = (fr.MODEL, fr.MOTION_X, fr.MOTION_Y, fr.MOTION_W, fr.MOTION_H)
            for plane, value in zip(planes, (unit.model, x, y, w, h), strict=True):
                f.motion[plane][cells] = value
            if unit.mode == st.MODE_INTER and unit.model == 0:
                for plane in (*range(fr.MV_X0, fr.MV_Y1 + 1), fr.SLOT_0, fr.SLOT_1):
                    f.motion[plane][cells] = f.motion[plane, y >> 2, x >> 2]
            area = np.s_[y : y + h, x : x + w]
            maps["unit"][area], maps["vector"][area] = index + 1, 100 * vector[0] + vector[1]
            blocks = transform_blocks(rng, unit)
            uncoded = unit.mode == st.MODE_PALETTE or rng.random() < 0.3
            if uncoded:
                blocks = [unit[:4]]
                block_state.keep_unit(f)
            for place, block in enumerate(blocks):
                coded = 0 if uncoded else int(rng.integers(0, 8))
                part = np.s_[block[1] : block[1] + block[3], block[0] : block[0] + block[2]]
                for name, value in zip(
                    ("block", "coded", "w", "h"), (1000 * index + place, coded & 1, *block[2:]), strict=True
                ):
                    maps[name][part] = value
                chroma_block = block
                if len(blocks) == 4:
                    # Chroma of a unit with sub-partitions is one block, which comes last.
                    chroma_block, part = unit[:4], area
                maps["cb"][part], maps["cr"][part] = coded >> 1 & 1, coded >> 2
                for name, value in zip(("block", "w", "h"), (1000 * index + place, *chroma_block[2:]), strict=True):
                    chroma[name][part] = value
                if not uncoded:
                    block_state.keep_luma_block(f, *block, coded & 1)
                    if len(blocks) < 4 or place == 3:
                        block_state.keep_chroma_block(f, *chroma_block, coded >> 1, 0)
        edges = np.zeros((4, side // 4, side // 4), np.int32)
        checked(deblocking.derive_edges)(p, f.known, f.motion, slices, edges)
        expected = plain_edges(f, slices, units, maps, chroma)
        for plane, name in enumerate(("luma V", "luma H", "chroma V", "chroma H")):
            np.testing.assert_array_equal(edges[plane], expected[plane], f"picture {number}, {name}")
        assert len(np.unique(edges[:2])) > 12, np.unique(edges[:2])
        np.testing.assert_array_equal(f.known[fr.QP_Y], (maps["unit"][::4, ::4] - 1) % 50)


def p_side(f: fr.Frame) -> int:
    """Return the side of the square picture of a frame."""
    return int(f.p[fr.WIDTH])


def plain_edges(
    f: fr.Frame, slices: npt.NDArray[np.int32], units: list[Unit], maps: dict[str, Ints], chroma: dict[str, Ints]
) -> Ints:
    """Derive the edges of all cells from maps of units and transform blocks in samples."""
    p, side = f.p, p_side(f)
    out = np.zeros((4, side // 4, side // 4), np.int64)
    for horizontal, row, column in np.ndindex(2, side // 4, side // 4):
        y, x = 4 * row, 4 * column
        py, px = (y - 1, x) if horizontal else (y, x - 1)
        place = y if horizontal else x
        if place == 0 or place in p[[fr.COLUMNS, fr.ROWS][horizontal] :][:3]:
            continue
        q_region, p_region = (int(f.known[fr.LUMA_REGION, j >> 2, i >> 2]) - 1 for j, i in ((y, x), (py, px)))
        (q_slice, q_tile), (p_slice, p_tile) = (divmod(region, fr.SLICE_REGIONS) for region in (q_region, p_region))
        if slices[q_slice, deblocking.SLICE_DISABLED]:
            continue
        if q_tile != p_tile and not p[fr.ACROSS_TILES]:
            continue
        if q_slice != p_slice and not (p[fr.ACROSS_SLICES] and slices[:, deblocking.SLICE_CROSSED].all()):
            continue
        out[horizontal, row, column] = plain_luma_edge(f, units, maps, horizontal, (y, x), (py, px))
        unit_q, unit_p = (units[int(maps["unit"][at]) - 1] for at in ((y, x), (py, px)))
        size = "h" if horizontal else "w"
        sub = int(p[fr.SUB_Y] if horizontal else p[fr.SUB_X])
        if (place >> sub) % 8 or chroma["block"][y, x] == chroma["block"][py, px]:
            continue
        modes = unit_p.mode, unit_q.mode
        if st.MODE_INTRA in modes:
            strengths = [0 if unit_p.bdpcm and unit_q.bdpcm else 2] * 2
        elif unit_p.ciip or unit_q.ciip:
            strengths = [2, 2]
        else:
            strengths = [int(maps[name][y, x] or maps[name][py, px]) for name in ("cb", "cr")]
        large = min(chroma[size][y, x], chroma[size][py, px]) >> sub >= 8
        if any(strengths):
            out[2 + horizontal, row, column] = strengths[0] + 4 * strengths[1] + 16 * large
    return out


def plain_luma_edge(
    f: fr.Frame, units: list[Unit], maps: dict[str, Ints], horizontal: int, q: tuple[int, int], p: tuple[int, int]
) -> int:
    """Derive a luma edge between the samples `p` and `q`, packed as in `deblocking.LUMA_V`."""
    unit_p, unit_q = (units[int(maps["unit"][at]) - 1] for at in (p, q))
    transform, other = maps["block"][p] != maps["block"][q], unit_p is not unit_q
    offset = q[0] - unit_q.y if horizontal else q[1] - unit_q.x
    subblock = unit_q.model > 0 and offset % 8 == 0
    if not transform and not subblock:
        return 0
    if st.MODE_INTRA in (unit_p.mode, unit_q.mode):
        strength = 0 if unit_p.bdpcm and unit_q.bdpcm else 2
    elif transform and (unit_p.ciip or unit_q.ciip):
        strength = 2
    elif transform and (maps["coded"][p] or maps["coded"][q]):
        strength = 1
    elif not other and not subblock:
        strength = 0
    elif unit_p.mode != unit_q.mode:
        strength = 1
    elif unit_q.mode == st.MODE_IBC:
        strength = int(maps["vector"][p] != maps["vector"][q])
    else:
        strength = int(unit_q.mode == st.MODE_INTER and differ(f, p, q))
    if strength == 0:
        return 0
    name, size = ("h", unit_q.height) if horizontal else ("w", unit_q.width)
    if transform:
        sizes = [int(maps[name][at]) for at in (p, q)]
        lengths = [1, 1] if min(sizes) <= 4 else [7 if size >= 32 else 3 for size in sizes]
        lengths = [min(length, 5 if unit.model else 7) for length, unit in zip(lengths, (unit_p, unit_q), strict=True)]
    else:

        def edge_at(distance: int) -> bool:
            """Return True if a transform block begins at a distance in samples from the edge."""
            if not 0 < offset + distance < size:
                return True
            y, x = (q[0] + distance, q[1]) if horizontal else (q[0], q[1] + distance)
            return bool(maps["block"][y, x] != (maps["block"][y - 1, x] if horizontal else maps["block"][y, x - 1]))

        lengths = [1, 1] if edge_at(-4) or edge_at(4) else [2, 2] if edge_at(-8) or edge_at(8) else [3, 3]
    return strength | lengths[0] << 2 | lengths[1] << 5


def differ(f: fr.Frame, p: tuple[int, int], q: tuple[int, int]) -> bool:
    """Return True if the motion of two samples differs as deblocking counts it."""
    motions = []
    for y, x in (p, q):
        cell = f.motion[:, y >> 2, x >> 2].tolist()
        pairs = [
            (cell[fr.SLOT_0 + i], (cell[fr.MV_X0 + 2 * i], cell[fr.MV_Y0 + 2 * i]))
            for i in range(2)
            if cell[fr.SLOT_0 + i] >= 0
        ]
        motions.append(pairs)
    first, second = motions
    if sorted(slot for slot, _ in first) != sorted(slot for slot, _ in second):
        return True

    def apart(pairs: list[Any]) -> bool:
        """Return True if any vector is half a sample or more from its counterpart."""
        return any(
            max(abs(a - b) for a, b in zip(v, w, strict=True)) >= 8 for (_, v), (_, w) in zip(first, pairs, strict=True)
        )

    orders = [pairs for pairs in (second, second[::-1]) if [s for s, _ in pairs] == [s for s, _ in first]]
    return all(apart(pairs) for pairs in orders)


class Scene:
    """A picture of random samples, CTU parameters and boundaries.

    Attributes:
        layout: Boundaries.
        picture: Stand-in for the parsed picture.
        ctbs: Maps of CTUs.
        planes: Y, Cb and Cr.
    """

    def __init__(self, rng: np.random.Generator, sub: tuple[int, int] | None, depth: int) -> None:
        """Draw a picture.

        Args:
            rng: Generator of random numbers.
            sub: log2 of the chroma subsampling, None without chroma.
            depth: Bit depth.
        """
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
        boundaries: list[tuple[int, ...]] = [(), ()]
        if rng.random() < 0.6:
            boundaries = [
                tuple(sorted({int(b) for b in 8 * rng.integers(1, side // 8, 2)})) for side in (width, height)
            ]
        self.layout = plain.Layout(
            32, slices, tiles, subpictures, (bool(across[0]), bool(across[1]), across[2:].tolist()), *boundaries
        )
        sizes = [(height, width)] + [(height >> sub[1], width >> sub[0])] * 2 if sub else [(height, width)]
        self.planes = []
        for size in sizes:
            noise = rng.integers(-30, 31, size).cumsum(0).cumsum(1) * int(rng.integers(0, 3))
            noise += rng.integers(0, 40, size)
            self.planes.append((noise + (1 << (depth - 1))).clip(0, (1 << depth) - 1).astype(np.int32))
        self.filters = [random_filters(rng) for _ in range(2)]
        self.ctbs = np.zeros((st.CTB_MAPS, rows, columns), np.int32)
        self.ctbs[st.CTB_REGION] = 1 + tiles + fr.SLICE_REGIONS * slices
        self.ctbs[st.CTB_ALF] = rng.integers(0, 16 + 2 + 1, (rows, columns))
        self.ctbs[st.CTB_ALF + 1 : st.CTB_CC] = rng.integers(0, 4, (2, rows, columns))
        self.ctbs[st.CTB_CC : st.CTB_CC + 2] = rng.integers(0, 3, (2, rows, columns))
        for component in range(3):
            numbers = self.ctbs[st.CTB_SAO + st.SAO_NUMBERS * component :][: st.SAO_NUMBERS]
            numbers[st.SAO_TYPE] = rng.integers(0, 3, (rows, columns))
            edge = numbers[st.SAO_TYPE] == 2
            numbers[st.SAO_CLASS] = np.where(edge, rng.integers(0, 4, edge.shape), rng.integers(0, 32, edge.shape))
            numbers[st.SAO_OFFSETS :] = rng.integers(-31, 32, (4, rows, columns))
        self.picture = self._picture(across.tolist(), below)

    def _picture(self, across: list[bool], below: int) -> Any:
        rows, columns = self.ctbs.shape[1:]
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
                    )
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

    def chosen(self, plane: int, name: str) -> dict[tuple[int, int], Ints]:
        """Return coefficients, and clipping values except of cross-component filters, by CTU."""
        limits = np.array([1 << self.depth, *(1 << (self.depth - 1 - 2 * i) for i in range(1, 4))])
        filters = {}
        for row, column in np.ndindex(self.ctbs.shape[1:]):
            index = int(self.ctbs[plane, row, column]) - 1
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
                filters[row, column] = getattr(f, name)[index]
        return filters


def random_filters(rng: np.random.Generator) -> Any:
    """Draw the filters of an ALF parameter set with three chroma and two cross-component filters."""
    return SimpleNamespace(
        luma=rng.integers(-20, 21, (25, 12)),
        luma_clip=rng.integers(0, 4, (25, 12)),
        chroma=rng.integers(-30, 31, (3, 6)),
        chroma_clip=rng.integers(0, 4, (3, 6)),
        cc_cb=rng.integers(-64, 65, (2, 7)),
        cc_cr=rng.integers(-64, 65, (2, 7)),
    )


def check_sao_and_alf(rng: np.random.Generator) -> None:
    """Check SAO, ALF and cross-component ALF with boundaries of all kinds, in all chroma formats."""
    changed = []
    for number in range(8):
        sub = (*FORMATS, None)[number % 4]
        scene = Scene(rng, sub, int(rng.choice([8, 10, 12])))
        layout, depth, ctbs = scene.layout, scene.depth, scene.ctbs
        frame: Any = SimpleNamespace()
        edges = np.zeros((4, 1, 1), np.int32)
        with (
            mock.patch.object(sao, "offset_samples", checked(sao.offset_samples)),
            mock.patch.object(alf, "filter_ctus", checked(alf.filter_ctus)),
        ):
            filtered = loop_filters.filter_picture(scene.picture, frame, ctbs, scene.planes, edges)
        after_sao = []
        for component, plane in enumerate(scene.planes):
            numbers = ctbs[st.CTB_SAO + st.SAO_NUMBERS * component :][: st.SAO_NUMBERS].transpose(1, 2, 0)
            used = sub if component and sub else (0, 0)
            after_sao.append(plain.sao_plane(plane.astype(np.int64), numbers.astype(np.int64), layout, used, depth))
            np.testing.assert_array_equal(filtered.sao[component], after_sao[-1], f"SAO {number} {component}")
        luma = plain.alf_luma(after_sao[0], scene.chosen(st.CTB_ALF, "luma"), layout, depth)
        np.testing.assert_array_equal(filtered.rec[0], luma, f"ALF {number}")
        for component in range(1, len(scene.planes)):
            assert sub is not None
            chroma = plain.alf_chroma(
                after_sao[component], scene.chosen(st.CTB_ALF + component, "chroma"), layout, sub, depth
            )
            name = ("cc_cb", "cc_cr")[component - 1]
            chosen = scene.chosen(st.CTB_CC + component - 1, name)
            chroma = plain.cross_component(after_sao[0], chroma, chosen, layout, sub, depth)
            np.testing.assert_array_equal(filtered.rec[component], chroma, f"ALF {number} {component}")
        changed.append((filtered.rec[0] != filtered.sao[0]).mean())
    assert np.mean(changed) > 0.2, changed


def check_classes(rng: np.random.Generator) -> None:
    """Check the classes and transpositions of ALF; nearly all of them occur."""
    seen = set()
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
        assert divmod(int(kind), 4) == plain.classes(block.astype(np.int64), 0, 0, y0, 32, 10)
        seen.add(int(kind))
    assert len({kind // 4 for kind in seen}) > 20, seen
    assert {kind % 4 for kind in seen} == set(range(4)), seen


CHECKS = (check_edges, check_strengths, check_classes, check_sao_and_alf)

if __name__ == "__main__":
    generator = np.random.default_rng(7)
    for check in CHECKS:
        check(generator)
