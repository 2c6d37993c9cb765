"""Output of commands against other sources: CUs of VTM, known modes, onnxruntime, a changed bias."""

import copy
import csv
import functools
import gzip
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from codecnn.dataset import open_store
from codecnn.models import save_weights
from codecnn.training.checks import network as checks_network
from tests.helpers.commands import result_of
from tests.helpers.networks import SMALL, random_picture
from tests.helpers.training import write_config


def test_partition_writes_the_cus_of_vtm(run, golden_file, tmp_path):
    facts = result_of(run, "partition", golden_file("vvc/tiny136x72_ai_qp32.266"), "-o", tmp_path / "c.csv")
    with gzip.open(golden_file("vvc/tiny136x72_ai_qp32.cu.csv.gz"), "rt") as file:
        traced = list(csv.DictReader(file))
    with (tmp_path / "c.csv").open() as file:
        written = list(csv.DictReader(file))
    assert facts["cus"] == len(written) == len(traced) == 154

    def cus(rows, names):
        return sorted((row["channel"], *(int(row[name]) for name in names)) for row in rows)

    names = ("poc", "x", "y", "w", "h", "depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp")
    vtm_names = ("poc", "x", "y", "w", "h", "depth", "qtDepth", "mtDepth", "predMode", "intraLumaMode", "QP")
    assert cus(written, names) == cus(traced, vtm_names)


@pytest.mark.parametrize(("axis", "mode"), [(0, 50), (1, 18)])
def test_labels_of_stripes_follow_their_direction(run, tmp_path, axis, mode):
    """Vertical stripes are predicted from above (mode 50) at no cost, horizontal ones from the left (mode 18)."""
    line = np.random.default_rng(axis).integers(100, 900, 32).astype("<u2")
    picture = np.broadcast_to(line, (32, 32)) if axis == 0 else np.broadcast_to(line[:, None], (32, 32))
    picture.tofile(tmp_path / "stripes_32x32_400_10bit.yuv")
    argv = ["labels", "-i", tmp_path / "stripes_32x32_400_10bit.yuv", "-o", tmp_path / "l.parquet"]
    assert result_of(run, *argv, "--block-sizes", "8", "--cost", "hadamard,dct")["blocks"] == 16
    inside = [row for row in pq.read_table(tmp_path / "l.parquet").to_pylist() if row["y" if axis == 0 else "x"] > 0]
    assert len(inside) == 12
    for row in inside:
        assert (row["mode_hadamard"], row["mode_dct"]) == (mode, mode)
        assert row["cost_hadamard"] == row["cost_dct"] == 0


def test_compare_names_the_layer_that_was_changed(run, network, weights, tmp_path):
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.tail.bias += 0.25
    save_weights(tmp_path / "other.safetensors", other, "rdn", {})
    status, text, _ = run("compare", weights, tmp_path / "other.safetensors", "--json")
    result = json.loads(text)
    assert status == 1
    layer = next(layer for layer in result["layers"] if layer["name"] == result["first"])
    assert layer["maximum"] == pytest.approx(0.25, abs=1e-5)
    assert run("compare", weights, weights)[0] == 0


def test_exported_graph_equals_the_network(run, network, weights, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'codecnn[export]'")
    facts = result_of(run, "export", "--model", weights, "-o", tmp_path / "m.onnx")
    planes = random_picture(network, 24, 40)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {name: plane.numpy() for name, plane in planes.items()})
    with torch.no_grad():
        expected = network(planes).numpy()
    assert np.abs(expected - network.crop(planes["rec_y"]).numpy()).max() > 0.01
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
    assert facts["largest_difference_to_pytorch"] < 1e-5


def test_check_finds_a_picture_on_both_sides_of_the_split(run, tiny_store, tmp_path, monkeypatch):
    """The validation picture of the store belongs to the group of a training picture."""
    monkeypatch.setattr("codecnn.training.checks.network.OVERFIT_STEPS", 5)
    monkeypatch.setattr(checks_network, "first_steps", functools.partial(checks_network.first_steps, steps=20))
    monkeypatch.setattr("codecnn.training.checks.data.WAITING_SECONDS", 0.5)
    shutil.copytree(tiny_store.folder, tmp_path / "mixed")
    units = tmp_path / "mixed" / "units.jsonl"
    text = units.read_text()
    assert text.count('"group": "b"') == 2
    units.write_text(text.replace('"group": "b"', '"group": "a"'))
    settings = {"batch": 2, "patch": 32, "threads": 1, "device": "cpu"}
    config = write_config(tmp_path / "c.yaml", open_store(tmp_path / "mixed"), SMALL, **settings)
    status, text, _ = run("check", config, "--json")
    findings = {finding["name"]: finding for finding in json.loads(text)}
    assert status == 1
    assert (findings["splits"]["verdict"], findings["determinism"]["verdict"]) == ("fail", "pass")
    assert "group" in findings["splits"]["measured"]
