"""Commands on intra modes: labels by a full search, and prediction by a network."""

from typing import Annotated, Literal

import typer

from codecnn.cli.application import EXAMPLES, app
from codecnn.cli.console import print_facts, progress
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

modes_app = typer.Typer(help="Predict intra modes with a network instead of a search.", no_args_is_help=True)
app.add_typer(modes_app, name="modes")
EXAMPLES |= {
    "labels": "codecnn labels -i pictures -o labels.parquet --cost dct",
    "modes predict": "codecnn modes predict -i pictures -o modes.parquet --top 8 --cost dct",
}


@app.command()
def labels(
    source: Pictures,
    output: BlockTable,
    decoded: Decoded = None,
    qp: DecodedQp = None,
    split: Splits = None,
    block_sizes: Annotated[
        str | None,
        typer.Option("--block-sizes", help="Block sizes, e.g. 8,16 or 16x8 (default: all squares of the standard)."),
    ] = None,
    cost: Annotated[
        str, typer.Option("--cost", help="Cost or list of costs to minimise: dct, hadamard, rate, sad, sse.")
    ] = "dct",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of best modes to keep per block.")] = 3,
    full: Annotated[bool, typer.Option("--full", help="Keep the costs of all modes.")] = False,
    standard: Annotated[
        Literal["vvc", "hevc"], typer.Option("--standard", help="Standard of the intra modes.")
    ] = "vvc",
    ctu_size: Annotated[
        int | None,
        typer.Option(
            "--ctu-size", help="CTU size in samples, which decides the available neighbours (default: the largest)."
        ),
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    packing: Packing = None,
    frames: Frames = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Number of CPU threads.")] = 2,
    device: Device = "cpu",
    shard: Shard = "1/1",
    backend: Backend = "local",
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Label every block of pictures with its best intra mode by the cost of its residual (--cost).

    In a store, every picture is labelled at every QP with references from the decoded pictures. docs/howto/labels.md
    describes the columns and which neighbours count as available.

    For an array job, run N jobs into one table with --shard 1/N to --shard N/N: each labels every N-th file or unit,
    and the last to finish writes the table. With --backend dask --scheduler tcp://host:8786 the workers of a cluster do
    the work; they must see pictures and output under the same paths.
    """
    from codecnn.models import pick_device
    from codecnn.modes.labels import label_blocks, label_settings

    settings = label_settings(standard, block_sizes, cost, top, full, ctu_size)
    part, address = read_spread(shard, backend, scheduler)
    # The workers of a cluster choose their devices themselves.
    device_name = device if address else str(pick_device(device))
    alone = part == (1, 1) and address is None
    with progress("labelling", "picture" if alone else "file") as report:
        result = label_blocks(
            source,
            output,
            settings=settings,
            decoded=decoded,
            qp=qp,
            splits=split.split(",") if split else None,
            jobs=jobs,
            device=device_name,
            shard=part,
            scheduler=address,
            progress=report,
            size=size,
            bit_depth=bit_depth,
            chroma=chroma,
            packing=packing,
            frames=frames,
        )
    if not result.complete:
        print_facts({"labels": str(output), "shard": shard, "complete": False}, as_json)
        return
    print_facts({"labels": str(output), "pictures": result.pictures, "blocks": result.blocks}, as_json)


@modes_app.command("predict")
def modes_predict(
    source: Pictures,
    output: BlockTable,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Weights of a mode network; repeat for each block size (default: 8x8 and 16x16)."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of modes per block, most likely first.")] = 8,
    cost: Annotated[
        Literal["dct", "hadamard", "rate"] | None,
        typer.Option("--cost", help="Compute this cost of the predicted modes and choose the best (default: none)."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Compute in integers (NAME.int16.safetensors), with identical results on all machines."
        ),
    ] = False,
    decoded: Decoded = None,
    qp: DecodedQp = None,
    split: Splits = None,
    ctu_size: Annotated[
        int | None,
        typer.Option(
            "--ctu-size", help="CTU size in samples, which decides the available neighbours (default: the network's)."
        ),
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    packing: Packing = None,
    frames: Frames = None,
    as_json: Json = False,
) -> None:
    """Predict the most likely intra modes of every block with a network, instead of trying all 67 modes.

    docs/howto/modes.md describes the columns, docs/research/modes.md the time and quality of this choice.
    """
    from codecnn.modes.labels import predict_block_modes

    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "packing": packing, "frames": frames}
    splits = split.split(",") if split else None
    with progress("predicting", "picture") as report:
        result = predict_block_modes(
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
    print_facts({"modes": str(output), "pictures": result.pictures, "blocks": result.blocks}, as_json)
