"""The plan of the row engine: which operations of an 8-bit network go row by row, and their packed weights.

`RowPlan` divides the nodes into those computed on whole tensors before the rows, the row operations (`Step`), and those
computed after the rows. For each tensor between them it decides how it is stored (`StoredTensor`): as bytes, as 16-bit
numbers, or as floats. The weights of each step are packed in the order in which the kernels read them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.row_kernels import CHANNEL_SUMS, INTEGER_SUMS, PAIR_SUMS, SPLIT_SUMS
from codecnn.filtering.integer.vector_ops import (
    BYTE_PAIR_ZERO,
    BYTE_PAIRS,
    BYTES,
    ELEMENT_BYTES,
    FLOATS,
    LANES,
    WORDS,
    InstructionSet,
)
from codecnn.models.graph import Array, Node

TILE_ROW_BYTES = 64
"""Bytes of a row of an AMX tile."""
CACHE_LINE = 64
"""Bytes of a line of the processor's cache."""
_ROW_OPERATIONS = ("conv", "modulate", "concat", "crop")
_LARGEST_PAIR = 2**15 - 1 - 128
"""Largest magnitude of a number that is the sum of two signed bytes, one of them times 256."""


@dataclass(frozen=True)
class StoredTensor:
    """Storage of a tensor between operations.

    Attributes:
        kind: BYTES, BYTE_PAIRS, WORDS or FLOATS.
        channels: Number of channels, padding included.
        zero: Zero point.
        trim: Pixels that are missing on each side.
        lag: Rows by which the tensor is behind the first operation; None if it is complete before the rows begin.
        whole: Whether the tensor is read after all rows are done.
    """

    kind: int
    channels: int
    zero: int
    trim: int
    lag: int | None
    whole: bool = False


@dataclass(frozen=True)
class Piece:
    """A stored tensor, or some of its channels, as an operation reads it.

    Attributes:
        name: Node whose tensor is stored.
        first: Index of its first channel in the operation's input.
        count: Number of channels.
        crop: Pixels that are cropped on each side.
    """

    name: str
    first: int
    count: int
    crop: int = 0


@dataclass(frozen=True)
class Step:
    """A row operation: a convolution with what follows its sums, or a modulation alone, which convolves nothing.

    Attributes:
        node: The convolution or modulation.
        result: Node whose tensor is stored: `node`, or the modulation after it.
        lag: Rows by which the step is behind the first one.
        pieces: Tensors that the convolution reads, in the order of its input channels.
        added: Tensor that is added to the sums.
        modulated: Modulation that is applied to the result.
        joined: Neighbouring pixels that are computed as one pixel, which has the channels of all of them.
        sums: INTEGER_SUMS, SPLIT_SUMS, CHANNEL_SUMS or PAIR_SUMS.
        chunk: Bytes that are multiplied at a time.
        taps: Rows and columns of the kernel of a pixel.
        above: Rows and columns from the output pixel to the first tap.
        weights: Weights of each piece, shape (blocks, rows of the kernel, chunks, ...).
        offset: int32 added to the sums of each output channel.
        scale: float32 factor of each output channel.
        bias: float32 added after the factor.
        numbers: Values of the columns `Number`.
    """

    node: Node
    result: str
    lag: int
    pieces: tuple[Piece, ...]
    added: Piece | None
    modulated: Node | None
    joined: int
    sums: int
    chunk: int
    taps: tuple[int, int]
    above: tuple[int, int]
    weights: tuple[Array, ...]
    offset: Array
    scale: Array
    bias: Array
    numbers: tuple[float, ...]


