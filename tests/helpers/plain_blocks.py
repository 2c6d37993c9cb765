"""Network layers in plain NumPy and SciPy, on arrays (c, h, w), with the weights of torch modules."""

import numpy as np
from scipy.signal import correlate


def convolve(x, layer):
    """Apply a Conv2d as correlations, group by group."""
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    groups = np.split(np.pad(x, [(0, 0), *((size, size) for size in layer.padding)]), layer.groups)
    group_of = np.arange(len(weight)) // (len(weight) // layer.groups)
    sums = [correlate(groups[g], kernel, "valid", "direct")[0] for g, kernel in zip(group_of, weight, strict=True)]
    return np.stack(sums) + bias[:, None, None]


def relu(x):
    """Apply the rectified linear unit."""
    return np.maximum(x, 0)


def rdb(x, block):
    """Apply a residual dense block."""
    dense = x
    for layer in block.layers:
        dense = np.concatenate([dense, relu(convolve(dense, layer))])
    return convolve(dense, block.fusion) + (x if block.local_residual else 0)


def linear(x, layer):
    """Apply a fully connected layer to an array of shape (..., inputs)."""
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
