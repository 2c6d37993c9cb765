"""Rounding of weights by the moments of their inputs, against all integers near them and against the nearest."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from codecnn.filtering.integer import FLOAT32_EXACT, Grid, as_integers, tensor_bounds
from codecnn.filtering.integer.eight_bits import input_moments, layer_of, real_tensors, round_weights
from codecnn.models.graph import Draft, Graph, Node, run


def convolution(outputs=4, inputs=3, kernel=(1, 3), groups=1, seed=0):
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(outputs, inputs // groups, *kernel)) * 3
    values = {"pad": 1, "groups": groups, "relu": 0}
    return Node("c", "conv", ("x",), values, {"weight": weight, "bias": np.zeros(outputs)})


def features(channels, seed=0, size=40):
    """Draw tensors (1, channels, size, size) like a network's features: smooth, correlated, of nonzero mean."""
    noise = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, channels, size + 4, size + 4)))
    smooth = F.avg_pool2d(noise, 5, 1)
    return 40 * smooth + 60 * smooth.mean(1, keepdim=True) + 12


def windows(node, x):
    """Return the windows (groups, k, n) that a convolution multiplies, by NumPy."""
    weight, groups = node.tensors["weight"], node.values["groups"]
    rows, columns = weight.shape[2:]
    padded = np.pad(x[0].numpy(), [(0, 0), (rows // 2,) * 2, (columns // 2,) * 2])
    views = np.lib.stride_tricks.sliding_window_view(padded, (rows, columns), axis=(1, 2))
    flat = views.transpose(0, 3, 4, 1, 2).reshape(x.shape[1] * rows * columns, -1)
    return flat.reshape(groups, -1, flat.shape[1])


@pytest.mark.parametrize(("kernel", "groups"), [((1, 3), 1), ((3, 3), 3), ((1, 1), 1)])
def test_moments_are_those_of_the_windows(kernel, groups):
    node, x = convolution(3, 3, kernel, groups), features(3, size=20)
    moments, expected_windows = input_moments(node, x), windows(node, x)
    np.testing.assert_allclose(moments.mean, expected_windows.mean(2), rtol=1e-9)
    expected = np.stack([np.cov(group, bias=True).reshape(len(group), len(group)) for group in expected_windows])
    np.testing.assert_allclose(moments.covariance, expected, rtol=1e-9, atol=1e-9)
    twice = moments + input_moments(node, features(3, seed=1, size=20))
    both = np.concatenate([expected_windows, windows(node, features(3, seed=1, size=20))], axis=2)
    np.testing.assert_allclose(twice.mean, both.mean(2), rtol=1e-9)


def error_of(node, x, whole, correction):
    """Compute the mean squared error of each output with integer weights and a correction of the biases."""
    whole, correction = np.asarray(whole), np.asarray(correction)
    of_groups = windows(node, x)
    errors = [
        (left.reshape(len(left), -1) - right.reshape(len(right), -1)) @ inputs - added[:, None]
        for left, right, added, inputs in zip(
            np.split(node.tensors["weight"], len(of_groups)),
            np.split(whole, len(of_groups)),
            np.split(correction, len(of_groups)),
            of_groups,
            strict=True,
        )
    ]
    return np.square(np.concatenate(errors)).mean(1)


@pytest.mark.parametrize(("groups", "share"), [(1, 0.4), (3, 0.6)])
def test_the_error_is_below_that_of_the_nearest_integers(groups, share):
    node, x = convolution(30, 3, (1, 3), groups, seed=3), features(3)
    weight = torch.from_numpy(node.tensors["weight"])
    whole, correction = round_weights(weight, torch.ones(30, 1, 1, 1).double(), input_moments(node, x), 127)
    assert torch.equal(whole, whole.round())
    error, nearest = error_of(node, x, whole, correction), error_of(node, x, weight.round(), np.zeros(30))
    assert error.mean() < share * nearest.mean()


def test_the_error_is_hardly_above_the_smallest_possible():
    """The smallest possible error is that of the best of 4^3 integers around the weights of each of 30 outputs."""
    node, x = convolution(30, 3, (1, 3), 3, seed=3), features(3)
    weight, moments = node.tensors["weight"], input_moments(node, x)
    whole, correction = round_weights(torch.from_numpy(weight), torch.ones(30, 1, 1, 1).double(), moments, 127)
    best = np.full(30, np.inf)
    for step in product((-1, 0, 1, 2), repeat=3):
        other = np.floor(weight) + np.array(step)
        missing = ((weight - other).reshape(3, 10, 3) * moments.mean.numpy()[:, None]).sum(2).ravel()
        best = np.minimum(best, error_of(node, x, other, missing))
    error = error_of(node, x, whole, correction)
    assert (error > best - 1e-9).all()
    assert error.mean() < 1.3 * best.mean()


def test_the_scales_of_the_inputs_count():
    """Scaled inputs give the same integers as scales for unscaled inputs."""
    node, x = convolution(4, 3, (1, 1), seed=5), features(3)
    weight, units = torch.from_numpy(node.tensors["weight"]), torch.tensor([0.25, 1.0, 8.0], dtype=torch.float64)
    counted = round_weights(weight, units[None, :, None, None], input_moments(node, x), 127)
    same = round_weights(weight, torch.ones(1, 3, 1, 1).double(), input_moments(node, x * units[:, None, None]), 127)
    for by_scales, by_inputs in zip(counted, same, strict=True):
        torch.testing.assert_close(by_scales, by_inputs, rtol=0, atol=1e-9)


def test_no_integer_exceeds_its_limit():
    node, x = convolution(4, 3, (1, 3), seed=7), features(3)
    weight = torch.from_numpy(node.tensors["weight"])
    whole, _ = round_weights(weight, torch.ones(4, 1, 1, 1).double(), input_moments(node, x), 2)
    assert whole.abs().max() == 2


def test_no_sum_leaves_float32_however_they_are_rounded():
    """If sums with the nearest integers almost reach the limit, integers a few units larger would exceed it."""
    draft, rng = Draft(), np.random.default_rng(0)
    x = draft.once("rec_y")
    for name, outputs, inputs, side in (("head", 64, 1, 3), ("body", 32, 64, 3), ("tail", 1, 32, 1)):
        weight = rng.normal(size=(outputs, inputs, side, side))
        x = draft.weights(name, x, weight, np.zeros(outputs), pad=0)
    draft.add("y", "output", x, "rec_y", tensors={"gain": np.ones(1)}, crop=2)
    graph, tensors = Graph(tuple(draft.nodes)), {}
    run(graph, {"rec_y": features(1, size=48) / 1023}, 37, tensors.__setitem__)
    moments = {node.name: input_moments(node, tensors[node.inputs[0]]) for node in graph.nodes if node.op == "conv"}
    body = next(node for node in graph.nodes if node.name == "body")
    beyond = 0
    for scale in np.linspace(16, 19, 24):  # in which the shifts of all outputs fall by one
        scales = {name: np.full(graph.extents[name].channels, 16.0) for name in tensor_bounds(graph)}
        scales["body"] = np.full(32, scale)
        grid = Grid(scales, tensor_bounds(graph)).widened(["head"])
        network = as_integers(graph, grid, 10, moments)  # proves the sums
        assert max(interval.widest for interval in network.ranges.values()) <= FLOAT32_EXACT
        layer = layer_of(body, grid.all_scales(graph, 10), grid.all_bounds(graph, 10))
        scaled, offset, shift = layer._scaled(*real_tensors(body))
        units = layer.outputs[:, None, None, None] / layer.ratio
        whole, correction = round_weights(scaled, units, moments["body"], layer.limit)
        beyond += int((layer.widest_sums(whole, (offset + correction).round(), shift) > FLOAT32_EXACT).sum())
    assert beyond > 0, "without the check some sums would exceed the limit"
