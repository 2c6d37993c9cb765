"""Monitoring of a run: dead units, modulations and updates, warnings and progress lines; the run is not changed."""

import sys

import pytest
import torch
from torch import nn

from codecnn.models import create_model
from codecnn.training import FilterSettings, health, monitor, train_task
from codecnn.training.health import Activity, Diagnosis, Health, measure_activity, measure_step
from tests.helpers.networks import random_planes
from tests.helpers.toy_task import SETTINGS, ToyTask
from tests.helpers.training import lines, train_filter, weights_of

FILM = {"features": 8, "blocks": 2, "expansion": 2}


def film():
    """Return a small network with FiLM, and input planes at QP 37."""
    torch.manual_seed(0)
    model = create_model("low_cost_17", **FILM)
    return model, random_planes(model, 192, 192)


def healthy(step, **changes):
    """Return a measurement without problems apart from the given changes."""
    seen = Activity({"layer": 0.1}, {"m.0": 0.8, "m.1": 0.6}, 0.69, 37.0, {"m.0": 1.0, "m.1": 0.5})
    return Health(step, changes.get("seen", seen), {"w": 0.1}, changes.get("updates", {"w": 1e-3}))


def test_dead_units_are_reported_by_layer():
    model, planes = film()
    with torch.no_grad():
        model.blocks[1].expand.bias[:12] = -1e3
    seen = measure_activity(model, (planes,))
    assert seen.dead == {"blocks.0.expand": 0.0, "blocks.1.expand": 0.75}
    rdn = create_model("rdn", features=4, blocks=1, layers=2, growth=4)
    with torch.no_grad():
        rdn.blocks[0].layers[1].bias[:] = -1e3
    # Without gradients dense blocks clamp instead of calling relu.
    activity = measure_activity(rdn, (random_planes(rdn, 96, 96),))
    assert activity.dead == {
        "blocks.0.layers.0": 0.0,
        "blocks.0.layers.1": 1.0,
    }
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
    with torch.no_grad():
        module[0].weight[:], module[0].bias[:] = 0, torch.tensor([1.0, -1.0])
    assert measure_activity(module, (torch.zeros(1, 1, 64, 64),)).dead == {"0": 0.5}
    assert measure_activity(module, (torch.zeros(1, 1, 63, 64),)).dead == {}  # too few samples


def test_modulations_are_measured_at_the_worst_qp_of_the_batch():
    model, planes = film()
    assert measure_activity(model, (planes,)).mean_factor == 1.0
    with torch.no_grad():
        # ReLU(-1·(QP / 64 - 0.5)·4 + 0) is 1 at QP 16 and 0 above QP 32: there the factors are those of the bias.
        for modulation, bias in zip(model.modulations, (-0.5, -0.92), strict=True):
            modulation.hidden.weight[:], modulation.hidden.bias[:] = -1, 0
            modulation.out.weight[:8] = 0.02
            modulation.out.bias[:8] = bias
    both = {name: torch.cat([plane, plane]) for name, plane in planes.items()}
    both["qp"] = torch.tensor([16 / 64, 37 / 64]).reshape(2, 1, 1, 1)
    seen = measure_activity(model, (both,))
    assert seen.qp == 37
    assert seen.factors == pytest.approx({"modulations.0": 0.5, "modulations.1": 0.08})
    assert seen.mean_factor == pytest.approx(0.2)


def test_measuring_does_not_change_a_network():
    task = ToyTask()
    model = task.model.train()
    model[1].eval()  # frozen
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator = torch.get_rng_state()
    measure_activity(model, (torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(1)),))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert [module.training for module in model] == [True, False, True, True, True]
    assert not any(module._forward_hooks for module in model.modules())


def test_gradients_and_updates_of_a_step():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[1].weight[:] = 0
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with torch.no_grad():
        model[0].weight *= 1.01
        model[1].weight += 1
    gradients, updates = measure_step(model, before, rate=0.5, clipping=0.1)
    assert gradients == pytest.approx({"0.weight": 20, "0.bias": 200**0.5, "1.weight": 20})
    # Scaled to the full learning rate; tensors that were zero and biases have no ratio.
    assert updates == pytest.approx({"0.weight": 0.02}, rel=1e-4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seen": Activity({"a": 0.6, "b": 0.9}, {}, 1.0, None, {})}, "90% of the units after b are zero"),
        ({"seen": Activity({}, {"m.0": 0.3, "m.1": 0.1}, 0.17, 22.0, {})}, "by 0.17 on average at QP 22 (m.1 by 0.1)"),
        ({"updates": {"w": 0.2, "v": 0.3}}, "changes the weights by 2.5e-01 of their norm"),
        ({"updates": {"w": 2e-6}}, "raise training.learning_rate, or check"),
    ],
)
def test_a_warning_needs_two_measurements_and_is_given_once(changed, message):
    diagnosis = Diagnosis(SETTINGS)
    assert [diagnosis.warnings(healthy(step)) for step in (1, 100)] == [[], []]
    assert diagnosis.warnings(healthy(200, **changed)) == []
    assert diagnosis.warnings(healthy(300)) == []
    assert diagnosis.warnings(healthy(400, **changed)) == []
    (sentence,) = diagnosis.warnings(healthy(500, **changed))
    assert message in sentence
    assert "training.learning_rate" in sentence
    assert [diagnosis.warnings(healthy(step, **changed)) for step in (600, 700)] == [[], []]


