"""Memory of the planes of pictures, which is used again.

The system clears each page of fresh memory when it is first touched, which would take a tenth of the time of decoding.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Key = tuple[tuple[int, ...], str]


class PlaneMemory:
    """Arrays that earlier pictures do not need any more, by shape and type."""

    def __init__(self) -> None:
        """Begin without arrays."""
        self._free: dict[Key, list[npt.NDArray[Any]]] = {}

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array with any content."""
        free = self._free.get((shape, np.dtype(dtype).str), [])
        return free.pop() if free else np.empty(shape, dtype)

    def give_back(self, arrays: list[npt.NDArray[Any]]) -> None:
        """Take back arrays that nobody uses any more."""
        for array in arrays:
            self._free.setdefault((array.shape, array.dtype.str), []).append(array)

    def clear(self) -> None:
        """Release the arrays, whose shapes may not occur again."""
        self._free.clear()
