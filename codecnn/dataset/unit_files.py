"""Files of a coded unit: CU tables, the rows of its CTUs, its record, and reuse of a unit that is coded already."""

import itertools
import math
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.base.errors import StoreError
from codecnn.base.files import atomic_path, read_json, sha256_file, sha256_json
from codecnn.base.planes import (
    BLOCK_PLANES,
    LUMA_FILES,
    RECIPE_PLANES,
    REFERENCE_FILE,
    TEMPORAL_PLANES,
    TRANSFORM_PLANES,
    file_of,
)
from codecnn.codec import (
    DECISIONS_FILE,
    REBUILDER_VERSION,
    BlockTable,
    CodedPicture,
    CodedSequence,
    LoopFacts,
    block_planes,
    ctu_depths,
    first_references,
)
from codecnn.codec import write_blocks as write_table
from codecnn.dataset.originals import Original
from codecnn.dataset.records import CodedUnit, EncoderTime, GivenRecord, InLoopRecord, PictureRecord
from codecnn.dataset.store import UNIT_SCHEMA
from codecnn.pictures.files import create_video, open_raw
from codecnn.pictures.metrics import ctu_grid, ctu_means, psnr_of_mse
from codecnn.pictures.motion import MATCHER_VERSION, References, TemporalPlanes

BLOCKS_FILE, BLOCK_PLANES_FILE, TRANSFORMS_FILE = "blocks.parquet", "block_planes.npy", "transforms.npy"
LOG_FILE = "log.txt"
_REBUILT_FILES = sorted({file_of(name) for name in RECIPE_PLANES if name not in TEMPORAL_PLANES})


def write_blocks(folder: Path, blocks: BlockTable, sequence: CodedSequence, *, transforms: bool) -> None:
    """Write a unit's CU table as Parquet and as planes of 4x4 cells, which the loader reads by memory map.

    Args:
        folder: Folder of the unit.
        blocks: The CU table.
        sequence: The coded sequence.
        transforms: Also write the columns and planes of the transforms. They are omitted unless the recipe asks for
            them, so that other units stay small.
    """
    write_table(folder / BLOCKS_FILE, blocks if transforms else blocks.without_transforms())
    form = sequence.format
    pocs = [picture.poc for picture in sequence.pictures]
    files = {BLOCK_PLANES_FILE: BLOCK_PLANES} | ({TRANSFORMS_FILE: TRANSFORM_PLANES} if transforms else {})
    for name, planes in files.items():
        with atomic_path(folder / name) as part, part.open("wb") as file:
            np.save(file, block_planes(blocks, pocs, form.width, form.height, planes))


def write_temporal_planes(folder: Path, files: Sequence[str], sequence: CodedSequence) -> None:
    """Write files of temporal planes of a unit, such as neighbours.yuv.

    A file is raw grey video in the bit depth of the decoded pictures: for each picture in output order the planes that
    `codecnn.base.planes.LUMA_FILES` lists.

    Args:
        folder: Folder of the unit.
        files: Names of the files, of `LUMA_FILES`.
        sequence: The coded sequence.

    Raises:
        FormatError: The file of reference pictures needs the bitstream, which is damaged.
        ConfigError: The bitstream has another number of pictures than were decoded.
    """
    form = sequence.format
    names = [name for file in files for name in LUMA_FILES[file]]
    with ExitStack() as stack:
        decoded = stack.enter_context(open_raw(sequence.decoded, form))
        references: list[References] = []
        if REFERENCE_FILE in files:
            assert sequence.bitstream is not None, "a recipe asks for reference pictures of VVC streams only"
            references = first_references(sequence.bitstream, len(decoded))
        writers = {
            file: stack.enter_context(create_video(folder / f"{file}.yuv", replace(form, chroma="400")))
            for file in files
        }
        temporal = TemporalPlanes(names, lambda number: decoded[number].y, len(decoded), form.bit_depth, references)
        for number in range(len(decoded)):
            planes = temporal(number)
            for file, writer in writers.items():
                for name in LUMA_FILES[file]:
                    writer.write([planes[name]])


