"""Weights that come with the package: names, cards, gains, integers, and the tools that ship them."""

import functools
import json
import re
import shutil
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.base.files import read_json, write_json
from codecnn.codec import CodecSettings, get_codec
from codecnn.filtering import FloatFilter, load_filter
from codecnn.filtering.integer import ExactFilter, find_integers, integer_path
from codecnn.models import (
    complexity,
    create_model,
    describe_model,
    list_models,
    list_weights,
    load_model,
    path_of_sha256,
    read_card,
    register,
    revive,
    save_weights,
    shipped_weights,
    weights_path,
    zoo_cards,
)
from codecnn.models import zoo as zoo_names
from codecnn.models.base import ARCHITECTURES
from codecnn.models.families.low_cost import LowCost
from codecnn.models.zoo import FOLDER
from codecnn.pictures.files import Picture, VideoFormat, open_raw
from codecnn.pictures.metrics import psnr
from tools import zoo

NAMES = list_weights()
LUMA = [name for name in NAMES if set(zoo_cards()[name].options["planes"]) == {"rec_y", "qp"}]
INTEGERS = [(path.stem.rpartition(".")[0], path) for path in sorted(FOLDER.glob("*.int*.safetensors"))]
SHIPPED = {weights.full_name: weights for weights in shipped_weights()}


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """Original and decoded luma, 10 bit, of a photograph outside the training set, coded by libvvenc at QP 37."""
    folder = tmp_path_factory.mktemp("coded")
    luma = (skimage.data.coffee()[132:324, 182:374].astype(float) @ [0.299, 0.587, 0.114]).round().astype("<u2") * 4
    form = VideoFormat(192, 192, "400", 10)
    luma.tofile(folder / "coffee.yuv")
    (folder / "out").mkdir()
    settings = CodecSettings(qp=37, preset="fast", ctu_size=64)
    sequence = get_codec("vvc").encode(folder / "coffee.yuv", form, settings, folder / "out")
    with open_raw(sequence.decoded, sequence.format) as video:
        return luma, video[0].y


def gain(filter_, coded, part=np.s_[:, :]):
    """Return the PSNR gain of a filter on a part of the picture in dB."""
    original, decoded = (plane[part] for plane in coded)
    filtered = filter_.samples(Picture((decoded,), 10), 37, {"rec_y": decoded})["y"]
    return psnr(filtered, original, 10) - psnr(decoded, original, 10)


def test_weights_cover_all_sizes_in_few_bytes():
    costs = sorted(card.kmac_per_pixel for card in zoo_cards().values())
    assert costs[0] <= 5
    assert any(5 < cost <= 17.5 for cost in costs)
    assert any("rec_u" in card.options["planes"] for card in zoo_cards().values())
    assert any("unf_y" in card.options["planes"] and card.kmac_per_pixel <= 18 for card in zoo_cards().values())
    assert {"rdn_32_3_6_16", "rdn_32_4_6_24", "rdn_64_4_6_24_shuffle"} < zoo_cards().keys()
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 40e6


def test_cards_contain_no_absolute_paths():
    paths = {path.name: re.findall(r'"(?:/|~|[A-Za-z]:\\)[^"]*"', path.read_text()) for path in FOLDER.glob("*.json")}
    assert len(paths) == len(NAMES) + len(INTEGERS)
    assert not any(paths.values()), paths


@pytest.mark.parametrize("name", [*NAMES, *zoo_names.EXTRA])
def test_cards_have_provenance_and_test_gains(name):
    _, card = load_model(name)
    assert len(card.data_key) == 64
    assert card["provenance"]["argv"]
    assert card["validation"]["seconds"] > 0
    assert card["test"]["store"]["data_key"] != card.data_key
    gains = {qp: gain for qp, gain in card.test.gain_db["y"].items() if qp != "mean"}
    if card["test"]["settings"].get("rate") is None:
        assert {int(qp) for qp in gains} <= set(range(min(card.qps), max(card.qps) + 1))
    assert len(gains) >= 4  # as a BD-rate needs
    assert card.test.gain_db["y"]["mean"] == pytest.approx(np.mean(list(gains.values())), abs=1e-9)
    assert card.test.bd_rate["y"] < 0
    text = json.dumps(dict(card))
    assert "/home/" not in text
    assert "/tmp/" not in text


