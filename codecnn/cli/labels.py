"""Intra-mode labels."""

from typing import Annotated, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import (
    Backend,
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
    Scheduler,
    Shard,
    Size,
    Splits,
    read_spread,
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
    shard: Shard = "1/1",
    backend: Backend = "local",
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Label every block of pictures with its best intra mode, by SATD or by true DCT cost.

    Of a store every picture is labelled at every QP, with references from the decoded pictures. See docs/labels.md for
    what the columns hold and which neighbours count as available.

    For an array job run N of them into one table, --shard 1/N to --shard N/N: each labels every N-th file or unit, and
    the last to end writes the table. With --backend dask --scheduler tcp://host:8786 the workers of a cluster label;
    they must see pictures and output under the same paths.
    """
    from codecnn.labels import label_blocks, label_settings
    from codecnn.models import pick_device

    settings = label_settings(standard, block_sizes, cost, top, full, ctu_size)
    part, address = read_spread(shard, backend, scheduler)
    # A cluster's workers have devices of their own.
    where = device if address else str(pick_device(device))
    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "packing": packing, "frames": frames}
    splits = split.split(",") if split else None
    alone = part == (1, 1) and address is None
    with progress("labelling", "picture" if alone else "file") as report:
        given = {"settings": settings, "decoded": decoded, "qp": qp, "splits": splits, **options}
        told = {"jobs": jobs, "device": where, "shard": part, "scheduler": address, "progress": report}
        found = label_blocks(source, output, **told, **given)  # type: ignore[arg-type]
    if not found.complete:
        print_facts({"labels": str(output), "shard": shard, "complete": False}, as_json)
        return
    print_facts({"labels": str(output), "pictures": found.pictures, "blocks": found.blocks}, as_json)
