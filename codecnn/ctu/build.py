"""Build a store from a recipe: convert, code, check, measure. Any kill leaves whole units only; a rerun continues.

A unit is worked on in a folder of its own, which is renamed into place when all its files are whole and checked; then
its line is appended to units.jsonl. Nothing in a store depends on the time, the machine's paths or the order of work,
so two builds of one recipe have identical files.
"""

import math
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from codecnn.codec import CodecSettings, CodedSequence, block_table, get_codec
from codecnn.codec.blockstats import ctu_depths
from codecnn.ctu.grid import ctu_grid, ctu_sums
from codecnn.ctu.recipe import Recipe, Source, expand
from codecnn.ctu.store import (
    CTU_SCHEMA,
    CTUS,
    MANIFEST,
    SCHEMA,
    UNIT_SCHEMA,
    UNITS,
    Store,
    format_from_json,
    format_to_json,
    open_store,
)
from codecnn.errors import StoreError
from codecnn.runs import (
    append_jsonl,
    atomic_path,
    disk_errors,
    read_json,
    read_jsonl,
    remove_tree,
    sha256_file,
    sha256_json,
    write_json,
    write_jsonl,
)
from codecnn.video import (
    Picture,
    VideoFormat,
    convert,
    create_video,
    downscale,
    open_raw,
    open_video,
    pad_to_even,
    read_still,
)
from codecnn.video.stills import STILL_SUFFIXES

Progress = Callable[[int, int], None]
"""Called with (units done, units in all) after every unit, from the thread that started the build."""

SMALLEST = 32
"""Width and height that smaller pictures are padded to: ffmpeg gives libvvenc a byte a luma sample, headers and all."""

CODED, ORIGINALS, LOCK = "coded", "originals", ".lock"
LOCK_SECONDS = 3
"""How long to wait for the lock: a build that was just killed may hold it for the moment its children take to end."""
_WORK_PREFIX = ".work-"


@dataclass(frozen=True)
class _Plan:
    """One unit to code: `key` decides everything about its bytes."""

    source: Source
    original: str
    original_sha256: str
    format: VideoFormat
    settings: CodecSettings
    key: str

    @property
    def folder(self) -> str:
        return f"{CODED}/{self.source.name}_qp{self.settings.qp}_{self.key[:12]}"


def build_store(
    recipe: Recipe, recipe_folder: Path, store: Path, *, jobs: int = 1, progress: Progress | None = None
) -> Store:
    """Build the store `store` from `recipe`, `jobs` units at a time, or finish or update the one that is there.

    Units that the recipe no longer asks for are removed: a store holds what its recipe says. Raises what the pictures,
    the encoder or the disk give reason for; what was finished by then stays, and a rerun continues from it.
    """
    sources = expand(recipe, recipe_folder)
    codec = get_codec(recipe.codec)
    identity = codec.identity()
    with disk_errors(store):
        store.mkdir(parents=True, exist_ok=True)
        (store / CODED).mkdir(exist_ok=True)
    try:
        with FileLock(store / LOCK, timeout=LOCK_SECONDS):
            _remove_leftovers(store)
            plans = _plan(recipe, sources, store, identity, jobs)
            done = {str(record["key"]): record for record in read_jsonl(store / UNITS) if _is_whole(record, store)}
            missing = [plan for plan in plans if plan.key not in done]
            if missing:
                (store / MANIFEST).unlink(missing_ok=True)
            done |= _code_all(missing, recipe, store, identity, jobs, progress, len(plans))
            _finish(recipe, plans, done, store, identity)
    except Timeout:
        raise StoreError(f"another build is working on store {store}") from None
    return open_store(store)


def _remove_leftovers(store: Path) -> None:
    """Half-done work of killed builds; each attempt has a folder of its own, so orphaned encoders disturb nothing."""
    for path in (store / CODED).glob(f"{_WORK_PREFIX}*"):
        remove_tree(path)
    for path in (*store.glob("*.part-*"), *(store / ORIGINALS).glob("*.part-*")):
        path.unlink()


def _plan(recipe: Recipe, sources: list[Source], store: Path, identity: str, jobs: int) -> list[_Plan]:
    plans = []
    with ThreadPoolExecutor(jobs) as pool:
        originals = list(pool.map(lambda source: _original(recipe, source, store), sources))
    for source, (name, sha256, form) in zip(sources, originals, strict=True):
        for qp in recipe.qp:
            settings = recipe.settings(qp)
            what = {
                "schema": SCHEMA,
                "original": [name, sha256],
                "format": format_to_json(form),
                "codec": recipe.codec,
                "encoder": identity,
                "settings": {key: value for key, value in vars(settings).items() if key != "threads"},
            }
            plans.append(_Plan(source, name, sha256, form, settings, sha256_json(what)))
    return plans


