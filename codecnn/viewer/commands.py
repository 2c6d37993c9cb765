"""The command that shows pictures in an HTML page."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codecnn.cli.application import EXAMPLES, app
from codecnn.cli.console import err, print_facts, progress
from codecnn.cli.options import Device, Json, Trust, complete_weights, weights_file

if TYPE_CHECKING:
    from codecnn.viewer import Page

EXAMPLES["view"] = "codecnn view stream.266 -m low_cost_17 --original original_416x240_10bit.yuv -o view.html"


def _several_weights(models: list[Path] | None) -> list[Path]:
    return [weights_file(model) for model in models or ()]


@app.command()
def view(
    source: Annotated[
        Path, typer.Argument(help="Stream of VVC, HEVC, AVC or AV1, also in MP4, MKV or TS, or the folder of a store.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML page to write.")] = Path("view.html"),
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            callback=_several_weights,
            autocompletion=complete_weights,
            help="Weights for a layer with the filtered pictures, e.g. low_cost_17; several can be compared.",
        ),
    ] = None,
    original: Annotated[
        Path | None,
        typer.Option("--original", help="Original pictures of a stream, for PSNR and layers with the coding error."),
    ] = None,
    picture: Annotated[
        int | None,
        typer.Option(
            "--picture", min=0, help="Number of the first picture in output order, from 0; alone: only this one."
        ),
    ] = None,
    frames: Annotated[
        int | None, typer.Option("-f", "--frames", min=1, help="Largest number of pictures (default: 17).")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option("--sequence", help="Sequence of a store (default: the first).")
    ] = None,
    qp: Annotated[int | None, typer.Option("-q", "--qp", help="QP of a store's unit, e.g. 37 (default: any).")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the page on http://127.0.0.1 until Ctrl+C instead of writing it.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of --serve; 0 takes a free one.")] = 0,
    device: Device = "auto",
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Show pictures in an HTML page: CUs, modes, motion, prediction, residual, in-loop filters, coding error.

    The page needs no other file and no network. The first run on a machine compiles code for two to four minutes.
    --serve keeps the pictures in memory and shows the page on the loopback interface until Ctrl+C, for pages that are
    too large for a file. The printed address has a random token; requests without it are refused.
    """
    from codecnn.viewer import build_page
    from codecnn.viewer import view as write_view

    options: dict[str, Any] = {"model": model, "original": original, "picture": picture, "frames": frames}
    options |= {"sequence": sequence, "qp": qp, "device": device}
    if serve:
        with progress("packing", "picture") as report:
            page = build_page(source, **options, progress=report)
        _print_notes(page.notes)
        _serve(page, port, as_json)
        return
    with progress("packing", "picture") as report:
        viewed = write_view(source, output, **options, progress=report)
    _print_notes(viewed.notes)
    print_facts(
        {
            "page": str(viewed.page),
            "title": viewed.title,
            "pictures": viewed.pictures,
            "layers": list(viewed.layers) if as_json else ", ".join(viewed.layers),
            "cus": viewed.units,
            "bytes": viewed.bytes,
        },
        as_json,
    )


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)


def _serve(page: "Page", port: int, as_json: bool) -> None:
    """Serve a page until the user presses Ctrl+C."""
    from codecnn.viewer import PageServer

    with PageServer(page, port) as server, suppress(KeyboardInterrupt):
        print_facts({"url": server.url, "title": page.title, "pictures": len(page.data["pictures"])}, as_json)
        sys.stdout.flush()
        server.serve_forever()
