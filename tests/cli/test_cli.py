"""The command line as a user meets it: results, exit status, one sentence for every mistake, nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from codecnn import cli
from codecnn.evaluation import psnr
from codecnn.filtering import FloatFilter
from codecnn.models import load_model
from codecnn.video import VideoFormat, create_video, open_video
from tests.helpers.commands import result_of
from tests.helpers.networks import SMALL
from tests.helpers.training import write_config


@pytest.fixture
def yuv(tmp_path):
    path = tmp_path / "clip_48x32_30.yuv"
    form = VideoFormat(48, 32, "420", 8)
    rng = np.random.default_rng(0)
    with create_video(path, form) as out:
        for _ in range(3):
            out.write([rng.integers(0, 256, shape).astype(np.uint8) for shape in form.plane_shapes])
    return path


def test_every_command_explains_itself(run):
    status, text, _ = run("--help")
    assert status == 0
    commands = (
        "demo doctor info partition view dataset labels check train compare evaluate filter correlate models complexity"
    )
    for command in (*commands.split(), "export"):
        assert command in text
        assert run(command, "--help")[0] == 0


def test_info(run, yuv):
    facts = result_of(run, "info", yuv)
    assert (facts["width"], facts["height"], facts["pictures"], facts["fps"]) == (48, 32, 3, 30)


def test_models_complexity_doctor(run, network, weights):
    assert "rdn" in [model["name"] for model in result_of(run, "models")]
    assert round(result_of(run, "complexity", "rdn", "blocks=4", "growth=24")["kmac_per_pixel"]) == 523
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert result_of(run, "complexity", weights)["parameters"] == parameters
    assert {"VVC encoder", "torch"} <= {finding["what"] for finding in result_of(run, "doctor") if finding["ok"]}


def test_filter_writes_what_the_library_computes(run, network, weights, yuv, tmp_path):
    output = tmp_path / "out_48x32.yuv"
    status, _, err = run("filter", "--model", weights, "-i", yuv, "-q", "37", "-o", output)
    assert status == 0, err
    filter_ = FloatFilter(network)
    with open_video(yuv) as before, open_video(output) as after:
        assert len(after) == 3
        for decoded, filtered in zip(before, after, strict=True):
            assert np.mean(decoded.y != filtered.y) > 0.5
            for plane, expected in zip(filtered.planes, filter_(decoded, 37).planes, strict=True):
                np.testing.assert_array_equal(plane, expected)


def test_train_evaluate_and_correlate_on_a_store(run, weights, tiny_store, tmp_path):
    settings = {"steps": 2, "batch": 2, "patch": 32, "validate_every": 2, "threads": 1}
    config = write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)
    trained = result_of(run, "train", config, "training.seed=7", "-o", tmp_path / "run")["weights"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["seed"] == 7
    models = ("--model", trained, "--model", weights)
    evaluated = result_of(run, "evaluate", tiny_store.folder, *models, "-o", tmp_path / "results")["models"]
    units = {unit.qp: unit for unit in tiny_store.split("test")}
    gains = {}
    for path, results in zip((trained, weights), evaluated, strict=True):
        filter_ = FloatFilter(load_model(path)[0])
        for row in results["sequences"]:
            with units[row["qp"]].originals() as originals, units[row["qp"]].decoded() as decoded:
                planes = decoded[0].y, filter_(decoded[0], row["qp"]).y
                before, after = (psnr(originals[0].y, plane, 10) for plane in planes)
            assert (row["psnr_y"], row["psnr_y_filtered"]) == pytest.approx((before, after), abs=1e-4)
            gains[path, row["qp"]] = results["gain_db"]["y"][str(row["qp"])]
            assert gains[path, row["qp"]] == pytest.approx(after - before, abs=1e-6)
    assert len(gains) == 4
    assert gains[weights, 32] < -1, "random weights spoil the picture"
    found = result_of(run, "correlate", tiny_store.folder, "-o", tmp_path / "correlation")
    ctus = tiny_store.ctus()
    assert found["n"] == ctus.num_rows
    for name, column in (("qp", "qp"), ("depth", "depth_mean")):
        expected = np.corrcoef(ctus[column], ctus["mse_y"])[0, 1]
        assert found["pearson"][name] == pytest.approx(expected, abs=1e-9)


def test_evaluate_codes_what_it_is_given(run, weights, yuv, tmp_path):
    argv = ("evaluate", yuv, "--model", weights, "-q", "32,42", "--preset", "faster", "-f", "1", "-o", tmp_path / "e")
    rows = result_of(run, *argv)["sequences"]
    assert [(row["name"], row["qp"], row["pictures"]) for row in rows] == [("clip_48x32_30", qp, 1) for qp in (32, 42)]
    again = result_of(run, *argv)["sequences"]
    assert [row["psnr_y_filtered"] for row in again] == [row["psnr_y_filtered"] for row in rows]


@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("info none.yuv", 1, "none.yuv does not exist"),
        ("info {yuv} -s 50x32", 1, "pictures of 50x32"),
        ("info {yuv} -s 50", 1, "WxH"),
        ("filter --model {weights} -i {yuv} -q 99 -o {tmp}/o.yuv", 1, "QP 99 is out of range"),
        ("filter --model {weights} -i {yuv} -q a -o {tmp}/o.yuv", 1, "QP 'a' is not"),
        ("filter --model {weights} -i {yuv} -q 22,27 -o {tmp}/o.yuv", 1, "2 QPs were given for 3"),
        ("filter --model none.safetensors -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "does not exist"),
        ("filter --model {weights} -i {yuv} -q 22 -o {yuv}", 1, "the same file"),
        ("filter --model {weights} -i {yuv} -o {tmp}/o.yuv", 1, "give it as -q QP"),
        ("dataset build none.yaml -o {tmp}/o.yuv", 1, "none.yaml does not exist"),
        ("dataset build none.yaml", 2, "output"),
        ("dataset verify {tmp}", 1, "not a store"),
        ("train {yuv} -o {tmp}/o.yuv", 1, "not"),
        ("evaluate {yuv} --model {weights} -q 70 -o {tmp}/o.yuv", 1, "QP 70 is out of range"),
        ("evaluate {yuv} --model {weights} --codec av1 -o {tmp}/o.yuv", 1, "'av1'"),
        ("correlate none.csv -o {tmp}/o.yuv", 1, "none.csv does not exist"),
        ("complexity rdn blocks=0", 1, "blocks"),
        ("complexity resnet", 1, "unknown network"),
        ("models --fast", 2, "--fast"),
        ("fly", 2, "fly"),
    ],
)
def test_a_mistake_gets_one_sentence(run, weights, yuv, tmp_path, command, status, sentence):
    before = yuv.read_bytes()
    names = {"yuv": yuv, "weights": weights, "tmp": tmp_path}
    code, text, err = run(*[part.format(**names) for part in command.split()])
    assert code == status
    assert sentence in err.replace("\n", " ")
    assert "Traceback" not in err + text
    if status == 1:
        assert len(err.strip().splitlines()) == 1
        assert err.startswith("codecnn: ")
    assert not (tmp_path / "o.yuv").exists()
    assert not list(tmp_path.glob("*.part*"))
    assert yuv.read_bytes() == before


def test_a_missing_encoder_is_a_sentence(run, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("CODECNN_FFMPEG", str(tmp_path / "nothing"))
    status, _, err = run("dataset", "build", tiny_recipe, "-o", tmp_path / "s")
    assert status == 1
    assert "CODECNN_FFMPEG" in err
    assert not (tmp_path / "s").exists()
    assert run("doctor")[0] == 1


def test_a_full_disk_is_a_sentence(run, weights, yuv):
    status, _, err = run("filter", "--model", weights, "-i", yuv, "-q", "37", "-o", "/dev/full")
    assert status == 1
    assert len(err.strip().splitlines()) == 1


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["codecnn", "--debug", "info", "none.yuv"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_an_interrupt_is_130(tiny_recipe, tmp_path):
    argv = [sys.executable, "-m", "codecnn", "dataset", "build", str(tiny_recipe), "codec=hevc", "qp=[10,11,12,13]"]
    argv += ["-o", "s"]
    process = subprocess.Popen(argv, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("s/coded/*")) and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_device_is_written_to_and_never_replaced(run, weights, yuv):
    assert run("filter", "--model", weights, "-i", yuv, "-q", "37", "-o", "/dev/null")[0] == 0
    assert not Path("/dev/null").is_file()
