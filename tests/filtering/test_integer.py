"""Integer networks: the reference engine against SciPy and PyTorch, the float engine against the reference."""

import functools

import numpy as np
import pytest
import torch
from scipy.signal import correlate

from codecnn.base.errors import ConfigError, ModelError
from codecnn.filtering import FloatFilter
from codecnn.filtering.integer import (
    FLOAT32_EXACT,
    ExactFilter,
    FastNetwork,
    IntegerNetwork,
    check_planes,
    filter_reference,
    md5_of,
    quantise,
    run_reference,
)
from codecnn.filtering.integer.reference import centred_integers, compute_node, round_half_up
from codecnn.models import FilterNetwork, build_graph, create_model, named_outputs
from codecnn.models.graph import Graph, Node, run
from codecnn.pictures.files import Picture
from tests.helpers.integer_zoo import (
    OPTIONS,
    assert_same_samples,
    filter_exactly,
    float_tensors,
    formula_model,
    formula_network,
    random_integers,
    random_picture_planes,
)
from tests.helpers.networks import SMALL, WITH_GRAPH, learn, random_planes

GOLDEN = {
    "arcnn": "69e29a5708debb718e203bdb7eeb9d32",
    "dncnn": "2d010f20a4e5b9c7857efa4a75b489c9",
    "edsr": "61ebcbfe4bad4209569097c8465c17c6",
    "low_cost_17": "03f8281e92b614e4f1aaf297e816add3",
    "low_cost_17 decoder+neighbours2": "b83a4baa118382acefd59efb90e94d4b",
    "low_cost_17 slice_type": "f1a857996a8003014c4bae35d7a50b09",
    "low_cost_17 slice_type+neighbours2": "c1e20cc5d0da3f807a65f35b76ffbad9",
    "low_cost_17 unfiltered": "8b90eb032c727a61e1b3754173410d49",
    "low_cost_400": "184e39bb436c39108cb6777a82b1d271",
    "low_cost_400 unfiltered": "98e1761596fbf86b6c7e9571306dd226",
    "low_cost_5": "9c7b20307015ee386551bbdd6da37cbe",
    "low_cost_75": "f3bc18eae2d4176734300f61241b808b",
    "low_cost_75 decoder+neighbours2": "1ec39b41132fcf0b5ac4be7b4aa875dc",
    "low_cost_75 unfiltered": "deb67098bcf092d59feb9f2faf4e700f",
    "low_cost_yuv_17": "aade6563ad49380818cfa4bb2d4e08ad",
    "low_cost_yuv_17 decoder+neighbours": "7f38c4174ef6e78308c7b2abeb51fadc",
    "low_cost_yuv_17 slice_type": "2723dab1a71ef829a3bf31ab1f8754dc",
    "low_cost_yuv_17 unfiltered": "a5938d5c38afdae534a8503ecbf99f45",
    "low_cost_yuv_75": "c070eb407179344db250581d7e7c618c",
    "quarter_haar": "a9c38c5e850e0fd4e5c2add6ef05d01b",
    "quarter_light": "907f6c341185fc66cf3617c7e94f0ec8",
    "quarter_unshuffle": "d3d9031e92798a7e4e9f9b2a3e70be84",
    "rdn": "fc167bb95d3d5e23ea91e9c1ba8b60a5",
    "rdn_32_3_6_16": "fc167bb95d3d5e23ea91e9c1ba8b60a5",
    "rdn_32_4_6_24": "26fcdd87c66d7f9a252d58884e4edae7",
    "rdn_64_4_6_24_shuffle": "4ad5f28431936a53f61df1e7e9e8f869",
    "rdn_yuv": "0ec88e32a6bd0dd158b9997d9cc82555",
    "vrcnn": "17599b1e6381a6e8bc9a1cabce548a30",
}
"""MD5 of the samples at QP 37 that `formula_network` computes for the picture of `check_planes`."""

zoo_network = functools.cache(formula_network)


@pytest.mark.parametrize(("name", "options"), [*((name, None) for name in WITH_GRAPH), *OPTIONS])
def test_the_graph_computes_the_network(name, options):
    model = formula_model(name, options)
    graph = build_graph(model)
    assert (graph.halo, graph.radius, graph.stride) == (model.halo, model.radius, model.stride)
    with torch.inference_mode():
        for qp in (22, 37):
            planes = random_planes(model, 24, 36, qp=qp)
            computed = run(graph, planes, qp)
            for output, plane in named_outputs(model(planes)).items():
                torch.testing.assert_close(computed[output], plane, rtol=1e-6, atol=1e-6 * float(plane.abs().max()))
                assert (plane - 0.5).abs().max() > 0.1


