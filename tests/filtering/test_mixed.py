"""Which tensors keep 12 bits, and how near to float a network comes that is calibrated on real pictures."""

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
    """One whose residual is large beside half a sample, of a last convolution whose outputs differ in size."""
    made = awaken(create_model("low_cost_17", **OPTIONS), 1, std=0.2)
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded, torch.no_grad():
        made.tail.weight *= torch.tensor([0.1, 0.3, 0.6, 1.0])[:, None, None, None]
        residual = FloatFilter(made).samples(decoded[0], unit.qp)["y"] - decoded[0].y
        made.tail.weight *= 100 / residual.std()
        made.tail.bias *= 100 / residual.std()
    return made


@pytest.fixture(scope="module")
def calibrated(model, tiny_store):
    graph, units = fuse(build_graph(model)), tiny_store.split("train")
    largest = channel_magnitudes(graph, units)
    return graph, units, largest, fit_grid(graph, grid_for(graph, largest), 10)


@pytest.mark.parametrize(
    ("name", "options", "own"),
    [("low_cost_17", OPTIONS | {"planes": ["rec_y", "qp", "slice_type"]}, 4), ("rdn", SMALL, 1)],
)
def test_what_multiplies_a_plane_of_one_value_is_in_few_weights(name, options, own):
    """As training leaves such weights: all alike, and each so small that nothing of it is left in 16 bits."""
    graph = build_graph(awaken(create_model(name, **options), 1))
    weight = next(node for node in graph.nodes if node.op == "conv").tensors["weight"]
    weight[:, -own:] = 6e-5 * np.abs(weight[:, :-own]).max((1, 2, 3), keepdims=True)
    few = fuse(graph)
    planes = {"rec_y": torch.rand(1, 1, 40, 48), "slice_type": torch.ones(1, 1, 40, 48)}
    planes = {plane: planes[plane].double() for plane in graph.planes}
    torch.testing.assert_close(run(few, planes, 37)["y"], run(graph, planes, 37)["y"], rtol=0, atol=1e-12)
    grid = Grid({node: np.full(few.extents[node].channels, 64.0) for node in tensor_bounds(few)}, tensor_bounds(few))
    integers = as_integers(few, fit_grid(few, grid, 10), 10)
    rounded = next(node for node in integers.graph.nodes if node.op == "conv").tensors["weight"].astype(int)
    largest = np.abs(rounded).max((1, 2, 3))
    assert (np.round(6e-5 * largest) == 0).all()
    found = rounded[:, -own:].sum((1, 2, 3))
    np.testing.assert_allclose(found, 6e-5 * largest * weight[0, -own:].size, rtol=0, atol=0.51)


def test_where_a_convolution_pads_a_plane_of_one_value_its_weights_stay():
    """Zeros around such a plane are not its value, so that each weight counts where it is."""
    draft = Draft()
    both = draft.joined("both", [draft.once("rec_y"), draft.add("level", "qp", "rec_y")])
    weight = np.random.default_rng(0).normal(size=(1, 2, 3, 3))
    made = draft.weights("tail", both, weight, np.zeros(1), pad=1)
    draft.add("y", "output", made, "rec_y", tensors={"gain": np.ones(1)}, crop=0)
    graph = Graph(tuple(draft.nodes))
    planes = {"rec_y": torch.rand(1, 1, 8, 8, dtype=torch.float64)}
    assert torch.equal(run(fuse(graph), planes, 37)["y"], run(graph, planes, 37)["y"])


def difference(model, network, unit):
    """Root of the mean squared difference of the integers' samples to float's, against that of the float's residual."""
    with unit.decoded() as decoded:
        made = FloatFilter(model).samples(decoded[0], unit.qp)["y"]
        exact = ExactFilter(network, engine="float32").samples(decoded[0], unit.qp)["y"]
        error, change = exact - np.clip(made, 0, 1023), made - decoded[0].y
        return np.sqrt(np.square(error).mean() / np.square(change).mean())


def test_bits_bring_the_integers_to_the_float_network(calibrated, model):
    """Also where a shuffle makes one plane of channels of different sizes."""
    graph, units, largest, grid = calibrated
    names = [name for name in grid.bounds if grid.is_byte(name)]
    rough, fine = (as_integers(graph, fit_grid(graph, grid_for(graph, largest, wide), 10), 10) for wide in ((), names))
    coarse, near = (difference(model, network, units[0]) for network in (rough, fine))
    assert near < coarse < 0.05


def test_weights_that_know_what_they_multiply_bring_them_nearer(calibrated, model):
    """Where the tensors have 12 bits, so that it is the weights that are coarse."""
    graph, units, largest, grid = calibrated
    seen = moments_on(graph, [middle_crop(unit, graph, "cpu") for unit in units])
    fine = fit_grid(graph, grid_for(graph, largest, [name for name in grid.bounds if grid.is_byte(name)]), 10)
    known, nearest = (difference(model, as_integers(graph, fine, 10, one), units[0]) for one in (seen, None))
    assert known < 0.9 * nearest


def test_what_is_moved_together_has_one_scale(calibrated):
    graph, _, _, grid = calibrated
    assert shared_channels(graph) == {"tail": 4}
    assert len(set(grid.scales["tail"])) == 1
    assert len(set(grid.scales["head"])) > 1
    for name, source in linked_scales(graph).items():
        octaves = np.log2(grid.scales[name] / grid.scales[source])
        np.testing.assert_allclose(octaves, np.rint(octaves[0]), atol=1e-9)


