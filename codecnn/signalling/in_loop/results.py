"""Results of an evaluation in the loop: records of coded streams, rows, BD-rates and the files that hold them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from codecnn.base.errors import ConfigError, TableError
from codecnn.base.files import write_csv, write_json, write_text
from codecnn.evaluation import PLANES, UNKNOWN_DEVICE, Rates
from codecnn.filtering import Decisions
from codecnn.filtering.decisions import chroma_weight, rd_lambda
from codecnn.pictures.files import VideoFormat
from codecnn.pictures.metrics import MIN_POINTS, bd_rate, mean_psnr

CHAINS = {
    "without": "without the filter",
    "post_filter": "post-filter, with messages",
    "in_loop": "in the loop, with messages",
    "in_loop_stream_alone": "in the loop, stream alone",
    "in_loop_throughout": "in the loop throughout, with messages",
    "chosen": "chosen, with messages",
}
"""Chains by name, with the heads of their columns.

The bits "with messages" are those of the whole stream except picture hashes; those of the "stream alone" leave out
parameters and decisions of the filter too, without which a decoder cannot decode it.

"chosen" is the stream of least RD cost for each sequence and QP: without the filter, behind the loop, in the loop, or
with some pictures in the loop and the others behind it.

With decisions, a sequence whose RD cost the filter in the loop does not lower is coded without it: its "in_loop" row is
then a copy of "without". "in_loop_throughout" always shows the stream with the filter in the loop.
"""

COUNTED = (
    "With messages: all bits of the stream except picture hashes; stream alone: without parameters and decisions of "
    "the filter."
)
"""Meaning of the columns."""

LABEL = "in-loop (low delay: every picture is predicted from filtered pictures)"
"""Description of the gains."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class LoopPicture(_Record):
    """One picture of a coded stream.

    Attributes:
        poc: Picture order count.
        slice_type: "I", "P" or "B".
        qp: Slice QP.
        bits: Bits of the picture as logged by the encoder.
        mse: Mean squared error of each plane of the output picture, in sample units squared.
        mode: "off", "on" or "ctu"; None without decisions.
        seconds: Time of one pass of the filter in seconds.
        message_bits: Bits that parameters and decision of the filter add to the access unit.
        hash_bits: Bits that hashes of the picture add to the access unit.
    """

    poc: int
    slice_type: str
    qp: int
    bits: int
    mse: tuple[float, ...]
    mode: str | None = None
    seconds: float = 0.0
    message_bits: int = 0
    hash_bits: int = 0


@dataclass(frozen=True)
class LoopStream:
    """One sequence coded at one QP in one chain.

    Attributes:
        pictures: The pictures in output order.
        stream_bits: Size of the bitstream file in bits, without messages and hashes.
        folder: Folder of the stream.
        encoder_seconds: CPU time of the encoder in seconds; None if unknown.
        device: Device on which the filter was timed.
        threads: Number of CPU threads of PyTorch during the timing; None if unknown.
        stream: The bitstream file; None if there is none.
    """

    pictures: tuple[LoopPicture, ...]
    stream_bits: int
    folder: Path
    encoder_seconds: float | None = None
    device: str = UNKNOWN_DEVICE
    threads: int | None = None
    stream: Path | None = None


class LoopRow(_Record):
    """One sequence at one QP through one chain.

    Attributes:
        name: Name of the sequence.
        model: Name of the filter.
        qp: QP of the encoder.
        chain: Name from `CHAINS`.
        pictures: Number of pictures.
        bits: Size of the bitstream file in bits, without messages and hashes.
        message_bits: Bits that parameters and decisions of the filter add; 0 in the chain "in_loop_stream_alone".
        hash_bits: Bits that hashes of the pictures add, which no chain counts.
        psnr_y: Mean over pictures of the luma PSNR in dB; None if a picture has no error.
        psnr_u: The same for U; not set if there is no such plane.
        psnr_v: The same for V.
        used: Whether the filter is applied.
        pictures_off: Number of pictures that are not filtered.
        seconds_per_picture: Wall-clock time of the filter.
        encoder_seconds_per_picture: CPU time of the encoder; None if it was not recorded.
        folder: Folder with the stream and its pictures, relative to that of the results.
        stream: The bitstream file, relative to the folder of the results; None if there is none.
    """

    name: str
    model: str
    qp: int
    chain: str
    pictures: int
    bits: int
    message_bits: int = 0
    hash_bits: int = 0
    psnr_y: float | None = None
    psnr_u: float | None = None
    psnr_v: float | None = None
    used: bool
    pictures_off: int
    seconds_per_picture: float
    encoder_seconds_per_picture: float | None = None
    folder: str
    stream: str | None = None

    @property
    def psnr(self) -> dict[str, float | None]:
        """PSNRs by plane, without planes that do not exist."""
        psnrs = {"y": self.psnr_y, "u": self.psnr_u, "v": self.psnr_v}
        return {plane: value for plane, value in psnrs.items() if f"psnr_{plane}" in self.model_fields_set}


