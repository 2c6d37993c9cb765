"""Commands of evaluation: gain and BD-rate of filters, and JVET tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.evaluation import EvaluateOptions, evaluate
from codecnn.api.groups import FileName
from codecnn.api.measuring import MeasureOptions, measure
from codecnn.base.options import argument, option, record, verb
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_facts, print_gains, print_json, print_table, print_tables

if TYPE_CHECKING:
    from codecnn.evaluation import ResultsList, Table, VideoQuality


@command(
    "evaluate",
    evaluate,
    "codecnn evaluate clip_416x240_30.yuv -m low_cost_17 -q 22,27,32,37,42 -o results",
    threads=True,
    trust=True,
    resumable=True,
)
def show_results(options: EvaluateOptions, results: "ResultsList", as_json: bool) -> None:
    """Print gains and BD-rates."""
    from codecnn.evaluation import results_json

    if not results:
        shard = "/".join(map(str, options.shard))
        print_facts({"results": str(options.output), "shard": shard, "complete": False}, as_json)
    elif as_json:
        print_json(results_json(results))
    else:
        print_gains(results)
        out.print(f"Report: {Path(options.output) / 'report.html'}", soft_wrap=True)


@record
class JvetOptions:
    """Options of `jvet`."""

    results: Annotated[
        Sequence[FileName],
        argument("Folders written by `codecnn evaluate`, e.g. results/ra.", "RESULTS...", kind=Path, collect=list),
    ]
    output: Annotated[
        FileName, option("-o", "--output", help="Folder for jvet.csv, the workbook jvet.xlsx and report.html.")
    ]


@verb(JvetOptions)
def jvet(options: JvetOptions) -> "Sequence[Table]":
    """Merge evaluations of several configurations into one table in the layout of JVET's sheets.

    For each configuration the table lists classes, overall figures, sequences and picture types with the BD-rates of Y,
    U, V and YUV, gain, complexity and times.
    """
    from codecnn.evaluation import merge_results

    return merge_results([Path(folder) for folder in options.results], Path(options.output))


@command("jvet", jvet, "codecnn jvet results/ai results/ra results/ldb -o results/jvet")
def show_tables(options: JvetOptions, tables: "Sequence[Table]", as_json: bool) -> None:
    """Print the tables."""
    if as_json:
        print_json([row for table in tables for row in table.csv_rows()])
        return
    print_tables(tables)
    out.print(f"Report: {Path(options.output) / 'report.html'}", soft_wrap=True)


@command("measure", measure, "codecnn measure original.y4m decoded.mp4 filtered.mkv -o quality.html")
def show_qualities(options: MeasureOptions, qualities: "list[VideoQuality]", as_json: bool) -> None:
    """Print the mean of each metric by video."""
    from rich.table import Table as Grid

    if as_json:
        print_json({"original": str(options.original), "videos": [each.as_json() for each in qualities]})
        return
    grid = Grid("mean over pictures", *(each.video.name for each in qualities))
    for name in qualities[0].pictures:
        grid.add_row(name, *(f"{each.mean[name]:.4f}" for each in qualities))
    print_table(grid)
    if options.output is not None:
        out.print(f"Values of each picture: {options.output}", soft_wrap=True)
