"""Commands about codecnn itself: demo and doctor."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from codecnn.cli.application import app
from codecnn.cli.console import err, out, print_gains, print_json, print_table, progress
from codecnn.cli.options import Jobs, Json, limit_threads


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for all files of the demo.")] = Path("demo"),
    jobs: Jobs = 2,
) -> None:
    """Build, train, evaluate and correlate on the pictures of scikit-image, in minutes on two cores.

    If it is interrupted, run it again to continue.
    """
    from codecnn.api.demo import run_demo

    limit_threads()
    results = run_demo(output, jobs=jobs, say=err.print, progress=progress)
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


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show what is installed, missing or slow: ffmpeg, encoders, torch, GPU, cores, AMX, VNNI.

    The exit status is 1 if something required is missing.
    """
    from codecnn.cli.doctor import examine

    findings = examine()
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
