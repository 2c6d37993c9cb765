"""Commands of training: check a set-up, train, and compare two networks."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from codecnn.cli.application import app
from codecnn.cli.console import out, print_json, print_table, progress
from codecnn.cli.options import BitDepth, Chroma, Json, Overrides, Size, Trust, advise_threads

if TYPE_CHECKING:
    from torch import Tensor

    from codecnn.models import FilterNetwork
    from codecnn.training import LayerDifference

Precision = Literal["float32", "float64", "bfloat16"]
Config = Annotated[Path, typer.Argument(help="Training configuration, e.g. configs/demo.yaml.")]

_STYLES = {"pass": "green", "fail": "bold red", "skipped": "dim"}


@app.command()
def check(config: Config, overrides: Overrides = None, trust: Trust = None, as_json: Json = False) -> None:
    """Check a training set-up before a long training; the exit status is 1 if a check fails.

    Takes the arguments of `train`. Among others it checks that the network starts as the identity and can learn, that
    arithmetic and data are valid, and that the machine is free. docs/howto/check.md lists all checks.
    """
    from codecnn.api.config import load_config
    from codecnn.base.runtime import default_threads

    loaded = load_config(config, overrides or ())
    if loaded.training.threads is None:
        advise_threads(loaded.training.device, default_threads())
    with progress("checking", "check") as report:
        findings = loaded.check(report)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table("check", "verdict", "measured")
        for finding in findings:
            table.add_row(finding.name, Text(finding.verdict, _STYLES[finding.verdict]), Text(finding.measured))
        print_table(table)
        for finding in findings:
            if finding.verdict == "fail":
                out.print(f"{finding.name}: {finding.hint}", markup=False, highlight=False, soft_wrap=True)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)


@app.command()
def train(
    config: Config,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of the run (default: runs/NAME of the configuration).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint of the run.")] = False,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Train a network and keep the weights with the best validation result.

    Trains an in-loop filter on a store, or with `task: intra_modes` an intra mode classifier on tables of `codecnn
    labels`. On several GPUs or machines: torchrun -m codecnn train CONFIG. SIGTERM and Ctrl-C write a checkpoint first.
    """
    from codecnn import api as verbs
    from codecnn.api.config import load_config
    from codecnn.base.files import read_jsonl
    from codecnn.base.runtime import default_threads
    from codecnn.training import LOG, is_first
    from codecnn.training import train as run_training

    loaded = load_config(config, overrides or ())
    run = output or Path("runs") / config.stem
    verbs.check_run(config, loaded, run)
    if loaded.training.threads is None and not resume:
        advise_threads(loaded.training.device, default_threads())
    result = run_training(loaded, run, resume=resume, progress=True)
    if not is_first():
        return
    # Warnings of a long training have scrolled out of sight.
    warnings = [event for event in read_jsonl(result.weights.parent / LOG) if event["event"] == "warning"]
    if as_json:
        best = {"best_gain": result.best_score} if loaded.task == "filter" else {}
        files = {"weights": str(result.weights), "warnings": [event["text"] for event in warnings]}
        facts = {"best_score": result.best_score, "runtime": result.runtime.as_json()}
        print_json(result.last | facts | best | files)
        return
    for event in warnings:
        out.print(f"Warning after step {event['step']}: {event['text']}", soft_wrap=True)
    if loaded.task == "filter":
        out.print(f"Best mean gain on the validation pictures: {result.best_score:+.4f} dB")
    else:
        out.print(f"Lowest excess cost on the validation pictures: {-result.best_score:.2f} %")
    out.print(f"Weights: {result.weights}", soft_wrap=True)


