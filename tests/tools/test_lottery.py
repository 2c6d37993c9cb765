"""Tickets: a smaller network is the chosen channels of a larger one, by the trained weights, at the first ones."""

import pytest
import torch

from codecnn.errors import ConfigError
from codecnn.models import complexity, create_model, load_model, named_outputs, save_weights
from codecnn.training import FilterSettings
from tests.helpers.networks import awaken, random_planes
from tests.helpers.training import train_filter
from tools import lottery

RDN = {"features": 8, "blocks": 2, "layers": 3, "growth": 6}
LOW_COST = {"features": 8, "blocks": 2, "expansion": 3}
CASES = [
    ("rdn", RDN, {"growth": 2}),
    ("rdn", RDN | {"conditioning": "film", "head": "5x5"}, {"features": 5, "growth": 1}),
    ("rdn", RDN | {"shuffle": 2, "local_residual": False, "conditioning": "se"}, {"features": 3}),
    ("rdn_yuv", RDN, {"features": 4, "growth": 2}),
    ("low_cost_17", LOW_COST, {"features": 4}),
    ("low_cost_yuv_17", LOW_COST, {"features": 5, "expansion": 2}),
    ("low_cost_17", LOW_COST | {"conditioning": "plane"}, {"features": 7, "expansion": 2}),
]


@pytest.mark.parametrize(("network", "options", "sizes"), CASES)
def test_a_slice_computes_what_the_larger_network_does_of_the_kept_channels(network, options, sizes):
    large = awaken(create_model(network, **options), 1).double()
    small = create_model(network, **options | sizes).double()
    kept = lottery.channels(large, small)
    widths = lottery._widths(large)
    assert any(len(kept[group]) < widths[group] for group in kept)
    # Nothing takes of the channels that go.
    for name, tensor in large.state_dict().items():
        start = 0
        for group in lottery.groups(large, name)[1] if tensor.dim() == 4 else []:
            gone = [index for index in range(widths[group]) if index not in kept[group]]
            tensor[:, [start + index for index in gone]] = 0
            start += widths[group]
    lottery.take(small, large, kept)
    planes = random_planes(large, 16, 24, dtype=torch.float64)
    with torch.no_grad():
        expected, made = named_outputs(large(planes)), named_outputs(small(planes))
        assert (expected["y"] - large.crop(planes["rec_y"])).abs().max() > 1e-3
        torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


def test_the_largest_norms_stay():
    large, small = create_model("rdn", **RDN), create_model("rdn", **RDN | {"growth": 2, "features": 4})
    layer = large.blocks[1].layers[2].weight.data
    layer[[1, 4]] *= 10
    for writer in (large.head, large.head2, large.fusion2, large.fusion, *(block.fusion for block in large.blocks)):
        torch.nn.init.constant_(writer.weight, 0.1)
    large.head.weight.data[[0, 2, 7]] = 1
    large.blocks[0].fusion.weight.data[5] = -1
    kept = lottery.channels(large, small)
    assert kept["blocks.1.layers.2"].tolist() == [1, 4]
    assert kept["features"].tolist() == [0, 2, 5, 7]
    lottery.take(small, large, kept)
    assert torch.equal(small.blocks[1].layers[2].bias, large.blocks[1].layers[2].bias[[1, 4]])
    columns = [0, 2, 5, 7, *(8 + kept["blocks.1.layers.0"]), *(14 + kept["blocks.1.layers.1"])]
    assert torch.equal(small.blocks[1].layers[2].weight, layer[[1, 4]][:, torch.tensor(columns)])


def test_a_quarter_of_the_cost():
    for network, sizes in (("rdn_32_3_6_16", {"growth": 4}), ("low_cost_17", {"features": 16})):
        ticket, whole = (complexity(create_model(network, **options)).kmac_per_pixel for options in (sizes, {}))
        assert ticket / whole == pytest.approx(0.25, abs=0.01)


def test_a_ticket_goes_back_to_the_first_weights_and_trains(tiny_store, tmp_path):
    options = {"features": 4, "blocks": 1, "layers": 2, "growth": 4}
    settings = FilterSettings(steps=3, batch=2, patch=16, warmup=0, ema=0, threads=1, device="cpu", seed=9)
    train_filter(tiny_store, "rdn", options, settings, tmp_path / "whole")
    weights = tmp_path / "whole" / "last.safetensors"
    trained, _ = load_model(weights)
    torch.nn.init.constant_(trained.blocks[0].layers[0].weight.data[2], 3.0)
    save_weights(weights, trained, "rdn", {"training": settings.model_dump()})
    made = lottery.write_ticket(weights, {"growth": 1}, tmp_path / "ticket.safetensors")
    torch.manual_seed(9)
    first = create_model("rdn", **options).state_dict()
    assert torch.equal(made.blocks[0].layers[0].weight, first["blocks.0.layers.0.weight"][[2]])
    assert not made.tail.weight.any()
    # What was trained began with these weights: a step at no learning rate leaves them.
    still = settings.model_copy(update={"steps": 1, "learning_rate": 1e-12})
    train_filter(tiny_store, "rdn", options, still, tmp_path / "still")
    begun, _ = load_model(tmp_path / "still" / "last.safetensors")
    assert all(torch.allclose(begun.state_dict()[name], first[name], rtol=0, atol=1e-9) for name in first)

    from_ticket = FilterSettings(**still.model_dump() | {"start": {"weights": str(tmp_path / "ticket.safetensors")}})
    train_filter(tiny_store, "rdn", options | {"growth": 1}, from_ticket, tmp_path / "ticket")
    begun, _ = load_model(tmp_path / "ticket" / "last.safetensors")
    assert torch.allclose(begun.blocks[0].fusion.weight, made.blocks[0].fusion.weight, rtol=0, atol=1e-9)
    with pytest.raises(ConfigError, match="started from other weights"):
        lottery.write_ticket(tmp_path / "ticket" / "last.safetensors", {"layers": 1}, tmp_path / "no.safetensors")


@pytest.mark.parametrize(
    ("network", "options", "sizes", "message"),
    [
        ("rdn", RDN, {"growth": 7}, "has 6 channels: it cannot be pruned to 7"),
        ("low_cost_5", {}, {"features": 8}, "depthwise.* cannot be pruned"),
        ("rdn", {"upsampling": "transposed"}, {"growth": 8}, "tail.weight of RDN cannot be pruned"),
        ("vrcnn", {}, {}, "VRCNN cannot be pruned"),
    ],
)
def test_what_cannot_be_pruned_is_refused(network, options, sizes, message):
    with pytest.raises(ConfigError, match=message):
        lottery.channels(create_model(network, **options), create_model(network, **options | sizes))
