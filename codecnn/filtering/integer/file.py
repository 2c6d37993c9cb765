"""Integer networks on disk: a .safetensors file of integers, and beside it a JSON card with the operations.

What a file says is checked, never trusted: sizes, types, how the operations fit together, the proof of every sum, and
the samples that the network makes of a picture that everyone can compute.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from codecnn.errors import CodecnnError, MissingFileError, ModelError
from codecnn.filtering.integer._exact import ExactFilter, engines
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer.reference import filter_reference
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES, Card, as_card, card_path, check_described
from codecnn.models.graph import Array, Graph, Node
from codecnn.runs import atomic_path, read_json, sha256_file, write_json
from codecnn.video import Picture

SCHEMAS = {16: 1, 8: 2}
"""By the bits of a network, the schema of its card: what reads the first alone refuses the second."""
TASK = "integer"
CHECK_SIZE = (37, 45)
"""Height and width of the picture whose filtered samples a card has the MD5 of: odd, so that every edge matters."""
CHECK_QPS = (22, 37)

MAX_NODES = 2**12
MAX_CHANNELS = 2**16
"""The channels of all nodes together, at most."""
MAX_PARAMETERS = 2**24
MAX_TRIM = 64
"""Luma samples by which a window may be larger or smaller than the picture on each side; the zoo's networks lose 4."""

Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Node(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: Name
    op: Name
    inputs: list[Name]
    values: dict[Name, int]


class _Content(BaseModel):
    """What a card says of the integers themselves; `check` is the MD5 of the samples of `check_planes`, by QP."""

    model_config = ConfigDict(strict=True, frozen=True)

    bit_depth: int
    bits: int = 16
    sha256: str
    check: dict[str, str]
    nodes: list[_Node] = Field(min_length=1, max_length=MAX_NODES)


def check_planes(network: IntegerNetwork) -> dict[str, Array]:
    """The picture of a card's MD5s: sample (x, y) of plane i is (73·x² + 151·y² + 29·x·y + 1237·i) mod 2^B.

    Planes that are not samples are that over 2^B. Planes are counted in the order of the network's nodes.
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
    """The decoded planes of a network as a picture, which has both chroma planes where the network takes but one."""
    chroma = [planes[name] for name in ("rec_u", "rec_v") if name in planes]
    return Picture((planes["rec_y"], *((chroma[0], chroma[-1]) if chroma else ())), bit_depth)


def md5_of(filtered: Mapping[str, Array]) -> str:
    """MD5 of the outputs' samples, y then u and v, row by row as little-endian 16-bit integers."""
    digest = hashlib.md5(usedforsecurity=False)
    for plane in filtered.values():
        digest.update(np.ascontiguousarray(plane, dtype="<u2").tobytes())
    return digest.hexdigest()


def save_integer(path: Path | str, network: IntegerNetwork, card: Mapping[str, Any]) -> None:
    """Write `network` to `path` (.safetensors) and its card beside it; `card` is what else the card says.

    The MD5s in the card are those of the plain NumPy form.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ModelError(f"{path}: integer networks are written as .safetensors")
    tensors = {f"{node.name}.{name}": tensor for node in network.graph.nodes for name, tensor in node.tensors.items()}
    with atomic_path(path) as part:
        part.write_bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}))
    planes = check_planes(network)
    made = {
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
    write_json(card_path(path), {**card, **made})


def integer_path(weights: Path | str, bits: int = 16) -> Path:
    """Where the integers of weights NAME.safetensors lie unless told otherwise: NAME.int16.safetensors or NAME.int8."""
    return Path(weights).with_suffix(f".int{bits}.safetensors")


def integers_beside(weights: Path | str) -> Path:
    """The integers that lie beside weights: those of 8 bits, or else, there or not, those of 16."""
    eight = integer_path(weights, 8)
    return eight if eight.is_file() else integer_path(weights)


def is_integer(path: Path | str) -> bool:
    """Whether the card beside `path` is that of an integer network."""
    card = card_path(path)
    if not card.is_file():
        return False
    content = read_json(card)
    return isinstance(content, dict) and content.get("task") == TASK


def load_integer(path: Path | str) -> tuple[IntegerNetwork, Card]:
    """The integer network of a file, and its card.

    Raises MissingFileError without file or card; ModelError where they are damaged or not of each other, where a sum
    could overflow, and where this machine does not make the samples that the card says.
    """
    path = Path(path)
    for file in (path, card_path(path)):
        if not file.is_file():
            raise MissingFileError(f"{file} does not exist")
    content = read_json(card_path(path))
    if not isinstance(content, dict) or content.get("task") != TASK or content.get("schema") not in SCHEMAS.values():
        raise ModelError(f"{card_path(path)} is not the card of an integer network of schema 1 or 2")
    try:
        own = _Content.model_validate(content)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(str(part) for part in found["loc"])[:100]
        raise ModelError(f"{card_path(path)} is not a whole card: {place}: {found['msg'][:200]}") from error
    if SCHEMAS.get(own.bits) != content["schema"]:
        raise ModelError(
            f"{card_path(path)} says {str(own.bits)[:20]} bits, and schema {content['schema']} is not theirs"
        )
    check_described(path, own.sha256)
    try:
        network = _network(own, _tensors(path))
        _check_samples(network, own.check)
        card = as_card(content)
    except CodecnnError as error:
        raise ModelError(f"{path} is not an integer network that can be used: {error}") from error
    return network, card


def _tensors(path: Path) -> dict[str, Array]:
    try:
        tensors: dict[str, Array] = load_file(path)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, RuntimeError, AttributeError) as error:
        raise ModelError(f"it is not a whole .safetensors file ({type(error).__name__})") from error
    size = sum(tensor.size for tensor in tensors.values())
    if size > MAX_PARAMETERS:
        raise ModelError(f"it has {size} parameters, more than {MAX_PARAMETERS}")
    return tensors


def _network(content: _Content, tensors: dict[str, Array]) -> IntegerNetwork:
    by_node: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, tensor in tensors.items():
        node, _, own = name.rpartition(".")
        by_node[node][own] = tensor
    nodes = [Node(one.name, one.op, tuple(one.inputs), one.values, by_node.pop(one.name, {})) for one in content.nodes]
    if by_node:
        raise ModelError(f"it holds tensors of {next(iter(by_node))[:80]!r}, which is no node")
    graph = Graph(tuple(nodes))
    channels = sum(extent.channels for extent in graph.extents.values())
    trim = max(abs(extent.trim) for extent in graph.extents.values())
    if channels > MAX_CHANNELS or trim > MAX_TRIM:
        raise ModelError(
            f"it has {channels} channels and windows {trim} samples off: {MAX_CHANNELS}, {MAX_TRIM} at most"
        )
    return IntegerNetwork(graph, content.bit_depth, content.bits)


def _check_samples(network: IntegerNetwork, md5s: dict[str, str]) -> None:
    """Raise ModelError unless this machine makes the samples that the card says."""
    if set(md5s) != {str(qp) for qp in CHECK_QPS}:
        raise ModelError(f"its card checks the QPs {', '.join(sorted(md5s))[:80]}, not {CHECK_QPS}")
    planes = check_planes(network)
    picture = picture_of(planes, network.bit_depth)
    for engine in engines(network):
        exact = ExactFilter(network, engine=engine)
        for qp in CHECK_QPS:
            if md5_of(exact.samples(picture, qp, planes)) != md5s[str(qp)]:
                raise ModelError(f"its card says other samples at QP {qp} than are computed here")