@pytest.mark.parametrize("name", LUMA)
def test_weights_gain_on_a_picture_coded_in_the_test(name, coded):
    assert gain(load_filter(name), coded) > 0.03


@pytest.mark.parametrize("name", LUMA)
def test_no_unit_of_a_block_is_dead(name, coded):
    """A unit that is zero everywhere has a cost and no effect."""
    _, decoded = coded
    planes = torch.from_numpy(decoded.astype(np.float32) / 1024)[None, None]
    batches = [{"rec_y": planes, "qp": torch.full((1, 1, 1, 1), qp / 64)} for qp in (22, 32, 42)]
    model, _ = load_model(name)
    assert revive(model, batches) == {}


def test_all_networks_have_integers_of_8_bits():
    assert {weights.integers for weights in SHIPPED.values()} == {("int8",)}
    named = {weights_path(f"{name}.{suffix}") for name, weights in SHIPPED.items() for suffix in weights.integers}
    assert named == {path for _, path in INTEGERS}


@pytest.mark.parametrize(
    ("name", "path"),
    [pair for pair in INTEGERS if SHIPPED[pair[0]].name in LUMA],
    ids=lambda value: getattr(value, "stem", ""),
)
def test_integers_gain_as_much_as_float(name, path, coded):
    gains = [gain(load_filter(weights), coded, np.s_[48:144, 48:144]) for weights in (name, path)]
    assert gains[0] > 0.03
    # The tolerance is the loss of 8 bits in the worst picture (docs/research/integer_cost.md).
    assert gains[1] == pytest.approx(gains[0], abs=0.02)


def test_exact_selects_8_bits():
    """The 8-bit form of every name is loaded by `test_every_name_of_weights_loads_and_builds`."""
    assert all(find_integers(weights_path(name)).name.endswith(".int8.safetensors") for name in NAMES)
    assert load_filter(NAMES[0], exact=True).network.bits == 8


@functools.cache
def cost_of(network, options):
    """Return the cost of an architecture with options in JSON."""
    return complexity(create_model(network, **json.loads(options)))


def shapes(model):
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_name_of_weights_loads_and_builds(name):
    """Every printed name loads, builds the same architecture, and its card has the right cost.

    Its integers take the same planes, and were made from these float weights.
    """
    weights = SHIPPED[name]
    assert weights.name == (weights.architecture if weights.default else name)
    model, card = load_model(name)
    aliases = {name, weights.name}
    for alias in aliases:
        assert weights_path(alias) == weights.path
        created = create_model(alias, **{key: card.options[key] for key in ("qp_range",) if key in card.options})
        assert shapes(created) == shapes(model)
        assert created.options == card.options
    assert weights.architecture in list_models()
    assert describe_model(name)
    cost = cost_of(card.network, json.dumps(dict(card.options)))
    assert (card.kmac_per_pixel, card.parameters) == (pytest.approx(cost.kmac_per_pixel), cost.parameters)
    in_float = load_filter(name)
    assert isinstance(in_float, FloatFilter)
    (path,) = {weights_path(f"{alias}.int8") for alias in aliases}
    integers = load_filter(path)
    assert isinstance(integers, ExactFilter)
    assert integers.network.bits == 8
    assert integers.card.source_sha256 == card.sha256
    assert set(integers.planes) == set(in_float.planes)


def test_earlier_names_of_weights_are_valid():
    for old, present in zoo_names.OLD_NAMES.items():
        path = weights_path(present)
        for before in (old, old if "." in old else f"{old}.vvc"):
            assert weights_path(before) == path
            assert weights_path(f"{before}.int8") == integer_path(path, 8)
    for old in ("low_cost_17_unf.hevc", "low_cost_17_video", "low_cost_yuv_17_dec_mc.video"):
        model, card = load_model(old)
        assert create_model(old).planes == model.planes
        assert card == load_model(zoo_names.OLD_NAMES[old])[1]
    assert create_model("low_cost_17_video").planes[-1] == "slice_type"
    assert weights_path("modes_8.int16").name == "modes_8.int16.safetensors"


