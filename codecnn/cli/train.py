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
    """Train a network on a store; the weights that do best on its validation pictures are kept.

    On several GPUs or machines: torchrun -m codecnn train CONFIG. SIGTERM and Ctrl-C write a checkpoint first.
    """
    from codecnn.config import load_train_config
    from codecnn.training import train as run_training
    from codecnn.training.distributed import is_first

    loaded = load_train_config(config, overrides or ())
    run = output or Path("runs") / config.stem
    last = run_training(
        loaded.mix(), loaded.model.name, loaded.model.options, loaded.training, run, resume=resume, progress=True
    )
    if not is_first():
        return
    if as_json:
        print_json(last | {"weights": str(run / "best.safetensors")})
        return
    out.print(f"Best mean gain on the validation pictures: {last['best_gain']:+.4f} dB")
    out.print(f"Weights: {run / 'best.safetensors'}", soft_wrap=True)
