"""Temporal motion vector prediction from the collocated picture (H.266 clauses 8.5.2.11, 8.5.2.12 and 8.5.2.15).

`stored_motion` runs once a picture.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled, compiled_entry, compiled_once, source_digest
from codecnn.base.records import Records
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.cells import COLLOCATED_CELL, CollocatedCell, MotionCell, int64
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.syntax import COMPILATION, log2
from codecnn.vvc.syntax.log import MotionVector

Ints = npt.NDArray[np.int64]


def stored_motion(f: Frame, lists: Sequence[Records]) -> Records:
    """Return the motion of a finished picture in the form that later pictures predict from.

    Clause 8.5.2.15, Temporal motion buffer compression process for collocated motion vectors.

    It is that of the upper left 4x4 samples of every 8x8 samples, with vectors rounded to six significant bits.

    Args:
        f: State of the picture after its last coding unit.
        lists: For each slice of the picture its RefPicList, shape (2, 16), whose POCs and long-term flags are kept.

    Returns:
        Cells of type COLLOCATED_CELL, shape (ceil(rows / 2), ceil(columns / 2)).
    """
    rows, columns = f.motion.shape
    out = np.zeros(((rows + 1) // 2, (columns + 1) // 2), COLLOCATED_CELL)
    pocs, long_terms = (np.stack([entries[field] for entries in lists]) for field in ("poc", "long_term"))
    with compiled_once(compress_motion, *COMPILATION):
        compress_motion(f.motion, f.known, pocs, long_terms, out)
    return out


@compiled
def compressed(component: int) -> int:
    """Round a component of a vector to six significant bits.

    Part of clause 8.5.2.15, Temporal motion buffer compression process for collocated motion vectors.
    """
    shift = log2((component ^ (component >> 17)) | 31) - 4
    return (component + ((1 << shift) >> 2)) & ((-1 << shift) >> 1)


def _entry(sources: str) -> Callable[..., str]:
    """Compile `compress_motion`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def compress_motion(motion: Records, known: Records, pocs: Ints, long_terms: Ints, out: Records) -> str:
        """Write the motion of a picture that later pictures predict from.

        Part of clause 8.5.2.15, Temporal motion buffer compression process for collocated motion vectors.

        Args:
            motion: Motion of the blocks, as `Frame.motion`.
            known: State of the blocks, as `Frame.known`.
            pocs: POCs of the reference pictures by slice, list and index, shape (slices, 2, 16).
            long_terms: 1 for long-term reference pictures, same shape.
            out: Result, elements of type COLLOCATED_CELL that are 0 before, one for each 2x2 elements of `motion`.

        Returns:
            Digest of the sources.
        """
        for row in range(out.shape[0]):
            for column in range(out.shape[1]):
                source: MotionCell = motion[2 * row, 2 * column]
                part = max(0, known[2 * row, 2 * column].region[0] - 1) // fr.SLICE_REGIONS
                cell: CollocatedCell = out[row, column]
                for i in range(2):
                    ref_idx = source.ref_idx[i]
                    if ref_idx >= 0:
                        cell.mv[i].x = compressed(int64(source.mv_dmvr[i].x))
                        cell.mv[i].y = compressed(int64(source.mv_dmvr[i].y))
                        cell.pred_flag[i] = 1
                        cell.poc[i], cell.long_term[i] = pocs[part, i, ref_idx], long_terms[part, i, ref_idx]
        return sources

    return compress_motion


compress_motion = _entry(source_digest(Path(__file__).parents[1]))


@compiled
def scaled(value: int, factor: int) -> int:
    """Scale a component of a vector by distScaleFactor.

    Part of clause 8.5.2.12, Derivation process for collocated motion vectors.
    """
    product = value * factor
    return clip((product + 128 - int(product >= 0)) >> 8, -131072, 131071)


