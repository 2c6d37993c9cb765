"""Smoke tests of the maintainers' scripts: each shows its help, and those that can do so work in small sizes."""

import argparse
import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from codecnn.analysis import correlate
from codecnn.pictures.files import Picture, VideoFormat, create_video
from tests.helpers.correlation_tables import make_table
from tests.helpers.documentation import ROOT
from tools import conformance, exactness, figures, gpu, readme_figure, wheel
from tools.bench import _report
from tools.research import ablation, notebook_correlation

SCRIPTS = [path for path in sorted((ROOT / "tools").rglob("*.py")) if "__main__" in path.read_text()]


def run_script(monkeypatch, *argv):
    """Run a script in this process; return its exit status."""
    monkeypatch.setattr(sys, "argv", list(map(str, argv)))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(argv[0]), run_name="__main__")
    return stop.value.code


@pytest.mark.parametrize("script", [p for p in SCRIPTS if "argparse" in p.read_text()], ids=lambda path: path.stem)
def test_help(script, monkeypatch, capsys):
    status = run_script(monkeypatch, script, "--help")
    assert (capsys.readouterr().out or status).startswith("usage:")


@pytest.mark.parametrize("words", [words for job in _report.JOBS for words in (job.words, job.quick)])
def test_listed_benchmark_accepts_its_options(words, monkeypatch):
    class ParsedError(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser, argv):
        parse(parser, argv)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    name, *argv = words.split()
    with pytest.raises(ParsedError):
        importlib.import_module(f"tools.bench.{name}").main(argv)


@pytest.mark.slow
@pytest.mark.parametrize("job", _report.JOBS, ids=lambda job: job.name)
def test_listed_benchmark_runs_in_quick_sizes(job):
    if job.name == "reads":
        for package in ("h5py", "zarr"):
            pytest.importorskip(package, reason=f"needs {package}: pip install 'codecnn[benchmark]'")
    result = _report.measure(job.quick)
    assert result["status"] == 0
    assert result["rows"]


def test_a_benchmark_returns_rows_and_a_failure_is_listed(capsys):
    rows = importlib.import_module("tools.bench.sequence").main(["--frames", "25", "--size", "32x32", "--threads", "1"])
    assert [entry["unit"] for entry in rows] == ["s", "MiB"]
    assert _report.measure("no-such") == {"status": 1, "rows": []}


def test_exactness_of_a_small_picture(tmp_path, capfd):
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    argv = [str(tmp_path / "a.png"), "-o", str(tmp_path / "lines.jsonl"), "--network", "zoo/low_cost_5.vvc.int8"]
    assert exactness.main([*argv, "--gmacs", "0.001"]) == 0
    assert json.loads(capfd.readouterr().out)["differing"] == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # compiling warns
def test_all_parts_of_the_gpu_script_on_the_cpu(tmp_path):
    assert gpu.main(["-o", str(tmp_path / "gpu.json"), "--device", "cpu"]) == 0
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert list(parts) == [name for name, _, _ in gpu.PARTS]
    assert {name for name, part in parts.items() if part["status"] != "done"} == {"tests"}
    assert len(parts["steps"]["rows"]) == 3
    assert all(row["ours"] > 0 for name in ("steps", "filtering") for row in parts[name]["rows"])
    assert len(parts["two processes"]["together_steps_per_second"]) == 2
    assert parts["training"]["steps"] == 4


def test_parts_of_the_gpu_script_that_fail_or_come_too_late_say_why(tmp_path, monkeypatch, capsys):
    def fail(session):
        raise ValueError("no such kernel")

    parts = (("bad", 0, fail), ("tests", 0, gpu.run_gpu_tests), ("late", float("inf"), fail), ("good", 0, lambda _: {}))
    monkeypatch.setattr(gpu, "PARTS", parts)
    assert gpu.main(["-o", str(tmp_path / "gpu.json"), "--device", "cpu"]) == 1
    parts_run = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert [part["status"] for part in parts_run.values()] == ["failed", "not run", "not run", "done"]
    assert parts_run["bad"]["why"] == "ValueError: no such kernel"
    assert "need a GPU" in parts_run["tests"]["why"]
    assert "s are left" in parts_run["late"]["why"]
    assert "- bad: failed, 0.0 s; ValueError: no such kernel" in capsys.readouterr().out


