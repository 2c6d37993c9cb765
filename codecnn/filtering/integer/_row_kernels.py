"""The compiled loops of `_rows`: convolutions of a row of pixels, and rows one after the other through all of them.

Columns of the tables are written as numbers, which compiled code takes for constants: `_row_tables` names them.
"""

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from codecnn.filtering.integer import _lanes as lanes
from codecnn.filtering.integer._lanes import HALVES_ZERO, LANES
from codecnn.filtering.integer._row_tables import BYTES, DOTS, FLOATS, HALVES, PLANE, ROW, SEGMENT, TILES
from codecnn.models.graph.nodes import Array
from codecnn.vvc.compiled import compiled, compiled_entry, pointer


@compiled
def _find_taps(op: Array, parts: Array, y: int, taps: Array) -> int:
    """The rows of pixels that row `y` is made of, as rows of `taps`, whose columns `Tap` names; how many there are."""
    count, tile = 0, op[7] * LANES * (2 if op[6] else 1)
    for index in range(op[4], op[5]):
        part = parts[index]
        chunks = part[8]
        for tap in range(part[6]):
            row = y + part[7] + tap
            inside = 0 <= row < part[5]
            taps[count, 0] = part[0] + part[2] * (row % part[3] if inside else part[3])
            taps[count, 1] = part[1]
            taps[count, 2] = part[4]
            taps[count, 3] = chunks
            taps[count, 4] = part[9] + tap * chunks * tile
            taps[count, 5] = part[6] * chunks * tile
            count += 1
    return count


@compiled
def _tiles_of_bytes(taps: Array, x: int, block: int, blocks: int, chunk: int, offset: int, sums: int) -> None:
    """The sums of bytes of sixteen pixels for up to four blocks of channels from `block` on."""
    # Rows of a tile that are read 0 bytes apart are one row.
    lanes.load_0(offset, 0)
    if blocks > 1:
        lanes.load_1(offset + ROW, 0)
    if blocks > 2:
        lanes.load_2(offset + 2 * ROW, 0)
    if blocks > 3:
        lanes.load_3(offset + 3 * ROW, 0)
    tile = chunk * LANES
    for index in range(len(taps)):
        pixel, by_block = taps[index, 2], taps[index, 5]
        at, weights = taps[index, 0] + x * pixel, taps[index, 4] + block * by_block
        for _ in range(taps[index, 3]):
            lanes.load_4(at, pixel)
            lanes.load_6(weights, ROW)
            lanes.add_046()
            if blocks > 1:
                lanes.load_7(weights + by_block, ROW)
                lanes.add_147()
            if blocks > 2:
                lanes.load_6(weights + 2 * by_block, ROW)
                lanes.add_246()
            if blocks > 3:
                lanes.load_7(weights + 3 * by_block, ROW)
                lanes.add_347()
            at += chunk
            weights += tile
    lanes.store_0(sums, ROW)
    if blocks > 1:
        lanes.store_1(sums + PLANE, ROW)
    if blocks > 2:
        lanes.store_2(sums + 2 * PLANE, ROW)
    if blocks > 3:
        lanes.store_3(sums + 3 * PLANE, ROW)


@compiled
def _tiles_of_halves(taps: Array, x: int, block: int, chunk: int, offset: int, sums: int) -> None:
    """The sums of sixteen pixels and a block of channels: of high bytes, of high ones by low ones, of low ones."""
    lanes.clear_0()
    lanes.clear_1()
    lanes.load_2(offset, 0)
    tile = chunk * LANES
    for index in range(len(taps)):
        low, pixel = taps[index, 1], taps[index, 2]
        at, weights = taps[index, 0] + x * pixel, taps[index, 4] + block * taps[index, 5]
        for _ in range(taps[index, 3]):
            lanes.load_6(weights, ROW)
            lanes.load_7(weights + tile, ROW)
            lanes.load_5(at + low, pixel)
            if low != 0:
                lanes.load_4(at, pixel)
                lanes.add_147()
                lanes.add_046()
            lanes.add_257()
            lanes.add_156()
            at += chunk
            weights += 2 * tile
    lanes.store_0(sums, ROW)
    lanes.store_1(sums + PLANE, ROW)
    lanes.store_2(sums + 2 * PLANE, ROW)


