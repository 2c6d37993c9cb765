"""Commands on single files: geometry, coding trees and planes of bitstreams, and the viewer."""

import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.outputs import check_outputs
from codecnn.cli.application import app
from codecnn.cli.console import err, print_facts, print_json, progress
from codecnn.cli.options import (
    Backend,
    BitDepth,
    Chroma,
    Device,
    Json,
    Packing,
    Rate,
    Scheduler,
    Shard,
    Size,
    Trust,
    complete_weights,
    read_spread,
    weights_file,
)

if TYPE_CHECKING:
    from codecnn.codec import StreamInfo
    from codecnn.viewer import Page


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
    if codec in ("vvc", "hevc"):
        facts["carried_post_filters"] = _carried_filters(file, info)
        if not as_json:
            facts["carried_post_filters"] = "; ".join(facts["carried_post_filters"]) or "none"
    if as_json:
        facts["coded_pictures"] = pictures
    else:
        kinds = [{(picture.slice_type, qp) for qp in picture.slice_qps} for picture in info.pictures]
        counts = [(kind, qp, sum((kind, qp) in each for each in kinds)) for kind, qp in sorted(set().union(*kinds))]
        facts["slices"] = ", ".join(f"{count} {kind} at QP {qp}" for kind, qp, count in counts)
    print_facts(_without_unknown(facts, as_json), as_json)


def _carried_filters(file: Path, info: "StreamInfo") -> list[str]:
    """Describe the filters that a stream carries in post-filter messages."""
    from codecnn.signalling.nnpf import Characteristics, describe_network, read_messages

    try:
        pictures = read_messages(file, info).pictures
    except FormatError as error:
        return [f"not known: {error}"]
    filters = {
        f"{message.nnpfc_id} ({', '.join(message.purposes)}; {describe_network(message)})"
        for picture in pictures
        for message in picture.messages
        if isinstance(message, Characteristics)
    }
    return sorted(filters)


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
