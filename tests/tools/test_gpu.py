"""tools/gpu.py: measurements on the CPU in small sizes, the run of marked tests, and the plain peers."""

import json

import numpy as np
import pytest
import torch

from codecnn.filtering import load_filter
from codecnn.models import create_model, load_model
from tools import gpu
from tools.bench.training import bench_units


def test_small_run_on_the_cpu(tmp_path, capsys):
    output = tmp_path / "gpu.json"
    assert gpu.main(["-o", str(output), "--device", "cpu", "--small"]) == 0
    result = json.loads(output.read_text())
    assert result["small"]
    assert result["tests"] is None
    assert result["device"]["type"] == "cpu"
    assert {"codecnn", "torch", "Python"} <= set(result["versions"])
    kinds = [
        (row["what"].split()[0], network, precision)
        for row in result["rows"]
        for network in gpu.NETWORKS
        for precision in gpu.PRECISIONS
        if f"`{network}`" in row["what"] and f"{precision}:" in row["what"]
    ]
    assert sorted(kinds) == sorted(
        (kind, network, precision)
        for kind in ("training", "filtering")
        for network in gpu.NETWORKS
        for precision in gpu.PRECISIONS
    )
    assert all(row["unit"] == "ms" and row["ours"] > 0 and row["theirs"] > 0 for row in result["rows"])
    assert all(row["peer"].startswith("plain PyTorch") and row["turns"] == 2 for row in result["rows"])
    printed = capsys.readouterr().out
    assert "the figures mean nothing" in printed
    assert printed.count("plain PyTorch, float32 |") == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is for machines without a GPU")
def test_missing_gpu_is_a_usage_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        gpu.main(["-o", str(tmp_path / "gpu.json")])
    assert stop.value.code == 2
    assert "torch finds no GPU: `codecnn doctor` says why" in capsys.readouterr().err


def test_outcome_of_the_marked_tests(tmp_path):
    """Only marked tests run, and warnings are not errors."""
    (tmp_path / "test_marked.py").write_text(
        "import warnings\n"
        "import pytest\n"
        "@pytest.mark.gpu\n"
        "def test_passes():\n    warnings.warn('old name', DeprecationWarning, stacklevel=1)\n"
        "@pytest.mark.gpu\n"
        "def test_fails():\n    raise AssertionError('wrong')\n"
        "@pytest.mark.gpu\n"
        "def test_skips():\n    pytest.skip('not here')\n"
        "def test_unmarked():\n    raise AssertionError('not selected')\n"
    )
    result = gpu.run_tests([tmp_path / "test_marked.py"])
    assert (result["status"], result["passed"], result["skipped"]) == (1, 1, 1)
    assert len(result["failed"]) == 1
    assert result["failed"][0].endswith("test_fails")
    report = {
        "device": {"type": "cpu", "name": "A CPU"},
        "versions": {},
        "date": "2026-01-02",
        "small": False,
        "rows": [],
    }
    assert "1 passed, 1 skipped, 1 failed (" in gpu.format_report(report | {"tests": result})
    none = gpu.run_tests([tmp_path / "missing.py"])
    assert none["status"] != 0
    assert f"pytest ended with status {none['status']}" in gpu.format_report(report | {"tests": none})


def test_all_marked_test_files_are_run():
    names = {path.name for path in gpu.gpu_test_files()}
    assert {"test_loader.py", "test_models.py", "test_predict.py", "test_loop.py"} <= names


@pytest.mark.parametrize("network", gpu.NETWORKS)
@pytest.mark.parametrize("size", [(64, 48), (51, 37)])
def test_plain_filter_equals_codecnn(network, size):
    picture = gpu.photo_picture(*size)
    filter_ = load_filter(network)
    model, _ = load_model(network)
    plain = gpu.plain_filter(model.eval(), picture, torch.device("cpu"), "float32")
    filtered = filter_(picture, gpu.QP).y.astype(np.int32)
    assert np.abs(plain - filtered).max() <= 1
    assert (filtered != picture.y).mean() > 0.1


def test_both_ways_train_from_the_same_weights(tmp_path, monkeypatch):
    units = bench_units(tmp_path)
    created = []

    def create(name):
        model = create_model(name)
        created.append((model, {key: value.clone() for key, value in model.state_dict().items()}))
        return model

    monkeypatch.setattr(gpu, "create_model", create)
    arguments = ("low_cost_17", units, torch.device("cpu"), gpu.SMALL, "float32")
    with gpu.codecnn_step(*arguments, compiled=False) as step:
        step()
    gpu.plain_step(*arguments)()
    (_, first), (_, second) = created
    assert all(torch.equal(first[key], second[key]) for key in first)
    for model, initial in created:
        assert any(not torch.equal(value, initial[key]) for key, value in model.state_dict().items())


def test_times_are_medians_of_turns():
    calls = {"first": 0, "second": 0}

    def count(name):
        calls[name] += 1

    times = gpu.time_in_turns(
        (lambda: count("first"), lambda: count("second")), torch.device("cpu"), warm_up=2, repeats=3, turns=4
    )
    assert [len(turns) for turns in times] == [4, 4]
    assert all(value >= 0 for turns in times for value in turns)
    assert calls == {"first": 2 + 3 * 4, "second": 2 + 3 * 4}
