"""The command line: thin functions over the library. Only this file exits; console.py prints."""

import errno
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from tqdm import tqdm

from codecnn import __version__
from codecnn.console import err, out, print_facts, print_gains, print_json, progress
from codecnn.errors import CodecnnError, ConfigError

app = typer.Typer(
    help="Train CNN in-loop filters for VVC and HEVC on what the real encoders leave, and measure what they gain.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dataset_app = typer.Typer(help="Training sets: build, verify, look at.", no_args_is_help=True)
app.add_typer(dataset_app, name="dataset")

Json = Annotated[bool, typer.Option("--json", help="print the result as JSON on stdout")]
Size = Annotated[str | None, typer.Option("-s", "--size", help="WxH of raw YUV, where its name does not tell")]
BitDepth = Annotated[int | None, typer.Option("--bit-depth", help="of raw YUV, where its name does not tell [8]")]
Chroma = Annotated[str | None, typer.Option("--chroma", help="400, 420, 422 or 444 [420]")]
Rate = Annotated[float | None, typer.Option("-r", "--rate", help="pictures a second")]
Packing = Annotated[str | None, typer.Option("--packing", help="of raw YUV, such as p010 [planar]")]
Frames = Annotated[int | None, typer.Option("-f", "--frames", min=1, help="only the first so many pictures")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="encoders at a time")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="values instead of the file's")
]
Tile = Annotated[
    int, typer.Option("--tile", min=16, help="side of the tiles in samples; the result does not depend on it")
]
Model = Annotated[Path, typer.Option("--model", "-m", help="weights, .safetensors with their card beside them")]


def _version(value: bool) -> None:
    if value:
        out.print(f"codecnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for everything that the demo makes")] = Path(
        "demo"
    ),
    jobs: Jobs = 2,
) -> None:
    """All four jobs on the pictures that scikit-image brings: build, train, evaluate, correlate. Minutes on two cores.

    Run it again after an interruption and it goes on where it was.
    """
    from codecnn.demo import run_demo

    results = run_demo(output, jobs=jobs, say=err.print, progress=progress)
    print_gains(results["evaluation"])
    correlation = results["correlation"]
    out.print(
        f"Correlation with the codec's error (x265, {correlation['n']} CTUs): "
        f"QP {correlation['pearson']['qp']:.3f}, depth {correlation['pearson']['depth']:.3f}, "
        f"a·QP + b·depth {correlation['bayes']['r']:.3f}"
    )
    out.print(f"Report: {output / 'evaluation' / 'report.html'}")
    out.print(f"Correlation: {output / 'correlation' / 'correlation.md'}")


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
        form = video.format
        facts: dict[str, Any] = {
            "file": str(file),
            "width": form.width,
            "height": form.height,
            "chroma": form.chroma,
            "bit_depth": form.bit_depth,
            "fps": None if form.fps is None else float(form.fps),
            "pictures": len(video),
        }
    print_facts(facts, as_json)


def _stream_info(file: Path, as_json: bool) -> None:
    from codecnn.codec.vvc_partition import stream_info

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
    stream: Annotated[Path, typer.Argument(help="a VVC elementary stream, .266")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="the table: .parquet, .csv or .vtmbmsstats by its name")
    ] = ...,  # type: ignore[assignment]
    as_json: Json = False,
) -> None:
    """Every CU of a bitstream: position, size, depth, mode and QP. The first run compiles for about a minute."""
    from codecnn.codec.blockstats import LUMA, write_table
    from codecnn.codec.vvc_partition import stream_table

    table = stream_table(stream)
    write_table(output, table)
    luma = int((table.channel == LUMA).sum())
    pictures = len(set(table.poc.tolist()))
    facts = {"stream": str(stream), "table": str(output), "pictures": pictures, "cus": len(table), "luma_cus": luma}
    print_facts(facts, as_json)


