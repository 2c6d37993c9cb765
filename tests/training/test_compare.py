"""Layer-by-layer comparison of networks: differences are located, and nothing else is reported."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from codecnn.base.errors import ModelError
from codecnn.models import create_model, prepare, save_weights
from codecnn.pictures.files import Picture, VideoFormat, create_video
from codecnn.training import compare
from codecnn.training.compare import OUTPUT, ROUNDING_TOLERANCE
from tests.helpers.networks import SMALL, awaken


@pytest.fixture
def network():
    return awaken(create_model("rdn", **SMALL), std=0.1)


def rows_on_noise(a, b, tolerance=0.0, skip=()):
    return compare.compare_networks(a, b, compare.noise_planes(a), tolerance=tolerance, skip=skip)


class Backwards(nn.Module):
    """Modules declared in another order than they run, one of them run twice, with in-place ReLU."""

    def __init__(self):
        super().__init__()
        self.last = nn.Conv2d(3, 2, 1)
        self.twice = nn.Conv2d(3, 3, 1)
        self.first = nn.Conv2d(1, 3, 1)

    def forward(self, x):
        x = F.relu_(self.first(x))
        x = F.relu_(self.twice(x))
        x = F.relu_(self.twice(x))
        return {"y": self.last(x), "sum": x.sum()}


def test_identical_networks_differ_nowhere(network):
    rows = rows_on_noise(network, copy.deepcopy(network))
    assert compare.first_difference(rows) is None
    assert {row.maximum for row in rows} == {0.0}
    lists = [name for name, module in network.named_modules() if isinstance(module, nn.ModuleList)]
    assert {row.name for row in rows} == {name for name, _ in network.named_modules() if name} - set(lists) | {OUTPUT}


@pytest.mark.parametrize("layer", ["head2", "blocks.0.layers.1", "blocks.1.fusion", "tail"])
def test_a_single_changed_weight_is_located_in_its_layer(network, layer):
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.get_submodule(layer).weight[-1, 0, 0, 0] += 0.5
    rows = rows_on_noise(network, other)
    difference = compare.first_difference(rows)
    assert difference.name == layer
    assert all(row.maximum == 0 for row in rows[: rows.index(difference)])
    # Only the channel with the changed weight can be the first one.
    assert difference.first[1] == network.get_submodule(layer).out_channels - 1
    assert rows[-1].name == OUTPUT
    assert rows[-1].differs


def test_differences_match_numpy():
    a, b = nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Sequential(nn.Conv2d(1, 2, 3))
    b.load_state_dict(a.state_dict())
    with torch.no_grad():
        b[0].weight[1] *= 1.25
    x = torch.randn(2, 1, 6, 7, generator=torch.Generator().manual_seed(1))
    rows = compare.compare_networks(a, b, x)
    assert [row.name for row in rows] == ["0", OUTPUT]
    before, after = a(x).detach().numpy(), b(x).detach().numpy()
    apart = np.abs(before.astype(float) - after)
    assert rows[0].maximum == apart.max()
    assert rows[0].relative == pytest.approx(apart.max() / np.abs(before).max(), rel=1e-12)
    assert rows[0].first == tuple(np.argwhere(apart > 0)[0])
    tolerance = 0.9 * rows[0].relative
    (row, _) = compare.compare_networks(a, b, x, tolerance=tolerance)
    assert row.first == tuple(np.argwhere(apart > tolerance * np.abs(before).max())[0])
    assert compare.first_difference(compare.compare_networks(a, b, x, tolerance=1.01 * rows[0].relative)) is None


def test_rows_come_in_the_order_of_execution():
    network = Backwards()
    rows = compare.compare_networks(network, copy.deepcopy(network), torch.rand(1, 1, 4, 4))
    assert [row.name for row in rows] == ["first", "twice", "twice#2", "last", f"{OUTPUT}[y]", f"{OUTPUT}[sum]"]


def test_outputs_are_recorded_before_in_place_operations():
    network = Backwards()
    x = torch.rand(1, 1, 4, 4)
    outputs = dict(compare.trace(network, x))
    torch.testing.assert_close(outputs["first"], network.first(x))
    assert not network.first._forward_hooks


def test_float64_differs_by_rounding_alone(network):
    rows = rows_on_noise(network, copy.deepcopy(network).double(), ROUNDING_TOLERANCE)
    assert compare.first_difference(rows) is None
    assert 0 < max(row.relative for row in rows) < ROUNDING_TOLERANCE
    rounded = rows_on_noise(network, compare.variant(copy.deepcopy(network), dtype="bfloat16"), ROUNDING_TOLERANCE)
    assert compare.first_difference(rounded).name == "head"
    assert 1e-3 < max(row.relative for row in rounded) < 0.05


def test_a_different_shape_is_reported():
    wider = create_model("rdn", **SMALL | {"growth": 6})
    same = create_model("rdn", **SMALL)
    wider.head.load_state_dict(same.head.state_dict())
    wider.head2.load_state_dict(same.head2.state_dict())
    difference = compare.first_difference(rows_on_noise(same, wider))
    assert difference.name == "blocks.0.layers.0"
    assert (difference.shape_a, difference.shape_b) == ((1, 4, 64, 64), (1, 6, 64, 64))
    assert difference.maximum is None


@pytest.mark.parametrize(
    ("value", "other", "maximum"),
    [(math.nan, math.nan, 0), (math.nan, 1.0, math.inf), (1.0, math.inf, math.inf), (math.inf, math.inf, 0)],
)
def test_values_that_are_not_finite_are_compared(value, other, maximum):
    pair = []
    for bias in (value, other):
        layer = nn.Conv2d(1, 2, 1)
        nn.init.ones_(layer.weight)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([0, bias]))
        pair.append(nn.Sequential(layer))
    row = compare.compare_networks(*pair, torch.ones(1, 1, 2, 2))[0]
    assert row.maximum == maximum
    assert row.first == (None if maximum == 0 else (0, 1, 0, 0))


def test_networks_without_a_common_layer_are_refused():
    with pytest.raises(ModelError, match="no layer in common"):
        compare.compare_networks(nn.Sequential(nn.Identity()), Backwards(), torch.rand(1, 1, 4, 4))


PREPARED = [
    ("rdn", SMALL, []),
    ("dncnn", {"features": 8, "layers": 4}, ["layers.1", "layers.2"]),
    ("low_cost_5", {}, []),
    ("rdn_yuv", {}, []),
]


@pytest.mark.parametrize(("name", "options", "folded"), PREPARED)
def test_the_prepared_network_matches_in_its_common_layers(name, options, folded):
    network = awaken(create_model(name, **options), std=0.1)
    if name == "dncnn":
        for norm in network.norms[1:3]:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    ready = prepare(network)
    skip = compare.folded_layers(network, ready)
    assert skip == folded
    rows = rows_on_noise(network, ready, ROUNDING_TOLERANCE, skip)
    assert compare.first_difference(rows) is None
    assert rows[-1].name.startswith(OUTPUT)
    assert len(rows) > 5


def test_a_fault_in_the_prepared_network_is_located(network):
    ready = prepare(network)
    ready.blocks[1].biases[0][2] += 0.1
    rows = rows_on_noise(network, ready, ROUNDING_TOLERANCE)
    assert compare.first_difference(rows).name == "blocks.1"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_network_differs_by_rounding_alone(network):
    rows = rows_on_noise(network, compare.variant(copy.deepcopy(network), compiled=True), ROUNDING_TOLERANCE)
    assert compare.first_difference(rows) is None
    assert len(rows) == 17


@pytest.mark.gpu
def test_cuda_differs_by_rounding_alone(network):
    with compare.exact_float32(True):
        rows = rows_on_noise(network, compare.variant(copy.deepcopy(network), device="cuda"), ROUNDING_TOLERANCE)
    assert compare.first_difference(rows) is None


def test_planes_of_a_store_and_of_a_picture(network, tiny_store):
    planes = compare.store_planes(network, tiny_store)
    assert {name: tuple(plane.shape) for name, plane in planes.items()} == {"rec_y": (4, 1, 68, 68), "qp": (4, 1, 1, 1)}
    network(planes)
    ramp = np.arange(40 * 60, dtype=np.uint16).reshape(40, 60) % 1024
    chroma = np.full((20, 30), 512, np.uint16)
    planes = compare.picture_planes(network, Picture((ramp, chroma, chroma), 10), 32)
    assert planes["qp"].item() == 0.5
    np.testing.assert_array_equal(planes["rec_y"][0, 0].numpy(), ramp / np.float32(1024))
    network(planes)
    colour = awaken(create_model("rdn_yuv"))
    planes = compare.picture_planes(colour, Picture((ramp, chroma, chroma), 10), 32)
    assert planes["rec_u"].max() == 0.5
    colour(planes)
    deep = create_model("rdn", **SMALL, planes=["rec_y", "depth"])
    for taken, given, sentence in ((colour, 1, "'rec_u'"), (colour, 3, "4:2:0"), (deep, 1, "'depth'")):
        with pytest.raises(ModelError, match=sentence):
            compare.picture_planes(taken, Picture((ramp,) * given, 10), 32)


def test_the_compare_command(run, network, tiny_store, tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_weights(a, network, "rdn", {})
    with torch.no_grad():
        network.blocks[1].layers[0].bias[0] += 1
    save_weights(b, network, "rdn", {})
    status, text, err = run("compare", a, b, "--input", tiny_store.folder, "--json")
    assert status == 1, err
    result = json.loads(text)
    assert (result["first"], result["tolerance"]) == ("blocks.1.layers.0", 0)
    shapes = {"shape_a": [4, 2, 68, 68], "shape_b": [4, 2, 68, 68]}
    assert result["layers"][0] == {"name": "unshuffle", **shapes, "maximum": 0, "relative": 0, "first": None}
    status, text, _ = run("compare", a, b)
    assert status == 1
    assert "First difference: blocks.1.layers.0, by up to 1," in text
    for options in ([], ["--prepared-b"], ["--dtype-b", "float64"], ["--dtype-b", "bfloat16"]):
        status, text, err = run("compare", a, *options)
        assert status == 0, err
        assert "No layer differs" in text
    assert run("compare", a, "--dtype-b", "bfloat16", "--tolerance", "1e-5")[0] == 1
    yuv = tmp_path / "clip_96x80.yuv"
    with create_video(yuv, VideoFormat(96, 80, "400", 8)) as out:
        out.write([np.random.default_rng(0).integers(0, 256, (80, 96)).astype(np.uint8)])
    status, _, err = run("compare", a, b, "-i", yuv, "--chroma", "400", "-q", "27")
    assert status == 1, err
    status, _, err = run("compare", a, b, "--device-b", "tpu")
    assert status == 1
    assert "'tpu'" in err
