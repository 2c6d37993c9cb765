"""Plain modules of PyTorch as networks: what is measured, what is refused, and weights that name foreign code."""

import json
import shutil
from importlib import metadata

import pytest
import torch

from codecnn.base import user_code
from codecnn.base.errors import ConfigError, ModelError, UserCodeWarning
from codecnn.base.files import read_json, write_json
from codecnn.filtering import FloatFilter, load_filter
from codecnn.models import (
    AdaptedNetwork,
    as_filter_network,
    card_path,
    complexity,
    create_model,
    describe_model,
    full_cost,
    list_models,
    load_model,
    save_weights,
)
from codecnn.pictures.files import Picture
from tests.helpers import own_networks
from tests.helpers.networks import awaken

GEOMETRY = {
    "Net": (2, 2, 1, ("y",)),
    # A sample depends on whole cells of 2x2, two cells away.
    "Shuffled": (0, 5, 2, ("y",)),
    "Strided": (0, 10, 4, ("y",)),
    "PaddedInside": (0, 3, 4, ("y",)),
    # 5x5 at half the resolution: two samples of 2x2 on each side.
    "Colour": (0, 4, 2, ("y", "u", "v")),
    "Linear": (0, 3, 4, ("y",)),
}


def reference(name):
    return f"tests.helpers.own_networks:{name}"


@pytest.mark.parametrize("name", GEOMETRY)
def test_geometry_is_measured_and_tiles_give_the_whole_picture(name):
    model = create_model(reference(name))
    halo, radius, stride, outputs = GEOMETRY[name]
    assert (model.halo, model.stride, model.outputs) == (halo, stride, outputs)
    assert radius <= model.radius <= radius + (name == "Colour")
    awaken(model)
    rng = torch.Generator().manual_seed(1)
    sizes = [(150, 122), (75, 61), (75, 61)]
    picture = Picture(tuple(torch.randint(0, 1024, size, generator=rng).numpy().astype("uint16") for size in sizes), 10)
    whole, tiled = (FloatFilter(model, tile=tile).samples(picture, 37) for tile in (None, 32))
    for component in outputs:
        torch.testing.assert_close(torch.tensor(tiled[component]), torch.tensor(whole[component]), atol=0.02, rtol=0)


def test_creation_does_not_change_weights_or_random_state():
    torch.manual_seed(5)
    plain = own_networks.Net(features=6)
    following = torch.rand(3)
    torch.manual_seed(5)
    model = create_model(reference("Net"), features=6)
    assert torch.equal(torch.rand(3), following)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))
    assert model.options == {"features": 6}


def test_operations_are_counted_by_layer_of_any_kind():
    # 2 -> 4 -> 1 channels of 3x3, and a matrix of 16x16 for 16 samples.
    assert complexity(create_model(reference("Net"))).kmac_per_pixel == pytest.approx((2 * 4 + 4) * 9 / 1000)
    linear = create_model(reference("Linear"))
    assert linear.counted_on == "cpu"
    assert full_cost(linear)["kmac_per_pixel"] == pytest.approx(0.016)
    assert full_cost(create_model(reference("PaddedInside")))["parameters"] == 0