class LoopModel(_Record):
    """A filter of the evaluation: its weights, its complexity, and where it was timed.

    Attributes:
        weights_sha256: SHA-256 of the weights.
        kmac_per_pixel: Complexity.
        parameters: Number of parameters.
        device: Device of the timing; "mixed" if the streams were timed on several, "unknown" if unrecorded.
        threads: Number of CPU threads of the timing; None if it differs between streams or is unrecorded.
    """

    weights_sha256: str | None
    kmac_per_pixel: float | None
    parameters: int | None
    device: str
    threads: int | None = None


class LoopResults(_Record):
    """Content of in_loop.json.

    BD-rates are in % against the chain "without", by filter and chain: the mean (`bd_rate`) and each sequence
    (`bd_rate_per_sequence`). A mean is None if a sequence has no BD-rate; `notes` states the reason.
    """

    schema_version: Literal[2] = 2
    label: str = LABEL
    decisions: str
    settings: dict[str, Any]
    library: str
    psnr_peak: str = "jvet"
    models: dict[str, LoopModel]
    rows: tuple[LoopRow, ...]
    bd_rate: dict[str, dict[str, Rates]]
    bd_rate_per_sequence: dict[str, dict[str, dict[str, Rates]]]
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = {}


def make_rows(
    name: str,
    model: str,
    qp: int,
    streams: tuple[LoopStream, LoopStream, LoopStream],
    form: VideoFormat,
    decisions: Decisions,
    output: Path,
    placed: Sequence[LoopStream] = (),
) -> list[LoopRow]:
    """Build the rows of all chains for one sequence, filter and QP.

    Args:
        name: Name of the sequence.
        model: Name of the filter.
        qp: QP of the encoder.
        streams: The stream without the filter, the same filtered behind the decoder, and the stream with the filter in
            the loop.
        form: Format of the coded pictures.
        decisions: "none", "ctu" or "full".
        output: Folder of the results.
        placed: Streams with some pictures filtered in the loop and the others behind it.

    Returns:
        One row for each of `CHAINS`, without "chosen" if there are no `placed` streams.
    """
    plain, post_filtered, looped = streams
    depth = form.bit_depth
    pays = decisions == "none" or rd_cost(looped, form) < rd_cost(plain, form)
    off = all(picture.mode == "off" for picture in post_filtered.pictures)
    chosen = looped if pays else plain
    chains = [("without", plain, False), ("post_filter", post_filtered, not off)]
    chains += [("in_loop", chosen, pays), ("in_loop_stream_alone", chosen, pays), ("in_loop_throughout", looped, True)]
    if placed:
        best = min((plain, post_filtered, looped, *placed), key=lambda stream: rd_cost(stream, form))
        chains.append(("chosen", best, best is not plain and not (best is post_filtered and off)))
    rows = []
    for chain, stream, used in chains:
        message_bits = sum(picture.message_bits for picture in stream.pictures)
        planes = zip(*(picture.mse for picture in stream.pictures), strict=True)
        seconds = stream.encoder_seconds
        psnrs = {f"psnr_{plane}": _psnr(values, depth) for plane, values in zip(PLANES, planes, strict=False)}
        rows.append(
            LoopRow(
                name=name,
                model=model,
                qp=qp,
                chain=chain,
                pictures=len(stream.pictures),
                bits=stream.stream_bits,
                message_bits=0 if chain == "in_loop_stream_alone" else message_bits,
                hash_bits=sum(picture.hash_bits for picture in stream.pictures),
                used=used,
                pictures_off=sum(picture.mode == "off" for picture in stream.pictures),
                seconds_per_picture=float(np.median([picture.seconds for picture in stream.pictures])),
                encoder_seconds_per_picture=None if seconds is None else seconds / len(stream.pictures),
                folder=stream.folder.relative_to(output).as_posix(),
                stream=None if stream.stream is None else stream.stream.relative_to(output).as_posix(),
                **psnrs,
            )
        )
    return rows