def measure_ctus(
    unit: str, name: str, sequence: CodedSequence, original: Path, ctu_size: int, blocks: BlockTable | None
) -> pa.Table:
    """Measure the CTUs of one unit.

    Args:
        unit: Key of the unit.
        name: Name of its sequence.
        sequence: The coded sequence.
        original: Raw YUV of the original pictures, in the format of the decoded ones.
        ctu_size: Width and height of the CTUs in luma samples.
        blocks: The CU table, or None if it is not known; the depths are then null.

    Returns:
        One row per CTU with the columns of `UNIT_SCHEMA`.
    """
    form = sequence.format
    grid = ctu_grid(form.width, form.height, ctu_size)
    columns: dict[str, list[npt.NDArray[Any]]] = {field: [] for field in UNIT_SCHEMA.names}
    with open_raw(original, form) as originals, open_raw(sequence.decoded, form) as decoded:
        for coded, source, output in zip(sequence.pictures, originals, decoded, strict=True):
            samples = source.y.astype(np.float64)
            mse = ctu_means((samples - output.y) ** 2, ctu_size)
            mean = ctu_means(samples, ctu_size)
            depths: Any = (np.nan, np.nan)
            if blocks is not None:
                depths = ctu_depths(blocks, coded.poc, form.width, form.height, ctu_size)
            values: dict[str, Any] = {
                "unit": unit,
                "sequence": name,
                "poc": coded.poc,
                **dict(zip(("x", "y", "w", "h"), grid.T, strict=True)),
                "qp": coded.qp,
                "mse_y": mse,
                "psnr_y": psnr_of_mse(mse, form.bit_depth),
                "depth_mean": depths[0],
                "depth_max": depths[1],
                "variance": np.maximum(ctu_means(samples**2, ctu_size) - mean**2, 0),
                "bits": np.nan,
            }
            for field, value in values.items():
                columns[field].append(np.broadcast_to(value, len(grid)))
    arrays = [
        pa.array(np.concatenate(columns[field.name]), type=field.type, from_pandas=pa.types.is_floating(field.type))
        for field in UNIT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=UNIT_SCHEMA)


def unit_record(
    coded: CodedSequence, original: Original, folder: Path, place: str, *, no_blocks: str | None, **facts: Any
) -> CodedUnit:
    """Describe a coded unit.

    Args:
        coded: The coded sequence.
        original: Its original.
        folder: Folder that holds the unit's files now.
        place: Folder that will hold them, relative to the store.
        no_blocks: Reason why the unit has no CU table, or None.
        **facts: The record's `key`, `sequence`, `qp` and `encoder`.

    Returns:
        The record for unit.json.
    """
    network_qps = coded.network_qps or [None] * len(coded.pictures)
    pictures = tuple(_picture_record(each, qp) for each, qp in zip(coded.pictures, network_qps, strict=True))
    files = {f"{place}/{path.name}": path for path in sorted(folder.iterdir())}
    candidates = {
        "bitstream": coded.bitstream,
        "unfiltered": coded.unfiltered,
        "prediction": coded.prediction,
        "residual": coded.residual,
        "strengths": coded.strengths,
        "blocks": folder / BLOCKS_FILE,
        "block_planes": folder / BLOCK_PLANES_FILE,
        "transforms": folder / TRANSFORMS_FILE,
        **{name: folder / f"{name}.yuv" for name in LUMA_FILES},
    }
    # A record writes the fields that were set, so absent files must not be set to None.
    optional: dict[str, Any] = {
        name: f"{place}/{path.name}" for name, path in candidates.items() if path and path.exists()
    }
    optional["psnr_y"] = _mean([picture.psnr_y for picture in pictures])
    optional["psnr_u"] = _mean([picture.psnr_u for picture in pictures])
    optional["psnr_v"] = _mean([picture.psnr_v for picture in pictures])
    optional |= {"bits": coded.bits} if coded.bits is not None else {}
    optional |= {"no_blocks": no_blocks} if no_blocks else {}
    optional |= {"variant": original.variant} if original.variant else {}
    optional |= {"given": GivenRecord(**vars(coded.supplied))} if coded.supplied else {}
    optional |= {"in_loop": InLoopRecord(**vars(coded.in_loop))} if coded.in_loop else {}
    return CodedUnit(
        format=coded.format,
        original=original.name,
        decoded=f"{place}/{coded.decoded.name}",
        pictures=pictures,
        argv=coded.argv,
        files={original.name: original.sha256} | {name: sha256_file(path) for name, path in files.items()},
        sizes={original.name: original.bytes} | {name: path.stat().st_size for name, path in files.items()},
        **facts,
        **optional,
    )


