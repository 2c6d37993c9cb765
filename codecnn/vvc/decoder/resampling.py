"""Prediction from reference pictures of another size (reference picture resampling, H.266 clause 8.5.6.3)."""

from codecnn.base.compiled import compiled, compiled_inline
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.interpolation import interpolate
from codecnn.vvc.decoder.interpolation_filters import (
    AFFINE,
    AFFINE_DOWN_1,
    AFFINE_DOWN_2,
    CHROMA_FILTERS,
    DOWN_1,
    DOWN_2,
    HALF_SAMPLE,
    LUMA_FILTERS,
    REGULAR,
)
from codecnn.vvc.decoder.records import FAULT_REFERENCE, INTER_BLOCK
from codecnn.vvc.decoder.reference_samples import ref_pic, sample_bounds


@compiled_inline
def predict_from(
    f: Frame,
    reference: int,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    block_x: int,
    block_y: int,
    mv_x: int,
    mv_y: int,
    kind: int,
    target: Array[int],
) -> int:
    """Predict a block from a reference of any size, with 14 bits of precision.

    Part of clause 8.5.6.3.1, Fractional sample interpolation process.

    Args:
        f: State of the picture.
        reference: Reference picture list entry, as `ref_pic` takes it.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the block in its component.
        y: Row of the block in its component.
        width: Width of the block, at most 64.
        height: Height of the block, at most 64.
        block_x: Column of the whole block with this vector, from which positions in a scaled reference are counted.
        block_y: Row of the whole block with this vector.
        mv_x: Horizontal vector in 1/16 luma sample.
        mv_y: Vertical vector.
        kind: Filter set: REGULAR, HALF_SAMPLE or AFFINE.
        target: The result.

    Returns:
        Number of columns of a row of the result.
    """
    if ref_pic(f, reference).scaled:
        resample(f, reference, component, x, y, width, height, block_x, block_y, mv_x, mv_y, kind, target)
        return width
    return interpolate(f, reference, component, x, y, width, height, mv_x, mv_y, mv_x, mv_y, kind, -1, target)


@compiled
def filter_of(kind: int, scale: int, component: int) -> int:
    """Return the filter set for a scale: those for larger references also reduce aliasing.

    Part of clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Part of clause 8.5.6.3.4, Chroma sample interpolation process.
    """
    affine = kind == AFFINE and component == 0
    if scale > 28672:
        return AFFINE_DOWN_2 if affine else DOWN_2
    if scale > 20480:
        return AFFINE_DOWN_1 if affine else DOWN_1
    return REGULAR if kind == HALF_SAMPLE and scale != 1 << 14 else kind


@compiled
def scaled_position(
    place: int, window: int, vector: int, scale: int, addend: int, sub: int, reference_window: int
) -> int:
    """Return the position of the first sample of a block in a scaled reference, with 10 fractional bits.

    Part of clause 8.5.6.3.1, Fractional sample interpolation process.

    Args:
        place: Column or row of the block in its component.
        window: Offset of the scaling window of the picture in luma samples.
        vector: Component of the vector in 1/16 luma sample.
        scale: RefPicScale.
        addend: Correction for the position of chroma samples.
        sub: log2 of the subsampling of the component.
        reference_window: Offset of the scaling window of the reference in luma samples.
    """
    inside = ((place << sub) - window) >> sub
    moved = ((inside << (4 + sub)) + vector) * scale + addend
    rounded = (abs(moved) + (1 << (7 + sub))) >> (8 + sub)
    return (rounded if moved >= 0 else -rounded) + (reference_window << (10 - sub))


@compiled
def resample(
    f: Frame,
    reference: int,
    component: int,
    x: int,
    y: int,
    width: int,
    height: int,
    block_x: int,
    block_y: int,
    mv_x: int,
    mv_y: int,
    kind: int,
    target: Array[int],
) -> None:
    """Predict a block from a scaled reference; arguments as those of `predict_from`, rows of the result are `width`.

    Clause 8.5.6.3.1, Fractional sample interpolation process.
    Clause 8.5.6.3.2, Luma sample interpolation filtering process.
    Clause 8.5.6.3.4, Chroma sample interpolation process.
    """
    filtered, samples, ref = f.scratch.resampled, f.references, ref_pic(f, reference)
    if ref.width <= 0:
        f.current.fault = FAULT_REFERENCE
        target[: width * height] = 1 << 13
        return
    sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
    scale_x, scale_y = ref.scale_x, ref.scale_y
    collocated_x = f.slice.sps_chroma_horizontal_collocated_flag
    add_x = 8 * (scale_x - (1 << 14)) if component and not collocated_x else 0
    add_y = 8 * (scale_y - (1 << 14)) if component and not f.pic.sps_chroma_vertical_collocated_flag else 0
    first_x = scaled_position(block_x, f.slice.window_left, mv_x, scale_x, add_x, sub_x, ref.window_left)
    first_y = scaled_position(block_y, f.slice.window_top, mv_y, scale_y, add_y, sub_y, ref.window_top)
    step_x, step_y = (scale_x + 8) >> 4, (scale_y + 8) >> 4
    bits, taps = (5, 4) if component else (4, 8)
    half = 1 << (9 - bits)
    first_x += half + (x - block_x) * step_x
    first_y += half + (y - block_y) * step_y
    kind_x, kind_y = filter_of(kind, scale_x, component), filter_of(kind, scale_y, component)
    left, right, top, bottom = sample_bounds(f, reference, component)
    stride, start = ref.stride[component], ref.start[component]
    # Filter the rows along which the second filter runs. A scale that the standard forbids may need too many rows.
    top_row = (first_y >> 10) - taps // 2 + 1
    rows = min((first_y + (height - 1) * step_y >> 10) - (first_y >> 10) + taps, 2 * INTER_BLOCK // width)
    shift = min(4, f.pic.bit_depth - 8)
    for row in range(rows):
        line = start + clip(top_row + row, top, bottom) * stride
        for column in range(width):
            position = first_x + column * step_x
            fraction = (position >> (10 - bits)) & ((1 << bits) - 1)
            leftmost = (position >> 10) - taps // 2 + 1
            total = 0
            for tap in range(taps):
                weight = CHROMA_FILTERS[kind_x, fraction, tap] if component else LUMA_FILTERS[kind_x, fraction, tap]
                total += weight * samples[line + clip(leftmost + tap, left, right)]
            filtered[row * width + column] = total >> shift
    for row in range(height):
        position = first_y + row * step_y
        fraction = (position >> (10 - bits)) & ((1 << bits) - 1)
        first_row = min((position >> 10) - (first_y >> 10), rows - taps)
        for column in range(width):
            at = first_row * width + column
            total = 0
            for tap in range(taps):
                weight = CHROMA_FILTERS[kind_y, fraction, tap] if component else LUMA_FILTERS[kind_y, fraction, tap]
                total += weight * filtered[at + tap * width]
            target[row * width + column] = total >> 6
