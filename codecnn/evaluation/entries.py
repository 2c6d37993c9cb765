"""Filters that take part in an evaluation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codecnn.base.errors import ConfigError
from codecnn.base.files import sha256_json
from codecnn.base.runtime import Runtime
from codecnn.filtering import NetworkFilter, PictureFilter, filter_key, user_network
from codecnn.models import Card, as_card


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
