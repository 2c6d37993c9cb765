"""Networks for other programs: ONNX, ONNX for SADL, 16-bit integers."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Device, Json, Model
from codecnn.console import print_facts, progress
from codecnn.errors import ConfigError, ToolMissingError


@app.command()
def export(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="what is written: .onnx, or .safetensors for int16")],
    form: Annotated[
        Literal["onnx", "sadl", "int16"],
        typer.Option("--format", help="ONNX; ONNX of few operators for one QP; 16-bit integers"),
    ] = "onnx",
    qp: Annotated[int | None, typer.Option("-q", "--qp", help="for sadl: the slice QP that the graph is for")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="for int16: the store to calibrate on")] = None,
    split: Annotated[str, typer.Option("--split", help="for int16: of the store")] = "train",
    pictures: Annotated[int, typer.Option("--pictures", min=1, help="for int16: pictures a QP to calibrate on")] = 4,
    accumulator_bits: Annotated[
        int, typer.Option("--accumulator-bits", help="for int16: 32, or down to 25, faster here and coarser")
    ] = 32,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write a trained network for other programs, and check that what was written computes what the network does."""
    suffix = ".safetensors" if form == "int16" else ".onnx"
    if output.suffix != suffix:
        raise ConfigError(f"{output}: the format {form} is written to a file that ends in {suffix}")
    if output.resolve() == model.resolve():
        raise ConfigError(f"the export would overwrite the weights {model}")
    if (form == "int16") != (store is not None):
        raise ConfigError("the format int16, and no other, needs a store to calibrate on: --store")
    facts: dict[str, Any] = {"model": str(model), "format": form, "file": str(output)}
    if store is not None:
        facts |= _integers(model, output, store, split, pictures, accumulator_bits, device)
    else:
        facts |= _onnx(model, output, form, qp)
    if not as_json and "largest_difference_to_pytorch" in facts:
        facts["largest_difference_to_pytorch"] = f"{facts['largest_difference_to_pytorch']:.1e}"
    print_facts(facts, as_json)


def _integers(
    model: Path, output: Path, store: Path, split: str, pictures: int, accumulator_bits: int, device: str
) -> dict[str, Any]:
    from codecnn.dataset.store import open_store
    from codecnn.filtering.integer import integer_network, load_integer, save_integer
    from codecnn.models import load_model
    from codecnn.training import pick_device

    network, card = load_model(model)
    where = pick_device(device)
    with progress("calibrating", "picture") as report:
        integers, made = integer_network(
            network.to(where),
            card,
            open_store(store),
            split,
            pictures=pictures,
            accumulator_bits=accumulator_bits,
            device=where,
            progress=report,
        )
    save_integer(output, integers, made)
    load_integer(output)
    return {"bit_depth": integers.bit_depth, "accumulator_bits": integers.accumulator_bits}


def _onnx(model: Path, output: Path, form: str, qp: int | None) -> dict[str, Any]:
    from codecnn.models import load_model

    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise ToolMissingError(f"the format {form} needs the package {name}: pip install 'codecnn[export]'")
    from codecnn.models.graph.onnx_file import OPSET, export_onnx

    network, _ = load_model(model)
    if form == "sadl" and qp is None and "qp" in network.planes:
        raise ConfigError("the network depends on the QP, and a graph for SADL is for one QP: name it with --qp")
    if form == "onnx" and qp is not None:
        raise ConfigError("a graph of the format onnx takes the QP as an input: leave --qp away")
    # A network that does not know the QP is the same for every one.
    difference = export_onnx(output, network, qp=(qp or 0) if form == "sadl" else None)
    return {"opset": OPSET, "largest_difference_to_pytorch": difference}
