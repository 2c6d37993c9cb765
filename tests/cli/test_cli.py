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
from codecnn.models import create_model, save_weights
from codecnn.video import VideoFormat, create_video, open_video
from tests.models.test_models import SMALL, awaken


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {})
    return path


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
    for command in (
        "demo",
        "info",
        "dataset",
        "train",
        "evaluate",
        "filter",
        "correlate",
        "models",
        "complexity",
        "doctor",
    ):
        assert command in text
        assert run(command, "--help")[0] == 0


def test_info(run, yuv):
    status, text, _ = run("info", yuv, "--json")
    assert status == 0
    facts = json.loads(text)
    assert (facts["width"], facts["height"], facts["pictures"], facts["fps"]) == (48, 32, 3, 30)


def test_models_complexity_doctor(run, weights):
    assert "rdn" in [model["name"] for model in json.loads(run("models", "--json")[1])]
    cost = json.loads(run("complexity", "rdn", "blocks=4", "growth=24", "--json")[1])
    assert round(cost["kmac_per_pixel"]) == 523
    assert json.loads(run("complexity", weights, "--json")[1])["parameters"] > 0
    status, text, _ = run("doctor", "--json")
    assert status == 0
    assert {"VVC encoder", "torch"} <= {finding["what"] for finding in json.loads(text) if finding["ok"]}


def test_filter_writes_what_the_library_computes(run, weights, yuv, tmp_path):
    output = tmp_path / "out_48x32.yuv"
    status, _, err = run("filter", "--model", weights, "-i", yuv, "-q", "37", "-o", output)
    assert status == 0, err
    with open_video(yuv) as before, open_video(output) as after:
        assert len(after) == 3
        assert 60 - psnr(before[2].y, after[2].y, 8) > 0
        np.testing.assert_array_equal(before[2].u, after[2].u)


def test_train_evaluate_and_correlate_on_a_store(run, tiny_store, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(
        f"store: {tiny_store.folder}\nmodel:\n  name: rdn\n  options: {json.dumps(SMALL)}\n"
        "training: {steps: 2, batch: 2, patch: 32, validate_every: 2, threads: 1}\n"
    )
    status, text, err = run("train", config, "training.seed=7", "-o", tmp_path / "run", "--json")
    assert status == 0, err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["seed"] == 7
    weights = json.loads(text)["weights"]
    status, text, err = run("evaluate", tiny_store.folder, "--model", weights, "-o", tmp_path / "results", "--json")
    assert status == 0, err
    assert json.loads(text)["gain_db"]["y"]["mean"] == pytest.approx(0, abs=0.2)
    status, text, err = run("correlate", tiny_store.folder, "-o", tmp_path / "correlation", "--json")
    assert status == 0, err
    assert json.loads(text)["n"] == tiny_store.ctus().num_rows


def test_evaluate_codes_what_it_is_given(run, weights, yuv, tmp_path):
    argv = (
        "evaluate",
        yuv,
        "--model",
        weights,
        "-q",
        "32,42",
        "--preset",
        "faster",
        "-f",
        "1",
        "-o",
        tmp_path / "e",
        "--json",
    )
    status, text, err = run(*argv)
    assert status == 0, err
    rows = json.loads(text)["sequences"]
    assert [(row["name"], row["qp"], row["pictures"]) for row in rows] == [
        ("clip_48x32_30", 32, 1),
        ("clip_48x32_30", 42, 1),
    ]
    assert run(*argv)[1].count("psnr_y_filtered") == text.count("psnr_y_filtered")


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        (["info", "none.yuv"], 1, "none.yuv does not exist"),
        (["info", "{yuv}", "-s", "50x32"], 1, "pictures of 50x32"),
        (["info", "{yuv}", "-s", "50"], 1, "WxH"),
        (
            ["filter", "--model", "{weights}", "-i", "{yuv}", "-q", "99", "-o", "{tmp}/o.yuv"],
            1,
            "QP 99 is out of range",
        ),
        (["filter", "--model", "{weights}", "-i", "{yuv}", "-q", "a", "-o", "{tmp}/o.yuv"], 1, "QP 'a' is not"),
        (
            ["filter", "--model", "{weights}", "-i", "{yuv}", "-q", "22,27", "-o", "{tmp}/o.yuv"],
            1,
            "2 QPs were given for 3",
        ),
        (
            ["filter", "--model", "none.safetensors", "-i", "{yuv}", "-q", "22", "-o", "{tmp}/o.yuv"],
            1,
            "does not exist",
        ),
        (["filter", "--model", "{weights}", "-i", "{yuv}", "-q", "22", "-o", "{yuv}"], 1, "the same file"),
        (["filter", "--model", "{weights}", "-i", "{yuv}", "-o", "{tmp}/o.yuv"], 1, "give it as -q QP"),
        (["dataset", "build", "none.yaml", "-o", "{tmp}/o.yuv"], 1, "none.yaml does not exist"),
        (["dataset", "build", "none.yaml"], 2, "output"),
        (["dataset", "verify", "{tmp}"], 1, "not a store"),
        (["train", "{yuv}", "-o", "{tmp}/o.yuv"], 1, "not"),
        (["evaluate", "{yuv}", "--model", "{weights}", "-q", "70", "-o", "{tmp}/o.yuv"], 1, "QP 70 is out of range"),
        (["evaluate", "{yuv}", "--model", "{weights}", "--codec", "av1", "-o", "{tmp}/o.yuv"], 1, "'av1'"),
        (["correlate", "none.csv", "-o", "{tmp}/o.yuv"], 1, "none.csv does not exist"),
        (["complexity", "rdn", "blocks=0"], 1, "blocks"),
        (["complexity", "resnet"], 1, "unknown network"),
        (["models", "--fast"], 2, "--fast"),
        (["fly"], 2, "fly"),
    ],
)
def test_a_mistake_gets_one_sentence(run, weights, yuv, tmp_path, argv, status, sentence):
    before = yuv.read_bytes()
    names = {"yuv": yuv, "weights": weights, "tmp": tmp_path}
    code, text, err = run(*[part.format(**names) for part in argv])
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
