"""The CTU grid of a picture, and windows with a halo of real neighbours."""

import numpy as np
import numpy.typing as npt

from codecnn.errors import ConfigError

IntArray = npt.NDArray[np.int64]


def ctu_grid(width: int, height: int, size: int) -> IntArray:
    """(n, 4) rows x, y, w, h in luma samples, in raster order; CTUs at the right and lower edge may be smaller."""
    if size < 1:
        raise ConfigError(f"CTU size must be positive, not {size}")
    y, x = np.meshgrid(np.arange(0, height, size), np.arange(0, width, size), indexing="ij")
    w, h = np.minimum(size, width - x), np.minimum(size, height - y)
    return np.stack([x.ravel(), y.ravel(), w.ravel(), h.ravel()], axis=1)


def cut(plane: npt.NDArray[np.generic], x: int, y: int, width: int, height: int) -> npt.NDArray[np.generic]:
    """The window of `plane` (h, w) with its upper left corner at (x, y), which may lie outside of it.

    Inside the picture these are the real samples; outside, the nearest sample of the edge is repeated.
    """
    rows, columns = plane.shape
    if x >= 0 and y >= 0 and x + width <= columns and y + height <= rows:
        return plane[y : y + height, x : x + width]
    inside_rows = np.clip(np.arange(y, y + height), 0, rows - 1)
    inside_columns = np.clip(np.arange(x, x + width), 0, columns - 1)
    return plane[np.ix_(inside_rows, inside_columns)]


def ctu_sums(plane: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Sum of a (h, w) plane over each CTU of the grid, (n,) in raster order; float64."""
    rows = np.add.reduceat(plane, np.arange(0, plane.shape[0], size), axis=0)
    return np.add.reduceat(rows, np.arange(0, plane.shape[1], size), axis=1).ravel()
