"""Commands on single files: geometry, coding trees and planes of bitstreams."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import find_extension
from codecnn.cli.application import app
from codecnn.cli.console import print_facts, print_json, progress
from codecnn.cli.options import (
    Backend,
    BitDepth,
    Chroma,
    Json,
    Packing,
    Rate,
    Scheduler,
    Shard,
    Size,
    read_spread,
)


@app.command()
def info(
    file: Annotated[Path, typer.Argument(help="YUV, Y4M, still picture, bitstream, or folder of still pictures.")],
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    packing: Packing = None,
    as_json: Json = False,
) -> None:
    """Show the geometry and the number of pictures of a file; of a coded stream also slice types and QPs.

    Slice types and QPs are those of VVC, HEVC, AVC and AV1. Nothing is decoded. Pictures of other streams are counted
    as packets of their container.
    """
    from codecnn.pictures.files import stream_codec, summarise_video

    if (codec := stream_codec(file)) is not None:
        # codecnn does not read the headers of all AVC, e.g. of fields; ffmpeg describes it nevertheless.
        with suppress(*((FormatError,) if codec in ("avc", "av1") else ())):
            _stream_info(file, codec, as_json)
            return
    summary = summarise_video(file, size=size, bit_depth=bit_depth, chroma=chroma, fps=rate, packing=packing)
    fps = None if summary.format.fps is None else float(summary.format.fps)
    facts: dict[str, Any] = {"file": str(file), **asdict(summary.format), "fps": fps, "pictures": summary.pictures}
    if summary.codec is not None:
        facts |= {"codec": summary.codec, "counted": summary.counted, "fields": summary.fields}
    if summary.pictures is None and not as_json:
        facts["pictures"] = "unknown without decoding"
    print_facts(_without_unknown(facts, as_json), as_json)


def _without_unknown(facts: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Leave out the key "fields" of video that is not known to be interlaced, except in JSON."""
    return (
        facts if as_json or facts.get("fields", "") is not None else {k: v for k, v in facts.items() if k != "fields"}
    )


def _stream_info(file: Path, codec: str, as_json: bool) -> None:
    from codecnn.codec import output_pictures, read_headers
    from codecnn.pictures.files import probe_stream

    info = read_headers(file)
    facts: dict[str, Any] = {"file": str(file), "codec": codec, **asdict(info), "fps": None}
    fields = "single fields" if info.fields else None
    with suppress(FormatError):  # ffmpeg does not know some formats whose headers codecnn reads
        probed = probe_stream(file)
        rate, fields = probed.format.fps, fields or probed.fields
        facts["fps"] = None if rate is None else float(rate)
    pictures = facts.pop("pictures")
    facts["pictures"] = len(output_pictures(info))
    facts["not_output"] = len(pictures) - facts["pictures"]
    facts["fields"] = fields
    if codec in ("vvc", "hevc") and (describe := find_extension("signalling.describe_carried")) is not None:
        carried = describe(file, info)
        facts["carried_post_filters"] = carried if as_json else "; ".join(carried) or "none"
    if as_json:
        facts["coded_pictures"] = pictures
    else:
        kinds = [{(picture.slice_type, qp) for qp in picture.slice_qps} for picture in info.pictures]
        counts = [(kind, qp, sum((kind, qp) in each for each in kinds)) for kind, qp in sorted(set().union(*kinds))]
        facts["slices"] = ", ".join(f"{count} {kind} at QP {qp}" for kind, qp, count in counts)
    print_facts(_without_unknown(facts, as_json), as_json)