def _original(recipe: Recipe, source: Source, store: Path) -> tuple[str, str, VideoFormat]:
    """Write the pictures as the encoder gets them, once a sequence: even size, the internal bit depth.

    Returns the file's name in the store, its sha256, and its format.
    """
    spec = source.spec
    how = {
        "source_sha256": sha256_file(source.path),
        "bit_depth": recipe.internal_bit_depth,
        "chroma": recipe.chroma,
        **{key: getattr(spec, key) for key in ("size", "bit_depth", "chroma", "fps", "frames")},
        "scale": source.scale,
        "schema": SCHEMA,
    }
    name = f"{ORIGINALS}/{source.name}_{sha256_json(how)[:12]}.yuv"
    path = store / name
    form_path = path.with_suffix(".json")
    if not (path.is_file() and form_path.is_file()):
        form = _convert(recipe, source, path)
        write_json(form_path, format_to_json(form))
    return name, sha256_file(path), format_from_json(read_json(form_path))


def _convert(recipe: Recipe, source: Source, path: Path) -> VideoFormat:
    spec = source.spec
    if source.path.suffix.lower() in STILL_SUFFIXES:
        picture = read_still(source.path, chroma=recipe.chroma, bit_depth=recipe.internal_bit_depth)
        pictures: Iterable[Picture] = [picture]
        chroma: str = recipe.chroma
        fps = None
    else:
        video = open_video(
            source.path, size=spec.size, bit_depth=spec.bit_depth, chroma=spec.chroma, fps=spec.fps, frames=spec.frames
        )
        pictures, chroma, fps = video, video.format.chroma, video.format.fps
    converted = (
        pad_to_even(downscale(convert(picture, recipe.internal_bit_depth), chroma, source.scale), chroma, SMALLEST)
        for picture in pictures
    )
    first = next(iter(converted))
    height, width = first.y.shape
    form = VideoFormat(width, height, chroma, recipe.internal_bit_depth, fps)
    path.parent.mkdir(parents=True, exist_ok=True)
    with create_video(path, form) as out:
        out.write(first)
        for picture in converted:
            out.write(picture)
    return form


def _is_whole(record: dict[str, Any], store: Path) -> bool:
    """A unit is done when its line is there and its files have the sizes they had."""
    return all(
        (store / name).is_file() and (store / name).stat().st_size == size for name, size in record["sizes"].items()
    )


def _code_all(
    missing: list[_Plan],
    recipe: Recipe,
    store: Path,
    identity: str,
    jobs: int,
    progress: Progress | None,
    total: int,
) -> dict[str, dict[str, Any]]:
    lock = threading.Lock()

    def work(plan: _Plan) -> dict[str, Any]:
        record = _code(plan, recipe, store, identity)
        with lock:
            append_jsonl(store / UNITS, record)
        return record

    records: dict[str, dict[str, Any]] = {}
    if progress is not None:
        progress(total - len(missing), total)
    # Threads, since each job waits for an encoder that is a process of its own.
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, plan) for plan in missing]
        try:
            for future in as_completed(futures):
                record = future.result()
                records[record["key"]] = record
                if progress is not None:
                    progress(total - len(missing) + len(records), total)
        except BaseException:
            # What is being coded is finished and kept; what has not begun is left to the next build.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return records


def _code(plan: _Plan, recipe: Recipe, store: Path, identity: str) -> dict[str, Any]:
    """Code one unit in a working folder, measure it, move it into place, and return its record."""
    work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=store / CODED))
    try:
        with disk_errors(store):
            sequence = get_codec(recipe.codec).encode(store / plan.original, plan.format, plan.settings, work)
            rows = _measure(plan, recipe, store, sequence)
            pq.write_table(rows, work / CTUS)
        names = sorted(path.name for path in work.iterdir())
        hashes = {f"{plan.folder}/{name}": sha256_file(work / name) for name in names}
        sizes = {f"{plan.folder}/{name}": (work / name).stat().st_size for name in names}
        record = _record(plan, sequence, identity)
        record["files"] = {plan.original: plan.original_sha256} | hashes
        record["sizes"] = {plan.original: (store / plan.original).stat().st_size} | sizes
        final = store / plan.folder
        remove_tree(final)
        work.chmod(0o755)
        work.rename(final)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return record