class RowPlan:
    """Division of an 8-bit network into row operations and operations on whole tensors.

    Args:
        network: The network.
        by: What multiplies. AMX stores 16-bit numbers as BYTE_PAIRS; AVX-512 VNNI computes PAIR_SUMS.

    Attributes:
        front: Nodes that are computed on whole tensors before the rows.
        steps: Row operations in order.
        behind: Nodes that are computed on whole tensors after the rows.
        stored: How each tensor between them is stored, by node.

    Raises:
        ModelError: The network cannot be computed row by row.
    """

    def __init__(self, network: IntegerNetwork, by: InstructionSet) -> None:
        self.network, self.amx, self.vnni = network, by == "amx", by == "avx512_vnni"
        self.front: list[Node] = []
        self.behind: list[Node] = []
        self.steps: list[Step] = []
        self.stored: dict[str, StoredTensor] = {}
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.users: dict[str, list[Node]] = {node.name: [] for node in network.graph.nodes}
        for node in network.graph.nodes:
            for name in node.inputs:
                self.users[name].append(node)
        late: set[str] = set()
        before_rows = self._nodes_before_rows()
        for node in network.graph.nodes:
            if node.name in self.pieces:
                continue  # a modulation that is part of the step before
            inputs_in_rows = [name in self.pieces for name in node.inputs]
            if node.name in before_rows:
                self.front.append(node)
            elif node.op in ("conv", "modulate"):
                self._add_step(node)
            elif node.op in ("concat", "crop") and all(inputs_in_rows):
                self.pieces[node.name] = tuple(self._moved_pieces(node))
            elif any(inputs_in_rows) or late & set(node.inputs):
                late.add(node.name)
                self.behind.append(node)
            else:
                self.front.append(node)
        if not self.steps or len({network.graph.extents[name].cell for name in self.stored}) > 1:
            raise ModelError("the network's convolutions are not of pixels of one size")
        for name in {name for node in self.behind for name in node.inputs} & self.pieces.keys():
            if name not in self.stored or not self.stored[name].whole:
                raise ModelError(f"{name!r} is read both within the rows and after them")

    def _nodes_before_rows(self) -> set[str]:
        """Return the nodes that lead to a convolution through an operation on whole tensors."""
        before: set[str] = set()
        reaches_step: set[str] = set()
        for node in reversed(self.network.graph.nodes):
            for user in self.users[node.name]:
                if user.op in ("conv", "modulate") or user.name in reaches_step:
                    reaches_step.add(node.name)
                if user.name in before or (user.op not in _ROW_OPERATIONS and user.name in reaches_step):
                    before.add(node.name)
        return before

    def _trim(self, name: str) -> int:
        extent = self.network.graph.extents[name]
        return extent.trim // extent.cell

    def _moved_pieces(self, node: Node) -> list[Piece]:
        """Return the pieces of a concatenation or of a cropped tensor."""
        pieces, first, crop = [], 0, node.values.get("size", 0)
        for name in node.inputs:
            for piece in self.pieces[name]:
                pieces.append(Piece(piece.name, first + piece.first, piece.count, piece.crop + crop))
            first += self.network.graph.extents[name].channels
        return pieces

    def _read(self, name: str) -> tuple[Piece, ...]:
        """Return the pieces of a tensor that a step reads; a tensor from before the rows is stored from then on."""
        if name not in self.pieces:
            channels = self.network.graph.extents[name].channels
            values = self.network.ranges[name]
            self.stored.setdefault(name, self._store(name, int(values.low.min()), int(values.high.max()), 4, None))
            return (Piece(name, 0, channels),)
        for piece in self.pieces[name]:
            if self.stored[piece.name].whole:
                raise ModelError(f"{piece.name!r} is read both within the rows and after them")
        return self.pieces[name]

    def _store(self, name: str, low: int, high: int, unit: int, lag: int | None) -> StoredTensor:
        """Choose how a tensor of integers from `low` to `high` is stored, channels a multiple of `unit`."""
        channels = self.network.graph.extents[name].channels
        if max(-low, high) > _LARGEST_PAIR:
            raise ModelError(f"{name!r} has numbers of more than two bytes")
        if lag is not None and self._is_read_by_channel(name):
            kind, zero = FLOATS, 0
        elif (low, high) in ((0, 255), (-128, 127)):
            kind, zero = BYTES, -low
        else:
            kind, zero = (BYTE_PAIRS, BYTE_PAIR_ZERO) if self.amx else (WORDS, 0)
        return StoredTensor(kind, ceil_div(channels, unit) * unit, zero, self._trim(name), lag)

    def _is_read_by_channel(self, name: str) -> bool:
        """Return whether only convolutions of each channel by itself multiply a tensor."""
        multiply = [user for user in self.users[name] if user.op in ("concat", "crop") or user.inputs[0] == name]
        return bool(multiply) and all(_convolves_by_channel(user) for user in multiply)

    def _add_step(self, node: Node) -> None:
        """Add a convolution, with the modulation that alone reads it, or a modulation by itself, as the next step."""
        reads = self._read(node.inputs[0]) if node.op == "conv" else ()
        added_pieces = self._read(node.inputs[-1]) if len(node.inputs) == 2 or node.op == "modulate" else ()
        if len(added_pieces) > 1:
            raise ModelError(f"node {node.name!r} adds a concatenation of tensors")
        added = added_pieces[0] if added_pieces else None
        modulated: Node | None = node if node.op == "modulate" else None
        if node.op == "conv" and [user.op for user in self.users[node.name]] == ["modulate"]:
            modulated = self.users[node.name][0]
        last = modulated or node
        kernel = node.tensors["weight"].shape[2:] if node.op == "conv" else (1, 1)
        above, left = (-(size // 2) if node.values.get("pad", 1) else 0 for size in kernel)
        if (above, left) != (0, 0) and any(piece.crop for piece in reads):
            raise ModelError(f"node {node.name!r} pads a cropped tensor")  # the rows hold numbers where it has zeros
        lags = [self._lag(piece, above + kernel[0] - 1) for piece in reads]
        lag = max([*lags, *(self._lag(piece, 0) for piece in added_pieces)])
        self.pieces[last.name] = (Piece(last.name, 0, self.network.graph.extents[last.name].channels),)
        self.pieces.setdefault(node.name, ())
        stored = self._store(last.name, last.values["low"], last.values["high"], LANES, lag)
        if any(user.op not in ("conv", "modulate", "concat", "crop") for user in self.users[last.name]):
            channels = self.network.graph.extents[last.name].channels
            if channels > LANES and channels % LANES:  # the padding of a block would overwrite the next pixel
                raise ModelError(f"{last.name!r} has {channels} channels and is read after the rows")
            stored = StoredTensor(FLOATS, channels, 0, stored.trim, lag, whole=True)
        self.stored[last.name] = stored
        # Results of few channels would leave most channels of a block unused. Their pixels follow each other in memory.
        can_join = stored.whole and last is node and not added and FLOATS not in self._kinds(reads)
        joined = LANES // stored.channels if can_join and LANES % stored.channels == 0 else 1
        self.steps.append(
            Step(
                node,
                last.name,
                lag,
                reads,
                added,
                modulated,
                joined,
                taps=kernel,
                above=(above, left),
                numbers=_step_numbers(node, last),
                **self._pack(node, reads, joined),
            )
        )

    def _lag(self, piece: Piece, below: int) -> int:
        """Return the lag of an operation that reads a piece down to `below` rows below its own row."""
        lag = self.stored[piece.name].lag
        return 0 if lag is None else lag + max(piece.crop + below, 0)

    def _kinds(self, pieces: tuple[Piece, ...]) -> list[int]:
        return [self.stored[piece.name].kind for piece in pieces]

    def _pack(self, node: Node, reads: tuple[Piece, ...], joined: int) -> dict[str, Any]:
        """Pack the weights of a step, and compute what its sums are scaled and shifted by."""
        outputs = self.network.graph.extents[node.name].channels * joined
        padding = -outputs % LANES
        if node.op == "modulate":
            zeros = np.zeros(outputs + padding)
            return {
                "sums": INTEGER_SUMS,
                "chunk": 4,
                "weights": (),
                "offset": aligned(zeros.astype(np.int32)),
                "scale": aligned_floats(zeros),
                "bias": aligned_floats(zeros),
            }
        unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
        by_pixel = (np.tile(values, joined) for values in (unit, node.tensors["bias"] * unit))
        scale, bias = (np.pad(values, (0, padding)) for values in by_pixel)
        kinds = self._kinds(reads)
        offset = np.zeros(outputs, np.int64)
        packed: dict[str, Any] = {"sums": CHANNEL_SUMS, "chunk": 4}
        if kinds == [FLOATS]:
            packed["weights"] = (_pack_by_channel(node.tensors["weight"], padding),)
        else:
            weight = _join_pixels(_ungroup(node), joined)
            largest = int(np.abs(weight).max())
            if largest > _LARGEST_PAIR:
                raise ModelError(f"node {node.name!r} has weights of more than two signed bytes")
            two_bytes = largest > 127 or BYTE_PAIRS in kinds or WORDS in kinds
            packed["sums"] = SPLIT_SUMS if two_bytes and (self.amx or BYTES in kinds) else INTEGER_SUMS
            sizes = [
                self.stored[piece.name].channels * ELEMENT_BYTES[kind] for piece, kind in zip(reads, kinds, strict=True)
            ]
            lengths = [size * weight.shape[3] for size in sizes]
            # Each row of the kernel is divided into as few chunks as fit into a row of a tile.
            chunk = max(ceil_div(length // ceil_div(length, TILE_ROW_BYTES), 4) * 4 for length in lengths)
            packed["chunk"] = chunk
            if kinds == [WORDS] and joined == 1 and self._can_pair(reads[0], weight):
                weight, chunk = _pair_weights(weight), sizes[0]
                scale = scale / 2
                packed |= {"sums": PAIR_SUMS, "chunk": chunk}
            weights = []
            for piece in reads:
                stored = self.stored[piece.name]
                part = weight[:, piece.first : piece.first + piece.count]
                offset -= part.sum(axis=(1, 2, 3)) * stored.zero
                weights.append(_pack_weights(part, stored, chunk, padding, two_bytes))
            packed["weights"] = tuple(weights)
        return packed | {
            "offset": aligned(np.pad(offset, (0, padding)).astype(np.int32)),
            "scale": aligned_floats(scale),
            "bias": aligned_floats(bias),
        }

    def _can_pair(self, piece: Piece, weight: npt.NDArray[np.int64]) -> bool:
        """Return whether pairs of pixels can be convolved with four products a row: all factors fit into 16 bits."""
        values = self.network.ranges[piece.name]
        return (
            self.vnni
            and weight.shape[3] == 3
            and len(weight) % (2 * LANES) == 0
            and 2 * max(-values.low.min(), values.high.max()) < 2**15
            and int(np.abs(_pair_weights(weight)).max()) < 2**15
        )


def allocate(size: int, kind: npt.DTypeLike) -> Array:
    """Allocate `size` bytes that begin at a cache line, as numbers of a type."""
    memory = torch.empty(size + CACHE_LINE, dtype=torch.uint8).numpy()  # PyTorch's, so that it is counted as memory
    start = -memory.ctypes.data % CACHE_LINE
    numbers: Array = memory[start : start + size].view(kind)
    return numbers


def aligned(values: Array) -> Array:
    """Copy an array to memory that begins at a cache line."""
    copy = allocate(values.nbytes, values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def aligned_floats(values: Array) -> Array:
    """Copy an array as float32 to memory that begins at a cache line."""
    return aligned(values.astype(np.float32))


def _convolves_by_channel(node: Node) -> bool:
    """Return whether a node is a 3x3 convolution of each channel by itself."""
    if node.op != "conv":
        return False
    weight = node.tensors["weight"]
    return node.values["groups"] == len(weight) and weight.shape[1:] == (1, 3, 3)


def _step_numbers(node: Node, last: Node) -> tuple[float, ...]:
    """Return the columns `Number` of a step; a modulation alone reads numbers that are saturated already."""
    alone = node.op == "modulate"
    low, high = (-(2.0**15), 2.0**15) if alone else (node.values["low"], node.values["high"])
    added_scale = 1.0 if alone else 2.0 ** -node.values["skip"]
    return (low, high, added_scale, last.values["low"], last.values["high"])


def _ungroup(node: Node) -> npt.NDArray[np.int64]:
    """Return weights (o, i, h, w) for all inputs, 0 outside the group of an output."""
    weight, groups = node.tensors["weight"].astype(np.int64), node.values["groups"]
    outputs, inputs = weight.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weight.shape[2:]), np.int64)
    for group in range(groups):
        rows = slice(group * outputs // groups, (group + 1) * outputs // groups)
        dense[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return dense


def _join_pixels(weight: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the weights (count · o, i, h, w + count - 1) of `count` neighbouring pixels that are computed as one."""
    by_pixel = [np.pad(weight, ((0, 0), (0, 0), (0, 0), (pixel, count - 1 - pixel))) for pixel in range(count)]
    return np.concatenate(by_pixel)


def _pair_weights(weight: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the factors (o, i, h, 4) of weights (o, i, h, 3) in the transform of pairs of pixels; see `row_pairs`."""
    left, middle, right = np.moveaxis(weight, 3, 0)
    return np.stack((2 * left, left + middle + right, left - middle + right, 2 * right), axis=3)


def _pack_by_channel(weight: Array, padding: int) -> Array:
    """Pack weights (c, 1, h, w) of convolutions of each channel by itself as (blocks, h, w, 16), float32."""
    rows = np.pad(weight[:, 0], ((0, padding), (0, 0), (0, 0)))
    return aligned_floats(rows.reshape(-1, LANES, *rows.shape[1:]).transpose(0, 2, 3, 1))


def _pack_weights(weight: Array, stored: StoredTensor, chunk: int, padding: int, two_bytes: bool) -> Array:
    """Pack the weights (o, i, h, w) of a stored tensor as (blocks, h, chunks, planes, chunk / 4, 16, 4), int8.

    Each chunk of pixels is multiplied with all its planes. There are several planes if tensor or weights have two
    bytes: that of the sums that count 2^8 times, that of the sums that count once, and that of those that count 2^16
    times.
    """
    outputs, inputs, taps, across = weight.shape
    rows = np.pad(weight, ((0, padding), (0, stored.channels - inputs), (0, 0), (0, 0))).transpose(0, 2, 3, 1)
    rows = rows.reshape(outputs + padding, taps, across * stored.channels)
    rows = np.pad(rows, ((0, 0), (0, 0), (0, -rows.shape[2] % (chunk // ELEMENT_BYTES[stored.kind]))))
    low = (rows + 128) % 256 - 128
    high, zeros = (rows - low) >> 8, np.zeros_like(rows)
    if stored.kind == WORDS:
        planes = [rows.astype("<i2").view(np.int8)]
    elif stored.kind == BYTE_PAIRS:  # pairs of weights for the low and the high byte of a number
        planes = [
            np.stack(pair, axis=3).reshape(*rows.shape[:2], -1) for pair in ((high, low), (low, zeros), (zeros, high))
        ]
    else:
        planes = [high, low] if two_bytes else [rows]
    packed = np.stack(planes, axis=2).reshape(-1, LANES, taps, len(planes), planes[0].shape[2] // chunk, chunk // 4, 4)
    return aligned(packed.transpose(0, 2, 4, 3, 5, 1, 6).astype(np.int8))
