"""Sample adaptive offset (H.266 clause 8.8.4).

`offset_samples` is the compiled entry point for one component.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import COMPILED, compiled, compiled_entry, source_digest
from codecnn.base.records import Array, Record, Records
from codecnn.vvc.decoder.borrowed import borrowed_records, borrowed_samples
from codecnn.vvc.decoder.frame import clip
from codecnn.vvc.syntax import SAO_PARAMETERS, SaoParameters

Samples = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

BAND, EDGE = 1, 2
"""Values of SaoTypeIdx."""


class ComponentLayout(Record):
    """Layout of a component of a picture, in samples of the component.

    Attributes:
        log2_ctb_width: log2 of the width of a CTU.
        log2_ctb_height: log2 of the height of a CTU.
        bit_depth: BitDepth.
        virtual_boundary_pos_x: Columns of virtual boundaries, 0 if there are fewer than three.
        virtual_boundary_pos_y: Rows of virtual boundaries.
    """

    log2_ctb_width: int
    log2_ctb_height: int
    bit_depth: int
    virtual_boundary_pos_x: Annotated[Array[int], 3]
    virtual_boundary_pos_y: Annotated[Array[int], 3]


@compiled
def usable(usable_neighbours: int, x: int, y: int, width: int, height: int) -> bool:
    """Return True if a filter of a CTU may use the sample at (x, y) from its corner.

    Part of clause 8.8.4.2, CTB modification process.

    Args:
        usable_neighbours: Bit 3 * row + column is set if the CTU at that place of the 3x3 CTUs around it may be used.
        x: Column of the sample from the left edge of the CTU, -1 to `width`.
        y: Row of the sample from the upper edge of the CTU, -1 to `height`.
        width: Width of the CTU in samples.
        height: Height of the CTU in samples.
    """
    column = 0 if x < 0 else 2 if x >= width else 1
    row = 0 if y < 0 else 2 if y >= height else 1
    return bool(usable_neighbours >> (3 * row + column) & 1)


@compiled
def edge_sample(source: Samples, x: int, y: int, dx: int, dy: int, offsets: Array[int], peak: int) -> int:
    """Return the sample at (x, y) with the offset of its edge category; its neighbours are at (dx, dy) and opposite.

    Part of clause 8.8.4.2, CTB modification process.
    """
    value: int = source[y, x]
    first, second = source[y - dy, x - dx], source[y + dy, x + dx]
    category = int(value > first) - int(value < first) + int(value > second) - int(value < second)
    if category == 0:
        return value
    # Valleys have the categories -2 and -1 and the first two offsets, peaks 2 and 1 and the last two.
    offset = offsets[category + 2] if category < 0 else offsets[category + 1]
    return clip(value + offset, 0, peak)


@compiled
def edge_ctu(
    source: Samples,
    target: Samples,
    x0: int,
    y0: int,
    width: int,
    height: int,
    usable_neighbours: int,
    sao: SaoParameters,
    peak: int,
) -> None:
    """Add edge offsets to a CTU.

    Part of clause 8.8.4.2, CTB modification process.

    Args:
        source: Samples before SAO, shape (rows, columns).
        target: Samples after SAO, same shape.
        x0: First column of the CTU.
        y0: First row of the CTU.
        width: Width of the CTU.
        height: Height of the CTU.
        usable_neighbours: CTUs that may be used, see `usable`.
        sao: SAO of the component.
        peak: Largest sample value.
    """
    kind, offsets = sao.sao_class, sao.sao_offset_val
    # Classes: horizontal, vertical, diagonals from the upper left and from the upper right.
    dx = 0 if kind == 1 else -1 if kind == 3 else 1
    dy = 0 if kind == 0 else 1
    for j in range(height):
        whole = (dy == 0 or j > 0 or usable_neighbours >> 1 & 1) and (
            dy == 0 or j < height - 1 or usable_neighbours >> 7 & 1
        )
        if whole:
            margin = 0 if dx == 0 else 1
            for i in range(margin, width - margin):
                target[y0 + j, x0 + i] = edge_sample(source, x0 + i, y0 + j, dx, dy, offsets, peak)
        if dx == 0:
            continue
        for side in range(2):
            i = side * (width - 1)
            if usable(usable_neighbours, i - dx, j - dy, width, height) and usable(
                usable_neighbours, i + dx, j + dy, width, height
            ):
                target[y0 + j, x0 + i] = edge_sample(source, x0 + i, y0 + j, dx, dy, offsets, peak)


def _entry(sources: str) -> Callable[[Samples, Samples, Records, Ints, ComponentLayout, int, int], str]:
    """Compile `offset_samples`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def offset_samples(
        source: Samples,
        target: Samples,
        sao: Records,
        usable_neighbours: Ints,
        layout: ComponentLayout,
        first: int,
        last: int,
    ) -> str:
        """Apply SAO to rows of CTUs of one component.

        Clause 8.8.4.1, Sample adaptive offset process.
        Clause 8.8.4.2, CTB modification process.

        Args:
            source: Deblocked samples, shape (rows, columns).
            target: Result, a copy of `source`.
            sao: SAO of each CTU, elements of type `maps.SAO_PARAMETERS`, shape (CTU rows, CTU columns).
            usable_neighbours: CTUs that each CTU may use, see `usable`, shape (CTU rows, CTU columns).
            layout: Layout of the component.
            first: First row of CTUs.
            last: Row of CTUs after the last one.

        Returns:
            Digest of the sources.
        """
        if COMPILED:
            source, target = borrowed_samples(source), borrowed_samples(target)
            sao = borrowed_records(sao, SAO_PARAMETERS)
        rows, columns = source.shape
        depth = layout.bit_depth
        peak = (1 << depth) - 1
        for row in range(first, last):
            for column in range(sao.shape[1]):
                parameters: SaoParameters = sao[row, column]
                kind = parameters.sao_type_idx
                if kind == 0:
                    continue
                x0, y0 = column << layout.log2_ctb_width, row << layout.log2_ctb_height
                x1, y1 = (
                    min(columns, (column + 1) << layout.log2_ctb_width),
                    min(rows, (row + 1) << layout.log2_ctb_height),
                )
                if kind == BAND:
                    for y in range(y0, y1):
                        for x in range(x0, x1):
                            band = ((source[y, x] >> (depth - 5)) - parameters.sao_class) & 31
                            if band < 4:
                                target[y, x] = clip(source[y, x] + parameters.sao_offset_val[band], 0, peak)
                    continue
                edge_ctu(source, target, x0, y0, x1 - x0, y1 - y0, usable_neighbours[row, column], parameters, peak)
                # Samples next to a virtual boundary that an edge class crosses keep their values.
                for i in range(3):
                    boundary = layout.virtual_boundary_pos_x[i]
                    if boundary and parameters.sao_class != 1:
                        for x in range(max(x0, boundary - 1), min(x1, boundary + 1)):
                            target[y0:y1, x] = source[y0:y1, x]
                    boundary = layout.virtual_boundary_pos_y[i]
                    if boundary and parameters.sao_class != 0:
                        for y in range(max(y0, boundary - 1), min(y1, boundary + 1)):
                            target[y, x0:x1] = source[y, x0:x1]
        return sources

    return offset_samples


offset_samples = _entry(source_digest(Path(__file__).parents[1]))
