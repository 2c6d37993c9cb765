"""Mixed precision: the choice of wide tensors, and the distance of calibrated networks from float."""

import copy
import math

import numpy as np
import pytest
import torch

from codecnn.filtering import FloatFilter
from codecnn.filtering.integer import (
    ExactFilter,
    FastNetwork,
    Grid,
    as_integers,
    channel_magnitudes,
    choose_precision,
    fit_grid,
    fuse,
    grid_for,
    integer_network,
    linked_scales,
    tensor_bounds,
)
from codecnn.filtering.integer.grid import shared_channels
from codecnn.filtering.integer.mixed_precision import (
    WORST_LOSS_FACTOR,
    Crop,
    added_error,
    choose_wide,
    error_powers,
    filter_exact,
    filter_float,
    middle_crop,
    moments_on,
)
from codecnn.models import as_card, build_graph, create_model
from codecnn.models.graph import Draft, Graph, run
from tests.helpers.networks import SMALL, awaken

OPTIONS = {"features": 8, "blocks": 2}


@pytest.fixture(scope="module")
def model(tiny_store):
    """Create a network whose residual is far above half a sample, with last outputs of different size."""
    network = awaken(create_model("low_cost_17", **OPTIONS), 1, std=0.2)
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded, torch.no_grad():
        network.tail.weight *= torch.tensor([0.1, 0.3, 0.6, 1.0])[:, None, None, None]
        residual = FloatFilter(network).samples(decoded[0], unit.qp)["y"] - decoded[0].y
        network.tail.weight *= 100 / residual.std()
        network.tail.bias *= 100 / residual.std()
    return network


@pytest.fixture(scope="module")
def calibrated(model, tiny_store):
    graph, units = fuse(build_graph(model)), tiny_store.split("train")
    largest = channel_magnitudes(graph, units)
    return graph, units, largest, fit_grid(graph, grid_for(graph, largest), 10)


@pytest.mark.parametrize(
    ("name", "options", "constant"),
    [("low_cost_17", OPTIONS | {"planes": ["rec_y", "qp", "slice_type"]}, 4), ("rdn", SMALL, 1)],
)
def test_weights_of_constant_planes_are_gathered(name, options, constant):
    """Training makes the weights of such planes alike, and so small that rounding to 16 bits would remove them."""
    graph = build_graph(awaken(create_model(name, **options), 1))
    weight = next(node for node in graph.nodes if node.op == "conv").tensors["weight"]
    weight[:, -constant:] = 6e-5 * np.abs(weight[:, :-constant]).max((1, 2, 3), keepdims=True)
    gathered = fuse(graph)
    planes = {"rec_y": torch.rand(1, 1, 40, 48), "slice_type": torch.ones(1, 1, 40, 48)}
    planes = {plane: planes[plane].double() for plane in graph.planes}
    torch.testing.assert_close(run(gathered, planes, 37)["y"], run(graph, planes, 37)["y"], rtol=0, atol=1e-12)
    grid = Grid(
        {node: np.full(gathered.extents[node].channels, 64.0) for node in tensor_bounds(gathered)},
        tensor_bounds(gathered),
    )
    integers = as_integers(gathered, fit_grid(gathered, grid, 10), 10)
    rounded = next(node for node in integers.graph.nodes if node.op == "conv").tensors["weight"].astype(int)
    largest = np.abs(rounded).max((1, 2, 3))
    assert (np.round(6e-5 * largest) == 0).all()
    sums = rounded[:, -constant:].sum((1, 2, 3))
    np.testing.assert_allclose(sums, 6e-5 * largest * weight[0, -constant:].size, rtol=0, atol=0.51)


def test_weights_of_constant_planes_stay_where_a_convolution_pads():
    """The zeros around such a plane are not its value, so that the place of each weight matters."""
    draft = Draft()
    both = draft.joined("both", [draft.once("rec_y"), draft.add("level", "qp", "rec_y")])
    weight = np.random.default_rng(0).normal(size=(1, 2, 3, 3))
    tail = draft.weights("tail", both, weight, np.zeros(1), pad=1)
    draft.add("y", "output", tail, "rec_y", tensors={"gain": np.ones(1)}, crop=0)
    graph = Graph(tuple(draft.nodes))
    planes = {"rec_y": torch.rand(1, 1, 8, 8, dtype=torch.float64)}
    assert torch.equal(run(fuse(graph), planes, 37)["y"], run(graph, planes, 37)["y"])


