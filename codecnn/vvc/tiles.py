"""Tiles and slices in CTUs (H.266 clauses 6.5.1, 7.3.2.5 and 7.4.3.5)."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits
from codecnn.vvc.subpictures import Subpicture

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


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a picture by their boundaries in CTUs, n + 1 ascending numbers from 0 for n tiles, and its slices.

    `slices` are the rectangular slices by their address (pps_rect_slice_flag), None where slices are runs of tiles in
    raster order. The loop filters may cross the boundaries of tiles and of slices, or not.
    """

    columns: Sequence[int]
    rows: Sequence[int]
    slices: Sequence[Rectangle] | None
    filter_across_tiles: bool = True
    filter_across_slices: bool = True

    @property
    def across(self) -> int:
        """NumTileColumns."""
        return len(self.columns) - 1

    @property
    def down(self) -> int:
        """NumTileRows."""
        return len(self.rows) - 1


def read_tile_grid(
    r: Bits, width: int, height: int, ctb_log2_size_y: int, partitioned: bool, subpictures: Sequence[Subpicture]
) -> TileGrid:
    """Tiles and slices of a PPS for pictures of `width` x `height` luma samples (clause 7.3.2.5).

    `partitioned` is the opposite of pps_no_pic_partition_flag: else there is one tile and one slice.
    """
    ctbs_wide, ctbs_high = -(-width >> ctb_log2_size_y), -(-height >> ctb_log2_size_y)
    if not partitioned:
        return TileGrid((0, ctbs_wide), (0, ctbs_high), (Rectangle(0, 0, 1, 1, None),))
    if r.u(2) + 5 != ctb_log2_size_y:
        raise FormatError("PPS and SPS differ in the CTU size")
    columns_given = r.ue("pps_num_exp_tile_columns_minus1", ctbs_wide - 1) + 1
    rows_given = r.ue("pps_num_exp_tile_rows_minus1", ctbs_high - 1) + 1
    columns = _boundaries([r.ue("pps_tile_column_width_minus1", 2**16) + 1 for _ in range(columns_given)], ctbs_wide)
    rows = _boundaries([r.ue("pps_tile_row_height_minus1", 2**16) + 1 for _ in range(rows_given)], ctbs_high)
    grid = TileGrid(columns, rows, None)
    if grid.across * grid.down > MAX_TILES:
        raise FormatError(f"{grid.across}x{grid.down} tiles are beyond every level")
    rectangular = True
    if grid.across * grid.down > 1:
        grid = replace(grid, filter_across_tiles=r.flag())
        rectangular = r.flag()
    one_slice = not rectangular or r.flag()  # pps_single_slice_per_subpic_flag
    if rectangular:
        whole = [Rectangle(0, 0, grid.across, grid.down, None)]
        if one_slice and len(subpictures) > 1:
            whole = [_slice_of_subpicture(grid, one) for one in subpictures]
        grid = replace(grid, slices=whole if one_slice else _read_rectangles(r, grid))
    if one_slice or (grid.slices and len(grid.slices) > 1):
        grid = replace(grid, filter_across_slices=r.flag())
    return grid


def _slice_of_subpicture(grid: TileGrid, one: Subpicture) -> Rectangle:
    """The one slice that a subpicture is: whole tiles, or rows of CTUs of one."""
    x, y = bisect_right(grid.columns, one.x) - 1, bisect_right(grid.rows, one.y) - 1
    wide = bisect_left(grid.columns, one.x + one.wide) - x
    high = bisect_left(grid.rows, one.y + one.high) - y
    if x + wide > grid.across or y + high > grid.down:
        raise FormatError("a subpicture leaves the picture")
    whole = (one.y, one.y + one.high) == (grid.rows[y], grid.rows[y + high])
    return Rectangle(x, y, wide, high, None if whole else (one.y, one.y + one.high))


def slices_of_subpictures(grid: TileGrid, subpictures: Sequence[Subpicture]) -> list[list[int]]:
    """The numbers of the rectangular slices of each subpicture (clause 6.5.1)."""
    if len(subpictures) == 1:
        return [list(range(len(grid.slices or ())))]
    found: list[list[int]] = [[] for _ in subpictures]
    for number, one in enumerate(grid.slices or ()):
        x, y = grid.columns[one.x], one.rows[0] if one.rows else grid.rows[one.y]
        for index, s in enumerate(subpictures):
            if s.x <= x < s.x + s.wide and s.y <= y < s.y + s.high:
                found[index].append(number)
                break
    return found


def _boundaries(sizes: list[int], total: int) -> list[int]:
    """The sizes given one after another, the last repeated to fill `total` (clause 6.5.1)."""
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] > total:
        raise FormatError(f"tiles of {ends[-1]} CTUs do not fit {total}")
    while ends[-1] < total:
        ends.append(min(total, ends[-1] + sizes[-1]))
    return ends


def _read_rectangles(r: Bits, grid: TileGrid) -> list[Rectangle]:
    across, down = grid.across, grid.down
    count = r.ue("pps_num_slices_in_pic_minus1", min(grid.columns[-1] * grid.rows[-1], 1000) - 1) + 1
    deltas = count > 2 and r.flag()  # pps_tile_idx_delta_present_flag
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
        tile_rows = grid.rows[y + 1] - grid.rows[y]
        if wide == high == 1 and tile_rows > 1:
            slices += _read_slices_in_tile(r, x, y, grid.rows[y], tile_rows)
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


def slice_parts(grid: TileGrid, address: int, tiles: int) -> list[Rows]:
    """The tiles of one slice, or the part of a tile, in decoding order.

    `address` is sh_slice_address; raster slices have `tiles` tiles. Raises FormatError where it leaves the picture.
    """
    if grid.slices is not None:
        s = grid.slices[address]
        places = [(x, y) for y in range(s.y, s.y + s.high) for x in range(s.x, s.x + s.wide)]
        if s.rows:
            return [Rows(s.x, s.y, *s.rows)]
    else:
        if address + tiles > grid.across * grid.down:
            raise FormatError(f"a slice of {tiles} tiles from tile {address} leaves the picture")
        places = [(tile % grid.across, tile // grid.across) for tile in range(address, address + tiles)]
    return [Rows(x, y, grid.rows[y], grid.rows[y + 1]) for x, y in places]


def slice_ctus(grid: TileGrid, parts: list[Rows], wavefront: bool) -> npt.NDArray[np.int64]:
    """The CTUs of one slice in decoding order: an int64 array (n, 4), see the column names of this module.

    `parts` are those of `slice_parts`. `wavefront` is sps_entropy_coding_sync_enabled_flag: a substream then ends with
    every row of a tile.
    """
    ctus = np.concatenate([_tile_ctus(grid, part, wavefront) for part in parts])
    ctus[-1, ENDS] = END_OF_SLICE
    return ctus


def _tile_ctus(grid: TileGrid, part: Rows, wavefront: bool) -> npt.NDArray[np.int64]:
    left, right = grid.columns[part.x], grid.columns[part.x + 1]
    ys, xs = np.mgrid[part.top : part.bottom, left:right]
    ctus = np.zeros((xs.size, 4), np.int64)
    ctus[:, ADDRESS] = (ys * grid.columns[-1] + xs).ravel()
    ctus[:, FIRST_IN_ROW] = (xs == left).ravel()
    if wavefront:
        ctus[:, ENDS] = (xs == right - 1).ravel() * END_OF_SUBSET
    ctus[-1, ENDS] = END_OF_TILE
    ctus[:, TILE] = part.y * grid.across + part.x
    return ctus