def test_advice_names_the_rates_of_the_run():
    off = Activity({"a": 0.6}, {"m.0": 0.1}, 0.1, 22.0, {})
    diagnosis = Diagnosis(SETTINGS.model_copy(update={"optimiser": "muon", "muon_rate": 0.04, "modulation_rate": 0.5}))
    diagnosis.warnings(healthy(1))
    diagnosis.warnings(healthy(100, seen=off))
    dead, modulation = diagnosis.warnings(healthy(200, seen=off))
    assert dead.endswith("lower training.muon_rate, for instance to 0.01")
    assert modulation.endswith("training.modulation_rate=0.05")


def test_modulations_are_judged_relative_to_the_start_weights():
    small = Activity({}, {"m.0": 0.2}, 0.2, 22.0, {})
    diagnosis = Diagnosis(SETTINGS)
    assert [diagnosis.warnings(healthy(step, seen=small)) for step in (1, 100, 200)] == [[], [], []]


class DeadTask(ToyTask):
    """A toy whose ReLU is always zero."""

    def __init__(self, **options):
        super().__init__(norm=False, **options)
        with torch.no_grad():
            self.model[0].bias[:] = -100


def test_warnings_are_logged_and_printed_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(health, "FEW_SAMPLES", 8 * 64)
    train_task(DeadTask, SETTINGS, tmp_path / "run", progress=True)
    dead, still = [line for line in lines(tmp_path / "run" / "log.jsonl") if line["event"] == "warning"]
    assert dead["step"] == still["step"] == 10
    assert dead["text"].startswith("100% of the units after 1 are zero")
    assert "changes the weights by" in still["text"]
    assert capsys.readouterr().err.count(f"warning, step 10: {dead['text']}\n") == 1
    train_task(DeadTask, SETTINGS, tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    train_task(ToyTask, SETTINGS, tmp_path / "healthy")
    assert all(line["event"] != "warning" for line in lines(tmp_path / "healthy" / "log.jsonl"))


def test_progress_lines_without_a_terminal(tmp_path, capsys, monkeypatch):
    train_task(ToyTask, SETTINGS, tmp_path / "run", progress=True)
    message = capsys.readouterr().err.splitlines()
    assert len(message) == 4  # validations only; thirty seconds have not passed
    assert message[1].startswith("step 20 of 40, loss 0.")
    assert "score -0." in message[1]
    assert "patches/s" in message[1]
    assert message[-1].endswith(", 00:00 left")
    monkeypatch.setattr(monitor, "SECONDS_PER_LINE", 0)
    train_task(ToyTask, SETTINGS, tmp_path / "often", progress=True)
    assert len(capsys.readouterr().err.splitlines()) == 44
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    train_task(ToyTask, SETTINGS, tmp_path / "terminal", progress=True)
    assert "of 40" not in capsys.readouterr().err


@pytest.mark.parametrize("accumulate", [1, 2])
def test_monitoring_does_not_change_a_run(tiny_store, tmp_path, monkeypatch, accumulate):
    settings = SETTINGS.model_copy(update={"accumulate": accumulate})
    filters = FilterSettings(steps=4, batch=2, patch=32, validate_every=4, warmup=1, threads=1, device="cpu")
    for name, due in (("looked", lambda self: True), ("not", lambda self: False)):
        monkeypatch.setattr(monitor.Monitor, "due", due)
        train_task(ToyTask, settings, tmp_path / name)  # dropout and batch norm
        train_filter(tiny_store, "low_cost_17", FILM, filters, tmp_path / f"film_{name}")
    assert weights_of(tmp_path / "looked") == weights_of(tmp_path / "not")
    assert weights_of(tmp_path / "film_looked") == weights_of(tmp_path / "film_not")


def test_pictures_of_a_batch():
    batch = {
        "rec_y": torch.linspace(0, 1, 6 * 300 * 8).reshape(6, 1, 300, 8),
        "qp": torch.full((6, 1, 1, 1), 0.5),
        "signed": torch.tensor([-2.0, 2.0]).reshape(1, 1, 1, 2).expand(6, 1, 300, 2),
        "picture_mse": torch.ones(6),
    }
    shown = monitor.batch_pictures(batch)
    assert {name: picture.shape for name, picture in shown.items()} == {
        "rec_y": (128, 32),
        "qp": (128, 32),
        "signed": (128, 8),
    }
    assert (shown["qp"] == 128).all()
    assert shown["signed"][0].tolist() == [0, 255] * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_monitoring_does_not_recompile_a_network(tmp_path, monkeypatch, precision):
    monkeypatch.setattr(health, "FEW_SAMPLES", 8 * 64)
    settings = SETTINGS.model_copy(update={"compile": True, "precision": precision})
    weights, graphs, seen = [], [], []
    monkeypatch.setattr(Diagnosis, "warnings", lambda self, measured: seen.append(measured.activity.dead) or [])
    for looked in (True, False):
        monkeypatch.setattr(monitor.Monitor, "due", lambda self, looked=looked: looked)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        train_task(ToyTask, settings, tmp_path / str(looked))
        if any(line["event"] == "note" for line in lines(tmp_path / str(looked) / "log.jsonl")):
            pytest.skip("needs a C++ compiler for torch.compile: apt-get install g++")
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        weights.append(weights_of(tmp_path / str(looked)))
    assert weights[0] == weights[1]
    assert graphs[0] == graphs[1] > 0
    assert seen == [{"1": 0.0}] * 40
