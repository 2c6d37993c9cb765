"""Intra-mode labels."""

from typing import Annotated, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import (
    BitDepth,
    BlockTable,
    Chroma,
    Decoded,
    DecodedQp,
    Device,
    Frames,
    Json,
    Packing,
    Pictures,
    Size,
    Splits,
)
from codecnn.console import print_facts, progress


@app.command()
def labels(
    source: Pictures,
    output: BlockTable,
    decoded: Decoded = None,
    qp: DecodedQp = None,
    split: Splits = None,
    block_sizes: Annotated[
        str | None, typer.Option("--block-sizes", help="sides of squares, or WxH [all squares of the standard]")
    ] = None,
    cost: Annotated[str, typer.Option("--cost", help="dct, hadamard, rate, sad, sse, or several")] = "dct",
    top: Annotated[int, typer.Option("--top", min=1, help="how many of the best modes to keep")] = 3,
    full: Annotated[bool, typer.Option("--full", help="keep the costs of all modes")] = False,
    standard: Annotated[Literal["vvc", "hevc"], typer.Option("--standard", help="whose modes")] = "vvc",
    ctu_size: Annotated[
        int | None, typer.Option("--ctu-size", help="which decides what neighbours are available [the largest]")
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    packing: Packing = None,
    frames: Frames = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="CPU threads")] = 2,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Label every block of pictures with its best intra mode, by SATD or by true DCT cost.

    Of a store every picture is labelled at every QP, with references from the decoded pictures. See docs/labels.md for
    what the columns hold and which neighbours count as available.
    """
    from codecnn.labels import label_blocks, label_settings
    from codecnn.models import pick_device

    settings = label_settings(standard, block_sizes, cost, top, full, ctu_size)
    where = pick_device(device)
    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "packing": packing, "frames": frames}
    splits = split.split(",") if split else None
    with progress("labelling", "picture") as report:
        given = {"settings": settings, "decoded": decoded, "qp": qp, "splits": splits, **options}
        found = label_blocks(source, output, jobs=jobs, device=str(where), progress=report, **given)  # type: ignore[arg-type]
    print_facts({"labels": str(output), "pictures": found.pictures, "blocks": found.blocks}, as_json)
