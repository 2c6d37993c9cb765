"""Sanity of a training set-up."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from codecnn.cli.app import app
from codecnn.cli.options import Json, Overrides
from codecnn.console import out, print_json, progress

_STYLES = {"pass": "green", "fail": "bold red", "skipped": "dim"}


@app.command()
def check(
    config: Annotated[Path, typer.Argument(help="a configuration such as configs/demo.yaml")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Check a training set-up before the hours are spent; exit 1 where a check fails.

    Takes what `train` takes and says what would go wrong: a network that does not start as the identity or cannot
    learn, arithmetic that is not what it should be, data that is not what it seems, a machine that is not free. See
    docs/check.md for every check.
    """
    from codecnn.config import load_config

    with progress("checking", "check") as report:
        findings = load_config(config, overrides or ()).check(report)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table("check", "verdict", "measured")
        for finding in findings:
            table.add_row(finding.name, Text(finding.verdict, _STYLES[finding.verdict]), Text(finding.measured))
        out.print(table)
        for finding in findings:
            if finding.verdict == "fail":
                out.print(f"{finding.name}: {finding.hint}", markup=False, highlight=False, soft_wrap=True)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)
