"""Build a store from a recipe: convert, code, check, measure. Any kill leaves whole units only; a rerun continues.

A unit is worked on in a folder of its own, which is renamed into place when all its files are whole and checked, its
own line of units.jsonl (unit.json) among them. So a unit is there or it is not, and any number of threads, processes
and machines may code into one store; whoever finds it complete writes units.jsonl, the table and the manifest.
Nothing in a store depends on the time, the machine's paths or the order of work: two builds of one recipe are equal
file by file, but for seconds.json of each unit, where `times` of the recipe asks for what coding it took.
"""

import contextlib
import functools
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from codecnn.cluster import WHOLE, Progress, Shard, check_shard, of_shard, work_through
from codecnn.codec import (
    STREAMS,
    BlockTable,
    Codec,
    CodecSettings,
    CodecTools,
    CodedSequence,
    Given,
    StreamsCodec,
    block_reader,
    block_table,
    get_codec,
    streams_identity,
    with_intra_planes,
)
from codecnn.dataset._describe import describe
from codecnn.dataset._measure import measure, write_blocks
from codecnn.dataset._originals import HASHES, ORIGINALS, convert_original, original_name, source_sha256
from codecnn.dataset._reuse import REBUILT, keys_of_one_stream, rebuilt_facts, taken_from
from codecnn.dataset._streams import by_lowest_qp, prove_stated_qps
from codecnn.dataset.recipe import Recipe, Source, expand
from codecnn.dataset.records import CodedUnit, Seconds
from codecnn.dataset.store import CTU_SCHEMA, CTUS, MANIFEST, SCHEMA, SECONDS, UNITS, Store, open_store
from codecnn.errors import CodecnnError, ConfigError, EncoderError, FormatError, StoreError, UnsupportedError
from codecnn.planes import TRANSFORM_FILE
from codecnn.runs import (
    atomic_path,
    disk_errors,
    read_json,
    remove_tree,
    sha256_file,
    sha256_json,
    write_json,
    write_jsonl,
)

CODED, UNIT = "coded", "unit.json"
LOCK_SECONDS = 3
"""How long to wait for the lock: a build that was just killed may hold it for the moment its children take to end."""


@dataclass(frozen=True)
class _Plan:
    """One unit to code. Its `key` is the hash of `what`, which is all that decides its bytes."""

    source: Source
    original: str
    settings: CodecSettings
    key: str
    what: dict[str, Any]
    given: Given | None = None

    @property
    def folder(self) -> str:
        """The unit's folder, relative to the store; the key is in its name, so units of two recipes never meet."""
        return f"{CODED}/{self.source.name}_qp{self.settings.qp}_{self.key[:12]}"


@dataclass(frozen=True)
class _Work:
    """What a worker needs beside the plan; it is sent to other processes whole."""

    recipe: Recipe
    tools: CodecTools
    store: Path
    identity: str
    label: str
    codec: Codec | None = None


def build_store(
    recipe: Recipe,
    recipe_folder: Path,
    store: Path,
    *,
    codec: Codec | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Store:
    """Build the store `store` from `recipe`, `jobs` units at a time, or finish or update the one that is there.

    `codec` is the back end of a recipe with a filter `in_loop`, as `codecnn.filtering.in_loop` makes it. `scheduler` is
    the address of a dask scheduler whose workers code instead of threads here; they must see the store, the pictures
    and the encoder under the same paths. Units that the recipe no longer asks for are removed: a store holds what its
    recipe says.

    Raises what the pictures, the encoder or the disk give reason for; what was finished by then stays, and a rerun
    continues from it.
    """
    build_shard(recipe, recipe_folder, store, WHOLE, codec=codec, jobs=jobs, scheduler=scheduler, progress=progress)
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
) -> bool:
    """Code every n-th unit of `recipe` for the shard (i, n), beginning with the i-th; else as `build_store`.

    Shards may run at once, on machines that share the store's folder. The one that completes the store finishes it.
    Returns whether the store is complete.
    """
    check_shard(shard)
    index, shards = shard
    if recipe.in_loop is not None and codec is None:
        raise ConfigError(f"recipe {recipe.name!r} has a filter in the loop: codecnn.build_dataset builds its store")
    # Workers of a cluster have working folders of their own.
    sources = expand(recipe, recipe_folder if scheduler is None else recipe_folder.absolute())
    store = store.absolute()
    tools = recipe.tools.found_from(recipe_folder.absolute())
    if codec is not None:
        identity = codec.identity()
    else:
        identity = streams_identity() if recipe.codec == STREAMS else get_codec(recipe.codec, tools).identity()
    work = _Work(recipe, tools, store, identity, f"{index}of{shards}", codec)
    with disk_errors(store):
        (store / CODED).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(store / f".lock-{work.label}", timeout=LOCK_SECONDS):
            _remove_leftovers(store, work.label)
            plans = _plan(sources, work, jobs)
            mine = of_shard(plans, shard)
            missing = [plan for plan in mine if _done(plan, store) is None]
            if missing:
                # Before the first unit changes, so that a store with a manifest is always whole.
                (store / MANIFEST).unlink(missing_ok=True)
            # Threads do for `jobs`, since each waits for an encoder that is a process of its own.
            work_through(
                functools.partial(_code, work=work),
                missing,
                lambda plan: store / plan.folder / UNIT,
                jobs=jobs,
                scheduler=scheduler,
                progress=progress,
                done=len(mine) - len(missing),
            )
            units = [unit for plan in plans if (unit := _done(plan, store)) is not None]
            if len(units) < len(plans):
                return False
            _finish(plans, units, work)
    except Timeout:
        raise StoreError(f"another build is working on store {store}") from None
    return True


