"""Benchmarks: every way of inference gives one picture; the list, its table, what fails and what is kept."""

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

from codecnn.models import as_card, create_model, list_models
from tools.bench import _all, _table, inference
from tools.bench._peers import in_onnxruntime, in_openvino
from tools.bench._rows import peak_mib, row

PLACE = {
    "machine": {"cpu": "A CPU", "cores": 2, "memory_gib": 8, "system": "Linux"},
    "versions": {"codecnn": "1", "openvino": "not here"},
    "code": "abc",
}


def result(**changes):
    made = {"name": "reads", "words": "reads -x", "status": 0, "rows": [], "date": "2026-01-02", "load": 0.5}
    return made | PLACE | changes


def printed(code):
    """What Python prints in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_a_ratio_is_that_of_turns():
    made = row("time", "s", [1.0, 4.0, 3.0], "peer", [2.0, 2.0, 3.0])
    assert (made["ours"], made["theirs"]) == (3, 2)
    assert (made["ratio"], made["least"], made["most"], made["turns"]) == (1, 0.5, 2, 3)
    assert row("time", "s", [1.0, 3.0, 9.0], "peer", [6.0])["ratio"] == 0.5
    assert "ratio" not in row("time", "s", [1.0])


def test_the_peak_of_memory_is_the_process_own():
    code = "from tools.bench._rows import peak_mib; print(peak_mib()); b = bytearray(64 << 20); print(peak_mib())"
    held = np.ones(300 << 17)  # 300 MiB, that getrusage would tell of the process started here
    assert peak_mib() > held.nbytes / 2**20
    before, after = map(float, printed(code).split())
    assert before < 150
    assert 60 < after - before < 80


@pytest.mark.parametrize("name", list_models())
def test_the_eager_rdn_is_the_network_wherever_it_is_taken(name):
    model = inference.awake(name)
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
def test_other_rdns_are_taken_as_they_stand(options):
    assert not inference.is_eager_rdn(create_model("rdn", **options))


@pytest.mark.parametrize("name", ["low_cost_5", "rdn_yuv"])
@pytest.mark.parametrize("way", ["onnxruntime", "openvino"])
def test_a_peer_gives_the_networks_picture(way, name, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip(way)
    from codecnn.models import export_onnx

    model = inference.awake(name)
    export_onnx(tmp_path / "m.onnx", model)
    run = {"onnxruntime": in_onnxruntime, "openvino": in_openvino}[way](tmp_path / "m.onnx", 1)
    planes = inference.picture(model, 50, 34)
    with torch.inference_mode():
        found = inference.in_tiles(run, model, planes, tile=None)
        expected = inference.in_tiles(model, model, planes, tile=None)
    assert set(found) == set(model.outputs)
    for output, plane in expected.items():
        assert (plane - planes[f"rec_{output}"]).abs().max() > 1e-3
        torch.testing.assert_close(found[output], plane, rtol=0, atol=1e-5)


def test_all_ways_in_turn_at_a_tiny_size(capsys, monkeypatch):
    monkeypatch.setattr(inference, "find_spec", lambda name: None if name == "onnxruntime" else True)
    rows = inference.main(["--network", "low_cost_5", "--size", "64x48", "--runs", "1", "--threads", "1"])
    printed = capsys.readouterr().out
    assert "eager " in printed
    assert "openvino    onnxruntime not here: pip install 'codecnn[benchmark]'" in printed
    assert [one["peer"] for one in rows] == ["PyTorch, the plain module", "ONNX Runtime", "OpenVINO"] * 3
    assert [("ratio" in one, bool(one["note"])) for one in rows] == [(True, False), (False, True), (False, True)] * 3
    assert all(one["ours"] > 0 for one in rows)


@pytest.mark.parametrize("change", [2e-4, np.nan])
def test_another_picture_is_told(change, tmp_path):
    plane = np.zeros((1, 1, 4, 4))
    np.savez(tmp_path / "codecnn.npz", y=plane)
    np.savez(tmp_path / "eager.npz", y=plane + 0.5e-4)
    inference._compare("eager", tmp_path)
    plane[0, 0, 1, 1] = change
    np.savez(tmp_path / "eager.npz", y=plane)
    with pytest.raises(SystemExit, match="eager gives another picture than codecnn"):
        inference._compare("eager", tmp_path)


def test_the_table_has_a_row_for_all():
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
    text = _table.document(
        [result(rows=rows), result(name="build", words="build", status=3, load=2.0)], cards, quick=False
    )
    assert "`python tools/benchmark.py reads -x`\n\n| what | ours | peer | ratio |" in text
    assert "| reading | 25,000 pairs/s | 5,000 pairs/s, h5py | 5 (4 to 6) |\n" in text
    assert "| time | 0.0123 s | OpenVINO: openvino not here | – |\n" in text
    assert "| memory | 512 MiB | – | – |\n" in text
    assert "`python tools/benchmark.py build`\n\n**Failed with status 3.**" in text
    assert "A CPU, 2 cores, 8 GiB, Linux; 2026-01-02; load before the run 0.50 to 2.00." in text
    assert "codecnn 1, openvino not here; code abc." in text
    assert "| `small` | 4.2 | +0.0512 | -1.23 | `codecnn/zoo/small.json` |" in text
    assert "| `new` | 16.0 | – | – | no test on its card |" in text
    assert "-4.77 AI" in text
    assert "--quick" not in text
    assert "--quick" in _table.document([result()], {}, quick=True)


@pytest.fixture
def listed(monkeypatch):
    """A list of two benchmarks; what was measured, in order."""
    calls = []

    def measured(words):
        calls.append(words)
        return {"status": int(words == "bad"), "rows": [] if words == "bad" else [row(words, "s", [1.0])]}

    monkeypatch.setattr(_all, "JOBS", (_all.Job("one", "good", "quick"), _all.Job("two", "bad", "bad")))
    monkeypatch.setattr(_all, "measured", measured)
    monkeypatch.setattr(_all, "machine", lambda: PLACE["machine"])
    return calls


def test_a_failure_is_a_row_and_the_exit_status_and_what_is_kept_is_not_measured_again(listed, tmp_path, monkeypatch):
    output = tmp_path / "b.md"

    def run(*words):
        listed.clear()
        with pytest.raises(SystemExit, match="1 of 2 benchmarks failed: two"):
            _all.main(["-o", str(output), "--keep", *words])
        return list(listed)

    assert run() == ["good", "bad"]
    first = output.read_text()
    assert "`python tools/benchmark.py bad`\n\n**Failed with status 1.**" in first
    assert "| good | 1 s |" in first
    assert [one["status"] for one in json.loads(output.with_suffix(".json").read_text())["results"]] == [0, 1]
    assert run() == ["bad"]
    assert "| good | 1 s |" in output.read_text()
    assert run("--quick") == ["quick", "bad"]  # another command
    assert run("--quick") == ["bad"]
    monkeypatch.setattr(_all, "code", lambda: "changed")
    assert run("--quick") == ["quick", "bad"]


def test_a_benchmark_runs_in_a_process_of_its_own(tmp_path, capfd):
    good = _all.measured("sequence --frames 25 --size 32x32 --threads 1")
    assert good["status"] == 0
    assert [one["unit"] for one in good["rows"]] == ["s", "MiB"]
    assert _all.measured("no-such") == {"status": 1, "rows": []}
    assert "usage: python tools/benchmark.py {all,build," in capfd.readouterr().err


def test_the_parts_of_a_clip_are_all_of_it(capfd):
    """Of the way of its pictures: none is missing, and little is outside of them."""
    found = _all.measured("clip --frames 2 --size 64x48 --turns 1 --threads 1")
    assert found["status"] == 0
    capfd.readouterr()
    for form in ("float32", "bfloat16"):
        took = {
            one["what"].rsplit(": ")[1].partition(",")[0]: one["ours"]
            for one in found["rows"]
            if f"in {form}" in one["what"]
        }
        assert set(took) == {"all", "decoding", "reading", "the network", "decisions", "writing"}
        whole = took.pop("all")
        assert min(took.values()) > 0
        assert max(took.values()) <= whole
        # One picture is decided on and written beside the next one's network.
        assert 0.5 * whole < sum(took.values()) <= 2 * whole


@pytest.mark.parametrize("words", [words for job in _all.JOBS for words in (job.words, job.quick)])
def test_a_benchmark_of_the_list_takes_its_options(words, monkeypatch):
    class ParsedError(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parsed(parser, argv):
        parse(parser, argv)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    name, *argv = words.split()
    with pytest.raises(ParsedError):
        importlib.import_module(f"tools.bench.{name}").main(argv)


def test_what_a_result_is_made_with_is_found():
    assert len({job.name for job in _all.JOBS}) == len(_all.JOBS)
    found = _all.versions("torch no-such-package")
    assert set(found) == {"codecnn", "Python", "torch", "no-such-package", "ffmpeg"}
    # The metadata of a build for CUDA does not name it.
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["no-such-package"] == "not here"


def test_the_cores_are_those_that_the_process_may_use():
    """Asked of a process that may use one."""
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from tools.bench import _all; "
    machine = ast.literal_eval(printed(f"{code} print(_all.machine())"))
    assert machine["cores"] == 1
    assert machine == _all.machine() | {"cores": 1}
    meminfo = int(re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[1])
    assert machine["memory_gib"] == pytest.approx(meminfo / 2**20, abs=1)
