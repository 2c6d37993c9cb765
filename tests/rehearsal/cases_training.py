"""Training on the rehearsal device gives what training on the CPU gives, and its steps do not wait for the device."""

import os
import socket
import subprocess
import sys
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file

from codecnn.api.config import checked
from codecnn.models import create_model, save_weights
from codecnn.modes.labels import label_settings, read_inputs, store_inputs, write_labels
from codecnn.modes.training import IntraModesConfig
from codecnn.training import FilterSettings, Trainer, train
from codecnn.training.checks import network, task_setup
from codecnn.training.execution import forward_hooks, in_precision
from codecnn.training.filter import filter_task
from tests.helpers.networks import SMALL, awaken, random_planes
from tests.helpers.rehearsal import operations, synchronisations
from tests.helpers.toy_task import run_toy
from tests.helpers.training import rows, train_filter

SETTINGS = {"steps": 4, "batch": 4, "patch": 32, "warmup": 1, "validate_every": 4, "checkpoint_every": 2, "threads": 1}
SETTINGS |= {"validation_pictures": 1}
OPTIONS = SMALL | {"blocks": 1, "conditioning": "film", "shuffle": 2}


def settings(**changes):
    return checked(FilterSettings, SETTINGS | changes, "training")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **OPTIONS), 0, std=0.1), "rdn", {"qps": [32, 42]})
    return path


def assert_equal_runs(run, expected, tolerance=1e-5):
    for actual, wanted in zip(rows(run), rows(expected), strict=True):
        assert actual["step"] == wanted["step"]
        assert actual["loss"] == pytest.approx(wanted["loss"], rel=tolerance)
        assert actual["score"] == pytest.approx(wanted["score"], abs=1e-3)
    tensors = load_file(run / "last.safetensors")
    for name, tensor in load_file(expected / "last.safetensors").items():
        torch.testing.assert_close(tensors[name], tensor, rtol=1e-3, atol=tolerance)


VARIANTS = [
    {"accumulate": 2, "optimiser": "muon", "workers": 1, "teacher": {"weights": "low_cost_5"}},
    {"resident": True, "precision": "bfloat16", "loss": "satd"},
    {"optimiser": "rmsprop", "ema": 0, "loss": "dct", "error_exponent": 0.5, "border": 8},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(changes))
def test_a_run(tiny_store, tmp_path, device, changes):
    for name in (device, "cpu"):
        with operations() as computed:
            train_filter(tiny_store, "rdn", OPTIONS, settings(device=name, **changes), tmp_path / name)
        assert (computed["convolution_backward"] > 0) == (name == device)
    assert_equal_runs(tmp_path / device, tmp_path / "cpu", 1e-2 if changes.get("precision") else 1e-5)


def test_bfloat16_computes_in_bfloat16(device):
    model = awaken(create_model("rdn", **OPTIONS))
    convolutions = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    for name in (device, "cpu"):
        types = []
        planes = {key: plane.to(name) for key, plane in random_planes(model, 16, 16).items()}
        network = in_precision(model.to(name), "bfloat16", torch.device(name))
        with forward_hooks(convolutions, lambda _, output, types=types: types.append(output.dtype)):
            output = network(planes)
        assert set(types) == {torch.bfloat16}
        assert output.dtype == torch.float32


def test_fine_tuning_to_integers(tiny_store, tmp_path, device, weights):
    changes = {"quantise": "int8", "start": {"weights": str(weights)}, "learning_rate": 1e-4}
    for name in (device, "cpu"):
        train_filter(tiny_store, "rdn", OPTIONS, settings(device=name, **changes), tmp_path / name)
    assert rows(tmp_path / device)[-1]["loss"] == pytest.approx(rows(tmp_path / "cpu")[-1]["loss"], rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}])
def test_a_stopped_run_resumes_on_either_device(tmp_path, device, changes):
    """The toy has dropout: the random state of the device is seeded by the step as well."""
    changes = changes | {"device": device, "steps": 10, "validate_every": 5, "checkpoint_every": 3}
    run_toy(tmp_path / "whole", changes)

    def stop(self):
        return self.state.step == 7 and 1 / 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_validation_due", stop)
        with pytest.raises(ZeroDivisionError):
            run_toy(tmp_path / "parts", changes)
    run_toy(tmp_path / "parts", changes, resume=True)
    for name in ("last", "best"):
        assert (tmp_path / f"whole/{name}.safetensors").read_bytes() == (
            tmp_path / f"parts/{name}.safetensors"
        ).read_bytes()
    run_toy(tmp_path / "parts", changes | {"device": "cpu"}, resume=True)


RANK = """
import sys
from pathlib import Path
import pytest
from tests.helpers import rehearsal
from tests.helpers.toy_task import run_toy

with pytest.MonkeyPatch.context() as patch:
    rehearsal.patch(patch)
    run_toy(Path(sys.argv[1]), {changes}, dropout=False)
"""
"""Program of the second process."""


