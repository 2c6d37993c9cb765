"""Building a store from a recipe: convert, code, check and measure; an interrupted build is continued.

Each unit is coded in a working folder, which is renamed to its final name when all its files are complete and checked,
including unit.json, its line of units.jsonl. A unit is therefore complete or absent after a kill at any moment, and any
number of threads, processes and machines can code into one store. The shard that completes the last unit writes
units.jsonl, the table of CTUs and the manifest.

The content of a store does not depend on the time, the paths of the machine or the order of work: two builds of one
recipe are equal file by file. The only exception is seconds.json, which a recipe with `times` adds to each unit.
"""

import contextlib
import functools
import re
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from codecnn.base.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.base.errors import CodecnnError, ConfigError, EncoderError, FormatError, StoreError, UnsupportedError
from codecnn.base.files import (
    atomic_path,
    disk_errors,
    read_json,
    remove_tree,
    sha256_file,
    sha256_json,
    write_json,
    write_jsonl,
    write_text,
)
from codecnn.base.leftovers import remove_leftovers
from codecnn.base.outputs import check_outputs
from codecnn.base.planes import TRANSFORM_FILE
from codecnn.codec import (
    STREAMS,
    BlockTable,
    Codec,
    CodedSequence,
    StreamsCodec,
    add_rebuilt_planes,
    block_table,
    get_codec,
    streams_identity,
)
from codecnn.dataset.estimate import unit_costs
from codecnn.dataset.originals import (
    HASHES,
    ORIGINAL_STEM,
    ORIGINALS,
    check_sources,
    convert_original,
    written_originals,
)
from codecnn.dataset.planning import (
    CODED,
    UNIT,
    Build,
    UnitPlan,
    check_nothing_is_lost,
    check_unchanged,
    finished_unit,
    other_units,
    plan_units,
)
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import CodedUnit, EncoderTime
from codecnn.dataset.remote import store_address
from codecnn.dataset.sources import Source, check_stated_qps, expand
from codecnn.dataset.store import CTU_SCHEMA, CTUS, MANIFEST, SCHEMA, UNITS, Store, open_store
from codecnn.dataset.unit import SECONDS
from codecnn.dataset.unit_files import (
    copy_coded_unit,
    measure_ctus,
    same_stream_keys,
    unit_record,
    write_blocks,
    write_temporal_planes,
)

PRUNE_ADVICE = "build into another folder to keep them, or remove them with --prune (prune=True in Python)"
"""Advice of the message about units that do not belong to the recipe."""

MARK = ".codecnn-store"
"""File that marks a folder as a store; it is written before anything else, so that an interrupted build has it."""

_LOCK = re.compile(r"\.lock-(finish|\d+of\d+)")
_WORKING_FOLDER = re.compile(r"\.work-(\d+of\d+)-")
_HASH = re.compile(r"[0-9a-f]{64}\.json")

LOCK_SECONDS = 3
"""Seconds to wait for the lock of a shard: after a kill, child processes can hold it until they end."""


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
        _claim(store)
        (store / CODED).mkdir(exist_ok=True)
    try:
        with FileLock(store / f".lock-{work.label}", timeout=LOCK_SECONDS):
            _remove_working_folders(store, work.label)
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
                functools.partial(_code, work=work),
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


def _claim(store: Path) -> None:
    """Mark a new or empty folder as a store.

    Raises:
        StoreError: The folder holds files and is not a store.
    """
    names = sorted(path.name for path in store.iterdir()) if store.is_dir() else []
    if MARK in names:
        return
    # Another shard can be writing the mark at this moment.
    foreign = [name for name in names if not name.startswith(MARK)]
    if foreign and not _has_manifest(store):
        raise StoreError(
            f"{store} is not a store and holds other files, e.g. {foreign[0]}: name a new or empty folder for the store"
        )
    write_text(store / MARK, "This folder is a store of codecnn. `codecnn dataset build` replaces files in it.\n")


def _has_manifest(store: Path) -> bool:
    with contextlib.suppress(CodecnnError):
        manifest = read_json(store / MANIFEST)
        return isinstance(manifest, dict) and {"schema", "data_key", "units_sha256"} <= manifest.keys()
    return False


def _working_prefix(label: str) -> str:
    return f".work-{label}-"


def _remove_working_folders(store: Path, label: str) -> None:
    """Remove unfinished units of killed builds of this shard.

    Each attempt has a new folder, so encoders that outlived a killed build do not disturb the next one.
    """
    for path in (store / CODED).glob(f"{_working_prefix(label)}*"):
        remove_tree(path)


def _remove_abandoned_folders(store: Path, label: str) -> None:
    """Remove unfinished units of workers that died: those of this shard, and those of shards that nobody works on."""
    _remove_working_folders(store, label)
    others = {match[1] for path in (store / CODED).iterdir() if (match := _WORKING_FOLDER.match(path.name))}
    for other in others:
        with contextlib.suppress(Timeout), FileLock(store / f".lock-{other}", timeout=LOCK_SECONDS):
            _remove_working_folders(store, other)


