"""Training on stores of several codecs: samples, QPs, validation of each store, the card, and results of each codec."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError
from codecnn.base.planes import QP_SCALE
from codecnn.dataset import build_store
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter
from codecnn.models import load_model
from codecnn.training import FilterSettings, psnr_gains
from codecnn.training.filter import filter_task, gains_by_store
from tests.helpers.networks import awaken
from tests.helpers.training import train_filter

OPTIONS = {"features": 4, "blocks": 1, "layers": 2, "growth": 4}
SETTINGS = {"steps": 6, "batch": 8, "patch": 32, "warmup": 1, "validate_every": 3, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def mix(tiny_store, tiny_recipe, tmp_path_factory):
    """The pictures of `tiny_recipe` in VVC (10 bit, CTU 64), AV1 (8 bit, superblock 128) and HEVC (8 bit, CTU 32)."""
    folder = tmp_path_factory.mktemp("stores")
    stores = [tiny_store]
    for codec, ctu_size, preset in (("av1", 128, 8), ("hevc", 32, "faster")):
        changes = [f"codec={codec}", f"ctu_size={ctu_size}", f"preset={preset}", "internal_bit_depth=8"]
        recipe = load_recipe(tiny_recipe, [*changes, f"name={codec}_tiny"])
        stores.append(build_store(recipe, tiny_recipe.parent, folder / f"tiny_{codec}"))
    return list(zip(stores, (0.5, 0.3, 0.2), strict=True))


@pytest.fixture(scope="module")
def run(mix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "mixed"
    train_filter(mix, "rdn", OPTIONS, SETTINGS, folder)
    return folder


def test_patches_of_all_codecs_have_one_scale(mix):
    """Samples of 8 and 10 bit and QPs of AV1 enter a network as those of VVC do."""
    task = filter_task(mix, "rdn", OPTIONS, FilterSettings(**SETTINGS))
    av1 = [(unit.qp, unit.pictures[0].qp, unit.pictures[0].quantiser) for unit in mix[1][0].split("train")]
    assert av1 == [(32, 32, 136), (42, 42, 200)]
    qps, means = set(), []
    for batch in task.batches(range(6), 0, 1, torch.device("cpu")):
        qps |= set((batch["qp"] * QP_SCALE).flatten().tolist())
        means += batch["orig_y"].mean(dim=(1, 2, 3)).tolist()
    assert qps == {32, 42}
    # The mean grey of the picture is the same everywhere; with a wrong bit depth it would be a quarter, or four times.
    assert min(means) > 0.35
    assert max(means) < 0.65


def test_the_card_lists_the_codec_and_share_of_each_store(run):
    _, card = load_model(run / "best.safetensors")
    listed = [(each.name, each.codec, each.ctu_size, each.configuration, each.share) for each in card.trained_on]
    expected = [
        ("tiny", "vvc", 64, "ai", 0.5),
        ("av1_tiny", "av1", 128, "ai", 0.3),
        ("hevc_tiny", "hevc", 32, "ai", 0.2),
    ]
    assert [each[:4] for each in listed] == [each[:4] for each in expected]
    assert [each[4] for each in listed] == pytest.approx([each[4] for each in expected])
    assert card.qps == (32, 42)
    assert "av1_tiny (av1 8 ai, 30%)" in card._repr_html_()


def test_validation_states_the_gain_of_each_store(mix, tiny_store):
    task = filter_task(mix, "rdn", OPTIONS, FilterSettings(**SETTINGS))
    model = awaken(task.model)
    figures = task.validate(model, torch.device("cpu")).figures
    expected = {
        store.folder.name: np.mean(list(psnr_gains(model, store.split("val"), "cpu")["y"].values())) for store, _ in mix
    }
    assert figures["gain_by_store_db"] == pytest.approx(expected)
    assert len(set(expected.values())) == 3
    assert figures["gain_mean_db"] == pytest.approx(np.mean(list(expected.values())))
    alone = filter_task(tiny_store, "rdn", OPTIONS, FilterSettings(**SETTINGS))
    assert "gain_by_store_db" not in alone.validate(alone.model, torch.device("cpu")).figures


def test_stores_of_one_folder_name_are_told_apart_by_numbers(tiny_store):
    other = dataclasses.replace(
        tiny_store, units=tuple(unit.model_copy(update={"folder": Path("other/tiny")}) for unit in tiny_store.units)
    )
    units = tiny_store.split("val") + other.split("val")
    gains = [{"y": [float(number)]} for number in range(len(units))]
    assert gains_by_store(units, gains) == {"1_tiny": 0.5, "2_tiny": 2.5}


def test_results_of_each_codec_have_no_note_on_other_codecs(run, mix, tmp_path):
    model, card = load_model(run / "best.safetensors")
    for store, _ in mix:
        entry = Entry("mixed", card, FloatFilter(model))
        (results,) = evaluate([entry], store, "test", tmp_path / store.folder.name)
        assert results.codec == store.manifest.recipe.codec
        assert not [note for note in results.notes if "trained" in note]
    (only_vvc,) = (each for each in card.trained_on if each.codec == "vvc")
    entry = Entry("vvc", dataclasses.replace(card, trained_on=(only_vvc,)), FloatFilter(model))
    (results,) = evaluate([entry], mix[1][0], "test", tmp_path / "vvc")
    assert any("trained on pictures of vvc, not of av1" in note for note in results.notes)


@pytest.mark.parametrize("setting", ["codec: hevc", "configuration: ra", "internal_bit_depth: 8", "qp: [22]"])
def test_a_mixture_in_one_recipe_is_refused_with_the_way_to_have_it(tiny_recipe, setting):
    with pytest.raises(ConfigError, match=rf"same {setting.split(':')[0]}: "):
        load_recipe(tiny_recipe, [f"encoders=[{{share: 1}}, {{share: 1, {setting}}}]"])