def test_unknown_tags_and_integers_are_errors_that_list_the_known_ones():
    message = (
        "low_cost_17 has no weights with the tag 'vp9': "
        "its tags are av1, av1_video_mc, avc_video_mc, hevc, hevc_unf, hevc_video_mc, vvc, "
    )
    with pytest.raises(ModelError, match=message):
        create_model("low_cost_17.vp9")
    with pytest.raises(MissingFileError, match=message):
        load_filter("low_cost_17.vp9")
    with pytest.raises(ModelError, match="tag 'vvc'"):
        create_model("rdn.vvc")
    with pytest.raises(MissingFileError, match=r"low_cost_75 .* \.int16"):
        load_filter("low_cost_75.int16")
    with pytest.raises(ModelError, match="load_filter"):
        load_model("low_cost_17.int8")


def test_replaced_weights_are_errors_that_name_their_successor():
    for name, successor in zoo_names.SUCCESSORS.items():
        for asked in (name, f"{name}.int8", name.partition(".")[0]):
            with pytest.raises(MissingFileError, match=f"{successor}"):
                load_filter(asked)
        with pytest.raises(ModelError, match=f"{name} no longer come with codecnn: {successor} replaced them"):
            create_model(name)
        assert weights_path(successor).is_file()


def test_weights_of_the_repository_are_found_by_name_in_a_checkout(monkeypatch, tmp_path):
    for name in zoo_names.EXTRA:
        path = zoo_names.EXTRA_FOLDER / f"{name}.safetensors"
        model, card = load_model(name)
        assert weights_path(name) == path
        assert weights_path(f"{name}.int8") == path.with_suffix(".int8.safetensors")
        assert load_filter(f"{name}.int8").card.source_sha256 == card.sha256
        assert shapes(create_model(name)) == shapes(model)
        assert path_of_sha256(card.sha256) == path
        assert path_of_sha256(read_json(path.with_suffix(".int8.json"))["sha256"]) == integer_path(path, 8)
    assert not set(zoo_names.EXTRA) & set(NAMES), "the package does not list them"
    monkeypatch.setattr("codecnn.models.zoo.EXTRA_FOLDER", tmp_path)
    for name in zoo_names.EXTRA:
        message = rf"{name} are too large .* weights/{name}\.safetensors and its card weights/{name}\.json"
        with pytest.raises(MissingFileError, match=message):
            load_filter(name)
    with pytest.raises(ModelError, match=r"low_cost_400\.hevc_unf"):
        create_model("low_cost_400_unf.hevc")
    with pytest.raises(MissingFileError, match=r"low_cost_400\.vvc_unf"):
        load_filter("low_cost_400")
    assert create_model("low_cost_400", planes="unfiltered").planes == ("rec_y", "qp", "unf_y"), "can be trained"


def test_new_weights_need_only_a_file_and_a_card(tmp_path, monkeypatch):
    monkeypatch.setattr("codecnn.models.zoo.FOLDER", tmp_path)
    planes = ["rec_y", "qp", "depth"]
    for tag in ("vvc", "hevc", "vvc-slow"):
        options = {"planes": planes} if tag == "hevc" else {}
        model = create_model("low_cost_17", **options)
        save_weights(tmp_path / f"low_cost_17.{tag}.safetensors", model, "low_cost_17", {})
    save_weights(tmp_path / "low_cost_5.hevc.safetensors", create_model("low_cost_5"), "low_cost_5", {})
    assert list_weights() == ["low_cost_17", "low_cost_17.hevc", "low_cost_17.vvc-slow", "low_cost_5"]
    assert list(create_model("low_cost_17.hevc").planes) == planes
    assert create_model("low_cost_17.hevc", planes=["rec_y", "qp"]).planes == ("rec_y", "qp")
    assert weights_path("low_cost_17") == weights_path("low_cost_17.vvc") == tmp_path / "low_cost_17.vvc.safetensors"
    assert load_model("low_cost_17.vvc-slow")[1].network == "low_cost_17"
    assert weights_path("low_cost_5") == weights_path("low_cost_5.hevc"), "the only tag is the default"


