"""The application that all commands register with, its global options, and an example of every command."""

from typing import Annotated

import typer

from codecnn import __version__
from codecnn.cli.console import out

EXAMPLES: dict[str, str] = {}
"""Example of each command by its full name; the help of the command and messages about wrong usage show it.

Modules of parts add those of their commands.
"""

RESUMABLE: list[str] = []
"""Commands that continue when they are run again; modules of parts add theirs. A training states this itself."""

app = typer.Typer(
    help="Improve coded video with CNN filters, and train them on the coding error of VVC, HEVC, AV1 and AVC encoders.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dataset_app = typer.Typer(help="Build, verify and summarise training sets.", no_args_is_help=True)
app.add_typer(dataset_app, name="dataset")


def _version(value: bool) -> None:
    if value:
        out.print(f"codecnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Define the options in front of the command."""
