"""Benchmarks: agreement of all ways of inference, rows, the page, failures, and reuse of earlier results."""

import argparse
import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from codecnn.dataset import CtuPatches, PatchReader
from codecnn.filtering import in_tiles
from codecnn.models import as_card, create_model, list_models
from tools.bench import _report, inference, reads
from tools.bench._common import peak_mib, randomised_model, row, run_in_onnxruntime, run_in_openvino

SETUP = {
    "machine": {"cpu": "A CPU", "cores": 2, "memory_gib": 8, "system": "Linux"},
    "versions": {"codecnn": "1", "openvino": "not here"},
    "code": "abc",
}


def make_result(**changes):
    result = {"name": "reads", "words": "reads -x", "status": 0, "rows": [], "date": "2026-01-02", "load": 0.5}
    return result | SETUP | changes


def output_of(code):
    """Run Python code in a new process, and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_ratio_is_the_median_of_the_turns():
    entry = row("time", "s", [1.0, 4.0, 3.0], "peer", [2.0, 2.0, 3.0])
    assert (entry["ours"], entry["theirs"]) == (3, 2)
    assert (entry["ratio"], entry["least"], entry["most"], entry["turns"]) == (1, 0.5, 2, 3)
    assert row("time", "s", [1.0, 3.0, 9.0], "peer", [6.0])["ratio"] == 0.5
    assert "ratio" not in row("time", "s", [1.0])


def test_memory_peak_excludes_the_parent_process():
    code = "from tools.bench._common import peak_mib; print(peak_mib()); b = bytearray(256 << 20); print(peak_mib())"
    held = np.ones(1200 << 17)  # 1200 MiB, which getrusage would count for the process that is started here
    assert peak_mib() > held.nbytes / 2**20
    before, after = map(float, output_of(code).split())
    assert before < 1000
    assert 240 < after - before < 260


@pytest.mark.parametrize("name", list_models())
def test_eager_rdn_equals_the_network(name):
    model = randomised_model(name)
    assert inference.is_eager_rdn(model) == (name in ("rdn", "rdn_32_3_6_16", "rdn_32_4_6_24"))
    if inference.is_eager_rdn(model):
        planes = {"rec_y": torch.rand(1, 1, 20, 28), "qp": torch.full((1, 1, 1, 1), 0.5)}
        with torch.inference_mode():
            expected = model(planes)
            assert (expected - planes["rec_y"][:, :, 2:-2, 2:-2]).abs().max() > 1e-3
            torch.testing.assert_close(inference.EagerRDN(model)(planes), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": 2},
        {"conditioning": "film"},
        {"global_residual": False},
        {"local_residual": False},
        {"output": "picture"},
        {"head": "5x5"},
        {"planes": ("rec_y",)},
    ],
)
def test_other_rdns_run_as_their_own_module(options):
    assert not inference.is_eager_rdn(create_model("rdn", **options))


@pytest.mark.parametrize("name", ["low_cost_5", "rdn_yuv"])
@pytest.mark.parametrize("way", ["onnxruntime", "openvino"])
def test_peer_computes_the_same_picture(way, name, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip(way)
    from codecnn.models import export_onnx

    model = randomised_model(name)
    export_onnx(tmp_path / "m.onnx", model)
    run = {"onnxruntime": run_in_onnxruntime, "openvino": run_in_openvino}[way](tmp_path / "m.onnx", 1)
    planes = inference.picture_planes(model, 50, 34)
    with torch.inference_mode():
        actual = in_tiles(run, model, planes, tile=None)
        expected = in_tiles(model, model, planes, tile=None)
    assert set(actual) == set(model.outputs)
    for output, plane in expected.items():
        assert (plane - planes[f"rec_{output}"]).abs().max() > 1e-3
        torch.testing.assert_close(actual[output], plane, rtol=0, atol=1e-5)


def test_inference_compares_all_installed_ways(capsys, monkeypatch):
    monkeypatch.setattr(inference, "find_spec", lambda name: None if name == "onnxruntime" else True)
    rows = inference.main(["--network", "low_cost_5", "--size", "64x48", "--runs", "1", "--threads", "1"])
    output = capsys.readouterr().out
    assert "eager " in output
    assert "openvino    onnxruntime not here: pip install 'codecnn[benchmark]'" in output
    assert [entry["peer"] for entry in rows] == ["PyTorch, the plain module", "ONNX Runtime", "OpenVINO"] * 3
    assert [("ratio" in entry, bool(entry["note"])) for entry in rows] == [
        (True, False),
        (False, True),
        (False, True),
    ] * 3
    assert all(entry["ours"] > 0 for entry in rows)


@pytest.mark.parametrize("change", [2e-4, np.nan])
def test_different_output_is_an_error(change, tmp_path):
    plane = np.zeros((1, 1, 4, 4))
    np.savez(tmp_path / "codecnn.npz", y=plane)
    np.savez(tmp_path / "eager.npz", y=plane + 0.5e-4)
    inference.check_output("eager", tmp_path)
    plane[0, 0, 1, 1] = change
    np.savez(tmp_path / "eager.npz", y=plane)
    with pytest.raises(SystemExit, match="the outputs of eager and codecnn differ by"):
        inference.check_output("eager", tmp_path)


def test_array_reader_returns_the_samples_of_codecnn(tmp_path):
    """The reader of h5py and zarr, on NumPy arrays: inside a picture and at its edges."""
    units = reads.make_units(tmp_path, pictures=1, bit_depth=8)
    reader = PatchReader(units, reads.SIZE, reads.HALO)
    arrays = {(kind, 0): reader.files.plane(kind, 0, 0, 0)[None] for kind in ("decoded", "original")}
    patches = CtuPatches(units, reads.SIZE, reads.HALO).patches
    chosen = [patches[index] for index in (0, 20, 14, -1)]
    expected = reads._codecnn_reader(reader)(chosen)
    actual = reads._array_reader(arrays, reader.dtype)(chosen)
    for mapped, array in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(array, mapped)


def test_page_contains_every_result():
    rows = [
        row("reading", "pairs/s", [30_000.0, 20_000.0], "h5py", [5_000.0, 5_000.0]),
        row("time", "s", [0.0123], "OpenVINO", (), "openvino not here"),
        row("memory", "MiB", [512.0]),
    ]
    cards = {
        "small": {"kmac_per_pixel": 4.21, "test": {"gain_db": {"y": {"mean": 0.0512}}, "bd_rate": {"y": -1.234}}},
        "new": {"kmac_per_pixel": 16.0},
    }
    cards = {name: as_card(card) for name, card in cards.items()}
    results = [make_result(rows=rows), make_result(name="build", words="build", status=3, load=2.0)]
    text = _report.format_page(results, cards, quick=False)
    assert "`python tools/benchmark.py reads -x`\n\n| what | codecnn | peer | ratio |" in text
    assert "| reading | 25,000 pairs/s | 5,000 pairs/s, h5py | 5 (4 to 6) |\n" in text
    assert "| time | 0.0123 s | OpenVINO: openvino not here | – |\n" in text
    assert "| memory | 512 MiB | – | – |\n" in text
    assert "`python tools/benchmark.py build`\n\n**Failed with status 3.**" in text
    assert "A CPU, 2 cores, 8 GiB, Linux; 2026-01-02; load before the run 0.50 to 2.00." in text
    assert "codecnn 1, openvino not here; code abc." in text
    assert "| `small` | 4.2 | +0.0512 | -1.23 | `codecnn/models/shipped/small.json` |" in text
    assert "| `new` | 16.0 | – | – | no test on its card |" in text
    assert "-4.77 AI" in text
    assert "--quick" not in text
    assert "--quick" in _report.format_page([make_result()], {}, quick=True)


@pytest.fixture
def measured(monkeypatch):
    """Replace the list by two benchmarks, of which the second fails; returns the arguments of those that ran."""
    calls = []

    def measure(words):
        calls.append(words)
        return {"status": int(words == "bad"), "rows": [] if words == "bad" else [row(words, "s", [1.0])]}

    monkeypatch.setattr(_report, "JOBS", (_report.Job("first", "good", "quick"), _report.Job("second", "bad", "bad")))
    monkeypatch.setattr(_report, "measure", measure)
    monkeypatch.setattr(_report, "machine", lambda: SETUP["machine"])
    return calls


def test_failures_are_listed_and_matching_results_are_reused(measured, tmp_path, monkeypatch):
    output = tmp_path / "b.md"

    def run(*words):
        measured.clear()
        with pytest.raises(SystemExit, match="1 of 2 benchmarks failed: second"):
            _report.main(["-o", str(output), "--keep", *words])
        return list(measured)

    assert run() == ["good", "bad"]
    page = output.read_text()
    assert "`python tools/benchmark.py bad`\n\n**Failed with status 1.**" in page
    assert "| good | 1 s |" in page
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    assert [result["status"] for result in results] == [0, 1]
    assert run() == ["bad"]
    assert "| good | 1 s |" in output.read_text()
    assert run("--quick") == ["quick", "bad"]  # another command
    assert run("--quick") == ["bad"]
    monkeypatch.setattr(_report, "code_digest", lambda: "changed")
    assert run("--quick") == ["quick", "bad"]


def test_benchmark_runs_in_its_own_process(capfd):
    result = _report.measure("sequence --frames 25 --size 32x32 --threads 1")
    assert result["status"] == 0
    assert [entry["unit"] for entry in result["rows"]] == ["s", "MiB"]
    assert _report.measure("no-such") == {"status": 1, "rows": []}
    assert "usage: python tools/benchmark.py {all,build," in capfd.readouterr().err


def test_stages_of_a_clip_add_up(capfd):
    """No stage is missing, and little time is spent outside of them."""
    result = _report.measure("clip --frames 2 --size 64x48 --turns 1 --threads 1")
    assert result["status"] == 0
    capfd.readouterr()
    for form in ("float32", "bfloat16"):
        times = {
            entry["what"].rsplit(": ")[1].partition(",")[0]: entry["ours"]
            for entry in result["rows"]
            if f"in {form}" in entry["what"]
        }
        assert set(times) == {"all", "decoding", "reading", "the network", "decisions", "writing"}
        total = times.pop("all")
        assert min(times.values()) > 0
        assert max(times.values()) <= total
        # Decisions and writing run while the next picture is filtered.
        assert 0.5 * total < sum(times.values()) <= 2 * total


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
        pytest.importorskip("h5py")
        pytest.importorskip("zarr")
    result = _report.measure(job.quick)
    assert result["status"] == 0
    assert result["rows"]


def test_modes_are_timed_against_the_full_search(capsys):
    from tools.bench import modes

    rows = modes.main(["modes_8", "--size", "64x48", "--rounds", "1", "--exact"])
    assert [entry["peer"] for entry in rows] == ["the full search"] * 3
    assert all(entry["ours"] > 0 and entry["ratio"] > 0 for entry in rows)
    assert "the integer network" in capsys.readouterr().out


def test_a_size_of_another_form_is_a_usage_error(capsys):
    from tools.bench import modes

    with pytest.raises(SystemExit) as stop:
        modes.main(["--size", "64by48"])
    assert stop.value.code == 2
    assert "size '64by48' is not of the form WxH" in capsys.readouterr().err


def test_versions_of_all_packages():
    assert len({job.name for job in _report.JOBS}) == len(_report.JOBS)
    result = _report.versions("torch no-such-package")
    assert set(result) == {"codecnn", "Python", "torch", "no-such-package", "ffmpeg"}
    # The metadata of a build for CUDA does not name it.
    assert result["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert result["no-such-package"] == "not here"


def test_cores_are_those_that_the_process_may_use():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from tools.bench import _report; "
    machine = ast.literal_eval(output_of(f"{code} print(_report.machine())"))
    assert machine["cores"] == 1
    assert machine == _report.machine() | {"cores": 1}
    meminfo = int(re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[1])
    assert machine["memory_gib"] == pytest.approx(meminfo / 2**20, abs=1)


def test_decoders_are_timed_on_the_same_stream(golden_file, capsys):
    from tools.bench import decode

    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    (entry,) = decode.main([str(stream), "--turns", "1"])
    assert "17 pictures" in entry["what"]
    assert entry["ours"] > 0 < entry["theirs"]
    assert "ratio" in capsys.readouterr().out