def test_an_architecture_of_a_user_is_registered(monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "user_net", None)  # which is undone after the test
    register("user_net", LowCost, "A network.", features=8, blocks=1)
    assert "user_net" in list_models()
    assert describe_model("user_net") == "A network."
    assert create_model("user_net", blocks=2).options["blocks"] == 2
    with pytest.raises(MissingFileError, match="user_net"):
        weights_path("user_net")
    with pytest.raises(ModelError, match=r"\'user\.net\'"):
        register("user.net", LowCost, "A network.")


def test_a_name_is_a_shipped_file_unless_a_file_of_that_name_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAMES[0]).mkdir()  # a training run with the name of its network
    assert weights_path(NAMES[0]) == FOLDER / f"{NAMES[0]}.vvc.safetensors"
    assert weights_path("runs/low_cost_17") == Path("runs/low_cost_17")
    save_weights(tmp_path / f"{NAMES[0]}.safetensors", create_model("low_cost_5"), "low_cost_5", {})
    assert weights_path(f"{NAMES[0]}.safetensors") == Path(f"{NAMES[0]}.safetensors")
    with pytest.raises(MissingFileError, match="'low_cost_17'"):
        weights_path("low_cost_18")


def test_the_command_line_accepts_names(run, tmp_path, coded):
    _, decoded = coded
    decoded.astype("<u2").tofile(tmp_path / "in_192x192_10bit.yuv")
    name = LUMA[0]
    for number, weights in enumerate((name, str(weights_path(name)))):
        output = ["-o", tmp_path / f"out{number}.yuv"]
        picture = ["-i", tmp_path / "in_192x192_10bit.yuv", "--chroma", "400", "-q", "37"]
        assert run("filter", "-m", weights, *picture, *output)[0] == 0
    assert (tmp_path / "out0.yuv").read_bytes() == (tmp_path / "out1.yuv").read_bytes()
    assert (tmp_path / "out0.yuv").read_bytes() != (tmp_path / "in_192x192_10bit.yuv").read_bytes()
    listed = json.loads(run("models", "--json")[1])
    assert {weights["name"] for network in listed for weights in network["weights"]} == set(NAMES)
    assert read_card(weights_path(name)).network in {network["name"] for network in listed}


