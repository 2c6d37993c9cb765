"""Networks and their cost."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from codecnn.cli.app import app
from codecnn.cli.options import Json
from codecnn.console import out, print_facts, print_json
from codecnn.errors import ConfigError

if TYPE_CHECKING:
    from codecnn.models import Card


@app.command()
def models(as_json: Json = False) -> None:
    """The networks that `train` and `complexity` know, and the trained weights that `filter` and `evaluate` do."""
    from codecnn.models import describe_model, list_models, zoo_cards

    cards = zoo_cards()
    if as_json:
        listed = []
        for name in list_models():
            weights = [_weights(stem, card) for stem, card in cards.items() if card.network == name]
            listed.append({"name": name, "description": describe_model(name), "weights": weights})
        print_json(listed)
        return
    table = Table(Column("name", no_wrap=True), "network")
    for name in list_models():
        table.add_row(name, describe_model(name))
    out.print(table)
    table = Table(Column("weights", no_wrap=True), "kMAC/pixel", "planes", "gain, dB", "BD-rate", "mean of")
    for stem, card in cards.items():
        facts = _weights(stem, card)
        table.add_row(
            stem,
            f"{facts['kmac_per_pixel']:.1f}",
            " ".join(facts["planes"]),
            "not tested" if facts["mean_gain_db"] is None else f"{facts['mean_gain_db']:+.3f}",
            "" if facts["bd_rate"] is None else f"{facts['bd_rate']:+.2f} %",
            _mean_of(card),
        )
    out.print(table)


def _mean_of(card: "Card") -> str:
    """What the figures of a card are means of: classes of pictures, or the pictures of one class."""
    if card.test is None or card.test.over_classes:
        return f"{card.test.over_classes.classes} classes" if card.test and card.test.over_classes else ""
    return f"{card.test.store.pictures} pictures" if card.test.store else ""


def _weights(name: str, card: "Card") -> dict[str, Any]:
    """The facts by which a user chooses weights; gains and BD-rate are of luma, from the card's test, or None.

    The mean gain and the BD-rate are those over classes of pictures where the test had several.
    """
    gain, rate = card.test.luma if card.test else (None, None)
    return {
        "name": name,
        "kmac_per_pixel": card.kmac_per_pixel,
        "planes": card.options["planes"],
        "classes": card.test.over_classes.classes if card.test and card.test.over_classes else None,
        "gain_db": card.test.gain_db["y"] if card.test else None,
        "mean_gain_db": gain,
        "bd_rate": rate,
    }


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
