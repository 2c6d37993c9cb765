"""Commands of training: check a set-up, train, and compare two networks."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from codecnn.api.comparison import CompareOptions, Comparison, compare
from codecnn.api.training import CheckOptions, TrainOptions, check, train
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_json, print_table
from codecnn.cli.options import advise_threads

if TYPE_CHECKING:
    from codecnn.training import LayerDifference, TrainingResult
    from codecnn.training.checks import Finding

_STYLES = {"pass": "green", "note": "yellow", "fail": "bold red", "skipped": "dim"}


def _advise_threads(options: CheckOptions | TrainOptions, _as_json: bool) -> CheckOptions | TrainOptions:
    """Say that other processes slow down a training that does not state its number of threads."""
    from codecnn.api.config import load_config
    from codecnn.base.runtime import default_threads

    settings = load_config(options.config, options.overrides).training
    if settings.threads is None and not (isinstance(options, TrainOptions) and options.resume):
        advise_threads(settings.device, default_threads())
    return options


@command(
    "check",
    check,
    "codecnn check configs/demo.yaml store=stores/demo",
    trust=True,
    before=_advise_threads,
)
def show_findings(_options: CheckOptions, findings: "list[Finding]", as_json: bool) -> None:
    """Print a table of the checks; status 1 if one fails."""
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table("check", "verdict", "measured")
        for finding in findings:
            table.add_row(finding.name, Text(finding.verdict, _STYLES[finding.verdict]), Text(finding.measured))
        print_table(table)
        for finding in findings:
            if finding.hint:
                out.print(f"{finding.name}: {finding.hint}", markup=False, highlight=False, soft_wrap=True)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)


@command(
    "train",
    train,
    "codecnn train configs/demo.yaml store=stores/demo training.steps=20000 -o runs/first",
    trust=True,
    before=_advise_threads,
)
def show_trained(_options: TrainOptions, result: "TrainingResult", as_json: bool) -> None:
    """Print the best score and the warnings of the training, which have scrolled out of sight."""
    from codecnn.base.files import read_jsonl
    from codecnn.models import read_card
    from codecnn.training import LOG, is_first

    if not is_first():
        return
    is_filter = read_card(result.weights).task != "modes"
    warnings = [event for event in read_jsonl(result.weights.parent / LOG) if event["event"] == "warning"]
    if as_json:
        best = {"best_gain": result.best_score} if is_filter else {}
        files = {"weights": str(result.weights), "warnings": [event["text"] for event in warnings]}
        facts = {"best_score": result.best_score, "runtime": result.runtime.as_json()}
        print_json(result.last | facts | best | files)
        return
    for event in warnings:
        out.print(f"Warning after step {event['step']}: {event['text']}", soft_wrap=True)
    if is_filter:
        out.print(f"Best mean gain on the validation pictures: {result.best_score:+.4f} dB")
    else:
        out.print(f"Lowest excess cost on the validation pictures: {-result.best_score:.2f} %")
    out.print(f"Weights: {result.weights}", soft_wrap=True)


@command("compare", compare, "codecnn compare runs/a/best.safetensors runs/b/best.safetensors", trust=True)
def show_differences(_options: CompareOptions, result: Comparison, as_json: bool) -> None:
    """Print the differences of the layers; status 1 if one is too large."""
    first = result.first
    if as_json:
        print_json(
            {"tolerance": result.tolerance, "first": first and first.name, "not_compared": result.not_compared}
            | {"layers": [{key: _finite(value) for key, value in asdict(row).items()} for row in result.layers]}
        )
    else:
        _print_rows(result.layers, first)
        if result.not_compared:
            names = ", ".join(result.not_compared)
            out.print(f"Not compared because they are folded: {names}", markup=False, soft_wrap=True)
        out.print(_sentence(first, result.tolerance), markup=False, highlight=False, soft_wrap=True)
    if first is not None:
        raise typer.Exit(1)


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
