"""Results: from coded streams to rows, BD-rates against the same encoder without the filter, and the files of both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from codecnn.errors import ConfigError, TableError
from codecnn.evaluation.in_loop._coding import LoopStream
from codecnn.evaluation.write import write_csv
from codecnn.filtering import Decisions
from codecnn.filtering.decisions import chroma_weight, rd_lambda
from codecnn.quality import MIN_POINTS, bd_rate, mean_psnr
from codecnn.runs import write_json, write_text
from codecnn.video import VideoFormat

CHAINS = ("without", "post_filter", "in_loop", "in_loop_throughout")
"""The encoder without the filter; the filter behind its pictures; in its loop; in its loop in every sequence.

With decisions a sequence whose RD cost is not lower with the filter in the loop is coded without: "in_loop" is then
what is "without". "in_loop_throughout" is the stream with the filter all the same, so that this can be seen.
"""

LABEL = "in-loop (low delay: every picture is predicted from filtered ones)"
PLANES = ("y", "u", "v")
Rates = dict[str, float | None]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class LoopRow(_Record):
    """A sequence at a QP through one chain. PSNRs: mean over pictures, dB; `bits` of the stream's file.

    `used` says whether the filter is; `folder` holds the stream and its pictures. PSNR is None where there is no plane,
    or no error in some picture. `seconds_per_picture` are the filter's, by the clock, `encoder_seconds_per_picture` the
    encoder's, of the processor.
    """

    name: str
    model: str
    qp: int
    chain: str
    pictures: int
    bits: int
    flag_bits: float
    psnr_y: float | None = None
    psnr_u: float | None = None
    psnr_v: float | None = None
    used: bool
    pictures_off: int
    seconds_per_picture: float
    encoder_seconds_per_picture: float | None = None
    folder: str


class LoopModel(_Record):
    """A filter that took part: its weights, what it costs, and where it ran."""

    weights_sha256: str | None
    kmac_per_pixel: float | None
    parameters: int | None
    device: str


class LoopResults(_Record):
    """What in_loop.json says: rows, and BD-rates in % over "without" by model and chain, in the mean and by sequence.

    A mean is None where a sequence has none, and `notes` says why.
    """

    schema_version: int = 1
    label: str = LABEL
    decisions: str
    settings: dict[str, Any]
    library: str
    psnr_peak: str = "jvet"
    models: dict[str, LoopModel] = {}
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
) -> list[LoopRow]:
    """The rows of CHAINS from the streams without, with the filter behind, and with the filter in the loop."""
    plain, behind, looped = streams
    depth = form.bit_depth
    pays = decisions == "none" or rd_cost(looped, form) < rd_cost(plain, form)
    off = all(picture.mode == "off" for picture in behind.pictures)
    rows = []
    for chain, stream, used in (
        ("without", plain, False),
        ("post_filter", behind, not off),
        ("in_loop", looped if pays else plain, pays),
        ("in_loop_throughout", looped, True),
    ):
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
                flag_bits=sum(picture.flag_bits for picture in stream.pictures),
                used=used,
                pictures_off=sum(picture.mode == "off" for picture in stream.pictures),
                seconds_per_picture=float(np.median([picture.seconds for picture in stream.pictures])),
                encoder_seconds_per_picture=None if seconds is None else seconds / len(stream.pictures),
                folder=stream.folder.relative_to(output).as_posix(),
                **psnrs,
            )
        )
    return rows


def rd_cost(stream: LoopStream, form: VideoFormat) -> float:
    """D + λ·R of a stream, sample²: all planes' squared errors, chroma weighted, and all bits, λ by each slice QP."""
    samples = [height * width for height, width in form.plane_shapes]
    cost = 0.0
    for picture in stream.pictures:
        weights = (1.0, *[chroma_weight(picture.qp)] * (len(samples) - 1))
        cost += sum(a * b * c for a, b, c in zip(weights, samples, picture.mse, strict=True))
        cost += rd_lambda(picture.qp, form.bit_depth) * (picture.bits + picture.flag_bits)
    return cost


def rates_of(rows: Sequence[LoopRow], chain: str, notes: list[str]) -> Rates:
    """BD-rates of one sequence and model by plane, %, of `chain` over "without"; None, and a note, without one."""
    rates: Rates = dict.fromkeys(PLANES)
    if (count := len({row.qp for row in rows})) < MIN_POINTS:
        notes.append(f"no BD-rate for {rows[0].name}: it takes {MIN_POINTS} QPs, not {count}")
        return rates
    for plane in PLANES:
        anchor, test = (
            [(row.bits + row.flag_bits, getattr(row, f"psnr_{plane}")) for row in rows if row.chain == wanted]
            for wanted in ("without", chain)
        )
        if any(value is None for _, value in anchor + test):
            continue
        try:
            rates[plane] = bd_rate(anchor, test)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {plane.upper()} of {chain} for {rows[0].name}: {error}")
    return rates


def mean_rates(listed: Sequence[Rates]) -> Rates:
    """Mean by plane; None unless every sequence has one."""
    means: Rates = {}
    for plane in PLANES:
        known = [rate for rates in listed if (rate := rates[plane]) is not None]
        means[plane] = float(np.mean(known)) if known and len(known) == len(listed) else None
    return means


def write_loop(output: Path, results: LoopResults) -> None:
    """Write in_loop.csv, in_loop.md and, last, in_loop.json, which is there when all is."""
    write_csv(output / "in_loop.csv", [row.model_dump() for row in results.rows])
    write_text(output / "in_loop.md", markdown(results))
    write_json(output / "in_loop.json", results.model_dump())


def markdown(results: LoopResults) -> str:
    """Tables of BD-rates by model: a row a sequence and one for the mean, Y, U and V of each chain."""
    titles = {chain: chain.replace("_", " ").replace("in loop", "in the loop") for chain in CHAINS}
    lines = [f"# {results.label}", "", f"{results.library}, preset {results.settings['preset']}, LDB, "]
    lines[-1] += (
        f"decisions {results.decisions}. BD-rate in % over the same encoder without the filter, negative saves bits."
    )
    for model, means in results.bd_rate.items():
        head = ["", *(f"{titles[chain]} {plane.upper()}" for chain in means for plane in PLANES)]
        lines += ["", f"## {model}", "", *_cost(results, model)]
        lines += [f"| {' | '.join(head)} |", f"|---{'|---:' * (len(head) - 1)}|"]
        for name, chains in [*results.bd_rate_per_sequence[model].items(), ("mean", means)]:
            cells = [_signed(chains[chain][plane]) for chain in means for plane in PLANES]
            lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join([*lines, *(f"\n- {note}" for note in results.notes)]) + "\n"


def _cost(results: LoopResults, model: str) -> list[str]:
    """What the filter costs, as far as it is known, and a line between that and the table."""
    told = results.models.get(model)
    if told is None or told.kmac_per_pixel is None:
        return []
    of_chain = [row for row in results.rows if (row.model, row.chain) == (model, "in_loop_throughout")]
    known = [row.encoder_seconds_per_picture for row in of_chain if row.encoder_seconds_per_picture is not None]
    times = f"{np.mean([row.seconds_per_picture for row in of_chain]):.3f} s a picture on {told.device}"
    coded = f"; the encoder {np.mean(known):.3f} s of the processor" if known else ""
    return [f"{told.kmac_per_pixel:.1f} kMAC/pixel, {told.parameters:,} parameters, {times}{coded}.", ""]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _psnr(values: Sequence[float], bit_depth: int) -> float | None:
    return mean_psnr(values, bit_depth) if all(values) else None
