"""Commands on networks: list, complexity, and export to other formats."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Column, Table

from codecnn.base.errors import ConfigError
from codecnn.cli.application import app
from codecnn.cli.console import out, print_facts, print_json, print_table, progress
from codecnn.cli.options import Device, Json, Model, Trust

if TYPE_CHECKING:
    from codecnn.models import Card, ShippedWeights


@app.command()
def models(as_json: Json = False) -> None:
    """List the weights that `filter` and `evaluate` take by name, and the architectures that `train` takes."""
    from codecnn.models import describe_model, list_models, shipped_weights

    shipped = sorted(shipped_weights(), key=lambda weights: (weights.card.kmac_per_pixel or 0.0, weights.name))
    if as_json:
        known = list_models()
        by_network: dict[str, list[dict[str, Any]]] = {name: [] for name in known}
        for weights in shipped:
            name = weights.architecture if weights.architecture in known else str(weights.card.network)
            by_network[name].append(_facts(weights))
        print_json(
            [
                {"name": name, "description": describe_model(name), "weights": facts}
                for name, facts in by_network.items()
            ]
        )
        return
    table = Table(
        Column("weights", no_wrap=True),
        Column("*", no_wrap=True),
        Column("kMAC/\npixel", justify="right", no_wrap=True),
        Column("parame-\nters", justify="right", no_wrap=True),
        "planes",
        "trained on",
        Column("inte-\ngers", no_wrap=True),
        Column("BD-rate\nY, %", justify="right"),
        box=None,
        # Every word fits into a terminal of 80 characters.
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for weights in shipped:
        facts = _facts(weights)
        table.add_row(
            weights.full_name,
            "*" if weights.default else "",
            f"{facts['kmac_per_pixel']:.1f}",
            f"{facts['parameters']:,}",
            " ".join(facts["planes"]),
            facts["trained_on"],
            " ".join(suffix.removeprefix("int") for suffix in weights.integers),
            "not tested" if facts["bd_rate"] is None else f"{facts['bd_rate']:+.2f}",
        )
    print_table(table)
    untrained = sorted(set(list_models()) - {weights.architecture for weights in shipped})
    out.print("* The architecture alone, e.g. low_cost_17, names these weights.")
    out.print("Integers of 8 bits are named with the suffix .int8, e.g. low_cost_17.int8.")
    out.print(f"Architectures without weights, for train and complexity: {', '.join(untrained)}")


def _facts(weights: "ShippedWeights") -> dict[str, Any]:
    """Return the facts by which a user chooses weights; gain and BD-rate are of luma, or None without a test.

    Mean gain and BD-rate are means over classes of pictures if the test has several.
    """
    card = weights.card
    gain, rate = card.test.luma if card.test else (None, None)
    return {
        "name": weights.name,
        "kmac_per_pixel": card.kmac_per_pixel,
        "planes": card.options["planes"],
        "classes": card.test.over_classes.classes if card.test and card.test.over_classes else None,
        "gain_db": card.test.gain_db["y"] if card.test else None,
        "mean_gain_db": gain,
        "bd_rate": rate,
        "full_name": weights.full_name,
        "architecture": weights.architecture,
        "tag": weights.tag,
        "default": weights.default,
        "parameters": card.parameters,
        "trained_on": _trained_on(card),
        "integers": list(weights.integers),
    }


def _trained_on(card: "Card") -> str:
    """Return codecs and configurations of the training pictures, e.g. "vvc ai, ldb, ra"."""
    configurations: dict[str, set[str]] = {}
    for store in card.trained_on or ():
        configurations.setdefault(store.codec, set()).add(store.configuration)
    return "; ".join(f"{codec} {', '.join(sorted(names))}" for codec, names in sorted(configurations.items()))


@app.command()
def complexity(
    model: Annotated[
        str | None, typer.Argument(help="Name of a network, e.g. rdn or my_networks:Net, or a .safetensors file.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...", help="Options of the network, e.g. blocks=4.")
    ] = None,
    all_networks: Annotated[bool, typer.Option("--all", help="Show all networks as a Markdown table.")] = False,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Show kMAC/pixel without and with the halo of a 128x128 CTU, parameters, receptive field and peak memory."""
    from codecnn.api.config import parse_overrides
    from codecnn.models import complexity_table, create_model, full_cost, list_models, load_model

    if all_networks == (model is not None):
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
            raise ConfigError(f"{model} has fixed options: leave out {' '.join(overrides or ())}")
        network = load_model(model)[0]
    else:
        network = create_model(model, **options)
    print_facts({"model": model} | full_cost(network), as_json)


