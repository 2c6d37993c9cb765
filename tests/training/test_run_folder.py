"""The folder of a run belongs to one training at a time, and files of others in it are never overwritten."""

import json
import multiprocessing
import os
import re
import signal
import time

import pytest
import torch

from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.runtime import default_threads
from codecnn.training import train_task, training_runtime
from tests.helpers.toy_task import SETTINGS, ToyTask, run_toy
from tests.helpers.training import lines, weights_of

SHORT = {"steps": 10}


@pytest.mark.parametrize("name", ["config.json", "log.jsonl", "metrics.jsonl", "notes.txt", ".env"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_other_files_is_refused_and_stays_as_it_is(tmp_path, name, resume):
    (tmp_path / name).write_text('{"name": "my project", "training": {"epochs": 3}, "schema": 1}\n')
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path} is not the folder of a run and holds other files")):
        run_toy(tmp_path, SHORT, resume=resume)
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert json.loads((tmp_path / name).read_text())["name"] == "my project"


def test_a_file_is_refused_as_folder(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ConfigError, match="run is a file"):
        run_toy(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


def test_a_second_training_in_the_folder_is_refused_at_once(tmp_path):
    """It neither writes nor ends the first; both a new run and a resumed one are refused, and the first one named."""
    run_toy(tmp_path / "alone", SHORT)
    refused = []

    class Interfered(ToyTask):
        def loss(self, model, batch):
            if self.counts["loss"] == 8:
                for resume in (False, True):
                    state = torch.get_rng_state()
                    with pytest.raises(ConfigError) as error:
                        run_toy(tmp_path / "run", SHORT, resume=resume, seed=1)
                    torch.set_rng_state(state)
                    refused.append(str(error.value))
            return super().loss(model, batch)

    train_task(Interfered, SETTINGS.model_copy(update=SHORT | {"checkpoint_every": 5}), tmp_path / "run")
    assert len(refused) == 2
    for message in refused:
        assert f"another training, process {os.getpid()} on " in message
    assert [event["event"] for event in lines(tmp_path / "run" / "log.jsonl")] == ["started"]
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "alone")


def test_a_training_that_cannot_start_leaves_no_folder(tmp_path):
    with pytest.raises(StoreError, match="has no checkpoint"):
        run_toy(tmp_path / "a" / "run", resume=True)
    assert not (tmp_path / "a").exists()

    def fail():
        raise ConfigError("no such store")

    with pytest.raises(ConfigError, match="no such store"):
        train_task(fail, SETTINGS, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.raises(ConfigError, match="no such store"):
        train_task(fail, SETTINGS, tmp_path / "run")
    run_toy(tmp_path / "run", SHORT)


def killed_with_a_child(run):
    """Train until a step forks a process that outlives this one, as loading processes do for some seconds."""

    class Killed(ToyTask):
        def loss(self, model, batch):
            if self.counts["loss"] == 8:
                if os.fork() == 0:
                    time.sleep(1)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            return super().loss(model, batch)

    train_task(Killed, SETTINGS.model_copy(update=SHORT | {"checkpoint_every": 5}), run)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_killed_training_releases_the_folder(tmp_path):
    run_toy(tmp_path / "alone", SHORT)
    run = tmp_path / "run"
    process = multiprocessing.get_context("fork").Process(target=killed_with_a_child, args=(run,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    run_toy(run, SHORT | {"checkpoint_every": 5}, resume=True)
    assert weights_of(run) == weights_of(tmp_path / "alone")


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (8, 8), (64, 8)])
def test_threads_of_a_training_are_a_stated_number(monkeypatch, cores, expected):
    """They depend on the machine and on what the user says, and on no timing."""
    monkeypatch.setattr("codecnn.base.runtime._convolutions_per_second", lambda threads: pytest.fail("timed"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    free, cpu = SETTINGS.model_copy(update={"threads": None}), torch.device("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    assert default_threads() == training_runtime(free, cpu).threads == expected
    assert training_runtime(free, cpu, 5).threads == 5, "a resumed run keeps its number"
    assert training_runtime(SETTINGS.model_copy(update={"threads": 3}), cpu, 5).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
    assert training_runtime(free, cpu, 5).threads == 5, "also where the environment names another"
    assert training_runtime(free, cpu).threads == cores
