"""Temporal motion vector prediction from the collocated picture (H.266 clauses 8.5.2.11, 8.5.2.12 and 8.5.2.15).

`stored_motion` is plain NumPy and runs once a picture; the other functions are compiled.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.motion_candidates import reference


def stored_motion(f: Frame, lists: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int32]:
    """Return the motion of a finished picture in the form that later pictures predict from (8.5.2.11, 8.5.2.15).

    It is that of the upper left 4x4 samples of every 8x8 samples, with vectors rounded to six significant bits.

    Args:
        f: State of the picture after its last coding unit.
        lists: For each slice of the picture a copy of f.p[LISTS_OF_REFERENCES :][: 2 * 16 * REFERENCE], whose POCs and
            long-term flags are kept.

    Returns:
        Planes STORED_*, shape (STORED, ceil(rows / 2), ceil(columns / 2)), int32.
    """
    motion = f.motion[:, ::2, ::2]
    slices = np.maximum(f.known[fr.LUMA_REGION, ::2, ::2] - 1, 0) // fr.SLICE_REGIONS
    entries = np.stack([np.asarray(numbers).reshape(2, 16, fr.REFERENCE) for numbers in lists])
    out = np.zeros((fr.STORED, *motion.shape[1:]), np.int32)
    for which in range(2):
        index = motion[fr.REF_0 + which]
        used = index >= 0
        entry = entries[slices, which, np.where(used, index, 0)]
        for axis in range(2):
            vector = compressed(motion[fr.TEMPORAL_X0 + 2 * which + axis])
            out[fr.STORED_X0 + 2 * which + axis] = np.where(used, vector, 0)
        out[fr.STORED_POC_0 + which] = np.where(used, entry[..., fr.REF_POC], 0)
        out[fr.STORED_FLAGS] |= np.where(used, 1 << which | (entry[..., fr.REF_LONG_TERM] << (2 + which)), 0)
    return out


def compressed(vector: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Round components of vectors to six significant bits (8.5.2.15)."""
    magnitude = (vector ^ (vector >> 17)) | 31
    shift = np.frexp(magnitude.astype(np.float64))[1].astype(np.int32) - 5
    rounded: npt.NDArray[np.int32] = (vector + ((1 << shift) >> 2)) & ((-1 << shift) >> 1)
    return rounded


@compiled
def scaled(value: int, factor: int) -> int:
    """Scale a component of a vector by distScaleFactor (formula 558)."""
    product = value * factor
    return clip((product + 128 - int(product >= 0)) >> 8, -131072, 131071)


@compiled
def scale_factor(current: int, other: int) -> int:
    """Derive distScaleFactor from the POC distances of the current and the other vector; `other` must not be 0."""
    tb, td = clip(current, -128, 127), clip(other, -128, 127)
    tx = (16384 + (abs(td) >> 1)) // abs(td)
    return clip((tb * (tx if td > 0 else -tx) + 32) >> 6, -4096, 4095)


@compiled
def peek_stored(f: Frame, plane: int, row: int, column: int) -> int:
    """Return the value of a plane of `Frame.collocated` in a cell."""
    return np.int64(f.collocated[plane, row, column])  # type: ignore[return-value]


@compiled
def collocated_vector(f: Frame, which: int, index: int, x: int, y: int, subblock: bool) -> bool:
    """Derive a vector from the collocated picture (8.5.2.12).

    Args:
        f: State of the picture; the vector is put at p[VECTOR].
        which: List of the reference picture.
        index: Index of the reference picture.
        x: Column of the collocated luma sample, not negative.
        y: Row of the collocated luma sample, not negative.
        subblock: The vector is for temporal subblocks (sbFlag).

    Returns:
        True if there is a vector.
    """
    p = f.p
    row, column = y >> 3, x >> 3
    if row >= f.collocated.shape[1] or column >= f.collocated.shape[2]:
        return False
    flags = peek_stored(f, fr.STORED_FLAGS, row, column)
    if flags & 3 == 0:
        return False
    source = which
    if not p[fr.NO_BACKWARD] and not subblock:
        source = 1 - p[fr.COLLOCATED_LIST]
    if not flags >> source & 1:
        if subblock and not p[fr.NO_BACKWARD]:
            return False
        source = 1 - source
    entry = reference(which, index)
    long_term = p[entry + fr.REF_LONG_TERM]
    if long_term != flags >> (2 + source) & 1:
        return False
    mv_x = peek_stored(f, fr.STORED_X0 + 2 * source, row, column)
    mv_y = peek_stored(f, fr.STORED_Y0 + 2 * source, row, column)
    collocated = reference(p[fr.COLLOCATED_LIST], p[fr.COLLOCATED_ENTRY])
    distance = p[collocated + fr.REF_POC] - peek_stored(f, fr.STORED_POC_0 + source, row, column)
    current = p[fr.POC] - p[entry + fr.REF_POC]
    if not long_term and distance != current:
        if distance == 0:
            return False
        factor = scale_factor(current, distance)
        mv_x, mv_y = scaled(mv_x, factor), scaled(mv_y, factor)
    p[fr.VECTOR], p[fr.VECTOR + 1] = clip(mv_x, -131072, 131071), clip(mv_y, -131072, 131071)
    return True


@compiled
def bottom_right_vector(f: Frame, which: int, index: int) -> bool:
    """Derive the temporal vector of the sample to the lower right of the unit, at p[VECTOR]; return True if it exists.

    That sample must lie in the same row of CTUs and in the picture or subpicture (8.5.2.11).
    """
    p = f.p
    top = p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    x = p[fr.MOTION_OF_UNIT + fr.UNIT_X] + p[fr.MOTION_OF_UNIT + fr.UNIT_W]
    y = top + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    if y >> p[fr.LOG2_CTU] != top >> p[fr.LOG2_CTU] or x >= p[fr.SUBPICTURE_RIGHT] or y >= p[fr.SUBPICTURE_BOTTOM]:
        return False
    return bool(collocated_vector(f, which, index, x, y, False))


@compiled
def temporal_vector(f: Frame, which: int, index: int) -> bool:
    """Derive the temporal vector predictor of the unit (8.5.2.11), at p[VECTOR]; return True if it exists."""
    p = f.p
    if bottom_right_vector(f, which, index):
        return True
    x = p[fr.MOTION_OF_UNIT + fr.UNIT_X] + (p[fr.MOTION_OF_UNIT + fr.UNIT_W] >> 1)
    y = p[fr.MOTION_OF_UNIT + fr.UNIT_Y] + (p[fr.MOTION_OF_UNIT + fr.UNIT_H] >> 1)
    return bool(collocated_vector(f, which, index, x, y, False))