def test_ablation_writes_the_table(tiny_store, tmp_path, capsys):
    (tmp_path / "table.yaml").write_text(
        "claims: {A: '+0.15'}\nvariants: {A: {network: rdn, options: {features: 4, blocks: 1, layers: 1, growth: 4}}}"
    )
    argv = [str(tmp_path / "table.yaml"), "--store", str(tiny_store.folder), "--split", "val", "-o", str(tmp_path)]
    training = ["steps=1", "batch=2", "patch=48", "warmup=0", "validate_every=1", "threads=1", "device=cpu"]
    ablation.main([*argv, *training])
    assert (tmp_path / "table.md").read_text() in capsys.readouterr().out


def test_closed_loop_codes_a_clip(tmp_path, monkeypatch, capsys):
    y, x = np.mgrid[:64, :68]
    plane, grey = (128 + 50 * np.sin(x / 3) * np.cos(y / 4)).astype(np.uint8), np.full((32, 32), 128, np.uint8)
    with create_video(tmp_path / "moving_64x64_30.yuv", VideoFormat(64, 64, "420", 8, 30)) as out:
        for i in range(2):
            out.write(Picture((plane[:, 2 * i : 64 + 2 * i].copy(), grey, grey), 8))
    argv = (tmp_path / "moving_64x64_30.yuv", "-m", "low_cost_5", "-q", "37", "--preset", "faster", "-o", tmp_path)
    assert run_script(monkeypatch, ROOT / "tools/research/closed_loop.py", *argv) == 0
    assert "it needs 4 QPs, not 1" in capsys.readouterr().out


def test_correlation_beside_that_of_the_notebook():
    text = notebook_correlation.compare(correlate(make_table(), resamples=0))
    for figure in ("0.5476", "0.1886", "0.5369", "0.4024", "0.5617", "0.6722", "0.2817", "0.8561", "0.6748", "0.3290"):
        assert f"| {figure} |" in text


def test_figure_of_the_readme(tmp_path):
    original = np.random.default_rng(1).integers(300, 700, (512, 512)).astype(np.uint16)
    before, after = readme_figure.draw(
        original, original + np.uint16(60), original + np.uint16(10), tmp_path / "figure.png"
    )
    assert after - before == pytest.approx(20 * np.log10(6))
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("stated", "measured", "difference", "differs"),
    [
        ("-3.73", -3.7302, -0.0002, False),
        ("-3.73", -3.736, -0.006, True),
        ("70,997", 70998, 1, True),
        ("0.08 to 0.09", 0.082, 0, False),
        ("-1.6 to -1.7", -1.76, -0.06, True),
    ],
)
def test_a_figure_differs_by_more_than_its_rounding(stated, measured, difference, differs):
    figure = figures.Figure("gain", stated, measured)
    assert figure.difference == pytest.approx(difference)
    assert figure.differs is differs


def test_pages_state_what_the_cards_of_the_weights_record():
    recorded = figures.recorded_tests()
    compared = [figure for table in figures.GROUPS["weights"][1] for figure in table.figures(recorded)]
    assert [figure for figure in compared if figure.differs] == []
    assert sum("README.md" in figure.name for figure in compared) > 20
    assert sum("weights.md" in figure.name for figure in compared) > 90


@pytest.mark.parametrize("group", figures.GROUPS)
def test_every_sentence_with_a_figure_is_in_its_page(group):
    for place in figures.GROUPS[group][1]:
        if isinstance(place, figures.Sentence):
            quantities = {quantity: [0.0] for _, quantity in place.names}
            measured = {subject: quantities for subject, _ in place.names}
            assert len(list(place.figures(measured))) == len(place.names)


