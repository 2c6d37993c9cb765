"""The correlation analysis."""

from pathlib import Path
from typing import Annotated

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Json
from codecnn.console import out, print_json


@app.command()
def correlate(
    source: Annotated[Path, typer.Argument(metavar="STORE|TABLE", help="a store, or a table .parquet or .csv")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for correlation.json, tables and plots")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the search and the bootstrap")] = 0,
    as_json: Json = False,
) -> None:
    """How QP and CU depth relate to the error the codec leaves: Pearson, and the best a·QP + b·depth."""
    from codecnn.analysis import correlate as run_correlation
    from codecnn.analysis import load_table, write_correlation
    from codecnn.ctu.store import open_store

    if source.is_dir():
        open_store(source)  # says what is wrong with an unfinished one
    columns = load_table(source)
    result = run_correlation(columns, seed=seed)
    write_correlation(output, result, columns)
    if as_json:
        print_json(result)
    else:
        out.print(
            (output / "correlation.md").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True
        )
