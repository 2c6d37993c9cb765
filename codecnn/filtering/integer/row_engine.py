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
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from codecnn.base.compiled import COMPILED
from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.row_kernels import (
    AMX,
    PLAIN,
    PLANE_BYTES,
    TILE_CONFIGS,
    TILES_PER_SET,
    VNNI,
    run_rows,
    store_integers,
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
from codecnn.filtering.integer.torch_engine import FastNetwork
from codecnn.filtering.integer.vector_ops import (
    BYTE_PAIRS,
    BYTES,
    ELEMENT_BYTES,
    FLOATS,
    LANES,
    PIXELS_PER_VECTOR,
    WORDS,
    InstructionSet,
    instruction_set,
)
from codecnn.models.graph import Array, Node

_MODES: dict[InstructionSet, int] = {"plain": PLAIN, "avx512_vnni": VNNI, "amx": AMX}
_TYPES = {BYTES: np.uint8, BYTE_PAIRS: np.uint16, WORDS: np.int16, FLOATS: np.float32}


class Op(IntEnum):
    """Columns of the table of operations, int64; the kernels use the numbers.

    - LAG: rows by which the operation is behind the first one.
    - ROWS, PIXELS: size of the result.
    - BLOCKS: blocks of sixteen output channels.
    - FIRST, END: range of its rows in the table of parts.
    - KIND: kind of the sums, INTEGER_SUMS, SPLIT_SUMS or CHANNEL_SUMS.
    - CHUNK: bytes of a row of pixels that are multiplied at a time, a multiple of 4.
    - OFFSET, SCALE, BIAS: addresses of an int32, a float32 and a float32 for each output channel.
    - ADDED: how the tensor to add is stored; then the address of its row 0, bytes from row to row, rows in the ring
      buffer, bytes from pixel to pixel, the zero point, and the rows and pixels that are skipped.
    - FACTOR, SHIFT: addresses of a modulation's factors and offsets for each output channel, or 0.
    - STORED: how the result is stored; then the same columns as of the tensor to add.
    """

    LAG = 0
    ROWS = 1
    PIXELS = 2
    BLOCKS = 3
    FIRST = 4
    END = 5
    KIND = 6
    CHUNK = 7
    OFFSET = 8
    SCALE = 9
    BIAS = 10
    ADDED = 11
    ADDED_AT = 12
    ADDED_ROW = 13
    ADDED_RING = 14
    ADDED_PIXEL = 15
    ADDED_ZERO = 16
    ADDED_SKIP = 17
    FACTOR = 18
    SHIFT = 19
    STORED = 20
    STORED_AT = 21
    STORED_ROW = 22
    STORED_RING = 23
    STORED_PIXEL = 24
    STORED_ZERO = 25


class Part(IntEnum):
    """Columns of the table of tensors that convolutions multiply, int64.

    - KIND: how the tensor is stored.
    - AT, ROW, RING, PIXEL: address, bytes from row to row, rows in the ring buffer, bytes from pixel to pixel.
    - ROWS: rows of the tensor; outside them row number RING is read, which holds zeros.
    - TAPS, ABOVE: rows of the kernel, and the first of them relative to the output row.
    - CHUNKS: chunks of a row of the kernel.
    - WEIGHTS, BY_CHUNK: address of the weights, and bytes from chunk to chunk.
    - FIRST, COUNT: planes of split sums that the products are added to.
    """

    KIND = 0
    AT = 1
    ROW = 2
    RING = 3
    PIXEL = 4
    ROWS = 5
    TAPS = 6
    ABOVE = 7
    CHUNKS = 8
    WEIGHTS = 9
    BY_CHUNK = 10
    FIRST = 11
    COUNT = 12


class Tap(IntEnum):
    """Columns of the table of rows that one output row is computed from, int64; the kernels fill it.

    - KIND, AT, PIXEL, CHUNKS, FIRST, COUNT: as of `Part`.
    - WEIGHTS, BY_CHUNK, BY_BLOCK: address of the weights of the first block, bytes from chunk to chunk and from block
      to block.
    """

    KIND = 0
    AT = 1
    PIXEL = 2
    CHUNKS = 3
    WEIGHTS = 4
    BY_CHUNK = 5
    BY_BLOCK = 6
    FIRST = 7
    COUNT = 8


class Number(IntEnum):
    """Columns of the table of an operation's float32 numbers.

    - LOW, HIGH: saturation of the sums.
    - ADDED: factor of the added tensor.
    - FINAL_LOW, FINAL_HIGH: saturation of the result, after the modulation if there is one.
    """

    LOW = 0
    HIGH = 1
    ADDED = 2
    FINAL_LOW = 3
    FINAL_HIGH = 4


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
        plan = RowPlan(network, amx=self.mode == AMX)
        self.front, self.behind, self.steps, self.stored = plan.front, plan.behind, plan.steps, plan.stored
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
        for name, stored in self.stored.items():
            if stored.lag is None:
                memory.store(name, front[name].contiguous().numpy())
        ops, numbers, parts = memory.tables(qp)
        taps = np.zeros((int((parts[:, Part.TAPS]).sum()), len(Tap)), np.int64)
        sums = aligned(np.zeros(TILES_PER_SET * PLANE_BYTES, np.uint8))
        run_rows(ops, numbers, parts, taps, TILE_CONFIGS.ctypes.data, sums.ctypes.data, self.mode)
        return memory.results()


class _RowMemory:
    """Memory for the rows of one picture, and the tables of addresses that `run_rows` reads."""

    def __init__(self, network: RowNetwork, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.network = network
        first = next(iter(name for name, stored in network.stored.items() if stored.lag is None))
        self.size = tuple(extent + 2 * network.stored[first].trim for extent in shapes[first])
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
        written = ceil_div(self._extent(name)[1], PIXELS_PER_VECTOR) * PIXELS_PER_VECTOR
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

    def store(self, name: str, x: Array) -> None:
        """Store a tensor (c, h, w) of integers in float32 from before the rows."""
        store_integers(x, self._rows(name), self.network.stored[name].zero)

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
            op[Op.ROWS], op[Op.PIXELS] = self._extent(step.result)
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
            pixel,
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
        RowPlan(network, amx=instruction_set() == "amx")
    except ModelError:
        return False
    return True