def test_two_processes(tmp_path, device, monkeypatch):
    """Gradients are averaged, and batch norms synchronised, by Gloo."""
    plain = {"steps": 10, "optimiser": "sgd", "validate_every": 10}
    run_toy(tmp_path / "one", plain, dropout=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = RANK.format(changes=plain | {"device": device})
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "two")],
        env=os.environ | places | {"RANK": "1", "LOCAL_RANK": "1"},
        stderr=subprocess.PIPE,
    )
    for name, value in (places | {"RANK": "0", "LOCAL_RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    try:
        with operations() as computed:
            run_toy(tmp_path / "two", plain | {"device": device}, dropout=False)
    finally:
        _, err = other.communicate(timeout=60)
    assert other.returncode == 0, err.decode()
    assert computed["convolution_backward"] > 0
    assert_equal_runs(tmp_path / "two", tmp_path / "one", 1e-6)


def modes_config(folder, store, device):
    for split in ("train", "val"):
        if not (folder / f"{split}.parquet").exists():
            inputs = store_inputs(store, [split])
            facts = [entry.facts() for entry in inputs]
            options = label_settings(block_sizes="8,16", cost="dct", ctu_size=64)
            write_labels(folder / f"{split}.parquet", read_inputs(inputs), options, inputs=facts)
    content = {
        "task": "intra_modes",
        "labels": [str(folder / "train.parquet")],
        "validation": [str(folder / "val.parquet")],
        "validation_blocks": 64,
        "softness": 0.1,
        "model": {"features": 4, "blocks": 1, "layers": 1, "growth": 2, "hidden": 8},
        "training": {"steps": 4, "batch": 8, "validate_every": 4, "warmup": 1, "threads": 1, "device": device},
    }
    return checked(IntraModesConfig, content, "config")


def test_intra_modes(tiny_store, tmp_path, device):
    for name in (device, "cpu"):
        train(modes_config(tmp_path, tiny_store, name), tmp_path / name)
    assert_equal_runs(tmp_path / device, tmp_path / "cpu")


def test_checks_of_a_set_up(tiny_store, device):
    """Every check that runs the network passes or fails for the same reason as on the CPU."""
    findings = {}
    for name in (device, "cpu"):
        changed = settings(device=name, steps=20)
        setup = task_setup(lambda s: filter_task(tiny_store, "rdn", OPTIONS, s), changed, torch.device(name))
        steps = network.first_steps(setup, changed, steps=3)
        findings[name] = [
            network.check_initial_loss(setup, 1),
            network.check_last_layer(setup),
            network.check_evaluation_mode(setup),
            network.check_gradients(setup, 2),
            network.check_overfit(setup, 0.1),
            network.check_dead_units(steps),
            network.check_modulations(steps),
            network.check_updates(steps),
            network.check_batch_norm(setup),
            network.check_float64(setup),
            network.check_determinism(setup, 2),
        ]
    for there, here in zip(*findings.values(), strict=True):
        assert (there.name, there.verdict) == (here.name, here.verdict), there.measured


STEPS = [
    {"steps": 5},
    {"accumulate": 2, "optimiser": "muon"},
    {"optimiser": "sgd", "loss": "satd"},
    {"precision": "bfloat16", "loss": "dct", "teacher": {"weights": "low_cost_5"}},
    {"quantise": "int8"},
]
ALLOWED = {"quantise": {"read at filtering/integer/aware.py": 1}}
"""Waits of a step that are documented, by setting and file: integers are fitted to the weights on the CPU."""


@pytest.mark.parametrize("changes", STEPS, ids=lambda changes: "-".join(changes))
def test_a_step_does_not_wait_for_the_device(tiny_store, tmp_path, device, changes, weights, monkeypatch):
    """Steps that the monitor measures, one in a hundred, do wait."""
    waits, steps = Counter(), []

    def step(self, batch, original=Trainer.step):
        if self.monitor.due():
            return original(self, batch)
        steps.append(self.state.step)
        with synchronisations() as recorder:
            original(self, batch)
        waits.update(recorder)
        return None

    monkeypatch.setattr(Trainer, "step", step)
    changes = changes | ({"start": {"weights": str(weights)}} if "quantise" in changes else {})
    changed = settings(device=device, **({"validate_every": 5, "checkpoint_every": 5, "steps": 5} | changes))
    train_filter(tiny_store, "rdn", OPTIONS, changed, tmp_path / "run")
    assert steps == [1, 2, 3]
    by_file = Counter()
    for place, count in waits.items():
        by_file[place.partition(":")[0]] += count
    allowed = next((ALLOWED[name] for name in changes if name in ALLOWED), {})
    assert by_file == {place: count * len(steps) for place, count in allowed.items()}, waits


@pytest.mark.parametrize("changes", [{}, {"resident": True}, {"workers": 1}], ids=str)
def test_batches_are_copied_without_waiting(tiny_store, device, changes):
    task = filter_task(tiny_store, "rdn", OPTIONS, settings(device=device, **changes))
    batches = task.batches(range(3), 0, 1, torch.device(device))
    first = next(batches)  # resident planes are copied now
    with synchronisations() as waits:
        rest = list(batches)
    assert not waits
    assert {plane.device.type for batch in [first, *rest] for plane in batch.values()} == {device}
