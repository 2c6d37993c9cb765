"""Networks of 8 bits row by row: every operation makes a row of pixels as soon as what it reads is there.

What lies between two operations is a few rows, which stay in the processor's caches, where other engines write whole
tensors and read them again. Sums are of products of bytes. A tensor of more than 8 bits is two planes of
bytes, its weights are two bytes as well, and the sums of their four products are put together when they are rounded.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.filtering.integer._emit import LANES, PIXELS, SUMS, Products, products
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._row_kernels import keep_whole, run_rows
from codecnn.filtering.integer._row_plan import LINE, MOST_OF_A_ROW, Piece, RowPlan, Step, aligned, floats, room
from codecnn.filtering.integer._row_tables import (
    BYTES,
    DOTS,
    FLOATS,
    HALVES,
    PLAIN,
    PLANE,
    SHAPES,
    SIZE,
    TILES,
    WORDS,
    Number,
    Op,
    Part,
    Tap,
)
from codecnn.models.graph import Array, Node
from codecnn.vvc import COMPILED


class RowNetwork(FastNetwork):
    """A network of 8 bits whose convolutions go row by row; what stands in front and behind is as in `FastNetwork`.

    `by` is what multiplies, which the processor must have. Raises ModelError for a network that cannot go so.
    """

    def __init__(self, network: IntegerNetwork, by: Products | None = None) -> None:
        if network.bits != 8:
            raise ModelError("networks of 16 bits do not go row by row")
        modes = {"plain": PLAIN, "dots": DOTS, "tiles": TILES}
        best = products()  # which also asks the system for tiles
        if by is not None and modes[by] > modes[best]:
            raise ModelError(f"this processor does not multiply by {by}, or is told not to")
        super().__init__(network)
        self.sums = {}  # nodes in front of the rows and behind them are computed as the network has them
        self.mode = modes[by or best]
        plan = RowPlan(network, tiles=self.mode == TILES)
        self.front, self.behind, self.steps, self.kept = plan.front, plan.behind, plan.steps, plan.kept
        self.margin = max(-step.above[1] for step in self.steps)
        self.rings = dict.fromkeys(self.kept, 1)
        for step in self.steps:
            for piece, above in [
                *((one, step.above[0]) for one in step.pieces),
                *((one, 0) for one in [step.added] if one),
            ]:
                lag = self.kept[piece.name].lag
                if lag is not None:
                    rows = step.lag - lag - above - piece.crop + 1
                    self.rings[piece.name] = max(self.rings[piece.name], rows)
        self.modulations = {
            step.modulated.name: self._tables(step.modulated) for step in self.steps if step.modulated is not None
        }

    def _tables(self, node: Node) -> tuple[Array, Array]:
        """Factors and offsets of a modulation, (64, channels) each."""
        made = (self.tensors[node.name][name].numpy() for name in ("factor", "offset"))
        first, second = (floats(np.pad(table, ((0, 0), (0, -table.shape[1] % LANES)))) for table in made)
        return first, second

    def _computed(self, compute: Callable[[Node, list[Tensor]], Tensor], qp: int) -> dict[str, Tensor]:
        made: dict[str, Tensor] = {}
        for node in self.front:
            made[node.name] = compute(node, [made[name] for name in node.inputs])
        made |= self._in_rows(made, qp)
        for node in self.behind:
            made[node.name] = compute(node, [made[name] for name in node.inputs])
        return {name: made[name] for name in self.network.graph.outputs}

    def _in_rows(self, front: Mapping[str, Tensor], qp: int) -> dict[str, Tensor]:
        """The tensors that the steps end in, of one picture after the other."""
        count = len(next(iter(front.values())))
        alone = [self._one({name: x[index] for name, x in front.items()}, qp) for index in range(count)]
        if count == 1:  # which needs no copy
            return {name: x[None] for name, x in alone[0].items()}
        return {name: torch.stack([one[name] for one in alone]) for name in alone[0]}

    def _one(self, front: Mapping[str, Tensor], qp: int) -> dict[str, Tensor]:
        places = _Places(self, {name: tuple(x.shape[1:]) for name, x in front.items()})
        for name, kept in self.kept.items():
            if kept.lag is None:
                places.keep(name, front[name].contiguous().numpy())
        ops, numbers, parts = places.tables(qp)
        taps = np.zeros((int((parts[:, Part.TAPS]).sum()), len(Tap)), np.int64)
        sums = aligned(np.zeros(SUMS * PLANE, np.uint8))
        run_rows(ops, numbers, parts, taps, SHAPES.ctypes.data, sums.ctypes.data, self.mode)
        return places.made()


_TYPES = {BYTES: np.uint8, HALVES: np.uint16, WORDS: np.int16, FLOATS: np.float32}


class _Places:
    """Memory for one picture's rows, and the tables of addresses that `run_rows` goes by."""

    def __init__(self, network: RowNetwork, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.network = network
        first = next(iter(name for name, kept in network.kept.items() if kept.lag is None))
        self.size = tuple(extent + 2 * network.kept[first].trim for extent in shapes[first])
        self.memory: dict[str, Array] = {}
        for name, kept in network.kept.items():
            self.memory[name] = room(self._bytes(name), _TYPES[kept.kind])
            if not kept.whole:  # of such nothing is read but what has been made
                self.memory[name].fill(kept.zero)

    def _extent(self, name: str) -> tuple[int, int]:
        trim = self.network.kept[name].trim
        return self.size[0] - 2 * trim, self.size[1] - 2 * trim

    def _ring(self, name: str) -> int:
        kept = self.network.kept[name]
        return self._extent(name)[0] if kept.lag is None or kept.whole else self.network.rings[name]

    def _pixel(self, name: str) -> int:
        kept = self.network.kept[name]
        return kept.channels * SIZE[kept.kind]

    def _across(self, name: str) -> int:
        """Pixels from row to row: as many as are made, and those of zeros on both sides."""
        return -(-self._extent(name)[1] // PIXELS) * PIXELS + 2 * self.network.margin

    def _row(self, name: str) -> int:
        """Bytes from row to row."""
        return self._across(name) * self._pixel(name)

    def _bytes(self, name: str) -> int:
        # Behind the rows one of zeros; and what is read of pixels that are not there.
        beyond = (2 * LANES + self.network.margin) * self._pixel(name) + MOST_OF_A_ROW
        return -(-((self._ring(name) + 1) * self._row(name) + beyond) // LINE) * LINE

    def _rows(self, name: str) -> Array:
        """Its rows (h, w, c), without the zeros."""
        height, width = self._extent(name)
        margin, shape = self.network.margin, (height, self._across(name), self.network.kept[name].channels)
        found: Array = self.memory[name][: math.prod(shape)].reshape(shape)[:, margin : margin + width]
        return found

    def keep(self, name: str, x: Array) -> None:
        """Write a tensor (c, h, w) of whole numbers, float32, where it is read."""
        keep_whole(x, self._rows(name), self.network.kept[name].zero)

    def _at(self, name: str) -> int:
        """The address of the first pixel."""
        return int(self.memory[name].ctypes.data) + self.network.margin * self._pixel(name)

    def tables(self, qp: int) -> tuple[Array, Array, Array]:
        ops = np.zeros((len(self.network.steps), len(Op)), np.int64)
        numbers = np.zeros((len(ops), len(Number)), np.float32)
        parts = np.zeros((sum(len(step.pieces) for step in self.network.steps) + 1, len(Part)), np.int64)
        end = 0
        for op, step, own in zip(ops, self.network.steps, numbers, strict=True):
            own[:] = step.numbers
            op[Op.FIRST] = end
            for piece, weights in zip(step.pieces, step.weights, strict=True):
                parts[end] = self._part(step, piece, weights)
                end += 1
            op[Op.END] = end
            op[Op.LAG], op[Op.KIND], op[Op.CHUNK] = step.lag, step.sums, step.chunk
            op[Op.ROWS], op[Op.PIXELS] = self._extent(step.made)
            op[Op.BLOCKS] = len(step.scale) // LANES
            op[Op.OFFSET], op[Op.SCALE], op[Op.BIAS] = (x.ctypes.data for x in (step.offset, step.scale, step.bias))
            op[Op.ADDED_RING] = 1
            if step.added is not None:
                op[Op.ADDED : Op.ADDED_ZERO + 1] = self._tensor(step.added.name)
                op[Op.ADDED_SKIP] = step.added.crop
            if step.modulated is not None:
                factor, shift = self.network.modulations[step.modulated.name]
                op[Op.FACTOR], op[Op.SHIFT] = factor[qp].ctypes.data, shift[qp].ctypes.data
            op[Op.MADE : Op.MADE_ZERO + 1] = self._tensor(step.made)
        return ops, numbers, parts

    def _tensor(self, name: str) -> tuple[int, ...]:
        """The columns of `Op` from kind to zero point."""
        kept = self.network.kept[name]
        return kept.kind, self._at(name), self._row(name), self._ring(name), self._pixel(name), kept.zero

    def _part(self, step: Step, piece: Piece, weights: Array) -> tuple[int, ...]:
        """The columns of `Part`."""
        kind, at, row, ring, pixel, _ = self._tensor(piece.name)
        above, left = (offset + piece.crop for offset in step.above)
        rows = self._extent(piece.name)[0]
        by_chunk = weights.strides[2]
        return (
            kind,
            at + left * pixel,
            row,
            ring,
            pixel,
            rows,
            step.taps[0],
            above,
            weights.shape[2],
            weights.ctypes.data,
            by_chunk,
            *((1, 1) if kind == WORDS else (0, 3 if kind == HALVES else 2)),
        )

    def made(self) -> dict[str, Tensor]:
        """The tensors (c, h, w) that are read behind the rows."""
        kept = self.network.kept.items()
        return {name: torch.from_numpy(self._rows(name)).permute(2, 0, 1) for name, one in kept if one.whole}


def goes_in_rows(network: IntegerNetwork) -> bool:
    """Whether this processor multiplies bytes in compiled code, and the network's convolutions can go row by row."""
    if network.bits != 8 or products() == "plain" or not COMPILED:
        return False
    try:
        RowPlan(network, tiles=products() == "tiles")
    except ModelError:
        return False
    return True