def _record(plan: _Plan, sequence: CodedSequence, identity: str) -> dict[str, Any]:
    pictures = [
        {name: value for name, value in vars(picture).items() if name != "md5"} for picture in sequence.pictures
    ]
    for picture in pictures:
        # A plane without any error has no finite PSNR, and JSON no infinity.
        picture |= {name: None for name, value in picture.items() if value == math.inf}
    record: dict[str, Any] = {
        "key": plan.key,
        "sequence": plan.source.name,
        "qp": plan.settings.qp,
        "split": plan.source.spec.split,
        "group": plan.source.group,
        "encoder": identity,
        "format": format_to_json(sequence.format),
        "original": plan.original,
        "bitstream": f"{plan.folder}/{sequence.bitstream.name}",
        "decoded": f"{plan.folder}/{sequence.decoded.name}",
        "bits": sequence.bits,
    }
    for plane in ("psnr_y", "psnr_u", "psnr_v"):
        values = [picture[plane] for picture in pictures]
        record[plane] = None if None in values else float(np.mean(values))
    return record | {"pictures": pictures, "argv": list(sequence.argv)}


def _measure(plan: _Plan, recipe: Recipe, store: Path, sequence: CodedSequence) -> pa.Table:
    """The rows of ctus.parquet for one unit; see UNIT_SCHEMA for what each column is."""
    form = sequence.format
    blocks = block_table(sequence)
    grid = ctu_grid(form.width, form.height, recipe.ctu_size)
    area = (grid[:, 2] * grid[:, 3]).astype(np.float64)
    peak = 255.0 * 2 ** (form.bit_depth - 8)
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in UNIT_SCHEMA.names}
    with open_raw(store / plan.original, form) as originals, open_raw(sequence.decoded, form) as decoded:
        for coded, original, output in zip(sequence.pictures, originals, decoded, strict=True):
            source = original.y.astype(np.float64)
            mse = ctu_sums((source - output.y.astype(np.float64)) ** 2, recipe.ctu_size) / area
            mean = ctu_sums(source, recipe.ctu_size) / area
            with np.errstate(divide="ignore"):
                psnr = 10 * np.log10(peak**2 / mse)
            unknown = np.full(len(grid), np.nan)
            depth_mean, depth_max = (
                (unknown, unknown)
                if blocks is None
                else ctu_depths(blocks, coded.poc, form.width, form.height, recipe.ctu_size)
            )
            values = {
                "unit": np.full(len(grid), plan.key),
                "sequence": np.full(len(grid), plan.source.name),
                "poc": np.full(len(grid), coded.poc),
                **{name: grid[:, index] for index, name in enumerate(("x", "y", "w", "h"))},
                "qp": np.full(len(grid), coded.qp),
                "mse_y": mse,
                "psnr_y": psnr,
                "depth_mean": depth_mean,
                "depth_max": depth_max,
                "variance": np.maximum(ctu_sums(source**2, recipe.ctu_size) / area - mean**2, 0),
                "bits": unknown,
            }
            for name, value in values.items():
                columns[name].append(value)
    arrays = [
        pa.array(np.concatenate(columns[field.name]), type=field.type, from_pandas=pa.types.is_floating(field.type))
        for field in UNIT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=UNIT_SCHEMA)


def _finish(recipe: Recipe, plans: list[_Plan], done: dict[str, Any], store: Path, identity: str) -> None:
    """Write the lines, the table and last the manifest in the recipe's order, and remove what no line names."""
    records = [done[plan.key] | {"split": plan.source.spec.split, "group": plan.source.group} for plan in plans]
    write_jsonl(store / UNITS, records)
    with atomic_path(store / CTUS) as part, pq.ParquetWriter(part, CTU_SCHEMA) as writer:
        for plan in plans:
            rows = pq.read_table(store / plan.folder / CTUS)
            for name, value in (("group", plan.source.group), ("split", plan.source.spec.split)):
                rows = rows.append_column(CTU_SCHEMA.field(name), pa.array([value] * rows.num_rows, pa.string()))
            writer.write_table(rows.cast(CTU_SCHEMA))
    wanted = {Path(name).parts[1] for record in records for name in record["files"] if name.startswith(f"{CODED}/")}
    for path in (store / CODED).iterdir():
        if path.name not in wanted:
            remove_tree(path)
    originals = {Path(plan.original).stem for plan in plans}
    for path in (store / ORIGINALS).iterdir():
        if path.stem not in originals:
            path.unlink()
    manifest = {
        "schema": SCHEMA,
        "recipe": recipe.model_dump(by_alias=True, exclude={"root"}),
        "encoder": identity,
        "units": len(records),
        "data_key": sha256_json(sorted(plan.key for plan in plans)),
        "ctus_sha256": sha256_file(store / CTUS),
    }
    write_json(store / MANIFEST, manifest)
