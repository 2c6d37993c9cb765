"""Coding of sequences without a filter and with each filter in the coding loop."""

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from codecnn.cluster import Progress
from codecnn.codec import (
    DECISIONS_FILE,
    CodecSettings,
    CodedPicture,
    VvencLibrary,
    code_closed_loop,
    code_in_loop,
    coded_format,
)
from codecnn.errors import ConfigError
from codecnn.evaluation.cells import cpu_threads
from codecnn.evaluation.in_loop.results import (
    CHAINS,
    LoopModel,
    LoopPicture,
    LoopResults,
    LoopRow,
    LoopStream,
    make_rows,
    rates_of,
    write_loop,
)
from codecnn.evaluation.measure import UNKNOWN_DEVICE, Entry
from codecnn.evaluation.results import timing_of, untrained_loop
from codecnn.evaluation.rows import mean_rates
from codecnn.filtering import (
    Decision,
    Decisions,
    Filtered,
    LoopParameters,
    check_in_loop,
    filter_and_decide,
    loop_parameters,
    picture_messages,
    sequence_pays,
    slice_type_plane,
    write_decisions,
    write_message,
)
from codecnn.quality import mse
from codecnn.runs import atomic_path, provenance, read_json, remove_tree, sha256_file, sha256_json, write_json
from codecnn.video import Picture, Video, VideoFormat, convert, create_video, open_raw
from codecnn.vvc import SeiMessage

CTU_SIZE = 128
"""CTU size in luma samples of the encoder and of the decisions, as in the evaluation in all intra."""

SCHEMA = 3
"""Schema version of coded streams; raise it together with that of the cells (`CELL_SCHEMA`)."""

STREAM, PICTURES, LOG, CARD = "stream.266", "pictures.yuv", "log.txt", "card.json"
"""Files in the folder of a stream."""

PLAIN_NOTE = "A VVC stream without MD5: any decoder outputs the pictures in pictures.yuv."
"""Note in the card of a stream without a filter."""

LOOPED_NOTE = (
    "This stream decodes only with the filter in the loop: `codecnn decode` filters each picture with the weights that "
    "are named here, as the SEI messages of the stream say (docs/reference/loop_filter.md). Any other decoder "
    "outputs the first picture unfiltered and drifts from the second one on; the MD5 in the stream differs."
)
"""Note in the card of a stream with a filter in the loop."""

Decide = Callable[[Picture, Picture, CodedPicture | LoopPicture], Filtered]
"""A function of original, decoded picture and its record that filters the picture."""


