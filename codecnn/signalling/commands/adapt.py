"""The command that adapts a network to a stream."""

from pathlib import Path
from typing import Annotated, Any

import typer

from codecnn.cli.application import EXAMPLES, RESUMABLE, app
from codecnn.cli.console import err, print_facts, progress
from codecnn.cli.options import Device, Exact, Frames, Json, Model, limit_threads, parse_bytes

EXAMPLES["adapt"] = "codecnn adapt -m low_cost_yuv_17.vvc_video --original clip.y4m --stream clip.266 -o update.json"
RESUMABLE.append("adapt")

NOTHING_PAYS = 3
"""Exit status if no update pays."""


@app.command("adapt")
def adapt_command(
    model: Model,
    original: Annotated[Path, typer.Option("--original", help="Original pictures of the stream (YUV, Y4M, video).")],
    stream: Annotated[Path, typer.Option("--stream", help="Stream of VVC or HEVC, also in MP4, MKV or TS.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File with the update to write, e.g. update.json.")],
    components: Annotated[
        str | None,
        typer.Option(
            "--components",
            help="Components that the update may change and that count, e.g. y or y,u,v (default: all of the network). "
            "With y an update is written only if luma alone pays for it.",
        ),
    ] = None,
    frames: Frames = None,
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat/--no-repeat",
            help="Count the bits of an update that is repeated at every picture at which decoding can start, or only "
            "at the first of each coded video sequence, as nnpf write with the same option writes it.",
        ),
    ] = True,
    exact: Exact = None,
    onnx: Annotated[
        str | None,
        typer.Option(
            "--onnx",
            metavar="URI",
            help="Adapt float weights for decoders that read an ONNX file (codecnn export --format nnpfc --adaptable), "
            "as nnpf write with the same option names it; needs nncodec.",
        ),
    ] = None,
    qp: Annotated[
        int | None,
        typer.Option("-q", "--qp", help="QP for all pictures instead of the slice QPs, as that of the ONNX file."),
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="Memory limit for the tensors of the network.")] = "2GiB",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Adapt a network to one sequence: a small change of its last layer, which the stream can carry.

    The change is chosen by least squares in one pass over the pictures and tried in a second one. It is written only if
    it pays: if the mean PSNR (Y, U and V 6:1:1) that it gains is worth more than all bits of its message. Otherwise the
    command says so, removes the update that an earlier run wrote to the same file, and ends with status 3. If it is
    interrupted, run it again to continue.

    Use the update with codecnn filter --update, or put it into the stream with codecnn nnpf write --adapt.
    """
    from codecnn.signalling import adapt

    limit_threads(device)
    with progress("adapting", "picture") as report:
        result = adapt(
            model,
            original,
            stream,
            output,
            components=None if components is None else [name.strip() for name in components.split(",")],
            frames=frames,
            every_irap=repeat,
            exact=exact,
            onnx_uri=onnx,
            qp=qp,
            device=device,
            memory=parse_bytes(memory),
            progress=report,
        )
    facts: dict[str, Any] = {
        "output": None if result.output is None else str(result.output),
        "pictures": result.pictures,
        "changed values": result.changed,
        "bits": result.bits,
        "gain": result.gain_db if as_json else ", ".join(f"{n.upper()} {g:+.4f} dB" for n, g in result.gain_db.items()),
        "rate at equal PSNR": result.rate_change if as_json else f"{result.rate_change:+.3%} (estimate)",
    }
    print_facts(facts, as_json)
    if result.output is None:
        err.print(
            f"codecnn: no update of this network pays for {stream}: {output} is not written, use the network as it is",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(NOTHING_PAYS)
