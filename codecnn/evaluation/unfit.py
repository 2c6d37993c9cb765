"""What weights were not trained for: sentences for whoever uses them there all the same."""

from collections.abc import Sequence

from codecnn.codec import UNKNOWN_CODEC
from codecnn.dataset import StoredRecipe
from codecnn.models import Card, TrainedOn

_NAMES = {"ai": "all intra", "ra": "random access", "ldb": "low delay"}


def untrained_qp(card: Card, qp: int) -> str | None:
    """A sentence where `qp` lies outside of the QPs that the weights of `card` were trained at, else None."""
    qps, nearest = card.qps, card.nearest_qp(qp)
    if not qps or nearest == qp:
        return None
    return f"the network was trained at QP {min(qps)} to {max(qps)}: of QP {qp} it makes what it makes of {nearest}"


def untrained_coding(card: Card, recipe: StoredRecipe, codecs: Sequence[str]) -> list[str]:
    """Sentences on the `codecs`, the configuration and the loop filters of `recipe` that no training pictures had.

    Weights whose card does not tell what they were trained on have none. Why configurations matter: a picture that
    predicts from others copies much from pictures that look filtered already, of which weights of all intra know none.
    """
    seen = card.trained_on
    if not seen:
        return []
    notes = []
    trained_codecs = {codec for one in seen for codec in one.codecs}
    if other := set(codecs) - trained_codecs - {UNKNOWN_CODEC}:
        notes.append(f"the network was trained on pictures of {_listed(trained_codecs)}, not {_listed(other)}")
    notes += _untrained_configuration(seen, recipe.configuration)
    if recipe.loop_filters not in {one.loop_filters for one in seen}:
        state = "off" if recipe.loop_filters else "on"
        notes.append(f"the network was trained on pictures with the codec's loop filters {state}")
    return [f"{note}: it may do harm there" for note in notes]


def untrained_loop(card: Card) -> list[str]:
    """Sentences on weights for the loop of low delay whose training pictures no loop with a filter had left.

    In the loop a filter gets again, in part, what it has filtered before. Weights whose card does not tell what they
    were trained on have none.
    """
    seen = card.trained_on
    if not seen:
        return []
    notes = _untrained_configuration(seen, "ldb")
    if all(one.in_loop is None for one in seen):
        notes.append("the network was trained on pictures predicted from unfiltered ones, not on what a loop leaves")
    return [f"{note}: it may do harm there" for note in notes]


def _untrained_configuration(seen: Sequence[TrainedOn], configuration: str) -> list[str]:
    known = {one.configuration for one in seen}
    if configuration in known:
        return []
    name, trained = _NAMES.get(configuration, configuration), {_NAMES.get(one, one) for one in known}
    return [f"the network was trained on pictures of {_listed(trained)}, not of {name}"]


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))
