"""Commands on training sets: plan, build, verify and summarise."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from codecnn.api.stores import BuildOptions, PlanOptions, StoreOptions, build_dataset, plan_dataset
from codecnn.base.options import verb
from codecnn.base.rate_modes import rate_mode
from codecnn.cli.application import dataset_app
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_facts, print_json, print_table

if TYPE_CHECKING:
    from codecnn.dataset import BuildPlan, Store


@command("dataset plan", plan_dataset, "codecnn dataset plan datasets/demo.yaml", group=dataset_app)
def show_plan(_options: PlanOptions, plan: "BuildPlan", as_json: bool) -> None:
    """Print core-hours by setting of the encoder, and GiB by kind of file."""
    if as_json:
        print_json(plan.to_json())
        return
    rows = [*plan.rows, plan.total] if len(plan.rows) > 1 else list(plan.rows)
    table = Table("", "units", "pictures", "GiB", "core-hours", "coding", "rebuilt planes", "temporal planes", "other")
    for row in rows:
        hours = row.core_hours
        parts = (hours.total, hours.coding, hours.rebuilding, hours.temporal, hours.other)
        table.add_row(
            row.configuration,
            str(row.units),
            str(row.pictures),
            _significant(row.bytes / 2**30),
            *("-" if part is None else _significant(part) for part in parts),
        )
    print_table(table)
    sizes = Table("files", "GiB")
    for kind, size in plan.total.sizes.items():
        sizes.add_row(kind.replace("_", " "), _significant(size / 2**30))
    print_table(sizes)
    notes = [
        f"{name}: the encoder's time is not measured for these settings: build a few pictures with times=true"
        for name in plan.not_measured
    ]
    if plan.planned:
        notes.append(f"{plan.planned} sequences are missing and count as the recipe states: root=FOLDER finds them")
    for note in notes:
        out.print(note, soft_wrap=True, markup=False, highlight=False)


def _significant(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 1000."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


@command(
    "dataset build",
    build_dataset,
    "codecnn dataset build datasets/demo.yaml -o stores/demo -j 2",
    group=dataset_app,
    resumable=True,
)
def show_built(options: BuildOptions, store: "Store | None", as_json: bool) -> None:
    """Print the number of units, and why units have no CU table."""
    facts: dict[str, Any] = {"store": str(options.store)}
    if store is None:
        print_facts(facts | {"shard": "/".join(map(str, options.shard)), "complete": False}, as_json)
        return
    facts |= {"units": len(store.units), "ctus": store.ctus().num_rows, "data_key": store.data_key}
    reasons = [unit.no_blocks for unit in store.units if unit.no_blocks is not None]
    if as_json:
        facts["no_blocks"] = reasons
    print_facts(facts, as_json)
    for reason in () if as_json else reasons:
        out.print(reason, soft_wrap=True, markup=False, highlight=False)


@verb(StoreOptions)
def verify(options: StoreOptions) -> list[tuple[str, str | None]]:
    """Hash all files of a store again and list the damaged ones; the exit status is 1 if there are any."""
    from tqdm import tqdm

    from codecnn.dataset import open_store, verify_store

    return list(tqdm(verify_store(open_store(options.store)), desc="hashing", unit="file", disable=None))


@command("dataset verify", verify, "codecnn dataset verify stores/demo", group=dataset_app)
def show_damaged(options: StoreOptions, checked: list[tuple[str, str | None]], as_json: bool) -> None:
    """Print the damaged files; status 1 if there are any."""
    damaged = {name: problem for name, problem in checked if problem is not None}
    if as_json:
        print_json({"store": str(options.store), "files": len(checked), "damaged": damaged})
    else:
        for name, problem in damaged.items():
            out.print(f"{Path(options.store) / name} {problem}", soft_wrap=True, markup=False, highlight=False)
        out.print(f"{len(checked)} files, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)


@verb(StoreOptions)
def stats(options: StoreOptions) -> dict[str, Any]:
    """Show pictures, CTUs, bits and PSNR of a store by split and QP."""
    from codecnn.dataset import open_store, store_stats

    return store_stats(open_store(options.store))


@command("dataset stats", stats, "codecnn dataset stats stores/demo", group=dataset_app)
def show_stats(_options: StoreOptions, stats: dict[str, Any], as_json: bool) -> None:
    """Print a table by split and QP."""
    if as_json:
        print_json(stats)
        return
    heads = ("split", rate_mode(stats.get("rate")).title, "sequences", "pictures", "CTUs")
    table = Table(*heads, "bit/sample", "PSNR Y dB", "depth")
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
