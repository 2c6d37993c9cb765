"""The command line: results, exit status, one sentence for each error, and no incomplete files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from codecnn import cli
from codecnn.cli.application import EXAMPLES
from codecnn.filtering import FloatFilter
from codecnn.models import load_model
from codecnn.pictures.files import VideoFormat, create_video, open_video
from codecnn.pictures.metrics import psnr
from tests.helpers.commands import read_command, result_of
from tests.helpers.documentation import ROOT
from tests.helpers.networks import SMALL
from tests.helpers.training import lines, write_config


@pytest.fixture
def yuv(tmp_path):
    path = tmp_path / "clip_48x32_30.yuv"
    form = VideoFormat(48, 32, "420", 8)
    rng = np.random.default_rng(0)
    with create_video(path, form) as out:
        for _ in range(3):
            out.write([rng.integers(0, 256, shape).astype(np.uint8) for shape in form.plane_shapes])
    return path


def test_all_commands_have_help(run):
    status, text, _ = run("--help")
    assert status == 0
    commands = (
        "demo doctor info partition view dataset labels check train compare evaluate filter correlate models complexity"
    )
    for command in (*commands.split(), "export"):
        assert command in text
        assert run(command, "--help")[0] == 0


@pytest.mark.parametrize(("name", "example"), EXAMPLES.items())
def test_help_ends_with_a_valid_example(run, name, example):
    status, text, _ = run(*name.split(), "--help")
    assert (status, " ".join(text.split()).endswith(f"Example: {example}")) == (0, True)
    assert read_command(example.split()[1:])[0] == name.split()[-1]


def test_shell_completion_of_commands_options_and_weights():
    def completed(words):
        environment = {"_CODECNN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        # The shell passes the words typed so far in environment variables.
        done = subprocess.run(
            [sys.executable, "-c", "from codecnn.cli import main; main()"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    assert completed("codecnn fil") == ["filter"]
    assert "--original" in completed("codecnn filter --or")
    assert completed("codecnn filter -m low_cost_75.vvc_") == ["low_cost_75.vvc_unf", "low_cost_75.vvc_video_mc"]


def test_info(run, yuv):
    facts = result_of(run, "info", yuv)
    assert (facts["width"], facts["height"], facts["pictures"], facts["fps"]) == (48, 32, 3, 30)


def test_models_complexity_doctor(run, network, weights):
    assert "rdn" in [model["name"] for model in result_of(run, "models")]
    assert round(result_of(run, "complexity", "rdn", "blocks=4", "growth=24")["kmac_per_pixel"]) == 523
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert result_of(run, "complexity", weights)["parameters"] == parameters
    assert {"VVC encoder", "torch"} <= {finding["what"] for finding in result_of(run, "doctor") if finding["ok"]}


def test_filter_equals_the_library(run, network, weights, yuv, tmp_path):
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


def test_filter_takes_the_packing_of_raw_files(run, weights, yuv, tmp_path):
    """The samples of a planar file and of the same file as nv12 are filtered to the same pictures."""
    with open_video(yuv) as video:
        nv12 = b"".join(picture.y.tobytes() + np.dstack(picture.planes[1:]).tobytes() for picture in video)
    (tmp_path / "plain.yuv").write_bytes(nv12)
    options = ("-m", weights, "-q", "37")
    assert run("filter", *options, "-i", yuv, "-o", tmp_path / "planar.y4m")[0] == 0
    packed = ("-i", tmp_path / "plain.yuv", "-s", "48x32", "-r", "30", "--packing", "nv12")
    assert run("filter", *options, *packed, "-o", tmp_path / "nv12.y4m")[0] == 0
    assert (tmp_path / "nv12.y4m").read_bytes() == (tmp_path / "planar.y4m").read_bytes()
    status, _, err = run("filter", *options, "-i", yuv, "-o", tmp_path / "out_nv12.yuv")
    assert status == 1
    assert "its name states nv12" in " ".join(err.split())


def test_train_repeats_its_warnings_at_the_end(run, tiny_store, tmp_path):
    settings = {"steps": 2, "batch": 2, "patch": 32, "validate_every": 2, "threads": 1}
    config = write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)
    status, text, _ = run("train", config, "training.learning_rate=1e-12", "-o", tmp_path / "still")
    assert status == 0
    assert text.startswith("Warning after step 2: a step changes the weights by")
    assert result_of(run, "train", config, "-o", tmp_path / "run")["warnings"] == []


def test_threads_on_a_busy_machine(run, tiny_store, tmp_path, monkeypatch):
    """Training says that fewer threads would be faster, and keeps its number, since the bits of its sums depend on it.

    A resumed run has the number of its log.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    settings = {"steps": 2, "batch": 2, "patch": 32, "validate_every": 2, "threads": None}
    config = write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)
    monkeypatch.setattr("codecnn.base.runtime.fastest_threads", lambda threads: 1)
    torch.set_num_threads(2)
    command = ("train", config, "training.device=cpu", "-o", tmp_path / "run", "--json")
    status, text, err = run(*command)
    assert status == 0, err
    assert "1 thread would be faster than the 2 that are used: stop with Ctrl-C and start again with" in err
    assert json.loads(text)["runtime"]["threads"] == 2
    assert {event["threads"] for event in lines(tmp_path / "run" / "log.jsonl")} == {2}
    torch.set_num_threads(1)
    status, text, err = run(*command, "--resume")
    assert (status, "faster" in err, json.loads(text)["runtime"]["threads"]) == (0, False, 2)
    assert "already finished: 2 steps, with 2 CPU threads" in err


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
    result = result_of(run, "correlate", tiny_store.folder, "-o", tmp_path / "correlation")
    ctus = tiny_store.ctus()
    assert result["n"] == ctus.num_rows
    for name, column in (("qp", "qp"), ("depth", "depth_mean")):
        expected = np.corrcoef(ctus[column], ctus["mse_y"])[0, 1]
        assert result["pearson"][name] == pytest.approx(expected, abs=1e-9)


