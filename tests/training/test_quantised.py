"""Fine-tuning to 8 bits: the network that learns is its integers, and a run of it stops and goes on like any other."""

import copy

import numpy as np
import pytest
import torch

from codecnn.config import checked
from codecnn.errors import ConfigError
from codecnn.filtering import load_filter
from codecnn.filtering.integer import EightBitNetwork, ExactFilter, engines, load_integer
from codecnn.filtering.integer._calibrate import reach, spread
from codecnn.filtering.integer._fused import fused
from codecnn.filtering.integer._mixed import mixture
from codecnn.filtering.integer.file import picture_of
from codecnn.models import build_graph, create_model, load_model, named_outputs, save_weights
from codecnn.training import FilterSettings
from codecnn.training.filter import filter_task
from codecnn.training.filter._validate import psnr_gains
from tests.helpers.integer_zoo import random_integers
from tests.helpers.networks import SMALL, awaken
from tests.helpers.training import rows, train_filter

OPTIONS = SMALL | {"conditioning": "film", "shuffle": 2}
SETTINGS = {"steps": 6, "batch": 4, "patch": 64, "learning_rate": 2e-3, "warmup": 2, "ema": 0.5, "validate_every": 3}
SETTINGS |= {"seed": 3, "threads": 1, "device": "cpu", "quantise": "int8"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **OPTIONS), 0, std=0.1), "rdn", {"qps": [32, 42]})
    return path


def settings(weights, **others):
    return checked(FilterSettings, SETTINGS | {"start": {"weights": str(weights)}} | others, "training")


@pytest.mark.parametrize(("name", "options"), [("rdn", OPTIONS), ("low_cost_5", {"features": 8, "blocks": 2})])
def test_what_learns_computes_what_its_integers_do(name, options, tiny_store):
    """But for the last rounding, to whole samples."""
    model = awaken(create_model(name, **options), 0, std=0.1)
    units = tiny_store.split("train")
    learning = EightBitNetwork.of(model, units, loss=0.02)
    network = learning.integers()
    side = 32 + 2 * model.halo
    with units[0].decoded() as decoded:
        y = decoded[0].y
        planes = {"rec_y": np.stack([y[:side, :side], y[40 : 40 + side, 60 : 60 + side]])[:, None]}
    real = {plane: torch.from_numpy(array / 1024).float() for plane, array in planes.items()}
    made = named_outputs(learning(real | {"qp": torch.full((2, 1, 1, 1), 37 / 64)}))["y"].detach() * 1024
    exact = ExactFilter(network, engine="float32").fast(
        {k: torch.from_numpy(v).float() for k, v in planes.items()}, 37, 10
    )
    assert (made.clamp(0, 1023) - exact["y"]).abs().max() <= 0.75  # the gain is rounded as well
    plain = named_outputs(model(real | {"qp": torch.full((2, 1, 1, 1), 37 / 64)}))["y"].detach() * 1024
    assert (
        0
        < (made - plain).abs().mean()
        < 0.3 * (plain - real["rec_y"][:, :, model.halo : -model.halo, model.halo : -model.halo] * 1024).abs().mean()
    )


def test_it_is_calibrated_for_the_nearest_integers(tiny_store, weights):
    """As which training rounds weights: bits that suit those that err least are others."""
    model, units = load_model(weights)[0], spread(tiny_store.split("train"))
    graph = fused(build_graph(model))
    nearest, least = (
        mixture(graph, reach(graph, units), units, 10, loss=0.0003, nearest=nearest).grid.bounds
        for nearest in (True, False)
    )
    assert EightBitNetwork.of(model, tiny_store.split("train"), loss=0.0003).grid.bounds == nearest
    assert nearest != least


def test_weights_learn_and_tables_stay(tiny_store, weights):
    task = filter_task(tiny_store, "rdn", OPTIONS, settings(weights))
    before = copy.deepcopy(task.model.state_dict())
    batch = next(task.batches(range(1), 0, 1, torch.device("cpu")))
    task.loss(task.model, batch).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in task.model.parameters())
    assert {name for name in before if name.startswith(("scale", "bounds", "factor", "gain"))}
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())


def test_what_bytes_may_lose_says_how_many_there_are(tiny_store, weights):
    def count(**others):
        grid = filter_task(tiny_store, "rdn", OPTIONS, settings(weights, **others)).model.grid
        return sum(grid.is_byte(name) for name in grid.bounds)

    assert count(quantise_loss=0) == 0 < count()


def test_a_run_keeps_integers_that_measure_as_it_says(tiny_store, weights, tmp_path):
    made = train_filter(tiny_store, "rdn", OPTIONS, settings(weights), tmp_path / "run")
    network, card = load_integer(made.weights)
    assert network.bits == 8
    assert card.source_sha256 == load_model(weights)[1].sha256
    assert (card["training"]["quantise"], card["network"]) == ("int8", "rdn")
    task = filter_task(tiny_store, "rdn", OPTIONS, settings(weights))
    last = load_filter(tmp_path / "run" / "last.safetensors")
    unit = task.validation[0]
    with unit.originals() as originals, unit.decoded() as decoded:
        filtered = last.luma(decoded[0].y, unit.qp, 10)
        before, after = (np.square(originals[0].y.astype(float) - y).mean() for y in (decoded[0].y, filtered))
    told = rows(tmp_path / "run")[-1]["gain_db"]
    alone = [one for one in task.validation if one.qp == unit.qp]
    if len(alone) == 1:
        assert told[str(unit.qp)] == pytest.approx(10 * np.log10(before / after), abs=1e-9)
    assert psnr_gains(task.model, task.validation, "cpu")["y"] != {int(qp): gain for qp, gain in told.items()}


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tiny_store, weights, tmp_path):
    whole = train_filter(tiny_store, "rdn", OPTIONS, settings(weights), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codecnn.training.loop.Trainer._validation_due", lambda self: self.state.step == 3 and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_filter(tiny_store, "rdn", OPTIONS, settings(weights, checkpoint_every=2), tmp_path / "parts")
    parts = train_filter(
        tiny_store, "rdn", OPTIONS, settings(weights, checkpoint_every=2), tmp_path / "parts", resume=True
    )
    for name in ("last", "best"):
        first, second = (one.weights.parent / f"{name}.safetensors" for one in (whole, parts))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": None}, "quantise needs the weights of a trained network"),
        ({"start": {"lift": True}}, "quantise needs the weights of a trained network"),
        ({"precision": "bfloat16"}, "quantise computes integers in float32"),
        ({"compile": True}, "quantise computes integers in float32"),
    ],
)
def test_what_cannot_be_quantised_is_refused(changes, message, weights):
    with pytest.raises(ConfigError, match=message):
        settings(weights, **changes)


def test_engines_of_what_was_trained(weights, tiny_store):
    """The integers of a trained network are the same by every engine."""
    model, _ = load_model(weights)
    network = EightBitNetwork.of(model, tiny_store.split("train"), loss=0.02).integers()
    planes = {plane: array[0, 0] for plane, array in random_integers(network, 40, 50).items()}
    made = [ExactFilter(network, engine=one).samples(picture_of(planes, 10), 32, planes) for one in engines(network)]
    for one in made[1:]:
        np.testing.assert_array_equal(one["y"], made[0]["y"])
