"""Interpolation of reference pictures at fractional positions (H.266 clauses 8.5.6.3.2 to 8.5.6.3.4).

The filters read the samples of a block in the reference picture. If it needs padding, or its rows are too short for
loops over vectors, it is copied to `Frame.fetched`; the short rows are then filtered in one loop over the whole copy.
Indices are unsigned: numba then omits the check for negative indices, and the loops are vectorised.
"""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled, compiled_inline
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, U
from codecnn.vvc.decoder.interpolation_filters import filter_eight, filter_four
from codecnn.vvc.decoder.records import Scratch
from codecnn.vvc.decoder.reference_samples import copy_whole, fetch, is_inside, ref_pic

Samples = npt.NDArray[np.uint16]

NARROW = 8
"""Blocks of fewer columns are filtered as one row."""


@compiled_inline
def chroma_vector(f: Frame, component: int, mv_x: int, mv_y: int) -> tuple[int, int, int, int]:
    """Split a vector in 1/16 luma sample into integer samples and fractions of a component.

    Clause 8.5.2.13, Derivation process for chroma motion vectors.

    Returns:
        Integer columns and rows, then fractions of columns and rows in 1/16 sample of luma or 1/32 sample of chroma.
    """
    if component == 0:
        return mv_x >> 4, mv_y >> 4, mv_x & 15, mv_y & 15
    sub_x, sub_y = f.pic.log2_sub_width_c, f.pic.log2_sub_height_c
    fraction_x = (mv_x & ((16 << sub_x) - 1)) << (1 - sub_x)
    fraction_y = (mv_y & ((16 << sub_y) - 1)) << (1 - sub_y)
    return mv_x >> (4 + sub_x), mv_y >> (4 + sub_y), fraction_x, fraction_y


@compiled
def interpolate(
    f: Frame,
    reference: int,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    mv_x: int,
    mv_y: int,
    start_x: int,
    start_y: int,
    kind: int,
    border: int,
    target: Array[int],
) -> int:
    """Predict a block from a reference of the size of the picture, with 14 bits of precision.

    Clause 8.5.6.3.1, Fractional sample interpolation process.

    Args:
        f: State of the picture.
        reference: Reference picture list entry, as `ref_pic` takes it.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the block in its component.
        y: Row of the block in its component.
        width: Width of the block, at most 64.
        height: Height of the block, at most 64.
        mv_x: Horizontal vector in 1/16 luma sample.
        mv_y: Vertical vector.
        start_x: Horizontal vector before its refinement by DMVR, which decides which samples may be used.
        start_y: Vertical vector before its refinement.
        kind: Filter set.
        border: Index in `scratch.bordered` that the luma prediction with a border of whole samples is written to, -1
            for none.
        target: The result.

    Returns:
        Number of columns of a row of the result.
    """
    taps = 4 if component else 8
    before = taps // 2 - 1
    whole_x, whole_y, fraction_x, fraction_y = chroma_vector(f, component, mv_x, mv_y)
    # The samples that the filters need, or a border.
    left, top, columns, rows = x + whole_x, y + whole_y, width, height
    if fraction_x or border >= 0:
        left, columns = left - before, width + taps - 1
    if fraction_y or border >= 0:
        top, rows = top - before, height + taps - 1
    across, down = x + whole_x - left, y + whole_y - top
    refined = start_x != mv_x or start_y != mv_y
    source, ref = f.references, ref_pic(f, reference)
    stride = ref.stride[component]
    first = ref.start[component] + (top + down) * stride + left + across
    if refined or width < NARROW or not is_inside(f, reference, component, left, top, columns, rows):
        window_x, window_y, window_w, window_h = left, top, columns, rows
        if refined:
            whole_x, whole_y, _, _ = chroma_vector(f, component, start_x, start_y)
            window_x, window_y = x + whole_x - before, y + whole_y - before
            window_w, window_h = width + taps - 1, height + taps - 1
        fetch(f, reference, component, left, top, columns, rows, window_x, window_y, window_w, window_h)
        source, first, stride = f.fetched, down * columns + across, columns
    return filter_block(
        f.scratch, f.pic.bit_depth, component, source, first, stride, width, height, fraction_x, fraction_y, kind,
        border, target,
    )  # fmt: skip


