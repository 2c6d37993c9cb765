"""Commands on training sets: build, verify and summarise."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from tqdm import tqdm

from codecnn.cli.application import dataset_app
from codecnn.cli.console import out, print_facts, print_json, print_table, progress
from codecnn.cli.options import Backend, Jobs, Json, Overrides, Scheduler, Shard, read_spread


@dataset_app.command("build")
def dataset_build(
    recipe: Annotated[Path, typer.Argument(help="Recipe, e.g. datasets/demo.yaml.")],
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the store, new or existing.")] = ...,  # type: ignore[assignment]
    jobs: Jobs = 1,
    shard: Shard = "1/1",
    backend: Backend = "local",
    scheduler: Scheduler = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove units of the store that do not belong to the recipe.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build a store: code the pictures of a recipe at its QPs and index their CTUs.

    An interrupted build is continued. A store built again with other QPs or pictures keeps the units that both recipes
    have in common and codes the missing ones. If it holds units that do not belong to the recipe, the build stops
    before it codes anything; --prune removes them when the store is complete.

    For an array job, run N builds into one store with --shard 1/N to --shard N/N, at the same time or one after
    another; the last to finish completes the store. With --backend dask the workers of a cluster code; they must see
    store, pictures and encoder under the same paths.
    """
    from codecnn import api as verbs
    from codecnn.api.config import load_recipe
    from codecnn.dataset import build_shard, open_store

    part, address = read_spread(shard, backend, scheduler)
    loaded = load_recipe(recipe, overrides or ())
    codec = verbs.loop_codec(loaded, recipe.parent)
    with progress("coding", "unit") as report:
        complete = build_shard(
            loaded, recipe.parent, output, part, codec=codec, jobs=jobs, scheduler=address, progress=report, prune=prune
        )
    if not complete:
        facts = {"store": str(output), "shard": shard, "complete": False}
        print_facts(facts, as_json)
        return
    store = open_store(output)
    facts = {"store": str(output), "units": len(store.units), "ctus": store.ctus().num_rows, "data_key": store.data_key}
    reasons = [unit.no_blocks for unit in store.units if unit.no_blocks is not None]
    if as_json:
        facts["no_blocks"] = reasons
    print_facts(facts, as_json)
    for reason in () if as_json else reasons:
        out.print(reason, soft_wrap=True, markup=False, highlight=False)


@dataset_app.command("verify")
def dataset_verify(
    store: Annotated[Path, typer.Argument(help="Folder of a store.")],
    as_json: Json = False,
) -> None:
    """Hash all files of a store again and list the damaged ones; the exit status is 1 if there are any."""
    from codecnn.dataset import open_store, verify_store

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
def dataset_stats(store: Annotated[Path, typer.Argument(help="Folder of a store.")], as_json: Json = False) -> None:
    """Show pictures, CTUs, bits and PSNR of a store by split and QP."""
    from codecnn.dataset import open_store, store_stats

    stats = store_stats(open_store(store))
    if as_json:
        print_json(stats)
        return
    table = Table("split", "QP", "sequences", "pictures", "CTUs", "bit/sample", "PSNR Y dB", "depth")
    for row in stats["rows"]:
        depth, psnr = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("depth_mean", "psnr_y"))
        rate = "-" if row["bits_per_sample"] is None else f"{row['bits_per_sample']:.3f}"
        counts = (str(row[name]) for name in ("qp", "sequences", "pictures", "ctus"))
        table.add_row(row["split"], *counts, rate, psnr, depth)
    print_table(table)
    # The preset of supplied streams is unknown.
    preset = "" if "given" in stats else f" {stats['preset']}"
    out.print(f"{stats['encoder']}, {stats['codec']}{preset} {stats['configuration']}")
    if "given" in stats:
        out.print(_given_line(stats["given"]), soft_wrap=True, highlight=False)
    if "variants" in stats:
        out.print(_variants_line(stats["variants"]), soft_wrap=True, highlight=False)
    for encoder in stats.get("encoders", ()):
        out.print(_encoder_line(encoder), soft_wrap=True, markup=False, highlight=False)


def _given_line(stats: dict[str, Any]) -> str:
    """Describe units that come from supplied streams or pictures."""
    parts = []
    if stats["streams"]:
        kinds = " and ".join(f"{count} {codec}" for codec, count in stats["streams"].items())
        sizes = ", ".join(map(str, stats["ctu_sizes"]))
        parts.append(
            f"{kinds} streams with CTUs of {sizes}, slice QPs read from their headers, "
            f"{stats['md5s']} of {stats['stream_pictures']} pictures verified by MD5"
        )
    if stats["decoded"]:
        parts.append(f"{stats['decoded']} decoded pictures without a stream, slice QPs as stated in the recipe")
    return f"supplied units: {'; '.join(parts)}"


def _variants_line(stats: dict[str, Any]) -> str:
    """Describe the random parameters of the variants of a store."""
    ranges = [
        f"{name} {stats[name]['range'][0]:.2f} to {stats[name]['range'][1]:.2f} ({stats[name]['sequences']} sequences)"
        for name in ("scale", "blur", "sharpen", "contrast", "gamma")
        if name in stats
    ]
    kernels = [", ".join(f"{kernel} {count}" for kernel, count in stats["kernels"].items())] if stats["kernels"] else []
    names = ("linear_light", "full_range", "limited_range")
    counts = [f"{name.replace('_', ' ')} {stats[name]}" for name in names if stats[name]]
    return f"{stats['sequences']} sequences are variants: {'; '.join([*ranges, *kernels, *counts])}"


def _encoder_line(settings: dict[str, Any]) -> str:
    """Describe encoder settings of a store and the number of units coded with them."""
    params = "".join(f" {name}={value}" for name, value in settings["params"].items())
    depth = settings["source_bit_depth"]
    source = "" if depth is None else f", sources of {depth} bit"
    units = ", ".join(f"{split} {count}" for split, count in settings["units"].items())
    return f"{settings['preset']}, CTU {settings['ctu_size']}{params}{source}: units: {units}"
