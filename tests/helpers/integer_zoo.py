"""Integer networks with weights from integer formulas, the same whatever the version of a random generator."""

import numpy as np
import torch

from codecnn.filtering.integer import (
    WIDE_MAXIMA,
    Grid,
    IntegerNetwork,
    as_integers,
    fit_grid,
    fuse,
    linked_scales,
    quantise,
    tensor_bounds,
)
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES, build_graph, create_model
from tests.helpers.networks import SHORT


def formula_model(name, options=None):
    """The network `name`, short, with weights of about unit gain that repeat nowhere soon."""
    model = create_model(name, **(SHORT.get(name, {}) if options is None else options)).eval()
    for number, (key, tensor) in enumerate(model.state_dict().items()):
        if not tensor.is_floating_point() or key.startswith("gain"):
            continue
        index = torch.arange(tensor.numel(), dtype=torch.int64)
        values = ((index * 7919 + index * index * 31 + number * 1009) % 2003 - 1001).double() / 1001
        if "running_var" in key:
            values = 1 + values / 2
        elif tensor.dim() > 1:
            values = values * (3 / tensor[0].numel()) ** 0.5
        tensor.copy_((values / (1 if tensor.dim() > 1 or "var" in key else 8)).reshape(tensor.shape))
    return model


def formula_network(name, options=None, bit_depth=10, **quantisation) -> IntegerNetwork:
    """Its integer form; magnitudes are not measured, so that nothing depends on float sums."""
    graph = build_graph(formula_model(name, options))
    return quantise(graph, {node.name: 6.0 for node in graph.nodes}, bit_depth, **quantisation)


def random_integers(network, height, width, seed=0, count=1, bit_depth=None):
    """Planes (count, 1, h, w) of whole samples, some of them extreme, without the halo."""
    rng = np.random.default_rng(seed)
    depth = bit_depth or network.bit_depth
    planes = {}
    for name in network.graph.planes:
        shape = ((height + 1) // 2, (width + 1) // 2) if name in CHROMA_PLANES else (height, width)
        if name in SAMPLE_PLANES:
            plane = rng.integers(0, 1 << depth, (count, 1, *shape))
            plane[..., : shape[0] // 3, :] = rng.choice([0, (1 << depth) - 1], (count, 1, shape[0] // 3, shape[1]))
            planes[name] = plane.astype(np.uint16)
        else:
            planes[name] = (rng.integers(0, 67, (count, 1, *shape)) / np.float32(67)).astype(np.float32)
    return planes


def formula_eight(name, options=None, bit_depth=10, wide=0, maximum=WIDE_MAXIMA[0]) -> IntegerNetwork:
    """Its form of 8 bits, of scales that are not measured; every `wide`-th tensor goes up to `maximum`."""
    graph = fuse(build_graph(formula_model(name, options)))
    # Scales that are no powers of two, and differ by channel where nothing is added.
    linked_names = {*linked_scales(graph), *linked_scales(graph).values()}
    scales = {}
    for node, (_, high) in tensor_bounds(graph).items():
        step = np.zeros(1) if node in linked_names else np.arange(graph.extents[node].channels) % 5
        scales[node] = np.broadcast_to(high / (6.0 + step), (graph.extents[node].channels,)).copy()
    for node in linked_names:
        scales[node] = np.full(graph.extents[node].channels, 127 / 6.0)
    grid = Grid(scales, tensor_bounds(graph))
    names = [node for node in grid.bounds if grid.is_byte(node)]
    return as_integers(
        graph, fit_grid(graph, grid.widened(names[::wide] if wide else (), maximum), bit_depth), bit_depth
    )