def test_a_network_without_a_graph_is_refused():
    network = FilterNetwork(["rec_y"], halo=0, radius=1, stride=1)
    with pytest.raises(ModelError, match="class FilterNetwork has no graph"):
        build_graph(network)


@pytest.mark.parametrize("name", WITH_GRAPH)
def test_goldens(name):
    """The reference and the float engine, in float32 and in float64, compute the golden samples."""
    network = zoo_network(name)
    assert network.accumulator_bits == 25
    planes = check_planes(network)
    assert md5_of(filter_reference(network, planes, 37, 10)) == GOLDEN[name]
    for engine in ("float32", "float64"):
        samples = filter_exactly(network, planes, engine=engine)
        assert md5_of(samples) == GOLDEN[name]
    (plane, *_) = samples.values()
    assert np.abs(plane - planes["rec_y"].astype(np.float32)).mean() > 1, "the filter does something"


def test_every_operation_can_be_observed():
    network = zoo_network("low_cost_5")
    planes, tensors = check_planes(network), {}
    filtered = filter_reference(network, planes, 37, 10, tensors.__setitem__)
    assert list(tensors) == [node.name for node in network.graph.nodes]
    np.testing.assert_array_equal(tensors["y"][0, 0, :37, :45], filtered["y"])
    assert md5_of(filtered) == GOLDEN["low_cost_5"]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_exact(name, options):
    for bits, depth in ((25, 10), (32, 12)):
        network = formula_network(name, options, depth, accumulator_bits=bits)
        planes = random_picture_planes(network, 21, 26, bit_depth=depth - 2)
        assert_same_samples(
            filter_exactly(network, planes, 27, depth - 2), filter_reference(network, planes, 27, depth - 2)
        )
        kinds = set(FastNetwork(network).types.values())
        assert kinds == ({torch.float32} if bits == 25 else {torch.float32, torch.float64})


@pytest.mark.parametrize(("layers", "growth", "groups"), [(5, 20, [2, 2, 1]), (4, 16, [3, 1]), (3, 30, [2, 1])])
def test_layers_of_dense_blocks_are_computed_together(layers, growth, groups):
    network = formula_network("rdn", {"features": 8, "blocks": 1, "layers": layers, "growth": growth})
    fast = FastNetwork(network)
    together = [len(sums.layers) for sums in fast.sums.values() if "layers" in sums.layers[0].name]
    alone = [node for node in fast.nodes if node.op == "conv" and node.name not in fast.sums and "layers" in node.name]
    assert [*together, *(1 for _ in alone)] == groups
    assert [node.name for node in fast.nodes if node.op == "concat"] == ["channels"]
    planes = random_picture_planes(network, 21, 26)
    assert_same_samples(filter_exactly(network, planes), filter_reference(network, planes, 37, 10))


def test_a_layer_that_another_node_reads_is_computed_alone():
    network = formula_network("rdn", {"features": 8, "blocks": 1, "layers": 2, "growth": 24})
    nodes = list(network.graph.nodes)
    at, fusion = next((index, node) for index, node in enumerate(nodes) if node.name.endswith("fusion"))
    lonely = next(node for node in nodes if node.name.endswith("layers.0"))
    taken = {name: tensor[:, :24] if name == "weight" else tensor for name, tensor in fusion.tensors.items()}
    nodes[at] = Node(fusion.name, "conv", (lonely.name,), fusion.values, taken)
    changed = IntegerNetwork(Graph(tuple(nodes)), network.bit_depth, network.bits)
    assert all(len(sums.layers) == 1 for sums in FastNetwork(changed).sums.values())
    planes = random_picture_planes(changed, 21, 26)
    assert_same_samples(filter_exactly(changed, planes), filter_reference(changed, planes, 37, 10))


@pytest.mark.parametrize("name", ["rdn_yuv", "low_cost_17", "quarter_haar", "vrcnn"])
def test_tiles_change_nothing(name):
    network = zoo_network(name)
    planes = random_picture_planes(network, 83, 107)
    expected = filter_reference(network, planes, 37, 10)
    for tile in (16, 64, None):
        assert_same_samples(filter_exactly(network, planes, tile=tile), expected)


