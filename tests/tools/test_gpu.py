"""Packs of `tools/gpu.py` hold a store that trains; chunks end in time, go on where they ended, and come back."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from codecnn.dataset import open_store
from tests.helpers.training import step_of, weights_of
from tools import gpu

SETTINGS = ["training.steps=6", "training.batch=2", "training.patch=32", "training.validate_every=3"]
SETTINGS += ["training.threads=1", "training.compile=false", "training.precision=float32"]


@pytest.fixture
def packed(tiny_store, tmp_path):
    """A pack of a store and of a run to train, without wheels."""
    train = ["tiny", "configs/zoo.yaml", "model.name=low_cost_5", *SETTINGS]
    folder = tmp_path / "pack"
    assert (
        gpu.main(["pack", "--store", str(tiny_store.folder), "--no-wheels", "--train", *train, "-o", str(folder)]) == 0
    )
    return folder


def call(packed, out, *words):
    folders = ["--pack", str(packed), "--work", f"{packed}-work", "--out", str(out)]
    return gpu.main(["run", *folders, "--device=cpu", *words])


def status(folder):
    return {name: state["status"] for name, state in json.loads((folder / "done.json").read_text()).items()}


def test_what_is_packed_is_the_store(packed, tiny_store, tmp_path):
    gpu.prepare(packed, tmp_path / "work")
    unpacked = open_store(tmp_path / "work/store")
    assert unpacked.manifest.units == len(tiny_store.units)
    assert unpacked.data_key == tiny_store.data_key  # of its units in whatever order
    assert {(unit.name, unit.qp, unit.split) for unit in unpacked.units} == {
        (unit.name, unit.qp, unit.split) for unit in tiny_store.units
    }
    theirs = {unit.key: unit for unit in tiny_store.units}
    for unit in unpacked.units:
        for file in ("original", "decoded", "block_planes"):
            assert unit.path(file).read_bytes() == theirs[unit.key].path(file).read_bytes()


def test_as_many_sequences_as_fit(tiny_store, tmp_path):
    """Of three whose two decoded files have 2 MiB each of noise of ten bits."""
    shutil.copytree(tiny_store.folder, tmp_path / "store")
    rng = np.random.default_rng(3)
    for path in (tmp_path / "store").glob("coded/*/decoded.yuv"):
        rng.integers(1024, size=2**20, dtype=np.uint16).tofile(path)
    for room, fit in ((5, None), (7, (2, 4))):
        target = tmp_path / f"{room}.tar.xz"
        if fit is None:
            with pytest.raises(SystemExit, match=r"5\.0 MiB hold no sequence to train and one to validate on"):
                gpu.pack_store(tmp_path / "store", target, room * 2**20)
        else:
            assert gpu.pack_store(tmp_path / "store", target, room * 2**20) == fit
            assert target.stat().st_size < room * 2**20


def job(name, code, **options):
    return gpu.Job(name, (sys.executable, "-c", code), **options)


def test_chunks_do_what_is_left_and_stop_in_time(packed, tmp_path, monkeypatch):
    """`slow` would take a chunk and a half, and gets a whole one of its own before it is given up."""
    made = tmp_path / "made"
    listed = [
        job("first", f"open({str(made)!r}, 'a').write('x')"),
        job("broken", "raise SystemExit('no')"),
        job("slow", "import time; time.sleep(60)"),
        job("last", "print('here')"),
    ]
    monkeypatch.setattr(gpu, "jobs", lambda options, work: listed)
    monkeypatch.setattr(gpu, "MARGIN", 2.0)
    monkeypatch.setattr(gpu, "prepare", lambda *folders: {})
    minutes = f"--minutes={6 / 60}"
    assert call(packed, tmp_path / "out", minutes) == 3
    assert status(tmp_path / "out") == {"first": "done", "broken": "failed", "slow": "goes on"}
    gpu.main(["take", str(tmp_path / "out"), "--pack", str(packed), "--runs", str(tmp_path / "runs")])
    assert call(packed, tmp_path / "again", minutes) == 3  # on another machine: what is done comes with the pack
    assert status(tmp_path / "again") == {"first": "done", "broken": "failed", "slow": "failed"}
    assert call(packed, tmp_path / "again", minutes) == 1
    assert status(tmp_path / "again")["last"] == "done"
    assert made.read_text() == "x"
    assert "no" in json.loads((tmp_path / "again/done.json").read_text())["broken"]["output"]


def test_what_a_job_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "MARGIN", 2.0)
    child = "import time; time.sleep(60)"
    starts = job("parent", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    state = gpu.carry_out(starts, {}, 1.0, whole=False)
    assert state["status"] == "goes on"
    assert state["seconds"] < 10


def test_a_run_goes_on_from_chunk_to_chunk_and_machine_to_machine(packed, tmp_path, monkeypatch):
    """Its checkpoint is carried in parts of a few KiB; at the end the weights are those of a run in one go."""
    assert call(packed, tmp_path / "whole", "tiny") == 0
    whole = weights_of(tmp_path / "pack-work/runs/tiny")
    prepare = gpu.prepare

    def interrupting(*folders):
        environment = prepare(*folders)
        return environment | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}

    (tmp_path / "sitecustomize.py").write_text(STOP_AFTER_TWO)
    monkeypatch.setattr(gpu, "prepare", interrupting)
    monkeypatch.setattr(gpu, "PART", 10_000)
    assert call(packed, tmp_path / "out", "tiny", "--work", str(tmp_path / "one")) == 3
    assert len(list((tmp_path / "out").glob("tiny.tar.*"))) > 2
    gpu.main(["take", str(tmp_path / "out"), "--pack", str(packed), "--runs", str(tmp_path / "runs")])
    assert step_of(tmp_path / "runs/tiny") == 2
    monkeypatch.setattr(gpu, "prepare", prepare)
    assert call(packed, tmp_path / "end", "tiny", "--work", str(tmp_path / "two")) == 0
    gpu.main(["take", str(tmp_path / "end"), "--pack", str(packed), "--runs", str(tmp_path / "runs")])
    assert weights_of(tmp_path / "runs/tiny") == whole


def test_unknown_jobs_are_told(packed, tmp_path):
    with pytest.raises(SystemExit, match="has the jobs tests, benchmarks, tiny, not all of other"):
        call(packed, tmp_path / "out", "other")


STOP_AFTER_TWO = """
import os, signal
from codecnn.training import loop
step = loop.Trainer.step
def stopping(self, batch):
    step(self, batch)
    if self.state.step == 2:
        os.kill(os.getpid(), signal.SIGTERM)
loop.Trainer.step = stopping
"""
