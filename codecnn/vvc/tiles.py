"""Tiles and slices in CTUs (H.266 clauses 6.5.1, 7.3.2.5 and 7.4.3.5)."""

from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits

ADDRESS, FIRST_IN_ROW, ENDS, TILE = range(4)
"""Columns of `slice_ctus`."""

END_OF_NOTHING, END_OF_SUBSET, END_OF_TILE, END_OF_SLICE = range(4)
"""Values of its column ENDS: which terminating bin follows the CTU."""

MAX_TILES = 990
"""MaxTilesPerAu of level 6.3 (table A.1), the largest of any level."""


class Rectangle(NamedTuple):
    """A rectangular slice: tiles `x` to `x + wide`, `y` to `y + high`, of one tile perhaps only `rows` of its CTUs."""

    x: int
    y: int
    wide: int
    high: int
    rows: tuple[int, int] | None


class Rows(NamedTuple):
    """A tile in column `x` and row `y` of tiles, or its rows of CTUs from `top` to `bottom` in the picture."""

    x: int
    y: int
    top: int
    bottom: int


def read_tiles(r: Bits, p: SimpleNamespace, sps: SimpleNamespace) -> None:
    """Set `p.columns` and `p.rows`, the boundaries of tiles in CTUs: n + 1 ascending numbers from 0 for n tiles."""
    p.columns, p.rows = [0, p.ctbs_wide], [0, p.ctbs_high]
    if p.no_pic_partition_flag:
        return
    if r.u(2) + 5 != sps.log2_ctu:
        raise FormatError("PPS and SPS differ in the CTU size")
    columns = r.ue("pps_num_exp_tile_columns_minus1", p.ctbs_wide - 1) + 1
    rows = r.ue("pps_num_exp_tile_rows_minus1", p.ctbs_high - 1) + 1
    p.columns = _boundaries([r.ue("pps_tile_column_width_minus1", 2**16) + 1 for _ in range(columns)], p.ctbs_wide)
    p.rows = _boundaries([r.ue("pps_tile_row_height_minus1", 2**16) + 1 for _ in range(rows)], p.ctbs_high)
    if (len(p.columns) - 1) * (len(p.rows) - 1) > MAX_TILES:
        raise FormatError(f"{len(p.columns) - 1}x{len(p.rows) - 1} tiles are beyond every level")