def _code(plan: UnitPlan, work: Build) -> None:
    """Code one unit in a working folder, measure and describe it, and rename the folder to its final name."""
    store = work.store
    if finished_unit(plan, store) is not None:
        # Another process has coded it since this one began.
        return
    with disk_errors(store):
        original = convert_original(work.recipe, plan.source, plan.original, store)
        folder = store / CODED / f"{_working_prefix(work.label)}{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            sequence = _reuse_coded_unit(plan, work, folder)
            if sequence is None:
                sequence = _codec(plan, work).encode(store / original.name, original.format, plan.settings, folder)
            check_unchanged(plan, work)
            sequence = _with_planes(plan, sequence, work.recipe, folder)
            write_temporal_planes(folder, work.recipe.temporal_files, sequence)
            transforms = TRANSFORM_FILE in work.recipe.rebuilt_files
            blocks, no_blocks = _blocks(plan, sequence, required=transforms)
            if blocks is not None:
                write_blocks(folder, blocks, sequence, transforms=transforms)
            ctu_size = work.recipe.ctu_size
            rows = measure_ctus(plan.key, plan.source.name, sequence, store / original.name, ctu_size, blocks)
            pq.write_table(rows, folder / CTUS)
            facts = {"key": plan.key, "sequence": plan.source.name, "qp": plan.settings.qp, "encoder": work.identity}
            unit = unit_record(sequence, original, folder, plan.folder, no_blocks=no_blocks, **facts)
            write_json(folder / UNIT, unit.to_json())
            if work.recipe.times and sequence.encoder_seconds is not None:
                write_json(folder / SECONDS, EncoderTime(encoder_cpu=sequence.encoder_seconds).to_json())
            _move_into_place(folder, plan, store)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _reuse_coded_unit(plan: UnitPlan, work: Build, folder: Path) -> CodedSequence | None:
    """Copy the coded sequence of a unit with the same stream and other planes into `folder`; None if there is none."""
    # The pictures of a second encode, and the files of VTM and similar encoders, are not stored in a form to reuse.
    if work.recipe.codec != "vvc" or work.recipe.unfiltered or work.recipe.rate is not None:
        return None
    for key in same_stream_keys(plan.facts):
        unit = finished_unit(replace(plan, key=key), work.store)
        if unit is None:
            continue
        seconds = work.store / replace(plan, key=key).folder / SECONDS if work.recipe.times else None
        if seconds is None or seconds.exists():
            return copy_coded_unit(unit, work.store, folder, seconds)
    return None


def _codec(plan: UnitPlan, work: Build) -> Codec:
    if plan.given is not None:
        return StreamsCodec(plan.given)
    return work.codec or get_codec(work.recipe.codec, work.tools, rate=plan.settings.rate)


def _with_planes(plan: UnitPlan, sequence: CodedSequence, recipe: Recipe, folder: Path) -> CodedSequence:
    """Add the planes that the recipe rebuilds from the bitstream."""
    if not recipe.rebuilt_planes:
        return sequence
    try:
        return add_rebuilt_planes(sequence, recipe.rebuilt_planes, folder)
    except FormatError as error:
        raise type(error)(f"{plan.source.name} at QP {plan.settings.qp}: {error}") from error


def _blocks(plan: UnitPlan, sequence: CodedSequence, required: bool) -> tuple[BlockTable | None, str | None]:
    """Return the unit's CU table, or the reason why it cannot be read; the latter is an error if it is required."""
    unit = f"{plan.source.name} at QP {plan.settings.qp}"
    try:
        return block_table(sequence), None
    except UnsupportedError as error:
        if required:
            raise UnsupportedError(f"{unit}: {error}") from error
        return None, f"{unit} has no depth: {error}"
    except (FormatError, EncoderError) as error:
        raise type(error)(f"{unit}: {error}") from error


def _move_into_place(folder: Path, plan: UnitPlan, store: Path) -> None:
    """Rename the finished folder: before it there is a working folder, after it a complete unit."""
    final = store / plan.folder
    if finished_unit(plan, store) is None:
        # A folder of that name is damaged: files were lost or changed.
        remove_tree(final)
        try:
            folder.rename(final)
        except OSError:
            # Another process finished the same unit first.
            if finished_unit(plan, store) is None:
                raise


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
    _remove_abandoned_folders(store, work.label)
    _clean_originals(store, {plan.original for plan in plans}, prune)
    _remove_hashes(store)
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
    for lock in store.glob(".lock-*"):
        if _LOCK.fullmatch(lock.name):
            lock.unlink(missing_ok=True)


def _clean_originals(store: Path, planned: set[str], prune: bool) -> None:
    """Remove the locks and temporary files of the conversion, and with `prune` the originals that no unit needs."""
    remove_leftovers(store / ORIGINALS)
    for lock in (store / ORIGINALS).glob("*.lock"):
        if ORIGINAL_STEM.fullmatch(lock.stem) and lock.stat().st_size == 0:
            lock.unlink(missing_ok=True)
    for name, path in written_originals(store).items():
        if prune and name not in planned:
            # The description is the record that codecnn wrote the file, so it goes last.
            path.unlink(missing_ok=True)
            path.with_suffix(".json").unlink(missing_ok=True)


def _remove_hashes(store: Path) -> None:
    """Remove the cached hashes of the sources; another shard that begins now may write further ones."""
    folder = store / HASHES
    remove_leftovers(folder)
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _HASH.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()
