"""The pass over memory after a convolution, against PyTorch's operators one after the other."""

import pytest
import torch

from codecnn.filtering.integer import build_engine, passes, run_reference, torch_engine
from codecnn.filtering.integer.passes import Rounding, add_in_place, modulate, round_in_place
from tests.filtering.test_integer import assert_same
from tests.helpers.integer_zoo import formula_eight, formula_network, random_integers

ENDINGS = [
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
    """Halves, of which every second is a tie, from -most to most."""
    torch.manual_seed(0)
    return (torch.randint(-2 * most, 2 * most + 1, (2, channels, 7, 9)) / 2).contiguous(memory_format=layout)


def ended(numbers, ending):
    return (numbers.round() if ending.to_even else numbers.floor()).clamp(ending.low, ending.high)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 5])
def test_passes(ending, layout, channels):
    sums, second = halves(layout, channels), halves(layout, channels).flip(0).round()
    assert torch.equal(round_in_place(sums.clone(), ending), ended(sums, ending))
    assert torch.equal(add_in_place(sums.clone(), second.clone(), 0.25, ending), ended(sums + second / 4, ending))
    factor, offset = torch.arange(channels) / 2 - 0.5, torch.arange(channels) / 4 - 1
    made = modulate(second, factor, offset, ending)
    assert torch.equal(made, ended(second * factor[:, None, None] + offset[:, None, None], ending))


@pytest.mark.parametrize("make", [formula_eight, formula_network])
def test_without_onednns_own_convolution(make, monkeypatch):
    """As PyTorch without oneDNN convolves."""
    network = make("low_cost_17")
    side = 16 + 2 * network.graph.halo
    planes = random_integers(network, side, side)
    tensors = {name: torch.from_numpy(plane.astype("float32")) for name, plane in planes.items()}
    expected = run_reference(network, planes, 30, 10)
    assert_same(build_engine(network, "float32")(tensors, 30, 10), expected)
    monkeypatch.setattr(torch_engine, "_ONEDNN_CONVOLUTION", None)
    assert_same(build_engine(network, "float32")(tensors, 30, 10), expected)
