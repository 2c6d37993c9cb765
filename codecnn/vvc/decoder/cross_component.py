"""Prediction of chroma from luma: cross-component linear model, CCLM (H.266 clause 8.4.5.2.14)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.references import available
from codecnn.vvc.syntax import log2

_LEFT, _ABOVE = 68, 69
"""Modes that use only the left or only the upper side."""

_RECIPROCALS = (0, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1, 0)
"""divSigTable."""


@compiled
def luma_at(f: Frame, x: int, y: int, no_left: bool, no_above: bool, one_row: bool) -> int:
    """Downsample luma at the chroma sample (x, y): pDsY, or pTopDsY if only `one_row` of luma may be used.

    Part of clause 8.4.5.2.14, Specification of INTRA_LT_CCLM, INTRA_L_CCLM and INTRA_T_CCLM intra prediction mode.

    `no_left` and `no_above` say that luma to the left of or above this sample is not available.
    """
    planes = f.planes
    stride = f.pic.stride[0]
    if f.pic.log2_sub_width_c == 0:
        return int(planes[f.pic.recon[0] + y * stride + x])
    left = 0 if no_left else 1
    if one_row or f.pic.log2_sub_height_c == 0:
        row = (y << f.pic.log2_sub_height_c) + (f.pic.log2_sub_height_c if one_row else 0)
        at = f.pic.recon[0] + row * stride + 2 * x
        return int((planes[at - left] + 2 * planes[at] + planes[at + 1] + 2) >> 2)
    at = f.pic.recon[0] + 2 * y * stride + 2 * x
    if f.pic.sps_chroma_vertical_collocated_flag:
        above = 0 if no_above else stride
        total = planes[at - above] + planes[at - left] + 4 * planes[at] + planes[at + 1] + planes[at + stride]
        return int((total + 4) >> 3)
    total = planes[at - left] + 2 * planes[at] + planes[at + 1]
    at += stride
    return int((total + planes[at - left] + 2 * planes[at] + planes[at + 1] + 4) >> 3)


@compiled
def count_further(f: Frame, x: int, y: int, step_x: int, step_y: int, unit: int, most: int, ctb_x: int) -> int:
    """Count the available chroma samples from (x, y) on in steps of 4 luma samples, at most `most`.

    Part of clause 8.4.5.2.14, Specification of INTRA_LT_CCLM, INTRA_L_CCLM and INTRA_T_CCLM intra prediction mode.
    """
    count = 0
    while count < most and available(f, 1, x + count * step_x, y + count * step_y, ctb_x):
        count += unit
    return min(count, most)


@compiled
def predict_from_luma(f: Frame, component: int, x0: int, y0: int, width: int, height: int, mode: int) -> None:
    """Predict a chroma block from the reconstructed luma of the same block.

    Clause 8.4.5.2.14, Specification of INTRA_LT_CCLM, INTRA_L_CCLM and INTRA_T_CCLM intra prediction mode.

    Args:
        f: State of the picture.
        component: 1 Cb, 2 Cr.
        x0: Column of the block in its component.
        y0: Row of the block in its component.
        width: Width of the block.
        height: Height of the block.
        mode: 67 uses both sides, 68 the left, 69 the upper side.
    """
    luma, chroma, planes = f.scratch.cclm_luma, f.scratch.cclm_chroma, f.planes
    ctb_x = (x0 << f.pic.log2_sub_width_c) >> f.pic.ctb_log2_size_y
    has_left = available(f, 1, x0 - 1, y0, ctb_x)
    has_above = available(f, 1, x0, y0 - 1, ctb_x)
    first_row = ((y0 << f.pic.log2_sub_height_c) & ((1 << f.pic.ctb_log2_size_y) - 1)) == 0
    unit_x, unit_y = 4 >> f.pic.log2_sub_width_c, 4 >> f.pic.log2_sub_height_c
    count_t, count_l = (width if has_above else 0), (height if has_left else 0)
    if mode == _ABOVE:
        count_l = 0
        if has_above:
            count_t += count_further(f, x0 + width, y0 - 1, 1, 0, unit_x, min(height, width), ctb_x)
    elif mode == _LEFT:
        count_t = 0
        if has_left:
            count_l += count_further(f, x0 - 1, y0 + height, 0, 1, unit_y, min(width, height), ctb_x)
    # At most four pairs of luma and chroma, evenly spread: half from each side, or all from one side.
    single = 1 if count_t == 0 or count_l == 0 else 0
    stride, plane = f.pic.stride[component], f.pic.recon[component]
    pairs = 0
    if count_t:
        at, step = count_t >> (2 + single), max(1, count_t >> (1 + single))
        for _ in range(min(count_t, 2 << single)):
            luma[pairs] = luma_at(f, x0 + at, y0 - 1, at == 0 and not has_left, False, first_row)
            chroma[pairs] = planes[plane + (y0 - 1) * stride + x0 + at]
            pairs += 1
            at += step
    if count_l:
        at, step = count_l >> (2 + single), max(1, count_l >> (1 + single))
        for _ in range(min(count_l, 2 << single)):
            luma[pairs] = luma_at(f, x0 - 1, y0 + at, False, at == 0 and not has_above, False)
            chroma[pairs] = planes[plane + (y0 + at) * stride + x0 - 1]
            pairs += 1
            at += step
    a, b, shift = linear_model(f, pairs)
    peak = (1 << f.pic.bit_depth) - 1
    to, stride = f.pic.pred[component], f.pic.stride[component]
    for y in range(height):
        for x in range(width):
            value = luma_at(f, x0 + x, y0 + y, x == 0 and not has_left, y == 0 and not has_above, False)
            planes[to + (y0 + y) * stride + x0 + x] = clip(((value * a) >> shift) + b, 0, peak)


@compiled
def linear_model(f: Frame, pairs: int) -> tuple[int, int, int]:
    """Derive a, b, k of chroma = ((a * luma) >> k) + b from the means of the two lower and two upper pairs.

    Part of clause 8.4.5.2.14, Specification of INTRA_LT_CCLM, INTRA_L_CCLM and INTRA_T_CCLM intra prediction mode.
    """
    luma, chroma = f.scratch.cclm_luma, f.scratch.cclm_chroma
    if pairs == 0:
        return 0, 1 << (f.pic.bit_depth - 1), 0
    if pairs == 2:
        # One pair is taken twice as the lower ones, the other twice as the upper ones.
        for values in (luma, chroma):
            values[3] = values[0]
            values[2] = values[1]
            values[0] = values[1]
            values[1] = values[3]
    low0, low1, high0, high1 = 0, 2, 1, 3
    if luma[0] > luma[2]:
        low0, low1 = 2, 0
    if luma[1] > luma[3]:
        high0, high1 = 3, 1
    if luma[low0] > luma[high1]:
        low0, low1, high0, high1 = high0, high1, low0, low1
    if luma[low1] > luma[high0]:
        low1, high0 = high0, low1
    least = (luma[low0] + luma[low1] + 1) >> 1
    least_c = (chroma[low0] + chroma[low1] + 1) >> 1
    spread = ((luma[high0] + luma[high1] + 1) >> 1) - least
    if spread <= 0:
        return 0, least_c, 0
    spread_c = ((chroma[high0] + chroma[high1] + 1) >> 1) - least_c
    x = log2(spread)
    fraction = ((spread << 4) >> x) & 15
    v = _RECIPROCALS[fraction] | 8
    x += 1 if fraction else 0
    y = log2(abs(spread_c)) + 1 if spread_c else 0
    a = (spread_c * v + ((1 << y) >> 1)) >> y
    shift = 3 + x - y
    if shift < 1:
        shift = 1
        a = 0 if a == 0 else 15 if a > 0 else -15
    return a, least_c - ((a * least) >> shift), shift
