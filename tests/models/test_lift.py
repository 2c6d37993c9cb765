"""Lifting: a network on PixelUnshuffle starts equivalent to a full-resolution one, and all its weights learn."""

import json

import pytest
import torch

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.filtering import filter_outputs
from codecnn.models import create_model, lift, load_model, save_weights
from codecnn.training import FilterSettings
from codecnn.training.settings import StartSettings
from tests.helpers.networks import awaken, learn, random_picture
from tests.helpers.training import train_filter

LOW_COST = {"features": 3, "blocks": 2, "expansion": 2, "kind": "separable"}
RDN = {"features": 3, "blocks": 2, "layers": 2, "growth": 2}
KINDS = [
    ("rdn", RDN),
    ("rdn", RDN | {"conditioning": "film", "planes": ["rec_y", "qp", "unf_y"]}),
    ("rdn", RDN | {"conditioning": "se", "local_residual": False, "global_residual": False}),
    ("rdn", RDN | {"upsampling": "transposed"}),
    ("rdn", RDN | {"head": "5x5", "output": "picture"}),
    ("low_cost_17", LOW_COST | {"conditioning": "film"}),
    ("low_cost_17", LOW_COST | {"conditioning": "plane"}),
]


def lifted_options(options, factor):
    widths = {name: options[name] * factor**2 for name in ("features", "growth") if name in options}
    return options | widths | {"shuffle": factor}


def picture(model, dtype=torch.float64):
    """Return planes of a picture of a few cells, so that all samples are close to an edge."""
    planes = random_picture(model, 12, 24)
    qp = planes["qp"].expand(1, 1, 12, 24) if model.options["conditioning"] == "plane" else planes["qp"]
    return {name: plane.to(dtype) for name, plane in (planes | {"qp": qp}).items()}


@pytest.fixture
def full(tmp_path):
    """Build a full-resolution network with random weights everywhere, and its file."""

    def make(network, options):
        model = awaken(create_model(network, **options | {"shuffle": 1}), 1)
        path = tmp_path / "full.safetensors"
        save_weights(path, model, network, {})
        return load_model(path)[0].double(), path

    return make


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize(("network", "options"), KINDS)
def test_a_lifted_network_computes_the_same_as_the_full_resolution_one(full, network, options, factor):
    old, path = full(network, options)
    new = create_model(network, **lifted_options(options, factor)).double().eval()
    report = lift(new, path)
    assert set(report.as_dict()["counts"]) >= {"adapted", "loaded"}
    assert len(report.names("adapted")) + len(report.names("loaded")) == len(report.tensors)
    planes = picture(old)
    with torch.no_grad():
        expected, filtered = (filter_outputs(model, planes, None)["y"] for model in (old, new))
        scale = float((expected - planes["rec_y"]).abs().max())
        assert scale > 1e-3
        torch.testing.assert_close(filtered, expected, rtol=0, atol=1e-12 * scale)
        single = {name: plane.float() for name, plane in planes.items()}
        filtered = filter_outputs(new.float(), single, None)["y"].double()
    torch.testing.assert_close(filtered, expected, rtol=0, atol=1e-6 * max(1, scale))


@pytest.mark.parametrize(
    ("network", "options", "sizes"),
    [
        ("rdn", RDN, {"features": 16, "blocks": 3, "layers": 3, "growth": 12}),
        ("rdn", RDN | {"conditioning": "film", "upsampling": "transposed"}, {"features": 13}),
        ("low_cost_17", LOW_COST | {"conditioning": "film"}, {"features": 16, "blocks": 3, "expansion": 3}),
    ],
)
def test_a_lifted_network_grows(full, network, options, sizes):
    old, path = full(network, options)
    larger = lifted_options(options, 2) | sizes
    new = create_model(network, **larger).double().eval()
    with pytest.raises(ModelError, match="without grow it needs the same"):
        lift(new, path)
    report = lift(new, path, grow=True)
    head = {row.name: row for row in report.tensors}["head.weight"]
    inputs = len(old.channels)
    assert head.detail == f"(3, {inputs}, 3, 3) -> ({larger['features']}, {4 * inputs}, 3, 3)"
    assert bool(report.names("missing")) == ("blocks" in sizes)
    planes = picture(old)
    with torch.no_grad():
        expected, filtered = (filter_outputs(model, planes, None)["y"] for model in (old, new))
    torch.testing.assert_close(filtered, expected, rtol=0, atol=1e-12 * float((expected - planes["rec_y"]).abs().max()))


