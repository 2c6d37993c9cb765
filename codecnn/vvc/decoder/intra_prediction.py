"""Intra prediction by planar, DC and angular modes and by matrices (H.266 clauses 8.4.5.2.2 to 8.4.5.2.15)."""

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import ANGLES, CUBIC, GAUSSIAN, INVERSE_ANGLES, SMOOTH_FROM, Frame, clip
from codecnn.vvc.decoder.references import fetch_references, smooth_references
from codecnn.vvc.syntax import log2


@compiled
def wide_angle(mode: int, log2_w: int, log2_h: int) -> int:
    """Map a mode to a wide angle mode.

    Clause 8.4.5.2.7, Wide angle intra prediction mode mapping process.

    Args:
        mode: Mode, 0 to 66.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.

    Returns:
        Mode, -14 to 80.
    """
    if mode < 2:
        return mode
    ratio = abs(log2_w - log2_h)
    if log2_w > log2_h and mode < (8 + 2 * ratio if ratio > 1 else 8):
        return mode + 65
    if log2_h > log2_w and mode > (60 - 2 * ratio if ratio > 1 else 60):
        return mode - 67
    return mode


@compiled
def predict(
    f: Frame,
    component: int,
    x0: int,
    y0: int,
    width: int,
    height: int,
    mode: int,
    line: int,
    unit_w: int,
    unit_h: int,
    bdpcm: bool,
) -> None:
    """Predict a block by planar, DC or an angular mode into the prediction plane.

    Clause 8.4.5.2.6, General intra sample prediction.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x0: Column of the block in its component.
        y0: Row of the block in its component.
        width: Width of the block.
        height: Height of the block.
        mode: Mode, 0 to 66.
        line: Reference line, 0 for the nearest.
        unit_w: Width of the coding unit if the block is a sub-partition (ISP), else 0.
        unit_h: Height of the coding unit if the block is a sub-partition (ISP), else 0.
        bdpcm: The block uses BDPCM.
    """
    log2_w, log2_h = log2(width), log2(height)
    parts = unit_w > 0
    ref_w = width + (unit_w if parts else width)
    ref_h = height + (unit_h if parts else height)
    corner = fetch_references(f, component, x0, y0, ref_w, ref_h, line)
    p = f.scratch.reference[0]
    plane, stride = f.pic.pred[component] + y0 * f.pic.stride[component] + x0, f.pic.stride[component]
    may_smooth = component == 0 and line == 0 and not parts and not bdpcm
    blended = width >= 4 and height >= 4 and line == 0 and not bdpcm
    if mode == 0:
        if may_smooth and width * height > 32:
            smooth_references(f, ref_w + ref_h + 1)
            p = f.scratch.reference[1]
        predict_planar(f, plane, stride, p, corner, log2_w, log2_h)
    elif mode == 1:
        predict_dc(f, plane, stride, p, corner, width, height, line)
    else:
        wide = wide_angle(mode, log2(unit_w), log2(unit_h)) if parts else wide_angle(mode, log2_w, log2_h)
        distance = min(abs(wide - 50), abs(wide - 18))
        gaussian = False
        if may_smooth and distance > SMOOTH_FROM[(log2_w + log2_h) >> 1]:
            # A fractional angle is smoothed by its interpolation filter, other angles by smoothed references.
            if angle_of(wide) & 31:
                gaussian = True
            else:
                smooth_references(f, ref_w + ref_h + 1)
                p = f.scratch.reference[1]
        predict_angular(
            f, component, plane, stride, p, corner, width, height, wide, line, ref_w, ref_h, gaussian, blended
        )
    if mode < 2 and blended:
        blend_flat(f, plane, stride, p, corner, log2_w, log2_h)


@compiled
def angle_of(wide: int) -> int:
    """Return intraPredAngle of a mode from -14 to 80 that is neither planar nor DC (table 24).

    Part of clause 8.4.5.2.13, Specification of INTRA_ANGULAR2..INTRA_ANGULAR66 intra prediction modes.
    """
    distance = wide - 50 if wide >= 34 else 18 - wide - (2 if wide < 0 else 0)
    angle: int = ANGLES[abs(distance)]
    return angle if distance >= 0 else -angle


