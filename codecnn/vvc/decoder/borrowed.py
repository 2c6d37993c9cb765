"""Arrays without reference counts, for compiled functions that pass arrays on to small functions.

Numba counts the references to an array at calls, which takes longer than the work of a function for a few samples. The
entry points therefore exchange their arrays for views without a count; their callers keep the arrays alive.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from codecnn.base.compiled import compiled, pointer
from codecnn.base.records import Records


@compiled
def borrowed_samples(array: npt.NDArray[np.int32]) -> Any:
    """Return a view without reference count of an int32 array, which must be contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return carray(pointer(array.ctypes.data), array.shape, np.int32)


@compiled
def borrowed_decoded(array: npt.NDArray[np.uint16]) -> Any:
    """Return a view without reference count of a uint16 array, which must be contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return carray(pointer(array.ctypes.data), array.shape, np.uint16)


@compiled
def borrowed_records(array: Records, dtype: np.dtype[Any]) -> Any:
    """Return a view without reference count of an array of records of type `dtype`, which must be contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return carray(pointer(array.ctypes.data), array.shape, dtype)
