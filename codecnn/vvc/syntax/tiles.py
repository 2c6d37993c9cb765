"""Subpictures, tiles and slices in CTUs (H.266 clauses 6.5.1, 7.3.2.4, 7.3.2.5, 7.4.3.4 and 7.4.3.5)."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.base.records import Record, Records, record_dtype
from codecnn.vvc.syntax.bitstream import Bits

NO_END, END_OF_SUBSET, END_OF_TILE, END_OF_SLICE = range(4)
"""Values of `SliceCtu.ends`: which terminating bin follows the CTU."""

MAX_TILES = 990
"""MaxTilesPerAu of level 6.3 (table A.1), the largest of all levels."""


class SliceCtu(Record):
    """CTU of a slice.

    Attributes:
        address: Place in the raster scan of the picture.
        first_in_row: 1 if it is the first of a row of CTUs in its tile.
        ends: What ends with it: NO_END, END_OF_SUBSET, END_OF_TILE or END_OF_SLICE.
        tile: Index of its tile.
    """

    address: int
    first_in_row: int
    ends: int
    tile: int


SLICE_CTU = record_dtype(SliceCtu)


class Subpicture(NamedTuple):
    """One subpicture, a rectangle of CTUs.

    Attributes:
        x: Column of its first CTU.
        y: Row of its first CTU.
        width: Width in CTUs.
        height: Height in CTUs.
        filtered: In-loop filters may cross its edges (sps_loop_filter_across_subpic_enabled_flag).
        treated_as_picture: Inter prediction treats its edges as those of a picture (sps_subpic_treated_as_pic_flag).
    """

    x: int
    y: int
    width: int
    height: int
    filtered: bool
    treated_as_picture: bool = True


def read_subpictures(r: Bits, count: int, wide: int, high: int) -> tuple[Subpicture, ...]:
    """Read the subpictures of an SPS (clauses 7.3.2.4 and 7.4.3.4).

    Args:
        r: Reader at sps_independent_subpics_flag.
        count: Number of subpictures, at least 2.
        wide: Width of the picture in CTUs.
        high: Height of the picture in CTUs.

    Returns:
        The subpictures by their index.

    Raises:
        FormatError: A subpicture reaches past the picture, or the data ends.
    """
    independent, same_size = r.flag(), r.flag()
    subpictures: list[Subpicture] = []
    across, down = (wide - 1).bit_length(), (high - 1).bit_length()
    for i in range(count):
        filtered, treated = not independent, True
        if same_size and i > 0:
            first = subpictures[0]
            columns = wide // first.width
            x, y, w, h = i % columns * first.width, i // columns * first.height, first.width, first.height
        else:
            x, y = (r.u(across), r.u(down)) if i > 0 else (0, 0)
            w = r.u(across) + 1 if i < count - 1 else wide - x
            h = r.u(down) + 1 if i < count - 1 else high - y
        if not independent:
            treated, filtered = r.flag(), r.flag()
        if x + w > wide or y + h > high:
            raise FormatError(f"subpicture {i} reaches past the picture")
        subpictures.append(Subpicture(x, y, w, h, filtered, treated))
    return tuple(subpictures)


class Rectangle(NamedTuple):
    """A rectangular slice.

    Attributes:
        x: Column of its first tile.
        y: Row of its first tile.
        width: Width in tiles.
        height: Height in tiles.
        rows: Rows of CTUs (first, last + 1) if the slice is a part of one tile, else None.
    """

    x: int
    y: int
    width: int
    height: int
    rows: tuple[int, int] | None


class Rows(NamedTuple):
    """A tile, or some of its rows of CTUs.

    Attributes:
        x: Column of the tile.
        y: Row of the tile.
        top: First row of CTUs in the picture.
        bottom: Last row of CTUs in the picture + 1.
    """

    x: int
    y: int
    top: int
    bottom: int


@dataclass(frozen=True)
class TileGrid:
    """Tiles and slices of a picture.

    Attributes:
        columns: Column boundaries in CTUs, n + 1 ascending numbers from 0 for n columns of tiles.
        rows: Row boundaries in CTUs.
        slices: Rectangular slices by their address (pps_rect_slice_flag), None if slices are runs of tiles in raster
            order.
        filter_across_tiles: In-loop filters may cross tile boundaries.
        filter_across_slices: In-loop filters may cross slice boundaries.
    """

    columns: Sequence[int]
    rows: Sequence[int]
    slices: Sequence[Rectangle] | None
    filter_across_tiles: bool = True
    filter_across_slices: bool = True

    @property
    def num_columns(self) -> int:
        """Number of columns of tiles, NumTileColumns."""
        return len(self.columns) - 1

    @property
    def num_rows(self) -> int:
        """Number of rows of tiles, NumTileRows."""
        return len(self.rows) - 1


def read_tile_grid(
    r: Bits, width: int, height: int, ctb_log2_size_y: int, partitioned: bool, subpictures: Sequence[Subpicture]
) -> TileGrid:
    """Read the tiles and slices of a PPS (clauses 7.3.2.5 and 7.4.3.5).

    Args:
        r: Reader at pps_log2_ctu_size_minus5.
        width: Width of the picture in luma samples.
        height: Height of the picture in luma samples.
        ctb_log2_size_y: log2 of the CTU size in luma samples.
        partitioned: Opposite of pps_no_pic_partition_flag; if False, there is one tile and one slice.
        subpictures: Subpictures of the SPS.

    Returns:
        The tiles and slices.

    Raises:
        FormatError: Tiles or slices do not fit the picture, or the data ends.
    """
    ctbs_wide, ctbs_high = ceil_div(width, 1 << ctb_log2_size_y), ceil_div(height, 1 << ctb_log2_size_y)
    if not partitioned:
        return TileGrid((0, ctbs_wide), (0, ctbs_high), (Rectangle(0, 0, 1, 1, None),))
    if r.u(2) + 5 != ctb_log2_size_y:
        raise FormatError("the PPS has another CTU size than the SPS")
    columns_given = r.ue("pps_num_exp_tile_columns_minus1", ctbs_wide - 1) + 1
    rows_given = r.ue("pps_num_exp_tile_rows_minus1", ctbs_high - 1) + 1
    columns = _boundaries([r.ue("pps_tile_column_width_minus1", 2**16) + 1 for _ in range(columns_given)], ctbs_wide)
    rows = _boundaries([r.ue("pps_tile_row_height_minus1", 2**16) + 1 for _ in range(rows_given)], ctbs_high)
    grid = TileGrid(columns, rows, None)
    if grid.num_columns * grid.num_rows > MAX_TILES:
        raise FormatError(f"{grid.num_columns}x{grid.num_rows} tiles exceed the limit of every level")
    rectangular = True
    if grid.num_columns * grid.num_rows > 1:
        grid = replace(grid, filter_across_tiles=r.flag())
        rectangular = r.flag()
    one_slice = not rectangular or r.flag()  # pps_single_slice_per_subpic_flag
    if rectangular:
        whole = [Rectangle(0, 0, grid.num_columns, grid.num_rows, None)]
        if one_slice and len(subpictures) > 1:
            whole = [_slice_of_subpicture(grid, subpicture) for subpicture in subpictures]
        grid = replace(grid, slices=whole if one_slice else _read_rectangles(r, grid))
    if one_slice or (grid.slices and len(grid.slices) > 1):
        grid = replace(grid, filter_across_slices=r.flag())
    return grid


def _slice_of_subpicture(grid: TileGrid, subpicture: Subpicture) -> Rectangle:
    """Derive the single slice of a subpicture: whole tiles, or some rows of CTUs of one tile."""
    top, bottom = subpicture.y, subpicture.y + subpicture.height
    x, y = bisect_right(grid.columns, subpicture.x) - 1, bisect_right(grid.rows, top) - 1
    wide = bisect_left(grid.columns, subpicture.x + subpicture.width) - x
    high = bisect_left(grid.rows, bottom) - y
    if x + wide > grid.num_columns or y + high > grid.num_rows:
        raise FormatError("a subpicture reaches past the picture")
    whole_tiles = (top, bottom) == (grid.rows[y], grid.rows[y + high])
    return Rectangle(x, y, wide, high, None if whole_tiles else (top, bottom))


def slices_of_subpictures(grid: TileGrid, subpictures: Sequence[Subpicture]) -> list[list[int]]:
    """List the numbers of the rectangular slices of each subpicture (clause 6.5.1)."""
    if len(subpictures) == 1:
        return [list(range(len(grid.slices or ())))]
    slices: list[list[int]] = [[] for _ in subpictures]
    for number, part in enumerate(grid.slices or ()):
        x, y = grid.columns[part.x], part.rows[0] if part.rows else grid.rows[part.y]
        for index, s in enumerate(subpictures):
            if s.x <= x < s.x + s.width and s.y <= y < s.y + s.height:
                slices[index].append(number)
                break
    return slices


def _boundaries(sizes: list[int], total: int) -> list[int]:
    """Accumulate sizes to boundaries; the last size is repeated to fill `total` (clause 6.5.1)."""
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] > total:
        raise FormatError(f"tiles or slices of {ends[-1]} CTUs do not fit into {total}")
    while ends[-1] < total:
        ends.append(min(total, ends[-1] + sizes[-1]))
    return ends


def _read_rectangles(r: Bits, grid: TileGrid) -> list[Rectangle]:
    across, down = grid.num_columns, grid.num_rows
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
            raise FormatError(f"slice {len(slices)} reaches past the picture")
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
        raise FormatError(f"the tiles hold {len(slices)} slices, but the PPS announces {count}")
    return slices


def _read_slices_in_tile(r: Bits, x: int, y: int, top: int, height: int) -> list[Rectangle]:
    """Read the slices within one tile, each of whole rows of CTUs."""
    explicit = r.ue("pps_num_exp_slices_in_tile", height - 1)
    if explicit == 0:
        return [Rectangle(x, y, 1, 1, None)]
    heights = [r.ue("pps_exp_slice_height_in_ctus_minus1", height - 1) + 1 for _ in range(explicit)]
    ends = _boundaries(heights, height)
    return [Rectangle(x, y, 1, 1, (top + a, top + b)) for a, b in pairwise(ends)]


def slice_parts(grid: TileGrid, address: int, tiles: int) -> list[Rows]:
    """List the tiles of one slice, or the part of a tile that it is, in decoding order.

    Args:
        grid: Tiles and slices of the picture.
        address: sh_slice_address.
        tiles: Number of tiles of a raster-scan slice; not used for rectangular slices.

    Returns:
        The tiles, or one entry for a part of a tile.

    Raises:
        FormatError: The slice reaches past the picture.
    """
    if grid.slices is not None:
        s = grid.slices[address]
        places = [(x, y) for y in range(s.y, s.y + s.height) for x in range(s.x, s.x + s.width)]
        if s.rows:
            return [Rows(s.x, s.y, *s.rows)]
    else:
        if address + tiles > grid.num_columns * grid.num_rows:
            raise FormatError(f"a slice of {tiles} tiles from tile {address} reaches past the picture")
        places = [(tile % grid.num_columns, tile // grid.num_columns) for tile in range(address, address + tiles)]
    return [Rows(x, y, grid.rows[y], grid.rows[y + 1]) for x, y in places]


def slice_ctus(grid: TileGrid, parts: list[Rows], wavefront: bool) -> Records:
    """List the CTUs of one slice in decoding order.

    Args:
        grid: Tiles and slices of the picture.
        parts: Tiles of the slice, as `slice_parts` returns them.
        wavefront: sps_entropy_coding_sync_enabled_flag: a substream ends with every row of CTUs of a tile.

    Returns:
        The CTUs, elements of type SLICE_CTU, shape (n,).
    """
    ctus = np.concatenate([_tile_ctus(grid, part, wavefront) for part in parts])
    ctus[-1].ends = END_OF_SLICE
    return ctus


def _tile_ctus(grid: TileGrid, part: Rows, wavefront: bool) -> Records:
    left, right = grid.columns[part.x], grid.columns[part.x + 1]
    ys, xs = np.mgrid[part.top : part.bottom, left:right]
    ctus = np.zeros(xs.size, SLICE_CTU)
    ctus["address"] = (ys * grid.columns[-1] + xs).ravel()
    ctus["first_in_row"] = (xs == left).ravel()
    if wavefront:
        ctus["ends"] = (xs == right - 1).ravel() * END_OF_SUBSET
    ctus[-1].ends = END_OF_TILE
    ctus["tile"] = part.y * grid.num_columns + part.x
    return ctus