REFUSED = {
    "OnlyResidual": r"values up to 0 for y, .* so add rec_y to the residual",
    "WholePicture": r"samples at a distance of 24\d luma samples or more",
    "WrongHalo": r"halo 3, and of 134x134 samples it returns 130x130, which is a halo of 2",
    "WrongRadius": r"radius 1 and returns planes that are 2 samples smaller",
    "NarrowRadius": r"cannot filter a picture in windows: .* \(it states radius 3\)",
    "Unnamed": r'planes = \("rec_y", "qp"\)',
    "WrongShapes": r"fails on the planes rec_y \(2, 1, 128, 128\), qp \(2, 1, 1, 1\): RuntimeError",
    "TwoChannels": r"returns y of shape \(2, 2, 128, 128\) for rec_y \(2, 1, 128, 128\)",
    "Rounded": r"give its class the attribute radius",
    "nothing": r"gives an object of the class int",
    "Stateful": r"returns other values for the same planes after it has filtered others",
    "Lazy": r"has lazy layers",
    "NoLeaf": r"cannot be copied, .* torch.nn.utils.parametrizations",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_keep_to_the_contract_is_refused(name):
    with pytest.raises(ModelError, match=REFUSED[name]):
        create_model(reference(name))


def test_weights_of_a_network_that_shares_and_replaces_parameters_are_loaded(tmp_path):
    model = awaken(create_model(reference("Idioms")))
    save_weights(tmp_path / "own.safetensors", model, reference("Idioms"), {})
    loaded, _ = load_model(tmp_path / "own.safetensors")
    planes = {"rec_y": torch.rand(1, 1, 24, 24), "qp": torch.full((1, 1, 1, 1), 0.5)}
    torch.testing.assert_close(loaded(planes), model.eval()(planes), rtol=0, atol=0)


def test_a_plain_module_is_filtered_without_adapting_it_first():
    picture = Picture((torch.randint(0, 1024, (40, 48)).numpy().astype("uint16"),), 10)
    module = own_networks.Net()
    plain, adapted = (FloatFilter(model).samples(picture, 37)["y"] for model in (module, as_filter_network(module)))
    assert (plain == adapted).all()


def test_prediction_of_the_picture_is_allowed_with_a_warning():
    with pytest.warns(UserCodeWarning, match="correlation"):
        model = create_model(reference("FromScratch"))
    assert model.predicts_picture


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tests.helpers.own_networks:Nothing", {}, "Nothing does not exist in .*own_networks.py"),
        ("tests.helpers.own_networks:SOURCE", {}, "SOURCE is not a class or function"),
        ("no_such_module_here:Net", {}, "no module 'no_such_module_here' in"),
        (reference("Net"), {"width": 3}, "cannot be created with the options width=3: TypeError"),
        (reference("Net"), {"features": object()}, "cannot be written to a card as JSON"),
    ],
)
def test_names_and_options_that_do_not_exist(name, options, message):
    with pytest.raises((ConfigError, ModelError), match=message):
        create_model(name, **options)


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Weights whose card names a module of the current folder that this process has not imported."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "w.safetensors"
    model = awaken(create_model(reference("Net")), std=0.1)
    save_weights(path, model, reference("Net"), {})
    module = f"foreign_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(own_networks.SOURCE + "\nopen('ran', 'w').close()\n")
    write_json(card_path(path), read_json(card_path(path)) | {"network": f"{module}:Net", "code_sha256": None})
    monkeypatch.setattr("sys.path", list(user_code.sys.path))
    return path, f"{module}:Net", model


def test_weights_run_no_code_that_was_not_permitted(foreign, tmp_path):
    path, name, model = foreign
    for load in (load_model, load_filter):
        with pytest.raises(ModelError, match=f"add --trust {name}"):
            load(path)
    assert not (tmp_path / "ran").exists()
    loaded, card = load_model(path, trust=True)
    assert (tmp_path / "ran").exists()
    assert isinstance(loaded, AdaptedNetwork)
    assert card.network == name
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    load_filter(path)  # permitted from now on


def test_changed_source_is_reported(foreign, tmp_path):
    path, name, _ = foreign
    write_json(card_path(path), read_json(card_path(path)) | {"code_sha256": "0" * 64})
    user_code.permit(name)
    with pytest.warns(UserCodeWarning, match=f"the source of {name} has changed"):
        load_model(path)


def test_card_has_the_hash_of_the_source(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, create_model(reference("Net")), reference("Net"), {})
    content = json.loads(card_path(path).read_text())
    assert content["code_sha256"] == user_code.source_sha256([own_networks.Net])
    assert load_model(path)[1].network == reference("Net")
    save_weights(path, create_model("low_cost_17"), "low_cost_17", {})
    assert "code_sha256" not in json.loads(card_path(path).read_text())


def test_entry_points_add_networks(tmp_path, monkeypatch):
    folder = tmp_path / "plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[codecnn.models]\ntwo_layers = {reference('Net')}\n")
    assert "two_layers" not in list_models()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert any(point.name == "two_layers" for point in metadata.entry_points(group="codecnn.models"))
    assert "two_layers" in list_models()
    assert describe_model("two_layers") == "Two unpadded layers: halo 2."
    path = tmp_path / "w.safetensors"
    save_weights(path, create_model("two_layers", features=3), "two_layers", {})
    assert load_model(path)[0].network.layers[0].out_channels == 3


def test_network_with_a_layer_called_fused_is_left_alone():
    class Fused(own_networks.Net):
        def __init__(self):
            super().__init__()
            self.fused = self.layers

        def folded(self):
            raise AssertionError("a method of the user was called")

    assert as_filter_network(Fused()).halo == 2


def test_module_is_found_next_to_the_configuration_in_the_current_folder(foreign, tmp_path):
    _, name, _ = foreign
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert create_model(name, features=5).network.layers[0].out_channels == 5
