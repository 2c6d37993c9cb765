"""The CTU grid of a picture, and sums and means over it."""

from typing import Any

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


def block_sums(plane: npt.NDArray[Any], rows: IntArray, columns: IntArray) -> npt.NDArray[Any]:
    """Sums of a plane (h, w) over blocks that begin at `rows` and `columns`, both rising from 0: (rows, columns).

    A block reaches to the next one's first sample, or to the edge. Integers are summed in int64, floats in their own
    type: first down the rows of a block, then across. Sums of whole numbers are exact in float64 up to 2^53, so there
    the order does not matter; elsewhere it decides the last bit.
    """
    kind = np.int64 if plane.dtype.kind in "iub" else None
    return np.add.reduceat(np.add.reduceat(plane, rows, axis=0, dtype=kind), columns, axis=1)


def ctu_sums(plane: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Sum of a (h, w) plane over each CTU of the grid, (n,) in raster order; types as `block_sums` has them."""
    return block_sums(plane, *(np.arange(0, extent, size) for extent in plane.shape)).ravel()


def ctu_means(plane: npt.NDArray[Any], size: int) -> npt.NDArray[np.float64]:
    """Mean of a (h, w) plane over the part of each CTU that lies inside the picture, (n,) in raster order."""
    grid = ctu_grid(plane.shape[1], plane.shape[0], size)
    means: npt.NDArray[np.float64] = ctu_sums(plane, size) / (grid[:, 2] * grid[:, 3])
    return means
