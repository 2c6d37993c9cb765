"""Edges, strengths and lengths of deblocking equal those of maps of units and blocks in samples (clause 8.8.3)."""

from typing import NamedTuple

import numpy as np
import pytest

from codecnn.base.records import record_at
from tests.helpers.plain_decoder import (
    SIDE,
    block_state,
    cells,
    checked,
    deblocking,
    empty_frame,
    fr,
    lg,
    put_vectors,
    st,
)

FORMATS = ((1, 1), (1, 0), (0, 0))


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


def random_units(rng, x, y, width, height):
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


def transform_blocks(rng, unit):
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


def plain_edges(f, slices, units, maps, chroma):
    """Derive the edges of all cells from maps of units and transform blocks in samples."""
    side = SIDE
    out = np.zeros((2, side // 4, side // 4), cells.EDGE)
    for horizontal, row, column in np.ndindex(2, side // 4, side // 4):
        y, x = 4 * row, 4 * column
        py, px = (y - 1, x) if horizontal else (y, x - 1)
        place = y if horizontal else x
        if place == 0 or place in (f.slice.virtual_boundary_pos_x, f.slice.virtual_boundary_pos_y)[horizontal]:
            continue
        q_region, p_region = (int(f.known[j >> 2, i >> 2].region[0]) - 1 for j, i in ((y, x), (py, px)))
        (q_slice, q_tile), (p_slice, p_tile) = (divmod(region, fr.SLICE_REGIONS) for region in (q_region, p_region))
        if slices[q_slice].disabled:
            continue
        if q_tile != p_tile and not f.slice.loop_filter_across_tiles:
            continue
        if q_slice != p_slice and not (f.slice.loop_filter_across_slices and slices["crossed"].all()):
            continue
        edge = out[horizontal, row, column]
        edge.bs, edge.max_filter_length_p, edge.max_filter_length_q = plain_luma_edge(
            f, units, maps, horizontal, (y, x), (py, px)
        )
        unit_q, unit_p = (units[int(maps["unit"][at]) - 1] for at in ((y, x), (py, px)))
        size = "h" if horizontal else "w"
        sub = int(f.pic.log2_sub_height_c if horizontal else f.pic.log2_sub_width_c)
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
        edge.bs_c[:], edge.max_filter_length_c = strengths, 3 if large else 1
    return out


def plain_luma_edge(f, units, maps, horizontal, q, p):
    """Derive bS and the filter lengths of a luma edge between the samples `p` and `q`."""
    unit_p, unit_q = (units[int(maps["unit"][at]) - 1] for at in (p, q))
    transform, other = maps["block"][p] != maps["block"][q], unit_p is not unit_q
    offset = q[0] - unit_q.y if horizontal else q[1] - unit_q.x
    subblock = unit_q.model > 0 and offset % 8 == 0
    if not transform and not subblock:
        return 0, 0, 0
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
        return 0, 0, 0
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
    return strength, *lengths


def differ(f, p, q):
    """Return True if the motion of two samples differs as deblocking counts it."""
    motions = []
    for y, x in (p, q):
        cell = f.motion[y >> 2, x >> 2]
        motions.append([(cell.slot[i], (cell.mv[i].x, cell.mv[i].y)) for i in range(2) if cell.slot[i] >= 0])
    first, second = motions
    if sorted(slot for slot, _ in first) != sorted(slot for slot, _ in second):
        return True

    def apart(pairs):
        """Return True if any vector is half a sample or more from its counterpart."""
        return any(
            max(abs(a - b) for a, b in zip(v, w, strict=True)) >= 8 for (_, v), (_, w) in zip(first, pairs, strict=True)
        )

    orders = [pairs for pairs in (second, second[::-1]) if [s for s, _ in pairs] == [s for s, _ in first]]
    return all(apart(pairs) for pairs in orders)


@pytest.mark.parametrize("number", range(6))
def test_edges_of_random_units(number):
    rng = np.random.default_rng(number)
    f = empty_frame(10)
    side = SIDE
    f.pic.sps_chroma_format_idc, f.pic.log2_sub_width_c, f.pic.log2_sub_height_c = 1, *FORMATS[number % 3]
    f.slice.loop_filter_across_tiles, f.slice.loop_filter_across_slices = number % 2, number < 3
    if number == 4:
        f.slice.virtual_boundary_pos_x[0], f.slice.virtual_boundary_pos_y[0] = 64, 72
    shape = (*f.motion.shape, 4)
    put_vectors(f.motion, rng.integers(-6, 7, shape) * rng.integers(0, 2, shape))
    f.motion["slot"] = rng.integers(-1, 2, (*shape[:2], 2))
    # Two slices, the upper one of two tiles, each a part of another subpicture.
    regions = f.known["region"][..., 0]
    regions[: side // 8] = 1
    regions[: side // 8, side // 8 :] = 2
    regions[side // 8 :] = 1 + fr.SLICE_REGIONS
    slices = np.zeros(2, deblocking.DEBLOCKING_SLICE)
    slices["subpicture"], slices["crossed"] = (0, 1), (1, number != 1)
    slices[0].disabled = number == 5
    maps = {
        name: np.zeros((side, side), np.int64) for name in ("unit", "block", "coded", "cb", "cr", "w", "h", "vector")
    }
    chroma = {name: np.zeros((side, side), np.int64) for name in ("block", "w", "h")}
    areas = [(x, y) for y in range(0, side, 64) for x in range(0, side, 64)]
    units = [unit for area in areas for unit in random_units(rng, *area, 64, 64)]
    for index, unit in enumerate(units):
        x, y, w, h = unit[:4]
        vector = [int(value) for value in rng.integers(-2, 0, 2)]
        f.log[: lg.UNIT_HEADER] = 0
        cu = record_at(f.log, 0, lg.CODING_UNIT)
        cu.x, cu.y, cu.width, cu.height = unit[:4]
        cu.pred_mode, cu.intra_bdpcm_luma_flag, cu.intra_bdpcm_chroma_flag = unit.mode, unit.bdpcm, unit.bdpcm
        cu.qp_y, cu.ciip_flag, cu.bv.x, cu.bv.y = index % 50, unit.ciip, *vector
        motion = f.motion[y >> 2 : (y + h) >> 2, x >> 2 : (x + w) >> 2]
        if unit.mode == st.MODE_INTER and unit.model == 0:
            motion[...] = motion[0, 0]
        motion["model"], motion["x"], motion["y"], motion["width"], motion["height"] = unit.model, x, y, w, h
        area = np.s_[y : y + h, x : x + w]
        maps["unit"][area], maps["vector"][area] = index + 1, 100 * vector[0] + vector[1]
        blocks = transform_blocks(rng, unit)
        uncoded = unit.mode == st.MODE_PALETTE or rng.random() < 0.3
        if uncoded:
            blocks = [unit[:4]]
            block_state.store_unit(f)
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
                block_state.store_luma_block(f, *block, coded & 1)
                if len(blocks) < 4 or place == 3:
                    block_state.store_chroma_block(f, *chroma_block, coded >> 1, 0)
    edges = np.zeros((2, side // 4, side // 4), cells.EDGE)
    checked(deblocking.derive_edges)(f.pic, f.slice, f.known, f.motion, slices, edges, 0, side // 4)
    expected = plain_edges(f, slices, units, maps, chroma)
    for edge_type, direction in ((cells.EDGE_VER, "vertical"), (cells.EDGE_HOR, "horizontal")):
        for name in cells.EDGE.names:
            actual = edges[name][edge_type]
            np.testing.assert_array_equal(actual, expected[name][edge_type], f"{direction} edges, {name}")
    kinds = np.unique(edges[["bs", "max_filter_length_p", "max_filter_length_q"]])
    assert len(kinds) > 12, kinds
    np.testing.assert_array_equal(f.known["qp"][..., 0], (maps["unit"][::4, ::4] - 1) % 50)