@app.command()
def export(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .onnx, or .safetensors for integers.")],
    form: Annotated[
        Literal["onnx", "nnpfc", "sadl", "int8", "int16"],
        typer.Option(
            "--format",
            help="onnx; nnpfc: ONNX with the tensors of post-filter messages (codecnn nnpf); sadl: ONNX with the "
            "operators of SADL, for one QP; int8, int16: integers of 8 or 16 bits.",
        ),
    ] = "onnx",
    qp: Annotated[
        int | None, typer.Option("-q", "--qp", help="Slice QP of a graph for sadl or nnpfc, e.g. 37.")
    ] = None,
    bit_depth: Annotated[
        int, typer.Option("--bit-depth", min=8, max=16, help="Bits per sample of a graph for nnpfc.")
    ] = 10,
    patch: Annotated[
        str | None,
        typer.Option("--patch", metavar="WxH", help="Patches of nnpfc in luma samples, e.g. 128x128 (default: any)."),
    ] = None,
    overlap: Annotated[
        int | None, typer.Option("--overlap", help="Luma samples around a patch of nnpfc (default: the halo).")
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            "--picture",
            metavar="WxH",
            help="Pictures of nnpfc that are one patch each, e.g. 1920x1080; the network repeats the samples of their "
            "edges itself.",
        ),
    ] = None,
    max_qp: Annotated[int, typer.Option("--max-qp", help="QP of strength 1 of nnpfc: 63 for VVC, 51 for HEVC.")] = 63,
    adaptable: Annotated[
        bool,
        typer.Option(
            "--adaptable",
            help="Add tensors to a graph for nnpfc that an update in the stream changes (codecnn nnpf write --onnx URI "
            "--adapt UPDATE).",
        ),
    ] = False,
    store: Annotated[
        list[Path] | None, typer.Option("--store", help="Store to calibrate integers on; may be repeated.")
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="Split of the stores to calibrate integers on: train, val or test.")
    ] = "train",
    pictures: Annotated[
        int, typer.Option("--pictures", min=1, help="Number of pictures per QP to calibrate integers on.")
    ] = 4,
    accumulator_bits: Annotated[
        int,
        typer.Option(
            "--accumulator-bits", help="Width of the sums of int16, 25 to 32 bits; fewer bits are faster but coarser."
        ),
    ] = 32,
    loss: Annotated[
        float | None,
        typer.Option(
            "--loss",
            min=0.0,
            help="Largest loss of int8 in dB on the calibration pictures, e.g. 0.002; inf uses 8 bits everywhere "
            "(default: 0.004).",
        ),
    ] = None,
    device: Device = "auto",
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Write a trained network in another format, and check that the file computes the same samples."""
    from codecnn import api as verbs
    from codecnn.pictures.files import parse_size

    with progress("calibrating", "picture") as report:
        facts = verbs.export(
            model,
            output,
            form,
            qp=qp,
            store=store,
            split=split,
            pictures=pictures,
            accumulator_bits=accumulator_bits,
            loss=loss,
            device=device,
            bit_depth=bit_depth,
            patch=None if patch is None else parse_size(patch),
            overlap=overlap,
            picture=None if picture is None else parse_size(picture),
            max_qp=max_qp,
            adaptable=adaptable,
            progress=report,
        )
    if not as_json and "largest_difference_to_pytorch" in facts:
        facts["largest_difference_to_pytorch"] = f"{facts['largest_difference_to_pytorch']:.1e}"
    print_facts({"model": str(model), "format": form, "file": str(output), **facts}, as_json)
