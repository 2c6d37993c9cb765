"""Integer networks in use: `ExactFilter` filters pictures with the fastest engine, and files hold networks.

A file is a .safetensors file of integers with a JSON card beside it that lists the operations;
docs/explanation/integers.md specifies both. `load_integer` verifies everything that a file claims: sizes, types, how
the operations fit together, the proof of every sum, and the MD5 of the samples that every engine of this machine
computes for a fixed picture.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor

from codecnn.base.errors import CodecnnError, MissingFileError, ModelError
from codecnn.base.files import atomic_path, read_json, sha256_file, write_json
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.reference import filter_reference
from codecnn.filtering.integer.row_engine import RowNetwork, runs_in_rows
from codecnn.filtering.integer.torch_engine import FastNetwork, exact_arithmetic
from codecnn.filtering.network_filter import FilterOptions, NetworkFilter
from codecnn.filtering.planes import NO_PLANES, Planes, components
from codecnn.filtering.tiles import TileMemory, in_tiles, measure_tile_memory
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES, Card, as_card, card_path, check_sha256
from codecnn.models.graph import Array, Graph, Node
from codecnn.pictures.files import Picture

Engine = Literal["float32", "float64", "int8"]
_TRIAL_SIDE = 96
"""Side in luma samples of the output that engines are timed on."""
_TRIAL_TURNS = 3
"""Timed turns of each engine."""

SCHEMAS = {16: 1, 8: 2}
"""Schema of a card by the bits of its network: readers of schema 1 refuse networks of 8 bits."""
TASK = "integer"
CHECK_SIZE = (37, 45)
"""Height and width of the picture whose MD5s are in a card: odd, so that every edge is covered."""
CHECK_QPS = (22, 37)

MAX_NODES = 2**12
MAX_CHANNELS = 2**16
"""Largest number of channels of all nodes together."""
MAX_PARAMETERS = 2**24
MAX_TRIM = 64
"""Largest number of luma samples by which a node's window is smaller or larger than the picture on each side."""

Name = Annotated[str, Field(min_length=1, max_length=200)]


def engines(network: IntegerNetwork, device: str | torch.device = "cpu") -> list[Engine]:
    """List the engines that can compute a network on a device; all compute the same samples.

    - "float32": float convolutions, in float32 where the sums are proven to fit, else in float64.
    - "int8": an 8-bit network row by row with products of bytes, on processors with AVX-512 VNNI or AMX.

    The engine "float64", which computes everything in float64, is not listed but always possible.
    """
    rows_too = torch.device(device).type == "cpu" and runs_in_rows(network)
    return ["float32", "int8"] if rows_too else ["float32"]


def build_engine(network: IntegerNetwork, engine: Engine, device: str | torch.device = "cpu") -> FastNetwork:
    """Prepare a network to run with an engine.

    Raises:
        ModelError: The engine cannot compute the network; see `engines`.
    """
    return RowNetwork(network) if engine == "int8" else FastNetwork(network, device, wide=engine == "float64")


