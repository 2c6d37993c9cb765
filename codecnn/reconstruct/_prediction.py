"""Intra prediction by planar, DC and angular modes (H.266 clauses 8.4.5.2.6, 8.4.5.2.7, 8.4.5.2.11 to 8.4.5.2.15)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._references import fetch_references, smooth_references
from codecnn.reconstruct._scaling import clip
from codecnn.reconstruct._tables import ANGLES, CUBIC, GAUSSIAN, INVERSE_ANGLES, SMOOTH_FROM
from codecnn.vvc import compiled, log2


@compiled
def wide_angle(mode: int, log2_w: int, log2_h: int) -> int:
    """Wide angle intra prediction mode mapping (8.4.5.2.7): -14 to 80."""
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
    """Predict a block of `component` at (x0, y0) by mode 0 to 66 into its prediction plane.

    `line` is the reference line; `unit_w` and `unit_h` are, of sub-partitions, the size of the coding unit, else 0.
    """
    p = f.p
    log2_w, log2_h = log2(width), log2(height)
    parts = unit_w > 0
    ref_w = width + (unit_w if parts else width)
    ref_h = height + (unit_h if parts else height)
    corner = fetch_references(f, component, x0, y0, ref_w, ref_h, line)
    plane, stride = p[fr.PRED + component] + y0 * p[fr.STRIDE + component] + x0, p[fr.STRIDE + component]
    may_smooth = component == 0 and line == 0 and not parts and not bdpcm
    blended = width >= 4 and height >= 4 and line == 0 and not bdpcm
    if mode == 0:
        if may_smooth and width * height > 32:
            smooth_references(f, ref_w + ref_h + 1)
            corner += fr.LINE_SIZE
        predict_planar(f, plane, stride, corner, log2_w, log2_h)
    elif mode == 1:
        predict_dc(f, plane, stride, corner, width, height, line)
    else:
        wide = wide_angle(mode, log2(unit_w), log2(unit_h)) if parts else wide_angle(mode, log2_w, log2_h)
        distance = min(abs(wide - 50), abs(wide - 18))
        gaussian = False
        if may_smooth and distance > SMOOTH_FROM[(log2_w + log2_h) >> 1]:
            # Modes that meet whole samples need no interpolation, which would smooth: their references are smoothed.
            if angle_of(wide) & 31:
                gaussian = True
            else:
                smooth_references(f, ref_w + ref_h + 1)
                corner += fr.LINE_SIZE
        predict_angular(f, component, plane, stride, corner, width, height, wide, line, ref_w, ref_h, gaussian, blended)
    if mode < 2 and blended:
        blend_flat(f, plane, stride, corner, log2_w, log2_h)


@compiled
def angle_of(wide: int) -> int:
    """intraPredAngle of a mode -14 to 80 that is neither planar nor DC (table 24)."""
    distance = wide - 50 if wide >= 34 else 18 - wide - (2 if wide < 0 else 0)
    angle: int = ANGLES[abs(distance)]
    return angle if distance >= 0 else -angle


@compiled
def predict_planar(f: Frame, plane: int, stride: int, corner: int, log2_w: int, log2_h: int) -> None:
    """Planar (8.4.5.2.11)."""
    s = f.s
    width, height = 1 << log2_w, 1 << log2_h
    right, below = s[corner + 1 + width], s[corner - 1 - height]
    for y in range(height):
        left = s[corner - 1 - y]
        for x in range(width):
            vertical = ((height - 1 - y) * s[corner + 1 + x] + (y + 1) * below) << log2_w
            horizontal = ((width - 1 - x) * left + (x + 1) * right) << log2_h
            value = (vertical + horizontal + width * height) >> (log2_w + log2_h + 1)
            f.planes[plane + y * stride + x] = value


@compiled
def predict_dc(f: Frame, plane: int, stride: int, corner: int, width: int, height: int, line: int) -> None:
    """DC (8.4.5.2.12): the mean of the longer side, of both of a square."""
    s = f.s
    total = 0
    if width >= height:
        for x in range(width):
            total += s[corner + line + 1 + x]
    if height >= width:
        for y in range(height):
            total += s[corner - line - 1 - y]
    count = 2 * width if width == height else max(width, height)
    mean = (total + (count >> 1)) // count
    for y in range(height):
        for x in range(width):
            f.planes[plane + y * stride + x] = mean


@compiled
def blend_flat(f: Frame, plane: int, stride: int, corner: int, log2_w: int, log2_h: int) -> None:
    """Position-dependent filtering of planar and DC (8.4.5.2.15)."""
    s = f.s
    scale = (log2_w + log2_h - 2) >> 2
    for y in range(1 << log2_h):
        weight_t = 32 >> min(31, (y << 1) >> scale)
        left = s[corner - 1 - y]
        for x in range(1 << log2_w):
            weight_l = 32 >> min(31, (x << 1) >> scale)
            value = f.planes[plane + y * stride + x]
            value += (weight_l * (left - value) + weight_t * (s[corner + 1 + x] - value) + 32) >> 6
            f.planes[plane + y * stride + x] = value


@compiled
def predict_angular(
    f: Frame,
    component: int,
    plane: int,
    stride: int,
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
    """Angular modes (8.4.5.2.13) with their position-dependent filtering (8.4.5.2.15), by a mode -14 to 80.

    A mode that predicts from the left is worked out as one from above, sides swapped.
    """
    p, s = f.p, f.s
    vertical = wide >= 34
    distance = abs(wide - 50) if vertical else abs(18 - wide - (2 if wide < 0 else 0))
    angle, inverse = angle_of(wide), INVERSE_ANGLES[distance]
    # `step` goes along the main side, away from the corner; rows are then `right` apart, columns `down`.
    step = 1 if vertical else -1
    right, down = (1, stride) if vertical else (stride, 1)
    if not vertical:
        width, height, ref_w = height, width, ref_h
    # ref[x] of the clause, from x = -height on, at `ref`, the corner being ref[0] of the nearest line.
    ref = fr.SIDE + 66 + line
    for i in range(-line, ref_w + 1):
        s[ref + i] = s[corner + (line + i) * step]
    if angle < 0:
        for k in range(-height, 0):
            s[ref - line + k] = s[corner - min((-k * inverse + 256) >> 9, height) * step]
    else:
        for i in range(ref_w + 1, ref_w + 4 + (line << 6)):
            s[ref + i] = s[ref + ref_w]
    scale = -1
    if blended and angle == 0:
        scale = (log2(width) + log2(height) - 2) >> 2
    elif blended and angle > 0:
        scale = min(2, log2(height) - log2(3 * inverse - 2) + 8)
    peak = (1 << p[fr.BIT_DEPTH]) - 1
    for y in range(height):
        moved = angle * (1 + line + y)
        index, fraction = moved >> 5, moved & 31
        to = plane + y * down
        if angle & 31 == 0:
            for x in range(width):
                f.planes[to + x * right] = s[ref + x + index + 1]
        elif component:
            for x in range(width):
                first, second = s[ref + x + index + 1], s[ref + x + index + 2]
                f.planes[to + x * right] = first + ((fraction * (second - first) + 16) >> 5)
        else:
            taps = GAUSSIAN if gaussian else CUBIC
            f0, f1, f2, f3 = taps[fraction, 0], taps[fraction, 1], taps[fraction, 2], taps[fraction, 3]
            for x in range(width):
                at = ref + x + index
                value = (f0 * s[at] + f1 * s[at + 1] + f2 * s[at + 2] + f3 * s[at + 3] + 32) >> 6
                f.planes[to + x * right] = clip(value, 0, peak)
        if scale >= 0:
            reach = min(3 << scale, width)
            if angle == 0:
                change = s[corner - (1 + y) * step] - s[corner]
                for x in range(reach):
                    value = f.planes[to + x * right] + (((32 >> (2 * x >> scale)) * change + 32) >> 6)
                    f.planes[to + x * right] = clip(value, 0, peak)
            else:
                for x in range(reach):
                    value = f.planes[to + x * right]
                    side = s[corner - (y + (((x + 1) * inverse + 256) >> 9) + 1) * step]
                    value += ((32 >> (2 * x >> scale)) * (side - value) + 32) >> 6
                    f.planes[to + x * right] = value
