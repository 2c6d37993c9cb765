"""Sentences for weights that are used on what they were not trained on, and none where they fit or nothing is known."""

import pytest

from codecnn.evaluation.summarise import summarise_rows
from codecnn.evaluation.unfit import untrained_coding, untrained_loop
from codecnn.models import as_card
from tests.helpers.filters import rate_rows

SEEN = {"name": "s", "share": 1.0, "encoder": "e", "codec": "vvc", "preset": "medium", "configuration": "ai"}
SEEN |= {"loop_filters": True, "ctu_size": 128}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"codec": "hevc"}, ["pictures of vvc, not hevc"]),
        ({"configuration": "ra"}, ["of all intra, not of random access"]),
        ({"configuration": "ldb"}, ["of all intra, not of low delay"]),
        ({"loop_filters": False}, ["with the codec's loop filters on"]),
        ({"codec": "hevc", "configuration": "ra"}, ["not hevc", "not of random access"]),
    ],
)
def test_a_sentence_for_each_thing_that_no_training_picture_had(tiny_store, changes, words):
    recipe = tiny_store.manifest.recipe.model_copy(update=changes)
    notes = untrained_coding(as_card({"trained_on": [SEEN]}), recipe, [recipe.codec])
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))
    assert untrained_coding(as_card({}), recipe, [recipe.codec]) == []
    both = as_card({"trained_on": [SEEN, SEEN | changes]})
    assert untrained_coding(both, recipe, [recipe.codec]) == []


def test_sentences_for_weights_in_the_loop_of_low_delay():
    low_delay = SEEN | {"configuration": "ldb"}
    looped = low_delay | {"in_loop": {"weights": "w", "network": "n", "sha256": "0", "decisions": "ctu"}}
    unfiltered = "predicted from unfiltered ones, not on what a loop leaves: it may do harm there"
    assert untrained_loop(as_card({})) == untrained_loop(as_card({"trained_on": [SEEN, looped]})) == []
    for seen, words in ((low_delay, [unfiltered]), (SEEN, ["of all intra, not of low delay", unfiltered])):
        notes = untrained_loop(as_card({"trained_on": [seen]}))
        assert len(notes) == len(words)
        assert all(word in note for word, note in zip(words, notes, strict=True))


def test_results_carry_the_sentences(tiny_store):
    card = as_card({"trained_on": [SEEN | {"codec": "hevc"}]})
    results = summarise_rows(rate_rows("a", 0.1), card, tiny_store, "test")
    assert any("pictures of hevc, not vvc" in note for note in results.notes)
