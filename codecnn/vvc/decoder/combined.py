"""Combined inter and intra prediction (CIIP, H.266 clause 8.5.6.7)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.block_state import MODE_MASK
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.intra_prediction import predict
from codecnn.vvc.decoder.references import available
from codecnn.vvc.syntax import state as st


@compiled
def add_intra(f: Frame, x: int, y: int, width: int, height: int) -> None:
    """Blend the inter prediction of a unit, which is in the prediction planes, with planar intra prediction.

    Clause 8.5.6.7, Weighted sample prediction process for combined merge and intra prediction.

    Luma must be mapped forward before. Chroma narrower than four samples stays inter prediction.

    Args:
        f: State of the picture.
        x: Column of the unit in luma samples.
        y: Row of the unit in luma samples.
        width: Width of the unit, at most 64.
        height: Height of the unit, at most 64.
    """
    inter, planes = f.scratch.predicted[0], f.planes
    weight = 1 + int(is_intra(f, x - 1, y + height - 1, x)) + int(is_intra(f, x + width - 1, y - 1, x))
    for component in range(3 if f.pic.sps_chroma_format_idc else 1):
        sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
        left, top, columns, rows = x >> sub_x, y >> sub_y, width >> sub_x, height >> sub_y
        if component and columns < 4:
            continue
        plane, stride = f.pic.pred[component] + top * f.pic.stride[component] + left, f.pic.stride[component]
        for row in range(rows):
            for column in range(columns):
                inter[row * columns + column] = planes[plane + row * stride + column]
        predict(f, component, left, top, columns, rows, 0, 0, 0, 0, False)
        for row in range(rows):
            for column in range(columns):
                at = plane + row * stride + column
                planes[at] = (weight * planes[at] + (4 - weight) * inter[row * columns + column] + 2) >> 2


@compiled
def is_intra(f: Frame, x: int, y: int, unit_x: int) -> bool:
    """Return True if the luma sample (x, y) is available and belongs to an intra unit.

    Part of clause 8.5.6.7, Weighted sample prediction process for combined merge and intra prediction.
    """
    if not available(f, 0, x, y, unit_x >> f.pic.ctb_log2_size_y):
        return False
    return bool(f.known[y >> 2, x >> 2].block[0] & MODE_MASK == st.MODE_INTRA)
