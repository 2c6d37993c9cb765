"""Interpolation of reference pictures at fractional positions (H.266 clauses 8.5.6.3.2 to 8.5.6.3.4).

The filters read the samples of a block in the reference picture. If it needs padding, or its rows are too short for
loops over vectors, it is copied to `Frame.fetched`; the short rows are then filtered in one loop over the whole copy.
Indices are unsigned: numba then omits the check for negative indices, and the loops are vectorised.
"""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled, compiled_inline
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, U, clip
from codecnn.vvc.decoder.records import FAULT_REFERENCE, RefPicListEntry, Scratch
from codecnn.vvc.intra import CUBIC_FILTER

REGULAR, HALF_SAMPLE, AFFINE, DOWN_1, DOWN_2, AFFINE_DOWN_1, AFFINE_DOWN_2 = range(7)
"""Filters of luma: tables 27 (hpelIfIdx 0 and 1) to 32; DOWN_1 and DOWN_2 are those of scaled references.

Of these, chroma has REGULAR, DOWN_1 and DOWN_2 (tables 33 to 35).
"""


Samples = npt.NDArray[np.uint16]

NARROW = 8
"""Blocks of fewer columns are filtered as one row."""


def _mirrored(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Append the filters of the fractions beyond one half: those below one half reversed."""
    return rows + [row[::-1] for row in rows[-2:0:-1]]


_LUMA = _mirrored(
    [
        (0, 0, 0, 64, 0, 0, 0, 0),
        (0, 1, -3, 63, 4, -2, 1, 0),
        (-1, 2, -5, 62, 8, -3, 1, 0),
        (-1, 3, -8, 60, 13, -4, 1, 0),
        (-1, 4, -10, 58, 17, -5, 1, 0),
        (-1, 4, -11, 52, 26, -8, 3, -1),
        (-1, 3, -9, 47, 31, -10, 4, -1),
        (-1, 4, -11, 45, 34, -10, 4, -1),
        (-1, 4, -11, 40, 40, -11, 4, -1),
    ]
)
_LUMA_DOWN_1 = _mirrored(
    [
        (-1, -5, 17, 42, 17, -5, -1, 0),
        (0, -5, 15, 41, 19, -5, -1, 0),
        (0, -5, 13, 40, 21, -4, -1, 0),
        (0, -5, 11, 39, 24, -4, -2, 1),
        (0, -5, 9, 38, 26, -3, -2, 1),
        (0, -5, 7, 38, 28, -2, -3, 1),
        (1, -5, 5, 36, 30, -1, -3, 1),
        (1, -4, 3, 35, 32, 0, -4, 1),
        (1, -4, 2, 33, 33, 2, -4, 1),
    ]
)
_LUMA_DOWN_2 = _mirrored(
    [
        (-4, 2, 20, 28, 20, 2, -4, 0),
        (-4, 0, 19, 29, 21, 5, -4, -2),
        (-4, -1, 18, 29, 22, 6, -4, -2),
        (-4, -1, 16, 29, 23, 7, -4, -2),
        (-4, -1, 16, 28, 24, 7, -4, -2),
        (-4, -1, 14, 28, 25, 8, -4, -2),
        (-3, -3, 14, 27, 26, 9, -3, -3),
        (-3, -1, 12, 28, 25, 10, -4, -3),
        (-3, -3, 11, 27, 27, 11, -3, -3),
    ]
)
_CHROMA_DOWN_1 = _mirrored(
    [
        (12, 40, 12, 0),
        (11, 40, 13, 0),
        (10, 40, 15, -1),
        (9, 40, 16, -1),
        (8, 40, 17, -1),
        (8, 39, 18, -1),
        (7, 39, 19, -1),
        (6, 38, 21, -1),
        (5, 38, 22, -1),
        (4, 38, 23, -1),
        (4, 37, 24, -1),
        (3, 36, 25, 0),
        (3, 35, 26, 0),
        (2, 34, 28, 0),
        (2, 33, 29, 0),
        (1, 33, 30, 0),
        (1, 31, 31, 1),
    ]
)
_CHROMA_DOWN_2 = _mirrored(
    [
        (17, 30, 17, 0),
        (17, 30, 18, -1),
        (16, 30, 18, 0),
        (16, 30, 18, 0),
        (15, 30, 18, 1),
        (14, 30, 18, 2),
        (13, 29, 19, 3),
        (13, 29, 19, 3),
        (12, 29, 20, 3),
        (11, 28, 21, 4),
        (10, 28, 22, 4),
        (10, 27, 22, 5),
        (9, 27, 23, 5),
        (9, 26, 24, 5),
        (8, 26, 24, 6),
        (7, 26, 25, 6),
        (7, 25, 25, 7),
    ]
)


def _folded(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the filters of six taps of affine blocks: the outer taps are added to their neighbours."""
    return [(0, row[0] + row[1], *row[2:6], row[6] + row[7], 0) for row in rows]


_HALF = [*_LUMA[:8], (0, 3, 9, 20, 20, 9, 3, 0), *_LUMA[9:]]

LUMA_FILTERS = np.array(
    [_LUMA, _HALF, _folded(_LUMA), _LUMA_DOWN_1, _LUMA_DOWN_2, _folded(_LUMA_DOWN_1), _folded(_LUMA_DOWN_2)], np.int32
)
"""Filters of luma by set, fraction in 1/16 sample and tap, (7, 16, 8)."""

# Table 25 (fC) and table 33 have the same filters.
CHROMA_FILTERS = np.array([*[CUBIC_FILTER] * 3, _CHROMA_DOWN_1, _CHROMA_DOWN_2], np.int32)
"""Filters of chroma by set, fraction in 1/32 sample and tap, (5, 32, 4)."""


@compiled
def filter_eight(
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
    """Filter a block by eight taps.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.

    Args:
        source: Samples, or results of the horizontal filter.
        first: Position of the first tap of the first result.
        stride: Distance of the rows in `source`.
        step: Distance of the taps: 1 to filter along rows, `stride` to filter along columns.
        rows: Rows of the result.
        columns: Columns of the result.
        kind: Filter set.
        fraction: Fraction in 1/16 sample.
        shift: Right shift of the sums.
        target: The results, row by row.
    """
    c0, c1, c2, c3 = (
        LUMA_FILTERS[kind, fraction, 0],
        LUMA_FILTERS[kind, fraction, 1],
        LUMA_FILTERS[kind, fraction, 2],
        LUMA_FILTERS[kind, fraction, 3],
    )
    c4, c5, c6, c7 = (
        LUMA_FILTERS[kind, fraction, 4],
        LUMA_FILTERS[kind, fraction, 5],
        LUMA_FILTERS[kind, fraction, 6],
        LUMA_FILTERS[kind, fraction, 7],
    )
    for row in range(rows):
        tap, out = first + row * stride, U(row * columns)
        t0, t1, t2, t3 = U(tap), U(tap + step), U(tap + 2 * step), U(tap + 3 * step)
        t4, t5, t6, t7 = U(tap + 4 * step), U(tap + 5 * step), U(tap + 6 * step), U(tap + 7 * step)
        for k in range(columns):
            i = U(k)
            total = np.int32(
                c0 * source[t0 + i]
                + c1 * source[t1 + i]
                + c2 * source[t2 + i]
                + c3 * source[t3 + i]
                + c4 * source[t4 + i]
                + c5 * source[t5 + i]
                + c6 * source[t6 + i]
                + c7 * source[t7 + i]
            )
            target[out + i] = total >> shift


@compiled
def filter_four(
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
    """Filter a block by four taps; the arguments are those of `filter_eight`.

    Part of clause 8.5.6.3.4, Chroma sample interpolation process.

    The fraction is in 1/32 sample.
    """
    c0, c1, c2, c3 = (
        CHROMA_FILTERS[kind, fraction, 0],
        CHROMA_FILTERS[kind, fraction, 1],
        CHROMA_FILTERS[kind, fraction, 2],
        CHROMA_FILTERS[kind, fraction, 3],
    )
    for row in range(rows):
        tap, out = first + row * stride, U(row * columns)
        t0, t1, t2, t3 = U(tap), U(tap + step), U(tap + 2 * step), U(tap + 3 * step)
        for k in range(columns):
            i = U(k)
            total = np.int32(c0 * source[t0 + i] + c1 * source[t1 + i] + c2 * source[t2 + i] + c3 * source[t3 + i])
            target[out + i] = total >> shift


@compiled_inline
def copy_whole(
    source: Samples, first: int, stride: int, rows: int, columns: int, shift: int, target: Array[int]
) -> None:
    """Shift whole samples left; the arguments are those of `filter_eight`.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.
    """
    for row in range(rows):
        begin, out = U(first + row * stride), U(row * columns)
        for k in range(columns):
            target[out + U(k)] = np.int32(source[begin + U(k)]) << shift


@compiled_inline
def ref_pic(f: Frame, entry: int) -> RefPicListEntry:
    """Return an entry of a reference picture list by 16 * X + refIdxLX.

    Clause 8.5.6.2, Reference picture selection process.
    """
    return f.slice.ref_pic_list[entry >> 4 & 1, entry & 15]


@compiled_inline
def sample_bounds(f: Frame, reference: int, component: int) -> tuple[int, int, int, int]:
    """Return the first and last column and the first and last row of a reference that may be used.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.

    They are those of the picture or, if it is treated as a picture, of the subpicture.

    Args:
        f: State of the picture.
        reference: Reference picture list entry, as `ref_pic` takes it.
        component: 0 Y, 1 Cb, 2 Cr.
    """
    s, ref = f.slice, ref_pic(f, reference)
    sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
    right = (ref.width >> sub_x) - 1
    bottom = (ref.height >> sub_y) - 1
    left = top = 0
    if s.subpic_treated_as_pic:
        right = clip((s.subpic_right >> sub_x) - 1, 0, right)
        bottom = clip((s.subpic_bottom >> sub_y) - 1, 0, bottom)
        left = clip(s.subpic_left >> sub_x, 0, right)
        top = clip(s.subpic_top >> sub_y, 0, bottom)
    return left, right, top, bottom


@compiled
def wrapped(x: int, offset: int, width: int) -> int:
    """Move a column outside of the picture by the wraparound offset (ClipH); 0 is no wraparound.

    Part of clause 5.8, Mathematical functions.
    """
    if x < 0:
        return x + offset
    if x > width - 1:
        return x - offset
    return x


@compiled_inline
def fetch(
    f: Frame,
    reference: int,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    window_x: int,
    window_y: int,
    window_w: int,
    window_h: int,
) -> None:
    """Copy a block of reference samples, with padding, to `Frame.fetched`, row by row.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.

    Args:
        f: State of the picture.
        reference: Reference picture list entry, as `ref_pic` takes it.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the block in the component, maybe outside of the picture.
        y: Row of the block in the component, maybe outside of the picture.
        width: Width of the block.
        height: Height of the block.
        window_x: First column of the samples that the block may use (DMVR); others are padded from there.
        window_y: First row of these samples.
        window_w: Number of columns of these samples.
        window_h: Number of rows of these samples.
    """
    fetched, samples, ref = f.fetched, f.references, ref_pic(f, reference)
    if ref.width <= 0:
        f.current.fault = FAULT_REFERENCE
        for i in range(width * height):
            fetched[i] = 1 << (f.pic.bit_depth - 1)
        return
    first, stride = ref.start[component], ref.stride[component]
    left, right, top, bottom = sample_bounds(f, reference, component)
    last_x, last_y = window_x + window_w - 1, window_y + window_h - 1
    sub_x = f.pic.log2_sub_width_c if component else 0
    offset = f.slice.ref_wraparound_offset >> sub_x
    if f.slice.subpic_treated_as_pic or ref.scaled:
        offset = 0
    picture_w = ref.width >> sub_x
    # Columns from `low` to `high` are copied, those before and after them are padded.
    low, high = clip(window_x, left, right), clip(last_x, left, right)
    begin, end = clip(low - x, 0, width), clip(high + 1 - x, 0, width)
    if end - begin == width and y >= max(top, window_y) and y + height - 1 <= min(bottom, last_y):
        for row in range(height):
            source, out = U(first + (y + row) * stride + x), U(row * width)
            for k in range(width):
                fetched[out + U(k)] = samples[source + U(k)]
        return
    for row in range(height):
        line = first + clip(clip(y + row, window_y, last_y), top, bottom) * stride
        to = row * width
        if offset and (begin > 0 or end < width):
            for column in range(width):
                at = wrapped(clip(x + column, window_x, last_x), offset, picture_w)
                fetched[to + column] = samples[line + clip(at, left, right)]
            continue
        for column in range(begin):
            fetched[to + column] = samples[line + low]
        if begin < end:
            source, out = U(line + x + begin), U(to + begin)
            for k in range(end - begin):
                fetched[out + U(k)] = samples[source + U(k)]
        for column in range(end, width):
            fetched[to + column] = samples[line + high]


@compiled_inline
def is_inside(f: Frame, reference: int, component: int, x: int, y: int, width: int, height: int) -> bool:
    """Return True if a block of a component lies inside a reference picture, so that it needs no padding.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.
    """
    if ref_pic(f, reference).width <= 0:
        return False
    left, right, top, bottom = sample_bounds(f, reference, component)
    return x >= left and x + width - 1 <= right and y >= top and y + height - 1 <= bottom


@compiled_inline
def chroma_vector(f: Frame, component: int, mv_x: int, mv_y: int) -> tuple[int, int, int, int]:
    """Split a vector in 1/16 luma sample into whole samples and fractions of a component.

    Clause 8.5.2.13, Derivation process for chroma motion vectors.

    Returns:
        Whole columns and rows, then fractions of columns and rows in 1/16 sample of luma or 1/32 sample of chroma.
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
