"""Looking into a coded picture."""

from pathlib import Path
from typing import Annotated

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Device, Json, begun_weights, weights_file
from codecnn.console import err, print_facts


def _weights(model: Path | None) -> Path | None:
    return None if model is None else weights_file(model)


@app.command()
def view(
    source: Annotated[Path, typer.Argument(help="a VVC elementary stream, .266, or the folder of a store")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the page, .html")] = Path("view.html"),
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            callback=_weights,
            autocompletion=begun_weights,
            help="weights whose filtered picture is a layer",
        ),
    ] = None,
    original: Annotated[
        Path | None, typer.Option("--original", help="of a stream: pictures to show the errors against")
    ] = None,
    picture: Annotated[int, typer.Option("--picture", min=0, help="its number in output order")] = 0,
    sequence: Annotated[str | None, typer.Option("--sequence", help="of a store: its name [the first]")] = None,
    qp: Annotated[int | None, typer.Option("-q", "--qp", help="of a store [the first]")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """A picture as one HTML page: CUs, modes, QPs, prediction, residual, before and after the filters, errors.

    The page needs no other file and no network. The first run compiles for about two minutes.
    """
    from codecnn.viewer import view as write_view

    viewed = write_view(
        source, output, model=model, original=original, picture=picture, sequence=sequence, qp=qp, device=device
    )
    for note in viewed.notes:
        err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
    print_facts(
        {
            "page": str(viewed.page),
            "picture": viewed.title,
            "layers": list(viewed.layers) if as_json else ", ".join(viewed.layers),
            "cus": viewed.units,
            "bytes": viewed.bytes,
        },
        as_json,
    )