def evaluate_in_loop(
    entries: Sequence[Entry],
    videos: Mapping[str, Video],
    qps: Sequence[int],
    library: VvencLibrary,
    output: Path,
    *,
    preset: str = "medium",
    decisions: Decisions = "ctu",
    progress: Progress | None = None,
) -> LoopResults:
    """Code videos in low delay without a filter and with each filter in the loop, and compute BD-rates.

    `output` receives in_loop.json, in_loop.csv and in_loop.md. coded/ holds a folder for each stream: the bitstream,
    the output pictures, the decisions, the log of the encoder, and a card that states what decoding the stream
    requires. A folder is complete or absent, and existing streams are not coded again.

    Args:
        entries: The filters.
        videos: Original videos by name.
        qps: QPs to code at; a BD-rate needs four.
        library: libvvenc as a shared library.
        output: Folder to write to.
        preset: Encoder preset, e.g. "faster", "fast", "medium" or "slow".
        decisions: "none", "ctu" or "full".
        progress: Called with (pictures done, all pictures).

    Returns:
        The results.

    Raises:
        ConfigError: A video has fewer than two pictures.
        ModelError: A network needs planes that the loop does not provide.
        EncoderError: The encoder fails.
    """
    for name, video in videos.items():
        if len(video) < 2:
            raise ConfigError(f"{name} has one picture: a coding loop needs two or more")
    done, total = 0, sum(map(len, videos.values())) * len(qps) * (1 + 2 * len(entries))

    def step(pictures: int = 1) -> None:
        nonlocal done
        done = min(done + pictures, total)
        if progress is not None:
            progress(done, total)

    coder = Coder(library, output / "coded", decisions, step)
    rows: list[LoopRow] = []
    timings: dict[str, list[tuple[str, int | None]]] = {entry.name: [] for entry in entries}
    for name, video in videos.items():
        sequence = _hashed(name, video)
        for qp in qps:
            settings = CodecSettings(qp=qp, preset=preset, configuration="ldb", ctu_size=CTU_SIZE)
            plain = coder.plain(sequence, settings)
            for entry in entries:
                post_filtered, looped = coder.looped(sequence, settings, entry, plain)
                timings[entry.name].append((looped.device, looped.threads))
                streams = plain, post_filtered, looped
                form = coded_format(video.format, settings)
                rows += make_rows(name, entry.name, qp, streams, form, decisions, output)
    notes = [f"{entry.name}: {note}" for entry in entries for note in untrained_loop(entry.card)]
    notes += [f"{name}: {note}" for name, pairs in timings.items() for note in timing_of(pairs)[2]]
    per_sequence = {
        entry.name: {
            name: {
                chain: rates_of([row for row in rows if (row.name, row.model) == (name, entry.name)], chain, notes)
                for chain in CHAINS[1:]
            }
            for name in videos
        }
        for entry in entries
    }
    results = LoopResults(
        decisions=decisions,
        settings={"preset": preset, "configuration": "ldb", "ctu_size": CTU_SIZE, "qp": list(qps)},
        library=f"libvvenc {library.version}",
        models={entry.name: _loop_model(entry, timings[entry.name]) for entry in entries},
        rows=tuple(rows),
        bd_rate={
            model: {chain: mean_rates([rates[chain] for rates in chains.values()]) for chain in CHAINS[1:]}
            for model, chains in per_sequence.items()
        },
        bd_rate_per_sequence=per_sequence,
        notes=tuple(dict.fromkeys(notes)),
        provenance=provenance(),
    )
    write_loop(output, results)
    return results


def _loop_model(entry: Entry, timings: Sequence[tuple[str, int | None]]) -> LoopModel:
    device, threads, _ = timing_of(timings)
    return LoopModel(
        weights_sha256=entry.card.sha256,
        kmac_per_pixel=entry.card.kmac_per_pixel,
        parameters=entry.card.parameters,
        device=device,
        threads=threads,
    )


@dataclass(frozen=True)
class HashedVideo:
    """A video to code: its name, its pictures, and the MD5 of their samples, by which coded streams are found again."""

    name: str
    video: Video
    md5: str


