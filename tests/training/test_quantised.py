"""Fine-tuning to 8 bits: the training network matches its integers, and its runs can be resumed."""

import copy

import numpy as np
import pytest
import torch

from codecnn.api.config import checked
from codecnn.base.errors import ConfigError
from codecnn.filtering import load_filter
from codecnn.filtering.integer import (
    EightBitNetwork,
    ExactFilter,
    calibration_units,
    channel_magnitudes,
    choose_precision,
    engines,
    fuse,
    load_integer,
    picture_of,
)
from codecnn.models import build_graph, create_model, load_model, named_outputs, save_weights
from codecnn.training import FilterSettings
from codecnn.training.filter import filter_task, psnr_gains
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


def settings(weights, **changes):
    return checked(FilterSettings, SETTINGS | {"start": {"weights": str(weights)}} | changes, "training")


@pytest.mark.parametrize(("name", "options"), [("rdn", OPTIONS), ("low_cost_5", {"features": 8, "blocks": 2})])
def test_the_training_network_matches_its_integers(name, options, tiny_store):
    """Equal apart from the last rounding to whole samples."""
    model = awaken(create_model(name, **options), 0, std=0.1)
    units = tiny_store.split("train")
    learning = EightBitNetwork.of(model, units, loss=0.02)
    network = learning.integers()
    side = 32 + 2 * model.halo
    with units[0].decoded() as decoded:
        y = decoded[0].y
        planes = {"rec_y": np.stack([y[:side, :side], y[40 : 40 + side, 60 : 60 + side]])[:, None]}
    real = {plane: torch.from_numpy(array / 1024).float() for plane, array in planes.items()}
    result = named_outputs(learning(real | {"qp": torch.full((2, 1, 1, 1), 37 / 64)}))["y"].detach() * 1024
    exact = ExactFilter(network, engine="float32").fast(
        {k: torch.from_numpy(v).float() for k, v in planes.items()}, 37, 10
    )
    assert (result.clamp(0, 1023) - exact["y"]).abs().max() <= 0.75  # the gain is rounded as well
    plain = named_outputs(model(real | {"qp": torch.full((2, 1, 1, 1), 37 / 64)}))["y"].detach() * 1024
    assert (
        0
        < (result - plain).abs().mean()
        < 0.3 * (plain - real["rec_y"][:, :, model.halo : -model.halo, model.halo : -model.halo] * 1024).abs().mean()
    )


def test_calibration_assumes_rounding_to_the_nearest_integer(tiny_store):
    """Training rounds weights to the nearest integer; other roundings would lead to other bit widths.

    With these large weights the two roundings disagree over a wide range of allowed losses.
    """
    model, units = awaken(create_model("rdn", **OPTIONS), 1, std=0.2), calibration_units(tiny_store.split("train"))
    graph = fuse(build_graph(model))
    nearest, least = (
        choose_precision(graph, channel_magnitudes(graph, units), units, 10, loss=0.001, nearest=nearest).grid.bounds
        for nearest in (True, False)
    )
    assert EightBitNetwork.of(model, tiny_store.split("train"), loss=0.001).grid.bounds == nearest
    assert nearest != least


def test_weights_are_trained_and_tables_are_not(tiny_store, weights):
    task = filter_task(tiny_store, "rdn", OPTIONS, settings(weights))
    before = copy.deepcopy(task.model.state_dict())
    batch = next(task.batches(range(1), 0, 1, torch.device("cpu")))
    task.loss(task.model, batch).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in task.model.parameters())
    assert {name for name in before if name.startswith(("scale", "bounds", "factor", "gain"))}
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())


def test_quantise_loss_decides_the_number_of_8_bit_tensors(tiny_store, weights):
    def count(**changes):
        grid = filter_task(tiny_store, "rdn", OPTIONS, settings(weights, **changes)).model.grid
        return sum(grid.is_byte(name) for name in grid.bounds)

    assert count(quantise_loss=0) == 0 < count()


def test_a_run_saves_integers_with_the_reported_gain(tiny_store, weights, tmp_path):
    result = train_filter(tiny_store, "rdn", OPTIONS, settings(weights), tmp_path / "run")
    network, card = load_integer(result.weights)
    assert network.bits == 8
    assert card.source_sha256 == load_model(weights)[1].sha256
    assert (card["training"]["quantise"], card["network"]) == ("int8", "rdn")
    task = filter_task(tiny_store, "rdn", OPTIONS, settings(weights))
    last = load_filter(tmp_path / "run" / "last.safetensors")
    unit = task.validation[0]
    with unit.originals() as originals, unit.decoded() as decoded:
        filtered = last.luma(decoded[0].y, unit.qp, 10)
        before, after = (np.square(originals[0].y.astype(float) - y).mean() for y in (decoded[0].y, filtered))
    gains = rows(tmp_path / "run")[-1]["gain_db"]
    of_equal_qp = [candidate for candidate in task.validation if candidate.qp == unit.qp]
    if len(of_equal_qp) == 1:
        assert gains[str(unit.qp)] == pytest.approx(10 * np.log10(before / after), abs=1e-9)
    assert psnr_gains(task.model, task.validation, "cpu")["y"] != {int(qp): gain for qp, gain in gains.items()}


def test_a_stopped_run_resumes_bit_for_bit(tiny_store, weights, tmp_path):
    whole = train_filter(tiny_store, "rdn", OPTIONS, settings(weights), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codecnn.training.loop.Trainer._validation_due", lambda self: self.state.step == 3 and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_filter(tiny_store, "rdn", OPTIONS, settings(weights, checkpoint_every=2), tmp_path / "parts")
    parts = train_filter(
        tiny_store, "rdn", OPTIONS, settings(weights, checkpoint_every=2), tmp_path / "parts", resume=True
    )
    for name in ("last", "best"):
        first, second = (run.weights.parent / f"{name}.safetensors" for run in (whole, parts))
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
def test_settings_that_cannot_be_quantised_are_refused(changes, message, weights):
    with pytest.raises(ConfigError, match=message):
        settings(weights, **changes)


def test_all_engines_agree_on_a_trained_network(weights, tiny_store):
    """Every engine computes the same integers."""
    model, _ = load_model(weights)
    network = EightBitNetwork.of(model, tiny_store.split("train"), loss=0.02).integers()
    planes = {plane: array[0, 0] for plane, array in random_integers(network, 40, 50).items()}
    picture = picture_of(planes, 10)
    results = [ExactFilter(network, engine=engine).samples(picture, 32, planes) for engine in engines(network)]
    for result in results[1:]:
        np.testing.assert_array_equal(result["y"], results[0]["y"])