def _remove_leftovers(store: Path, label: str) -> None:
    """Half-done work of killed builds; each attempt has a folder of its own, so orphaned encoders disturb nothing."""
    for path in (store / CODED).glob(f"{_work_prefix(label)}*"):
        remove_tree(path)
    for path in store.glob("*.part-*"):
        path.unlink(missing_ok=True)


def _work_prefix(label: str) -> str:
    return f".work-{label}-"


def _plan(sources: list[Source], work: _Work, jobs: int) -> list[_Plan]:
    with ThreadPoolExecutor(jobs) as pool:
        originals = list(pool.map(lambda source: original_name(work.recipe, source, work.store), sources))
    plans = []
    for source, original in zip(sources, originals, strict=True):
        given = by_lowest_qp(source.given, source.name)
        for qp in work.recipe.qp or given:
            settings = work.recipe.settings(qp, source.encoder)
            # The key of a unit without what was added later is what it was before.
            left = {"threads"} if settings.ctc else {"threads", "ctc"}
            # Whatever decides a byte of the unit, and nothing else: the encoder's own version is in, so that an update
            # codes again, but not the number of its threads, the machine, or the split that the recipe puts it in.
            what = {
                "schema": SCHEMA,
                "original": original,
                "codec": work.recipe.codec,
                "encoder": work.identity,
                "settings": {key: value for key, value in vars(settings).items() if key not in left},
                "decoder_output": [work.tools.trace, *work.tools.prediction],
            }
            one = given.get(qp)
            reader = block_reader("vvc" if one is not None and one.is_vvc else work.recipe.codec, work.tools)
            if reader is not None:
                what["block_reader"] = reader
            if work.recipe.planes:
                if one is not None and not one.is_vvc:
                    raise ConfigError(f"{one.path}: {', '.join(work.recipe.planes)} are rebuilt from VVC streams only")
                what[REBUILT] = rebuilt_facts(work.recipe.rebuilt_files)
            if one is not None:
                facts = {"file": one.path.name, "sha256": source_sha256(one.path, work.store)}
                what["given"] = facts | {"stated_qps": one.stated_qps, "reading": one.reading}
            plans.append(_Plan(source, original, settings, sha256_json(what), what, one))
    return plans


def _done(plan: _Plan, store: Path) -> CodedUnit | None:
    """The unit if it is done: its key is that of the plan, and its files have the sizes they had."""
    path = store / plan.folder / UNIT
    with contextlib.suppress(CodecnnError, OSError):
        unit = CodedUnit.from_json(path, read_json(path))
        if unit.key == plan.key and all((store / name).stat().st_size == size for name, size in unit.sizes.items()):
            return unit
    return None


def _code(plan: _Plan, work: _Work) -> None:
    """Code one unit in a working folder, measure it, describe it, and move it into place."""
    store = work.store
    with disk_errors(store):
        original = convert_original(work.recipe, plan.source, plan.original, store)
        folder = Path(tempfile.mkdtemp(prefix=_work_prefix(work.label), dir=store / CODED))
        try:
            sequence = _coded_already(plan, work, folder)
            if sequence is None:
                sequence = _codec(plan, work).encode(store / original.name, original.format, plan.settings, folder)
            sequence = _with_planes(plan, sequence, work.recipe, folder)
            transforms = TRANSFORM_FILE in work.recipe.rebuilt_files
            blocks, no_blocks = _blocks(plan, sequence, needed=transforms)
            if blocks is not None:
                write_blocks(folder, blocks, sequence, transforms=transforms)
            rows = measure(plan.key, plan.source.name, sequence, store / original.name, work.recipe.ctu_size, blocks)
            pq.write_table(rows, folder / CTUS)
            facts = {"key": plan.key, "sequence": plan.source.name, "qp": plan.settings.qp, "encoder": work.identity}
            unit = describe(sequence, original, folder, plan.folder, no_blocks=no_blocks, **facts)
            write_json(folder / UNIT, unit.to_json())
            if work.recipe.times and sequence.encoder_seconds is not None:
                write_json(folder / SECONDS, Seconds(encoder_cpu=sequence.encoder_seconds).to_json())
            folder.chmod(0o755)
            _move_into_place(folder, plan, store)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _coded_already(plan: _Plan, work: _Work, folder: Path) -> CodedSequence | None:
    """What coding the unit gives, copied into `folder` from a unit of the store with other planes; None without one."""
    # What a second encode or VTM and its like leave beside the stream is not kept in a form that could be taken over.
    if work.recipe.codec != "vvc" or work.recipe.unfiltered:
        return None
    for key in keys_of_one_stream(plan.what):
        unit = _done(replace(plan, key=key), work.store)
        if unit is None:
            continue
        seconds = work.store / replace(plan, key=key).folder / SECONDS if work.recipe.times else None
        if seconds is None or seconds.exists():
            return taken_from(unit, work.store, folder, seconds)
    return None


