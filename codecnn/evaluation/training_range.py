"""Notes on pictures and settings that a network was not trained for."""

from collections.abc import Sequence

from codecnn.codec import UNKNOWN_CODEC
from codecnn.dataset import StoredRecipe
from codecnn.models import Card, TrainedOn

CONFIGURATION_NAMES = {"ai": "all intra", "ra": "random access", "ldb": "low delay"}
"""Names of the configurations in sentences."""


def untrained_qp(card: Card, qp: int) -> str | None:
    """Describe what a filter does at a QP outside of its training range.

    Args:
        card: Card of the weights.
        qp: Slice QP.

    Returns:
        A sentence; None if the network was trained for the QP, or if the card does not state QPs and QP is not below 0.
    """
    qps, nearest = card.qps, card.nearest_qp(qp)
    if nearest == qp:
        return None
    if not qps:
        return f"networks take QPs from 0 on; QP {qp} is filtered as QP {nearest}"
    return f"the network was trained for QP {min(qps)} to {max(qps)}; QP {qp} is filtered as QP {nearest}"


def varying_qps(card: Card, qps: Sequence[int], slice_types: Sequence[str]) -> str | None:
    """Describe what weights for all intra do with the slice QPs of inter pictures.

    An inter picture is predicted from pictures of lower slice QPs, so it has less error than an intra picture of its
    own slice QP, and weights for all intra filter it too strongly (measured in VVC: docs/research/video.md).

    Args:
        card: Card of the weights.
        qps: Slice QPs of the pictures that are filtered.
        slice_types: "I", "P" or "B" for each of them.

    Returns:
        A sentence; None if all slice QPs are the same, if no picture is an inter picture, or if some of the training
        pictures were not all intra.
    """
    if len(set(qps)) < 2 or set(slice_types) <= {"I"} or _configurations(card) != {"ai"}:
        return None
    return (
        f"the network was trained on all intra pictures, and the slice QPs here are {min(qps)} to {max(qps)}; on inter "
        f"pictures such networks gain more with one QP for all pictures (-q {min(qps)}); weights for video exist"
    )


def untrained_coding(card: Card, recipe: StoredRecipe, codec_names: Sequence[str]) -> list[str]:
    """List properties of the coding that none of the training pictures had.

    The configuration matters because inter pictures copy much from reference pictures that went through the codec's
    in-loop filters, and weights trained on all intra pictures have not seen such pictures.

    Args:
        card: Card of the weights.
        recipe: Recipe of the evaluated store.
        codec_names: Codecs of the evaluated units, e.g. "vvc".

    Returns:
        A sentence for each property; empty if the card does not describe the training set.
    """
    trained_on = card.trained_on
    if not trained_on:
        return []
    notes = []
    trained_codecs = {codec for store in trained_on for codec in store.codecs}
    if other := set(codec_names) - trained_codecs - {UNKNOWN_CODEC}:
        notes.append(f"the network was trained on pictures of {_listed(trained_codecs)}, not of {_listed(other)}")
    notes += _untrained_configuration(trained_on, recipe.configuration)
    if recipe.loop_filters not in {store.loop_filters for store in trained_on}:
        state = "off" if recipe.loop_filters else "on"
        notes.append(f"the network was trained on pictures with the codec's loop filters {state}")
    return [f"{note}; it may lower the quality of these pictures" for note in notes]


def untrained_loop(card: Card) -> list[str]:
    """List reasons why weights may not be suited for the coding loop in low delay.

    Inside the loop, the filter receives pictures that are partly predicted from its own output.

    Args:
        card: Card of the weights.

    Returns:
        A sentence for each reason; empty if the card does not describe the training set.
    """
    trained_on = card.trained_on
    if not trained_on:
        return []
    notes = _untrained_configuration(trained_on, "ldb")
    if all(store.in_loop is None for store in trained_on):
        notes.append("the network was trained on pictures predicted from unfiltered pictures, not from filtered ones")
    return [f"{note}; it may lower the quality of these pictures" for note in notes]


def _configurations(card: Card) -> set[str]:
    return {store.configuration for store in card.trained_on or ()}


def _untrained_configuration(trained_on: Sequence[TrainedOn], configuration: str) -> list[str]:
    known = {store.configuration for store in trained_on}
    if configuration in known:
        return []
    name = CONFIGURATION_NAMES.get(configuration, configuration)
    trained = {CONFIGURATION_NAMES.get(each, each) for each in known}
    return [f"the network was trained on pictures of {_listed(trained)}, not of {name}"]


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))
