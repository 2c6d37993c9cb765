"""Building a store from a recipe: convert, code, check and measure; an interrupted build is continued.

Each unit is coded in a working folder, which is renamed to its final name when all its files are complete and checked,
including unit.json, its line of units.jsonl. A unit is therefore complete or absent after a kill at any moment, and any
number of threads, processes and machines can code into one store. The shard that completes the last unit writes
units.jsonl, the table of CTUs and the manifest.

The content of a store does not depend on the time, the paths of the machine or the order of work: two builds of one
recipe are equal file by file. The only exception is seconds.json, which a recipe with `times` adds to each unit.
"""

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from codecnn.base.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.files import atomic_path, disk_errors, remove_tree, sha256_file, sha256_json, write_json, write_jsonl
from codecnn.base.leftovers import remove_leftovers
from codecnn.base.outputs import check_outputs
from codecnn.codec import STREAMS, Codec, get_codec, streams_identity
from codecnn.dataset.estimate import unit_costs
from codecnn.dataset.originals import ORIGINALS, check_sources
from codecnn.dataset.planning import (
    CODED,
    UNIT,
    Build,
    UnitPlan,
    check_nothing_is_lost,
    finished_unit,
    other_units,
    plan_units,
)
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import CodedUnit
from codecnn.dataset.remote import store_address
from codecnn.dataset.sources import Source, check_stated_qps, expand
from codecnn.dataset.store import CTU_SCHEMA, CTUS, MANIFEST, SCHEMA, UNITS, Store, open_store
from codecnn.dataset.store_folder import (
    LOCK_SECONDS,
    claim_folder,
    clean_originals,
    remove_abandoned_folders,
    remove_hashes,
    remove_locks,
    remove_working_folders,
)
from codecnn.dataset.unit_coding import code_unit

PRUNE_ADVICE = "build into another folder to keep them, or remove them with --prune (prune=True in Python)"
"""Advice of the message about units that do not belong to the recipe."""


def build_store(
    recipe: Recipe,
    recipe_folder: Path,
    store: Path,
    *,
    codec: Codec | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    prune: bool = False,
    advice: str = PRUNE_ADVICE,
    keep: bool = False,
) -> Store:
    """Build a store from a recipe, or continue or update the store that is there.

    Args:
        recipe: The recipe.
        recipe_folder: Folder from which the recipe's relative paths are resolved.
        store: Folder of the store.
        codec: Back end for a recipe with `in_loop`, from `codecnn.signalling.in_loop.in_loop_codec`.
        jobs: Number of units that are coded at the same time.
        scheduler: Address of a dask scheduler whose workers code instead of threads of this process. They must see the
            store, the pictures and the encoder under the same paths.
        progress: Called with the number of finished units and of all units.
        prune: Remove units of the store that do not belong to the recipe. Without it such units are an error.
        advice: What the message of this error tells the user to do.
        keep: Keep such units without an error. The store lists the recipe's units only; another build that needs the
            others finds them.

    Returns:
        The complete store.

    Raises:
        StoreError: The folder holds files and is not a store, the store holds units that do not belong to the recipe,
            or another build works on it.
        ConfigError: The recipe and its pictures do not fit, or a source lies in the store.
        CodecnnError: Any error of the pictures, the encoder or the disk. Finished units remain, and another build
            continues from them.
    """
    build_shard(
        recipe,
        recipe_folder,
        store,
        WHOLE,
        codec=codec,
        jobs=jobs,
        scheduler=scheduler,
        progress=progress,
        prune=prune,
        advice=advice,
        keep=keep,
    )
    return open_store(store)