def _fastest(network: IntegerNetwork, device: str | torch.device) -> FastNetwork:
    """Prepare the network with the engine that takes the least time for a small window.

    It is the least processor time of some turns: on a busy machine a single time of the clock may say anything.
    """
    prepared = [build_engine(network, engine, device) for engine in engines(network, device)]
    if len(prepared) == 1:
        return prepared[0]
    side = _TRIAL_SIDE + -_TRIAL_SIDE % network.graph.stride + 2 * network.graph.halo
    planes = {
        name: torch.zeros(1, 1, *[side // (2 if name in CHROMA_PLANES else 1)] * 2) for name in network.graph.planes
    }

    def seconds(engine: FastNetwork) -> float:
        engine(planes, 32, network.bit_depth)  # compiles, packs and allocates what is needed once
        turns = []
        for _ in range(_TRIAL_TURNS):
            start = time.process_time()
            engine(planes, 32, network.bit_depth)
            turns.append(time.process_time() - start)
        return min(turns)

    return min(prepared, key=seconds)


class ExactFilter(NetworkFilter):
    """An integer network as a filter whose samples depend on the network and the picture only.

    Device, tiles, memory, threads and engine change no sample.

    Args:
        network: The network.
        engine: One of `engines`, or "float64"; None chooses the fastest.
        observe: Called with name and tensor of each node that "float32" or "float64" computes by itself, for each tile.
        options: Options of `NetworkFilter`.

    Raises:
        ModelError: The engine cannot compute the network.
        ConfigError: The tile is not positive, or the memory is too small.
    """

    precision = "integer"

    def __init__(
        self,
        network: IntegerNetwork,
        *,
        engine: Engine | None = None,
        observe: Callable[[str, Tensor], None] | None = None,
        **options: Unpack[FilterOptions],
    ) -> None:
        self.network = network
        self.observe = observe
        device = options.get("device", "cpu")
        self.fast = _fastest(network, device) if engine is None else build_engine(network, engine, device)
        super().__init__(network.graph, **options)
        if network.graph.uses_qp:
            self.planes = (*self.planes, "qp")

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture as every `NetworkFilter`; its samples are integers, which need no rounding."""
        samples = self.samples(picture, qp, beside)
        planes = {
            name: samples[name].astype(x.dtype) if name in samples else x for name, x in components(picture).items()
        }
        return Picture(tuple(planes.values()), picture.bit_depth)

    def _filter_planes(
        self, planes: dict[str, Tensor], qp: int, bit_depth: int, tile: int | None, threads: int
    ) -> dict[str, Tensor]:
        # These settings hold for all threads. They are made and restored here, not by each of several tiles.
        with exact_arithmetic(self.device.type):
            compute = partial(self.fast, qp=qp, bit_depth=bit_depth, observe=self.observe)
            return in_tiles(compute, self.geometry, planes, tile, threads)

    def _tile_memory(self) -> TileMemory:
        weights = [tensor for tensors in self.fast.tensors.values() for tensor in tensors.values()]
        compute = partial(self.fast, qp=0, bit_depth=self.network.bit_depth)
        return measure_tile_memory(compute, self.geometry, weights, self.device)


class _CardNode(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: Name
    op: Name
    inputs: list[Name]
    values: dict[Name, int]


class _CardContent(BaseModel):
    """The entries of a card that describe the integers; `check` is the MD5 of the samples of `check_planes` by QP."""

    model_config = ConfigDict(strict=True, frozen=True)

    bit_depth: int
    bits: int = 16
    sha256: str
    check: dict[str, str]
    nodes: list[_CardNode] = Field(min_length=1, max_length=MAX_NODES)


def check_planes(network: IntegerNetwork) -> dict[str, Array]:
    """Compute the picture that the MD5s of a card are computed on.

    Sample (x, y) of plane i is (73·x² + 151·y² + 29·x·y + 1237·i) mod 2^B; planes that are not samples are that over
    2^B. Planes are counted in the order of the network's nodes.

    Returns:
        Planes by name, shape (37, 45), chroma (19, 23): uint8 or uint16 samples, float32 other planes.
    """
    planes: dict[str, Array] = {}
    for index, name in enumerate(network.graph.planes):
        height, width = ((size + 1) // 2 if name in CHROMA_PLANES else size for size in CHECK_SIZE)
        y, x = np.mgrid[:height, :width]
        samples = (73 * x**2 + 151 * y**2 + 29 * x * y + 1237 * index) % (1 << network.bit_depth)
        if name in SAMPLE_PLANES:
            planes[name] = samples.astype(np.uint8 if network.bit_depth == 8 else np.uint16)
        else:
            planes[name] = (samples / (1 << network.bit_depth)).astype(np.float32)
    return planes


def picture_of(planes: Mapping[str, Array], bit_depth: int) -> Picture:
    """Build a picture from decoded planes; if only one chroma plane is given, it is used for both."""
    chroma = [planes[name] for name in ("rec_u", "rec_v") if name in planes]
    return Picture((planes["rec_y"], *((chroma[0], chroma[-1]) if chroma else ())), bit_depth)


def md5_of(filtered: Mapping[str, Array]) -> str:
    """Compute the MD5 of filtered samples: y, then u and v, row by row as little-endian 16-bit integers."""
    digest = hashlib.md5(usedforsecurity=False)
    for plane in filtered.values():
        digest.update(np.ascontiguousarray(plane, dtype="<u2").tobytes())
    return digest.hexdigest()


def save_integer(path: Path | str, network: IntegerNetwork, card: Mapping[str, Any]) -> None:
    """Write an integer network and its card.

    The MD5s in the card are computed by the reference engine.

    Args:
        path: File to write, .safetensors; the card is written beside it.
        network: The network.
        card: Further entries of the card.

    Raises:
        ModelError: The file name does not end in .safetensors.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ModelError(f"{path}: integer networks are written as .safetensors")
    tensors = {f"{node.name}.{name}": tensor for node in network.graph.nodes for name, tensor in node.tensors.items()}
    with atomic_path(path) as part:
        part.write_bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}))
    planes = check_planes(network)
    content = {
        "schema": SCHEMAS[network.bits],
        "task": TASK,
        "sha256": sha256_file(path),
        **({"bits": network.bits} if network.bits != 16 else {}),
        "bit_depth": network.bit_depth,
        "accumulator_bits": network.accumulator_bits,
        "check": {str(qp): md5_of(filter_reference(network, planes, qp, network.bit_depth)) for qp in CHECK_QPS},
        "nodes": [
            {"name": node.name, "op": node.op, "inputs": list(node.inputs), "values": dict(node.values)}
            for node in network.graph.nodes
        ],
    }
    write_json(card_path(path), {**card, **content})


