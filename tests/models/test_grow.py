"""Growing: a larger network starts equivalent to a smaller one, and its added parts learn."""

import json

import pytest
import torch

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.models import create_model, grow, load_model, named_outputs, save_weights
from codecnn.training import FilterSettings
from codecnn.training.settings import StartSettings
from tests.helpers.networks import awaken, learn
from tests.helpers.training import train_filter

LOW_COST = {"features": 6, "blocks": 2, "expansion": 2}
RDN = {"features": 4, "blocks": 2, "layers": 2, "growth": 3}
KINDS = [
    ("low_cost_17", LOW_COST | {"kind": "separable", "conditioning": "film"}),
    ("low_cost_17", LOW_COST | {"kind": "separable", "conditioning": "se", "planes": ["rec_y", "qp", "unf_y"]}),
    ("low_cost_17", LOW_COST | {"kind": "depthwise", "conditioning": "film"}),
    ("low_cost_17", LOW_COST | {"kind": "depthwise", "conditioning": "plane"}),
    ("low_cost_17", LOW_COST | {"kind": "separable", "conditioning": "film", "qp_range": [27, 32]}),
    ("rdn", RDN),
    ("rdn", RDN | {"conditioning": "film", "local_residual": False}),
    ("rdn", RDN | {"shuffle": 2, "upsampling": "transposed"}),
    ("rdn", RDN | {"head": "5x5", "output": "picture", "global_residual": False}),
    ("rdn_yuv", RDN),
    ("low_cost_yuv_17", LOW_COST | {"conditioning": "film"}),
]
LARGER = {
    "low_cost_17": [{"features": 10}, {"blocks": 5}, {"expansion": 3}, {"features": 9, "blocks": 4, "expansion": 4}],
    "rdn": [
        {"features": 7},
        {"blocks": 3},
        {"layers": 4},
        {"growth": 5},
        {"features": 9, "blocks": 4, "layers": 3, "growth": 7},
    ],
}
CASES = [
    (network, options, sizes) for network, options in KINDS for sizes in ({}, LARGER[network.replace("_yuv", "")][-1])
]
CASES += [
    (network, KINDS[number][1], sizes)
    for number, network in ((0, "low_cost_17"), (5, "rdn"))
    for sizes in LARGER[network][:-1]
]


