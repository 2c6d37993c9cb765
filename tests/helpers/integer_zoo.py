"""Integer networks with weights from integer formulas, engines by instruction set, and comparisons of samples.

The formulas give the same weights whatever the version of a random generator, so that tests can hold MD5s of samples.
"""

import functools

import numpy as np
import pytest
import torch

from codecnn.filtering.integer import (
    WIDE_MAXIMA,
    ExactFilter,
    FastNetwork,
    Grid,
    IntegerNetwork,
    RowNetwork,
    as_integers,
    build_engine,
    fit_grid,
    fuse,
    instruction_set,
    linked_scales,
    picture_of,
    quantise,
    save_integer,
    source_card,
    tensor_bounds,
)
from codecnn.models import CHROMA_PLANES, KNOWN_PLANES, SAMPLE_PLANES, build_graph, load_model
from codecnn.models.graph import Graph, Node
from tests.helpers.networks import SMALL, create_case

OPTIONS = [
    ("rdn", SMALL | {"head": "5x5"}),
    ("rdn", SMALL | {"shuffle": 2, "upsampling": "transposed"}),
    ("rdn", SMALL | {"shuffle": 3, "upsampling": "transposed"}),
    ("rdn", SMALL | {"shuffle": 2, "transform": "haar"}),
    ("rdn", SMALL | {"global_residual": False, "local_residual": False}),
    ("rdn", SMALL | {"output": "picture"}),
    ("rdn", SMALL | {"conditioning": "se"}),
    ("rdn", SMALL | {"conditioning": "film", "shuffle": 2, "planes": KNOWN_PLANES}),
    ("rdn_yuv", SMALL | {"planes": ["rec_y", "unf_y", "rec_v", "rec_u", "depth", "qp"]}),
    ("dncnn", {"features": 8, "layers": 4, "planes": ["rec_y", "qp", "rec_u"]}),
    ("low_cost_17", {"features": 8, "blocks": 2, "conditioning": "plane"}),
    (
        "low_cost_yuv_17",
        {"features": 8, "blocks": 2, "conditioning": "plane", "planes": ["rec_y", "qp", "rec_v", "unf_y", "rec_u"]},
    ),
]
"""Networks and options that cover the branches of the graph builder that the zoo's own options do not."""

INSTRUCTION_SETS = ("plain", "avx512_vnni", "amx")
"""Instruction sets of the row engine, slowest first; a processor that has one has those before it."""

ENGINES_8 = ("float32", "float64", *(f"int8-{name}" for name in INSTRUCTION_SETS))
"""Engines of 8-bit networks by name: the row engine once with each instruction set."""


def instruction_set_params(names=INSTRUCTION_SETS):
    """Parameters for a test of each instruction set, which skip by name where it is missing."""
    fastest = INSTRUCTION_SETS.index(instruction_set())
    return [pytest.param(name, marks=_skip_if(INSTRUCTION_SETS.index(name) > fastest, name)) for name in names]


def engine_params(names=ENGINES_8):
    """Parameters for a test of each engine, which skip by the name of a missing instruction set."""
    fastest = INSTRUCTION_SETS.index(instruction_set())
    params = []
    for name in names:
        instructions = name.removeprefix("int8-")
        missing = instructions != name and INSTRUCTION_SETS.index(instructions) > fastest
        params.append(pytest.param(name, marks=_skip_if(missing, instructions)))
    return params


def _skip_if(missing, name):
    reason = f"needs a processor with {name}, which ONEDNN_MAX_CPU_ISA does not switch off"
    return pytest.mark.skipif(missing, reason=reason)


def prepare_engine(network, engine) -> FastNetwork:
    """Prepare a network to run with one of `ENGINES_8`."""
    name, _, instructions = engine.partition("-")
    return RowNetwork(network, instructions) if instructions else build_engine(network, name)


def filter_exactly(network, planes, qp=37, bit_depth=10, engine=None, **options):
    """Filter planes (h, w) with an `ExactFilter` that uses one of `ENGINES_8`; None lets it choose."""
    filter_ = ExactFilter(network, engine="float32" if engine else None, **options)
    if engine:
        filter_.fast = prepare_engine(network, engine)
    return filter_.samples(picture_of(planes, bit_depth), qp, planes)