@dataset_app.command("build")
def dataset_build(
    recipe: Annotated[Path, typer.Argument(help="a recipe such as datasets/demo.yaml")],
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="the store: a folder, made or continued")] = ...,  # type: ignore[assignment]
    jobs: Jobs = 1,
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="code every N-th unit only, from the I-th")
    ] = "1/1",
    backend: Annotated[Literal["local", "dask"], typer.Option("--backend", help="who runs the encoders")] = "local",
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="of dask, such as tcp://host:8786; its workers code")
    ] = None,
    as_json: Json = False,
) -> None:
    """Code the pictures of a recipe at its QPs and index their CTUs.

    A build that was interrupted goes on where it was. A store holds what its recipe says: build it again with other
    QPs or pictures and what they have in common is kept, the rest coded or removed.

    For an array job run N builds of one recipe into one store, each with its own --shard I/N, at once or one after
    another: the last to end completes the store. With --backend dask the workers of a cluster code; they must see
    store, pictures and encoder under the same paths.
    """
    from codecnn.config import load_recipe
    from codecnn.ctu.build import build_shard, parse_shard
    from codecnn.ctu.store import open_store

    if (backend == "dask") != (scheduler is not None):
        raise ConfigError("--backend dask and --scheduler ADDRESS need each other")
    loaded, part = load_recipe(recipe, overrides or ()), parse_shard(shard)
    with progress("coding", "unit") as report:
        whole = build_shard(loaded, recipe.parent, output, part, jobs=jobs, scheduler=scheduler, progress=report)
    if not whole:
        facts = {"store": str(output), "shard": shard, "complete": False}
        print_facts(facts, as_json)
        return
    store = open_store(output)
    facts = {"store": str(output), "units": len(store.units), "ctus": store.ctus().num_rows, "data_key": store.data_key}
    print_facts(facts, as_json)


@dataset_app.command("verify")
def dataset_verify(
    store: Annotated[Path, typer.Argument(help="a store")],
    as_json: Json = False,
) -> None:
    """Hash every file of a store again; exit 1 and a list where something is damaged."""
    from codecnn.ctu.store import open_store, verify_store

    checked = list(tqdm(verify_store(open_store(store)), desc="hashing", unit="file", disable=None))
    damaged = {name: problem for name, problem in checked if problem is not None}
    if as_json:
        print_json({"store": str(store), "files": len(checked), "damaged": damaged})
    else:
        for name, problem in damaged.items():
            out.print(f"{store / name} {problem}", soft_wrap=True, markup=False, highlight=False)
        out.print(f"{len(checked)} files, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)


@dataset_app.command("stats")
def dataset_stats(store: Annotated[Path, typer.Argument(help="a store")], as_json: Json = False) -> None:
    """What a store holds: pictures, CTUs, bits and PSNR by split and QP."""
    from codecnn.ctu.stats import store_stats
    from codecnn.ctu.store import open_store

    stats = store_stats(open_store(store))
    if as_json:
        print_json(stats)
        return
    table = Table("split", "QP", "sequences", "pictures", "CTUs", "bit/sample", "PSNR Y dB", "depth")
    for row in stats["rows"]:
        depth = "-" if row["depth_mean"] is None else f"{row['depth_mean']:.2f}"
        rate, psnr = f"{row['bits_per_sample']:.3f}", f"{row['psnr_y']:.2f}"
        counts = (str(row[name]) for name in ("qp", "sequences", "pictures", "ctus"))
        table.add_row(row["split"], *counts, rate, psnr, depth)
    out.print(table)
    out.print(f"{stats['encoder']}, {stats['codec']} {stats['preset']} {stats['configuration']}")


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


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="a configuration such as configs/demo.yaml")],
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="the run's folder [runs/NAME of the config]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the run's last checkpoint")] = False,
    as_json: Json = False,
) -> None:
    """Train a network on a store; the weights that do best on its validation pictures are kept."""
    from codecnn.config import load_train_config
    from codecnn.training import train as run_training

    loaded = load_train_config(config, overrides or ())
    run = output or Path("runs") / config.stem
    last = run_training(
        loaded.mix(), loaded.model.name, loaded.model.options, loaded.training, run, resume=resume, progress=True
    )
    if as_json:
        print_json(last | {"weights": str(run / "best.safetensors")})
        return
    out.print(f"Best mean gain on the validation pictures: {last['best_gain']:+.4f} dB")
    out.print(f"Weights: {run / 'best.safetensors'}", soft_wrap=True)


