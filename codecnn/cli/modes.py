"""Intra modes from a network."""

from typing import Annotated, Literal

import typer

from codecnn.cli.app import modes_app
from codecnn.cli.options import (
    BitDepth,
    BlockTable,
    Chroma,
    Decoded,
    DecodedQp,
    Frames,
    Json,
    Packing,
    Pictures,
    Size,
    Splits,
)
from codecnn.console import print_facts, progress


@modes_app.command("predict")
def modes_predict(
    source: Pictures,
    output: BlockTable,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="weights of a mode network, one a block size [8x8 and 16x16]")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="how many modes a block, likeliest first")] = 8,
    cost: Annotated[
        Literal["dct", "hadamard", "rate"] | None, typer.Option("--cost", help="try these modes by it [try none]")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="in integers, the same modes on every machine: NAME.int16.safetensors")
    ] = False,
    decoded: Decoded = None,
    qp: DecodedQp = None,
    split: Splits = None,
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
            exact=exact,
            decoded=decoded,
            qp=qp,
            splits=splits,
            ctu_size=ctu_size,
            progress=report,
            **options,
        )
    print_facts({"modes": str(output), "pictures": found.pictures, "blocks": found.blocks}, as_json)