def _hashed(name: str, video: Video) -> HashedVideo:
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
        progress: Called once a picture.
    """

    library: VvencLibrary
    folder: Path
    decisions: Decisions
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
        check_in_loop(entry.name, entry.filter)
        ctu = settings.ctu_size
        assert ctu is not None
        key = self._key(sequence, settings) | entry.cache_key
        key |= {"decisions": self.decisions, "ctu": ctu}
        form = coded_format(sequence.video.format, settings)
        decide = _decider(entry, form, self.decisions, ctu)
        parameters = loop_parameters(entry.filter, entry.card.sha256, form.bit_depth, self.decisions, ctu)

        def fill(folder: Path) -> dict[str, Any]:
            with open_raw(plain.folder / PICTURES, form) as decoded:
                pictures = _post_filtered(sequence.video, decoded, plain.pictures, decide, parameters, self.progress)
            card, all_decisions = self._code(sequence, settings, folder, decide, parameters)
            if all_decisions:
                write_decisions(folder / DECISIONS_FILE, all_decisions, form.width, form.height, ctu)
            weights = {"name": entry.name, "network": entry.card.network, "sha256": entry.card.sha256}
            weights["arithmetic"] = parameters.arithmetic
            timing: dict[str, Any] = {"device": entry.device, "threads": cpu_threads()}
            timing |= {} if entry.runtime is None else {"runtime": entry.runtime.as_json()}
            post_filter = [picture.model_dump() for picture in pictures]
            return {"note": LOOPED_NOTE, "weights": weights, "post_filter": post_filter} | card | timing

        folder = self._complete_folder(sequence, settings, entry.name, key, fill, entry.may_reuse)
        pictures = tuple(LoopPicture.model_validate(picture) for picture in read_json(folder / CARD)["post_filter"])
        return replace(plain, pictures=pictures), _read_stream(folder)

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
        may_reuse: Callable[[str, object], bool] = lambda device, runtime: True,
    ) -> Path:
        """Return the folder of a key; if it does not exist or may not be reused, fill a temporary one and rename it."""
        name = re.sub(r"[^0-9A-Za-z_-]", "_", f"{sequence.name}_{label}")[:100]
        folder = self.folder / f"{name}_qp{settings.qp}_{sha256_json(key)[:12]}"
        if (folder / CARD).is_file():
            card = read_json(folder / CARD)
            if may_reuse(card.get("device") or UNKNOWN_DEVICE, card.get("runtime")):
                return folder
            remove_tree(folder)
        part = folder.with_name(f"{folder.name}.part-{uuid.uuid4().hex[:12]}")
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
        parameters: LoopParameters | None,
    ) -> tuple[dict[str, Any], list[Decision]]:
        """Code with `decide` in the loop, and with messages if there are parameters.

        Returns:
            Facts for the card, and the decisions of each picture.
        """
        video = sequence.video
        pictures: list[LoopPicture] = []
        messages: list[tuple[list[SeiMessage], list[SeiMessage]]] = []
        all_decisions: list[Decision] = []
        with create_video(folder / PICTURES, coded_format(video.format, settings)) as out:

            def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
                original = video[len(pictures)]
                filtered = decide(original, decoded, coded)
                picture = _loop_picture(coded, original, filtered, parameters)
                if parameters is not None:
                    added = picture_messages(parameters, filtered, coded.slice_type)
                    messages.append(([added.message], [added.picture_hash]))
                    bits = {"message_bits": added.message_bits, "hash_bits": added.hash_bits}
                    picture = picture.model_copy(update=bits)
                pictures.append(picture)
                all_decisions.extend([filtered.decision] if filtered.decision else [])
                out.write(filtered.picture)
                self.progress()
                return filtered.picture

            _, seconds = code_in_loop(
                self.library,
                video,
                video.format,
                settings,
                folder / STREAM,
                filter_,
                folder / LOG,
                None if parameters is None else messages.__getitem__,
            )
        return {"pictures": [picture.model_dump() for picture in pictures], "encoder_seconds": seconds}, all_decisions


def _decider(entry: Entry, form: VideoFormat, decisions: Decisions, ctu: int) -> Decide:
    """Return the function that filters a picture as an encoder with these decisions would."""

    def decide(original: Picture, decoded: Picture, coded: CodedPicture | LoopPicture) -> Filtered:
        auxiliary = slice_type_plane(entry.filter.planes, coded.slice_type, form)
        return filter_and_decide(entry.filter, original, decoded, coded.qp, auxiliary, decisions, ctu)

    return decide


def _post_filtered(
    originals: Iterable[Picture],
    decoded: Iterable[Picture],
    records: Iterable[LoopPicture],
    decide: Decide,
    parameters: LoopParameters,
    progress: Callable[[], None],
) -> list[LoopPicture]:
    """Filter the pictures of a stream behind the decoder, unless the decisions do not lower the RD cost."""
    plain, pictures, all_decisions = list(records), [], []
    for original, output, coded in zip(originals, decoded, plain, strict=True):
        filtered = decide(original, output, coded)
        pictures.append(_loop_picture(coded, original, filtered, parameters))
        all_decisions += [filtered.decision] if filtered.decision else []
        progress()
    if all_decisions and not sequence_pays(all_decisions):
        return [picture.model_copy(update={"mode": "off"}) for picture in plain]
    return pictures


def _loop_picture(
    coded: CodedPicture | LoopPicture, original: Picture, filtered: Filtered, parameters: LoopParameters | None
) -> LoopPicture:
    """Record a picture; the bits of its decision are those of its message."""
    bits = 0
    if parameters is not None:
        bits = write_message(parameters, filtered.decision, activate=False).decision_bits
    reference = convert(original, filtered.picture.bit_depth)
    assert coded.bits is not None
    return LoopPicture(
        poc=coded.poc,
        slice_type=coded.slice_type,
        qp=coded.qp,
        bits=coded.bits,
        mse=tuple(mse(a, b) for a, b in zip(reference.planes, filtered.picture.planes, strict=True)),
        flag_bits=bits,
        mode=None if filtered.decision is None else filtered.decision.mode,
        seconds=filtered.seconds,
    )


def _read_stream(folder: Path) -> LoopStream:
    """Read the card of a stream; cards of earlier versions state no device and no threads."""
    card = read_json(folder / CARD)
    pictures = tuple(LoopPicture.model_validate(picture) for picture in card["pictures"])
    added = sum(picture.message_bits + picture.hash_bits for picture in pictures)
    bits = 8 * (folder / STREAM).stat().st_size - added
    device = card.get("device") or UNKNOWN_DEVICE
    return LoopStream(pictures, bits, folder, card.get("encoder_seconds"), device, card.get("threads"))


@dataclass(frozen=True)
class ClosedLoop:
    """One sequence through all chains of the approximated loop, with all slices at the same QP.

    Attributes:
        rows: One row for each of `CHAINS`.
        reference_psnr: Lowest luma PSNR in dB of a reference picture against the filtered picture it stands for.
    """

    rows: tuple[LoopRow, ...]
    reference_psnr: float


def closed_loop(
    entry: Entry,
    name: str,
    video: Video,
    settings: CodecSettings,
    *,
    decisions: Decisions = "ctu",
    before: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> ClosedLoop:
    """Approximate coding with the filter in the loop by `codecnn.codec.code_closed_loop`.

    Args:
        entry: The filter.
        name: Name of the sequence.
        video: Original video.
        settings: Encoder settings; every slice is coded at their QP.
        decisions: "none", "ctu" or "full".
        before: Raw YUV file that receives the input pictures of the filter in the loop; None writes none.
        progress: Called once a coded picture.

    Returns:
        The rows, whose bits are those of the pictures alone, and the quality of the references.

    Raises:
        ConfigError: The video has fewer than two pictures.
        ModelError: The network needs more than decoded pictures.
        EncoderError: The encoder fails or does not keep to the settings.
    """
    if len(video) < 2:
        raise ConfigError(f"a closed loop needs at least two pictures, not {len(video)}")
    check_in_loop(entry.name, entry.filter)
    form, ctu = coded_format(video.format, settings), settings.ctu_size
    assert ctu is not None
    decide = _decider(entry, form, decisions, ctu)
    parameters = loop_parameters(entry.filter, entry.card.sha256, form.bit_depth, decisions, ctu)

    def unfiltered(_: Picture, decoded: Picture, __: CodedPicture) -> Filtered:
        return Filtered(decoded, decoded, 0.0)

    plain, inputs, plain_psnr = _code_closed_loop(video, settings, unfiltered, None, progress)
    post_filtered = _post_filtered(video, inputs, plain, decide, parameters, lambda: None)
    looped, inputs, looped_psnr = _code_closed_loop(video, settings, decide, parameters, progress)
    if before is not None:
        with atomic_path(before) as part, create_video(part, form) as out:
            for picture in inputs:
                out.write(picture)
    first, second, third = (
        LoopStream(tuple(pictures), sum(picture.bits for picture in pictures), Path())
        for pictures in (plain, post_filtered, looped)
    )
    rows = make_rows(name, entry.name, settings.qp, (first, second, third), form, decisions, Path())
    return ClosedLoop(tuple(rows), min(plain_psnr, looped_psnr))


def _code_closed_loop(
    video: Video,
    settings: CodecSettings,
    decide: Callable[[Picture, Picture, CodedPicture], Filtered],
    parameters: LoopParameters | None,
    progress: Callable[[], None],
) -> tuple[list[LoopPicture], list[Picture], float]:
    """Code with `decide` in the loop; returns picture records, inputs of the filter, and the PSNR of the references."""
    pictures: list[LoopPicture] = []
    inputs: list[Picture] = []

    def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
        filtered = decide(video[coded.poc], decoded, coded)
        pictures.append(_loop_picture(coded, video[coded.poc], filtered, parameters))
        inputs.append(decoded)
        progress()
        return filtered.picture

    _, reference_psnr = code_closed_loop(video, video.format, settings, filter_)
    return pictures, inputs, reference_psnr
