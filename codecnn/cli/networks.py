"""Networks and their cost."""

from typing import Annotated

import typer
from rich.table import Table

from codecnn.cli.app import app
from codecnn.cli.options import Json
from codecnn.console import out, print_facts, print_json
from codecnn.errors import ConfigError


@app.command()
def models(as_json: Json = False) -> None:
    """The networks that `train` and `complexity` know."""
    from codecnn.models import describe_model, list_models

    if as_json:
        print_json([{"name": name, "description": describe_model(name)} for name in list_models()])
        return
    table = Table("name", "network")
    for name in list_models():
        table.add_row(name, describe_model(name))
    out.print(table)


@app.command()
def complexity(
    model: Annotated[str | None, typer.Argument(help="a network's name, or weights .safetensors")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...", help="options of the network")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all networks, as a table in Markdown")] = False,
    as_json: Json = False,
) -> None:
    """What a network costs: kMAC/pixel without and with the halo of a 128x128 CTU, parameters, reach, peak memory."""
    from codecnn.config import parse_overrides
    from codecnn.models import complexity_table, create_model, full_cost, list_models, load_model

    if every == (model is not None):
        raise typer.BadParameter("give the name of a network, or --all")
    if model is None:
        if as_json:
            print_json([{"model": name} | full_cost(create_model(name)) for name in list_models()])
        else:
            out.print(complexity_table(), markup=False, highlight=False, soft_wrap=True)
        return
    options = parse_overrides(overrides or ())
    if model.endswith(".safetensors"):
        if options:
            raise ConfigError("weights bring their own options; give none")
        network = load_model(model)[0]
    else:
        network = create_model(model, **options)
    print_facts({"model": model} | full_cost(network), as_json)
