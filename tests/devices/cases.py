"""Training, filters, evaluation and labels on the second device: no operation mixes devices, and results are equal.

CODECNN_TEST_DEVICE names a GPU that takes the place of the second device.
"""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from codecnn.api.config import checked
from codecnn.filtering import load_filter
from codecnn.filtering.integer import ExactFilter, engines, load_integer
from codecnn.models import create_model, save_weights, weights_path
from codecnn.modes.networks import create_mode_network, mode_loss
from codecnn.pictures.files import Picture
from codecnn.training import FilterSettings
from codecnn.vvc.intra import block_costs
from tests.helpers import second_device
from tests.helpers.networks import SMALL, awaken
from tests.helpers.second_device import computes
from tests.helpers.toy_task import run_toy
from tests.helpers.training import rows, train_filter

SETTINGS = {"steps": 4, "batch": 4, "patch": 32, "warmup": 1, "validate_every": 4, "checkpoint_every": 2, "threads": 1}
OPTIONS = SMALL | {"blocks": 1, "conditioning": "film", "shuffle": 2}


GPU = os.environ.get("CODECNN_TEST_DEVICE")
LOSS_TOLERANCE = 1e-3 if GPU else 1e-5
WEIGHTS_TOLERANCE = 1e-3 if GPU else 1e-5
"""Muon divides by small singular values, which enlarges the rounding of a GPU."""


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """The name of the second device."""
    if GPU:
        return GPU
    second_device.patch(monkeypatch)
    return second_device.NAME


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **OPTIONS), std=0.05), "rdn", {"qps": [32, 42]})
    return path


@pytest.fixture(scope="module")
def luma():
    return np.random.default_rng(2).integers(0, 1024, (83, 101)).astype(np.uint16)


def test_operations_that_mix_devices_are_refused(device):
    tensor = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="xpected all tensors"):
        tensor + torch.ones(2, 3)
    with pytest.raises(TypeError, match="can't convert"):
        tensor.numpy()


def assert_equal_runs(run, expected):
    for actual, wanted in zip(rows(run), rows(expected), strict=True):
        assert actual["loss"] == pytest.approx(wanted["loss"], rel=LOSS_TOLERANCE)
        assert actual["score"] == pytest.approx(wanted["score"], abs=1e-3)
    tensors = load_file(run / "last.safetensors")
    for name, tensor in load_file(expected / "last.safetensors").items():
        torch.testing.assert_close(tensors[name], tensor, rtol=1e-3, atol=WEIGHTS_TOLERANCE)


VARIANTS = [
    {"accumulate": 2, "optimiser": "muon", "workers": 1, "teacher": {"weights": "low_cost_5"}},
    {"resident": True, "loss": "satd", "ema": 0.5},
    {"optimiser": "rmsprop", "ema": 0, "loss": "dct", "error_exponent": 0.5, "border": 8},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(changes))
def test_training(tiny_store, tmp_path, device, changes):
    def train(name):
        settings = checked(FilterSettings, SETTINGS | {"validation_pictures": 1, "device": name} | changes, "training")
        train_filter(tiny_store, "rdn", OPTIONS, settings, tmp_path / name)

    train("cpu")
    with computes("convolution_backward"):
        train(device)
    assert_equal_runs(tmp_path / device, tmp_path / "cpu")


def test_a_stopped_run_resumes(tmp_path, device):
    changes = {"device": device, "steps": 6, "validate_every": 6, "checkpoint_every": 3, "deterministic": bool(GPU)}
    run_toy(tmp_path / "whole", changes)
    with pytest.raises(ZeroDivisionError):
        run_toy(tmp_path / "parts", changes, events={("loss", 4): ZeroDivisionError()})
    run_toy(tmp_path / "parts", changes, resume=True)
    whole, parts = ((tmp_path / name / "last.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


@pytest.mark.parametrize("options", [{}, {"tile": 32}, {"memory": 3 * 2**20}], ids=str)
def test_filter(weights, luma, device, options):
    there, here = (load_filter(weights, device=name, **options) for name in (device, "cpu"))
    picture = Picture((luma,), 10)
    with computes("convolution"):
        samples = there.samples(picture, 37)["y"]
    np.testing.assert_allclose(samples, here.samples(picture, 37)["y"], atol=0.05)


def test_integer_engines(luma, device):
    network, card = load_integer(weights_path("low_cost_17.int8"))
    picture = Picture((luma, luma[::2, ::2], luma[::2, ::2] // 2), 10)
    for engine in engines(network, device):
        here = ExactFilter(network, engine="float64", card=card).samples(picture, 37)
        there = ExactFilter(network, engine=engine, card=card, device=device).samples(picture, 37)
        np.testing.assert_array_equal(there["y"], here["y"])


@pytest.mark.parametrize("exact", ["--float", "--exact"])
def test_evaluate(run, device, tiny_store, tmp_path, exact):
    results = []
    for name in ("cpu", device):
        command = ("evaluate", tiny_store.folder, "-m", "low_cost_5", "-q", 42, exact, "-o", tmp_path / name, "--json")
        before = second_device.count("convolution")
        status, out, err = run(*command, "--device", name)
        assert status == 0, err
        assert (second_device.count("convolution") > before) == (name == device)
        results.append(json.loads(out))
    here, there = (result.get("models", [result])[-1]["gain_db"]["y"]["mean"] for result in results)
    assert there == pytest.approx(here, abs=1e-3)


@pytest.mark.parametrize("cost", ["sad", "sse", "hadamard", "dct", "rate"])
def test_costs_of_intra_modes(device, cost):
    rng = np.random.default_rng(0)
    lines = rng.integers(0, 1024, (7, 2 * 8 + 1 + 2 * 16)).astype(np.int32)
    blocks = rng.integers(0, 1024, (7, 8, 16)).astype(np.uint16)
    there, here = (block_costs(lines, blocks, 10, cost, device=name, qp=32) for name in (device, "cpu"))
    np.testing.assert_allclose(there, here, rtol=1e-4)


@pytest.mark.parametrize("name", ["modes", "mode_sketch"])
def test_mode_network(device, name):
    torch.manual_seed(0)
    network = create_mode_network(name).to(device)
    parts = torch.randint(1024, (5, 33)), torch.randint(1024, (5, 8, 8)), torch.full((5,), 10), torch.full((5,), 32)
    logits = network(*network.inputs(*(part.to(device) for part in parts)))
    mode_loss(logits, torch.arange(5, device=device)).backward()
    assert {parameter.grad.device.type for parameter in network.parameters()} == {device}


def test_labels(run, device, luma, tmp_path):
    luma.tofile(tmp_path / "a_101x83_400_10bit.yuv")
    command = ("labels", "-i", tmp_path / "a_101x83_400_10bit.yuv", "--block-sizes", "8,16x8")
    for name in ("cpu", device):
        status, _, err = run(*command, "-o", tmp_path / f"{name}.parquet", "--device", name)
        assert status == 0, err
    there, here = (pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in (device, "cpu"))
    assert [row["mode_dct"] for row in there] == [row["mode_dct"] for row in here]