@pytest.mark.parametrize("name", ["rdn_yuv", "low_cost_5"])
def test_batches_layouts_and_threads_change_nothing(name):
    network = zoo_network(name)
    height, width = 24 + 2 * network.graph.halo, 32 + 2 * network.graph.halo
    planes = random_integers(network, height, width, seed=1, count=8)
    expected = run_reference(network, planes, 22, 10)
    fast = FastNetwork(network)
    tensors = float_tensors(planes)
    for threads, layout in ((1, torch.contiguous_format), (1, torch.channels_last), (2, torch.channels_last)):
        torch.set_num_threads(threads)
        together = fast({plane: tensor.contiguous(memory_format=layout) for plane, tensor in tensors.items()}, 22, 10)
        assert_same_samples(together, expected)
    torch.set_num_threads(1)
    for index in range(8):
        alone = fast({plane: tensor[index : index + 1] for plane, tensor in tensors.items()}, 22, 10)
        assert_same_samples(alone, {output: plane[index : index + 1] for output, plane in expected.items()})


def one_convolution(weight, bias=0, shift=0, low=-(2**15), high=2**15 - 1, gain=1, bit_depth=10):
    """Create a network rec_y -> convolution -> output."""
    weight = np.asarray(weight, np.int16)
    values = {"pad": 1, "groups": 1, "shift": shift, "low": low, "high": high}
    nodes = (
        Node("rec_y", "plane"),
        Node("c", "conv", ("rec_y",), values, {"weight": weight, "bias": np.array([bias], np.int32)}),
        Node("y", "output", ("c", "rec_y"), {"crop": 0, "fraction": 16}, {"gain": np.array([gain], np.int16)}),
    )
    return IntegerNetwork(Graph(nodes), bit_depth)


def test_the_reference_convolves_as_scipy_does():
    rng = np.random.default_rng(0)
    weight = rng.integers(-300, 300, (1, 1, 3, 5))
    network = one_convolution(weight, bias=77, shift=6, gain=640)
    picture = rng.integers(0, 1024, (30, 20)).astype(np.uint16)
    sums = correlate(picture.astype(np.int64) - 512, weight[0, 0].astype(np.int64), mode="same", method="direct") + 77
    residual = np.floor(sums.astype(np.float64) / 64 + 0.5).clip(-(2**15), 2**15 - 1)
    expected = (picture + np.floor(residual * 640 / 64 + 0.5)).clip(0, 1023)
    np.testing.assert_array_equal(filter_reference(network, {"rec_y": picture}, 0, 10)["y"], expected)


def test_groups_convolve_their_own_channels():
    rng = np.random.default_rng(1)
    weight, x = rng.integers(-9, 9, (6, 2, 3, 3)), rng.integers(-9, 9, (2, 4, 7, 8))
    tensors = {"weight": weight.astype(np.int16), "bias": np.zeros(6, np.int32)}
    node = Node("c", "conv", ("x",), {"pad": 0, "groups": 2, "shift": 0, "low": -(2**15), "high": 2**15 - 1}, tensors)
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), groups=2)
    np.testing.assert_array_equal(compute_node(node, [x], 0), expected.numpy())


def test_sums_round_to_nearest_halves_up():
    assert round_half_up(np.array([-5, -3, -2, -1, 0, 1, 2, 3, 5]), 1).tolist() == [-2, -1, -1, 0, 0, 1, 1, 2, 3]
    assert round_half_up(np.array([-7, 9]), 0).tolist() == [-7, 9]


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_planes_enter_centred(bit_depth):
    samples = np.array([[0, 1, 2**bit_depth - 1]])
    expected = samples * 2 ** (12 - bit_depth) - 2048
    np.testing.assert_array_equal(centred_integers("rec_y", samples, bit_depth, 12), expected)
    cells = np.array([[0, 1 / 3, 0.5, 1]], np.float32)
    assert centred_integers("depth", cells, bit_depth, 10).tolist() == [[-512, 341 - 512, 0, 511]]


