"""Every intra mode as the same few sums of reference samples, so that one loop predicts them all.

A block's references lie in one row of samples: left from the bottom up, corner, top from left to right (the order in
which H.266 8.4.5.2.9 substitutes), then the same smoothed, then the DC value. A predicted sample is

    first = clip((Σ weight · row[index] + 2^(shift-1)) >> shift)      four taps: interpolation, planar
    pred  = clip((Σ weight · row[index] + keep · first + 2^(shift-1)) >> shift)     two taps: PDPC, HEVC's edge filters

(shift 0 rounds nothing), whose indices, weights and shifts depend on size and mode alone. Two sums and not one, because
the standards round and clip the prediction before they blend it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from codecnn.intra.modes import (
    CUBIC_FILTER,
    DC,
    GAUSSIAN_DISTANCE,
    GAUSSIAN_FILTER,
    MODE_COUNT,
    PLANAR,
    SMOOTHED_MODES,
    check_block,
    hevc_angle,
    inverse_angle,
    vvc_angle,
    wide_angle_mode,
)


@dataclass(frozen=True, eq=False)
class Taps:
    """Tables of all modes of a size: m modes, int32.

    `index` and `weight` (m, height, width, 4), `shift` (m,); `blend_index` and `blend_weight` (m, height, width, 2),
    `keep` (m, height, width), `blend_shift`, `blend_round` (m,); `blended` (m,) bool: whether the second sum changes
    anything.
    """

    width: int
    height: int
    standard: str
    index: NDArray[np.int32]
    weight: NDArray[np.int32]
    shift: NDArray[np.int32]
    blend_index: NDArray[np.int32]
    blend_weight: NDArray[np.int32]
    keep: NDArray[np.int32]
    blend_shift: NDArray[np.int32]
    blend_round: NDArray[np.int32]

    @property
    def blended(self) -> NDArray[np.bool_]:
        return np.asarray(self.blend_weight.any((1, 2, 3)))


class _Rows(NamedTuple):
    """Where p[x][y] of the clauses lies in the row of a block."""

    width: int
    height: int
    smoothed: bool

    @property
    def corner(self) -> int:
        return 2 * self.height + (line_length(self.width, self.height) if self.smoothed else 0)

    def top(self, x: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Where p[x][-1] lies, x in -1..2·width-1."""
        return np.asarray(self.corner + 1 + x)

    def left(self, y: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Where p[-1][y] lies, y in -1..2·height-1."""
        return np.asarray(self.corner - 1 - y)


def line_length(width: int, height: int) -> int:
    """Number of reference samples of a block: two widths, two heights and the corner."""
    return 2 * width + 2 * height + 1


@cache
def mode_taps(width: int, height: int, standard: str = "vvc") -> Taps:
    """Tables of all modes for blocks of `width` x `height`; ConfigError for a size the standard does not have."""
    check_block(width, height, standard)
    modes = MODE_COUNT[standard]
    shape = (modes, height, width)
    taps = Taps(
        width,
        height,
        standard,
        index=np.zeros((*shape, 4), np.int32),
        weight=np.zeros((*shape, 4), np.int32),
        shift=np.full(modes, 6, np.int32),
        blend_index=np.zeros((*shape, 2), np.int32),
        blend_weight=np.zeros((*shape, 2), np.int32),
        keep=np.ones(shape, np.int32),
        blend_shift=np.zeros(modes, np.int32),
        blend_round=np.zeros(modes, np.int32),
    )
    for mode in range(modes):
        if mode == DC:
            # The DC value is the last of a row, after the references and the same smoothed.
            taps.index[mode, ..., 0], taps.weight[mode, ..., 0] = 2 * line_length(width, height), 64
        fill = _fill_vvc if standard == "vvc" else _fill_hevc
        fill(taps, mode)
    for table in vars(taps).values():
        if isinstance(table, np.ndarray):
            table.flags.writeable = False
    return taps


def _fill_vvc(taps: Taps, number: int) -> None:
    """Fill the tables of one VVC mode, H.266 8.4.5.2.6."""
    width, height = taps.width, taps.height
    mode = wide_angle_mode(number, width, height)
    smoothed = mode in SMOOTHED_MODES
    # Modes that meet whole samples need no interpolation, which would smooth, so their references are smoothed instead;
    # blocks of up to 32 samples are not.
    rows = _Rows(width, height, smoothed and width * height > 32)
    if mode == PLANAR:
        _fill_planar(taps, number, rows)
    elif mode != DC:
        # Far from horizontal and vertical, and the sooner the larger the block, the smoothing Gaussian interpolates;
        # near them the cubic keeps edges sharp (8.4.5.2.13, table 23).
        distance = min(abs(mode - 50), abs(mode - 18))
        size = (width.bit_length() + height.bit_length() - 2) >> 1
        gaussian = distance > GAUSSIAN_DISTANCE[size] and not smoothed
        filters = np.array(GAUSSIAN_FILTER if gaussian else CUBIC_FILTER)
        angle = vvc_angle(mode)
        for y, index, fraction, target in _lines(taps, number, angle, mode >= 34):
            for tap in range(4):
                position = index + np.arange(target[0].shape[0]) + tap
                target[0][:, tap] = _reference(rows, position, angle, mode >= 34, y)
                target[1][:, tap] = filters[fraction, tap]
    _fill_pdpc(taps, number, mode, rows)


def _lines(
    taps: Taps, number: int, angle: int, vertical: bool
) -> Iterator[tuple[int, int, int, tuple[NDArray[np.int32], NDArray[np.int32]]]]:
    """Rows (columns, where the mode is horizontal) of a block: number, iIdx, iFact, and views of its taps, (n, 4)."""
    for y in range(taps.height if vertical else taps.width):
        index, fraction = ((y + 1) * angle) >> 5, ((y + 1) * angle) & 31
        tables = taps.index[number], taps.weight[number]
        yield y, index, fraction, tuple(t[y] if vertical else t[:, y] for t in tables)


def _reference(rows: _Rows, x: NDArray[np.int64], angle: int, vertical: bool, y: int) -> NDArray[np.int64]:
    """Where ref[x] of H.266 8.4.5.2.13 lies; `vertical` for the modes that predict from above.

    Negative x continue the main side along the prediction's own direction, by samples of the other side.
    """
    main, side = (rows.top, rows.left) if vertical else (rows.left, rows.top)
    width, height = (rows.width, rows.height) if vertical else (rows.height, rows.width)
    extended = np.minimum((np.minimum(x, 0) * (inverse_angle(angle) if angle < 0 else 0) + 256) >> 9, height)
    return np.where(x >= 0, main(np.minimum(x, 2 * width) - 1), side(extended - 1))


def _fill_planar(taps: Taps, number: int, rows: _Rows) -> None:
    """Fill the tables of planar, H.266 8.4.5.2.11 and H.265 8.4.4.2.4: the mean of two linear interpolations."""
    width, height = taps.width, taps.height
    x, y = np.arange(width), np.arange(height)[:, None]
    log_w, log_h = width.bit_length() - 1, height.bit_length() - 1
    sums = (
        (rows.top(x), (height - 1 - y) << log_w),
        (rows.left(height), (y + 1) << log_w),
        (rows.left(y), (width - 1 - x) << log_h),
        (rows.top(width), (x + 1) << log_h),
    )
    for tap, (index, weight) in enumerate(sums):
        taps.index[number, ..., tap], taps.weight[number, ..., tap] = index, weight
    taps.shift[number] = log_w + log_h + 1


def _fill_pdpc(taps: Taps, number: int, mode: int, rows: _Rows) -> None:
    """Fill the second sum of a VVC mode, position-dependent prediction combination of H.266 8.4.5.2.15.

    It draws samples near the block's edge towards the unfiltered neighbours across it, by a weight of 32/64 at the edge
    that halves every 2^scale / 2 samples, so that the prediction joins them.
    """
    log_w, log_h = taps.width.bit_length() - 1, taps.height.bit_length() - 1
    x, y = np.arange(taps.width), np.arange(taps.height)[:, None]
    if 18 < mode < 50:  # both sides are predicted from already
        return
    if mode in (PLANAR, DC, 18, 50):
        scale = (log_w + log_h - 2) >> 2
    else:  # the nearer to vertical or horizontal, the farther away the line meets the other side; below 0 too far
        inverse = inverse_angle(vvc_angle(mode))
        scale = min(2, (log_h if mode > 50 else log_w) - ((3 * inverse - 2).bit_length() - 1) + 8)
    if scale < 0:
        return
    index, weight, keep = taps.blend_index[number], taps.blend_weight[number], taps.keep[number]
    from_top, from_left = 32 >> ((y << 1) >> scale), 32 >> ((x << 1) >> scale)
    if mode in (PLANAR, DC):
        index[..., 0], weight[..., 0] = rows.top(x), from_top
        index[..., 1], weight[..., 1] = rows.left(y), from_left
        keep[:] = 64 - from_top - from_left
    elif mode in (18, 50):  # the gradient along the other side is added, the prediction stays whole
        index[..., 0], weight[..., 0] = (rows.top(x), from_top) if mode == 18 else (rows.left(y), from_left)
        index[..., 1], weight[..., 1] = rows.corner, -weight[..., 0]
        keep[:] = 64
    else:
        along, across = (y, x) if mode < 18 else (x, y)
        used = along < (3 << scale)
        position = np.where(used, across + (((along + 1) * inverse + 256) >> 9), 0)
        index[..., 0] = rows.top(position) if mode < 18 else rows.left(position)
        weight[..., 0] = np.where(used, from_top if mode < 18 else from_left, 0)
        keep[:] = 64 - weight[..., 0]
    taps.blend_shift[number], taps.blend_round[number] = 6, 32


def _fill_hevc(taps: Taps, mode: int) -> None:
    """Fill the tables of one HEVC mode, H.265 8.4.4.2.1 to 8.4.4.2.6."""
    size = taps.width
    # intraHorVerDistThres of 8.4.4.2.3: the larger the block, the more modes predict from smoothed references.
    distance = min(abs(mode - 26), abs(mode - 10))
    rows = _Rows(size, size, mode != DC and size > 4 and distance > {8: 7, 16: 1, 32: 0}[size])
    edge = taps.blend_index[mode], taps.blend_weight[mode], taps.keep[mode]
    if mode == PLANAR:
        _fill_planar(taps, mode, rows)
    elif mode == DC:
        if size < 32:
            _fill_hevc_dc(rows, *edge)
            taps.blend_shift[mode], taps.blend_round[mode] = 2, 2
    else:
        angle = hevc_angle(mode)
        taps.shift[mode] = 5
        for _, index, fraction, target in _lines(taps, mode, angle, mode >= 18):
            for tap in (0, 1):
                position = index + np.arange(size) + 1 + tap
                target[0][:, tap] = _hevc_reference(rows, position, angle, mode >= 18)
                target[1][:, tap] = fraction if tap else 32 - fraction
        if angle == 0 and size < 32:  # pred + ((side - corner) >> 1) on the first column or row
            at, side = ((slice(None), 0), rows.left) if mode == 26 else ((0, slice(None)), rows.top)
            edge[0][at] = np.stack(np.broadcast_arrays(side(np.arange(size)), rows.corner), -1)
            edge[1][at] = (1, -1)
            edge[2][:] = 2
            taps.blend_shift[mode] = 1


def _fill_hevc_dc(rows: _Rows, index: NDArray[np.int32], weight: NDArray[np.int32], keep: NDArray[np.int32]) -> None:
    """Fill the edge filter of DC, H.265 8.4.4.2.5: weights in quarters, neighbour 1 and prediction 3."""
    size = np.arange(rows.width)
    keep[:] = 4
    keep[0], keep[:, 0], keep[0, 0] = 3, 3, 2
    index[0, :, 0], weight[0, :, 0] = rows.top(size), 1
    index[:, 0, 1], weight[:, 0, 1] = rows.left(size), 1


def _hevc_reference(rows: _Rows, x: NDArray[np.int64], angle: int, vertical: bool) -> NDArray[np.int64]:
    """Where ref[x] of H.265 8.4.4.2.6 lies; a second tap of weight 0 may lie anywhere."""
    main, side = (rows.top, rows.left) if vertical else (rows.left, rows.top)
    inverse = (2 * 256 * 32 - angle) // (-2 * angle) if angle < 0 else 0
    extended = (-np.minimum(x, 0) * inverse + 128) >> 8
    return np.where(x >= 0, main(np.minimum(x, 2 * rows.width) - 1), side(extended - 1))
