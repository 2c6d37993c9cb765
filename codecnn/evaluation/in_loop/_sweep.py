"""The sweep: every sequence at every QP, without a filter and with each one in the loop."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from codecnn.codec import CodecSettings, VvencLibrary, coded_format
from codecnn.errors import ConfigError
from codecnn.evaluation.in_loop._coding import Coder, as_sequence
from codecnn.evaluation.in_loop._results import (
    CHAINS,
    LoopModel,
    LoopResults,
    LoopRow,
    make_rows,
    mean_rates,
    rates_of,
    write_loop,
)
from codecnn.evaluation.measure import Entry
from codecnn.evaluation.unfit import untrained_loop
from codecnn.filtering import Decisions
from codecnn.runs import provenance
from codecnn.video import Video

CTU_SIZE = 128
"""Side of a CTU of the encoder and of the decisions, as where evaluation codes all intra."""


def evaluate_in_loop(
    entries: Sequence[Entry],
    videos: Mapping[str, Video],
    qps: Sequence[int],
    library: VvencLibrary,
    output: Path,
    *,
    preset: str = "medium",
    decisions: Decisions = "ctu",
    progress: Callable[[int, int], None] | None = None,
) -> LoopResults:
    """Code each of `videos` in low delay at `qps` without a filter, and with each of `entries` in the loop.

    `output` gets in_loop.json, in_loop.csv and in_loop.md; below coded/ a folder a stream: the stream, the pictures it
    shows, what was decided, the encoder's log, and a card that says what it takes to decode it. A folder is there whole
    or not at all, and what is there is not coded again.

    Raises ConfigError for too few pictures, and what coding and filtering raise.
    """
    for name, video in videos.items():
        if len(video) < 2:
            raise ConfigError(f"{name} has one picture: there is no loop without a second one")
    done, total = 0, sum(map(len, videos.values())) * len(qps) * (1 + 2 * len(entries))

    def step(pictures: int = 1) -> None:
        nonlocal done
        done = min(done + pictures, total)
        if progress is not None:
            progress(done, total)

    coder = Coder(library, output / "coded", decisions, step)
    rows: list[LoopRow] = []
    settings = CodecSettings(qp=0, preset=preset, configuration="ldb", ctu_size=CTU_SIZE)
    for name, video in videos.items():
        sequence = as_sequence(name, video)
        for qp in qps:
            settings = CodecSettings(qp=qp, preset=preset, configuration="ldb", ctu_size=CTU_SIZE)
            plain = coder.plain(sequence, settings)
            for entry in entries:
                streams = (plain, *coder.looped(sequence, settings, entry, plain))
                form = coded_format(video.format, settings)
                rows += make_rows(name, entry.name, qp, streams, form, decisions, output)
    notes = [f"{entry.name}: {note}" for entry in entries for note in untrained_loop(entry.card)]
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
        models={entry.name: _model(entry) for entry in entries},
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


def _model(entry: Entry) -> LoopModel:
    card = entry.card
    return LoopModel(
        weights_sha256=card.sha256,
        kmac_per_pixel=card.kmac_per_pixel,
        parameters=card.parameters,
        device=entry.device,
    )
