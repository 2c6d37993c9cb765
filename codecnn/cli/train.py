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

    A loop filter on a store, or with `task: intra_modes` the classifier of intra modes on tables of `codecnn labels`.
    On several GPUs or machines: torchrun -m codecnn train CONFIG. SIGTERM and Ctrl-C write a checkpoint first.
    """
    from codecnn.config import load_config
    from codecnn.runs import read_jsonl
    from codecnn.training import LOG, is_first
    from codecnn.training import train as run_training

    loaded = load_config(config, overrides or ())
    done = run_training(loaded, output or Path("runs") / config.stem, resume=resume, progress=True)
    if not is_first():
        return
    # Those that came hours ago have scrolled away.
    warnings = [told for told in read_jsonl(done.weights.parent / LOG) if told["event"] == "warning"]
    if as_json:
        best = {"best_gain": done.best_score} if loaded.task == "filter" else {}
        files = {"weights": str(done.weights), "warnings": [told["text"] for told in warnings]}
        print_json(done.last | {"best_score": done.best_score} | best | files)
        return
    for told in warnings:
        out.print(f"Warned after step {told['step']}: {told['text']}", soft_wrap=True)
    if loaded.task == "filter":
        out.print(f"Best mean gain on the validation pictures: {done.best_score:+.4f} dB")
    else:
        out.print(f"Least cost lost on the validation pictures: {-done.best_score:.2f} %")
    out.print(f"Weights: {done.weights}", soft_wrap=True)
