"""The application that the commands register with, and its own options."""

from typing import Annotated

import typer

from codecnn import __version__
from codecnn.console import out

app = typer.Typer(
    help="Train CNN in-loop filters for VVC and HEVC on what the real encoders leave, and measure what they gain.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dataset_app = typer.Typer(help="Training sets: build, verify, look at.", no_args_is_help=True)
app.add_typer(dataset_app, name="dataset")
modes_app = typer.Typer(help="Intra modes: told by a network instead of a search.", no_args_is_help=True)
app.add_typer(modes_app, name="modes")


def _version(value: bool) -> None:
    if value:
        out.print(f"codecnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Options of every command."""