@app.command()
def partition(
    streams: Annotated[list[Path], typer.Argument(metavar="STREAM...", help="VVC streams, also in MP4, MKV or TS.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Table to write: .parquet, .csv or .vtmbmsstats; a folder for several streams or with --planes.",
        ),
    ] = ...,  # type: ignore[assignment]
    planes: Annotated[
        str | None,
        typer.Option(
            "--planes",
            metavar="NAMES",
            help="Write these planes instead of a table, e.g. pred_y,unf_y,mts.",
        ),
    ] = None,
    tus: Annotated[bool, typer.Option("--tus", help="Write one row per transform block instead of per CU.")] = False,
    motion: Annotated[
        bool, typer.Option("--motion", help="Write CUs with merge, affine, motion vectors and reference pictures.")
    ] = False,
    shard: Shard = "1/1",
    backend: Backend = "local",
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Write the CUs of a VVC bitstream (position, size, depth, mode, QP, transforms), its transform blocks, or planes.

    --motion decodes the stream and adds columns to the CUs: merge, ciip, gpm, affine, mv_l0_x, mv_l0_y, mv_l1_x,
    mv_l1_y (1/16 luma sample) and ref_l0, ref_l1 (POC of the reference picture); they are empty where a CU has none.

    --planes reconstructs planes from the bitstream; if it has P or B slices, by decoding the whole stream. Planes of
    samples: pred_y, pred_u, pred_v (prediction); unf_y, unf_u, unf_v (reconstruction before the
    in-loop filters); dbf_*, sao_*, rec_* (after deblocking, after SAO, after ALF); resid_y, resid_u, resid_v
    (residual); bs_v, bs_h (boundary strength, 0 to 2, at the left and upper edges of 4x4 luma blocks). Planes of the
    coding tree: depth, cu_qp, pred_mode, intra_mode, partition. Planes of the luma transforms: cbf_y, ts_y, mts,
    tr_hor, tr_ver, lfnst, bdpcm. Each plane becomes a raw file of grey pictures in output order, e.g.
    pred_y_416x240_10bit_400.yuv; residuals have 16 bits with an offset of 32768.

    For several streams, and with --shard or --backend, the output is a folder: NAME.parquet for each NAME.266, or with
    --planes a folder NAME with planes.json. Existing outputs of the same stream are kept. For an array job, run N jobs
    with --shard 1/N to --shard N/N. With --backend dask --scheduler tcp://host:8786 the workers of a cluster do the
    work; they must see streams and folder under the same paths.

    The first run on a machine compiles code for about a minute, with --planes or --motion for two to four.
    """
    part, address = read_spread(shard, backend, scheduler)
    if (planes is not None) + tus + motion > 1:
        raise ConfigError("--tus, --motion and --planes exclude each other: give one of them")
    names = [name.strip() for name in planes.split(",")] if planes is not None else []
    if len(streams) > 1 or part != (1, 1) or address is not None:
        from codecnn.codec import write_partitions

        with progress("reading", "stream") as report:
            written = write_partitions(
                streams, output, names, tus=tus, motion=motion, shard=part, scheduler=address, progress=report
            )
        print_facts({"streams": len(written), "folder": str(output)}, as_json)
        return
    (stream,) = streams
    if planes is not None:
        _write_planes(stream, names, output, as_json)
        return
    from codecnn.codec import LUMA, stream_table, write_blocks

    check_outputs([output], [stream])
    if tus:
        _write_transform_blocks(stream, output, as_json)
        return
    if motion:
        _write_motion(stream, output, as_json)
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


def _write_motion(stream: Path, output: Path, as_json: bool) -> None:
    from codecnn.codec import stream_motion, write_motion

    table = stream_motion(stream)
    write_motion(output, table)
    inter = table.num_rows - table["affine"].null_count
    print_facts({"stream": str(stream), "table": str(output), "cus": table.num_rows, "inter_cus": inter}, as_json)


def _write_planes(stream: Path, planes: list[str], folder: Path, as_json: bool) -> None:
    from codecnn.codec import write_planes

    with progress("reconstructing", "picture") as report:
        written = write_planes(stream, planes, folder, report)
    files = {name: str(path) for name, path in written.files.items()}
    if as_json:
        print_json({"stream": str(stream), "files": files, "pictures": written.pictures})
        return
    print_facts(files | {"pictures": written.pictures}, False)
