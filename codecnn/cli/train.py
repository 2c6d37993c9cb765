"""Training."""

from pathlib import Path
from typing import Annotated

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Json, Overrides
from codecnn.console import out, print_json


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="a configuration such as configs/demo.yaml")],
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="the run's folder [runs/NAME of the config]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the run's last checkpoint")] = False,
    as_json: Json = False,
) -> None:
    """Train a network; the weights that do best on its validation pictures are kept.

    A loop filter on a store, or with `task: modes` the classifier of intra modes on tables of `codecnn labels`.
    On several GPUs or machines: torchrun -m codecnn train CONFIG. SIGTERM and Ctrl-C write a checkpoint first.
    """
    from codecnn.config import load_modes_config, load_train_config, task_of
    from codecnn.training import train as run_training
    from codecnn.training import train_task
    from codecnn.training.distributed import is_first

    run = output or Path("runs") / config.stem
    if task_of(config, overrides or ()) == "modes":
        modes = load_modes_config(config, overrides or ())
        last = train_task(lambda: modes.make_task(modes.training), modes.training, run, resume=resume, progress=True)
    else:
        loaded = load_train_config(config, overrides or ())
        last = run_training(
            loaded.mix(), loaded.model.name, loaded.model.options, loaded.training, run, resume=resume, progress=True
        )
    if not is_first():
        return
    if as_json:
        print_json(last | {"weights": str(run / "best.safetensors")})
        return
    if "best_gain" in last:
        out.print(f"Best mean gain on the validation pictures: {last['best_gain']:+.4f} dB")
    else:
        out.print(f"Least cost lost on the validation pictures: {-last['best_score']:.2f} %")
    out.print(f"Weights: {run / 'best.safetensors'}", soft_wrap=True)
