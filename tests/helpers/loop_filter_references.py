"""In-loop filters in plain NumPy, written after the text of clause 8.8: whole blocks or single lines at a time.

Planes are arrays (rows, columns) of int64.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_TC = "3 4 4 4 4 5 5 5 5 7 7 8 9 10 10 11 13 14 15 17 19 21 24 25 29 33 36 41 45 51 57 64 71 80 89 100 112 125 141 157"
TC = [*[0] * 18, *map(int, _TC.split()), 177, 198, 222, 250, 280, 314, 352, 395]
"""tC' of table 43."""

BETA = [0 if q < 16 else q - 10 if q < 28 else 2 * q - 38 for q in range(64)]
"""β' of table 43."""

LONG = {3: ((53, 32, 11), (6, 4, 2)), 5: ((58, 45, 32, 19, 6), (6, 5, 4, 3, 2))}
LONG[7] = ((59, 50, 41, 32, 23, 14, 5), (6, 5, 4, 3, 2, 1, 1))


class Edge(NamedTuple):
    """Parameters of an edge of four lines, or of fewer lines of chroma."""

    strength: int
    length_p: int
    length_q: int
    qp: int
    beta_offset: int
    tc_offset: int
    depth: int
    ctb_edge: bool = False
    keep_p: bool = False
    keep_q: bool = False

    @property
    def tc(self) -> int:
        """tC of the edge."""
        value = TC[min(max(self.qp + 2 * (self.strength - 1) + 2 * self.tc_offset, 0), 65)]
        return (
            value * 2 ** (self.depth - 10) if self.depth >= 10 else (value + 2 ** (9 - self.depth)) >> 10 - self.depth
        )

    @property
    def beta(self) -> int:
        """β of the edge."""
        return BETA[min(max(self.qp + 2 * self.beta_offset, 0), 63)] * 2 ** (self.depth - 8)


def curvature(samples: Ints, first: int = 0) -> Ints:
    """Return |x0 - 2 x1 + x2| of each line, from the sample `first` on."""
    return np.abs(samples[:, first] - 2 * samples[:, first + 1] + samples[:, first + 2])


def bounded(values: Ints, samples: Ints, change: int) -> Ints:
    """Clip `values` to the range of `samples` plus or minus `change`."""
    return np.minimum(np.maximum(values, samples - change), samples + change)


