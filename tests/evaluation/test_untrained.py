"""Notes on weights that are applied to pictures unlike their training pictures."""

import pytest

from codecnn.evaluation import (
    joint_notes,
    other_codec,
    other_content,
    summarise_rows,
    trained_on_intra,
    untrained_coding,
    untrained_loop,
    untrained_qps,
)
from codecnn.models import as_card
from tests.helpers.filters import rate_rows

TRAINED_ON = {"name": "s", "share": 1.0, "encoder": "e", "codec": "vvc", "preset": "medium", "configuration": "ai"}
TRAINED_ON |= {"loop_filters": True, "ctu_size": 128}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"codec": "hevc"}, ["pictures of vvc, not of hevc"]),
        ({"codec": "vtm"}, []),
        ({"configuration": "ra"}, ["of all intra, not of random access"]),
        ({"configuration": "ldb"}, ["of all intra, not of low delay"]),
        ({"loop_filters": False}, ["with the codec's loop filters on"]),
        ({"codec": "hevc", "configuration": "ra"}, ["not of hevc", "not of random access"]),
    ],
)
def test_each_property_that_no_training_picture_had_gives_a_note(tiny_store, changes, words):
    recipe = tiny_store.manifest.recipe.model_copy(update=changes)
    notes = untrained_coding(as_card({"trained_on": [TRAINED_ON]}), recipe, [recipe.codec])
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))
    assert untrained_coding(as_card({}), recipe, [recipe.codec]) == []
    both = as_card({"trained_on": [TRAINED_ON, TRAINED_ON | changes]})
    assert untrained_coding(both, recipe, [recipe.codec]) == []


@pytest.mark.parametrize(
    ("configuration", "content", "noted"), [("ai", "video", True), ("ai", "intra", False), ("ra", "video", False)]
)
def test_weights_for_all_intra_on_video_give_a_note(configuration, content, noted):
    card = as_card({"trained_on": [TRAINED_ON | {"configuration": configuration}]})
    assert (other_content(card, content) is not None) == noted
    assert trained_on_intra(card) == (configuration == "ai")


def test_one_note_for_all_qps_outside_of_the_training():
    card = as_card({"qps": [22, 27, 32, 37, 42]})
    assert untrained_qps(card, [22, 30, 42]) is None
    assert "QP 20 is filtered as QP 22" in untrained_qps(card, [30, 20])
    assert "20, 43" in untrained_qps(card, [43, 30, 20, 20])


@pytest.mark.parametrize(
    ("trained", "configuration", "codec", "words"),
    [
        ("vvc", "ai", "vvc", None),
        ("vvc and hevc", "ai", "hevc", None),
        ("vtm", "ai", "vvc", None),
        ("svtav1", "ra", "av1", None),
        ("vvc", "ai", "hevc", "pictures of VVC, not of HEVC"),
        ("kvazaar", "ai", "av1", "pictures of HEVC, not of AV1"),
        ("hevc", "ra", "av1", "pictures of HEVC, not of AV1; such weights lost 0.57 dB on video of AV1"),
        ("hevc", "ai", "avc", "pictures of HEVC, not of AVC; weights for HEVC gain on AVC"),
        ("av1", "ai", "avc", "pictures of AV1, not of AVC"),
    ],
)
def test_weights_of_another_codec(trained, configuration, codec, words):
    """The sentence says what was measured, and nothing where nothing was."""
    store = TRAINED_ON | {"codec": trained, "configuration": configuration}
    note = other_codec(as_card({"trained_on": [store]}), codec)
    if words is None:
        assert note is None
        return
    assert f"trained on {words}" in note
    assert ("measured" in note) == (";" in words)
    assert other_codec(as_card({}), codec) is None


def test_notes_on_weights_in_the_loop_of_low_delay():
    low_delay = TRAINED_ON | {"configuration": "ldb"}
    looped = low_delay | {"in_loop": {"weights": "w", "network": "n", "sha256": "0", "decisions": "ctu"}}
    unfiltered = "predicted from unfiltered pictures, not from filtered ones; it may lower the quality"
    assert untrained_loop(as_card({})) == untrained_loop(as_card({"trained_on": [TRAINED_ON, looped]})) == []
    for seen, words in ((low_delay, [unfiltered]), (TRAINED_ON, ["of all intra, not of low delay", unfiltered])):
        notes = untrained_loop(as_card({"trained_on": [seen]}))
        assert len(notes) == len(words)
        assert all(word in note for word, note in zip(words, notes, strict=True))


def test_results_contain_the_notes(tiny_store):
    card = as_card({"trained_on": [TRAINED_ON | {"codec": "hevc"}]})
    results = summarise_rows(rate_rows("a", 0.1), card, tiny_store, "test")
    assert any("pictures of hevc, not of vvc" in note for note in results.notes)


def test_a_note_on_one_of_several_filters_names_it(tiny_store):
    rows = rate_rows("a", 0.1)
    other_codec = as_card({"trained_on": [TRAINED_ON | {"codec": "hevc"}]})
    first, second = (summarise_rows(rows, card, tiny_store, "test") for card in (other_codec, as_card({})))
    first = first.model_copy(update={"name": "first", "notes": (*first.notes, "of both")})
    second = second.model_copy(update={"name": "second", "notes": (*second.notes, "of both")})
    (note,) = (note for note in first.notes if "not of vvc" in note)
    assert set(joint_notes([first, second])) == {f"first: {note}", "of both"}
    assert set(joint_notes([first])) == {note, "of both"}
