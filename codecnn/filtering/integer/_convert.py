"""From weights and a store to an integer network and what its card says."""

from collections.abc import Callable
from typing import Any

import torch

from codecnn.dataset.store import Store
from codecnn.filtering.integer._calibrate import PICTURES, magnitudes
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._quantisation import MAX_ACCUMULATOR_BITS, quantise
from codecnn.models import Card, FilterNetwork
from codecnn.models.inference import build_graph
from codecnn.runs import provenance

MIN_BIT_DEPTH = 10
"""A network calibrated on 8-bit pictures takes 10-bit ones as well: the same values, two bits finer."""


def integer_network(
    model: FilterNetwork,
    card: Card,
    store: Store,
    split: str = "train",
    *,
    pictures: int = PICTURES,
    accumulator_bits: int = MAX_ACCUMULATOR_BITS,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[IntegerNetwork, dict[str, Any]]:
    """The integer form of `model`, calibrated on decoded pictures of a store, and its card.

    The card is that of the weights, with their sha256 as `source_sha256`, and what the calibration saw. `pictures` are
    looked at for each QP, see `magnitudes`; `accumulator_bits` as for `quantise`. Raises StoreError where the store
    lacks the split or a plane, ModelError for a network that has no integer form.
    """
    units = store.split(split)
    graph = build_graph(model)
    bit_depth = max(MIN_BIT_DEPTH, *(unit.format.bit_depth for unit in units))
    found = magnitudes(graph, units, pictures=pictures, device=device, progress=progress)
    network = quantise(graph, found, bit_depth, accumulator_bits=accumulator_bits)
    base = {name: value for name, value in card.items() if name not in ("schema", "task", "sha256", "provenance")}
    calibration = {
        "data_key": store.data_key,
        "split": split,
        "pictures_per_qp": pictures,
        "qps": sorted({unit.qp for unit in units}),
        "accumulator_bits": accumulator_bits,
    }
    return network, {**base, "source_sha256": card.sha256, "calibration": calibration, "provenance": provenance()}