def integer_path(weights: Path | str, bits: int = 16) -> Path:
    """Return the default file of the integer form of weights: NAME.int16.safetensors or NAME.int8.safetensors."""
    return Path(weights).with_suffix(f".int{bits}.safetensors")


def find_integers(weights: Path | str) -> Path:
    """Return the file of the integer form of weights: that of 8 bits, unless only that of 16 bits exists."""
    eight_bits, sixteen_bits = integer_path(weights, 8), integer_path(weights)
    return sixteen_bits if sixteen_bits.is_file() and not eight_bits.is_file() else eight_bits


def is_integer(path: Path | str) -> bool:
    """Return whether the card beside `path` is that of an integer network."""
    card = card_path(path)
    if not card.is_file():
        return False
    content = read_json(card)
    return isinstance(content, dict) and content.get("task") == TASK


def load_integer(path: Path | str) -> tuple[IntegerNetwork, Card]:
    """Load and verify an integer network.

    Args:
        path: The .safetensors file; the card lies beside it.

    Returns:
        The network and its card.

    Raises:
        MissingFileError: The file or its card does not exist.
        ModelError: They are damaged or do not belong to each other, a sum could overflow, or this machine computes
            other samples than the card says.
    """
    path = Path(path)
    for file in (path, card_path(path)):
        if not file.is_file():
            raise MissingFileError(f"{file} does not exist")
    content = read_json(card_path(path))
    if not isinstance(content, dict) or content.get("task") != TASK or content.get("schema") not in SCHEMAS.values():
        raise ModelError(f"{card_path(path)} is not the card of an integer network of schema 1 or 2")
    try:
        described = _CardContent.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])[:100]
        raise ModelError(f"{card_path(path)} is not a whole card: {place}: {first['msg'][:200]}") from error
    if SCHEMAS.get(described.bits) != content["schema"]:
        raise ModelError(
            f"{card_path(path)} says {str(described.bits)[:20]} bits, which schema {content['schema']} does not have"
        )
    check_sha256(path, described.sha256)
    try:
        network = _network(described, _read_tensors(path))
        _check_samples(network, described.check)
        card = as_card(content)
    except CodecnnError as error:
        raise ModelError(f"{path} is not an integer network that can be used: {error}") from error
    return network, card


def _read_tensors(path: Path) -> dict[str, Array]:
    try:
        tensors: dict[str, Array] = load_file(path)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, RuntimeError, AttributeError) as error:
        raise ModelError(f"it is not a whole .safetensors file ({type(error).__name__})") from error
    size = sum(tensor.size for tensor in tensors.values())
    if size > MAX_PARAMETERS:
        raise ModelError(f"it has {size} parameters, more than {MAX_PARAMETERS}")
    return tensors


def _network(content: _CardContent, tensors: dict[str, Array]) -> IntegerNetwork:
    """Build the network from the nodes of a card and the tensors of a file."""
    by_node: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, tensor in tensors.items():
        node_name, _, tensor_name = name.rpartition(".")
        by_node[node_name][tensor_name] = tensor
    nodes = [
        Node(node.name, node.op, tuple(node.inputs), node.values, by_node.pop(node.name, {})) for node in content.nodes
    ]
    if by_node:
        raise ModelError(f"it holds tensors of {next(iter(by_node))[:80]!r}, which is no node")
    graph = Graph(tuple(nodes))
    channels = sum(extent.channels for extent in graph.extents.values())
    trim = max(abs(extent.trim) for extent in graph.extents.values())
    if channels > MAX_CHANNELS or trim > MAX_TRIM:
        raise ModelError(
            f"it has {channels} channels and windows that differ by {trim} samples from the picture: "
            f"at most {MAX_CHANNELS} and {MAX_TRIM} are allowed"
        )
    return IntegerNetwork(graph, content.bit_depth, content.bits)


def _check_samples(network: IntegerNetwork, md5s: dict[str, str]) -> None:
    """Raise ModelError unless every engine of this machine computes the samples that the card says."""
    if set(md5s) != {str(qp) for qp in CHECK_QPS}:
        raise ModelError(f"its card checks the QPs {', '.join(sorted(md5s))[:80]}, not {CHECK_QPS}")
    planes = check_planes(network)
    picture = picture_of(planes, network.bit_depth)
    for engine in engines(network):
        exact = ExactFilter(network, engine=engine)
        for qp in CHECK_QPS:
            if md5_of(exact.samples(picture, qp, planes)) != md5s[str(qp)]:
                raise ModelError(f"its card says other samples at QP {qp} than are computed here")
