"""Which nodes of a network of 8 bits go row by row, and their weights as tiles of bytes; `_rows` runs them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from codecnn.errors import ModelError
from codecnn.filtering.integer._emit import HALVES_ZERO, LANES
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._row_tables import BYTES, FLOATS, HALVES, OWN, SIZE, SPLIT, WHOLE, WORDS
from codecnn.models.graph import Array, Node

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

    kind      BYTES, HALVES, WORDS or FLOATS
    channels  with those that fill up
    zero      zero point
    trim      pixels that are missing on each side
    lag       how many rows it is behind the first operation; None for one that is whole before they begin
    whole     whether it is read when all rows are done
    """

    kind: int
    channels: int
    zero: int
    trim: int
    lag: int | None
    whole: bool = False


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
    sums      WHOLE, SPLIT or OWN
    chunk     bytes that are multiplied at a time
    taps      of the kernel, and above  the first of them from the pixel that is made: rows, columns
    weights   by piece: (blocks, taps, chunks, ...), where the last axes are what one chunk is multiplied with
    offset, scale, bias  by output channel
    numbers   the columns of `Number`
    """

    node: Node
    made: str
    lag: int
    pieces: tuple[Piece, ...]
    added: Piece | None
    modulated: Node | None
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
    """Which nodes go row by row, in what order, how their tensors are kept, and their weights as these are multiplied.

    `tiles` says whether AMX multiplies.

    front   nodes that come before, whole
    steps   what goes row by row
    behind  nodes that come after, whole
    """

    def __init__(self, network: IntegerNetwork, *, tiles: bool) -> None:
        self.network, self.tiles = network, tiles
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
            if name not in self.kept or not self.kept[name].whole:
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
            if self.kept[piece.name].whole:
                raise ModelError(f"{piece.name!r} is read behind the rows and within")
        return self.pieces[name]

    def _kept(self, name: str, low: int, high: int, unit: int, lag: int | None) -> Kept:
        channels = self.network.graph.extents[name].channels
        if max(-low, high) > _MOST:
            raise ModelError(f"{name!r} has numbers of more than two bytes")
        if lag is not None and self._by_channel_alone(name):
            kind, zero = FLOATS, 0
        elif (low, high) in ((0, 255), (-128, 127)):
            kind, zero = BYTES, -low
        else:
            kind, zero = (HALVES, HALVES_ZERO) if self.tiles else (WORDS, 0)
        return Kept(kind, -(-channels // unit) * unit, zero, self._trim(name), lag)

    def _by_channel_alone(self, name: str) -> bool:
        """Whether no convolution multiplies a tensor but those of each channel by itself."""
        multiply = [user for user in self.users[name] if user.op in ("concat", "crop") or user.inputs[0] == name]
        return bool(multiply) and all(_is_by_channel(user) for user in multiply)

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
            kept = Kept(FLOATS, channels, 0, kept.trim, lag, whole=True)
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
            nothing = np.zeros(outputs + filled)
            return {
                "sums": WHOLE,
                "chunk": 4,
                "weights": (),
                "offset": aligned(nothing.astype(np.int32)),
                "scale": floats(nothing),
                "bias": floats(nothing),
            }
        unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
        scale, bias = (np.pad(values, (0, filled)) for values in (unit, node.tensors["bias"] * unit))
        kinds = [self.kept[piece.name].kind for piece in reads]
        offset = np.zeros(outputs, np.int64)
        made: dict[str, Any] = {"sums": OWN, "chunk": 4}
        if kinds == [FLOATS]:
            made["weights"] = (_by_channel(node.tensors["weight"], filled),)
        else:
            weight = _dense(node)
            wide = int(np.abs(weight).max())
            if wide > _MOST:
                raise ModelError(f"node {node.name!r} has weights of more than two signed bytes")
            two = wide > 127 or HALVES in kinds or WORDS in kinds
            made["sums"] = SPLIT if two and (self.tiles or BYTES in kinds) else WHOLE
            sizes = [self.kept[piece.name].channels * SIZE[kind] for piece, kind in zip(reads, kinds, strict=True)]
            lengths = [size * weight.shape[3] for size in sizes]
            chunk = made["chunk"] = max(-(-length // -(-length // MOST_OF_A_ROW) // 4) * 4 for length in lengths)
            tiles = []
            for piece in reads:
                kept = self.kept[piece.name]
                own = weight[:, piece.first : piece.first + piece.count]
                offset -= own.sum(axis=(1, 2, 3)) * kept.zero
                tiles.append(_tiles(own, kept, chunk, filled, two))
            made["weights"] = tuple(tiles)
        return made | {
            "offset": aligned(np.pad(offset, (0, filled)).astype(np.int32)),
            "scale": floats(scale),
            "bias": floats(bias),
        }


def _is_by_channel(node: Node) -> bool:
    """Whether each channel is convolved by itself, 3x3."""
    if node.op != "conv":
        return False
    weight = node.tensors["weight"]
    return node.values["groups"] == len(weight) and weight.shape[1:] == (1, 3, 3)


def room(size: int, kind: npt.DTypeLike) -> Array:
    """Memory of so many bytes, which begins where a line of the cache does, as numbers of a kind."""
    place = torch.empty(size + LINE, dtype=torch.uint8).numpy()  # PyTorch's, so that it is counted as memory
    start = -place.ctypes.data % LINE
    made: Array = place[start : start + size].view(kind)
    return made


def aligned(values: Array) -> Array:
    """A copy that begins where a line of the cache does."""
    made = room(values.nbytes, values.dtype).reshape(values.shape)
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


def _by_channel(weight: Array, filled: int) -> Array:
    """Weights (c, 1, h, w) of one channel each as (blocks, h, w, 16), float32."""
    rows = np.pad(weight[:, 0], ((0, filled), (0, 0), (0, 0)))
    return floats(rows.reshape(-1, LANES, *rows.shape[1:]).transpose(0, 2, 3, 1))


def _tiles(weight: Array, kept: Kept, chunk: int, filled: int, two: bool) -> Array:
    """Weights (o, i, h, w) of one tensor as (blocks, h, chunks, tiles, chunk / 4, 16, 4).

    A chunk is multiplied with all its tiles. Of two bytes they are several: what makes 2^8 times a sum, what makes a
    sum itself, and 2^16 times it.
    """
    outputs, inputs, taps, across = weight.shape
    rows = np.pad(weight, ((0, filled), (0, kept.channels - inputs), (0, 0), (0, 0))).transpose(0, 2, 3, 1)
    rows = rows.reshape(outputs + filled, taps, across * kept.channels)
    rows = np.pad(rows, ((0, 0), (0, 0), (0, -rows.shape[2] % (chunk // SIZE[kept.kind]))))
    low = (rows + 128) % 256 - 128
    high, none = (rows - low) >> 8, np.zeros_like(rows)
    if kept.kind == WORDS:
        parts = [rows.astype("<i2").view(np.int8)]
    elif kept.kind == HALVES:  # by its own low and high byte
        parts = [
            np.stack(pair, axis=3).reshape(*rows.shape[:2], -1) for pair in ((high, low), (low, none), (none, high))
        ]
    else:
        parts = [high, low] if two else [rows]
    tiles = np.stack(parts, axis=2).reshape(-1, LANES, taps, len(parts), parts[0].shape[2] // chunk, chunk // 4, 4)
    return aligned(tiles.transpose(0, 2, 4, 3, 5, 1, 6).astype(np.int8))
