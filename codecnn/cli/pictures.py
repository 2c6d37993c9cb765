"""Commands on files as they are: geometry, and the CUs of a bitstream."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from codecnn.cli.app import app
from codecnn.cli.options import Backend, BitDepth, Chroma, Json, Packing, Rate, Scheduler, Shard, Size, read_spread
from codecnn.console import print_facts, print_json, progress
from codecnn.errors import ConfigError


@app.command()
def info(
    file: Annotated[Path, typer.Argument(help="YUV, Y4M, a picture, a bitstream, or a folder of pictures")],
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    packing: Packing = None,
    as_json: Json = False,
) -> None:
    """Geometry and number of pictures of a file, or of a folder of stills; of a VVC stream types and QPs as well."""
    from codecnn.video import open_video

    if file.name.lower().endswith((".266", ".vvc", ".h266")):
        _stream_info(file, as_json)
        return
    with open_video(file, size=size, bit_depth=bit_depth, chroma=chroma, fps=rate, packing=packing) as video:
        fps = None if video.format.fps is None else float(video.format.fps)
        facts = {"file": str(file), **asdict(video.format), "fps": fps, "pictures": len(video)}
    print_facts(facts, as_json)


def _stream_info(file: Path, as_json: bool) -> None:
    from codecnn.codec import stream_info

    info = stream_info(file)
    facts: dict[str, Any] = {"file": str(file), "codec": "vvc", **asdict(info)}
    listed = facts.pop("pictures")
    facts["pictures"] = len(listed)
    if as_json:
        facts["coded_pictures"] = listed
    else:
        kinds = sorted({(one.slice_type, qp) for one in info.pictures for qp in one.slice_qps})
        counts = [
            (kind, qp, sum((kind, qp) in {(one.slice_type, own) for own in one.slice_qps} for one in info.pictures))
            for kind, qp in kinds
        ]
        facts["slices"] = ", ".join(f"{count} {kind} at QP {qp}" for kind, qp, count in counts)
    print_facts(facts, as_json)


@app.command()
def partition(
    streams: Annotated[list[Path], typer.Argument(metavar="STREAM...", help="VVC elementary streams, .266")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="the table: .parquet, .csv or .vtmbmsstats by its name; of several streams or --planes a folder",
        ),
    ] = ...,  # type: ignore[assignment]
    planes: Annotated[
        str | None,
        typer.Option(
            "--planes",
            metavar="NAMES",
            help="planes instead of the table, such as pred_y,unf_y,mts",
        ),
    ] = None,
    tus: Annotated[bool, typer.Option("--tus", help="a row a transform block instead of a row a CU")] = False,
    shard: Shard = "1/1",
    backend: Backend = "local",
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Every CU of a bitstream: position, size, depth, mode, QP and transforms; or every transform block; or planes.

    Planes of --planes, rebuilt from the bitstream without a decoder: pred_y, pred_u, pred_v the prediction; unf_y,
    unf_u, unf_v the picture before the loop filters; resid_y, resid_u, resid_v the residual; bs_v, bs_h boundary
    strengths, 0 to 2, at the left and upper edges of 4x4 luma samples. Those are of intra pictures: pictures with P or
    B slices are passed over. Of the coding tree there are depth, cu_qp, pred_mode, intra_mode and partition, and of
    its luma's transforms cbf_y, ts_y, mts, tr_hor, tr_ver, lfnst and bdpcm. Each becomes a raw file of grey pictures
    in output order, such as pred_y_416x240_10bit_400.yuv; residuals have 16 bit, where 32768 is 0.

    Of several streams, and with --shard or --backend, the output is a folder: NAME.parquet of each NAME.266, with
    --planes a folder NAME with a planes.json beside them; what is there of the same stream is not made again. For an
    array job run N of them, --shard 1/N to --shard N/N. With --backend dask --scheduler tcp://host:8786 the workers of
    a cluster read; they must see streams and folder under the same paths.

    The first run compiles for about a minute, with --planes for two.
    """
    part, address = read_spread(shard, backend, scheduler)
    if planes is not None and tus:
        raise ConfigError("--tus and --planes are two outputs: give one of them")
    if len(streams) > 1 or part != (1, 1) or address is not None:
        from codecnn.codec import write_partitions

        names = [name.strip() for name in planes.split(",")] if planes is not None else []
        with progress("reading", "stream") as report:
            made = write_partitions(streams, output, names, tus=tus, shard=part, scheduler=address, progress=report)
        print_facts({"streams": len(made), "folder": str(output)}, as_json)
        return
    (stream,) = streams
    if planes is not None:
        _write_planes(stream, [name.strip() for name in planes.split(",")], output, as_json)
        return
    from codecnn.codec import LUMA, stream_table, write_blocks

    if tus:
        _write_transform_blocks(stream, output, as_json)
        return
    table = stream_table(stream)
    write_blocks(output, table)
    luma = int((table.channel == LUMA).sum())
    pictures = len(set(table.poc.tolist()))
    facts = {"stream": str(stream), "table": str(output), "pictures": pictures, "cus": len(table), "luma_cus": luma}
    print_facts(facts, as_json)


def _write_transform_blocks(stream: Path, output: Path, as_json: bool) -> None:
    from codecnn.codec import stream_transform_blocks, write_transform_blocks

    blocks = stream_transform_blocks(stream)
    write_transform_blocks(output, blocks)
    coded = sum(blocks["cbf"].to_pylist())
    facts = {"stream": str(stream), "table": str(output), "transform_blocks": blocks.num_rows, "coded": coded}
    print_facts(facts, as_json)


def _write_planes(stream: Path, planes: list[str], folder: Path, as_json: bool) -> None:
    from codecnn.codec import write_planes

    with progress("rebuilding", "picture") as report:
        made = write_planes(stream, planes, folder, report)
    files = {name: str(path) for name, path in made.files.items()}
    passed = made.shown - len(made.positions)
    if as_json:
        print_json({"stream": str(stream), "files": files, "positions": made.positions, "passed_over": passed})
        return
    pictures = len(made.positions)
    told = f"{pictures} intra, {passed} with P or B slices passed over" if passed else str(pictures)
    print_facts(files | {"pictures": told}, False)