def test_an_interrupted_comparison_continues(tmp_path, monkeypatch):
    monkeypatch.setitem(figures.GROUPS, "demo", (lambda folder: {"demo": {"dB": [float(folder.is_dir())]}}, ()))
    assert figures.measured_once("demo", tmp_path) == {"demo": {"dB": [1.0]}}
    monkeypatch.setitem(figures.GROUPS, "demo", (lambda folder: pytest.fail("measured again"), ()))
    assert figures.measured_once("demo", tmp_path) == {"demo": {"dB": [1.0]}}


@pytest.mark.parametrize(("numbers", "accepted"), [(range(1, 5), True), (range(0, 7, 2), True), ((1, 3, 4), False)])
def test_tasks_of_a_slurm_array_do_all_shards(tmp_path, numbers, accepted):
    program = tmp_path / "codecnn"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    step = numbers[1] - numbers[0] if accepted else 1
    array = {"MIN": min(numbers), "MAX": max(numbers), "COUNT": len(numbers), "STEP": step}
    for shard, number in enumerate(numbers, 1):
        variables = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in (array | {"ID": number}).items()}
        environment = os.environ | variables | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = ["bash", ROOT / "tools/slurm/array.sbatch", "evaluate", "store"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if accepted else 2)
        assert not accepted or done.stdout.strip() == f"evaluate store --shard {shard}/{len(numbers)}"


CONTAINED = ["codecnn/__init__.py", "codecnn/_bundled/datasets/demo.yaml", "codecnn-1.dist-info/licenses/LICENSE"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (CONTAINED, None),
        (CONTAINED[1:], "lacks codecnn/__init__"),
        (CONTAINED[:-1], "lacks the licence"),
        ([*CONTAINED, "tests/conftest.py"], "conftest"),
    ],
)
def test_wheel_lacks_no_file_and_contains_no_other(names, message, tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "tracked_files", lambda: ["README.md", "codecnn/__init__.py", "datasets/demo.yaml"])
    path = tmp_path / "codecnn-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    if message is None:
        wheel.check_wheel(path)
    else:
        with pytest.raises(SystemExit, match=message):
            wheel.check_wheel(path)


def test_conformance_prints_a_row_for_each_stream(golden_file, tmp_path, capsys):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    expected = stream.with_suffix(".md5").read_text().split()[0]
    shutil.copy(stream, tmp_path / "a.266")
    (tmp_path / "md5.txt").write_text(f"{expected}  a.266\n{'0' * 32}  b.266\n")
    assert conformance.main([str(tmp_path)]) == 0
    shutil.copy(stream, tmp_path / "b.266")
    (tmp_path / "c.266").write_bytes(b"no stream")
    assert conformance.main([str(tmp_path)]) == 1
    first, second = capsys.readouterr().out.split("| stream |")[1:]
    assert first.endswith("| a.266 | 17 | 17 | 0 | equal |\n\nStreams: 1 equal\n")
    assert "| c.266 | - | - | - | error: " in second
    rows = "| a.266 | 17 | 17 | 0 | equal |\n| b.266 | 17 | 17 | 0 | differs |\n"
    assert second.endswith(f" |\n{rows}\nStreams: 1 differs, 1 equal, 1 error\n")
    # A table that was interrupted in a row is continued; its other rows are kept.
    table = tmp_path / "table.md"
    table.write_text(conformance.HEAD + rows.replace("17", "16") + "| c.266 | - |")
    assert conformance.main([str(tmp_path), "-o", str(table)]) == 1
    lines = table.read_text().splitlines(keepends=True)
    assert "".join(lines[2:4]) == rows.replace("17", "16")
    assert lines[4].startswith("| c.266 | - | - | - | error: ")
    assert len(lines) == 5
