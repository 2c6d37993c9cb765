"""Commands on single files: geometry, coding trees and planes of bitstreams."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict
from pathlib import Path
from typing import Annotated, Any

from codecnn.api.groups import FileName, Fps, ManyMachines, RawVideo, parse_names
from codecnn.base.cluster import WHOLE, Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.options import argument, option, progress_bar, record, verb
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import find_extension
from codecnn.cli.commands import command
from codecnn.cli.console import print_facts


@record
class InfoOptions(RawVideo):
    """Options of `info`."""

    file: Annotated[FileName, argument("Video, bitstream, YUV, Y4M, still picture, or folder of stills.", kind=Path)]
    _: KW_ONLY
    fps: Fps = None


@verb(InfoOptions)
def info(options: InfoOptions) -> dict[str, Any]:
    """Show the geometry and the number of pictures of a file; of a coded stream also slice types and QPs.

    Slice types and QPs are those of VVC, HEVC, AVC and AV1. Nothing is decoded. Pictures of other streams are counted
    as packets of their container.
    """
    from codecnn.pictures.files import stream_codec, summarise_video

    file = Path(options.file)
    if (codec := stream_codec(file)) is not None:
        # codecnn does not read the headers of all AVC, e.g. of fields; ffmpeg describes it nevertheless.
        with suppress(*((FormatError,) if codec in ("avc", "av1") else ())):
            return _stream_facts(file, codec)
    summary = summarise_video(file, **options.raw_format(), fps=options.fps)
    fps = None if summary.format.fps is None else float(summary.format.fps)
    facts: dict[str, Any] = {"file": str(file), **asdict(summary.format), "fps": fps, "pictures": summary.pictures}
    if summary.codec is not None:
        facts |= {"codec": summary.codec, "counted": summary.counted, "fields": summary.fields}
    return facts


def _stream_facts(file: Path, codec: str) -> dict[str, Any]:
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
        facts["carried_post_filters"] = describe(file, info)
    facts["coded_pictures"] = pictures
    return facts


@command("info", info, "codecnn info clip_416x240_30_10bit.yuv")
def show_info(_options: InfoOptions, facts: dict[str, Any], as_json: bool) -> None:
    """Print the facts; of the coded pictures their number by slice type and QP."""
    if not as_json:
        if facts["pictures"] is None:
            facts["pictures"] = "unknown without decoding"
        if "carried_post_filters" in facts:
            facts["carried_post_filters"] = "; ".join(facts["carried_post_filters"]) or "none"
        if (pictures := facts.pop("coded_pictures", None)) is not None:
            kinds = [{(picture["slice_type"], qp) for qp in picture["slice_qps"]} for picture in pictures]
            counts = [(kind, qp, sum((kind, qp) in each for each in kinds)) for kind, qp in sorted(set().union(*kinds))]
            hidden, by_block = facts.pop("not_output"), facts.pop("block_qps")
            facts["pictures_not_shown"] = hidden or None
            facts["QP_within_a_slice"] = "may differ by block" if by_block else "the same in all blocks"
            facts["slices"] = ", ".join(f"{count} {kind} at QP {qp}" for kind, qp, count in counts)
    print_facts(facts, as_json)


@record
class PartitionOptions(ManyMachines):
    """Options of `partition`."""

    streams: Annotated[
        Sequence[FileName],
        argument("VVC streams, also in MP4, MKV or TS.", "STREAM...", kind=Path, collect=list),
    ]
    output: Annotated[
        FileName,
        option(
            "-o",
            "--output",
            help="Table to write: .parquet, .csv or .vtmbmsstats; a folder for several streams or with --planes.",
        ),
    ]
    _: KW_ONLY
    planes: Annotated[
        Sequence[str],
        option(
            "--planes",
            metavar="NAMES",
            parse=parse_names,
            help="Write these planes instead of a table, e.g. pred_y,unf_y,mts.",
        ),
    ] = ()
    tus: Annotated[bool, option("--tus", help="Write one row per transform block instead of per CU.")] = False
    motion: Annotated[
        bool, option("--motion", help="Write CUs with merge, affine, motion vectors and reference pictures.")
    ] = False
    reading: Annotated[
        Progress | None, progress_bar("reading", "stream", "Called with (streams done, all streams).")
    ] = None
    reconstructing: Annotated[
        Progress | None, progress_bar("reconstructing", "picture", "Called with (pictures done, all pictures).")
    ] = None


@verb(PartitionOptions)
def partition(options: PartitionOptions) -> dict[str, Any]:
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

    The first run on a machine compiles code for about half a minute, with --planes or --motion for one to two
    minutes.
    """
    from codecnn.codec import LUMA, stream_table, write_blocks, write_partitions

    options.check_backend()
    streams, output = [Path(stream) for stream in options.streams], Path(options.output)
    if bool(options.planes) + options.tus + options.motion > 1:
        raise ConfigError("--tus, --motion and --planes exclude each other: give one of them")
    if len(streams) > 1 or options.shard != WHOLE or options.scheduler is not None:
        written = write_partitions(
            streams,
            output,
            options.planes,
            tus=options.tus,
            motion=options.motion,
            shard=options.shard,
            scheduler=options.scheduler,
            progress=options.reading,
        )
        return {"streams": len(written), "folder": str(output)}
    (stream,) = streams
    if options.planes:
        return _write_planes(stream, output, options)
    check_outputs([output], [stream])
    if options.tus:
        return _write_transform_blocks(stream, output)
    if options.motion:
        return _write_motion(stream, output)
    table = stream_table(stream)
    write_blocks(output, table)
    luma = int((table.channel == LUMA).sum())
    pictures = len(set(table.poc.tolist()))
    return {"stream": str(stream), "table": str(output), "pictures": pictures, "cus": len(table), "luma_cus": luma}


def _write_transform_blocks(stream: Path, output: Path) -> dict[str, Any]:
    from codecnn.codec import stream_transform_blocks, write_transform_blocks

    blocks = stream_transform_blocks(stream)
    write_transform_blocks(output, blocks)
    coded = sum(blocks["cbf"].to_pylist())
    return {"stream": str(stream), "table": str(output), "transform_blocks": blocks.num_rows, "coded": coded}


def _write_motion(stream: Path, output: Path) -> dict[str, Any]:
    from codecnn.codec import stream_motion, write_motion

    table = stream_motion(stream)
    write_motion(output, table)
    inter = table.num_rows - table["affine"].null_count
    return {"stream": str(stream), "table": str(output), "cus": table.num_rows, "inter_cus": inter}


def _write_planes(stream: Path, folder: Path, options: PartitionOptions) -> dict[str, Any]:
    from codecnn.codec import write_planes

    written = write_planes(stream, options.planes, folder, options.reconstructing)
    files = {name: str(path) for name, path in written.files.items()}
    return {"stream": str(stream), "files": files, "pictures": written.pictures}


@command("partition", partition, "codecnn partition stream.266 -o cus.parquet")
def show_partition(_options: PartitionOptions, facts: dict[str, Any], as_json: bool) -> None:
    """Print the numbers of streams, CUs and blocks."""
    if not as_json and "files" in facts:
        facts = facts["files"] | {"pictures": facts["pictures"]}
    print_facts(facts, as_json)