def build_shard(
    recipe: Recipe,
    recipe_folder: Path,
    store: Path,
    shard: Shard,
    *,
    codec: Codec | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    prune: bool = False,
    advice: str = PRUNE_ADVICE,
    keep: bool = False,
) -> bool:
    """Code a part of the units of a recipe; the parts take about the same processor time.

    Shards can run at the same time, on machines that share the store's folder. The shard that codes the last missing
    unit completes the store.

    Args:
        recipe: The recipe.
        recipe_folder: As for `build_store`.
        store: Folder of the store.
        shard: (i, n): the i-th of n parts, counted from 1.
        codec: As for `build_store`.
        jobs: As for `build_store`.
        scheduler: As for `build_store`.
        progress: As for `build_store`.
        prune: As for `build_store`; the units are removed when the store is completed.
        advice: As for `build_store`.
        keep: As for `build_store`.

    Returns:
        Whether the store is complete.

    Raises:
        CodecnnError: As for `build_store`.
    """
    check_shard(shard)
    if (address := store_address(store)) is not None:
        raise ConfigError(f"a store is built in a folder: build it there and copy the folder to {address}")
    index, shards = shard
    if recipe.in_loop is not None and codec is None:
        raise ConfigError(f"recipe {recipe.name!r} has a filter in the loop: codecnn.build_dataset builds its store")
    # Workers of a cluster have other working folders, so they need absolute paths.
    sources = expand(recipe, recipe_folder if scheduler is None else recipe_folder.absolute())
    store = store.absolute()
    tools = recipe.tools.resolve(recipe_folder.absolute())
    if codec is not None:
        identity = codec.identity()
    else:
        identity = streams_identity() if recipe.codec == STREAMS else get_codec(recipe.codec, tools).identity()
    work = Build(recipe, tools, store, identity, f"{index}of{shards}", codec)
    files = {source.path for source in sources} | {given.path for source in sources for given in source.given}
    check_outputs([store / name for name in (MANIFEST, UNITS, CTUS, CODED, ORIGINALS)], files)
    with disk_errors(store):
        claim_folder(store)
        (store / CODED).mkdir(exist_ok=True)
    try:
        with FileLock(store / f".lock-{work.label}", timeout=LOCK_SECONDS):
            remove_working_folders(store, work.label)
            plans = plan_units(sources, work, jobs)
            if not (prune or keep):
                check_nothing_is_lost(plans, work, advice)
            unfinished = [plan for plan in plans if finished_unit(plan, store) is None]
            check_sources(recipe, [plan.source for plan in unfinished], jobs)
            shard_plans = plans
            if unfinished and (shard != WHOLE or jobs > 1 or scheduler is not None):
                costs = unit_costs(recipe, [(plan.source, plan.settings.qp) for plan in plans], jobs)
                shard_plans = of_shard(plans, shard, costs)
            missing = [plan for plan in shard_plans if finished_unit(plan, store) is None]
            if missing:
                # Before the first unit changes, so that a store with a manifest is always complete.
                (store / MANIFEST).unlink(missing_ok=True)
            # Threads suffice, since each waits for an encoder in a process of its own.
            work_through(
                functools.partial(code_unit, work=work),
                missing,
                lambda plan: store / plan.folder / UNIT,
                jobs=jobs,
                scheduler=scheduler,
                progress=progress,
                done=len(shard_plans) - len(missing),
            )
            units = [unit for plan in plans if (unit := finished_unit(plan, store)) is not None]
            if len(units) < len(plans):
                return False
            # Two shards can find the store complete at the same time.
            with FileLock(store / ".lock-finish"):
                if not (prune or keep):
                    check_nothing_is_lost(plans, work, advice)
                _finish(plans, units, work, prune=prune, keep=keep)
    except Timeout:
        raise StoreError(f"another build is working on store {store}: wait until it ends") from None
    return True


def _recipe_facts(source: Source, recipe: Recipe) -> dict[str, Any]:
    """Return the unit metadata that is not part of the key."""
    facts: dict[str, Any] = {"split": source.spec.split, "group": source.group, "class": source.spec.class_}
    if recipe.encoders:
        facts["coding"] = recipe.coding(source.encoder).to_json()
    return facts


def _finish(plans: list[UnitPlan], units: list[CodedUnit], work: Build, *, prune: bool, keep: bool) -> None:
    """Write units.jsonl, the table and last the manifest in the recipe's order, and remove what they do not name.

    Only files that codecnn wrote into this store are removed: units unless `keep`, with `prune` also originals, and
    temporary files. The caller holds the store's lock for this.
    """
    store = work.store
    if work.recipe.codec == STREAMS and work.recipe.check:
        check_stated_qps(units)
    lines = [unit.to_json() | _recipe_facts(plan.source, work.recipe) for plan, unit in zip(plans, units, strict=True)]
    write_jsonl(store / UNITS, lines)
    with atomic_path(store / CTUS) as part, pq.ParquetWriter(part, CTU_SCHEMA) as writer:
        for plan in plans:
            rows = pq.read_table(store / plan.folder / CTUS)
            for name, value in (("group", plan.source.group), ("split", plan.source.spec.split)):
                rows = rows.append_column(CTU_SCHEMA.field(name), pa.array([value] * rows.num_rows, pa.string()))
            writer.write_table(rows.cast(CTU_SCHEMA))
    for path in [] if keep else other_units(plans, store):
        remove_tree(path)
    remove_abandoned_folders(store, work.label)
    clean_originals(store, {plan.original for plan in plans}, prune)
    remove_hashes(store)
    remove_leftovers(store)
    manifest = {
        "schema": SCHEMA,
        "recipe": work.recipe.model_dump(by_alias=True, exclude={"root": True, "tools": True, "in_loop": {"library"}})
        | {"qp": work.recipe.points or sorted({unit.qp for unit in units})},
        "encoder": work.identity,
        "units": len(lines),
        "data_key": sha256_json(sorted([unit.key, unit.files[unit.original_file]] for unit in units)),
        "ctus_sha256": sha256_file(store / CTUS),
        "units_sha256": sha256_file(store / UNITS),
    }
    write_json(store / MANIFEST, manifest)
    # Last, since the lock of this function is among them.
    remove_locks(store)