@compiled
def predict_planar(f: Frame, plane: int, stride: int, p: Array[int], corner: int, log2_w: int, log2_h: int) -> None:
    """Predict by planar mode.

    Clause 8.4.5.2.11, Specification of INTRA_PLANAR intra prediction mode.
    """
    width, height = 1 << log2_w, 1 << log2_h
    right, below = p[corner + 1 + width], p[corner - 1 - height]
    for y in range(height):
        left = p[corner - 1 - y]
        for x in range(width):
            vertical = ((height - 1 - y) * p[corner + 1 + x] + (y + 1) * below) << log2_w
            horizontal = ((width - 1 - x) * left + (x + 1) * right) << log2_h
            value = (vertical + horizontal + width * height) >> (log2_w + log2_h + 1)
            f.planes[plane + y * stride + x] = value


@compiled
def predict_dc(
    f: Frame, plane: int, stride: int, p: Array[int], corner: int, width: int, height: int, line: int
) -> None:
    """Predict by DC mode: the mean of the longer side, of both sides of a square.

    Clause 8.4.5.2.12, Specification of INTRA_DC intra prediction mode.
    """
    total = 0
    if width >= height:
        for x in range(width):
            total += p[corner + line + 1 + x]
    if height >= width:
        for y in range(height):
            total += p[corner - line - 1 - y]
    count = 2 * width if width == height else max(width, height)
    mean = (total + (count >> 1)) // count
    for y in range(height):
        for x in range(width):
            f.planes[plane + y * stride + x] = mean


@compiled
def blend_flat(f: Frame, plane: int, stride: int, p: Array[int], corner: int, log2_w: int, log2_h: int) -> None:
    """Apply position-dependent filtering to a planar or DC prediction.

    Part of clause 8.4.5.2.15, Position-dependent intra prediction sample filtering process.
    """
    scale = (log2_w + log2_h - 2) >> 2
    for y in range(1 << log2_h):
        weight_t = 32 >> min(31, (y << 1) >> scale)
        left = p[corner - 1 - y]
        for x in range(1 << log2_w):
            weight_l = 32 >> min(31, (x << 1) >> scale)
            value = f.planes[plane + y * stride + x]
            value += (weight_l * (left - value) + weight_t * (p[corner + 1 + x] - value) + 32) >> 6
            f.planes[plane + y * stride + x] = value


@compiled
def predict_angular(
    f: Frame,
    component: int,
    plane: int,
    stride: int,
    p: Array[int],
    corner: int,
    width: int,
    height: int,
    wide: int,
    line: int,
    ref_w: int,
    ref_h: int,
    gaussian: bool,
    blended: bool,
) -> None:
    """Predict by an angular mode from -14 to 80 with position-dependent filtering.

    Clause 8.4.5.2.13, Specification of INTRA_ANGULAR2..INTRA_ANGULAR66 intra prediction modes.
    Part of clause 8.4.5.2.15, Position-dependent intra prediction sample filtering process.

    A mode that predicts from the left is computed like one from above, with the sides swapped.
    """
    ref = f.scratch.main_reference
    vertical = wide >= 34
    distance = abs(wide - 50) if vertical else abs(18 - wide - (2 if wide < 0 else 0))
    angle, inverse = angle_of(wide), INVERSE_ANGLES[distance]
    # `step` runs along the main side away from the corner; `right` and `down` are the steps along it and across it.
    step = 1 if vertical else -1
    right, down = (1, stride) if vertical else (stride, 1)
    if not vertical:
        width, height, ref_w = height, width, ref_h
    # ref[x] of the clause, from x = -height on, stands at `first` + x; the corner is ref[0] of the nearest line.
    first = 66 + line
    for i in range(-line, ref_w + 1):
        ref[first + i] = p[corner + (line + i) * step]
    if angle < 0:
        for k in range(-height, 0):
            ref[first - line + k] = p[corner - min((-k * inverse + 256) >> 9, height) * step]
    else:
        for i in range(ref_w + 1, ref_w + 4 + (line << 6)):
            ref[first + i] = ref[first + ref_w]
    scale = -1
    if blended and angle == 0:
        scale = (log2(width) + log2(height) - 2) >> 2
    elif blended and angle > 0:
        scale = min(2, log2(height) - log2(3 * inverse - 2) + 8)
    peak = (1 << f.pic.bit_depth) - 1
    for y in range(height):
        moved = angle * (1 + line + y)
        index, fraction = moved >> 5, moved & 31
        to = plane + y * down
        if angle & 31 == 0:
            for x in range(width):
                f.planes[to + x * right] = ref[first + x + index + 1]
        elif component:
            for x in range(width):
                near, far = ref[first + x + index + 1], ref[first + x + index + 2]
                f.planes[to + x * right] = near + ((fraction * (far - near) + 16) >> 5)
        else:
            taps = GAUSSIAN if gaussian else CUBIC
            f0, f1, f2, f3 = taps[fraction, 0], taps[fraction, 1], taps[fraction, 2], taps[fraction, 3]
            for x in range(width):
                at = first + x + index
                value = (f0 * ref[at] + f1 * ref[at + 1] + f2 * ref[at + 2] + f3 * ref[at + 3] + 32) >> 6
                f.planes[to + x * right] = clip(value, 0, peak)
        if scale >= 0:
            reach = min(3 << scale, width)
            if angle == 0:
                change = p[corner - (1 + y) * step] - p[corner]
                for x in range(reach):
                    value = f.planes[to + x * right] + (((32 >> (2 * x >> scale)) * change + 32) >> 6)
                    f.planes[to + x * right] = clip(value, 0, peak)
            else:
                for x in range(reach):
                    value = f.planes[to + x * right]
                    side = p[corner - (y + (((x + 1) * inverse + 256) >> 9) + 1) * step]
                    value += ((32 >> (2 * x >> scale)) * (side - value) + 32) >> 6
                    f.planes[to + x * right] = value


