"""Products and their sums, sixteen pixels by sixteen channels: of bytes, of numbers of 16 bits, of float32.

Tiles are those of AMX (Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3): 0 to 5 hold
16x16 sums of 32 bits, 6 sixteen pixels of unsigned bytes, 7 signed weights in groups of four rows.
"""

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from codecnn.filtering.integer._emit import (
    BYTE,
    F32,
    I32,
    LANES,
    SUMS,
    at_address,
    called,
    features,
    loaded,
    operation,
    same,
    times,
)


def _called_on_tiles(builder: Any, name: str, *values: Any) -> None:
    if features().get("amx-int8"):  # elsewhere it is compiled, and never run
        called(builder, name, ir.VoidType(), *values)


def _adding(name: str) -> Callable[[int, int, int, int, int], None]:
    """What adds to the sums (16, 16) of sixteen pixels the products of 32 bits of each by a vector of weights.

    There are `count` such vectors; pixels are `pixel` bytes apart.
    """

    @operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64)
    def add_products(builder: Any, at: Any, pixel: Any, weights: Any, count: Any, sums: Any) -> None:
        if not features().get("avx512vnni"):
            return  # compiled, and never run
        dots = ir.InlineAsm(ir.FunctionType(I32, [I32] * 3), f"{name} $3, $2, $0", "=v,0,v,v")
        rows = [builder.add(sums, ir.Constant(sums.type, 4 * LANES * row)) for row in range(LANES)]
        places = [builder.add(at, builder.mul(pixel, ir.Constant(pixel.type, row))) for row in range(LANES)]
        sums_now = (loaded(builder, row, I32) for row in rows)
        totals = [cgutils.alloca_once_value(builder, now) for now in sums_now]  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            across = builder.mul(loop.index, ir.Constant(count.type, 4))
            own = loaded(builder, builder.add(weights, builder.mul(across, ir.Constant(count.type, LANES))), I32)
            for place, total in zip(places, totals, strict=True):
                four = loaded(builder, builder.add(place, across), ir.IntType(32))
                builder.store(builder.call(dots, [builder.load(total), same(builder, four, I32), own]), total)
        for row, total in zip(rows, totals, strict=True):
            builder.store(builder.load(total), at_address(builder, row, I32), align=1)

    return add_products


# Four unsigned bytes by signed ones, and two numbers of 16 bits.
add_dots, add_words = (_adding(name) for name in ("vpdpbusd", "vpdpwssd"))


@operation(types.none, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
def weigh(builder: Any, above: Any, at: Any, below: Any, pixel: Any, weights: Any, sums: Any) -> None:
    """The sums (16, 16), float32, of sixteen pixels of three rows by weights (3, 3, 16), each channel by its own.

    Pixels are `pixel` bytes apart; the first one that is read stands above and left of the first sum's.
    """
    totals: list[Any] = [ir.Constant(F32, [0.0] * LANES)] * LANES
    for row, address in enumerate((above, at, below)):
        places = [ir.Constant(weights.type, 4 * LANES * (3 * row + tap)) for tap in range(3)]
        own = [loaded(builder, builder.add(weights, place), F32) for place in places]
        for column in range(LANES + 2):
            given = loaded(builder, address, F32)
            for tap in range(3):
                if 0 <= column - tap < LANES:
                    totals[column - tap] = times(builder, given, own[tap], totals[column - tap])
            address = builder.add(address, pixel)
    for index, total in enumerate(totals):
        builder.store(
            total, at_address(builder, builder.add(sums, ir.Constant(sums.type, 4 * LANES * index)), F32), align=1
        )


@operation(types.none, types.int64)
def shape_tiles(builder: Any, address: Any) -> None:
    """Rows and bytes of all tiles, from 64 bytes as LDTILECFG reads them."""
    _called_on_tiles(builder, "llvm.x86.ldtilecfg", at_address(builder, address, BYTE))


@operation(types.none)
def release_tiles(builder: Any) -> None:
    _called_on_tiles(builder, "llvm.x86.tilerelease")


def _tile(number: int) -> Any:
    return ir.Constant(BYTE, number)


def _beginning(first: int) -> Callable[[], None]:
    """What sets all sums of a set of tiles, `first` and those behind, to 0."""

    @operation(types.none)
    def begin_tiles(builder: Any) -> None:
        for own in range(SUMS):
            _called_on_tiles(builder, "llvm.x86.tilezero", _tile(first + own))

    return begin_tiles


def _each(builder: Any, address: Any, count: Any, step: Any) -> Iterator[tuple[int, Any]]:
    """The code of each of up to `SUMS` tiles, which is run for `count` of them, and its address, `step` bytes on."""
    for own in range(SUMS):
        with builder.if_then(builder.icmp_signed(">", count, ir.Constant(count.type, own))):
            yield own, builder.add(address, builder.mul(step, ir.Constant(step.type, own)))


def _adding_tiles(first: int) -> Callable[[int, int, int, int, int, int, int, int], None]:
    """What adds to `count` tiles of sums, `first` and those behind, the products of `chunks` chunks of sixteen pixels.

    Pixels are `pixel` bytes apart, chunks `chunk`; weights of one chunk are `step` bytes apart from sum to sum, and
    `by_chunk` from chunk to chunk.
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
        step: Any,
        count: Any,
    ) -> None:
        given, own_weights = _tile(2 * SUMS), _tile(2 * SUMS + 1)
        row = ir.Constant(at.type, 4 * LANES)
        with cgutils.for_range(builder, chunks) as loop:
            here = builder.add(at, builder.mul(loop.index, chunk))
            _called_on_tiles(builder, "llvm.x86.tileloadd64", given, at_address(builder, here, BYTE), pixel)
            begin = builder.add(weights, builder.mul(loop.index, by_chunk))
            for own, place in _each(builder, begin, count, step):
                _called_on_tiles(builder, "llvm.x86.tileloadd64", own_weights, at_address(builder, place, BYTE), row)
                _called_on_tiles(builder, "llvm.x86.tdpbusd", _tile(first + own), given, own_weights)

    return add_tiles


def _storing(first: int) -> Callable[[int, int, int], None]:
    """What stores `count` tiles of sums, `first` and those behind, `plane` bytes apart."""

    @operation(types.none, types.int64, types.int64, types.int64)
    def store_tiles(builder: Any, sums: Any, plane: Any, count: Any) -> None:
        row = ir.Constant(sums.type, 4 * LANES)
        for own, at in _each(builder, sums, count, plane):
            _called_on_tiles(builder, "llvm.x86.tilestored64", _tile(first + own), at_address(builder, at, BYTE), row)

    return store_tiles


# Two sets of sums: the products of one are made while those of the other are stored.
begin_tiles, begin_others = (_beginning(first) for first in (0, SUMS))
add_tiles, add_others = (_adding_tiles(first) for first in (0, SUMS))
store_tiles, store_others = (_storing(first) for first in (0, SUMS))
