"""The record of a unit that has been coded."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.codec import CodedPicture, CodedSequence
from codecnn.dataset._measure import BLOCK_PLANES_FILE, BLOCKS, TRANSFORMS_FILE
from codecnn.dataset._originals import Original
from codecnn.dataset.records import CodedUnit, GivenRecord, LoopRecord, PictureRecord
from codecnn.runs import sha256_file


def describe(
    coded: CodedSequence, original: Original, folder: Path, place: str, *, no_blocks: str | None, **facts: Any
) -> CodedUnit:
    """The unit whose files lie in `folder`, and in the store will lie in `place`.

    `facts` are its key, the name of its sequence, its QP and its encoder; `no_blocks` says why it has no CUs.
    """
    pictures = tuple(_picture(picture) for picture in coded.pictures)
    files = {f"{place}/{path.name}": path for path in sorted(folder.iterdir())}
    optional = {"bitstream": coded.bitstream, "unfiltered": coded.unfiltered, "prediction": coded.prediction}
    optional |= {"residual": coded.residual, "strengths": coded.strengths}
    optional |= {"blocks": folder / BLOCKS, "block_planes": folder / BLOCK_PLANES_FILE}
    optional |= {"transforms": folder / TRANSFORMS_FILE}
    # What a unit does not have is left out of its JSON, so it must not be set here either.
    kept = {name: path for name, path in optional.items() if path and path.exists()}
    has: dict[str, Any] = {name: f"{place}/{path.name}" for name, path in kept.items()}
    has |= {name: _mean([getattr(picture, name) for picture in pictures]) for name in ("psnr_y", "psnr_u", "psnr_v")}
    has |= {"bits": coded.bits} if coded.bits is not None else {}
    has |= {"no_blocks": no_blocks} if no_blocks else {}
    has |= {"variant": original.variant} if original.variant else {}
    has |= {"given": GivenRecord(**vars(coded.given))} if coded.given else {}
    has |= {"in_loop": LoopRecord(**vars(coded.in_loop))} if coded.in_loop else {}
    return CodedUnit(
        format=coded.format,
        original=original.name,
        decoded=f"{place}/{coded.decoded.name}",
        pictures=pictures,
        argv=coded.argv,
        files={original.name: original.sha256} | {name: sha256_file(path) for name, path in files.items()},
        sizes={original.name: original.bytes} | {name: path.stat().st_size for name, path in files.items()},
        **facts,
        **has,
    )


def _picture(picture: CodedPicture) -> PictureRecord:
    """The record of a picture: a plane without any error has no finite PSNR, and JSON no infinity, so None is kept."""
    facts = {name: None if value == math.inf else value for name, value in vars(picture).items()}
    return PictureRecord.model_validate(facts)


def _mean(psnrs: list[float | None]) -> float | None:
    return None if None in psnrs else float(np.mean(np.array(psnrs, np.float64)))
