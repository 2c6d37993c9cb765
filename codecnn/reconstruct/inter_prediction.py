"""Prediction of the samples of an inter unit from its motion (H.266 clauses 8.5.1, 8.5.6 and 8.7.5.2).

`predict_inter_unit` writes the prediction of all components to the prediction planes.
"""

from codecnn.reconstruct import frame as fr
from codecnn.reconstruct.frame import Frame
from codecnn.reconstruct.interpolation import HALF_SAMPLE, REGULAR, interpolate
from codecnn.reconstruct.luma_mapping import map_luma
from codecnn.reconstruct.weighted import combine
from codecnn.vvc import compiled

CHUNK = 64
"""Width and height of the largest block that is predicted at once."""


@compiled
def entry_of(list_x: int, index: int) -> int:
    """Return the position in `Frame.p` of an entry of list 0 or 1, -1 for the index -1 of an unused list."""
    return -1 if index < 0 else fr.LISTS_OF_REFERENCES + fr.REFERENCE * (16 * list_x + min(index, 15))


@compiled
def predict_inter_unit(f: Frame) -> None:
    """Predict all components of the inter unit whose motion is in `fr.MOTION_OF_UNIT` and `Frame.motion`."""
    p = f.p
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    width, height = p[fr.MOTION_OF_UNIT + fr.UNIT_W], p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    reference_0 = entry_of(0, p[fr.MOTION_OF_UNIT + fr.UNIT_REF])
    reference_1 = entry_of(1, p[fr.MOTION_OF_UNIT + fr.UNIT_REF + 1])
    predict_block(f, x, y, width, height, reference_0, reference_1, fr.MOTION_OF_UNIT + fr.UNIT_MV, 0, 3)
    if p[fr.LMCS]:
        map_luma(f, x, y, width, height)


@compiled
def predict_block(
    f: Frame,
    x: int,
    y: int,
    width: int,
    height: int,
    reference_0: int,
    reference_1: int,
    vectors: int,
    first: int,
    last: int,
) -> None:
    """Predict components `first` to `last` - 1 of a block with one motion by interpolation and weighting.

    Args:
        f: State of the picture.
        x: Column of the block in luma samples.
        y: Row of the block in luma samples.
        width: Width of the block in luma samples.
        height: Height of the block in luma samples.
        reference_0: Position of the entry of L0 in `Frame.p`, -1 if it is unused.
        reference_1: Position of the entry of L1, -1 if it is unused.
        vectors: Position of mvL0 and mvL1 in `Frame.p`, x and y each.
        first: First component.
        last: Last component + 1.
    """
    p = f.p
    bcw = 0 if p[fr.MOTION_OF_UNIT + fr.UNIT_CIIP] else p[fr.MOTION_OF_UNIT + fr.UNIT_BCW]
    mv_x0, mv_y0, mv_x1, mv_y1 = p[vectors], p[vectors + 1], p[vectors + 2], p[vectors + 3]
    to_1 = fr.PREDICTED + fr.INTER_BLOCK if reference_0 >= 0 else fr.PREDICTED
    for component in range(first, last if p[fr.CHROMA] else 1):
        sub_x, sub_y = (p[fr.SUB_X], p[fr.SUB_Y]) if component else (0, 0)
        kind = HALF_SAMPLE if component == 0 and p[fr.MOTION_OF_UNIT + fr.UNIT_HALF] else REGULAR
        right, bottom = (x + width) >> sub_x, (y + height) >> sub_y
        for top in range(y >> sub_y, bottom, CHUNK):
            rows = min(CHUNK, bottom - top)
            for left in range(x >> sub_x, right, CHUNK):
                columns = min(CHUNK, right - left)
                stride_0 = stride_1 = 0
                if reference_0 >= 0:
                    stride_0 = interpolate(
                        f, reference_0, component, left, top, columns, rows,
                        mv_x0, mv_y0, mv_x0, mv_y0, kind, False, fr.PREDICTED,
                    )  # fmt: skip
                if reference_1 >= 0:
                    stride_1 = interpolate(
                        f, reference_1, component, left, top, columns, rows,
                        mv_x1, mv_y1, mv_x1, mv_y1, kind, False, to_1,
                    )  # fmt: skip
                combine(f, component, left, top, columns, rows, reference_0, reference_1, bcw, stride_0, stride_1)
