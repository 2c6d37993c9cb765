"""Plain NumPy implementations of prediction and costs, which the fast ones are checked against.

Each mode is predicted separately, in the order and with the names of H.266 8.4.5.2 and H.265 8.4.4.2. The references of
n blocks are int64: `corner` (n,), `top` (n, 2·width) from p[0][-1] to the right, `left` (n, 2·height) from p[-1][0]
down.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.vvc.intra.costs import cost_function
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
from codecnn.vvc.intra.references import split_lines

Samples = NDArray[np.int64]


def predict_modes_reference(
    corner: NDArray[Any],
    top: NDArray[Any],
    left: NDArray[Any],
    width: int,
    height: int,
    bit_depth: int,
    standard: str = "vvc",
    strong_smoothing: bool = True,
) -> Samples:
    """Predict blocks by every mode, as `predict_modes` with the same arguments, in int64.

    Returns:
        Predictions of shape (n, 67 or 35, height, width).

    Raises:
        ConfigError: The standard has no such block size.
    """
    check_block(width, height, standard)
    corner, top, left = (np.asarray(samples, np.int64) for samples in (corner, top, left))
    modes = range(MODE_COUNT[standard])
    if standard == "vvc":
        predictions = [_vvc_mode(corner, top, left, width, height, mode, bit_depth) for mode in modes]
    else:
        predictions = [_hevc_mode(corner, top, left, width, mode, bit_depth, strong_smoothing) for mode in modes]
    return np.stack(predictions, 1)


def block_costs_reference(
    lines: NDArray[np.int32],
    original: NDArray[Any],
    bit_depth: int,
    cost: str,
    standard: str = "vvc",
    qp: int | None = None,
) -> NDArray[np.float64]:
    """Compute the cost of every mode of blocks, as `block_costs`, from `predict_modes_reference` in float64.

    Args:
        lines: References (see `reference_lines`), shape (n, 2·height + 1 + 2·width).
        original: Original samples, shape (n, height, width).
        bit_depth: Bits per sample.
        cost: Name of the cost, one of COSTS.
        standard: "vvc" or "hevc".
        qp: QP of the cost "rate".

    Returns:
        Costs of shape (n, 67 or 35).

    Raises:
        ConfigError: As `block_costs`.
    """
    height, width = original.shape[1:]
    pred = predict_modes_reference(*split_lines(lines, height), width, height, bit_depth, standard)
    residual = original[:, None].astype(np.int64) - pred
    costs = cost_function(cost, qp, bit_depth)(residual.reshape(-1, height, width))
    return np.asarray(costs, np.float64).reshape(residual.shape[:2])


def _smooth(corner: Samples, top: Samples, left: Samples) -> tuple[Samples, Samples, Samples]:
    """Filter the references with [1 2 1] except at both ends (H.266 8.4.5.2.10, H.265 8.4.4.2.3)."""
    padded_top, padded_left = (np.concatenate((corner[:, None], side), 1) for side in (top, left))
    top, left = top.copy(), left.copy()
    corner = (left[:, 0] + 2 * corner + top[:, 0] + 2) >> 2
    for side, padded in ((top, padded_top), (left, padded_left)):
        side[:, :-1] = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:] + 2) >> 2
    return corner, top, left


def _vvc_mode(
    corner: Samples, top: Samples, left: Samples, width: int, height: int, mode: int, bit_depth: int
) -> Samples:
    """Predict by one mode, with smoothing and PDPC (H.266 8.4.5.2.6); returns (n, height, width)."""
    mode = wide_angle_mode(mode, width, height)
    smoothed = mode in SMOOTHED_MODES
    if smoothed and width * height > 32:
        corner, top, left = _smooth(corner, top, left)
    if mode == PLANAR:
        pred = _planar(top, left, width, height)
    elif mode == DC:
        pred = _vvc_dc(top, left, width, height)
    elif mode >= 34:
        pred = _vvc_angular(corner, top, left, width, height, mode, smoothed, bit_depth)
    else:  # modes below 34 are predicted like those from 34 on with rows and columns exchanged
        pred = _vvc_angular(corner, left, top, height, width, mode, smoothed, bit_depth).swapaxes(1, 2)
    return _pdpc(pred, corner, top, left, width, height, mode, bit_depth)


def _planar(top: Samples, left: Samples, width: int, height: int) -> Samples:
    """Predict by planar (H.266 8.4.5.2.11; for square blocks equal to H.265 8.4.4.2.4)."""
    x, y = np.arange(width), np.arange(height)[:, None]
    log_w, log_h = width.bit_length() - 1, height.bit_length() - 1
    pred_v = ((height - 1 - y) * top[:, None, :width] + (y + 1) * left[:, height, None, None]) << log_w
    pred_h = ((width - 1 - x) * left[:, :height, None] + (x + 1) * top[:, width, None, None]) << log_h
    return (pred_v + pred_h + width * height) >> (log_w + log_h + 1)


def _vvc_dc(top: Samples, left: Samples, width: int, height: int) -> Samples:
    """Predict by DC: the mean of the longer side, or of both if they are equal (H.266 8.4.5.2.12)."""
    sides = [top[:, :width]] * (width >= height) + [left[:, :height]] * (height >= width)
    used = np.concatenate(sides, 1)
    count = used.shape[1]
    mean = (used.sum(1) + count // 2) // count
    return np.broadcast_to(mean[:, None, None], (len(mean), height, width))


def _vvc_angular(
    corner: Samples, main: Samples, side: Samples, width: int, height: int, mode: int, smoothed: bool, bit_depth: int
) -> Samples:
    """Predict by an angular mode from the side `main` (H.266 8.4.5.2.13, equations (335) to (342), refIdx 0)."""
    angle = vvc_angle(mode)
    ref = dict(enumerate(np.concatenate((corner[:, None], main), 1).T))  # ref[x] = p[-1 + x][-1]
    ref[2 * width + 1] = ref[2 * width]
    if angle < 0:
        for x in range(-height, 0):
            index = min((x * inverse_angle(angle) + 256) >> 9, height)
            ref[x] = corner if index == 0 else side[:, index - 1]
    distance = min(abs(mode - 50), abs(mode - 18))
    size = (width.bit_length() - 1 + height.bit_length() - 1) >> 1
    gaussian = distance > GAUSSIAN_DISTANCE[size] and not smoothed
    filters = GAUSSIAN_FILTER if gaussian else CUBIC_FILTER
    pred = np.empty((len(corner), height, width), np.int64)
    for y in range(height):
        index, fraction = ((y + 1) * angle) >> 5, ((y + 1) * angle) & 31
        for x in range(width):
            taps = (tap * ref[x + index + i] for i, tap in enumerate(filters[fraction]) if tap)
            pred[:, y, x] = (sum(taps) + 32) >> 6
    return np.clip(pred, 0, (1 << bit_depth) - 1)


def _pdpc(
    pred: Samples, corner: Samples, top: Samples, left: Samples, width: int, height: int, mode: int, bit_depth: int
) -> Samples:
    """Apply position-dependent prediction sample filtering if the mode uses it (H.266 8.4.5.2.15)."""
    log_w, log_h = width.bit_length() - 1, height.bit_length() - 1
    x, y = np.arange(width), np.arange(height)[:, None]
    if 18 < mode < 50:
        return pred
    if mode in (PLANAR, DC, 18, 50):
        scale = (log_w + log_h - 2) >> 2
    else:
        floor_log2 = (3 * inverse_angle(vvc_angle(mode)) - 2).bit_length() - 1
        scale = min(2, (log_h if mode > 50 else log_w) - floor_log2 + 8)
    if scale < 0:
        return pred
    weight_t: Any = 32 >> ((y << 1) >> scale)
    weight_l: Any = 32 >> ((x << 1) >> scale)
    ref_t: Any = 0
    ref_l: Any = 0
    if mode in (PLANAR, DC):
        ref_t, ref_l = top[:, None, :width], left[:, :height, None]
    elif mode == 18:
        ref_t, weight_l = top[:, None, :width] - corner[:, None, None] + pred, 0
    elif mode == 50:
        ref_l, weight_t = left[:, :height, None] - corner[:, None, None] + pred, 0
    elif mode < 18:
        offset = ((y + 1) * inverse_angle(vvc_angle(mode)) + 256) >> 9
        used = y < (3 << scale)
        ref_t, weight_t, weight_l = top[:, np.where(used, x + offset, 0)], np.where(used, weight_t, 0), 0
    else:
        offset = ((x + 1) * inverse_angle(vvc_angle(mode)) + 256) >> 9
        used = x < (3 << scale)
        ref_l, weight_l, weight_t = left[:, np.where(used, y + offset, 0)], np.where(used, weight_l, 0), 0
    blended = (ref_l * weight_l + ref_t * weight_t + (64 - weight_l - weight_t) * pred + 32) >> 6
    return np.asarray(np.clip(blended, 0, (1 << bit_depth) - 1))


def _hevc_mode(
    corner: Samples, top: Samples, left: Samples, size: int, mode: int, bit_depth: int, strong: bool
) -> Samples:
    """Predict by one mode, with smoothing and edge filter (H.265 8.4.4.2.1); returns (n, size, size)."""
    if mode != DC and size > 4:
        distance = min(abs(mode - 26), abs(mode - 10))
        if distance > {8: 7, 16: 1, 32: 0}[size]:
            corner, top, left = _hevc_smooth(corner, top, left, size, bit_depth, strong)
    if mode == PLANAR:
        return _planar(top, left, size, size)
    if mode == DC:
        return _hevc_dc(top, left, size)
    if mode >= 18:
        return _hevc_angular(corner, top, left, size, mode, bit_depth)
    return _hevc_angular(corner, left, top, size, mode, bit_depth).swapaxes(1, 2)


def _hevc_smooth(
    corner: Samples, top: Samples, left: Samples, size: int, bit_depth: int, strong: bool
) -> tuple[Samples, Samples, Samples]:
    """Smooth with [1 2 1], or make nearly straight references of 32x32 blocks straight lines (H.265 8.4.4.2.3)."""
    weak = _smooth(corner, top, left)
    if not strong or size != 32:
        return weak
    flat = np.ones(len(corner), bool)
    for side in (top, left):
        flat &= np.abs(corner + side[:, -1] - 2 * side[:, size - 1]) < 1 << (bit_depth - 5)
    position = np.arange(63)
    smoothed = []
    for side, weak_side in ((top, weak[1]), (left, weak[2])):
        line = ((63 - position) * corner[:, None] + (position + 1) * side[:, -1:] + 32) >> 6
        smoothed.append(np.where(flat[:, None], np.concatenate((line, side[:, -1:]), 1), weak_side))
    return np.where(flat, corner, weak[0]), smoothed[0], smoothed[1]


def _hevc_dc(top: Samples, left: Samples, size: int) -> Samples:
    """Predict by DC: the mean of both sides, with the first row and column blended below 32x32 (H.265 8.4.4.2.5)."""
    mean = (top[:, :size].sum(1) + left[:, :size].sum(1) + size) // (2 * size)
    pred = np.repeat(mean, size * size).reshape(-1, size, size)
    if size < 32:
        pred[:, 0, 1:] = (top[:, 1:size] + 3 * mean[:, None] + 2) >> 2
        pred[:, 1:, 0] = (left[:, 1:size] + 3 * mean[:, None] + 2) >> 2
        pred[:, 0, 0] = (left[:, 0] + 2 * mean + top[:, 0] + 2) >> 2
    return pred


def _hevc_angular(corner: Samples, main: Samples, side: Samples, size: int, mode: int, bit_depth: int) -> Samples:
    """Predict by an angular mode from the side `main` (H.265 8.4.4.2.6)."""
    angle = hevc_angle(mode)
    ref = dict(enumerate(np.concatenate((corner[:, None], main), 1).T))
    if angle < 0:
        inverse = (2 * 256 * 32 + -angle) // (2 * -angle)
        for x in range(((size * angle) >> 5) + 1, 0):  # the last x of the clause is never read
            ref[x] = side[:, ((-x * inverse + 128) >> 8) - 1]
    pred = np.empty((len(corner), size, size), np.int64)
    for y in range(size):
        index, fraction = ((y + 1) * angle) >> 5, ((y + 1) * angle) & 31
        for x in range(size):
            pred[:, y, x] = ref[x + index + 1]
            if fraction:
                pred[:, y, x] = ((32 - fraction) * ref[x + index + 1] + fraction * ref[x + index + 2] + 16) >> 5
    if angle == 0 and size < 32:
        pred[:, :, 0] = np.clip(pred[:, :, 0] + ((side[:, :size] - corner[:, None]) >> 1), 0, (1 << bit_depth) - 1)
    return pred
