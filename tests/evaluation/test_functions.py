"""Filters in memory: functions of a picture and modules of torch, and cells that hang on their code."""

import dataclasses
import json

import numpy as np
import pytest
from torch import nn

import codecnn
from codecnn.base.errors import ConfigError, ModelError
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter, FunctionFilter, filter_key, load_filter
from codecnn.models import as_card, as_filter_network, create_model, save_weights
from codecnn.pictures.files import Picture
from codecnn.pictures.metrics import psnr
from codecnn.signalling.updates import Part, Update, adapted, last_layers
from tests.helpers.networks import SMALL, awaken
from tests.helpers.own_networks import Net


def toward_grey(strength, log=None):
    def filter_luma(picture, qp):
        if log is not None:
            log.write_text(log.read_text() + f"{qp}\n")
        return picture.y + strength * (2 ** (picture.bit_depth - 1) - picture.y.astype(float))

    return filter_luma


def gain(results):
    return results[0].gain_db["y"]["mean"]


def test_function_without_card(tiny_store, tmp_path):
    (results,) = codecnn.evaluate(tiny_store, [toward_grey(0.01)], tmp_path)
    unit = tiny_store.split("test")[0]
    with unit.originals() as originals, unit.decoded() as decoded:
        y = decoded[0].y.astype(np.float64)
        expected = psnr(originals[0].y, np.rint(y + 0.01 * (512 - y)).astype(np.uint16), 10)
    row = next(row for row in results.sequences if row.qp == unit.qp)
    assert row.after.psnr["y"] == pytest.approx(expected, abs=1e-9)
    assert row.after.psnr["u"] == row.before.psnr["u"]
    written = json.loads((tmp_path / "results.json").read_text())
    assert (written["name"], written["weights_sha256"]) == ("filter_luma", None)


def test_kvazaar_codes_at_its_only_bit_depth(tmp_path):
    clip = tmp_path / "clip_64x64_25.yuv"
    np.random.default_rng(1).integers(60, 90, 64 * 64 * 3 // 2, np.uint8).tofile(clip)
    (results,) = codecnn.evaluate(clip, [toward_grey(0.01)], tmp_path / "out", codec="kvazaar", qps=[32])
    assert (results.qps, results.settings["internal_bit_depth"]) == ([32], 8)


def test_part_of_a_store_is_evaluated_alone(tiny_store, tmp_path):
    part = dataclasses.replace(tiny_store, units=tuple(unit for unit in tiny_store.units if unit.qp == 42))
    (results,) = codecnn.evaluate(part, [toward_grey(0.01)], tmp_path)
    assert results.qps == [42]
    assert codecnn.evaluate(tiny_store, [toward_grey(0.01)], tmp_path)[0].qps == [32, 42]


def test_changed_function_is_measured_again_and_an_equal_one_is_not(tiny_store, tmp_path):
    log = tmp_path / "log"
    log.write_text("")
    first = gain(codecnn.evaluate(tiny_store, toward_grey(0.01, log), tmp_path))
    assert log.read_text() == "32\n42\n32\n", "the cells, and the crop of the report"
    assert gain(codecnn.evaluate(tiny_store, toward_grey(0.05, log), tmp_path)) != first
    log.write_text("")
    assert gain(codecnn.evaluate(tiny_store, toward_grey(0.01, log), tmp_path)) == first
    assert log.read_text() == "32\n", "the cells are kept"


def test_function_with_a_state_is_measured_each_time_or_has_a_key(tiny_store, tmp_path):
    rng = np.random.default_rng(0)

    def noise(picture):
        return picture.y + rng.normal(0, 3, picture.y.shape)

    first, second = (codecnn.evaluate(tiny_store, [noise], tmp_path) for _ in range(2))
    assert gain(first) != gain(second)
    assert any("measured anew" in note and "give it a key" in note for note in second[0].notes)
    with pytest.raises(ConfigError, match="cannot be measured by several processes"):
        codecnn.evaluate(tiny_store, [noise], tmp_path, shard=(1, 2))
    first, second, third = (codecnn.evaluate(tiny_store, [noise], tmp_path, key=key) for key in ("a", "a", "b"))
    assert gain(first) == gain(second) != gain(third)
    assert not any("measured anew" in note for note in second[0].notes)
    assert gain(codecnn.evaluate(tiny_store, FunctionFilter(noise, key="a"), tmp_path)) != gain(first)


def test_the_whole_card_counts(tiny_store, tmp_path):
    """The same weights with other training QPs on the card filter another QP."""
    path = tmp_path / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL), std=0.3), "rdn", {"qps": [32, 42]})
    both = gain(codecnn.evaluate(tiny_store, path, tmp_path / "out"))
    card = path.with_suffix(".json")
    card.write_text(json.dumps(json.loads(card.read_text()) | {"qps": [32]}))
    only = gain(codecnn.evaluate(tiny_store, path, tmp_path / "out"))
    assert both != only == gain(codecnn.evaluate(tiny_store, path, tmp_path / "fresh"))