def test_fewer_bytes_are_nearer(calibrated, model):
    graph, units, largest, grid = calibrated
    crops = [middle_crop(unit, graph, "cpu") for unit in units]
    powers = error_powers(graph, grid, crops, 10, moments_on(graph, crops))
    half = 10 * math.log10(1 + sum(powers.values()).mean() / 2)
    found = [choose_precision(graph, largest, units, 10, loss=loss) for loss in (math.inf, half, 0.0)]
    assert found[0].wide == ()
    assert len(found[0].wide) < len(found[1].wide) < len(found[2].wide) == sum(map(grid.is_byte, grid.bounds))
    away = [difference(model, one.network, units[0]) for one in found]
    assert away[0] > away[1] > away[2]
    assert len(found[0].losses) == 2, "a picture at each of two QPs"


def test_what_is_chosen_holds_and_nothing_of_it_is_needless():
    graph = fuse(build_graph(create_model("low_cost_17", **OPTIONS)))
    rng = np.random.default_rng(0)
    names = [node.name for node in graph.nodes if node.op in ("conv", "modulate") and node.name != "tail"]
    powers = {name: rng.exponential(1e-3, 5) for name in names}

    def lost(wide, loss):
        left = 10 * np.log10(1 + sum((powers[name] for name in names if name not in wide), np.zeros(5)))
        return max(left.mean() / loss, left.max() / (WORST_LOSS_FACTOR * loss))

    for loss in (0.001, 0.005, 0.02):
        wide = choose_wide(graph, powers, loss)
        assert lost(wide, loss) <= 1
        assert all(lost(wide - {name}, loss) > 0.97 for name in wide)


def test_powers_are_what_rounding_adds(calibrated):
    """All bytes together are about as far from float as each alone, in squares."""
    graph, units, _, grid = calibrated
    crops = [middle_crop(unit, graph, "cpu") for unit in units]
    seen = moments_on(graph, crops)
    powers = error_powers(graph, grid, crops, 10, seen)
    fast = FastNetwork(as_integers(graph, grid, 10, seen))
    together = [added_error(crop, filter_float(graph, crop), filter_exact(fast, crop)) for crop in crops]
    np.testing.assert_allclose(sum(powers.values()), together, rtol=0.4)


def test_chroma_without_an_error_counts_as_if_it_had_60_db():
    """As a grey picture's has: half a sample more of nothing is no loss that bits should be spent on."""
    originals = {name: np.full((8, 8), 512.0) for name in ("y", "u")}
    plain = {"y": originals["y"] + 4, "u": originals["u"]}
    rounded = plain | {"u": plain["u"] + 0.5}
    added = added_error(Crop({}, originals, 22, 10), plain, rounded)
    assert added == pytest.approx(0.5 * 0.25 / (1023**2 * 1e-6))


def test_what_is_small_beside_what_it_is_added_to_stays_as_fine_as_it_can_be(model, tiny_store):
    """The sum is counted in its unit then, which is finer than that of the convolution's own products."""
    made, units = copy.deepcopy(model), tiny_store.split("train")
    with torch.no_grad():
        made.head.weight *= 2**-9
        made.head.bias *= 2**-9
        made.blocks[0].expand.weight *= 2**9
    graph = fuse(build_graph(made))
    grid = grid_for(graph, channel_magnitudes(graph, units), ["head"])
    fine = fit_grid(graph, grid, 10)
    np.testing.assert_array_equal(fine.scales["head"], grid.scales["head"])
    network = as_integers(graph, fine, 10)
    (node,) = (node for node in network.graph.nodes if node.name == "blocks.0.sum")
    assert node.tensors["shift"].max() < node.values["skip"]


def test_a_channel_that_is_small_alone_does_not_saturate_what_is_added_to_it(model, tiny_store):
    """As an RDN's first features beside the fused ones: bytes not by more than a half, and 12 bits not at all."""
    made, units = copy.deepcopy(model), tiny_store.split("train")
    with torch.no_grad():
        made.head.weight[0] *= 2**-9
        made.head.bias[0] *= 2**-9
    graph = fuse(build_graph(made))
    largest = channel_magnitudes(graph, units)

    def beyond(grid):
        return {name: (largest[name] * grid.scales[name] / grid.bounds[name][1]).max() for name in tensor_bounds(graph)}

    bytes_alone = beyond(grid_for(graph, largest))
    assert 1.5 < max(bytes_alone.values()) < 2.02
    sums = linked_scales(graph)
    held = beyond(grid_for(graph, largest, sums))
    assert max(held[name] for name in sums) < 1.01
    assert max(bytes_alone[name] for name in sums) > 1.1


def test_a_channel_without_a_sample_has_weights_that_fit(tiny_store):
    """What is zero on all pictures has no size; its weights have one."""
    model = awaken(create_model("low_cost_17", **OPTIONS), 2, std=0.2)
    with torch.no_grad():
        model.blocks[0].expand.bias[3] = -1000.0
    network, card = integer_network(model, as_card({}), [tiny_store], bits=8, pictures=1, loss=math.inf)
    assert network.bits == 8
    assert card["calibration"]["wide"] == []


def test_the_card_says_which_bits(tiny_store):
    model = awaken(create_model("rdn", **SMALL), 2, std=0.2)
    network, card = integer_network(model, as_card({}), [tiny_store], bits=8, pictures=1, loss=0.001)
    told = card["calibration"]
    assert set(told) >= {"wide", "loss_db", "worst_loss_db"}
    assert told["wide"]
    high = {node.name: node.values["high"] for node in network.graph.nodes if "high" in node.values}
    assert {high[name] for name in told["wide"]} in ({2047}, {4095})
