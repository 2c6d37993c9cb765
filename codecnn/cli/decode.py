"""The command that decodes VVC streams."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from codecnn.base.errors import ConfigError, FormatError, MissingFileError
from codecnn.base.outputs import check_outputs
from codecnn.cli.application import app
from codecnn.cli.console import err, out, print_facts, print_json, progress
from codecnn.cli.options import Device, Frames, Json


@app.command()
def decode(
    stream: Annotated[Path, typer.Argument(help="VVC stream, also in MP4, MKV or TS.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Decoded pictures to write: .y4m or .yuv; - writes Y4M to a pipe; a folder for --planes.",
        ),
    ] = None,
    planes: Annotated[
        str | None,
        typer.Option(
            "--planes", metavar="NAMES", help="Write these planes instead of the decoded pictures, e.g. unf_y,mv_l0."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print for each picture whether it equals its hash in the stream.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            help="Weights of the CNN filter in the loop of the stream (default: those of codecnn with the stream's "
            "SHA-256).",
        ),
    ] = None,
    device: Device = "auto",
    frames: Frames = None,
    as_json: Json = False,
) -> None:
    """Decode a VVC stream in output order, and prove each picture by its hash in the stream.

    A picture that differs from its hash ends the command with status 1. --check decodes the others, too, and prints a
    line for each picture: POC, slice type, QP, and ok, differs or none (the stream has no hash).

    A stream that `codecnn evaluate --in-loop` coded is decoded with the CNN filter in the loop, in integers.

    --planes writes what no other decoder gives, of all pictures: pred (prediction), resid (residual), unf (before the
    in-loop filters), dbf (after deblocking), sao (after SAO), rec (decoded), each with _y, _u or _v or without for all
    components; bs_v and bs_h (boundary strengths); mv_l0, mv_l1, ref_idx_l0, ref_idx_l1 and motion_model (vectors in
    1/16 luma sample, POC of the reference picture and model of each 4x4 block). One kind of pictures can be written to
    a .y4m file, other planes go to a folder: a raw file of grey pictures for each plane, e.g.
    unf_y_416x240_10bit_400.yuv (residuals with an offset of 32768 in 16 bits), and motion_00000.npz and so on for
    motion, one for each picture.

    The first run on a machine compiles code for two to four minutes.
    """
    from codecnn.codec import CheckedPicture, decode_file, has_loop_filter, summary_of, unproven
    from codecnn.pictures.files import STANDARD_STREAM

    if not stream.exists():
        raise MissingFileError(f"{stream} does not exist")
    if output is None and not check:
        raise typer.BadParameter("give -o FILE to write the pictures, or --check to compare them with their hashes")
    if planes is not None and output is None:
        raise typer.BadParameter("--planes needs -o: a folder, or a .y4m or .yuv file for pictures of one kind")
    to_pipe = str(output) == STANDARD_STREAM
    if to_pipe and as_json:
        raise ConfigError("standard output (-o -) holds the pictures: leave out --json, or name a file")
    if planes is None:
        check_outputs([output], [stream, model])
    names = [name.strip() for name in planes.split(",")] if planes is not None else []

    def show(picture: CheckedPicture) -> None:
        if not as_json:
            (err if to_pipe else out).print(_line(picture), markup=False, highlight=False, soft_wrap=True)

    hook = None
    if has_loop_filter(stream):
        from codecnn.filtering import LoopFilter
        from codecnn.models import pick_device

        hook = LoopFilter(model, device=pick_device(device))
    elif model is not None:
        raise ConfigError(f"{stream} was not coded with a CNN filter in the loop: leave out -m")
    with progress("decoding", "picture") as report:
        pictures = decode_file(
            stream, output, names, frames=frames, check=show if check else None, progress=report, hook=hook
        )
    counts = summary_of(pictures)
    facts: dict[str, Any] = {"stream": str(stream), "output": None if output is None else str(output)}
    if as_json:
        print_json(facts | counts | {"pictures": [asdict(picture) for picture in pictures]})
    elif not to_pipe:
        facts = {key: value for key, value in facts.items() if value is not None}
        text = (
            f"{len(pictures)}; {counts['ok']} equal their hash, {counts['differs']} differ, {counts['none']} have none"
        )
        print_facts(facts | {"pictures": text}, False)
    wrong = [str(picture.poc) for picture in unproven(pictures)]
    if wrong:
        listed = ", ".join(wrong[:10]) + (", ..." if len(wrong) > 10 else "")
        raise FormatError(
            f"{stream}: {len(wrong)} of {len(pictures)} pictures differ from their hash or lack a reference picture: "
            f"POC {listed}"
        )


def _line(picture: Any) -> str:
    """Return the line of a picture for --check."""
    qps = ",".join(map(str, sorted(set(picture.slice_qps))))
    missing = f"  missing references: POC {', '.join(map(str, picture.missing))}" if picture.missing else ""
    return f"POC {picture.poc:<6} {picture.slice_type}  QP {qps:<4} {picture.hash}{missing}"
