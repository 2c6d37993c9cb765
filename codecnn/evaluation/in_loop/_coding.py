"""Coding: a sequence at a QP without a filter and with one in the loop, each in a folder that is whole or absent."""

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from codecnn.codec import DECISIONS, CodecSettings, CodedPicture, VvencLibrary, code_in_loop, coded_format
from codecnn.evaluation.measure import Entry
from codecnn.filtering import (
    Decision,
    Decisions,
    Filtered,
    check_served,
    filter_and_decide,
    sequence_pays,
    slice_type_beside,
    write_decisions,
)
from codecnn.quality import mse
from codecnn.runs import provenance, read_json, remove_tree, sha256_file, sha256_json, write_json
from codecnn.video import Picture, Video, convert, create_video, open_raw

SCHEMA = 2
"""Goes up as that of an evaluation's cells does."""
STREAM, PICTURES, LOG, CARD = "stream.266", "pictures.yuv", "log.txt", "card.json"
PLAIN = "A VVC stream without MD5: any decoder shows the pictures beside it."
LOOPED = (
    "This stream decodes only with the filter in the loop: each picture has to be filtered by the weights named here, "
    "as the decisions beside it say, before the next one is predicted from it. Any other decoder shows the first "
    "picture before the filter and drifts from the second on, without noticing, for the stream has no MD5."
)


class LoopPicture(BaseModel):
    """One picture of a stream: the encoder's line on it, and its squared error as it is shown.

    `bits` are the encoder's, `flag_bits` those of the decisions; `mse` of each plane, sample²; `mode` as in `Decision`,
    None without decisions; `seconds` the time of one pass of the filter.
    """

    model_config = ConfigDict(frozen=True)

    poc: int
    slice_type: str
    qp: int
    bits: int
    mse: tuple[float, ...]
    flag_bits: float = 0.0
    mode: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopStream:
    """The pictures of a sequence at a QP in one chain; `stream_bits` is the size of the stream's file in bits.

    `encoder_seconds` is the encoder's processor time, None of streams that were coded before it was noted.
    """

    pictures: tuple[LoopPicture, ...]
    stream_bits: int
    folder: Path
    encoder_seconds: float | None = None


@dataclass(frozen=True)
class Sequence:
    """A sequence that is coded: its name, its pictures, and the MD5 of their samples."""

    name: str
    video: Video
    md5: str


def as_sequence(name: str, video: Video) -> Sequence:
    """`video` under `name`, its samples hashed, for what was coded before is known by them."""
    digest = hashlib.md5()
    for picture in video:
        for plane in picture.planes:
            digest.update(plane.tobytes())
    return Sequence(name, video, digest.hexdigest())


def filtered_behind(
    originals: Iterable[Picture],
    decoded: Iterable[Picture],
    lines: Iterable[LoopPicture],
    decide: Callable[[Picture, Picture, LoopPicture], Filtered],
    progress: Callable[[], None],
) -> list[LoopPicture]:
    """The pictures of a stream without a filter, filtered behind it; as they are where the decisions do not pay."""
    plain, behind, decided = list(lines), [], []
    for original, output, coded in zip(originals, decoded, plain, strict=True):
        made = decide(original, output, coded)
        behind.append(loop_picture(coded, original, made))
        decided += [made.decision] if made.decision else []
        progress()
    if decided and not sequence_pays(decided):
        return [one.model_copy(update={"mode": "off"}) for one in plain]
    return behind