def assert_same_samples(actual, expected):
    """Compare outputs by component, bit for bit."""
    assert tuple(actual) == tuple(expected)
    for name, plane in expected.items():
        np.testing.assert_array_equal(np.asarray(actual[name]).astype(np.int64), plane.astype(np.int64))


def formula_model(name, options=None):
    """Create the float network `name`, short, with weights of about unit gain and a long period."""
    model = create_case(name, options).eval()
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
    """Create its 16-bit form; magnitudes are not measured, so that nothing depends on float sums."""
    graph = build_graph(formula_model(name, options))
    return quantise(graph, {node.name: 6.0 for node in graph.nodes}, bit_depth, **quantisation)


def save_sixteen_bits(path, name="low_cost_5"):
    """Save the 16-bit form of shipped weights, which come without it, and return `path`."""
    model, card = load_model(name)
    graph = build_graph(model.eval())
    save_integer(path, quantise(graph, {node.name: 6.0 for node in graph.nodes}, 10), source_card(card))
    return path


def formula_eight(name, options=None, bit_depth=10, wide=0, maximum=WIDE_MAXIMA[0]) -> IntegerNetwork:
    """Create its 8-bit form with scales that are not measured; every `wide`-th tensor has integers up to `maximum`."""
    graph = fuse(build_graph(formula_model(name, options)))
    # Scales are not powers of two, and differ by channel where nothing is added.
    linked_names = {*linked_scales(graph), *linked_scales(graph).values()}
    scales = {}
    for node, (_, high) in tensor_bounds(graph).items():
        step = np.zeros(1) if node in linked_names else np.arange(graph.extents[node].channels) % 5
        scales[node] = np.broadcast_to(high / (6.0 + step), (graph.extents[node].channels,)).copy()
    for node in linked_names:
        scales[node] = np.full(graph.extents[node].channels, 127 / 6.0)
    grid = Grid(scales, tensor_bounds(graph))
    names = [node for node in grid.bounds if grid.is_byte(node)]
    grid = grid.widened(names[::wide] if wide else (), maximum)
    return as_integers(graph, fit_grid(graph, grid, bit_depth), bit_depth)


formula_eight_once = functools.cache(formula_eight)


def two_convolutions(weight, shift=0, low=-128, high=127, skip=None, bits=8, bias=0, kind=np.int8) -> IntegerNetwork:
    """Create rec_y -> convolution to a byte -> second convolution, with the byte added if `skip` is given -> output."""
    weight = np.asarray(weight)
    first = {
        "weight": np.full((1, 1, 1, 1), 1, np.int8),
        "bias": np.zeros(1, np.int32),
        "shift": np.full(1, 2, np.int8),
    }
    shifts = shift if isinstance(shift, np.ndarray) else np.full(1, shift, np.int8)
    second = {"weight": weight.astype(kind), "bias": np.full(1, bias, np.int32), "shift": shifts}
    values = {"pad": 1, "groups": 1, "low": low, "high": high}
    nodes = (
        Node("rec_y", "plane"),
        Node("a", "conv", ("rec_y",), {"pad": 1, "groups": 1, "low": -128, "high": 127, "skip": 0}, first),
        Node("b", "conv", ("a", "a") if skip is not None else ("a",), values | {"skip": skip or 0}, second),
        Node("y", "output", ("b", "rec_y"), {"crop": 0, "fraction": 16}, {"gain": np.array([64], np.int16)}),
    )
    return IntegerNetwork(Graph(nodes), 10, bits)


def random_integers(network, height, width, seed=0, count=1, bit_depth=None):
    """Draw planes (count, 1, h, w) of samples, a third of them extreme, and of cells; the size is used as it is."""
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


def random_picture_planes(network, height, width, **options):
    """Draw planes (h, w) of one picture; see `random_integers`."""
    return {name: plane[0, 0] for name, plane in random_integers(network, height, width, **options).items()}


def float_tensors(planes):
    """Convert planes to float32 tensors, as engines take them."""
    return {name: torch.from_numpy(plane.astype(np.float32)) for name, plane in planes.items()}
