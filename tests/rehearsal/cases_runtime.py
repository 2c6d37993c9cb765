"""The second rehearsal device: training, filters and evaluations name their device instead of using the current one."""

import json

import numpy as np
import pytest
import torch

from codecnn.api.config import checked
from codecnn.base.runtime import float32_products
from codecnn.filtering import TF32Filter, load_filter
from codecnn.filtering.network_filter import FloatFilter
from codecnn.models import create_model, pick_device, save_weights
from codecnn.pictures.files import Picture
from codecnn.training import FilterSettings, Trainer
from codecnn.training.filter import filter_task
from tests.helpers.networks import SMALL, awaken
from tests.helpers.rehearsal import MODULE, synchronisations
from tests.helpers.toy_task import run_toy
from tests.helpers.training import lines, rows


@pytest.fixture
def second(device, monkeypatch):
    """The name of the second device; the first one is current."""
    monkeypatch.setattr(MODULE, "index", 0)
    monkeypatch.setattr(MODULE, "events", [])
    return f"{device}:1"


def products():
    return torch.backends.cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision


def test_names_without_a_number_are_completed(device, second, monkeypatch):
    assert str(pick_device(device)) == f"{device}:0"
    monkeypatch.setattr(MODULE, "index", 1)
    assert str(pick_device(device)) == second


def test_one_process_trains_on_the_second_device(tmp_path, device, second, monkeypatch):
    """The toy has dropout, so that equal weights need the random state of the right device."""
    run_toy(tmp_path / "first", {"device": f"{device}:0"})
    current, step = [], Trainer.step

    def watched(self, batch):
        current.append(MODULE.current_device())
        MODULE.set_device(0)  # as code of the user in network or loss may do
        step(self, batch)
        assert {x.device for x in batch.values()} == {torch.device(second)}

    monkeypatch.setattr(Trainer, "step", watched)
    monkeypatch.setattr(MODULE, "events", [])
    MODULE.manual_seed_all(0)
    untouched = MODULE.random_states[0].clone()
    result = run_toy(tmp_path / "second", {"device": second})
    assert current[0] == 1
    assert MODULE.current_device() == 0
    assert set(MODULE.events) == {1}
    torch.manual_seed(11)  # the run seeds all devices at its start, as torch.manual_seed does
    assert MODULE.random_states[0].equal(torch.Generator().manual_seed(11).get_state())
    assert not MODULE.random_states[0].equal(untouched)
    for name in ("last", "best"):
        first, other = ((tmp_path / f"{run}/{name}.safetensors").read_bytes() for run in ("first", "second"))
        assert first == other
    started = lines(tmp_path / "second/log.jsonl")[0]
    assert started["device"] == started["runtime"]["device"] == result.runtime.device == second
    assert rows(tmp_path / "second")[-1]["gpu_memory_mib"] == 1


def test_resident_planes_lie_on_the_second_device(tiny_store, second):
    settings = checked(FilterSettings, {"batch": 4, "patch": 32, "resident": True}, "training")
    task = filter_task(tiny_store, "rdn", SMALL, settings)
    batch = next(task.batches(range(1), 0, 1, torch.device(second)))
    assert {str(plane.device) for plane in batch.values()} == {second}


@pytest.mark.parametrize("workers", [0, 1])
def test_blocks_are_copied_without_waiting(tiny_store, tmp_path, second, workers):
    from tests.rehearsal.cases_training import modes_config

    config = modes_config(tmp_path, tiny_store, "cpu")
    task = config.make_task(config.training.model_copy(update={"workers": workers}))
    batches = task.batches(range(3), 0, 1, torch.device(second))
    next(batches)
    with synchronisations() as waits:
        rest = list(batches)
    assert not waits
    assert {str(tensor.device) for batch in rest for tensor in batch.values()} == {second}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL), std=0.05), "rdn", {"qps": [32, 42]})
    return path


@pytest.mark.parametrize(("precision", "expected"), [("float32", "ieee"), ("tf32", "tf32")])
def test_a_filter_on_the_second_device(weights, second, monkeypatch, precision, expected):
    seen, compute = [], FloatFilter._compute

    def watched(self, window):
        seen.append((products(), MODULE.current_device()))
        return compute(self, window)

    monkeypatch.setattr(FloatFilter, "_compute", watched)
    luma = np.random.default_rng(2).integers(0, 1024, (40, 48)).astype(np.uint16)
    there, here = (load_filter(weights, device=name) for name in (second, "cpu"))
    there = there if precision == "float32" else TF32Filter(there.model, device=second)
    with float32_products(tf32=precision == "float32"):  # what the program around it allows does not matter
        samples = there.samples(Picture((luma,), 10), 37)["y"]
    assert set(seen) == {((expected, expected), 1)}
    np.testing.assert_allclose(samples, here.samples(Picture((luma,), 10), 37)["y"], atol=0.05)
    assert (there.runtime.device, there.runtime.tf32) == (second, precision == "tf32")
    assert MODULE.current_device() == 0


def test_commands_state_the_runtime(run, second, weights, tiny_store, tmp_path):
    status, out, err = run(
        "evaluate", tiny_store.folder, "-m", weights, "-q", 42, "-o", tmp_path, "--json", "--device", second
    )
    assert status == 0, err
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["device"] == "rehearsal device 1"
    assert (results["runtime"]["device"], results["runtime"]["tf32"]) == (second, False)
    luma = np.random.default_rng(2).integers(0, 1024, (40, 48)).astype(np.uint16)
    luma.tofile(tmp_path / "a_48x40_400_10bit.yuv")
    command = ("filter", "-m", weights, "-i", tmp_path / "a_48x40_400_10bit.yuv", "-q", 37, "--device", second)
    status, out, err = run(*command, "-o", tmp_path / "f_48x40_400_10bit.yuv", "--precision", "tf32", "--json")
    assert status == 0, err
    runtime = json.loads(out)["runtime"]
    assert (runtime["device"], runtime["precision"], runtime["tf32"]) == (second, "float32", True)
