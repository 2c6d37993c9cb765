"""Boards of a run: TensorBoard, Weights & Biases and MLflow show the same scalars, also after a stop."""

import importlib.util
import json
import signal

import pytest
from pydantic import ValidationError
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from codecnn.base.errors import ConfigError, StoppedError, ToolMissingError
from codecnn.training import LoopSettings
from tests.helpers.toy_task import run_toy
from tests.helpers.training import lines


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """A client of a store of its own."""
    package = pytest.importorskip("mlflow", reason="needs mlflow: pip install 'codecnn[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="needs sqlalchemy: pip install 'codecnn[mlflow]'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return package.MlflowClient()


def shown_by_tensorboard(run):
    board = EventAccumulator(str(run)).Reload()
    return {name: [(each.step, each.value) for each in board.Scalars(name)] for name in board.Tags()["scalars"]}


def shown_by_mlflow(client):
    (run,) = client.search_runs([client.get_experiment_by_name("codecnn").experiment_id])
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return run, {name: [(each.step, each.value) for each in history] for name, history in histories.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_shows_what_tensorboard_shows(mlflow, tmp_path):
    run_toy(tmp_path / "run", {"boards": ("tensorboard", "mlflow")})
    expected = shown_by_tensorboard(tmp_path / "run")
    run, shown = shown_by_mlflow(mlflow)
    assert {"loss", "score", "by_size/8", "gradients/0.weight"} <= shown.keys()
    assert shown.keys() == expected.keys()
    for name, values in shown.items():
        assert [step for step, _ in values] == [step for step, _ in expected[name]]
        assert [value for _, value in values] == pytest.approx([value for _, value in expected[name]], rel=1e-6)
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert (run.data.params["network"], run.data.params["training.steps"]) == ("toy", "40")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_resumed_run_continues_on_mlflow(mlflow, tmp_path):
    changes = {"boards": ("mlflow",)}
    with pytest.raises(StoppedError):
        run_toy(tmp_path / "run", changes, events={("loss", 24): signal.SIGTERM})
    assert shown_by_mlflow(mlflow)[0].info.status == "KILLED"
    run_toy(tmp_path / "run", changes, resume=True)
    run, shown = shown_by_mlflow(mlflow)
    assert [step for step, _ in shown["score"]] == [10, 20, 30, 40]
    assert run.info.status == "FINISHED"
    assert not list((tmp_path / "run").glob("events.*"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_board_that_fails_later_does_not_end_the_run(mlflow, tmp_path, monkeypatch):
    import mlflow as package

    log_batch = package.MlflowClient.log_batch

    def fail(self, run_id, metrics=(), **values):
        if metrics:
            raise OSError("the server is away")
        return log_batch(self, run_id, **values)

    monkeypatch.setattr(package.MlflowClient, "log_batch", fail)
    assert run_toy(tmp_path / "run", {"boards": ("mlflow",)}).last["step"] == 40
    warnings = [line["text"] for line in lines(tmp_path / "run" / "log.jsonl") if line["event"] == "warning"]
    assert any("mlflow did not take the values (the server is away)" in text for text in warnings)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_store_that_cannot_be_used_is_an_error_at_the_start(mlflow, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://x")
    with pytest.raises(ConfigError, match=r"training\.boards: MLflow does not start"):
        run_toy(tmp_path / "run", {"boards": ("mlflow",)})


def leveldb_records(data, offset):
    """Yield the records of a log of LevelDB, whose blocks of 32 KiB count from `offset` bytes in front of `data`."""
    position, parts = 0, b""
    while position + 7 <= len(data):
        if (rest := 32768 - (position + offset) % 32768) < 7:
            position += rest
            continue
        size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_wandb_shows_what_tensorboard_shows(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs wandb: pip install 'codecnn[wandb]'")
    from wandb.proto import wandb_internal_pb2

    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}.items():
        monkeypatch.setenv(name, value)
    run_toy(tmp_path / "run", {"boards": ("tensorboard", "wandb")})
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    shown: dict[str, list] = {}
    for data in leveldb_records(path.read_bytes()[7:], 7):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in items.items():
                shown.setdefault(name, []).append((items["step"], value))
    expected = shown_by_tensorboard(tmp_path / "run")
    shown = {name: values for name, values in shown.items() if not name.startswith("_") and name != "step"}
    assert shown.keys() == expected.keys()
    for name, values in shown.items():
        assert [step for step, _ in values] == [step for step, _ in expected[name]]
        assert [value for _, value in values] == pytest.approx([value for _, value in expected[name]], rel=1e-6)


def test_a_missing_package_is_an_error_that_names_the_extra(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("codecnn.training.boards.find_spec", lambda name: None if name == "wandb" else find_spec(name))
    with pytest.raises(ToolMissingError, match=r"boards wandb needs the package wandb: pip install 'codecnn\[wandb\]'"):
        run_toy(tmp_path / "run", {"boards": ("wandb",)})
    assert not (tmp_path / "run").exists()


def test_boards_are_a_name_or_a_list():
    assert LoopSettings().boards == ("tensorboard",)
    assert LoopSettings(boards="mlflow").boards == ("mlflow",)
    assert LoopSettings(boards=[]).boards == ()
    with pytest.raises(ValidationError, match="wandb"):
        LoopSettings(boards=["weights"])