def difference(model, network, unit):
    """Return the RMS difference of the integers' samples from float's, relative to the RMS of the float residual."""
    with unit.decoded() as decoded:
        in_float = FloatFilter(model).samples(decoded[0], unit.qp)["y"]
        exact = ExactFilter(network, engine="float32").samples(decoded[0], unit.qp)["y"]
        error, change = exact - np.clip(in_float, 0, 1023), in_float - decoded[0].y
        return np.sqrt(np.square(error).mean() / np.square(change).mean())


def test_more_bits_bring_integers_nearer_to_float(calibrated, model):
    """The network ends in a shuffle of channels of different size."""
    graph, units, largest, grid = calibrated
    names = [name for name in grid.bounds if grid.is_byte(name)]
    rough, fine = (as_integers(graph, fit_grid(graph, grid_for(graph, largest, wide), 10), 10) for wide in ((), names))
    coarse, near = (difference(model, network, units[0]) for network in (rough, fine))
    assert near < coarse < 0.05


def test_rounding_weights_by_input_moments_brings_integers_nearer_to_float(calibrated, model):
    """The tensors have 12 bits, so that the weights cause most of the error."""
    graph, units, largest, grid = calibrated
    moments = moments_on(graph, [middle_crop(unit, graph, "cpu") for unit in units])
    fine = fit_grid(graph, grid_for(graph, largest, [name for name in grid.bounds if grid.is_byte(name)]), 10)
    by_moments, nearest = (
        difference(model, as_integers(graph, fine, 10, known), units[0]) for known in (moments, None)
    )
    assert by_moments < 0.9 * nearest


def test_channels_that_a_shuffle_joins_share_a_scale(calibrated):
    graph, _, _, grid = calibrated
    assert shared_channels(graph) == {"tail": 4}
    assert len(set(grid.scales["tail"])) == 1
    assert len(set(grid.scales["head"])) > 1
    for name, source in linked_scales(graph).items():
        octaves = np.log2(grid.scales[name] / grid.scales[source])
        np.testing.assert_allclose(octaves, np.rint(octaves[0]), atol=1e-9)


def test_networks_with_fewer_bytes_are_nearer_to_float(calibrated, model):
    graph, units, largest, grid = calibrated
    crops = [middle_crop(unit, graph, "cpu") for unit in units]
    powers = error_powers(graph, grid, crops, 10, moments_on(graph, crops))
    half = 10 * math.log10(1 + sum(powers.values()).mean() / 2)
    mixtures = [choose_precision(graph, largest, units, 10, loss=loss) for loss in (math.inf, half, 0.0)]
    assert mixtures[0].wide == ()
    assert len(mixtures[0].wide) < len(mixtures[1].wide) < len(mixtures[2].wide) == sum(map(grid.is_byte, grid.bounds))
    distances = [difference(model, mixture.network, units[0]) for mixture in mixtures]
    assert distances[0] > distances[1] > distances[2]
    assert len(mixtures[0].losses) == 2, "one picture at each of two QPs"


def test_the_choice_keeps_the_limit_and_widens_no_tensor_in_vain():
    graph = fuse(build_graph(create_model("low_cost_17", **OPTIONS)))
    rng = np.random.default_rng(0)
    names = [node.name for node in graph.nodes if node.op in ("conv", "modulate") and node.name != "tail"]
    powers = {name: rng.exponential(1e-3, 5) for name in names}

    def relative_loss(wide, loss):
        remaining = 10 * np.log10(1 + sum((powers[name] for name in names if name not in wide), np.zeros(5)))
        return max(remaining.mean() / loss, remaining.max() / (WORST_LOSS_FACTOR * loss))

    for loss in (0.001, 0.005, 0.02):
        wide = choose_wide(graph, powers, loss)
        assert relative_loss(wide, loss) <= 1
        assert all(relative_loss(wide - {name}, loss) > 0.97 for name in wide)


