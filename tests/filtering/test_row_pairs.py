"""Pairs of pixels that are convolved with four products: the same sums, where all factors fit into 16 bits."""

import numpy as np
import pytest
import torch

from codecnn.filtering.integer import FastNetwork, IntegerNetwork, RowNetwork
from codecnn.filtering.integer.row_kernels import PAIR_SUMS
from codecnn.models.graph import Graph, Node
from tests.helpers.integer_zoo import float_tensors, instruction_set_params, random_integers


def convolution(name, read, weight, shift, most):
    outputs = len(weight)
    tensors = {
        "weight": weight.astype(np.int16),
        "bias": np.arange(outputs, dtype=np.int32),
        "shift": np.full(outputs, shift, np.int8),
    }
    return Node(name, "conv", (read,), {"low": -most, "high": most, "pad": 1, "groups": 1, "skip": 0}, tensors)


def network_of_extremes(most, weight, rows):
    """Create a network whose second convolution multiplies numbers up to `most` by `weight` at a tap of each output."""
    rng = np.random.default_rng(0)
    taps = np.zeros((32, 32, rows, 3))
    outputs = np.arange(32)
    taps[outputs, rng.permutation(32), outputs % rows, outputs % 3] = weight * rng.choice([-1, 1], 32)
    nodes = (
        Node("rec_y", "plane"),
        convolution("a", "rec_y", rng.choice([-120, 127, 3], (32, 1, 1, 1)), 0, most),
        convolution("b", "a", taps, 13, 2000),
        convolution("c", "b", rng.integers(-9, 10, (1, 32, 1, 1)), 6, 2000),
        Node("y", "output", ("c", "rec_y"), {"crop": 0, "fraction": 16}, {"gain": np.array([20], np.int16)}),
    )
    return IntegerNetwork(Graph(nodes), 10, 8)


@pytest.mark.parametrize("instructions", instruction_set_params(["avx512_vnni"]))
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("most", "weight", "paired"), [(16383, 1000, True), (16384, 1000, False), (900, 16383, True), (900, 16384, False)]
)
def test_pairs_have_the_sums_of_single_pixels(instructions, rows, most, weight, paired):
    network = network_of_extremes(most, weight, rows)
    planes = float_tensors(random_integers(network, 9, 71, seed=1))
    by_rows = RowNetwork(network, instructions)
    assert [step.sums == PAIR_SUMS for step in by_rows.steps] == [False, paired, False]
    expected = FastNetwork(network)(planes, 32, 10)["y"]
    assert torch.equal(by_rows(planes, 32, 10)["y"], expected)
    assert len(expected.unique()) > 100
