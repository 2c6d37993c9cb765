"""The compiled passes after a convolution against PyTorch's operators one after the other."""

import pytest
import torch

from codecnn.filtering.integer import build_engine, passes, run_reference, torch_engine
from codecnn.filtering.integer.passes import Rounding, add_in_place, modulate, round_in_place, weigh_channels
from tests.helpers.integer_zoo import (
    assert_same_samples,
    float_tensors,
    formula_eight,
    formula_network,
    random_integers,
)

ROUNDINGS = [
    Rounding(-2047, 2047, True),
    Rounding(-2047, 2047, False),
    Rounding(0, 255, True),
]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(params=[1, 3])
def threads(request, monkeypatch):
    monkeypatch.setattr(passes, "_SMALL", 100)
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


def halves(layout, channels=5, most=4000):
    """Draw multiples of one half from -most to most, every second of them a tie."""
    torch.manual_seed(0)
    return (torch.randint(-2 * most, 2 * most + 1, (2, channels, 7, 9)) / 2).contiguous(memory_format=layout)


def round_plainly(numbers, rounding):
    return (numbers.round() if rounding.to_even else numbers.floor()).clamp(rounding.low, rounding.high)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 5])
def test_passes(rounding, layout, channels):
    sums, added = halves(layout, channels), halves(layout, channels).flip(0).round()
    assert torch.equal(round_in_place(sums.clone(), rounding), round_plainly(sums, rounding))
    assert torch.equal(
        add_in_place(sums.clone(), added.clone(), 0.25, rounding), round_plainly(sums + added / 4, rounding)
    )
    factor, offset = torch.arange(channels) / 2 - 0.5, torch.arange(channels) / 4 - 1
    modulated = modulate(added, factor, offset, rounding)
    assert torch.equal(modulated, round_plainly(added * factor[:, None, None] + offset[:, None, None], rounding))
    weighed = (added * factor[:, None, None]).sum(1, keepdim=True) + 0.75
    assert torch.equal(weigh_channels(added, factor, 0.75, rounding), round_plainly(weighed, rounding))


@pytest.mark.parametrize("create", [formula_eight, formula_network])
def test_without_onednns_own_convolution(create, monkeypatch):
    """The float engine computes the same samples with PyTorch's convolution."""
    network = create("low_cost_17")
    side = 16 + 2 * network.graph.halo
    planes = random_integers(network, side, side)
    tensors = float_tensors(planes)
    expected = run_reference(network, planes, 30, 10)
    assert_same_samples(build_engine(network, "float32")(tensors, 30, 10), expected)
    monkeypatch.setattr(torch_engine, "_ONEDNN_CONVOLUTION", None)
    assert_same_samples(build_engine(network, "float32")(tensors, 30, 10), expected)
