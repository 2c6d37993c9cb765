"""Functions of training: check a set-up, and train a network.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from codecnn.api.groups import FileName, Overrides
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, progress_bar, python_only, record, verb
from codecnn.base.outputs import check_outputs

if TYPE_CHECKING:
    from codecnn.api.config import TrainConfig
    from codecnn.training import TrainingResult
    from codecnn.training.checks import Finding

Configuration = Annotated[
    FileName | Mapping[str, Any],
    argument("Training configuration, e.g. configs/demo.yaml.", kind=Path, python="Or a dictionary with its keys."),
]


@record
class TrainOptions:
    """Options of `train`."""

    config: Configuration
    run: Annotated[
        FileName | None, option("-o", "--output", help="Folder of the run (default: runs/NAME of the configuration).")
    ] = None
    _: KW_ONLY
    overrides: Overrides = ()
    resume: Annotated[bool, option("--resume", help="Continue from the last checkpoint of the run.")] = False
    progress: Annotated[bool, python_only("Show a progress bar.", fixed=True)] = False


@verb(TrainOptions)
def train(options: TrainOptions) -> "TrainingResult":
    """Train a network and keep the weights with the best validation result.

    Trains an in-loop filter on a store, or with `task: intra_modes` an intra mode classifier on tables of `codecnn
    labels`. On several GPUs or machines: torchrun -m codecnn train CONFIG. SIGTERM and Ctrl-C write a checkpoint first.

    Returns:
        The result, with the file of the best weights.

    Raises:
        MissingFileError: The configuration or a store does not exist.
        ConfigError: The configuration is invalid, or the run would replace a file that it reads.
        ModelError: The network and its options or planes do not fit.
    """
    from codecnn.api.config import load_config
    from codecnn.training import train as run_training

    loaded = load_config(options.config, options.overrides)
    if options.run is None and isinstance(options.config, Mapping):
        raise ConfigError("a configuration without a file needs a folder for the run: give run")
    run = Path("runs") / Path(str(options.config)).stem if options.run is None else Path(options.run)
    _check_run(options.config, loaded, run)
    return run_training(loaded, run, resume=options.resume, progress=options.progress)


def _check_run(config: FileName | Mapping[str, Any], loaded: "TrainConfig", run: Path) -> None:
    """Raise ConfigError if a training would replace its configuration, its data or the weights that it starts from."""
    from codecnn.dataset import input_files
    from codecnn.models import weights_files, weights_path
    from codecnn.training import RUN_FILES

    files = [] if isinstance(config, Mapping) else [config]
    check_outputs(
        [run / name for name in RUN_FILES],
        [*files, *input_files(*loaded.data), *weights_files(*map(weights_path, loaded.weights))],
    )


@record
class CheckOptions:
    """Options of `check`."""

    config: Configuration
    _: KW_ONLY
    overrides: Overrides = ()
    progress: Annotated[
        Progress | None, progress_bar("checking", "check", "Called with (checks done, all checks).")
    ] = None


@verb(CheckOptions)
def check(options: CheckOptions) -> "list[Finding]":
    """Check a training set-up before a long training; the exit status is 1 if a check fails.

    Takes the arguments of `train`. Among others it checks that the network starts as the identity and can learn, that
    arithmetic and data are valid, and that the machine is free. docs/howto/check.md lists all checks.

    Returns:
        A finding for each check.

    Raises:
        MissingFileError: The configuration or a store does not exist.
        ConfigError: The configuration is invalid.
    """
    from codecnn.api.config import load_config

    return load_config(options.config, options.overrides).check(options.progress)
