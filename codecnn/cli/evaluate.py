"""Evaluation: sequences x QPs, gain and BD-rate."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cli import options as shared
from codecnn.cli.app import app
from codecnn.console import out, print_facts, print_gains, print_json, print_loop, print_tables, progress
from codecnn.errors import ConfigError


@app.command()
def evaluate(
    sequences: Annotated[list[str], typer.Argument(metavar="SEQ...", help="videos or pictures to code, or one store")],
    model: Annotated[
        list[Path],
        typer.Option("--model", "-m", help="weights: a name of `codecnn models`, or a file; once for each filter"),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for results.json, report.html and tables")],
    qp: Annotated[
        str | None, typer.Option("-q", "--qp", help="QPs to code at [22,27,32,37,42]; of a store, those to take [all]")
    ] = None,
    codec: Annotated[str, typer.Option("--codec", help="vvc or hevc")] = "vvc",
    preset: Annotated[str, typer.Option("--preset", help="of the encoder")] = "medium",
    configuration: Annotated[
        Literal["ai", "ra", "ldb"], typer.Option("--configuration", help="all intra, random access, low delay B")
    ] = "ai",
    ctc: Annotated[
        bool, typer.Option("--ctc", help="ra and ldb as near to JVET's common test conditions as libvvenc goes")
    ] = False,
    decisions: Annotated[
        Literal["none", "ctu", "full"] | None,
        typer.Option(
            "--decisions",
            help="what an encoder chooses: nothing; scale, on and off by CTU; network QP as well [none; in loop: ctu]",
        ),
    ] = None,
    metrics: Annotated[str, typer.Option("--metrics", help="of psnr, ssim, ms-ssim, vmaf")] = "psnr",
    split: Annotated[str, typer.Option("--split", help="of a store: train, val or test")] = "test",
    size: shared.Size = None,
    bit_depth: shared.BitDepth = None,
    chroma: shared.Chroma = None,
    rate: shared.Rate = None,
    frames: shared.Frames = None,
    step: Annotated[int, typer.Option("--step", min=1, help="every so-many-th picture; JVET's all intra takes 8")] = 1,
    packing: shared.Packing = None,
    jobs: shared.Jobs = 1,
    shard: shared.Shard = "1/1",
    backend: shared.Backend = "local",
    scheduler: shared.Scheduler = None,
    tile: shared.Tile = None,
    in_loop: Annotated[
        bool, typer.Option("--in-loop", help="of ldb: code with the filter in the loop, by a libvvenc of your own")
    ] = False,
    vvenc_library: Annotated[
        Path | None,
        typer.Option("--vvenc-library", help="libvvenc as a shared library [CODECNN_VVENC_LIBRARY]; docs/inloop.md"),
    ] = None,
    device: shared.Device = "auto",
    exact: shared.Exact = None,
    precision: shared.Precision = "float32",
    as_json: shared.Json = False,
) -> None:
    """Code sequences (or take a store's), filter what the codec decodes, and report PSNR gain and BD-rate.

    A sequence is a video, a picture, or a folder of pictures that are coded one by one. With --exact integers are
    measured beside the floats that they were made from.

    What was measured of a sequence at a QP by a filter is kept, and an evaluation that was interrupted goes on there.
    For an array job run N of them into one folder, --shard 1/N to --shard N/N: the last to end reports. With --backend
    dask --scheduler tcp://host:8786 the workers of a cluster code and filter; they must see store, weights and output
    under the same paths.
    """
    from codecnn import verbs
    from codecnn.evaluation import parse_metrics, results_json

    options = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "fps": rate, "frames": frames}
    options |= {"step": step, "packing": packing}
    if in_loop:
        if (shard, backend, scheduler) != ("1/1", "local", None):
            raise ConfigError("--in-loop codes on this machine alone: leave --shard, --backend and --scheduler away")
        told = (codec, configuration, metrics, jobs)
        if told != ("vvc", "ldb", "psnr", 1) or ctc:
            raise ConfigError(
                "--in-loop goes with --configuration ldb, --codec vvc, --metrics psnr and --jobs 1, not with "
                f"{', '.join(map(str, told))}{' and --ctc' if ctc else ''}"
            )
        with progress("coding and filtering", "picture") as report:
            loop = verbs.evaluate_in_loop(
                sequences,
                [shared.weights_file(one) for one in model],
                output,
                library=vvenc_library,
                qps=verbs.QPS if qp is None else shared.parse_qps(qp),
                preset=preset,
                decisions=decisions or "ctu",
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
    if vvenc_library is not None:
        raise ConfigError("--vvenc-library is for --in-loop")
    part, address = shared.read_spread(shard, backend, scheduler)
    with progress("coding", "unit") as coding, progress("filtering", "cell") as filtering:
        results = verbs.evaluate(
            sequences,
            [shared.weights_file(one) for one in model],
            output,
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
    for one in results:
        print_gains(one)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)


@app.command()
def jvet(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="folders of evaluations")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for jvet.csv and report.html")],
    as_json: shared.Json = False,
) -> None:
    """Put evaluations of several configurations into one table, in the layout of JVET's sheets.

    Classes, overall figure and sequences of each configuration, and the types of its pictures: BD-rate of Y, U, V and
    YUV, gain, complexity, times.
    """
    from codecnn.evaluation import merge_results

    tables = merge_results(results, output)
    if as_json:
        print_json([row for table in tables for row in table.csv_rows()])
        return
    print_tables(tables)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)
