"""From weights and a store to an integer network and what its card says."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from codecnn.dataset import Store, Unit
from codecnn.filtering.integer._calibrate import PICTURES, magnitudes, reach, spread
from codecnn.filtering.integer._fused import fused
from codecnn.filtering.integer._mixed import LOSS, mixture
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._quantisation import MAX_ACCUMULATOR_BITS, quantise
from codecnn.models import Card, FilterNetwork, build_graph
from codecnn.runs import provenance

MIN_BIT_DEPTH = 10
"""A network calibrated on 8-bit pictures takes 10-bit ones as well: the same values, two bits finer."""


def integer_network(
    model: FilterNetwork,
    card: Card,
    stores: Sequence[Store],
    split: str = "train",
    *,
    bits: int = 16,
    pictures: int = PICTURES,
    accumulator_bits: int = MAX_ACCUMULATOR_BITS,
    loss: float = LOSS,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[IntegerNetwork, dict[str, Any]]:
    """The integer form of `model`, calibrated on decoded pictures of stores, and its card.

    The card is that of the weights, with their sha256 as `source_sha256`, and what the calibration saw. `pictures` are
    looked at for each QP of each store, from units at even distances the one in the middle; `bits` is 8 or 16,
    `accumulator_bits` of 16 as for `quantise`, `loss` of 8 what it may lose on these pictures, see `mixture`. Raises
    StoreError where a store lacks the split or a plane, ModelError for a network that has no integer form.
    """
    units = [unit for store in stores for unit in spread(store.split(split), pictures)]
    graph = build_graph(model)
    bit_depth = bit_depth_for(units)
    looked_at: dict[str, Any] = {"device": device, "progress": progress}
    if bits == 8:
        joined = fused(graph)
        mixed = mixture(joined, reach(joined, units, **looked_at), units, bit_depth, loss=loss, **looked_at)
        network = mixed.network
    else:
        network = quantise(graph, magnitudes(graph, units, **looked_at), bit_depth, accumulator_bits=accumulator_bits)
    calibration: dict[str, Any] = {
        "data_keys": [store.data_key for store in stores],
        "split": split,
        "pictures_per_qp": pictures,
        "qps": sorted({unit.qp for unit in units}),
    }
    if bits == 16:
        calibration["accumulator_bits"] = accumulator_bits
    else:
        lost = {"loss_db": round(float(np.mean(mixed.losses)), 5), "worst_loss_db": round(max(mixed.losses), 5)}
        calibration |= {"wide": list(mixed.wide), **lost}
    return network, source_card(card) | {"calibration": calibration, "provenance": provenance()}


def bit_depth_for(units: Sequence[Unit]) -> int:
    """The bit depth of the samples that a network calibrated on these units takes."""
    return max(MIN_BIT_DEPTH, *(unit.format.bit_depth for unit in units))


def source_card(card: Card) -> dict[str, Any]:
    """What the card of integers takes over from that of the weights that they are made of; no test: it was theirs."""
    own = ("schema", "task", "sha256", "provenance", "test")
    return {**{name: value for name, value in card.items() if name not in own}, "source_sha256": card.sha256}