@compiled
def scale_factor(current: int, other: int) -> int:
    """Derive distScaleFactor from the POC distances of the current and the other vector; `other` must not be 0.

    Part of clause 8.5.2.12, Derivation process for collocated motion vectors.
    """
    tb, td = clip(current, -128, 127), clip(other, -128, 127)
    tx = (16384 + (abs(td) >> 1)) // abs(td)
    return clip((tb * (tx if td > 0 else -tx) + 32) >> 6, -4096, 4095)


@compiled
def collocated_vector(
    f: Frame, list_x: int, ref_idx: int, x_col: int, y_col: int, sb_flag: bool, mv: MotionVector
) -> bool:
    """Derive mvLXCol, a vector from the collocated picture.

    Clause 8.5.2.12, Derivation process for collocated motion vectors.

    Args:
        f: State of the picture.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        x_col: Column of the collocated luma sample, not negative.
        y_col: Row of the collocated luma sample, not negative.
        sb_flag: sbFlag, the vector is for temporal subblocks.
        mv: The result, which is set only if there is a vector.

    Returns:
        True if there is a vector (availableFlagLXCol).
    """
    s = f.slice
    row, column = y_col >> 3, x_col >> 3
    if row >= f.collocated.shape[0] or column >= f.collocated.shape[1]:
        return False
    cell: CollocatedCell = f.collocated[row, column]
    if not cell.pred_flag[0] and not cell.pred_flag[1]:
        return False
    source = list_x
    if not s.no_backward_pred_flag and not sb_flag:
        source = 1 - s.collocated_list
    if not cell.pred_flag[source]:
        if sb_flag and not s.no_backward_pred_flag:
            return False
        source = 1 - source
    ref = s.ref_pic_list[list_x, ref_idx]
    if ref.long_term != cell.long_term[source]:
        return False
    mv_x, mv_y = int64(cell.mv[source].x), int64(cell.mv[source].y)
    col_poc_diff = s.ref_pic_list[s.collocated_list, s.collocated_ref_idx].poc - cell.poc[source]
    curr_poc_diff = s.poc - ref.poc
    if not ref.long_term and col_poc_diff != curr_poc_diff:
        if col_poc_diff == 0:
            return False
        factor = scale_factor(curr_poc_diff, col_poc_diff)
        mv_x, mv_y = scaled(mv_x, factor), scaled(mv_y, factor)
    mv.x, mv.y = clip(mv_x, -131072, 131071), clip(mv_y, -131072, 131071)
    return True


@compiled
def bottom_right_vector(f: Frame, list_x: int, ref_idx: int, mv: MotionVector) -> bool:
    """Derive the temporal vector of the sample to the lower right of the unit.

    Part of clause 8.5.2.11, Derivation process for temporal luma motion vector prediction.

    That sample must lie in the same row of CTUs and in the picture or subpicture.

    Args:
        f: State of the picture.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        mv: The result, which is set only if there is a vector.

    Returns:
        True if there is a vector.
    """
    unit, log2_ctb = f.unit, f.pic.ctb_log2_size_y
    x_col_br, y_col_br = unit.x + unit.width, unit.y + unit.height
    if y_col_br >> log2_ctb != unit.y >> log2_ctb:
        return False
    if x_col_br >= f.slice.subpic_right or y_col_br >= f.slice.subpic_bottom:
        return False
    return bool(collocated_vector(f, list_x, ref_idx, x_col_br, y_col_br, False, mv))


@compiled
def temporal_vector(f: Frame, list_x: int, ref_idx: int, mv: MotionVector) -> bool:
    """Derive the temporal vector predictor mvLXCol of the unit.

    Clause 8.5.2.11, Derivation process for temporal luma motion vector prediction.

    Args:
        f: State of the picture.
        list_x: X, the list of the reference picture.
        ref_idx: refIdxLX.
        mv: The result, which is set only if there is a vector.

    Returns:
        True if there is a vector (availableFlagLXCol).
    """
    if bottom_right_vector(f, list_x, ref_idx, mv):
        return True
    x_col_ctr, y_col_ctr = f.unit.x + (f.unit.width >> 1), f.unit.y + (f.unit.height >> 1)
    return bool(collocated_vector(f, list_x, ref_idx, x_col_ctr, y_col_ctr, False, mv))