def deblock_luma(p: Ints, q: Ints, edge: Edge) -> tuple[Ints, Ints]:
    """Filter four lines of a luma edge.

    Args:
        p: Samples before the edge, from the edge on, shape (4, 8).
        q: Samples after the edge, shape (4, 8).
        edge: Parameters.

    Returns:
        The filtered samples.
    """
    out_p, out_q = p.copy(), q.copy()
    tc, beta = edge.tc, edge.beta
    large_p, large_q = edge.length_p > 3 and not edge.ctb_edge, edge.length_q > 3
    ends = np.array([0, 3])
    dp, dq = curvature(p)[ends], curvature(q)[ends]
    if large_p or large_q:
        dp_long = (dp + curvature(p, 3)[ends] + 1) >> 1 if large_p else dp
        dq_long = (dq + curvature(q, 3)[ends] + 1) >> 1 if large_q else dq
        slopes = np.zeros(2, np.int64)
        for samples, large, length in ((p[ends], large_p, edge.length_p), (q[ends], large_q, edge.length_q)):
            slope = np.abs(samples[:, 3] - samples[:, 0])
            if large and length == 7:
                slope = slope + np.abs(samples[:, 4] - samples[:, 5] - samples[:, 6] + samples[:, 7])
            if large:
                slope = (slope + np.abs(samples[:, 3] - samples[:, length]) + 1) >> 1
            slopes += slope
        smooth = (slopes < 3 * beta // 32) & (2 * (dp_long + dq_long) < beta // 16)
        smooth &= np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2
        if (dp_long + dq_long).sum() < beta and smooth.all():
            lengths = edge.length_p if large_p else 3, edge.length_q if large_q else 3
            out_p, out_q = long_filter(p, q, lengths, tc)
            return p if edge.keep_p else out_p, q if edge.keep_q else out_q
    if (dp + dq).sum() < beta:
        shortest = min(edge.length_p, edge.length_q)
        smooth = np.abs(p[ends, 3] - p[ends, 0]) + np.abs(q[ends, 3] - q[ends, 0]) < beta // 8
        smooth &= (2 * (dp + dq) < beta // 4) & (np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2)
        if shortest >= 3 and smooth.all():
            for out, a, b in ((out_p, p, q), (out_q, q, p)):
                total = a[:, 0] + b[:, 0]
                out[:, 0] = bounded((a[:, 2] + 2 * a[:, 1] + 2 * total + b[:, 1] + 4) >> 3, a[:, 0], 3 * tc)
                out[:, 1] = bounded((a[:, 2] + a[:, 1] + total + 2) >> 2, a[:, 1], 2 * tc)
                out[:, 2] = bounded((2 * a[:, 3] + 3 * a[:, 2] + a[:, 1] + total + 4) >> 3, a[:, 2], tc)
        else:
            threshold = (beta + beta // 2) >> 3
            delta = (9 * (q[:, 0] - p[:, 0]) - 3 * (q[:, 1] - p[:, 1]) + 8) >> 4
            used = np.abs(delta) < 10 * tc
            delta = delta.clip(-tc, tc)
            peak = 2**edge.depth - 1
            for out, a, sign, activity in ((out_p, p, 1, dp), (out_q, q, -1, dq)):
                out[used, 0] = (a[:, 0] + sign * delta).clip(0, peak)[used]
                if shortest >= 2 and activity.sum() < threshold:
                    second = (((a[:, 2] + a[:, 0] + 1) >> 1) - a[:, 1] + sign * delta) >> 1
                    out[used, 1] = (a[:, 1] + second.clip(-(tc >> 1), tc >> 1)).clip(0, peak)[used]
    return p if edge.keep_p else out_p, q if edge.keep_q else out_q


def long_filter(p: Ints, q: Ints, lengths: tuple[int, int], tc: int) -> tuple[Ints, Ints]:
    """Filter up to seven samples on each side (clause 8.8.3.6.7)."""
    p_weights, q_weights, divisor = {
        (7, 7): ((2, 1, 1, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1, 1), 16),
        (5, 5): ((2, 2, 2, 1, 1), (2, 2, 2, 1, 1), 16),
        (7, 5): ((2, 2, 1, 1, 1, 1), (2, 2, 1, 1, 1, 1), 16),
        (5, 7): ((2, 2, 1, 1, 1, 1), (2, 2, 1, 1, 1, 1), 16),
        (7, 3): ((2, 1, 1, 1, 1, 1, 1), (3, 3, 2), 16),
        (3, 7): ((3, 3, 2), (2, 1, 1, 1, 1, 1, 1), 16),
        (5, 3): ((1, 1, 1, 1), (1, 1, 1, 1), 8),
        (3, 5): ((1, 1, 1, 1), (1, 1, 1, 1), 8),
    }[lengths]
    middle = (p[:, : len(p_weights)] @ np.array(p_weights) + q[:, : len(q_weights)] @ np.array(q_weights)) * 2 + divisor
    middle //= 2 * divisor
    out = p.copy(), q.copy()
    for target, samples, length in zip(out, (p, q), lengths, strict=True):
        end = (samples[:, length - 1] + samples[:, length] + 1) >> 1
        for i, (weight, limit) in enumerate(zip(*LONG[length], strict=True)):
            value = (middle * weight + end * (64 - weight) + 32) >> 6
            target[:, i] = bounded(value, samples[:, i], tc * limit >> 1)
    return out


def deblock_chroma(p: Ints, q: Ints, edge: Edge) -> tuple[Ints, Ints]:
    """Filter some lines of a chroma edge; the lengths of `edge` are 3 if both blocks have eight samples, else 1."""
    large = edge.length_p == edge.length_q == 3
    if edge.strength == 0 or (edge.strength == 1 and not large):
        return p, q
    out_p, out_q = p.copy(), q.copy()
    tc, beta, peak = edge.tc, edge.beta, 2**edge.depth - 1
    above = p[:, [0, 1, 1, 1]] if edge.ctb_edge else p[:, :4]
    ends = np.array([0, len(p) - 1])
    activity = (curvature(above) + curvature(q))[ends]
    slopes = (np.abs(above[:, 3] - p[:, 0]) + np.abs(q[:, 3] - q[:, 0]))[ends]
    smooth = (slopes < beta // 8) & (2 * activity < beta // 4) & (np.abs(p[ends, 0] - q[ends, 0]) < (5 * tc + 1) // 2)
    if large and activity.sum() < beta and smooth.all():
        line = np.concatenate([above[:, ::-1], q[:, :4]], 1)
        # Each sample is the mean of seven around it and itself; the ends of the line are repeated.
        padded = np.pad(line, ((0, 0), (3, 3)), mode="edge")
        for i in range(1 if edge.ctb_edge else 3):
            at = 3 - i + 3
            total = padded[:, at - 3 : at + 4].sum(1) + line[:, 3 - i]
            out_p[:, i] = bounded((total + 4) >> 3, p[:, i], tc)
        for i in range(3):
            at = 4 + i + 3
            total = padded[:, at - 3 : at + 4].sum(1) + line[:, 4 + i]
            out_q[:, i] = bounded((total + 4) >> 3, q[:, i], tc)
    else:
        delta = ((4 * (q[:, 0] - p[:, 0]) + p[:, 1] - q[:, 1] + 4) >> 3).clip(-tc, tc)
        out_p[:, 0], out_q[:, 0] = (p[:, 0] + delta).clip(0, peak), (q[:, 0] - delta).clip(0, peak)
    return p if edge.keep_p else out_p, q if edge.keep_q else out_q


class Layout(NamedTuple):
    """Boundaries that in-loop filters of a picture do not cross.

    Attributes:
        ctu: Size of a CTU in luma samples.
        slices: Slice of each CTU.
        tiles: Tile of each CTU.
        subpictures: Subpicture of each CTU.
        across: Filters cross boundaries of slices, of tiles, and of the subpicture of each index.
        columns: Vertical virtual boundaries.
        rows: Horizontal virtual boundaries.
    """

    ctu: int
    slices: Ints
    tiles: Ints
    subpictures: Ints
    across: tuple[bool, bool, list[bool]]
    columns: tuple[int, ...]
    rows: tuple[int, ...]

    def usable(self, here: tuple[int, int], there: tuple[int, int]) -> bool:
        """Return True if the CTU `here` (row, column) may use samples of the CTU `there`."""
        if min(there) < 0 or there[0] >= self.slices.shape[0] or there[1] >= self.slices.shape[1]:
            return False
        subpicture = self.subpictures[here]
        return (
            (self.across[0] or self.slices[here] == self.slices[there])
            and (self.across[1] or self.tiles[here] == self.tiles[there])
            and (self.across[2][subpicture] or subpicture == self.subpictures[there])
        )


def sao_plane(plane: Ints, sao: Ints, layout: Layout, sub: tuple[int, int], depth: int) -> Ints:
    """Apply SAO to a component, a sample at a time (clause 8.8.4.2).

    Args:
        plane: Deblocked samples.
        sao: SaoTypeIdx, class or band position and four offsets of each CTU, shape (rows, columns, 6).
        layout: Boundaries.
        sub: log2 of the horizontal and vertical subsampling of the component.
        depth: Bit depth.
    """
    out = plane.copy()
    width, height = layout.ctu >> sub[0], layout.ctu >> sub[1]
    for y, x in np.ndindex(plane.shape):
        here = y // height, x // width
        kind, number, *offsets = sao[here].tolist()
        value = int(plane[y, x])
        if kind == 1:
            bands = {(number + k) % 32: offsets[k] for k in range(4)}
            out[y, x] = value + bands.get(value >> (depth - 5), 0)
        elif kind == 2:
            dx, dy = ((1, 0), (0, 1), (1, 1), (-1, 1))[number]
            index = 2
            for sign in (-1, 1):
                near_x, near_y = x + sign * dx, y + sign * dy
                inside = 0 <= near_x < plane.shape[1] and 0 <= near_y < plane.shape[0]
                crossed = any(min(x, near_x) < (b >> sub[0]) <= max(x, near_x) for b in layout.columns)
                crossed |= any(min(y, near_y) < (b >> sub[1]) <= max(y, near_y) for b in layout.rows)
                if not inside or crossed or not layout.usable(here, (near_y // height, near_x // width)):
                    index = 2
                    break
                index += int(np.sign(value - plane[near_y, near_x]))
            out[y, x] = value + (offsets[0], offsets[1], 0, offsets[2], offsets[3])[index]
    return out.clip(0, 2**depth - 1)


def surroundings(
    plane: Ints, layout: Layout, sub: tuple[int, int], x0: int, y0: int, margin: int
) -> tuple[Ints, int, int]:
    """Return a part of a CTU with padded samples around it, and its width and height (clause 8.8.5.6).

    The part begins at (x0, y0) of the component and ends at the next edge of the CTU or virtual boundary.
    """
    sizes = layout.ctu >> sub[0], layout.ctu >> sub[1]
    here = y0 // sizes[1], x0 // sizes[0]
    indices, blocked = [], []
    for axis, first in ((0, x0), (1, y0)):
        boundaries = [b >> sub[axis] for b in (layout.columns if axis == 0 else layout.rows)]
        end = min(plane.shape[1 - axis], (first // sizes[axis] + 1) * sizes[axis])
        end = min([end, *(b for b in boundaries if b > first)])
        steps = np.array([(0, 1), (1, 0)][axis])
        before = first % sizes[axis] or layout.usable(here, tuple(here - steps))  # type: ignore[arg-type]
        after = end % sizes[axis] or layout.usable(here, tuple(here + steps))  # type: ignore[arg-type]
        low = first if first in boundaries or not before else first - margin
        high = end - 1 if end in boundaries or not after else end - 1 + margin
        indices.append(np.arange(first - margin, end + margin).clip(low, min(high, plane.shape[1 - axis] - 1)))
        blocked.append((low == first, high == end - 1))
    columns = np.repeat(indices[0][None], len(indices[1]), 0)
    rows = np.repeat(indices[1][:, None], len(indices[0]), 1)
    width, height = len(indices[0]) - 2 * margin, len(indices[1]) - 2 * margin
    first, last = (here[0] - 1, here[1] - 1), (here[0] + 1, here[1] + 1)
    in_corner = x0 % sizes[0] == 0 and y0 % sizes[1] == 0 and not blocked[0][0] and not blocked[1][0]
    if in_corner and not layout.usable(here, first):
        columns[:margin, :margin] = x0
    end_x, end_y = x0 + width, y0 + height
    in_corner = end_x % sizes[0] == 0 and end_y % sizes[1] == 0 and not blocked[0][1] and not blocked[1][1]
    if in_corner and not layout.usable(here, last):
        columns[-margin:, -margin:] = end_x - 1
    return plane[rows, columns], width, height


def parts(plane: Ints, layout: Layout, sub: tuple[int, int]) -> list[tuple[int, int]]:
    """List the upper left corners of the CTUs of a component, divided at virtual boundaries."""
    places = []
    for axis, boundaries in ((0, layout.columns), (1, layout.rows)):
        size = plane.shape[1 - axis]
        firsts = {*range(0, size, layout.ctu >> sub[axis]), *(b >> sub[axis] for b in boundaries)}
        places.append(sorted(first for first in firsts if first < size))
    return [(x, y) for y in places[1] for x in places[0]]


LINE_BUFFER = {5: (0, 0, 0), 4: (0, 0, 0), 6: (1, 1, 1), 3: (1, 1, 1), 7: (1, 2, 2), 2: (1, 2, 2)}
"""Row distances y1, y2 and y3 by the distance of a luma row from the end of its CTU (table 45)."""

LUMA_TAPS = ((0, 3), (1, 2), (0, 2), (-1, 2), (2, 1), (1, 1), (0, 1), (-1, 1), (-2, 1), (3, 0), (2, 0), (1, 0))
CHROMA_TAPS = ((0, 2), (1, 1), (0, 1), (-1, 1), (2, 0), (1, 0))
TRANSPOSED = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    (9, 4, 10, 8, 1, 5, 11, 7, 3, 0, 2, 6),
    (0, 3, 2, 1, 8, 7, 6, 5, 4, 9, 10, 11),
    (9, 8, 10, 4, 3, 7, 11, 5, 1, 0, 2, 6),
)


def filtered_row(
    block: Ints, row: int, width: int, taps: tuple[tuple[int, int], ...], reach: tuple[int, ...], filters: Ints
) -> Ints:
    """Filter one row of a part with 4 padded samples around it.

    Args:
        block: The part.
        row: Row in `block`.
        width: Number of samples.
        taps: Column and row distance of each coefficient.
        reach: Row distance that stands for 1, 2 and 3.
        filters: Coefficients and clipping values, shape (2, taps, width).
    """
    centre = block[row, 4 : 4 + width]
    total = np.zeros(width, np.int64)
    for (dx, dy), weight, limit in zip(taps, *filters, strict=True):
        down = reach[dy - 1] if dy else 0
        for sign in (-1, 1):
            samples = block[row + sign * down, 4 + sign * dx : 4 + sign * dx + width]
            total += weight * np.clip(samples - centre, -limit, limit)
    near = reach[0] == 0
    return centre + (((total + 512) >> 10) if near else ((total + 64) >> 7))


def alf_luma(plane: Ints, filters: dict[tuple[int, int], Ints], layout: Layout, depth: int) -> Ints:
    """Apply ALF to luma.

    Args:
        plane: Luma after SAO.
        filters: By CTU (row, column): coefficients and clipping values of each class, shape (2, 25, 12).
        layout: Boundaries.
        depth: Bit depth.
    """
    out = plane.copy()
    for x0, y0 in parts(plane, layout, (0, 0)):
        chosen = filters.get((y0 // layout.ctu, x0 // layout.ctu))
        if chosen is None:
            continue
        block, width, height = surroundings(plane, layout, (0, 0), x0, y0, 4)
        for j in range(height):
            kinds = [classes(block, j // 4 * 4, i, y0, layout.ctu, depth) for i in range(0, width, 4)]
            rows = np.stack([chosen[:, kind][:, list(TRANSPOSED[turned])] for kind, turned in kinds], 2).repeat(4, 2)
            reach = LINE_BUFFER.get(layout.ctu - (y0 + j) % layout.ctu, (1, 2, 3))
            values = filtered_row(block, j + 4, width, LUMA_TAPS, reach, rows)
            out[y0 + j, x0 : x0 + width] = values
    return out.clip(0, 2**depth - 1)


def classes(block: Ints, row: int, column: int, y0: int, ctu: int, depth: int) -> tuple[int, int]:
    """Derive filtIdx and transposeIdx of 4x4 samples of a part (clause 8.8.5.3).

    The gradients of every second sample of the 8x8 around are summed; rows across the line buffer boundary, four rows
    above the end of the CTU, are replaced by the last one before it.
    """
    place = (y0 + row) % ctu
    rows = np.arange(row - 3, row + 7)
    summed = range(-2, 6)
    if place == ctu - 8:
        rows, summed = rows.clip(None, row + 3), range(-2, 4)
    elif place == ctu - 4:
        rows, summed = rows.clip(row, None), range(0, 6)
    area = block[4 + rows][:, 4 + column - 3 : 4 + column + 7]
    sums = np.zeros(4, np.int64)
    for j in summed:
        for i in range(-2, 6):
            if (i + j) % 2:
                continue
            y, x = j + 3, i + 3
            for index, (dy, dx) in enumerate(((1, 0), (0, 1), (1, 1), (-1, 1))):
                sums[index] += abs(2 * area[y, x] - area[y - dy, x - dx] - area[y + dy, x + dx])
    vertical, horizontal, falling, rising = sums.tolist()
    scale = 96 if len(summed) < 8 else 64
    activity = min(15, (vertical + horizontal) * scale >> (depth + 4))
    straight = (vertical, horizontal, 1) if vertical > horizontal else (horizontal, vertical, 3)
    oblique = (falling, rising, 0) if falling > rising else (rising, falling, 2)
    first, second = (oblique, straight) if oblique[0] * straight[1] > straight[0] * oblique[1] else (straight, oblique)
    direction = 0
    if 2 * first[0] > 9 * first[1]:
        direction = 2
    elif first[0] > 2 * first[1]:
        direction = 1
    if direction:
        direction += 2 * (first[2] % 2)
    index = 5 * direction + (0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4)[activity]
    return index, (0, 1, 0, 2, 2, 3, 1, 3)[2 * first[2] + second[2] // 2]


def alf_chroma(
    plane: Ints, filters: dict[tuple[int, int], Ints], layout: Layout, sub: tuple[int, int], depth: int
) -> Ints:
    """Apply ALF to a chroma component; `filters` has coefficients and clipping values by CTU, shape (2, 6)."""
    out = plane.copy()
    width_c, height_c = layout.ctu >> sub[0], layout.ctu >> sub[1]
    for x0, y0 in parts(plane, layout, sub):
        chosen = filters.get((y0 // height_c, x0 // width_c))
        if chosen is None:
            continue
        block, width, height = surroundings(plane, layout, sub, x0, y0, 4)
        for j in range(height):
            distance = height_c - (y0 + j) % height_c
            reach = (0, 0) if distance in (2, 3) else (1, 1) if distance in (1, 4) else (1, 2)
            rows = np.repeat(chosen[:, :, None], width, 2)
            out[y0 + j, x0 : x0 + width] = filtered_row(block, j + 4, width, CHROMA_TAPS, reach, rows)
    return out.clip(0, 2**depth - 1)


def cross_component(
    luma: Ints, chroma: Ints, filters: dict[tuple[int, int], Ints], layout: Layout, sub: tuple[int, int], depth: int
) -> Ints:
    """Apply cross-component ALF to a chroma component; `filters` has the 7 coefficients by CTU."""
    out = chroma.copy()
    for x0, y0 in parts(luma, layout, (0, 0)):
        chosen = filters.get((y0 // layout.ctu, x0 // layout.ctu))
        if chosen is None:
            continue
        block, width, height = surroundings(luma, layout, (0, 0), x0, y0, 4)
        for j in range(0, height, 1 << sub[1]):
            distance = layout.ctu - (y0 + j) % layout.ctu
            if sub[1] == 0 and distance in (3, 4):
                continue
            near, second = (0, 0) if distance in (4, 5) else (1, 1) if distance in (3, 6) else (1, 2)
            taps = ((0, -near), (-1, 0), (1, 0), (-1, near), (0, near), (1, near), (0, second))
            centre = block[4 + j, 4 : 4 + width]
            total = np.zeros(width, np.int64)
            for (dx, dy), weight in zip(taps, chosen.tolist(), strict=True):
                total += weight * (block[4 + j + dy, 4 + dx : 4 + dx + width] - centre)
            correction = ((total + 64) >> 7).clip(-(2 ** (depth - 1)), 2 ** (depth - 1) - 1)[:: 1 << sub[0]]
            row = (y0 + j) >> sub[1]
            target = out[row, x0 >> sub[0] : (x0 + width) >> sub[0]]
            target += correction
    return out.clip(0, 2**depth - 1)
