"""Planes of block statistics: a column painted by sample, the depths of CTUs, and 4x4 cells for networks."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from codecnn.codec.blocks.table import ALL_COLUMNS, LUMA, UNKNOWN, BlockTable
from codecnn.errors import TableError
from codecnn.planes import BLOCK_PLANES, BLOCK_SIZE, CELL_PLANES, TRANSFORM_PLANES, CellArray
from codecnn.quality import ctu_means

LEFT_EDGE, TOP_EDGE = 1, 2
"""Bits of `partition`: a CU begins at the left or the top side of the cell."""

Cells = npt.NDArray[np.int32]


def block_planes(
    table: BlockTable, pocs: Sequence[int], width: int, height: int, names: Sequence[str] = BLOCK_PLANES
) -> npt.NDArray[np.int8]:
    """What the luma CUs of the pictures `pocs` say of each 4x4 cell: (pictures, names, ceil(height/4), ceil(width/4)).

    `names` are of BLOCK_PLANES and TRANSFORM_PLANES. A cell that no CU covers, or a value that the table does not
    have, is -1; CUs are cut at the picture's edge. `partition` is LEFT_EDGE | TOP_EDGE where the cell to the left or
    above is of another CU; the border of the picture is no edge, as no filter works across it.

    Raises TableError for a CU that does not lie on the 4x4 grid, a value beyond 8 bit, a picture without samples, and
    one of TRANSFORM_PLANES that the table does not tell.
    """
    untold = [name for name in names if name in TRANSFORM_PLANES and not table.tells(name)]
    if untold:
        raise TableError(f"the table of CUs does not tell {', '.join(untold)}, as VVC bitstreams do")
    if width < 1 or height < 1:
        raise TableError(f"a picture of {width}x{height} has no blocks")
    rows, columns = -(-height // BLOCK_SIZE), -(-width // BLOCK_SIZE)
    planes = np.empty((len(pocs), len(names), rows, columns), np.int8)
    luma = table.channel == LUMA
    for picture, poc in zip(planes, pocs, strict=True):
        cus = np.flatnonzero(luma & (table.poc == poc))
        owner = _paint_numbers(np.array([table.x[cus], table.y[cus], table.w[cus], table.h[cus]]), poc, rows, columns)
        for plane, name in zip(picture, names, strict=True):
            if name == "partition":
                plane[:] = _partition(owner)
            else:
                # The last value is what -1, a cell of no CU, picks.
                plane[:] = np.append(_int8_values(getattr(table, name)[cus], poc, name), np.int8(UNKNOWN))[owner]
    return planes


def _paint_numbers(cus: Cells, poc: int, rows: int, columns: int) -> Cells:
    """The number of the CU, of `cus` (4, n): x, y, w, h, that each cell belongs to, the later one where CUs overlap.

    -1 where there is none.
    """
    places = cus.astype(np.int64)
    off_grid = (places % BLOCK_SIZE).any(axis=0)
    if off_grid.any():
        x, y, w, h = places[:, np.flatnonzero(off_grid)[0]].tolist()
        raise TableError(f"the CU of {w}x{h} at ({x}, {y}) of POC {poc} does not lie on the grid of 4x4 blocks")
    return cast(Cells, _painted(places // BLOCK_SIZE, np.arange(cus.shape[1]), np.full((rows, columns), -1, np.int32)))


def _painted(places: npt.NDArray[np.int64], values: npt.NDArray[np.integer], plane: npt.NDArray[Any]) -> Any:
    """`plane` with each of `values` over its rectangle of `places`, (4, n): x, y, w, h, cut at the plane's edges."""
    x, y, w, h = places
    # A negative place would count from the far edge.
    left, top = np.maximum(x, 0).tolist(), np.maximum(y, 0).tolist()
    right, bottom = np.maximum(x + w, 0).tolist(), np.maximum(y + h, 0).tolist()
    for x0, y0, x1, y1, value in zip(left, top, right, bottom, values.tolist(), strict=True):
        plane[y0:y1, x0:x1] = value
    return plane


