"""Several processes train the same as a single one: same global batches, losses and weights."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from codecnn.dataset import TrainingBatches
from codecnn.errors import ConfigError, StoppedError
from codecnn.training import distributed, execution, loop
from tests.helpers.networks import SMALL
from tests.helpers.toy_task import run_toy
from tests.helpers.training import lines, rows, step_of, wait_for_checkpoint, weights_of, write_config

PLAIN = {"norm": False, "dropout": False}
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def run_process(rank, port, run, events, arguments):
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    held = None  # with its traceback, as code that reports the error holds it
    try:
        run_toy(run, events=events[rank], **arguments)
    except StoppedError as stopped:
        held = stopped
    # If something still held the process group, its threads could end in a deadlock later.
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    if any("gloo" in name for name in names):
        sys.exit(f"threads of the process group: {names}")
    sys.exit(128 + held.signal if held else 0)


def run_two(run, events=({}, {}), **arguments):
    """Train the toy with two processes and return their exit statuses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=run_process, args=(rank, port, run, events, arguments)) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    ended = [process.exitcode for process in both]
    for process in both:
        process.kill()  # in case it hangs
    return ended


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    run_toy(run, **PLAIN)
    return run


def assert_equal_runs(run, alone):
    actual, expected = rows(run), rows(alone)
    assert [row["step"] for row in actual] == [row["step"] for row in expected]
    for a, b in zip(actual, expected, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["score"] == pytest.approx(b["score"], rel=1e-4)
    weights = load_file(run / "last.safetensors")
    for name, tensor in load_file(alone / "last.safetensors").items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}])
def test_two_processes_train_the_same_as_a_single_one(alone, tmp_path, changes):
    run = tmp_path / "run"
    assert run_two(run, changes=changes, **PLAIN) == [0, 0]
    assert_equal_runs(run, alone)
    assert lines(run / "log.jsonl")[0]["processes"] == 2


def test_all_processes_use_the_fastest_form_of_the_first_one(alone, tmp_path, monkeypatch):
    def seconds(step, device):
        step()
        taken.append(1)
        first, later = (4.0, 1.0) if os.environ["RANK"] == "0" else (1.0, 4.0)
        return first if len(taken) <= 2 else later  # float32 twice, then bfloat16

    taken = []
    monkeypatch.setattr(execution, "_step_seconds", seconds)
    for name, precision in (("chose", "auto"), ("given", "bfloat16")):
        assert run_two(tmp_path / name, changes={"steps": 10, "precision": precision}, **PLAIN) == [0, 0]
    assert weights_of(tmp_path / "chose") == weights_of(tmp_path / "given")


def test_no_process_reads_files_before_the_first_one_writes_them(tmp_path, monkeypatch):
    written = loop.write_row
    monkeypatch.setattr(loop, "write_row", lambda *row: (time.sleep(1), written(*row)))
    assert run_two(tmp_path / "run", changes={"steps": 2}, **PLAIN) == [0, 0]
    assert [row["step"] for row in rows(tmp_path / "run")] == [2]


def test_accumulated_gradients_equal_those_of_the_batch(alone, tmp_path):
    run_toy(tmp_path / "run", {"accumulate": 4}, **PLAIN)
    assert_equal_runs(tmp_path / "run", alone)
    with pytest.raises(ConfigError, match="batch 8 is not a multiple of processes times accumulate, 3"):
        run_toy(tmp_path / "odd", {"accumulate": 3}, **PLAIN)
    assert not (tmp_path / "odd").exists()


def test_a_signal_to_either_process_stops_both_after_one_step(alone, tmp_path):
    run = tmp_path / "run"
    assert run_two(run, events=({}, {("loss", 4): signal.SIGTERM}), **PLAIN) == [143, 143]
    assert step_of(run) in (5, 6)
    term = {("loss", 17): signal.SIGTERM}
    assert run_two(run, events=(term, term), resume=True, **PLAIN) == [143, 143]
    run_toy(run, resume=True, **PLAIN)  # continues in a single process
    assert_equal_runs(run, alone)


def test_a_signal_during_validation_stops_both_processes(alone, tmp_path):
    run = tmp_path / "run"
    term = {("validate", 1): signal.SIGTERM}
    assert run_two(run, events=(term, term), **PLAIN) == [143, 143]
    assert step_of(run) == 20
    assert [row["step"] for row in rows(run)] == [10]
    assert run_two(run, resume=True, **PLAIN) == [0, 0]
    assert_equal_runs(run, alone)


def test_batch_norm_of_several_processes_is_logged(tmp_path):
    assert run_two(tmp_path / "run", changes={"steps": 2}) == [0, 0]
    assert "batch norm uses the patches of its own process" in (tmp_path / "run" / "log.jsonl").read_text()


def test_shares_of_a_batch_form_the_batch_and_are_mixed(tiny_store):
    def draw(part, step):
        data = TrainingBatches(tiny_store.split("train"), batch=32, steps=9, size=32, part=part)
        return list(zip(*data.draw(step), strict=True))

    counts = Counter()
    for step in range(8):
        whole = draw((0, 1), step)
        assert [pair for rank in range(4) for pair in draw((rank, 4), step)] == whole
        counts.update((rank, patch.unit) for rank in range(4) for patch, _ in draw((rank, 4), step))
    # Each of four processes sees each of two QPs 32 times on average, with a standard deviation of 4.
    assert all(16 <= counts[rank, unit] <= 48 for rank in range(4) for unit in range(2))
    with pytest.raises(ConfigError, match="32 patches cannot be split over 3"):
        draw((0, 3), 0)


def test_gathered_results_are_in_order(monkeypatch):
    assert distributed.share("abcde") == "abcde"
    assert distributed.gather(["a", "b"]) == ["a", "b"]
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda rank=rank: rank)
        shares.append(list(distributed.share("abcdefgh")))

    def all_gather(parts, results):
        parts[:] = shares

    monkeypatch.setattr(distributed.dist, "all_gather_object", all_gather)
    assert "".join(distributed.gather(shares[1])) == "abcdefgh"


@pytest.mark.slow
def test_torchrun_trains_and_stops(tiny_store, tmp_path):
    """Train a filter with torchrun, compare with a single process, then send SIGTERM to torchrun."""
    settings = {"steps": 6, "batch": 4, "patch": 32, "validate_every": 3, "threads": 1, "device": "cpu"}
    config = write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "codecnn"]
    alone = [sys.executable, "-m", "codecnn"]
    for command, name in ((torchrun, "two"), (alone, "one")):
        subprocess.run([*command, "train", str(config), "-o", name], cwd=tmp_path, check=True, timeout=300)
    for a, b in zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["gain_db"] == pytest.approx(b["gain_db"], abs=1e-4)
    process = subprocess.Popen(
        [*torchrun, "train", str(config), "training.steps=100000", "training.checkpoint_every=2", "-o", "long"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_checkpoint(tmp_path / "long", process)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert lines(tmp_path / "long" / "log.jsonl")[-1]["event"] == "stopped", err
