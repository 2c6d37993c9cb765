"""Prediction of units with geometric partitions (H.266 clauses 8.5.7.1 and 8.5.7.2)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.geometric_motion import DISPLACEMENT, PARTITIONS
from codecnn.vvc.decoder.interpolation_filters import REGULAR
from codecnn.vvc.decoder.resampling import predict_from


@compiled
def predict_geometric(f: Frame, x: int, y: int, width: int, height: int, entry_0: int, entry_1: int) -> None:
    """Predict both parts of a unit over the whole unit and blend them.

    Clause 8.5.7.1, Decoding process for geometric partitioning mode inter blocks.

    Args:
        f: State of the picture; the vectors of the parts are in `f.unit.motion`.
        x: Column of the unit in luma samples.
        y: Row of the unit in luma samples.
        width: Width of the unit, at most 64.
        height: Height of the unit, at most 64.
        entry_0: Reference picture list entry of part 0, as `ref_pic` takes it.
        entry_1: Reference picture list entry of part 1.
    """
    mv = f.unit.motion.mv
    predicted = f.scratch.predicted
    for component in range(3 if f.pic.sps_chroma_format_idc else 1):
        sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
        left, top, columns, rows = x >> sub_x, y >> sub_y, width >> sub_x, height >> sub_y
        stride_0 = predict_from(
            f, entry_0, component, left, top, columns, rows, left, top, mv[0].x, mv[0].y, REGULAR, predicted[0]
        )
        stride_1 = predict_from(
            f, entry_1, component, left, top, columns, rows, left, top, mv[1].x, mv[1].y, REGULAR, predicted[1]
        )
        blend(f, component, x, y, width, height, stride_0, stride_1)


@compiled
def blend(f: Frame, component: int, x: int, y: int, width: int, height: int, stride_0: int, stride_1: int) -> None:
    """Blend the predictions of two parts by the distance from the line between them.

    Clause 8.5.7.2, Weighted sample prediction process for geometric partitioning mode.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the unit in luma samples.
        y: Row of the unit in luma samples.
        width: Width of the unit in luma samples.
        height: Height of the unit in luma samples.
        stride_0: Numbers of a row of the prediction of part 0, which is `scratch.predicted[0]`.
        stride_1: Numbers of a row of the prediction of part 1.
    """
    predicted_0, predicted_1, planes = f.scratch.predicted[0], f.scratch.predicted[1], f.planes
    sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
    partition = f.unit.merge_gpm_partition_idx & 63
    angle, distance = PARTITIONS[partition, 0], PARTITIONS[partition, 1]
    sign = -1 if 13 <= angle <= 27 else 1
    along_x, along_y = sign * DISPLACEMENT[angle], sign * DISPLACEMENT[(angle + 8) % 32]
    offset_x, offset_y = -(width >> 1), -(height >> 1)
    if angle % 16 == 8 or (angle % 16 != 0 and height >= width):
        moved = distance * height >> 3
        offset_y += moved if angle < 16 else -moved
    else:
        moved = distance * width >> 3
        offset_x += moved if angle < 16 else -moved
    shift = max(5, 17 - f.pic.bit_depth)
    addend, peak = 1 << (shift - 1), (1 << f.pic.bit_depth) - 1
    stride = f.pic.stride[component]
    for row in range(height >> sub_y):
        out = f.pic.pred[component] + ((y >> sub_y) + row) * stride + (x >> sub_x)
        first, second = row * stride_0, row * stride_1
        line = (2 * ((row << sub_y) + offset_y) + 1) * along_y
        for column in range(width >> sub_x):
            weight = clip((36 + (2 * ((column << sub_x) + offset_x) + 1) * along_x + line) >> 3, 0, 8)
            value = predicted_0[first + column] * weight + predicted_1[second + column] * (8 - weight)
            planes[out + column] = clip((value + addend) >> shift, 0, peak)