def test_a_run_is_shipped_with_the_figures_of_an_evaluation(tiny_recipe, run, tmp_path, monkeypatch):
    monkeypatch.setattr("codecnn.models.zoo.FOLDER", tmp_path / "zoo")
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    store, recipe = tmp_path / "store", tmp_path / "classes.yaml"
    shutil.copy(tiny_recipe.parent / "small.png", tmp_path / "other.png")
    another = f"  - {{source: {tmp_path / 'other.png'}, split: test, class: b}}\n"
    recipe.write_text(tiny_recipe.read_text().replace("split: test", "split: test, class: a") + another)
    overrides = ["qp=[22,27,32,37]", f"root={tiny_recipe.parent}"]
    assert run("dataset", "build", recipe, *overrides, "-o", store, "-j", "2")[0] == 0
    settings = ["training.steps=3", "training.batch=2", "training.patch=16", "training.compile=false"]
    settings += [f"store={store}", "model.name=low_cost_5", "-o", tmp_path / "runs/tiny"]
    assert run("train", "configs/zoo.yaml", *settings)[0] == 0
    zoo.main(["ship", str(tmp_path / "runs/tiny"), "tiny.vvc", "--store", str(store), "--store", str(store)])
    eight = read_json(tmp_path / "zoo/tiny.vvc.int8.json")
    assert eight["calibration"]["data_keys"] == [read_json(store / "manifest.json")["data_key"]] * 2
    assert "not tested" in run("models")[1]
    assert run("evaluate", store, "-m", "tiny", "--exact", "-o", tmp_path / "results")[0] == 0
    table = zoo.write_figures(tmp_path / "results/results.json")
    zoo.draw_curves([tmp_path / "runs/tiny"], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000

    results = {model["name"]: model for model in read_json(tmp_path / "results/results.json")["models"]}
    _, card = load_model("tiny")
    assert card["test"]["gain_db"] == results["zoo/tiny.vvc"]["gain_db"]
    assert card.test.over_classes.bd_rate_y == results["zoo/tiny.vvc"]["over_classes"]["bd_rate_y"]
    assert f"**{card.test.over_classes.bd_rate_y:+.2f} %**" in table
    (listed,) = [weights for network in json.loads(run("models", "--json")[1]) for weights in network["weights"]]
    assert (listed["classes"], listed["bd_rate"]) == (2, card.test.over_classes.bd_rate_y)
    assert card["test"]["integers_lose"]["db"] == results["zoo/tiny.vvc.int8"]["loss_to_float"]["db"]
    assert run("evaluate", store, "-m", "tiny", "--float", "-o", tmp_path / "float")[0] == 0
    zoo.write_figures(tmp_path / "float/results.json")
    assert load_model("tiny")[1]["test"] == card["test"]  # the loss of the integers is kept from before
    assert card["training"]["steps"] == 3
    assert card["sha256"] == load_model(tmp_path / "runs/tiny/best.safetensors")[1]["sha256"]
    assert table.count("\n") == 3
    assert f"{results['zoo/tiny.vvc']['gain_db']['y']['mean']:+.3f}" in table.splitlines()[2]
    # Integers alone are figures of their own; pictures of one class give their means.
    assert run("evaluate", store, "-m", "tiny", "-o", tmp_path / "eight")[0] == 0
    content = read_json(tmp_path / "eight/results.json")
    del content["over_classes"]
    write_json(tmp_path / "eight/results.json", content)
    table = zoo.write_figures(tmp_path / "eight/results.json")
    _, integers = load_model("tiny")
    assert (integers.test.bits, integers.test.over_classes) == (8, None)
    assert integers.test.luma == (content["gain_db"]["y"]["mean"], content["bd_rate"]["y"])
    assert f"**{content['bd_rate']['y']:+.2f} %**" in table
    zoo.write_figures(tmp_path / "results/results.json")
    # Weights that compute the same as before keep the test figures, and name the QPs and stores of both trainings.
    again = tmp_path / "runs/tiny/best.json"
    again.write_text(json.dumps(read_json(again) | {"qps": [17, 22]}))
    zoo.main(["ship", str(tmp_path / "runs/tiny"), "tiny.vvc", "--store", str(store)])
    kept = load_model("tiny")[1]
    assert kept.qps == (17, 22, 27, 32, 37)
    assert kept["trained_on"] == card["trained_on"] * 2
    assert kept["test"] == {key: value for key, value in card["test"].items() if key != "integers_lose"}
    status, _, error = run("evaluate", store, "-m", "small", "-o", tmp_path / "results")
    assert status == 1
    assert "small is neither a file nor the name of weights that come with codecnn: `codecnn models`" in error
    save_weights(tmp_path / "zoo/tiny.vvc.safetensors", create_model("low_cost_17"), "low_cost_17", {})
    with pytest.raises(SystemExit, match="other weights"):
        zoo.write_figures(tmp_path / "results/results.json")


def test_a_card_is_a_record_and_the_mapping_of_its_json(tmp_path):
    path = weights_path(NAMES[0]).with_suffix(".json")
    card, content = read_card(path), json.loads(path.read_text())
    assert json.dumps(dict(card)) == json.dumps(content), "all keys, in their order"
    assert (card["sha256"], card.get("none"), len(card)) == (card.sha256, None, len(content))
    changed = card | {"qps": [1, 2], "note": "x"}
    assert (changed.qps, changed["note"], changed.network) == ((1, 2), "x", card.network)
    assert card.qps == (17, 22, 27, 32, 37, 42)
    with pytest.raises(FrozenInstanceError):
        card.qps = ()
    (tmp_path / "a.json").write_text(json.dumps(content | {"qps": ["many"]}))
    with pytest.raises(ModelError, match=r"a\.json .* qps\.0: "):
        read_card(tmp_path / "a.safetensors")
