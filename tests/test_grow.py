"""Growing: a larger low-cost network starts as the smaller one, and learns in what was added."""

import json

import pytest
import torch

from codecnn.errors import MissingFileError, ModelError
from codecnn.models import create_model, grow, load_model, save_weights
from codecnn.training import TrainingSettings, train
from codecnn.training.settings import StartSettings

KINDS = [
    ("separable", "film", ["rec_y", "qp"]),
    ("separable", "se", ["rec_y", "qp", "unf_y"]),
    ("depthwise", "film", ["rec_y", "qp"]),
    ("depthwise", "plane", ["rec_y", "qp"]),
]
SMALL = {"features": 6, "blocks": 2, "expansion": 2}


def filled(model, seed):
    """The network with random weights everywhere, nothing at zero that a trained one has not at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.double().eval()


def inputs(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    planes = {name: torch.rand((2, 1, 24, 20), generator=generator, dtype=torch.float64) for name in model.planes}
    return planes | {"qp": torch.tensor([22 / 64, 42 / 64], dtype=torch.float64).reshape(2, 1, 1, 1)}


def run(model, planes):
    if model.options["conditioning"] == "plane":
        planes = planes | {"qp": planes["qp"].expand(-1, -1, 24, 20)}
    return model(planes)


@pytest.fixture
def small(tmp_path):
    def make(kind, conditioning, planes):
        model = filled(create_model("low_cost_17", **SMALL, kind=kind, conditioning=conditioning, planes=planes), 1)
        path = tmp_path / "small.safetensors"
        save_weights(path, model.float(), "low_cost_17", {})
        return load_model(path)[0].double(), path

    return make


@pytest.mark.parametrize(("kind", "conditioning", "planes"), KINDS)
@pytest.mark.parametrize(
    "sizes", [{}, {"features": 10}, {"blocks": 5}, {"expansion": 3}, {"features": 9, "blocks": 4, "expansion": 4}]
)
def test_the_larger_network_computes_what_the_smaller_one_does(small, kind, conditioning, planes, sizes):
    old, path = small(kind, conditioning, planes)
    torch.manual_seed(3)
    options = SMALL | sizes | {"kind": kind, "conditioning": conditioning, "planes": planes}
    new = create_model("low_cost_17", **options).double()
    with torch.no_grad():
        before = run(new, inputs(new))
        report = grow(new, path)
        expected = run(old, inputs(old))
        assert float((expected - before).abs().max()) > 0.01
        assert torch.allclose(run(new, inputs(new)), expected, rtol=0, atol=1e-12)
    assert bool(report.names("missing")) == ("blocks" in sizes)
    assert bool(report.names("adapted")) == bool(sizes.keys() - {"blocks"})


@pytest.mark.parametrize(("kind", "conditioning", "planes"), KINDS)
def test_what_was_added_learns(small, kind, conditioning, planes):
    _, path = small(kind, conditioning, planes)
    options = {"features": 9, "blocks": 4, "expansion": 3, "kind": kind, "conditioning": conditioning}
    new = create_model("low_cost_17", **options, planes=planes).double()
    grow(new, path)
    start = {name: parameter.detach().clone() for name, parameter in new.named_parameters()}
    optimiser = torch.optim.SGD(new.parameters(), lr=1e-2)
    for _ in range(3):
        optimiser.zero_grad()
        run(new, inputs(new)).square().mean().backward()
        optimiser.step()
    still = {name for name, parameter in new.named_parameters() if torch.equal(start[name], parameter)}
    assert not {name for name in still if name.startswith(("head.", "blocks.", "tail."))}
    assert float(new.tail.weight.detach()[:, SMALL["features"] :].abs().max()) > 0


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
    _, path = small("separable", "film", ["rec_y", "qp"])
    model = create_model("low_cost_17", **SMALL | changes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ModelError, match=message):
        grow(model, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_other_networks_do_not_grow(small):
    _, path = small("separable", "film", ["rec_y", "qp"])
    with pytest.raises(ModelError, match="RDN is no such network"):
        grow(create_model("rdn", features=8, blocks=1, layers=1, growth=4), path)
    with pytest.raises(ModelError, match="RDN is no such network"):
        grow(create_model("low_cost_17"), "rdn_yuv_18")
    with pytest.raises(MissingFileError):
        grow(create_model("low_cost_17"), "low_cost_99")


def test_a_training_starts_as_a_smaller_network(tiny_store, tmp_path, small):
    old, path = small("separable", "film", ["rec_y", "qp"])
    start = {"weights": str(path), "grow": True}
    settings = TrainingSettings(
        steps=1, batch=1, patch=16, learning_rate=1e-12, warmup=0, ema=0, threads=1, device="cpu", start=start
    )
    options = SMALL | {"features": 8, "blocks": 3}
    train(tiny_store, "low_cost_17", options, settings, tmp_path / "run")
    counts = json.loads((tmp_path / "run" / "transfer.json").read_text())["counts"]
    assert min(counts[status] for status in ("adapted", "missing", "loaded")) > 0
    trained, _ = load_model(tmp_path / "run" / "last.safetensors")
    with torch.no_grad():
        planes = inputs(trained)
        assert torch.allclose(trained.double()(planes), old(planes), rtol=0, atol=1e-5)


@pytest.mark.parametrize("other", [{"rename": {"a": "b"}}, {"partial": True}])
def test_growing_leaves_no_choice_of_tensors(other):
    with pytest.raises(ValueError, match="rename and partial do not go with it"):
        StartSettings(weights="low_cost_17", grow=True, **other)


def test_growing_the_weights_of_the_zoo():
    model = create_model("low_cost_75").eval()
    grow(model, "low_cost_17")
    small, _ = load_model("low_cost_17")
    planes = {name: tensor.float() for name, tensor in inputs(small).items()}
    with torch.no_grad():
        expected = small(planes)
        assert float((expected - planes["rec_y"][:, :, 2:-2, 2:-2]).abs().max()) > 1e-4
        assert torch.allclose(model(planes), expected, rtol=0, atol=1e-6)