def derived_facts(rebuilt: Sequence[str], temporal: Sequence[str]) -> dict[str, Any]:
    """Return the part of a unit's key that belongs to files computed from its bitstream and its decoded pictures.

    Args:
        rebuilt: Files that are rebuilt from the bitstream.
        temporal: Files of temporal planes.
    """
    return {
        "rebuilt": {"files": list(rebuilt), "rebuilder": REBUILDER_VERSION if rebuilt else None},
        "temporal": {"files": list(temporal), "matcher": MATCHER_VERSION if temporal else None},
    }


def same_stream_keys(facts: dict[str, Any]) -> list[str]:
    """Return the keys of all units with the same bitstream as a unit with these facts.

    Such units differ only in the files that are computed from the bitstream and the decoded pictures.
    """
    temporal = _subsets(sorted(LUMA_FILES))
    return [
        sha256_json(facts | derived_facts(first, second)) for first in _subsets(_REBUILT_FILES) for second in temporal
    ]


def _subsets(files: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all subsets of files, the empty one first."""
    return [subset for count in range(len(files) + 1) for subset in itertools.combinations(files, count)]


def copy_coded_unit(unit: CodedUnit, store: Path, folder: Path, seconds: Path | None) -> CodedSequence:
    """Copy a coded unit, without the files rebuilt from its bitstream, so that its planes can be rebuilt.

    Args:
        unit: The unit.
        store: Folder of its store.
        folder: Folder that receives bitstream, decoded pictures, log and decisions.
        seconds: File with the encoder's time, or None if the recipe does not ask for it.

    Returns:
        The sequence as the encoder's back end returned it.

    Raises:
        StoreError: A file differs from its hash in the unit's record.
    """
    assert unit.bitstream_file is not None, "a unit that codecnn coded has a bitstream"
    copies, place = {}, Path(unit.decoded_file).parent
    decisions = [name] if (name := f"{place}/{DECISIONS_FILE}") in unit.files else []
    for name in (unit.bitstream_file, unit.decoded_file, f"{place}/{LOG_FILE}", *decisions):
        copies[name] = Path(shutil.copyfile(store / name, folder / Path(name).name))
        if sha256_file(copies[name]) != unit.files[name]:
            raise StoreError(f"{store / name} is damaged: remove its folder, and build the store again")
    pictures: list[dict[str, Any]] = [picture.to_json() for picture in unit.pictures]
    return CodedSequence(
        bitstream=copies[unit.bitstream_file],
        decoded=copies[unit.decoded_file],
        format=unit.format,
        pictures=tuple(
            CodedPicture(**{name: _none_to_infinity(value) for name, value in picture.items()}) for picture in pictures
        ),
        argv=unit.argv,
        encoder=unit.encoder,
        log=folder / LOG_FILE,
        in_loop=None if unit.in_loop is None else LoopFacts(**vars(unit.in_loop)),
        encoder_seconds=None if seconds is None else EncoderTime.from_json(seconds, read_json(seconds)).encoder_cpu,
    )


def _picture_record(picture: CodedPicture, network_qp: int | None) -> PictureRecord:
    """Return a picture's record. JSON has no infinity, so the PSNR of a plane without any error becomes None."""
    facts = {name: None if value == math.inf else value for name, value in vars(picture).items()}
    # A record writes the fields that were set.
    if picture.quantiser is None:
        del facts["quantiser"]
    if network_qp is not None:
        facts["network_qp"] = network_qp
    return PictureRecord.model_validate(facts)


def _none_to_infinity(value: Any) -> Any:
    """Undo the replacement of `_picture_record`."""
    return math.inf if value is None else value


def _mean(psnrs: list[float | None]) -> float | None:
    return None if None in psnrs else float(np.mean(np.array(psnrs, np.float64)))
