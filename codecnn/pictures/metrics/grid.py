"""The CTU grid of a picture, and sums and means over its blocks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import ConfigError

IntArray = npt.NDArray[np.int64]


def ctu_grid(width: int, height: int, size: int) -> IntArray:
    """List the CTUs of a picture in raster order; those at the right and lower edge may be smaller.

    Args:
        width: Picture width in luma samples.
        height: Picture height in luma samples.
        size: CTU width and height in luma samples.

    Returns:
        Rows x, y, w, h in luma samples, shape (n, 4).

    Raises:
        ConfigError: The CTU size is not positive.
    """
    if size < 1:
        raise ConfigError(f"CTU size must be positive, not {size}")
    y, x = np.meshgrid(np.arange(0, height, size), np.arange(0, width, size), indexing="ij")
    w, h = np.minimum(size, width - x), np.minimum(size, height - y)
    return np.stack([x.ravel(), y.ravel(), w.ravel(), h.ravel()], axis=1)


def block_sums(plane: npt.NDArray[Any], rows: IntArray, columns: IntArray) -> npt.NDArray[Any]:
    """Sum a plane over the blocks of a grid.

    A block ends at the first sample of the next one, or at the edge. Sums of whole numbers are exact in float64 up to
    2^53; other float sums depend on the order, which is first down the rows of a block, then across.

    Args:
        plane: Values of shape (h, w).
        rows: First row of each row of blocks, rising from 0, shape (m,).
        columns: First column of each column of blocks, rising from 0, shape (n,).

    Returns:
        Sums of shape (m, n): int64 for integers and bool, the type of the plane for floats.
    """
    kind = np.int64 if plane.dtype.kind in "iub" else None
    return np.add.reduceat(np.add.reduceat(plane, rows, axis=0, dtype=kind), columns, axis=1)


def ctu_sums(plane: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Sum a plane over each CTU.

    Args:
        plane: Values of shape (h, w).
        size: CTU width and height in samples of the plane.

    Returns:
        Sums of shape (n,) in raster order, with the type of `block_sums`.
    """
    return block_sums(plane, *(np.arange(0, extent, size) for extent in plane.shape)).ravel()


def ctu_means(plane: npt.NDArray[Any], size: int) -> npt.NDArray[np.float64]:
    """Average a plane over the part of each CTU that is inside the picture.

    Args:
        plane: Values of shape (h, w).
        size: CTU width and height in samples of the plane.

    Returns:
        Means of shape (n,) in raster order.
    """
    grid = ctu_grid(plane.shape[1], plane.shape[0], size)
    means: npt.NDArray[np.float64] = ctu_sums(plane, size) / (grid[:, 2] * grid[:, 3])
    return means
