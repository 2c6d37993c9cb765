"""Weighted sample prediction: default, explicit and bi-prediction with CU-level weights (H.266 clause 8.5.6.6)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, U
from codecnn.vvc.decoder.reference_samples import ref_pic

BCW_WEIGHTS = np.array([4, 5, 3, 10, -2], np.int64)
"""Weight of L1 by bcw_idx, in units of 1/8."""


@compiled
def write_weighted(
    f: Frame,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    stride_0: int,
    stride_1: int,
    weight_0: int,
    weight_1: int,
    addend: int,
    shift: int,
    offset: int,
) -> None:
    """Write clip(((first * weight_0 + second * weight_1 + addend) >> shift) + offset) to the prediction plane.

    Part of clause 8.5.6.6.2, Default weighted sample prediction process.
    Part of clause 8.5.6.6.3, Explicit weighted sample prediction process.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the block in its component.
        y: Row of the block in its component.
        width: Width of the block.
        height: Height of the block.
        stride_0: Numbers of a row of the first prediction, which is `scratch.predicted[0]`.
        stride_1: Numbers of a row of the second prediction; 0 if there is none.
        weight_0: Weight of the first prediction.
        weight_1: Weight of the second prediction.
        addend: Number added before the shift.
        shift: Right shift.
        offset: Number added after the shift.
    """
    predicted_0, predicted_1, planes = f.scratch.predicted[0], f.scratch.predicted[1], f.planes
    peak = np.int32((1 << f.pic.bit_depth) - 1)
    stride = f.pic.stride[component]
    target = f.pic.pred[component] + y * stride + x
    w0, w1, a, o = np.int32(weight_0), np.int32(weight_1), np.int32(addend), np.int32(offset)
    for row in range(height):
        out = U(target + row * stride)
        first, second = U(row * stride_0), U(row * stride_1)
        for k in range(width):
            i = U(k)
            value = np.int32((np.int32(predicted_0[first + i] * w0 + predicted_1[second + i] * w1 + a) >> shift) + o)
            planes[out + i] = min(max(value, np.int32(0)), peak)


@compiled
def combine(
    f: Frame,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    reference_0: int,
    reference_1: int,
    bcw: int,
    stride_0: int,
    stride_1: int,
) -> None:
    """Combine the predictions of a block in `scratch.predicted` and write them to the prediction plane.

    Clause 8.5.6.6.1, Weighted sample prediction process.
    Clause 8.5.6.6.2, Default weighted sample prediction process.
    Clause 8.5.6.6.3, Explicit weighted sample prediction process.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the block in its component.
        y: Row of the block in its component.
        width: Width of the block.
        height: Height of the block.
        reference_0: Reference picture list entry of L0, as `ref_pic` takes it, -1 if it is unused.
        reference_1: Reference picture list entry of L1, -1 if it is unused.
        bcw: bcw_idx; 0 with CIIP.
        stride_0: Numbers of a row of the prediction from L0.
        stride_1: Numbers of a row of the prediction from L1, which is the first one if L0 is unused.
    """
    shift = max(2, 14 - f.pic.bit_depth)
    explicit = f.slice.weighted_pred_flag and bcw == 0
    log2_weight_denom = f.slice.log2_weight_denom[component]
    if reference_0 < 0 or reference_1 < 0:
        reference = max(reference_0, reference_1)
        only = stride_1 if reference_0 < 0 else stride_0
        weight, offset = 1, 0
        if explicit:
            weighting = ref_pic(f, reference).weighting[component]
            weight, offset = weighting.weight, weighting.offset
            shift += log2_weight_denom
        write_weighted(f, component, x, y, width, height, only, 0, weight, 0, 1 << (shift - 1), shift, offset)
        return
    weight_0 = weight_1 = 1
    addend = 1 << shift
    shift += 1
    if bcw > 0:
        weight_1 = BCW_WEIGHTS[min(bcw, 4)]
        weight_0 = 8 - weight_1
        shift += 2
        addend = 1 << (shift - 1)
    elif explicit:
        first = ref_pic(f, reference_0).weighting[component]
        second = ref_pic(f, reference_1).weighting[component]
        weight_0, weight_1 = first.weight, second.weight
        shift += log2_weight_denom
        addend = (first.offset + second.offset + 1) << (shift - 1)
    write_weighted(f, component, x, y, width, height, stride_0, stride_1, weight_0, weight_1, addend, shift, 0)
