"""Compiled loops of the row engine: convolutions of one row of pixels, and the order of rows over all operations.

`run_rows` is the entry. It walks over the rows of all operations, each as soon as the rows that it reads exist. With
AVX-512 VNNI it computes and finishes a row in registers (`_convolve`). With AMX and plain loops it writes the sums of a
segment to memory (`_sum_with_amx`, `_sum_in_loops`), from where `row_finish` finishes them.

The loops read tables of int64 (`ops`, `parts`, `taps`) and float32 (`numbers`) with the columns of `row_tables`.

AMX (Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3) has eight tiles. Tiles 0 to 5
hold two sets of three 16x16 sums of int32: the products of one set are computed while those of the other are stored.
Tile 6 holds sixteen pixels of unsigned bytes, tile 7 signed weights in groups of four rows.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types

from codecnn.base.compiled import compiled, compiled_entry, pointer, processor_features, source_digest
from codecnn.filtering.integer import row_sums
from codecnn.filtering.integer.row_finish import (
    PLANE_BYTES,
    SEGMENT,
    SUM_BYTES,
    finish_integer_sums,
    finish_split_sums,
)
from codecnn.filtering.integer.row_pairs import convolve_pairs
from codecnn.filtering.integer.vector_ops import (
    BYTE,
    BYTES,
    LANES,
    call_intrinsic,
    operation,
    pointer_to,
)
from codecnn.models.graph import Array

INTEGER_SUMS, SPLIT_SUMS, CHANNEL_SUMS, PAIR_SUMS = range(4)
"""Kinds of sums of an operation.

INTEGER_SUMS: int32. SPLIT_SUMS: int32 in three planes that count 2^8, 1 and 2^16 times. CHANNEL_SUMS: float32, of
convolutions of each channel by itself. PAIR_SUMS: int32 of twice the sums, of convolutions of transformed pairs of
pixels (`row_pairs`).
"""
PLAIN, VNNI, AMX = range(3)
"""Instruction sets that multiply bytes: plain loops, AVX-512 VNNI, or AMX."""

TILES_PER_SET = 3
"""Tiles of sums that are computed together."""

TILE_CONFIGS = np.zeros((17, 64), np.uint8)
"""Configurations of all tiles as LDTILECFG reads them, by the bytes of a chunk over four.