def _int8_values(values: npt.NDArray[np.int32], poc: int, name: str) -> npt.NDArray[np.int8]:
    limits = np.iinfo(np.int8)
    wide = values[(values < limits.min) | (values > limits.max)]
    if wide.size:
        raise TableError(f"{name} of POC {poc} has the value {wide[0]}, beyond 8 bit")
    return values.astype(np.int8)


def _partition(owner: Cells) -> Cells:
    edges = np.zeros_like(owner)
    edges[:, 1:] |= LEFT_EDGE * (owner[:, 1:] != owner[:, :-1])
    edges[1:] |= TOP_EDGE * (owner[1:] != owner[:-1])
    return np.where(owner < 0, UNKNOWN, edges)


def rasterise(table: BlockTable, poc: int, column: str, width: int, height: int) -> npt.NDArray[np.int16]:
    """The luma CUs of picture `poc` painted with `column`: an int16 plane of shape (height, width).

    Samples that no CU covers are -1; what reaches past the picture's edge is cut off.
    Raises TableError for an unknown column or a value that is no int16.
    """
    if column not in ALL_COLUMNS:
        raise TableError(f"block statistics have no column {column!r}: one of {', '.join(ALL_COLUMNS)}")
    rows = np.flatnonzero((table.poc == poc) & (table.channel == LUMA))
    values = getattr(table, column)[rows]
    limits = np.iinfo(np.int16)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise TableError(f"column {column} of POC {poc} holds values beyond 16 bit")
    # Sums of places in int64: a hostile x + w must not wrap.
    places = np.array([getattr(table, name)[rows] for name in ("x", "y", "w", "h")], np.int64)
    return cast(npt.NDArray[np.int16], _painted(places, values, np.full((height, width), UNKNOWN, np.int16)))


def ctu_depths(
    table: BlockTable, poc: int, width: int, height: int, ctu_size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    """Mean and largest luma `depth` of every cell of a CTU grid: two arrays of shape (CTUs,) in raster order.

    The mean is weighted by area over the part of the cell inside the picture. Cells need not be the codec's own CTUs:
    a CU that crosses cells counts in each with the area it has there. Raises TableError where a sample has no depth.
    """
    if ctu_size < 1 or width < 1 or height < 1:
        raise TableError(f"no CTU grid of size {ctu_size} fits a picture of {width}x{height}")
    plane = rasterise(table, poc, "depth", width, height)
    unknown = int(np.count_nonzero(plane < 0))
    if unknown:
        raise TableError(f"block statistics tell no depth for {unknown} of {plane.size} luma samples of POC {poc}")
    rows, columns = np.arange(0, height, ctu_size), np.arange(0, width, ctu_size)
    largest = np.maximum.reduceat(np.maximum.reduceat(plane, columns, axis=1), rows, axis=0)
    return ctu_means(plane, ctu_size), largest.ravel()


def drawn_cells(table: BlockTable, poc: int, width: int, height: int, names: Iterable[str]) -> dict[str, CellArray]:
    """Draw planes of the coding tree of one picture.

    Args:
        table: CUs of the coded pictures.
        poc: Picture order count of the picture.
        width: Width of the picture in luma samples.
        height: Height of the picture in luma samples.
        names: Planes to draw, of `codecnn.planes.TREE_PLANES`.

    Returns:
        Planes by name, int8, shape (ceil(height / 4), ceil(width / 4)).
    """
    wanted = {name: CELL_PLANES[name] for name in names}
    columns = list(dict.fromkeys(column for plane in wanted.values() for column in plane.columns))
    if not columns:
        return {}
    cells = dict(zip(columns, block_planes(table, [poc], width, height, columns)[0], strict=True))
    return {name: plane.combine(cells.__getitem__) for name, plane in wanted.items()}
