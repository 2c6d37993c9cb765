"""Intra modes from a network."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cli.app import modes_app
from codecnn.cli.options import BitDepth, Chroma, Frames, Json, Packing, Size
from codecnn.console import print_facts, progress


@modes_app.command("predict")
def modes_predict(
    source: Annotated[Path, typer.Option("-i", "--input", help="a video, a still, a folder of stills, or a store")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the table, .parquet, one row a block")],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="weights of a mode network, one a block size [8x8 and 16x16]")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="how many modes a block, likeliest first")] = 8,
    cost: Annotated[
        Literal["dct", "hadamard", "rate"] | None, typer.Option("--cost", help="try these modes by it [try none]")
    ] = None,
    decoded: Annotated[
        Path | None, typer.Option("--decoded", help="the same pictures decoded, to predict from [the originals]")
    ] = None,
    qp: Annotated[int | None, typer.Option("-q", "--qp", min=0, max=63, help="of the decoded pictures")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="of a store: train, val or test, or several [train,val]")
    ] = None,
    ctu_size: Annotated[
        int | None, typer.Option("--ctu-size", help="which decides what neighbours are available [the network's]")
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    packing: Packing = None,
    frames: Frames = None,
    as_json: Json = False,
) -> None:
    """Tell the likeliest intra modes of every block of pictures, with margins, without trying all 67.

    See docs/modes.md for what the columns hold, and what choosing so saves and loses.
    """
    from codecnn.labels import predict_block_modes

    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "packing": packing, "frames": frames}
    splits = split.split(",") if split else None
    with progress("predicting", "picture") as report:
        found = predict_block_modes(
            source,
            output,
            models=model or (),
            top=top,
            cost=cost,
            decoded=decoded,
            qp=qp,
            splits=splits,
            ctu_size=ctu_size,
            progress=report,
            **options,
        )
    print_facts({"modes": str(output), "pictures": found.pictures, "blocks": found.blocks}, as_json)