Each holds palette 1, the bytes of a row of each tile, and the rows of each tile.
"""
for _quads in range(1, 17):
    TILE_CONFIGS[_quads, 0] = 1
    TILE_CONFIGS[_quads, 16:32].view(np.uint16)[:] = [*[64] * (2 * TILES_PER_SET), 4 * _quads, 64]
    TILE_CONFIGS[_quads, 48:56] = [*[16] * (2 * TILES_PER_SET), 16, _quads]

_INPUT_TILE, _WEIGHT_TILE = (ir.Constant(BYTE, number) for number in (2 * TILES_PER_SET, 2 * TILES_PER_SET + 1))


def _call_amx(builder: Any, name: str, *values: Any) -> None:
    """Emit an AMX instruction; on other processors the code is compiled without it and never called."""
    if processor_features().get("amx-int8"):
        call_intrinsic(builder, name, ir.VoidType(), *values)


@operation(types.none, types.int64)
def _configure_tiles(builder: Any, address: Any) -> None:
    """Configure all tiles by 64 bytes of `TILE_CONFIGS`."""
    _call_amx(builder, "llvm.x86.ldtilecfg", pointer_to(builder, address, BYTE))


@operation(types.none)
def _release_tiles(builder: Any) -> None:
    """Release the tiles."""
    _call_amx(builder, "llvm.x86.tilerelease")


def _clear_set(first: int) -> Callable[[], None]:
    """Build a function that sets the tiles of a set, `first` and the following ones, to 0."""

    @operation(types.none)
    def clear_tiles(builder: Any) -> None:
        for index in range(TILES_PER_SET):
            _call_amx(builder, "llvm.x86.tilezero", ir.Constant(BYTE, first + index))

    return clear_tiles


def _each_tile(builder: Any, address: Any, count: Any, step: Any) -> Iterator[tuple[int, Any]]:
    """Emit code for each tile of a set that runs for the first `count` of them.

    Yields the index of a tile in its set, and its address, which advances by `step` bytes.
    """
    for index in range(TILES_PER_SET):
        with builder.if_then(builder.icmp_signed(">", count, ir.Constant(count.type, index))):
            yield index, builder.add(address, builder.mul(step, ir.Constant(step.type, index)))


def _add_to_set(first: int) -> Callable[[int, int, int, int, int, int, int, int], None]:
    """Build a function that adds products of sixteen pixels to `count` tiles of a set.

    Pixels are `pixel` bytes apart. Each of `chunks` chunks of `chunk` bytes is multiplied with the weights of all
    tiles, which are `by_tile` bytes apart from tile to tile, and `by_chunk` bytes from chunk to chunk.
    """

    @operation(types.none, *[types.int64] * 8)
    def add_tiles(
        builder: Any,
        at: Any,
        pixel: Any,
        chunks: Any,
        chunk: Any,
        weights: Any,
        by_chunk: Any,
        by_tile: Any,
        count: Any,
    ) -> None:
        row = ir.Constant(at.type, 4 * LANES)
        with cgutils.for_range(builder, chunks) as loop:
            inputs = pointer_to(builder, builder.add(at, builder.mul(loop.index, chunk)), BYTE)
            _call_amx(builder, "llvm.x86.tileloadd64", _INPUT_TILE, inputs, pixel)
            begin = builder.add(weights, builder.mul(loop.index, by_chunk))
            for index, place in _each_tile(builder, begin, count, by_tile):
                _call_amx(builder, "llvm.x86.tileloadd64", _WEIGHT_TILE, pointer_to(builder, place, BYTE), row)
                _call_amx(builder, "llvm.x86.tdpbusd", ir.Constant(BYTE, first + index), _INPUT_TILE, _WEIGHT_TILE)

    return add_tiles


def _store_set(first: int) -> Callable[[int, int, int], None]:
    """Build a function that stores `count` tiles of a set, `plane` bytes apart."""

    @operation(types.none, types.int64, types.int64, types.int64)
    def store_tiles(builder: Any, sums: Any, plane: Any, count: Any) -> None:
        row = ir.Constant(sums.type, 4 * LANES)
        for index, at in _each_tile(builder, sums, count, plane):
            _call_amx(
                builder,
                "llvm.x86.tilestored64",
                ir.Constant(BYTE, first + index),
                pointer_to(builder, at, BYTE),
                row,
            )

    return store_tiles


_clear_set_0, _clear_set_1 = (_clear_set(first) for first in (0, TILES_PER_SET))
_add_to_set_0, _add_to_set_1 = (_add_to_set(first) for first in (0, TILES_PER_SET))
_store_set_0, _store_set_1 = (_store_set(first) for first in (0, TILES_PER_SET))


@compiled
def _find_taps(op: Array, parts: Array, y: int, taps: Array) -> int:
    """List the rows of pixels that output row `y` is computed from in `taps`; return their number."""
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
def _sum_with_amx(
    taps: Array, start: int, end: int, block: int, count: int, split: bool, chunk: int, sums: int
) -> None:
    """Compute the sums of a segment of pixels with AMX.

    They are those of `count` blocks of channels from `block` on, or the three planes of one block if they are split.
    """
    tiles = TILES_PER_SET if split else count
    second_set = False
    for x in range(start, end, LANES):
        if second_set:
            _clear_set_1()
        else:
            _clear_set_0()
        for index in range(len(taps)):
            pixel, by_block = taps[index, 2], taps[index, 6]
            at, weights = taps[index, 1] + x * pixel, taps[index, 4] + block * by_block
            by_tile, added = (chunk * LANES, taps[index, 8]) if split else (by_block, count)
            if second_set:
                _add_to_set_1(at, pixel, taps[index, 3], chunk, weights, taps[index, 5], by_tile, added)
            else:
                _add_to_set_0(at, pixel, taps[index, 3], chunk, weights, taps[index, 5], by_tile, added)
        previous = sums + (x - start - LANES) * SUM_BYTES
        if x > start:
            if second_set:
                _store_set_0(previous, PLANE_BYTES, tiles)
            else:
                _store_set_1(previous, PLANE_BYTES, tiles)
        second_set = not second_set
    last = sums + (end - 1 - start) // LANES * LANES * SUM_BYTES
    if second_set:
        _store_set_0(last, PLANE_BYTES, tiles)
    else:
        _store_set_1(last, PLANE_BYTES, tiles)


@compiled
def _add_bytes(at: int, pixel: int, weights: int, quads: int, sums: int) -> None:
    """Add to the sums of sixteen pixels the products of `quads` groups of four bytes."""
    totals = carray(pointer(sums), (LANES, LANES), np.int32)
    weight = carray(pointer(weights), (quads, LANES, 4), np.int8)
    for row in range(LANES):
        inputs = carray(pointer(at + row * pixel), (quads, 4), np.uint8)
        for quad in range(quads):
            for channel in range(LANES):
                for byte in range(4):
                    totals[row, channel] += np.int32(inputs[quad, byte]) * np.int32(weight[quad, channel, byte])


@compiled
def _add_words(at: int, pixel: int, weights: int, pairs: int, sums: int) -> None:
    """Add to the sums of sixteen pixels the products of `pairs` groups of two 16-bit numbers."""
    totals = carray(pointer(sums), (LANES, LANES), np.int32)
    weight = carray(pointer(weights), (pairs, LANES, 2), np.int16)
    for row in range(LANES):
        inputs = carray(pointer(at + row * pixel), (pairs, 2), np.int16)
        for pair in range(pairs):
            for channel in range(LANES):
                for word in range(2):
                    totals[row, channel] += np.int32(inputs[pair, word]) * np.int32(weight[pair, channel, word])


@compiled
def _sum_in_loops(taps: Array, x: int, block: int, count: int, split: bool, chunk: int, sums: int) -> None:
    """Compute the same sums as `_sum_with_amx` for sixteen pixels with plain loops."""
    for index in range(TILES_PER_SET if split else count):
        carray(pointer(sums + PLANE_BYTES * index), (LANES, LANES), np.int32)[:] = 0
    for index in range(len(taps)):
        pixel, by_block = taps[index, 2], taps[index, 6]
        at, weights = taps[index, 1] + x * pixel, taps[index, 4] + block * by_block
        by_plane, first, added = (chunk * LANES, taps[index, 7], taps[index, 8]) if split else (by_block, 0, count)
        for _ in range(taps[index, 3]):
            for plane in range(added):
                target = sums + PLANE_BYTES * (first + plane)
                if taps[index, 0] == BYTES:
                    _add_bytes(at, pixel, weights + plane * by_plane, chunk // 4, target)
                else:
                    _add_words(at, pixel, weights + plane * by_plane, chunk // 4, target)
            at += chunk
            weights += taps[index, 5]


@compiled
def _convolve(
    taps: Array, start: int, end: int, block: int, count: int, op: Array, numbers: int, added: int, stored: int
) -> None:
    """Compute and finish a segment of pixels in registers."""
    table, rows, kind, chunk, row = taps.ctypes.data, len(taps), op[6], op[7], op.ctypes.data
    if kind == CHANNEL_SUMS:
        row_sums.convolve_channels(table, rows, start, end, block, chunk, row, numbers, added, stored)
    elif kind == PAIR_SUMS:
        convolve_pairs(table, rows, start, end, block, chunk, row, numbers, added, stored)
    elif kind == SPLIT_SUMS:
        row_sums.convolve_split(table, rows, start, end, block, chunk, row, numbers, added, stored)
    elif count == 1:
        row_sums.convolve_one_block(table, rows, start, end, block, chunk, row, numbers, added, stored)
    elif count == 2:
        row_sums.convolve_two_blocks(table, rows, start, end, block, chunk, row, numbers, added, stored)
    else:
        row_sums.convolve_three_blocks(table, rows, start, end, block, chunk, row, numbers, added, stored)


@compiled
def _run_row(op: Array, numbers: Array, parts: Array, y: int, taps: Array, sums: int, mode: int) -> None:
    """Compute the row `y` of an operation."""
    width, blocks, kind, chunk = op[2], op[3], op[6], op[7]
    added = op[12] + op[13] * ((y + op[17]) % op[14]) + op[17] * op[15]
    stored = op[21] + op[22] * (y % op[23])
    row, row_numbers = op.ctypes.data, numbers.ctypes.data
    row_taps = taps[: _find_taps(op, parts, y, taps)]
    groups = blocks // 2 if kind == PAIR_SUMS else -(-blocks // TILES_PER_SET) if kind == INTEGER_SUMS else blocks
    for start in range(0, width, SEGMENT):
        end = min(start + SEGMENT, width)
        for group in range(groups):
            block = group * blocks // groups
            count = (group + 1) * blocks // groups - block
            if mode == VNNI or kind == CHANNEL_SUMS:
                _convolve(row_taps, start, end, block, count, op, row_numbers, added, stored)
                continue
            if mode == AMX:
                _sum_with_amx(row_taps, start, end, block, count, kind == SPLIT_SUMS, chunk, sums)
            else:
                for x in range(start, end, LANES):
                    _sum_in_loops(row_taps, x, block, count, kind == SPLIT_SUMS, chunk, sums + (x - start) * SUM_BYTES)
            for index in range(count):
                at = sums + index * PLANE_BYTES
                if kind == SPLIT_SUMS:
                    finish_split_sums(at, start, end, block, row, row_numbers, added, stored)
                else:
                    finish_integer_sums(at, start, end, block + index, row, row_numbers, added, stored)
    # Vectors wrote numbers after the last pixel, where the convolutions that follow read zeros.
    behind = carray(pointer(stored + width * op[24]), (-width % LANES * op[24],), np.uint8)
    behind[:] = op[25] & 255


def _build_entry(sources: str) -> Callable[..., str]:
    @compiled_entry
    def run_rows(ops: Array, numbers: Array, parts: Array, taps: Array, configs: int, sums: int, mode: int) -> str:
        """Compute all rows of all operations, each as soon as the rows that it reads exist.

        Args:
            ops: A row of columns `Op` for each operation, int64.
            numbers: A row of columns `Number` for each operation, float32.
            parts: A row of columns `Part` for each tensor that an operation multiplies, int64.
            taps: Space for the taps of all parts, columns `Tap`, int64.
            configs: Address of `TILE_CONFIGS`.
            sums: Address of space for `TILES_PER_SET` times `PLANE_BYTES`.
            mode: `PLAIN`, `VNNI` or `AMX`.

        Returns:
            The hash of the sources: numba distinguishes cached functions by the values that they close over.
        """
        last = 0
        for index in range(len(ops)):
            last = max(last, ops[index, 0] + ops[index, 1])
        chunk = 0
        for step in range(last):
            for index in range(len(ops)):
                y = step - ops[index, 0]
                if 0 <= y < ops[index, 1]:
                    if mode == AMX and ops[index, 6] != CHANNEL_SUMS and ops[index, 7] != chunk:
                        chunk = ops[index, 7]
                        _configure_tiles(configs + 16 * chunk)
                    _run_row(ops[index], numbers[index], parts, y, taps, sums, mode)
        if mode == AMX:
            _release_tiles()
        return sources

    return run_rows


run_rows = _build_entry(source_digest(Path(__file__).parent))