def _boundaries(sizes: list[int], total: int) -> list[int]:
    """The sizes given one after another, the last repeated to fill `total` (clause 6.5.1)."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    if ends[-1] > total:
        raise FormatError(f"tiles of {ends[-1]} CTUs do not fit {total}")
    while ends[-1] < total:
        ends.append(min(total, ends[-1] + sizes[-1]))
    return ends


def read_slices(r: Bits, p: SimpleNamespace) -> None:
    """Set `p.rect_slice_flag` and `p.slices`, the rectangular slices by their address (none for raster slices)."""
    across, down = len(p.columns) - 1, len(p.rows) - 1
    p.rect_slice_flag = True
    p.slices = [Rectangle(0, 0, across, down, None)]
    if p.no_pic_partition_flag:
        return
    if across * down > 1:
        r.skip(1)  # pps_loop_filter_across_tiles_enabled_flag
        p.rect_slice_flag = r.flag()
    one_slice = not p.rect_slice_flag or r.flag()
    if not p.rect_slice_flag:
        p.slices = []
    elif not one_slice:
        p.slices = _read_rectangles(r, p, across, down)
    if one_slice or len(p.slices) > 1:
        r.skip(1)  # pps_loop_filter_across_slices_enabled_flag


def _read_rectangles(r: Bits, p: SimpleNamespace, across: int, down: int) -> list[Rectangle]:
    count = r.ue("pps_num_slices_in_pic_minus1", min(p.ctbs_wide * p.ctbs_high, 1000) - 1) + 1
    deltas = count > 2 and r.flag()
    slices: list[Rectangle] = []
    tile, high = 0, 1
    while len(slices) < count - 1:
        x, y = tile % across, tile // across
        wide = r.ue("pps_slice_width_in_tiles_minus1", across - 1) + 1 if x != across - 1 else 1
        if y == down - 1:
            high = 1
        elif deltas or x == 0:
            high = r.ue("pps_slice_height_in_tiles_minus1", down - 1) + 1
        if x + wide > across or y + high > down:
            raise FormatError(f"slice {len(slices)} leaves the picture")
        tile_rows = p.rows[y + 1] - p.rows[y]
        if wide == high == 1 and tile_rows > 1:
            slices += _read_slices_in_tile(r, x, y, p.rows[y], tile_rows)
        else:
            slices.append(Rectangle(x, y, wide, high, None))
        if len(slices) < count:
            if deltas:
                tile += r.se("pps_tile_idx_delta_val", -MAX_TILES, MAX_TILES)
            else:
                tile += wide
                if tile % across == 0:
                    tile += (high - 1) * across
            if not 0 <= tile < across * down:
                raise FormatError(f"slice {len(slices)} begins at tile {tile} of {across * down}")
    if len(slices) < count:
        x, y = tile % across, tile // across
        slices.append(Rectangle(x, y, across - x, down - y, None))
    if len(slices) != count:
        raise FormatError(f"{len(slices)} slices lie where {count} were announced")
    return slices


def _read_slices_in_tile(r: Bits, x: int, y: int, top: int, height: int) -> list[Rectangle]:
    """Slices of whole CTU rows within one tile."""
    explicit = r.ue("pps_num_exp_slices_in_tile", height - 1)
    if explicit == 0:
        return [Rectangle(x, y, 1, 1, None)]
    heights = [r.ue("pps_exp_slice_height_in_ctus_minus1", height - 1) + 1 for _ in range(explicit)]
    ends = _boundaries(heights, height)
    return [Rectangle(x, y, 1, 1, (top + a, top + b)) for a, b in pairwise(ends)]


def slice_parts(p: SimpleNamespace, address: int, tiles: int) -> list[Rows]:
    """The tiles of one slice, or the part of a tile, in decoding order.

    `address` is sh_slice_address; raster slices have `tiles` tiles. Raises FormatError where it leaves the picture.
    """
    across, down = len(p.columns) - 1, len(p.rows) - 1
    if p.rect_slice_flag:
        s = p.slices[address]
        places = [(x, y) for y in range(s.y, s.y + s.high) for x in range(s.x, s.x + s.wide)]
        if s.rows:
            return [Rows(s.x, s.y, *s.rows)]
    else:
        if address + tiles > across * down:
            raise FormatError(f"a slice of {tiles} tiles from tile {address} leaves the picture")
        places = [(tile % across, tile // across) for tile in range(address, address + tiles)]
    return [Rows(x, y, p.rows[y], p.rows[y + 1]) for x, y in places]


def slice_ctus(p: SimpleNamespace, parts: list[Rows], wavefront: bool) -> npt.NDArray[np.int64]:
    """The CTUs of one slice in decoding order: an int64 array (n, 4), see the column names of this module.

    `parts` are those of `slice_parts`. `wavefront` is sps_entropy_coding_sync_enabled_flag: a substream then ends with
    every row of a tile.
    """
    ctus = np.concatenate([_tile_ctus(p, part, wavefront) for part in parts])
    ctus[-1, ENDS] = END_OF_SLICE
    return ctus


def _tile_ctus(p: SimpleNamespace, part: Rows, wavefront: bool) -> npt.NDArray[np.int64]:
    left, right = p.columns[part.x], p.columns[part.x + 1]
    ys, xs = np.mgrid[part.top : part.bottom, left:right]
    ctus = np.zeros((xs.size, 4), np.int64)
    ctus[:, ADDRESS] = (ys * p.ctbs_wide + xs).ravel()
    ctus[:, FIRST_IN_ROW] = (xs == left).ravel()
    if wavefront:
        ctus[:, ENDS] = (xs == right - 1).ravel() * END_OF_SUBSET
    ctus[-1, ENDS] = END_OF_TILE
    ctus[:, TILE] = part.y * (len(p.columns) - 1) + part.x
    return ctus
