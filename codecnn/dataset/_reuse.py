"""What is coded already: a unit to which planes are added, or of which some are left out, keeps its stream.

Planes of `planes` are made from the bitstream, so a store that gets them needs no encoder: streams, decoded pictures
and logs are taken from the units that are there.
"""

import itertools
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codecnn.codec import DECISIONS, REBUILDER, CodedPicture, CodedSequence, LoopFacts
from codecnn.dataset.records import CodedUnit, Seconds
from codecnn.errors import StoreError
from codecnn.planes import RECIPE_PLANES, file_of
from codecnn.runs import read_json, sha256_file, sha256_json

LOG = "log.txt"
REBUILT = "rebuilt"
_FILES = sorted({file_of(name) for name in RECIPE_PLANES})


def rebuilt_facts(files: Sequence[str]) -> dict[str, Any]:
    """What a unit's key hashes under REBUILT where `files` are made from its bitstream."""
    return {"files": list(files), "rebuilder": REBUILDER}


def keys_of_one_stream(what: dict[str, Any]) -> list[str]:
    """The keys of the units whose streams are that of a unit with the facts `what`: they differ in what is rebuilt."""
    bare = {name: value for name, value in what.items() if name != REBUILT}
    some = (files for count in range(1, len(_FILES) + 1) for files in itertools.combinations(_FILES, count))
    return [sha256_json(bare), *(sha256_json(bare | {REBUILT: rebuilt_facts(files)}) for files in some)]


def taken_from(unit: CodedUnit, store: Path, folder: Path, seconds: Path | None) -> CodedSequence:
    """What coding `unit` gave: bitstream, decoded pictures and log, copied into `folder` and held against their hashes.

    `seconds` is the file with the encoder's time, or None where it is not asked for. Raises StoreError for a file that
    is not what the unit says of it.
    """
    assert unit.bitstream_file is not None, "units of our encoders have a stream"
    copies, place = {}, Path(unit.decoded_file).parent
    decisions = [name] if (name := f"{place}/{DECISIONS}") in unit.files else []
    for name in (unit.bitstream_file, unit.decoded_file, f"{place}/{LOG}", *decisions):
        copies[name] = Path(shutil.copyfile(store / name, folder / Path(name).name))
        if sha256_file(copies[name]) != unit.files[name]:
            raise StoreError(f"{store / name} is damaged: remove its folder, and build the store again")
    facts: list[dict[str, Any]] = [vars(picture) for picture in unit.pictures]
    return CodedSequence(
        bitstream=copies[unit.bitstream_file],
        decoded=copies[unit.decoded_file],
        format=unit.format,
        pictures=tuple(CodedPicture(**{name: _as_coded(value) for name, value in one.items()}) for one in facts),
        argv=unit.argv,
        encoder=unit.encoder,
        log=folder / LOG,
        in_loop=None if unit.in_loop is None else LoopFacts(**vars(unit.in_loop)),
        encoder_seconds=None if seconds is None else Seconds.from_json(seconds, read_json(seconds)).encoder_cpu,
    )


def _as_coded(value: Any) -> Any:
    """A record's None, which is of a plane without any error, as the PSNR that it stands for."""
    return math.inf if value is None else value