@dataclass(frozen=True)
class Coder:
    """Codes into folders below `folder`, by `library` and with `decisions`; what is there already is not coded again.

    `progress` is called once a picture.
    """

    library: VvencLibrary
    folder: Path
    decisions: Decisions
    progress: Callable[[], None]

    def plain(self, sequence: Sequence, settings: CodecSettings) -> LoopStream:
        """`sequence` coded without a filter."""
        key = self._key(sequence, settings)

        def make(folder: Path) -> dict[str, Any]:
            told, _ = self._code(sequence, settings, folder, lambda _, picture, __: Filtered(picture, picture, 0.0))
            return {"note": PLAIN} | told

        return _stream(self._whole(sequence, settings, "without", key, make))

    def looped(
        self, sequence: Sequence, settings: CodecSettings, entry: Entry, plain: LoopStream
    ) -> tuple[LoopStream, LoopStream]:
        """`sequence` with the filter behind the stream `plain`, and coded with the filter in the loop.

        Raises ModelError for a network that needs more than the callback hands out.
        """
        check_served(entry.name, entry.filter)
        ctu = settings.ctu_size
        assert ctu is not None
        key = self._key(sequence, settings) | {"weights": entry.card.sha256, "filter": type(entry.filter).__name__}
        key |= {"decisions": self.decisions, "ctu": ctu}
        form = coded_format(sequence.video.format, settings)

        def decide(original: Picture, decoded: Picture, coded: CodedPicture | LoopPicture) -> Filtered:
            beside = slice_type_beside(entry.filter.planes, coded.slice_type, form)
            return filter_and_decide(entry.filter, original, decoded, coded.qp, beside, self.decisions, ctu)

        def make(folder: Path) -> dict[str, Any]:
            with open_raw(plain.folder / PICTURES, form) as decoded:
                behind = filtered_behind(sequence.video, decoded, plain.pictures, decide, self.progress)
            told, decided = self._code(sequence, settings, folder, decide)
            if decided:
                write_decisions(folder / DECISIONS, decided, form.width, form.height, ctu)
            weights = {"name": entry.name, "network": entry.card.network, "sha256": entry.card.sha256}
            return {"note": LOOPED, "weights": weights, "post_filter": [one.model_dump() for one in behind]} | told

        folder = self._whole(sequence, settings, entry.name, key, make)
        behind = read_json(folder / CARD)["post_filter"]
        told = tuple(LoopPicture.model_validate(one) for one in behind)
        return replace(plain, pictures=told), _stream(folder)

    def _key(self, sequence: Sequence, settings: CodecSettings) -> dict[str, Any]:
        form = sequence.video.format
        return {
            "schema": SCHEMA,
            "samples": sequence.md5,
            "format": f"{form}",
            "settings": asdict(settings),
            "library": f"libvvenc {self.library.version}",
            "library_sha256": sha256_file(self.library.path),
        }

    def _whole(
        self,
        sequence: Sequence,
        settings: CodecSettings,
        who: str,
        key: dict[str, Any],
        make: Callable[[Path], dict[str, Any]],
    ) -> Path:
        """The folder that `key` stands for, made and then moved into place if it is not there."""
        name = re.sub(r"[^0-9A-Za-z_-]", "_", f"{sequence.name}_{who}")[:100]
        folder = self.folder / f"{name}_qp{settings.qp}_{sha256_json(key)[:12]}"
        if (folder / CARD).is_file():
            return folder
        part = folder.with_name(f"{folder.name}.part-{uuid.uuid4().hex[:12]}")
        part.mkdir(parents=True)
        try:
            made = make(part)
            files = {path.name: sha256_file(path) for path in sorted(part.iterdir())}
            write_json(part / CARD, made | {"key": key, "files": files, "provenance": provenance()})
            part.rename(folder)
        except BaseException:
            remove_tree(part)
            raise
        return folder

    def _code(
        self,
        sequence: Sequence,
        settings: CodecSettings,
        folder: Path,
        through: Callable[[Picture, Picture, CodedPicture], Filtered],
    ) -> tuple[dict[str, Any], list[Decision]]:
        """Code with `through` in the loop; what the card tells of the coding, and what was decided of each picture."""
        video = sequence.video
        told: list[LoopPicture] = []
        decided: list[Decision] = []
        with create_video(folder / PICTURES, coded_format(video.format, settings)) as out:

            def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
                original = video[len(told)]
                made = through(original, decoded, coded)
                told.append(loop_picture(coded, original, made))
                decided.extend([made.decision] if made.decision else [])
                out.write(made.picture)
                self.progress()
                return made.picture

            _, seconds = code_in_loop(
                self.library, video, video.format, settings, folder / STREAM, filter_, folder / LOG
            )
        return {"pictures": [one.model_dump() for one in told], "encoder_seconds": seconds}, decided


def loop_picture(coded: CodedPicture | LoopPicture, original: Picture, made: Filtered) -> LoopPicture:
    """A picture as it is shown after `made`."""
    reference = convert(original, made.picture.bit_depth)
    assert coded.bits is not None
    return LoopPicture(
        poc=coded.poc,
        slice_type=coded.slice_type,
        qp=coded.qp,
        bits=coded.bits,
        mse=tuple(mse(a, b) for a, b in zip(reference.planes, made.picture.planes, strict=True)),
        flag_bits=made.bits,
        mode=None if made.decision is None else made.decision.mode,
        seconds=made.seconds,
    )


def _stream(folder: Path) -> LoopStream:
    card = read_json(folder / CARD)
    pictures = tuple(LoopPicture.model_validate(one) for one in card["pictures"])
    return LoopStream(pictures, 8 * (folder / STREAM).stat().st_size, folder, card.get("encoder_seconds"))
