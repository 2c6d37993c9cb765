"""Which nodes of a network of 8 bits go row by row, and their weights as tiles of bytes; `_rows` runs them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from codecnn.errors import ModelError
from codecnn.filtering.integer._lanes import HALVES_ZERO, LANES
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._row_tables import BYTES, FLOATS, HALVES
from codecnn.models.graph.nodes import Array, Node

MOST_OF_A_ROW = 64
"""Bytes of a row of a tile, at most."""
LINE = 64
"""Bytes of a line of the cache."""
_IN_ROWS = ("conv", "modulate", "concat", "crop")
_MOST = 2**15 - 1 - 128
"""The largest magnitude that two signed bytes of equal range hold."""


@dataclass(frozen=True)
class Kept:
    """How a tensor is kept.

    kind      BYTES, HALVES or FLOATS
    channels  with those that fill up
    zero      zero point of its bytes
    trim      pixels that are missing on each side
    lag       how many rows it is behind the first operation; None for one that is whole before they begin
    """

    kind: int
    channels: int
    zero: int
    trim: int
    lag: int | None


@dataclass(frozen=True)
class Piece:
    """A kept tensor that is one, or a part of one, as an operation reads it: its channels there, pixels cropped."""

    name: str
    first: int
    count: int
    crop: int = 0


@dataclass(frozen=True)
class Step:
    """An operation in rows: what it reads, adds and makes, and its numbers; a modulation alone reads nothing.

    lag       how many rows it is behind the first one
    pieces    what the convolution reads, in the order of its input channels
    split     whether weights are of two bytes; chunk  bytes that are multiplied at a time
    taps      of the kernel, and above  the first of them from the pixel that is made: rows, columns
    weights   as tiles, by piece, (blocks, taps, chunks, bytes, chunk / 4, 16, 4)
    offset, scale, bias  by output channel
    numbers   the columns of `Number`
    """

    node: Node
    made: str
    lag: int
    pieces: tuple[Piece, ...]
    added: Piece | None
    modulated: Node | None
    split: bool
    chunk: int
    taps: tuple[int, int]
    above: tuple[int, int]
    weights: tuple[Array, ...]
    offset: Array
    scale: Array
    bias: Array
    numbers: tuple[float, ...]


class RowPlan:
    """Which nodes go row by row, in what order, how their tensors are kept, and their weights as tiles.

    front   nodes that come before, whole
    steps   what goes row by row
    behind  nodes that come after, whole
    """

    def __init__(self, network: IntegerNetwork) -> None:
        self.network = network
        self.front: list[Node] = []
        self.behind: list[Node] = []
        self.steps: list[Step] = []
        self.kept: dict[str, Kept] = {}
        self.pieces: dict[str, tuple[Piece, ...]] = {}
        self.users: dict[str, list[Node]] = {node.name: [] for node in network.graph.nodes}
        for node in network.graph.nodes:
            for name in node.inputs:
                self.users[name].append(node)
        late: set[str] = set()
        ahead = self._ahead()
        for node in network.graph.nodes:
            if node.name in self.pieces:
                continue  # a modulation that went with what it modulates
            inside = [name in self.pieces for name in node.inputs]
            if node.name in ahead:
                self.front.append(node)
            elif node.op in ("conv", "modulate"):
                self._add(node)
            elif node.op in ("concat", "crop") and all(inside):
                self.pieces[node.name] = tuple(self._moved(node))
            elif any(inside) or late & set(node.inputs):
                late.add(node.name)
                self.behind.append(node)
            else:
                self.front.append(node)
        if not self.steps or len({network.graph.extents[name].cell for name in self.kept}) > 1:
            raise ModelError("the network's convolutions are not of pixels of one size")
        for name in {name for node in self.behind for name in node.inputs} & self.pieces.keys():
            if name not in self.kept or self.kept[name].kind != FLOATS:
                raise ModelError(f"{name!r} is read behind the rows and within")

    def _ahead(self) -> set[str]:
        """The nodes from which an operation on whole tensors leads to a convolution: they come in front."""
        found: set[str] = set()
        reaches: set[str] = set()
        for node in reversed(self.network.graph.nodes):
            for user in self.users[node.name]:
                if user.op in ("conv", "modulate") or user.name in reaches:
                    reaches.add(node.name)
                if user.name in found or (user.op not in _IN_ROWS and user.name in reaches):
                    found.add(node.name)
        return found

    def _trim(self, name: str) -> int:
        extent = self.network.graph.extents[name]
        return extent.trim // extent.cell

    def _moved(self, node: Node) -> list[Piece]:
        """The pieces of a concatenation or of what is cropped."""
        found, first, crop = [], 0, node.values.get("size", 0)
        for name in node.inputs:
            for piece in self.pieces[name]:
                found.append(Piece(piece.name, first + piece.first, piece.count, piece.crop + crop))
            first += self.network.graph.extents[name].channels
        return found

    def _read(self, name: str) -> tuple[Piece, ...]:
        """The pieces of a tensor that a step reads; one from in front of the rows is kept from then on."""
        if name not in self.pieces:
            channels = self.network.graph.extents[name].channels
            found = self.network.ranges[name]
            self.kept.setdefault(name, self._kept(name, int(found.low.min()), int(found.high.max()), 4, None))
            return (Piece(name, 0, channels),)
        for piece in self.pieces[name]:
            if self.kept[piece.name].kind == FLOATS:
                raise ModelError(f"{piece.name!r} is read behind the rows and within")
        return self.pieces[name]

    def _kept(self, name: str, low: int, high: int, unit: int, lag: int | None) -> Kept:
        channels = self.network.graph.extents[name].channels
        kind, zero = (
            (BYTES, 0 if low >= 0 else 128) if low >= -128 and high <= (255 if low >= 0 else 127) else (HALVES, 128)
        )
        if max(-low, high) > _MOST:
            raise ModelError(f"{name!r} has numbers of more than two bytes")
        return Kept(kind, -(-channels // unit) * unit, zero, self._trim(name), lag)

    def _add(self, node: Node) -> None:
        """A convolution with what modulates it alone, or a modulation by itself, as the next step."""
        reads = self._read(node.inputs[0]) if node.op == "conv" else ()
        seconds = self._read(node.inputs[-1]) if len(node.inputs) == 2 or node.op == "modulate" else ()
        if len(seconds) > 1:
            raise ModelError(f"node {node.name!r} adds what is not one tensor")
        added = seconds[0] if seconds else None
        modulated: Node | None = node if node.op == "modulate" else None
        if node.op == "conv" and [user.op for user in self.users[node.name]] == ["modulate"]:
            modulated = self.users[node.name][0]
        last = modulated or node
        kernel = node.tensors["weight"].shape[2:] if node.op == "conv" else (1, 1)
        above, left = (-(size // 2) if node.values.get("pad", 1) else 0 for size in kernel)
        lags = [self._lag(piece, above + kernel[0] - 1) for piece in reads]
        lag = max([*lags, *(self._lag(piece, 0) for piece in seconds)])
        self.pieces[last.name] = (Piece(last.name, 0, self.network.graph.extents[last.name].channels),)
        self.pieces.setdefault(node.name, ())
        kept = self._kept(last.name, last.values["low"], last.values["high"], LANES, lag)
        if any(user.op not in ("conv", "modulate", "concat", "crop") for user in self.users[last.name]):
            channels = self.network.graph.extents[last.name].channels
            if channels > LANES and channels % LANES:  # what fills a block up would be written over the next pixel
                raise ModelError(f"{last.name!r} has {channels} channels, and is read behind the rows")
            kept = Kept(FLOATS, channels, 0, kept.trim, lag)
        self.kept[last.name] = kept
        self.steps.append(
            Step(
                node,
                last.name,
                lag,
                reads,
                added,
                modulated,
                taps=kernel,
                above=(above, left),
                numbers=_numbers(node, last),
                **self._factors(node, reads),
            )
        )

    def _lag(self, piece: Piece, below: int) -> int:
        """How many rows what reads `below` rows below its own of a piece is behind."""
        lag = self.kept[piece.name].lag
        return 0 if lag is None else lag + max(piece.crop + below, 0)

    def _factors(self, node: Node, reads: tuple[Piece, ...]) -> dict[str, Any]:
        """The weights of a step, and of each output channel what its sums become."""
        outputs = self.network.graph.extents[node.name].channels
        filled = -outputs % LANES
        if node.op == "modulate":
            nothing, ones = np.zeros(outputs + filled), np.zeros(outputs + filled, np.int32)
            return {
                "split": False,
                "chunk": 4,
                "weights": (),
                "offset": ones,
                "scale": floats(nothing),
                "bias": floats(nothing),
            }
        weight = _dense(node)
        unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
        split = any(self.kept[piece.name].kind == HALVES for piece in reads) or bool(np.abs(weight).max() > 127)
        if int(np.abs(weight).max()) > _MOST:
            raise ModelError(f"node {node.name!r} has weights of more than two signed bytes")
        lengths = [self.kept[piece.name].channels * weight.shape[3] for piece in reads]
        chunk = max(-(-length // -(-length // MOST_OF_A_ROW) // 4) * 4 for length in lengths)
        offset, tiles = np.zeros(outputs, np.int64), []
        for piece in reads:
            kept = self.kept[piece.name]
            own = weight[:, piece.first : piece.first + piece.count]
            offset -= own.sum(axis=(1, 2, 3)) * (HALVES_ZERO if kept.kind == HALVES else kept.zero)
            tiles.append(_tiles(own, kept.channels, chunk, filled, split))
        scale, bias = (np.pad(values, (0, filled)) for values in (unit, node.tensors["bias"] * unit))
        return {
            "split": split,
            "chunk": chunk,
            "weights": tuple(tiles),
            "offset": aligned(np.pad(offset, (0, filled)).astype(np.int32)),
            "scale": floats(scale),
            "bias": floats(bias),
        }


def aligned(values: Array) -> Array:
    """A copy that begins where a line of the cache does."""
    place = torch.empty(values.nbytes + LINE, dtype=torch.uint8).numpy()  # PyTorch's, so that it is counted as memory
    start = -place.ctypes.data % LINE
    made: Array = place[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def floats(values: Array) -> Array:
    return aligned(values.astype(np.float32))


def _numbers(node: Node, last: Node) -> tuple[float, ...]:
    """The columns of `Number`: of a modulation alone, what is read saturates to what it is already."""
    alone = node.op == "modulate"
    low, high = (-(2.0**15), 2.0**15) if alone else (node.values["low"], node.values["high"])
    share = 1.0 if alone else 2.0 ** -node.values["skip"]
    return (low, high, share, last.values["low"], last.values["high"])


def _dense(node: Node) -> npt.NDArray[np.int64]:
    """Weights (o, i, h, w) of all inputs, zero where a group has others."""
    weight, groups = node.tensors["weight"].astype(np.int64), node.values["groups"]
    outputs, inputs = weight.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weight.shape[2:]), np.int64)
    for group in range(groups):
        rows = slice(group * outputs // groups, (group + 1) * outputs // groups)
        dense[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return dense


def _tiles(weight: Array, channels: int, chunk: int, filled: int, split: bool) -> Array:
    """Weights (o, i, h, w) as tiles of one tap row's chunk each, groups of four inputs side by side."""
    outputs, inputs, taps, across = weight.shape
    rows = np.pad(weight, ((0, filled), (0, channels - inputs), (0, 0), (0, 0))).transpose(0, 2, 3, 1)
    rows = rows.reshape(outputs + filled, taps, across * channels)
    rows = np.pad(rows, ((0, 0), (0, 0), (0, -rows.shape[2] % chunk)))
    rows = rows.reshape(-1, LANES, taps, rows.shape[2] // chunk, chunk // 4, 4)
    low = (rows + 128) % 256 - 128
    parts = [(rows - low) >> 8, low] if split else [rows]
    ordered = np.stack(parts, axis=1).transpose(0, 3, 4, 1, 5, 2, 6)
    return aligned(ordered.astype(np.int8))
