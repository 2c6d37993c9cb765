"""Samples of reference pictures, padded at their borders (H.266 clauses 8.5.6.3.2 to 8.5.6.3.4)."""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled, compiled_inline
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, U, clip
from codecnn.vvc.decoder.records import FAULT_REFERENCE, RefPicListEntry

Samples = npt.NDArray[np.uint16]


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