def test_adapted_filter_has_a_key_of_its_own():
    filter_ = load_filter("low_cost_5")
    (layer,) = last_layers(filter_, "low_cost_5")
    changed = [adapted(filter_, Update((Part(0, (value,) * layer.size),)), "low_cost_5") for value in (1, 2)]
    assert len({filter_key(each) for each in [filter_, *changed]}) == 3


def test_changed_network_is_measured_again(tiny_store, tmp_path):
    network = awaken(Net(), std=0.3)
    (first,) = codecnn.evaluate(tiny_store, network, tmp_path, device="cpu")
    assert (first.name, first.kmac_per_pixel) == ("Net", pytest.approx(0.108))
    with FloatFilterOf(network, tiny_store) as expected:
        assert first.sequences[0].after.psnr["y"] == pytest.approx(expected, abs=1e-9)
    nn.init.zeros_(network.layers[-1].weight)
    (second,) = codecnn.evaluate(tiny_store, network, tmp_path, device="cpu")
    assert gain([first]) != gain([second])


class FloatFilterOf:
    """PSNR of the first picture of the split test through a network."""

    def __init__(self, network, store):
        self.filter, self.unit = FloatFilter(as_filter_network(network)), store.split("test")[0]

    def __enter__(self):
        with self.unit.originals() as originals, self.unit.decoded() as decoded:
            return psnr(originals[0].y, self.filter(decoded[0], self.unit.qp).y, 10)

    def __exit__(self, *error):
        return None


def test_weights_of_a_network_of_the_user_hang_on_its_code(tiny_store, tmp_path):
    """Two classes with equal weights and one card: only their code tells them apart."""

    class Half(Net):
        def forward(self, planes):
            return (super().forward(planes) + planes["rec_y"][:, :, 2:-2, 2:-2]) / 2

    nets = [awaken(kind(), std=0.3) for kind in (Net, Half)]
    card = as_card({"network": "x:Net", "sha256": "0" * 64})
    gains = [
        gain(evaluate([Entry.of(FloatFilter(as_filter_network(net)), "net", card=card)], tiny_store, "test", tmp_path))
        for net in nets
    ]
    assert gains[0] != gains[1]


def test_filters_with_decisions_and_with_the_same_name(tiny_store, tmp_path):
    results = codecnn.evaluate(tiny_store, [toward_grey(0.01), toward_grey(0.02)], tmp_path, decisions="ctu")
    assert [each.name for each in results] == ["filter_luma_1", "filter_luma_2"]
    assert all(each.gain_db["y"]["mean"] >= 0 for each in results)


def two(picture, strength):
    return picture


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (two, ConfigError, "two needs the argument 'strength'"),
        (lambda picture: picture.y[1:], ModelError, "returns planes 8x5 4x3 4x3 of 10 bits for planes 8x6"),
        (lambda picture: None, ModelError, "returns NoneType for planes 8x6"),
        (lambda picture: picture.y * np.nan, ModelError, "not finite"),
        (lambda picture: Picture(picture.planes, 8), ModelError, "of 8 bits for planes"),
    ],
)
def test_functions_that_do_not_fit(function, error, message):
    planes = tuple(np.zeros(shape, np.uint16) for shape in ((6, 8), (3, 4), (3, 4)))
    with pytest.raises(error, match=message):
        FunctionFilter(function)(Picture(planes, 10), 32)


@pytest.mark.parametrize(("depth", "lowest"), [(8, 0), (10, -12)])
def test_functions_take_every_slice_qp_of_the_bit_depth(depth, lowest):
    """Slice QPs begin at -QpBdOffset (H.266 clause 7.4.3.8)."""
    picture, seen = Picture((np.zeros((6, 8), np.uint16),), depth), []
    filter_ = FunctionFilter(lambda picture, qp: seen.append(qp) or picture.y)
    for qp in (lowest, -3 if lowest else 3, 63):
        filter_(picture, qp)
    assert seen == [lowest, -3 if lowest else 3, 63]
    for qp in (lowest - 1, 64):
        with pytest.raises(ConfigError, match=rf"QP {qp} .* {lowest} to 63"):
            filter_(picture, qp)


def test_function_that_works_in_place_leaves_the_decoded_picture():
    def brighten(picture):
        picture.y[:] += 1
        return picture

    decoded = Picture((np.zeros((6, 8), np.uint16),), 10)
    assert FunctionFilter(brighten)(decoded, 32).y.max() == 1
    assert decoded.y.max() == 0