def largest_sum(network, name):
    """Return the largest sum of a convolution of one input channel, by the input that reaches it."""
    node = next(node for node in network.graph.nodes if node.name == name)
    weight, shift = node.tensors["weight"].astype(int), node.values["shift"]
    low, high = network.ranges[node.inputs[0]].low, network.ranges[node.inputs[0]].high
    worst = 0
    for kernel, bias in zip(weight, node.tensors["bias"].astype(int), strict=True):
        for sign in (1, -1):
            products = sum(max(0, sign * w * low[0], sign * w * high[0]) for w in kernel.ravel().tolist())
            worst = max(worst, products + max(0, sign * bias) + (2**shift // 2 if sign > 0 else 0))
    return worst


@pytest.mark.parametrize("bias", [-4000, 4000])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_proof_gives_the_largest_possible_sum(bias, sign):
    network = one_convolution(sign * np.array([[[[700, -3, 12], [1, -900, 2], [4, 5, 6]]]]), bias=bias, shift=5)
    assert network.ranges["c"].widest == largest_sum(network, "c")


def test_sums_beyond_24_bits_are_computed_in_float64():
    """An odd sum of 25 bits is not a float32 number; the proof decides the type of each node."""
    network = one_convolution(np.full((1, 1, 5, 5), 1311), bias=1, shift=10, gain=64)
    assert network.ranges["c"].widest > FLOAT32_EXACT
    fast = FastNetwork(network)
    assert fast.types["c"] == torch.float64
    rng = np.random.default_rng(0)
    picture = rng.choice([0, 1023], (64, 64)).astype(np.uint16)
    expected = filter_reference(network, {"rec_y": picture}, 0, 10)["y"]
    samples = fast({"rec_y": torch.from_numpy(picture.astype(np.float32))[None, None]}, 0, 10)["y"]
    np.testing.assert_array_equal(samples[0, 0].numpy(), expected)
    assert FastNetwork(one_convolution(np.full((1, 1, 5, 5), 1310))).types["c"] == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": np.full((1, 1, 15, 15), 2**15 - 1)}, "can reach .* beyond 32 bits"),
        ({"shift": 32}, "has shift 32, not 0 to 31"),
        ({"shift": -1}, "has shift -1"),
        ({"low": 5, "high": 4}, "cannot be between 5 and 4"),
        ({"high": 2**15}, "has high 32768"),
        ({"bit_depth": 17}, "bit depth 17"),
        ({"weight": np.zeros((1, 2, 3, 3))}, "do not fit 1 channels"),
        ({"weight": np.zeros((1, 1, 2, 3))}, "kernel of 2x3"),
    ],
)
def test_invalid_integer_networks_are_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        one_convolution(**{"weight": np.ones((1, 1, 3, 3))} | changes)