@app.command()
def compare(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="First weights: a name from `codecnn models`, or a .safetensors file.")
    ],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="Second weights (default: those of A).")] = None,
    source: Annotated[
        Path | None, typer.Option("-i", "--input", help="Input: a store, or decoded pictures (default: noise).")
    ] = None,
    qp: Annotated[int, typer.Option("-q", "--qp", min=0, max=63, help="Slice QP of the decoded pictures.")] = 37,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    device_a: Annotated[str, typer.Option("--device-a", help="Device of A: auto, cpu, cuda or cuda:N.")] = "cpu",
    device_b: Annotated[str, typer.Option("--device-b", help="Device of B: auto, cpu, cuda or cuda:N.")] = "cpu",
    dtype_a: Annotated[
        Precision, typer.Option("--dtype-a", help="Precision of A; bfloat16 runs under autocast.")
    ] = "float32",
    dtype_b: Annotated[
        Precision, typer.Option("--dtype-b", help="Precision of B; bfloat16 runs under autocast.")
    ] = "float32",
    compile_b: Annotated[bool, typer.Option("--compile-b", help="Compile B with torch.compile.")] = False,
    prepared_b: Annotated[
        bool, typer.Option("--prepared-b", help="Prepare B as for filtering: fold layers and change the memory layout.")
    ] = False,
    tf32: Annotated[
        bool, typer.Option("--tf32", help="Let a GPU multiply float32 in TF32, as training may do.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Allowed difference relative to the largest magnitude of a tensor, e.g. 1e-4 "
            "(default: 0, or the rounding error of the two variants).",
        ),
    ] = None,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Run two networks on the same input and name the first layer whose outputs differ; then the exit status is 1.

    Compares checkpoints, or the same weights on another device, in another precision, compiled, or prepared for
    filtering. See docs/howto/check.md.
    """
    from codecnn import training
    from codecnn.models import load_model

    first, _ = load_model(a)
    second, _ = load_model(b or a)
    planes = _input(first, source, qp, size=size, bit_depth=bit_depth, chroma=chroma)
    network_a = training.variant(first, device=device_a, dtype=dtype_a)
    network_b = training.variant(second, device=device_b, dtype=dtype_b, compiled=compile_b, prepared=prepared_b)
    skip = training.folded_layers(second, network_b) if prepared_b else []
    if tolerance is None:
        alike = device_a == device_b and dtype_a == dtype_b and not compile_b and not prepared_b
        tolerance = training.default_tolerance(alike, "bfloat16" in (dtype_a, dtype_b), tf32)
    with training.exact_float32(not tf32):
        rows = training.compare_networks(network_a, network_b, planes, tolerance=tolerance, skip=skip)
    difference = training.first_difference(rows)
    if as_json:
        print_json(
            {"tolerance": tolerance, "first": difference and difference.name, "not_compared": skip}
            | {"layers": [{key: _finite(value) for key, value in asdict(row).items()} for row in rows]}
        )
    else:
        _print_rows(rows, difference)
        if skip:
            out.print(f"Not compared because they are folded: {', '.join(skip)}", markup=False, soft_wrap=True)
        out.print(_sentence(difference, tolerance), markup=False, highlight=False, soft_wrap=True)
    if difference is not None:
        raise typer.Exit(1)


def _input(model: "FilterNetwork", source: Path | None, qp: int, **geometry: Any) -> "dict[str, Tensor]":
    from codecnn.dataset import is_store, open_store
    from codecnn.pictures.files import open_video
    from codecnn.training import noise_planes, picture_planes, store_planes

    if source is None:
        return noise_planes(model)
    if is_store(source):
        return store_planes(model, open_store(source))
    with open_video(source, **geometry) as video:
        return picture_planes(model, video[0], qp)


def _print_rows(rows: "list[LayerDifference]", difference: "LayerDifference | None") -> None:
    table = Table("layer", "shape", "largest difference", "relative", "first position")
    for row in rows:
        shape = _shape(row.shape_a)
        if row.maximum is None or row.relative is None:
            cells = [f"{shape} and {_shape(row.shape_b)}", "-", "-", "-"]
        else:
            position = "-" if row.first is None else ", ".join(map(str, row.first))
            cells = [shape, f"{row.maximum:.3g}", f"{row.relative:.2g}", position]
        table.add_row(Text(row.name), *cells, style="bold red" if row is difference else None)
    print_table(table)


def _sentence(difference: "LayerDifference | None", tolerance: float) -> str:
    if difference is None:
        return f"No layer differs by more than {tolerance:g} of its largest magnitude."
    if difference.maximum is None:
        shapes = f"{_shape(difference.shape_a)} in A, {_shape(difference.shape_b)} in B"
        return f"First difference: {difference.name} has the shape {shapes}."
    return (
        f"First difference: {difference.name}, by up to {difference.maximum:.3g}, "
        f"{difference.relative:.2g} of its largest magnitude."
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _finite(value: object) -> object:
    """Replace infinity, which JSON does not have, by its name."""
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
