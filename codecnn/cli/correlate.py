"""The correlation analysis."""

from pathlib import Path
from typing import Annotated

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Json
from codecnn.console import out, print_json


@app.command()
def correlate(
    source: Annotated[
        Path, typer.Argument(metavar="STORE|TABLE", help="a store or an evaluation, or a table .parquet or .csv")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for correlation.json, tables and plots")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the search, the bootstrap and the splits")] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=0, help="of the bootstrap; 0 leaves the intervals out")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """How QP and CU depth relate to the error the codec leaves: correlations, and the best a·QP + b·depth."""
    from codecnn import analysis
    from codecnn.dataset import UNITS, open_store

    if (source / UNITS).exists() or (source / "coded").exists():
        open_store(source)  # says what is wrong with an unfinished one
    table = analysis.check_table(analysis.load_table(source))
    result = analysis.correlate(table, seed=seed, resamples=resamples)
    analysis.write_correlation(output, result, table)
    if as_json:
        print_json(result.as_json())
    else:
        text = (output / "correlation.md").read_text(encoding="utf-8")
        out.print(text, markup=False, highlight=False, soft_wrap=True)
