"""Commands about codecnn itself: the demo, and what is here."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from codecnn.cli.app import app
from codecnn.cli.options import Jobs, Json
from codecnn.console import err, out, print_gains, print_json, progress


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for everything that the demo makes")] = Path(
        "demo"
    ),
    jobs: Jobs = 2,
) -> None:
    """All four jobs on the pictures that scikit-image brings: build, train, evaluate, correlate. Minutes on two cores.

    Run it again after an interruption and it goes on where it was.
    """
    from codecnn.demo import run_demo

    results = run_demo(output, jobs=jobs, say=err.print, progress=progress)
    for one in results["evaluation"]:
        print_gains(one)
    correlation = results["correlation"]
    out.print(
        f"Correlation with the codec's error ({correlation['n']} CTUs): "
        f"QP {correlation['pearson']['qp']:.3f}, depth {correlation['pearson']['depth']:.3f}, "
        f"a·QP + b·depth {correlation['bayes']['r']:.3f}"
    )
    out.print(f"Report: {output / 'evaluation' / 'report.html'}")
    out.print(f"Correlation: {output / 'correlation' / 'correlation.md'}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """What is here, what is missing and what would be faster: ffmpeg, encoders, torch, GPU, cores, AMX, VNNI.

    Exit 1 when something needed is missing.
    """
    from codecnn.doctor import examine

    findings = examine()
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        table = Table("what", "found", "")
        for finding in findings:
            table.add_row(
                finding.what, finding.found, "ok" if finding.ok else "not here" if finding.optional else "missing"
            )
        out.print(table)
        for finding in findings:
            if finding.advice:
                out.print(f"{finding.what}: {finding.advice}", markup=False, highlight=False, soft_wrap=True)
    if not all(finding.ok or finding.optional for finding in findings):
        raise typer.Exit(1)
