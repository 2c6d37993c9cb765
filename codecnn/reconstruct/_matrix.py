"""Matrix-based intra prediction (H.266 clauses 8.4.5.2.2 to 8.4.5.2.4)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._references import fetch_references
from codecnn.reconstruct._scaling import clip
from codecnn.vvc import compiled


@compiled
def predict_by_matrix(
    f: Frame, component: int, x0: int, y0: int, width: int, height: int, mode: int, transposed: bool
) -> None:
    """Predict a block by MIP: both sides averaged to few samples, a matrix, and interpolation of what comes out."""
    p, s = f.p, f.s
    corner = fetch_references(f, component, x0, y0, 2 * width, 2 * height, 0)
    size = 0 if width == 4 and height == 4 else 1 if width == 4 or height == 4 or (width == 8 and height == 8) else 2
    sides = 2 if size == 0 else 4
    side = 4 if size < 2 else 8
    peak = (1 << p[fr.BIT_DEPTH]) - 1
    average(f, corner, 1, width, sides, fr.MIP + (sides if transposed else 0))
    average(f, corner, -1, height, sides, fr.MIP + (0 if transposed else sides))
    base = s[fr.MIP]
    s[fr.MIP] = 0 if size == 2 else (1 << (p[fr.BIT_DEPTH] - 1)) - base
    total = s[fr.MIP]
    for i in range(1, 2 * sides):
        s[fr.MIP + i] -= base
        total += s[fr.MIP + i]
    plane, stride = p[fr.PRED + component] + y0 * p[fr.STRIDE + component] + x0, p[fr.STRIDE + component]
    weights = fr.MIP_AT + 8 * 64 * (16 * size + mode)
    step_x, step_y = width // side, height // side
    for y in range(side):
        for x in range(side):
            at = weights + 8 * (x * side + y if transposed else y * side + x)
            value = 32 - 32 * total
            for i in range(2 * sides):
                value += s[at + i] * s[fr.MIP + i]
            # Each lies at the end of the samples that are interpolated up to it.
            row, column = (y + 1) * step_y - 1, (x + 1) * step_x - 1
            f.planes[plane + row * stride + column] = clip((value >> 6) + base, 0, peak)
    # First along the rows that have samples, from the left, then down the columns.
    for row in range(step_y - 1, height, step_y):
        before = s[corner - 1 - row]
        for x in range(side):
            to = plane + row * stride + x * step_x
            behind = f.planes[to + step_x - 1]
            for i in range(step_x - 1):
                f.planes[to + i] = ((step_x - 1 - i) * before + (i + 1) * behind + (step_x >> 1)) // step_x
            before = behind
    for column in range(width):
        before = s[corner + 1 + column]
        for y in range(side):
            to = plane + y * step_y * stride + column
            behind = f.planes[to + (step_y - 1) * stride]
            for i in range(step_y - 1):
                f.planes[to + i * stride] = ((step_y - 1 - i) * before + (i + 1) * behind + (step_y >> 1)) // step_y
            before = behind


@compiled
def average(f: Frame, corner: int, step: int, size: int, count: int, to: int) -> None:
    """The boundary of `size` samples beside the corner averaged to `count` (8.4.5.2.3)."""
    s = f.s
    each = size // count
    for i in range(count):
        total = each >> 1
        for k in range(each):
            total += s[corner + (1 + i * each + k) * step]
        s[to + i] = total // each
