"""Networks by name."""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from codecnn.errors import ModelError
from codecnn.models.base import FilterNetwork


class _Registered(NamedTuple):
    build: Callable[..., FilterNetwork]
    description: str
    options: dict[str, Any]


_NETWORKS: dict[str, _Registered] = {}


def register(name: str, build: Callable[..., FilterNetwork], description: str, **options: Any) -> None:
    """Make `build` known as the network `name`, with these options where a user gives no others."""
    _NETWORKS[name] = _Registered(build, description, options)


def list_models() -> list[str]:
    """Names that `create_model` knows, sorted: ["arcnn", "dncnn", "edsr", "low_cost_17", ...]."""
    _load_families()
    return sorted(_NETWORKS)


def describe_model(name: str) -> str:
    """One line on the network `name`: "AR-CNN, 9-7-1-5 (Dong et al., ICCV 2015); 106 kMAC/pixel." for "arcnn"."""
    return _network(name).description


def create_model(name: str, **options: Any) -> FilterNetwork:
    """Build the network `name`, untrained: it starts as the identity.

        model = create_model("low_cost_17", planes=["rec_y", "qp", "unf_y"])
        filtered = model({"rec_y": y, "qp": qp, "unf_y": unfiltered})   # (n, 1, h, w) each, samples of [0, 1]

    Raises ModelError for an unknown name, an unknown option or a value that the network cannot take.
    """
    network = _network(name)
    try:
        return network.build(**network.options | options)
    except TypeError as error:
        # A builder's own word is of Python; only what it says of an option's name is the user's.
        told = re.sub(r"^[\w.]+\(\) got an unexpected keyword argument", "it has no option", str(error).splitlines()[0])
        known = ", ".join(inspect.signature(network.build).parameters)
        raise ModelError(f"network {name!r} does not take these options: {told}; there are {known}") from error


def _load_families() -> None:
    """Import the package's network families, which register themselves."""
    importlib.import_module("codecnn.models.families")


def _network(name: str) -> _Registered:
    _load_families()
    if name not in _NETWORKS:
        raise ModelError(f"unknown network {name!r}: one of {', '.join(list_models())}")
    return _NETWORKS[name]
