"""Two networks layer by layer."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from codecnn.cli.app import app
from codecnn.cli.options import BitDepth, Chroma, Json, Size
from codecnn.console import out, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from codecnn.models import FilterNetwork
    from codecnn.training import LayerDifference

Precision = Literal["float32", "float64", "bfloat16"]


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="weights: a name of `codecnn models`, or a file")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="weights to compare with [those of A]")] = None,
    source: Annotated[
        Path | None, typer.Option("-i", "--input", help="a store, or decoded pictures; without one, noise")
    ] = None,
    qp: Annotated[int, typer.Option("-q", "--qp", min=0, max=63, help="of decoded pictures")] = 37,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    device_a: Annotated[str, typer.Option("--device-a", help="auto, cpu, cuda or cuda:N")] = "cpu",
    device_b: Annotated[str, typer.Option("--device-b", help="auto, cpu, cuda or cuda:N")] = "cpu",
    dtype_a: Annotated[Precision, typer.Option("--dtype-a", help="bfloat16: under autocast")] = "float32",
    dtype_b: Annotated[Precision, typer.Option("--dtype-b", help="bfloat16: under autocast")] = "float32",
    compile_b: Annotated[bool, typer.Option("--compile-b", help="by torch.compile")] = False,
    prepared_b: Annotated[bool, typer.Option("--prepared-b", help="folded and laid out, as filtering does it")] = False,
    tf32: Annotated[bool, typer.Option("--tf32", help="let a GPU multiply float32 in TF32, as training may")] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="relative to a tensor's largest magnitude [0; where rounding differs, what it makes]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run two networks on the same input and name the first layer whose outputs differ; exit 1 where one does.

    Another checkpoint, or the same one on another device, in another precision, compiled, or prepared for filtering.
    See docs/check.md.
    """
    from codecnn.models import load_model
    from codecnn.training import compare as layers

    first, _ = load_model(a)
    second, _ = load_model(b or a)
    planes = _input(first, source, qp, size=size, bit_depth=bit_depth, chroma=chroma)
    network = layers.variant(first, device=device_a, dtype=dtype_a)
    other = layers.variant(second, device=device_b, dtype=dtype_b, compiled=compile_b, prepared=prepared_b)
    skip = layers.folded_layers(second, other) if prepared_b else []
    if tolerance is None:
        alike = device_a == device_b and dtype_a == dtype_b and not compile_b and not prepared_b
        tolerance = layers.default_tolerance(alike, "bfloat16" in (dtype_a, dtype_b), tf32)
    with layers.exact_float32(not tf32):
        rows = layers.compare_networks(network, other, planes, tolerance=tolerance, skip=skip)
    found = layers.first_difference(rows)
    if as_json:
        print_json(
            {"tolerance": tolerance, "first": found and found.name, "not_compared": skip}
            | {"layers": [{key: _finite(value) for key, value in asdict(row).items()} for row in rows]}
        )
    else:
        _print_rows(rows, found)
        if skip:
            out.print(f"Not compared, since they are folded: {', '.join(skip)}", markup=False, soft_wrap=True)
        out.print(_sentence(found, tolerance), markup=False, highlight=False, soft_wrap=True)
    if found is not None:
        raise typer.Exit(1)


def _input(model: "FilterNetwork", source: Path | None, qp: int, **geometry: Any) -> "dict[str, Tensor]":
    from codecnn.dataset import is_store, open_store
    from codecnn.training import noise_planes, picture_planes, store_planes
    from codecnn.video import open_video

    if source is None:
        return noise_planes(model)
    if is_store(source):
        return store_planes(model, open_store(source))
    with open_video(source, **geometry) as video:
        return picture_planes(model, video[0], qp)


def _print_rows(rows: "list[LayerDifference]", found: "LayerDifference | None") -> None:
    table = Table("layer", "shape", "largest difference", "relative", "first at")
    for row in rows:
        shape = _shape(row.shape_a)
        if row.maximum is None or row.relative is None:
            cells = [f"{shape} and {_shape(row.shape_b)}", "-", "-", "-"]
        else:
            where = "-" if row.first is None else ", ".join(map(str, row.first))
            cells = [shape, f"{row.maximum:.3g}", f"{row.relative:.2g}", where]
        table.add_row(Text(row.name), *cells, style="bold red" if row is found else None)
    out.print(table)


def _sentence(found: "LayerDifference | None", tolerance: float) -> str:
    if found is None:
        return f"No layer differs by more than {tolerance:g} of its largest magnitude."
    if found.maximum is None:
        return f"First difference: {found.name} is {_shape(found.shape_a)} in A, {_shape(found.shape_b)} in B."
    return (
        f"First difference: {found.name}, by up to {found.maximum:.3g}, {found.relative:.2g} of its largest magnitude."
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _finite(value: object) -> object:
    """JSON has no infinity and no NaN."""
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
