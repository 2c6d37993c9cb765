"""The command that filters decoded pictures."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from codecnn.base.errors import ConfigError
from codecnn.base.outputs import check_outputs
from codecnn.cli.application import app
from codecnn.cli.console import err, print_facts, print_json, progress
from codecnn.cli.options import (
    BitDepth,
    Chroma,
    Device,
    Exact,
    Frames,
    Json,
    OptionalModel,
    Packing,
    Precision,
    Rate,
    Size,
    Tile,
    Trust,
    limit_threads,
    parse_bytes,
    parse_qps,
    read_qps,
)


@app.command("filter")
def filter_command(
    source: Annotated[
        Path,
        typer.Option(
            "-i",
            "--input",
            help="Decoded pictures (YUV, Y4M), or a stream of VVC, HEVC, AVC or AV1, also in MP4, MKV or TS; "
            "- is Y4M from a pipe.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Filtered pictures to write: .yuv, or .y4m, e.g. filtered.y4m; - writes Y4M to a pipe.",
        ),
    ],
    model: OptionalModel = None,
    qp: Annotated[
        str | None,
        typer.Option(
            "-q",
            "--qp",
            help="Slice QP of all pictures, e.g. 37; a comma list or a file with one QP per picture "
            "(default: from the stream).",
        ),
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    packing: Packing = None,
    plane: Annotated[
        list[str] | None,
        typer.Option(
            "--plane",
            metavar="NAME=FILE",
            help="File of an auxiliary plane, e.g. unf_y=unfiltered.yuv; may be repeated (default: from a VVC stream).",
        ),
    ] = None,
    blocks: Annotated[
        Path | None,
        typer.Option(
            "--blocks", help="CU table for networks that take depth, modes or cu_qp (default: from a VVC stream)."
        ),
    ] = None,
    slice_type: Annotated[
        Literal["I", "P", "B"] | None,
        typer.Option("--slice-type", help="Slice type of all pictures, for networks that take it (default: stream)."),
    ] = None,
    original: Annotated[
        Path | None, typer.Option("--original", help="Original pictures; enables decisions by rate-distortion cost.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option("--decisions", help="Write the decisions as block statistics, e.g. d.vtmbmsstats.")
    ] = None,
    offsets: Annotated[
        str, typer.Option("--qp-offsets", help="QP offsets that the decisions try besides 0, e.g. -5,5.")
    ] = "0",
    ctu: Annotated[int, typer.Option("--ctu", help="CTU size of the decisions in luma samples.")] = 128,
    memory: Annotated[str, typer.Option("--memory", help="Memory limit for the tensors of the network.")] = "2GiB",
    tile: Tile = None,
    device: Device = "auto",
    update: Annotated[
        Path | None, typer.Option("--update", help="Update of the weights for this sequence, from codecnn adapt.")
    ] = None,
    exact: Exact = None,
    precision: Precision = "float32",
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Filter decoded pictures; the output has the format of the input, with the pictures in output order.

    Without -m, a stream of VVC or HEVC is filtered with the network that its post-filter messages carry (codecnn nnpf),
    for the pictures for which they activate it. The network must be embedded, or come with codecnn.

    With --original, each picture is filtered as an encoder would choose: off, on or by CTU, with the best residual
    scale.
    """
    from codecnn import api as verbs
    from codecnn.pictures.files import STANDARD_STREAM

    to_pipe = str(output) == STANDARD_STREAM
    if to_pipe and as_json:
        raise ConfigError("standard output (-o -) holds the pictures: leave out --json, or name a file")
    check_outputs([output, decisions], [qp])  # which can name a file
    limit_threads(device)
    with progress("filtering", "picture") as report:
        result = verbs.filter_file(
            source,
            model,
            output,
            qp=None if qp is None else read_qps(qp),
            planes=dict(_name_and_file(item) for item in plane or ()),
            blocks=blocks,
            slice_type=slice_type,
            original=original,
            decisions_file=decisions,
            qp_offsets=parse_qps(offsets),
            ctu_size=ctu,
            update=update,
            exact=exact,
            precision=precision,
            device=device,
            tile=tile or "auto",
            memory=parse_bytes(memory),
            progress=report,
            size=size,
            bit_depth=bit_depth,
            chroma=chroma,
            fps=rate,
            frames=frames,
            packing=packing,
        )
    for note in result.notes:
        err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        facts: dict[str, Any] = {"output": str(output), "pictures": result.pictures}
        facts |= {} if result.runtime is None else {"runtime": result.runtime.as_json()}
        print_json(facts if result.decisions is None else facts | {"decisions": result.decisions})
    elif result.decisions is not None and not to_pipe:
        print_facts(_summary(result.decisions), as_json)


def _name_and_file(item: str) -> tuple[str, Path]:
    name, equals, file = item.partition("=")
    if not equals:
        raise ConfigError(f"--plane {item!r} is not NAME=FILE, e.g. unf_y=unfiltered.yuv")
    return name, Path(file)


def _summary(counts: dict[str, Any]) -> dict[str, Any]:
    """Format the counts of the decisions as facts for the terminal."""
    pictures = counts["pictures"]
    change = counts["rd_cost_after"] / counts["rd_cost_before"] - 1 if counts["rd_cost_before"] else 0.0
    psnrs = {
        f"PSNR {name.upper()}": f"{before:.2f} to {after:.2f} dB ({after - before:+.3f})"
        for name, before in counts["psnr_before"].items()
        if before is not None and (after := counts["psnr_after"][name]) is not None
    }
    return {
        "pictures": f"{pictures['off']} off, {pictures['on']} on, {pictures['ctu']} by CTU",
        "CTUs on": ", ".join(f"{name.upper()} {share:.1%}" for name, share in counts["ctus_on"].items()),
        "QP offsets": ", ".join(f"{offset}: {count}" for offset, count in counts["qp_offsets"].items()) or "none",
        "bits": f"{counts['bits']:.0f}",
        **psnrs,
        "RD cost": f"{change:+.3%}",
        "lowers the RD cost": "yes" if counts["pays"] else "no: an encoder would disable the filter for this sequence",
    }
