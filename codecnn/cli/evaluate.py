"""Evaluation: sequences x QPs, gain and BD-rate."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from codecnn.cli.app import app
from codecnn.cli.options import (
    BitDepth,
    Chroma,
    Device,
    Exact,
    Frames,
    Jobs,
    Json,
    Packing,
    Rate,
    Size,
    Tile,
    parse_qps,
    weights_file,
)
from codecnn.console import out, print_gains, print_json, progress
from codecnn.errors import StoreError

if TYPE_CHECKING:
    from codecnn.dataset.store import Store
    from codecnn.evaluation.sweep import Entry

DEFAULT_QPS = "22,27,32,37,42"


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
    decisions: Annotated[
        Literal["none", "ctu", "full"],
        typer.Option(
            "--decisions", help="what an encoder chooses: nothing; scale, on and off by CTU; network QP as well"
        ),
    ] = "none",
    metrics: Annotated[str, typer.Option("--metrics", help="of psnr, ssim, ms-ssim, vmaf")] = "psnr",
    split: Annotated[str, typer.Option("--split", help="of a store: train, val or test")] = "test",
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    step: Annotated[int, typer.Option("--step", min=1, help="every so-many-th picture; JVET's all intra takes 8")] = 1,
    packing: Packing = None,
    jobs: Jobs = 1,
    tile: Tile = 960,
    device: Device = "auto",
    exact: Exact = False,
    as_json: Json = False,
) -> None:
    """Code sequences (or take a store's), filter what the codec decodes, and report PSNR gain and BD-rate.

    A sequence is a video, a picture, or a folder of pictures that are coded one by one.
    """
    from codecnn.config import checked
    from codecnn.dataset.build import build_store
    from codecnn.dataset.recipe import Recipe
    from codecnn.dataset.store import is_store, open_store
    from codecnn.evaluation.measure import parse_metrics
    from codecnn.evaluation.sweep import evaluate as run_evaluation

    chosen = parse_metrics(metrics)
    entries = _entries([weights_file(one) for one in model], tile, device, exact)
    if len(sequences) == 1 and is_store(Path(sequences[0])):
        store = open_store(sequences[0])
        if qp is not None:
            store = _at_qps(store, parse_qps(qp))
    else:
        spec = {"size": size, "bit_depth": bit_depth, "chroma": chroma, "fps": rate, "frames": frames}
        spec |= {"step": step, "packing": packing, "split": split}
        values = {
            "name": "evaluation",
            "codec": codec,
            "preset": preset,
            "configuration": configuration,
            "qp": parse_qps(qp or DEFAULT_QPS),
            "ctu_size": 64 if codec == "hevc" else 128,
            "sequences": [spec | {"source": str(source)} for source in sequences],
        }
        recipe = checked(Recipe, values, "evaluate")
        with progress("coding", "unit") as report:
            store = build_store(recipe, Path(), output / "store", jobs=jobs, progress=report)
    with progress("filtering", "cell") as report:
        results = run_evaluation(
            entries,
            store,
            split,
            output,
            metrics=chosen,
            decisions=decisions,
            progress=report,
        )
    if as_json:
        print_json(results)
        return
    for one in results.get("models", [results]):
        print_gains(one)
    out.print(f"Report: {output / 'report.html'}", soft_wrap=True)


def _at_qps(store: "Store", qps: list[int]) -> "Store":
    """The store with its units of some QPs only."""
    missing = sorted(set(qps) - {unit.qp for unit in store.units})
    if missing:
        raise StoreError(f"store {store.folder} has no pictures at QP {missing[0]}")
    return replace(store, units=tuple(unit for unit in store.units if unit.qp in qps))


def _entries(weights: list[Path], tile: int, device: str, exact: bool) -> list["Entry"]:
    """The filters, named by their files and folders; by whole paths where several have one name.

    With `exact` there is the integer form of each beside it, so that results tell what it loses.
    """
    import torch

    from codecnn.evaluation.sweep import Entry
    from codecnn.filtering import load_filter
    from codecnn.filtering.integer import integer_path, is_integer
    from codecnn.training import pick_device

    where = pick_device(device)
    on = torch.cuda.get_device_name(where) if where.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    forms = [(path, False) for path in weights]
    if exact:
        forms = [(path, form) for path in weights for form in (False, True)[: 1 if is_integer(path) else 2]]
    files = [integer_path(path) if form else path for path, form in forms]
    short = [f"{file.absolute().parent.name}/{file.stem}" for file in files]
    entries = []
    for (path, form), file, name in zip(forms, files, short, strict=True):
        filter_, card = load_filter(path, exact=form, device=where, tile=tile)
        unique = name if short.count(name) == 1 else str(file.with_suffix(""))
        entries.append(Entry(unique, card, filter_, on))
    return entries
