"""Programs that show the scalars of a run: TensorBoard, Weights & Biases, MLflow.

All get the same scalars at the same steps. TensorBoard and Weights & Biases write into the folder of the run, MLflow
where MLFLOW_TRACKING_URI says.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from codecnn.base.errors import ConfigError, ToolMissingError
from codecnn.base.files import read_json, write_json
from codecnn.training.run_folder import BOARDS, CONFIG

PROJECT = "codecnn"
"""Project of Weights & Biases and experiment of MLflow, unless the environment names another."""
_MLFLOW_BATCH = 1000
"""Largest number of metrics that MLflow takes at once."""
_MLFLOW_PARAMETERS = 100
"""Largest number of parameters that MLflow takes at once."""
_MLFLOW_TEXT = 6000
"""Largest number of characters of a parameter of MLflow."""


class Board(Protocol):
    """A program that shows a run."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Show numbers by name."""

    def picture(self, name: str, picture: npt.NDArray[np.uint8], step: int) -> None:
        """Show a picture, shape (h, w) or (h, w, 3)."""

    def parameters(self, model: nn.Module, step: int) -> None:
        """Show the distribution of each parameter."""

    def close(self, *, finished: bool) -> None:
        """End the run there; `finished` is False for one that was stopped or failed."""


class TensorBoard:
    """Event files in the folder of the run."""

    def __init__(self, run: Path, reported: int) -> None:
        # TensorBoard drops the events of steps that are repeated after the checkpoint.
        self._writer = SummaryWriter(str(run), purge_step=reported + 1)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Show numbers by name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def picture(self, name: str, picture: npt.NDArray[np.uint8], step: int) -> None:
        """Show a picture."""
        self._writer.add_image(name, picture, step, dataformats="HW" if picture.ndim == 2 else "HWC")

    def parameters(self, model: nn.Module, step: int) -> None:
        """Show a histogram of each parameter; waits for the device, from which every parameter is copied."""
        for name, parameter in model.named_parameters():
            values = parameter.detach().float().cpu()
            if bool(values.isfinite().all()):  # parameters that are not trained may hold infinities
                self._writer.add_histogram(f"weights/{name}", values, step)
        self._writer.flush()

    def close(self, *, finished: bool) -> None:
        """Close the event file."""
        self._writer.close()


class _ScalarBoard:
    """A program that gets scalars alone."""

    def picture(self, name: str, picture: npt.NDArray[np.uint8], step: int) -> None:
        """Show no picture."""

    def parameters(self, model: nn.Module, step: int) -> None:
        """Show no parameters."""


class WeightsAndBiases(_ScalarBoard):
    """A run of Weights & Biases, with its files in the folder of the run."""

    def __init__(self, run: Path, reported: int) -> None:
        import wandb

        facts: dict[str, Any] = {"dir": str(run), "name": run.name, "config": _config(run), "resume": "allow"}
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT), id=_identity(run, "wandb", _new_id), **facts
            )
        except (wandb.errors.Error, OSError) as error:
            raise ConfigError(
                f"training.boards: Weights & Biases does not start ({_first_line(error)}): log in with wandb login, or "
                "set WANDB_MODE=offline"
            ) from error
        # Steps are repeated after a kill, and the count of wandb itself never goes back.
        self._run.define_metric("*", step_metric="step")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Show numbers by name."""
        self._run.log({**values, "step": step})

    def close(self, *, finished: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=0 if finished else 1)


class MLflow(_ScalarBoard):
    """A run of MLflow, where MLFLOW_TRACKING_URI says, in the experiment MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, run: Path, reported: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        try:
            self._client = client = MlflowClient()
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)

            def create() -> str:
                experiment = client.get_experiment_by_name(name)
                number = client.create_experiment(name) if experiment is None else experiment.experiment_id
                return str(client.create_run(number, run_name=run.name).info.run_id)

            self._id = _identity(run, "mlflow", create)
            client.update_run(self._id, status="RUNNING")
            known = client.get_run(self._id).data.params
            texts = {key: str(value)[:_MLFLOW_TEXT] for key, value in _flat(_config(run)) if key not in known}
            params = [Param(key, text) for key, text in texts.items()]
            for start in range(0, len(params), _MLFLOW_PARAMETERS):
                client.log_batch(self._id, params=params[start : start + _MLFLOW_PARAMETERS])
        except Exception as error:  # any store may be behind the address
            raise ConfigError(f"training.boards: MLflow does not start ({_first_line(error)})") from error

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Show numbers by name."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        for start in range(0, len(metrics), _MLFLOW_BATCH):
            self._client.log_batch(self._id, metrics=metrics[start : start + _MLFLOW_BATCH])

    def close(self, *, finished: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


_BOARDS: dict[str, tuple[Callable[[Path, int], Board], str]] = {
    "tensorboard": (TensorBoard, "tensorboard"),
    "wandb": (WeightsAndBiases, "wandb"),
    "mlflow": (MLflow, "mlflow"),
}
"""Programs and the packages that they need, by their name in `LoopSettings.boards`."""


class Boards:
    """The boards of a run as one: a failure of one of them while the run trains becomes a warning."""

    def __init__(self, names: tuple[str, ...], run: Path, reported: int, warn: Callable[[str], None]) -> None:
        """Start the boards.

        Args:
            names: Names as in `LoopSettings.boards`.
            run: Folder of the run, with config.json.
            reported: Step of the last validation of the run.
            warn: Function that takes the sentence about a failure.

        Raises:
            ConfigError: A board does not start.
            ToolMissingError: The package of a board is not installed.
        """
        check_boards(names)
        self._warn = warn
        self._boards: dict[str, Board] = {}
        try:
            for name in names:
                self._boards[name] = _BOARDS[name][0](run, reported)
        except BaseException:
            self.close(finished=False)
            raise

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Show numbers by name."""
        self._each(lambda board: board.scalars(values, step))

    def picture(self, name: str, picture: npt.NDArray[np.uint8], step: int) -> None:
        """Show a picture, shape (h, w) or (h, w, 3)."""
        self._each(lambda board: board.picture(name, picture, step))

    def parameters(self, model: nn.Module, step: int) -> None:
        """Show the distribution of each parameter."""
        self._each(lambda board: board.parameters(model, step))

    def close(self, *, finished: bool) -> None:
        """End the run on each board."""
        self._each(lambda board: board.close(finished=finished))

    def _each(self, work: Callable[[Board], None]) -> None:
        for name, board in self._boards.items():
            if isinstance(board, TensorBoard):
                work(board)  # its errors are those of the disk
                continue
            try:
                work(board)
            except Exception as error:  # a server that is away must not end a training of days
                self._warn(f"{name} did not take the values ({_first_line(error)}), metrics.jsonl has them")


def check_boards(names: tuple[str, ...]) -> None:
    """Raise ToolMissingError if the package of a board is not installed."""
    for name in names:
        if find_spec(_BOARDS[name][1]) is None:
            raise ToolMissingError(f"training.boards {name} needs the package {name}: pip install 'codecnn[{name}]'")


def _identity(run: Path, board: str, create: Callable[[], str]) -> str:
    """Return the name of a run on a board, which a resumed run keeps."""
    known: dict[str, str] = read_json(run / BOARDS) if (run / BOARDS).exists() else {}
    if board not in known:
        known[board] = create()
        write_json(run / BOARDS, known)
    return known[board]


def _new_id() -> str:
    return os.urandom(8).hex()


def _config(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(run / CONFIG)
    return content


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
