"""The compiled loops of `_rows`: convolutions of a row of pixels, and rows one after the other through all of them.

Columns of the tables are written as numbers, which compiled code takes for constants: `_row_tables` names them.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from codecnn.filtering.integer import _lanes as lanes
from codecnn.filtering.integer import _products as products
from codecnn.filtering.integer._emit import LANES, PIXELS, SUMS
from codecnn.filtering.integer._row_tables import (
    BYTES,
    DOTS,
    FLOATS,
    HALVES,
    OWN,
    PLANE,
    ROW,
    SEGMENT,
    SPLIT,
    TILES,
    WHOLE,
    WORDS,
)
from codecnn.models.graph import Array
from codecnn.vvc import compiled, compiled_entry, pointer, source_digest


@compiled
def _find_taps(op: Array, parts: Array, y: int, taps: Array) -> int:
    """The rows of pixels that row `y` is made of, as rows of `taps`, whose columns `Tap` names; how many there are."""
    count = 0
    for index in range(op[4], op[5]):
        part = parts[index]
        by_tap = part[8] * part[10]
        for tap in range(part[6]):
            row = y + part[7] + tap
            inside = 0 <= row < part[5]
            taps[count, 0] = part[0]
            taps[count, 1] = part[1] + part[2] * (row % part[3] if inside else part[3])
            taps[count, 2] = part[4]
            taps[count, 3] = part[8]
            taps[count, 4] = part[9] + tap * by_tap
            taps[count, 5] = part[10]
            taps[count, 6] = part[6] * by_tap
            taps[count, 7] = part[11]
            taps[count, 8] = part[12]
            count += 1
    return count


@compiled
def _tiles(taps: Array, start: int, end: int, block: int, count: int, split: bool, chunk: int, sums: int) -> None:
    """The sums of a segment of pixels: of `count` blocks of channels from `block` on, or of one if they are split."""
    own = SUMS if split else count
    others = False
    for x in range(start, end, LANES):
        if others:
            products.begin_others()
        else:
            products.begin_tiles()
        for index in range(len(taps)):
            pixel, by_block = taps[index, 2], taps[index, 6]
            at, weights = taps[index, 1] + x * pixel, taps[index, 4] + block * by_block
            between, made = (chunk * LANES, taps[index, 8]) if split else (by_block, count)
            if others:
                products.add_others(at, pixel, taps[index, 3], chunk, weights, taps[index, 5], between, made)
            else:
                products.add_tiles(at, pixel, taps[index, 3], chunk, weights, taps[index, 5], between, made)
        before = sums + (x - start - LANES) * ROW
        if x > start:
            if others:
                products.store_tiles(before, PLANE, own)
            else:
                products.store_others(before, PLANE, own)
        others = not others
    last = sums + (end - 1 - start) // LANES * LANES * ROW
    if others:
        products.store_tiles(last, PLANE, own)
    else:
        products.store_others(last, PLANE, own)


@compiled
def _add_bytes(at: int, pixel: int, weights: int, quads: int, sums: int, mode: int) -> None:
    """Add to the sums of sixteen pixels the products of `quads` groups of four bytes."""
    if mode == DOTS:
        products.add_dots(at, pixel, weights, quads, sums)
        return
    own = carray(pointer(sums), (LANES, LANES), np.int32)
    tile = carray(pointer(weights), (quads, LANES, 4), np.int8)
    for row in range(LANES):
        given = carray(pointer(at + row * pixel), (quads, 4), np.uint8)
        for quad in range(quads):
            for channel in range(LANES):
                for byte in range(4):
                    own[row, channel] += np.int32(given[quad, byte]) * np.int32(tile[quad, channel, byte])


@compiled
def _add_words(at: int, pixel: int, weights: int, pairs: int, sums: int, mode: int) -> None:
    """Likewise of pairs of 16 bits."""
    if mode == DOTS:
        products.add_words(at, pixel, weights, pairs, sums)
        return
    own = carray(pointer(sums), (LANES, LANES), np.int32)
    tile = carray(pointer(weights), (pairs, LANES, 2), np.int16)
    for row in range(LANES):
        given = carray(pointer(at + row * pixel), (pairs, 2), np.int16)
        for pair in range(pairs):
            for channel in range(LANES):
                for word in range(2):
                    own[row, channel] += np.int32(given[pair, word]) * np.int32(tile[pair, channel, word])


@compiled
def _without_tiles(taps: Array, x: int, block: int, count: int, split: bool, chunk: int, sums: int, mode: int) -> None:
    """As `_tiles`, of sixteen pixels."""
    for own in range(SUMS if split else count):
        carray(pointer(sums + PLANE * own), (LANES, LANES), np.int32)[:] = 0
    quads = chunk // 4
    for index in range(len(taps)):
        pixel, by_block = taps[index, 2], taps[index, 6]
        at, weights = taps[index, 1] + x * pixel, taps[index, 4] + block * by_block
        between, first, made = (chunk * LANES, taps[index, 7], taps[index, 8]) if split else (by_block, 0, count)
        for _ in range(taps[index, 3]):
            for own in range(made):
                target = sums + PLANE * (first + own)
                if taps[index, 0] == BYTES:
                    _add_bytes(at, pixel, weights + own * between, quads, target, mode)
                else:
                    _add_words(at, pixel, weights + own * between, quads, target, mode)
            at += chunk
            weights += taps[index, 5]


@compiled
def _by_channel(taps: Array, x: int, block: int, sums: int) -> None:
    """The sums, float32, of sixteen pixels and a block of channels, each of which has weights of its own."""
    pixel = taps[0, 2]
    first = x * pixel + ROW * block
    weights = taps[0, 4] + block * taps[0, 6]
    products.weigh(taps[0, 1] + first, taps[1, 1] + first, taps[2, 1] + first, pixel, weights, sums)


@compiled
def _end(op: Array, numbers: Array, y: int, x: int, block: int, sums: int) -> None:
    """What becomes of the sums of a segment of pixels and a block of channels."""
    channel = ROW * block
    scale, bias = lanes.by_channel(op[9] + channel), lanes.by_channel(op[10] + channel)
    offset = lanes.whole_by_channel(op[8] + channel)
    modulated = op[18] != 0
    factor = lanes.by_channel(op[18] + channel if modulated else op[9])
    shift = lanes.by_channel(op[19] + channel if modulated else op[9])
    kind, added, made = op[6], op[11], op[20]
    low, high, low_after, high_after = (
        np.int32(numbers[0]),
        np.int32(numbers[1]),
        np.int32(numbers[3]),
        np.int32(numbers[4]),
    )
    share = numbers[2]
    source = op[12] + op[13] * ((y + op[17]) % op[14]) + (x + op[17]) * op[15] + LANES * block * _size(added)
    target = op[21] + op[22] * (y % op[23]) + x * op[24] + LANES * block * _size(made)
    from_pixel, from_zero, to_pixel, to_zero = op[15], np.int32(op[16]), op[24], np.int32(op[25])
    pixels = min(SEGMENT, op[2] - x)
    for _ in range(0, pixels, PIXELS):
        if kind == SPLIT:
            v = lanes.split_sums(sums + 2 * PLANE, sums, sums + PLANE, offset)
        elif kind == WHOLE:
            v = lanes.whole_sums(sums, offset)
        else:
            v = lanes.own_sums(sums)
        v = lanes.scaled(v, scale, bias)
        if added == BYTES:
            v = lanes.plus(v, lanes.read_bytes(source, from_pixel, from_zero), share)
        elif added == HALVES:
            v = lanes.plus(v, lanes.read_halves(source, from_pixel), share)
        elif added == WORDS:
            v = lanes.plus(v, lanes.read_words(source, from_pixel), share)
        elif added == FLOATS:
            v = lanes.plus(v, lanes.read_floats(source, from_pixel), share)
        whole = lanes.rounded(v)
        if modulated:
            v = lanes.as_floats(lanes.bounded(whole, low, high))
            whole = lanes.rounded(lanes.scaled(v, factor, shift))
        if made == BYTES:
            lanes.write_bytes(target, to_pixel, whole, to_zero)
        elif made == HALVES:
            lanes.write_halves(target, to_pixel, whole, low_after, high_after)
        elif made == WORDS:
            lanes.write_words(target, to_pixel, whole, low_after, high_after)
        else:
            lanes.write_floats(target, to_pixel, lanes.bounded(whole, low_after, high_after))
        sums += PIXELS * ROW
        source += PIXELS * from_pixel
        target += PIXELS * to_pixel
    _restore(made, target - (-pixels % PIXELS) * to_pixel, to_pixel, -pixels % PIXELS, to_zero)


@compiled
def _restore(kind: int, at: int, pixel: int, count: int, zero: np.int32) -> None:
    """Write zeros over `count` pixels behind the last one of a row, a block of channels of each."""
    for _ in range(count):
        if kind == BYTES:
            carray(pointer(at), (LANES,), np.uint8)[:] = zero
        elif kind == FLOATS:
            carray(pointer(at), (LANES,), np.float32)[:] = 0
        else:
            carray(pointer(at), (LANES,), np.uint16)[:] = zero
        at += pixel


@compiled
def _size(kind: int) -> int:
    """Bytes of a number, as SIZE has them."""
    return 1 if kind <= BYTES else 4 if kind == FLOATS else 2


@compiled
def _row(op: Array, numbers: Array, parts: Array, y: int, taps: Array, sums: int, mode: int) -> None:
    """The row `y` of an operation."""
    width, blocks, kind, chunk = op[2], op[3], op[6], op[7]
    found = taps[: _find_taps(op, parts, y, taps)]
    groups = -(-blocks // SUMS) if kind == WHOLE else blocks
    for start in range(0, width, SEGMENT):
        end = min(start + SEGMENT, width)
        for group in range(groups):
            block = group * blocks // groups
            count = (group + 1) * blocks // groups - block
            if mode == TILES and kind != OWN:
                _tiles(found, start, end, block, count, kind == SPLIT, chunk, sums)
            else:
                for x in range(start, end, LANES):
                    own = sums + (x - start) * ROW
                    if kind == OWN:
                        _by_channel(found, x, block, own)
                    else:
                        _without_tiles(found, x, block, count, kind == SPLIT, chunk, own, mode)
            for index in range(count):
                _end(op, numbers, y, start, block + index, sums + index * PLANE)


def _entry(sources: str) -> Callable[..., str]:
    @compiled_entry
    def run_rows(ops: Array, numbers: Array, parts: Array, taps: Array, shapes: int, sums: int, mode: int) -> str:
        """All rows of all operations, each as soon as what it reads is there.

        Bytes are multiplied by TILES, DOTS or in PLAIN loops, as `mode` says. `taps` has room for those of all parts,
        `sums` for SUMS times PLANE; `shapes` is where SHAPES stands. Returns the hash of the sources: numba keeps
        compiled functions apart by what they close over.
        """
        last = 0
        for index in range(len(ops)):
            last = max(last, ops[index, 0] + ops[index, 1])
        chunk = 0
        for step in range(last):
            for index in range(len(ops)):
                y = step - ops[index, 0]
                if 0 <= y < ops[index, 1]:
                    if mode == TILES and ops[index, 6] != OWN and ops[index, 7] != chunk:
                        chunk = ops[index, 7]
                        products.shape_tiles(shapes + 16 * chunk)
                    _row(ops[index], numbers[index], parts, y, taps, sums, mode)
        if mode == TILES:
            products.release_tiles()
        return sources

    return run_rows


run_rows = _entry(source_digest(Path(__file__).parent))


@compiled_entry
def keep_whole(x: Array, made: Array, zero: int) -> None:
    """Write whole numbers x (c, h, w) with a zero point into made (h, w, c), of the type that rows are kept in."""
    for channel in range(x.shape[0]):
        for row in range(x.shape[1]):
            for column in range(x.shape[2]):
                made[row, column, channel] = int(x[channel, row, column]) + zero
