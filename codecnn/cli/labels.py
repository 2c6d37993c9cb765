"""Intra-mode labels."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import BitDepth, Chroma, Device, Frames, Json, Packing, Size
from codecnn.console import print_facts, progress
from codecnn.errors import ConfigError


@app.command()
def labels(
    source: Annotated[Path, typer.Option("-i", "--input", help="a video, a still, a folder of stills, or a store")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the table, .parquet, one row a block")],
    decoded: Annotated[
        Path | None, typer.Option("--decoded", help="the same pictures decoded, to predict from [the originals]")
    ] = None,
    qp: Annotated[int | None, typer.Option("-q", "--qp", min=0, max=63, help="of the decoded pictures")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="of a store: train, val or test, or several [train,val]")
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

    Of a store every picture is labelled at every QP, with references from the decoded pictures. See docs/labels.md for
    what the columns hold and which neighbours count as available.
    """
    from codecnn.dataset.store import is_store, open_store
    from codecnn.labels.sources import SPLITS, file_inputs, read_inputs, store_inputs
    from codecnn.labels.table import label_settings, write_labels
    from codecnn.training import pick_device

    settings = label_settings(standard, block_sizes, cost, top, full, ctu_size)
    where = pick_device(device)
    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "packing": packing, "frames": frames}
    if is_store(source):
        told = {name for name, value in {"decoded": decoded, "qp": qp, **options}.items() if value is not None}
        if told:
            raise ConfigError(f"{source} is a store, which tells {', '.join(sorted(told))} itself")
        inputs = store_inputs(open_store(source), split.split(",") if split else SPLITS)
    elif split:
        raise ConfigError(f"{source} is no store: it has no split {split!r}")
    else:
        inputs = file_inputs(source, decoded, qp=qp, **options)
    pictures = sum(entry.count for entry in inputs)
    with progress("labelling", "picture") as report:
        facts = {"total": pictures, "inputs": [entry.facts() for entry in inputs], "progress": report}
        rows = write_labels(output, read_inputs(inputs), settings, jobs=jobs, device=str(where), **facts)  # type: ignore[arg-type]
    print_facts({"labels": str(output), "pictures": pictures, "blocks": rows}, as_json)
