"""Optimisers: parameter groups, Muon on convolutions against Muon of torch on matrices, and resuming."""

import copy

import pytest
import torch
from torch import nn

from codecnn.models import create_model, hidden_weights, modulation_parameters
from codecnn.training import FilterSettings
from codecnn.training.optimiser import ConvolutionMuon, make_optimiser

LOW_COST = {"features": 8, "blocks": 2, "expansion": 2}


def _names(model, parameters):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)] for parameter in parameters}


def _network(**options):
    torch.manual_seed(1)
    model = create_model("low_cost_17", **(LOW_COST | options))
    return model.to(memory_format=torch.channels_last)


def _gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        like = torch.randn(parameter.shape, generator=generator)
        parameter.grad = torch.empty_like(parameter, memory_format=torch.preserve_format).copy_(like)


def test_hidden_weights_lie_between_the_first_and_the_last_convolution():
    parts = {f"blocks.{block}.{part}.weight" for block in (0, 1) for part in ("expand", "project", "row", "column")}
    model = _network()
    assert _names(model, hidden_weights(model)) == parts
    assert _names(model, modulation_parameters(model)) == {
        f"modulations.{block}.{part}.{kind}"
        for block in (0, 1)
        for part in ("hidden", "out")
        for kind in ("weight", "bias")
    }
    depthwise = _network(kind="depthwise")
    assert _names(depthwise, hidden_weights(depthwise)) == {
        name for name in parts if "expand" in name or "project" in name
    }
    rdn = create_model("rdn", features=4, blocks=1, layers=1, growth=2)
    assert _names(rdn, hidden_weights(rdn)) == {
        "head2.weight",
        "blocks.0.layers.0.weight",
        "blocks.0.fusion.weight",
        "fusion.weight",
        "fusion2.weight",
    }


@pytest.mark.parametrize("optimiser", ["adamw", "muon", "sgd", "rmsprop"])
@pytest.mark.parametrize("kind", ["separable", "depthwise"])
def test_every_parameter_is_in_one_group_with_its_rate(optimiser, kind):
    model = _network(kind=kind)
    groups = {"head.*": {"lr": 0.5}}
    settings = FilterSettings(
        optimiser=optimiser, learning_rate=0.01, muon_rate=0.03, modulation_rate=0.1, groups=groups
    )
    created = make_optimiser(model, settings)
    # Muon's matrices share the memory of their convolutions' weights.
    rates = {parameter.data_ptr(): group["lr"] for group in created.param_groups for parameter in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in created.param_groups)
    hidden = _names(model, hidden_weights(model)) if optimiser == "muon" else set()
    for name, parameter in model.named_parameters():
        expected = 0.5 if name.startswith("head.") else 0.001 if name.startswith("modulations.") else 0.01
        assert rates.pop(parameter.data_ptr()) == pytest.approx(0.03 if name in hidden else expected), name
    assert not rates


def test_muon_on_convolutions_equals_muon_of_torch_on_matrices():
    model = _network()
    weights = hidden_weights(model)
    matrices = [nn.Parameter(weight.detach().permute(0, 2, 3, 1).flatten(1).clone()) for weight in weights]
    expected = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1)
    muon = ConvolutionMuon(weights, lr=0.02, weight_decay=0.1)
    for step in range(3):
        _gradients(model, step)
        for matrix, weight in zip(matrices, weights, strict=True):
            matrix.grad = weight.grad.permute(0, 2, 3, 1).flatten(1).clone()
        expected.step()
        muon.step()
        muon.zero_grad()
        assert all(weight.grad is None for weight in weights)
    for matrix, weight in zip(matrices, weights, strict=True):
        assert torch.equal(weight.permute(0, 2, 3, 1).flatten(1), matrix)


def test_a_moved_weight_is_an_error():
    model = _network()
    muon = ConvolutionMuon(hidden_weights(model), lr=0.02)
    model.double()
    _gradients(model, 0)
    with pytest.raises(RuntimeError, match="moved"):
        muon.step()


def test_both_optimisers_resume_from_their_states():
    settings = FilterSettings(optimiser="muon", modulation_rate=0.1)
    straight = _network()
    optimiser = make_optimiser(straight, settings)
    _gradients(straight, 0)
    optimiser.step()
    resumed = copy.deepcopy(straight)
    other = make_optimiser(resumed, settings)
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for group in (*optimiser.param_groups, *other.param_groups):
        group["lr"] *= 0.5  # as a schedule does
    for model, its_optimiser in ((straight, optimiser), (resumed, other)):
        _gradients(model, 1)
        its_optimiser.step()
    for name, parameter in straight.state_dict().items():
        assert torch.equal(parameter, resumed.state_dict()[name]), name