@compiled_inline
def filter_block(
    scratch: Scratch,
    bit_depth: int,
    component: int,
    source: Samples,
    first: int,
    stride: int,
    width: int,
    height: int,
    fraction_x: int,
    fraction_y: int,
    kind: int,
    border: int,
    target: Array[int],
) -> int:
    """Filter a block of samples along rows, then along columns; arguments and result are those of `interpolate`.

    Clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Clause 8.5.6.3.4, Chroma sample interpolation process.

    Args:
        scratch: Memory for the results of the horizontal filter, and the border.
        bit_depth: Bit depth.
        component: 0 Y, 1 Cb, 2 Cr.
        source: Samples of the reference: `Frame.references`, or `Frame.fetched` if the block is narrow.
        first: Position of the whole sample at or before the first position.
        stride: Distance of the rows in `source`.
        width: Width of the block.
        height: Height of the block.
        fraction_x: Fraction of the columns in 1/16 sample of luma or 1/32 sample of chroma.
        fraction_y: Fraction of the rows.
        kind: Filter set.
        border: Index in `scratch.bordered`, or -1.
        target: The result.
    """
    half_filtered, whole_shift = scratch.half_filtered[:], max(2, 14 - bit_depth)
    taps = 4 if component else 8
    before, shift = taps // 2 - 1, min(4, bit_depth - 8)
    # A narrow block is one row, which the rows above and below make longer.
    pitch, rows, columns, more_rows, more_columns = width, height, width, taps - 1, 0
    if width < NARROW:
        pitch, rows, columns = stride, 1, (height - 1) * stride + width
        more_rows, more_columns = 0, (taps - 1) * stride
    if not fraction_x and not fraction_y:
        copy_whole(source, first, stride, rows, columns, whole_shift, target)
    elif not fraction_y:
        filter_rows(component, source, first - before, stride, 1, rows, columns, kind, fraction_x, shift, target)
    elif not fraction_x:
        begin = first - before * stride
        filter_rows(component, source, begin, stride, stride, rows, columns, kind, fraction_y, shift, target)
    else:
        begin = first - before * stride - before
        rows, columns = rows + more_rows, columns + more_columns
        filter_rows(component, source, begin, stride, 1, rows, columns, kind, fraction_x, shift, half_filtered)
        # The results have no gaps between their rows.
        columns = (height - 1) * pitch + width
        filter_rows(component, half_filtered, 0, pitch, pitch, 1, columns, kind, fraction_y, 6, target)
    if border >= 0:
        inner = scratch.bordered[border]
        put_border(source, first, stride, width, height, fraction_x, fraction_y, whole_shift, inner)
        for row in range(height):
            place, out = U(row * pitch), U((row + 1) * (width + 2) + 1)
            for k in range(width):
                inner[out + U(k)] = target[place + U(k)]
    return pitch


@compiled_inline
def filter_rows(
    component: int,
    source: Samples | Array[int],
    first: int,
    stride: int,
    step: int,
    rows: int,
    columns: int,
    kind: int,
    fraction: int,
    shift: int,
    target: Array[int],
) -> None:
    """Filter rows of samples by the filter of a component; the other arguments are those of `filter_eight`.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.
    """
    if component:
        filter_four(source, first, stride, step, rows, columns, kind, fraction, shift, target)
    else:
        filter_eight(source, first, stride, step, rows, columns, kind, fraction, shift, target)


@compiled_inline
def put_border(
    source: Samples,
    first: int,
    stride: int,
    width: int,
    height: int,
    fraction_x: int,
    fraction_y: int,
    shift: int,
    target: Array[int],
) -> None:
    """Write the border of whole samples around a luma prediction, for gradients.

    Clause 8.5.6.3.3, Luma integer sample fetching process.

    Args:
        source: Samples of the reference.
        first: Position of the whole sample at or before the first position.
        stride: Distance of the rows in `source`.
        width: Width of the block.
        height: Height of the block.
        fraction_x: Fraction of the columns in 1/16 sample; the border comes from the nearest whole samples.
        fraction_y: Fraction of the rows.
        shift: Left shift of the samples.
        target: The result, rows of `width` + 2 numbers.
    """
    corner = first + ((fraction_y >> 3) - 1) * stride + (fraction_x >> 3) - 1
    last, bottom = (height + 1) * (width + 2), corner + (height + 1) * stride
    for i in range(width + 2):
        target[i] = np.int32(source[corner + i]) << shift
        target[last + i] = np.int32(source[bottom + i]) << shift
    for row in range(1, height + 1):
        left, out = corner + row * stride, row * (width + 2)
        target[out] = np.int32(source[left]) << shift
        target[out + width + 1] = np.int32(source[left + width + 1]) << shift