def test_evaluate_codes_videos(run, weights, yuv, tmp_path):
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
        ("filter -i none.266 -o {tmp}/o.yuv", 1, "none.266 does not exist"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --qp-offsets 5", 1, "--qp-offsets needs --original"),
        ("decode none.266", 1, "none.266 does not exist"),
        ("filter --model {weights} -i {yuv} -q 22 -o {yuv}", 1, "the same file"),
        ("filter --model {weights} -i {yuv} -o {tmp}/o.yuv", 1, "give -q QP"),
        ("dataset build none.yaml -o {tmp}/o.yuv", 1, "none.yaml does not exist"),
        ("dataset build none.yaml", 2, "output"),
        ("dataset verify {tmp}", 1, "not a store"),
        ("train {yuv} -o {tmp}/o.yuv", 1, "not"),
        ("evaluate {yuv} --model {weights} -q 70 -o {tmp}/o.yuv", 1, "QP 70 is out of range"),
        ("evaluate {yuv} --model {weights} --codec vp9 -o {tmp}/o.yuv", 1, "'vp9'"),
        ("correlate none.csv -o {tmp}/o.yuv", 1, "none.csv does not exist"),
        ("complexity rdn blocks=0", 1, "blocks"),
        ("complexity resnet", 1, "unknown network"),
        ("models --fast", 2, "--fast"),
        ("fly", 2, "no such command 'fly'; run codecnn --help"),
        ("flter -i a.yuv", 2, "Did you mean 'filter'?"),
        ("filter -i {yuv}", 2, "missing option '-o' / '--output'; example: codecnn filter -i video.mp4"),
        ("filter -i {yuv} -m low_cost_5 -o {tmp}/o.yuv", 1, "does not hold its slice QPs"),
        ("filter -i {yuv} -q 30 -o {tmp}/o.yuv --encode libx264", 1, "is for videos in .mkv and .mp4"),
        ("nnpf write {root}/tests/data/vvc/tiny64x64_ai_qp32.266 -m {weights} -o {tmp}/o.265", 1, "in .266"),
        ("nnpf read {yuv}", 1, "is a file of pictures, not a coded stream"),
        ("evaluate", 2, "missing argument 'SEQ...'; example: codecnn evaluate clip"),
        ("evaluate {yuv} -m {weights} --decisions all -o {tmp}/o.yuv", 2, "'all' is not one of 'none', 'ctu', 'full'"),
        ("complexity", 2, "give the name of a network, or --all; example"),
        ("filter -m {weights} -i {tmp}/silent.yuv -q 22 -o {tmp}/o.yuv", 1, "give it as -s WxH, e.g. -s 416x240"),
        ("filter -m low_cost_18 -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "come with codecnn: did you mean 'low_cost_17'?"),
        ("filter -m low_cost17 -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "come with codecnn: did you mean 'low_cost_17'?"),
        ("filter -m {tmp}/x.onnx -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "codecnn does not read as weights: name a .safet"),
        ("evaluate {tmp}/nostore -m low_cost_5 -o {tmp}/e", 1, "nostore does not exist: name a store, a video, a"),
        ("filter -m {tmp}/w.pt -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "convert a checkpoint first"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.avi", 1, "are written as .mkv or .mp4"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o", 1, "are written as .mkv or .mp4"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.png", 1, "`ffmpeg -i o.y4m o.png` then makes the picture"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --device cuda:9", 1, "`codecnn doctor` says why"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --memory 2", 1, "a size such as 2GiB"),
        ("filter -m {weights} -i {tmp} -q 22 -o {tmp}/o.yuv", 1, "without still pictures (.bmp, .jpeg"),
        ("partition {yuv} -o {tmp}/o.csv", 1, "is a file of pictures, not a coded stream"),
        ("partition {root}/tests/data/vvc/tiny64x64_ai_qp32.266 -o {tmp}/o.txt", 1, "does not end in .parquet or"),
        ("view {yuv} -o {tmp}/o.html", 1, "is a file of pictures, not a coded stream"),
        ("info {tmp}", 1, "without still pictures"),
        ("train {root}/configs/demo.yaml store={tmp}/s -o {tmp}/r", 1, "codecnn dataset build RECIPE -o"),
        ("train {root}/configs/demo.yaml training.step=5 -o {tmp}/r", 1, "'training.step': did you mean 'steps'?"),
        ("dataset build {root}/datasets/demo.yaml qps=32 -o {tmp}/s", 1, "'qps': did you mean 'qp'?"),
        ("dataset build {root}/datasets/demo.yaml -o {tmp}/s --shard 5/3", 1, "not one of 1/3 to 3/3"),
        ("evaluate {yuv} -m {weights} --metrics vmaff -o {tmp}/e", 1, "one of psnr, ssim, ms-ssim, xpsnr, vmaf"),
        ("labels -i {yuv} -o {tmp}/o.txt", 1, "end its name in .parquet"),
        ("labels -i {yuv} -o {tmp}/o.parquet --block-sizes 7", 1, "does not predict blocks of 7x7"),
        ("complexity rdn block=3", 1, "network 'rdn' has no option 'block': did you mean 'blocks'?"),
        ("export -m {weights} -o {tmp}/o.pt", 1, "a file that ends in .onnx"),
        ("compare {weights} w.pt", 1, "w.pt"),
        ("filter -m low_cost_5 -i {yuv} -q 99 -o {tmp}/o.yuv", 1, "QP 99 is out of range: 0 to 63"),
        ("filter -m modes_8 -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "not a filter: load_mode_network or `codecnn modes pre"),
        ("modes predict -i {yuv} -o {tmp}/o.parquet --model low_cost_5", 1, "load_model or `codecnn filter` takes it"),
        (
            "filter -m rdn -i {yuv} -q 22 -o {tmp}/o.yuv",
            1,
            "no weights of the network rdn come with codecnn: train it first",
        ),
        ("filter -m {tmp}/bare.safetensors -i {yuv} -q 22 -o {tmp}/o.yuv", 1, "weights go with the card"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --device gpu", 1, "none of auto, cpu, cuda and cuda:N"),
        ("filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --plane unfy={yuv}", 1, "takes no plane 'unfy'"),
        (
            "filter -m low_cost_17.vvc_unf -i {yuv} -q 22 -o {tmp}/o.yuv --plane unfy={yuv}",
            1,
            "takes no plane 'unfy' besides the decoded picture: it takes unf_y",
        ),
        (
            "filter -m {weights} -i {yuv} -q 22 -o {tmp}/o.yuv --original {yuv} --decisions d.csv",
            1,
            "d.csv is written as block statistics: end its name in .vtmbmsstats",
        ),
        (
            "dataset build {root}/configs/demo.yaml -o {tmp}/s",
            1,
            "not a recipe: use it with `codecnn train`",
        ),
        (
            "train {root}/datasets/demo.yaml -o {tmp}/r",
            1,
            "use it with `codecnn dataset build`",
        ),
        ("dataset build {tmp}/typo.yaml -o {tmp}/s", 1, "unknown key 'sequnces': did you mean 'sequences'?"),
        ("dataset build {tmp}/bad.yaml -o {tmp}/s", 1, "not valid YAML: mapping values are not allowed here at line 2"),
        (
            "dataset build {root}/datasets/div2k.yaml root={tmp} -o {tmp}/s",
            1,
            "root=FOLDER sets the folder of",
        ),
        ("dataset stats {yuv}", 1, "is a file, not the folder of a store"),
        (
            "dataset build {root}/datasets/demo.yaml -o {yuv}",
            1,
            "is a file, but a folder is needed there",
        ),
        ("complexity rdn block=3", 1, "did you mean 'blocks'?"),
        ("export -m {weights} -o {tmp}/o.safetensors", 1, "ends in .onnx: use --format int8 or int16"),
        ("view {root}/tests/data/vvc/tiny64x64_ai_qp32.266 -o {tmp}/v.pdf", 1, "end its name in .html"),
    ],
)
def test_each_error_is_one_sentence(run, weights, yuv, tmp_path, command, status, sentence):
    before = yuv.read_bytes()
    (tmp_path / "silent.yuv").write_bytes(before)
    (tmp_path / "w.pt").write_bytes(b"PK")
    (tmp_path / "x.onnx").write_bytes(b"onnx")
    (tmp_path / "typo.yaml").write_text("name: x\nqp: [32]\nsequnces:\n  - {source: a.png, split: train}\n")
    (tmp_path / "bad.yaml").write_text("name: x\n  qp: [22\n")
    shutil.copy(weights, tmp_path / "bare.safetensors")
    names = {"yuv": yuv, "weights": weights, "tmp": tmp_path, "root": ROOT}
    code, text, err = run(*[part.format(**names) for part in command.split()])
    assert code == status
    assert sentence in err.replace("\n", " ")
    assert "Traceback" not in err + text
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("codecnn: " if status == 1 else "codecnn")
    assert not (tmp_path / "o.yuv").exists()
    assert not list(tmp_path.glob("*.part*"))
    assert yuv.read_bytes() == before


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("evaluate {store} {yuv}", "is a store, which must be evaluated alone"),
        ("evaluate {store} --preset fast", "is a store, which is already coded"),
    ],
)
def test_store_is_not_coded_again(run, weights, yuv, tiny_store, tmp_path, argv, sentence):
    words = argv.format(store=tiny_store.folder, yuv=yuv).split()
    status, _, err = run(*words, "-m", weights, "-o", tmp_path / "e")
    assert (status, len(err.splitlines())) == (1, 1)
    assert sentence in err
    assert not (tmp_path / "e").exists()


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


def test_debug_raises_the_error(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["codecnn", "--debug", "info", "none.yuv"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_interrupt_exits_with_130(tiny_recipe, tmp_path):
    argv = [sys.executable, "-m", "codecnn", "dataset", "build", str(tiny_recipe), "codec=hevc", "qp=[10,11,12,13]"]
    argv += ["-o", "s"]
    process = subprocess.Popen(argv, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("s/coded/*")) and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == b"codecnn: interrupted: run the same command again to continue"
    assert b"Traceback" not in err


def test_device_file_is_not_replaced(run, weights, yuv):
    assert run("filter", "--model", weights, "-i", yuv, "-q", "37", "-o", "/dev/null")[0] == 0
    assert not Path("/dev/null").is_file()
