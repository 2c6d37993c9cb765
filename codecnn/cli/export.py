"""Networks for other programs: ONNX, ONNX for SADL, integers of 8 and 16 bits."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cli.application import app
from codecnn.cli.options import Device, Json, Model
from codecnn.console import print_facts, progress


@app.command()
def export(
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="what is written: .onnx, or .safetensors for integers")
    ],
    form: Annotated[
        Literal["onnx", "sadl", "int8", "int16"],
        typer.Option("--format", help="ONNX; ONNX of few operators for one QP; integers of 8 or 16 bits"),
    ] = "onnx",
    qp: Annotated[int | None, typer.Option("-q", "--qp", help="for sadl: the slice QP that the graph is for")] = None,
    store: Annotated[
        list[Path] | None, typer.Option("--store", help="for integers: the store to calibrate on; may be repeated")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="for integers: of the store")] = "train",
    pictures: Annotated[int, typer.Option("--pictures", min=1, help="for integers: pictures a QP to calibrate on")] = 4,
    accumulator_bits: Annotated[
        int, typer.Option("--accumulator-bits", help="for int16: 32, or down to 25, faster here and coarser")
    ] = 32,
    loss: Annotated[
        float | None,
        typer.Option("--loss", min=0.0, help="for int8: dB that bytes may lose on these pictures; inf for bytes alone"),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write a trained network for other programs, and check that what was written computes what the network does."""
    from codecnn import verbs

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
            progress=report,
        )
    if not as_json and "largest_difference_to_pytorch" in facts:
        facts["largest_difference_to_pytorch"] = f"{facts['largest_difference_to_pytorch']:.1e}"
    print_facts({"model": str(model), "format": form, "file": str(output), **facts}, as_json)
