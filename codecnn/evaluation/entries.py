"""Filters that take part in an evaluation, from weights and from objects in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from codecnn.base.errors import ConfigError
from codecnn.base.files import sha256_json
from codecnn.base.runtime import Runtime, device_name
from codecnn.filtering import (
    FloatFilter,
    FunctionFilter,
    NetworkFilter,
    PictureFilter,
    Precision,
    Tile,
    filter_key,
    function_name,
    load_filter,
    prefers_integers,
    user_network,
)
from codecnn.filtering.integer import find_integers, is_integer
from codecnn.models import Card, as_card, as_filter_network, complexity, pick_device


@dataclass(frozen=True)
class Entry:
    """A filter that takes part in an evaluation.

    Attributes:
        name: Name of the filter in the results; unique within an evaluation.
        card: Card of its weights.
        filter: The filter itself.
        device: Description of the device it runs on, e.g. "cpu, 2 threads".
        load: Function that creates the same entry in another process, on the device of that process; None if the
            entry cannot be sent to the workers of a cluster.
        code: The filter's `filter_key`, part of the key of its cells; None if the card alone identifies the filter.
        not_kept: Reason why `filter_key` cannot be computed, so that the filter is measured anew each time; or None.
    """

    name: str
    card: Card
    filter: PictureFilter
    device: str = "cpu"
    load: Callable[[], "Entry"] | None = None
    code: str | None = None
    not_kept: str | None = None

    @classmethod
    def of(
        cls,
        filter_: Any,
        name: str,
        *,
        card: Card | None = None,
        device: str = "cpu",
        key: str | None = None,
        **facts: Any,
    ) -> "Entry":
        """Create the entry of a filter with its `filter_key`; arguments as the attributes.

        Args:
            filter_: A `PictureFilter`, such as one of `load_filter` or a `FunctionFilter`.
            name: Name in the results.
            card: Card of the weights; None for filters without weights.
            device: Description of the device.
            key: Text that stands for all that decides the filter's samples, if `filter_key` needs it.
            **facts: Further attributes.
        """
        code = None
        if key is not None or card is None or card.sha256 is None or user_network(filter_) is not None:
            try:
                code = filter_key(filter_, key)
            except ConfigError as error:
                facts["not_kept"] = f"{error}; give it a key to keep its measurements (key=... in Python)"
        return cls(name, card or as_card({}), filter_, device, code=code, **facts)

    @property
    def runtime(self) -> Runtime | None:
        """Runtime of the filter's network; None for filters without a network of codecnn."""
        return self.filter.runtime if isinstance(self.filter, NetworkFilter) else None

    @property
    def cache_key(self) -> dict[str, Any]:
        """Facts that decide the samples of the filter, for keys of cached results.

        The cards count as a whole: that of the filter decides, for example, which QPs the network receives.
        """
        cards = [dict(self.card)]
        if isinstance(self.filter, NetworkFilter):
            cards.append(dict(self.filter.card))
        key: dict[str, Any] = {"weights": self.card.sha256, "cards": sha256_json(cards), "code": self.code}
        key["filter"] = type(self.filter).__name__
        key["runtime"] = {} if self.runtime is None else self.runtime.cache_key()
        return key if self.not_kept is None else key | {"not_kept": self.name}


def load_entries(weights: list[Path], exact: bool | None, precision: Precision, device: str, tile: Tile) -> list[Entry]:
    """Load filters, named FOLDER/FILE, or by their whole paths if two have the same name.

    Args:
        weights: Files of weights.
        exact: True loads float and integer networks, False float networks, None integers if 8-bit weights exist.
        precision: Precision of float networks.
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples.
    """
    forms = []
    for path in weights:
        if exact and not is_integer(path):  # a file of integers has no other integer form
            forms += [(path, False), (path, True)]
        else:
            forms.append((path, exact is None and prefers_integers(path, precision)))
    files = [find_integers(path) if form else path for path, form in forms]
    short = [f"{file.absolute().parent.name}/{file.stem}" for file in files]
    entries = []
    for (path, form), file, name in zip(forms, files, short, strict=True):
        unique = name if short.count(name) == 1 else str(file.with_suffix(""))
        entries.append(_entry(unique, path, form, precision, device, tile))
    return entries


def memory_entries(models: Sequence[Any], device: str, tile: Tile, key: str | None) -> list[Entry]:
    """Create the entries of filters in memory, named by their function or class.

    Args:
        models: Modules of torch, filters, or functions of a picture.
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples.
        key: Text that stands for the filters in the keys of kept measurements; None reads their state.
    """
    entries = []
    names = [function_name(model) for model in models]
    for index, model in enumerate(models):
        name = names[index] if names.count(names[index]) == 1 else f"{names[index]}_{index + 1}"
        text, facts = device_name(torch.device("cpu")), dict[str, Any](network=names[index])
        if isinstance(model, torch.nn.Module):
            network = as_filter_network(model)
            facts |= complexity(network).as_dict()
            target = pick_device(device)
            filter_: Any = FloatFilter(network, device=target, tile=tile)
            text = device_name(target)
        elif hasattr(model, "samples") and hasattr(model, "planes"):
            filter_ = model
        elif callable(model):
            filter_ = FunctionFilter(model)
        else:
            raise ConfigError(f"a filter is weights, a module of torch or a function, not {type(model).__name__}")
        own_key = None if key is None else f"{name}: {key}"
        entries.append(Entry.of(filter_, name, card=as_card(facts), device=text, key=own_key))
    return entries


def _entry(
    name: str, weights: Path, exact: bool, precision: Precision, device: str, tile: Tile, trust: bool = False
) -> Entry:
    torch_device = pick_device(device)
    text = device_name(torch_device)
    text += "" if precision == "float32" else f", {precision}"
    filter_ = load_filter(weights, exact=exact, precision=precision, device=torch_device, tile=tile, trust=trust)
    # What has been permitted here is permitted on the workers of a cluster.
    load = partial(_entry, name, weights.absolute(), exact, precision, device, tile, True)
    return Entry.of(filter_, name, card=filter_.card, device=text, load=load)
