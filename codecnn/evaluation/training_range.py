"""Notes on pictures and settings that a network was not trained for."""

from collections.abc import Sequence

from codecnn.codec import UNKNOWN_CODEC, standard_of
from codecnn.dataset import StoredRecipe
from codecnn.models import Card, TrainedOn
from codecnn.pictures.files import STANDARD_NAMES

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


def untrained_qps(card: Card, qps: Sequence[int]) -> str | None:
    """Describe what a filter does at QPs outside of its training range.

    Args:
        card: Card of the weights.
        qps: QPs that the network takes.

    Returns:
        A sentence; None if the network was trained for all of them.
    """
    outside = sorted({qp for qp in qps if untrained_qp(card, qp) is not None})
    if len(outside) < 2:
        return untrained_qp(card, outside[0]) if outside else None
    listed = ", ".join(map(str, outside))
    if not card.qps:
        return f"networks take QPs from 0 on; QPs {listed} are filtered as the nearest of them"
    trained = f"the network was trained for QP {min(card.qps)} to {max(card.qps)}"
    return f"{trained}; QPs {listed} are filtered as the nearest of them"


def other_codec(card: Card, codec: str) -> str | None:
    """Describe what weights do on pictures of a codec that none of their training pictures had.

    Args:
        card: Card of the weights.
        codec: Name of the standard, as `codecnn.pictures.files.stream_codec` returns it.

    Returns:
        A sentence with what was measured; None if the codec is among those of the training, or if the card does not
        describe the training set.
    """
    trained = _standards(card.trained_on or ())
    if not trained or codec in trained:
        return None
    names = {STANDARD_NAMES.get(each, each) for each in trained}
    note = f"the network was trained on pictures of {_listed(names)}, not of {STANDARD_NAMES.get(codec, codec)}"
    if trained == {"hevc"} and codec == "avc":
        return f"{note}; weights for HEVC gain on AVC (measured with x264)"
    if trained == {"hevc"} and codec == "av1" and _configurations(card) - {"ai"}:
        return f"{note}; such weights lost 0.57 dB on video of AV1 (measured with SVT-AV1)"
    return note


def trained_on_intra(card: Card) -> bool:
    """Return whether a card says that weights were trained on all intra pictures only."""
    return _configurations(card) == {"ai"}


def other_content(card: Card, content: str) -> str | None:
    """Describe what weights for all intra pictures do on video.

    An inter picture is predicted from pictures of lower slice QPs, so it has less error than an intra picture of its
    own slice QP, and weights for all intra filter it too strongly (docs/research/video.md).

    Args:
        card: Card of the weights.
        content: "intra" or "video".
    """
    if content != "video" or not trained_on_intra(card):
        return None
    return "the network was trained on all intra pictures, and these are inter pictures"


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
    trained_codecs = _standards(trained_on)
    if other := {standard_of(name) for name in codec_names} - trained_codecs - {UNKNOWN_CODEC}:
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


def _standards(trained_on: Sequence[TrainedOn]) -> set[str]:
    return {standard_of(codec) for store in trained_on for codec in store.codecs}


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
