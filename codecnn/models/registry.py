"""Networks by name."""

import inspect
from collections.abc import Callable
from typing import Any

from codecnn.errors import ModelError
from codecnn.models.base import FilterNetwork

_NETWORKS: dict[str, Callable[..., FilterNetwork]] = {}


def register(name: str) -> Callable[[Callable[..., FilterNetwork]], Callable[..., FilterNetwork]]:
    """Decorator: make a function that builds a network known as `name`; its docstring's first line describes it."""

    def add(builder: Callable[..., FilterNetwork]) -> Callable[..., FilterNetwork]:
        _NETWORKS[name] = builder
        return builder

    return add


def list_models() -> list[str]:
    """Names that `create_model` knows, sorted."""
    return sorted(_NETWORKS)


def describe_model(name: str) -> str:
    """One line on the network `name`."""
    return (inspect.getdoc(_network(name)) or "").splitlines()[0]


def create_model(name: str, **options: Any) -> FilterNetwork:
    """Build the network `name`, untrained: it starts as the identity.

    Raises ModelError for an unknown name, an unknown option or a value that the network cannot take.
    """
    builder = _network(name)
    try:
        return builder(**options)
    except TypeError as error:
        raise ModelError(f"network {name!r} does not take these options: {str(error).splitlines()[0]}") from error


def _network(name: str) -> Callable[..., FilterNetwork]:
    if name not in _NETWORKS:
        raise ModelError(f"unknown network {name!r}: one of {', '.join(list_models())}")
    return _NETWORKS[name]
