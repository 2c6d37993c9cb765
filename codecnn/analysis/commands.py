"""The command of the correlation analysis."""

from pathlib import Path
from typing import Annotated

import typer

from codecnn.cli import options as shared
from codecnn.cli.application import EXAMPLES, app
from codecnn.cli.console import out, print_json

EXAMPLES["correlate"] = "codecnn correlate stores/demo -o correlation"


@app.command()
def correlate(
    source: Annotated[
        Path, typer.Argument(metavar="STORE|TABLE", help="Store, folder of an evaluation, or table (.parquet, .csv).")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for correlation.json, tables and plots.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the search, the bootstrap and the splits.")] = 0,
    resamples: Annotated[
        int, typer.Option("--resamples", min=0, help="Number of bootstrap resamples; 0 computes no intervals.")
    ] = 1000,
    as_json: shared.Json = False,
) -> None:
    """Correlate QP and CU depth with the coding error, and find the best combination a·QP + b·depth."""
    from codecnn import analysis
    from codecnn.base.outputs import check_outputs, claim_results
    from codecnn.dataset import UNITS, input_files, open_store

    inputs = [source / "ctus.parquet", *input_files(source)] if source.is_dir() else [source]
    check_outputs([output / name for name in analysis.RESULT_FILES], inputs)
    if (source / UNITS).exists() or (source / "coded").exists():
        open_store(source)  # raises an error for an incomplete store
    table = analysis.check_table(analysis.load_table(source))
    claim_results(output, analysis.RESULT_FILES)
    result = analysis.correlate(table, seed=seed, resamples=resamples)
    analysis.write_correlation(output, result, table)
    if as_json:
        print_json(result.as_json())
    else:
        text = (output / "correlation.md").read_text(encoding="utf-8")
        out.print(text, markup=False, highlight=False, soft_wrap=True)
