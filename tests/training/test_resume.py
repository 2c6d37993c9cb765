"""A run that is killed at any moment and resumed equals the run that was never stopped."""

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from codecnn import cli
from codecnn.base.errors import ConfigError, StoppedError, StoreError
from codecnn.training import FilterSettings, filter_loss, train_task
from tests.helpers.networks import SMALL
from tests.helpers.toy_task import SETTINGS, ToyTask, run_toy
from tests.helpers.training import lines, rows, step_of, wait_for_checkpoint, weights_of, write_config

UNTIMED = ("step", "loss", "learning_rate", "score", "by_size")


def toy_process(run, resume, events):
    """Run the toy with the exit status of a command that is stopped by a signal."""
    try:
        run_toy(run, resume=resume, events=events)
    except StoppedError as stopped:
        sys.exit(128 + stopped.signal)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    run = tmp_path_factory.mktemp("whole") / "run"
    run_toy(run)
    return run


def assert_same(run, whole):
    for name in ("last", "best"):
        assert weights_of(run, name) == weights_of(whole, name)
    actual, expected = ([[row[key] for key in UNTIMED] for row in rows(folder)] for folder in (run, whole))
    assert actual == expected
    board = board_of(run)
    assert [event.step for event in board.Scalars("score")] == [10, 20, 30, 40]
    assert [event.step for event in board.Images("ramp")] == [10, 20, 30, 40]
    with (run / "summary.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [10, 20, 30, 40]
    assert not list(run.glob("*.part*"))


def board_of(run):
    """Read the TensorBoard events in order; TensorBoard orders files by the second, and these runs take less."""
    ordered = run.with_name(f"{run.name}-board")
    ordered.mkdir(exist_ok=True)
    for number, path in enumerate(sorted(run.glob("events.*"), key=lambda path: path.stat().st_mtime_ns)):
        shutil.copy(path, ordered / f"events.out.tfevents.{number:010}.x")
    return EventAccumulator(str(ordered)).Reload()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("seed", range(2))
def test_a_killed_and_resumed_run_is_the_same_run(whole, tmp_path, seed):
    """Kill in steps, in validations and between the files that these write, by SIGKILL and by SIGTERM."""
    rng = np.random.default_rng(seed)
    run = tmp_path / "run"
    for attempt in range(9):
        what = ("loss", "validate", "save")[attempt % 3]
        count = int(rng.integers(12)) if what == "loss" else 0
        number = signal.SIGTERM if attempt % 2 else signal.SIGKILL
        started = (run / "checkpoint.pt").exists()
        before = step_of(run) if started else 0
        # A forked process need not import torch again.
        arguments = (run, started, {(what, count): number})
        process = multiprocessing.get_context("fork").Process(target=toy_process, args=arguments)
        process.start()
        process.join(60)
        if process.exitcode == 0:
            break
        assert process.exitcode == (-signal.SIGKILL if number == signal.SIGKILL else 143)
        if (run / "checkpoint.pt").exists():
            assert step_of(run) >= before
        if number == signal.SIGTERM and what == "loss":
            assert step_of(run) == before + count + 1
        if number == signal.SIGTERM and what == "validate":  # the validation is discarded and repeated
            assert step_of(run) % 10 == 0
            assert len(rows(run)) < step_of(run) / 10
    run_toy(run, resume=(run / "checkpoint.pt").exists())
    assert_same(run, whole)
    events = lines(run / "log.jsonl")
    assert events[0]["event"] == "started"
    assert all(event["provenance"]["versions"]["torch"] for event in events if event["event"] == "resumed")


@pytest.mark.parametrize("checkpoint_every", [7, 10])
@pytest.mark.parametrize("kill", [5, 9, 10, 20, 33])
def test_a_kill_loses_at_most_the_checkpoint_interval(tmp_path, monkeypatch, kill, checkpoint_every):
    """An exception in place of a kill ends the run within step `kill`."""

    class KilledError(BaseException):
        pass

    def die(pid, number):
        raise KilledError

    monkeypatch.setattr(os, "kill", die)
    with pytest.raises(KilledError):
        run_toy(tmp_path, {"checkpoint_every": checkpoint_every}, events={("loss", kill): signal.SIGKILL})
    reached = step_of(tmp_path) if (tmp_path / "checkpoint.pt").exists() else 0
    assert reached == max(kill // checkpoint_every * checkpoint_every, kill // 10 * 10)


def test_a_run_stopped_at_every_step_is_the_same_run(whole, tmp_path):
    """Stop at every step, so that any state that is lost changes the result."""
    run = tmp_path / "run"
    for step in range(SETTINGS.steps):
        with pytest.raises(StoppedError, match=rf"SIGTERM after step {step + 1}: --resume") as stopped:
            run_toy(run, resume=step > 0, events={("loss", 0): signal.SIGTERM})
        assert stopped.value.signal == signal.SIGTERM
    assert [row["step"] for row in rows(run)] == [10, 20, 30]
    run_toy(run, resume=True)
    assert_same(run, whole)


def test_a_second_interrupt_ends_the_run_at_once(tmp_path):
    # A test before this one in the same process may have left another handler (distributed installs one).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    events = {("loss", 3): signal.SIGINT}

    class InterruptedTwice(ToyTask):
        def happens(self, what):
            super().happens(what)
            if what == "loss" and self.counts[what] == 4:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_task(lambda: InterruptedTwice(events=events), SETTINGS, tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_free_settings_may_change_on_resuming(whole, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(StoppedError):
        run_toy(run, events={("loss", 15): signal.SIGTERM})
    with pytest.raises(ConfigError, match=r"training\.ema, training\.steps differs"):
        run_toy(run, {"steps": 50, "ema": 0.5}, resume=True)
    with pytest.raises(ConfigError, match="seed differs"):
        run_toy(run, resume=True, seed=1)
    run_toy(run, {"checkpoint_every": 3}, resume=True)
    assert_same(run, whole)
    (run / "checkpoint.pt").write_bytes(b"PK nothing")
    with pytest.raises(StoreError, match=r"checkpoint\.pt"):
        run_toy(run, resume=True)


class ExtendedSettings(FilterSettings):
    """Settings with a field more, as a future version or a user's task may have."""

    added: int = 3


def test_every_field_of_the_settings_is_written_and_compared(tmp_path):
    """A field is declared once, and configuration, card and resuming know it."""
    cards = []

    class Recorded(ToyTask):
        def save(self, path, model, card):
            cards.append(card)
            super().save(path, model, card)

    settings = ExtendedSettings(**SETTINGS.model_dump() | {"steps": 10, "added": 5})
    train_task(Recorded, settings, tmp_path)
    names = set(ExtendedSettings.model_fields)
    config = json.loads((tmp_path / "config.json").read_text())["training"]
    for written in (config, *(card["training"] for card in cards)):
        assert names <= set(written)
        assert written["added"] == 5
    for name, value in (("added", 6), ("border", 4), ("seed", 1)):
        with pytest.raises(ConfigError, match=rf"\(training\.{name} differs\)"):
            train_task(Recorded, settings.model_copy(update={name: value}), tmp_path, resume=True)
    train_task(Recorded, settings, tmp_path, resume=True)


def test_other_batches_or_draws_change_the_weights(whole, tmp_path):
    """Confirm that the comparison with the uninterrupted run can fail: dropout and data matter."""
    for number, change in enumerate(({"seed": 1}, {"dropout": False})):
        run_toy(tmp_path / str(number), **change)
        assert weights_of(tmp_path / str(number)) != weights_of(whole)


@pytest.fixture
def config(tiny_store, tmp_path):
    settings = {"steps": 100000, "batch": 2, "patch": 32, "checkpoint_every": 2, "threads": 1, "device": "cpu"}
    return write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_command_reports_it(config, tmp_path, monkeypatch, capsys, number, status):
    def loss(model, batch, *settings):
        if (tmp_path / "run" / "checkpoint.pt").exists():
            os.kill(os.getpid(), number)
        return filter_loss(model, batch, *settings)

    monkeypatch.setattr("codecnn.training.filter.task.filter_loss", loss)
    monkeypatch.setattr(sys, "argv", ["codecnn", "train", str(config), "-o", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == status
    err = capsys.readouterr().err
    assert err.startswith(f"codecnn: stopped by {number.name} after step 3: --resume continues from the checkpoint in ")
    assert len(err.strip().splitlines()) == 1
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--resume"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err.startswith("continues at step 4 of 100000, with 1 CPU thread\n")


def test_a_signal_to_the_process_group_stops_cleanly(config, tmp_path):
    argv = [sys.executable, "-m", "codecnn", "train", str(config), "training.workers=2", "-o", "run"]
    env = os.environ | {"PYTHONWARNINGS": "ignore:This DataLoader will create"}  # of PyTorch, with one processor
    process = subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for_checkpoint(tmp_path / "run", process)
    os.killpg(process.pid, signal.SIGTERM)  # as a terminal or a scheduler does
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (143, 1), err
    assert f"after step {step_of(tmp_path / 'run')}:" in err
