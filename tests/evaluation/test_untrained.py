"""Notes on weights that are applied to pictures unlike their training pictures."""

import pytest

from codecnn.codec import StreamPicture
from codecnn.evaluation import (
    joint_notes,
    other_codec,
    sequence_qp,
    summarise_rows,
    untrained_coding,
    untrained_loop,
    varying_qps,
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


def pictures(*layers):
    """Pictures of a stream, two of each (slice type, temporal layer, slice QP)."""
    return [StreamPicture(number, number, *layer[1::-1], (layer[2],)) for number, layer in enumerate(2 * layers)]


RANDOM_ACCESS = [("I", 0, 32), ("B", 0, 33), ("B", 1, 35), ("B", 2, 38), ("B", 3, 40), ("B", 4, 41)]
LOW_DELAY = [("I", 0, 42), ("B", 0, 43), ("B", 0, 50), ("B", 0, 49)]


@pytest.mark.parametrize(
    ("layers", "qp"),
    [
        (RANDOM_ACCESS, 32),
        (LOW_DELAY, 42),
        (RANDOM_ACCESS[1:], None),  # no intra picture
        ([("I", 0, 29), *RANDOM_ACCESS[1:]], None),  # IntraQPOffset -3, the common test conditions
        ([("I", 0, 28), *RANDOM_ACCESS[2:]], None),  # libvvenc -qp 32 -qpa 0, one group of pictures
        ([("I", 0, 23), ("B", 2, 31), ("B", 2, 32), ("B", 3, 33), ("B", 4, 35)], None),  # libvvenc -qp 32
        ([("I", 0, 28), ("B", 0, 32), ("B", 0, 39), ("B", 0, 40)], None),  # low delay with libvvenc's intra offset
        ([("I", 0, 28), ("B", 2, 36), ("B", 2, 31), ("B", 3, 33), ("B", 3, 37)], None),  # rate control
        ([*RANDOM_ACCESS, ("I", 0, 31)], None),
        ([*RANDOM_ACCESS, ("B", 3, 39)], None),
        ([("I", 0, 32)], None),
        ([("I", 0, 32), ("B", 0, 32)], None),
    ],
)
def test_the_qp_of_a_sequence_is_named_only_where_its_slices_leave_no_doubt(layers, qp):
    """Slice QPs by layer as real streams have them; an encoder that was set to QP 32 coded all but the last five."""
    given = pictures(*layers)
    assert sequence_qp(given) == qp
    note = varying_qps(as_card({"trained_on": [TRAINED_ON]}), given)
    assert (note is None) == (qp is None)
    if note:
        assert f"of a sequence of QP {qp}; on them such networks gain more" in note
        assert f"(-q {qp})" in note


def test_the_note_on_slice_qps_is_for_weights_for_all_intra():
    inter = TRAINED_ON | {"configuration": "ra"}
    for card in ({}, {"trained_on": [inter]}, {"trained_on": [TRAINED_ON, inter]}):
        assert varying_qps(as_card(card), pictures(*RANDOM_ACCESS)) is None


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