@pytest.mark.parametrize(("network", "options"), KINDS)
def test_a_random_start_at_full_resolution(network, options):
    """It is the identity, depends on the seed only, and has only the links of a full-resolution network."""
    new = create_model(network, **lifted_options(options, 2))
    planes = picture(new, torch.float32)
    before = filter_outputs(new, planes, None)["y"]
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        lift(new, None)
        states.append({name: tensor.clone() for name, tensor in new.state_dict().items()})
        if options.get("output") != "picture":
            assert torch.equal(filter_outputs(new, planes, None)["y"], before)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["head.weight"], states[2]["head.weight"])
    # A sample is linked to nine of the 36 samples in its cell and the cells around, in a row to three of twelve.
    inner = new.blocks[0].layers[0] if network == "rdn" else new.blocks[0].row
    assert (inner.weight != 0).double().mean() == 0.25


@pytest.mark.parametrize(("network", "options"), KINDS)
def test_all_links_learn(full, network, options):
    _, path = full(network, options)
    new = create_model(network, **lifted_options(options, 2)).double()
    lift(new, path)
    planes, optimiser = picture(new), torch.optim.SGD(new.parameters(), lr=1e-2)
    start = {name: parameter.detach().clone() for name, parameter in new.named_parameters()}
    loss = lambda _: (filter_outputs(new, planes, None)["y"] - 0.5).square().mean()  # noqa: E731
    learn(optimiser, loss, 2, clip=1.0)
    for name, parameter in new.named_parameters():
        if parameter.dim() == 4:
            assert (parameter != start[name]).double().mean() > 0.8, name  # some ReLUs are dead


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("rdn", RDN | {"shuffle": 2}, "features 3 is no multiple of 4"),
        ("rdn", RDN, "lifted to a shuffle of 2 or more; this one has shuffle 1"),
        ("rdn", {"features": 8, "growth": 8, "shuffle": 2, "transform": "haar"}, "haar is not lifted"),
        ("low_cost_5", {}, "depthwise blocks are not lifted: a 3x3 tap joins"),
        ("rdn_yuv", {}, "YuvRDN is not lifted"),
        ("low_cost_yuv_17", {}, "YuvLowCost is not lifted"),
        ("vrcnn", {}, "VRCNN is not lifted"),
    ],
)
def test_networks_that_cannot_be_lifted_are_refused(network, options, message):
    with pytest.raises(ModelError, match=message):
        lift(create_model(network, **options))


def test_weights_that_do_not_fit_are_refused(full):
    _, path = full("rdn", RDN)
    options = lifted_options(RDN, 2)
    for change, message in [
        ({"planes": ["rec_y", "qp", "unf_y"]}, "planes"),
        ({"features": 8}, "features 8, the one of .*lifted.* 12"),
        ({"growth": 12}, "growth 12, the one of .* 8: without grow it needs the same"),
    ]:
        with pytest.raises(ModelError, match=message):
            lift(create_model("rdn", **options | change), path)
    with pytest.raises(ModelError, match=r"shuffle 1; .* shuffle 2"):
        lift(create_model("low_cost_17"), "low_cost_17")
    with pytest.raises(ModelError, match="LowCost does not grow from RDN"):
        lift(create_model("low_cost_17"), path)
    with pytest.raises(MissingFileError):
        lift(create_model("rdn", **options), "rdn_99")


def settings(**start):
    return FilterSettings(
        steps=1, batch=1, patch=16, learning_rate=1e-12, warmup=0, ema=0, threads=1, device="cpu", seed=5, start=start
    )


def test_a_training_starts_as_a_network_at_full_resolution(tiny_store, tmp_path, full):
    old, path = full("rdn", RDN)
    start = settings(weights=str(path), lift=True, grow=True)
    train_filter(tiny_store, "rdn", lifted_options(RDN, 2) | {"features": 14}, start, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "transfer.json").read_text())["counts"]["adapted"] > 0
    planes = picture(old, torch.float32)
    with torch.no_grad():
        filtered = filter_outputs(load_model(tmp_path / "run" / "last.safetensors")[0], planes, None)["y"]
        torch.testing.assert_close(filtered, filter_outputs(old.float(), planes, None)["y"], rtol=0, atol=1e-5)


def test_a_training_starts_as_a_random_network_at_full_resolution(tiny_store, tmp_path):
    options = lifted_options(RDN, 2)
    for name in ("first", "second"):
        train_filter(tiny_store, "rdn", options, settings(lift=True), tmp_path / name)
    first, second = (load_model(tmp_path / name / "last.safetensors")[0] for name in ("first", "second"))
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())
    torch.manual_seed(5)
    expected = create_model("rdn", **options)
    lift(expected)
    assert torch.allclose(first.head.weight, expected.head.weight, rtol=0, atol=1e-9)
    assert (first.blocks[0].layers[0].weight.abs() < 1e-9).double().mean() == 0.75


def test_only_a_lifted_start_works_without_weights():
    for start in ({}, {"grow": True}, {"grow": True, "lift": True}, {"freeze": ["head.*"]}):
        with pytest.raises(ValueError, match="weights"):
            StartSettings(**start)
    with pytest.raises(ValueError, match="remove rename and partial from start"):
        StartSettings(lift=True, partial=True)
