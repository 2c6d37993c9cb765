"""The command of the correlation analysis."""

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.groups import FileName
from codecnn.base.options import argument, option, record, verb
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_json

if TYPE_CHECKING:
    from codecnn.analysis import Correlation


@record
class CorrelateOptions:
    """Options of `correlate`."""

    source: Annotated[
        FileName,
        argument("Store, folder of an evaluation, or table (.parquet, .csv).", "STORE|TABLE", kind=Path),
    ]
    output: Annotated[FileName, option("-o", "--output", help="Folder for correlation.json, tables and plots.")]
    _: KW_ONLY
    seed: Annotated[int, option("--seed", minimum=0, help="Seed of the search, the bootstrap and the splits.")] = 0
    resamples: Annotated[
        int, option("--resamples", minimum=0, help="Number of bootstrap resamples; 0 computes no intervals.")
    ] = 1000


@verb(CorrelateOptions)
def correlate(options: CorrelateOptions) -> "Correlation":
    """Correlate QP and CU depth with the coding error, and find the best combination a·QP + b·depth."""
    from codecnn import analysis
    from codecnn.base.outputs import check_outputs, claim_results
    from codecnn.dataset import UNITS, input_files, open_store

    source, output = Path(options.source), Path(options.output)
    inputs = [source / "ctus.parquet", *input_files(source)] if source.is_dir() else [source]
    check_outputs([output / name for name in analysis.RESULT_FILES], inputs)
    if (source / UNITS).exists() or (source / "coded").exists():
        open_store(source)  # raises an error for an incomplete store
    table = analysis.check_table(analysis.load_table(source))
    claim_results(output, analysis.RESULT_FILES)
    result = analysis.correlate(table, seed=options.seed, resamples=options.resamples)
    analysis.write_correlation(output, result, table)
    return result


@command("correlate", correlate, "codecnn correlate stores/demo -o correlation")
def show_correlation(options: CorrelateOptions, result: "Correlation", as_json: bool) -> None:
    """Print the report."""
    if as_json:
        print_json(result.as_json())
    else:
        text = (Path(options.output) / "correlation.md").read_text(encoding="utf-8")
        out.print(text, markup=False, highlight=False, soft_wrap=True)
