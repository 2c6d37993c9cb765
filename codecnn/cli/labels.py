"""Intra-mode labels."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import BitDepth, Chroma, Device, Frames, Json, Packing, Size
from codecnn.console import print_facts, progress


@app.command()
def labels(
    source: Annotated[Path, typer.Option("-i", "--input", help="pictures: a video, a still, or a folder of stills")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the table, .parquet, one row a block")],
    decoded: Annotated[
        Path | None, typer.Option("--decoded", help="the same pictures decoded, to predict from [the originals]")
    ] = None,
    block_sizes: Annotated[
        str | None, typer.Option("--block-sizes", help="sides of squares, or WxH [all squares of the standard]")
    ] = None,
    cost: Annotated[str, typer.Option("--cost", help="dct, hadamard, sad, sse, or several")] = "dct",
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

    See docs/labels.md for what the columns hold and which neighbours count as available.
    """
    from codecnn.intra.labels import label_settings, write_labels
    from codecnn.intra.sources import PictureFiles
    from codecnn.training import pick_device

    settings = label_settings(standard, block_sizes, cost, top, full, ctu_size)
    where = pick_device(device)
    pictures = PictureFiles(
        source, decoded, size=size, bit_depth=bit_depth, chroma=chroma, packing=packing, frames=frames
    )
    with progress("labelling", "picture") as report:
        facts = {"total": len(pictures), "inputs": pictures.inputs(), "progress": report}
        rows = write_labels(output, pictures, settings, jobs=jobs, device=str(where), **facts)  # type: ignore[arg-type]
    print_facts({"labels": str(output), "pictures": len(pictures), "blocks": rows}, as_json)