def _codec(plan: _Plan, work: _Work) -> Codec:
    if plan.given is not None:
        return StreamsCodec(plan.given)
    return work.codec or get_codec(work.recipe.codec, work.tools)


def _with_planes(plan: _Plan, sequence: CodedSequence, recipe: Recipe, folder: Path) -> CodedSequence:
    """The unit with the planes that the recipe wants rebuilt from its bitstream."""
    if not recipe.rebuilt_planes:
        return sequence
    try:
        return with_intra_planes(sequence, recipe.rebuilt_planes, folder)
    except FormatError as error:
        raise type(error)(f"{plan.source.name} at QP {plan.settings.qp}: {error}") from error


def _blocks(plan: _Plan, sequence: CodedSequence, needed: bool) -> tuple[BlockTable | None, str | None]:
    """The unit's CUs, or the reason why they cannot be read, in a sentence, which is an error where they are needed."""
    unit = f"{plan.source.name} at QP {plan.settings.qp}"
    try:
        return block_table(sequence), None
    except UnsupportedError as error:
        if needed:
            raise UnsupportedError(f"{unit}: {error}") from error
        return None, f"{unit} has no depth: {error}"
    except (FormatError, EncoderError) as error:
        raise type(error)(f"{unit}: {error}") from error


def _move_into_place(folder: Path, plan: _Plan, store: Path) -> None:
    """Rename the finished folder: a kill before leaves a working folder, a kill after a unit, never half of one."""
    final = store / plan.folder
    if _done(plan, store) is None:
        # A folder is there but is not whole: files were lost or changed since.
        remove_tree(final)
        try:
            folder.rename(final)
        except OSError:
            # Another writer was faster: its unit is the same.
            if _done(plan, store) is None:
                raise


def _told(source: Source, recipe: Recipe) -> dict[str, Any]:
    """What the recipe says of a unit beside what decides its bytes."""
    told: dict[str, Any] = {"split": source.spec.split, "group": source.group, "class": source.spec.class_}
    if recipe.encoders:
        told["coding"] = recipe.coding(source.encoder).to_json()
    return told


def _finish(plans: list[_Plan], units: list[CodedUnit], work: _Work) -> None:
    """Write the lines, the table and last the manifest in the recipe's order, and remove what no line names.

    Two shards that end at once both do this, and write the same.
    """
    store = work.store
    if work.recipe.codec == STREAMS:
        prove_stated_qps(units)
    lines = [unit.to_json() | _told(plan.source, work.recipe) for plan, unit in zip(plans, units, strict=True)]
    write_jsonl(store / UNITS, lines)
    with atomic_path(store / CTUS) as part, pq.ParquetWriter(part, CTU_SCHEMA) as writer:
        for plan in plans:
            rows = pq.read_table(store / plan.folder / CTUS)
            for name, value in (("group", plan.source.group), ("split", plan.source.spec.split)):
                rows = rows.append_column(CTU_SCHEMA.field(name), pa.array([value] * rows.num_rows, pa.string()))
            writer.write_table(rows.cast(CTU_SCHEMA))
    folders = {Path(plan.folder).name for plan in plans}
    for path in (store / CODED).iterdir():
        # Working folders of others are left to them.
        if path.name not in folders and not path.name.startswith(".work-"):
            remove_tree(path)
    originals = {Path(plan.original).stem for plan in plans}
    for path in (store / ORIGINALS).iterdir():
        if path.stem not in originals or path.suffix not in (".yuv", ".json"):
            path.unlink(missing_ok=True)
    # A worker of a cluster that died has left its folder.
    _remove_leftovers(store, work.label)
    remove_tree(store / HASHES)
    for lock in store.glob(".lock-*"):
        lock.unlink(missing_ok=True)
    manifest = {
        "schema": SCHEMA,
        "recipe": work.recipe.model_dump(by_alias=True, exclude={"root": True, "tools": True, "in_loop": {"library"}})
        | {"qp": work.recipe.qp or sorted({unit.qp for unit in units})},
        "encoder": work.identity,
        "units": len(lines),
        "data_key": sha256_json(sorted([unit.key, unit.files[unit.original_file]] for unit in units)),
        "ctus_sha256": sha256_file(store / CTUS),
        "units_sha256": sha256_file(store / UNITS),
    }
    write_json(store / MANIFEST, manifest)
