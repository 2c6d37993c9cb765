"""The row engine: 8-bit networks computed row by row, with products of bytes.

Every operation computes a row of pixels as soon as the rows that it reads exist. Between two operations only a few rows
are stored, in a ring buffer that stays in the processor's caches, while the float engine writes and reads whole
tensors. Numbers of more than 8 bits are stored as two bytes, as are their weights; the sums of the four products are
combined when they are rounded.

`RowNetwork` runs a network: `row_plan.RowPlan` divides it into steps, `_RowMemory` allocates memory for one picture and
fills the tables of addresses, and `row_kernels.run_rows` computes all rows.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from codecnn.base.compiled import COMPILED
from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.row_finish import PLANE_BYTES
from codecnn.filtering.integer.row_front import find_sources, needed_nodes, store_integers
from codecnn.filtering.integer.row_kernels import (
    AMX,
    PLAIN,
    TILE_CONFIGS,
    TILES_PER_SET,
    VNNI,
    run_rows,
)
from codecnn.filtering.integer.row_plan import (
    CACHE_LINE,
    TILE_ROW_BYTES,
    Piece,
    RowPlan,
    Step,
    aligned,
    aligned_floats,
    allocate,
)
from codecnn.filtering.integer.row_tables import Number, Op, Part, Tap
from codecnn.filtering.integer.torch_engine import FastNetwork
from codecnn.filtering.integer.vector_ops import (
    BYTE_PAIRS,
    BYTES,
    ELEMENT_BYTES,
    FLOATS,
    LANES,
    WORDS,
    InstructionSet,
    instruction_set,
)
from codecnn.models.graph import Array, Node

_MODES: dict[InstructionSet, int] = {"plain": PLAIN, "avx512_vnni": VNNI, "amx": AMX}
_TYPES = {BYTES: np.uint8, BYTE_PAIRS: np.uint16, WORDS: np.int16, FLOATS: np.float32}


class RowNetwork(FastNetwork):
    """An 8-bit network whose convolutions are computed row by row; other nodes are computed as in `FastNetwork`.

    Args:
        network: The network.
        by: Instruction set to multiply with; None takes the fastest that the processor has.

    Raises:
        ModelError: The network cannot be computed row by row, or the processor does not have the instruction set.
    """

    def __init__(self, network: IntegerNetwork, by: InstructionSet | None = None) -> None:
        if network.bits != 8:
            raise ModelError("networks of 16 bits cannot be computed row by row")
        fastest = instruction_set()  # also asks the system for the use of AMX
        if by is not None and _MODES[by] > _MODES[fastest]:
            raise ModelError(f"the instruction set {by} is missing on this processor or switched off")
        super().__init__(network)
        self.sums = {}  # nodes before and after the rows are computed as they are in the network
        self.mode = _MODES[by or fastest]
        plan = RowPlan(network, by or fastest)
        self.behind, self.steps, self.stored = plan.behind, plan.steps, plan.stored
        self.sources = {
            name: find_sources(network.graph, name) for name, stored in self.stored.items() if stored.lag is None
        }
        read = {source.name for sources in self.sources.values() for source in sources}
        read.update(network.graph.outputs, *(node.inputs for node in self.behind))
        self.front = needed_nodes(plan.front, read)
        self.margin = max(-step.above[1] for step in self.steps)
        self.rings = self._ring_rows()
        self.modulations = {
            step.modulated.name: self._modulation(step.modulated) for step in self.steps if step.modulated is not None
        }

    def _ring_rows(self) -> dict[str, int]:
        """Return how many rows of each tensor must be stored until no step reads them any more."""
        rings = dict.fromkeys(self.stored, 1)
        for step in self.steps:
            read = [(piece, step.above[0]) for piece in step.pieces]
            read += [(step.added, 0)] if step.added else []
            for piece, above in read:
                lag = self.stored[piece.name].lag
                if lag is not None:
                    rows = step.lag - lag - above - piece.crop + 1
                    rings[piece.name] = max(rings[piece.name], rows)
        return rings

    def _modulation(self, node: Node) -> tuple[Array, Array]:
        """Return the factors and offsets of a modulation, (64, channels) each, padded to whole blocks."""
        tables = (self.tensors[node.name][name].numpy() for name in ("factor", "offset"))
        factor, offset = (aligned_floats(np.pad(table, ((0, 0), (0, -table.shape[1] % LANES)))) for table in tables)
        return factor, offset

    def _run(self, compute: Callable[[Node, list[Tensor]], Tensor], qp: int) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for node in self.front:
            tensors[node.name] = compute(node, [tensors[name] for name in node.inputs])
        tensors |= self._run_rows(tensors, qp)
        for node in self.behind:
            tensors[node.name] = compute(node, [tensors[name] for name in node.inputs])
        return {name: tensors[name] for name in self.network.graph.outputs}

    def _run_rows(self, front: Mapping[str, Tensor], qp: int) -> dict[str, Tensor]:
        """Compute the tensors that nodes after the rows read, picture by picture."""
        count = len(next(iter(front.values())))
        pictures = [self._run_picture({name: x[index] for name, x in front.items()}, qp) for index in range(count)]
        if count == 1:  # needs no copy
            return {name: x[None] for name, x in pictures[0].items()}
        return {name: torch.stack([tensors[name] for tensors in pictures]) for name in pictures[0]}

    def _run_picture(self, front: Mapping[str, Tensor], qp: int) -> dict[str, Tensor]:
        memory = _RowMemory(self, {name: tuple(x.shape[1:]) for name, x in front.items()})
        for name in self.sources:
            memory.store(name, front)
        ops, numbers, parts = memory.tables(qp)
        taps = np.zeros((int((parts[:, Part.TAPS]).sum()), len(Tap)), np.int64)
        sums = aligned(np.zeros(TILES_PER_SET * PLANE_BYTES, np.uint8))
        run_rows(ops, numbers, parts, taps, TILE_CONFIGS.ctypes.data, sums.ctypes.data, self.mode)
        return memory.results()


class _RowMemory:
    """Memory for the rows of one picture, and the tables of addresses that `run_rows` reads."""

    def __init__(self, network: RowNetwork, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.network = network
        name, (first, *_) = next(iter(network.sources.items()))
        self.size = tuple(extent // first.factor + 2 * network.stored[name].trim for extent in shapes[first.name])
        self.memory: dict[str, Array] = {}
        for name, stored in network.stored.items():
            self.memory[name] = allocate(self._total_bytes(name), _TYPES[stored.kind])
            if not stored.whole:  # of a whole tensor only pixels that were written are read
                self.memory[name].fill(stored.zero)

    def _extent(self, name: str) -> tuple[int, int]:
        trim = self.network.stored[name].trim
        return self.size[0] - 2 * trim, self.size[1] - 2 * trim

    def _ring(self, name: str) -> int:
        stored = self.network.stored[name]
        return self._extent(name)[0] if stored.lag is None or stored.whole else self.network.rings[name]

    def _pixel_bytes(self, name: str) -> int:
        stored = self.network.stored[name]
        return stored.channels * ELEMENT_BYTES[stored.kind]

    def _row_pixels(self, name: str) -> int:
        """Return the pixels from row to row: those that vectors write, and the zeros on both sides."""
        unit = LANES * max(step.joined for step in self.network.steps)
        written = ceil_div(self._extent(name)[1], unit) * unit
        return written + 2 * self.network.margin

    def _row_bytes(self, name: str) -> int:
        return self._row_pixels(name) * self._pixel_bytes(name)

    def _total_bytes(self, name: str) -> int:
        # After the rows comes a row of zeros, and space for the pixels that vectors read beyond the last one.
        beyond = (2 * LANES + self.network.margin) * self._pixel_bytes(name) + TILE_ROW_BYTES
        return ceil_div((self._ring(name) + 1) * self._row_bytes(name) + beyond, CACHE_LINE) * CACHE_LINE

    def _rows(self, name: str) -> Array:
        """Return the rows (h, w, c) of a tensor without the zeros around them."""
        height, width = self._extent(name)
        margin, shape = self.network.margin, (height, self._row_pixels(name), self.network.stored[name].channels)
        rows: Array = self.memory[name][: math.prod(shape)].reshape(shape)[:, margin : margin + width]
        return rows

    def store(self, name: str, front: Mapping[str, Tensor]) -> None:
        """Store a tensor from before the rows; its sources are tensors (c, h, w) of integers in float32."""
        rows, zero = self._rows(name), self.network.stored[name].zero
        for source in self.network.sources[name]:
            store_integers(front[source.name].contiguous().numpy(), source.factor, rows[..., source.first :], zero)

    def _first_pixel(self, name: str) -> int:
        """Return the address of the first pixel."""
        return int(self.memory[name].ctypes.data) + self.network.margin * self._pixel_bytes(name)

    def tables(self, qp: int) -> tuple[Array, Array, Array]:
        """Fill the tables of operations, numbers and parts."""
        ops = np.zeros((len(self.network.steps), len(Op)), np.int64)
        numbers = np.zeros((len(ops), len(Number)), np.float32)
        parts = np.zeros((sum(len(step.pieces) for step in self.network.steps) + 1, len(Part)), np.int64)
        end = 0
        for op, step, step_numbers in zip(ops, self.network.steps, numbers, strict=True):
            step_numbers[:] = step.numbers
            op[Op.FIRST] = end
            for piece, weights in zip(step.pieces, step.weights, strict=True):
                parts[end] = self._part_columns(step, piece, weights)
                end += 1
            op[Op.END] = end
            op[Op.LAG], op[Op.KIND], op[Op.CHUNK] = step.lag, step.sums, step.chunk
            op[Op.ROWS], width = self._extent(step.result)
            op[Op.PIXELS] = ceil_div(width, step.joined)
            op[Op.BLOCKS] = len(step.scale) // LANES
            op[Op.OFFSET], op[Op.SCALE], op[Op.BIAS] = (x.ctypes.data for x in (step.offset, step.scale, step.bias))
            op[Op.ADDED_RING] = 1
            if step.added is not None:
                op[Op.ADDED : Op.ADDED_ZERO + 1] = self._tensor_columns(step.added.name)
                op[Op.ADDED_SKIP] = step.added.crop
            if step.modulated is not None:
                factor, offset = self.network.modulations[step.modulated.name]
                op[Op.FACTOR], op[Op.SHIFT] = factor[qp].ctypes.data, offset[qp].ctypes.data
            op[Op.STORED : Op.STORED_ZERO + 1] = self._tensor_columns(step.result)
            op[Op.STORED_PIXEL] *= step.joined
        return ops, numbers, parts

    def _tensor_columns(self, name: str) -> tuple[int, ...]:
        """Return the columns of `Op` from a tensor's kind to its zero point."""
        stored = self.network.stored[name]
        ring, pixel = self._ring(name), self._pixel_bytes(name)
        return stored.kind, self._first_pixel(name), self._row_bytes(name), ring, pixel, stored.zero

    def _part_columns(self, step: Step, piece: Piece, weights: Array) -> tuple[int, ...]:
        """Return the columns of `Part`."""
        kind, at, row, ring, pixel, _ = self._tensor_columns(piece.name)
        above, left = (offset + piece.crop for offset in step.above)
        rows = self._extent(piece.name)[0]
        by_chunk = weights.strides[2]
        return (
            kind,
            at + left * pixel,
            row,
            ring,
            pixel * step.joined,
            rows,
            step.taps[0],
            above,
            weights.shape[2],
            weights.ctypes.data,
            by_chunk,
            *((1, 1) if kind == WORDS else (0, 3 if kind == BYTE_PAIRS else 2)),
        )

    def results(self) -> dict[str, Tensor]:
        """Return the tensors (c, h, w) that are read after the rows."""
        return {
            name: torch.from_numpy(self._rows(name)).permute(2, 0, 1)
            for name, stored in self.network.stored.items()
            if stored.whole
        }


def runs_in_rows(network: IntegerNetwork) -> bool:
    """Return whether this processor has AVX-512 VNNI or AMX, and the network can be computed row by row."""
    if network.bits != 8 or instruction_set() == "plain" or not COMPILED:
        return False
    try:
        RowPlan(network, instruction_set())
    except ModelError:
        return False
    return True