@compiled
def _begin(offset: int, sums: int) -> None:
    """Sums of sixteen pixels, each `offset` by channel."""
    own, first = carray(pointer(sums), (LANES, LANES), np.int32), carray(pointer(offset), (LANES,), np.int32)
    own[:] = first


@compiled
def _add_plain(at: int, pixel: int, weights: int, quads: int, sums: int) -> None:
    """As `add_dots`, on every processor."""
    own = carray(pointer(sums), (LANES, LANES), np.int32)
    tile = carray(pointer(weights), (quads, LANES, 4), np.int8)
    for row in range(LANES):
        given = carray(pointer(at + row * pixel), (quads, 4), np.uint8)
        for quad in range(quads):
            for channel in range(LANES):
                for byte in range(4):
                    own[row, channel] += np.int32(given[quad, byte]) * np.int32(tile[quad, channel, byte])


@compiled
def _add(at: int, pixel: int, weights: int, quads: int, sums: int, mode: int) -> None:
    if mode == DOTS:
        lanes.add_dots(at, pixel, weights, quads, sums)
    else:
        _add_plain(at, pixel, weights, quads, sums)


@compiled
def _dots_of_bytes(taps: Array, x: int, block: int, blocks: int, chunk: int, offset: int, sums: int, mode: int) -> None:
    """As `_tiles_of_bytes`, without tiles."""
    for own in range(blocks):
        _begin(offset + ROW * own, sums + PLANE * own)
    tile = chunk * LANES
    for index in range(len(taps)):
        pixel, by_block = taps[index, 2], taps[index, 5]
        at, weights = taps[index, 0] + x * pixel, taps[index, 4] + block * by_block
        for _ in range(taps[index, 3]):
            for own in range(blocks):
                _add(at, pixel, weights + own * by_block, chunk // 4, sums + PLANE * own, mode)
            at += chunk
            weights += tile


@compiled
def _dots_of_halves(taps: Array, x: int, block: int, chunk: int, offset: int, sums: int, mode: int) -> None:
    """As `_tiles_of_halves`, without tiles."""
    middle, last = sums + PLANE, sums + 2 * PLANE
    carray(pointer(sums), (LANES, LANES), np.int32)[:] = 0
    carray(pointer(middle), (LANES, LANES), np.int32)[:] = 0
    _begin(offset, last)
    tile, quads = chunk * LANES, chunk // 4
    for index in range(len(taps)):
        low, pixel = taps[index, 1], taps[index, 2]
        at, weights = taps[index, 0] + x * pixel, taps[index, 4] + block * taps[index, 5]
        for _ in range(taps[index, 3]):
            if low != 0:
                _add(at, pixel, weights, quads, sums, mode)
                _add(at, pixel, weights + tile, quads, middle, mode)
            _add(at + low, pixel, weights, quads, middle, mode)
            _add(at + low, pixel, weights + tile, quads, last, mode)
            at += chunk
            weights += 2 * tile


@compiled
def _end(op: Array, numbers: Array, y: int, x: int, block: int, sums: int) -> None:
    """What becomes of the sums of a segment of pixels and a block of channels."""
    channel = ROW * block
    scale, bias = lanes.floats(op[9] + channel), lanes.floats(op[10] + channel)
    modulated = op[19] != 0
    factor = lanes.floats(op[19] + channel if modulated else op[9])
    shift = lanes.floats(op[20] + channel if modulated else op[9])
    split, added, made = op[6], op[11], op[21]
    low, high, low_after, high_after = (
        np.int32(numbers[0]),
        np.int32(numbers[1]),
        np.int32(numbers[3]),
        np.int32(numbers[4]),
    )
    share = numbers[2]
    source = op[12] + op[14] * ((y + op[18]) % op[15]) + (x + op[18]) * op[16] + LANES * block
    target = op[22] + op[24] * (y % op[25]) + x * op[26]
    target += channel if made == FLOATS else LANES * block
    from_low, from_pixel, from_zero = op[13], op[16], np.int32(op[17])
    to_low, to_pixel, to_zero = op[23], op[26], np.int32(op[27])
    for _ in range(min(SEGMENT, op[2] - x)):
        v = lanes.sums_of_halves(sums, sums + PLANE, sums + 2 * PLANE) if split else lanes.sums(sums)
        v = lanes.scaled(v, scale, bias)
        if added == BYTES:
            v = lanes.plus(v, lanes.read_bytes(source, from_zero), share)
        elif added == HALVES:
            v = lanes.plus(v, lanes.read_halves(source, source + from_low), share)
        whole = lanes.rounded(v, low, high)
        if modulated:
            whole = lanes.rounded(lanes.scaled(lanes.as_floats(whole), factor, shift), low_after, high_after)
        if made == BYTES:
            lanes.write_bytes(target, whole, to_zero)
        elif made == HALVES:
            lanes.write_halves(target, target + to_low, whole)
        else:
            lanes.write_floats(target, whole)
        sums += ROW
        source += from_pixel
        target += to_pixel


@compiled
def _row(op: Array, numbers: Array, parts: Array, y: int, taps: Array, sums: int, mode: int) -> None:
    """The row `y` of an operation."""
    width, blocks, split, chunk = op[2], op[3], op[6], op[7]
    found = taps[: _find_taps(op, parts, y, taps)]
    for start in range(0, width, SEGMENT):
        end = min(start + SEGMENT, width)
        for block in range(0, blocks, 1 if split else 4):
            offset, count = op[8] + ROW * block, 1 if split else min(4, blocks - block)
            for x in range(start, end, LANES):
                own = sums + (x - start) * ROW
                if split and mode == TILES:
                    _tiles_of_halves(found, x, block, chunk, offset, own)
                elif split:
                    _dots_of_halves(found, x, block, chunk, offset, own, mode)
                elif mode == TILES:
                    _tiles_of_bytes(found, x, block, count, chunk, offset, own)
                else:
                    _dots_of_bytes(found, x, block, count, chunk, offset, own, mode)
            for index in range(count):
                _end(op, numbers, y, start, block + index, sums + index * PLANE)


@compiled_entry
def run_rows(ops: Array, numbers: Array, parts: Array, taps: Array, shapes: int, sums: int, mode: int) -> None:
    """All rows of all operations, each as soon as what it reads is there.

    Bytes are multiplied by TILES, DOTS or in PLAIN loops, as `mode` says. `taps` has room for those of all parts,
    `sums` for four times PLANE; `shapes` is where SHAPES stands.
    """
    last = 0
    for index in range(len(ops)):
        last = max(last, ops[index, 0] + ops[index, 1])
    chunk = 0
    for step in range(last):
        for index in range(len(ops)):
            y = step - ops[index, 0]
            if 0 <= y < ops[index, 1]:
                if mode == TILES and ops[index, 7] != chunk:
                    chunk = ops[index, 7]
                    lanes.shape_tiles(shapes + 16 * chunk)
                _row(ops[index], numbers[index], parts, y, taps, sums, mode)
    if mode == TILES:
        lanes.release_tiles()


@compiled_entry
def keep_whole(x: Array, made: Array, halves: bool, zero: int) -> None:
    """Write whole numbers x (c, h, w) as bytes into made (1 or 2, h, w, c), as rows are kept."""
    for channel in range(x.shape[0]):
        for row in range(x.shape[1]):
            for column in range(x.shape[2]):
                number = int(x[channel, row, column])
                if halves:
                    made[0, row, column, channel] = (number + HALVES_ZERO) >> 8
                    made[1, row, column, channel] = (number + HALVES_ZERO) & 255
                else:
                    made[0, row, column, channel] = number + zero
