"""Commands about codecnn itself: demo and doctor."""

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from codecnn.api.groups import FileName, Jobs, NoOptions
from codecnn.base.options import option, record, verb
from codecnn.cli.commands import command
from codecnn.cli.console import err, out, print_gains, print_json, print_table, progress

if TYPE_CHECKING:
    from codecnn.cli.doctor import Finding


@record
class DemoOptions:
    """Options of `demo`."""

    output: Annotated[FileName, option("-o", "--output", help="Folder for all files of the demo.")] = Path("demo")
    _: KW_ONLY
    jobs: Jobs = 2


@verb(DemoOptions)
def demo(options: DemoOptions) -> dict[str, Any]:
    """Build, train, evaluate and correlate on the pictures of scikit-image, in minutes on two cores.

    If it is interrupted, run it again to continue.
    """
    from codecnn.api.demo import run_demo

    def say(text: str) -> None:
        err.print(text, soft_wrap=True)

    return run_demo(Path(options.output), jobs=options.jobs, say=say, progress=progress)


@command("demo", demo, "codecnn demo -o demo", threads=True, json=False, resumable=True)
def show_demo(options: DemoOptions, results: dict[str, Any], _as_json: bool) -> None:
    """Print gains and correlation."""
    output = Path(options.output)
    print_gains(results["evaluation"])
    if (correlation := results.get("correlation")) is not None:
        out.print(
            f"Correlation with the coding error ({correlation['n']} CTUs): "
            f"QP {correlation['pearson']['qp']:.3f}, depth {correlation['pearson']['depth']:.3f}, "
            f"a·QP + b·depth {correlation['bayes']['r']:.3f}"
        )
    out.print(f"Report: {output / 'evaluation' / 'report.html'}")
    if correlation is not None:
        out.print(f"Correlation: {output / 'correlation' / 'correlation.md'}")


@verb(NoOptions)
def doctor(_options: NoOptions) -> "list[Finding]":
    """Show what is installed, missing or slow: ffmpeg, encoders, torch, GPU, cores, AMX, VNNI.

    The exit status is 1 if something required is missing.
    """
    from codecnn.cli.doctor import examine

    return examine()


@command("doctor", doctor, "codecnn doctor")
def show_findings(_options: NoOptions, findings: "list[Finding]", as_json: bool) -> None:
    """Print a table; status 1 if something required is missing."""
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        table = Table("what", "found", "")
        for finding in findings:
            table.add_row(
                finding.what, finding.found, "ok" if finding.ok else "not used" if finding.optional else "missing"
            )
        print_table(table)
        for finding in findings:
            if finding.advice:
                out.print(f"{finding.what}: {finding.advice}", markup=False, highlight=False, soft_wrap=True)
    if not all(finding.ok or finding.optional for finding in findings):
        raise typer.Exit(1)