def inputs(model, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(height, width):
        return torch.rand((2, 1, height, width), generator=generator, dtype=torch.float64)

    planes = {name: draw(12, 10) if name in ("rec_u", "rec_v") else draw(24, 20) for name in model.planes}
    return planes | {"qp": torch.tensor([22 / 64, 42 / 64], dtype=torch.float64).reshape(2, 1, 1, 1)}


def run(model, planes):
    """Return all outputs of the network as one row, shape (samples,)."""
    if model.options["conditioning"] == "plane":
        planes = planes | {"qp": planes["qp"].expand(-1, -1, 24, 20)}
    return torch.cat([plane.flatten() for plane in named_outputs(model(planes)).values()])


@pytest.fixture
def small(tmp_path):
    def make(network, options):
        model = awaken(create_model(network, **options), 1)
        path = tmp_path / "small.safetensors"
        save_weights(path, model, network, {})
        return load_model(path)[0].double(), path

    return make


@pytest.mark.parametrize(("network", "options", "sizes"), CASES)
def test_the_larger_network_computes_what_the_smaller_one_does(small, network, options, sizes):
    old, path = small(network, options)
    torch.manual_seed(3)
    new = create_model(network, **options | sizes).double()
    with torch.no_grad():
        before = run(new, inputs(new))
        report = grow(new, path)
        expected = run(old, inputs(old))
        assert float((expected - before).abs().max()) > 0.01
        assert torch.allclose(run(new, inputs(new)), expected, rtol=0, atol=1e-12 * float(expected.abs().max()))
    assert bool(report.names("missing")) == bool(sizes.keys() & {"blocks", "layers"})
    # Added blocks change the shape of no tensor, except in an RDN, which fuses its blocks.
    alone = {"blocks"} if network.startswith("low_cost") else set()
    assert bool(report.names("adapted")) == bool(sizes.keys() - alone)


@pytest.mark.parametrize(("network", "options"), KINDS)
def test_added_parts_learn(small, network, options):
    _, path = small(network, options)
    sizes = LARGER[network.replace("_yuv", "")][-1]
    new = create_model(network, **options | sizes).double()
    grow(new, path)
    start = {name: parameter.detach().clone() for name, parameter in new.named_parameters()}
    optimiser = torch.optim.SGD(new.parameters(), lr=1e-2)
    learn(optimiser, lambda _: run(new, inputs(new)).square().mean(), 3, clip=1.0)
    unchanged = {name for name, parameter in new.named_parameters() if torch.equal(start[name], parameter)}
    assert not {name for name in unchanged if name.startswith(("head", "blocks.", "fusion", "tail."))}
    tail = new.tail.weight.detach()
    added = tail.transpose(0, 1) if new.options.get("upsampling") == "transposed" else tail
    assert float(added[:, options["features"] :].abs().max()) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 5}, "features 5, the one of .* 6"),
        ({"blocks": 1}, "blocks 1"),
        ({"kind": "depthwise"}, "kind depthwise"),
        ({"conditioning": "se"}, "conditioning se"),
        ({"planes": ["rec_y", "qp", "unf_y"]}, "planes"),
    ],
)
def test_networks_that_do_not_extend_the_smaller_one_are_refused(small, changes, message):
    _, path = small("low_cost_17", LOW_COST)
    model = create_model("low_cost_17", **LOW_COST | changes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ModelError, match=message):
        grow(model, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_other_networks_do_not_grow(small):
    _, path = small("rdn", RDN)
    with pytest.raises(ModelError, match="layers 1"):
        grow(create_model("rdn", **RDN | {"layers": 1}), path)
    with pytest.raises(ModelError, match="low_cost_17"):
        grow(create_model("rdn", **RDN), "low_cost_17")
    _, coloured = small("rdn_yuv", {})
    with pytest.raises(ModelError, match="RDN does not grow from YuvRDN"):
        grow(create_model("rdn", **RDN), coloured)
    with pytest.raises(ModelError, match="VRCNN is no such network"):
        grow(create_model("vrcnn"), "low_cost_17")
    with pytest.raises(MissingFileError):
        grow(create_model("low_cost_17"), "low_cost_99")


def test_a_training_starts_as_a_smaller_network(tiny_store, tmp_path, small):
    old, path = small("low_cost_17", LOW_COST)
    start = {"weights": str(path), "grow": True}
    settings = FilterSettings(
        steps=1, batch=1, patch=16, learning_rate=1e-12, warmup=0, ema=0, threads=1, device="cpu", start=start
    )
    options = LOW_COST | {"features": 8, "blocks": 3}
    train_filter(tiny_store, "low_cost_17", options, settings, tmp_path / "run")
    counts = json.loads((tmp_path / "run" / "transfer.json").read_text())["counts"]
    assert min(counts[status] for status in ("adapted", "missing", "loaded")) > 0
    trained, _ = load_model(tmp_path / "run" / "last.safetensors")
    with torch.no_grad():
        planes = inputs(trained)
        assert torch.allclose(trained.double()(planes), old(planes), rtol=0, atol=1e-5)


@pytest.mark.parametrize("other", [{"rename": {"a": "b"}}, {"partial": True}])
def test_growing_excludes_options_for_tensors(other):
    with pytest.raises(ValueError, match="remove rename and partial from start"):
        StartSettings(weights="low_cost_17", grow=True, **other)


def test_growing_from_shipped_weights():
    model = create_model("low_cost_75").eval()
    grow(model, "low_cost_17")
    small, _ = load_model("low_cost_17")
    planes = {name: tensor.float() for name, tensor in inputs(small).items()}
    with torch.no_grad():
        expected = small(planes)
        assert float((expected - planes["rec_y"][:, :, 2:-2, 2:-2]).abs().max()) > 1e-4
        assert torch.allclose(model(planes), expected, rtol=0, atol=1e-6)