LAST = Node("y", "output", ("rec_y", "rec_y"), {"crop": 0, "fraction": 16}, {"gain": np.ones(1, np.int16)})


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("a", "crop", ("rec_y",), {"size": 5}), Node("b", "edge", ("a",))], "no whole number of samples"),
        (
            [Node("a", "crop", ("rec_y",), {"size": 1}), Node("b", "unshuffle", ("a",), {"factor": 4})],
            "no whole number",
        ),
        ([Node("b", "add", ("rec_y", "gone"))], "takes 'gone', which no node before it makes"),
        ([Node("rec_y", "edge", ("rec_y",))], "two nodes are called 'rec_y'"),
        ([Node("b", "unshuffle", ("rec_y",), {"factor": 0})], "has factor 0"),
        ([Node("b", "shuffle", ("rec_y",), {"factor": 2})], "cannot shuffle by 2"),
        ([Node("b", "eval", ("rec_y",))], "is no known operation"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(nodes, message):
    with pytest.raises(ModelError, match=message):
        Graph((Node("rec_y", "plane"), *nodes, LAST))


def test_an_output_without_its_decoded_plane_is_refused():
    """The size of such an output would be unknown."""
    weight = {"weight": np.ones((1, 4, 1, 1), np.int16), "bias": np.zeros(1, np.int32)}
    values = {"pad": 0, "groups": 1, "shift": 0, "low": -9, "high": 9}
    halves = [Node("s", "unshuffle", ("rec_y",), {"factor": 2}), Node("c", "conv", ("s",), values, weight)]
    chroma = [Node(name, "output", ("c",), LAST.values, LAST.tensors) for name in "uv"]
    with pytest.raises(ModelError, match="plane rec_u"):
        IntegerNetwork(Graph((Node("rec_y", "plane"), *halves, LAST, *chroma)), 10)


def test_autocast_of_a_user_changes_nothing():
    network = zoo_network("low_cost_5")
    planes = random_picture_planes(network, 32, 48)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        samples = filter_exactly(network, planes)
    assert_same_samples(samples, filter_reference(network, planes, 37, 10))


def test_a_picture_that_does_not_fit_is_refused():
    network, planes = one_convolution(np.ones((1, 1, 3, 3))), {"rec_y": np.zeros((8, 8), np.uint16)}
    with pytest.raises(ModelError, match="8 to 10 bit"):
        filter_exactly(network, planes, bit_depth=12)
    with pytest.raises(ConfigError, match="QP 64"):
        filter_exactly(network, planes, 64)
    with pytest.raises(ConfigError, match="tile size must be positive"):
        filter_exactly(network, planes, tile=0)
    with pytest.raises(ConfigError, match="sums of 33 bits"):
        formula_network("arcnn", accumulator_bits=33)


def test_8_bit_pictures_are_10_bit_pictures_shifted():
    """A network for 10 bit filters 8-bit pictures like their shifted samples, and rounds to 8 bits."""
    network = zoo_network("low_cost_17")
    planes = random_picture_planes(network, 33, 47, bit_depth=8)
    eight = filter_reference(network, {"rec_y": planes["rec_y"].astype(np.uint8)}, 37, 8)["y"]
    ten = filter_reference(network, {"rec_y": planes["rec_y"] << 2}, 37, 10)["y"].astype(int)
    assert eight.dtype == np.uint8
    inside = (ten > 0) & (ten < 1023)
    assert np.abs(eight.astype(int) * 4 - ten)[inside].max() <= 3
    filtered = ExactFilter(network).luma(planes["rec_y"].astype(np.uint8), 37, 8)
    np.testing.assert_array_equal(filtered, eight)
    assert filtered.dtype == np.uint8


def test_chroma_that_is_not_filtered_is_passed_on():
    network = zoo_network("low_cost_5")
    planes = tuple(np.full(shape, 300, np.uint16) for shape in ((32, 32), (16, 16), (16, 16)))
    filtered = ExactFilter(network)(Picture(planes, 10), 32)
    assert filtered.planes[1] is planes[1]
    assert filtered.planes[2] is planes[2]


def degraded(shape, qp, seed):
    """Draw a smooth picture with edges, and the same with an error that grows with the QP as a codec's does."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    clean = 512 + 200 * np.sin(x / 9 + seed) * np.cos(y / 7) + 120 * ((x // 13 + y // 17) % 2)
    step = 2 ** ((qp - 22) / 6)
    noisy = np.rint((clean + rng.normal(0, 2 * step, shape)) / step) * step
    return np.clip(np.rint(clean), 0, 1023).astype(np.uint16), np.clip(np.rint(noisy), 0, 1023).astype(np.uint16)


def train_briefly(name, options):
    """Train a network to restore `degraded` pictures a little."""
    torch.manual_seed(3)
    model = create_model(name, **options)

    def loss(step):
        qp = (22, 27, 32, 37, 42)[step % 5]
        clean, noisy = degraded((48 + 2 * model.halo, 64 + 2 * model.halo), qp, step)
        planes = {"rec_y": torch.from_numpy(noisy / np.float32(1024))[None, None]}
        if "qp" in model.planes:
            planes["qp"] = torch.full((1, 1, 1, 1), qp / 64)
        target = model.crop(torch.from_numpy(clean / np.float32(1024))[None, None])
        return (model(planes) - target).square().mean() / (2 ** ((qp - 22) / 3))

    learn(torch.optim.Adam(model.parameters(), lr=3e-3), loss, 60, clip=0.01)
    return model.eval()


@pytest.mark.parametrize(("name", "options"), [("low_cost_17", {"blocks": 2}), ("rdn", SMALL | {"shuffle": 2})])
def test_integers_lose_little(name, options):
    """Quantisation to 16 bits costs a trained network at most 0.005 dB in the mean over QPs."""
    model = train_briefly(name, options)
    graph = build_graph(model)
    largest = {}

    def observe(node, tensor):
        largest[node] = max(largest.get(node, 0.0), float(tensor.abs().max()))

    pictures = [(qp, *degraded((80, 112), qp, 100 + qp)) for qp in (22, 27, 32, 37, 42)]
    with torch.inference_mode():
        for qp, _, noisy in pictures:
            padded = np.pad(noisy, graph.halo, mode="edge") / np.float32(1024)
            run(graph, {"rec_y": torch.from_numpy(padded)[None, None]}, qp, observe)
    plain, integers = FloatFilter(model), ExactFilter(quantise(graph, largest, 10))
    gains, losses = [], []
    for qp, clean, noisy in pictures:
        errors = [
            np.mean((clean.astype(float) - restored) ** 2)
            for restored in (noisy, plain.luma(noisy, qp, 10), integers.luma(noisy, qp, 10))
        ]
        gains.append(10 * np.log10(errors[0] / errors[1]))
        losses.append(10 * np.log10(errors[2] / errors[1]))
    assert np.mean(gains) > 0.3
    assert np.mean(losses) < 0.005
