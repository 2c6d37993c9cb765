"""Every intra mode as sums of a few reference samples, so that one loop predicts by all modes.

The references of a block are one row of samples (see `reference_rows`): left from the bottom up, corner, top from left
to right (the order of substitution of H.266 8.4.5.2.9), then the same samples smoothed, then the DC value. A predicted
sample is

    first = clip((Σ weight · row[index] + 2^(shift-1)) >> shift)      four taps: interpolation, planar
    pred  = clip((Σ weight · row[index] + keep · first + 2^(shift-1)) >> shift)     two taps: PDPC, HEVC's edge filters

where shift 0 means no rounding. Indices, weights and shifts depend on size and mode only. There are two sums because
the standards round and clip the prediction before they blend it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from codecnn.vvc.intra.modes import (
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
    """Tables of the sums of all m modes for one block size, int32.

    Attributes:
        width: Block width in samples.
        height: Block height in samples.
        standard: "vvc" or "hevc".
        index: Positions in the row for the first sum, shape (m, height, width, 4).
        weight: Weights of the first sum, shape (m, height, width, 4).
        shift: Shift of the first sum, shape (m,).
        blend_index: Positions in the row for the second sum, shape (m, height, width, 2).
        blend_weight: Weights of the second sum, shape (m, height, width, 2).
        keep: Weight of the first sum in the second one, shape (m, height, width).
        blend_shift: Shift of the second sum, shape (m,).
        blend_round: Rounding offset of the second sum, shape (m,).
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
        """Modes that the second sum changes, shape (m,)."""
        return np.asarray(self.blend_weight.any((1, 2, 3)))


class _Rows(NamedTuple):
    """Positions of the samples p[x][y] of the clauses in the row of a block."""

    width: int
    height: int
    smoothed: bool

    @property
    def corner(self) -> int:
        return 2 * self.height + (line_length(self.width, self.height) if self.smoothed else 0)

    def top(self, x: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the position of p[x][-1], x in -1..2·width-1."""
        return np.asarray(self.corner + 1 + x)

    def left(self, y: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the position of p[-1][y], y in -1..2·height-1."""
        return np.asarray(self.corner - 1 - y)


def line_length(width: int, height: int) -> int:
    """Return the number of reference samples of a block: two widths, two heights and the corner."""
    return 2 * width + 2 * height + 1


@cache
def mode_taps(width: int, height: int, standard: str = "vvc") -> Taps:
    """Return the tables of all modes of a standard for one block size.

    Args:
        width: Block width in samples.
        height: Block height in samples.
        standard: "vvc" or "hevc".

    Raises:
        ConfigError: The standard has no such block size.
    """
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
            # The DC value is the last of a row, after the references and the smoothed references.
            taps.index[mode, ..., 0], taps.weight[mode, ..., 0] = 2 * line_length(width, height), 64
        fill = _fill_vvc if standard == "vvc" else _fill_hevc
        fill(taps, mode)
    for table in vars(taps).values():
        if isinstance(table, np.ndarray):
            table.flags.writeable = False
    return taps


def _fill_vvc(taps: Taps, number: int) -> None:
    """Fill the tables of one VVC mode (H.266 8.4.5.2.6)."""
    width, height = taps.width, taps.height
    mode = wide_angle_mode(number, width, height)
    smoothed = mode in SMOOTHED_MODES
    # Modes at whole samples need no interpolation, which smooths, so their references are smoothed instead, except
    # for blocks of up to 32 samples.
    rows = _Rows(width, height, smoothed and width * height > 32)
    if mode == PLANAR:
        _fill_planar(taps, number, rows)
    elif mode != DC:
        # Modes far from horizontal and vertical interpolate with the smoothing Gaussian filter, modes near them with
        # the cubic filter, which keeps edges sharp; the limit depends on the block size (8.4.5.2.13, table 23).
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
    """Yield the rows (columns if the mode is horizontal) of a block: number, iIdx, iFact, views of its taps (n, 4)."""
    for y in range(taps.height if vertical else taps.width):
        index, fraction = ((y + 1) * angle) >> 5, ((y + 1) * angle) & 31
        tables = taps.index[number], taps.weight[number]
        yield y, index, fraction, tuple(t[y] if vertical else t[:, y] for t in tables)


def _reference(rows: _Rows, x: NDArray[np.int64], angle: int, vertical: bool, y: int) -> NDArray[np.int64]:
    """Return the positions of ref[x] of H.266 8.4.5.2.13; `vertical` for modes that predict from above.

    Negative x extend the main side by samples of the other side along the direction of the prediction.
    """
    main, side = (rows.top, rows.left) if vertical else (rows.left, rows.top)
    width, height = (rows.width, rows.height) if vertical else (rows.height, rows.width)
    extended = np.minimum((np.minimum(x, 0) * (inverse_angle(angle) if angle < 0 else 0) + 256) >> 9, height)
    return np.where(x >= 0, main(np.minimum(x, 2 * width) - 1), side(extended - 1))


def _fill_planar(taps: Taps, number: int, rows: _Rows) -> None:
    """Fill the tables of planar, the mean of two linear interpolations (H.266 8.4.5.2.11, H.265 8.4.4.2.4)."""
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
    """Fill the second sum of a VVC mode: position-dependent prediction sample filtering (H.266 8.4.5.2.15).

    Samples near the edge of the block are blended with the unfiltered neighbours across it. Their weight is 32/64 at
    the edge and halves every 2^scale / 2 samples.
    """
    log_w, log_h = taps.width.bit_length() - 1, taps.height.bit_length() - 1
    x, y = np.arange(taps.width), np.arange(taps.height)[:, None]
    if 18 < mode < 50:  # the prediction already uses both sides
        return
    if mode in (PLANAR, DC, 18, 50):
        scale = (log_w + log_h - 2) >> 2
    else:  # modes near vertical or horizontal meet the other side far away; a negative scale means too far
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
    elif mode in (18, 50):  # the gradient along the other side is added to the full prediction
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
    """Fill the tables of one HEVC mode (H.265 8.4.4.2.1 to 8.4.4.2.6)."""
    size = taps.width
    # intraHorVerDistThres of 8.4.4.2.3: in larger blocks more modes predict from smoothed references.
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
    """Fill the edge filter of DC: weights in quarters, neighbour 1 and prediction 3 (H.265 8.4.4.2.5)."""
    size = np.arange(rows.width)
    keep[:] = 4
    keep[0], keep[:, 0], keep[0, 0] = 3, 3, 2
    index[0, :, 0], weight[0, :, 0] = rows.top(size), 1
    index[:, 0, 1], weight[:, 0, 1] = rows.left(size), 1


def _hevc_reference(rows: _Rows, x: NDArray[np.int64], angle: int, vertical: bool) -> NDArray[np.int64]:
    """Return the positions of ref[x] of H.265 8.4.4.2.6; that of a second tap of weight 0 is arbitrary."""
    main, side = (rows.top, rows.left) if vertical else (rows.left, rows.top)
    inverse = (2 * 256 * 32 - angle) // (-2 * angle) if angle < 0 else 0
    extended = (-np.minimum(x, 0) * inverse + 128) >> 8
    return np.where(x >= 0, main(np.minimum(x, 2 * rows.width) - 1), side(extended - 1))
