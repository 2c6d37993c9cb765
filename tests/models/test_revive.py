"""Reviving: dead units learn again, and the network computes the same as before."""

import json

import pytest
import torch

from codecnn.models import create_model, revive, save_weights
from codecnn.training import FilterSettings
from codecnn.training.settings import StartSettings
from tests.helpers.networks import awaken
from tests.helpers.training import train_filter

SIZES = {"features": 6, "blocks": 3, "expansion": 2}


def with_dead_units(kind, **options):
    """Return a network in which half of the units of block 1 and all of block 2 are dead."""
    model = awaken(create_model("low_cost_17", **SIZES, kind=kind, **options)).eval()
    with torch.no_grad():
        model.blocks[1].expand.bias[:6] = -1e3
        model.blocks[2].expand.bias[:] = -1e3
    return model


def batches(count=2):
    return [{"rec_y": torch.rand(2, 1, 32, 32), "qp": torch.full((2, 1, 1, 1), 0.5)} for _ in range(count)]


@pytest.mark.parametrize("kind", ["separable", "depthwise"])
def test_only_dead_units_are_reinitialised(kind):
    torch.manual_seed(1)
    model, inputs = with_dead_units(kind), batches()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        filtered = model(inputs[0])
    assert revive(model, inputs) == {"blocks.1": 6, "blocks.2": 12}
    with torch.no_grad():
        assert torch.equal(model(inputs[0]), filtered)
    assert revive(model, inputs).keys() <= {"blocks.1", "blocks.2"}  # a random unit may be dead from the start
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {
        f"blocks.{n}.{name}" for n in (1, 2) for name in ("expand.weight", "expand.bias", "project.weight")
    }
    assert torch.equal(model.blocks[1].expand.weight[6:], before["blocks.1.expand.weight"][6:])
    assert torch.equal(model.blocks[1].project.weight[:, 6:], before["blocks.1.project.weight"][:, 6:])
    # The new weights are as large as those of the layer, since the steps of Muon are those of the layer.
    assert 0.5 < model.blocks[2].expand.weight.norm() / before["blocks.2.expand.weight"].norm() < 2
    model(inputs[0]).square().mean().backward()
    assert (model.blocks[2].project.weight.grad != 0).any()


def test_a_unit_that_is_active_once_is_unchanged():
    model = with_dead_units("separable")
    inputs = batches()
    with torch.no_grad():
        model.blocks[2].expand.bias[0] = 1e3
    assert revive(model, inputs)["blocks.2"] == 11
    assert model.blocks[2].expand.bias[0].item() == 1e3


def test_a_training_revives_its_start_weights(tiny_store, tmp_path):
    model = with_dead_units("separable")
    save_weights(tmp_path / "dead.safetensors", model, "low_cost_17", {})
    start = StartSettings(weights=str(tmp_path / "dead.safetensors"), revive=True)
    options = SIZES | {"kind": "separable"}
    settings = FilterSettings(steps=2, batch=2, patch=32, validate_every=2, device="cpu", threads=1, start=start)
    train_filter(tiny_store, "low_cost_17", options, settings, tmp_path / "run")
    report = json.loads((tmp_path / "run" / "transfer.json").read_text())
    # Further units may be dead from the start.
    assert report["revived"].items() >= {"blocks.1": 6, "blocks.2": 12}.items()