def test_error_powers_add_up(calibrated):
    """The squared error of all bytes together is about the sum of those of each tensor alone."""
    graph, units, _, grid = calibrated
    crops = [middle_crop(unit, graph, "cpu") for unit in units]
    moments = moments_on(graph, crops)
    powers = error_powers(graph, grid, crops, 10, moments)
    engine = FastNetwork(as_integers(graph, grid, 10, moments))
    together = [added_error(crop, filter_float(graph, crop), filter_exact(engine, crop)) for crop in crops]
    np.testing.assert_allclose(sum(powers.values()), together, rtol=0.4)


def test_chroma_without_error_counts_as_60_db():
    """Half a sample of error in the chroma of a grey picture is no loss that bits should be spent on."""
    originals = {name: np.full((8, 8), 512.0) for name in ("y", "u")}
    plain = {"y": originals["y"] + 4, "u": originals["u"]}
    rounded = plain | {"u": plain["u"] + 0.5}
    added = added_error(Crop({}, originals, 22, 10), plain, rounded)
    assert added == pytest.approx(0.5 * 0.25 / (1023**2 * 1e-6))


def test_a_small_tensor_keeps_its_fine_scale_where_it_is_added(model, tiny_store):
    """The sum then has the unit of the added tensor, which is finer than that of the convolution's products."""
    scaled, units = copy.deepcopy(model), tiny_store.split("train")
    with torch.no_grad():
        scaled.head.weight *= 2**-9
        scaled.head.bias *= 2**-9
        scaled.blocks[0].expand.weight *= 2**9
    graph = fuse(build_graph(scaled))
    grid = grid_for(graph, channel_magnitudes(graph, units), ["head"])
    fine = fit_grid(graph, grid, 10)
    np.testing.assert_array_equal(fine.scales["head"], grid.scales["head"])
    network = as_integers(graph, fine, 10)
    (node,) = (node for node in network.graph.nodes if node.name == "blocks.0.sum")
    assert node.tensors["shift"].max() < node.values["skip"]


def test_a_small_channel_does_not_saturate_the_tensors_added_to_it(model, tiny_store):
    """An RDN's first features are such: bytes saturate at half their largest values or more, 12 bits not at all."""
    scaled, units = copy.deepcopy(model), tiny_store.split("train")
    with torch.no_grad():
        scaled.head.weight[0] *= 2**-9
        scaled.head.bias[0] *= 2**-9
    graph = fuse(build_graph(scaled))
    largest = channel_magnitudes(graph, units)

    def relative_magnitudes(grid):
        return {name: (largest[name] * grid.scales[name] / grid.bounds[name][1]).max() for name in tensor_bounds(graph)}

    of_bytes = relative_magnitudes(grid_for(graph, largest))
    assert 1.5 < max(of_bytes.values()) < 2.02
    sums = linked_scales(graph)
    of_wide = relative_magnitudes(grid_for(graph, largest, sums))
    assert max(of_wide[name] for name in sums) < 1.01
    assert max(of_bytes[name] for name in sums) > 1.1


def test_weights_of_a_channel_that_is_always_zero_fit(tiny_store):
    """No magnitude of such a channel is known to derive a scale from."""
    model = awaken(create_model("low_cost_17", **OPTIONS), 2, std=0.2)
    with torch.no_grad():
        model.blocks[0].expand.bias[3] = -1000.0
    network, card = integer_network(model, as_card({}), [tiny_store], bits=8, pictures=1, loss=math.inf)
    assert network.bits == 8
    assert card["calibration"]["wide"] == []


def test_the_card_lists_the_wide_tensors(tiny_store):
    model = awaken(create_model("rdn", **SMALL), 2, std=0.2)
    network, card = integer_network(model, as_card({}), [tiny_store], bits=8, pictures=1, loss=0.001)
    calibration = card["calibration"]
    assert set(calibration) >= {"wide", "loss_db", "worst_loss_db"}
    assert calibration["wide"]
    high = {node.name: node.values["high"] for node in network.graph.nodes if "high" in node.values}
    assert {high[name] for name in calibration["wide"]} in ({2047}, {4095})
