"""Commands of evaluation: gain and BD-rate of filters, and JVET tables."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from codecnn.base.errors import ConfigError
from codecnn.cli import options as shared
from codecnn.cli.application import app
from codecnn.cli.console import out, print_facts, print_gains, print_json, print_loop, print_tables, progress


@app.command()
def evaluate(
    sequences: Annotated[
        list[str],
        typer.Argument(metavar="SEQ...", help="Videos or pictures to code, or one store, or streams with --original."),
    ],
    model: Annotated[
        list[Path],
        typer.Option(
            "--model",
            "-m",
            help="Weights: a name from `codecnn models`, e.g. low_cost_17, or a file; repeat for several filters.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for results.json, report.html and tables, e.g. results.")
    ],
    original: Annotated[
        Path | None,
        typer.Option("--original", help="Video that the given streams were coded from; their pictures are filtered."),
    ] = None,
    qp: Annotated[
        str | None,
        typer.Option(
            "-q", "--qp", help="QPs to code at (default: 22,27,32,37,42), or QPs of a store to evaluate (default: all)."
        ),
    ] = None,
    codec: Annotated[
        str, typer.Option("--codec", help="Codec for videos and pictures: vvc, hevc, av1, svtav1 or avc.")
    ] = "vvc",
    preset: Annotated[
        str, typer.Option("--preset", help="Encoder preset, e.g. faster, fast, medium, slow.")
    ] = "medium",
    configuration: Annotated[
        Literal["ai", "ra", "ldb"],
        typer.Option("--configuration", help="Coding configuration: all intra, random access or low delay B."),
    ] = "ai",
    ctc: Annotated[
        bool,
        typer.Option("--ctc", help="With ra or ldb, follow JVET's common test conditions as far as libvvenc allows."),
    ] = False,
    decisions: Annotated[
        Literal["none", "ctu", "full"] | None,
        typer.Option(
            "--decisions",
            help="Encoder decisions: none; ctu: residual scale, on and off by CTU; full: QP offset as well "
            "(default: none, with --in-loop ctu).",
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option("--metrics", help="Quality metrics, a comma list of psnr, ssim, ms-ssim, vmaf.")
    ] = "psnr",
    split: Annotated[str, typer.Option("--split", help="Split of a store: train, val or test.")] = "test",
    size: shared.Size = None,
    bit_depth: shared.BitDepth = None,
    chroma: shared.Chroma = None,
    rate: shared.Rate = None,
    frames: shared.Frames = None,
    step: Annotated[int, typer.Option("--step", min=1, help="Use every N-th picture; JVET uses 8 in all intra.")] = 1,
    packing: shared.Packing = None,
    jobs: shared.Jobs = 1,
    shard: shared.Shard = "1/1",
    backend: shared.Backend = "local",
    scheduler: shared.Scheduler = None,
    tile: shared.Tile = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove coded streams and measurements of other evaluations.")
    ] = False,
    in_loop: Annotated[
        bool,
        typer.Option(
            "--in-loop", help="With ldb, code with the filter in the coding loop; needs libvvenc as a shared library."
        ),
    ] = False,
    choose: Annotated[
        bool,
        typer.Option(
            "--choose",
            help="With --in-loop, code in more passes with the filter in or behind the loop, and choose by sequence "
            "and QP.",
        ),
    ] = False,
    vvenc_library: Annotated[
        Path | None,
        typer.Option(
            "--vvenc-library",
            help="libvvenc as a shared library, see docs/howto/inloop.md (default: CODECNN_VVENC_LIBRARY).",
        ),
    ] = None,
    device: shared.Device = "auto",
    exact: shared.Exact = None,
    precision: shared.Precision = "float32",
    trust: shared.Trust = None,
    as_json: shared.Json = False,
) -> None:
    """Code sequences (or take those of a store), filter the decoded pictures, and report PSNR gain and BD-rate.

    A sequence is a video, a picture, or a folder of pictures that are coded one by one. Streams that are already coded
    are evaluated with the video that they were coded from: evaluate q22.266 q37.266 --original clip.yuv. With --exact,
    integer networks are evaluated together with the float networks that they were made from.

    Coded streams and measurements are kept: an interrupted evaluation continues when the same command is run again, and
    other QPs, clips, settings or filters are added to those in the folder; --prune removes them. For an array job, run
    N jobs into one folder with --shard 1/N to --shard N/N; the last to finish writes the report. With --backend dask
    --scheduler tcp://host:8786 the workers of a cluster code and filter; they must see store, weights and output under
    the same paths.
    """
    from codecnn import api as verbs
    from codecnn.evaluation import parse_metrics, results_json

    options: dict[str, Any] = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "fps": rate, "frames": frames}
    options |= {"step": step, "packing": packing}
    if in_loop:
        if (shard, backend, scheduler) != ("1/1", "local", None):
            raise ConfigError("--in-loop codes on this machine only: leave out --shard, --backend and --scheduler")
        if original is not None:
            raise ConfigError("--in-loop codes the originals itself: leave out --original, and name the originals")
        if prune:
            raise ConfigError("--in-loop keeps all streams: leave out --prune")
        values = (codec, configuration, metrics, jobs)
        if values != ("vvc", "ldb", "psnr", 1) or ctc:
            raise ConfigError(
                "--in-loop needs --configuration ldb, --codec vvc, --metrics psnr and --jobs 1, not "
                f"{', '.join(map(str, values))}{' and --ctc' if ctc else ''}"
            )
        shared.limit_threads(device)
        with progress("coding and filtering", "picture") as report:
            loop = verbs.evaluate_in_loop(
                sequences,
                [shared.weights_file(weights) for weights in model],
                output,
                library=vvenc_library,
                qps=verbs.QPS if qp is None else shared.parse_qps(qp),
                preset=preset,
                decisions=decisions or "ctu",
                choose=choose,
                exact=exact,
                precision=precision,
                device=device,
                tile=tile or "auto",
                progress=report,
                **options,
            )
        if as_json:
            print_json(loop.model_dump())
        else:
            print_loop(loop)
            out.print(f"Streams and pictures: {output / 'coded'}", soft_wrap=True)
        return
    if vvenc_library is not None or choose:
        option = "--choose" if vvenc_library is None else "--vvenc-library"
        raise ConfigError(f"{option} is used with --in-loop only: add --in-loop or leave it out")
    part, address = shared.read_spread(shard, backend, scheduler)
    shared.limit_threads(device)
    with progress("coding", "unit") as coding, progress("filtering", "cell") as filtering:
        results = verbs.evaluate(
            sequences,
            [shared.weights_file(weights) for weights in model],
            output,
            original=original,
            qps=None if qp is None else shared.parse_qps(qp),
            split=split,
            codec=codec,
            preset=preset,
            configuration=configuration,
            ctc=ctc,
            metrics=parse_metrics(metrics),
            decisions=decisions or "none",
            exact=exact,
            precision=precision,
            device=device,
            tile=tile or "auto",
            jobs=jobs,
            shard=part,
            scheduler=address,
            prune=prune,
            coding=coding,
            filtering=filtering,
            **options,
        )
    if not results:
        print_facts({"results": str(output), "shard": shard, "complete": False}, as_json)
        return
    if as_json:
        print_json(results_json(results))
        return
    print_gains(results)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)


@app.command()
def jvet(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Folders written by `codecnn evaluate`, e.g. results/ra.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for jvet.csv and report.html.")],
    xlsx: Annotated[
        Path | None,
        typer.Option("--xlsx", help="Write a workbook in the layout of JVET's sheets as well, e.g. jvet.xlsx."),
    ] = None,
    as_json: shared.Json = False,
) -> None:
    """Merge evaluations of several configurations into one table in the layout of JVET's sheets.

    For each configuration the table lists classes, overall figures, sequences and picture types with the BD-rates of Y,
    U, V and YUV, gain, complexity and times.
    """
    from codecnn.evaluation import check_merged_outputs, merge_results, write_workbook

    check_merged_outputs(results, output, xlsx)
    tables = merge_results(results, output)
    if xlsx is not None:
        write_workbook(xlsx, tables)
    if as_json:
        print_json([row for table in tables for row in table.csv_rows()])
        return
    print_tables(tables)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)
