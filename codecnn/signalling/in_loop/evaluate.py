"""Evaluation of filters in the coding loop: every video is coded without and with each filter."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError
from codecnn.base.files import provenance
from codecnn.codec import CodecSettings, coded_format
from codecnn.evaluation import Entry, mean_rates, timing_of, untrained_loop
from codecnn.filtering import Decisions
from codecnn.pictures.files import Video
from codecnn.signalling.in_loop.coding import CTU_SIZE, PLACES, Coder, hashed
from codecnn.signalling.in_loop.results import CHAINS, LoopModel, LoopResults, LoopRow, make_rows, rates_of, write_loop
from codecnn.signalling.in_loop.vvenc_library import VvencLibrary


def evaluate_in_loop(
    entries: Sequence[Entry],
    videos: Mapping[str, Video],
    qps: Sequence[int],
    library: VvencLibrary,
    output: Path,
    *,
    preset: str = "medium",
    decisions: Decisions = "ctu",
    choose: bool = False,
    picture_hashes: bool = False,
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
        choose: Also code with only the pictures of `PLACES` filtered in the loop and the others behind it, and choose
            for each sequence and QP the place of least RD cost: the chain "chosen".
        picture_hashes: Add MD5s of the pictures to streams with a filter, with which a decoder compares its own.
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
    done, total = 0, sum(map(len, videos.values())) * len(qps) * (1 + (4 if choose else 2) * len(entries))

    def step(pictures: int = 1) -> None:
        nonlocal done
        done = min(done + pictures, total)
        if progress is not None:
            progress(done, total)

    coder = Coder(library, output / "coded", decisions, picture_hashes, step)
    rows: list[LoopRow] = []
    timings: dict[str, list[tuple[str, int | None]]] = {entry.name: [] for entry in entries}
    for name, video in videos.items():
        sequence = hashed(name, video)
        for qp in qps:
            settings = CodecSettings(qp=qp, preset=preset, configuration="ldb", ctu_size=CTU_SIZE)
            plain = coder.plain(sequence, settings)
            for entry in entries:
                post_filtered, looped = coder.looped(sequence, settings, entry, plain)
                timings[entry.name].append((looped.device, looped.threads))
                streams = plain, post_filtered, looped
                placed = [coder.placed(sequence, settings, entry, place) for place in PLACES] if choose else []
                form = coded_format(video.format, settings)
                rows += make_rows(name, entry.name, qp, streams, form, decisions, output, placed)
    notes = [f"{entry.name}: {note}" for entry in entries for note in untrained_loop(entry.card)]
    notes += [f"{name}: {note}" for name, pairs in timings.items() for note in timing_of(pairs)[2]]
    chains = [chain for chain in CHAINS if chain != "without" and (chain != "chosen" or choose)]
    per_sequence = {
        entry.name: {
            name: {
                chain: rates_of([row for row in rows if (row.name, row.model) == (name, entry.name)], chain, notes)
                for chain in chains
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
            model: {chain: mean_rates([rates[chain] for rates in by_name.values()]) for chain in chains}
            for model, by_name in per_sequence.items()
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
