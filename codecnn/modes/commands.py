"""Commands on intra modes: labels by a full search, and prediction by a network."""

from typing import TYPE_CHECKING

import typer

from codecnn.cli.application import app
from codecnn.cli.commands import command
from codecnn.cli.console import print_facts
from codecnn.modes.labels import LabelOptions, PredictOptions, label_blocks, predict_block_modes

if TYPE_CHECKING:
    from codecnn.modes.labels import Labels

modes_app = typer.Typer(help="Predict intra modes with a network instead of a search.", no_args_is_help=True)
app.add_typer(modes_app, name="modes")


@command("labels", label_blocks, "codecnn labels -i pictures -o labels.parquet --cost dct")
def show_labels(options: LabelOptions, result: "Labels", as_json: bool) -> None:
    """Print the numbers of pictures and blocks."""
    if not result.complete:
        shard = "/".join(map(str, options.shard))
        print_facts({"labels": str(options.output), "shard": shard, "complete": False}, as_json)
        return
    print_facts({"labels": str(options.output), "pictures": result.pictures, "blocks": result.blocks}, as_json)


@command(
    "modes predict",
    predict_block_modes,
    "codecnn modes predict -i pictures -o modes.parquet --top 8 --cost dct",
    group=modes_app,
)
def show_modes(options: PredictOptions, result: "Labels", as_json: bool) -> None:
    """Print the numbers of pictures and blocks."""
    print_facts({"modes": str(options.output), "pictures": result.pictures, "blocks": result.blocks}, as_json)
