"""The part of a cache's key that stands for a filter."""

from typing import Any

from torch import nn

from codecnn.base.files import sha256_json
from codecnn.base.fingerprint import fingerprint, weights_sha256
from codecnn.filtering.function_filter import FunctionFilter
from codecnn.filtering.graph_filter import GraphFilter
from codecnn.filtering.integer import ExactFilter
from codecnn.filtering.joined_filter import JoinedFilter
from codecnn.filtering.network_filter import FloatFilter, NetworkFilter
from codecnn.filtering.planes import PictureFilter
from codecnn.models.graph import Graph


def filter_key(filter_: PictureFilter, key: str | None = None) -> str:
    """Hash what decides the samples of a filter.

    These are the class of the filter, the part of its runtime that changes samples, and: of weights from a file, the
    whole card, which has their sha256, and the code of a network of the user; of other filters, what `fingerprint`
    hashes.

    Args:
        filter_: The filter.
        key: Text of the user that stands for a filter in memory; None takes that of a `FunctionFilter`.

    Returns:
        The sha256 in hexadecimal.

    Raises:
        ConfigError: The filter needs a key, since not all that decides its samples can be read.
    """
    if isinstance(filter_, JoinedFilter):
        return sha256_json([filter_key(filter_.luma, key), filter_key(filter_.chroma, key)])
    facts: dict[str, Any] = {"filter": type(filter_).__name__, "runtime": {}, "card": {}}
    if isinstance(filter_, NetworkFilter):
        facts |= {"runtime": filter_.runtime.cache_key(), "card": dict(filter_.card)}
    if key is None and isinstance(filter_, FunctionFilter):
        key = filter_.key
    if key is None and facts["card"].get("sha256") is not None:
        network = user_network(filter_)
        facts["code"] = None if network is None else fingerprint([type(module) for module in network.modules()])
    else:
        facts["content"] = fingerprint(_content(filter_), key)
    return sha256_json(facts)


def user_network(filter_: PictureFilter) -> nn.Module | None:
    """Return the network of a filter if it has code outside of codecnn, else None."""
    return filter_.user_network if isinstance(filter_, FloatFilter) else None


def _content(filter_: PictureFilter) -> Any:
    """Return what a filter computes with: its function, network or graph, or itself."""
    if isinstance(filter_, FunctionFilter):
        return filter_.function
    if isinstance(filter_, FloatFilter):
        return filter_.network
    if isinstance(filter_, ExactFilter):
        return [_graph_facts(filter_.network.graph), filter_.network.bit_depth, filter_.network.bits]
    return _graph_facts(filter_.graph) if isinstance(filter_, GraphFilter) else filter_


def _graph_facts(graph: Graph) -> Any:
    nodes = [[node.name, node.op, list(node.inputs), dict(node.values)] for node in graph.nodes]
    tensors = {f"{node.name}.{name}": tensor for node in graph.nodes for name, tensor in node.tensors.items()}
    return [nodes, weights_sha256(tensors)]
