"""Adaptive loop filter of luma and chroma, and cross-component ALF (H.266 clause 8.8.5).

`filter_ctus` is the compiled entry point. It works on rectangles: CTUs, divided at virtual boundaries. The samples of a
rectangle and MARGIN samples around it are copied first; those that the filter may not use are padded (clause 8.8.5.6).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import COMPILED, compiled, compiled_entry, source_digest
from codecnn.base.records import Array, Record, Records, record_dtype
from codecnn.vvc.decoder.alf_classes import MARGIN, classify, gradients
from codecnn.vvc.decoder.borrowed import borrowed_decoded, borrowed_records, borrowed_samples
from codecnn.vvc.decoder.cross_component_alf import cross_component_filter
from codecnn.vvc.decoder.frame import U, clip
from codecnn.vvc.decoder.records import PictureValues

Samples = npt.NDArray[np.int32]

Decoded = npt.NDArray[np.uint16]


ORDER = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [9, 4, 10, 8, 1, 5, 11, 7, 3, 0, 2, 6],
        [0, 3, 2, 1, 8, 7, 6, 5, 4, 9, 10, 11],
        [9, 8, 10, 4, 3, 7, 11, 5, 1, 0, 2, 6],
    ],
    np.int64,
)
"""Order of the coefficients of luma by transposeIdx (clause 8.8.5.2)."""


class Rectangle(Record):
    """Part of a CTU that ALF filters at once; its numbers are int32.

    Attributes:
        x: First column in luma samples.
        y: First row.
        width: Width in luma samples.
        height: Height.
        left: 1 if samples beyond the left edge may be used.
        right: The same for the right edge.
        top: The same for the upper edge.
        bottom: The same for the lower edge.
        top_left: The same beyond the upper left corner.
        bottom_right: The same beyond the lower right corner.
        filters: Rows of the tables of filters for Y, Cb and Cr, -1 for none.
        cross_filters: Rows of the table of cross-component filters for Cb and Cr, -1 for none.
    """

    x: int
    y: int
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    top_left: int
    bottom_right: int
    filters: Annotated[Array[int], 3]
    cross_filters: Annotated[Array[int], 2]


RECTANGLE = record_dtype(Rectangle, np.int32)


@compiled
def copy_rectangle(
    source: Samples, block: Samples, rectangle: Rectangle, x0: int, y0: int, width: int, height: int
) -> None:
    """Copy a rectangle and MARGIN samples around it to `block`, with padding.

    Clause 8.8.5.6, ALF sample padding process.

    Args:
        source: Samples of the component, shape (rows, columns).
        block: Result; sample (y, x) of the rectangle is at (y + MARGIN, x + MARGIN).
        rectangle: The rectangle; its position and size count in luma samples.
        x0: First column in the component.
        y0: First row in the component.
        width: Width in samples of the component.
        height: Height in samples of the component.
    """
    # A rectangle at an edge of the picture has no flag for that side; the others have at least MARGIN samples beyond.
    first_x, last_x = x0 if not rectangle.left else x0 - MARGIN, x0 + width - 1
    if rectangle.right:
        last_x += MARGIN
    first_y, last_y = y0 if not rectangle.top else y0 - MARGIN, y0 + height - 1
    if rectangle.bottom:
        last_y += MARGIN
    first_x, first_y = max(first_x, 0), max(first_y, 0)
    last_x, last_y = min(last_x, source.shape[1] - 1), min(last_y, source.shape[0] - 1)
    for j in range(-MARGIN, height + MARGIN):
        y = clip(y0 + j, first_y, last_y)
        for i in range(-MARGIN, 0):
            x = clip(x0 + i, first_x, last_x)
            block[j + MARGIN, i + MARGIN] = source[y, x if j >= 0 or rectangle.top_left else max(x, x0)]
        row, line, first, begin = U(j + MARGIN), U(y), U(MARGIN), U(x0)
        for k in range(width):
            block[row, first + U(k)] = source[line, begin + U(k)]
        for i in range(width, width + MARGIN):
            x = clip(x0 + i, first_x, last_x)
            kept = j < height or rectangle.bottom_right
            block[j + MARGIN, i + MARGIN] = source[y, x if kept else min(x, x0 + width - 1)]


@compiled
def clipped(limit: np.int32, value: np.int32, first: np.int32, second: np.int32) -> np.int32:
    """Return the sum of the differences of two samples from `value`, each clipped to `limit`, as int32.

    Part of clause 8.8.5.2, Coding tree block filtering process for luma samples.
    Part of clause 8.8.5.4, Coding tree block filtering process for chroma samples.
    """
    least = np.int32(-limit)
    low = min(max(np.int32(first - value), least), limit)
    high = min(max(np.int32(second - value), least), limit)
    return np.int32(low + high)


@compiled
def add_tap(block: Samples, totals: Samples, weights: Samples, tap: int, y: int, dy: int, dx: int, count: int) -> None:
    """Add one pair of taps to the sums of a row of samples.

    Part of clause 8.8.5.2, Coding tree block filtering process for luma samples.
    Part of clause 8.8.5.4, Coding tree block filtering process for chroma samples.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        totals: Sums, shape (columns,).
        weights: Coefficients and clipping values of each sample, shape (2, taps, columns).
        tap: Number of the pair.
        y: Row of the samples in `block`.
        dy: Distance of the taps in rows.
        dx: Distance of the taps in columns, of the lower tap to the right and of the upper tap to the left.
        count: Number of samples.
    """
    row, lower, upper = U(y), U(y + dy), U(y - dy)
    x, right, left, number = U(MARGIN), U(MARGIN + dx), U(MARGIN - dx), U(tap)
    for k in range(count):
        i = U(k)
        weight, limit = weights[U(0), number, i], weights[U(1), number, i]
        total = clipped(limit, block[row, x + i], block[lower, right + i], block[upper, left + i])
        totals[i] = np.int32(totals[i] + weight * total)


@compiled
def write_row(
    block: Samples, totals: Samples, target: Decoded, y: int, to_x: int, to_y: int, count: int, shift: int, depth: int
) -> None:
    """Write a row of filtered samples and clear its sums.

    Part of clause 8.8.5.2, Coding tree block filtering process for luma samples.
    Part of clause 8.8.5.4, Coding tree block filtering process for chroma samples.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        totals: Sums, shape (columns,).
        target: Component of the result, shape (rows, columns).
        y: Row of the samples in `block`.
        to_x: First column in `target`.
        to_y: Row in `target`.
        count: Number of samples.
        shift: Right shift of the sums.
        depth: Bit depth.
    """
    peak, half = np.int32((1 << depth) - 1), np.int32(1 << shift >> 1)
    row, x, out, to = U(y), U(MARGIN), U(to_y), U(to_x)
    for k in range(count):
        i = U(k)
        value = np.int32(block[row, x + i] + (np.int32(totals[i] + half) >> shift))
        target[out, to + i] = min(max(value, np.int32(0)), peak)
        totals[i] = np.int32(0)


@compiled
def filter_luma_rectangle(
    block: Samples,
    sums: Samples,
    weights: Samples,
    totals: Samples,
    target: Decoded,
    x0: int,
    y0: int,
    width: int,
    height: int,
    ctu: int,
    depth: int,
    filters: Samples,
) -> None:
    """Filter the luma of a rectangle.

    Clause 8.8.5.2, Coding tree block filtering process for luma samples.

    The weights of every sample of four rows are spread out, so that a pair of taps is one loop along a row.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        sums: Memory for gradients.
        weights: Memory for weights, shape (2, 12, columns).
        totals: Memory for the sums of a row, zeros before and after, shape (columns,).
        target: Luma of the result, shape (rows, columns).
        x0: First column of the rectangle in the picture.
        y0: First row of the rectangle in the picture.
        width: Width of the rectangle.
        height: Height of the rectangle.
        ctu: Size of a CTU.
        depth: Bit depth.
        filters: Coefficients and clipping values of each class, shape (2, 25, 12).
    """
    gradients(block, sums, y0, width, height, ctu)
    for row in range(0, height, 4):
        place = (y0 + row) & (ctu - 1)
        for column in range(0, width, 4):
            kind = classify(sums, row >> 1, column >> 1, place, ctu, depth)
            group, order = U(kind >> 2), U(kind & 3)
            for k in range(12):
                tap, i = U(k), U(ORDER[order, U(k)])
                for which in range(2):
                    value, out = filters[U(which), group, i], U(column)
                    for lane in range(4):
                        weights[U(which), tap, out + U(lane)] = value
        for j in range(4):
            # No row across the line buffer boundary is used; next to it the filter is weaker.
            distance = ctu - 5 - place - j if place + j < ctu - 4 else place + j - ctu + 4
            r1, r2, r3 = min(1, distance), min(2, distance), min(3, distance)
            y = row + j + MARGIN
            add_tap(block, totals, weights, 0, y, r3, 0, width)
            for dx in range(-1, 2):
                add_tap(block, totals, weights, 2 - dx, y, r2, dx, width)
            for dx in range(-2, 3):
                add_tap(block, totals, weights, 6 - dx, y, r1, dx, width)
            for dx in range(1, 4):
                add_tap(block, totals, weights, 12 - dx, y, 0, dx, width)
            write_row(block, totals, target, y, x0, y0 + row + j, width, 10 if distance == 0 else 7, depth)


@compiled
def filter_chroma_rectangle(
    block: Samples,
    weights: Samples,
    totals: Samples,
    target: Decoded,
    x0: int,
    y0: int,
    width: int,
    height: int,
    ctu: int,
    depth: int,
    filters: Samples,
) -> None:
    """Filter a chroma component of a rectangle; positions and sizes are in samples of the component.

    Clause 8.8.5.4, Coding tree block filtering process for chroma samples.

    Args:
        block: Samples, as `copy_rectangle` returns them.
        weights: Memory for weights, shape (2, 12, columns).
        totals: Memory for the sums of a row, zeros before and after, shape (columns,).
        target: Component of the result, shape (rows, columns).
        x0: First column of the rectangle.
        y0: First row of the rectangle.
        width: Width of the rectangle.
        height: Height of the rectangle.
        ctu: Height of a CTU.
        depth: Bit depth.
        filters: Coefficients and clipping values, shape (2, 6).
    """
    for which in range(2):
        for tap in range(6):
            weights[which, tap, :width] = filters[which, tap]
    for j in range(height):
        place = (y0 + j) & (ctu - 1)
        distance = ctu - 3 - place if place < ctu - 2 else place - ctu + 2
        r1, r2 = min(1, distance), min(2, distance)
        y = j + MARGIN
        add_tap(block, totals, weights, 0, y, r2, 0, width)
        for dx in range(-1, 2):
            add_tap(block, totals, weights, 2 - dx, y, r1, dx, width)
        for dx in range(1, 3):
            add_tap(block, totals, weights, 6 - dx, y, 0, dx, width)
        write_row(block, totals, target, y, x0, y0 + j, width, 10 if distance == 0 else 7, depth)


def _entry(sources: str) -> Callable[..., str]:
    """Compile `filter_ctus`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def filter_ctus(
        pic: PictureValues,
        rectangles: Records,
        luma_filters: Samples,
        chroma_filters: Samples,
        cross_filters: Samples,
        source_y: Samples,
        source_u: Samples,
        source_v: Samples,
        target_y: Decoded,
        target_u: Decoded,
        target_v: Decoded,
    ) -> str:
        """Apply ALF and cross-component ALF to rectangles of a picture.

        Clause 8.8.5.1, Adaptive loop filter process.

        Args:
            pic: Values of the picture.
            rectangles: Rectangles, elements of type RECTANGLE.
            luma_filters: Luma filters: coefficients and clipping values of each class, shape (n, 2, 25, 12).
            chroma_filters: Chroma filters: coefficients and clipping values, shape (n, 2, 6).
            cross_filters: Cross-component filters, shape (n, 7).
            source_y: Luma before ALF, shape (rows, columns).
            source_u: Cb before ALF.
            source_v: Cr before ALF.
            target_y: Result of luma, a copy of `source_y`, uint16.
            target_u: Result of Cb, a copy of `source_u`.
            target_v: Result of Cr, a copy of `source_v`.

        Returns:
            Digest of the sources.
        """
        if COMPILED:
            rectangles, luma_filters = borrowed_records(rectangles, RECTANGLE), borrowed_samples(luma_filters)
            chroma_filters, cross_filters = borrowed_samples(chroma_filters), borrowed_samples(cross_filters)
            source_y, target_y = borrowed_samples(source_y), borrowed_decoded(target_y)
            source_u, target_u = borrowed_samples(source_u), borrowed_decoded(target_u)
            source_v, target_v = borrowed_samples(source_v), borrowed_decoded(target_v)
        ctu, depth = 1 << pic.ctb_log2_size_y, pic.bit_depth
        memory = (
            np.empty((ctu + 2 * MARGIN, ctu + 2 * MARGIN), np.int32),
            np.empty((ctu + 2 * MARGIN, ctu + 2 * MARGIN), np.int32),
            np.empty((4, (ctu >> 1) + 2, (ctu >> 1) + 2), np.int32),
            np.empty((2, 12, ctu), np.int32),
            np.zeros(ctu, np.int32),
        )
        luma, chroma, sums, weights, totals = memory
        if COMPILED:
            luma, chroma, sums = borrowed_samples(luma), borrowed_samples(chroma), borrowed_samples(sums)
            weights, totals = borrowed_samples(weights), borrowed_samples(totals)
        for number in range(rectangles.shape[0]):
            r: Rectangle = rectangles[number]
            x, y, width, height = r.x, r.y, r.width, r.height
            if r.filters[0] >= 0 or r.cross_filters[0] >= 0 or r.cross_filters[1] >= 0:
                copy_rectangle(source_y, luma, r, x, y, width, height)
            if r.filters[0] >= 0:
                filters = luma_filters[r.filters[0]]
                filter_luma_rectangle(luma, sums, weights, totals, target_y, x, y, width, height, ctu, depth, filters)
            if not pic.sps_chroma_format_idc:
                continue
            sub_x, sub_y = pic.log2_sub_width_c, pic.log2_sub_height_c
            x_c, y_c, width_c, height_c = x >> sub_x, y >> sub_y, width >> sub_x, height >> sub_y
            for component in range(2):
                source, target = (source_u, target_u) if component == 0 else (source_v, target_v)
                index, cross = r.filters[1 + component], r.cross_filters[component]
                if index >= 0:
                    copy_rectangle(source, chroma, r, x_c, y_c, width_c, height_c)
                    filters_c = chroma_filters[index]
                    filter_chroma_rectangle(
                        chroma, weights, totals, target, x_c, y_c, width_c, height_c, ctu >> sub_y, depth, filters_c
                    )
                if cross >= 0:
                    cross_component_filter(
                        luma, target, x_c, y_c, width_c, height_c, sub_x, sub_y, ctu, depth, cross_filters[cross]
                    )
        # Views do not keep the memory alive; this use of it does.
        return sources if len(memory) else ""

    return filter_ctus


filter_ctus = _entry(source_digest(Path(__file__).parents[1]))