@app.command()
def evaluate(
    sequences: Annotated[list[str], typer.Argument(metavar="SEQ...", help="videos or pictures to code, or one store")],
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for results.json, results.csv, report.html")],
    qp: Annotated[str, typer.Option("-q", "--qp", help="QPs to code at")] = "22,27,32,37,42",
    codec: Annotated[str, typer.Option("--codec", help="vvc or hevc")] = "vvc",
    preset: Annotated[str, typer.Option("--preset", help="of the encoder")] = "medium",
    configuration: Annotated[
        Literal["ai", "ra", "ldb"], typer.Option("--configuration", help="all intra, random access, low delay B")
    ] = "ai",
    split: Annotated[str, typer.Option("--split", help="of a store: train, val or test")] = "test",
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    step: Annotated[int, typer.Option("--step", min=1, help="every so-many-th picture; JVET's all intra takes 8")] = 1,
    packing: Packing = None,
    jobs: Jobs = 1,
    tile: Tile = 640,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Code sequences (or take a store's), filter what the codec decodes, and report PSNR gain and BD-rate.

    A sequence is a video, a picture, or a folder of pictures that are coded one by one.
    """
    from codecnn.config import checked
    from codecnn.ctu.build import build_store
    from codecnn.ctu.recipe import Recipe
    from codecnn.ctu.store import is_store, open_store
    from codecnn.evaluation.sweep import evaluate as run_evaluation
    from codecnn.models import load_model
    from codecnn.training import pick_device

    network, card = load_model(model)
    where = pick_device(device)
    if len(sequences) == 1 and is_store(Path(sequences[0])):
        store = open_store(sequences[0])
    else:
        spec = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "fps": rate, "frames": frames}
        spec |= {"step": step, "packing": packing, "split": split}
        values = {
            "name": "evaluation",
            "codec": codec,
            "preset": preset,
            "configuration": configuration,
            "qp": _qps(qp),
            "ctu_size": 64 if codec == "hevc" else 128,
            "sequences": [spec | {"source": str(source)} for source in sequences],
        }
        recipe = checked(Recipe, values, "evaluate")
        with progress("coding", "unit") as report:
            store = build_store(recipe, Path(), output / "store", jobs=jobs, progress=report)
    with progress("filtering", "unit") as report:
        results = run_evaluation(
            network.to(where), card, store, split, output, tile=tile, device=where, progress=report
        )
    if as_json:
        print_json(results)
        return
    print_gains(results)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)


@app.command("filter")
def filter_command(
    model: Model,
    source: Annotated[Path, typer.Option("-i", "--input", help="decoded pictures: YUV, Y4M, or a bitstream")],
    output: Annotated[Path, typer.Option("-o", "--output", help="filtered pictures: raw YUV, or Y4M by its suffix")],
    qp: Annotated[str, typer.Option("-q", "--qp", help="slice QP of all pictures, or a comma list with one a picture")],
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    tile: Tile = 640,
    device: Device = "auto",
) -> None:
    """Filter decoded pictures; the output has the format of the input."""
    from codecnn.evaluation.sweep import untrained_qp
    from codecnn.filtering import filter_video
    from codecnn.models import load_model
    from codecnn.training import pick_device
    from codecnn.video import open_video

    if output.resolve() == source.resolve():
        raise ConfigError(f"input and output are the same file, {output}")
    network, card = load_model(model)
    where = pick_device(device)
    for value in sorted(set(_qps(qp))):
        if note := untrained_qp(card, value):
            err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
    with (
        open_video(source, size=size, bit_depth=bit_depth, chroma=chroma, fps=rate, frames=frames) as video,
        tqdm(total=len(video), desc="filtering", unit="picture", disable=None) as bar,
    ):
        filter_video(
            network.to(where), video, _qps(qp), output, tile=tile, device=where, progress=lambda _done: bar.update()
        )


@app.command()
def correlate(
    source: Annotated[Path, typer.Argument(metavar="STORE|TABLE", help="a store, or a table .parquet or .csv")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for correlation.json, tables and plots")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the search and the bootstrap")] = 0,
    as_json: Json = False,
) -> None:
    """How QP and CU depth relate to the error the codec leaves: Pearson, and the best a·QP + b·depth."""
    from codecnn.analysis import correlate as run_correlation
    from codecnn.analysis import load_table, write_correlation
    from codecnn.ctu.store import open_store

    if source.is_dir():
        open_store(source)  # says what is wrong with an unfinished one
    columns = load_table(source)
    result = run_correlation(columns, seed=seed)
    write_correlation(output, result, columns)
    if as_json:
        print_json(result)
    else:
        out.print(
            (output / "correlation.md").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True
        )


@app.command()
def models(as_json: Json = False) -> None:
    """The networks that `train` and `complexity` know."""
    from codecnn.models import describe_model, list_models

    if as_json:
        print_json([{"name": name, "description": describe_model(name)} for name in list_models()])
        return
    table = Table("name", "network")
    for name in list_models():
        table.add_row(name, describe_model(name))
    out.print(table)


@app.command()
def complexity(
    model: Annotated[str | None, typer.Argument(help="a network's name, or weights .safetensors")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...", help="options of the network")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all networks, as a table in Markdown")] = False,
    as_json: Json = False,
) -> None:
    """What a network costs: kMAC/pixel without and with the halo of a 128x128 CTU, parameters, reach, peak memory."""
    from codecnn.config import parse_overrides
    from codecnn.models import complexity_table, create_model, full_cost, list_models, load_model

    if every == (model is not None):
        raise typer.BadParameter("give the name of a network, or --all")
    if model is None:
        if as_json:
            print_json([{"model": name} | full_cost(create_model(name)) for name in list_models()])
        else:
            out.print(complexity_table(), markup=False, highlight=False, soft_wrap=True)
        return
    options = parse_overrides(overrides or ())
    if model.endswith(".safetensors"):
        if options:
            raise ConfigError("weights bring their own options; give none")
        network = load_model(model)[0]
    else:
        network = create_model(model, **options)
    print_facts({"model": model} | full_cost(network), as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What is here and what is missing: ffmpeg, encoders, torch, GPU. Exit 1 when something needed is missing."""
    from codecnn.doctor import examine

    findings = examine()
    if as_json:
        print_json(findings)
    else:
        table = Table("what", "found", "")
        for finding in findings:
            table.add_row(finding["what"], finding["found"], "ok" if finding["ok"] else "missing")
        out.print(table)
    if not all(finding["ok"] or finding["optional"] for finding in findings):
        raise typer.Exit(1)


def _qps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"QP {text!r} is not a whole number or a comma list of them, such as 22,27,32,37") from None


def main() -> None:
    """Entry point: runs the command and turns what happens into one sentence and an exit status.

    0 done, 1 failed, 2 usage, 130 interrupted.
    """
    debug = "--debug" in sys.argv
    try:
        app(standalone_mode=True)
    except CodecnnError as error:
        _fail(error, str(error), 1, debug)
    except KeyboardInterrupt:
        _fail(KeyboardInterrupt(), "interrupted", 130, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        text = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or str(error)
        _fail(error, f"{error.filename}: {text}" if error.filename else text, 1, debug)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _fail(error, f"unexpected {kind}: {error} (this is a fault of codecnn; --debug shows where)", 1, debug)


def _fail(error: BaseException, sentence: str, status: int, debug: bool) -> None:
    if debug:
        raise error
    err.print(f"codecnn: {sentence}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)
