"""Metrics of a run: rows, the summary table, time waiting for data, TensorBoard."""

import csv
import json
import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from codecnn.base.errors import StoppedError
from codecnn.training import FilterSettings, train_task
from codecnn.training.task import ValidationResult
from tests.helpers.clock import Clock
from tests.helpers.networks import SMALL
from tests.helpers.toy_task import SETTINGS, ToyTask, run_toy
from tests.helpers.training import lines, rows, train_filter, weights_of


def test_waiting_for_data_is_reported_without_validation(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    settings = SETTINGS.model_copy(update={"steps": 20, "validate_every": 10})
    train_task(lambda: clock.task({"batches": 3, "loss": 7, "validate": 100}), settings, tmp_path)
    for row, seconds in zip(rows(tmp_path), (200, 400), strict=True):
        assert row["data_wait"] == pytest.approx(0.3)
        assert row["patches_per_second"] == pytest.approx(0.8)
        assert row["seconds"] == seconds


def test_a_resumed_run_continues_its_time(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    with pytest.raises(StoppedError):
        train_task(lambda: clock.task({"loss": 10}, events={("loss", 14): signal.SIGTERM}), SETTINGS, tmp_path)
    clock.now = 0.0
    train_task(lambda: clock.task({"loss": 10}), SETTINGS, tmp_path, resume=True)
    assert [row["seconds"] for row in rows(tmp_path)] == [100, 200, 300, 400]
    assert all(row["patches_per_second"] == pytest.approx(0.8) for row in rows(tmp_path))


def test_reports_of_a_filter_run(tiny_store, tmp_path):
    settings = FilterSettings(
        steps=4, batch=2, patch=32, validate_every=2, warmup=1, threads=1, device="cpu", learning_rate=2e-3, ema=0.5
    )
    last = train_filter(tiny_store, "rdn", SMALL, settings, tmp_path)
    row = rows(tmp_path)[-1]
    assert row == last.last
    assert row["gain_mean_db"] == row["score"] == pytest.approx(np.mean(list(row["gain_db"].values())))
    with (tmp_path / "summary.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(line["step"]) for line in table] == [2, 4]
    for name in ("loss", "learning_rate", "gain_mean_db", "patches_per_second", "data_wait", "seconds"):
        assert float(table[1][name]) == row[name]
    assert float(table[1]["gain_db_42"]) == row["gain_db"]["42"]
    board = EventAccumulator(str(tmp_path)).Reload()
    tags = board.Tags()
    assert {"loss", "learning_rate", "gain_db/32", "gain_mean_db", "data_wait"} <= set(tags["scalars"])
    planes = [f"batch/{name}" for name in ("orig_y", "qp", "rec_y", "valid")]
    maps = [f"maps/blocks.{index}" for index in range(2)]
    assert set(tags["images"]) == {"b/qp32", "b/qp42", *planes, *maps}
    picture = board.Images("b/qp42")[0]
    assert (picture.width, picture.height) == (4 * 136, 96)
    assert len(board.Images("batch/qp")) == 1
    picture, _ = board.Images("maps/blocks.1")  # eight features of 96x96 samples
    assert (picture.width, picture.height) == (4 * 96, 2 * 96)
    sizes = {"gradients/head.bias", "updates/head.weight", "features/blocks.1"}
    assert sizes <= set(tags["scalars"])
    assert board.Scalars("gradients/head.bias")[-1].value > 0
    assert "weights/blocks.0.layers.0.weight" in tags["histograms"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["training"]["steps"] == 4
    started = lines(tmp_path / "log.jsonl")[0]
    assert config["provenance"]["versions"]["torch"] == started["provenance"]["versions"]["torch"]


def test_the_best_weights_are_saved(tmp_path):
    class Falling(ToyTask):
        def validate(self, model, device):
            return ValidationResult(1.0 - self.counts["loss"], {})

    last = train_task(Falling, SETTINGS, tmp_path / "run")
    assert last.best_score == -9
    assert last.last["score"] == -39
    run_toy(tmp_path / "ten", {"validate_every": 10})
    # The averaged weights of step 10 are the best, and those of step 40 the last.
    last = weights_of(tmp_path / "run")
    assert weights_of(tmp_path / "run", "best") != last
    assert weights_of(tmp_path / "ten") == last