@compiled
def predict_by_matrix(
    f: Frame, component: int, x0: int, y0: int, width: int, height: int, mode: int, transposed: bool
) -> None:
    """Predict a block by matrix-based intra prediction (MIP).

    Clause 8.4.5.2.2, Matrix-based intra sample prediction.
    Clause 8.4.5.2.5, MIP prediction upsampling process.

    Both sides are averaged to a few samples, a matrix maps these to a small block, and interpolation enlarges it.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x0: Column of the block in its component.
        y0: Row of the block in its component.
        width: Width of the block.
        height: Height of the block.
        mode: intra_mip_mode.
        transposed: intra_mip_transposed_flag.
    """
    p, reduced, weights = f.scratch.reference[0], f.scratch.mip_input, f.tables.mip_weights
    corner = fetch_references(f, component, x0, y0, 2 * width, 2 * height, 0)
    size = 0 if width == 4 and height == 4 else 1 if width == 4 or height == 4 or (width == 8 and height == 8) else 2
    sides = 2 if size == 0 else 4
    side = 4 if size < 2 else 8
    peak = (1 << f.pic.bit_depth) - 1
    average_side(f, corner, 1, width, sides, sides if transposed else 0)
    average_side(f, corner, -1, height, sides, 0 if transposed else sides)
    base = reduced[0]
    reduced[0] = 0 if size == 2 else (1 << (f.pic.bit_depth - 1)) - base
    total = reduced[0]
    for i in range(1, 2 * sides):
        reduced[i] -= base
        total += reduced[i]
    plane, stride = f.pic.pred[component] + y0 * f.pic.stride[component] + x0, f.pic.stride[component]
    step_x, step_y = width // side, height // side
    for y in range(side):
        for x in range(side):
            result = x * side + y if transposed else y * side + x
            value = 32 - 32 * total
            for i in range(2 * sides):
                value += weights[size, mode, result, i] * reduced[i]
            # Each result is the last of the samples that are interpolated up to it.
            row, column = (y + 1) * step_y - 1, (x + 1) * step_x - 1
            f.planes[plane + row * stride + column] = clip((value >> 6) + base, 0, peak)
    # Interpolate the rows that have results from left to right, then all columns downwards.
    for row in range(step_y - 1, height, step_y):
        before = p[corner - 1 - row]
        for x in range(side):
            to = plane + row * stride + x * step_x
            after = f.planes[to + step_x - 1]
            for i in range(step_x - 1):
                f.planes[to + i] = ((step_x - 1 - i) * before + (i + 1) * after + (step_x >> 1)) // step_x
            before = after
    for column in range(width):
        before = p[corner + 1 + column]
        for y in range(side):
            to = plane + y * step_y * stride + column
            after = f.planes[to + (step_y - 1) * stride]
            for i in range(step_y - 1):
                f.planes[to + i * stride] = ((step_y - 1 - i) * before + (i + 1) * after + (step_y >> 1)) // step_y
            before = after


@compiled
def average_side(f: Frame, corner: int, step: int, size: int, count: int, to: int) -> None:
    """Average the `size` samples of one side, in direction `step` from the corner, to `count` of `scratch.mip_input`.

    Clause 8.4.5.2.3, MIP boundary sample downsampling process.
    """
    p = f.scratch.reference[0]
    each = size // count
    for i in range(count):
        total = each >> 1
        for k in range(each):
            total += p[corner + (1 + i * each + k) * step]
        f.scratch.mip_input[to + i] = total // each