def rd_cost(stream: LoopStream, form: VideoFormat) -> float:
    """Compute the rate-distortion cost D + lambda * R of a stream.

    Args:
        stream: The stream.
        form: Format of the coded pictures.

    Returns:
        Cost in sample units squared: squared errors of all planes, chroma weighted, and all bits but those of hashes,
        with the lambda of each slice QP.
    """
    samples = [height * width for height, width in form.plane_shapes]
    cost = 0.0
    for picture in stream.pictures:
        weights = (1.0, *[chroma_weight(picture.qp)] * (len(samples) - 1))
        cost += sum(a * b * c for a, b, c in zip(weights, samples, picture.mse, strict=True))
        cost += rd_lambda(picture.qp, form.bit_depth) * (picture.bits + picture.message_bits)
    return cost


def rates_of(rows: Sequence[LoopRow], chain: str, notes: list[str]) -> Rates:
    """Compute the BD-rates of one sequence and filter, of a chain against "without".

    Args:
        rows: Rows of the sequence and filter, of all chains and QPs.
        chain: Name from `CHAINS`.
        notes: List that receives a sentence for each BD-rate that cannot be computed.

    Returns:
        BD-rate in % by plane; None if it cannot be computed.
    """
    rates: Rates = dict.fromkeys(PLANES)
    if (count := len({row.qp for row in rows})) < MIN_POINTS:
        notes.append(f"no BD-rate for {rows[0].name}: it needs {MIN_POINTS} QPs, not {count}")
        return rates
    compared = [row for row in rows if row.chain in ("without", chain)]
    for plane in PLANES:
        points = [
            (row.chain, (row.bits + row.message_bits, value))
            for row in compared
            if (value := row.psnr.get(plane)) is not None
        ]
        if len(points) < len(compared):
            if qps := sorted({row.qp for row in compared if plane in row.psnr and row.psnr[plane] is None}):
                listed = ", ".join(map(str, qps))
                notes.append(
                    f"no BD-rate {plane.upper()} of {chain} for {rows[0].name}: a picture has no error in "
                    f"{plane.upper()} at QP {listed}"
                )
            continue
        anchor, test = ([point for name, point in points if name == each] for each in ("without", chain))
        try:
            rates[plane] = bd_rate(anchor, test)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {plane.upper()} of {chain} for {rows[0].name}: {error}")
    return rates


LOOP_FILES = ("in_loop.csv", "in_loop.md", "in_loop.json", "coded")
"""Files and the folder that an evaluation in the loop writes into its folder."""


def write_loop(output: Path, results: LoopResults) -> None:
    """Write in_loop.csv, in_loop.md and, last, in_loop.json; if the latter exists, all files are complete."""
    write_csv(output / "in_loop.csv", [row.model_dump() for row in results.rows])
    write_text(output / "in_loop.md", _markdown(results))
    write_json(output / "in_loop.json", results.model_dump())


def _markdown(results: LoopResults) -> str:
    """Format the BD-rates of each filter as a table: a row a sequence and their mean, columns Y, U and V a chain."""
    lines = [f"# {results.label}", "", f"{results.library}, preset {results.settings['preset']}, LDB, "]
    lines[-1] += (
        f"decisions {results.decisions}. BD-rate in % against the same encoder without the filter; "
        "negative values save bits. " + COUNTED
    )
    for model, means in results.bd_rate.items():
        head = ["", *(f"{CHAINS[chain]} {plane.upper()}" for chain in means for plane in PLANES)]
        lines += ["", f"## {model}", "", *_cost(results, model)]
        lines += [f"| {' | '.join(head)} |", f"|---{'|---:' * (len(head) - 1)}|"]
        for name, chains in [*results.bd_rate_per_sequence[model].items(), ("mean", means)]:
            cells = [_signed(chains[chain][plane]) for chain in means for plane in PLANES]
            lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join([*lines, *(f"\n- {note}" for note in results.notes)]) + "\n"


def _cost(results: LoopResults, model: str) -> list[str]:
    """Format complexity and times of a filter as a line, followed by an empty line; nothing if they are unknown."""
    facts = results.models.get(model)
    if facts is None or facts.kmac_per_pixel is None:
        return []
    rows = [row for row in results.rows if (row.model, row.chain) == (model, "in_loop_throughout")]
    known = [row.encoder_seconds_per_picture for row in rows if row.encoder_seconds_per_picture is not None]
    times = f"filter {np.mean([row.seconds_per_picture for row in rows]):.3f} s a picture on {facts.device}"
    encoder = f"; encoder {np.mean(known):.3f} s of CPU time a picture" if known else ""
    messages = sum(row.message_bits for row in rows) / 8 / sum(row.pictures for row in rows)
    return [
        f"{facts.kmac_per_pixel:.1f} kMAC/pixel, {facts.parameters:,} parameters, {times}{encoder}. Messages take "
        f"{messages:.1f} bytes a picture.",
        "",
    ]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _psnr(values: Sequence[float], bit_depth: int) -> float | None:
    return mean_psnr(values, bit_depth) if all(values) else None
