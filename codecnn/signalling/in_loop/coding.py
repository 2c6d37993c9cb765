"""Coding of sequences without a filter and with each filter in the coding loop."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from codecnn.base.errors import ConfigError
from codecnn.base.files import file_stem, provenance, read_json, remove_tree, sha256_file, write_json
from codecnn.base.leftovers import part_path, remove_leftovers
from codecnn.codec import DECISIONS_FILE, CodecSettings, CodedPicture, coded_format
from codecnn.evaluation import UNKNOWN_DEVICE, Entry, cpu_threads
from codecnn.filtering import (
    Decision,
    Decisions,
    Filtered,
    Placement,
    filter_and_decide,
    sequence_pays,
    slice_type_plane,
    write_decisions,
)
from codecnn.filtering.decisions import KEY_QP_OFFSET, LOOP_SCALE_STEP
from codecnn.pictures.files import Picture, Video, VideoFormat, convert, create_video, open_raw
from codecnn.pictures.metrics import mse
from codecnn.signalling.in_loop.encoder import code_in_loop
from codecnn.signalling.in_loop.messages import MessageWriter, loop_parameters
from codecnn.signalling.in_loop.results import (
    LoopPicture,
    LoopStream,
)
from codecnn.signalling.in_loop.store_codec import check_in_loop
from codecnn.signalling.in_loop.vvenc_library import VvencLibrary
from codecnn.vvc.syntax import access_units

CTU_SIZE = 128
"""CTU size in luma samples of the encoder and of the decisions, as in the evaluation in all intra."""

SCHEMA = 5
"""Schema version of coded streams; raise it together with that of the cells (`CELL_SCHEMA`)."""

STREAM, PICTURES, LOG, CARD = "stream.266", "pictures.yuv", "log.txt", "card.json"
"""Files in the folder of a stream."""

BEHIND = "behind.266"
"""The stream without the filter and the messages of the filter behind the loop, in the folder of the stream with it."""

PLACES: dict[str, Callable[[CodedPicture, int], bool]] = {
    "key": lambda coded, qp: coded.slice_type == "I" or coded.qp - qp <= KEY_QP_OFFSET,
    "intra": lambda coded, qp: coded.slice_type == "I",
}
"""Rules that choose the pictures filtered in the loop by their record and the QP of the sequence."""

PLAIN_NOTE = "A VVC stream without MD5: any decoder outputs the pictures in pictures.yuv."
"""Note in the card of a stream without a filter."""

LOOPED_NOTE = (
    "This stream decodes only with the filter in the loop: `codecnn decode` filters each picture with the weights that "
    "are named here, as the stream says (docs/reference/loop_filter.md). Any other decoder outputs the first picture "
    "unfiltered and drifts from the second one on."
)
"""Note in the card of a stream with a filter in the loop."""

Decide = Callable[[Picture, Picture, CodedPicture | LoopPicture], Filtered]
"""A function of original, decoded picture and its record that filters the picture."""


@dataclass(frozen=True)
class HashedVideo:
    """A video to code: its name, its pictures, and the MD5 of their samples, by which coded streams are found again."""

    name: str
    video: Video
    md5: str


def hashed(name: str, video: Video) -> HashedVideo:
    """Return a video with the MD5 of its samples."""
    digest = hashlib.md5()
    for picture in video:
        for plane in picture.planes:
            digest.update(plane.tobytes())
    return HashedVideo(name, video, digest.hexdigest())


@dataclass(frozen=True)
class Coder:
    """Codes streams into folders and reads those that exist.

    Attributes:
        library: libvvenc.
        folder: Parent of the folders of the streams.
        decisions: "none", "ctu" or "full".
        picture_hashes: Add MD5s of the pictures to streams with a filter.
        progress: Called once a picture.
    """

    library: VvencLibrary
    folder: Path
    decisions: Decisions
    picture_hashes: bool
    progress: Callable[[], None]

    def plain(self, sequence: HashedVideo, settings: CodecSettings) -> LoopStream:
        """Code a video without a filter."""
        key = self._key(sequence, settings)

        def fill(folder: Path) -> dict[str, Any]:
            card, _ = self._code(
                sequence, settings, folder, lambda _, picture, __: Filtered(picture, picture, 0.0), None
            )
            return {"note": PLAIN_NOTE} | card

        return _read_stream(self._complete_folder(sequence, settings, "without", key, fill))

    def looped(
        self, sequence: HashedVideo, settings: CodecSettings, entry: Entry, plain: LoopStream
    ) -> tuple[LoopStream, LoopStream]:
        """Filter the stream `plain` behind the decoder, and code the video with the filter in the loop.

        Returns:
            The stream filtered behind the decoder, and the stream with the filter in the loop.

        Raises:
            ModelError: The network needs planes that the callback of the encoder does not provide.
        """
        form = coded_format(sequence.video.format, settings)
        behind = self._messages(settings, entry, "behind")
        decide = self._decider(sequence, settings, entry)

        def fill(folder: Path) -> dict[str, Any]:
            with open_raw(plain.folder / PICTURES, form) as decoded:
                pictures, pays = filter_behind(sequence.video, decoded, plain.pictures, decide, behind, self.progress)
            if pays:
                units = access_units((plain.folder / STREAM).read_bytes())
                (folder / BEHIND).write_bytes(b"".join(behind.add(number, unit) for number, unit in enumerate(units)))
                pictures = _with_bits(pictures, behind)
            return {"post_filter": [picture.model_dump() for picture in pictures]}

        folder = self._filtered_folder(sequence, settings, entry, "in_loop", fill)
        pictures = tuple(LoopPicture.model_validate(picture) for picture in read_json(folder / CARD)["post_filter"])
        stream = folder / BEHIND if (folder / BEHIND).is_file() else plain.stream
        return replace(plain, pictures=pictures, stream=stream), _read_stream(folder)

    def placed(self, sequence: HashedVideo, settings: CodecSettings, entry: Entry, place: str) -> LoopStream:
        """Code the video with some pictures filtered in the loop and the others behind it.

        Args:
            sequence: The video.
            settings: Settings of the encoder.
            entry: The filter.
            place: Name from `PLACES`.
        """
        return _read_stream(self._filtered_folder(sequence, settings, entry, place, lambda _: {}))

    def _messages(self, settings: CodecSettings, entry: Entry, placement: Placement) -> MessageWriter:
        assert settings.ctu_size is not None
        sha256 = entry.card.sha256
        parameters = loop_parameters(entry.filter, sha256, self.decisions, settings.ctu_size, placement)
        return MessageWriter(parameters, picture_hashes=self.picture_hashes)

    def _decider(self, sequence: HashedVideo, settings: CodecSettings, entry: Entry) -> Decide:
        assert settings.ctu_size is not None
        form = coded_format(sequence.video.format, settings)
        return decider(entry, form, self.decisions, settings.ctu_size)

    def _filtered_folder(
        self,
        sequence: HashedVideo,
        settings: CodecSettings,
        entry: Entry,
        place: str,
        further: Callable[[Path], dict[str, Any]],
    ) -> Path:
        """Return the folder of a stream with a filter; `further` writes more files and returns more of the card.

        Args:
            sequence: The video.
            settings: Settings of the encoder.
            entry: The filter.
            place: Name from `PLACES`, or "in_loop" for all pictures.
            further: Called with the folder before the video is coded.
        """
        check_in_loop(entry.name, entry.filter)
        if entry.not_kept is not None:
            raise ConfigError(f"the streams of {entry.name} cannot be kept: {entry.not_kept}")
        form, ctu = coded_format(sequence.video.format, settings), settings.ctu_size
        assert ctu is not None
        key = self._key(sequence, settings) | entry.cache_key | {"decisions": self.decisions, "ctu": ctu}
        key |= {"picture_hashes": self.picture_hashes}
        in_loop = PLACES.get(place)
        placement: Placement = "in_loop" if in_loop is None else "by_picture"
        if in_loop is not None:
            key |= {"place": place}
        messages = self._messages(settings, entry, placement)
        decide = self._decider(sequence, settings, entry)

        def fill(folder: Path) -> dict[str, Any]:
            facts = further(folder)
            card, all_decisions = self._code(sequence, settings, folder, decide, messages, in_loop)
            if all_decisions:
                write_decisions(folder / DECISIONS_FILE, all_decisions, form.width, form.height, ctu)
            weights = {"name": entry.name, "network": entry.card.network, "sha256": entry.card.sha256}
            weights["arithmetic"] = messages.parameters.arithmetic
            timing: dict[str, Any] = {"device": entry.device, "threads": cpu_threads()}
            timing |= {} if entry.runtime is None else {"runtime": entry.runtime.as_json()}
            return {"note": LOOPED_NOTE, "weights": weights, "place": place} | facts | card | timing

        label = entry.name if in_loop is None else f"{entry.name}_{place}"
        return self._complete_folder(sequence, settings, label, key, fill)

    def _key(self, sequence: HashedVideo, settings: CodecSettings) -> dict[str, Any]:
        form = sequence.video.format
        return {
            "schema": SCHEMA,
            "samples": sequence.md5,
            "format": f"{form}",
            "settings": asdict(settings),
            "library": f"libvvenc {self.library.version}",
            "library_sha256": sha256_file(self.library.path),
        }

    def _complete_folder(
        self,
        sequence: HashedVideo,
        settings: CodecSettings,
        label: str,
        key: dict[str, Any],
        fill: Callable[[Path], dict[str, Any]],
    ) -> Path:
        """Return the folder of a key; if it does not exist, fill a temporary one and rename it."""
        folder = self.folder / file_stem(f"{sequence.name}_{label}", f"qp{settings.qp}", key)
        if (folder / CARD).is_file():
            return folder
        remove_leftovers(folder.parent, once=True)
        part = part_path(folder)
        part.mkdir(parents=True)
        try:
            card = fill(part)
            files = {path.name: sha256_file(path) for path in sorted(part.iterdir())}
            write_json(part / CARD, card | {"key": key, "files": files, "provenance": provenance()})
            part.rename(folder)
        except BaseException:
            remove_tree(part)
            raise
        return folder

    def _code(
        self,
        sequence: HashedVideo,
        settings: CodecSettings,
        folder: Path,
        decide: Callable[[Picture, Picture, CodedPicture], Filtered],
        messages: MessageWriter | None,
        in_loop: Callable[[CodedPicture, int], bool] | None = None,
    ) -> tuple[dict[str, Any], list[Decision]]:
        """Code with `decide`, and with messages if there is a writer of them.

        Args:
            sequence: The video.
            settings: Settings of the encoder.
            folder: Folder for stream, pictures and log.
            decide: Filter of each picture.
            messages: Writer of the messages.
            in_loop: Function of `PLACES`; None filters all pictures in the loop.

        Returns:
            Facts for the card, and the decisions of each picture.
        """
        video = sequence.video
        pictures: list[LoopPicture] = []
        all_decisions: list[Decision] = []
        with create_video(folder / PICTURES, coded_format(video.format, settings)) as out:

            def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
                original = video[len(pictures)]
                filtered = decide(original, decoded, coded)
                behind = None if in_loop is None or in_loop(coded, settings.qp) else decoded
                pictures.append(loop_picture(coded, original, filtered))
                if messages is not None:
                    messages.put(filtered, coded.slice_type, coded.qp, behind)
                all_decisions.extend([filtered.decision] if filtered.decision else [])
                out.write(filtered.picture)
                self.progress()
                return filtered.picture if behind is None else behind

            _, seconds = code_in_loop(
                self.library,
                video,
                video.format,
                settings,
                folder / STREAM,
                filter_,
                folder / LOG,
                None if messages is None else messages.add,
            )
        if messages is not None:
            pictures = _with_bits(pictures, messages)
        return {"pictures": [picture.model_dump() for picture in pictures], "encoder_seconds": seconds}, all_decisions


def decider(entry: Entry, form: VideoFormat, decisions: Decisions, ctu: int) -> Decide:
    """Return the function that filters a picture as an encoder with these decisions would."""

    def decide(original: Picture, decoded: Picture, coded: CodedPicture | LoopPicture) -> Filtered:
        auxiliary = slice_type_plane(entry.filter.planes, coded.slice_type, form)
        return filter_and_decide(entry.filter, original, decoded, coded.qp, auxiliary, decisions, ctu, LOOP_SCALE_STEP)

    return decide


def filter_behind(
    originals: Iterable[Picture],
    decoded: Iterable[Picture],
    records: Iterable[LoopPicture],
    decide: Decide,
    messages: MessageWriter,
    progress: Callable[[], None],
) -> tuple[list[LoopPicture], bool]:
    """Filter the pictures of a stream behind the decoder, unless the decisions do not lower the RD cost.

    Returns:
        Records of the pictures, and whether the filter is used.
    """
    plain, pictures, all_decisions = list(records), [], []
    for original, output, coded in zip(originals, decoded, plain, strict=True):
        filtered = decide(original, output, coded)
        bits = messages.put(filtered, coded.slice_type, coded.qp, output)
        pictures.append(loop_picture(coded, original, filtered).model_copy(update={"message_bits": bits}))
        all_decisions += [filtered.decision] if filtered.decision else []
        progress()
    if all_decisions and not sequence_pays(all_decisions):
        return [picture.model_copy(update={"mode": "off"}) for picture in plain], False
    return pictures, True


def _with_bits(pictures: Sequence[LoopPicture], messages: MessageWriter) -> list[LoopPicture]:
    """Return records of pictures with the bits that their messages take in the stream."""
    return [
        picture.model_copy(update={"message_bits": message_bits, "hash_bits": hash_bits})
        for picture, (message_bits, hash_bits) in zip(pictures, messages.bits, strict=True)
    ]


def loop_picture(coded: CodedPicture | LoopPicture, original: Picture, filtered: Filtered) -> LoopPicture:
    """Return the record of a coded and filtered picture, with its error against the original."""
    reference = convert(original, filtered.picture.bit_depth)
    assert coded.bits is not None
    return LoopPicture(
        poc=coded.poc,
        slice_type=coded.slice_type,
        qp=coded.qp,
        bits=coded.bits,
        mse=tuple(mse(a, b) for a, b in zip(reference.planes, filtered.picture.planes, strict=True)),
        mode=None if filtered.decision is None else filtered.decision.mode,
        seconds=filtered.seconds,
    )


def _read_stream(folder: Path) -> LoopStream:
    """Read the card of a stream; that of a stream without a filter states no device and no threads."""
    card = read_json(folder / CARD)
    pictures = tuple(LoopPicture.model_validate(picture) for picture in card["pictures"])
    added = sum(picture.message_bits + picture.hash_bits for picture in pictures)
    bits = 8 * (folder / STREAM).stat().st_size - added
    device = card.get("device") or UNKNOWN_DEVICE
    seconds = card.get("encoder_seconds")
    return LoopStream(pictures, bits, folder, seconds, device, card.get("threads"), folder / STREAM)
