"""Coding of one unit in a working folder: encoder, rebuilt planes, CU table and errors of the CTUs."""

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from codecnn.base.errors import EncoderError, FormatError, UnsupportedError
from codecnn.base.files import disk_errors, remove_tree, write_json
from codecnn.base.planes import TRANSFORM_FILE
from codecnn.codec import (
    BlockTable,
    Codec,
    CodedSequence,
    StreamsCodec,
    add_rebuilt_planes,
    block_table,
    get_codec,
)
from codecnn.dataset.originals import convert_original
from codecnn.dataset.planning import CODED, UNIT, Build, UnitPlan, check_unchanged, finished_unit
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import EncoderTime
from codecnn.dataset.store import CTUS
from codecnn.dataset.store_folder import working_prefix
from codecnn.dataset.unit import SECONDS
from codecnn.dataset.unit_files import (
    copy_coded_unit,
    measure_ctus,
    same_stream_keys,
    unit_record,
    write_blocks,
    write_temporal_planes,
)


def code_unit(plan: UnitPlan, work: Build) -> None:
    """Code one unit in a working folder, measure and describe it, and rename the folder to its final name."""
    store = work.store
    if finished_unit(plan, store) is not None:
        # Another process has coded it since this one began.
        return
    with disk_errors(store):
        original = convert_original(work.recipe, plan.source, plan.original, store)
        folder = store / CODED / f"{working_prefix(work.label)}{uuid.uuid4().hex[:8]}"
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
        raise type(error)(f"{plan.title}: {error}") from error


def _blocks(plan: UnitPlan, sequence: CodedSequence, required: bool) -> tuple[BlockTable | None, str | None]:
    """Return the unit's CU table, or the reason why it cannot be read; the latter is an error if it is required."""
    try:
        return block_table(sequence), None
    except UnsupportedError as error:
        if required:
            raise UnsupportedError(f"{plan.title}: {error}") from error
        return None, f"{plan.title} has no depth: {error}"
    except (FormatError, EncoderError) as error:
        raise type(error)(f"{plan.title}: {error}") from error


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
